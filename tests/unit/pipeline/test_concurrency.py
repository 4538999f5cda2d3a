"""Many questions at a time: the same one is answered once, and different ones do not get in each other's way."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.adapters.caches.memory import MemoryCache
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.config import load_config
from retrieval_core.errors import ServiceError
from retrieval_core.pipeline import RetrievalPipeline, lifecycle
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk
from support.pipelines import PHONES, filled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from retrieval_core.ports import Candidate, Fetched, FetchRequest, SearchRequest
    from retrieval_core.types import RetrievalResult

QUESTION = "roll back an application to an earlier revision"
MANY = 200
PATIENCE = 30.0


class CountingMemoryStore(MemoryStore):
    """A memory store that counts its calls: ``dense``, ``lexical``, ``fetch`` and ``version``.

    Attributes:
        all_came: Set when so many callers know the version of the index, after which nothing keeps them from a run.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.calls: Counter[str] = Counter()
        self.all_came = asyncio.Event()

    async def search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        self.calls["dense" if request.vector is not None else "lexical"] += 1
        return await super().search(request)

    async def version(self) -> str | None:
        version = await super().version()
        self.calls["version"] += 1
        if self.calls["version"] == MANY:
            self.all_came.set()
        return version

    async def fetch(self, request: FetchRequest) -> Fetched:
        self.calls["fetch"] += 1
        return await super().fetch(request)


class CountingSqliteStore(SqliteStore):
    """A SQLite store that counts likewise."""

    def __init__(self, path: Path, **settings: Any) -> None:
        super().__init__(path, **settings)
        self.calls: Counter[str] = Counter()
        self.all_came = asyncio.Event()

    async def search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        self.calls["dense" if request.vector is not None else "lexical"] += 1
        return await super().search(request)

    async def version(self) -> str | None:
        version = await super().version()
        self.calls["version"] += 1
        if self.calls["version"] == MANY:
            self.all_came.set()
        return version

    async def fetch(self, request: FetchRequest) -> Fetched:
        self.calls["fetch"] += 1
        return await super().fetch(request)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CountingMemoryStore | CountingSqliteStore]:
    embedder = FakeEmbedder()
    identity: dict[str, Any] = {"embedder_id": embedder.id, "dimension": embedder.dimension}
    is_memory = request.param == "memory"
    store = CountingMemoryStore(**identity) if is_memory else CountingSqliteStore(tmp_path / "index.db", **identity)
    filled(store, [*PHONES, *(Chunk(f"n{n}", "numbers", f"a passage about number{n}") for n in range(MANY))])
    yield store
    asyncio.run(store.aclose())


class World:
    """A pipeline over a store, whose embedder can be held back."""

    def __init__(self, store: CountingMemoryStore | CountingSqliteStore, *, caching: bool = True) -> None:
        self.store = store
        self.embedder = FakeEmbedder()
        self.clock = FakeClock()
        config = load_config(overrides={"cache.embeddings": 0, "search.top_k": 3})
        cache = MemoryCache(clock=self.clock) if caching else None
        self.pipeline = RetrievalPipeline(store, self.embedder, cache=cache, config=config, clock=self.clock)

    def ask_all(
        self, questions: list[str], between: Callable[[list[asyncio.Task[RetrievalResult]]], None] = lambda _: None
    ) -> list[RetrievalResult | BaseException]:
        """Ask everything at the same time; when all wait, and embedding is held, do something; then let all go on."""

        async def main() -> list[RetrievalResult | BaseException]:
            self.embedder.gate = asyncio.Event()
            tasks = [asyncio.create_task(self.pipeline.aretrieve(question)) for question in questions]
            await all_wait(self.store)
            between(tasks)
            for _ in range(10):
                await asyncio.sleep(0)
            self.embedder.gate.set()
            return await asyncio.gather(*tasks, return_exceptions=True)

        return asyncio.run(main())

    def ask_all_again(self, questions: list[str]) -> list[RetrievalResult | BaseException]:
        """Ask everything at the same time."""

        async def main() -> list[RetrievalResult | BaseException]:
            self.embedder.gate = None
            asked = (self.pipeline.aretrieve(question) for question in questions)
            return await asyncio.gather(*asked, return_exceptions=True)

        return asyncio.run(main())


