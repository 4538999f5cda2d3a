"""A document that is deleted leaves nothing in a file of SQLite."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from retrieval_core import load_config, open_index
from retrieval_core.testing.fakes import FakeEmbedder
from support.extras import HAS_RE2

if TYPE_CHECKING:
    from pathlib import Path

BOOKKEEPING = {"manifest", "state", "removed", "writes", "sqlite_sequence"}
"""Tables without content: the settings of the index, and how often and where it changed."""
TRIGRAMS = "trigrams"
"""The start of the names of FTS5's tables, which always have rows. Trigrams of deleted documents go when it merges."""


def rows(path: Path) -> dict[str, int]:
    """Return how many rows each table has that has content."""
    with closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        tables = [name for name in tables if not name.startswith(TRIGRAMS)]
        counted = {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in tables}
    return {name: count for name, count in counted.items() if name not in BOOKKEEPING}


def test_no_table_keeps_a_row_of_a_deleted_document(tmp_path: Path) -> None:
    """Neither chunks and vectors nor words, checksums, sections and sources."""
    files, path = tmp_path / "files", tmp_path / "index.db"
    files.mkdir()
    for name in ("one", "two"):
        (files / f"{name}.md").write_text(f"# {name}\n\nAll about {name}.\n\n## More\n\n{'The moon is far. ' * 20}\n")
    with open_index(path, config=load_config(), embedder=FakeEmbedder()) as index:
        index.ingest(files)
        before = rows(path)
        assert {"chunks", "seals", "documents", "sections", "sources"} <= {
            name for name, count in before.items() if count
        }
        for document in list(index.documents()):
            index.delete(document.id)
        assert not HAS_RE2 or index.grep("moon").documents == ()
    assert {name: count for name, count in rows(path).items() if count} == {}
