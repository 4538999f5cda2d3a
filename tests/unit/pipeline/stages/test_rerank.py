"""Putting hits into a better order."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from retrieval_core.config import RerankerConfig
from retrieval_core.errors import ServiceConnectionError
from retrieval_core.pipeline.stages.rerank import RerankCache, rerank
from retrieval_core.pipeline.stages.state import JudgedHits
from retrieval_core.ports import Reranker, RerankScores, as_plugin
from retrieval_core.run.runner import Run
from retrieval_core.run.threads import ThreadPool
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeReranker
from retrieval_core.types import Chunk, Degradation, Evidence, Hit, Scores

if TYPE_CHECKING:
    from collections.abc import Sequence


TEXTS = ("alpha", "beta", "gamma", "delta")
HITS = tuple(
    Hit(Chunk(text, "d", text), 1 - position / 10, Scores(fused=1 - position / 10, final=1 - position / 10))
    for position, text in enumerate(TEXTS)
)


class Scripted(Reranker):
    """A reranker that answers what it was given."""

    id = "scripted"
    batch_size = 10

    def __init__(self, answer: object, name: str = "scripted") -> None:
        self.id = name
        self.answer = answer

    async def _score(self, query: str, passages: Sequence[str]) -> RerankScores:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[return-value]


def reranked(
    *chain: Reranker, hits: Sequence[Hit] = HITS, cache: RerankCache | None = None, **settings: object
) -> tuple[JudgedHits, Run]:
    pool = ThreadPool("test", threads=1)
    run = Run(pool, clock=FakeClock())
    plugins = [as_plugin(each, Reranker) for each in chain]
    config = RerankerConfig.model_validate({"kind": "local", "weight": 1.0, **settings})
    try:
        return asyncio.run(rerank(run, plugins, "question", hits, config, cache=cache)), run
    finally:
        pool.close()


def order(result: JudgedHits) -> list[str]:
    assert all(first.score >= second.score for first, second in pairwise(result.hits))
    assert all(hit.score == hit.scores.final for hit in result.hits)
    return [hit.id for hit in result.hits]


def test_with_a_weight_of_one_the_scores_stand_and_equal_ones_keep_their_order() -> None:
    result, run = reranked(FakeReranker({"alpha": 0.1, "beta": 0.5, "gamma": 0.9, "delta": 0.5}))
    assert order(result) == ["gamma", "beta", "delta", "alpha"]
    assert [hit.scores.rerank for hit in result.hits] == [0.9, 0.5, 0.5, 0.1]
    assert [hit.score for hit in result.hits] == [0.9, 0.5, 0.5, 0.1]
    assert result.failures == ()
    assert [record.stage for record in run.records] == ["rerank", "rerank"]


def test_a_blend_weighs_the_reciprocal_rank_against_the_first_stage() -> None:
    """Standardised by hand: 1, 1/2, 1/3 and 1/4 against 1, .9, .8 and .7, in the opposite order."""
    scores = {"alpha": 0.1, "beta": 0.2, "gamma": 0.3, "delta": 0.4}
    result, _ = reranked(FakeReranker(scores), weight=0.5)
    ranks, first = [1 / 4, 1 / 3, 1 / 2, 1.0], [1.0, 0.9, 0.8, 0.7]

    def standardized(values: list[float]) -> list[float]:
        mean = sum(values) / 4
        deviation = (sum((value - mean) ** 2 for value in values) / 4) ** 0.5
        return [(value - mean) / deviation for value in values]

    expected = [(a + b) / 2 for a, b in zip(standardized(ranks), standardized(first), strict=True)]
    found = {hit.id: hit.score for hit in result.hits}
    assert [found[text] for text in TEXTS] == pytest.approx(expected)
    order(result)
    unmoved, _ = reranked(FakeReranker(scores), weight=0.0)
    assert order(unmoved) == list(TEXTS)


def test_hits_beyond_the_candidates_follow_in_their_order() -> None:
    result, _ = reranked(FakeReranker({"alpha": 0.1, "beta": 0.5}), candidates=2)
    assert order(result) == ["beta", "alpha", "gamma", "delta"]
    assert [hit.scores.rerank for hit in result.hits] == [0.5, 0.1, None, None]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (RerankScores((1.0, float("nan"), 0.5, 0.5)), "no tuple of numbers from 0 to 1"),
        (RerankScores((1.0, float("inf"), 0.5, 0.5)), "no tuple of numbers from 0 to 1"),
        (RerankScores((1.0, 0.5)), "2 scores for 4 passages"),
        (RerankScores(("a", "b", "c", "d")), "no tuple of numbers from 0 to 1"),  # type: ignore[arg-type]
        (RerankScores((1.0,) * 4, evidence=(None,)), "evidence on 1 of 4"),
        ([1, 2, 3, 4], "which is no RerankScores"),
        (RerankScores((1.0, 10**400, 0.5, 0.5)), "no tuple of numbers from 0 to 1"),
        (RerankScores((1.0, -0.1, 0.5, 0.5)), "no tuple of numbers from 0 to 1"),
        (RerankScores((True, 0.1, 0.5, 0.5)), "no tuple of numbers from 0 to 1"),
        (RerankScores({0.1, 0.2, 0.3, 0.4}), "no tuple of numbers from 0 to 1"),  # type: ignore[arg-type]
        (RerankScores((0.1,) * 4, evidence=("a",) * 4), "no tuple of Evidence"),  # type: ignore[arg-type]
        (RerankScores((0.1,) * 4, problems="abc"), "no tuple of texts"),  # type: ignore[arg-type]
        (ServiceConnectionError("gone"), "gone"),
    ],
)
def test_the_next_of_the_chain_stands_in_and_then_the_first_stage(answer: object, problem: str) -> None:
    result, _ = reranked(Scripted(answer), FakeReranker({"beta": 1.0}))
    assert order(result)[0] == "beta"
    assert problem in result.failures[0].reason
    alone, _ = reranked(Scripted(answer))
    assert order(alone) == list(TEXTS)
    assert alone.hits == HITS
    assert len(alone.failures) == 1


def test_scores_that_are_all_the_same_say_nothing() -> None:
    for weight in (0.3, 1.0):
        result, run = reranked(Scripted(RerankScores((0.5,) * 4)), weight=weight)
        assert order(result) == list(TEXTS)
        assert "the order stays" in str(run.records[-1].decision)
        assert [hit.scores.rerank for hit in result.hits] == [0.5] * 4


def test_evidence_and_problems_are_handed_on() -> None:
    evidence = (Evidence(answers=True, text="alp", is_quoted=True), None, None, None)
    scores = RerankScores((0.1, 0.2, 0.3, 0.4), evidence=evidence, problems=("one was missing",))
    result, _ = reranked(Scripted(scores))
    assert [hit.evidence for hit in result.hits] == [None, None, None, evidence[0]]
    assert result.degraded == (Degradation("rerank", "one was missing"),)


def test_evidence_on_some_of_the_batches_is_kept() -> None:
    class Half(FakeReranker):
        async def _score(self, query: str, passages: Sequence[str]) -> RerankScores:
            scores = await super()._score(query, passages)
            found = Evidence(answers=True, text=passages[0], is_quoted=True)
            return RerankScores(scores.scores, evidence=(found,) if "beta" in passages else ())

    result, _ = reranked(Half({"beta": 1.0}, batch_size=1))
    assert [hit.evidence is not None for hit in result.hits] == [True, False, False, False]


def test_scores_are_kept_by_question_ids_and_contents() -> None:
    cache, reranker = RerankCache(10, lambda: 0.0), FakeReranker({"beta": 1.0})
    for _ in range(2):
        result, _ = reranked(reranker, cache=cache)
        assert order(result)[0] == "beta"
    assert len(reranker.calls) == 1
    changed = (Hit(Chunk("alpha", "d", "another text"), 1.0, Scores(final=1.0)), *HITS[1:])
    reranked(reranker, hits=changed, cache=cache)
    assert len(reranker.calls) == 2
    failing = Scripted(ServiceConnectionError("gone"), name="another")
    reranked(failing, cache=cache)
    assert len(cache) == 2, "what failed is not kept"
    partly = Scripted(RerankScores((0.1, 0.2, 0.3, 0.4), problems=("one was missing",)), name="a third")
    reranked(partly, cache=cache)
    assert len(cache) == 2, "what had to be mended is asked for again"


def test_nothing_is_asked_about_no_hits() -> None:
    reranker = FakeReranker()
    result, _ = reranked(reranker, hits=())
    assert result.hits == ()
    assert reranker.calls == []
