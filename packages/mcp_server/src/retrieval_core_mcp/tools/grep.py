"""The tool ``grep``: lines that match a pattern, grouped by their documents."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, PrivateAttr, computed_field

from retrieval_core.pipeline.grep import MOST_CONTEXT, cursor_after
from retrieval_core.service.grep import LONGEST_PATH, GrepRequest
from retrieval_core.service.service_context import WHOLE
from retrieval_core.types.documents import format_range, name_document
from retrieval_core.types.escapes import escape_name
from retrieval_core.types.grep import GrepOutput  # noqa: TC001 - pydantic reads annotations
from retrieval_core_mcp.fitting import clean
from retrieval_core_mcp.tools.fit import Shrink
from retrieval_core_mcp.tools.names import can_be_named, is_short
from retrieval_core_mcp.tools.signals import do_not_follow, signs_in
from retrieval_core_mcp.tools.tool import AnswerPart, Sized, ToolAnswer

if TYPE_CHECKING:
    from retrieval_core.service.grep import GrepResponse, MatchedDocument, MatchedLine
    from retrieval_core_mcp.tools.tool import ToolCall

_BREAK = re.compile(r"[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
"""What other programs take for the end of a line."""


class GrepArguments(Sized, GrepRequest):
    """Arguments of the tool grep."""

    pattern: Annotated[str, Field(min_length=1, max_length=1_000, description="RE2, smart case")]
    path: Annotated[str | None, Field(max_length=LONGEST_PATH, description="Glob or part of it")] = None
    literal: Annotated[bool, Field(description="No regex")] = False
    output: Annotated[GrepOutput, Field(description="What to list")] = "lines"
    context: Annotated[int, Field(ge=0, le=MOST_CONTEXT, description="Lines around a match"), WHOLE] = 0
    cursor: Annotated[str | None, Field(description="Next page")] = None


class GrepHit(AnswerPart):
    """A line of a document, or a document with its number of matching lines."""

    path: str
    source: str | None = Field(default=None, description="Path or URL, if the ID of the document is a UUID")
    line: int | None = None
    text: str | None = None
    page: str | None = None
    is_context: bool | None = Field(default=None, description="It is around a match")
    count: int | None = None


class GrepAnswer(ToolAnswer):
    """Lines that match, ordered by path and line."""

    hits: Annotated[list[GrepHit], Shrink(least=1)]
    note: str | None = None
    signs: list[str] | None = None
    _rest: tuple[int, str | None] = PrivateAttr()

    @computed_field
    @property
    def next_cursor(self) -> str | None:
        """The cursor of the next part, if there is one."""
        total, cursor = self._rest
        if len(self.hits) == total:
            return cursor
        last = next((hit for hit in reversed(self.hits) if not hit.is_context), None)
        return None if last is None else cursor_after(last.path, last.line)

    @classmethod
    def of(cls, response: GrepResponse, call: ToolCall) -> Self:
        """Return the lines as a list. A document whose ID can't be written is left out."""
        hits: list[GrepHit] = []
        for document in response.documents:
            if can_be_named(document.id, call.limit):
                hits += [_hit(document, line) for line in document.lines] or [_hit(document)]
        notes: list[str] = []
        if response.incomplete is not None:
            notes.append(f"The index is still being built: {response.incomplete}.")
        if response.timed_out:
            notes.append("Not everything was searched within a second. Use the cursor, or narrow it with path.")
        if not hits:
            notes.append(_nothing(call.request, is_first=call.request.cursor is None) if not response.timed_out else "")
        signs = signs_in("\n".join(hit.text for hit in hits if hit.text))
        answer = cls(hits=hits, note=" ".join(filter(None, notes)) or None, signs=signs or None)
        answer._rest = len(hits), response.next_cursor
        return answer

    def render(self) -> str:
        """Return each document as a line with its path, and below it its lines as ``12: text``."""
        lines = [self.note] if self.note else []
        if self.next_cursor is not None:
            lines.append(f"cursor: {self.next_cursor}")
        if self.signs:
            lines.append(do_not_follow("this text", self.signs))
        path, number = "", 0
        for hit in self.hits:
            if hit.line is None:
                lines.append(_named(hit) + (f": {hit.count}" if hit.count is not None else ""))
                continue
            if hit.path != path:
                lines += ["", _named(hit)] if lines else [_named(hit)]
            elif hit.line > number + 1 and any(each.is_context for each in self.hits):
                lines.append("--")
            page = f" (p. {hit.page})" if hit.page else ""
            lines.append(f"{hit.line}{page}: {hit.text}")
            path, number = hit.path, hit.line
        return "\n".join(lines)


def _named(hit: GrepHit) -> str:
    """Return the name that a search gives the document, with its ID if that is another one."""
    return escape_name(hit.path) if hit.source is None else f"{escape_name(hit.source)} (id: {escape_name(hit.path)})"


def _hit(document: MatchedDocument, line: MatchedLine | None = None) -> GrepHit:
    name = name_document(document.id, document.source)
    source = name if name != document.id and is_short(name) else None
    if line is None:
        return GrepHit(path=document.id, source=source, count=document.count)
    pages = line.page_span
    return GrepHit(
        path=document.id,
        source=source,
        line=line.number,
        text=_BREAK.sub(" ", clean(line.text)),
        page=None if pages is None else format_range(*pages),
        is_context=None if line.is_match else True,
    )


def _nothing(request: GrepArguments, *, is_first: bool) -> str:
    if not is_first:
        return "There are no more matches."
    where = f" in {request.path!r:.80}" if request.path else ""
    narrowed = " that pass the filter" if request.filters else ""
    return f"No line matches{where}{narrowed}. Try a shorter pattern, or search, which finds other wordings."
