"""Language models of LlamaIndex as ours: the port's conformance tests, and what is theirs alone."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.llms import MockLLM, callbacks

from llama_index.retrievers.retrieval_core.adapters import LlamaIndexLLM
from retrieval_core.errors import (
    ConfigurationError,
    InvalidParameterError,
    MalformedAnswerError,
    ServiceConnectionError,
    ServiceError,
    ServiceTimeoutError,
)
from retrieval_core.ports import CompletionRequest, Message
from retrieval_core.testing.llm_kit import SCHEMA, LLMConformance
from retrieval_core.types import Usage
from support.llamaindex_models import AsyncScriptedLLM, ScriptedLLM

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

QUESTION = CompletionRequest((Message("system", "be brief"), Message("user", "how far is it")))
JUDGE = CompletionRequest(QUESTION.messages, SCHEMA)


def obliging(prompt: str) -> str:
    """Answer as a model that reads the request, and talks around the JSON."""
    found = {"relevant": True, "score": 0.5, "reason": "it is baked", "more": "than was asked for"}
    return f"Of course!\n```json\n{json.dumps(found)}\n```" if "as JSON" in prompt else f"I was told: {prompt}"


class TestBlocking(LLMConformance):
    @pytest.fixture
    def llm(self) -> LlamaIndexLLM:
        return LlamaIndexLLM(ScriptedLLM(obliging))


class TestAsynchronous(LLMConformance):
    @pytest.fixture
    def llm(self) -> LlamaIndexLLM:
        return LlamaIndexLLM(AsyncScriptedLLM(obliging))


class TestAsynchronousInThreads(LLMConformance):
    @pytest.fixture
    def llm(self) -> LlamaIndexLLM:
        return LlamaIndexLLM(AsyncScriptedLLM(obliging), in_threads=True)


def test_messages_keep_their_roles_and_the_systems_prompt_is_the_requests() -> None:
    """A ``system_prompt`` of the model would come between the instructions and the data."""
    llm = AsyncScriptedLLM(lambda prompt: prompt, system_prompt="you are a pirate")
    assert (
        asyncio.run(LlamaIndexLLM(llm, in_threads=False).complete(QUESTION)).text
        == "system: be brief\nuser: how far is it"
    )


@pytest.mark.parametrize(
    ("kind", "in_threads", "is_in_thread"),
    [
        (ScriptedLLM, None, True),
        (ScriptedLLM, True, True),
        (AsyncScriptedLLM, None, True),
        (AsyncScriptedLLM, False, False),
        (AsyncScriptedLLM, True, True),
    ],
)
def test_what_can_only_block_runs_in_a_thread(
    kind: type[ScriptedLLM], in_threads: bool | None, is_in_thread: bool
) -> None:
    """LlamaIndex's own asynchronous method of such a model would block the loop."""
    llm = kind(lambda _: "yes")
    asyncio.run(LlamaIndexLLM(llm, in_threads=in_threads).complete(QUESTION))
    assert (llm.threads != ["MainThread"]) is is_in_thread


def test_an_asynchronous_method_that_blocks_is_not_called() -> None:
    """Many classes have one that calls the synchronous method."""
    decorator: Any = cast("Any", callbacks).llm_chat_callback()

    class Pretending(ScriptedLLM):
        @decorator
        async def achat(self, messages: Sequence[ChatMessage], **_: Any) -> ChatResponse:
            return self.chat(messages)

    kind: Any = Pretending
    llm = kind(str.lower)
    asyncio.run(LlamaIndexLLM(llm).complete(QUESTION))
    assert llm.threads != ["MainThread"]


def test_a_second_event_loop_asks_in_threads() -> None:
    """Many clients can only be used on the loop of their first call."""
    llm = AsyncScriptedLLM(lambda _: "yes")
    ours = LlamaIndexLLM(llm, in_threads=False)
    for _ in range(2):
        assert asyncio.run(ours.complete(QUESTION)).text == "yes"
    assert [name == "MainThread" for name in llm.threads] == [True, False]


def test_the_mock_model_answers_with_the_prompt() -> None:
    """Whole, and piece by piece."""

    async def ask() -> tuple[str, str]:
        llm = LlamaIndexLLM(MockLLM())
        return (await llm.complete(QUESTION)).text, "".join([piece async for piece in llm.stream(QUESTION)])

    whole, streamed = asyncio.run(ask())
    assert whole == streamed
    assert "how far is it" in whole


