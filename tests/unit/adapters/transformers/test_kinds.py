"""What each transformer that asks a language model makes of its answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from retrieval_core.adapters.transformers.decompose import QueryDecomposer
from retrieval_core.adapters.transformers.hyde import HyDEGenerator
from retrieval_core.adapters.transformers.keywords import KeywordExpander
from retrieval_core.errors import MalformedAnswerError
from retrieval_core.ports import BOTH_SIDES, QueryContext, Transformed, Variant
from retrieval_core.testing.fakes_llm import FakeLLM

QUESTION = "Is a heart attack hereditary?"


def expand(*words: Any) -> Transformed:
    return _made(KeywordExpander, {"words": [*words]})


def decompose(*questions: Any) -> Transformed:
    return _made(QueryDecomposer, {"questions": [*questions]})


def hyde(passage: Any) -> Transformed:
    return _made(HyDEGenerator, {"passage": passage})


def _made(kind: Any, answer: Any) -> Transformed:
    return asyncio.run(kind(FakeLLM([answer])).transform(QUESTION, QueryContext()))


def texts(made: Transformed) -> list[str]:
    return [variant.text for variant in made.variants]


def test_keywords() -> None:
    """The lexical side is searched for the question with the new words, which counts half; the question stays."""
    made = expand("myocardial infarction", "genetic", "familial risk")
    text = f"{QUESTION} myocardial infarction genetic familial risk"
    assert made.variants == (Variant("keywords", text, frozenset({"lexical"}), weight=0.5),)
    assert made.query is None
    assert made.reason == "further words: myocardial infarction, genetic, familial risk"


def test_words_of_the_question_are_not_repeated() -> None:
    """A term goes in if it has a word that the question lacks, each term once."""
    made = expand("Heart", "attack, hereditary!", "HEART ATTACK", "heart failure", "Genetic", "genetic.", "  genetic ")
    assert texts(made) == [f"{QUESTION} heart failure Genetic"]


@pytest.mark.parametrize("words", [(), ("", " \n", "?!"), ("heart", "attack"), ("x" * 1000,), ("word " * 100,)])
def test_no_further_words(words: tuple[str, ...]) -> None:
    """Where nothing is left that could find more, nothing is searched for beside the question."""
    made = expand(*words)
    assert (made.variants, made.reason) == ((), "no further words")


def test_too_many_words() -> None:
    """The first ten count."""
    assert texts(expand(*(f"word{number}" for number in range(5000)))) == [
        " ".join([QUESTION, *(f"word{number}" for number in range(10))])
    ]


def test_sub_questions() -> None:
    """Each is searched for on both sides, and all together count as much as the question."""
    made = decompose("What causes a heart attack?", "What is hereditary?", "Do genes matter?")
    assert [variant.kind for variant in made.variants] == ["sub-question"] * 3
    assert texts(made) == ["What causes a heart attack?", "What is hereditary?", "Do genes matter?"]
    assert all(variant.sides == BOTH_SIDES and not variant.is_passage for variant in made.variants)
    assert sum(variant.weight for variant in made.variants) == pytest.approx(1)
    assert made.reason == "3 sub-questions"
    assert made.query is None


@pytest.mark.parametrize(
    "questions",
    [
        (),
        ("What causes it?",),
        ("What causes it?", "what causes  it"),
        (QUESTION, "Is a heart attack  hereditary", "Do genes matter?"),
        ("What causes it?", "", " ", "1.", "???"),
    ],
)
def test_a_simple_question(questions: tuple[str, ...]) -> None:
    """With fewer than two that are not the question, it was simple, and is searched for alone."""
    made = decompose(*questions)
    assert (made.variants, made.reason) == ((), "the question is simple")


def test_numbers_of_a_list() -> None:
    """Marks that models put before the items of a list are no part of a question; numbers inside are."""
    made = decompose("1. What causes it?", "(2) Who has it?", "- 3 or 4 genes?", "401k plans matter?")
    assert texts(made) == ["What causes it?", "Who has it?", "3 or 4 genes?", "401k plans matter?"]


def test_too_many_and_too_long_sub_questions() -> None:
    """The first four count, and each is cut at a word."""
    made = decompose(*(f"{number} {'word ' * 5000}" for number in "abcdefgh"))
    assert len(made.variants) == 4
    assert all(len(text) <= 500 and text.endswith("word") for text in texts(made))
    assert {variant.weight for variant in made.variants} == {0.25}


def test_a_passage() -> None:
    """What is like the passage is searched for by meaning alone, as a passage, and counts half."""
    made = hyde("  Heart attacks\nrun in families. ")
    expected = Variant("passage", "Heart attacks run in families.", frozenset({"dense"}), is_passage=True, weight=0.5)
    assert made.variants == (expected,)
    assert made.query is None


def test_a_long_passage() -> None:
    """A passage is cut at a word."""
    (text,) = texts(hyde("word " * 10_000))
    assert 1900 < len(text) <= 2000
    assert text.endswith("word")


def test_a_passage_without_spaces() -> None:
    """Where there are no words to cut between, the passage is cut at its greatest length."""
    assert texts(hyde("心" * 10_000)) == ["心" * 2000]


def test_a_passage_that_repeats_the_question() -> None:
    """It would find nothing new."""
    made = hyde("is a heart attack  hereditary")
    assert (made.variants, made.reason) == ((), "the passage only repeats the question")


@pytest.mark.parametrize("passage", ["", " \n", "…", "\u200b"])
def test_no_passage(passage: str) -> None:
    """An answer without a passage is an error, and another attempt may do better."""
    with pytest.raises(MalformedAnswerError, match="hypothetical answer without words") as caught:
        hyde(passage)
    assert caught.value.service == "fake-llm"
