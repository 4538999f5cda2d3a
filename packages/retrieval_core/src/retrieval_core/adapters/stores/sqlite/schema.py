"""The tables of an index file, and the checks of its format."""

from __future__ import annotations

import sqlite3
from secrets import token_hex
from typing import TYPE_CHECKING, TypeAlias

from retrieval_core.adapters.stores.rows import CHUNKS
from retrieval_core.errors import IndexFormatError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from sqlite3 import Connection

    from retrieval_core.ports import Manifest

    Preparation: TypeAlias = Callable[[Connection], None]
    """Makes the tables of a new index, and converts what an older version of this library wrote."""

APPLICATION_ID = 0x52455452
"""Marks the file as ours, in SQLite's header field for that purpose."""
FORMAT = 3
"""Version of the tables; it grows when an older version of this library could no longer read them."""
OLDER_FORMATS = frozenset({1, 2})
"""Formats that are converted: their words are in a table of FTS5."""
OLDEST_SQLITE = (3, 40, 0)

# A chunk that is replaced gets a new number, so that cached arrays are updated by reading higher numbers and the table
# "removed". Long texts are the last columns, so that reading the others does not touch them. A copy of a file has its
# generations too, so each write leaves a random token; "writes" has those of the last generations, by which readers see
# whether their cache is a former state of this very file. "late_vectors" has the chunks that were written without their
# vector, and the generation that brought it, NULL until then, by which cached arrays are updated.
_TABLES = """
CREATE TABLE manifest (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE state (identity TEXT NOT NULL, generation INTEGER NOT NULL);
CREATE TABLE documents (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, source TEXT NOT NULL, content_hash TEXT NOT NULL, title TEXT,
    timestamp TEXT, metadata TEXT NOT NULL, text TEXT NOT NULL
);
CREATE INDEX documents_by_source ON documents (source);
CREATE TABLE sections (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, document_id TEXT NOT NULL, kind TEXT NOT NULL,
    path TEXT NOT NULL, span_start INTEGER NOT NULL, span_end INTEGER NOT NULL, page_first INTEGER, page_last INTEGER
);
CREATE INDEX sections_by_document ON sections (document_id);
CREATE TABLE chunks (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, document_id TEXT NOT NULL,
    chunk_index INTEGER NOT NULL, total_chunks INTEGER NOT NULL, page_first INTEGER, page_last INTEGER,
    section_path TEXT NOT NULL, span_start INTEGER, span_end INTEGER, parent_id TEXT, row_first INTEGER,
    row_last INTEGER, item_first INTEGER, item_last INTEGER, title TEXT, source TEXT, content_hash TEXT NOT NULL,
    timestamp TEXT, embedding_model TEXT, metadata TEXT NOT NULL, text TEXT NOT NULL
);
CREATE INDEX chunks_by_position ON chunks (document_id, chunk_index);
CREATE INDEX chunks_by_parent ON chunks (parent_id);
CREATE TABLE vectors (number INTEGER PRIMARY KEY, vector BLOB NOT NULL);
CREATE TABLE removed (generation INTEGER, number INTEGER, PRIMARY KEY (generation, number)) WITHOUT ROWID;
CREATE TABLE sources (
    source TEXT PRIMARY KEY, content_hash TEXT NOT NULL, recipe TEXT NOT NULL, documents INTEGER NOT NULL
) WITHOUT ROWID;
"""

_TOKENS = """
ALTER TABLE state ADD COLUMN token TEXT NOT NULL DEFAULT '';
CREATE TABLE writes (generation INTEGER PRIMARY KEY, token TEXT NOT NULL);
"""

_LATE_VECTORS = """
CREATE TABLE late_vectors (number INTEGER PRIMARY KEY, generation INTEGER);
CREATE INDEX late_vectors_by_generation ON late_vectors (generation);
"""

_LINES = """
ALTER TABLE chunks ADD COLUMN line_first INTEGER;
ALTER TABLE chunks ADD COLUMN line_last INTEGER;
"""

# Lines of chunks that older versions of this library wrote, from their ranges and the texts of their documents. Rows of
# tables have none. Front matter is not in the text, so lines below it are unknown until the file is indexed again.
_LINE_OF = """
(SELECT 1 + length(before) - length(replace(before, char(10), '')) FROM (
    SELECT substr(documents.text, 1, {offset}) AS before FROM documents WHERE documents.id = chunks.document_id
        AND substr(id, 1, length(source) + 1) <> source || '#'
        AND (metadata = '{{}}' OR NOT (lower(source) GLOB '*.md' OR lower(source) GLOB '*.mdx'
            OR lower(source) GLOB '*.markdown'))
))
"""
_COMPUTED = {"line_first": _LINE_OF.format(offset="span_start"), "line_last": _LINE_OF.format(offset="span_end")}

