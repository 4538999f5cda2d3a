"""Reading by id, inside the caller's transaction."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from retrieval_core.adapters.stores.fields import FieldCounter
from retrieval_core.adapters.stores.rows import CHUNKS, DOCUMENTS, FIELD_COLUMNS, SECTIONS, SOURCES, FieldReader
from retrieval_core.adapters.stores.sqlite.connections import DamagedError
from retrieval_core.ports import Fetched, Manifest
from retrieval_core.types.filters import chunk_fields, matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from sqlite3 import Connection

    from retrieval_core.ports import FetchRequest, FieldInfo, SourceState
    from retrieval_core.types import Matrix, Vector
    from retrieval_core.types.filters import Filter

BATCH = 500
"""Ids looked up by one statement; some builds of SQLite allow no more than 999 parameters."""
LARGEST_INTEGER = 2**63 - 1

FIELDS = ", ".join(FIELD_COLUMNS)

# The columns are constants of this library; what users name is always bound.
_CHUNKS = f"SELECT number, {', '.join(CHUNKS.columns)} FROM chunks"  # noqa: S608
_FIELDS = f"SELECT {FIELDS} FROM chunks"  # noqa: S608
_SECTIONS = f"SELECT {', '.join(SECTIONS.columns)} FROM sections"  # noqa: S608
_DOCUMENTS = f"SELECT {', '.join(DOCUMENTS.columns)} FROM documents"  # noqa: S608
_DOCUMENT_IDS = "SELECT id FROM documents UNION SELECT document_id FROM chunks"
_SURROGATE = re.compile("[\ud800-\udfff]")


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
    yield from by_id(connection, _CHUNKS, request.chunk_ids)
    for part in request.ranges:
        if part.first <= LARGEST_INTEGER and storable((part.document_id,)):
            first, last = max(0, part.first), min(part.last, LARGEST_INTEGER)
            yield from connection.execute(
                f"{_CHUNKS} WHERE document_id = ? AND chunk_index BETWEEN ? AND ?", (part.document_id, first, last)
            ).fetchall()  # a damaged row ends the reading, and no cursor may outlive its connection


def by_id(connection: Connection, select: str, ids: Iterable[str]) -> Iterator[Sequence[Any]]:
    """Yield the rows of a statement for ids, a batch of them at a time."""
    names = storable(dict.fromkeys(ids))
    for start in range(0, len(names), BATCH):
        batch = names[start : start + BATCH]
        yield from connection.execute(f"{select} WHERE id IN ({', '.join('?' * len(batch))})", batch).fetchall()


def _vectors_by_id(connection: Connection, ids: Mapping[int, str]) -> dict[str, Vector]:
    return {ids[number]: vector for number, vector in vectors_of(connection, ids).items()}
