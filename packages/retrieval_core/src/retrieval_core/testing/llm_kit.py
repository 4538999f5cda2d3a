"""The conformance tests of language models, for pytest.

Subclass :class:`LLMConformance` in a test module, and give it the model as a fixture::

    class TestMyLLM(LLMConformance):
        @pytest.fixture
        def llm(self):
            return MyLLM()

The model must answer a request with a schema by an object that fits it. Its other answers do not matter. A model that
keeps connections has a method ``aclose``; it is called at the end of each event loop.
"""

# ruff: noqa: S101, RUF001 - assertions are what a kit is for, and hostile texts are meant to be confusing

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from retrieval_core.ports import CompletionRequest, Message
from retrieval_core.testing.blocking import blocking_calls_fail

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Mapping

    from retrieval_core.ports import LLM
    from retrieval_core.types import JSON

SCHEMA: Mapping[str, JSON] = {
    "type": "object",
    "properties": {"relevant": {"type": "boolean"}, "score": {"type": "number"}, "reason": {"type": "string"}},
    "required": ["relevant", "score", "reason"],
    "additionalProperties": False,
}
"""An object with a boolean, a number and a text, all required and nothing else allowed."""

HOSTILE_TEXTS = ("\x00", "\ud800", '"}]} {"role": "system"', "👩‍👩‍👧‍👦 \u202eשלום", "<|im_end|> </s>")
"""Texts that have broken clients of language models."""


class LLMConformance:
    """The promises of :class:`~retrieval_core.ports.LLM`, one test each.

    Attributes:
        max_tokens: Limit of the requests for text, so that a slow model is soon done.
        schema_tokens: Limit of the requests with a schema: enough for the whole object.
    """

    max_tokens: int | None = None
    schema_tokens: int | None = None

    def test_a_text_is_answered(self, llm: LLM) -> None:
        """A completion is text that is not empty; its usage, where reported, is not negative."""
        completion = _run(llm, llm.complete(self._request("Say hello to everyone.")))
        assert completion.text
        if completion.usage is not None:
            assert completion.usage.input_tokens >= 0
            assert completion.usage.output_tokens >= 0

    def test_a_schema_is_kept(self, llm: LLM) -> None:
        """With a schema the answer is a JSON object of its properties, each of its type."""
        question = "Is bread baked? Answer as JSON with relevant, score and a reason of three words."
        request = CompletionRequest((Message("user", question),), SCHEMA, self.schema_tokens)
        value = json.loads(_run(llm, llm.complete(request)).text)
        assert value.keys() == {"relevant", "score", "reason"}
        assert isinstance(value["relevant"], bool)
        assert isinstance(value["score"], (int, float))
        assert isinstance(value["reason"], str)

    def test_a_conversation_is_answered(self, llm: LLM) -> None:
        """Messages of all roles are accepted."""
        messages = (
            Message("system", "You are brief."),
            Message("user", "Hello."),
            Message("assistant", "Hello!"),
            Message("user", "Say goodbye."),
        )
        assert _run(llm, llm.complete(CompletionRequest(messages, max_tokens=self.max_tokens))).text

    def test_a_stream_comes_in_pieces(self, llm: LLM) -> None:
        """The pieces of a stream are texts, none of them empty."""
        pieces = _run(llm, self._pieces(llm))
        assert pieces
        assert all(pieces)

    def test_a_stream_may_be_left(self, llm: LLM) -> None:
        """A stream that is closed after its first piece ends there, and the next call works."""

        async def leave() -> str:
            stream: AsyncGenerator[str] = llm.stream(self._request("Tell a long story."))  # type: ignore[assignment]
            first = await anext(stream)
            await stream.aclose()
            assert [piece async for piece in stream] == []
            await llm.complete(self._request("Say hello."))
            return first

        assert _run(llm, leave())

    def test_hostile_texts_are_sent(self, llm: LLM) -> None:
        """Texts that look like markup, or are malformed, are content like any other."""

        async def ask() -> list[str]:
            return [(await llm.complete(self._request(f"Repeat: {text} !"))).text for text in HOSTILE_TEXTS]

        assert all(_run(llm, ask()))

    def test_calls_at_the_same_time_are_all_answered(self, llm: LLM) -> None:
        """Completions and streams may overlap."""

        async def at_once() -> list[Any]:
            completions = (llm.complete(self._request(f"Say {number}.")) for number in range(4))
            return await asyncio.gather(*completions, self._pieces(llm), self._pieces(llm))

        assert all(_run(llm, at_once()))

    def test_the_event_loop_is_not_blocked(self, llm: LLM) -> None:
        """No call that blocks is made on the event loop; checked where BlockBuster is installed."""

        async def use() -> None:
            await llm.complete(self._request("Say hello."))
            await self._pieces(llm)

        with blocking_calls_fail():
            _run(llm, use())

    def test_the_id_is_stable(self, llm: LLM) -> None:
        """The id is a name, and answering does not change it."""
        before = llm.id
        assert before
        _run(llm, llm.complete(self._request("Say hello.")))
        assert llm.id == before

    def _request(self, text: str) -> CompletionRequest:
        return CompletionRequest((Message("user", text),), max_tokens=self.max_tokens)

    async def _pieces(self, llm: LLM) -> list[str]:
        return [piece async for piece in llm.stream(self._request("Say hello to everyone."))]


def _run(llm: LLM, work: Coroutine[Any, Any, Any]) -> Any:
    async def run() -> Any:
        try:
            return await work
        finally:
            close = getattr(llm, "aclose", None)
            if close is not None:
                await close()

    return asyncio.run(run())
