"""Changes to an index, inside the caller's transaction."""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING

from retrieval_core.adapters.stores.rows import CHUNKS, DOCUMENTS, SECTIONS, SOURCES
from retrieval_core.adapters.stores.seals import CHUNK_SEAL, DOCUMENT_SEAL, SECTION_SEAL, checksum
from retrieval_core.adapters.stores.sqlite import damage, trigrams
from retrieval_core.adapters.stores.sqlite.read import has_seals, is_sealed, numbers_of, waiting
from retrieval_core.adapters.stores.sqlite.words import (
    add_postings,
    has_small_segments,
    merge_segments,
    merge_small_segments,
    rebuild_postings,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from sqlite3 import Connection

    from retrieval_core.ports import Change
    from retrieval_core.text.analysis import Analyzer

KEPT_GENERATIONS = 1000
"""For how many writes the numbers of removed chunks are kept; readers further behind start afresh."""


def _into(table: str, columns: Sequence[str]) -> str:
    return f"INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


_INSERT_CHUNK = f"INSERT {_into('chunks', ('number', *CHUNKS.columns))}"
_INSERT_DOCUMENT = f"INSERT {_into('documents', (*DOCUMENTS.columns, 'seal'))}"
_REPLACE_SECTION = f"REPLACE {_into('sections', (*SECTIONS.columns, 'seal'))}"
_REPLACE_SOURCE = f"REPLACE {_into('sources', SOURCES.columns)}"


def next_generation(connection: Connection) -> int:
    """Count a write, write its token, drop old entries of removed chunks, and return the generation."""
    if not is_sealed(connection):
        damage.seal(connection)
    token = token_hex()
    sql = "UPDATE state SET generation = generation + 1, counted = generation + 1, token = ? RETURNING generation"
    generation = connection.execute(sql, (token,)).fetchone()[0]
    connection.execute("INSERT INTO writes VALUES (?, ?)", (generation, token))
    for forget in ("DELETE FROM removed WHERE generation <= ?", "DELETE FROM writes WHERE generation <= ?"):
        connection.execute(forget, (generation - KEPT_GENERATIONS,))
    trigrams.follow(connection, generation)
    return generation


def apply_change(connection: Connection, change: Change, analyzer: Analyzer) -> None:
    """Apply a change that was checked before."""
    generation = next_generation(connection)
    _remove_documents(connection, change.removed_documents, generation)
    _remove_documents(connection, (document.id for document in change.documents), generation)
    documents = map(DOCUMENTS.to_row, change.documents)
    connection.executemany(_INSERT_DOCUMENT, ((*row, DOCUMENT_SEAL.of(row)) for row in documents))
    damage.count(connection, documents=len(change.documents))
    trigrams.add_documents(connection, (document.id for document in change.documents))
    sections = map(SECTIONS.to_row, change.sections)
    connection.executemany(_REPLACE_SECTION, ((*row, SECTION_SEAL.of(row)) for row in sections))
    _insert_chunks(connection, change, analyzer, generation)
    merge_segments(connection)
    with damage.counting_sources(connection):
        connection.executemany("DELETE FROM sources WHERE source = ?", ((name,) for name in change.removed_sources))
        connection.executemany(_REPLACE_SOURCE, map(SOURCES.to_row, change.sources))


def add_vectors(connection: Connection, change: Change) -> int:
    """Add the vectors of chunks that still wait for them, and return how many these are.

    Args:
        change: Was checked before.
    """
    numbers = waiting(connection, change.chunks)
    if change.vectors is None or not numbers:
        return 0
    generation = next_generation(connection)
    for chunk, vector in zip(change.chunks, change.vectors, strict=True):
        if (number := numbers.get(chunk.id)) is not None:
            blob = vector.tobytes()
            connection.execute("INSERT INTO vectors VALUES (?, ?)", (number, blob))
            connection.execute("UPDATE seals SET vector = ? WHERE number = ?", (checksum(blob, number), number))
    _end_waiting(connection, numbers.values(), generation)
    return len(numbers)


def repair(connection: Connection, analyzer: Analyzer, *, has_vectors: bool) -> None:
    """Build damaged postings again, remove strays, and have damaged vectors wait for being embedded.

    Args:
        connection: In the caller's transaction.
        analyzer: Of the index.
        has_vectors: Whether the index has vectors.
    """
    generation = next_generation(connection)

    def remove(numbers: Sequence[tuple[int]]) -> None:
        _remove_chunks(connection, numbers, generation)

    damage.repair(connection, analyzer, has_vectors=has_vectors, remove=remove)
    trigrams.build(connection, generation)
    merge_segments(connection)


def analyze_again(connection: Connection, analyzer: Analyzer) -> None:
    """Build all postings again by another analysis, which is the index's from then on."""
    next_generation(connection)
    rebuild_postings(connection, analyzer)
    # The checksums of the former postings go; those without one are compared with the text.
    if has_seals(connection):
        connection.execute("UPDATE seals SET record = substr(record, 1, ?)", (CHUNK_SEAL.size,))
    connection.execute("UPDATE manifest SET value = ? WHERE key = 'analyzer'", (analyzer.id,))


def optimize(connection: Connection) -> None:
    """Arrange the words for faster searches, where they are not; this counts as a write."""
    if has_small_segments(connection):
        next_generation(connection)
        merge_small_segments(connection)


def remove(connection: Connection, document_ids: Sequence[str]) -> int:
    """Remove documents and the states of their sources, and return how many chunks were removed.

    Indexing the sources again then brings the documents back.
    """
    forget = "DELETE FROM sources WHERE source IN (SELECT source FROM documents WHERE id = ?)"
    with damage.counting_sources(connection):
        connection.executemany(forget, ((name,) for name in document_ids))
    count = _remove_documents(connection, document_ids, next_generation(connection))
    merge_segments(connection)
    return count


def _remove_documents(connection: Connection, document_ids: Iterable[str], generation: int) -> int:
    count = 0
    for name in document_ids:
        numbers = connection.execute("SELECT number FROM chunks WHERE document_id = ?", (name,)).fetchall()
        _remove_chunks(connection, numbers, generation)
        connection.execute("DELETE FROM sections WHERE document_id = ?", (name,))
        trigrams.remove_document(connection, name)
        gone = connection.execute("DELETE FROM documents WHERE id = ?", (name,)).rowcount
        damage.count(connection, documents=-gone)
        count += len(numbers)
    return count


def _remove_chunks(connection: Connection, numbers: Sequence[tuple[int]], generation: int) -> None:
    if not numbers:
        return
    connection.executemany("DELETE FROM chunks WHERE number = ?", numbers)
    connection.executemany("DELETE FROM seals WHERE number = ?", numbers)
    damage.count(connection, chunks=-len(numbers))
    connection.executemany("DELETE FROM vectors WHERE number = ?", numbers)
    connection.executemany("DELETE FROM late_vectors WHERE number = ?", numbers)
    connection.executemany("INSERT OR IGNORE INTO stale_words VALUES (?)", numbers)
    connection.executemany("INSERT INTO removed VALUES (?, ?)", ((generation, number) for (number,) in numbers))


def _insert_chunks(connection: Connection, change: Change, analyzer: Analyzer, generation: int) -> None:
    former = numbers_of(connection, (chunk.id for chunk in change.chunks))
    _remove_chunks(connection, former, generation)
    last = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'chunks'").fetchone()[0]
    numbers = range(last + 1, last + 1 + len(change.chunks))
    terms = (analyzer.terms(chunk.indexed_text) for chunk in change.chunks)
    bags = add_postings(connection, list(zip(numbers, terms, strict=True)))
    number_of = {chunk.id: number for number, chunk in zip(numbers, change.chunks, strict=True)}
    sums: dict[int, int] = {}
    if change.vectors is not None:
        embedded = (number for name, number in number_of.items() if name not in change.unembedded)
        blobs = (vector.tobytes() for vector in change.vectors)
        vectors = dict(zip(embedded, blobs, strict=True))
        connection.executemany("INSERT INTO vectors VALUES (?, ?)", vectors.items())
        sums = {number: checksum(blob, number) for number, blob in vectors.items()}
    rows = [CHUNKS.to_row(chunk) for chunk in change.chunks]
    connection.executemany(_INSERT_CHUNK, ((number, *row) for number, row in zip(numbers, rows, strict=True)))
    seals = (
        (number, CHUNK_SEAL.of(row) + bag.to_bytes(4, "little"), sums.get(number))
        for number, row, bag in zip(numbers, rows, bags, strict=True)
    )
    connection.executemany("INSERT INTO seals VALUES (?, ?, ?)", seals)
    damage.count(connection, chunks=len(rows))
    late = ((number_of[name],) for name in change.unembedded)
    connection.executemany("INSERT INTO late_vectors (number) VALUES (?)", late)


def _end_waiting(connection: Connection, numbers: Collection[int], generation: int) -> None:
    """Note the generation of the write that brings chunks their vectors; nobody asks for long past ones any more."""
    rows = ((generation, number) for number in numbers)
    connection.executemany("UPDATE late_vectors SET generation = ? WHERE number = ?", rows)
    connection.execute("DELETE FROM late_vectors WHERE generation <= ?", (generation - KEPT_GENERATIONS,))
