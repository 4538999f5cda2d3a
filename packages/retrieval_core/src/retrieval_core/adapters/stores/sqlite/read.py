"""Reading by id, inside the caller's transaction."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from retrieval_core.adapters.stores.fields import FieldCounter
from retrieval_core.adapters.stores.local import Match
from retrieval_core.adapters.stores.rows import CHUNKS, DOCUMENTS, FIELD_COLUMNS, SECTIONS, SOURCES, FieldReader
from retrieval_core.adapters.stores.sqlite.connections import DamagedError
from retrieval_core.adapters.stores.sqlite.schema import chunk_columns
from retrieval_core.ports import Fetched, Manifest
from retrieval_core.types.filters import chunk_fields, matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from sqlite3 import Connection

    import numpy as np
    from numpy.typing import NDArray

    from retrieval_core.adapters.stores.columns import Mask
    from retrieval_core.ports import FetchRequest, FieldInfo, SourceState
    from retrieval_core.types import Chunk, Matrix, Vector
    from retrieval_core.types.filters import Filter

    Rows: TypeAlias = NDArray[np.float32 | np.int8]
    """Vectors, as they are or quantized."""

BATCH = 500
"""Ids looked up by one statement; some builds of SQLite allow no more than 999 parameters."""
LARGEST_INTEGER = 2**63 - 1

FIELDS = ", ".join(FIELD_COLUMNS)

# The columns are constants of this library; what users name is always bound.
_FIELDS = f"SELECT {FIELDS} FROM chunks"  # noqa: S608
_SECTIONS = f"SELECT {', '.join(SECTIONS.columns)} FROM sections"  # noqa: S608
_DOCUMENTS = f"SELECT {', '.join(DOCUMENTS.columns)} FROM documents"  # noqa: S608
_DOCUMENT_IDS = "SELECT id FROM documents UNION SELECT document_id FROM chunks"
_WAITING = "late_vectors JOIN chunks USING (number) WHERE generation IS NULL"
_WAITS = "late_vectors ON late_vectors.number = chunks.number AND generation IS NULL"
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The index at one generation; the rows of all arrays line up.

    Attributes:
        numbers: The chunks' numbers, ascending; some of the chunks may be removed.
        passing: Which rows exist, have a vector if these were requested, and match the filter.
        matrix: Vectors of unit length, shape ``(rows, dimension)``, or ``(rows, 0)`` where none were requested.
        scales: Where the matrix is quantized, what its rows are to be multiplied by.
        chunks: How many exist and match the filter.
        embedded: How many of these have a vector, if these were requested.
    """

    numbers: NDArray[np.int64]
    passing: Mask
    matrix: Rows
    scales: NDArray[np.float32] | None
    chunks: int
    embedded: int


def storable(names: Iterable[str]) -> list[str]:
    """Return the names that UTF-8 can encode; SQLite takes no others."""
    return [name for name in names if name.isascii() or not _SURROGATE.search(name)]


def read_manifest(connection: Connection) -> Manifest:
    """Return the index's manifest."""
    entries = dict(connection.execute("SELECT key, value FROM manifest"))
    vectors = tuple(json.loads(entries.get("vectors", "[]")))
    return Manifest(entries["embedder_id"], entries["dimension"], entries["analyzer"], entries["metric"], vectors)


def read_state(connection: Connection) -> tuple[str, int]:
    """Return the token of the last write, and the generation, which grows with each write."""
    return connection.execute("SELECT coalesce(nullif(token, ''), identity), generation FROM state").fetchone()


def follows(connection: Connection, token: str, generation: int) -> bool:
    """Whether the index came from a former state by the recorded writes.

    Otherwise the file is another one, such as an older copy that was restored and written to since.
    """
    sql = "SELECT 1 FROM writes WHERE generation = ? AND token = ?"
    return connection.execute(sql, (generation, token)).fetchone() is not None


