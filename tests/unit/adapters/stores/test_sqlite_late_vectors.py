"""Vectors that come later than their chunks, in one SQLite file: histories, older files, and a reader far behind."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.adapters.stores.sqlite import SqliteStore, write
from retrieval_core.errors import EmbedderMismatchError, NotYetEmbeddedError
from retrieval_core.ports import Change, SearchRequest
from retrieval_core.testing.store_kit.base import DIMENSION, chunk, unit, units

if TYPE_CHECKING:
    from retrieval_core.ports import Candidate
    from retrieval_core.types import Chunk, Matrix

NAMES = "abcdefgh"


def open_store(path: Path, embedder_id: str = "e") -> SqliteStore:
    return SqliteStore(path, embedder_id=embedder_id, dimension=DIMENSION)


async def seen(store: SqliteStore | MemoryStore) -> tuple[list[tuple[str, object]], tuple[int, int] | None]:
    def listed(found: tuple[Candidate, ...]) -> list[tuple[str, object]]:
        return [(item.chunk_id, pytest.approx(item.score, abs=1e-5)) for item in found]

    try:
        return listed(await store.search(SearchRequest(100, vector=unit(0)))), None
    except NotYetEmbeddedError as error:
        return listed(error.found), (error.details["chunks"], error.details["embedded"])


async def take(step: str, store: SqliteStore | MemoryStore, chunks: tuple[Chunk, ...], vectors: Matrix) -> None:
    if step == "delete":
        await store.delete([each.document_id for each in chunks])
    elif step == "words":
        await store.upsert(words(*chunks))
    elif step == "whole":
        await store.upsert(Change(chunks, vectors))
    else:
        await store.add_vectors(Change(chunks, vectors))


def words(*chunks: Chunk) -> Change:
    return Change(chunks, unembedded=frozenset(each.id for each in chunks))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["words", "words", "vectors", "vectors", "whole", "delete"]),
            st.sets(st.sampled_from(NAMES), min_size=1, max_size=5),
            st.sampled_from(["nobody", "one", "other"]),
        ),
        max_size=25,
    ),
    st.sampled_from([2, 1000]),
)
@settings(deadline=None)
def test_every_reader_agrees_with_the_store_in_memory(
    steps: list[tuple[str, set[str], str]], kept_generations: int
) -> None:
    """Whenever it looks, and however often: whatever it had read before; also where it is too far behind."""

    async def run(folder: Path) -> None:
        reference = MemoryStore(embedder_id="e", dimension=DIMENSION)
        writer, *readers = (open_store(folder / "index.db") for _ in range(3))
        by_name = dict(zip(("one", "other"), readers, strict=True))
        editions = dict.fromkeys(NAMES, 0)
        for store in (writer, reference):
            await store.upsert(words(chunk("first", document="first")))
        for seed, (step, names, who) in enumerate(steps, start=100):
            editions |= {name: editions[name] + 1 for name in names if step == "whole"}
            chunks = tuple(chunk(name, f"word {editions[name]}", document=name) for name in sorted(names))
            for store in (writer, reference):
                await take(step, store, chunks, units(len(chunks), start=10 * seed))
            if who in by_name:
                assert await seen(by_name[who]) == await seen(reference)
        for store in (writer, *readers):
            assert await seen(store) == await seen(reference)
            assert dict(await store.unembedded()) == dict(await reference.unembedded())
            assert (await store.describe()).unembedded == (await reference.describe()).unembedded
            await store.aclose()

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(write, "KEPT_GENERATIONS", kept_generations)
        asyncio.run(run(Path(folder)))


def test_what_another_embedder_made_is_not_waited_for(tmp_path: Path) -> None:
    """Nobody is to embed a folder only to be told that in the end."""

    async def run() -> None:
        store = open_store(tmp_path / "index.db")
        await store.upsert(words(chunk("a")))
        await store.aclose()
        other = open_store(tmp_path / "index.db", "another")
        with pytest.raises(EmbedderMismatchError):
            await other.unembedded()
        with pytest.raises(EmbedderMismatchError):
            await other.add_vectors(Change((chunk("a"),), units(1)))
        await other.aclose()

    asyncio.run(run())


def test_notes_of_vectors_that_every_reader_has_seen_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table does not grow with the index for ever."""

    async def run() -> None:
        monkeypatch.setattr(write, "KEPT_GENERATIONS", 3)
        store = open_store(tmp_path / "index.db")
        chunks = [chunk(f"c{number}") for number in range(12)]
        await store.upsert(words(*chunks))
        for number, each in enumerate(chunks):
            await store.add_vectors(Change((each,), units(1, start=number)))
        assert (await seen(store))[1] is None
        await store.aclose()
        with closing(sqlite3.connect(tmp_path / "index.db")) as connection:
            assert connection.execute("SELECT count(*) FROM late_vectors").fetchone() == (3,)

    asyncio.run(run())
