"""The OpenAI language model, through the vendor's own SDK, against a server that speaks the vendor's protocol."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("openai", reason="the extra 'openai' is not installed")

from retrieval_core.adapters.llms.openai import OpenAILLM
from retrieval_core.errors import (
    ConfigurationError,
    MalformedAnswerError,
    RetrievalError,
    ServiceConnectionError,
    ServiceError,
)
from retrieval_core.ports import CompletionRequest, Message
from retrieval_core.testing.llm_kit import SCHEMA, LLMConformance
from retrieval_core.types import Usage, freeze
from support.openai_service import KEY, OpenAIService, error, event
from support.openai_support import llm_of, run
from support.wire_server import (
    BrokenJSON,
    Changed,
    ClosedMidBody,
    EmptyBody,
    Hang,
    PausedMidBody,
    ResetMidBody,
    Response,
    Status,
    WireServer,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core.ports import LLM
    from support.wire_server import Fault

QUESTION = CompletionRequest((Message("system", "be brief"), Message("user", "one two three")))
JUDGE = replace(QUESTION, schema=SCHEMA)


@pytest.fixture
def service() -> OpenAIService:
    return OpenAIService()


async def pieces_of(llm: LLM, request: CompletionRequest = QUESTION) -> list[str]:
    return [piece async for piece in llm.stream(request)]


def test_a_completion_is_one_request(server: WireServer) -> None:
    """The request holds the messages as they are, and the answer what it cost."""
    llm = llm_of(server)
    completion = run(llm, llm.complete(QUESTION))
    assert completion.text == "one two three"
    assert completion.usage == Usage(input_tokens=5, output_tokens=3)
    [request] = server.requests
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "one two three"}]
    assert {key: value for key, value in request.json().items() if key != "stream"} == {
        "model": "gpt-4.1-mini",
        "messages": messages,
        "temperature": 0,
    }


def test_a_schema_is_sent_as_strict(server: WireServer) -> None:
    """The service is held to the schema, also where that was frozen."""
    llm = llm_of(server)
    value = json.loads(run(llm, llm.complete(replace(JUDGE, schema=freeze(dict(SCHEMA))))).text)
    assert value == {"relevant": True, "score": 0.5, "reason": "one two three"}
    sent = server.requests[0].json()["response_format"]
    assert sent == {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}


@pytest.mark.parametrize(
    ("model", "sent"),
    [
        ("gpt-4.1-mini", {"max_tokens": 9, "temperature": 0.5}),
        ("o4-mini", {"max_completion_tokens": 9}),
        ("gpt-5-mini", {"max_completion_tokens": 9}),
    ],
)
def test_parameters_fit_the_model(server: WireServer, model: str, sent: dict[str, Any]) -> None:
    """Models that reason refuse a temperature and the old name of the limit, which other servers need."""
    llm = llm_of(server, model)
    run(llm, llm.complete(replace(QUESTION, max_tokens=9, temperature=0.5)))
    known = {"max_tokens", "max_completion_tokens", "temperature"}
    assert {key: value for key, value in server.requests[0].json().items() if key in known} == sent


def test_ids_tell_models_and_servers_apart() -> None:
    """The same name on another server is another model."""
    assert OpenAILLM("gpt-4.1-mini", api_key="k").id == "openai/gpt-4.1-mini"
    assert OpenAILLM("qwen", base_url="http://localhost:8080/v1").id == "openai/qwen@localhost:8080"


def test_a_missing_key_or_model_is_named() -> None:
    """Neither can be guessed."""
    with pytest.raises(ConfigurationError) as raised:
        OpenAILLM("gpt-4.1-mini")
    assert raised.value.missing_keys == ("OPENAI_API_KEY",)
    with pytest.raises(ConfigurationError, match="model"):
        OpenAILLM("", api_key="k")


def with_choices(value: Any) -> Callable[[Response], Response]:
    return lambda response: replace(response, body={**response.body, "choices": value})


@pytest.mark.parametrize(
    ("fault", "kind", "words", "retried"),
    [
        (ResetMidBody(), ServiceConnectionError, "connection", True),
        (ClosedMidBody(), ServiceConnectionError, "connection", True),
        (Status(429, 3), ServiceError, "429", True),
        (Status(500), ServiceError, "500", True),
        (
            Status(400, body=error(400, "too many tokens", "context_length_exceeded").body),
            ServiceError,
            "too many",
            False,
        ),
        (Status(404), ServiceError, "404", False),
        (BrokenJSON(), MalformedAnswerError, "not JSON", True),
        (EmptyBody(), MalformedAnswerError, "not JSON", True),
        (Changed(lambda _: Response(body={})), MalformedAnswerError, "no completion", True),
        (Changed(with_choices([])), MalformedAnswerError, "no completion", True),
        (Changed(with_choices([{"index": 0}])), MalformedAnswerError, "no completion", True),
        (Changed(with_choices(None)), MalformedAnswerError, "no completion", True),
    ],
)
def test_each_fault_is_one_attempt_and_one_error(
    server: WireServer, fault: Fault, kind: type[RetrievalError], words: str, *, retried: bool
) -> None:
    """Every way to fail has its error, and is met once: trying again is for the pipeline to decide."""
    server.fail(fault)
    llm = llm_of(server)
    with pytest.raises(kind, match=words) as raised:
        run(llm, llm.complete(QUESTION))
    assert type(raised.value) is kind
    assert isinstance(raised.value, ServiceError)
    assert raised.value.can_be_retried is retried
    assert raised.value.retry_after == (3 if fault == Status(429, 3) else None)
    assert server.count() == 1


@pytest.mark.parametrize(
    ("text", "message", "finish_reason", "words", "retried"),
    [
        (
            "",
            {"content": None, "refusal": "I cannot help with that."},
            "stop",
            "refused to answer: I cannot help",
            False,
        ),
        ("half a thou", {}, "length", "cut off at its greatest length", False),
        ("half a thou", {}, "content_filter", "content filter", False),
        ("", {"content": None}, "stop", "answered with nothing", True),
        ("", {}, "stop", "answered with nothing", True),
        ("Sure! Here it is.", {}, "stop", "not JSON", True),
        ('{"relevant": true', {}, "stop", "not JSON", True),
        ("[]", {}, "stop", "not an object with exactly: reason, relevant, score", True),
        ('{"relevant": true}', {}, "stop", "not an object with exactly", True),
        ('{"relevant": true, "score": 1, "reason": "", "more": 1}', {}, "stop", "not an object with exactly", True),
    ],
)
def test_answers_that_are_none(
    text: str, message: dict[str, Any], finish_reason: str, *, words: str, retried: bool
) -> None:
    """A slip may be mended by asking again; a refusal, and an answer too long, may not."""
    service = OpenAIService(lambda _: text, message, finish_reason)
    with WireServer(service) as server:
        llm = llm_of(server)
        with pytest.raises(ServiceError, match=words) as raised:
            run(llm, llm.complete(JUDGE))
        assert isinstance(raised.value, MalformedAnswerError) is retried
        assert raised.value.can_be_retried is retried
        assert server.count() == 1


def test_text_is_streamed(server: WireServer) -> None:
    """Pieces come as the service sends them, and empty ones are left out."""
    llm = llm_of(server)
    assert run(llm, pieces_of(llm)) == ["one", " two", " three"]
    assert server.requests[0].json()["stream"] is True
    assert server.count() == 1


@pytest.mark.parametrize(
    ("message", "finish_reason", "words", "retried"),
    [
        ({"refusal": "No."}, "stop", "refused to answer: No", False),
        ({}, "length", "cut off at its greatest length", False),
        ({}, "content_filter", "content filter", False),
        ({}, None, "before it was complete", True),
    ],
)
def test_streams_that_end_badly(
    message: dict[str, Any], finish_reason: str | None, *, words: str, retried: bool
) -> None:
    """What is no whole answer ends with an error, after the pieces that came."""
    with WireServer(OpenAIService(message=message, finish_reason=finish_reason)) as server:
        llm = llm_of(server)
        with pytest.raises(ServiceError, match=words) as raised:
            run(llm, pieces_of(llm))
        assert raised.value.can_be_retried is retried


def streaming(*data: str) -> Callable[[Response], Response]:
    return lambda response: replace(response, chunks=[*(response.chunks or ())[:2], *(event(part) for part in data)])


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (ResetMidBody(), ServiceConnectionError, "connection"),
        (ClosedMidBody(), ServiceConnectionError, "connection"),
        (Changed(streaming()), MalformedAnswerError, "before it was complete"),
        (
            Changed(streaming('{"error": {"message": "Overloaded", "type": "server_error"}}')),
            ServiceError,
            "Overloaded",
        ),
        (Changed(streaming("{half")), MalformedAnswerError, "not JSON"),
        (Changed(streaming('{"choices": [{"index": 0}]}')), MalformedAnswerError, "no part of a completion"),
        (Changed(streaming('{"choices": [7]}')), MalformedAnswerError, "no part of a completion"),
    ],
)
def test_a_stream_that_breaks_off(server: WireServer, fault: Fault, kind: type[ServiceError], words: str) -> None:
    """The pieces that came are given out, then the error is raised."""
    server.fail(fault)
    llm = llm_of(server)
    pieces: list[str] = []

    async def read() -> None:
        async for piece in llm.stream(QUESTION):
            pieces.append(piece)  # noqa: PERF401 - those that came before the error are looked at

    with pytest.raises(kind, match=words) as raised:
        run(llm, read())
    assert type(raised.value) is kind
    assert pieces[:1] == ["one"]
    assert server.count() == 1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [(Status(503), ServiceError), (Status(401), ServiceError), (EmptyBody(), MalformedAnswerError)],
)
def test_a_stream_that_does_not_begin(server: WireServer, fault: Fault, kind: type[ServiceError]) -> None:
    """Before the first piece the errors are those of a completion."""
    server.fail(fault)
    llm = llm_of(server)
    with pytest.raises(kind):
        run(llm, pieces_of(llm))
    assert server.count() == 1


def test_leaving_a_stream_reaches_the_server(server: WireServer) -> None:
    """Closing the iterator closes the connection, and so does cancelling who reads it."""
    llm = llm_of(server)

    async def main() -> None:
        server.fail(PausedMidBody(), PausedMidBody(), Hang())
        stream = llm.stream(QUESTION)
        assert await anext(stream) == "one"
        await stream.aclose()
        await server.until(lambda: server.disconnected == 1)
        for number in (2, 3):
            reader = asyncio.create_task(pieces_of(llm))
            await server.until(lambda number=number: server.count() == number)
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader
            await server.until(lambda number=number: server.disconnected == number)
        assert await pieces_of(llm) == ["one", " two", " three"]
        await llm.aclose()

    asyncio.run(main())


def test_cancelling_a_completion_reaches_the_server(server: WireServer) -> None:
    """A call that is cancelled closes its connection."""
    llm = llm_of(server)

    async def main() -> None:
        server.fail(Hang())
        call = asyncio.create_task(llm.complete(QUESTION))
        await server.until(lambda: server.count() == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await server.until(lambda: server.disconnected == 1)
        await llm.aclose()

    asyncio.run(main())


def test_fifty_calls_are_under_way_at_once(server: WireServer) -> None:
    """Completions and streams do not wait for each other, and none gets another's answer."""
    llm = llm_of(server)
    questions = [CompletionRequest((Message("user", f"number {number}"),)) for number in range(25)]

    async def main() -> list[Any]:
        server.fail_always(Hang())
        calls = [asyncio.create_task(llm.complete(question)) for question in questions]
        streams = [asyncio.create_task(pieces_of(llm, question)) for question in questions]
        await server.until(lambda: server.count() == 50)
        server.release()
        answers = [call.text for call in await asyncio.gather(*calls)]
        answers += ["".join(pieces) for pieces in await asyncio.gather(*streams)]
        await llm.aclose()
        return answers

    assert asyncio.run(main()) == [question.messages[0].content for question in questions] * 2


class TestOpenAIConformance(LLMConformance):
    @pytest.fixture
    def llm(self, server: WireServer) -> LLM:
        return llm_of(server)
