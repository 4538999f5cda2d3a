"""A language model of LlamaIndex as one of retrieval-core."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.llms import LLM, CustomLLM
from pydantic import RootModel

from retrieval_core.adapters.vendors.http import retry_after, what_was_said
from retrieval_core.errors import (
    InvalidParameterError,
    MalformedAnswerError,
    RetrievalError,
    ServiceConnectionError,
    ServiceError,
    ServiceTimeoutError,
)
from retrieval_core.ports import Completion
from retrieval_core.text.prompting import parse_answer
from retrieval_core.types import Usage
from retrieval_core.types.escapes import valid_unicode

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping

    from llama_index.core.base.llms.types import ChatResponse

    from retrieval_core.ports import CompletionRequest
    from retrieval_core.types import JSON

_SETTINGS = ("temperature", "max_tokens", "additional_kwargs", "model_kwargs", "generate_kwargs")
"""What many of LlamaIndex's models call the settings that shape an answer."""
_SCHEMA_NAME = "answer"


class LlamaIndexLLM:
    """Asks a language model of LlamaIndex; an :class:`~retrieval_core.ports.LLM`.

    The model is asked through its chat methods, so that LlamaIndex's callbacks and instrumentation see each call. It
    keeps its own temperature, longest answer and retries: LlamaIndex's models have no common argument for them, so
    those of a request are not passed on. Its ``system_prompt`` is not sent, since a request has one of its own.

    Where a schema is given, OpenAI's models that keep to schemas get it. All others are asked in words alone: text
    around the JSON object of their answer, and properties that the schema does not have, are left out.

    Args:
        llm: Stays the caller's.
        in_threads: Whether its synchronous methods are called, in threads; by default only where it has no
            asynchronous ones of its own. Many clients keep connections that belong to the event loop which asked first,
            so choose threads for a model that several loops ask.

    Raises:
        InvalidParameterError: ``llm`` is not a language model of LlamaIndex.
    """

    def __init__(self, llm: LLM, *, in_threads: bool | None = None) -> None:
        if not isinstance(llm, LLM):  # pyright: ignore[reportUnnecessaryIsInstance]
            kind = llm.__name__ if isinstance(llm, type) else type(llm).__name__
            msg = f"llm must be a language model of LlamaIndex, got {kind}; one of retrieval-core needs no wrapper"
            raise InvalidParameterError(msg)
        self._llm = llm
        self._in_threads = _can_only_block(llm) if in_threads is None else in_threads

    @property
    def id(self) -> str:
        """Names class and model, and a digest of the settings that shape an answer."""
        known = {name: getattr(self._llm, name, None) for name in _SETTINGS}
        digest = sha256(json.dumps(known, sort_keys=True, default=repr).encode()).hexdigest()[:12]
        return f"llama-index/{self._llm.class_name()}/{self._llm.metadata.model_name}@{digest}"

    async def complete(self, request: CompletionRequest) -> Completion:
        """Answer a request.

        Raises:
            MalformedAnswerError: The answer is empty, or lacks the JSON object or a property that was asked for.
            ServiceError: The model failed; subclasses say more.
        """
        messages, settings = _messages(request), _settings(self._llm, request)
        try:
            if self._in_threads:
                answer = await asyncio.to_thread(self._llm.chat, messages, **settings)
            else:
                answer = await self._llm.achat(messages, **settings)
        except Exception as error:
            raise _mapped(error, self.id) from error
        text = valid_unicode(answer.message.content or "")
        if not text.strip():
            msg = f"{self.id} answered with nothing"
            raise MalformedAnswerError(msg, self.id)
        if request.schema is not None:
            text = _object(text, request.schema, self.id)
        return Completion(text, _usage(answer))

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[str]:
        """Answer a request piece by piece; closing the iterator closes the model's.

        Raises:
            ServiceError: As for :meth:`complete`, before the first piece or after any. JSON is not checked.
        """
        messages, settings = _messages(request), _settings(self._llm, request)
        pieces: AsyncIterator[ChatResponse] | None = None
        try:
            if self._in_threads:
                pieces = _from_threads(await asyncio.to_thread(self._llm.stream_chat, messages, **settings))
            else:
                pieces = await self._llm.astream_chat(messages, **settings)
            async for piece in pieces:
                if piece.delta:
                    yield valid_unicode(piece.delta)
        except Exception as error:
            raise _mapped(error, self.id) from error
        finally:
            if (close := getattr(pieces, "aclose", None)) is not None:
                await close()


def _can_only_block(llm: LLM) -> bool:
    """Whether a model has the asynchronous methods of LlamaIndex's base class, which call the others on the loop."""
    # Wrapped for instrumentation, they are another object each time they are asked for.
    return next(kind for kind in type(llm).__mro__ if "achat" in vars(kind)) is CustomLLM


async def _from_threads(pieces: Generator[ChatResponse]) -> AsyncGenerator[ChatResponse]:
    """Yield what a blocking generator yields, each step of it in a thread."""
    try:
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield piece
    finally:
        if (close := getattr(pieces, "close", None)) is not None:
            await asyncio.to_thread(close)


def _messages(request: CompletionRequest) -> list[ChatMessage]:
    return [
        ChatMessage(role=MessageRole(message.role), content=valid_unicode(message.content))
        for message in request.messages
    ]


def _settings(llm: LLM, request: CompletionRequest) -> dict[str, Any]:
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


def _mapped(error: Exception, service: str) -> RetrievalError:
    """Return what a model raised as an error of this library, by the names and attributes that clients share."""
    if isinstance(error, RetrievalError):
        return error
    said = what_was_said(str(error)) or type(error).__name__
    msg = f"{service} failed: {said}"
    names = [kind.__name__ for kind in type(error).__mro__]
    if any("Timeout" in name for name in names):
        return ServiceTimeoutError(msg, service)
    if any(name.endswith(("ConnectionError", "ConnectError", "TransportError")) for name in names):
        return ServiceConnectionError(msg, service)
    status: object = getattr(error, "status_code", None)
    headers: Any = getattr(getattr(error, "response", None), "headers", None)
    return ServiceError(
        msg,
        service,
        status=status if isinstance(status, int) else None,
        retry_after=None if headers is None else retry_after(headers),
    )
