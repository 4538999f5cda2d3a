"""The tables of an index file, and the checks of its format."""

from __future__ import annotations

import json
import sqlite3
from secrets import token_hex
from typing import TYPE_CHECKING, TypeAlias

from retrieval_core.errors import IndexFormatError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from retrieval_core.ports import Manifest

    Creator: TypeAlias = Callable[[sqlite3.Connection], None]
    """Makes the tables of a new index."""

APPLICATION_ID = 0x52455452
"""Marks the file as ours, in SQLite's header field for that purpose."""
FORMAT = 1
"""Version of the tables; it grows when an older version of this library could no longer read them."""
FORMAT_OF_SEVERAL_VECTORS = 2
"""The format with named vectors, which an older version must not open: it would write chunks without them."""
OLDEST_SQLITE = (3, 40, 0)
WORD_SEARCH = "fts5"

# A chunk that is replaced gets a new number, so that cached arrays are updated by reading higher numbers and the table
# "removed". Long texts are the last columns, so that reading the others does not touch them. A copy of a file has its
# generations too, so each write leaves a random token; "writes" has those of the last generations, by which readers see
# whether their cache is a former state of this very file. Files from before tokens get them with the next write. So do
# those from before "late_vectors": the chunks that were written without their vector, and the generation that brought
# it, NULL until then, by which cached arrays are updated. The
# words are analysed already; the tokenizer only splits at spaces, since it takes everything beyond ASCII for a letter.
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
CREATE VIRTUAL TABLE words USING fts5 (terms, tokenize = "ascii tokenchars '_'");
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

_NAMED_VECTORS = """
CREATE TABLE named_vectors (
    name TEXT NOT NULL, number INTEGER NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (name, number)
) WITHOUT ROWID;
"""


def check_sqlite() -> None:
    """Raise :class:`IndexFormatError` where SQLite is older than 3.40, or was built without FTS5."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        msg = f"this Python has SQLite {sqlite3.sqlite_version}, and the index needs 3.40 or later; use a newer Python"
        raise IndexFormatError(msg)
    connection = sqlite3.connect(":memory:")
    try:
        has_words = connection.execute("SELECT 1 FROM pragma_module_list WHERE name = ?", (WORD_SEARCH,)).fetchone()
    finally:
        connection.close()
    if not has_words:
        msg = "this Python's SQLite was built without FTS5, which searches words; use another build of Python"
        raise IndexFormatError(msg)


def is_blank(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether nothing was written to the file yet.

    Raises:
        IndexFormatError: The file belongs to another program, or to a newer version of this library.
    """
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if (application, tables) == (0, 0):
        return True
    if application != APPLICATION_ID:
        msg = f"{path} is a SQLite file of another program and is left alone; choose another place for the index"
        raise IndexFormatError(msg)
    if version not in (FORMAT, FORMAT_OF_SEVERAL_VECTORS):
        advice = "Upgrade retrieval-core" if version > FORMAT_OF_SEVERAL_VECTORS else "Build the index anew"
        msg = (
            f"{path} has index format {version}, and this version of retrieval-core reads the formats {FORMAT} and "
            f"{FORMAT_OF_SEVERAL_VECTORS}. {advice}."
        )
        raise IndexFormatError(msg)
    return False


def create_tables(connection: sqlite3.Connection, manifest: Manifest) -> None:
    """Make an empty index, inside the open transaction."""
    _execute(connection, _TABLES + _TOKENS + _LATE_VECTORS + (_NAMED_VECTORS if manifest.vectors else ""))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT_OF_SEVERAL_VECTORS if manifest.vectors else FORMAT}")
    connection.execute("INSERT INTO state (identity, generation) VALUES (?, 0)", (token_hex(8),))
    entries = {
        "embedder_id": manifest.embedder_id,
        "dimension": manifest.dimension,
        "analyzer": manifest.analyzer,
        "metric": manifest.metric,
        **({"vectors": json.dumps(manifest.vectors)} if manifest.vectors else {}),
    }
    connection.executemany("INSERT INTO manifest VALUES (?, ?)", entries.items())


def add_newer_tables(connection: sqlite3.Connection) -> None:
    """Add what a file of an earlier version lacks, inside the open transaction."""
    if not has_table(connection, "writes"):
        _execute(connection, _TOKENS)
    if not has_table(connection, "late_vectors"):
        _execute(connection, _LATE_VECTORS)


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Whether the file has a table, which one of an earlier version may lack."""
    return connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (name,)).fetchone() is not None


def _execute(connection: sqlite3.Connection, statements: str) -> None:
    for statement in filter(str.strip, statements.split(";")):
        connection.execute(statement)
