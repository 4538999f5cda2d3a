"""Questions of conversations that stand behind the one before them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from retrieval_core.adapters.transformers.heuristic import HeuristicCondenser
from retrieval_core.errors import InvalidParameterError
from retrieval_core.ports import Message, QueryContext, Transformed, Variant

FIRST = "What's the difference between Market Cap and NAV?"
HISTORY = (Message("user", FIRST), Message("assistant", "They are two things."))


def condense(query: str, history: tuple[Message, ...] = HISTORY, **settings: Any) -> Transformed:
    return asyncio.run(HeuristicCondenser(**settings).transform(query, QueryContext(history)))


@pytest.mark.parametrize("query", ["Which is more important?", "enterprise value", "one two three four five six seven"])
def test_a_short_question(query: str) -> None:
    """It is searched for behind the question before it, and as it is, with equal weight."""
    made = condense(query)
    assert made.query == f"{FIRST} {query}"
    assert made.variants == (Variant("last turn", query, weight=1),)
    assert "lean on the question before it" in made.reason


def test_a_long_question() -> None:
    """More than seven words are taken to say what they are about."""
    made = condense("What is the ideal formula to evaluate it?")
    assert made == Transformed(reason="taken to stand alone: it has 8 words")


@pytest.mark.parametrize(
    ("query", "leans"),
    [
        ("它怎么计算", True),
        ("请告诉我今年北京市居民的平均收入是多少", False),
        ("それはなぜですか", True),
        ("ｺﾉｶｲｼｬﾉｷｮﾈﾝﾉｼｭｳﾆｭｳﾊｲｸﾗﾃﾞｽｶ", False),
        ("그것은 어떻게 계산됩니까", True),
    ],
)
def test_scripts_without_spaces(query: str, leans: bool) -> None:
    """Two characters count as a word where there are no spaces between words."""
    assert (condense(query).query is not None) is leans


def test_the_last_question_counts() -> None:
    """Of several questions before, the user's last is taken; the assistant's turns are not."""
    history = (*HISTORY, Message("user", "Which is\n more important?"), Message("assistant", "It depends. " * 50))
    assert condense("Why?", history).query == "Which is more important? Why?"


def test_a_question_in_its_own_history() -> None:
    """Callers that have the question in their history already mean the one before it."""
    assert condense("Why?", (*HISTORY, Message("user", "why?"))).query == f"{FIRST} Why?"


@pytest.mark.parametrize(
    "history",
    [(), (Message("assistant", "Welcome!"),), (Message("system", "Be brief."), Message("user", "\n"))],
)
def test_nothing_was_asked_before(history: tuple[Message, ...]) -> None:
    """Without a question before it, it stays as it is."""
    assert condense("Why?", history) == Transformed()


def test_a_question_too_long_ago() -> None:
    """Only the last turns are looked at."""
    history = (*HISTORY, *[Message("assistant", "Still there?")] * 2)
    assert condense("Why?", history).query is None


def test_a_long_question_before() -> None:
    """What was pasted before does not push the question out."""
    made = condense("Why?", (Message("user", "word " * 10_000),))
    assert made.query is not None
    assert made.query.endswith("word Why?")
    assert len(made.query) < 310


def test_settings() -> None:
    """The settings are in the id, and out of their range they are errors."""
    ids = {HeuristicCondenser().id, HeuristicCondenser(words=3).id}
    assert len(ids) == 2
    assert condense("one two three four", words=3).query is None
    with pytest.raises(InvalidParameterError, match="words must be a whole number of at least 1, got 0"):
        HeuristicCondenser(words=0)
