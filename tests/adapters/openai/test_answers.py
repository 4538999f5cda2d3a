"""Answers through the pipeline and the vendor's own SDK, from a server that fails in the middle of what it says."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("openai", reason="the extra 'openai' is not installed")

from retrieval_core.errors import ServiceError
from retrieval_core.testing.clock import FakeClock
from retrieval_core.types import AnswerFailed
from support.answers import QUESTION, ROLLED_BACK, an_answering_pipeline, check_stream, events_of, kinds
from support.building import event_to_json
from support.openai_service import KEY, OpenAIService, broken_off, error, without_done
from support.openai_support import llm_of
from support.wire_server import Changed, ClosedMidBody, EmptyBody, Hang, PausedMidBody, ResetMidBody, Status, WireServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retrieval_core.types import Answer, AnswerEvent
    from support.wire_server import Fault

SAID = f"{ROLLED_BACK} The history command lists every earlier revision of an application [2]. Bread is"
"""What the model says: half of its pieces hold the whole of its first sentence."""
FIRST = len(ROLLED_BACK.split())


@pytest.fixture
def server() -> Iterator[WireServer]:
    with WireServer(OpenAIService(lambda _: SAID)) as running:
        yield running


def told(server: WireServer, **settings: Any) -> list[AnswerEvent]:
    """Return the events of an answer by the server's model, none of which has its key."""
    events = events_of(an_answering_pipeline(llm_of(server), search__top_k=2, **settings))
    everything = repr(events) + json.dumps([event_to_json(event) for event in events])
    assert KEY not in everything
    return events


def failure_in(events: Sequence[AnswerEvent]) -> AnswerFailed:
    """Return the one error among events, which is the last but the end."""
    failed = events[-2]
    assert isinstance(failed, AnswerFailed)
    return failed


def check_first_sentence(answer: Answer) -> None:
    """Assert that the first sentence came, with the words that it rests on."""
    assert answer.text.startswith(ROLLED_BACK)
    assert answer.sentences[0].has_source
    assert [source.number for source in answer.sources][:1] == [1]
    assert answer.pack is not None


def test_an_answer_comes_from_one_request(server: WireServer) -> None:
    """Every piece is an event, and the sources stand in what the model was shown."""
    events = told(server)
    answer = check_stream(events)
    assert (answer.kind, answer.text, answer.error) == ("written", SAID, None)
    assert sum(event.type == "answer_chunk" for event in events) == len(SAID.split())
    assert [source.number for source in answer.sources] == [1, 2]
    [request] = server.requests
    assert request.json()["stream"] is True
    assert 'passage 2: {"from": ' in request.json()["messages"][1]["content"]


OVERLOADED = json.dumps({"error": {"message": f"Overloaded, {KEY}", "type": "server_error"}})


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (ResetMidBody(), "ServiceConnectionError", "the connection to 127.0.0.1"),
        (ClosedMidBody(), "ServiceConnectionError", "the connection to 127.0.0.1"),
        (Changed(broken_off(FIRST + 1)), "MalformedAnswerError", "before it was complete"),
        (Changed(broken_off(FIRST + 1, "[DONE]")), "MalformedAnswerError", "before it was complete"),
        (Changed(broken_off(FIRST + 1, "{half")), "MalformedAnswerError", "not JSON"),
        (Changed(broken_off(FIRST + 1, '{"choices": [7]}')), "MalformedAnswerError", "no part of a completion"),
        (Changed(broken_off(FIRST + 1, OVERLOADED)), "ServiceError", "broke off with an error: Overloaded"),
    ],
)
def test_what_breaks_in_the_middle_ends_with_what_was_said(
    server: WireServer, fault: Fault, kind: str, words: str
) -> None:
    """Nothing is asked again once a piece went out; the text so far stays, with its sources, and the error is named."""
    server.fail(fault)
    events = told(server)
    answer = check_stream(events)
    check_first_sentence(answer)
    assert SAID.startswith(answer.text)
    assert answer.text != SAID
    assert answer.kind == "written"
    failed = failure_in(events)
    assert (failed.stage, failed.error) == ("answer", kind)
    assert words in failed.reason
    assert answer.error == f"answer: {failed.reason}"
    assert answer.fallbacks == ()
    assert server.count() == 1


@pytest.mark.parametrize(
    ("finish_reason", "words"),
    [("length", "cut off at its greatest length"), ("content_filter", "cut off by the service's content filter")],
)
def test_an_answer_that_the_service_cuts_off_says_so(finish_reason: str, words: str) -> None:
    """All that came stays, and another attempt would not help."""
    with WireServer(OpenAIService(lambda _: SAID, finish_reason=finish_reason)) as server:
        events = told(server)
        assert server.count() == 1
    answer = check_stream(events)
    check_first_sentence(answer)
    assert answer.text == SAID
    assert words in failure_in(events).reason


def test_a_stream_without_its_last_mark_is_whole(server: WireServer) -> None:
    """It said why it ends, which is enough."""
    server.fail(Changed(without_done))
    answer = check_stream(told(server))
    assert (answer.text, answer.error, server.count()) == (SAID, None, 1)


