"""Properties of the specification's first file that speak of whole results; the others are in ``test_specification``.

Each test names a change of the library that makes it fail; each was tried.
"""

from __future__ import annotations

import asyncio
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.adapters.caches.memory import MemoryCache
from retrieval_core.adapters.evaluators.local import LocalEvaluator
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.config import RetrievalConfig, load_config
from retrieval_core.errors import ServiceConnectionError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import Judgements, RelevanceFilter
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder, FakeRelevanceFilter, FakeRewriter
from retrieval_core.types import Chunk, EvaluationScores, Judgement
from retrieval_core.types.filters import MetadataFilter
from support.pipelines import PHONES, TroubledStore, filled
from support.plugins import approx

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.types import RetrievalResult, Vector

FEATURE = "data-retrieval-pipeline"
QUESTION = "roll back an application"
WORDS = ("history", "application", "bread", "saturn", "revision")

numbers = st.integers(0, 5) | st.floats(0, 5)
shares = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]) | st.floats(0, 1)


def settings_of(**settings: Any) -> RetrievalConfig:
    return load_config(overrides={key.replace("__", "."): value for key, value in settings.items()})


def a_store(chunks: Sequence[Chunk] = PHONES) -> MemoryStore:
    embedder = FakeEmbedder()
    store = MemoryStore(embedder_id=embedder.id, dimension=embedder.dimension)
    filled(store, chunks)
    return store


def ask(pipeline: RetrievalPipeline, query: str = QUESTION, *arguments: Any) -> RetrievalResult:
    return asyncio.run(pipeline.aretrieve(query, *arguments))


@pytest.mark.property(FEATURE, 5)
@given(
    records=st.lists(st.fixed_dictionaries({}, optional={"price": numbers, "rating": numbers}), max_size=8),
    bounds=st.tuples(*[st.none() | numbers] * 3),
)
def test_metadata_filter_enforcement(
    records: list[dict[str, float]], bounds: tuple[float | None, float | None, float | None]
) -> None:
    """Through a ``MetadataFilter`` come all documents within its bounds, which belong to them, and no others.

    Fails with ``Gte("rating", …)`` in ``MetadataFilter`` changed to ``Gte("price", …)``, or with ``Lte`` to ``Lt``.
    """
    low, high, rating = bounds
    chunks = [Chunk(f"c{n}", "d", "a phone", n, metadata=metadata) for n, metadata in enumerate(records)]
    config = settings_of(search__mode="dense")
    wanted = MetadataFilter(min_price=low, max_price=high, min_rating=rating)
    result = ask(RetrievalPipeline(a_store(chunks), FakeEmbedder(), config=config), "phone", wanted)

    def passes(metadata: dict[str, float]) -> bool:
        price, stars = metadata.get("price"), metadata.get("rating")
        return (
            (low is None or (price is not None and price >= low))
            and (high is None or (price is not None and price <= high))
            and (rating is None or (stars is not None and stars >= rating))
        )

    expected = [f"c{n}" for n, metadata in enumerate(records) if passes(metadata)]
    assert sorted(document.id for document in result.documents) == expected


class ScoreByRound(RelevanceFilter):
    """A relevance filter whose judgements depend on which search it is, and not on what was found."""

    id, batch_size = "by round", 100

    def __init__(self, scores: Sequence[float]) -> None:
        self._left = [*scores]

    async def _judge(self, query: str, chunks: Sequence[Chunk]) -> Judgements:
        score = self._left.pop(0)
        return Judgements(tuple(Judgement(relevant=True, score=score) for _ in chunks))


@pytest.mark.property(FEATURE, 7)
@given(scores=st.lists(shares, min_size=6, max_size=6), threshold=shares, max_attempts=st.integers(0, 5))
def test_rewrite_trigger_and_constraints(scores: list[float], threshold: float, max_attempts: int) -> None:
    """A question is rewritten exactly while the relevance is below the threshold, and never more often than allowed.

    Fails with ``relevance < threshold`` in ``stages/rewrite.py`` changed to ``<=``, with ``attempt < max_attempts``
    to ``<=``, and with the rewritten query in the place of ``original_query``.
    """
    attempts, relevance = 0, scores[0]
    while relevance < threshold and attempts < max_attempts:
        attempts += 1
        relevance = max(relevance, scores[attempts])
    rewriter = FakeRewriter(lambda _query, _context: f"history number{len(rewriter.calls)}")
    config = settings_of(rewriter__relevance_threshold=threshold, rewriter__max_attempts=max_attempts)
    pipeline = RetrievalPipeline(
        a_store(),
        FakeEmbedder(),
        relevance_filter=ScoreByRound(scores),
        rewriter=rewriter,
        config=config,
        clock=FakeClock(),
    )
    result = ask(pipeline)
    assert bool(rewriter.calls) == (scores[0] < threshold and max_attempts > 0)
    assert len(rewriter.calls) == len(result.rewrites) == result.metadata["rewrite_attempts"] == attempts
    assert attempts <= max_attempts
    assert result.metadata["query_rewritten"] == (attempts > 0)
    assert result.metadata["relevance_score"] == relevance
    for number, rewrite in enumerate(result.rewrites, start=1):
        assert (rewrite.original_query, rewrite.rewritten_query) == (QUESTION, f"history number{number}")
        assert (rewrite.attempt_number, rewrite.relevance) == (number, scores[number])


