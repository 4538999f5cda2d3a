"""Contexts through the pipeline: what is read, what fails, and what is told."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from retrieval_core.config import load_config
from retrieval_core.errors import InvalidParameterError, ServiceConnectionError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.run.observe import Metrics
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder, FakeReranker
from retrieval_core.types import Chunk, PageSpan
from support.pipelines import TroubledStore, a_pipeline, filled

needs_local_model = pytest.mark.skipif(
    find_spec("onnxruntime") is None, reason="the local embedder counts: pip install 'retrieval-core[local]'"
)


def words(text: str) -> int:
    return len(text.split())


def book(chunks: int = 30) -> list[Chunk]:
    """Return the chunks of three documents, two on a page; every fifth is about the moon."""
    return [
        Chunk(
            f"{name}#{number}",
            name,
            f"{'The moon' if number % 5 == 0 else 'The sea'} is told of in part {number} of {name}. And more.",
            number,
            chunks,
            page_span=PageSpan(1 + number // 2, 1 + number // 2),
            metadata={"book": name},
        )
        for name in ("a", "b", "c")
        for number in range(chunks)
    ]


def a_context_pipeline(
    store: TroubledStore | None = None, reranker: Any = None, observer: Metrics | None = None, **settings: Any
) -> tuple[RetrievalPipeline, TroubledStore]:
    store = store or TroubledStore()
    filled(store, book())
    config = load_config(overrides={key.replace("__", "."): value for key, value in settings.items()})
    pipeline = RetrievalPipeline(
        store,
        FakeEmbedder(),
        reranker=reranker,
        observer=observer,
        config=config,
        clock=FakeClock(),
        token_counter=words,
    )
    return pipeline, store


def test_a_context_has_hits_and_neighbours_with_citations_that_match() -> None:
    pipeline, _ = a_context_pipeline(search__top_k=2, search__mode="lexical")
    with pipeline:
        pack = pipeline.context("moon")
        assert [passage.role for passage in pack.passages[:2]] == ["primary", "primary"]
        assert {passage.role for passage in pack.passages} == {"primary", "sibling", "cross_page"}
        assert pack.token_count == words(pack.context_pack) <= pack.max_tokens == 12_000
        assert all(check.matches for check in pipeline.verify(pack.sources))
        assert pack.degraded == ()
        assert [record.stage for record in pack.stages[-2:]] == ["surroundings", "assemble"]
        assert pack.citations[0].startswith("Doc: ")
        assert pack.selected_chunks[0]["role"] == "primary"


@pytest.mark.parametrize("top_k", [1, 5, 18])
def test_the_store_is_asked_as_often_for_many_hits_as_for_one(top_k: int) -> None:
    """One search a side, one read of the hits, one read of everything around them."""
    store = TroubledStore()
    pipeline, _ = a_context_pipeline(store, search__top_k=top_k, cache__kind="none")
    with pipeline:
        pack = pipeline.context("moon part")
    assert len([passage for passage in pack.passages if passage.role == "primary"]) == top_k
    assert store.calls == {"dense": 1, "lexical": 1, "fetch": 2}


def test_the_budget_may_be_given_with_the_question() -> None:
    pipeline, _ = a_context_pipeline(search__mode="lexical")
    with pipeline:
        for budget in (1, 25, 60, 300):
            pack = pipeline.context("moon", max_tokens=budget)
            assert pack.token_count <= pack.max_tokens == budget
            assert len({entry.id for entry in pack.ledger}) == len(pack.ledger)
        for wrong in (0, -1, 2.5, True, "many"):
            with pytest.raises(InvalidParameterError, match="max_tokens must be a whole number"):
                pipeline.context("moon", max_tokens=wrong)  # type: ignore[arg-type]


def test_neighbours_must_pass_the_filter_too() -> None:
    pipeline, _ = a_context_pipeline(search__mode="lexical", context__window=3)
    with pipeline:
        pack = pipeline.context("moon", {"book": "b"}, top_k=3)
        assert {passage.citation.document_id for passage in pack.passages} == {"b"}
        odd = pipeline.context("moon", {"chunk_index": {"$in": [5, 6]}}, top_k=1)
        assert [entry.id for entry in odd.ledger] == ["a#5", "a#6"]


def test_surroundings_that_cannot_be_read_are_done_without(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(TroubledStore):
        async def fetch(self, request: Any) -> Any:
            if request.ranges:
                raise ServiceConnectionError("the store is gone")
            return await super().fetch(request)

    metrics = Metrics()
    pipeline, _ = a_context_pipeline(Failing(), search__mode="lexical", observer=metrics)
    with pipeline:
        pack = pipeline.context("moon", top_k=2)
        assert [passage.role for passage in pack.passages] == ["primary", "primary"]
        assert [entry.stage for entry in pack.degraded] == ["surroundings"]
        assert metrics.snapshot().degraded == {"surroundings": 1}
        assert caplog.messages == ["surroundings: the store is gone"]
    strict, _ = a_context_pipeline(Failing(), search__mode="lexical", strict=True)
    with strict, pytest.raises(ServiceConnectionError):
        strict.context("moon", top_k=2)


def test_the_reranker_orders_results_and_contexts_and_the_trace_tells_it() -> None:
    best = "The moon is told of in part 25 of c. And more."
    reranker = FakeReranker({best: 1.0})
    pipeline, _ = a_context_pipeline(
        reranker=reranker, search__mode="lexical", search__top_k=3, reranker__weight=1.0, reranker__candidates=18
    )
    with pipeline:
        result = pipeline.retrieve("moon satellite")
        assert result.hits[0].id == "c#25"
        assert len(result.hits) == 3
        pack = pipeline.context("moon satellite")
        assert pack.passages[0].id == "c#25"
        trace = pack.trace
        assert set(trace) == {"pinecone_candidates", "rerank_results", "final_token_count", "expansion_stats"}
        assert len(trace["pinecone_candidates"]) == len(trace["rerank_results"]) == 18  # type: ignore[arg-type]
        assert trace["rerank_results"][0]["relevance_score"] == 100  # type: ignore[index,call-overload]
        beyond = [entry for entry in pack.ledger if "best chunks" in entry.reason]
        assert all(entry.outcome == "dropped" for entry in beyond)
        assert beyond
        calls = len(reranker.calls)
        pipeline.invalidate()
        pipeline.context("moon satellite")
        assert len(reranker.calls) == calls, "scores are kept"


def test_diverse_passages_are_chosen_before_they_are_reranked() -> None:
    reranker = FakeReranker()
    pipeline, _ = a_context_pipeline(reranker=reranker, search__search_type="mmr", search__top_k=3)
    with pipeline:
        assert len(pipeline.retrieve("moon").hits) == 3
    assert [len(passages) for _, passages in reranker.calls] == [3]


@needs_local_model
def test_a_pipeline_without_a_counter_uses_its_embedder() -> None:
    pipeline = a_pipeline(search__mode="lexical")
    with pipeline:
        pack = pipeline.context("bread")
    assert pack.passages[0].id == "p2"
    assert 0 < pack.token_count <= pack.max_tokens


def test_an_empty_context_says_why() -> None:
    pipeline, _ = a_context_pipeline(search__mode="lexical", context__template="a heading of five words {text}")
    with pipeline:
        assert str(pipeline.context("moon", max_tokens=5).note).endswith("fits into 5 tokens")
        assert pipeline.context("nowhere").note == "nothing was found"
        assert pipeline.context("moon").note is None


def test_a_reranker_that_failed_is_named() -> None:
    reranker = FakeReranker()
    reranker.failure = ServiceConnectionError("gone")
    pipeline, _ = a_context_pipeline(reranker=reranker, search__mode="lexical", retry__max_retries=0)
    with pipeline:
        assert reranker.id in pipeline.retrieve("moon").degraded[0].reason