@pytest.mark.parametrize(
    "fault",
    [
        Status(500),
        Status(503),
        EmptyBody(),
        Changed(broken_off(0)),
        Changed(broken_off(0, "[DONE]")),
        Changed(broken_off(0, "{half")),
        Changed(broken_off(0, '{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}', "[DONE]")),
    ],
)
def test_what_breaks_before_the_first_piece_is_asked_again(server: WireServer, fault: Fault) -> None:
    """Nobody saw anything of it; where it never gets better, the passages answer."""
    server.fail(fault, fault)
    answer = check_stream(told(server, retry__max_retries=2))
    assert (answer.kind, answer.text, answer.error, answer.fallbacks) == ("written", SAID, None, ())
    assert server.count() == 3
    server.fail_always(fault)
    events = told(server, retry__max_retries=2, breaker__failures=0)
    answer = check_stream(events)
    assert (answer.kind, answer.error, [item.step for item in answer.fallbacks]) == ("extracted", None, ["extracted"])
    assert kinds(events)[:2] == ["retrieval_done", "fallback"]
    assert all(sentence.has_source for sentence in answer.sentences)
    assert server.count() == 6


def test_a_service_that_is_not_there_is_done_without(server: WireServer) -> None:
    """The passages answer, and the fallback says which host was not reached."""
    server.refuse()
    answer = check_stream(told(server))
    assert (answer.kind, answer.error, server.count()) == ("extracted", None, 0)
    assert "the connection to 127.0.0.1" in answer.fallbacks[0].reason


def test_a_service_that_asks_for_patience_gets_it(server: WireServer) -> None:
    """What ``Retry-After`` says is waited, on the pipeline's clock."""
    server.fail(Status(429, 7))
    clock = FakeClock()
    answer = check_stream(told(server, clock=clock))
    assert (answer.text, server.count()) == (SAID, 2)
    assert clock.slept
    assert clock.slept[0] >= 7


def test_patience_that_the_deadline_has_not_is_not_begun(server: WireServer) -> None:
    """The passages answer at once."""
    server.fail_always(Status(429, 300))
    clock = FakeClock()
    answer = check_stream(told(server, clock=clock))
    assert (answer.kind, server.count(), clock.slept) == ("extracted", 1, [])
    assert "429" in answer.fallbacks[0].reason


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_is_not_asked_again_and_not_told(server: WireServer, status: int) -> None:
    """The error says what to do; no fallback hides it, and the key that the service repeats is left out."""
    refusal = error(status, f"Incorrect API key provided: {KEY}.", "invalid_api_key")
    server.fail_always(Status(status, body=refusal.body))
    events = told(server)
    answer = check_stream(events)
    assert kinds(events) == ["retrieval_done", "error", "done"]
    assert f"status {status}" in failure_in(events).reason
    assert (answer.text, answer.fallbacks, server.count()) == ("", (), 1)
    pipeline = an_answering_pipeline(llm_of(server))
    with pipeline, pytest.raises(ServiceError, match=f"status {status}") as raised:
        pipeline.answer(QUESTION)
    assert KEY not in str(raised.value)


def test_a_request_that_is_too_long_is_done_without(server: WireServer) -> None:
    """A model whose context is too small for the passages is told by the service's own words, and not asked again."""
    too_long = error(400, "the request exceeds the available context size", "exceed_context_size_error")
    server.fail_always(Status(400, body=too_long.body))
    answer = check_stream(told(server))
    assert (answer.kind, server.count()) == ("extracted", 1)
    assert "exceeds the available context size" in answer.fallbacks[0].reason


@pytest.mark.parametrize(
    ("settings", "seconds", "words"),
    [
        ({"deadline_seconds": 30, "timeouts__synthesis": 3}, 3, "timeouts.synthesis"),
        ({"deadline_seconds": 30}, 27, "deadline_seconds"),
    ],
)
def test_silence_in_the_middle_ends_in_time(
    server: WireServer, settings: dict[str, Any], seconds: float, words: str
) -> None:
    """What was said is kept, the error names the setting, the connection is closed, and the end comes in time."""
    clock = FakeClock()
    pipeline = an_answering_pipeline(llm_of(server), clock=clock, search__top_k=2, **settings)

    async def main() -> list[AnswerEvent]:
        events: list[AnswerEvent] = []
        server.fail(PausedMidBody())
        async with pipeline:
            async for event in pipeline.aanswer_stream(QUESTION):
                events.append(event)
                if event.type == "citation":
                    clock.advance(seconds)
            await server.until(lambda: server.disconnected == 1)
        return events

    events = asyncio.run(main())
    answer = check_stream(events)
    check_first_sentence(answer)
    assert (failure_in(events).error, server.count()) == ("DeadlineExceededError", 1)
    assert words in failure_in(events).reason
    assert answer.latency_ms == seconds * 1000


def test_silence_before_the_first_piece_is_done_without(server: WireServer) -> None:
    """A model that thinks for longer than an answer may take is left, and the passages answer."""
    clock = FakeClock()
    pipeline = an_answering_pipeline(llm_of(server), clock=clock, timeouts__synthesis=5)

    async def main() -> list[AnswerEvent]:
        server.fail(Hang())
        async with pipeline:
            stream = pipeline.aanswer_stream(QUESTION)
            events = [await anext(stream)]
            await server.until(lambda: server.count() == 1)
            clock.advance(5)
            events += [event async for event in stream]
            await server.until(lambda: server.disconnected == 1)
        return events

    answer = check_stream(asyncio.run(main()))
    assert (answer.kind, answer.error, server.count()) == ("extracted", None, 1)
    assert "timeouts.synthesis" in answer.fallbacks[0].reason
