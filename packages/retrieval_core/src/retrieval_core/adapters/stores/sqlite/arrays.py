"""The rows of an index as arrays in memory: exact vector search over them, and small indexes held as a whole."""

from __future__ import annotations

from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from retrieval_core.adapters.stores.columns import Columns, evaluate
from retrieval_core.adapters.stores.held import RECORD_BYTES, IndexInMemory, Postings, Records
from retrieval_core.adapters.stores.rows import CHUNKS, DOCUMENTS, SECTIONS, FieldReader
from retrieval_core.adapters.stores.scoring import best_rows, cosines, products, weight_of
from retrieval_core.adapters.stores.sqlite.connections import StaleReadError
from retrieval_core.adapters.stores.sqlite.read import (
    FIELDS,
    Snapshot,
    came_since,
    count_unembedded,
    count_written_chunks,
    follows,
    matches_of,
    read_state,
    vectors_from,
    vectors_of,
)
from retrieval_core.adapters.stores.sqlite.schema import chunk_columns
from retrieval_core.adapters.stores.sqlite.words import merged_postings, read_segments, read_stale
from retrieval_core.types.filters import paths_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from sqlite3 import Connection

    from numpy.typing import NDArray

    from retrieval_core.adapters.stores.base import Identity
    from retrieval_core.adapters.stores.columns import Mask
    from retrieval_core.adapters.stores.local import Match, State
    from retrieval_core.adapters.stores.rows import RowForm
    from retrieval_core.adapters.stores.sqlite.read import Rows
    from retrieval_core.ports import Manifest
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import JSON, Matrix, Vector
    from retrieval_core.types.filters import Filter

N = TypeVar("N", bound=np.generic)
T = TypeVar("T")

BATCH = 4096
"""Rows read at a time."""
GROWTH = 8
"""The matrix reserves room for one more row in this many."""
LARGEST = 127
"""The largest integer of eight bits whose negative is one too."""
RESCORED = 4
"""Of quantized vectors, so many times the limit are compared exactly."""
ROWS_AT_ONCE = 256
"""Quantized rows that are made to floating-point numbers at a time, so that these stay in the processor's cache."""
MOST_CHUNKS = 20_000
"""The most chunks of an index that is held in memory: a search of so many takes 2 ms, during which an event loop waits,
and reading them takes .5 s in a thread."""
MOST_BYTES = 64 * 1024 * 1024
"""The most bytes of its vectors, postings and records: 15,000 chunks of 1,000 characters with 384 components."""
_FIELDS = f"SELECT number, {FIELDS} FROM chunks WHERE number >= ? ORDER BY number"  # noqa: S608 - constants
_SIZE = """
SELECT (SELECT coalesce(sum(length(text)), 0) FROM chunks), (SELECT coalesce(sum(length(text)), 0) FROM documents),
    (SELECT coalesce(sum(length(block)), 0) FROM word_blocks)
"""


class SnapshotCache:
    """The arrays of one process, shared by its threads.

    Args:
        quantized: Whether vectors are kept as integers of eight bits.
    """

    def __init__(self, *, quantized: bool = False) -> None:
        self._quantized = quantized
        self._lock = Lock()
        self._refused: set[tuple[Connection, State]] = set()
        self._clear()

    def _clear(self) -> None:
        self._state: State = "", -1
        self._numbers: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._alive: Mask = np.zeros(0, dtype=np.bool_)
        self._vectors: _Vectors | None = None
        self._columns = Columns()

    @property
    def loaded_bytes(self) -> int:
        """Bytes of all arrays, without the values that columns point to; read without a lock."""
        arrays = self._numbers.nbytes + self._alive.nbytes
        vectors = self._vectors
        return arrays + (0 if vectors is None else vectors.loaded_bytes) + self._columns.loaded_bytes

    @property
    def filter_paths(self) -> tuple[str, ...]:
        """The names of the fields that filters named so far."""
        return self._columns.paths

    def get(self, connection: Connection, condition: Filter | None, dimension: int | None) -> Snapshot:
        """Return the arrays as of the connection's open transaction.

        Args:
            condition: The filter, whose fields are read on first use.
            dimension: Given if vectors are needed.

        Raises:
            StaleReadError: Another thread has probably read a later generation already.
        """
        with self._lock:
            self._refresh(connection)
            paths = frozenset[str]() if condition is None else paths_of(condition)
            columns = self._columns.filled(paths, self._numbers, partial(_fields, connection))
            numbers, passing, present = self._numbers, self._alive, None
            matrix, scales = np.zeros((len(numbers), 0), dtype=np.float32), None
            if dimension is not None:
                vectors = self._vectors = self._vectors or _Vectors(dimension, quantized=self._quantized)
                matrix, scales, present = vectors.filled(connection, numbers)
                present = present.copy()  # others may come while this search is under way
        if condition is not None:
            passing = passing & evaluate(condition, columns, len(numbers))
        chunks = embedded = int(np.count_nonzero(passing))
        if present is not None:
            passing = passing & present
            embedded = int(np.count_nonzero(passing))
        return Snapshot(numbers, passing, matrix, scales, chunks, embedded)

    def _refresh(self, connection: Connection) -> None:
        state = read_state(connection)
        if state == self._state:
            return
        if state[1] < self._state[1] and (connection, state) not in self._refused:
            # Seen again by the same reader, in a later transaction, it is that of an older file that was restored;
            # several readers may each be behind once.
            self._refused.add((connection, state))
            raise StaleReadError
        if follows(connection, *self._state):
            self._drop_removed(connection)
            self._read_late(connection)
        else:
            self._clear()
        last = int(self._numbers[-1]) if len(self._numbers) else 0
        fresh = [row[0] for row in connection.execute("SELECT number FROM chunks WHERE number > ? ORDER BY 1", (last,))]
        if fresh:
            self._numbers = np.concatenate([self._numbers, np.array(fresh, dtype=np.int64)])
            self._alive = np.concatenate([self._alive, np.ones(len(fresh), dtype=np.bool_)])
        self._state = state
        self._refused.clear()

    def _drop_removed(self, connection: Connection) -> None:
        rows = connection.execute("SELECT number FROM removed WHERE generation > ?", (self._state[1],))
        removed = np.array([row[0] for row in rows], dtype=np.int64)
        if not len(removed):
            return
        alive = self._alive.copy()  # searches under way keep the old one
        alive[np.isin(self._numbers, removed)] = False
        self._alive = alive
        if np.count_nonzero(alive) < len(alive) // 2:
            self._clear()  # mostly gaps: reading it all again is cheaper than keeping them

    def _read_late(self, connection: Connection) -> None:
        """Read the vectors that came since, later than their chunks; those of what is not read yet come with that."""
        if self._vectors is None:
            return
        came = np.array(came_since(connection, self._state[1]), dtype=np.int64)
        came = came[np.isin(came, self._numbers)]
        self._vectors.add(connection, self._numbers, came)


