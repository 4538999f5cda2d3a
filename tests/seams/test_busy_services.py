"""Indexing with services that are busy for a moment: the run waits and goes on."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import Chunk, load_config, open_index
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.errors import EmbeddingError, IndexBusyError, ServiceError
from retrieval_core.testing.fakes import FakeEmbedder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from retrieval_core.ports import Change

SOON = {"retry.base_delay": 0}


class Busy:
    """Refuses the first calls."""

    def __init__(self, times: int, **details: Any) -> None:
        self.left = times
        self.details = details

    def admit(self) -> None:
        self.left -= 1
        if self.left >= 0:
            msg = "the service is busy"
            raise ServiceError(msg, **self.details)


class BusyEmbedder(FakeEmbedder):
    """An embedder behind a busy service."""

    def __init__(self, busy: Busy) -> None:
        super().__init__()
        self._busy = busy

    async def embed_texts(self, texts: Sequence[str]) -> Any:
        self._busy.admit()
        return await super().embed_texts(texts)


class BusyStore(MemoryStore):
    """A store behind a busy service."""

    def __init__(self, busy: Busy) -> None:
        super().__init__(embedder_id=FakeEmbedder().id, dimension=FakeEmbedder().dimension)
        self._busy = busy

    async def upsert(self, change: Change) -> None:
        self._busy.admit()
        await super().upsert(change)


def texts_of(folder: Path) -> Path:
    for name in ("moon", "bread"):
        (folder / f"{name}.md").write_text(f"# {name}\n\nAll about {name}.\n")
    return folder


def test_a_busy_embedder_does_not_end_a_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Busy moments are waited out, as in a query, and logged."""
    settings = load_config(overrides=SOON)
    with open_index(tmp_path / "i.db", config=settings, embedder=BusyEmbedder(Busy(2, status=429))) as index:
        caplog.clear()
        assert index.ingest(texts_of(tmp_path)).added == 2
        assert index.retrieve("moon").hits
    assert [entry.getMessage() for entry in caplog.records] == ["A call failed and is retried: the service is busy"]


def test_a_busy_store_does_not_lose_a_write(tmp_path: Path) -> None:
    """A write of files, and one of chunks, is made again."""
    settings = load_config(overrides=SOON)
    busy = Busy(1, status=503)
    with open_index(config=settings, embedder=FakeEmbedder(), store=BusyStore(busy)) as index:
        assert index.ingest(texts_of(tmp_path)).added == 2
        busy.left = 3
        index.add([Chunk("sun", "sun", "The sun is a star.")])
        assert index.retrieve("the sun", top_k=1).hits[0].id == "sun"


@pytest.mark.parametrize(
    "busy", [Busy(9, status=401), Busy(4, status=429), Busy(9, status=429, retry_after=3600.0)],
    ids=["a wrong key", "busy for longer", "an hour's wait"],
)  # fmt: skip
def test_what_does_not_pass_ends_the_run(tmp_path: Path, busy: Busy) -> None:
    """A refused key is not tried again, and nobody waits an hour. The next run goes on from there."""
    settings = load_config(overrides=SOON)
    tries = busy.left
    with open_index(tmp_path / "i.db", config=settings, embedder=BusyEmbedder(busy)) as index:
        with pytest.raises(EmbeddingError, match="busy"):
            index.ingest(texts_of(tmp_path))
        assert tries - busy.left == (4 if tries == 4 else 1)
        busy.left = 0
        assert index.ingest(texts_of(tmp_path)).chunks == 2
        assert index.retrieve("moon", mode="dense").hits


@pytest.mark.timeout(50)
def test_a_file_that_another_process_writes_is_waited_for_once(tmp_path: Path) -> None:
    """SQLite waits itself, so that no write takes several times as long before it fails; the next one is complete."""
    embedder = FakeEmbedder()
    store = SqliteStore(tmp_path / "i.db", embedder_id=embedder.id, dimension=embedder.dimension, busy_timeout=0.2)
    with open_index(config=load_config(overrides={"retry.base_delay": 60.0}), embedder=embedder, store=store) as index:
        index.add([Chunk("sun", "sun", "The sun is a star.")])
        with closing(sqlite3.connect(tmp_path / "i.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            started = time.monotonic()
            with pytest.raises(IndexBusyError):
                index.add([Chunk("moon", "moon", "The moon is bright.")])
            assert time.monotonic() - started < 10
        index.add([Chunk("moon", "moon", "The moon is bright.")])
        assert index.describe().chunks == 2