def fetch(connection: Connection, request: FetchRequest) -> Fetched:
    """Return those of the requested records that exist."""
    numbered = {number: CHUNKS.from_row(row) for number, *row in _chunk_rows(connection, request)}
    if request.filter is not None:
        numbered = {number: chunk for number, chunk in numbered.items() if matches(request.filter, chunk_fields(chunk))}
    sections = map(SECTIONS.from_row, by_id(connection, _SECTIONS, request.section_ids))
    documents = map(DOCUMENTS.from_row, by_id(connection, _DOCUMENTS, request.document_ids))
    fields_of = FieldReader()

    def is_visible(column: str, name: str) -> bool:
        """Whether a section or document has a chunk that matches the filter."""
        if request.filter is None:
            return True
        rows = connection.execute(f"{_FIELDS} WHERE {column} = ?", (name,))
        return any(matches(request.filter, fields_of(row)) for row in rows)

    return Fetched(
        chunks={chunk.id: chunk for chunk in numbered.values()},
        vectors=_vectors_by_id(connection, {number: chunk.id for number, chunk in numbered.items()})
        if request.with_vectors
        else {},
        sections={section.id: section for section in sections if is_visible("parent_id", section.id)},
        documents={document.id: document for document in documents if is_visible("document_id", document.id)},
    )


def numbers_of(connection: Connection, ids: Iterable[str]) -> list[tuple[int]]:
    """Return the numbers of those chunks that exist."""
    return [(number,) for (number,) in by_id(connection, "SELECT number FROM chunks", ids)]


def vectors_of(connection: Connection, numbers: Iterable[int]) -> dict[int, Vector]:
    """Return the vectors of chunks, by their number.

    Raises:
        DamagedError: A vector is damaged.
    """
    dimension = "(SELECT value FROM manifest WHERE key = 'dimension')"
    sql = f"SELECT number, vector, {dimension} FROM vectors WHERE number IN (SELECT value FROM json_each(?))"  # noqa: S608
    rows = connection.execute(sql, (json.dumps(list(numbers)),))
    return {number: vectors_from(blob, 1, dimension)[0] for number, blob, dimension in rows}


def vectors_from(joined: bytes, count: int, dimension: int) -> Matrix:
    """Return vectors as the rows of a matrix.

    Raises:
        DamagedError: The number of bytes is wrong.
    """
    import numpy as np  # noqa: PLC0415 - only those who ask for vectors pay for numpy

    if len(joined) != count * dimension * 4:
        msg = "a vector has another length than it should have"
        raise DamagedError(msg)
    return np.frombuffer(joined, dtype=np.float32).reshape(count, dimension)


def document_ids(connection: Connection) -> list[str]:
    """Return the id of each document; one counts when its text or one of its chunks is here."""
    return [name for (name,) in connection.execute(_DOCUMENT_IDS)]


def count(connection: Connection) -> tuple[int, int]:
    """Return the numbers of documents and of chunks; a document counts when its text or one of its chunks is here."""
    documents = connection.execute(f"SELECT count(*) FROM ({_DOCUMENT_IDS})").fetchone()[0]  # noqa: S608
    return documents, connection.execute("SELECT count(*) FROM chunks").fetchone()[0]


def sources(connection: Connection) -> dict[str, SourceState]:
    """Return the state of every source, by its name."""
    rows = connection.execute(f"SELECT {', '.join(SOURCES.columns)} FROM sources")  # noqa: S608
    return {state.source: state for state in map(SOURCES.from_row, rows)}


def documents_of(connection: Connection, source: str) -> dict[str, str]:
    """Return the content hashes of a source's documents, by document id."""
    names = storable((source,))
    return dict(connection.execute("SELECT id, content_hash FROM documents WHERE source = ?", names)) if names else {}


def count_chunks(connection: Connection, condition: Filter) -> int:
    """Return how many chunks pass a filter."""
    fields_of = FieldReader()
    return sum(matches(condition, fields_of(row)) for row in connection.execute(_FIELDS))


def fields(connection: Connection) -> dict[str, FieldInfo]:
    """Return the fields of all chunks by their paths, those of most chunks first."""
    counter, fields_of = FieldCounter(), FieldReader()
    for row in connection.execute(_FIELDS):
        counter.add(fields_of(row))
    return counter.catalogue()


