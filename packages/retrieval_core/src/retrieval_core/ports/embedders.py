"""The ports for embedders and token counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.types import Matrix, Vector


class Embedder(Protocol):
    """Turns text into vectors of unit length."""

    @property
    def id(self) -> str:
        """Names model and settings: two embedders with the same id give the same vector for the same text."""
        ...

    @property
    def dimension(self) -> int:
        """Number of components of each vector."""
        ...

    async def embed_query(self, text: str) -> Vector:
        """Embed one question.

        Returns:
            Shape ``(dimension,)``, float32, L2-normalised.

        Raises:
            EmbeddingError: The text could not be embedded.
        """
        ...

    async def embed_texts(self, texts: Sequence[str]) -> Matrix:
        """Embed passages.

        Returns:
            Shape ``(len(texts), dimension)``, float32, each row L2-normalised, in the order of the texts.

        Raises:
            EmbeddingError: A text could not be embedded.
        """
        ...


@runtime_checkable
class EmbedsQueries(Protocol):
    """An optional protocol of embedders: several questions in one call."""

    async def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """Embed questions.

        Returns:
            Shape ``(len(texts), dimension)``: for each one what :meth:`Embedder.embed_query` gives.

        Raises:
            EmbeddingError: A text could not be embedded.
        """
        ...


@runtime_checkable
class Reopening(Protocol):
    """An optional protocol of embedders: opening anew after a failure."""

    async def reopen(self) -> None:
        """Drop the model or the connection; the next call opens it again."""
        ...


@runtime_checkable
class Preloading(Protocol):
    """An optional protocol of embedders: loading the model before the first text, beside other work."""

    def preload(self) -> None:
        """Start loading in threads, and return. If it fails, the first call to embed raises the error."""
        ...


class TokenCounter(Protocol):
    """Counts the tokens of a text as some model would."""

    def __call__(self, text: str, /) -> int:
        """Return the number of tokens, 0 for empty text."""
        ...


@runtime_checkable
class CountsTokens(Protocol):
    """An optional protocol of embedders: their own token counter, and the longest text that they read whole."""

    @property
    def max_tokens(self) -> int:
        """Tokens beyond this number are not seen by the model."""
        ...

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of the text, without those that the model adds."""
        ...
