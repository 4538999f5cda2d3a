"""What ``retrieval answer`` prints below the text: what an answer rests on, and what it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from retrieval_core.cli.render import PROBLEMS, AnswerPrinter
from retrieval_core.pipeline.answer.attribution import with_support
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


def shown(
    capsys: pytest.CaptureFixture[str], given: Answer, *, verify: bool = False, verbose: bool = False
) -> tuple[str, str]:
    """Return what is printed at the end of an answer: standard output and standard error."""
    printer = AnswerPrinter(verify=verify, is_verbose=verbose)
    printer.take(RetrievalDone(None, PASSAGES))
    printer.end(given, [CitationCheck(source) for source in given.sources])
    printed = capsys.readouterr()
    return printed.out, printed.err


def test_a_source_that_has_changed_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """What does not match stands below its source; sources that could not be checked are said to be so."""
    AnswerPrinter().end(answer(), (CitationCheck(CITATION, ("quote 1: it moved",)),))
    output = capsys.readouterr().out
    assert "    Not verified: quote 1: it moved\n" in output
    assert "\n0/1 citations verified · " in output
    AnswerPrinter().end(answer(), None)
    assert capsys.readouterr().err == "Warning: citations could not be verified against the index\n"


def test_passages_and_answer_are_two_facts(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with what it was computed from."""
    lines = shown(capsys, answer(confidence=WHOLE))[0].splitlines()
    assert lines[-1] == "Relevance 0.89 · confidence 0.50 · 1/1 citations verified · <0.1 s"
    assert not any("sentences have a source" in line for line in lines)
    lines = shown(capsys, answer(confidence=WHOLE, latency_ms=849), verbose=True)[0].splitlines()
    assert lines[-1] == "Relevance 0.89 · confidence 0.50 · 1/1 citations verified · 0.8 s"
    assert lines[-2] == (
        "Confidence 0.50: relevance times the share of supported sentences. 5 of 9 sentences have a source."
    )


def test_quotes_are_told_with_their_relevance_only(capsys: pytest.CaptureFixture[str]) -> None:
    """So is an abstention: there is no confidence in either."""
    for confidence, kind in ((PASSAGES, "extracted"), (with_support(PASSAGES, ()), "abstained")):
        output, _ = shown(capsys, answer(kind=kind, confidence=confidence), verbose=True)
        assert f"Relevance {PASSAGES.value:.2f} · 1/1 citations verified" in output
        assert "onfidence" not in output


@pytest.mark.parametrize("more", [{"kind": "abstained"}, {"error": "answer: it has gone"}, {"text": ""}])
def test_there_is_no_confidence_in_what_is_no_answer(capsys: pytest.CaptureFixture[str], more: dict[str, Any]) -> None:
    """An abstention, a part of an answer, and none: only the passages are told of."""
    output, _ = shown(capsys, answer(confidence=replace(WHOLE, value=0.0), **more))
    assert "Relevance 0.89 ·" in output
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
    assert line in shown(capsys, answer(MOON, sentence))[0].splitlines()


def test_problems_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """What is said 98 times stands there once; after ten lines it is only said how many more there are."""
    again = AnswerSentence(Span(0, 6), "So on.")
    _, errors = shown(capsys, answer("So on.", *[again] * 98))
    assert errors == "Warning: no source: “So on.” (98 times)\n"
    others = [AnswerSentence(Span(0, 6), f"Number {number}.") for number in range(PROBLEMS)]
    _, errors = shown(capsys, answer("So on.", *others, again, again, again))
    assert errors.count("Warning: no source: “Number ") == PROBLEMS
    assert "So on." not in errors
    assert errors.endswith("Warning: 3 more sentences with problems; --json lists all\n")


@pytest.mark.parametrize("kind", ["extracted", "abstained", "without_documents", "written"])
def test_why_there_are_no_verdicts(capsys: pytest.CaptureFixture[str], kind: str) -> None:
    """Who asks for verdicts and gets none is told, once; nobody else is."""
    given = answer(kind=kind)
    assert shown(capsys, given, verify=True)[1].count("Warning: sentences not verified: only claims that") == 1
    assert "not verified" not in shown(capsys, given)[1]


def test_a_verifier_that_failed_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Its failure is a warning like any other."""
    given = answer(degraded=(Degradation("verify_answer", "the model has gone"),))
    assert shown(capsys, given, verify=True)[1] == "Warning: verification: the model has gone\n"


def test_verdicts_need_no_excuse(capsys: pytest.CaptureFixture[str]) -> None:
    """Where a sentence was looked at, that stands there, even if not all were."""
    checked = replace(SOURCED, check=SentenceCheck(0, "not_found"))
    output, errors = shown(capsys, answer(MOON, checked, SOURCED), verify=True)
    assert f"? “{MOON}” not found" in output
    assert not errors
