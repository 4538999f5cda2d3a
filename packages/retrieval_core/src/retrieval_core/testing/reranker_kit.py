"""The conformance tests of rerankers, for pytest.

Subclass :class:`RerankerConformance` in a test module, and give it the reranker as a fixture::

    class TestMyReranker(RerankerConformance):
        @pytest.fixture
        def reranker(self):
            return MyReranker()

Each test uses the reranker from new event loops, so one that is slow to create can be shared by all tests.
"""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

import pytest

from retrieval_core.errors import MalformedAnswerError
from retrieval_core.ports import Reranker, as_plugin
from retrieval_core.testing.blocking import blocking_calls_fail
from retrieval_core.testing.embedder_kit import HOSTILE_TEXTS, PASSAGES, QUESTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence


class RerankerConformance:
    """The promises of :class:`~retrieval_core.ports.Reranker`, one test each.

    Attributes:
        tolerance: How far two scores of the same pair may lie apart.
    """

    tolerance: ClassVar[float] = 1e-5

    def test_one_score_for_each_passage(self, reranker: Reranker) -> None:
        """Each passage gets a number in [0, 1]."""
        assert len(_score(reranker, QUESTIONS[0], PASSAGES)) == len(PASSAGES)

    def test_no_passages(self, reranker: Reranker) -> None:
        """No passages get no scores."""
        assert _score(reranker, QUESTIONS[0], []) == ()

    def test_the_answer_scores_highest(self, reranker: Reranker) -> None:
        """For each question the passage that answers it is the best, wherever it stands."""
        for right, question in enumerate(QUESTIONS):
            scores = _score(reranker, question, PASSAGES)
            assert max(range(len(PASSAGES)), key=scores.__getitem__) == right

    def test_scores_are_in_the_order_of_the_passages(self, reranker: Reranker) -> None:
        """Reversing a list of passages reverses the scores."""
        passages = [f"{PASSAGES[number % 3]} Number {number}." for number in range(12)]
        forwards, backwards = (_score(reranker, QUESTIONS[1], texts) for texts in (passages, passages[::-1]))
        assert forwards == pytest.approx(backwards[::-1], abs=self.tolerance)

    def test_each_passage_is_scored_by_itself(self, reranker: Reranker) -> None:
        """Scoring again, alone or among other passages, changes nothing."""
        together = _score(reranker, QUESTIONS[2], PASSAGES)
        alone = [_score(reranker, QUESTIONS[2], [passage])[0] for passage in PASSAGES]
        assert together == pytest.approx(alone, abs=self.tolerance)

    def test_the_same_passage_twice(self, reranker: Reranker) -> None:
        """Equal passages get a score each, and equal ones."""
        first, _, second = _score(reranker, QUESTIONS[0], [PASSAGES[0], PASSAGES[1], PASSAGES[0]])
        assert first == pytest.approx(second, abs=self.tolerance)

    def test_a_full_batch(self, reranker: Reranker) -> None:
        """A call accepts ``batch_size`` passages, which is at least one; checked up to a hundred."""
        assert reranker.batch_size >= 1
        size = min(reranker.batch_size, 100)
        assert len(_score(reranker, QUESTIONS[0], ["Bread."] * size)) == size

    def test_hostile_texts_are_scored(self, reranker: Reranker) -> None:
        """Empty, malformed and very long texts get scores like any other, as passages and as questions."""
        assert len(_score(reranker, QUESTIONS[0], HOSTILE_TEXTS)) == len(HOSTILE_TEXTS)
        for text in HOSTILE_TEXTS:
            assert len(_score(reranker, text, PASSAGES[:1])) == 1

    def test_concurrent_calls_do_not_mix(self, reranker: Reranker) -> None:
        """Calls made at the same time give what they give one after the other."""

        async def at_once() -> list[tuple[float, ...]]:
            return await asyncio.gather(*(_scored(reranker, question, PASSAGES) for question in QUESTIONS * 3))

        expected = [_score(reranker, question, PASSAGES) for question in QUESTIONS] * 3
        for found, scores in zip(asyncio.run(at_once()), expected, strict=True):
            assert found == pytest.approx(scores, abs=self.tolerance)

    def test_the_event_loop_is_not_blocked(self, reranker: Reranker) -> None:
        """No call that blocks is made on the event loop; checked where BlockBuster is installed."""
        with blocking_calls_fail():
            _score(reranker, QUESTIONS[0], PASSAGES)

    def test_the_id_is_stable(self, reranker: Reranker) -> None:
        """The id is a name, and scoring does not change it."""
        before = reranker.id
        assert before
        _score(reranker, QUESTIONS[0], PASSAGES)
        assert reranker.id == before

    def test_evidence_stands_in_its_passage(self, reranker: Reranker) -> None:
        """Where there is evidence, there is an entry for each passage, and what is quoted stands in that one."""
        for passages in (PASSAGES[: reranker.batch_size], PASSAGES[::-1][: reranker.batch_size]):
            found = asyncio.run(as_plugin(reranker, Reranker).score(QUESTIONS[0], passages))
            for passage, evidence in zip(passages, found.evidence, strict=False):
                if evidence is not None and evidence.is_quoted:
                    assert evidence.text.strip()
                    assert _on_one_line(evidence.text) in _on_one_line(passage)

    def test_a_repair_scores_the_same_passages(self, reranker: Reranker) -> None:
        """A repair gives each passage a score, whether or not the malformed answer is known."""
        plugin = as_plugin(reranker, Reranker)
        if "repair" not in plugin.capabilities:
            pytest.skip("it does not repair")
        passages = PASSAGES[: reranker.batch_size]
        for wrong in (MalformedAnswerError("no JSON", answer=HOSTILE_TEXTS[5]), MalformedAnswerError("no answer")):
            asyncio.run(plugin.repair(QUESTIONS[0], passages, wrong))
            assert asyncio.run(plugin.repair(QUESTIONS[0], [], wrong)).scores == ()

    def test_usage(self, reranker: Reranker) -> None:
        """The usage is not negative, where it is reported."""
        usage = asyncio.run(reranker.score(QUESTIONS[0], PASSAGES[:1])).usage
        assert usage is None or (usage.input_tokens >= 0 and usage.output_tokens >= 0)


def _score(reranker: Reranker, query: str, passages: Sequence[str]) -> tuple[float, ...]:
    return asyncio.run(_scored(reranker, query, passages))


async def _scored(reranker: Reranker, query: str, passages: Sequence[str]) -> tuple[float, ...]:
    """Score passages in batches that the reranker takes; the base class checks the scores."""
    plugin, size = as_plugin(reranker, Reranker), reranker.batch_size
    parts = [passages[start : start + size] for start in range(0, max(1, len(passages)), size)]
    scores: list[float] = []
    for part in parts:
        found = await plugin.score(query, part)
        assert all(problem.strip() for problem in found.problems)
        scores += found.scores
    return tuple(scores)


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
