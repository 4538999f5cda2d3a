"""List what a caller can search: indexes, their documents, and the fields that filters can name."""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast
from unicodedata import normalize

from pydantic import Field

from retrieval_core.errors import NotYetEmbeddedError, RetrievalError, StoreError
from retrieval_core.ports import ChunkRange, FetchRequest, SearchRequest
from retrieval_core.service.service_context import WHOLE, IndexName, ServiceModel, in_utc
from retrieval_core.types.filters import Glob, chunk_fields

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence

    from retrieval_core.index.index import Index
    from retrieval_core.ports import FieldInfo, Store, StoreInfo
    from retrieval_core.service.served import ServedIndex
    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core.types import Chunk
    from retrieval_core.types.filters import Filter

T = TypeVar("T")
logger = logging.getLogger(__name__)

MOST_DOCUMENTS = 1_000
"""Documents on a page of the list."""
MOST_FIELDS = 40
MOST_SOURCES = 20
SAMPLE = 200
"""Chunks that are read for examples of values, and chunks read at a time."""
MOST_LISTED = 10_000
"""Chunks that are read to list their documents."""
MOST_TITLES = 10_000
"""Documents of an index whose titles are read to find a document by its title."""
MOST_EXAMPLES = 10
LONGEST_EXAMPLE = 60
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9:.]+(?:Z|[+-][0-9:]+)?)?")
_NOT_TOLD = frozenset({"id", "document_id", "chunk_index", "parent_id", "timestamp"})
"""Fields that every chunk has, and whose values don't describe the subject of an index."""


class IndexesRequest(ServiceModel):
    """A request for all indexes."""


class IndexRequest(ServiceModel):
    """A request for one index."""

    index: IndexName = None


class DocumentsRequest(IndexRequest):
    """A request for one page of the documents, in the order of their IDs."""

    name: Annotated[
        str | None,
        Field(
            description=(
                "Words that the ID or title contains, or a glob with * for the ID, in any case. "
                "Titles are read if the index has at most 10,000 documents. Default: all documents"
            )
        ),
    ] = None
    limit: Annotated[int, Field(ge=1, le=MOST_DOCUMENTS, description="Most documents on the page"), WHOLE] = 100
    cursor: Annotated[str | None, Field(description="next_cursor of the previous page. Default: the first page")] = None


class IndexSummary(ServiceModel):
    """The size and state of an index."""

    name: str
    description: str | None = None
    documents: Annotated[
        int | None,
        Field(description="Number of documents; not set if the caller sees only some of them, or if unknown"),
    ] = None
    chunks: Annotated[int | None, Field(description="Number of chunks; not set if unknown")] = None
    vector_size: Annotated[int, Field(description="Components of each vector; 0 for an index without vectors")] = 0
    distance: str = "Cosine"
    embedded: Annotated[int, Field(description="Chunks that have a vector")] = 0
    status: Annotated[
        Literal["green", "yellow", "red"],
        Field(description="green: ready; yellow: still being indexed; red: can't be read"),
    ] = "green"
    problem: Annotated[str | None, Field(description="Why the index can't be read")] = None


class IndexesResponse(ServiceModel):
    """The indexes of a service."""

    indexes: tuple[IndexSummary, ...]


class ListedDocument(ServiceModel):
    """A document in the list of an index."""

    id: str
    title: str | None = None
    source: str | None = None
    chunks: Annotated[int | None, Field(description="Number of its chunks; not set if unknown")] = None


class DocumentsResponse(ServiceModel):
    """One page of the documents, in the order of their IDs."""

    documents: tuple[ListedDocument, ...]
    total: Annotated[
        int | None, Field(description="Documents on all pages; not set if the caller sees only some of them")
    ] = None
    next_cursor: Annotated[str | None, Field(description="Cursor of the next page; not set on the last one")] = None


class IndexField(ServiceModel):
    """A field that filters can name."""

    name: Annotated[str, Field(description="Name of the field; the parts of a nested name are joined by dots")]
    types: Annotated[
        tuple[str, ...],
        Field(description="Types of its values: text, number, boolean, object, or a list of one of these"),
    ]
    count: Annotated[int | None, Field(description="Chunks that have the field; not set if unknown")] = None
    examples: Annotated[
        tuple[str | float | bool, ...], Field(max_length=10, description="Example values, most frequent first")
    ]
    min: Annotated[float | str | None, Field(description="Smallest number or first date")] = None
    max: Annotated[float | str | None, Field(description="Largest number or last date")] = None


