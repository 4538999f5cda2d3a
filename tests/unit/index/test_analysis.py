"""Languages, stop words and n-grams: other settings, the same promises."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any
from unicodedata import category

import pytest
import Stemmer  # pyright: ignore[reportMissingImports] - an extension module without type information
from hypothesis import example, given, settings
from hypothesis import strategies as st

from retrieval_core.errors import InvalidParameterError, MissingExtraError
from retrieval_core.text.analysis import LISTED, STOP_WORDS, Analyzer, id_of
from support.examples import times

LANGUAGES: list[str] = [*Stemmer.algorithms(), "none"]  # pyright: ignore[reportUnknownMemberType]
ANALYZERS: dict[str, Analyzer] = {}


def analyzer(**given_settings: Any) -> Analyzer:
    """Return an analyser, made once; stop words are given, so that no extra is needed."""
    made = Analyzer(**given_settings)
    return ANALYZERS.setdefault(made.id, made)


def analyzers() -> st.SearchStrategy[Analyzer]:
    return st.builds(
        analyzer,
        language=st.sampled_from(LANGUAGES),
        stop_words=st.sampled_from([[], ["the", "über", "c'est"]]),
        word_ngrams=st.integers(1, 4),
    )


WORDS = [
    "the",
    "new",
    "york",
    "user_id",
    "e-mail",
    "getName",
    "über",
    "c'est",
    "北京大学",
    "IL6",
    "rollback",
    "ที่",
    "हि",
]
TEXTS = st.one_of(
    st.text(max_size=60),
    st.text("aAbÀßﬁ İıéçğΣς½⑴ﷺ北京ก한ह-_'9.", max_size=40),
    st.lists(st.sampled_from(WORDS)).map(" ".join),
)


@settings(max_examples=times(300), deadline=None)
@given(analyzers(), TEXTS)
def test_every_term_stands_where_it_says(analysis: Analyzer, text: str) -> None:
    """With any settings, terms come in the order of their spans, and their characters alone give them again."""
    spans = list(analysis.spans(text))
    assert [term.text for term in spans] == analysis.terms(text)
    for term in spans:
        assert 0 <= term.span.start < term.span.end <= len(text)
        is_stray = category(text[term.span.start])[0] == "M"  # a vowel sign on a letter of another script
        assert is_stray or term.text in analysis.terms(text[term.span.start : term.span.end])


@settings(max_examples=times(300), deadline=None)
@given(analyzers(), TEXTS)
def test_what_is_asked_is_indexed(analysis: Analyzer, text: str) -> None:
    """With any settings, a text is found by itself; without stop words nothing is dropped but what is indexed only."""
    indexed, asked = set(analysis.terms(text)), set(analysis.query_terms(text))
    assert asked <= indexed
    assert bool(asked) == bool(indexed)


@settings(max_examples=times(300), deadline=None)
@given(analyzers(), TEXTS)
@example(Analyzer("arabic", stop_words=[]), "0-⑴_")
@example(Analyzer(), "0-⑴_")
def test_terms_are_plain_tokens(analysis: Analyzer, text: str) -> None:
    """With any settings, no term holds anything that a query language or a splitter at spaces would see."""
    for term in analysis.terms(text):
        assert term.strip("_")
        assert not set(term) & set(" \t\n\"'*():^+-{}\x00")


@settings(max_examples=times(300), deadline=None)
@given(analyzers(), TEXTS, TEXTS)
def test_highlights_are_in_order_and_apart(analysis: Analyzer, question: str, text: str) -> None:
    """With any settings, they lie inside the text, and a text highlights its own words."""
    found = analysis.highlight_spans(question, text)
    assert all(0 <= span.start < span.end <= len(text) for span in found)
    assert all(first.end < second.start for first, second in pairwise(found))
    assert bool(analysis.highlight_spans(text, text)) == bool(analysis.terms(text))


@pytest.mark.parametrize(
    ("language", "text", "terms"),
    [
        ("german", "Häuser des Hauses", ["haus", "des", "haus"]),
        ("french", "Mangées continuellement", ["mang", "continuel"]),
        ("russian", "книги книгой", ["книг", "книг"]),
        ("porter", "generously dying", ["gener", "dy"]),
        ("english", "generously dying", ["generous", "die"]),
        ("none", "Running Cafés", ["running", "cafes"]),
    ],
)
def test_languages(language: str, text: str, terms: list[str]) -> None:
    assert Analyzer(language, stop_words=[]).terms(text) == terms


def test_neighbouring_words() -> None:
    """Runs of words with white space between are terms; a question drops those that begin or end with a stop word."""
    pairs = Analyzer(word_ngrams=2)
    assert pairs.terms("New York's mayor") == ["new", "york", "s", "mayor", "new_york", "s_mayor"]
    assert pairs.query_terms("the state of the art") == ["state", "art"]
    assert pairs.query_terms("new york of old") == ["new", "york", "old", "new_york"]
    assert Analyzer(word_ngrams=3).query_terms("state of art") == ["state", "art", "state_of_art"]
    assert pairs.query_terms("to be") == ["to", "be", "to_be"]
    assert pairs.terms("a 北京 x") == ["a", "北", "京", "北京", "x", "a_北京", "北京_x"]
    assert pairs.terms("a 北京大 x")[-1] == "x"
    text = "in New York, new\nYork. New-York"
    marked = [text[span.start : span.end] for span in pairs.highlight_spans("new york", text)]
    assert marked == ["New York", "new\nYork", "New-York"]


def test_own_stop_words() -> None:
    """Case and accents do not matter, and an entry with an apostrophe is its parts."""
    own = Analyzer(stop_words=["Über", "c'est"])
    assert own.query_terms("uber c'est the vitamin") == ["the", "vitamin"]
    assert Analyzer(stop_words=[]).query_terms("What is the cat") == ["what", "is", "the", "cat"]
    assert Analyzer().query_terms("What is the cat") == ["cat"]


def test_stop_words_of_other_languages() -> None:
    """The extra has lists for eleven languages; Porter's stemmers share those of their language."""
    pytest.importorskip("bm25s")
    assert len(LISTED) == 11
    for language in LISTED:
        words = Analyzer(language)._stop_words
        assert 50 < len(words) < 400, language
        assert all(word == word.lower().strip() for word in words)
    assert Analyzer("german").query_terms("Wie ist das Wetter über der Stadt") == ["wett", "stadt"]
    assert Analyzer("dutch_porter")._stop_words == Analyzer("dutch")._stop_words
    assert Analyzer("porter")._stop_words == STOP_WORDS
    assert Analyzer("hindi")._stop_words == frozenset()