# What the blobs hold, and how segments come and go, is in postings.py.
_WORDS = """
CREATE TABLE word_segments (
    id INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL, chunks INTEGER NOT NULL,
    numbers BLOB NOT NULL, lengths BLOB NOT NULL, first_terms TEXT NOT NULL
);
CREATE TABLE word_blocks (
    segment INTEGER NOT NULL, place INTEGER NOT NULL, block BLOB NOT NULL, PRIMARY KEY (segment, place)
);
CREATE TABLE stale_words (number INTEGER PRIMARY KEY);
"""


# One statement sees one state: between several, another process may make the tables.
_FORMAT = """
SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version),
    (SELECT count(*) FROM sqlite_schema)
"""


def check_sqlite() -> None:
    """Raise :class:`IndexFormatError` where SQLite is older than 3.40."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        msg = f"this Python has SQLite {sqlite3.sqlite_version}, and the index needs 3.40 or later; use a newer Python"
        raise IndexFormatError(msg)


def read_format(connection: Connection, path: Path) -> int:
    """Return the version of the tables; 0 where nothing was written to the file yet.

    Raises:
        IndexFormatError: The file belongs to another program, or to a newer version of this library.
    """
    application, version, tables = connection.execute(_FORMAT).fetchone()
    if (application, tables) == (0, 0):
        return 0
    if application != APPLICATION_ID:
        msg = f"{path} is a SQLite file of another program, and was not changed. Choose another path for the index"
        raise IndexFormatError(msg)
    if version != FORMAT and version not in OLDER_FORMATS:
        advice = "Upgrade retrieval-core" if version > FORMAT else "Build the index anew"
        msg = f"{path} has index format {version}, and this version of retrieval-core reads formats up to {FORMAT}"
        raise IndexFormatError(f"{msg}. {advice}.")
    return version


def create_tables(connection: Connection, manifest: Manifest) -> None:
    """Make an empty index, inside the open transaction."""
    _execute(connection, _TABLES + _TOKENS + _WORDS + _LATE_VECTORS + _LINES)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute("INSERT INTO state (identity, generation) VALUES (?, 0)", (token_hex(),))
    entries = {
        "embedder_id": manifest.embedder_id,
        "dimension": manifest.dimension,
        "analyzer": manifest.analyzer,
        "metric": manifest.metric,
    }
    connection.executemany("INSERT INTO manifest VALUES (?, ?)", entries.items())


def convert_tables(connection: Connection) -> None:
    """Bring the tables of an older format to the present one, inside the open transaction.

    Passages and vectors stay as they are. The tables of words are empty, so that all have to be analysed anew.
    """
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'writes'").fetchone():
        _execute(connection, _TOKENS)
    _execute(connection, _WORDS + _LATE_VECTORS + "DROP TABLE words;")
    connection.execute(f"PRAGMA user_version = {FORMAT}")


def has_lines(connection: Connection) -> bool:
    """Whether the lines of chunks are stored; otherwise they are computed."""
    return (
        connection.execute("SELECT 1 FROM pragma_table_info('chunks') WHERE name = 'line_first'").fetchone() is not None
    )


def add_lines(connection: Connection) -> None:
    """Store the lines of chunks that an older version of this library wrote, inside the open transaction."""
    if not has_lines(connection):
        _execute(connection, _LINES)
        connection.execute(f"UPDATE chunks SET {', '.join(f'{name} = {line}' for name, line in _COMPUTED.items())}")  # noqa: S608


def chunk_columns(connection: Connection) -> str:
    """Return the columns of a chunk's row as SQL, for a statement that names the table ``chunks``."""
    computed = {} if has_lines(connection) else _COMPUTED
    return ", ".join(computed.get(name, name) for name in CHUNKS.columns)


def drop_named_vectors(connection: Connection) -> None:
    """Drop further vectors of chunks, such as those of titles, which older versions of this library wrote."""
    if connection.execute("DELETE FROM manifest WHERE key = 'vectors'").rowcount:
        connection.execute("DROP TABLE IF EXISTS named_vectors")


def _execute(connection: Connection, statements: str) -> None:
    for statement in filter(str.strip, statements.split(";")):
        connection.execute(statement)
