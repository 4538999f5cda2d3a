"""Stand-ins for what needs a model or a network, for tests of this library and of those who use it."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from retrieval_core.errors import EmbeddingError, InvalidParameterError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from retrieval_core.types import Matrix, Vector

_WORD = re.compile(r"\w+")
_ENDING = re.compile(r"(?<=\w{3})(?:ations?|ings?|ers?|ed|es|s|e)$")


class FakeEmbedder:
    """An :class:`~retrieval_core.ports.Embedder` without a model: texts are similar if they share words.

    A text's vector counts its words, each at the place that a hash of its stem gives, so the cosine of two texts is 0
    without and 1 with all words in common, save where two words fall on one place. It is the same in every process and
    Python version. A text without words has a vector of its own.

    Args:
        dimension: Components of a vector, at least 1; the more, the fewer words share a place.

    Attributes:
        queries: The texts of all calls of :meth:`embed_query`, in order.
        batches: The texts of all calls of :meth:`embed_texts`, in order.
        failure: Set it, and calls raise it.
        gate: Set it to an :class:`asyncio.Event`, and calls wait for that event before anything else; an event that is
            never set makes them hang.
    """

    def __init__(self, dimension: int = 256) -> None:
        if dimension < 1:
            msg = f"dimension must be at least 1, got {dimension}"
            raise InvalidParameterError(msg)
        self._dimension = dimension
        self.queries: list[str] = []
        self.batches: list[tuple[str, ...]] = []
        self.failure: Exception | None = None
        self.gate: asyncio.Event | None = None

    @property
    def id(self) -> str:
        """Names this embedder and its dimension."""
        return f"fake-words-{self._dimension}"

    @property
    def dimension(self) -> int:
        """Number of components of each vector."""
        return self._dimension

    async def embed_query(self, text: str) -> Vector:
        """Embed one question: shape ``(dimension,)``, float32, unit length."""
        self.queries.append(text)
        try:
            await self._obey()
        except EmbeddingError as error:
            error.query = text
            raise
        return self._vector(text)

    async def embed_texts(self, texts: Sequence[str]) -> Matrix:
        """Embed passages: shape ``(len(texts), dimension)``, float32, rows of unit length."""
        self.batches.append(tuple(texts))
        await self._obey()
        vectors = np.empty((len(texts), self._dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            vectors[row] = self._vector(text)
        return vectors

    async def _obey(self) -> None:
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure

    def _vector(self, text: str) -> Vector:
        counts = np.zeros(self._dimension, dtype=np.float32)
        for stem in _stems(text) or [""]:
            counts[_place(stem, self._dimension)] += 1
        return np.asarray(counts / np.linalg.norm(counts), dtype=np.float32)


class CountingFakeEmbedder(FakeEmbedder):
    """A :class:`FakeEmbedder` that is a :class:`~retrieval_core.ports.CountsTokens` too; its tokens are words.

    Args:
        dimension: As there.
        max_tokens: Words, divided by white space, that it reads of a text; at least 1.
    """

    def __init__(self, dimension: int = 256, max_tokens: int = 512) -> None:
        super().__init__(dimension)
        if max_tokens < 1:
            msg = f"max_tokens must be at least 1, got {max_tokens}"
            raise InvalidParameterError(msg)
        self._max_tokens = max_tokens

    @property
    def id(self) -> str:
        """Names this embedder, its dimension and how much it reads."""
        return f"{super().id}-{self._max_tokens}"

    @property
    def max_tokens(self) -> int:
        """Words beyond this number do not count."""
        return self._max_tokens

    def count_tokens(self, text: str) -> int:
        """Return the number of words divided by white space."""
        return len(text.split())

    def _vector(self, text: str) -> Vector:
        return super()._vector(" ".join(text.split()[: self._max_tokens]))


def _stems(text: str) -> list[str]:
    """Return the words of a text in lower case without their most usual English endings."""
    return [_ENDING.sub("", word) for word in _WORD.findall(text.lower())]


def _place(stem: str, dimension: int) -> int:
    digest = blake2b(stem.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % dimension
