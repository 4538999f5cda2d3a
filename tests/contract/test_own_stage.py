"""A stage of a program: where it runs, what it may change, and what becomes of its failures."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from retrieval_core import Chunk, load_config
from retrieval_core.adapters.caches.memory import MemoryCache
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.errors import InvalidParameterError, SearchError
from retrieval_core.pipeline import RetrievalPipeline, Stage
from retrieval_core.ports import Change

if TYPE_CHECKING:
    from retrieval_core.pipeline import Run, SearchState


class Newest(Stage):
    """Keeps the hit with the highest id."""

    name = "newest"

    def __init__(self, problem: Exception | None = None, fingerprint: str | None = "newest 1") -> None:
        self.problem = problem
        self.print = fingerprint
        self.calls = 0

    def fingerprint(self) -> str | None:
        return self.print

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        self.calls += 1
        if self.problem is not None:
            raise self.problem
        return replace(state, hits=(max(state.hits, key=lambda hit: hit.id),))


async def a_store() -> MemoryStore:
    store = MemoryStore()
    await store.upsert(Change(tuple(Chunk(name, name, f"the moon {name}") for name in "abc")))
    return store


def pipeline(stage: Stage, **settings: object) -> RetrievalPipeline:
    config = load_config("lexical", overrides={"retry.max_retries": 0, **settings})
    store = asyncio.run(a_store())
    return RetrievalPipeline(store, cache=MemoryCache(), config=config, extra_stages=[stage])


def test_a_stage_changes_the_hits() -> None:
    """It runs after the best hits are chosen, and is in the trace."""
    with pipeline(Newest()) as shop:
        result = shop.retrieve("moon")
        assert [hit.id for hit in result.hits] == ["c"]
        assert "newest" in [record.stage for record in result.trace]
        assert result.degraded == ()


def test_results_are_kept_by_its_fingerprint() -> None:
    """With a fingerprint the next query is answered from the cache; without one each query runs."""
    named, unnamed = Newest(), Newest(fingerprint=None)
    for stage, calls in ((named, 1), (unnamed, 2)):
        with pipeline(stage) as shop:
            shop.retrieve("moon")
            assert shop.retrieve("moon").from_cache == (stage is named)
            assert stage.calls == calls


def test_a_stage_that_fails_is_done_without() -> None:
    """The hits stay as they were, and the stage is listed; with strict its error is raised."""
    with pipeline(Newest(SearchError("it broke"))) as shop:
        result = shop.retrieve("moon")
        assert len(result.hits) == 3
        assert [(each.stage, each.reason) for each in result.degraded] == [("newest", "it broke")]
        assert not shop.retrieve("moon").from_cache
    with pipeline(Newest(SearchError("it broke")), strict=True) as shop, pytest.raises(SearchError, match="it broke"):
        shop.retrieve("moon")


class Nothing(Newest):
    """Forgets to return a state."""

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        return None  # type: ignore[return-value] - as a plug-in without types may


def test_a_stage_that_returns_something_else_is_done_without() -> None:
    """The hits stay as they were."""
    with pipeline(Nothing()) as shop:
        result = shop.retrieve("moon")
        assert len(result.hits) == 3
        assert [each.reason for each in result.degraded] == ["the stage returned None, which is no SearchState"]


def test_a_stage_that_cannot_be_placed_is_refused() -> None:
    """The error names the stages that there are."""
    stage = Newest()
    stage.after = "reranking"
    with pytest.raises(InvalidParameterError, match="of this pipeline are syntax, transform, search, fuse"):
        pipeline(stage)


def test_what_is_no_stage_is_refused() -> None:
    """The error shows what was given instead."""
    with pytest.raises(InvalidParameterError, match=r"a stage is a subclass of .*, got <object"):
        pipeline(object())  # type: ignore[arg-type]
