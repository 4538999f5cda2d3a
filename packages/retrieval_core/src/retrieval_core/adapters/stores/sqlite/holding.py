"""Reading a small index into memory as a whole, inside the caller's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from retrieval_core.adapters.stores.held import RECORD_BYTES, HeldIndex, Postings, Records
from retrieval_core.adapters.stores.rows import CHUNKS, DOCUMENTS, SECTIONS
from retrieval_core.adapters.stores.sqlite.damage import count_chunks
from retrieval_core.adapters.stores.sqlite.late import count_unembedded
from retrieval_core.adapters.stores.sqlite.lexical import weight_of
from retrieval_core.adapters.stores.sqlite.postings import merged_postings, read_segments, read_stale

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from sqlite3 import Connection

    from retrieval_core.adapters.stores.checks import Identity
    from retrieval_core.adapters.stores.rows import RowForm
    from retrieval_core.adapters.stores.sqlite.snapshot import Snapshot
    from retrieval_core.ports import Manifest
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import Matrix

T = TypeVar("T")

MOST_CHUNKS = 20_000
"""The most chunks of an index that is held in memory."""
MOST_BYTES = 64 * 1024 * 1024
"""The most bytes of its vectors, postings and records."""
_SIZE = """
SELECT (SELECT coalesce(sum(length(text)), 0) FROM chunks), (SELECT coalesce(sum(length(text)), 0) FROM documents),
    (SELECT coalesce(sum(length(block)), 0) FROM word_blocks)
"""


def read_index(
    connection: Connection,
    snapshot: Callable[[Connection, None, int | None], Snapshot],
    *,
    identity: Identity,
    manifest: Manifest,
    analyzer: Analyzer,
    version: str,
    paths: Iterable[str],
) -> HeldIndex | None:
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
    chunks = count_chunks(connection)
    if not 0 < chunks <= MOST_CHUNKS or _size(connection, chunks, manifest.dimension or 0) > MOST_BYTES:
        return None
    rows = snapshot(connection, None, None)
    alive, numbers = rows.passing, rows.numbers[rows.passing]
    records = Records(
        _read(connection, CHUNKS, "chunks ORDER BY number"),
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
    return HeldIndex(
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


def _read(connection: Connection, form: RowForm[T], table: str) -> list[T]:
    rows = connection.execute(f"SELECT {', '.join(form.columns)} FROM {table}")  # noqa: S608 - constants
    return [form.from_row(row) for row in rows]