class FieldsResponse(ServiceModel):
    """The contents of an index. Examples, ranges and times come from a sample of its chunks."""

    name: str
    description: str | None = None
    documents: Annotated[
        int | None,
        Field(description="Number of documents; not set if the caller sees only some of them, or if unknown"),
    ] = None
    chunks: Annotated[int | None, Field(description="Number of chunks; not set if unknown")] = None
    sources: Annotated[tuple[str, ...], Field(description="Sources of some of the documents")]
    fields: tuple[IndexField, ...]
    sampled: Annotated[int, Field(description="Chunks in the sample")]
    modes: Annotated[
        tuple[Literal["hybrid", "dense", "lexical"], ...], Field(description="Search modes that the index supports")
    ]
    indexed_first: Annotated[
        str | None, Field(description="When the oldest chunk of the sample was indexed, in UTC")
    ] = None
    indexed_last: Annotated[
        str | None, Field(description="When the newest chunk of the sample was indexed, in UTC")
    ] = None


async def list_indexes(context: ServiceContext, _request: IndexesRequest) -> IndexesResponse:
    """Return the size and state of each index. An index that can't be read has the status ``red``."""
    return IndexesResponse(indexes=tuple([await _summary(context, served) for served in context.indexes]))


async def describe_index(context: ServiceContext, request: IndexRequest) -> IndexSummary:
    """Return the size and state of an index.

    Raises:
        NotFoundError: There is no index of that name.
        RetrievalError: The index can't be read.
    """
    return await _counted(context, context.index(request.index))


async def list_fields(context: ServiceContext, request: IndexRequest) -> FieldsResponse:
    """Return the fields that filters can name, with an overview of the index.

    Raises:
        NotFoundError: There is no index of that name.
        RetrievalError: The index can't be read.
    """
    served = context.index(request.index)
    sample = await served.cached(context.tenant, _contents_of)
    counted = await _counted(context, served)
    moments = sorted(chunk.timestamp for chunk in sample.chunks if chunk.timestamp is not None)
    has_vectors = (await served.index()).embedder is not None and counted.vector_size > 0
    return FieldsResponse(
        name=served.name,
        description=served.description or None,
        documents=counted.documents,
        chunks=counted.chunks,
        sources=tuple(dict.fromkeys(chunk.source or chunk.document_id for chunk in sample.chunks))[:MOST_SOURCES],
        fields=sample.fields,
        sampled=len(sample.chunks),
        modes=("hybrid", "dense", "lexical") if has_vectors else ("lexical",),
        indexed_first=in_utc(moments[0]) if moments else None,
        indexed_last=in_utc(moments[-1]) if moments else None,
    )


async def list_documents(context: ServiceContext, request: DocumentsRequest) -> DocumentsResponse:
    """Return one page of the documents.

    Raises:
        NotFoundError: There is no index of that name.
        RetrievalError: The index can't be read.
    """
    ids = await document_ids(context, request.index)
    if request.name:
        ids = await _find_named(context, request.index, ids, request.name)
    begin = 0 if request.cursor is None else bisect_right(ids, request.cursor)
    shown = ids[begin : begin + request.limit]
    index = await context.index(request.index).index()
    ranges = tuple(ChunkRange(name, 0, 0) for name in shown)
    found = await index.store.fetch(FetchRequest(ranges=ranges, filter=context.tenant))
    first = {chunk.document_id: chunk for chunk in found.chunks.values()}
    total = len(ids) if request.name else None if context.tenant else (await index.adescribe()).counted_documents
    return DocumentsResponse(
        documents=tuple(_listed(name, first.get(name)) for name in shown),
        total=total,
        next_cursor=shown[-1] if begin + request.limit < len(ids) else None,
    )


async def document_ids(context: ServiceContext, index: str | None = None) -> Sequence[str]:
    """Return the IDs of all documents that the caller may see, in order.

    If the caller sees only some chunks, or the store can't list its documents, the IDs come from chunks. At most
    :data:`MOST_LISTED` chunks are read.

    Raises:
        NotFoundError: There is no index of that name.
        RetrievalError: The index can't be read.
    """
    return await context.index(index).cached(context.tenant, _documents_of)


async def _find_named(context: ServiceContext, index: str | None, ids: Sequence[str], name: str) -> Sequence[str]:
    """Return the IDs that a glob matches, or those of the documents with all words of a text in the ID or title."""
    if "*" in name:
        glob = Glob("id", _folded(name))
        return [each for each in ids if glob.test(_folded(each))]
    words = _folded(name).split()
    titles = await context.index(index).cached(context.tenant, _titles_of) if len(ids) <= MOST_TITLES else {}
    texts = ((each, f"{_folded(each)}\n{titles.get(each, '')}") for each in ids)
    return [each for each, text in texts if all(word in text for word in words)]