@pytest.mark.property(FEATURE, 9)
@given(
    query=st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join),
    padding=st.text(" \t\n", max_size=3),
    seconds=st.floats(0, 20),
    kept=st.sets(st.integers(0, 3)),
    is_shared=st.booleans(),
)
def test_retrieval_result_structure(
    query: str, padding: str, seconds: float, *, kept: set[int], is_shared: bool
) -> None:
    """Every result has the query as it was asked, documents, context, a score for each, facts and the time it took.

    It has so whether its run may be shared by several callers, as over a store that tells its version, or not.

    Fails with ``query=query.original`` changed to ``query.text`` and with ``latency_ms`` in seconds, each of them both
    in ``pipeline/results.py`` and behind the shared run in ``pipeline/pipeline.py``, and with
    ``documents_after_compression`` counted before compression.
    """
    clock = FakeClock()

    class Slow(FakeEmbedder):
        async def embed_query(self, text: str) -> Vector:
            clock.advance(seconds)
            return await super().embed_query(text)

    verdicts = {f"p{n}": Judgement(n in kept, 0.9 if n in kept else 0.1) for n in range(len(PHONES))}
    asked = f"{padding}{query}{padding}"
    store = a_store() if is_shared else TroubledStore()
    filled(store)
    pipeline = RetrievalPipeline(
        store,
        Slow(),
        relevance_filter=FakeRelevanceFilter(verdicts),
        clock=clock,
        config=settings_of(deadline_seconds=None),
    )
    result = ask(pipeline, asked)
    assert {item.name for item in fields(result)} >= {"query", "hits", "formatted_context", "metadata", "latency_ms"}
    assert result.query == asked
    assert {chunk.id for chunk in result.documents} == {f"p{n}" for n in kept}
    assert all(chunk in PHONES for chunk in result.documents)
    assert result.formatted_context.count("Doc: ") == len(result.documents)
    assert all(chunk.text in result.formatted_context for chunk in result.documents)
    assert len(result.scores) == len(result.documents)
    assert all(score is not None and 0 <= score <= 1 for score in result.scores)
    assert result.metadata["query_normalized"] == query
    assert result.metadata["documents_fetched"] == len(PHONES)
    assert result.metadata["documents_after_compression"] == len(kept)
    assert result.latency_ms == approx(1000 * seconds)
    assert (result.from_cache, result.degraded, result.evaluation_scores) == (False, (), None)


TTL = 300.0


@pytest.mark.property(FEATURE, 10)
@given(
    query=st.lists(st.sampled_from(WORDS), min_size=1, max_size=4),
    later=st.sampled_from([0.0, TTL / 2, TTL - 0.001, TTL, TTL + 1]) | st.floats(0, 3 * TTL),
    bound=st.none() | st.integers(0, 300),
)
def test_cache_hit_for_repeated_queries(query: list[str], later: float, bound: int | None) -> None:
    """Within the time to live the same question gets the same documents from the cache, and none of it afterwards.

    Fails with ``now - entry.created_at >= self._ttl`` in ``cache/lru.py`` changed to ``>``, with ``from_cache=True``
    taken out of the pipeline, and with the index's version in the key made a new one each time.
    """
    clock, embedder = FakeClock(), FakeEmbedder()
    cache = MemoryCache(ttl_seconds=TTL, clock=clock)
    config = settings_of(cache__embeddings=0)
    pipeline = RetrievalPipeline(a_store(), embedder, cache=cache, config=config, clock=clock)
    filters = None if bound is None else {"price": {"$gte": bound}}
    first = ask(pipeline, " ".join(query), filters)
    clock.advance(later)
    second = ask(pipeline, "  ".join(query), filters)
    assert first.from_cache is False
    assert second.from_cache is (later < TTL)
    assert len(embedder.queries) == (1 if later < TTL else 2)
    assert second.documents == first.documents
    assert (second.scores, second.formatted_context) == (first.scores, first.formatted_context)
    assert second.query == "  ".join(query)


class Evaluates:
    """An evaluator that gives what it is told to."""

    id = "told"

    def __init__(self, scores: EvaluationScores | Exception) -> None:
        self._scores = scores

    async def evaluate(self, query: str, chunks: Sequence[Chunk], response: str) -> EvaluationScores:
        if isinstance(self._scores, Exception):
            raise self._scores
        return self._scores


@pytest.mark.property(FEATURE, 13)
@given(
    scores=st.builds(EvaluationScores, st.none() | shares, st.none() | shares),
    kind=st.sampled_from(["told", "fails", "local", "none"]),
    query=st.sampled_from(WORDS),
)
def test_evaluation_scores_inclusion(scores: EvaluationScores, kind: str, query: str) -> None:
    """With evaluation there are both scores by name, also where the evaluator fails; without it there are none.

    Fails with ``response_relevancy`` left out of ``RetrievalResult.evaluation_scores``, and with ``None`` for
    ``EvaluationScores()`` where the evaluator failed.
    """
    evaluators: dict[str, Any] = {
        "told": Evaluates(scores),
        "fails": Evaluates(ServiceConnectionError("down")),
        "local": LocalEvaluator(FakeEmbedder()),
        "none": None,
    }
    pipeline = RetrievalPipeline(
        a_store(), FakeEmbedder(), evaluator=evaluators[kind], config=settings_of(), clock=FakeClock()
    )
    result = ask(pipeline, query)
    found = result.evaluation_scores
    if kind == "none":
        assert found is None
        return
    assert found is not None
    assert found.keys() == {"context_precision", "response_relevancy"}
    if kind == "told":
        assert found == {"context_precision": scores.context_precision, "response_relevancy": scores.response_relevancy}
    if kind == "fails":
        assert set(found.values()) == {None}
        assert [item.stage for item in result.degraded] == ["evaluate"]
    if kind == "local":
        assert found["response_relevancy"] is not None
        assert 0 <= found["response_relevancy"] <= 1
