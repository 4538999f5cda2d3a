"""How likely the passages bear on a question, and how far they support an answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.adapters.embedders.local import LocalEmbedder
from retrieval_core.adapters.rerankers.local import LocalCrossEncoder
from retrieval_core.pipeline.answer.confidence import (
    BY_BOTH,
    BY_COSINE,
    BY_WORDS,
    CALIBRATED_EMBEDDER,
    CALIBRATED_SCORER,
    Kind,
    Signals,
    curve_for,
    retrieval_confidence,
    signals_of,
    with_quotes,
    with_support,
)
from retrieval_core.text.analysis import Analyzer
from retrieval_core.types import (
    AnswerSentence,
    Attribution,
    Chunk,
    Citation,
    Confidence,
    Hit,
    Quote,
    Scores,
    SentenceCheck,
    Span,
    Verdict,
)
from support.plugins import approx

if TYPE_CHECKING:
    from collections.abc import Sequence

QUESTION = "How do I rotate the logs of a Kafka broker?"
ANALYZER = Analyzer()
COSINES = st.none() | st.floats(0, 1)
WORDS = st.lists(st.sampled_from(["rotate", "logs", "Kafka", "broker", "the", "of", "pear"]), max_size=6).map(" ".join)
TEXTS = WORDS | st.text(max_size=30)
VERDICTS = st.none() | st.sampled_from(get_args(Verdict))


def hit(text: str, *, dense: float | None = None, lexical_rank: int | None = 1, title: str | None = None) -> Hit:
    return Hit(Chunk("d#0", "d", text, title=title), 1.0, Scores(dense=dense, lexical_rank=lexical_rank))


HITS = st.lists(st.builds(hit, TEXTS, dense=COSINES, lexical_rank=st.none() | st.integers(1, 200)), max_size=12)


def confidence_of(
    hits: Sequence[Hit], question: str = QUESTION, embedder_id: str | None = CALIBRATED_EMBEDDER
) -> Confidence:
    found = retrieval_confidence(question, hits, embedder_id=embedder_id, analyzer=ANALYZER)
    assert found is not None
    return found


def signals(hits: Sequence[Hit], question: str = QUESTION, analyzer: Analyzer = ANALYZER) -> Signals:
    return signals_of(question, hits, embedder_id=CALIBRATED_EMBEDDER, analyzer=analyzer)


def sentences(*verdicts: Verdict | None) -> list[AnswerSentence]:
    return [
        AnswerSentence(Span(0, 2), "So", check=None if verdict is None else SentenceCheck(place, verdict))
        for place, verdict in enumerate(verdicts)
    ]


def test_the_curves_are_those_of_the_default_embedder() -> None:
    """With other vectors the cosines mean something else: measure anew, see ``benchmarks/abstention.py``."""
    assert LocalEmbedder().id == CALIBRATED_EMBEDDER


def test_fitting_passages_are_trusted_and_others_are_not() -> None:
    """Passages with the question's words and a high cosine are well above those with neither."""
    fitting = confidence_of([hit("To rotate logs, set the broker's Kafka log4j file.", dense=0.85)])
    foreign = confidence_of([hit("Pears ripen in a bowl of fruit.", dense=0.5, lexical_rank=9)])
    assert fitting.value > 0.85
    assert foreign.value < 0.01
    assert fitting.value == fitting.retrieval
    assert fitting.support is None


def test_nothing_found_is_no_confidence() -> None:
    """An empty result bears on nothing, and the explanation says that there is none."""
    nothing = Confidence(0.0, 0.0, explanation="Nothing was found.")
    assert retrieval_confidence(QUESTION, [], embedder_id=None, analyzer=ANALYZER) == nothing


def test_cosines_of_another_embedder_are_not_looked_at() -> None:
    """The words alone count, and the explanation says so."""
    high, low = (confidence_of([hit("rotate logs", dense=cosine)], embedder_id="other") for cosine in (0.99, 0.01))
    assert high == low
    assert "There is no calibrated cosine, so the words alone count." in high.explanation
    calibrated = confidence_of([hit("rotate logs", dense=0.99)])
    assert "no calibrated cosine" not in calibrated.explanation
    assert "The best cosine of question and passage is 0.99." in calibrated.explanation