@pytest.mark.parametrize("answer", ["", "  \n", "no JSON", '{"relevant": true}', "[1, 2]", '{"a": 1} {"b": 2}'])
def test_answers_that_are_not_what_was_asked_for_are_malformed(answer: str) -> None:
    """With the whole answer, so that a model can be asked to mend it."""
    with pytest.raises(MalformedAnswerError) as caught:
        asyncio.run(LlamaIndexLLM(ScriptedLLM(lambda _: answer)).complete(JUDGE))
    assert caught.value.answer == (answer if answer.strip() else None)


class _StatusError(Exception):
    status_code = 429
    response = SimpleNamespace(headers={"retry-after": "3"})


class APIConnectionError(Exception):
    """As OpenAI's client calls it."""


class ReadTimeout(Exception):  # noqa: N818 - as httpx calls it
    pass


@pytest.mark.parametrize(
    ("error", "expected", "status"),
    [
        (_StatusError("slow down"), ServiceError, 429),
        (APIConnectionError("no route"), ServiceConnectionError, None),
        (ConnectionResetError(), ServiceConnectionError, None),
        (ReadTimeout("silent"), ServiceTimeoutError, None),
        (TimeoutError(), ServiceTimeoutError, None),
        (KeyError("choices"), ServiceError, None),
        (ConfigurationError("no key"), ConfigurationError, None),
    ],
)
@pytest.mark.parametrize("kind", [ScriptedLLM, AsyncScriptedLLM])
def test_errors_of_models_become_ours(
    error: Exception, expected: type[Exception], status: int | None, kind: type[ScriptedLLM]
) -> None:
    """By what clients have in common; with the vendor's error as the cause."""

    def fail(_: str) -> str:
        raise error

    async def streamed() -> list[str]:
        return [piece async for piece in LlamaIndexLLM(kind(fail)).stream(QUESTION)]

    async def completed() -> object:
        return await LlamaIndexLLM(kind(fail)).complete(QUESTION)

    for work in (completed, streamed):
        with pytest.raises(expected) as caught:
            asyncio.run(work())
        assert type(caught.value) is expected
        if isinstance(caught.value, ServiceError):
            assert (caught.value.status, type(caught.value.__cause__)) == (status, type(error))
            assert caught.value.retry_after == (3 if status else None)


def test_a_stream_that_is_left_closes_the_models() -> None:
    """In threads too."""
    closed: list[str] = []

    class Told(AsyncScriptedLLM):
        async def astream_chat(self, messages: Sequence[ChatMessage], **_: Any) -> Any:
            async def pieces() -> AsyncGenerator[ChatResponse]:
                try:
                    while True:
                        yield ChatResponse(message=ChatMessage(content="more"), delta="more")
                finally:
                    closed.append("loop")

            return pieces()

        def stream_chat(self, messages: Sequence[ChatMessage], **_: Any) -> Any:
            try:
                while True:
                    yield ChatResponse(message=ChatMessage(content="more"), delta="more")
            finally:
                closed.append("thread")

    async def leave(llm: LlamaIndexLLM) -> None:
        stream = llm.stream(QUESTION)
        assert await anext(stream) == "more"
        await stream.aclose()

    kind: Any = Told
    for in_threads in (False, True):
        asyncio.run(leave(LlamaIndexLLM(kind(str), in_threads=in_threads)))
    assert closed == ["loop", "thread"]


def test_the_id_tells_models_and_settings_apart() -> None:
    """Scores that are kept by it must not be those of another model."""
    ids = {LlamaIndexLLM(ScriptedLLM(str, temperature=warm)).id for warm in (0.0, 0.0, 0.7)}
    ids |= {LlamaIndexLLM(MockLLM()).id, LlamaIndexLLM(MockLLM(max_tokens=5)).id}
    assert len(ids) == 4
    assert all(name.startswith("llama-index/") for name in ids)


def test_tokens_are_told_where_the_model_tells_them() -> None:
    """In the words of OpenAI's, which most of LlamaIndex's use."""

    class Counting(AsyncScriptedLLM):
        async def achat(self, messages: Sequence[ChatMessage], **_: Any) -> ChatResponse:
            await asyncio.sleep(0)
            told = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
            return ChatResponse(message=ChatMessage(content="yes"), additional_kwargs=told)

    kind: Any = Counting
    assert asyncio.run(LlamaIndexLLM(kind(str), in_threads=False).complete(QUESTION)).usage == Usage(7, 2)
    assert asyncio.run(LlamaIndexLLM(ScriptedLLM(lambda _: "yes")).complete(QUESTION)).usage is None


@pytest.mark.parametrize("wrong", ["sk-secret", None, MockLLM, object()])
def test_what_is_no_model_of_llamaindex_is_refused(wrong: Any) -> None:
    """With its type alone, because it may be a key."""
    with pytest.raises(InvalidParameterError, match="llm must be") as caught:
        LlamaIndexLLM(wrong)
    assert "sk-secret" not in str(caught.value)
