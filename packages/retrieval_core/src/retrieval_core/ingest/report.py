"""The batches of an indexing run, its progress and its report."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeAlias

from retrieval_core.errors import EmbeddingError, as_embedding_error
from retrieval_core.types.documents import is_zero
from retrieval_core.types.escapes import Display

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

    from retrieval_core.ingest.files import FoundFile
    from retrieval_core.ports import Embedder, SourceState
    from retrieval_core.run.threads import ThreadPool
    from retrieval_core.types import Chunk, Document, Matrix, Section, Vector


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
        skipped: How many files of code were skipped, and folders of installed packages, by the reason: ``vendored``,
            ``generated``, ``minified``, ``lock file`` or ``larger than 1 MB``.
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
    skipped: Mapping[str, int] = field(default_factory=dict[str, int])

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


CHUNKS_PER_WRITE = 128
"""Chunks embedded and written at a time: enough to keep every thread busy, and little work lost by a crash."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document that was read and split, before it is embedded and written."""

    document: Document
    chunks: tuple[Chunk, ...]
    sections: tuple[Section, ...]
    is_new: bool


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a file: its new state where it changed, or why it could not be read.

    Attributes:
        removed: Ids of documents that it no longer holds.
        unchanged: How many of its documents had not changed.
        skipped: Why it is not read, though it could be.
    """

    file: FoundFile
    state: SourceState | None = None
    removed: tuple[str, ...] = ()
    unchanged: int = 0
    failure: FailedFile | None = None
    notes: tuple[Note, ...] = ()
    skipped: str | None = None


Batch: TypeAlias = "list[Prepared | Finished]"


@dataclass(slots=True)
class Tally:
    """The counts of one run, updated after each write."""

    files_total: int
    bytes_total: int
    files: int = 0
    bytes: int = 0
    chunks: int = 0
    added: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0
    embedded: int = 0
    to_embed: int = 0
    failed: list[FailedFile] = field(default_factory=list[FailedFile])
    notes: list[Note] = field(default_factory=list[Note])
    skipped: Counter[str] = field(default_factory=Counter[str])

    def count(self, batch: Batch) -> None:
        """Count a batch that was written."""
        for item in batch:
            if isinstance(item, Prepared):
                self.added += item.is_new
                self.updated += not item.is_new
                self.chunks += len(item.chunks)
            else:
                self.files += 1
                self.bytes += item.file.size
                self.unchanged += item.unchanged
                self.removed += len(item.removed)
                self.failed += [item.failure] if item.failure else []
                self.notes += item.notes
                self.skipped.update([item.skipped] if item.skipped else [])

    @property
    def progress(self) -> IndexProgress:
        """The run's progress."""
        return IndexProgress(
            self.files, self.files_total, self.bytes, self.bytes_total, self.chunks, self.embedded, self.to_embed
        )


def chunks_in(batch: Batch) -> int:
    """Return how many chunks a batch has."""
    return sum(len(item.chunks) for item in batch if isinstance(item, Prepared))


async def batches(items: AsyncIterator[Prepared | Finished]) -> AsyncIterator[Batch]:
    """Yield batches of about :data:`CHUNKS_PER_WRITE` chunks, preparing the next while the caller writes one."""
    grouped = _grouped(items)

    async def following() -> Batch | None:
        return await anext(grouped, None)

    upcoming = asyncio.create_task(following())
    try:
        while (batch := await upcoming) is not None:
            upcoming = asyncio.create_task(following())
            yield batch
    finally:
        upcoming.cancel()
        await asyncio.gather(upcoming, return_exceptions=True)


def equal_together(hashes: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Yield the ids of :data:`CHUNKS_PER_WRITE` chunks at a time, those with the same hash next to each other."""
    groups: dict[str, list[str]] = {}
    for chunk_id, content_hash in hashes.items():
        groups.setdefault(content_hash, []).append(chunk_id)
    ids = chain.from_iterable(groups.values())
    while batch := tuple(islice(ids, CHUNKS_PER_WRITE)):
        yield batch


async def _grouped(items: AsyncIterator[Prepared | Finished]) -> AsyncIterator[Batch]:
    """Yield about :data:`CHUNKS_PER_WRITE` chunks at a time, always with whole documents."""
    batch: Batch = []
    chunks = 0
    async for item in items:
        batch.append(item)
        chunks += len(item.chunks) if isinstance(item, Prepared) else 0
        if chunks >= CHUNKS_PER_WRITE:
            yield batch
            batch, chunks = [], 0
    if batch:
        yield batch


class ChunkVectors:
    """Embeds chunks that are to be written.

    Args:
        embedder: ``None`` for an index without vectors.
        pool: Runs an embedder that blocks.
        call: Calls a function with arguments, and again if that can help.
    """

    def __init__(self, embedder: Embedder | None, pool: ThreadPool, call: Callable[..., Awaitable[Any]]) -> None:
        self._embedder = embedder
        self._pool = pool
        self._call = call

    @property
    def recipe(self) -> str:
        """Names the embedder."""
        return str(self._embedder.id if self._embedder else None)

    async def passages(self, chunks: Sequence[Chunk], known: Mapping[str, Vector] | None = None) -> Matrix | None:
        """Return the vector of each passage with its headings; ``None`` without any, or for an index without vectors.

        Equal texts are embedded once.

        Args:
            chunks: To be embedded.
            known: Vectors of this embedder by their text, which is not embedded again.

        Raises:
            EmbeddingError: A text could not be embedded.
        """
        if self._embedder is None or not chunks:
            return None
        texts = [chunk.indexed_text for chunk in chunks]
        vectors = dict(known or {})
        unknown = [text for text in dict.fromkeys(texts) if text not in vectors]
        matrix = await self._embed(unknown)
        if len(unknown) == len(texts):
            return matrix
        if matrix is not None:
            vectors.update(zip(unknown, matrix, strict=True))
        import numpy as np  # noqa: PLC0415 - only those who have vectors pay for numpy

        return np.stack([vectors[text] for text in texts])

    async def _embed(self, texts: list[str]) -> Matrix | None:
        if self._embedder is None or not texts:
            return None
        try:
            matrix = await self._call(self._pool.call, self._embedder.embed_texts, texts)
        except Exception as error:  # noqa: BLE001 - raised again as an error of embedding
            failure = as_embedding_error(error, f"{self._embedder.id}: {len(texts)} text{'s' * (len(texts) > 1)}")
            raise failure from failure.__cause__
        if matrix.size and (zero := is_zero(matrix)).any():
            text = texts[int(zero.argmax())]
            msg = f"{self._embedder.id} gave a vector of zeros, which no search can find, for the text {text!r:.80}"
            raise EmbeddingError(msg)
        return matrix
