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
from support.plugins import approx

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


def test_the_best_are_read_in_one_call(pool: ThreadPool) -> None:
    """Only chunks that can be among the hits are asked for, once, with the query's filter."""
    store = Shelf()
    selected, _ = choose(pool, store, found("ab", "ab"))
    assert ids(selected) == ["a", "b"]
    assert store.requests == [FetchRequest(chunk_ids=("a", "b"), filter=Eq("brand", "Acme"))]


def test_what_the_search_brought_is_not_read_again(pool: ThreadPool) -> None:
    """A store that returns chunks with its search is not asked for them."""
    store = Shelf()
    selected, run = choose(pool, store, found("ab", "ab", with_chunks=True))
    assert ids(selected) == ["a", "b"]
    assert store.requests == []
    assert run.records == ()


@pytest.mark.parametrize("with_chunks", [True, False])
def test_chunks_found_by_words_alone_get_their_cosine(pool: ThreadPool, with_chunks: bool) -> None:
    """The dense score is reckoned from the vector, negative counting as 0; the rank stays unknown."""
    store = Shelf()
    selected, _ = choose(pool, store, found("a", "bc", with_chunks=with_chunks), replace(PLAN, top_k=3))
    scores = {hit.id: (hit.scores.dense, hit.scores.dense_rank) for hit in selected.hits}
    assert scores == {"a": (1.0, 1), "b": (approx(0.6), None), "c": (0.0, None)}
    (request,) = store.requests
    assert request.with_vectors
    assert set(request.chunk_ids) == ({"b", "c"} if with_chunks else {"a", "b", "c"})


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


def test_diversity_compares_more_than_it_returns(pool: ThreadPool) -> None:
    """The passages are chosen among ``fetch_k``, with their vectors, and the stage is recorded."""
    store = Shelf()
    selected, run = choose(pool, store, found("abc", None), replace(PLAN, fetch_k=3, lambda_mult=0.0))
    assert ids(selected) == ["a", "c"]
    assert all(hit.scores.mmr == hit.score for hit in selected.hits)
    assert len(store.requests) == 1
    assert ("diversify", 3, 2) in [(record.stage, record.count_in, record.count_out) for record in run.records]


def test_diversity_needs_no_embedding_of_the_question(pool: ThreadPool) -> None:
    """Passages that words found are compared with each other by their own vectors."""
    selected, _ = choose(pool, Shelf(), found(None, "abc", query=Query("q", "q")), replace(PLAN, fetch_k=3))
    assert [hit.scores.mmr is not None for hit in selected.hits] == [True, True]
    assert selected.degraded == ()


def test_diversity_without_vectors_is_relevance(pool: ThreadPool) -> None:
    """Where there are no vectors the order of relevance stands, and the result says so."""
    selected, _ = choose(pool, Shelf(has_vectors=False), found("abc", None), replace(PLAN, fetch_k=3))
    assert ids(selected) == ["a", "b"]
    assert [item.stage for item in selected.degraded] == ["diversify"]


def test_nothing_found_is_nothing_read(pool: ThreadPool) -> None:
    """Without candidates the store is left alone."""
    store = Shelf()
    selected, _ = choose(pool, store, found("", ""), replace(PLAN, fetch_k=3, score_threshold=0.5))
    assert selected.hits == ()
    assert selected.degraded == ()
    assert store.requests == []
