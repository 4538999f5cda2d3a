"""Manage an index on this machine: index files, describe it, list its documents and remove them."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from retrieval_core.errors import InvalidParameterError, NotPermittedError
from retrieval_core.ingest.report import ColumnNote
from retrieval_core.service.service_context import IndexName, ServiceModel
from retrieval_core.service.writing import FileWarning, IngestResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ingest.report import Note, OnProgress
    from retrieval_core.service.contents import IndexRequest
    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core.types import DocumentInfo
    from retrieval_core.types.filters import Filter

MOST_FIELDS = 200
"""Fields of an index that are listed."""


class IngestPathsRequest(ServiceModel):
    """A request to index files and folders anywhere on this machine."""

    paths: Annotated[tuple[Path, ...], Field(min_length=1, description="Files and folders")]
    follow_links: Annotated[bool, Field(description="Whether to follow symbolic links that leave their folder")] = False
    gitignore: Annotated[bool, Field(description="Whether to skip what a .gitignore excludes")] = True
    index: IndexName = None


class ColumnWarning(FileWarning):
    """A warning about a column with nearly only numbers that is text because of the others."""

    column: str
    numbers: Annotated[int, Field(description="Cells that are numbers")]
    cells: Annotated[int, Field(description="Cells with a value")]
    example: Annotated[str, Field(description="First cell that is no number, shortened")]
    row: Annotated[int, Field(description="Row of that cell, from 1, without the header")]


class IngestPathsResponse(IngestResponse):
    """The result of an indexing run, with everything that was skipped."""

    notes: Annotated[
        tuple[ColumnWarning | FileWarning, ...], Field(description="Warnings about files that were read")
    ] = ()
    seconds: Annotated[float, Field(description="Duration of the run")]
    skipped_links: Annotated[int, Field(description="Symbolic links that leave their folder and were skipped")]
    ignored: Annotated[int, Field(description="Files and folders that a .gitignore excludes")]
    removed_as_ignored: Annotated[int, Field(description="How many of the removed documents are now ignored")]
    store: Annotated[str | None, Field(description="Name of the store; not set if it can't be found")]


class FieldCounts(ServiceModel):
    """How many chunks have a field, in total and by type of its value."""

    passages: int
    types: dict[str, int]


class IndexDetails(ServiceModel):
    """The size, embedder, settings and metadata fields of an index."""

    location: str
    documents: int | None
    chunks: int
    unembedded: Annotated[int, Field(description="Chunks without a vector so far")]
    generation: Annotated[int | None, Field(description="Grows with each write; not set if the store has none")]
    embedder: Annotated[str | None, Field(description="ID of the embedder that the index was made with")]
    model: Annotated[str | None, Field(description="Source of the local model; not set for others")]
    dimension: int | None
    metric: str | None
    analyzer: str | None
    unused_vectors: tuple[str, ...]
    sides: Annotated[tuple[str, ...], Field(description="Searches of the store: dense, lexical")]
    bytes: Annotated[int | None, Field(description="Size on disk; not set unless the index is a file or folder")]
    settings: Annotated[dict[str, tuple[str, ...]], Field(description="Keys of settings that were set, by source")]
    fields: Annotated[
        dict[str, FieldCounts] | None, Field(description="Fields that filters can name; not set if unknown")
    ]


class FindRequest(ServiceModel):
    """A request for all documents that match a filter."""

    filters: Annotated[dict[str, Any] | None, Field(description='Filter, such as {"source": {"$glob": "*.md"}}')] = None
    index: IndexName = None


class DocumentRecord(ServiceModel):
    """A document with its metadata."""

    id: str
    title: str | None
    source: str | None
    chunks: int
    timestamp: Annotated[str | None, Field(description="When it was indexed")]
    metadata: dict[str, Any]


class FindResponse(ServiceModel):
    """The documents that match a filter."""

    documents: tuple[DocumentRecord, ...]
    count: int
    note: Annotated[str | None, Field(description="Why there are none, if the filter names an unknown field")] = None


class RemoveNamedRequest(ServiceModel):
    """A request to remove documents by name."""

    names: Annotated[
        tuple[str, ...],
        Field(min_length=1, description="IDs of documents, paths of files, or folders that end with /"),
    ]
    index: IndexName = None


class RemovedDocument(ServiceModel):
    """A document that was removed."""

    id: str
    source: str | None
    chunks: int
    title: Annotated[str | None, Field(exclude=True)] = None


class RemoveNamedResponse(ServiceModel):
    """The documents that were removed."""

    removed: tuple[RemovedDocument, ...]
    count: int
    chunks: Annotated[int, Field(description="Number of removed chunks")]


async def ingest_paths(
    context: ServiceContext, request: IngestPathsRequest, on_progress: OnProgress | None = None
) -> IngestPathsResponse:
    """Index files and folders: add new files, update changed ones and remove deleted ones.

    Args:
        on_progress: Called after each write.

    Raises:
        NotPermittedError: The caller does not work on this machine, or may not write.
        RetrievalError: As :meth:`retrieval_core.Index.aingest`.
    """
    from retrieval_core.index.settings import store_name  # noqa: PLC0415 - imported with the index

    _check_owner(context)
    context.check_writing()
    index = await context.index(request.index).index()
    report = await index.aingest(
        request.paths, on_progress, follow_links=request.follow_links, gitignore=request.gitignore
    )
    counts = {name: getattr(report, name) for name in IngestPathsResponse.model_fields if hasattr(report, name)}
    further: dict[str, Any] = {
        "notes": tuple(map(_warning, report.notes)),
        "seconds": round(report.seconds, 3),
        "store": await asyncio.to_thread(store_name, index.config, index.store.location),
    }
    return IngestPathsResponse(**{**counts, **dict(IngestResponse.of(report)), **further})


async def describe_details(context: ServiceContext, request: IndexRequest) -> IndexDetails:
    """Return the size, embedder, settings and metadata fields of an index.

    Raises:
        NotPermittedError: The caller does not work on this machine, or sees only some of the documents.
        RetrievalError: The index can't be read.
    """
    from retrieval_core.adapters.registry import model_source  # noqa: PLC0415 - imported with the index
    from retrieval_core.index.settings import sources_of  # noqa: PLC0415 - likewise

    _check_owner(context)
    index = await context.index(request.index).index()
    info, store = await index.adescribe(), index.store
    fields = await store.fields(MOST_FIELDS) if "fields" in store.capabilities else None
    made = info.manifest
    return IndexDetails(
        location=info.location,
        documents=info.counted_documents,
        chunks=info.chunks,
        unembedded=info.unembedded,
        generation=info.generation,
        embedder=made and made.embedder_id,
        model=model_source(index.config.embedder),
        dimension=made and made.dimension,
        metric=made and made.metric,
        analyzer=made and made.analyzer,
        unused_vectors=tuple(made.vectors) if made else (),
        sides=tuple(sorted(info.sides)),
        bytes=await asyncio.to_thread(_size_of, Path(info.location)),
        settings=sources_of(index.config),
        fields=None if fields is None else {name: FieldCounts(**asdict(each)) for name, each in fields.items()},
    )


async def find_documents(context: ServiceContext, request: FindRequest) -> FindResponse:
    """Return all documents that match a filter, with their metadata.

    Raises:
        NotPermittedError: The caller does not work on this machine, or sees only some of the documents.
        FilterError: The filter is not well formed.
        RetrievalError: The index can't be read.
    """
    from retrieval_core.types.filters.syntax import parse_filter  # noqa: PLC0415 - most lists have no filter

    _check_owner(context)
    condition = None if request.filters is None else parse_filter(request.filters)
    index = await context.index(request.index).index()
    listed = [each async for each in index.adocuments()]
    found = [each for each in listed if condition is None or _matches(each, condition)]
    return FindResponse(
        documents=tuple(
            DocumentRecord(
                id=each.id,
                title=each.title,
                source=each.source,
                chunks=each.chunks,
                timestamp=_moment(each),
                metadata=dict(each.metadata),
            )
            for each in found
        ),
        count=len(found),
        note=None if condition is None or found else _unknown_fields(listed, condition),
    )


async def remove_named(context: ServiceContext, request: RemoveNamedRequest) -> RemoveNamedResponse:
    """Remove documents by name, all or none. Their files stay.

    Raises:
        NotPermittedError: The caller does not work on this machine, or may not write.
        InvalidParameterError: The index has no document of a name. Nothing was removed.
        RetrievalError: As :meth:`retrieval_core.Index.adelete`.
    """
    _check_owner(context)
    context.check_writing()
    index = await context.index(request.index).index()
    try:
        found = await index.afind_documents(request.names)
    except InvalidParameterError as error:
        msg = f"{error} Nothing was removed."
        raise InvalidParameterError(msg) from error
    chunks = await index.adelete(each.id for each in found)
    removed = tuple(
        RemovedDocument(id=each.id, source=each.source, chunks=each.chunks, title=each.title) for each in found
    )
    return RemoveNamedResponse(removed=removed, count=len(removed), chunks=chunks)


def _warning(note: Note) -> FileWarning:
    fields: dict[str, Any] = {**asdict(note), "message": note.message}
    return ColumnWarning(**fields) if isinstance(note, ColumnNote) else FileWarning(**fields)


def _check_owner(context: ServiceContext) -> None:
    """Refuse a caller that may not see the paths of this machine and all documents.

    Raises:
        NotPermittedError: The caller does not work on this machine, or sees only some of the documents.
    """
    if not context.is_local or context.tenant is not None:
        msg = "only a caller on this machine that sees all documents can do this"
        raise NotPermittedError(msg)


def _matches(document: DocumentInfo, condition: Filter) -> bool:
    from retrieval_core.types.filters import matches  # noqa: PLC0415 - most lists have no filter

    return matches(condition, _fields(document))


def _fields(document: DocumentInfo) -> dict[str, Any]:
    own = {"document_id": document.id, "title": document.title, "source": document.source}
    return {**own, "timestamp": _moment(document), **document.metadata}


def _unknown_fields(documents: Sequence[DocumentInfo], condition: Filter) -> str | None:
    """Return a note on fields of a filter that no document has; ``None`` if each is a field of a document."""
    from retrieval_core.types.filters import lookup, paths_of  # noqa: PLC0415 - most lists have no filter

    known = [_fields(document) for document in documents]
    unknown = [name for name in sorted(paths_of(condition)) if all(lookup(each, name) is None for each in known)]
    if not documents or not unknown:
        return None
    return f"no document has the field {' or '.join(unknown)}; fields of chunks, such as page, are for searches only"


def _moment(document: DocumentInfo) -> str | None:
    return document.timestamp and document.timestamp.isoformat()


def _size_of(path: Path) -> int | None:
    """Return the bytes of a file, or of all files in a folder; ``None`` if there is neither."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size if path.is_file() else None
