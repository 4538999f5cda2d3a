"""What ``retrieval answer`` prints below the text: what an answer rests on, and what it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from retrieval_core.cli.render_answer import PROBLEMS, AnswerPrinter
from retrieval_core.pipeline.answer.confidence import with_support
from retrieval_core.types import (
    Answer,
    AnswerSentence,
    Attribution,
    Citation,
    CitationCheck,
    Confidence,
    Degradation,
    Quote,
    RetrievalDone,
    SentenceCheck,
    Span,
)

MOON = "The moon is 384,400 km away."
CITATION = Citation(1, "moon.md", ("moon.md#0",), (Quote(MOON, Span(0, len(MOON))),))
SOURCED = AnswerSentence(Span(0, len(MOON)), MOON, attributions=(Attribution(1, None, CITATION),))
PASSAGES = Confidence(0.89, 0.89, explanation="The first 3 hits hold 75% of it.")
WHOLE = replace(
    PASSAGES, value=0.5, support=0.56, explanation=f"{PASSAGES.explanation} 5 of 9 sentences have a source."
)


def answer(said: str = MOON, *sentences: AnswerSentence, **more: Any) -> Answer:
    given: dict[str, Any] = {"text": said, "kind": "written", "sentences": sentences or (SOURCED,), **more}
    return Answer("how far", **given)


def shown(capsys: pytest.CaptureFixture[str], given: Answer, *, verify: bool = False) -> str:
    """Return what is printed at the end of an answer whose passages were told before."""
    printer = AnswerPrinter(verify=verify)
    printer.take(RetrievalDone(None, PASSAGES))
    printer.end(given, [CitationCheck(source) for source in given.sources])
    return capsys.readouterr().out


def test_a_source_that_has_changed_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """What does not match stands below its source; sources that could not be checked are said to be so."""
    AnswerPrinter().end(answer(), (CitationCheck(CITATION, ("quote 1: it moved",)),))
    output = capsys.readouterr().out
    assert "does not match the index: quote 1: it moved" in output
    assert "quotes of 0 of 1 sources are unchanged in the index" in output
    AnswerPrinter().end(answer(), None)
    assert "the sources could not be checked" in capsys.readouterr().out


def test_passages_and_answer_are_two_facts(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with what it was computed from."""
    lines = shown(capsys, answer(confidence=WHOLE)).splitlines()
    assert "Relevance: 0.89 (The first 3 hits hold 75% of it.)" in lines
    assert "Confidence in the answer: 0.50 (5 of 9 sentences have a source.)" in lines
    assert "quotes of 1 of 1 sources are unchanged in the index, 0 ms" in lines


def test_quotes_are_told_with_their_relevance_only(capsys: pytest.CaptureFixture[str]) -> None:
    """An abstention says that nothing was answered."""
    output = shown(capsys, answer(kind="extracted", confidence=PASSAGES))
    assert f"Relevance: {PASSAGES.value:.2f} (" in output
    assert "onfidence" not in output
    assert "Nothing was answered" not in output
    assert "\nNothing was answered.\n" in shown(capsys, answer(kind="abstained", confidence=with_support(PASSAGES, ())))


@pytest.mark.parametrize("more", [{"kind": "abstained"}, {"error": "answer: it has gone"}, {"text": ""}])
def test_there_is_no_confidence_in_what_is_no_answer(capsys: pytest.CaptureFixture[str], more: dict[str, Any]) -> None:
    """An abstention, a part of an answer, and none: only the passages are told of."""
    output = shown(capsys, answer(confidence=replace(WHOLE, value=0.0), **more))
    assert "Relevance: 0.89" in output
    assert "onfidence" not in output


@pytest.mark.parametrize(
    ("document", "title", "line"),
    [
        ("reviews.csv#10", "A phone\nfor  hikers", "[1] Doc: reviews.csv#10 | Rows: 10 | Title: A phone for hikers"),
        ("reviews.csv#10", "Reviews", "[1] Doc: reviews.csv#10 | Rows: 10"),
        ("reviews.csv#10", " ", "[1] Doc: reviews.csv#10 | Rows: 10"),
        ("a.csv#1", f"{'word ' * 40}\x1b[31m", f"[1] Doc: a.csv#1 | Rows: 10 | Title: {('word ' * 24)}…"),
    ],
)
def test_titles_stand_beside_documents(
    capsys: pytest.CaptureFixture[str], document: str, title: str, line: str
) -> None:
    """Where they say something that is not there already; on one line, not too long, and without control characters."""
    source = replace(CITATION, document_id=document, title=title, row_range=(10, 10))
    sentence = replace(SOURCED, attributions=(Attribution(1, None, source),))
    assert line in shown(capsys, answer(MOON, sentence)).splitlines()


def test_numbers_of_the_documents_are_no_citations(capsys: pytest.CaptureFixture[str]) -> None:
    """Below quotes that bring numbers in brackets along, it is said whose these are; below others, it is not."""
    told = "Other numbers in brackets are the documents' own."
    for quote, is_told in (("On all continents except Antarctica.[5]", True), ("On all continents.", False)):
        marker = Span(len(quote) + 1, len(quote) + 4)
        text = f"{quote} [1]"
        sentence = AnswerSentence(Span(0, len(text)), text, attributions=(Attribution(1, marker, CITATION),))
        output = shown(capsys, answer(text, sentence, kind="extracted"))
        assert "Extracted from the passages; no language model is configured." in output
        assert (told in output) is is_told


def test_problems_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """What is said 98 times stands there once; after ten lines it is only said how many more there are."""
    again = AnswerSentence(Span(0, 6), "So on.")
    output = shown(capsys, answer("So on.", *[again] * 98))
    assert [line for line in output.splitlines() if line.startswith("!")] == [
        "! no source: “So on.” (and 97 more like it)"
    ]
    assert "--json" not in output
    others = [AnswerSentence(Span(0, 6), f"Number {number}.") for number in range(PROBLEMS)]
    output = shown(capsys, answer("So on.", *others, again, again, again))
    assert output.count("! no source: “Number ") == PROBLEMS
    assert "So on." not in output
    assert "… and 3 more; --json has all\n" in output


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"kind": "extracted"}, "the answer consists of quotes"),
        ({"kind": "abstained"}, "nothing was answered"),
        ({"kind": "without_documents"}, "there are no passages to hold the answer against"),
        ({"error": "answer: it has gone"}, "the answer is not complete"),
        ({"degraded": (Degradation("verify_answer", "the model\nhas gone"),)}, "the model has gone"),
        ({"sentences": (replace(SOURCED, says_something=False),)}, "no sentence says what could be verified"),
    ],
)
def test_why_there_are_no_verdicts(capsys: pytest.CaptureFixture[str], more: dict[str, Any], why: str) -> None:
    """Who asks for verdicts and gets none is told why, once; nobody else is."""
    assert shown(capsys, answer(**more), verify=True).splitlines().count(f"Not verified: {why}.") == 1
    assert "Not verified" not in shown(capsys, answer(**more))


def test_verdicts_need_no_excuse(capsys: pytest.CaptureFixture[str]) -> None:
    """Where a sentence was looked at, that stands there, even if not all were."""
    checked = replace(SOURCED, check=SentenceCheck(0, "not_found"))
    output = shown(capsys, answer(MOON, checked, SOURCED), verify=True)
    assert f"? “{MOON}” not found" in output
    assert "Not verified" not in output
