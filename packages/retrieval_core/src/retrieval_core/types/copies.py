"""Progress and report of copying an index."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """The progress of a copy, given after each write and each comparison.

    Attributes:
        step: ``copy`` or ``verify``.
        done: Number of documents copied or compared so far.
        total: Number of documents of the index.
        chunks: Number of chunks of these documents, in this run.
    """

    step: str
    done: int
    total: int
    chunks: int


@dataclass(frozen=True, slots=True)
class CopyReport:
    """The result of copying an index.

    Attributes:
        source: Location of the index that was copied.
        target: Location of the copy.
        documents: Number of documents in the copy.
        chunks: Number of chunks in the copy.
        copied: Number of documents that this run wrote; fewer than ``documents`` if it continued an earlier run.
        checksum: SHA-256 of all records and vectors of the copy. A copy between other stores has the same checksum,
            unless vectors were rounded, or ``notes`` report a loss.
        rounded: Number of vectors that the target keeps with fewer digits.
        largest_difference: Largest difference of a component of these vectors; 0 if all are equal.
        notes: Losses, and other facts to know, one sentence each.
        seconds: Duration.
    """

    source: str
    target: str
    documents: int
    chunks: int
    copied: int
    checksum: str
    rounded: int
    largest_difference: float
    notes: tuple[str, ...]
    seconds: float