def _chunk_rows(connection: Connection, request: FetchRequest) -> Iterator[Sequence[Any]]:
    select = f"SELECT number, {chunk_columns(connection)} FROM chunks"  # noqa: S608
    yield from by_id(connection, select, request.chunk_ids)
    for part in request.ranges:
        if part.first <= LARGEST_INTEGER and storable((part.document_id,)):
            first, last = max(0, part.first), min(part.last, LARGEST_INTEGER)
            yield from connection.execute(
                f"{select} WHERE document_id = ? AND chunk_index BETWEEN ? AND ?", (part.document_id, first, last)
            ).fetchall()  # a damaged row ends the reading, and no cursor may outlive its connection


def by_id(connection: Connection, select: str, ids: Iterable[str]) -> Iterator[Sequence[Any]]:
    """Yield the rows of a statement for ids, a batch of them at a time."""
    names = storable(dict.fromkeys(ids))
    for start in range(0, len(names), BATCH):
        batch = names[start : start + BATCH]
        yield from connection.execute(f"{select} WHERE id IN ({', '.join('?' * len(batch))})", batch).fetchall()


def _vectors_by_id(connection: Connection, ids: Mapping[int, str]) -> dict[str, Vector]:
    return {ids[number]: vector for number, vector in vectors_of(connection, ids).items()}


def matches_of(
    connection: Connection, numbers: NDArray[np.int64], scores: NDArray[np.floating], limit: int
) -> list[Match]:
    """Return the chunks with some numbers, best first; equal scores are ordered by chunk id."""
    score_of = dict(zip(numbers.tolist(), scores.tolist(), strict=True))
    names = connection.execute(
        "SELECT number, id FROM chunks WHERE number IN (SELECT value FROM json_each(?))", (json.dumps(list(score_of)),)
    )
    ordered = sorted([(-score_of[number], name, number) for number, name in names])[:limit]
    return [Match(number, name, -negated) for negated, name, number in ordered]


def has_seals(connection: Connection) -> bool:
    """Whether there are checksums, though not of chunks that an older version of this library has written since."""
    return bool(connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'seals'").fetchone())


def is_sealed(connection: Connection) -> bool:
    """Whether all chunks have checksums, and the counts are those of this state."""
    return has_seals(connection) and bool(connection.execute("SELECT counted IS generation FROM state").fetchone()[0])


def count_written_chunks(connection: Connection) -> int:
    """Return how many chunks there should be; how many there are, where that was not written."""
    sql = "SELECT chunks FROM state" if is_sealed(connection) else "SELECT count(*) FROM chunks"
    return connection.execute(sql).fetchone()[0]


def unembedded(connection: Connection) -> dict[str, str]:
    """Return the content hashes of the chunks that wait for their vector, by id, in the order they were written."""
    return dict(connection.execute(f"SELECT id, content_hash FROM {_WAITING} ORDER BY number"))  # noqa: S608


def count_unembedded(connection: Connection) -> int:
    """Return how many chunks wait for their vector."""
    return connection.execute(f"SELECT count(*) FROM {_WAITING}").fetchone()[0]  # noqa: S608


def waiting(connection: Connection, chunks: Iterable[Chunk]) -> dict[str, int]:
    """Return the numbers of those chunks, by id, that wait for their vector and have the same text to embed."""
    texts = {chunk.id: chunk.indexed_text for chunk in chunks}
    select = f"SELECT chunks.number, {chunk_columns(connection)} FROM chunks JOIN {_WAITS}"  # noqa: S608 - constants
    kept = ((number, CHUNKS.from_row(row)) for number, *row in by_id(connection, select, texts))
    return {chunk.id: number for number, chunk in kept if chunk.indexed_text == texts[chunk.id]}


def came_since(connection: Connection, generation: int) -> list[int]:
    """Return the numbers of the chunks whose vector came after a generation, later than they did, ascending."""
    rows = connection.execute("SELECT number FROM late_vectors WHERE generation > ? ORDER BY number", (generation,))
    return [row[0] for row in rows]
