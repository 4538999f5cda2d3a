"""Names in a text: folded, whole words, the longest first."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.adapters.graph.knowledge import MOST_WORDS, Names, is_all_stop_words, key_of, mentions, words_of
from support.examples import times

NAMES = (
    "Albert Einstein",
    "Einstein",
    "Ulm",
    "New York",
    "New York Times",
    "argocd-server",
    "C",
    "C++",
    "C#",
    "WHO",
    "it",
    "São Paulo",
    "Straße 7",
    "爱因斯坦",
    "日",
    "日本",
    "T恤",
    "アインシュタイン",
    "अल्बर्ट आइंस्टीन",
    "Ελλάδας",
    "(a+)+$",
    "'; DROP TABLE x; --",
    "???",
)
FINDER = Names((name, number) for number, name in enumerate(NAMES))


def found(text: str) -> list[str]:
    return [NAMES[number] for number in FINDER.find(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("where was EINSTEIN born", ["Einstein"]),
        ("Albert\n Einstein's wife", ["Albert Einstein"]),
        ("Einsteinium", []),
        ("I read the New York Times in New York", ["New York Times", "New York"]),
        ("the new-york, times", ["New York Times"]),
        ("restart ArgoCD Server", ["argocd-server"]),
        ("is C++ faster than C# or c?", ["C++", "C#", "C"]),
        ("c++17", ["C"]),
        ("C++の本", ["C++"]),
        ("who said it", []),
        ("Who said it", []),
        ("sao paulo", ["São Paulo"]),
        ("SA\u0303O PAULO", ["São Paulo"]),
        ("STRASSE 7", ["Straße 7"]),
        ("爱因斯坦出生在哪里", ["爱因斯坦"]),
        ("日曜日", []),
        ("日 と 月", []),
        ("日本の首都", ["日本"]),
        ("红色T恤多少钱", ["T恤"]),
        ("ｱｲﾝｼｭﾀｲﾝとは", ["アインシュタイン"]),
        ("अल्बर्ट आइंस्टीन कौन थे", ["अल्बर्ट आइंस्टीन"]),
        ("ΕΛΛΆΔΑΣ", ["Ελλάδας"]),
        ("(a+)+$", ["(a+)+$"]),
        ("x'; drop table X", ["'; DROP TABLE x; --"]),
        ("???", []),
        ("", []),
        ("\ud800", []),
    ],
)
def test_what_is_found(text: str, expected: list[str]) -> None:
    """Case, accents, width, white space and punctuation make no difference; parts of words are not found."""
    assert found(text) == expected


def test_a_name_found_twice_counts_once() -> None:
    """Entities come in the order of the question, each once."""
    assert found("Ulm, Einstein, Ulm") == ["Ulm", "Einstein"]


def test_a_name_that_is_too_long_is_not_looked_for() -> None:
    """The work at each word is bounded, whatever names there are."""
    name = " ".join(["word"] * (MOST_WORDS + 1))
    assert Names([(name, 0)]).find(name) == []
    assert Names([(name[5:], 0)]).find(name) == [0]


texts = st.text(st.sampled_from("ab cd-. +#日本ก아éÉIT" + "who"), max_size=60) | st.text(max_size=40)
names = st.lists(st.text(st.sampled_from("ab cd-+#日本アé"), min_size=1, max_size=8), max_size=12)


def is_asian(word: str) -> bool:
    return not word.isascii() and len(word) == 1 and word != "é"


def oracle(spellings: list[str], text: str) -> list[str]:
    """Try every name at every word, the longest first."""
    keys = {" ".join(words_of(name)) for name in spellings} - {""}
    keys = {key for key in keys if not is_all_stop_words(key)}
    words = words_of(text)
    found: list[str] = []
    at = 0
    while at < len(words):
        fitting = [key.split() for key in keys if words[at : at + len(key.split())] == key.split()]
        best = max([*fitting, list[str]()], key=len)
        if best:
            found.append(" ".join(best))
        at += len(best) or 1
    return list(dict.fromkeys(found))


@settings(max_examples=times(300))
@given(spellings=names, text=texts)
def test_finding_equals_an_oracle(spellings: list[str], text: str) -> None:
    """For names of several characters, finding is the longest match at each word and nothing else."""
    spellings = [name for name in spellings if not (len(words_of(name)) == 1 and is_asian(words_of(name)[0]))]
    keys = list(dict.fromkeys(map(key_of, spellings)))
    finder = Names((name, keys.index(key_of(name))) for name in spellings)
    assert [keys[number] for number in finder.find(text)] == oracle(spellings, text)


@settings(max_examples=times(300))
@given(text=st.text(max_size=200))
def test_keys_of_any_text(text: str) -> None:
    """Any text has a key, which is its own key, whatever its case and the white space around it."""
    key = key_of(text)
    assert key_of(key) == key
    assert key_of(f" {text}\n") == key
    assert mentions(key, key) is bool(key)


@pytest.mark.parametrize(("text", "name", "expected"), [("a b c", "b c", True), ("ab c", "b", False), ("a", "", False)])
def test_mentions(text: str, name: str, *, expected: bool) -> None:
    """A name is whole words of a text."""
    assert mentions(text, name) is expected
