"""Which documents may contain a text: an index of three characters each, of SQLite's FTS5, beside the documents.

It has the numbers of documents only, no positions, and ignores case. An older version of this library does not know it:
the manifest has the generation of the last write that kept it up to date, and the next write builds it again where that
is another one. It is missing if SQLite has no FTS5.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from sqlite3 import Connection

_TABLE = """
CREATE VIRTUAL TABLE trigrams USING fts5(
    text, content='', detail=none, columnsize=0, tokenize='trigram case_sensitive 0'
)
"""
_KEY = "trigrams"
_HAS_FTS5 = "SELECT 1 FROM pragma_module_list WHERE name = 'fts5'"
_IS_CURRENT = "SELECT 1 FROM manifest JOIN state ON value = generation WHERE key = ?"
_FIND = "SELECT id FROM documents WHERE number IN (SELECT rowid FROM trigrams WHERE trigrams MATCH ?)"
_ALL = "SELECT id FROM documents"
_WITHOUT_TEXT = "SELECT DISTINCT document_id FROM chunks WHERE document_id NOT IN (SELECT id FROM documents)"
_OF_CHUNKS = "SELECT DISTINCT document_id FROM chunks WHERE number IN (SELECT value FROM json_each(?))"
MOST_TRIGRAMS = 12
"""Trigrams of a literal that are looked up."""


def is_current(connection: Connection) -> bool:
    """Whether the trigrams are those of the documents."""
    return connection.execute(_IS_CURRENT, (_KEY,)).fetchone() is not None


def follow(connection: Connection, generation: int) -> None:
    """Take the trigrams along into a new generation, before anything else is written; build those that are missing."""
    if connection.execute("SELECT 1 FROM manifest WHERE key = ? AND value = ?", (_KEY, generation - 1)).fetchone():
        connection.execute("UPDATE manifest SET value = ? WHERE key = ?", (generation, _KEY))
    else:
        build(connection, generation)


def build(connection: Connection, generation: int) -> None:
    """Build all trigrams again."""
    if not connection.execute(_HAS_FTS5).fetchone():
        return
    connection.execute("DROP TABLE IF EXISTS trigrams")
    connection.execute(_TABLE)
    connection.execute("INSERT OR REPLACE INTO manifest VALUES (?, ?)", (_KEY, generation))
    add(connection, connection.execute("SELECT number, text FROM documents"))


def add(connection: Connection, texts: Iterable[tuple[int, str]]) -> None:
    """Add the trigrams of documents, by their numbers."""
    # The tokenizer ends at a zero byte.
    rows = ((number, text.replace("\0", " ")) for number, text in texts)
    connection.executemany("INSERT INTO trigrams (rowid, text) VALUES (?, ?)", rows)


def add_documents(connection: Connection, document_ids: Iterable[str]) -> None:
    """Add the trigrams of documents that were just written."""
    if is_current(connection):
        for name in document_ids:
            add(connection, connection.execute("SELECT number, text FROM documents WHERE id = ?", (name,)).fetchall())


def remove_document(connection: Connection, document_id: str) -> None:
    """Remove the trigrams of a document that is still there."""
    if is_current(connection):
        rows = connection.execute("SELECT number, text FROM documents WHERE id = ?", (document_id,)).fetchall()
        cleaned = ((number, text.replace("\0", " ")) for number, text in rows)
        connection.executemany("INSERT INTO trigrams (trigrams, rowid, text) VALUES ('delete', ?, ?)", cleaned)


def documents_without_text(connection: Connection) -> frozenset[str]:
    """Return the IDs of documents that have chunks only."""
    return frozenset(name for (name,) in connection.execute(_WITHOUT_TEXT))


def find_documents(connection: Connection, texts: Sequence[Collection[str]]) -> set[str]:
    """Return the IDs of documents with a text that may contain at least one of the texts of each group.

    Args:
        texts: Each with at least three characters; case is ignored.
    """
    query = " AND ".join(map(_any_of, texts))
    rows = connection.execute(_FIND, (query,)) if query and is_current(connection) else connection.execute(_ALL)
    return {name for (name,) in rows}


def documents_of_chunks(connection: Connection, numbers: Collection[int]) -> set[str]:
    """Return the IDs of the documents of chunks, by the chunks' numbers."""
    return {name for (name,) in connection.execute(_OF_CHUNKS, (json.dumps(list(numbers)),))}


def _any_of(texts: Collection[str]) -> str:
    """Return a query of FTS5; each trigram is quoted, so that nothing in it is syntax."""
    return "(" + " OR ".join(map(_all_of, sorted(texts))) + ")"


def _all_of(text: str) -> str:
    trigrams = list(dict.fromkeys(text[at : at + 3] for at in range(len(text) - 2)))[:MOST_TRIGRAMS]
    return "(" + " AND ".join('"' + trigram.replace('"', '""') + '"' for trigram in trigrams) + ")"
