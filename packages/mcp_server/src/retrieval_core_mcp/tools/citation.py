"""The tool ``verify_citation``: whether words stand in the documents, and where."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from retrieval_core_mcp.fitting import shorten
from retrieval_core_mcp.tools.names import place_of
from retrieval_core_mcp.tools.tool import LONGEST_QUOTE, DeclaredTool, PassageArguments, StructuredContent, ToolAnswer

if TYPE_CHECKING:
    from retrieval_core_mcp.library import Entry
    from retrieval_core_mcp.tools.tool import ToolCall

_SPACE = re.compile(r"\s+")
_LONGEST_ECHO = 400


class CitationArguments(PassageArguments):
    """Arguments of the tool verify_citation."""

    quote: Annotated[
        str, Field(min_length=1, max_length=LONGEST_QUOTE, description="The words, as the passage should have them")
    ]


class CitationAnswer(StructuredContent):
    """Whether a quote stands where it should."""

    verdict: Literal["found", "elsewhere", "not_found", "gone"] = Field(
        description="In the passage; elsewhere in its document; not in it; no such passage"
    )
    file_changed: bool | None = None
    place: str | None = None
    text: str | None = Field(default=None, description="What stands there")
    offset: int | None = None


async def run(call: ToolCall) -> ToolAnswer:
    """Look for a quote in a passage, and then in its document."""
    given: CitationArguments = call.given
    entry = await call.library.fetch(given.id, call.condition)
    if entry is None:
        return _answer(CitationAnswer(verdict="gone"))
    changed = None
    place = entry.id
    if (chunk := entry.chunk) is not None:
        place = place_of(chunk)
        changed = chunk.id in await call.library.changed((chunk,))
    # A document may be long, and then looking through it takes a while.
    if (found := await asyncio.to_thread(find_quote, given.quote, entry.text)) is not None:
        return _answer(_found("found", entry, place, found, changed=changed))
    if chunk is not None:
        document = await call.library.fetch(chunk.document_id, call.condition)
        found = None if document is None else await asyncio.to_thread(find_quote, given.quote, document.text)
        if document is not None and found is not None:
            return _answer(_found("elsewhere", document, place, found, changed=changed))
    own = shorten(entry.text, _LONGEST_ECHO)
    return _answer(CitationAnswer(verdict="not_found", file_changed=changed, place=place, text=own))


def find_quote(quote: str, text: str) -> tuple[int, int] | None:
    """Return where the words of a quote stand in a text, whatever white space is between them.

    It takes time linear in both.
    """
    start = text.find(quote)
    if start >= 0:
        return start, start + len(quote)
    words = _SPACE.sub(" ", quote).strip()
    at = _SPACE.sub(" ", text).find(words) if words else -1
    return None if at < 0 else (_place(text, at), _place(text, at + len(words) - 1) + 1)


def _place(text: str, plain: int) -> int:
    """Return where a character of a text stands, by where it stands in the same with single spaces."""
    shift = 0
    for space in _SPACE.finditer(text):
        if space.start() - shift >= plain:
            break
        shift += space.end() - space.start() - 1
    return plain + shift


def _found(
    verdict: Literal["found", "elsewhere"], entry: Entry, place: str, found: tuple[int, int], *, changed: bool | None
) -> CitationAnswer:
    start, end = found
    text = shorten(entry.text[start:end], _LONGEST_ECHO)
    return CitationAnswer(verdict=verdict, file_changed=changed, place=place, text=text, offset=start)


_TOLD = {
    "found": "The quote stands in the passage, word for word.",
    "elsewhere": "The quote does not stand in this passage, but elsewhere in its document.",
    "not_found": "The quote does not stand in the passage or its document. The passage begins with:",
    "gone": "There is no passage of this id any more.",
}


def _answer(answer: CitationAnswer) -> ToolAnswer:
    lines = [_TOLD[answer.verdict]]
    if answer.file_changed:
        lines.append("The file was changed after it was indexed, and says something else now.")
    lines += [part for part in (answer.place, answer.text) if part]
    return ToolAnswer(answer.model_dump(mode="json", exclude_none=True), "\n".join(lines))


TOOL = DeclaredTool(
    "verify_citation",
    "Check a quote",
    "Check whether a quote stands in a passage, word for word, and whether its file was changed since.",
    CitationArguments,
    CitationAnswer,
    run,
)
