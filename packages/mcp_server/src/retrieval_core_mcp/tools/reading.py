"""The tools ``fetch`` and ``get_neighbors``: a chunk with those around it, or a document in parts."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, PrivateAttr, computed_field

from retrieval_core.service.reading import (
    MOST_PASSAGES,
    AroundRequest,
    NeighborsRequest,
    NeighborsResponse,
    ReadRequest,
    ReadResponse,
    read,
)
from retrieval_core.service.service_context import SEVERAL, WHOLE
from retrieval_core.types.escapes import escape_name, escape_text
from retrieval_core_mcp.fitting import clean, fit_mapping, good_end, in_one_line
from retrieval_core_mcp.tools.arguments import shown
from retrieval_core_mcp.tools.fit import Shrink
from retrieval_core_mcp.tools.names import LONGEST_NAME, address_of, can_be_named, page_of, place_of, section_of
from retrieval_core_mcp.tools.signals import do_not_follow, signs_in
from retrieval_core_mcp.tools.tool import LONGEST_ID, AnswerPart, Id, Sized, ToolAnswer, ToolFailure

if TYPE_CHECKING:
    from retrieval_core.service.passages import Passage
    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core.types import Chunk
    from retrieval_core_mcp.tools.tool import ToolCall

_CHANGED = "The file was changed after it was indexed; these are the lines of then."
_NAMED_ALREADY = frozenset({"id", "title", "parent_id"})


_Name = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]


class FetchArguments(Sized, AroundRequest):
    """Arguments of the tool fetch."""

    id: Annotated[str, Field(min_length=1, max_length=LONGEST_ID, description="path:lines, path, glob or id")] = ""
    ids: Annotated[tuple[_Name, ...], Field(max_length=MOST_PASSAGES, description="Several of them"), SEVERAL] = ()
    offset: Annotated[int, Field(ge=0, description="First character"), WHOLE] = 0


async def fetch(context: ServiceContext, request: FetchArguments) -> ReadResponse:
    """Return one text or several; each of several has its path and lines above it.

    Raises:
        NotFoundError: There is nothing of that name that the caller may see.
        StoreError: The index can't be read.
    """
    from retrieval_core.service.passages import PassagesRequest, read_passages  # noqa: PLC0415 - likewise

    names = (*filter(None, (request.id,)), *request.ids)
    if not names:
        msg = "id: it is missing. Give an id, a path, or a path with lines such as guide.md:120-160."
        raise ToolFailure(msg)
    if len(names) == 1 and not {*"*?"} & {*names[0]}:
        around = {name: getattr(request, name) for name in AroundRequest.model_fields}
        found = await read(context, ReadRequest(id=names[0], **around))
        chunks = () if found.of_document is None else (found.of_document,)
        return replace(found, file_changed=bool(await context.changed_since(request.index, chunks)))
    asked = PassagesRequest(ids=names, index=request.index, lines_around=request.lines_around)
    several = await read_passages(context, asked)
    named = "|".join(re.escape((passage.location or passage.id).rpartition(":")[0]) for passage in several.passages)
    headings = re.compile(rf"^(?=(?:{named}):\d)", re.MULTILINE)
    texts = [_written(passage, headings) for passage in several.passages]
    if several.omitted:
        texts.append(f"{several.omitted} more documents match: use a narrower glob.")
    return ReadResponse(", ".join(names), None, None, "\n\n".join(texts), {})


def _written(passage: Passage, headings: re.Pattern[str]) -> str:
    """Return a text below its heading. A backslash is before lines of it that look like the heading of another."""
    if passage.error is not None:
        return f"{passage.id}: {passage.error}"
    text = headings.sub(r"\\", passage.text)
    return "\n".join([passage.location or passage.id, *([_CHANGED] if passage.file_changed else []), text])


class FetchAnswer(ToolAnswer):
    """A chunk, lines or a document, or the part of it that fits into one answer."""

    id: str
    location: Annotated[str | None, Field(description="Path with lines: guide.md:120-160")] = None
    title: str
    text: Annotated[str, Shrink()]
    url: str
    metadata: dict[str, Any]
    metadata_shortened: bool | None = None
    offset: int
    total_characters: int
    changed: Annotated[bool | None, Field(description="Whether the file was changed after it was indexed")] = None
    signs: list[str] | None = None

    @computed_field(description="The offset of the next part")
    @property
    def next_offset(self) -> int | None:
        """The offset of the next part."""
        end = self.offset + len(self.text)
        return end if end < self.total_characters else None

    @classmethod
    def of(cls, response: ReadResponse, call: ToolCall) -> Self:
        """Return the text from an offset on.

        Raises:
            ToolFailure: The offset is after the end.
        """
        text, offset, fields = clean(response.text), call.request.offset, response.fields
        if offset and offset >= len(text):
            msg = f"offset: {shown(offset)} is behind the end of the text, which has {len(text)} characters."
            raise ToolFailure(msg)
        present = {name: each for name, each in fields.items() if name not in _NAMED_ALREADY and each not in (None, ())}
        metadata, is_shortened = fit_mapping(present, call.limit // 5, LONGEST_NAME)
        return cls(
            id=response.id,
            location=response.location if response.lines else None,
            title=in_one_line(response.title or response.source or response.id, LONGEST_NAME),
            text=text[offset:],
            url=address_of(response.source, fields, response.id, call.served.base_url if call.as_json else None),
            metadata=metadata,
            metadata_shortened=is_shortened or None,
            offset=offset,
            changed=response.file_changed or None,
            total_characters=len(text),
            signs=signs_in(text[offset : offset + call.limit]) or None,  # more than can be shown
        )

    def cut(self, text: str, size: int) -> str:
        """Return the beginning of the text; ``next_offset`` says where it goes on."""
        return text[: good_end(text, 0, size)]

    def render(self) -> str:
        """Return a heading and the text."""
        name = self.location or self.title
        is_named = self.location is not None or self.id in {name, self.title}
        lines = [name if is_named else f"{name} (id: {escape_name(self.id)})"]
        if self.changed:
            lines.append(_CHANGED)
        if self.signs:
            lines.append(do_not_follow("this text", self.signs))
        if self.next_offset is not None or self.offset:  # before the text, which could say the same
            end = self.next_offset or self.total_characters
            rest = "" if self.next_offset is None else f" For the rest, fetch the same id with offset {end}."
            lines.append(f"Characters {self.offset} to {end} of {self.total_characters}.{rest}")
        return "\n\n".join([*lines, self.text])


class NeighborsArguments(Sized, NeighborsRequest):
    """Arguments of the tool get_neighbors."""

    id: Id


class Neighbor(AnswerPart):
    """A chunk beside another one, or that one itself."""

    id: str
    position: int = Field(description="0 for the given chunk, -1 for the one before it")
    text: Annotated[str, Shrink()]
    section: str | None = None
    page: str | None = None
    signs: list[str] | None = None


class NeighborsAnswer(ToolAnswer):
    """A chunk with its neighbors, in the order of the document."""

    passages: Annotated[list[Neighbor], Shrink(least=1, by=lambda each: abs(each.position))]
    _all: tuple[int, dict[int, str]] = PrivateAttr()

    @computed_field
    @property
    def omitted(self) -> int:
        """How many were left out to keep the answer short."""
        return self._all[0] - len(self.passages)

    @classmethod
    def of(cls, response: NeighborsResponse, call: ToolCall) -> Self:
        """Return chunks with their positions. One whose ID can't be written is left out."""
        own = response.chunk.chunk_index
        named = [chunk for chunk in response.chunks if can_be_named(chunk.id, call.limit)]
        lines = Counter(chunk.lines for chunk in response.chunks)
        answer = cls(passages=[_neighbor(chunk, chunk.chunk_index - own) for chunk in named])
        places = {chunk.chunk_index - own: place_of(chunk, shares_lines=lines[chunk.lines] > 1) for chunk in named}
        answer._all = len(response.chunks), places
        return answer

    def render(self) -> str:
        """Return each chunk below a line with its position and source."""
        lines = [f"{self.omitted} left out to keep this short."] if self.omitted else []
        lines += [do_not_follow(f"[{each.position:+d}]", each.signs) for each in self.passages if each.signs]
        lines += [
            f"[{each.position:+d}] {self._all[1][each.position]}\n{escape_text(each.text)}" for each in self.passages
        ]
        return "\n\n".join(lines)


def _neighbor(chunk: Chunk, position: int) -> Neighbor:
    return Neighbor(
        id=chunk.id,
        position=position,
        text=clean(chunk.text),
        section=section_of(chunk),
        page=page_of(chunk.page_span),
        signs=signs_in(chunk.text) or None,
    )
