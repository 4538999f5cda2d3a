"""The sections of a document, with the lines and chunks where they begin."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from retrieval_core.errors import NotFoundError
from retrieval_core.ports import ChunkRange, FetchRequest
from retrieval_core.service.reading import ChunkRequest, find_document, read_chunk
from retrieval_core.service.service_context import IndexName, Range, ServiceModel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core.types import Chunk


class OutlineRequest(ServiceModel):
    """A request for the sections of a document."""

    id: Annotated[str, Field(min_length=1, description="ID or path of a document, or the ID of one of its chunks")]
    index: IndexName = None


class OutlineSection(ServiceModel):
    """A section of a document, with those below it."""

    title: Annotated[str, Field(description="Its heading; empty for text above the first one")]
    level: Annotated[int, Field(description="1 for an outermost section")]
    chunk_id: Annotated[str, Field(description="The chunk that it begins in")]
    lines: Annotated[Range | None, Field(description="First and last line, from 1; not set if unknown")] = None
    pages: Annotated[Range | None, Field(description="First and last page, from 1")] = None


class OutlineResponse(ServiceModel):
    """The sections of a document, in its order."""

    id: str
    title: str | None = None
    source: str | None = None
    chunks: Annotated[int, Field(description="Number of its chunks")]
    sections: tuple[OutlineSection, ...]


async def outline(context: ServiceContext, request: OutlineRequest) -> OutlineResponse:
    """Return the sections of a document. Its name may be the end of a path that only one document has.

    Raises:
        NotFoundError: There is no such document that the caller may see, or several have this name.
        StoreError: The index can't be read.
    """
    store = await context.index(request.index).store()

    async def chunks_of(document: str) -> list[Chunk]:
        found = await store.fetch(FetchRequest(ranges=(ChunkRange.whole(document),), filter=context.tenant))
        return sorted(found.chunks.values(), key=lambda chunk: chunk.chunk_index)

    chunks = await chunks_of(request.id)
    if not chunks:
        try:
            name = (await read_chunk(context, ChunkRequest(id=request.id, index=request.index))).document_id
        except NotFoundError:
            name = await find_document(context, request.index, request.id)
        if not (chunks := await chunks_of(name)):
            raise NotFoundError("Document", request.id)
    first = chunks[0]
    return OutlineResponse(
        id=first.document_id,
        title=first.title,
        source=first.source,
        chunks=len(chunks),
        sections=tuple(each.section() for each in _sections(chunks)),
    )


@dataclass(slots=True)
class _Open:
    """A section that further chunks may belong to."""

    path: tuple[str, ...]
    chunks: list[Chunk] = field(default_factory=list["Chunk"])

    def section(self) -> OutlineSection:
        lines = [each.lines for each in self.chunks if each.lines is not None]
        pages = [each.page_span for each in self.chunks if each.page_span is not None]
        return OutlineSection(
            title=self.path[-1] if self.path else "",
            level=max(1, len(self.path)),
            chunk_id=self.chunks[0].id,
            lines=(lines[0][0], lines[-1][1]) if lines else None,
            pages=(pages[0].first, pages[-1].last) if pages else None,
        )


def _sections(chunks: Iterable[Chunk]) -> list[_Open]:
    """Return the sections of chunks in order. A chunk belongs to all sections of its path."""
    found: list[_Open] = []
    stack: list[_Open] = []
    for chunk in chunks:
        path = chunk.section_path
        while stack and (path[: len(stack[-1].path)] != stack[-1].path or (path and not stack[-1].path)):
            stack.pop()
        for depth in range(len(stack[-1].path) + 1 if stack else min(1, len(path)), len(path) + 1):
            stack.append(_Open(path[:depth]))
            found.append(stack[-1])
        for section in stack:
            section.chunks.append(chunk)
    return found
