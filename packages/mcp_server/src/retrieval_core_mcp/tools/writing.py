"""The tools ``index_path`` and ``remove_document``, which there are only where the server may write."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from retrieval_core.errors import UnreadableFileError
from retrieval_core_mcp.fitting import in_one_line, largest
from retrieval_core_mcp.tools.arguments import shown
from retrieval_core_mcp.tools.fetch import nothing_with
from retrieval_core_mcp.tools.tool import (
    LONGEST_ID,
    Arguments,
    DeclaredTool,
    StructuredContent,
    ToolAnswer,
    ToolFailure,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ingest.report import IndexProgress, IndexReport
    from retrieval_core_mcp.tools.tool import ToolCall

MOST_FAILURES = 20
ONLY_READS = "This caller sees a part of the documents only, and so may not write. Ask who runs the server."

NO_SCOPE = "The token of this caller lacks the scope write. Ask who runs the server for another one."


class IndexArguments(Arguments):
    """Arguments of the tool index_path."""

    path: Annotated[str, Field(min_length=1, max_length=LONGEST_ID, description="A file or folder")]


class FailedPath(StructuredContent):
    """A file that could not be read."""

    path: str
    error: str


class NotedPath(StructuredContent):
    """A file that was read, and a warning about it."""

    path: str
    message: str


class IndexedAnswer(StructuredContent):
    """What indexing came to, in documents."""

    added: int
    updated: int
    unchanged: int
    removed: int
    documents: int = Field(description="In the index now")
    passages: int
    failed: list[FailedPath]
    notes: list[NotedPath] = Field(description="Warnings, such as a guessed encoding")
    empty: int = Field(0, description="Empty files")
    skipped_types: dict[str, int] = Field({}, description="Files of types that are not read, by suffix")


class RemoveArguments(Arguments):
    """Arguments of the tool remove_document."""

    id: Annotated[str, Field(min_length=1, max_length=LONGEST_ID, description="ID of the document")]


class RemovedDocument(StructuredContent):
    """What was removed."""

    removed_passages: int


async def run_index(call: ToolCall) -> ToolAnswer:
    """Index a file or a folder below one of the allowed ones."""
    given: IndexArguments = call.given
    _check(call)
    named = await call.library.path_of(given.path)
    paths = await asyncio.to_thread(lambda: _allowed(given.path, named, call.library.roots))

    def tell(progress: IndexProgress) -> None:
        if progress.to_embed:
            call.step(f"words are searchable; {progress.embedded:,} of {progress.to_embed:,} passages embedded")
        else:
            call.step(f"{progress.files_done:,} of {progress.files_total:,} files")

    for path in paths:
        with suppress(UnreadableFileError):  # it is not there, and the index has no documents from it
            report = await call.library.ingest(path, tell)
            break
    else:
        there_is = f"there is no file or folder {shown(given.path)} below the folders that may be indexed"
        msg = f"path: {there_is}. Name it relative to them."
        raise ToolFailure(msg)
    return await asyncio.to_thread(indexed_answer, report, call)


def indexed_answer(report: IndexReport, call: ToolCall) -> ToolAnswer:
    """Return what indexing came to, with as many failures as fit."""
    roots = [form for root in call.library.roots for form in (root, root.resolve())]
    failed = [
        FailedPath(path=in_one_line(_below(file.path, roots), 200), error=in_one_line(call.scrub(file.error), 200))
        for file in report.failed[:MOST_FAILURES]
    ]
    notes = [
        NotedPath(path=in_one_line(_below(note.path, roots), 200), message=in_one_line(call.scrub(note.message), 400))
        for note in report.notes[:MOST_FAILURES]
    ]

    def attempt(count: int) -> ToolAnswer:
        answer = IndexedAnswer(
            added=report.added,
            updated=report.updated,
            unchanged=report.unchanged,
            removed=report.removed,
            documents=report.documents,
            passages=report.chunks,
            failed=failed[:count],
            notes=notes[:count],
            empty=report.empty,
            skipped_types=dict(list(report.skipped_types.items())[:MOST_FAILURES]),
        )
        return ToolAnswer(answer.model_dump(), _as_text(answer, len(report.failed), len(report.notes)))

    most = max(len(failed), len(notes))
    return attempt(largest(lambda count: attempt(count).fits(call.limit), 0, most) or 0)


async def run_remove(call: ToolCall) -> ToolAnswer:
    """Remove a document with all its passages."""
    given: RemoveArguments = call.given
    _check(call)
    removed = await call.library.remove(given.id)
    if not removed:
        raise nothing_with(given.id)
    text = f"Removed {shown(given.id)} with {removed:,} passage{'s' * (removed != 1)}."
    return ToolAnswer(RemovedDocument(removed_passages=removed).model_dump(), text)


def _check(call: ToolCall) -> None:
    """Refuse a caller who sees a part of the documents, or whose token does not allow writing.

    Raises:
        ToolFailure: It is one.
    """
    if call.condition is not None:
        raise ToolFailure(ONLY_READS)
    if not call.may_write:
        raise ToolFailure(NO_SCOPE)


def _allowed(given: str, named: Path, roots: Sequence[Path]) -> list[Path]:
    """Return where a path may be, below the allowed folders, wherever links in these lead.

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


def _below(path: str, roots: Sequence[Path]) -> str:
    """Return a path relative to the folder that may be indexed: the rest of it is the server's own affair."""
    return next((Path(path).relative_to(root).as_posix() for root in roots if Path(path).is_relative_to(root)), "…")


def _as_text(answer: IndexedAnswer, failed: int, notes: int) -> str:
    counts = ", ".join(f"{getattr(answer, name):,} {name}" for name in ("added", "updated", "unchanged", "removed"))
    lines = [f"{counts}; the index holds {answer.documents:,} documents, {answer.passages:,} passages."]
    if answer.empty:
        lines.append(f"{answer.empty:,} file{'s are' if answer.empty > 1 else ' is'} empty.")
    if answer.skipped_types:
        counts = ", ".join(f"{count:,} {suffix or 'without suffix'}" for suffix, count in answer.skipped_types.items())
        lines.append(f"Skipped, since files of these types are not read: {in_one_line(counts, 300)}.")
    if failed:
        lines.append(f"{failed:,} could not be read:")
    lines += [f"- {file.path}: {file.error}" for file in answer.failed]
    if notes:
        lines.append(f"{notes:,} {'warning' if notes == 1 else 'warnings'} about files that were read:")
    lines += [f"- {note.path}: {note.message}" for note in answer.notes]
    return "\n".join(lines)


INDEX = DeclaredTool(
    "index_path",
    "Index a file or folder",
    "Bring the index in step with a file or folder on the server's machine: new, changed and removed files.",
    IndexArguments,
    IndexedAnswer,
    run_index,
    writes=True,
)
REMOVE = DeclaredTool(
    "remove_document",
    "Remove a document",
    "Remove a document from the index; its file stays.",
    RemoveArguments,
    RemovedDocument,
    run_remove,
    writes=True,
)
