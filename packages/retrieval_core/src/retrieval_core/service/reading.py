"""Read chunks and documents that a caller may see, by ID."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any
from unicodedata import normalize

from pydantic import Field

from retrieval_core.errors import InvalidParameterError, NotFoundError, UnreadableFileError
from retrieval_core.pipeline.stages.expand import surroundings_of
from retrieval_core.ports import ChunkRange, FetchRequest
from retrieval_core.service.service_context import WHOLE, IndexName, Range, ServiceModel, in_utc
from retrieval_core.types.documents import first_line_of, format_range, lines_of
from retrieval_core.types.escapes import escape_name, unescape_name
from retrieval_core.types.filters import chunk_fields, matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from retrieval_core.ports import Store
    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core.types import JSON, Chunk, Document, Section
    from retrieval_core.types.filters import Filter

MOST_NEIGHBORS = 20
MOST_CHARACTERS = 200_000
LARGEST_OFFSET = 2**31 - 1
LAST_PAGE = 1_000_000
WIDEST_PICTURE = 2_000
NARROWEST_PICTURE = 100
BETWEEN = "\n\n"
"""What joins the chunks of a document without its text."""
MOST_LINES_AROUND = 500
MOST_PASSAGES = 50
"""Texts that one request reads."""
MOST_SUGGESTED = 5
"""Names that a message lists."""
_END = 10**9
"""The last line of a range without one, such as ``guide.md:120-``."""
_WITH_RANGE = re.compile(r"(?P<name>.+):(?P<page>p?)(?P<first>[0-9]{1,9})(?P<to>-(?P<last>[0-9]{1,9})?)?", re.DOTALL)
"""A document with lines, or with pages: ``guide.pdf:p2-3``, ``guide.pdf:p2-``."""

Id = Annotated[str, Field(min_length=1)]
NeighborCount = Annotated[int, Field(ge=0, le=MOST_NEIGHBORS), WHOLE]


class ChunkRequest(ServiceModel):
    """A request for a chunk."""

    id: Annotated[Id, Field(description="ID of a search result, or the path:lines that only it has")]
    index: IndexName = None


class AroundRequest(ServiceModel):
    """What is read around a text."""

    index: IndexName = None
    around: Annotated[NeighborCount, Field(description="Chunks to add before and after a chunk")] = 0
    lines_around: Annotated[
        int, Field(ge=0, le=MOST_LINES_AROUND, description="Lines to add before and after a chunk or lines"), WHOLE
    ] = 0


class ReadRequest(AroundRequest):
    """A request for the text of a chunk, of lines or of a document."""

    id: Annotated[
        Id,
        Field(
            description="ID of a search result or document, or a path, also with lines (path:120-160, path:120-) or "
            "pages (path:p2-3)"
        ),
    ]


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
    """A request for a page of the PDF file of a chunk."""

    page: Annotated[
        int | None,
        Field(ge=1, le=LAST_PAGE, description="One of the pages of the chunk, from 1. Default: its first page"),
        WHOLE,
    ] = None


class PlaceRequest(PageRequest):
    """A request for the position of a chunk, or of a quote in it, on a page of its PDF file."""

    start: Annotated[
        int | None,
        Field(
            ge=0,
            le=LARGEST_OFFSET,
            description="Start of a quote in the document, in code points. Default: the chunk's. If the quote isn't in "
            "the chunk, the position is that of the chunk",
        ),
        WHOLE,
    ] = None
    end: Annotated[
        int | None,
        Field(
            ge=0,
            le=LARGEST_OFFSET,
            description="End of the quote in the document, in code points. Default: the chunk's",
        ),
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
class NeighborsResponse:
    """A chunk, and it with the chunks before and after it, in order."""

    chunk: Chunk
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class ReadResponse:
    """The text and fields of a chunk or a whole document.

    Attributes:
        fields: The fields that filters can name, without the text.
        chunk: The chunk; ``None`` for a document.
        document_id: ID of the document.
        lines: First and last line of the text, from 1; ``None`` if unknown.
        of_document: Any chunk of the document.
        is_part: Whether it is a chunk or some lines, not a whole document.
        file_changed: Whether the file was changed after it was indexed; :func:`read` doesn't look.
    """

    id: str
    title: str | None
    source: str | None
    text: str
    fields: Mapping[str, JSON]
    chunk: Chunk | None = None
    document_id: str = ""
    lines: tuple[int, int] | None = None
    of_document: Chunk | None = None
    is_part: bool = False
    file_changed: bool = False

    @property
    def location(self) -> str:
        """The document, with the lines if they are known: ``guide.md:120-160``."""
        name = escape_name(self.document_id or self.id)
        return f"{name}:{format_range(*self.lines)}" if self.lines else name


class DocumentChunk(ServiceModel):
    """The position of a chunk in its document."""

    id: str
    start: Annotated[int, Field(description="Start in the text of the whole document, in code points")]
    end: Annotated[int, Field(description="End in the text of the whole document, in code points")]
    section_path: Annotated[tuple[str, ...], Field(description="Headings above the chunk, outermost first")]
    page_span: Annotated[Range | None, Field(description="First and last page, from 1")] = None
    lines: Annotated[Range | None, Field(description="First and last line, from 1")] = None


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
            description="Left, top, right and bottom of each line of the chunk or quote, from the upper left corner of "
            "the page; empty if its text isn't found on the page"
        ),
    ]


async def read_chunk(context: ServiceContext, request: ChunkRequest) -> Chunk:
    """Return a chunk by its ID, or by a document and the lines that only this chunk has (``guide.md:120-138``).

    Raises:
        NotFoundError: There is no such chunk that the caller may see, or several have these lines.
        StoreError: The index can't be read.
    """
    store = await context.index(request.index).store()
    found = await store.fetch(FetchRequest(chunk_ids=(request.id,), filter=context.tenant))
    if (chunk := found.chunks.get(request.id)) is not None:
        return chunk
    given = _WITH_RANGE.fullmatch(request.id)
    if given is None or given["page"]:
        raise NotFoundError("Chunk", request.id)
    name = await find_document(context, request.index, given["name"])
    chunks = await _chunks_of(context, store, name)
    first, last = span = _range_in(given)
    if len(same := [each for each in chunks if each.lines == span]) == 1:
        return same[0]
    if same:
        raise NotFoundError("Chunk", request.id, f"several have these lines: {_listed([each.id for each in same])}")
    there = [each.lines for each in chunks if each.lines and each.lines[0] <= last and each.lines[1] >= first]
    shown = _listed([f"{name}:{format_range(*lines)}" for lines in there])
    raise NotFoundError("Chunk", request.id, f"no chunk has these lines; there are {shown}" if there else None)


async def read_cited(context: ServiceContext, request: ChunkRequest) -> Chunk:
    """Return what a citation names: a chunk, as :func:`read_chunk`, or a section in the form of one.

    Raises:
        NotFoundError: There is neither that the caller may see.
        StoreError: The index can't be read.
    """
    try:
        return await read_chunk(context, request)
    except NotFoundError:  # most are chunks, which take one request
        store = await context.index(request.index).store()
        found = await store.fetch(FetchRequest(section_ids=(request.id,), filter=context.tenant))
        section = found.sections.get(request.id)
        if section and (chunk := await _section_as_chunk(context, store, request.id, section)) is not None:
            return chunk
        raise


async def _section_as_chunk(context: ServiceContext, store: Store, name: str, section: Section) -> Chunk | None:
    """Return a section in the form of a chunk; ``None`` if the caller may see only some of its document."""
    document_id, tenant = section.document_id, context.tenant
    around = FetchRequest(
        section_ids=(name,), document_ids=(document_id,), ranges=(ChunkRange(document_id, 0, 0),), filter=tenant
    )
    found = await store.fetch(around)
    chunk = surroundings_of(found, tenant).parents.get(name)
    if chunk is None or chunk.span is None:
        return None
    text = found.documents[document_id].text
    lines = _lines_of_document(text, found.chunks.values())
    return replace(chunk, lines=lines_of(text, chunk.span.start, chunk.span.end, lines))


async def find_shared_lines(context: ServiceContext, index: str | None, chunks: Iterable[Chunk]) -> frozenset[str]:
    """Return the IDs of chunks that have the same lines as the chunk before or after them.

    Chunks of files don't overlap: they share their lines only if these are a single one.
    """
    single = [chunk for chunk in chunks if chunk.lines is not None and chunk.lines[0] == chunk.lines[1]]
    if not single:
        return frozenset()
    near = tuple(ChunkRange(each.document_id, max(0, each.chunk_index - 1), each.chunk_index + 1) for each in single)
    store = await context.index(index).store()
    found = (await store.fetch(FetchRequest(ranges=near, filter=context.tenant))).chunks.values()
    count = Counter((chunk.document_id, chunk.lines) for chunk in found)
    return frozenset(chunk.id for chunk in single if count[chunk.document_id, chunk.lines] > 1)


async def read(context: ServiceContext, request: ReadRequest) -> ReadResponse:
    """Return the text of a chunk, of lines, of pages or of a document. If that isn't stored, its chunks are joined.

    A name may be the ID of a chunk or document, a path with lines (``guide.md:120-160``, or ``guide.md:120-`` to the
    end) or pages (``guide.pdf:p2-3``), or the end of a path that only one document has. If only one chunk has these
    lines, it is read, with the rest of its first and last line. The text of pages is that of the chunks that are on
    them.

    Raises:
        NotFoundError: There is nothing of that name that the caller may see, or several documents have it.
        StoreError: The index can't be read.
    """
    store = await context.index(request.index).store()
    if (found := await _read_named(context, store, request, request.id)) is not None:
        if found.chunk is None or found.lines is None or not request.lines_around:
            return found
        return await _read_lines(context, store, found, found.lines, request)
    given = _WITH_RANGE.fullmatch(request.id)
    name = request.id if given is None else given["name"]
    found = None if given is None else await _read_named(context, store, request, name)
    if found is None:
        found = await _read_named(context, store, request, await find_document(context, request.index, name))
    if found is None:  # it was removed meanwhile
        raise NotFoundError("Document", request.id)
    if given is None:
        return found
    read_range = _read_pages if given["page"] else _read_lines
    return await read_range(context, store, found, _range_in(given), request)


async def _read_named(context: ServiceContext, store: Store, request: ReadRequest, wanted: str) -> ReadResponse | None:
    """Return a chunk or a whole document by its ID; ``None`` if there is none that the caller may see."""
    tenant = context.tenant
    first = ChunkRange(wanted, 0, 0)
    names = FetchRequest(
        chunk_ids=(wanted,), section_ids=(wanted,), document_ids=(wanted,), ranges=(first,), filter=tenant
    )
    found = await store.fetch(names)
    if (chunk := found.chunks.get(wanted)) is not None:
        text, lines = chunk.text, chunk.lines
        if request.around:
            near = NeighborsRequest(id=wanted, index=request.index, before=request.around, after=request.around)
            chunks = (await read_neighbors(context, near)).chunks
            text = _join_texts(chunks) or text
            known = [each.lines for each in chunks if each.lines is not None]
            lines = (known[0][0], known[-1][1]) if len(known) == len(chunks) else lines
        fields = chunk_fields(chunk)
        return ReadResponse(
            chunk.id, chunk.title, chunk.source, text, fields, chunk, chunk.document_id, lines, chunk, is_part=True
        )
    if (section := found.sections.get(wanted)) and (chunk := await _section_as_chunk(context, store, wanted, section)):
        return ReadResponse(
            chunk.id,
            chunk.title,
            chunk.source,
            chunk.text,
            {"source": chunk.source},
            document_id=chunk.document_id,
            lines=chunk.lines,
            of_document=chunk,
            is_part=True,
        )
    document = found.documents.get(wanted)
    if document is not None and _may_see(document, tenant):
        beginning = next(iter(found.chunks.values()), None)
        return ReadResponse(
            document.id,
            document.title,
            document.source,
            document.text,
            _fields_of(document),
            document_id=document.id,
            lines=_lines_of_document(document.text, found.chunks.values()),
            of_document=beginning,
        )
    found = await store.fetch(FetchRequest(ranges=(ChunkRange.whole(wanted),), filter=tenant))
    if not found.chunks:
        return None
    chunks = _in_order(found.chunks.values())
    whole = _joined(wanted, chunks)
    return ReadResponse(
        wanted,
        whole.title,
        whole.source,
        whole.text,
        {"source": whole.source},
        document_id=wanted,
        of_document=chunks[0],
    )


async def _read_lines(
    context: ServiceContext, store: Store, found: ReadResponse, lines: tuple[int, int], request: ReadRequest
) -> ReadResponse:
    """Return some lines of the document of what was read, with those around them; as a chunk if only one has them."""
    name = found.document_id
    whole = FetchRequest(document_ids=(name,), ranges=(ChunkRange.whole(name),), filter=context.tenant)
    fetched = await store.fetch(whole)
    document, chunks = fetched.documents.get(name), _in_order(fetched.chunks.values())
    if document is not None and _may_see(document, context.tenant):
        first = first_line_of(document.text, chunks)
        texts = {} if first is None else dict(enumerate(_lines_in(document.text), first))
    else:
        texts = _lines_of_chunks(chunks)
    if not texts:
        msg = "table rows have none, nor has text that an older version indexed. Fetch the whole document by its ID"
        raise NotFoundError("Lines", f"of {name}", msg)
    first, last = min(texts), max(texts)
    around = request.lines_around
    shown = range(max(first, lines[0] - around), min(last, lines[1] + around) + 1)
    if not shown or lines[0] > lines[1]:
        above = f"; lines 1 to {first - 1} are in its metadata" if first > 1 else ""
        msg = f"it has lines {first} to {last}{above}"
        raise NotFoundError("Lines", f"{_shown_range(*lines)} of {name}", msg)
    text = "\n".join(texts.get(number, "") for number in shown)
    if found.chunk is None and len(same := [chunk for chunk in chunks if chunk.lines == lines]) == 1:
        found = await _read_named(context, store, request, same[0].id) or found
        if request.around:
            return found
    return replace(found, text=text, lines=(shown[0], shown[-1]), is_part=True)


async def _read_pages(
    context: ServiceContext, store: Store, found: ReadResponse, pages: tuple[int, int], request: ReadRequest
) -> ReadResponse:
    """Return the text of the chunks on some pages of the document of what was read, with lines around it."""
    name = found.document_id
    paged = [(each, each.page_span) for each in await _chunks_of(context, store, name) if each.page_span is not None]
    chunks = [each for each, span in paged if span.first <= pages[1] and span.last >= pages[0]]
    if not chunks:
        last = max((span.last for _, span in paged), default=0)
        msg = f"its last page with text is {last}" if last else "it has no pages"
        raise NotFoundError("Pages", f"{_shown_range(*pages)} of {name}", msg)
    lines = [each.lines for each in chunks if each.lines is not None]
    if len(lines) < len(chunks):
        return replace(found, text=_join_texts(chunks), lines=None, is_part=True)
    return await _read_lines(context, store, found, (lines[0][0], lines[-1][1]), request)


def _range_in(given: re.Match[str]) -> tuple[int, int]:
    """Return the first and the last number of a range; one that ends with a dash goes to the end."""
    return int(given["first"]), int(given["last"] or (_END if given["to"] else given["first"]))


def _shown_range(first: int, last: int) -> str:
    return f"{first}-" if last == _END else format_range(first, last)


async def _chunks_of(context: ServiceContext, store: Store, document_id: str) -> list[Chunk]:
    """Return the chunks of a document that the caller may see, in order."""
    found = await store.fetch(FetchRequest(ranges=(ChunkRange.whole(document_id),), filter=context.tenant))
    return _in_order(found.chunks.values())


def _lines_in(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


def _lines_of_document(text: str, chunks: Iterable[Chunk]) -> tuple[int, int] | None:
    first = first_line_of(text, chunks)
    return None if first is None else (first, first + len(_lines_in(text)) - 1)


def _lines_of_chunks(chunks: Iterable[Chunk]) -> dict[int, str]:
    """Return the lines that chunks of one document have, by their numbers."""
    texts: dict[int, str] = {}
    for chunk in chunks:
        if chunk.lines is not None:
            for number, text in enumerate(chunk.text.split("\n"), chunk.lines[0]):
                texts[number] = f"{texts[number]} {text}" if number in texts else text
    return texts


async def find_document(context: ServiceContext, index: str | None, name: str) -> str:
    """Return the ID of the document that a name is meant for: a path, or the end of one that is the only one.

    Raises:
        NotFoundError: There is none, or more than one.
    """
    from retrieval_core.service.contents import document_ids  # noqa: PLC0415 - it imports this module

    ids = await document_ids(context, index)
    if (as_shown := unescape_name(name)) in ids:
        return as_shown
    path = normalize("NFC", name.replace("\\", "/"))
    while path.startswith("./"):
        path = path[2:]
    composed = {each: normalize("NFC", each) for each in ids}  # a disk may have é as two characters
    if same := [each for each in ids if composed[each] == path]:
        return same[0]
    ends = [each for each in ids if composed[each].endswith(f"/{path}")]
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise NotFoundError("Document", name, f"{len(ends)} documents end with it: {_listed(ends)}. Pass one of them")
    document, mark, _ = name.rpartition("#")
    if mark and document in ids:
        raise NotFoundError("Chunk", name, f"{document} has no such chunk any more. Search again, or read {document}")
    similar = [each for each in ids if path.rpartition("/")[2] == each.rpartition("/")[2]]
    raise NotFoundError("Document", name, f"there is {_listed(similar)}" if similar else None)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(escape_name, names[:MOST_SUGGESTED])) + " …" * (len(names) > MOST_SUGGESTED)


async def read_neighbors(context: ServiceContext, request: NeighborsRequest) -> NeighborsResponse:
    """Return a chunk and the chunks before and after it in its document, in order.

    If another program wrote the chunk without its position, its neighbors are unknown: only the chunk is returned.

    Raises:
        NotFoundError: There is no such chunk that the caller may see.
        StoreError: The index can't be read.
    """
    own = await read_chunk(context, ChunkRequest(id=request.id, index=request.index))
    if not own.has_position:
        return NeighborsResponse(own, (own,))
    store, place = await context.index(request.index).store(), own.chunk_index
    near = ChunkRange(own.document_id, max(0, place - request.before), place + request.after)
    found = await store.fetch(FetchRequest(chunk_ids=(own.id,), ranges=(near,), filter=context.tenant))
    return NeighborsResponse(own, tuple(_in_order(found.chunks.values())))


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
                lines=chunk.lines,
            )
            for chunk, start, stop in whole.placed
            if start < end and stop > request.offset
        ),
    )


async def read_page(context: ServiceContext, request: PlaceRequest) -> PageResponse:
    """Return the position of a chunk, or of a quote in it, on one of its pages.

    Raises:
        NotFoundError: There is no such chunk, or no such page that the caller may see.
        StoreError: The index can't be read.
    """
    chunk = await _chunk_of_visible_document(context, request)
    index = await context.index(request.index).index()
    try:
        place = await index.aplace_on_page(_quoted(chunk, request.start, request.end), request.page)
    except (UnreadableFileError, InvalidParameterError) as error:
        raise _no_page(request, error) from None
    return PageResponse(
        page=place.page, pages=place.pages, width=place.width, height=place.height, boxes=tuple(place.boxes)
    )


def _quoted(chunk: Chunk, start: int | None, end: int | None) -> Chunk:
    """Return a chunk with only the text of a quote, or as it is if it doesn't contain the quote."""
    if chunk.span is None:
        return chunk
    first, last = (None if place is None else max(0, place - chunk.span.start) for place in (start, end))
    text = chunk.text[first:last]
    return replace(chunk, text=text) if text.strip() else chunk


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
    chunk = await read_cited(context, ChunkRequest(id=request.id, index=request.index))
    if context.tenant is not None:
        store = await context.index(request.index).store()
        others = (await store.fetch(FetchRequest(ranges=(ChunkRange.whole(chunk.document_id),)))).chunks.values()
        if not all(matches(context.tenant, chunk_fields(other)) for other in others):
            raise _no_page(request, "the caller may see only some of the document")
    return chunk


def _no_page(request: PageRequest, reason: object) -> NotFoundError:
    told = reason.reason if isinstance(reason, UnreadableFileError) else reason
    return NotFoundError("Page", f"of {request.id}", str(told))
