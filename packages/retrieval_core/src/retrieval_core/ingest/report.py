"""The progress and the report of an indexing run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, TypeAlias

from retrieval_core.types.escapes import Display

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class FailedFile:
    """A file that could not be read, and why, for people."""

    path: str
    error: str


@dataclass(frozen=True, slots=True)
class ColumnNote:
    """A warning: a column with nearly only numbers is text because of the others, and so compares as text.

    Attributes:
        path: The table's file.
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

    @property
    def message(self) -> str:
        """The warning, for people."""
        return (
            f"column {self.column!r} is text, since {self.numbers:,} of its {self.cells:,} cells are numbers and the "
            f"others are not, such as {self.example!r} in row {self.row}; filters compare it as text"
        )


@dataclass(frozen=True, slots=True)
class FileNote:
    """A warning: a file was read, but part of it may be wrong, such as letters in a guessed encoding.

    Attributes:
        path: The file.
        message: The warning, for people.
    """

    path: str
    message: str


Note: TypeAlias = "ColumnNote | FileNote"


@dataclass(frozen=True, slots=True, repr=False)
class IndexReport(Display):
    """The result of an indexing run, counted in documents.

    Attributes:
        documents: In the index after the run.
        chunks: In the index after the run.
        failed: Files that could not be read; the index keeps what it held of them.
        seconds: Wall time.
        notes: Warnings about the files that were read, each with a ``path`` and a ``message``. Unchanged files are not
            read.
        skipped_links: Symbolic links that lead out of their folder, and were not followed.
        ignored: Files and folders that a ``.gitignore`` excludes.
        removed_as_ignored: How many of the ``removed`` belonged to files that are ignored.
        empty: Empty files; they are read, and have no documents.
        skipped_types: How many files of types that are not read were skipped, by suffix, such as ``.png``. Files
            without a suffix have an empty one.
    """

    documents: int
    chunks: int
    added: int
    updated: int
    unchanged: int
    removed: int
    failed: tuple[FailedFile, ...]
    seconds: float
    notes: tuple[Note, ...] = ()
    skipped_links: int = 0
    ignored: int = 0
    removed_as_ignored: int = 0
    empty: int = 0
    skipped_types: Mapping[str, int] = field(default_factory=dict[str, int])

    def _facts(self) -> Mapping[str, object]:
        counts = ("documents", "chunks", "added", "updated", "unchanged", "removed")
        failed, notes = (tuple(PurePath(each.path).name for each in group) for group in (self.failed, self.notes))
        return {**{name: getattr(self, name) for name in counts}, "failed": failed, "notes": notes}


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """The progress of an indexing run.

    Attributes:
        embedded: Of many new passages the words are written first, and then their vectors: how many have theirs.
        to_embed: How many passages had none when the words were written; 0 until then.
    """

    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int
    chunks_done: int
    embedded: int = 0
    to_embed: int = 0


OnProgress: TypeAlias = "Callable[[IndexProgress], None]"
