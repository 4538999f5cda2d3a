from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.adapters.evaluators.local import (
    MOST_CHARACTERS,
    MOST_PASSAGES,
    Calibration,
    LocalEvaluator,
    expected_average_precision,
)
from retrieval_core.errors import EmbeddingError, InvalidParameterError
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk, EvaluationScores
from support.examples import times
from support.plugins import approx

if TYPE_CHECKING:
    from collections.abc import Sequence

CURVE = Calibration(midpoint=0.5, slope=20)
NEAR, FAR = "the train leaves at nine", "bread is baked slowly"
QUESTION = "when does the train leave"


def chunks(*texts: str) -> tuple[Chunk, ...]:
    return tuple(Chunk(f"c{number}", "d", text) for number, text in enumerate(texts))


def evaluate(
    texts: Sequence[str], response: str = "", embedder: Any = None, query: str = QUESTION, **options: Any
) -> EvaluationScores:
    evaluator = LocalEvaluator(embedder or FakeEmbedder(), **{"calibration": CURVE, **options})
    return asyncio.run(evaluator.evaluate(query, chunks(*texts), response))


class NamedLikeTheDefault(FakeEmbedder):
    @property
    def id(self) -> str:
        return "bge-small-en-v1.5-int8@0123"


def test_near_passages_first_score_higher_than_the_same_ones_last() -> None:
    """The estimate tells the order of a result."""
    first, last = evaluate([NEAR, FAR, FAR]), evaluate([FAR, FAR, NEAR])
    assert first.context_precision is not None
    assert last.context_precision is not None
    assert first.context_precision > last.context_precision > 0


def test_the_precision_is_what_the_cosines_and_the_curve_say() -> None:
    """A passage with the question's words has cosine 1, one without any has 0."""
    same, other = CURVE.probabilities(np.array([1.0, 0.0], dtype=np.float32))
    assert same == approx(1 / (1 + 2.718281828459045 ** (-10)))
    scores = evaluate([FAR, QUESTION])
    assert scores.context_precision == approx(expected_average_precision([other, same]))


def test_relevancy_is_the_cosine_of_question_and_response() -> None:
    """A response with the question's words has 1, one without any has 0."""
    assert evaluate([NEAR], response=QUESTION).response_relevancy == approx(1)
    assert evaluate([NEAR], response="bread").response_relevancy == approx(0, abs=1e-6)


def test_everything_is_embedded_in_one_bounded_call() -> None:
    """However many and long the passages are, one call embeds few and short texts."""
    embedder = FakeEmbedder()
    evaluate(["word " * 5000] * 50, response="word " * 5000, embedder=embedder)
    assert embedder.queries == []
    assert [len(batch) for batch in embedder.batches] == [MOST_PASSAGES + 2]
    assert max(map(len, embedder.batches[0])) == MOST_CHARACTERS


def test_headings_belong_to_the_passage() -> None:
    """What the passage is about may stand in its title alone."""
    embedder = FakeEmbedder()
    chunk = Chunk("c", "d", "At nine.", title="Train times")
    asyncio.run(LocalEvaluator(embedder, calibration=CURVE).evaluate(QUESTION, [chunk], ""))
    assert embedder.batches == [(QUESTION, "Train times\nAt nine.")]


def test_without_an_embedder_there_are_no_scores() -> None:
    """No number is made up, and the reason is given."""
    evaluator = LocalEvaluator(None)
    scores = asyncio.run(evaluator.evaluate(QUESTION, chunks(NEAR), NEAR))
    assert (scores.context_precision, scores.response_relevancy) == (None, None)
    assert scores.methods["context_precision"] == "not computed: there is no embedder"
    assert evaluator.id == "local-none"


def test_an_embedder_of_unknown_cosines_gives_no_precision() -> None:
    """The curve belongs to one model; the passages are then not even embedded."""
    embedder = FakeEmbedder()
    scores = evaluate([NEAR], response=NEAR, embedder=embedder, calibration=None)
    assert scores.context_precision is None
    assert "give a Calibration" in scores.methods["context_precision"]
    assert scores.response_relevancy is not None
    assert embedder.batches == [(QUESTION, NEAR)]


def test_the_default_model_brings_its_curve() -> None:
    """Its name is enough."""
    scores = evaluate([NEAR], embedder=NamedLikeTheDefault(), calibration=None)
    assert scores.context_precision is not None
    assert "expected average precision" in scores.methods["context_precision"]


def test_without_passages_and_response_nothing_is_embedded() -> None:
    """There is nothing to compare, so there are no scores and no call."""
    embedder = FakeEmbedder()
    scores = evaluate([], response=" \n", embedder=embedder)
    assert (scores.context_precision, scores.response_relevancy) == (None, None)
    assert embedder.batches == []
    assert dict(scores.methods) == {
        "context_precision": "not computed: there are no passages",
        "response_relevancy": "not computed: no response",
    }


def test_a_blank_passage_keeps_its_rank_and_is_not_embedded() -> None:
    """Some providers refuse blank texts; such a passage is not relevant."""
    embedder = FakeEmbedder()
    scores = evaluate([" ", QUESTION], embedder=embedder)
    assert embedder.batches == [(QUESTION, QUESTION)]
    assert scores.context_precision == approx(0.5, abs=0.01)


def test_a_failed_embedder_raises() -> None:
    """What to do then is for the pipeline to decide."""
    embedder = FakeEmbedder()
    embedder.failure = EmbeddingError("no")
    with pytest.raises(EmbeddingError):
        evaluate([NEAR], embedder=embedder)


def test_the_id_tells_curves_apart() -> None:
    """Two evaluators with the same id score alike."""
    embedder = FakeEmbedder()
    ids = {LocalEvaluator(embedder, calibration=curve).id for curve in (None, CURVE, Calibration(0.6, 20))}
    assert len(ids) == 3
    assert all(embedder.id in name for name in ids)


@pytest.mark.parametrize(("midpoint", "slope"), [(1.5, 1), (float("nan"), 1), (0, 0), (0, float("inf"))])
def test_a_curve_that_is_none_is_refused(midpoint: float, slope: float) -> None:
    """A cosine is in [-1, 1], and more similar means more likely."""
    with pytest.raises(InvalidParameterError, match="must be"):
        Calibration(midpoint, slope)


words = st.lists(st.sampled_from(["when", "does", "the", "train", "leave", "bread", "nine"]), max_size=6).map(" ".join)


@settings(max_examples=times(100))
@given(st.lists(words, max_size=6), words, words.filter(bool))
def test_scores_stay_in_range_and_name_their_methods(texts: list[str], response: str, query: str) -> None:
    """Each score is in [0, 1] or None, and both have a method."""
    scores = evaluate(texts, response, query=query)
    assert set(scores.methods) == {"context_precision", "response_relevancy"}
    for name, score in (
        ("context_precision", scores.context_precision),
        ("response_relevancy", scores.response_relevancy),
    ):
        assert score is None or 0 <= score <= 1
        assert (score is None) == scores.methods[name].startswith("not computed")
