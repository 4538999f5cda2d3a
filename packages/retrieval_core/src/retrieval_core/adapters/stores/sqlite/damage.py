"""Checksums of an index file, and what they say about damage to it, inside the caller's transaction.

The table "seals" has a row for each chunk: the checksums of its record, then that of its postings, and that of its
vector. "state" has the numbers of chunks and documents as of the generation in "counted". Files of older versions of
this library get all of that with their next write, from what they hold then. Of their postings no checksum is kept:
these are compared with the text.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from retrieval_core.adapters.stores.rows import CHUNKS, DOCUMENTS, SECTIONS, indexed_text_of
from retrieval_core.adapters.stores.seals import CHUNK_SEAL, DOCUMENT_SEAL, SECTION_SEAL, UNSEALED, checksum
from retrieval_core.adapters.stores.sqlite.connections import DamagedError
from retrieval_core.adapters.stores.sqlite.read import has_seals, is_sealed
from retrieval_core.adapters.stores.sqlite.words import bag_of, read_bags, rebuild_postings
from retrieval_core.ports import RecordDamage, StoredDamage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator
    from sqlite3 import Connection
    from typing import Any

    from retrieval_core.text.analysis import Analyzer

AT_ONCE = 1000
"""Rows read at a time."""

_TABLES = """
CREATE TABLE seals (number INTEGER PRIMARY KEY, record BLOB NOT NULL, vector INTEGER);
ALTER TABLE documents ADD COLUMN seal BLOB;
ALTER TABLE sections ADD COLUMN seal BLOB;
ALTER TABLE state ADD COLUMN chunks INTEGER;
ALTER TABLE state ADD COLUMN documents INTEGER;
ALTER TABLE state ADD COLUMN counted INTEGER;
"""
# The columns are constants of this library; what users name is always bound.
_SEALED = ", ".join(name for name in CHUNKS.columns if name not in UNSEALED)
_CHUNKS = f"SELECT chunks.number, record, {_SEALED} FROM chunks LEFT JOIN seals USING (number)"  # noqa: S608
_UNSEALED = f"SELECT chunks.number, NULL, {_SEALED} FROM chunks"  # noqa: S608
_DOCUMENTS = f"SELECT id, seal, {', '.join(DOCUMENTS.columns)} FROM documents WHERE seal IS NOT NULL"  # noqa: S608
_SECTIONS = f"SELECT document_id, seal, {', '.join(SECTIONS.columns)} FROM sections WHERE seal IS NOT NULL"  # noqa: S608
_COUNT = """
UPDATE state SET chunks = (SELECT count(*) FROM chunks), documents = (SELECT count(*) FROM documents),
    counted = generation
"""
_INDEXED = tuple(map(CHUNKS.columns.index, ("title", "section_path", "text")))
_WITHOUT_SECTION = """
SELECT DISTINCT document_id FROM chunks WHERE parent_id IS NOT NULL AND parent_id NOT IN (SELECT id FROM sections)
    AND document_id IN (SELECT id FROM documents WHERE source IN (SELECT source FROM sources))
"""
"""Documents of files; chunks that were added one by one may name a section that was never there."""
_SOURCES = "sources"
_UNLISTED = """
SELECT DISTINCT source FROM documents WHERE source NOT IN (SELECT source FROM sources)
    AND (id = source OR substr(id, 1, length(source) + 1) = source || '#') ORDER BY source
