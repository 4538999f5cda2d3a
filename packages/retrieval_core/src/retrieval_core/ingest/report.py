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
class IndexReport:
    """What an indexing run did, counted in documents.

    Attributes:
        documents: In the index after the run.
        chunks: In the index after the run.
        failed: Files that could not be read; whatever the index held of them before is still there.
        seconds: Wall time.
    """

    documents: int
    chunks: int
    added: int
    updated: int
    unchanged: int
    removed: int
    failed: tuple[FailedFile, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """How far an indexing run has come."""

    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int
    chunks_done: int


OnProgress: TypeAlias = "Callable[[IndexProgress], None]"