def _fields(connection: Connection, first: int) -> Iterator[tuple[int, Mapping[str, JSON]]]:
    fields_of = FieldReader()
    for number, *row in connection.execute(_FIELDS, (first,)):
        yield number, fields_of(row)


class _Vectors:
    """A matrix that grows by rows, while searches go on reading their part of it."""

    def __init__(self, dimension: int, *, quantized: bool) -> None:
        self._rows: Rows = np.zeros((0, dimension), np.int8 if quantized else np.float32)
        self._scales = np.zeros(0, dtype=np.float32) if quantized else None
        self._present: Mask = np.zeros(0, dtype=np.bool_)
        self._length = 0

    @property
    def loaded_bytes(self) -> int:
        """Bytes of the rows in use; reserved rows take no memory."""
        return self._length * (self._rows.shape[1] * self._rows.itemsize + (4 if self._scales is not None else 0))

    def filled(
        self, connection: Connection, numbers: NDArray[np.int64]
    ) -> tuple[Rows, NDArray[np.float32] | None, Mask]:
        """Return the matrix with a row for each number, reading missing ones, its scales, and which have a vector."""
        if self._length < len(numbers):
            self._reserve(len(numbers))
            last = int(numbers[self._length - 1]) if self._length else 0
            rows = connection.execute("SELECT number, vector FROM vectors WHERE number > ? ORDER BY number", (last,))
            while batch := rows.fetchmany(BATCH):
                positions = np.searchsorted(numbers, np.array([number for number, _ in batch], dtype=np.int64))
                joined = b"".join(blob for _, blob in batch)
                self._put(positions, vectors_from(joined, len(batch), self._rows.shape[1]))
            self._length = len(numbers)
        scales = None if self._scales is None else self._scales[: self._length]
        return self._rows[: self._length], scales, self._present[: self._length]

    def add(self, connection: Connection, numbers: NDArray[np.int64], came: NDArray[np.int64]) -> None:
        """Read the vectors of rows that were read without; a search under way does not look at these."""
        came = came[np.searchsorted(numbers, came) < self._length]
        for start in range(0, len(came), BATCH):
            vectors = vectors_of(connection, came[start : start + BATCH].tolist())
            if vectors:
                positions = np.searchsorted(numbers, np.array(list(vectors), dtype=np.int64))
                self._put(positions, np.stack(list(vectors.values())))

    def _put(self, positions: NDArray[np.intp], vectors: Matrix) -> None:
        if self._scales is not None:
            scales = np.maximum(np.abs(vectors).max(axis=1), np.finfo(np.float32).tiny) / LARGEST
            self._scales[positions] = scales
            vectors = np.rint(vectors / scales[:, np.newaxis])
        self._rows[positions] = vectors
        self._present[positions] = True

    def _reserve(self, length: int) -> None:
        if length > len(self._rows):
            # Rows that are never touched take no memory.
            room = length + length // GROWTH + BATCH
            self._rows = _longer(self._rows, self._length, room)
            self._present = _longer(self._present, self._length, room)
            if self._scales is not None:
                self._scales = _longer(self._scales, self._length, room)


