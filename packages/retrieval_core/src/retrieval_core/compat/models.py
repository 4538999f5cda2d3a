"""Models of other kinds, as the specification's files hand them over: LangChain's, and clients that take a prompt.

Each is wrapped once, when a component is constructed; whatever cannot be used is refused there.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.errors import EmbeddingError, InvalidParameterError, MalformedAnswerError
from retrieval_core.ports import LLM, Completion, Embedder, as_plugin
from retrieval_core.ports.plugin import call_plugin
from retrieval_core.types import Usage
from retrieval_core.types.documents import as_vectors

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
    is_embedding = callable(getattr(model, "embed_query", None))
    if is_embedding and callable(getattr(model, "embed_texts", None)):
        return as_plugin(model, Embedder)
    if is_embedding and callable(getattr(model, "embed_documents", None)):
        return LangChainEmbedder(model)
    msg = (
        "an embedding model has embed_query() and embed_texts() with an id and a dimension, or is one of LangChain's "
        f"with embed_query() and embed_documents(); got {_shown(model)}"
    )
    raise InvalidParameterError(msg)


def adapt_llm(model: object, name: str | None = None) -> LLM:
    """Return a language model of this library, or another kind of model as one.

    Args:
        model: A model of this library, a chat model of LangChain, or a client with ``complete(prompt, model)``.
        name: The model that such a client is asked for.

    Raises:
        InvalidParameterError: It is none of them.
    """
    complete = getattr(model, "complete", None)
    if callable(complete):
        if "prompt" in _parameters(complete):
            return PromptClient(model, name)
        if isinstance(getattr(model, "id", None), str):
            return as_plugin(model, LLM) if hasattr(model, "stream") else CompletingModel(model)
    if callable(getattr(model, "invoke", None)):
        return LangChainChat(model)
    msg = (
        "a language model has an id and complete(request), see retrieval_core.ports.LLM; or is a chat model of "
        f"LangChain, or a client with complete(prompt, model); got {_shown(model)}"
    )
    raise InvalidParameterError(msg)


class LangChainEmbedder(Embedder):
    """LangChain's embeddings as an :class:`~retrieval_core.ports.Embedder`.

    The dimension is that of the first vector; if it is asked for before, a word is embedded.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._dimension: int | None = None

    @property
    def id(self) -> str:
        """Name the class and the model."""
        return _id(self._model)

    @property
    def dimension(self) -> int:
        """Return the components of each vector."""
        if self._dimension is None:
            self._dimension = self._unit(self._model.embed_query("dimension")).size
        return self._dimension

    async def _embed_query(self, text: str) -> Vector:
        """Embed a query: shape ``(dimension,)``, float32, unit length."""
        vector = self._unit(await _call(self._model, "aembed_query", "embed_query", text))
        self._dimension = self._dimension or vector.size
        return vector

    async def _embed_texts(self, texts: Sequence[str]) -> Matrix:
        """Embed texts: one row for each, float32, unit length."""
        import numpy as np  # noqa: PLC0415 - slow to load

        rows = await _call(self._model, "aembed_documents", "embed_documents", list(texts))
        if not rows:
            return np.empty((0, self.dimension), dtype=np.float32)
        return np.stack([self._unit(row) for row in rows])

    def _unit(self, values: Any) -> Vector:
        import numpy as np  # noqa: PLC0415 - slow to load

        vector = np.asarray(as_vectors(values), dtype=np.float32)
        length = float(np.linalg.norm(vector))
        if vector.ndim != 1 or not length:
            msg = f"{self.id} gave {values!r:.80}, which is no vector"
            raise EmbeddingError(msg)
        return vector / length


class CompletingModel(LLM):
    """A model with ``id`` and ``complete(request)``, without streams, as a :class:`~retrieval_core.ports.LLM`."""

    def __init__(self, model: Any) -> None:
        self._model = model

    @property
    def id(self) -> str:
        """Return the model's id."""
        return self._model.id

    async def _complete(self, request: CompletionRequest) -> Completion:
        """Answer a request."""
        return await call_plugin(self._model.complete, request)


