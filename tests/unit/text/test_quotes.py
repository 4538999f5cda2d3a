"""Quotes are found, told equivalent, or not found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.text.quotes import find_quote
from support.quotes import CASES, TEXT

CHANGED = [
    ("The drug is … safe for use", "The drug is new, e.g. for adults, and not safe for use."),
    ("The drug is … safe for use", "The drug is new. It is not safe for use."),
    ("The drug is … It works", "The drug is not new. It works."),
    ("You should … use root", "You should hardly ever use root."),
    ("Das ist … erlaubt hier", "Das ist keinesfalls erlaubt hier."),
    ("это можно … удалить файл", "это можно никогда не удалить файл"),
    ("Users may … read it", "Users may under NOBODY\u2019s authority read it."),
    ("the board is 6\u2032 wide", "the board is 6\u2033 wide"),
    ("the board is 6' wide", 'the board is 6" wide'),
    ("run it with -force", "run it with `--force`"),
    (" … ".join(["a b"] * 40), "a b " * 80),
]
SAME = [
    ("The drug is new … it works", "The drug is new. It is not dear. It costs 5. But it works."),
    ("the 'version 5' is", "the “version 5” is"),
    ("6' and 6\" wide", "6\u2032 and 6\u2033 wide"),
    ("it is -- as we know -- good", "it is—as we know—good"),
]


@pytest.mark.parametrize(("quote", "text"), CHANGED)
def test_a_quote_that_says_something_else_is_not_found(quote: str, text: str) -> None:
    """Neither an omitted negation, also after an abbreviation, nor another unit or option is a matter of typography."""
    assert find_quote(quote, text) is None


@pytest.mark.parametrize(("quote", "text"), SAME)
def test_a_quote_that_says_the_same_is_equivalent(quote: str, text: str) -> None:
    """Negations in whole sentences that are left out, and other marks around or after numbers, change nothing."""
    found = find_quote(quote, text)
    assert found is not None
    assert found.verdict == "equivalent"


@pytest.mark.parametrize(("quote", "verdict"), [*CASES, ("", "not_found")])
def test_a_quote_gets_its_verdict(quote: str, verdict: str) -> None:
    """From the function that all faces use; what is equivalent comes with the words as they are."""
    found = find_quote(quote, TEXT)
    assert ("not_found" if found is None else found.verdict) == verdict
    if found is not None:
        assert all(part in TEXT for part in found.words_of(TEXT).split(" […] "))
        assert verdict != "exact" or found.words_of(TEXT) == quote


WORDS = "the port is open not closed and moon has 3 4 items of air no never".split()  # noqa: SIM905


@given(st.lists(st.sampled_from(WORDS), min_size=3, max_size=30), st.data())
def test_edits_of_words_are_never_a_match(words: list[str], data: st.DataObject) -> None:
    """A word that is replaced, put in, left out or moved gives a quote that stands there only if its words do."""
    quote = list(words)
    at = data.draw(st.integers(0, len(words) - 1))
    match data.draw(st.sampled_from(("replace", "insert", "delete", "move"))):
        case "replace":
            quote[at] = data.draw(st.sampled_from(WORDS))
        case "insert":
            quote.insert(at, data.draw(st.sampled_from(WORDS)))
        case "delete":
            del quote[at]
        case _:
            quote.insert(data.draw(st.integers(0, len(words) - 1)), quote.pop(at))
    stands = any(words[first : first + len(quote)] == quote for first in range(len(words)))
    mark = data.draw(st.sampled_from(("", "*", "`", "**", "\n")))
    text = " ".join(f"{mark}{word}{mark}" for word in words)
    assert (find_quote(" ".join(quote), text) is not None) == stands


@pytest.mark.slow
@pytest.mark.parametrize("text", ["a ", "[x](", "*_", "- \n", "[", "a-\n", "… ", "`", "e\u0301", "(", "1,", "\\", "\n"])
@pytest.mark.parametrize("quote", ["a a a b", "a a … a a … a b", "[x](x", "\n" * 1_000 + "b"])
def test_no_text_holds_it_up(text: str, quote: str) -> None:
    """A thousand times the size takes a thousand times as long: only what grows faster meets the tests' time limit."""
    find_quote(quote, text * 30_000 + "!")
