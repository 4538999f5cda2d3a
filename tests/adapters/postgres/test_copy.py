"""Copying an index from a file to PostgreSQL, and back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pytest

from retrieval_core import Chunk, RetrievalConfig, copy_index, load_config
from retrieval_core.adapters.stores.postgres import PostgresStore
from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.errors import ConfigurationError, StoreError
from retrieval_core.ports import Change, SearchRequest, SourceState
from retrieval_core.types import Document

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.types import CopyProgress
    from support.postgres_server import PostgresServer

pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")


def filled(path: Path, dimension: int, count: int = 300) -> SqliteStore:
    """Return an index with many documents of two chunks, of which the last has no vector yet."""
    store = SqliteStore(path, embedder_id="random", dimension=dimension)
    names = [f"{number:03}.md" for number in range(count)]
    chunks = tuple(
        Chunk(f"{name}#{part}", name, f"\0moon {name} part {part}", part, 2, metadata={"n": 0.1})
        for name in names
        for part in (0, 1)
    )
    vectors = np.random.default_rng(5).normal(size=(len(chunks) - 1, dimension)).astype(np.float32)
    documents = tuple(Document(name, f"moon {name}") for name in names)
    sources = tuple(SourceState(name, "hash", "recipe", 1) for name in names)
    change = Change(chunks, vectors, documents, sources=sources, unembedded=frozenset({chunks[-1].id}))
    asyncio.run(store.upsert(change))
    return store


def settings_of(postgres: PostgresServer, collection: str) -> RetrievalConfig:
    settings = {"store.kind": "postgres", "store.postgres.url": postgres.url, "store.postgres.collection": collection}
    return load_config(overrides=settings)


def test_there_and_back(tmp_path: Path, postgres: PostgresServer) -> None:
    """Interrupted and continued: vectors are equal bit for bit, and so are the words' scores."""
    source, target = filled(tmp_path / "a.db", 32), settings_of(postgres, "copy_there_and_back")
    back = SqliteStore(tmp_path / "b.db", embedder_id="random", dimension=32)

    def stop(progress: CopyProgress) -> None:
        if progress.done == 32 and progress.step == "copy":
            msg = "stopped"
            raise InterruptedError(msg)

    with pytest.raises(InterruptedError):
        copy_index(source, target, stop)
    report = copy_index(source, target)
    assert (report.copied, report.rounded, report.notes) == (300, 0, ())
    assert copy_index(target, back).checksum == report.checksum
    with pytest.raises(StoreError, match="not empty"):
        copy_index(source, target)

    async def found() -> list[list[tuple[str, float]]]:
        query = SearchRequest(20, text="moon 017.md part")
        copy = PostgresStore(url=postgres.url, collection="copy_there_and_back")
        try:
            results = [await store.search(query) for store in (source, copy, back)]
        finally:
            await copy.aclose()
        return [[(each.chunk_id, round(each.score, 4)) for each in one] for one in results]

    in_source, in_copy, in_back = asyncio.run(found())
    assert in_source == in_copy == in_back


def test_more_components_than_it_keeps(tmp_path: Path, postgres: PostgresServer) -> None:
    """The limit is named before anything is copied."""
    source = filled(tmp_path / "a.db", 16_001, 1)
    with pytest.raises(ConfigurationError, match="at most 16000 components, got 16001"):
        copy_index(source, settings_of(postgres, "copy_dimension"))