@pytest.mark.parametrize(
    ("dense", "lexical_rank", "kind"), [(0.5, 1, "hybrid"), (0.5, None, "dense"), (None, 1, "lexical")]
)
def test_the_kind_of_search_is_told_by_the_hits(dense: float | None, lexical_rank: int | None, kind: Kind) -> None:
    """Each side leaves its mark in the scores; each kind has a curve of its own."""
    found = signals([hit("rotate", dense=dense, lexical_rank=lexical_rank)])
    assert found.kind == kind
    assert curve_for(found) is (BY_WORDS if dense is None else BY_BOTH)[kind]
    assert curve_for(replace(found, cosine=None)) is BY_WORDS[kind]


def test_words_count_by_rank_once_each_and_with_title_and_headings() -> None:
    """Three of six parts are the first hit's, two the second's, one the third's; further hits have none."""
    question = "rotate rotating Kafka the logs"  # three words by their stems, without the stop word
    held = [hit("Kafka rotates"), hit("a log", title="Kafka"), hit("pear"), hit("kafka logs rotate")]
    assert signals(held, question).coverage == approx((3 * 2 + 2 * 2 + 1 * 0) / (6 * 3))
    assert signals(held[:2], question).coverage == approx(2 / 3)
    assert signals(held[2:], question).coverage == approx((3 * 0 + 2 * 3) / (5 * 3))


def test_the_best_cosine_counts_wherever_it_stands_among_the_first_ten() -> None:
    """A reranker may put another hit first; what stands below the tenth rank does not matter."""
    hits = [hit("x", dense=0.3)] * 9
    assert signals([*hits, hit("x", dense=0.8)]).cosine == 0.8
    assert signals([*hits, hit("x", dense=0.4), hit("x", dense=0.8)]).cosine == 0.4


def test_missing_words_are_named_as_they_are_written() -> None:
    """The explanation names words of the question that none of the first three hits has, five at most."""
    told = confidence_of([hit("rotate the logs")]).explanation
    assert "The first hit holds 50% of the question's content words. Missing: Kafka, broker." in told
    many = confidence_of([hit("x"), hit("y")], "one red blue green white black cup").explanation
    assert "The first 2 hits hold 0% " in many
    assert "Missing: one, red, blue, green, white …" in many
    assert "Missing" not in confidence_of([hit("rotate Kafka broker logs")]).explanation


def test_a_question_of_stop_words_alone_rests_on_the_cosine() -> None:
    """Its words stand everywhere; without a cosine there is nothing to tell by."""
    hits = [hit("what is it about", dense=0.8)]
    found = confidence_of(hits, "What is it?")
    assert signals(hits, "What is it?").coverage is None
    assert found.retrieval == BY_COSINE.chance(signals(hits, "What is it?"))
    assert "The question has stop words alone" in found.explanation
    assert retrieval_confidence("What is it?", hits, embedder_id=None, analyzer=ANALYZER) is None
    assert retrieval_confidence("?!", hits, embedder_id=None, analyzer=ANALYZER) is None


@pytest.mark.parametrize("question", ["Как сменить пароль?", "怎么做红烧肉", "كيف أطبخ الأرز"])
def test_other_scripts_are_answered_with_a_reservation(question: str) -> None:
    """Words of other scripts are compared as in a search, and the explanation says what was measured."""
    assert signals([hit(question)], question).coverage == 1.0
    assert confidence_of([hit(question, dense=0.9)], question).explanation.endswith("on English questions only.")
    assert "English" not in confidence_of([hit("x", dense=0.9)], "Wie ändere ich mein Paßwort?").explanation


def test_terms_of_several_words_and_parts_of_words_do_not_count_twice() -> None:
    """An analysis with both finds the same coverage as one with words alone."""
    fine = Analyzer(word_ngrams=3, character_ngrams=3)
    held = [hit("rotate the logs"), hit("brokers of kafka")]
    assert signals(held, analyzer=fine) == signals(held)