async def all_wait(store: CountingMemoryStore | CountingSqliteStore) -> None:
    """Return when all callers wait for a run."""
    await store.all_came.wait()
    for _ in range(10):
        await asyncio.sleep(0)


def results_of(outcomes: list[RetrievalResult | BaseException]) -> list[RetrievalResult]:
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]


@pytest.mark.parametrize("caching", [True, False])
def test_one_question_of_many_is_answered_once(
    store: CountingMemoryStore | CountingSqliteStore, *, caching: bool
) -> None:
    """Two hundred callers with one question cost one embedding and one search of each side, with a cache or without."""
    world = World(store, caching=caching)
    padded = [f"{' ' * (number % 3)}{QUESTION}" for number in range(MANY)]
    results = results_of(world.ask_all(padded))
    assert world.embedder.queries == [QUESTION]
    assert (store.calls["dense"], store.calls["lexical"]) == (1, 1)
    assert store.calls["fetch"] <= 1
    assert [result.query for result in results] == padded
    assert all(result.hits == results[0].hits for result in results)
    assert results[0].hits[0].id == "p0"
    assert all(result.degraded == () for result in results)


def test_callers_who_leave_do_not_take_it_from_the_others(store: CountingMemoryStore | CountingSqliteStore) -> None:
    """When all but the last of two hundred give up, whoever began it included, the last one is answered, by one run."""

    def leave(tasks: list[asyncio.Task[RetrievalResult]]) -> None:
        for task in tasks[:-1]:
            task.cancel()

    world = World(store)
    *gone, last = world.ask_all([QUESTION] * MANY, leave)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in gone)
    [result] = results_of([last])
    assert result.hits[0].id == "p0"
    assert world.embedder.queries == [QUESTION]
    assert (store.calls["dense"], store.calls["lexical"]) == (1, 1)


def test_many_different_questions(store: CountingMemoryStore | CountingSqliteStore) -> None:
    """Two hundred different questions are all answered, each with its own passage, and each is searched for once."""
    world = World(store)
    questions = [f"which passage is about number{number}" for number in range(MANY)]
    results = results_of(world.ask_all(questions))
    assert [result.query for result in results] == questions
    assert [result.hits[0].id for result in results] == [f"n{number}" for number in range(MANY)]
    assert all(result.degraded == () and not result.from_cache for result in results)
    assert sorted(world.embedder.queries) == sorted(questions)
    assert (store.calls["dense"], store.calls["lexical"]) == (MANY, MANY)
    again = results_of(world.ask_all_again(questions))
    assert all(result.from_cache for result in again)
    assert [result.hits for result in again] == [result.hits for result in results]
    assert (store.calls["dense"], store.calls["lexical"]) == (MANY, MANY)


def test_a_failure_is_told_to_all(store: CountingMemoryStore | CountingSqliteStore) -> None:
    """When the one run for two hundred callers finds the embedder dead, each gets the words' result, marked as such."""
    world = World(store)
    world.embedder.failure = ValueError("out of order")
    results = results_of(world.ask_all([QUESTION] * MANY))
    assert len(world.embedder.queries) == 1
    assert all([item.stage for item in result.degraded] == ["embed"] for result in results)
    world.embedder.failure = None
    assert results_of(world.ask_all_again([QUESTION]))[0].degraded == ()


class Hanging(FakeEmbedder):
    """A synchronous embedder that returns when it is told to, and not before."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = Event()
        self.told = Event()

    def embed_query(self, text: str) -> Any:  # type: ignore[override]
        self.asked.set()
        assert self.told.wait(PATIENCE)
        return text


def test_closing_while_a_plug_in_hangs(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever waits for the plug-in is told, and a warning names it."""
    monkeypatch.setattr(lifecycle, "PATIENCE", 0)
    embedder = Hanging()
    store = CountingMemoryStore(embedder_id=embedder.id, dimension=embedder.dimension)
    pipeline = RetrievalPipeline(store, embedder, config=load_config(overrides={"search.mode": "dense"}))
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(pipeline.retrieve, QUESTION)
        assert embedder.asked.wait(PATIENCE)
        pipeline.close()
        with pytest.raises(ServiceError, match="closed while"):
            waiting.result(PATIENCE)
    assert any("Hanging.embed_query did not return within 0 s" in record.getMessage() for record in caplog.records)
    embedder.told.set()
