from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from retrieval_core.adapters.transformers.rewrite import DEFAULT_PROMPT, LLMRewriter
from retrieval_core.errors import MalformedAnswerError
from retrieval_core.ports import Completion, Rewritten
from retrieval_core.testing.fakes_llm import FakeLLM
from retrieval_core.types import Usage

ANSWER = {"reason": "It names the tower in full.", "query": "height of the Eiffel Tower in metres"}


def rewrite(llm: FakeLLM, query: str = "how tall eiffel", context: str = "", prompt: str | None = None) -> Rewritten:
    return asyncio.run(LLMRewriter(llm, prompt=prompt).rewrite(query, context))


def data_of(llm: FakeLLM) -> list[tuple[str, Any]]:
    """Return labels and values of the data, as a model that keeps to the framing reads them."""
    lines = (line.partition(": ") for line in llm.requests[0].messages[1].content.split("\n"))
    return [(label, json.loads(value)) for label, _, value in lines]


def test_other_words() -> None:
    """The new question comes with its reason and what it cost."""
    found = rewrite(FakeLLM([Completion(json.dumps(ANSWER), Usage(50, 20))]))
    assert found == Rewritten(ANSWER["query"], ANSWER["reason"], Usage(50, 20))


def test_the_request() -> None:
    """Question and findings go as data into one request with a schema."""
    llm = FakeLLM([ANSWER])
    rewrite(llm, context="[1] Paris has a tower.")
    (request,) = llm.requests
    assert data_of(llm) == [("question", "how tall eiffel"), ("found so far", "[1] Paris has a tower.")]
    assert request.messages[0].content.startswith(DEFAULT_PROMPT)
    schema: Any = request.schema
    assert schema["required"] == ["reason", "query"] == list(schema["properties"])
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize("context", ["", " \n"])
def test_without_findings(context: str) -> None:
    """Where nothing was found, nothing is said of it."""
    llm = FakeLLM([ANSWER])
    rewrite(llm, context=context)
    assert data_of(llm) == [("question", "how tall eiffel")]


def test_long_findings_are_shortened() -> None:
    """What was found never makes a request longer than its share."""
    llm = FakeLLM([ANSWER])
    rewrite(llm, context="word " * 10_000)
    assert len(data_of(llm)[1][1]) <= 4000


def test_white_space_of_the_answer() -> None:
    """Question and reason are single lines."""
    found = rewrite(FakeLLM([{"query": " height\nof the\t tower ", "reason": "a\nb"}]))
    assert (found.query, found.reason) == ("height of the tower", "a b")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"query": "", "reason": "x"}, "returned a blank question"),
        ({"query": " \n\u00a0", "reason": "x"}, "returned a blank question"),
        ({"query": None, "reason": "x"}, "query: Input should be a valid string"),
        ({"reason": "x"}, "query: Field required"),
        ({"query": "x"}, "reason: Field required"),
        ("height of the tower", "there is no object in it"),
    ],
)
def test_answers_that_are_none(answer: Any, problem: str) -> None:
    """An answer without a question is an error, and another attempt may do better."""
    with pytest.raises(MalformedAnswerError, match=problem) as caught:
        rewrite(FakeLLM([answer]))
    assert caught.value.service == "fake-llm"
    assert caught.value.can_be_retried
