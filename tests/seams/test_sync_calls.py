"""Synchronous searches begin on the caller's thread, and go on in a background loop only where something waits."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from retrieval_core import Chunk, RetrievalResult, load_config, open_index
from retrieval_core.testing.fakes import FakeEmbedder

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from retrieval_core import Index
    from retrieval_core.types import StageRecord

CHUNKS = [Chunk("moon", "moon.md", "The moon is far away."), Chunk("sun", "sun.md", "The sun is farther away.")]
QUERY = "How far away is the moon?"
CALLER: ContextVar[str] = ContextVar("CALLER", default="nobody")


class Witness:
    """An observer that remembers who called, and on which thread the query ended."""

    def __init__(self) -> None:
        self.callers: set[str] = set()
        self.thread = 0

    @contextmanager
    def query(self) -> Generator[None]:
        """Remember the caller, also at the end."""
        self.callers.add(CALLER.get())
        yield
        self.callers.add(CALLER.get())

    @contextmanager
    def span(self, stage: str) -> Generator[Witness]:
        """Remember the caller."""
        self.callers.add(CALLER.get())
        yield self

    def end(self, record: StageRecord, error: Exception | None = None) -> None:
        """Remember the caller."""
        self.callers.add(CALLER.get())

    def answered(self, result: RetrievalResult) -> None:
        """Remember the caller, and the thread."""
        self.callers.add(CALLER.get())
        self.thread = threading.get_ident()


def an_index(folder: Path, embedder: object = None, observer: Witness | None = None, **settings: object) -> Index:
    overrides = {name.replace("__", "."): value for name, value in settings.items()}
    config = load_config(overrides=overrides, environment={})
    index = open_index(folder / "index.db", config=config, embedder=embedder or FakeEmbedder(64), observer=observer)  # type: ignore[arg-type]
    index.add(CHUNKS)
    return index


def ids(result: RetrievalResult) -> list[str]:
    return [hit.id for hit in result.hits]


def test_observers_see_the_callers_context(tmp_path: Path) -> None:
    """What a tracer keeps in context variables is seen in each event, on whichever thread it happens."""
    witness = Witness()
    CALLER.set("me")
    with an_index(tmp_path, observer=witness) as index:
        for _ in range(3):
            index.retrieve(QUERY)
    assert witness.callers == {"me"}


def test_a_cached_result_needs_no_other_thread(tmp_path: Path) -> None:
    """A query whose result is cached, of an index that is in memory, ends on the thread that asks, whichever it is."""
    witness = Witness()

    def is_answered_here() -> bool:
        result = index.retrieve(QUERY)
        return result.from_cache and witness.thread == threading.get_ident()

    with an_index(tmp_path, observer=witness) as index, ThreadPoolExecutor(1) as other:
        until = time.monotonic() + 30
        while not is_answered_here():
            assert time.monotonic() < until
            index.retrieve(QUERY, use_cache=False)  # an index is read into memory once it is searched again
            time.sleep(0.05)
        assert other.submit(is_answered_here).result()
        assert is_answered_here()


def test_in_a_running_loop_as_in_a_notebook(tmp_path: Path) -> None:
    """The loop of the caller may run while a synchronous method is called in it."""

    async def cell(index: Index) -> list[list[str]]:
        return [ids(index.retrieve(QUERY)) for _ in range(3)]

    with an_index(tmp_path) as index:
        assert asyncio.run(cell(index)) == [ids(index.retrieve(QUERY))] * 3 == [["moon", "sun"]] * 3


def test_from_several_threads(tmp_path: Path) -> None:
    """Threads may search at once, also for the same."""
    queries = [f"{QUERY} {number % 3}" for number in range(64)]
    with an_index(tmp_path) as index, ThreadPoolExecutor(8) as threads:
        assert [ids(result) for result in threads.map(index.retrieve, queries)] == [["moon", "sun"]] * 64


def test_a_plugin_that_blocks_is_bounded(tmp_path: Path) -> None:
    """A synchronous embedder that takes too long is left behind at the deadline, and keyword search answers."""
    fakes, release = FakeEmbedder(64), threading.Event()

    class Slow:
        id, dimension = fakes.id, fakes.dimension

        def embed_query(self, text: str) -> object:
            release.wait(30)
            return asyncio.run(fakes.embed_query(text))

        def embed_texts(self, texts: list[str]) -> object:
            return asyncio.run(fakes.embed_texts(texts))

    with an_index(tmp_path, Slow(), deadline_seconds=1, retry__max_retries=0) as index:
        began = time.monotonic()
        result = index.retrieve(QUERY)
        took = time.monotonic() - began
        release.set()
    assert ids(result)[0] == "moon"
    assert took < 5
    assert [entry.stage for entry in result.degraded] == ["embed"]
