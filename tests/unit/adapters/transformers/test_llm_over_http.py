"""Transformers of questions through the vendor's own SDK: what a model may answer instead, and what comes of it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("openai", reason="the extra 'openai' is not installed")

from retrieval_core.adapters.transformers.condense import LLMCondenser
from retrieval_core.adapters.transformers.decompose import QueryDecomposer
from retrieval_core.adapters.transformers.hyde import HyDEGenerator
from retrieval_core.adapters.transformers.keywords import KeywordExpander
from retrieval_core.errors import MalformedAnswerError, ServiceError
from retrieval_core.ports import Message, QueryContext, Transformed
from retrieval_core.run.outcomes import Failed, Ok
from retrieval_core.run.retry import RetryPolicy
from retrieval_core.run.runner import Guard, Run
from retrieval_core.run.threads import ThreadPool
from retrieval_core.testing.clock import FakeClock
from support.openai_service import OpenAIService
from support.openai_support import llm_of
from support.wire_server import BrokenJSON, Status, WireServer

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_RETRIES = 3
QUESTION = "Is a heart attack hereditary?"
HISTORY = (Message("user", "What is a heart attack?"), Message("assistant", "A blocked artery."))
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "keywords": (KeywordExpander, {"words": ["genetic", "myocardial infarction"]}),
    "decompose": (QueryDecomposer, {"questions": ["What causes heart attacks?", "Which causes are inherited?"]}),
    "hyde": (HyDEGenerator, {"passage": "Heart attacks run in families."}),
    "condense": (LLMCondenser, {"reason": "Nothing.", "query": "Do heart attacks run in families?"}),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def ask(
    kind: str, answer: Callable[[dict[str, Any]], str], *faults: Any, message: dict[str, Any] | None = None
) -> tuple[Ok[Transformed] | Failed, int]:
    """Transform a question as a pipeline does, over the wire; return the outcome, and how many requests there were."""
    with WireServer(OpenAIService(answer, message or {})) as server:
        server.fail(*faults)
        llm = llm_of(server)
        pool = ThreadPool("test-plugins", threads=1)
        run = Run(pool, seconds=60, clock=FakeClock(), guard=Guard(RetryPolicy(MAX_RETRIES)))
        transformer = KINDS[kind][0](llm)

        async def main() -> Ok[Transformed] | Failed:
            try:
                return await run.call("transform", transformer.transform, QUESTION, QueryContext(HISTORY))
            finally:
                await llm.aclose()

        try:
            return asyncio.run(main()), server.count()
        finally:
            pool.close()


def right(kind: str) -> str:
    return json.dumps(KINDS[kind][1])


@each_kind
def test_an_answer(kind: str) -> None:
    """One request is enough, it has a strict schema, and its cost is known."""
    asked: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> str:
        asked.append(request)
        return right(kind)

    outcome, requests = ask(kind, answer)
    assert isinstance(outcome, Ok)
    assert requests == len(asked) == 1
    assert asked[0]["response_format"]["json_schema"]["strict"] is True
    assert outcome.value.usage is not None
    assert outcome.value.usage.output_tokens > 0
    assert outcome.value.variants


BROKEN = {
    "prose": "Certainly! Here are some ideas.",
    "nothing": "",
    "truncated": '{"words": ["gen',
    "a bare list": '["genetic"]',
    "another object": '{"error": "I cannot help with that."}',
    "too much": '{"words": [], "questions": [], "passage": "", "reason": "", "query": ""}',
    "a megabyte of prose": "no " * 350_000,
}


@each_kind
@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_answer_is_asked_for_again(kind: str, broken: str) -> None:
    """The second answer counts; where none is right, there are no more requests than retries, and a failure."""
    answers = [BROKEN[broken], right(kind)]
    outcome, requests = ask(kind, lambda _request: answers.pop(0))
    assert isinstance(outcome, Ok)
    assert requests == 2
    outcome, requests = ask(kind, lambda _request: BROKEN[broken])
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, MalformedAnswerError)
    assert requests == MAX_RETRIES + 1
    assert len(outcome.reason) < 800


@each_kind
@pytest.mark.parametrize("value", [None, 7, {"a": 1}, [[1]], [None], True])
def test_values_of_another_type(kind: str, value: Any) -> None:
    """What a server that does not hold its model to the schema lets through is found here."""
    answer = json.dumps(dict.fromkeys(KINDS[kind][1], value))
    outcome, requests = ask(kind, lambda _request: answer)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, MalformedAnswerError)
    assert requests == MAX_RETRIES + 1


@each_kind
@pytest.mark.parametrize("fault", [Status(500), Status(429), BrokenJSON()])
def test_a_fault_that_passes(kind: str, fault: Any) -> None:
    """The question is asked again."""
    outcome, requests = ask(kind, lambda _request: right(kind), fault)
    assert isinstance(outcome, Ok)
    assert requests == 2


@each_kind
def test_a_refusal(kind: str) -> None:
    """Another attempt does not mend it, so there is none."""
    outcome, requests = ask(kind, lambda _request: "", message={"content": None, "refusal": "I cannot help."})
    assert isinstance(outcome, Failed)
    assert type(outcome.error) is ServiceError
    assert requests == 1
