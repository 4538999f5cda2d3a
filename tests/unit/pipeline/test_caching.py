"""Asking the same again: once for many, from the cache while nothing changed, and never a stale or a broken answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.adapters.caches.memory import MemoryCache
from retrieval_core.config import load_config
from retrieval_core.errors import ServiceConnectionError, ServiceTimeoutError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder, FakeRelevanceFilter
from support.pipelines import PHONES, TroubledStore, filled

if TYPE_CHECKING:
    from retrieval_core.types import RetrievalResult

QUESTION = "roll back an application"


class VersionedStore(TroubledStore):
    """A troubled store that tells its version, as the memory store does."""

    async def version(self) -> str | None:
        await self._serve("version")
        return await self._inner.version()


async def turns(count: int) -> None:
    """Let the others have so many turns."""
    for _ in range(count):
        await asyncio.sleep(0)


class World:
    """A pipeline over the phones, with everything to look at."""

    def __init__(self, store: TroubledStore | None = None, cache: Any = None, **settings: Any) -> None:
        self.clock = FakeClock()
        self.store = store or VersionedStore()
        filled(self.store)
        self.embedder = FakeEmbedder()
        self.cache = MemoryCache(10, 300, self.clock) if cache is None else cache  # an empty one is false
        config = load_config(overrides={key.replace("__", "."): value for key, value in settings.items()})
        self.pipeline = RetrievalPipeline(self.store, self.embedder, cache=self.cache, config=config, clock=self.clock)

    def ask(self, query: str = QUESTION, *arguments: Any, **settings: Any) -> RetrievalResult:
        return asyncio.run(self.pipeline.aretrieve(query, *arguments, **settings))


def test_the_second_answer_comes_from_the_cache() -> None:
    """It is the same but for where it came from, and costs neither embedding nor search."""
    world = World()
    first = world.ask()
    calls = world.store.calls.copy()
    second = world.ask()
    assert (first.from_cache, second.from_cache) == (False, True)
    assert second.hits == first.hits
    assert second.formatted_context == first.formatted_context
    assert second.metadata == first.metadata
    assert world.store.calls - calls == {"version": 1}
    assert len(world.embedder.queries) == 1
    assert [record.stage for record in second.trace] == ["version", "cache"]
    world.clock.advance(300)
    assert not world.ask().from_cache


def test_a_question_in_another_form_is_the_same() -> None:
    """White space does not count; the result names the question of whoever asked."""
    world = World()
    world.ask(QUESTION)
    other = world.ask(f"  {QUESTION.replace(' ', chr(10))} ")
    assert other.from_cache
    assert other.query == f"  {QUESTION.replace(' ', chr(10))} "


@pytest.mark.parametrize(
    "change",
    [
        {"top_k": 1},
        {"mode": "lexical"},
        {"score_threshold": 0.0},
        {"filters": {"brand": "Acme"}},
        {"query": f"{QUESTION}?"},
    ],
    ids=str,
)
def test_another_question_is_another(change: dict[str, Any]) -> None:
    """Whatever changes the answer is part of the key."""
    world = World()
    world.ask()
    assert not world.ask(**{"query": QUESTION, **change}).from_cache


def test_pipelines_with_other_settings_do_not_share() -> None:
    """One cache may serve several pipelines; plug-ins and settings are part of the key."""
    world = World()
    world.ask()

    def asked(**parts: Any) -> bool:
        given: dict[str, Any] = {"config": world.pipeline.config, **parts}
        pipeline = RetrievalPipeline(world.store, world.embedder, cache=world.cache, clock=world.clock, **given)
        return asyncio.run(pipeline.aretrieve(QUESTION)).from_cache

    assert asked()
    assert not asked(config=load_config(overrides={"search.dense_weight": 0.3}))
    assert not asked(relevance_filter=FakeRelevanceFilter())
    assert asked(config=load_config(overrides={"retry.max_retries": 0, "deadline_seconds": 5}))


def test_a_write_is_never_followed_by_a_stale_answer() -> None:
    """A store that tells its version needs no call, whoever wrote to it."""
    world = World()
    world.ask()
    filled(world.store, [replace(PHONES[0], text="Roll back an application at once.")])
    assert world.ask().hits[0].chunk.text == "Roll back an application at once."


def test_what_does_not_say_who_it_is_is_not_kept() -> None:
    """Without the identity of every part, two results cannot be known to be the same."""
    world = World(TroubledStore())
    for _ in range(2):
        assert not world.ask().from_cache
    assert len(world.cache) == 0


class TroubledCache(MemoryCache):
    """Fails, or hangs, on request."""

    in_process = False
    failing: Exception | None = None
    hanging = False

    async def _obey(self) -> None:
        if self.hanging:
            await asyncio.Event().wait()
        if self.failing:
            raise self.failing

    async def get(self, key: str) -> RetrievalResult | None:
        await self._obey()
        return await super().get(key)

    async def set(self, key: str, result: RetrievalResult) -> None:
        await self._obey()
        await super().set(key, result)


@pytest.mark.parametrize(
    "error", [ServiceConnectionError("redis is down"), ServiceTimeoutError("slow"), KeyError("bug")]
)
def test_a_dead_cache_is_done_without(error: Exception) -> None:
    """Each question is answered and says so; the cache is asked once for each, and never waited for."""
    cache = TroubledCache()
    world = World(cache=cache, breaker__failures=0)
    cache.failing = error
    result = world.ask()
    assert len(result.hits) == 4
    assert {entry.stage for entry in result.degraded} == {"cache"}
    assert world.clock.slept == []
    cache.failing = None
    assert not world.ask().from_cache
    assert world.ask().from_cache


class LateCache(TroubledCache):
    """Has to load something first, which takes until it is told that this is done."""

    def __init__(self) -> None:
        super().__init__()
        self.loads = 0
        self.asked = 0
        self.is_loaded = False

    async def load(self) -> None:
        self.loads += 1
        await asyncio.Event().wait()

    async def get(self, key: str) -> RetrievalResult | None:
        self.asked += 1
        return await super().get(key)


def test_a_cache_that_is_still_loaded_is_not_waited_for() -> None:
    """Questions at the start of a process say what kept them from the cache, and it is asked as soon as it is there.

    However many they are, the cache's server is not thought to be down for it.
    """
    cache = LateCache()
    world = World(cache=cache, deadline_seconds=2, breaker__failures=2)

    async def ask_while_it_is_loaded() -> RetrievalResult:
        task = asyncio.create_task(world.pipeline.aretrieve(QUESTION))
        await turns(20)
        world.clock.advance(0.11)  # the cache's share is over
        return await task

    for _ in range(3):
        result = asyncio.run(ask_while_it_is_loaded())
        assert len(result.hits) == 4
        assert [entry.stage for entry in result.degraded] == ["cache"]
    assert (cache.loads, cache.asked) == (2, 0)
    cache.is_loaded = True
    assert not world.ask().degraded
    assert world.ask().from_cache


def test_what_is_said_of_a_cache_that_is_still_loaded() -> None:
    """It says what took how long and what to do, and does not blame the server or the deadline."""
    world = World(cache=LateCache(), deadline_seconds=2)

    async def test() -> RetrievalResult:
        task = asyncio.create_task(world.pipeline.aretrieve(QUESTION))
        await turns(20)
        world.clock.advance(0.11)
        return await task

    (entry,) = asyncio.run(test()).degraded
    assert entry.reason == (
        "it was skipped: its client was still loading after 110 ms, 5% of deadline_seconds. "
        "It is loaded once per process. To load it before the first query: await cache.load()"
    )


def test_switched_off() -> None:
    """Without a cache every question is searched for, and embedded anew if that is switched off too."""
    world = World(cache__kind="none")
    pipeline = RetrievalPipeline(world.store, world.embedder, config=world.pipeline.config, clock=world.clock)
    for _ in range(2):
        assert not asyncio.run(pipeline.aretrieve(QUESTION)).from_cache
    assert len(world.embedder.queries) == 2


def test_an_embedded_question_is_remembered() -> None:
    """The same words with another filter cost no second embedding."""
    world = World()
    world.ask()
    world.ask(filters={"brand": "Acme"})
    assert world.embedder.queries == [QUESTION]


def test_what_was_searched_for_before_it_was_forgotten_is_not_kept() -> None:
    """A result that was under way while all were forgotten is nobody else's, though the version is still the same."""
    world = World()

    async def test() -> None:
        world.embedder.gate = asyncio.Event()
        asking = asyncio.create_task(world.pipeline.aretrieve(QUESTION))
        await turns(20)
        await world.pipeline.ainvalidate()
        world.embedder.gate.set()
        assert not (await asking).from_cache
        assert not (await world.pipeline.aretrieve(QUESTION)).from_cache
        assert (await world.pipeline.aretrieve(QUESTION)).from_cache

    asyncio.run(test())