def test_a_missing_extra_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bm25s", None)
    monkeypatch.delitem(sys.modules, "bm25s.stopwords", raising=False)
    with pytest.raises(MissingExtraError, match=r"analysis\.stop_words.*\[languages\]"):
        Analyzer("german")
    Analyzer("german", stop_words=["der"])
    Analyzer("hindi")


def test_the_id_describes_the_settings() -> None:
    """The default's is as it always was; others say what differs from it."""
    assert Analyzer().id == "unicode-snowball-english-1"
    assert Analyzer("none", stop_words=[], word_ngrams=2).id == "unicode-snowball-none-1 stop_words=none word_ngrams=2"
    assert id_of("english", None, 1, "2.0.1") == "unicode-snowball2-english-1"  # which stems some words otherwise
    assert id_of("none", None, 1, "2.0.1") == "unicode-snowball-none-1"
    one, other = Analyzer(stop_words=["a", "Él"]), Analyzer(stop_words=["el", "A", "a"])
    assert one.id == other.id != Analyzer(stop_words=["a"]).id
    everything = [
        Analyzer(language, stop_words=words, word_ngrams=size).id
        for language in ("english", "porter")
        for words in (None, [], ["a"])
        for size in (1, 2)
    ]
    assert len(set(everything)) == len(everything)


@pytest.mark.parametrize(
    "wrong",
    [
        {"language": "klingon"},
        {"stop_words": "the"},
        {"word_ngrams": 0},
        {"word_ngrams": 5},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(InvalidParameterError, match=name):
        Analyzer(**wrong)
