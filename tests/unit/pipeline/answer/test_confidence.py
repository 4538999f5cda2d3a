"""How far the passages support an answer."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.pipeline.answer.attribution import confidence_in, with_support
from retrieval_core.types import (
    AnswerSentence,
    Attribution,
    Citation,
    Confidence,
    Quote,
    Relevance,
    SentenceCheck,
    Span,
    Verdict,
)
from support.plugins import approx

VERDICTS = st.none() | st.sampled_from(get_args(Verdict))


def sentences(*verdicts: Verdict | None) -> list[AnswerSentence]:
    return [
        AnswerSentence(Span(0, 2), "So", check=None if verdict is None else SentenceCheck(place, verdict))
        for place, verdict in enumerate(verdicts)
    ]


def test_the_passages_are_as_likely_to_answer_as_the_search_says() -> None:
    """There is one judgement; where there is none, there is no confidence."""
    assert confidence_in(Relevance(0.4, explanation="So.")) == Confidence(0.4, 0.4, explanation="So.")
    assert confidence_in(Relevance()) is None


def test_a_contradicted_sentence_counts_without_a_verifier() -> None:
    """Its source is taken from it, and the explanation says that the passages contradict it."""
    first, second = sentences(None, "contradicted")
    citation = Citation(1, "d", ("c",), (Quote("words"),))
    after = with_support(Confidence(0.8, 0.8), [replace(first, attributions=(Attribution(1, None, citation),)), second])
    assert (after.value, after.support) == (0.4, 0.5)
    assert after.explanation == "1 of 2 sentences of the answer have a source. The passages contradict 1."


def test_support_is_the_part_of_the_sentences_that_the_passages_support() -> None:
    """A contradicted sentence and one that is not found count as not supported; both numbers are told."""
    before = Confidence(0.8, 0.8, explanation="Before.")
    after = with_support(before, sentences("supported", "contradicted", "not_found", "supported"))
    assert after.support == 0.5
    assert after.value == approx(0.4)
    assert after.retrieval == 0.8
    told = "Before. The passages support 2 of 4 sentences of the answer and contradict 1."
    assert after.explanation == told


def test_sentences_that_say_nothing_do_not_count() -> None:
    """A heading needs no support."""
    answer = sentences("supported", "not_found")
    answer[1] = replace(answer[1], says_something=False)
    after = with_support(Confidence(0.8, 0.8), answer)
    assert after.support == 1.0
    assert after.explanation == "The passages support 1 of 1 sentence of the answer."


def test_what_was_not_looked_at_is_not_supported() -> None:
    """Where a part was verified, the rest counts as unsupported, and is told; without an answer there is no support."""
    before = Confidence(0.8, 0.8, explanation="Before.")
    after = with_support(before, sentences("supported", None))
    assert after.support == 0.5
    assert after.explanation.endswith("1 sentence could not be verified.")
    nothing = with_support(before, [])
    assert (nothing.value, nothing.support) == (0, 0)
    assert nothing.explanation == "Before. Nothing was answered."


def test_without_verification_sources_count() -> None:
    """A sentence that says something and has no source is not supported."""
    before = Confidence(0.8, 0.8, explanation="Before.")
    first, second = sentences(None, None)
    citation = Citation(1, "d", ("c",), (Quote("words"),))
    after = with_support(before, [replace(first, attributions=(Attribution(1, None, citation),)), second])
    assert (after.value, after.support) == (0.4, 0.5)
    assert after.explanation == "Before. 1 of 2 sentences of the answer have a source."


@given(st.floats(0, 1), st.lists(VERDICTS, max_size=8))
def test_support_never_raises_confidence(retrieval: float, verdicts: list[Verdict | None]) -> None:
    """The confidence in an answer is at most that in its passages, and none where nothing is supported."""
    before = Confidence(retrieval, retrieval)
    after = with_support(before, sentences(*verdicts))
    assert 0 <= after.value <= retrieval
    assert after == with_support(before, sentences(*verdicts))
    if any(verdicts) and "supported" not in verdicts:
        assert after.value == 0


@given(st.lists(VERDICTS, min_size=1, max_size=8), st.data())
def test_one_more_supported_sentence_never_lowers_confidence(
    verdicts: list[Verdict | None], data: st.DataObject
) -> None:
    """A verdict that turns into ``supported`` makes the answer no worse."""
    place = data.draw(st.sampled_from(range(len(verdicts))))
    better: list[Verdict | None] = [*verdicts[:place], "supported", *verdicts[place + 1 :]]
    looked_at: list[Verdict | None] = [verdict if verdict is not None else "not_found" for verdict in verdicts]
    values = [with_support(Confidence(0.8, 0.8), sentences(*some)).value for some in (looked_at, better)]
    assert values[0] <= values[1]
