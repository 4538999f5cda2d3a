"""A language model of LlamaIndex as one of retrieval-core."""

from __future__ import annotations

import json
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.llms import LLM as LlamaLLM  # noqa: N811 - the core's port has the name, too
from pydantic import RootModel

from llama_index.retrievers.retrieval_core.adapters._calls import PartCalls, has_async_client
from llama_index.retrievers.retrieval_core.checks import check_kind
from retrieval_core.errors import MalformedAnswerError
from retrieval_core.ports import LLM, Completion
from retrieval_core.text.prompting import parse_answer
from retrieval_core.types import Usage
from retrieval_core.types.escapes import valid_unicode

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from llama_index.core.base.llms.types import ChatResponse

    from retrieval_core.ports import CompletionRequest
    from retrieval_core.types import JSON

_SETTINGS = ("temperature", "max_tokens", "additional_kwargs", "model_kwargs", "generate_kwargs")
"""What many of LlamaIndex's models call the settings that shape an answer."""
_SCHEMA_NAME = "answer"


class LlamaIndexLLM(LLM):
    """Use a language model of LlamaIndex as an :class:`~retrieval_core.ports.LLM`.

    Its chat methods are called, so LlamaIndex's callbacks and instrumentation see each call. The model keeps its own
    temperature, maximum length and retries, because LlamaIndex's models have no common argument for them. Its
    ``system_prompt`` is not sent, since each request has one.

    A schema is sent to OpenAI's models that support it. Other models get it as instructions only: text around the JSON
    object of their answer, and properties that are not in the schema, are dropped.

    A synchronous caller gets the synchronous methods, in a thread. Asynchronous methods are called only on the event
    loop of the first call, which is where many clients can be used.

    Args:
        llm: You close it.
        in_threads: Whether to call the synchronous methods in threads even for an asynchronous caller. By default
            false for models of the OpenAI family, and true for others, since many of their asynchronous methods block.

    Raises:
        InvalidParameterError: ``llm`` is not a language model of LlamaIndex.
    """

    def __init__(self, llm: LlamaLLM, *, in_threads: bool | None = None) -> None:
        check_kind(llm, "llm", LlamaLLM, "a language model of LlamaIndex (one of retrieval-core needs no wrapper)")
        self._llm = llm
        is_async = has_async_client(llm) if in_threads is None else not in_threads
        self._calls = PartCalls(llm, is_async=is_async)

    @property
    def id(self) -> str:
        """Names class and model, and a digest of the settings that shape an answer."""
        known = {name: getattr(self._llm, name, None) for name in _SETTINGS}
        digest = sha256(json.dumps(known, sort_keys=True, default=repr).encode()).hexdigest()[:12]
        return f"llama-index/{self._llm.class_name()}/{self._llm.metadata.model_name}@{digest}"

    async def _complete(self, request: CompletionRequest) -> Completion:
        """Answer a request.

        Raises:
            MalformedAnswerError: The answer is empty, or lacks the requested JSON object or one of its properties.
            ServiceError: The model failed; subclasses say more.
        """
        answer = await self._calls.either(
            self._llm.achat, self._llm.chat, _messages(request), **_settings(self._llm, request)
        )
        text = valid_unicode(answer.message.content or "")
        if not text.strip():
            msg = f"{self.id} answered with nothing"
            raise MalformedAnswerError(msg, self.id)
        if request.schema is not None:
            text = _object(text, request.schema, self.id)
        return Completion(text, _usage(answer))

    async def _stream(self, request: CompletionRequest) -> AsyncGenerator[str]:
        """Answer a request piece by piece; closing the iterator closes the model's.

        Raises:
            ServiceError: As for ``complete()``, before the first piece or after any. JSON is not checked.
        """
        calls, llm = self._calls, self._llm
        pieces: Any = await calls.either(
            llm.astream_chat, cast("Any", llm.stream_chat), _messages(request), **_settings(llm, request)
        )
        try:
            # The loop is still the same one, so either both are asynchronous or neither is.
            while (piece := await calls.either(partial(anext, pieces, None), partial(next, pieces, None))) is not None:
                if piece.delta:
                    yield valid_unicode(piece.delta)
        finally:
            if (close := getattr(pieces, "aclose", None)) is not None:
                await close()
            elif (close := getattr(pieces, "close", None)) is not None:
                await calls.in_thread(close)

    async def aclose(self) -> None:
        """Stop the threads, and leave the model to its owner. Closing twice is fine."""
        await self._calls.aclose()


def _messages(request: CompletionRequest) -> list[ChatMessage]:
    return [
        ChatMessage(role=MessageRole(message.role), content=valid_unicode(message.content))
        for message in request.messages
    ]


def _settings(llm: LlamaLLM, request: CompletionRequest) -> dict[str, Any]:
    """Return the arguments by which OpenAI's models keep to a schema, where the model is one that does."""
    is_openai = any(
        kind.__name__ == "OpenAI" and kind.__module__.startswith("llama_index.llms.openai.")
        for kind in type(llm).__mro__
    )
    if request.schema is None or not is_openai or not cast("Any", llm)._should_use_structure_outputs():  # noqa: SLF001
        return {}
    schema = {"name": _SCHEMA_NAME, "schema": request.schema, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


class _Object(RootModel[dict[str, object]]): ...


def _object(text: str, schema: Mapping[str, JSON], service: str) -> str:
    """Return the JSON object in an answer with the properties of a schema, and no others."""
    found = parse_answer(text, _Object, service).root
    properties = cast("Mapping[str, JSON]", schema.get("properties", {}))
    if missing := [name for name in properties if name not in found]:
        msg = f"{service} answered with a JSON object that lacks {', '.join(missing)}"
        raise MalformedAnswerError(msg, service, answer=text)
    return json.dumps({name: found[name] for name in properties}, ensure_ascii=False)


def _usage(answer: ChatResponse) -> Usage | None:
    """Return the tokens that were counted, where the model says so in the words that most of LlamaIndex's use."""
    told = cast("Any", answer).additional_kwargs
    counts = [told.get(name) for name in ("prompt_tokens", "completion_tokens")]
    return Usage(*counts) if all(type(count) is int for count in counts) else None
