"""The ports for embedders and token counters."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from retrieval_core.errors import DimensionMismatchError, EmbeddingError, InvalidParameterError
from retrieval_core.ports.plugin import Plugin, call_plugin, calls_plugin, default
from retrieval_core.types.documents import as_vectors, is_zero

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.types import Matrix, Vector


class Embedder(Plugin):
    """Turns text into vectors of unit length. A subclass has ``id``, ``dimension``, and two methods.

    Attributes:
        dimension: Number of components of each vector.

    Example::

        class MyEmbedder(Embedder):
            id = "letters"
            dimension = 2

            async def _embed_query(self, text):
                return [text.count("a") + 1.0, text.count("b") + 1.0]

            async def _embed_texts(self, texts):
                return [await self._embed_query(text) for text in texts]
    """

    dimension: Any  # int
    port_role = "the embedder"
    port_attributes = ("id", "dimension")
    port_calls = ("embed_query", "embed_texts", "embed_queries")
    port_optional = ("embed_queries", "reopen", "preload", "count_tokens")
    port_advice = "LangChain embeddings: retrieval_core.compat.models.adapt_embedder(embeddings)"

    @calls_plugin
    async def embed_query(self, text: str) -> Vector:
        """Embed one query.

        Returns:
            Shape ``(dimension,)``, float32, L2-normalized.

        Raises:
            EmbeddingError: The text could not be embedded, or the vector can't be searched for.
            DimensionMismatchError: The vector has another dimension.
        """
        return checked_vector(await call_plugin(self._embed_query, text), self.dimension)

    @calls_plugin
    async def embed_texts(self, texts: Sequence[str]) -> Matrix:
        """Embed chunks.

        Returns:
            Shape ``(len(texts), dimension)``, float32, each row L2-normalized, in the order of the texts.

        Raises:
            EmbeddingError: A text could not be embedded, or there is not one vector for each.
        """
        count = len(texts)
        return self._checked_rows(await call_plugin(self._embed_texts, texts), count)

    @calls_plugin
    async def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """Embed several queries in one call; optional, see :attr:`capabilities`.

        Returns:
            Shape ``(len(texts), dimension)``: for each query the vector of :meth:`embed_query`.

        Raises:
            EmbeddingError: A text could not be embedded, or there is not one vector for each.
        """
        count = len(texts)
        return self._checked_rows(await call_plugin(self._embed_queries, texts), count)

    @default
    async def reopen(self) -> None:
        """Drop the model or the connection after a failure, so that the next call opens it again; optional."""

    @default
    def preload(self) -> None:
        """Start loading the model in threads, and return; optional.

        If loading fails, the first call to embed raises the error.
        """

    @default
    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, without those that the model adds; optional, with ``max_tokens``."""
        msg = f"{self.id} does not count tokens"
        raise NotImplementedError(msg)

    @property
    def max_tokens(self) -> int:
        """Tokens beyond this number are not seen by the model; optional, with :meth:`count_tokens`."""
        msg = f"{self.id} does not count tokens"
        raise NotImplementedError(msg)

    @abstractmethod
    async def _embed_query(self, text: str) -> Vector: ...

    @abstractmethod
    async def _embed_texts(self, texts: Sequence[str]) -> Matrix: ...

    @default
    async def _embed_queries(self, texts: Sequence[str]) -> Matrix:
        import numpy as np  # noqa: PLC0415 - it has been loaded by then

        vectors = [await self.embed_query(text) for text in texts]
        return np.stack(vectors) if vectors else np.empty((0, self.dimension), dtype=np.float32)

    def _checked_rows(self, rows: object, count: int) -> Matrix:
        try:
            matrix = as_vectors(rows)
        except InvalidParameterError as error:
            msg = f"{self.id} gave no vectors: {error}"
            raise EmbeddingError(msg) from error
        if matrix.ndim != 2 or len(matrix) != count:
            if not count and not matrix.size:
                return matrix.reshape(0, self.dimension).astype("float32", copy=False)
            msg = f"{self.id} gave vectors of the shape {matrix.shape} for {count} texts"
            raise EmbeddingError(msg)
        return matrix.astype("float32", copy=False)


def checked_vector(vector: object, dimension: int, query: str | None = None) -> Vector:
    """Return what an embedder gave as a float32 vector, if it can be searched for.

    Raises:
        DimensionMismatchError: It has another length.
        EmbeddingError: It is no vector of finite numbers, or all of them are 0.
    """
    try:
        array = as_vectors(vector)
    except InvalidParameterError as error:
        msg = f"the embedder gave no vector: {error}"
        raise EmbeddingError(msg, query) from error
    if array.shape != (dimension,):
        raise DimensionMismatchError(dimension, array.size, "the embedding of the query")
    array = array.astype("float32", copy=False)
    if is_zero(array):
        msg = "the embedder gave a vector of zeros, which is equally far from everything"
        raise EmbeddingError(msg, query)
    return array


class TokenCounter(Plugin):
    """Counts the tokens of a text as some model would. Any function will do."""

    port_role = "the token counter"
    port_calls = ("__call__",)
    port_advice = "give a function that returns the number of tokens of a text"

    def __call__(self, text: str, /) -> int:
        """Return the number of tokens, 0 for empty text.

        Raises:
            InvalidParameterError: The counter returned something else than a number of tokens.
        """
        tokens: object = self._call(text)
        if type(tokens) is not int or tokens < 0:
            msg = f"a token counter must return a whole number of at least 0, and this one returned {tokens!r:.80}"
            raise InvalidParameterError(msg)
        return tokens

    @abstractmethod
    def _call(self, text: str, /) -> int: ...
