"""An embedding model of LlamaIndex as an embedder."""

from __future__ import annotations

import time
from enum import Enum
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding

from llama_index.retrievers.retrieval_core.adapters._calls import PartCalls, has_async_client
from llama_index.retrievers.retrieval_core.checks import check_kind
from retrieval_core.config import host_of
from retrieval_core.errors import DimensionMismatchError, EmbeddingError, InvalidParameterError, MalformedAnswerError
from retrieval_core.ports import Embedder, as_plugin
from retrieval_core.run.caching import LruCache
from retrieval_core.types.escapes import valid_unicode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrieval_core.types import Matrix, Vector

_SIZES = ("dimensions", "embed_dim", "output_dimensionality", "output_dimension", "truncate_dim")
"""Fields in which models of LlamaIndex say how long their vectors are to be."""
_ADDRESSES = ("api_base", "base_url", "azure_endpoint")
_PROMPTS = ("query_instruction", "text_instruction", "query_prefix", "text_prefix", "query_prompt", "text_prompt")
"""Fields with what is put before questions and passages, which changes their vectors."""
_SETTINGS = ("mode", "task", "task_type", "input_type", "truncate", "pooling", "cls_pooling")
"""Other fields that change the vectors."""
_PROBE = "dimension"
_MOST_LENGTHS = 100_000


def embedder_id_of(model: BaseEmbedding) -> str:
    """Return the embedder's id of a model of LlamaIndex, the one that is written to an index of its vectors.

    It contains class and model, such as ``llama-index/OpenAIEmbedding/text-embedding-3-small/256``. Everything else
    that changes the vectors is added if it isn't the default: dimension, server, settings, and a digest of the prompts.
    If the model has an attribute ``embedder_id``, as ``RetrievalCoreEmbedding`` does, that is returned.
    """
    if isinstance(told := getattr(model, "embedder_id", None), str):
        return told
    parts = ["llama-index", type(model).__name__, model.model_name]
    if (size := _told_dimension(model)) is not None:
        parts.append(str(size))
    address = next((value for name in _ADDRESSES if isinstance(value := _own(model, name), str)), None)
    host = f"@{_host(address)}" if address else ""
    chosen = ((name, _own(model, name)) for name in _SETTINGS)
    settings = "".join(f";{name}={value}" for name, value in chosen if isinstance(value, (str, int)))
    prompts = [f"{name}={value}" for name in _PROMPTS if isinstance(value := getattr(model, name, None), str) and value]
    digest = f"+{sha256(chr(0).join(prompts).encode()).hexdigest()[:8]}" if prompts else ""
    return "/".join(parts) + host + settings + digest


class LlamaIndexEmbedder(Embedder):
    """Embeds with a model of LlamaIndex; an :class:`~retrieval_core.ports.Embedder`.

    Questions go through the model's query methods and passages through its text methods, so each has the prompt that
    the model gives it. Passages are sent ``embed_batch_size`` at a time. Vectors are scaled to unit length. An empty
    text, which services refuse, is sent as one space.

    Models of the OpenAI family are used through a copy of their settings, with one attempt a call: the pipeline makes
    the retries. Their vectors are ordered by the ``index`` that the service returns, which LlamaIndex ignores.

    Args:
        model: You close it.
        dimension: Components of a vector. Default: that of the model, or else that of its first vector. If you read
            :attr:`dimension` before any text was embedded, it embeds one word, and blocks.
        name: The :attr:`id`; needed for two models of one class without a ``model_name``.
        is_async: Whether the model's asynchronous methods leave the event loop free. Otherwise, and for synchronous
            callers, the synchronous ones run in threads. By default true for the OpenAI family only.

    Raises:
        InvalidParameterError: ``model`` is no embedding model of LlamaIndex, or ``dimension`` is below 1.
    """

    def __init__(
        self,
        model: BaseEmbedding,
        *,
        dimension: int | None = None,
        name: str | None = None,
        is_async: bool | None = None,
    ) -> None:
        check_kind(model, "model", BaseEmbedding, "an embedding model of LlamaIndex, such as OpenAIEmbedding(…)")
        if dimension is not None and (type(dimension) is not int or dimension < 1):
            msg = f"dimension must be a whole number of at least 1, got {dimension!r:.40}"
            raise InvalidParameterError(msg)
        self._model, self._clients = _own_clients(model)
        self._dimension = dimension or _told_dimension(model)
        self._id = name or embedder_id_of(model)
        is_async = has_async_client(model) if is_async is None else is_async
        self._calls = PartCalls(model, is_async=is_async, retries=not self._clients)
        self._lengths: LruCache[int, float] = LruCache(_MOST_LENGTHS, None, time.monotonic)

    @property
    def id(self) -> str:
        """The name that was given, or what :func:`embedder_id_of` says of the model."""
        return self._id

    @property
    def dimension(self) -> int:
        """Number of components of each vector.

        Raises:
            EmbeddingError: It was not known, and the model failed.
        """
        if self._dimension is None:
            try:
                self._dimension = len(self._model.get_query_embedding(_PROBE))
            except Exception as error:
                msg = f"the dimension of {self._id} is not known, and embedding a word to learn it failed: {error}"
                raise EmbeddingError(msg) from error
        return self._dimension

    async def _embed_query(self, text: str) -> Vector:
        """Embed one question: shape ``(dimension,)``, float32, unit length.

        Raises:
            ServiceError: The model failed; its subclasses say how.
            DimensionMismatchError: The vector has another length than the others.
            EmbeddingError: The vector has no direction.
        """
        model = self._model
        vector = await self._calls.either(model.aget_query_embedding, model.get_query_embedding, _sent(text))
        return self._unit([vector], 1)[0]

    async def _embed_texts(self, texts: Sequence[str]) -> Matrix:
        """Embed passages: shape ``(len(texts), dimension)``, float32, rows of unit length, in the order of the texts.

        Raises:
            RetrievalError: As :meth:`embed_query`.
        """
        if not texts:
            if self._dimension is None:
                await self.embed_query(_PROBE)
            return np.empty((0, self.dimension), dtype=np.float32)
        model = self._model
        vectors = await self._calls.either(
            model.aget_text_embedding_batch, model.get_text_embedding_batch, [_sent(text) for text in texts]
        )
        return self._unit(vectors, len(texts))

    def length_of(self, vector: Vector) -> float:
        """Return the length that the model gave a query's vector; 1 for any other vector.

        Stores that compare by distance need vectors of the model's own length. The last 100,000 are known.
        """
        return self._lengths.get(hash(vector.tobytes())) or 1.0

    async def aclose(self) -> None:
        """Stop the threads, and close what was opened for the running loop; the model stays open. Twice is fine."""
        await self._calls.aclose()
        for client in self._clients:
            if not client.is_async:
                client.close()
            elif self._calls.is_first_loop() and (closing := client.close()) is not None:
                await closing

    def _unit(self, vectors: Sequence[Sequence[float]], expected: int) -> Matrix:
        if len(vectors) != expected:
            msg = f"{self._id} gave {len(vectors)} vectors for {expected} texts"
            raise MalformedAnswerError(msg, self._id)
        known = self._dimension or len(vectors[0])
        for vector in vectors:
            if len(vector) != known:
                raise DimensionMismatchError(known, len(vector), self._id)
        rows = np.asarray(vectors, dtype=np.float64)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        if not np.all(np.isfinite(lengths) & (lengths > 0)):
            msg = f"{self._id} gave a vector that has no direction: all zeros, or not numbers"
            raise EmbeddingError(msg)
        self._dimension = known
        units = (rows / lengths).astype(np.float32)
        if expected == 1 and abs(lengths[0, 0] - 1) > 1e-6:  # texts of an index are embedded together
            self._lengths.set(hash(units[0].tobytes()), float(lengths[0, 0]))
        return units


