"""Read chunks and documents that a caller may see, by ID."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from retrieval_core.errors import InvalidParameterError, NotFoundError, UnreadableFileError
from retrieval_core.ports import ChunkRange, FetchRequest
from retrieval_core.service.service_context import WHOLE, ServiceModel
from retrieval_core.types.filters import chunk_fields, matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core.types import JSON, Chunk, Document
    from retrieval_core.types.filters import Filter

MOST_NEIGHBORS = 20
MOST_CHARACTERS = 200_000
LARGEST_OFFSET = 2**31 - 1
LAST_PAGE = 1_000_000
WIDEST_PICTURE = 2_000
NARROWEST_PICTURE = 100
BETWEEN = "\n\n"
"""What joins the chunks of a document without its text."""

Id = Annotated[str, Field(min_length=1)]
IndexName = Annotated[str | None, Field(description="Name of the index. Default: the first one")]
NeighborCount = Annotated[int, Field(ge=0, le=MOST_NEIGHBORS), WHOLE]


class ChunkRequest(ServiceModel):
    """A request for a chunk."""

    id: Annotated[Id, Field(description="ID of a search result")]
    index: IndexName = None


class ReadRequest(ServiceModel):
    """A request for the text of a chunk or document."""

    id: Annotated[Id, Field(description="ID of a search result or document")]
    index: IndexName = None
    around: Annotated[NeighborCount, Field(description="Chunks to add before and after a chunk")] = 0


class NeighborsRequest(ChunkRequest):
    """A request for a chunk and the chunks before and after it in its document."""

    before: Annotated[NeighborCount, Field(description="Number of chunks before it")] = 1
    after: Annotated[NeighborCount, Field(description="Number of chunks after it")] = 1


class DocumentRequest(ServiceModel):
    """A request for a part of a document. Offsets count code points."""

    id: Annotated[Id, Field(description="ID of the document")]
    index: IndexName = None
    offset: Annotated[int, Field(ge=0, le=LARGEST_OFFSET, description="Start of the part, in code points"), WHOLE] = 0
    limit: Annotated[int, Field(ge=1, le=MOST_CHARACTERS, description="Longest part, in code points"), WHOLE] = 50_000


class PageRequest(ChunkRequest):
    """A request for the position of a chunk on a page of its PDF file."""

    page: Annotated[
        int | None,
        Field(ge=1, le=LAST_PAGE, description="One of the pages of the chunk, from 1. Default: its first page"),
        WHOLE,
    ] = None


class PictureRequest(PageRequest):
    """A request for a picture of a page of a PDF file."""

    width: Annotated[
        int,
        Field(ge=NARROWEST_PICTURE, le=WIDEST_PICTURE, description="Width in pixels; very long pages get fewer"),
        WHOLE,
    ] = 1_000


@dataclass(frozen=True, slots=True)
class ReadResponse:
    """The text and fields of a chunk or a whole document.

    Attributes:
        fields: The fields that filters can name, without the text.
        chunk: The chunk; ``None`` for a document.
    """

    id: str
    title: str | None
    source: str | None
    text: str
    fields: Mapping[str, JSON]
    chunk: Chunk | None = None


class DocumentChunk(ServiceModel):
    """The position of a chunk in its document."""

    id: str
    start: Annotated[int, Field(description="Start in the text of the whole document, in code points")]
    end: Annotated[int, Field(description="End in the text of the whole document, in code points")]
    section_path: Annotated[tuple[str, ...], Field(description="Headings above the chunk, outermost first")]
    page_span: Annotated[tuple[int, int] | None, Field(description="First and last page, from 1")] = None


class DocumentResponse(ServiceModel):
    """A part of a document, with its chunks. Offsets count code points."""

    id: str
    title: str | None = None
    source: str | None = None
    timestamp: Annotated[str | None, Field(description="When it was indexed, in UTC")] = None
    metadata: dict[str, Any]
    text: Annotated[str, Field(description="Text of the requested part; empty after the end of the document")]
    offset: Annotated[int, Field(description="Start of the part, in code points")]
    length: Annotated[int, Field(description="Length of the whole document, in code points")]
    last_page: Annotated[int | None, Field(description="Last page or slide that has a chunk, from 1")] = None
    chunks: Annotated[tuple[DocumentChunk, ...], Field(description="Chunks that overlap the part")]


class PageResponse(ServiceModel):
    """The position of a chunk on a page. Lengths are in points, 72 to an inch."""

    page: Annotated[int, Field(ge=1, description="Page number, from 1")]
    pages: Annotated[int, Field(ge=1, description="Number of pages of the document")]
    width: float
    height: float
    boxes: Annotated[
        tuple[Annotated[tuple[float, ...], Field(min_length=4, max_length=4)], ...],
        Field(
            description="Left, top, right and bottom of each line of the chunk, from the upper left corner of the "
            "page; empty if its text isn't found on the page"
        ),
    ]


async def read_chunk(context: ServiceContext, request: ChunkRequest) -> Chunk:
    """Return a chunk.

    Raises:
        NotFoundError: There is no such chunk that the caller may see.
        StoreError: The index can't be read.
    """
    store = await context.index(request.index).store()
    found = await store.fetch(FetchRequest(chunk_ids=(request.id,), filter=context.tenant))
    if (chunk := found.chunks.get(request.id)) is None:
        raise NotFoundError("Chunk", request.id)
    return chunk


async def read(context: ServiceContext, request: ReadRequest) -> ReadResponse:
    """Return the text of a chunk or document. If the text of a document isn't stored, its chunks are joined.

    Raises:
        NotFoundError: There is no such chunk or document that the caller may see.
        StoreError: The index can't be read.
    """
    wanted, tenant = request.id, context.tenant
    store = await context.index(request.index).store()
    found = await store.fetch(FetchRequest(chunk_ids=(wanted,), document_ids=(wanted,), filter=tenant))
    if (chunk := found.chunks.get(wanted)) is not None:
        text = chunk.text
        if request.around:
            near = NeighborsRequest(id=wanted, index=request.index, before=request.around, after=request.around)
            text = _join_texts(await read_neighbors(context, near)) or text
        return ReadResponse(chunk.id, chunk.title, chunk.source, text, chunk_fields(chunk), chunk)
    document = found.documents.get(wanted)
    if document is not None and _may_see(document, tenant):
        return ReadResponse(document.id, document.title, document.source, document.text, _fields_of(document))
    found = await store.fetch(FetchRequest(ranges=(ChunkRange.whole(wanted),), filter=tenant))
    if not found.chunks:
        raise NotFoundError("Document", wanted)
    whole = _joined(wanted, _in_order(found.chunks.values()))
    return ReadResponse(wanted, whole.title, whole.source, whole.text, {"source": whole.source})


async def read_neighbors(context: ServiceContext, request: NeighborsRequest) -> tuple[Chunk, ...]:
    """Return a chunk and the chunks before and after it in its document, in order.

    Raises:
        NotFoundError: There is no such chunk that the caller may see.
        StoreError: The index can't be read.
    """
    own = await read_chunk(context, ChunkRequest(id=request.id, index=request.index))
    store, place = await context.index(request.index).store(), own.chunk_index
    near = ChunkRange(own.document_id, max(0, place - request.before), place + request.after)
    found = await store.fetch(FetchRequest(chunk_ids=(request.id,), ranges=(near,), filter=context.tenant))
    return tuple(_in_order(found.chunks.values()))


async def read_document(context: ServiceContext, request: DocumentRequest) -> DocumentResponse:
    """Return a part of a document, with the chunks that overlap it.

    Raises:
        NotFoundError: There is no such document that the caller may see.
        StoreError: The index can't be read.
    """
    store = await context.index(request.index).store()
    whole_range = ChunkRange.whole(request.id)
    found = await store.fetch(FetchRequest(document_ids=(request.id,), ranges=(whole_range,), filter=context.tenant))
    chunks, document = _in_order(found.chunks.values()), found.documents.get(request.id)
    if document is not None and _may_see(document, context.tenant):
        whole = _stored(document, chunks)
    elif chunks:
        whole = _joined(request.id, chunks)
    else:
        raise NotFoundError("Document", request.id)
    end = request.offset + request.limit
    return DocumentResponse(
        id=whole.id,
        title=whole.title,
        source=whole.source,
        timestamp=None if whole.timestamp is None else in_utc(whole.timestamp),
        metadata=dict(whole.metadata),
        text=whole.text[request.offset : end],
        offset=request.offset,
        length=len(whole.text),
        last_page=max((chunk.page_span.last for chunk, *_ in whole.placed if chunk.page_span), default=None),
        chunks=tuple(
            DocumentChunk(
                id=chunk.id,
                start=start,
                end=stop,
                section_path=chunk.section_path,
                page_span=None if chunk.page_span is None else (chunk.page_span.first, chunk.page_span.last),
            )
            for chunk, start, stop in whole.placed
            if start < end and stop > request.offset
        ),
    )


async def read_page(context: ServiceContext, request: PageRequest) -> PageResponse:
    """Return the position of a chunk on one of its pages.

    Raises:
        NotFoundError: There is no such chunk, or no such page that the caller may see.
        StoreError: The index can't be read.
    """
    chunk = await _chunk_of_visible_document(context, request)
    index = await context.index(request.index).index()
    try:
        place = await index.aplace_on_page(chunk, request.page)
    except (UnreadableFileError, InvalidParameterError) as error:
        raise _no_page(request, error) from None
    return PageResponse(
        page=place.page, pages=place.pages, width=place.width, height=place.height, boxes=tuple(place.boxes)
    )


async def read_picture(context: ServiceContext, request: PictureRequest) -> bytes:
    """Return a picture of a page of a chunk, as PNG.

    Raises:
        NotFoundError: There is no such chunk, or no such page that the caller may see.
        StoreError: The index can't be read.
    """
    chunk = await _chunk_of_visible_document(context, request)
    index = await context.index(request.index).index()
    try:
        return await index.apicture_of_page(chunk, request.width, request.page)
    except (UnreadableFileError, InvalidParameterError) as error:
        raise _no_page(request, error) from None


def in_utc(moment: datetime) -> str:
    """Return a time as ``YYYY-MM-DDTHH:MM:SSZ``. A time without a zone is read as UTC."""
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return aware.replace(tzinfo=None).isoformat(timespec="seconds") + "Z"  # strftime writes the year 922 with 3 digits


@dataclass(frozen=True, slots=True)
class _Whole:
    """A document with its chunks.

    Attributes:
        placed: Chunks whose position is known, in order, with start and end in code points.
    """

    id: str
    text: str
    placed: tuple[tuple[Chunk, int, int], ...]
    title: str | None
    source: str | None
    timestamp: datetime | None
    metadata: Mapping[str, JSON]


def _stored(document: Document, chunks: Sequence[Chunk]) -> _Whole:
    placed = tuple((chunk, chunk.span.start, chunk.span.end) for chunk in chunks if chunk.span is not None)
    return _Whole(
        document.id, document.text, placed, document.title, document.source, document.timestamp, document.metadata
    )


def _joined(document_id: str, chunks: Sequence[Chunk]) -> _Whole:
    """Return a document made of its chunks, which are in order. It has the fields that all of these share."""
    placed: list[tuple[Chunk, int, int]] = []
    start = 0
    for chunk in chunks:
        placed.append((chunk, start, start + len(chunk.text)))
        start += len(chunk.text) + len(BETWEEN)
    first = chunks[0]
    shared = {
        name: value
        for name, value in first.metadata.items()
        if all(name in chunk.metadata and chunk.metadata[name] == value for chunk in chunks)
    }
    text = BETWEEN.join(chunk.text for chunk in chunks)
    return _Whole(document_id, text, tuple(placed), first.title, first.source, first.timestamp, shared)


def _join_texts(chunks: Iterable[Chunk]) -> str:
    """Return chunks of one document as one text, without what a chunk repeats of the one before it."""
    text, end = "", None
    for chunk in chunks:
        repeated = 0 if end is None or chunk.span is None else max(0, end - chunk.span.start)
        text += ("" if not text or repeated else BETWEEN) + chunk.text[repeated:]
        end = None if chunk.span is None else chunk.span.end
    return text


def _in_order(chunks: Iterable[Chunk]) -> list[Chunk]:
    return sorted(chunks, key=lambda chunk: chunk.chunk_index)


def _fields_of(document: Document) -> dict[str, JSON]:
    """Return the fields of a document that filters can name."""
    moment = document.timestamp.isoformat() if document.timestamp else None
    return {"source": document.source, "timestamp": moment, **document.metadata}


def _may_see(document: Document, tenant: Filter | None) -> bool:
    """Whether a document itself passes the caller's filter, and not only chunks of it."""
    return tenant is None or matches(tenant, _fields_of(document))


async def _chunk_of_visible_document(context: ServiceContext, request: PageRequest) -> Chunk:
    """Return a chunk whose whole document the caller may see: a page shows what is around it.

    Raises:
        NotFoundError: There is none.
    """
    chunk = await read_chunk(context, ChunkRequest(id=request.id, index=request.index))
    if context.tenant is not None:
        store = await context.index(request.index).store()
        others = (await store.fetch(FetchRequest(ranges=(ChunkRange.whole(chunk.document_id),)))).chunks.values()
        if not all(matches(context.tenant, chunk_fields(other)) for other in others):
            raise _no_page(request, "the caller may see only some of the document")
    return chunk


def _no_page(request: PageRequest, reason: object) -> NotFoundError:
    told = reason.reason if isinstance(reason, UnreadableFileError) else reason
    return NotFoundError("Page", f"of {request.id}", str(told))
