"""The lines of chunks are those of their files."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.config import ChunkingConfig
from retrieval_core.ingest.ingester import Ingester
from retrieval_core.ports import ChunkRange, FetchRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.types import Chunk

MARKDOWN = st.lists(
    st.sampled_from(
        ("# Head", "## Sub", "- item", "| a | b |", "|---|---|", "```", "    code()", "", "", "A word. And more.")
    )
    | st.text(alphabet="ab .é\u2028\x0b\x0c\x85", max_size=60),
    max_size=60,
)
FRONT_MATTER = st.sampled_from(
    ((), ("---", "title: T", "# a comment", "---"), ("---", "---"), ("---", "not a mapping", "---"))
)


async def read_chunks(store: SqliteStore, *documents: str) -> list[Chunk]:
    fetched = await store.fetch(FetchRequest(ranges=tuple(map(ChunkRange.whole, documents))))
    return sorted(fetched.chunks.values(), key=lambda chunk: (chunk.document_id, chunk.chunk_index))


def index(folder: Path, *documents: str) -> list[Chunk]:
    store = SqliteStore(folder / "index.db")
    ingester = Ingester(store, None, chunking=ChunkingConfig(max_tokens=32, min_tokens=0), base=folder)

    async def run() -> list[Chunk]:
        try:
            await ingester.index([folder])
            return await read_chunks(store, *documents)
        finally:
            await store.aclose()

    with closing(ingester):
        return asyncio.run(run())


def lines_in(path: Path) -> Sequence[str]:
    """Return the lines of a file as an editor numbers them."""
    with path.open(encoding="utf-8-sig") as file:
        return file.read().split("\n")


def is_at(chunk: Chunk, lines: Sequence[str]) -> bool:
    """Whether the lines of a chunk hold all of it, and no fewer lines do."""
    assert chunk.lines is not None
    first, last = chunk.lines
    held = lines[first - 1 : last]
    return (
        chunk.text in "\n".join(held)
        and chunk.text.strip().split("\n")[0] in held[0]
        and chunk.text.rstrip().split("\n")[-1] in held[-1]
        and len(held) == chunk.text.count("\n") + 1
    )


@given(st.sampled_from((".md", ".txt")), FRONT_MATTER, MARKDOWN, st.sampled_from(("\n", "\r\n", "\r")), st.booleans())
def test_lines_are_those_of_the_file(
    suffix: str, head: Sequence[str], body: Sequence[str], line_end: str, has_mark: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{suffix}"
        written = line_end.join([*head, *body, "The end."])
        path.write_bytes(written.encode("utf-8-sig" if has_mark else "utf-8"))
        chunks = index(Path(folder), path.name)
        lines = lines_in(path)
        assert chunks
        assert all(is_at(chunk, lines) for chunk in chunks)
        assert [chunk.lines for chunk in chunks] == sorted(chunk.lines or (0, 0) for chunk in chunks)


def test_lines_move_with_front_matter_that_says_the_same(tmp_path: Path) -> None:
    """A comment in front matter changes neither text nor metadata."""
    path = tmp_path / "a.md"
    path.write_text("---\ntitle: T\n---\nThe text.\n")
    assert [chunk.lines for chunk in index(tmp_path, "a.md")] == [(4, 4)]
    path.write_text("---\n# why\ntitle: T\n---\nThe text.\n")
    assert [chunk.lines for chunk in index(tmp_path, "a.md")] == [(5, 5)]


def test_table_rows_have_no_lines(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\n'first row'\n'second row'\n")
    (chunk,) = index(tmp_path, "a.csv#2")
    assert (chunk.lines, chunk.row_range) == (None, (2, 2))


@pytest.mark.parametrize("is_written", [False, True])
def test_a_file_of_an_older_version_gets_lines(tmp_path: Path, is_written: bool) -> None:
    """They are computed as long as nothing is written; lines below front matter are found when the file is read."""
    (tmp_path / "a.txt").write_text("\n\nFirst.\n\n" + "A word. \n" * 50)
    (tmp_path / "b.md").write_text("---\ntitle: T\n---\nBelow it.\n")
    (tmp_path / "c.md").write_text("\nWithout it.\n")
    (tmp_path / "d.csv").write_text("text\nA row of it.\n")
    names = ("a.txt", "b.md", "c.md", "d.csv#1")
    new = index(tmp_path, *names)
    with closing(sqlite3.connect(tmp_path / "index.db", isolation_level=None)) as connection:
        connection.execute("ALTER TABLE chunks DROP COLUMN line_first")
        connection.execute("ALTER TABLE chunks DROP COLUMN line_last")
        connection.execute("UPDATE state SET generation = generation + 1, token = hex(randomblob(16))")

    async def read() -> list[Chunk]:
        store = SqliteStore(tmp_path / "index.db")
        try:
            if is_written:
                await store.delete(["nothing"])
            assert (await store.find_damage()).is_none
            return await read_chunks(store, *names)
        finally:
            await store.aclose()

    old = {chunk.id: chunk.lines for chunk in asyncio.run(read())}
    assert old == {chunk.id: None if chunk.document_id == "b.md" else chunk.lines for chunk in new}
    assert len(old) > len(names)
    with closing(sqlite3.connect(tmp_path / "index.db")) as connection:
        there = {row[1] for row in connection.execute("PRAGMA table_info(chunks)")}
    assert ("line_first" in there) is is_written
