"""Holding answers against their passages through the vendor's own SDK: structured requests, and what fails of them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("openai", reason="the extra 'openai' is not installed")

from retrieval_core.adapters.verifiers.llm import LLMVerifier
from retrieval_core.testing.clock import FakeClock
from support.answers import QUESTION, ROLLED_BACK, an_answering_pipeline, check_stream, kinds
from support.answers import events_of as all_of
from support.openai_service import KEY, OpenAIService, error
from support.openai_support import llm_of
from support.wire_server import BrokenJSON, ClosedMidBody, EmptyBody, Hang, Status, WireServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core.pipeline import RetrievalPipeline
    from retrieval_core.types import AnswerEvent
    from support.wire_server import Fault

SAID = f"{ROLLED_BACK} Bread is baked for fifty minutes [1]."
QUOTE = "Roll back an application"
SUPPORTED = {"passage": 1, "quote": QUOTE, "reason": "The passage says so.", "verdict": "supported"}
NOT_FOUND = {"passage": 0, "quote": "", "reason": "Nothing of the kind.", "verdict": "not_found"}
VERDICTS = json.dumps({"1": SUPPORTED, "2": NOT_FOUND})


class Judge:
    """A model that writes when it streams, and otherwise says what a script says, the last entry for ever."""

    def __init__(self, *script: str) -> None:
        self.script = list(script)

    def __call__(self, asked: dict[str, Any]) -> str:
        if asked.get("stream"):
            return SAID
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]


def checking(server: WireServer, **settings: Any) -> RetrievalPipeline:
    """Return a pipeline whose answers are written and verified by the server's model."""
    llm = llm_of(server)
    return an_answering_pipeline(
        llm, verifier=LLMVerifier(llm), answer__verify=True, search__top_k=1, breaker__failures=0, **settings
    )


def requests_of(server: WireServer) -> list[dict[str, Any]]:
    """Return the requests for a verdict."""
    return [asked for request in server.requests if not (asked := request.json()).get("stream")]


def test_each_sentence_is_judged_in_one_request_with_a_strict_schema() -> None:
    """Sentences go without their marks, the schema asks for each by its number, and the verdicts are told."""
    with WireServer(OpenAIService(Judge(VERDICTS))) as server:
        events = all_of(checking(server))
        assert server.count() == 2
    [asked] = requests_of(server)
    wanted = asked["response_format"]["json_schema"]
    assert wanted["strict"] is True
    assert wanted["schema"]["required"] == ["1", "2"]
    shown = asked["messages"][1]["content"]
    assert f'sentence 1: "{ROLLED_BACK.replace(" [1]", "")}"' in shown
    assert "[1]" not in shown
    answer = check_stream(events)
    assert kinds(events)[-2:] == ["verification", "done"]
    first, second = (sentence.check for sentence in answer.sentences)
    assert first is not None
    assert second is not None
    assert (first.verdict, first.passage) == ("supported", 1)
    assert first.quote is not None
    assert first.quote.text == QUOTE
    assert second.verdict == "not_found"
    assert answer.confidence is not None
    assert answer.confidence.support == pytest.approx(0.5)


@pytest.mark.parametrize(
    "broken",
    [
        "Sure! Here are the verdicts.",
        VERDICTS[:-1],
        json.dumps({"1": SUPPORTED}),
        json.dumps({"1": SUPPORTED, "2": NOT_FOUND, "3": NOT_FOUND}),
        json.dumps({"1": SUPPORTED, "2": {**NOT_FOUND, "verdict": "perhaps"}}),
        json.dumps({"1": SUPPORTED, "2": {"verdict": "not_found"}}),
    ],
)
def test_verdicts_that_cannot_be_used_are_asked_for_again(broken: str) -> None:
    """A slip of the model is mended by asking again, and the answer is written once."""
    with WireServer(OpenAIService(Judge(broken, VERDICTS))) as server:
        answer = check_stream(all_of(checking(server)))
    assert [sentence.check is not None for sentence in answer.sentences] == [True, True]
    assert (answer.error, answer.degraded) == (None, ())
    assert (len(requests_of(server)), server.count()) == (2, 3)