class LangChainChat(LLM):
    """A chat model of LangChain as a :class:`~retrieval_core.ports.LLM`; it keeps its own temperature and limits."""

    def __init__(self, model: Any) -> None:
        self._model = model

    @property
    def id(self) -> str:
        """Name the class and the model."""
        return _id(self._model)

    async def _complete(self, request: CompletionRequest) -> Completion:
        """Answer a request."""
        answer = await _call(self._model, "ainvoke", "invoke", _as_turns(request))
        return Completion(self._text(answer), _usage(answer))

    async def _stream(self, request: CompletionRequest) -> AsyncIterator[str]:
        """Answer a request piece by piece."""
        if not callable(getattr(self._model, "astream", None)):
            yield (await self._complete(request)).text
            return
        async for piece in self._model.astream(_as_turns(request)):
            if text := self._text(piece):
                yield text

    def _text(self, answer: Any) -> str:
        content = answer if isinstance(answer, str) else getattr(answer, "content", None)
        if isinstance(content, str):
            return content
        if isinstance(content, list):
            parts = cast("list[Any]", content)
            return "".join(part if isinstance(part, str) else str(part.get("text", "")) for part in parts)
        msg = f"{self.id} answered {answer!r:.80}, which has no text"
        raise MalformedAnswerError(msg, self.id)


class PromptClient(LLM):
    """A client with ``complete(prompt, model)`` as a :class:`~retrieval_core.ports.LLM`.

    ``complete_stream(prompt, model)`` is used for streams if there is one.
    """

    def __init__(self, client: Any, model: str | None) -> None:
        if not model:
            msg = f"{_shown(client)} takes the name of a model; set generation_model in ollama_config"
            raise InvalidParameterError(msg)
        self._client = client
        self._model = model

    @property
    def id(self) -> str:
        """Name the class and the model."""
        return f"{_kind(self._client)} {self._model}"

    def with_model(self, model: str) -> PromptClient:
        """Return another model of the same client."""
        return PromptClient(self._client, model)

    async def _complete(self, request: CompletionRequest) -> Completion:
        """Answer a request."""
        answer = await _ask(self._client.complete, prompt=_as_prompt(request), model=self._model)
        return Completion(self._text(answer))

    async def _stream(self, request: CompletionRequest) -> AsyncIterator[str]:
        """Answer a request piece by piece."""
        complete_stream = getattr(self._client, "complete_stream", None)
        if not callable(complete_stream):
            yield (await self._complete(request)).text
            return
        pieces: Any = await _ask(complete_stream, prompt=_as_prompt(request), model=self._model)
        if hasattr(pieces, "__aiter__"):
            async for piece in pieces:
                yield self._text(piece)
            return
        remaining = iter(cast("Iterable[Any]", pieces))
        while (piece := await asyncio.to_thread(next, remaining, None)) is not None:
            yield self._text(piece)

    def _text(self, answer: Any) -> str:
        text: Any = cast("dict[str, Any]", answer).get("response") if isinstance(answer, dict) else answer
        if not isinstance(text, str):
            msg = f"{self.id} answered {answer!r:.80}, which is no text"
            raise MalformedAnswerError(msg, self.id)
        return text


def _as_turns(request: CompletionRequest) -> list[tuple[str, str]]:
    return [(_ROLES[message.role], message.content) for message in request.messages]


def _as_prompt(request: CompletionRequest) -> str:
    return "\n\n".join(message.content for message in request.messages)


def _usage(answer: Any) -> Usage | None:
    told = getattr(answer, "usage_metadata", None)
    if not isinstance(told, dict):
        return None
    counts = cast("dict[str, Any]", told)
    return Usage(int(counts.get("input_tokens") or 0), int(counts.get("output_tokens") or 0))


async def _call(model: Any, coroutine: str, function: str, argument: object) -> Any:
    """Call the coroutine function of a model; if it has none, call the plain one in a thread."""
    method = getattr(model, coroutine, None)
    return await _ask(method if callable(method) else getattr(model, function), argument)


async def _ask(method: Any, *arguments: object, **named: object) -> Any:
    if inspect.iscoroutinefunction(method):
        return await method(*arguments, **named)
    answer = await asyncio.to_thread(method, *arguments, **named)
    return await answer if inspect.isawaitable(answer) else answer


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


def _shown(model: object) -> str:
    return f"a {_kind(model)}"
