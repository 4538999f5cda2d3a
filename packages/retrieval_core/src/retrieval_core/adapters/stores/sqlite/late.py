"""Chunks that were written before their vectors, inside the caller's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.adapters.stores.rows import CHUNKS
from retrieval_core.adapters.stores.sqlite.read import by_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from sqlite3 import Connection

    from retrieval_core.types import Chunk

_WAITING = "late_vectors JOIN chunks USING (number) WHERE generation IS NULL"
_WAITS = "late_vectors ON late_vectors.number = chunks.number AND generation IS NULL"
_CHUNKS = f"SELECT chunks.number, {', '.join(CHUNKS.columns)} FROM chunks JOIN {_WAITS}"  # noqa: S608 - constants


def unembedded(connection: Connection) -> dict[str, str]:
    """Return the content hashes of the chunks that wait for their vector, by id, in the order they were written."""
    return dict(connection.execute(f"SELECT id, content_hash FROM {_WAITING} ORDER BY number"))  # noqa: S608


def count_unembedded(connection: Connection) -> int:
    """Return how many chunks wait for their vector."""
    return connection.execute(f"SELECT count(*) FROM {_WAITING}").fetchone()[0]  # noqa: S608


def waiting(connection: Connection, chunks: Iterable[Chunk]) -> dict[str, int]:
    """Return the numbers of those chunks, by id, that wait for their vector and have the same text to embed."""
    texts = {chunk.id: chunk.indexed_text for chunk in chunks}
    kept = ((number, CHUNKS.from_row(row)) for number, *row in by_id(connection, _CHUNKS, texts))
    return {chunk.id: number for number, chunk in kept if chunk.indexed_text == texts[chunk.id]}


def begin(connection: Connection, numbers: Iterable[int]) -> None:
    """Note chunks that wait for their vector."""
    connection.executemany("INSERT INTO late_vectors (number) VALUES (?)", ((number,) for number in numbers))


def note(connection: Connection, numbers: Collection[int], generation: int, forgotten: int) -> None:
    """Note that chunks got their vector.

    Args:
        generation: Of the write that brings it.
        forgotten: Up to this generation nobody asks any more.
    """
    rows = ((generation, number) for number in numbers)
    connection.executemany("UPDATE late_vectors SET generation = ? WHERE number = ?", rows)
    connection.execute("DELETE FROM late_vectors WHERE generation <= ?", (forgotten,))


def came_since(connection: Connection, generation: int) -> list[int]:
    """Return the numbers of the chunks whose vector came after a generation, later than they did, ascending."""
    rows = connection.execute("SELECT number FROM late_vectors WHERE generation > ? ORDER BY number", (generation,))
    return [row[0] for row in rows]
