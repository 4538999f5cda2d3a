"""Indexes of older versions of this library that have character n-grams."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.errors import IndexFormatError
from retrieval_core.ports import Change, FetchRequest, SearchRequest, Store
from retrieval_core.testing.store_kit.base import DIMENSION, EMBEDDER_ID, by_text, by_vector, chunk, put, unit, units
from retrieval_core.text.analysis import Analyzer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

PASSAGES = {"a": "The owl hunts at night", "b": "Owls, owls and other night birds", "c": "A lamp for the night"}


def in_a_loop(test: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    @wraps(test)
    def run(tmp_path: Path) -> None:
        asyncio.run(test(tmp_path))

    return run


class WithParts(Analyzer):
    """The analysis of older versions with ``analysis.character_ngrams = 3``."""

    @property
    def id(self) -> str:
        return f"{super().id} character_ngrams=3"

    def terms(self, text: str) -> list[str]:
        words = super().terms(text)
        return words + [f"_{word[start : start + 3]}" for word in words for start in range(len(word) - 2)]


def opened(path: Path, analyzer: Analyzer | None = None) -> SqliteStore:
    return SqliteStore(path, embedder_id=EMBEDDER_ID, dimension=DIMENSION, analyzer=analyzer)


async def fill(store: Store) -> None:
    for place, (name, text) in enumerate(PASSAGES.items()):
        await put(store, chunk(name, text, document=name), vectors=units(1, place))


async def scores(store: Store, query: str) -> list[tuple[str, float]]:
    return [(found.chunk_id, round(found.score, 9)) for found in await store.search(SearchRequest(9, text=query))]


def analyzer_of(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT value FROM manifest WHERE key = 'analyzer'").fetchone()[0]


@in_a_loop
async def test_they_are_searched_as_they_are(tmp_path: Path) -> None:
    """All words are found, and nothing is written; parts of words are not searched for."""
    path = tmp_path / "index.db"
    old = opened(path, WithParts())
    await fill(old)
    await old.aclose()
    before = path.read_bytes()
    store = opened(path)
    assert set(await by_text(store, "owl")) == {"a", "b"}
    assert set(await by_text(store, "night")) == {"a", "b", "c"}
    assert await by_text(store, "ow") == []
    assert await by_vector(store, unit(1), 1) == ["b"]
    assert (await store.find_damage()).is_none
    await store.aclose()
    assert path.read_bytes() == before


@in_a_loop
async def test_the_first_write_converts_the_words_and_keeps_the_vectors(tmp_path: Path) -> None:
    """From then on the index is as if it had been built without them."""
    path, other = tmp_path / "index.db", tmp_path / "plain.db"
    old, plain = opened(path, WithParts()), opened(other)
    await fill(old)
    await fill(plain)
    await old.aclose()
    store = opened(path)
    for target in (store, plain):
        await put(target, chunk("d", "An owl on a lamp", document="d"), vectors=units(1, 3))
    for query in ("owl", "night", "lamp", "owls at night"):
        assert await scores(store, query) == await scores(plain, query)
    vectors = (await store.fetch(FetchRequest(chunk_ids=tuple(PASSAGES), with_vectors=True))).vectors
    assert all(np.array_equal(vectors[name], unit(place)) for place, name in enumerate(PASSAGES))
    assert (await store.find_damage()).is_none
    await store.aclose()
    await plain.aclose()
    assert analyzer_of(path) == Analyzer().id


@in_a_loop
async def test_a_file_without_checksums_is_converted_too(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    old = opened(path, WithParts())
    await fill(old)
    await old.aclose()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE seals")
        for column in ("documents.seal", "sections.seal", "state.chunks", "state.documents", "state.counted"):
            connection.execute("ALTER TABLE {} DROP COLUMN {}".format(*column.split(".")))
        connection.commit()
    store = opened(path)
    await put(store, chunk("d", "An owl on a lamp", document="d"), vectors=units(1, 3))
    assert set(await by_text(store, "owl")) == {"a", "b", "d"}
    assert (await store.find_damage()).is_none
    await store.aclose()


@in_a_loop
async def test_a_reader_sees_what_another_process_converted(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    old = opened(path, WithParts())
    await fill(old)
    reader = opened(path)
    before = await scores(reader, "owl")
    writer = opened(path)
    await writer.remember("{}")
    assert await scores(reader, "owl") != before
    with pytest.raises(IndexFormatError, match="analysed by"):
        await by_text(old, "owl")
    for store in (old, reader, writer):
        await store.aclose()


@in_a_loop
async def test_repairing_one_finds_nothing_to_do(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    old = opened(path, WithParts())
    await fill(old)
    await old.aclose()
    store = opened(path)
    await store.repair()
    assert set(await by_text(store, "owl")) == {"a", "b"}
    assert (await store.find_damage()).is_none
    assert await store.unembedded() == {}
    await store.aclose()


@in_a_loop
async def test_another_analysis_is_still_refused(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    old = opened(path, WithParts("porter"))
    await fill(old)
    await old.aclose()
    store = opened(path)
    with pytest.raises(IndexFormatError, match=r"snowball-porter.*Set analysis\.language"):
        await by_text(store, "owl")
    await store.aclose()


@in_a_loop
async def test_other_stores_search_them_and_say_what_to_do(tmp_path: Path) -> None:
    pytest.importorskip("lancedb")
    from retrieval_core.adapters.stores.lancedb import LanceDBStore

    path = tmp_path / "index.lance"
    old = LanceDBStore(path, embedder_id=EMBEDDER_ID, dimension=DIMENSION, analyzer=WithParts())
    await fill(old)
    store = LanceDBStore(path, embedder_id=EMBEDDER_ID, dimension=DIMENSION)
    assert set(await by_text(store, "owl")) == {"a", "b"}
    with pytest.raises(IndexFormatError, match=r"character n-grams.*build it anew"):
        await put(store, chunk("d", "owl", document="d"), vectors=units(1, 3))
    assert await store.delete(["a"]) == 1
    await store.upsert(Change(removed_documents=("b",)))
    assert await by_text(store, "owl") == []
    await store.aclose()
    await old.aclose()
