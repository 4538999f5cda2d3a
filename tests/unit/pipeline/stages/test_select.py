from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from retrieval_core.pipeline.stages.fuse import fuse
from retrieval_core.pipeline.stages.select import Select
from retrieval_core.pipeline.stages.state import Plan, SearchResults, SearchState
from retrieval_core.ports import Candidate, Fetched, FetchRequest
from retrieval_core.run.runner import Run
from retrieval_core.run.threads import ThreadPool
from retrieval_core.types import Chunk, Query
from retrieval_core.types.filters import Eq

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retrieval_core.ports import Store
    from retrieval_core.types import Vector

PLAN = Plan(
    mode="hybrid",
    has_words=True,
    top_k=2,
    candidates=10,
    condition=Eq("brand", "Acme"),
    fusion="rrf",
    dense_weight=0.5,
    score_threshold=None,
    on_unscored="drop",
    fetch_k=None,
    lambda_mult=0.5,
)
VECTORS: dict[str, Vector] = {
    "a": np.array([1, 0], np.float32),
    "b": np.array([0.6, 0.8], np.float32),
    "c": np.array([-1, 0], np.float32),
}
QUERY = Query("q", "q", embedding=VECTORS["a"])


def chunk(name: str) -> Chunk:
    return Chunk(name, "doc", f"text of {name}")


@dataclass
class Shelf:
    """A store that can be read from, and remembers what it was asked for."""

    names: str = "abc"
    has_vectors: bool = True
    failure: Exception | None = None
    requests: list[FetchRequest] = field(default_factory=list[FetchRequest])

    async def fetch(self, request: FetchRequest) -> Fetched:
        self.requests.append(request)
        if self.failure is not None:
            raise self.failure
        names = [name for name in request.chunk_ids if name in self.names]
        vectors = {name: VECTORS[name] for name in names if request.with_vectors and self.has_vectors}
        return Fetched({name: chunk(name) for name in names}, vectors)


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    pool = ThreadPool("test", threads=1)
    yield pool
    pool.close()


def found(dense: str | None, lexical: str | None, *, with_chunks: bool = False, query: Query = QUERY) -> SearchResults:
    """The sides found these chunks in this order; dense scores are the true cosines."""

    def side(names: str, scores: dict[str, float]) -> tuple[Candidate, ...]:
        return tuple(Candidate(name, scores[name], chunk(name) if with_chunks else None) for name in names)

    cosines = {name: float(vector @ VECTORS["a"]) for name, vector in VECTORS.items()}
    return SearchResults(
        query,
        dense=None if dense is None else side(dense, cosines),
        lexical=None if lexical is None else side(lexical, dict.fromkeys("abc", 1.0)),
    )


def choose(pool: ThreadPool, store: Shelf, what: SearchResults, plan: Plan = PLAN) -> tuple[SearchState, Run]:
    run = Run(pool)
    ranked = fuse(what.dense, what.lexical, dense_weight=plan.dense_weight)
    state = SearchState.of(what.query, plan).but(found=what, ranked=ranked)
    return asyncio.run(Select(cast("Store", cast("Any", store)), 0)(run, state)), run


def ids(selected: SearchState) -> list[str]:
    return [hit.id for hit in selected.hits]


def test_a_chunk_that_is_gone_makes_room(pool: ThreadPool) -> None:
    """What was deleted between searching and reading is left out."""
    selected, _ = choose(pool, Shelf(names="bc"), found("abc", None), replace(PLAN, top_k=3))
    assert ids(selected) == ["b", "c"]
    diverse, _ = choose(pool, Shelf(names="bc"), found("abc", None), replace(PLAN, fetch_k=3))
    assert ids(diverse) == ["b", "c"]


def test_a_threshold_looks_at_every_candidate(pool: ThreadPool) -> None:
    """A passage that passes is found even where it ranks behind many that do not."""
    selected, run = choose(pool, Shelf(), found(None, "cba"), replace(PLAN, top_k=1, score_threshold=0.9))
    assert ids(selected) == ["a"]
    assert selected.degraded == ()
    assert [(r.stage, r.count_in, r.count_out) for r in run.records] == [("fetch", None, None), ("threshold", 3, 1)]


def test_passages_without_a_score_are_dropped_and_counted(pool: ThreadPool) -> None:
    """Nothing that cannot be measured passes a threshold, and the result says how many that were."""
    settings = replace(PLAN, score_threshold=0.1)
    selected, _ = choose(pool, Shelf(has_vectors=False), found("a", "ab"), settings)
    assert ids(selected) == ["a"]
    (degradation,) = selected.degraded
    assert degradation.stage == "threshold"
    assert degradation.reason.startswith("score_threshold dropped 1 chunk ")


def test_diversity_without_vectors_is_relevance(pool: ThreadPool) -> None:
    """Where there are no vectors the order of relevance stands, and the result says so."""
    selected, _ = choose(pool, Shelf(has_vectors=False), found("abc", None), replace(PLAN, fetch_k=3))
    assert ids(selected) == ["a", "b"]
    assert [item.stage for item in selected.degraded] == ["diversify"]
