"""A question answered with the result of one that asks the same in other words, and never with another's."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from retrieval_core.adapters.caches.memory import MemoryCache
from retrieval_core.config import load_config
from retrieval_core.errors import ServiceConnectionError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import Message, QueryContext, QueryTransformer
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import RetrievalResult
from support.pipelines import PHONES, TroubledStore, filled

FIRST = "What is the history command?"
AGAIN = "what's the history command"
LOOK_ALIKE = "What does the history command do?"


class Embedder(FakeEmbedder):
    """Gives all questions with the same word at the end the same direction, as a real one nearly does."""

    async def embed_query(self, text: str) -> Any:
        await super().embed_query(text)
        return await super().embed_query(text.rstrip("?").split()[-1])


class Store(TroubledStore):
    async def version(self) -> str | None:
        return await self._inner.version()


class Results(MemoryCache):
    """Stands for a cache outside the process, and fails on request."""

    in_process = False
    failing: Exception | None = None

    async def get(self, key: str) -> RetrievalResult | None:
        if self.failing:
            raise self.failing
        return await super().get(key)


class World:
    def __init__(self, cache: MemoryCache | None = None, **settings: Any) -> None:
        self.clock = FakeClock()
        self.store = Store()
        filled(self.store)
        self.embedder = Embedder()
        self.cache = MemoryCache(10, 300, self.clock) if cache is None else cache
        given = {"cache__semantic__enabled": True, **settings}
        config = load_config(overrides={key.replace("__", "."): value for key, value in given.items()})
        self.pipeline = RetrievalPipeline(self.store, self.embedder, cache=self.cache, config=config, clock=self.clock)

    def ask(self, query: str, *arguments: Any, **options: Any) -> RetrievalResult:
        return asyncio.run(self.pipeline.aretrieve(query, *arguments, **options))


def test_the_answer_to_the_same_in_other_words() -> None:
    """It is that of the other question, says of which, and costs no search."""
    world = World()
    first = world.ask(FIRST)
    assert not first.from_cache
    calls = world.store.calls.copy()
    again = world.ask(f" {AGAIN}")
    assert again.from_cache
    assert (again.query, again.hits, again.formatted_context) == (f" {AGAIN}", first.hits, first.formatted_context)
    assert again.metadata["cache_matched_query"] == FIRST
    assert again.metadata["cache_similarity"] == pytest.approx(1)  # pyright: ignore[reportUnknownMemberType]
    assert again.metadata["query_normalized"] == AGAIN
    assert world.store.calls == calls
    assert [record.stage for record in again.trace] == ["version", "cache", "embed", "similar", "cache"]
    assert "'What is the history command?', cosine 1.0000" in str(again.trace[3].decision)


def test_a_look_alike_is_searched_for() -> None:
    """However near its vector is; the trace says that there was one."""
    world = World()
    world.ask(FIRST)
    other = world.ask(LOOK_ALIKE)
    assert not other.from_cache
    assert "cache_matched_query" not in other.metadata
    decisions = [record.decision for record in other.trace if record.stage == "similar"]
    assert decisions == ["none asks the same"]  # its last word is another one
    near = world.ask("What is the undo history command?")
    decisions = [record.decision for record in near.trace if record.stage == "similar"]
    assert decisions == ["none asks the same; 1 as near ask something else"]
    assert not near.from_cache


def test_a_question_is_embedded_once() -> None:
    """What was embedded to be compared is not embedded again to be searched for."""
    world = World(cache__embeddings=0)
    world.ask(FIRST)
    assert world.embedder.queries.count(FIRST) == 1


@pytest.mark.parametrize(
    "change", [{"top_k": 1}, {"mode": "dense"}, {"mode": "lexical"}, {"filters": {"brand": "Acme"}}], ids=str
)
def test_nothing_is_shared_with_what_was_asked_otherwise(change: dict[str, Any]) -> None:
    """A filter, a mode or a number of hits makes another part of the cache."""
    world = World()
    world.ask(FIRST)
    assert not world.ask(AGAIN, **change).from_cache
    assert world.ask(AGAIN).from_cache


def test_a_write_makes_the_answers_void() -> None:
    """Of an index in another state nothing is shown, whoever wrote to it."""
    world = World()
    world.ask(FIRST)
    filled(world.store, [replace(PHONES[0], text="Nothing of the kind.")])
    assert not world.ask(AGAIN).from_cache


def test_invalidation_makes_the_answers_void() -> None:
    """Nothing is found of what was kept before."""
    world = World()
    world.ask(FIRST)
    asyncio.run(world.pipeline.ainvalidate())
    assert not world.ask(AGAIN).from_cache


def test_sessions() -> None:
    """With the scope of a session each has its own questions; one without a name is one of them."""
    world = World(cache__semantic__scope="session")
    world.ask(FIRST, session_id="ann")
    assert not world.ask(AGAIN, session_id="ben").from_cache
    world = World(cache__semantic__scope="session")
    world.ask(FIRST, session_id="ann")
    assert not world.ask(AGAIN).from_cache
    world = World(cache__semantic__scope="session")
    world.ask(FIRST, session_id="ann")
    assert world.ask(AGAIN, session_id="ann").from_cache
    world = World()
    world.ask(FIRST, session_id="ann")
    assert world.ask(AGAIN, session_id="ben").from_cache


def test_in_a_conversation_words_alone_do_not_tell() -> None:
    """Neither is such a question compared with others, nor is it the same after other turns."""
    world = World()
    turns = [Message("user", "What was installed?")]
    world.ask(FIRST, history=turns)
    assert not world.ask(AGAIN).from_cache
    assert not world.ask(AGAIN, history=[Message("user", "What was removed?")]).from_cache
    assert world.ask(FIRST, history=turns).from_cache
    assert not world.ask(FIRST, history=[Message("user", "What was removed?")]).from_cache


class Shouting(QueryTransformer):
    id = "shouting"

    async def _transform(self, query: str, context: QueryContext) -> str:
        return f"{query}!!"


def test_other_transformers_are_another_question() -> None:
    """Those that look at a question belong to what its result depends on."""
    world = World()
    config = world.pipeline.config
    pipeline = RetrievalPipeline(
        world.store, world.embedder, cache=world.cache, config=config, transformers={"shouting": Shouting()}
    )

    async def test() -> list[bool]:
        asked: list[tuple[str, list[str] | None]] = [
            (FIRST, None),
            (FIRST, ["shouting"]),
            (AGAIN, ["shouting"]),
            (AGAIN, []),
        ]
        return [(await pipeline.aretrieve(query, transforms=names)).from_cache for query, names in asked]

    assert asyncio.run(test()) == [False, False, True, True]


def test_an_embedder_that_fails_costs_one_attempt_more() -> None:
    """The question is not compared, and searched for by words, as without this cache."""
    world = World(retry__max_retries=2, breaker__failures=0)
    world.embedder.failure = ServiceConnectionError("down")
    result = world.ask(FIRST)
    assert [entry.stage for entry in result.degraded] == ["embed"]
    assert world.embedder.queries.count(FIRST) == 1 + 3
    world.embedder.failure = None
    assert not world.ask(AGAIN).from_cache


def test_a_result_that_is_gone_is_searched_for() -> None:
    """The cache of results has the last word; what it let go of is forgotten here too."""
    world = World()
    world.ask(FIRST)
    asyncio.run(world.cache.clear())
    again = world.ask(AGAIN)
    assert (again.from_cache, again.degraded) == (False, ())
    assert world.ask(FIRST).metadata["cache_matched_query"] == AGAIN


def test_a_cache_of_results_that_fails_is_done_without() -> None:
    """The question is answered and says so, once."""
    cache = Results(10, 300)
    world = World(cache, breaker__failures=0)
    world.ask(FIRST)
    cache.failing = ServiceConnectionError("redis is down")
    again = world.ask(AGAIN)
    assert not again.from_cache
    assert len(again.hits) == 4
    assert {entry.stage for entry in again.degraded} == {"cache"}


def test_an_answer_is_not_handed_on_from_question_to_question() -> None:
    """A result found by meaning is not kept under the new question, so that it grows no older than its time."""
    world = World()
    world.ask(FIRST)
    world.ask(AGAIN)
    assert len(world.cache) == 1
    world.clock.advance(300)
    assert not world.ask(AGAIN).from_cache


def test_switched_off_by_default() -> None:
    """Nobody gets another question's answer unasked."""
    world = World(cache__semantic__enabled=False)
    world.ask(FIRST)
    assert not world.ask(AGAIN).from_cache
