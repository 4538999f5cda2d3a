"""Several processes and stores over one schema: the same results as SQLite, and each other's writes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from random import Random
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")

import numpy as np

from retrieval_core import open_index
from retrieval_core.adapters.stores.postgres import vectors
from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.config import load_config
from retrieval_core.ports import Change, SearchRequest
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.testing.store_kit import DIMENSION, EMBEDDER_ID
from retrieval_core.testing.store_kit.base import by_text, chunk, put, unit, units
from retrieval_core.types.filters import Eq, Gte, Text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from retrieval_core.ports import Candidate, Store
    from retrieval_core.types.filters import Filter
    from support.postgres_server import PostgresServer

WORDS = (
    *("moon", "sun", "star", "comet", "orbit", "dust", "ring", "tide", "crater", "lava"),
    *("ice", "rock", "core", "mantle", "wind", "storm", "cloud", "rain", "sea"),
)
FILTERS: tuple[Filter | None, ...] = (None, Eq("kind", "a"), Gte("n", 390), Text("title", "MOON"))
COUNT = 400


async def fill(store: Store, seed: int = 0) -> None:
    """Write a few hundred chunks in several changes, replace some and remove others."""
    random = Random(seed)
    for start in range(0, COUNT, 50):
        chunks = tuple(
            chunk(
                f"c{number}",
                " ".join(random.choices(WORDS, weights=range(1, 20), k=random.randint(1, 40))),
                f"d{number // 4}",
                chunk_index=number % 4,
                title=random.choice(WORDS),
                metadata={"kind": "abc"[number % 3], "n": number},
            )
            for number in range(start, start + 50)
        )
        await store.upsert(Change(chunks, units(50, start)))
    await put(store, chunk("c7", "moon moon rock", "d1", chunk_index=3), chunk("new", "rain", "d1"))
    await store.delete(["d3", "d50"])


def pairs(found: Sequence[Candidate]) -> list[tuple[str, float]]:
    return [(item.chunk_id, round(item.score, 4)) for item in found]


def test_hits_and_scores_are_those_of_sqlite(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the fourth digit, with and without filters, before and after segments are merged and vectors indexed."""
    monkeypatch.setattr(vectors, "INDEXED_FROM", 100)
    monkeypatch.setattr(vectors, "EXACT_BELOW", 20)

    async def main() -> None:
        store = postgres.store(tmp_path)
        reference = SqliteStore(tmp_path / "index.db", embedder_id=EMBEDDER_ID, dimension=DIMENSION)
        await fill(store)
        await fill(reference)
        random = Random(1)
        requests = [
            SearchRequest(limit, text=" ".join(random.choices(WORDS, k=3)), filter=condition)
            for limit in (1, 5, 30)
            for condition in FILTERS
        ]
        requests += [
            SearchRequest(limit, vector=unit(5000 + limit), filter=condition)
            for limit in (1, 5, 30)
            for condition in FILTERS
        ]
        expected = [pairs(await reference.search(request)) for request in requests]
        assert [pairs(await store.search(request)) for request in requests] == expected
        await store.optimize()
        state = await store.describe()
        assert [pairs(await store.search(request)) for request in requests] == expected
        assert await store.count_terms(WORDS) == await reference.count_terms(WORDS)
        assert await store.count_terms(WORDS, FILTERS[1]) == await reference.count_terms(WORDS, FILTERS[1])
        assert state.chunks == (await reference.describe()).chunks
        await store.aclose()
        await reference.aclose()

    asyncio.run(main())


def test_a_write_is_seen_by_others_and_their_caches(postgres: PostgresServer, tmp_path: Path) -> None:
    """The version that another store gives changes with the write, and takes no request in between."""

    async def main() -> None:
        writer, reader = postgres.store(tmp_path), postgres.store(tmp_path)
        assert await reader.version() is None
        await put(writer, chunk("a", "moon"))
        seen = {await writer.version()}
        for number in range(5):
            version = await until_it_is(reader, seen)
            for _ in range(20):
                assert await reader.version() == version
            assert await by_text(reader, "moon") == ["a", *(f"b{each}" for each in range(number))]
            await put(writer, chunk(f"b{number}", "moon"))
            seen = {await writer.version()}
            assert version not in seen
        await writer.aclose()
        await reader.aclose()

    asyncio.run(main())


async def until_it_is(reader: Store, versions: set[str | None]) -> str | None:
    for _ in range(500):
        if (version := await reader.version()) in versions:
            return version
        await asyncio.sleep(0.01)
    pytest.fail("the write is not noticed")


def test_two_processes_write_at_once(postgres: PostgresServer, tmp_path: Path) -> None:
    """Nothing of either is lost, and neither needs to know of the other, from the first write on."""
    store = postgres.store(tmp_path)
    program = dedent(
        f"""
        import asyncio, sys
        from retrieval_core.adapters.stores.postgres import PostgresStore
        from retrieval_core.testing.store_kit.base import chunk, document, put

        async def main():
            store = PostgresStore(
                url={postgres.url!r}, collection={store.location.split()[2]!r},
                embedder_id={EMBEDDER_ID!r}, dimension={DIMENSION},
            )
            for number in range(15):
                name = f"{{sys.argv[1]}}{{number}}"
                await put(store, chunk(name, "moon", name), documents=(document(name),))
                await put(store, chunk("shared", f"moon {{name}}", "shared"), documents=(document("shared"),))
            await store.aclose()

        asyncio.run(main())
        """
    )
    processes = [subprocess.Popen([sys.executable, "-c", program, name]) for name in "ab"]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]

    async def main() -> None:
        wanted = {f"{name}{number}" for name in "ab" for number in range(15)} | {"shared"}
        assert set(await by_text(store, "moon")) == wanted
        assert {item.chunk_id for item in await store.search(SearchRequest(99, vector=unit(0)))} == wanted
        info = await store.describe()
        assert (info.chunks, info.documents, info.generation) == (31, 31, 60)
        assert (await store.find_damage()).is_none
        await store.aclose()

    asyncio.run(main())


def test_an_index_is_made_and_searched_by_settings(postgres: PostgresServer, tmp_path: Path) -> None:
    """By one line of the configuration, with files, filters and answers as in any other store."""
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "moon.md").write_text("# Moon\n\nThe moon has no air.\n", "utf-8")
    (documents / "sun.md").write_text("# Sun\n\nThe sun is a star.\n", "utf-8")
    overrides: dict[str, Any] = {
        "index": str(tmp_path / "index.db"),
        "store.kind": "postgres",
        "store.postgres": {"url": postgres.url, "collection": "by_settings"},
    }
    config = load_config(overrides=overrides)
    with open_index(config=config, embedder=FakeEmbedder()) as index:
        index.ingest(documents)
        assert "no air" in index.retrieve("moon").hits[0].chunk.text
        (documents / "moon.md").write_text("# Moon\n\nIts dust is grey.\n", "utf-8")
        index.ingest(documents)
        assert "grey" in index.retrieve("moon").hits[0].chunk.text
    with open_index(config=config, embedder=FakeEmbedder()) as index:
        assert np.isfinite(index.retrieve("star").hits[0].score)
