"""Add and remove documents for a caller who may write."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field

from retrieval_core.errors import InvalidParameterError, NotFoundError, UnreadableFileError
from retrieval_core.service.service_context import SEVERAL, IndexName, ServiceModel
from retrieval_core.types import Document

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrieval_core.ingest.report import IndexProgress, IndexReport
    from retrieval_core.service.service_context import ServiceContext

LONGEST_ID = 2_000
MOST_WRITTEN = 1_000
MOST_REMOVED = 100
MOST_FIELDS = 100

Id = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]


def _check_text(moment: object) -> object:
    """Refuse numbers, which could be seconds or years."""
    if not isinstance(moment, (str, datetime)):
        msg = "must be text such as 2026-01-31T12:00:00Z"
        raise ValueError(msg)  # noqa: TRY004 - pydantic makes a message of it
    return moment


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        msg = "must be in the years 1 to 9999 in UTC"
        raise ValueError(msg) from error


class IngestRequest(ServiceModel):
    """A request to index a file or folder on the machine of the service."""

    path: Annotated[Id, Field(description="File or folder, relative to a folder that may be indexed")]
    index: IndexName = None


class FileFailure(ServiceModel):
    """A file that could not be read."""

    path: str
    error: str


class FileWarning(ServiceModel):
    """A warning about a file that was read."""

    path: str
    message: str


class IngestResponse(ServiceModel):
    """The result of an indexing run, counted in documents."""

    added: int
    updated: int
    unchanged: int
    removed: int
    documents: Annotated[int, Field(description="Documents in the index after the run")]
    chunks: Annotated[int, Field(description="Chunks in the index after the run")]
    failed: tuple[FileFailure, ...] = ()
    notes: Annotated[tuple[FileWarning, ...], Field(description="Warnings, such as a guessed encoding")] = ()
    empty: Annotated[int, Field(description="Number of empty files")] = 0
    skipped_types: Annotated[
        dict[str, int],
        Field(default_factory=dict, description="Number of skipped files by suffix: these types can't be read"),
    ]
    skipped: Annotated[
        dict[str, int],
        Field(default_factory=dict, description="Number of files skipped by reason, such as `generated` or `secrets`"),
    ]

    @classmethod
    def of(cls, report: IndexReport, shown: Callable[[str], str] = str) -> IngestResponse:
        """Return a report with paths as a function shows them."""
        return cls(
            added=report.added,
            updated=report.updated,
            unchanged=report.unchanged,
            removed=report.removed,
            documents=report.documents,
            chunks=report.chunks,
            failed=tuple(FileFailure(path=shown(each.path), error=each.error) for each in report.failed),
            notes=tuple(FileWarning(path=shown(each.path), message=each.message) for each in report.notes),
            empty=report.empty,
            skipped_types=dict(report.skipped_types),
            skipped=dict(report.skipped),
        )


class NewDocument(ServiceModel):
    """A document to split, embed and add. It replaces the document with its ID."""

    id: Annotated[Id, Field(description="ID of the document")]
    text: Annotated[str, Field(min_length=1, description="The whole text")]
    title: Annotated[str | None, Field(max_length=500, description="Title for citations")] = None
    source: Annotated[str | None, Field(max_length=2_000, description="File or web address that it is from")] = None
    timestamp: Annotated[
        Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_check_text), AfterValidator(_in_utc)] | None,
        Field(description="Time of the document, with a time zone"),
    ] = None
    metadata: Annotated[
        dict[str, Any], Field(default_factory=dict, max_length=MOST_FIELDS, description="Fields that filters can name")
    ]


class WriteRequest(ServiceModel):
    """A request to write documents to an index."""

    index: IndexName = None
    documents: Annotated[tuple[NewDocument, ...], Field(min_length=1, max_length=MOST_WRITTEN), SEVERAL]


class WriteResponse(ServiceModel):
    """The documents that were written."""

    written: Annotated[tuple[str, ...], Field(description="IDs of the documents")]


class RemoveRequest(ServiceModel):
    """A request to remove documents."""

    ids: Annotated[
        tuple[str, ...],
        Field(min_length=1, max_length=MOST_REMOVED, description="IDs of documents, or names of files in the index"),
        SEVERAL,
    ]
    index: IndexName = None


class RemoveResponse(ServiceModel):
    """The documents that were removed."""

    removed_chunks: Annotated[
        dict[str, int], Field(description="Number of removed chunks by ID; 0 if there was no such document")
    ]


async def ingest(context: ServiceContext, request: IngestRequest) -> IngestResponse:
    """Update an index from a file or folder: add new files, update changed ones and remove deleted ones.

    Raises:
        NotPermittedError: The caller may not write.
        NotFoundError: There is no such file or folder in a folder that may be indexed.
        RetrievalError: As :meth:`retrieval_core.Index.aingest`.
    """
    context.check_writing()
    served = context.index(request.index)
    index = await served.index()
    named = await index.apath_of(request.path)
    roots = await asyncio.to_thread(lambda: served.roots)

    def report_progress(progress: IndexProgress) -> None:
        if context.on_step is None:
            return
        files, embedded, to_embed = progress.files_total, progress.embedded, progress.to_embed
        if to_embed:
            context.on_step(f"{embedded:,} of {to_embed:,} chunks embedded", files + embedded, files + to_embed)
        else:
            context.on_step(f"{progress.files_done:,} of {files:,} files", progress.files_done, files)

    for path in await asyncio.to_thread(_allowed_paths, request.path, named, roots):
        with suppress(UnreadableFileError):  # it is not there, and the index has no documents from it
            report = await index.aingest(path, report_progress)
            break
    else:
        raise NotFoundError("File", request.path, "name it relative to a folder that may be indexed")

    def respond() -> IngestResponse:
        places = [form for root in roots for form in (root, root.resolve())]
        return IngestResponse.of(report, lambda path: _relative(path, places))

    response = await asyncio.to_thread(respond)
    return response.model_copy(
        update={
            "failed": tuple(each.model_copy(update={"error": context.redact(each.error)}) for each in response.failed),
            "notes": tuple(
                each.model_copy(update={"message": context.redact(each.message)}) for each in response.notes
            ),
        }
    )


async def write_documents(context: ServiceContext, request: WriteRequest) -> WriteResponse:
    """Split, embed and add documents.

    Raises:
        NotPermittedError: The caller may not write.
        RetrievalError: As :meth:`retrieval_core.Index.aadd_documents`.
    """
    context.check_writing()
    index = await context.index(request.index).index()
    documents = {
        new.id: Document(
            new.id,
            new.text,
            source=new.source or new.id,
            content_hash="",
            title=new.title,
            timestamp=new.timestamp,
            metadata=new.metadata,
        )
        for new in request.documents
    }
    await index.aadd_documents(documents.values())
    return WriteResponse(written=tuple(documents))


async def remove(context: ServiceContext, request: RemoveRequest) -> RemoveResponse:
    """Remove documents with all their chunks. Their files stay. The name of a file means all its documents.

    Raises:
        NotPermittedError: The caller may not write.
        RetrievalError: As :meth:`retrieval_core.Index.adelete`.
    """
    context.check_writing()
    index = await context.index(request.index).index()
    removed: dict[str, int] = {}
    for name in dict.fromkeys(request.ids):
        removed[name] = await index.adelete(name)
        if not removed[name] and not name.endswith("/"):
            with suppress(InvalidParameterError):
                found = await index.afind_documents((name,))
                removed[name] = await index.adelete(each.id for each in found)
    return RemoveResponse(removed_chunks=removed)


def _allowed_paths(given: str, named: Path, roots: Sequence[Path]) -> list[Path]:
    """Return where a path may be in the allowed folders, wherever links in these lead.

    If it is in one of them, that is the only place. If not, it may be a deleted file of any of them.

    Args:
        given: Relative to one of the folders.
        named: The path of what has this name in the index.
        roots: The allowed folders.
    """
    gone: list[Path] = []
    places = [(root, root / given) for root in roots] + [(root, named) for root in roots]
    for root, place in places:
        try:
            allowed = root.resolve(strict=True)
            path = place.resolve()
            is_there = path.exists()
        except (OSError, ValueError, RuntimeError):  # no system has such names; links lead in a circle, before 3.13
            continue
        if path.is_relative_to(allowed):
            below = root / path.relative_to(allowed)
            if is_there:
                return [below]
            gone.append(below)
    return gone


def _relative(path: str, roots: Sequence[Path]) -> str:
    """Return a path relative to the folder that may be indexed."""
    return next((Path(path).relative_to(root).as_posix() for root in roots if Path(path).is_relative_to(root)), "…")