def test_a_quote_that_stands_nowhere_supports_nothing() -> None:
    """What a model makes up is not found, whatever it says, and the request is not repeated."""
    invented = json.dumps({"1": {**SUPPORTED, "quote": "Undo is one click away"}, "2": {**SUPPORTED, "passage": 9}})
    with WireServer(OpenAIService(Judge(invented))) as server:
        answer = check_stream(all_of(checking(server)))
    checks = [sentence.check for sentence in answer.sentences]
    assert [check.verdict for check in checks if check is not None] == ["not_found", "not_found"]
    assert len(requests_of(server)) == 1


UNAUTHORISED = error(401, f"Incorrect API key provided: {KEY}.", "invalid_api_key").body


@pytest.mark.parametrize(
    ("fault", "attempts", "words"),
    [
        (Status(500), 3, "status 500"),
        (Status(429, 1), 3, "status 429"),
        (Status(401, body=UNAUTHORISED), 1, "status 401"),
        (Status(400), 1, "status 400"),
        (ClosedMidBody(), 3, "the connection to 127.0.0.1"),
        (BrokenJSON(), 3, "not JSON"),
        (EmptyBody(), 3, "not JSON"),
    ],
)
def test_a_judge_that_fails_leaves_the_answer(fault: Fault, attempts: int, words: str) -> None:
    """The answer stays whole, the failure is listed without the key, and nothing is said of the sentences."""
    with WireServer(OpenAIService(Judge(VERDICTS))) as server:
        events = _with_faults_behind_the_answer(server, lambda: server.fail_always(fault), retry__max_retries=2)
    answer = check_stream(events)
    assert (answer.kind, answer.text, answer.error, answer.fallbacks) == ("written", SAID, None, ())
    [degraded] = answer.degraded
    assert degraded.stage == "verify_answer"
    assert words in degraded.reason
    assert KEY not in repr(events)
    assert all(sentence.check is None for sentence in answer.sentences)
    assert answer.confidence is not None
    assert answer.confidence.support == pytest.approx(0.5)  # by the sources: one of two sentences has one
    assert (len(requests_of(server)), server.count()) == (attempts, attempts + 1)


def _with_faults_behind_the_answer(
    server: WireServer, trouble: Callable[[], None], **settings: Any
) -> list[AnswerEvent]:
    """Return the events of an answer where something happens to the server once the model was asked to write."""
    pipeline = checking(server, **settings)

    async def main() -> list[AnswerEvent]:
        events: list[AnswerEvent] = []
        server.fail(Hang())
        async with pipeline:
            stream = pipeline.aanswer_stream(QUESTION)
            events.append(await anext(stream))
            await server.until(lambda: server.count() == 1)
            trouble()
            server.release()
            events += [event async for event in stream]
        return events

    return asyncio.run(main())


def test_a_judge_that_hangs_is_left_at_the_deadline() -> None:
    """The answer that was written in time comes in time, and the connection is closed."""
    clock = FakeClock()
    with WireServer(OpenAIService(Judge(VERDICTS))) as server:
        pipeline = checking(server, clock=clock, deadline_seconds=30)

        async def main() -> list[AnswerEvent]:
            events: list[AnswerEvent] = []
            server.fail(Hang(), Hang())
            async with pipeline:
                stream = pipeline.aanswer_stream(QUESTION)
                events.append(await anext(stream))
                await server.until(lambda: server.count() == 1)
                server.release()
                rest = asyncio.create_task(_rest_of(stream))
                await server.until(lambda: server.count() == 2)
                clock.advance(30)
                events += await rest
                await server.until(lambda: server.disconnected == 1)
            return events

        answer = check_stream(asyncio.run(main()))
    assert (answer.kind, answer.text, answer.error) == ("written", SAID, None)
    assert [item.stage for item in answer.degraded] == ["verify_answer"]
    assert "deadline_seconds" in answer.degraded[0].reason
    assert answer.latency_ms == 30_000


async def _rest_of(stream: Any) -> list[AnswerEvent]:
    return [event async for event in stream]


def test_who_leaves_while_sentences_are_judged_ends_that_too() -> None:
    """The judge's connection is closed like the writer's."""
    with WireServer(OpenAIService(Judge(VERDICTS))) as server:
        pipeline = checking(server)

        async def main() -> None:
            async with pipeline:
                server.fail(Hang(), Hang())
                task = asyncio.create_task(_rest_of(pipeline.aanswer_stream(QUESTION)))
                await server.until(lambda: server.count() == 1)
                server.release()
                await server.until(lambda: server.count() == 2)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await server.until(lambda: server.disconnected == 1)

        asyncio.run(main())
