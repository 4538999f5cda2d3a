from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.errors import ServiceError
from retrieval_core.ports import LLM, Completion, CompletionRequest, Message
from retrieval_core.testing.fakes_llm import FakeLLM
from retrieval_core.testing.llm_kit import LLMConformance
from retrieval_core.types import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

QUESTION = CompletionRequest((Message("user", "one two"),))


async def all_of(pieces: AsyncIterator[str]) -> list[str]:
    return [piece async for piece in pieces]


class TestFakeLLM(LLMConformance):
    @pytest.fixture
    def llm(self) -> LLM:
        def answer(request: CompletionRequest) -> str | dict[str, Any]:
            return "hello to everyone" if request.schema is None else {"relevant": True, "score": 1, "reason": "so"}

        return FakeLLM(answer)


def test_a_script_is_followed() -> None:
    """Texts, objects, whole completions, functions and errors are used up in order, and requests are kept."""
    whole = Completion("whole", Usage(1, 1))
    llm = FakeLLM(["a b", {"k": "\u00e9"}, whole, lambda request: request.messages[0].content, ServiceError("down")])

    async def use() -> None:
        assert await llm.complete(QUESTION) == Completion("a b", Usage(2, 2))
        assert (await llm.complete(QUESTION)).text == '{"k": "\u00e9"}'
        assert await llm.complete(QUESTION) is whole
        assert await all_of(llm.stream(QUESTION)) == ["one ", "two"]
        with pytest.raises(ServiceError, match="down"):
            await llm.complete(QUESTION)
        with pytest.raises(AssertionError, match="got 6 requests"):
            await llm.complete(QUESTION)

    asyncio.run(use())
    assert llm.requests == [QUESTION] * 6


def test_one_text_is_one_answer() -> None:
    """A text is not taken for a script of letters."""
    assert asyncio.run(FakeLLM("whole").complete(QUESTION)).text == "whole"


def test_failures_come_when_they_are_set() -> None:
    """Completions fail at once; streams at once, between pieces, or after all of them."""
    llm = FakeLLM(lambda _: "one two three")
    llm.failure = ServiceError("down")

    async def pieces_before_the_failure(number: int) -> list[str]:
        llm.failure_after = number
        pieces: list[str] = []

        async def read() -> None:
            async for piece in llm.stream(QUESTION):
                pieces.append(piece)  # noqa: PERF401 - those that came before the failure are looked at

        with pytest.raises(ServiceError, match="down"):
            await read()
        return pieces

    async def use() -> None:
        with pytest.raises(ServiceError, match="down"):
            await llm.complete(QUESTION)
        assert await pieces_before_the_failure(0) == []
        assert await pieces_before_the_failure(2) == ["one ", "two "]
        assert await pieces_before_the_failure(9) == ["one ", "two ", "three"]

    asyncio.run(use())


def test_a_gate_holds_calls() -> None:
    """Calls wait for the gate, after their request was counted."""

    async def use() -> None:
        llm = FakeLLM(lambda _: "text")
        llm.gate = asyncio.Event()
        calls = asyncio.gather(llm.complete(QUESTION), all_of(llm.stream(QUESTION)))
        await asyncio.sleep(0)
        assert len(llm.requests) == 2
        assert not calls.done()
        llm.gate.set()
        assert await calls == [Completion("text", Usage(2, 1)), ["text"]]

    asyncio.run(use())


def test_streams_that_are_left_are_counted() -> None:
    """Closing a stream early is seen; reading it to its end is not."""

    async def use() -> int:
        llm = FakeLLM(lambda _: "one two")
        stream = llm.stream(QUESTION)
        await anext(stream)
        await stream.aclose()
        await all_of(llm.stream(QUESTION))
        return llm.abandoned

    assert asyncio.run(use()) == 1
