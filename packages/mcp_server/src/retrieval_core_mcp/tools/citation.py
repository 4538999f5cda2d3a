"""The tool ``verify_citation``: whether words stand in the documents, and where."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from retrieval_core.text.quotes import find_quote
from retrieval_core_mcp.fitting import shorten
from retrieval_core_mcp.tools.names import place_of
from retrieval_core_mcp.tools.tool import LONGEST_QUOTE, DeclaredTool, PassageArguments, StructuredContent, ToolAnswer

if TYPE_CHECKING:
    from retrieval_core.text.quotes import QuoteMatch
    from retrieval_core.types.filters import Filter
    from retrieval_core_mcp.library import Entry, Library
    from retrieval_core_mcp.tools.tool import ToolCall

_LONGEST_ECHO = 400


class CitationArguments(PassageArguments):
    """Arguments of the tool verify_citation."""

    quote: Annotated[
        str, Field(min_length=1, max_length=LONGEST_QUOTE, description="The words, as the passage should have them")
    ]


class CitationAnswer(StructuredContent):
    """Whether a quote stands where it should."""

    verdict: Literal["exact", "equivalent", "not_found", "gone"] = Field(
        description="equivalent: in other typography or markup, or with marked omissions; gone: no such passage"
    )
    where: Literal["passage", "document"] | None = None
    file_changed: bool | None = None
    place: str | None = None
    text: str | None = Field(default=None, description="What stands there")
    offset: int | None = None


async def run(call: ToolCall) -> ToolAnswer:
    """Look for a quote in a passage, and then in its document."""
    given: CitationArguments = call.given
    return _answer(await check_quote(call.library, given.id, given.quote, call.condition))


async def check_quote(library: Library, entry_id: str, quote: str, condition: Filter | None = None) -> CitationAnswer:
    """Return whether a quote stands in a passage, or elsewhere in its document.

    Args:
        library: Reads the index.
        entry_id: Of a passage or a document.
        quote: The words.
        condition: What every passage must pass that the caller sees.

    Raises:
        StoreError: The index cannot be read.
    """
    entry = await library.fetch(entry_id, condition)
    if entry is None:
        return CitationAnswer(verdict="gone")
    changed = None
    place = entry.id
    if (chunk := entry.chunk) is not None:
        place = place_of(chunk)
        changed = chunk.id in await library.changed((chunk,))
    # A document may be long, and then looking through it takes a while.
    if (found := await asyncio.to_thread(find_quote, quote, entry.text)) is not None:
        return _found(found, "document" if chunk is None else "passage", entry, place, changed=changed)
    if chunk is not None:
        document = await library.fetch(chunk.document_id, condition)
        found = None if document is None else await asyncio.to_thread(find_quote, quote, document.text)
        if document is not None and found is not None:
            return _found(found, "document", document, place, changed=changed)
    own = shorten(entry.text, _LONGEST_ECHO)
    return CitationAnswer(verdict="not_found", file_changed=changed, place=place, text=own)


def _found(
    found: QuoteMatch, where: Literal["passage", "document"], entry: Entry, place: str, *, changed: bool | None
) -> CitationAnswer:
    text = shorten(found.words_of(entry.text), _LONGEST_ECHO)
    offset = found.spans[0].start
    return CitationAnswer(
        verdict=found.verdict, where=where, file_changed=changed, place=place, text=text, offset=offset
    )


_TOLD: dict[tuple[str, str | None], str] = {
    ("exact", "passage"): "The passage contains the quote, word for word.",
    ("exact", "document"): "The document contains the quote, word for word, but this passage does not.",
    ("equivalent", "passage"): "The passage contains the words of the quote, written like this:",
    (
        "equivalent",
        "document",
    ): "The document, but not this passage, contains the words of the quote, written like this:",
    ("not_found", None): "Neither the passage nor its document contains the quote. The passage begins with:",
    ("gone", None): "There is no passage with this id any more.",
}


def _answer(answer: CitationAnswer) -> ToolAnswer:
    lines = [_TOLD[answer.verdict, answer.where]]
    if answer.file_changed:
        lines.append("The file was changed after it was indexed, and says something else now.")
    lines += [part for part in (answer.place, answer.text) if part]
    return ToolAnswer(answer.model_dump(mode="json", exclude_none=True), "\n".join(lines))


TOOL = DeclaredTool(
    "verify_citation",
    "Check a quote",
    "Check whether a passage or its document contains a quote, and if its file was changed since.",
    CitationArguments,
    CitationAnswer,
    run,
)