"""
"""Documents that were added by a program have no file either, so this says something only if files are missing."""
_WAITING = "SELECT number FROM late_vectors WHERE generation IS NULL"


def seal(connection: Connection) -> None:
    """Add the tables, checksums and counts that older versions of this library did not write."""
    if not has_seals(connection):
        for statement in filter(str.strip, _TABLES.split(";")):
            connection.execute(statement)
    rows = connection.execute(f"{_CHUNKS} WHERE record IS NULL")
    while some := rows.fetchmany(AT_ONCE):
        sealed = [(number, CHUNK_SEAL.of(row)) for number, _, *row in some]
        connection.executemany("INSERT INTO seals (number, record) VALUES (?, ?)", sealed)
    vectors = connection.execute(
        "SELECT number, vectors.vector FROM vectors JOIN seals USING (number) WHERE seals.vector IS NULL"
    )
    while some := vectors.fetchmany(AT_ONCE):
        sums = [(checksum(vector, number), number) for number, vector in some]
        connection.executemany("UPDATE seals SET vector = ? WHERE number = ?", sums)
    connection.execute(_COUNT)


def count(connection: Connection, *, chunks: int = 0, documents: int = 0) -> None:
    """Add to the counts."""
    if chunks or documents:
        connection.execute("UPDATE state SET chunks = chunks + ?, documents = documents + ?", (chunks, documents))


@contextmanager
def counting_sources(connection: Connection) -> Generator[None]:
    """Record how many files a write leaves listed; those that were lost before are still counted until they return."""
    before, written = _listed(connection), _written_sources(connection)
    yield
    after = _listed(connection)
    if written is not None and before < written:
        after = max(after, written)
    if after != written:
        connection.execute("INSERT OR REPLACE INTO manifest VALUES (?, ?)", (_SOURCES, str(after)))


def _listed(connection: Connection) -> int:
    return connection.execute("SELECT count(*) FROM sources").fetchone()[0]


def _written_sources(connection: Connection) -> int | None:
    """Return how many files should be listed; ``None`` if an older version of this library wrote last."""
    row = connection.execute("SELECT value FROM manifest WHERE key = ?", (_SOURCES,)).fetchone()
    return None if row is None else int(row[0])


def find_damage(
    connection: Connection, analyzer: Analyzer, *, has_vectors: bool, document_ids: Collection[str] | None
) -> StoredDamage:
    """Compare what is stored with its checksums; what has none, as far as it goes."""
    found = _Damage(connection, analyzer, document_ids)
    with _any_text(connection):
        found.compare_chunks()
        found.compare_postings()
        if has_vectors:
            found.compare_vectors()
        found.compare_documents()
        if document_ids is None:
            found.compare_counts()
            found.compare_sources()
        return found.told()


def repair(
    connection: Connection, analyzer: Analyzer, *, has_vectors: bool, remove: Callable[[list[tuple[int]]], None]
) -> None:
    """Build damaged postings again, remove strays, and have damaged vectors wait for being embedded.

    Args:
        remove: Removes chunks by their numbers.
    """
    found = _Damage(connection, analyzer, None)
    with _any_text(connection):
        found.compare_chunks()
        found.compare_postings()
    if found.of_postings or found.has_stray_postings:
        rebuild_postings(connection, analyzer)
    if has_vectors:
        found.compare_vectors()
        lost = [(number,) for number in found.of_vectors]
        connection.executemany("DELETE FROM vectors WHERE number = ?", lost)
        connection.executemany("REPLACE INTO late_vectors (number) VALUES (?)", lost)
        connection.execute("DELETE FROM vectors WHERE number NOT IN (SELECT number FROM chunks)")
    remove([(number,) for number in found.strays])
    connection.execute("DELETE FROM seals WHERE number NOT IN (SELECT number FROM chunks)")
    connection.execute(_COUNT)


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


@contextmanager
def _any_text(connection: Connection) -> Generator[None]:
    """Read text that is not valid UTF-8 too."""
    usual = connection.text_factory
    connection.text_factory = _decoded
    try:
        yield
    finally:
        connection.text_factory = usual


class _Damage:
    """Collects the damage of chunks, by their numbers."""

    def __init__(self, connection: Connection, analyzer: Analyzer, document_ids: Collection[str] | None) -> None:
        self._connection = connection
        self._analyzer = analyzer
        self._ids = document_ids
        self._names = None if document_ids is None else json.dumps(list(document_ids))
        self._has_seals = has_seals(connection)
        self._is_sealed = is_sealed(connection)
        self._bags: dict[int, int] = {}
        self._counts: dict[str, tuple[int, int]] = {}
        self._documents: dict[str, list[str]] = {}
        self._without_section: set[str] = set()
        self._problems: list[str] = []
        self.unsealed = 0
        self.unlisted: tuple[str, ...] = ()
        self.changed: dict[int, tuple[str, ...]] = {}
        self.strays: set[int] = set()
        self.of_postings: dict[int, str] = {}
        self.of_vectors: dict[int, str] = {}
        self.has_stray_postings = False

    def compare_chunks(self) -> None:
        """Compare the records of chunks."""
        for number, seal, *row in self._rows(_CHUNKS if self._has_seals else _UNSEALED):
            count, total = self._counts.get(row[1], (0, 0))
            self._counts[row[1]] = count + 1, max(total, row[3] if isinstance(row[3], int) else 0)
            if not seal:
                self.unsealed += not self._is_sealed
                if self._is_sealed:
                    self.strays.add(number)
            elif changed := CHUNK_SEAL.changed(row, seal):
                self.changed[number] = changed
            kept = (seal or b"")[CHUNK_SEAL.size :]
            if kept:
                self._bags[number] = int.from_bytes(kept, "little")
            else:
                title, path, text = (row[place] for place in _INDEXED)
                self._bags[number] = bag_of(self._analyzer.terms(indexed_text_of(title, path, text)))

    def compare_postings(self) -> None:
        """Compare the postings of chunks."""
        try:
            kept = read_bags(self._connection)
        except DamagedError:
            kept = {}
        for number, bag in self._bags.items():
            if number not in kept:
                self.of_postings[number] = "missing"
            elif kept[number] != bag:
                self.of_postings[number] = "changed"
        self.has_stray_postings = self._ids is None and not self._bags.keys() >= kept.keys()

    def compare_vectors(self) -> None:
        """Compare the vectors of chunks."""
        waiting = {number for (number,) in self._connection.execute(_WAITING)}
        missing = self._bags.keys() - waiting
        seals = "SELECT vectors.number, vectors.vector, seals.vector FROM vectors LEFT JOIN seals USING (number)"
        plain = "SELECT number, vector, NULL FROM vectors"
        condition = " WHERE number IN (SELECT number FROM chunks WHERE document_id IN (SELECT value FROM json_each(?)))"
        rows = self._connection.execute(
            (seals if self._has_seals else plain) + ("" if self._names is None else condition),
            () if self._names is None else (self._names,),
        )
        while some := rows.fetchmany(AT_ONCE):
            for number, vector, written in some:
                missing.discard(number)
                is_changed = not isinstance(vector, bytes) or (
                    _is_no_unit(vector) if written is None else checksum(vector, number) != written
                )
                if is_changed and number in self._bags:
                    self.of_vectors[number] = "changed"
        self.of_vectors.update(dict.fromkeys(missing, "missing"))

    def compare_documents(self) -> None:
        """Compare the records of documents and sections."""
        if not self._has_seals:
            return
        for select, form, what in ((_DOCUMENTS, DOCUMENT_SEAL, ""), (_SECTIONS, SECTION_SEAL, "section's ")):
            for name, seal, *row in self._rows(select, "id" if form is DOCUMENT_SEAL else "document_id"):
                if changed := form.changed(row, seal):
                    self._documents.setdefault(name, []).extend(what + claim for claim in changed)
        for (name,) in self._connection.execute(_WITHOUT_SECTION):
            if self._ids is None or name in self._ids:
                self._documents.setdefault(name, [])
                self._without_section.add(name)

    def compare_counts(self) -> None:
        """Compare how many chunks and documents there are with how many there should be."""
        if not self._is_sealed:
            return
        for name in ("chunks", "documents"):
            sql = f"SELECT {name}, (SELECT count(*) FROM {name}) FROM state"  # noqa: S608
            written, there = self._connection.execute(sql).fetchone()
            if written != there:
                self._problems.append(f"the index has {there} {name}, and {written} were written")

    def compare_sources(self) -> None:
        """Find documents whose files the index does not list any more."""
        written = _written_sources(self._connection)
        if written is not None and _listed(self._connection) < written:
            self.unlisted = tuple(source for (source,) in self._connection.execute(_UNLISTED))

    def told(self) -> StoredDamage:
        """Return the damage found, by ids."""
        numbers = {*self.changed, *self.strays, *self.of_postings, *self.of_vectors}
        chunks: dict[str, RecordDamage] = {}
        sql = "SELECT number, id, document_id FROM chunks WHERE number IN (SELECT value FROM json_each(?))"
        for number, name, document_id in self._connection.execute(sql, (json.dumps(sorted(numbers)),)):
            parts = {"postings": self.of_postings.get(number), "vector": self.of_vectors.get(number)}
            chunks[name] = RecordDamage(
                document_id,
                (*self.changed.get(number, ()), *(part for part, what in parts.items() if what == "changed")),
                tuple(part for part, what in parts.items() if what == "missing"),
                number in self.strays,
            )
        return StoredDamage(
            chunks,
            {
                name: RecordDamage(
                    name, tuple(dict.fromkeys(changed)), ("section",) if name in self._without_section else ()
                )
                for name, changed in self._documents.items()
            },
            frozenset(self._incomplete()),
            tuple(self._problems),
            self.unsealed,
            self.unlisted,
        )

    def _incomplete(self) -> Iterator[str]:
        """Yield the ids of files' documents that have fewer chunks than were written."""
        of_files = "FROM documents WHERE source IN (SELECT source FROM sources)"
        for name, (there, total) in self._counts.items():
            if there < total and self._connection.execute(f"SELECT 1 {of_files} AND id = ?", (name,)).fetchone():
                yield name
        if self._names is None:
            empty = f"SELECT id, text {of_files} AND id NOT IN (SELECT document_id FROM chunks)"  # noqa: S608
            for name, text in self._connection.execute(empty):
                if text.strip():
                    yield name

    def _rows(self, select: str, column: str = "document_id") -> Iterator[list[Any]]:
        if self._names is None:
            rows = self._connection.execute(select)
        else:
            word = "AND" if "WHERE" in select else "WHERE"
            rows = self._connection.execute(
                f"{select} {word} {column} IN (SELECT value FROM json_each(?))",  # noqa: S608
                (self._names,),
            )
        return chain.from_iterable(iter(lambda: rows.fetchmany(AT_ONCE), []))


def _is_no_unit(vector: bytes) -> bool:
    """Whether these bytes are not a vector as they are written: of length 1, or all zeros."""
    if len(vector) % 4:
        return True
    length = float(np.linalg.norm(np.frombuffer(vector, np.float32).astype(np.float64)))
    return not (length == 0 or abs(length - 1) < 1e-3)
