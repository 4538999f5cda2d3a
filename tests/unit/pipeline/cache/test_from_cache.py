"""A result as each caller asked for it."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import open_index
from retrieval_core.adapters.caches.memory import MemoryCache
from retrieval_core.config import load_config
from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.pipeline.results import as_asked
from retrieval_core.ports import Candidate, Fetched, FetchRequest, SearchRequest, StoreInfo
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import (
    Chunk,
    Degradation,
    EvaluationScores,
    Hit,
    Query,
    Relevance,
    RetrievalResult,
    RewriteResult,
    Scores,
    StageRecord,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_nothing_of_a_result_is_lost() -> None:
    """It is made anew field by field, so a field that is added has to be taken along."""
    hit = Hit(Chunk("c", "d", "text"), 1.0, Scores())
    kept = RetrievalResult(
        "as the first one asked",
        (hit,),
        "text",
        {"mode": "hybrid"},
        5.0,
        degraded=(Degradation("dense", "it is slow"),),
        trace=(StageRecord("embed", 1.0),),
        rewrites=(RewriteResult("as I ask", "again", 1, "too little was found"),),
        evaluation=EvaluationScores(context_precision=0.5),
        relevance=Relevance(0.5),
    )
    trace = (StageRecord("cache", 0.1),)
    told = as_asked(kept, Query("as I ask", "as i ask"), 2.0, from_cache=True, trace=trace)
    assert told == replace(kept, query="as I ask", latency_ms=2.0, from_cache=True, trace=trace)
    defaults = RetrievalResult("", (), "", {}, 0.0)
    same = {field.name for field in fields(kept) if getattr(kept, field.name) == getattr(defaults, field.name)}
    assert same == {"from_cache"}, "every other field differs from its default here, or its loss is not seen"


def test_a_question_that_wants_no_kept_answer_is_searched_for_anew(tmp_path: Path) -> None:
    with open_index(tmp_path / "index.db", embedder=FakeEmbedder()) as index:
        index.add([Chunk("a", "d", "The moon.")])
        assert not index.retrieve("moon", use_cache=False).from_cache
        assert not index.retrieve("moon").from_cache  # nothing was kept of it
        assert index.retrieve("moon").from_cache
        anew = index.retrieve("moon", use_cache=False)
        assert (anew.from_cache, [hit.id for hit in anew.hits]) == (False, ["a"])
        assert "dense" in {record.stage for record in anew.trace}
        assert index.retrieve("moon", use_cache=None).from_cache
        with pytest.raises(InvalidParameterError, match="use_cache must be true or false, got 'no'"):
            index.retrieve("moon", use_cache="no")  # pyright: ignore[reportArgumentType] - refused


class VersionedStore:
    """A store without the base class: it has one chunk, and a version."""

    id = "one"
    sides = frozenset({"dense"})

    def __init__(self) -> None:
        self.searches = 0

    async def search(self, _request: SearchRequest) -> tuple[Candidate, ...]:
        self.searches += 1
        return (Candidate("c", 0.5, Chunk("c", "d", "The moon.")),)

    async def describe(self) -> StoreInfo:
        raise NotImplementedError

    async def fetch(self, _request: FetchRequest) -> Fetched:
        return Fetched()

    async def version(self) -> str:
        return "1"

    async def aclose(self) -> None: ...


def test_a_cached_result_takes_a_single_call() -> None:
    """Of the store, for its version; each further task would be a turn of the event loop."""
    store: Any = VersionedStore()
    pipeline = RetrievalPipeline(
        store, FakeEmbedder(), config=load_config(overrides={"search.mode": "dense"}), cache=MemoryCache()
    )
    tasks: list[str] = []

    def make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **named: Any) -> asyncio.Task[Any]:
        tasks.append(coroutine.__qualname__)
        return asyncio.Task(coroutine, loop=loop, **named)

    async def ask() -> None:
        async with pipeline:
            assert not (await pipeline.aretrieve("moon")).from_cache
            asyncio.get_running_loop().set_task_factory(make_task)
            assert (await pipeline.aretrieve("moon")).from_cache
            asyncio.get_running_loop().set_task_factory(None)

    asyncio.run(ask())
    assert store.searches == 1
    assert tasks in ([], ["ThreadPool.call"])  # from Python 3.12 on, a task may begin without the loop
