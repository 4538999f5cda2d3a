"""From text to terms, and back to where they stand."""

from __future__ import annotations

import sys
import threading
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.text import analysis as analyzing
from retrieval_core.text.analysis import LONGEST_TERM, MOST_PARTS, Analyzer, fold, patterns, words_of
from retrieval_core.types import Span

ANALYZER = Analyzer()


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        ("Running runners ran", ["run", "runner", "ran"]),
        ("CAFÉ cafe\u0301", ["cafe", "cafe"]),
        ("Straße ﬁnd \uff21\uff42\uff43 İstanbul", ["strass", "find", "abc", "istanbul"]),
        ("user_id __init__ ___", ["user_id", "user", "id", "init"]),
        ("getUserName HTTPServer", ["getusernam", "get", "user", "name", "httpserver", "http", "server"]),
        ("IL6 IL-6", ["il6", "il", "6", "il", "6", "il6"]),
        ("e-mail e\u2011mail -x- a--b", ["e", "mail", "email", "e", "mail", "email", "x", "a", "b"]),
        ("TLS1.3", ["tls1", "tls", "1", "3"]),
        ("½ cup", ["1", "2", "cup"]),
        ("infor\u00admation", ["inform"]),
        ("don't", ["don", "t"]),
        ("北京大学", ["北", "京", "大", "学", "北京", "京大", "大学"]),
        ("第3章", ["第", "3", "章"]),
        ("ガギグ", ["ガギ", "ギグ"]),
        ("カ", ["カ"]),
        ("ที่ดี", ["ที่ดี"]),
        ("हिन्दी", ["हिन्दी"]),
        ("한국어", ["한국", "국어"]),
        ("שָׁלוֹם", ["שלום"]),
        ("a\x00b \ud800 🙂", ["a", "b"]),
        ('"x" OR y*', ["x", "or", "y"]),
    ],
)
def test_terms(text: str, terms: list[str]) -> None:
    assert ANALYZER.terms(text) == terms


@pytest.mark.parametrize(
    ("question", "terms"),
    [
        ("What is the cat doing with the cat?", ["cat", "cat"]),
        ("to be or not to be", ["to", "be", "or", "not", "to", "be"]),
        ("vitamin D", ["vitamin", "d"]),
        ("北京 茶", ["北京", "茶"]),
        ("!?", []),
    ],
)
def test_query_terms(question: str, terms: list[str]) -> None:
    assert ANALYZER.query_terms(question) == terms


def test_a_checksum_is_one_term() -> None:
    checksum = "3f2a9b1c4d5e6f7a8b9c0d1e2f3a4b5c"
    assert ANALYZER.terms(checksum) == [checksum]
    chain = "-".join("ab" for _ in range(MOST_PARTS + 1))
    assert ANALYZER.terms(chain) == ["ab"] * (MOST_PARTS + 1)


def test_long_words_are_cut() -> None:
    assert ANALYZER.terms("x" * 100_000) == ["x" * LONGEST_TERM]


@given(st.text())
def test_decomposed_text_has_the_same_terms(text: str) -> None:
    composed = normalize("NFC", text)
    assert set(ANALYZER.terms(composed)) == set(ANALYZER.terms(normalize("NFC", normalize("NFD", text))))


@given(st.text("aÀßﬁ İ北京ที่x-_9"))
def test_folding_is_idempotent(text: str) -> None:
    assert fold(fold(text)) == fold(text)


def test_highlighting_points_into_the_original() -> None:
    text = "ﬁrst the Cafe\u0301s, then IL-6; cafés"
    found = Analyzer().highlight_spans("café il6 the", text)
    assert [text[span.start : span.end] for span in found] == ["Cafe\u0301s", "IL-6", "cafés"]
    assert Analyzer().highlight_spans("北京", "东京 北京大学") == (Span(3, 5),)
    assert Analyzer().highlight_spans("zebra", text) == ()
    assert Analyzer().highlight_spans("北京大学", "在北京大学里") == (Span(1, 5),)


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analyzing, "CACHED_WORDS", 10)
    analyzer = Analyzer()
    for number in range(100):
        assert analyzer.terms(f"word{number} running") == [*ANALYZER.terms(f"word{number}"), "run"]
    assert len(analyzer._terms) <= 10


def test_threads_share_an_analyzer() -> None:
    words = [f"running{number}s jumping{number}" for number in range(300)]
    expected = [Analyzer().terms(word) for word in words]
    analyzer, faults = Analyzer(), list[int]()

    def work() -> None:
        for position, word in enumerate(words):
            if analyzer.terms(word) != expected[position]:
                faults.append(position)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert faults == []


@given(st.text("ab1_- .\n\x00\x1c~", max_size=30) | st.text(st.characters(max_codepoint=127)) | st.text())
def test_words_of_plain_text_are_found_another_way(text: str) -> None:
    """The short way for ASCII gives what the pattern for all scripts gives."""
    assert words_of(text) == patterns().word.findall(text)
