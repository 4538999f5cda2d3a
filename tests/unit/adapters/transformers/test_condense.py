"""Questions of conversations that a language model makes stand alone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from retrieval_core.adapters.transformers.condense import LLMCondenser
from retrieval_core.errors import MalformedAnswerError
from retrieval_core.ports import Message, QueryContext, Transformed, Variant
from retrieval_core.testing.fakes_llm import FakeLLM

HISTORY = (
    Message("user", "What is NAV?"),
    Message("assistant", "Net asset value."),
    Message("user", "Who\npublishes it?"),
    Message("assistant", "Each fund does. " * 100),
)
QUESTION = "How is it calculated?"
ANSWER = {"reason": "It is\nNAV.", "query": " How is NAV\ncalculated? "}


def condense(
    llm: FakeLLM, query: str = QUESTION, history: tuple[Message, ...] = HISTORY, **settings: Any
) -> Transformed:
    return asyncio.run(LLMCondenser(llm, **settings).transform(query, QueryContext(history)))


def said_to(llm: FakeLLM) -> list[dict[str, str]]:
    line = llm.requests[0].messages[1].content.split("\n")[0]
    return json.loads(line.removeprefix("conversation: "))


def test_a_question_that_stands_alone() -> None:
    """It takes the question's place, and the question as it was asked is searched for with half the weight."""
    made = condense(FakeLLM([ANSWER]))
    assert made.query == "How is NAV calculated?"
    assert made.variants == (Variant("last turn", QUESTION, weight=0.5),)
    assert made.reason == "It is NAV."


def test_what_the_model_sees() -> None:
    """The last three turns, oldest first, each on one line, and the assistant's cut to 200 code points."""
    llm = FakeLLM([ANSWER])
    condense(llm)
    turns = said_to(llm)
    assert [turn["by"] for turn in turns] == ["assistant", "user", "assistant"]
    assert turns[0]["text"] == "Net asset value."
    assert turns[1]["text"] == "Who publishes it?"
    assert 150 < len(turns[2]["text"]) <= 200


@pytest.mark.parametrize(
    "history",
    [(), (Message("user", " "),), (Message("system", "Be brief."),), (Message("user", QUESTION.upper()),)],
)
def test_without_a_conversation(history: tuple[Message, ...]) -> None:
    """The model is not asked; the question itself at the end of the history is no conversation."""
    llm = FakeLLM([])
    assert condense(llm, history=history) == Transformed()
    assert llm.requests == []


def test_a_question_that_stands_alone_already() -> None:
    """It stays as it is, and nothing is searched for twice."""
    made = condense(FakeLLM([{"reason": "Nothing had to be put in.", "query": "how is it  calculated"}]))
    assert (made.query, made.variants, made.reason) == (None, (), "Nothing had to be put in.")


@pytest.mark.parametrize("query", ["", " \n\u00a0", "?"])
def test_a_blank_question(query: str) -> None:
    """An answer without a question is an error, and another attempt may do better."""
    with pytest.raises(MalformedAnswerError, match="a blank question"):
        condense(FakeLLM([{"reason": "x", "query": query}]))


def test_an_endless_question() -> None:
    """What a model adds has its limit."""
    made = condense(FakeLLM([{"reason": "word " * 10_000, "query": "word " * 10_000}]))
    assert made.query is not None
    assert max(len(made.query), len(made.reason)) <= 2000