async def _summary(context: ServiceContext, served: ServedIndex) -> IndexSummary:
    try:
        return await _counted(context, served)
    except RetrievalError as error:
        logger.warning("the index %s can't be read: %s", served.name, error)
        problem = context.message_of(error)
        return IndexSummary(name=served.name, description=served.description or None, status="red", problem=problem)


async def _counted(context: ServiceContext, served: ServedIndex) -> IndexSummary:
    index, tenant = await served.index(), context.tenant
    info = await index.adescribe()
    name, description = served.name, served.description or None
    if info.collection is not None and tenant is None:
        state = info.collection
        return IndexSummary(
            name=name,
            description=description,
            documents=info.counted_documents,
            chunks=state.points,
            vector_size=state.vector_size,
            distance=state.distance,
            embedded=state.indexed_vectors,
            status=state.status,
        )
    size = 0 if info.manifest is None else info.manifest.dimension or 0
    chunks: int | None = info.chunks
    waiting = info.unembedded
    if tenant is not None:
        chunks = await index.store.count_chunks(tenant) if "count_chunks" in index.store.capabilities else None
        waiting = await _unembedded(index, tenant, size) if waiting else 0
    return IndexSummary(
        name=name,
        description=description,
        documents=info.counted_documents if tenant is None else None,
        chunks=chunks,
        vector_size=size,
        embedded=max(0, (chunks or 0) - waiting) if size else 0,
        status="yellow" if waiting or await index.progress_note() is not None else "green",
    )


async def _unembedded(index: Index, tenant: Filter, dimension: int) -> int:
    """Return how many of the tenant's chunks have no vector yet: any vector search reports it."""
    anywhere: Any = [1.0] + [0.0] * (dimension - 1)
    try:
        await index.store.search(SearchRequest(1, vector=anywhere, filter=tenant))
    except NotYetEmbeddedError as error:
        return error.details["chunks"] - error.details["embedded"]
    return 0


def _folded(text: str) -> str:
    return normalize("NFC", text.casefold())


def _listed(document_id: str, first: Chunk | None) -> ListedDocument:
    """Return a document, described by its first chunk."""
    if first is None:
        return ListedDocument(id=document_id)
    return ListedDocument(id=document_id, title=first.title, source=first.source, chunks=first.total_chunks)


@dataclass(frozen=True, slots=True)
class _Contents:
    """A sample of chunks, and the fields of an index."""

    chunks: tuple[Chunk, ...]
    fields: tuple[IndexField, ...]


@dataclass(slots=True)
class _Seen:
    """The values and types of one field in a sample."""

    values: Counter[str | float | bool] = field(default_factory=Counter[str | float | bool])
    types: Counter[str] = field(default_factory=Counter[str])


async def _contents_of(index: Index, tenant: Filter | None) -> _Contents:
    info = await index.adescribe()
    chunks = await _sample(index, info, tenant)
    seen = _seen(chunks)
    store = index.store
    known: Mapping[str, FieldInfo] = {}
    if tenant is None and "fields" in store.capabilities:
        known = await store.fields(MOST_FIELDS)
    names = [name for name in dict.fromkeys((*known, *seen)) if name not in _NOT_TOLD][:MOST_FIELDS]
    fields = tuple(
        _field(
            name,
            known[name].passages if name in known else None,
            known[name].types if name in known else seen[name].types,
            seen.get(name, _Seen()),
        )
        for name in names
    )
    return _Contents(tuple(chunks), fields)


async def _documents_of(index: Index, tenant: Filter | None) -> list[str]:
    store = index.store
    if tenant is None and "document_ids" in store.capabilities:
        with suppress(StoreError):  # another program filled it
            return sorted(await store.document_ids())
    info = await index.adescribe()
    names = set(await _of_files(store)) if tenant is None and "sources" in store.capabilities else set[str]()
    if tenant is not None or len(names) < info.documents:
        async for chunks in _chunks(index, info, tenant, MOST_LISTED):
            names.update(chunk.document_id for chunk in chunks)
    return sorted(names)


async def _titles_of(index: Index, tenant: Filter | None) -> dict[str, str]:
    """Return the folded titles of the documents that have one, by ID."""
    ids, titles = await _documents_of(index, tenant), dict[str, str]()
    for begin in range(0, len(ids), MOST_DOCUMENTS):
        ranges = tuple(ChunkRange(name, 0, 0) for name in ids[begin : begin + MOST_DOCUMENTS])
        found = await index.store.fetch(FetchRequest(ranges=ranges, filter=tenant))
        titles.update((chunk.document_id, _folded(chunk.title)) for chunk in found.chunks.values() if chunk.title)
    return titles