def as_embedder(model: BaseEmbedding | Embedder, name: str) -> Embedder:
    """Return an embedding model of LlamaIndex, or an embedder, as an embedder.

    Args:
        name: The argument's name, for the error.

    Raises:
        InvalidParameterError: It is neither.
    """
    return LlamaIndexEmbedder(model) if isinstance(model, BaseEmbedding) else as_plugin(model, Embedder, name)


def _sent(text: str) -> str:
    return valid_unicode(text) or " "


def _told_dimension(model: BaseEmbedding) -> int | None:
    return next((size for name in _SIZES if type(size := getattr(model, name, None)) is int and size > 0), None)


def _own(model: BaseEmbedding, name: str) -> object:
    """Return what a model has in a field, or ``None`` where that is empty or what its class has."""
    value = getattr(model, name, None)
    field = type(model).model_fields.get(name)
    if value == "" or (field is not None and field.default == value):
        return None
    return value.value if isinstance(value, Enum) else value


def _host(address: str) -> str:
    try:
        return host_of(address)
    except ValueError:  # an address of another kind, which may hold a password
        return sha256(address.encode()).hexdigest()[:8]


def _own_clients(model: BaseEmbedding) -> tuple[BaseEmbedding, tuple[_OrderedClient, ...]]:
    """Return a model of the OpenAI family as a copy with clients of its own, and those; any other as it was given.

    Such models make a client when they first need one, and keep it in ``_client`` or ``_aclient``.
    """
    makes_clients = all(callable(getattr(model, name, None)) for name in ("_get_client", "_get_aclient"))
    if not (makes_clients and type(getattr(model, "max_retries", None)) is int):
        return model, ()
    own = model.model_copy(update={"max_retries": 0, "reuse_client": True})
    maker: Any = own.model_copy(update={"reuse_client": False})
    clients = _OrderedClient(maker._get_client, is_async=False), _OrderedClient(maker._get_aclient, is_async=True)  # noqa: SLF001
    for name, client in zip(("_client", "_aclient"), clients, strict=True):
        setattr(own, name, client)
    return own, clients


class _OrderedClient:
    """Stands where LlamaIndex keeps a client of OpenAI's SDK, of which it uses ``embeddings.create`` alone.

    Args:
        make: Makes the client, with the first call.
    """

    def __init__(self, make: Callable[[], Any], *, is_async: bool) -> None:
        self._make = make
        self._client: Any = None
        self.is_async = is_async
        self.create = self._acreate if is_async else self._create

    @property
    def embeddings(self) -> _OrderedClient:
        return self

    def close(self) -> Any:
        """Close the client, if there is one; an awaitable where it is asynchronous."""
        client, self._client = self._client, None
        return None if client is None else client.close()

    def _create(self, **arguments: Any) -> Any:
        return _ordered(self._opened().embeddings.create(**arguments))

    async def _acreate(self, **arguments: Any) -> Any:
        return _ordered(await self._opened().embeddings.create(**arguments))

    def _opened(self) -> Any:
        if self._client is None:
            self._client = self._make()
        return self._client


def _ordered(answer: Any) -> Any:
    answer.data = sorted(answer.data, key=lambda item: item.index)
    return answer
