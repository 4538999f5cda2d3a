"""Models of other kinds, as the specification's files use them: LangChain's, and clients that take a prompt."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.errors import InvalidParameterError
from retrieval_core.ports import LLM, Completion, Embedder, as_plugin
from retrieval_core.ports.plugin import call_plugin
from retrieval_core.types import Usage
from retrieval_core.types.documents import as_vectors, unit_rows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from retrieval_core.ports import CompletionRequest
    from retrieval_core.types import Matrix, Vector

_ROLES = {"system": "system", "user": "human", "assistant": "ai"}


def adapt_embedder(model: object) -> Embedder:
    """Return an embedder of this library, or LangChain's embeddings as one.

    Raises:
        InvalidParameterError: It is neither.
    """
    is_langchain = all(hasattr(model, name) for name in ("embed_query", "embed_documents"))
    if is_langchain and not hasattr(model, "embed_texts"):
        return LangChainEmbedder(model)
    return as_plugin(model, Embedder)


def adapt_llm(model: object, name: str | None = None) -> LLM:
    """Return a language model of this library, or another kind of model as one.

    Args:
        model: A model of this library, a chat model of LangChain, or a client with ``complete(prompt, model)``.
        name: The model that such a client is asked for.

    Raises:
        InvalidParameterError: It is none of them.
    """
    complete = getattr(model, "complete", None)
    if complete is None and hasattr(model, "invoke"):
        return LangChainChat(model)
    if callable(complete) and "prompt" in _parameters(complete):
        return PromptClient(model, name)
    if callable(complete) and not hasattr(model, "stream") and hasattr(model, "id"):
        return CompletingModel(model)
    return as_plugin(model, LLM)


class LangChainEmbedder(Embedder):
    """LangChain's embeddings as an :class:`~retrieval_core.ports.Embedder`.

    The dimension is that of the first vector. If it is needed before, a word is embedded.
    """

    def __init__(self, model: Any) -> None:
        self.id = _id(model)
        self._model = model
        self._dimension: int | None = None

    @property
    def dimension(self) -> int:
        """Return the components of each vector."""
        if self._dimension is None:
            self._dimension = as_vectors(self._model.embed_query("dimension")).size
        return self._dimension

    async def _embed_query(self, text: str) -> Vector:
        vector = as_vectors(await _call(self._model, "aembed_query", "embed_query", text))
        self._dimension = self._dimension or vector.size
        return unit_rows(vector)

    async def _embed_texts(self, texts: Sequence[str]) -> Matrix:
        return unit_rows(as_vectors(await _call(self._model, "aembed_documents", "embed_documents", list(texts))))


class CompletingModel(LLM):
    """A model with ``id`` and ``complete(request)``, without streams, as a :class:`~retrieval_core.ports.LLM`."""

    def __init__(self, model: Any) -> None:
        self.id = model.id
        self._model = model

    async def _complete(self, request: CompletionRequest) -> Completion:
        return await call_plugin(self._model.complete, request)


class LangChainChat(LLM):
    """A chat model of LangChain as a :class:`~retrieval_core.ports.LLM`; it keeps its own temperature and limits."""

    def __init__(self, model: Any) -> None:
        self.id = _id(model)
        self._model = model

    async def _complete(self, request: CompletionRequest) -> Completion:
        answer = await _call(self._model, "ainvoke", "invoke", _as_turns(request))
        return Completion(_text_of(answer), _usage(answer))

    async def _stream(self, request: CompletionRequest) -> AsyncIterator[str]:
        if not hasattr(self._model, "astream"):
            yield (await self._complete(request)).text
            return
        async for piece in self._model.astream(_as_turns(request)):
            if text := _text_of(piece):
                yield text


class PromptClient(LLM):
    """A client with ``complete(prompt, model)`` as a :class:`~retrieval_core.ports.LLM`.

    ``complete_stream(prompt, model)`` is used for streams if there is one.
    """

    def __init__(self, client: Any, model: str | None) -> None:
        if not model:
            msg = f"a {_kind(client)} takes the name of a model; set generation_model in ollama_config"
            raise InvalidParameterError(msg)
        self.id = f"{_kind(client)} {model}"
        self._client = client
        self._model = model

    def with_model(self, model: str) -> PromptClient:
        """Return another model of the same client."""
        return PromptClient(self._client, model)

    async def _complete(self, request: CompletionRequest) -> Completion:
        return Completion(_text_of(await self._ask(self._client.complete, request)))

    async def _stream(self, request: CompletionRequest) -> AsyncIterator[str]:
        complete_stream = getattr(self._client, "complete_stream", None)
        if complete_stream is None:
            yield (await self._complete(request)).text
            return
        pieces = await self._ask(complete_stream, request)
        if hasattr(pieces, "__aiter__"):
            async for piece in pieces:
                yield _text_of(piece)
            return
        remaining = iter(cast("Iterable[Any]", pieces))
        while (piece := await asyncio.to_thread(next, remaining, None)) is not None:
            yield _text_of(piece)

    async def _ask(self, method: Any, request: CompletionRequest) -> Any:
        prompt = "\n\n".join(message.content for message in request.messages)
        return await call_plugin(partial(method, prompt=prompt, model=self._model))


def _as_turns(request: CompletionRequest) -> list[tuple[str, str]]:
    return [(_ROLES[message.role], message.content) for message in request.messages]


def _text_of(answer: Any) -> Any:
    """Return the text of a message of LangChain, of a response of Ollama, or the answer itself; the port checks it."""
    if isinstance(answer, dict):
        return cast("dict[str, Any]", answer).get("response")
    content: Any = getattr(answer, "content", answer)
    if not isinstance(content, list):
        return content
    parts = cast("list[Any]", content)
    return "".join(part if isinstance(part, str) else str(part.get("text", "")) for part in parts)


def _usage(answer: Any) -> Usage | None:
    counts: Any = getattr(answer, "usage_metadata", None)
    if not isinstance(counts, dict):
        return None
    tokens = cast("dict[str, Any]", counts)
    return Usage(int(tokens.get("input_tokens") or 0), int(tokens.get("output_tokens") or 0))


async def _call(model: Any, coroutine: str, function: str, argument: object) -> Any:
    """Call the coroutine function of a model; if it has none, call the plain one in a thread."""
    return await call_plugin(getattr(model, coroutine, None) or getattr(model, function), argument)


def _parameters(method: Any) -> frozenset[str]:
    try:
        return frozenset(inspect.signature(method).parameters)
    except (TypeError, ValueError):
        return frozenset()


def _id(model: object) -> str:
    name = next((value for key in ("model_name", "model") if isinstance(value := getattr(model, key, None), str)), "")
    return f"{_kind(model)} {name}".strip()


def _kind(model: object) -> str:
    return f"{type(model).__module__}.{type(model).__qualname__}"