async def _of_files(store: Store) -> list[str]:
    """Return the IDs of the documents that came from files, ordered by file."""
    names: list[str] = []
    for source, state in sorted((await store.sources()).items()):
        is_document = state.documents == 1  # a file that is one document has its ID
        names += [source] if is_document else sorted(await store.documents_of(source))
    return names


async def _sample(index: Index, info: StoreInfo, tenant: Filter | None) -> list[Chunk]:
    """Return some chunks that the tenant may see, in the order of their IDs."""
    chunks = [chunk async for part in _chunks(index, info, tenant, SAMPLE) for chunk in part]
    return sorted(chunks[:SAMPLE], key=lambda chunk: chunk.id)


async def _chunks(index: Index, info: StoreInfo, tenant: Filter | None, most: int) -> AsyncGenerator[Sequence[Chunk]]:
    """Yield chunks that the tenant may see, in parts.

    If the index has no vectors, these are the first chunks of the documents that came from files, until there are
    enough. The number of documents of other tenants doesn't matter.
    """
    store, dimension = index.store, info.manifest.dimension if info.manifest is not None else None
    if dimension is None and index.embedder is not None and info.manifest is None:
        dimension = index.embedder.dimension
    if dimension is not None:
        # Nearest to an arbitrary direction: every store can do that, with any filter.
        direction: Any = [1.0] + [0.0] * (dimension - 1)
        waiting: tuple[str, ...] = ()
        try:
            found = await store.search(SearchRequest(limit=most, vector=direction, filter=tenant))
        except NotYetEmbeddedError as error:
            found = error.found
            if "unembedded" in store.capabilities:
                waiting = tuple(await store.unembedded())[: max(0, most - len(found))]
        for part in _parts(found):
            ids = tuple(candidate.chunk_id for candidate in part if candidate.chunk is None)
            read = await store.fetch(FetchRequest(chunk_ids=ids, filter=tenant)) if ids else None
            yield [
                *(candidate.chunk for candidate in part if candidate.chunk is not None),
                *(read.chunks.values() if read is not None else ()),
            ]
        for names in _parts(waiting):
            yield tuple((await store.fetch(FetchRequest(chunk_ids=tuple(names), filter=tenant))).chunks.values())
    elif "sources" in store.capabilities:
        seen = 0
        for part in _parts(await _of_files(store)):
            ranges = tuple(ChunkRange(name, 0, 0) for name in part)
            chunks = tuple((await store.fetch(FetchRequest(ranges=ranges, filter=tenant))).chunks.values())
            yield chunks
            seen += len(chunks)
            if seen >= most:
                break


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for begin in range(0, len(items), SAMPLE):
        yield items[begin : begin + SAMPLE]


def _seen(chunks: Iterable[Chunk]) -> dict[str, _Seen]:
    seen: dict[str, _Seen] = {}
    for chunk in chunks:
        for name, value in _paths(chunk_fields(chunk)):
            of_field = seen.setdefault(name, _Seen())
            is_list = isinstance(value, (list, tuple))
            items = cast("Sequence[object]", value) if is_list else (value,)
            for item in items:
                kind = _type_of(item)
                of_field.types[f"list of {kind}" if is_list else kind] += 1
                if isinstance(item, (str, int, float, bool)):
                    of_field.values[item] += 1
    return seen


def _paths(fields: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _paths(value, f"{above}{name}.")  # pyright: ignore[reportUnknownArgumentType]
        elif value not in (None, ()):
            yield f"{above}{name}", value


def _type_of(value: object) -> str:
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "text"
        case _:
            return "object"


def _field(name: str, count: int | None, types: Iterable[str], seen: _Seen) -> IndexField:
    numbers = [float(value) for value in seen.values if not isinstance(value, (str, bool))]
    texts = [value for value in seen.values if isinstance(value, str)]
    # Dates are compared as texts, as filters do it.
    ordinal = numbers or (texts if all(map(_DATE.fullmatch, texts)) else ())
    ordered = sorted(seen.values, key=lambda value: (-seen.values[value], str(value)))
    examples = [value for value in ordered if not isinstance(value, str) or len(value) <= LONGEST_EXAMPLE]
    return IndexField(
        name=name,
        types=tuple(types),
        count=count,
        examples=tuple(examples[:MOST_EXAMPLES]),
        min=min(ordinal, default=None),
        max=max(ordinal, default=None),
    )