@given(TEXTS, HITS, st.sampled_from([CALIBRATED_EMBEDDER, "other", None]))
def test_confidence_is_in_range_and_the_same_each_time(question: str, hits: list[Hit], embedder_id: str | None) -> None:
    """Whatever is asked and found: a value in [0, 1], or none where there is nothing to tell by."""
    found, again = (
        retrieval_confidence(question, hits, embedder_id=embedder_id, analyzer=analyzer)
        for analyzer in (ANALYZER, Analyzer())
    )
    assert found == again
    if found is None:
        assert not [word for word in ANALYZER.query_terms(f"{question} . pear") if word != "pear"]
    else:
        assert 0 <= found.value <= 0.89
        assert found.explanation


@given(TEXTS, HITS.filter(bool), st.data())
def test_a_higher_cosine_never_lowers_confidence(question: str, hits: list[Hit], data: st.DataObject) -> None:
    """Hits of the same ranks whose cosines are as high or higher are trusted as much or more."""
    before = retrieval_confidence(question, hits, embedder_id=CALIBRATED_EMBEDDER, analyzer=ANALYZER)
    raised = [
        one
        if one.scores.dense is None
        else replace(one, scores=replace(one.scores, dense=data.draw(st.floats(one.scores.dense, 1))))
        for one in hits
    ]
    after = retrieval_confidence(question, raised, embedder_id=CALIBRATED_EMBEDDER, analyzer=ANALYZER)
    assert (before is None) == (after is None)
    if before is not None and after is not None:
        assert after.value >= before.value


@given(TEXTS, HITS.filter(bool), st.lists(TEXTS, min_size=12, max_size=12))
def test_more_words_never_lower_confidence(question: str, hits: list[Hit], more: list[str]) -> None:
    """Passages that say more are trusted as much or more."""
    before = retrieval_confidence(question, hits, embedder_id=CALIBRATED_EMBEDDER, analyzer=ANALYZER)
    longer = [
        replace(one, chunk=Chunk("d#0", "d", f"{one.chunk.text} . {text}"))
        for one, text in zip(hits, more, strict=False)
    ]
    after = retrieval_confidence(question, longer, embedder_id=CALIBRATED_EMBEDDER, analyzer=ANALYZER)
    assert (before is None) == (after is None)
    if before is not None and after is not None:
        assert after.value >= before.value


def test_every_curve_rises_with_each_signal_it_has() -> None:
    """A curve has no negative slope, and is somewhere near a half in between."""
    for curve in (*BY_BOTH.values(), *BY_WORDS.values(), BY_COSINE):
        chances = [curve.chance(Signals("hybrid", step / 10, step / 10)) for step in range(11)]
        assert chances == sorted(chances)
        assert chances[0] < 0.02
        assert 0.98 * curve.most < chances[-1] <= curve.most


def test_the_curve_of_quotes_is_that_of_the_local_cross_encoder() -> None:
    """Another model's scores mean something else."""
    assert LocalCrossEncoder().id == CALIBRATED_SCORER


@given(scores=st.tuples(st.floats(0, 1), st.floats(0, 1)), coverage=st.none() | st.floats(0, 1))
def test_the_chance_of_quotes_rises_with_their_score(scores: tuple[float, float], coverage: float | None) -> None:
    """It is in [0, 1], is all that counts, and what is known of the passages stays."""
    passages = Confidence(0.8, 0.8, explanation="There are words.")
    low, high = (with_quotes(passages, score, coverage) for score in sorted(scores))
    assert 0 <= low.value <= high.value <= 1
    assert (low.support, low.retrieval) == (low.value, 0.8)
    assert low.explanation.startswith("There are words. The cross-encoder")


def test_quotes_that_nobody_judged_are_worth_no_more_than_their_passages() -> None:
    """And it is said that nobody did."""
    found = with_quotes(Confidence(0.8, 0.8), None, 0.5)
    assert (found.value, found.support) == (0.8, None)
    assert "not judged" in found.explanation


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
