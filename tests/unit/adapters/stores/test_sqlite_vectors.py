"""Vectors in a SQLite file: quantized ones, many of them, and those of older versions of this library."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from retrieval_core import load_config, open_index
from retrieval_core.adapters.stores import scoring
from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.errors import ConfigurationError
from retrieval_core.ports import Change, SearchRequest
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.testing.store_kit.base import DIMENSION, EMBEDDER_ID, by_text, by_vector, chunk, put, unit, units

if TYPE_CHECKING:
    from pathlib import Path


def query(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


async def with_named_vectors(path: Path) -> None:
    """Write an index as older versions did that kept a vector of each title too."""
    store = SqliteStore(path, embedder_id=EMBEDDER_ID, dimension=DIMENSION)
    await put(store, chunk("a", "word", "a"), chunk("b", "other word", "b"), vectors=units(2))
    await store.aclose()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "CREATE TABLE named_vectors (name TEXT NOT NULL, number INTEGER NOT NULL, vector BLOB NOT NULL, "
            "PRIMARY KEY (name, number)) WITHOUT ROWID"
        )
        connection.execute("INSERT INTO named_vectors VALUES ('title', 1, ?)", (unit(5).tobytes(),))
        connection.execute("INSERT INTO manifest VALUES ('vectors', '[\"title\"]')")
        connection.commit()


def test_named_vectors_of_older_versions_are_left_alone_until_the_first_write(tmp_path: Path) -> None:
    """The index is searched by the vectors of its chunks, and reports the others."""
    path = tmp_path / "index.db"

    async def main() -> None:
        await with_named_vectors(path)
        store = SqliteStore(path, embedder_id=EMBEDDER_ID, dimension=DIMENSION)
        assert await by_vector(store, unit(1), 1) == ["b"]
        assert await by_text(store, "word") == ["a", "b"]
        manifest = (await store.describe()).manifest
        assert manifest is not None
        assert manifest.vectors == ("title",)
        assert query(path, "SELECT name FROM named_vectors") == [("title",)]
        await put(store, chunk("c", "word", "c"), vectors=units(1, 2))
        assert await by_vector(store, unit(1), 1) == ["b"]
        assert (await store.find_damage()).is_none
        manifest = (await store.describe()).manifest
        assert manifest is not None
        assert manifest.vectors == ()
        await store.aclose()

    asyncio.run(main())
    assert query(path, "SELECT name FROM sqlite_schema WHERE name = 'named_vectors'") == []
    assert query(path, "SELECT key FROM manifest WHERE key = 'vectors'") == []


def test_quantized_vectors_take_a_quarter_of_the_memory_and_find_the_same(tmp_path: Path) -> None:
    """With the same scores to the last digit, as those that are found are compared exactly."""
    random = np.random.default_rng(5)
    vectors = random.normal(size=(2000, 64)).astype(np.float32)
    path = tmp_path / "index.db"
    settings: dict[str, Any] = {"embedder_id": "e", "dimension": 64}
    exact, quantized = SqliteStore(path, **settings), SqliteStore(path, **settings, quantized=True)

    async def main() -> None:
        await exact.upsert(Change(tuple(chunk(f"c{number}") for number in range(2000)), vectors))
        for _ in range(20):
            request = SearchRequest(20, vector=random.normal(size=64).astype(np.float32))
            assert await quantized.search(request) == await exact.search(request)
        assert 3 * quantized.loaded_bytes < exact.loaded_bytes
        for store in (exact, quantized):
            await store.aclose()

    asyncio.run(main())


def test_quantization_is_a_setting(tmp_path: Path) -> None:
    config = load_config(overrides={"store.sqlite.quantization": "int8", "index": str(tmp_path / "index.db")})
    with open_index(config=config, embedder=FakeEmbedder()) as index:
        index.add([chunk("a", "word")])
        assert index.retrieve("word").hits[0].chunk.id == "a"
        assert isinstance(index.store, SqliteStore)
        stored = index.store.loaded_bytes
    exact = load_config(overrides={"index": config.index})
    with open_index(config=exact, embedder=FakeEmbedder()) as index:
        assert index.retrieve("word").hits[0].chunk.id == "a"
        assert isinstance(index.store, SqliteStore)
        assert index.store.loaded_bytes > stored
    with pytest.raises(ConfigurationError, match=r"store\.sqlite\.quantization"):
        load_config(overrides={"store.sqlite.quantization": "int4"})


@pytest.mark.parametrize("processors", [None, 1, 3])
@pytest.mark.parametrize("rows", [1, 49_999, 50_000, 75_001])
def test_many_rows_are_compared_on_several_processors_with_the_same_scores(
    monkeypatch: pytest.MonkeyPatch, rows: int, processors: int | None
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: processors)
    random = np.random.default_rng(rows)
    matrix = random.normal(size=(rows, 8)).astype(np.float32)
    query = random.normal(size=8).astype(np.float32)
    assert np.array_equal(scoring.products(matrix, query), scoring._dots(matrix, query))