def _longer(array: NDArray[N], length: int, room: int) -> NDArray[N]:
    """Return a copy of the first rows of an array with room for more; the array stays as it is for who reads it."""
    longer = np.zeros((room, *array.shape[1:]), dtype=array.dtype)
    longer[:length] = array[:length]
    return longer


def search_vectors(connection: Connection, snapshot: Snapshot, query: Vector, limit: int) -> list[Match]:
    """Return the chunks with the highest cosine, best first; equal ones are ordered by chunk id."""
    rows = np.flatnonzero(snapshot.passing)
    if not len(rows):
        return []
    if snapshot.scales is None:
        scores = cosines(cast("Matrix", snapshot.matrix), rows, query)
    else:
        rows = rows[best_rows(_estimates(snapshot.matrix, snapshot.scales, rows, query), limit * RESCORED)]
        exact = vectors_of(connection, snapshot.numbers[rows].tolist())
        scores = cosines(np.stack([exact[number] for number in snapshot.numbers[rows].tolist()]), None, query)
    found = best_rows(scores, limit)
    return matches_of(connection, snapshot.numbers[rows[found]], scores[found], limit)


def _estimates(matrix: Rows, scales: NDArray[np.float32], rows: NDArray[np.intp], query: Vector) -> NDArray[np.float32]:
    """Return about the cosine of each row."""
    scores = np.empty(len(rows), dtype=np.float32)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        part = rows[start : start + ROWS_AT_ONCE]
        scores[start : start + ROWS_AT_ONCE] = products(matrix[part].astype(np.float32), query)
    return scores * scales[rows]


def read_index(
    connection: Connection,
    snapshot: Callable[[Connection, None, int | None], Snapshot],
    *,
    identity: Identity,
    manifest: Manifest,
    analyzer: Analyzer,
    version: str,
    paths: Iterable[str],
) -> IndexInMemory | None:
    """Return an index in memory; ``None`` if it is large or damaged.

    Args:
        snapshot: Returns the arrays of the chunks, with vectors of a dimension.
        identity: Describes how the store was opened.
        manifest: Describes the index.
        analyzer: Turns queries into terms.
        version: Names the version that the connection reads.
        paths: Names of the fields that filters are likely to name.

    Raises:
        IndexFormatError: A record is damaged.
        DamagedError: The postings or vectors are damaged.
    """
    chunks = count_written_chunks(connection)
    if not 0 < chunks <= MOST_CHUNKS or _size(connection, chunks, manifest.dimension or 0) > MOST_BYTES:
        return None
    rows = snapshot(connection, None, None)
    alive, numbers = rows.passing, rows.numbers[rows.passing]
    records = Records(
        _read(connection, CHUNKS, "chunks ORDER BY number", chunk_columns(connection)),
        _read(connection, SECTIONS, "sections"),
        _read(connection, DOCUMENTS, "documents"),
    )
    segments, stale = read_segments(connection), read_stale(connection)
    kept = [~np.isin(segment.numbers, stale) for segment in segments]
    indexed = [segment.numbers[part] for segment, part in zip(segments, kept, strict=True)]
    has_all_words = np.array_equal(np.concatenate([np.zeros(0, np.int64), *indexed]), numbers)
    if len(records.chunks) != chunks or len(numbers) != chunks or not has_all_words:
        return None
    matrix, embedded = np.zeros((chunks, 0), np.float32), np.zeros(chunks, np.bool_)
    if manifest.dimension is not None:
        vectors = snapshot(connection, None, manifest.dimension)
        floats = cast("Matrix", vectors.matrix)  # a store that keeps other numbers holds no index
        matrix = floats if alive.all() else floats[alive]
        embedded = vectors.passing[alive]
        if np.count_nonzero(embedded) < chunks and not count_unembedded(connection):
            return None
    nothing = np.zeros(0, np.int64)
    parts = [Postings((), nothing, nothing, nothing), *merged_postings(connection, segments, kept)]
    return IndexInMemory(
        version,
        identity=identity,
        manifest=manifest,
        analyzer=analyzer,
        weigh=weight_of,
        records=records,
        postings=Postings(
            [term for part in parts for term in part.terms],
            *[np.concatenate(arrays) for arrays in zip(*[part[1:] for part in parts], strict=True)],
        ),
        matrix=matrix,
        embedded=embedded,
        paths=paths,
    )


def _size(connection: Connection, chunks: int, dimension: int) -> int:
    return chunks * (4 * dimension + RECORD_BYTES) + sum(connection.execute(_SIZE).fetchone())


def _read(connection: Connection, form: RowForm[T], table: str, columns: str = "") -> list[T]:
    rows = connection.execute(f"SELECT {columns or ', '.join(form.columns)} FROM {table}")  # noqa: S608 - constants
    return [form.from_row(row) for row in rows]
