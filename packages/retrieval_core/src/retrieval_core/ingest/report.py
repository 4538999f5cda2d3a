"""What an indexing run says about itself, while it runs and afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class FailedFile:
    """A file that could not be read, and why, for people."""

    path: str
    error: str


@dataclass(frozen=True, slots=True)
class ColumnNote:
    """A column that is kept as text although nearly all of its cells are numbers, so that it compares as text.

    Attributes:
        path: The table.
        column: As the table calls it.
        numbers: How many of its cells are numbers.
        cells: How many have a value.
        example: The first cell that is no number, shortened.
        row: The row of that cell, from 1, not counting the header.
    """

    path: str
    column: str
    numbers: int
    cells: int
    example: str
    row: int


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What an indexing run did, counted in documents.

    Attributes:
        documents: In the index after the run.
        chunks: In the index after the run.
        failed: Files that could not be read; whatever the index held of them before is still there.
        seconds: Wall time.
        notes: What is worth knowing about the files that were read; a file that had not changed was not.
        skipped_links: Symbolic links that were passed over since they lead out of the folder that they are in.
        ignored: Files and folders that were passed over since a ``.gitignore`` excludes them.
        removed_as_ignored: How many of the ``removed`` belonged to files that are ignored.
        graph_failures: Why facts of some chunks are not in the knowledge graph; the next run tries again.
    """

    documents: int
    chunks: int
    added: int
    updated: int
    unchanged: int
    removed: int
    failed: tuple[FailedFile, ...]
    seconds: float
    notes: tuple[ColumnNote, ...] = ()
    skipped_links: int = 0
    ignored: int = 0
    removed_as_ignored: int = 0
    graph_failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """How far an indexing run has come."""

    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int
    chunks_done: int


OnProgress: TypeAlias = "Callable[[IndexProgress], None]"
