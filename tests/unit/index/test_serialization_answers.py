"""Answers and their events as JSON: the keys that are documented, and lines that any reader can take apart."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.cli.common import print_json_line
from retrieval_core.index.serialization import answer_to_json, citation_to_json, event_to_json
from retrieval_core.types import (
    Answer,
    AnswerChunk,
    AnswerDone,
    AnswerFailed,
    AnswerSentence,
    Attribution,
    Citation,
    CitationCheck,
    Confidence,
    ContextPack,
    ContextPassage,
    Degradation,
    Fallback,
    PageSpan,
    Quote,
    RetrievalDone,
    SentenceCheck,
    SentenceCited,
    SentenceVerified,
    Span,
    StageRecord,
    Usage,
)

if TYPE_CHECKING:
    pass

CITATION = Citation(
    2, "guide.pdf", ("guide.pdf#3",), (Quote("Turn the key.", Span(10, 23)),), "docs/guide.pdf", "Guide", PageSpan(3, 4)
)
SENTENCE = AnswerSentence(
    Span(0, 21),
    "Turn the key. [2] [7]",
    attributions=(Attribution(2, Span(14, 17), CITATION), Attribution(7, Span(18, 21), problem="unknown")),
)
CHECK = SentenceCheck(0, "supported", 2, Quote("Turn the key.", Span(10, 23)), "It says so.")
PASSAGE = ContextPassage("guide.pdf#3", "primary", "Turn the key.", CITATION, (), "guide.pdf#3", 9)
PACK = ContextPack("How?", (PASSAGE,), "Turn the key.", (), 9, 100)
ANSWER = Answer(
    query="How?",
    text="Turn the key. [2] [7]",
    kind="written",
    sentences=(AnswerSentence(SENTENCE.span, SENTENCE.text, attributions=SENTENCE.attributions, check=CHECK),),
    pack=PACK,
    confidence=Confidence(0.8, 0.8, 1.0, "It was found."),
    fallbacks=(Fallback("dense", "search: out of order"),),
    error="answer: it broke off",
    degraded=(Degradation("answer", "it broke off"),),
    stages=(StageRecord("answer", 2.0, usage=Usage(3, 4)),),
    latency_ms=1.23456,
)
QUOTE = {"text": "Turn the key.", "span": [10, 23], "content_hash": CITATION.quotes[0].content_hash, "lines": None}


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


def test_a_citation() -> None:
    """Where it is from, in parts and as one line, and its quotes with spans and hashes."""
    assert as_json(citation_to_json(CITATION)) == {
        "number": 2,
        "document_id": "guide.pdf",
        "chunk_ids": ["guide.pdf#3"],
        "source": "docs/guide.pdf",
        "title": "Guide",
        "section_path": [],
        "page_span": [3, 4],
        "row_range": None,
        "item_range": None,
        "lines": None,
        "quotes": [QUOTE],
        "citation": "Doc: guide.pdf | Page: 3-4",
    }


def test_each_event() -> None:
    """Exactly these keys, the type first; a piece of the text is what the specification has."""
    assert event_to_json(AnswerChunk("Turn ")) == {"type": "answer_chunk", "content": "Turn "}
    assert event_to_json(Fallback("dense", "gone")) == {"type": "fallback", "step": "dense", "reason": "gone"}
    assert event_to_json(AnswerFailed("answer", "ServiceError", "gone")) == {
        "type": "error",
        "stage": "answer",
        "error": "ServiceError",
        "reason": "gone",
    }
    assert as_json(event_to_json(SentenceVerified(CHECK))) == {
        "type": "verification",
        "sentence": 0,
        "verdict": "supported",
        "passage": 2,
        "quote": QUOTE,
        "reason": "It says so.",
    }
    assert as_json(event_to_json(SentenceCited(5, SENTENCE))) == {
        "type": "citation",
        "index": 5,
        "text": "Turn the key. [2] [7]",
        "span": [0, 21],
        "says_something": True,
        "needs_source": False,
        "attributions": [
            {"number": 2, "marker": [14, 17], "problem": None, "citation": as_json(citation_to_json(CITATION))},
            {"number": 7, "marker": [18, 21], "problem": "unknown", "citation": None},
        ],
    }


def test_the_passages() -> None:
    """What was found, as citations with role and score; nothing where nothing could be searched."""
    told = as_json(event_to_json(RetrievalDone(PACK, Confidence(0.5, 0.5))))
    assert told == {
        "type": "retrieval_done",
        "searched": True,
        "passages": [{**as_json(citation_to_json(CITATION)), "role": "primary", "score": None, "shortened": False}],
        "note": None,
        "relevance": None,
        "confidence": {"value": 0.5, "retrieval": 0.5, "support": None, "explanation": ""},
    }
    assert event_to_json(RetrievalDone(None)) == {
        "type": "retrieval_done",
        "searched": False,
        "passages": [],
        "note": None,
        "relevance": None,
        "confidence": None,
    }


def test_a_whole_answer() -> None:
    """The end of a stream has everything that came before, and what the check of the sources came to."""
    told = as_json(event_to_json(AnswerDone(ANSWER), (CitationCheck(CITATION, ("it moved",)),)))
    assert told.keys() == {"type", "answer"}
    answer = told["answer"]
    assert answer == {
        "query": "How?",
        "text": "Turn the key. [2] [7]",
        "kind": "written",
        "sentences": answer["sentences"],
        "sources": [as_json(citation_to_json(CITATION))],
        "searched": True,
        "passages": as_json(event_to_json(RetrievalDone(PACK)))["passages"],
        "note": None,
        "relevance": None,
        "confidence": {"value": 0.8, "retrieval": 0.8, "support": 1.0, "explanation": "It was found."},
        "fallbacks": [{"step": "dense", "reason": "search: out of order"}],
        "error": "answer: it broke off",
        "degraded": [{"stage": "answer", "reason": "it broke off"}],
        "stages": answer["stages"],
        "usage": {"input_tokens": 3, "output_tokens": 4},
        "latency_ms": 1.235,
        "checks": [{"number": 2, "matches": False, "differences": ["it moved"], "verdict": "not_found"}],
    }
    cited, checked = event_to_json(SentenceCited(0, SENTENCE)), event_to_json(SentenceVerified(CHECK))
    (sentence,) = answer["sentences"]
    assert {**sentence, "type": "verification"}["check"] == {k: v for k, v in as_json(checked).items() if k != "type"}
    assert {k: v for k, v in sentence.items() if k != "check"} == {
        k: v for k, v in as_json(cited).items() if k not in {"type", "index"}
    }
    assert "checks" not in answer_to_json(ANSWER)


@pytest.mark.parametrize("text", ["\x1b[31m", "\x9b31m", "\u202edlo", "a\nb\u2028c\x85", "\ud800", "naïve 東京"])
def test_a_line_is_one_line_that_steers_nothing(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever is in a text, its line parses to it, and has no character that a terminal could obey."""
    print_json_line(event_to_json(AnswerChunk(text)))
    line = capfd.readouterr().out
    assert json.loads(line) == {"type": "answer_chunk", "content": text}
    assert line.endswith("}\n")
    assert len(line.splitlines()) == 1
    assert line[:-1].isprintable()
