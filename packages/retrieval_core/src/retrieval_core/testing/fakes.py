"""The fake embedders."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from retrieval_core.errors import EmbeddingError, checked_count
from retrieval_core.ports import Embedder
from retrieval_core.testing.fakes_base import Fake

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.types import Matrix, Vector

_WORD = re.compile(r"\w+")
_ENDING = re.compile(r"(?<=\w{3})(?:ations?|ings?|ers?|ed|es|s|e)$")


class FakeEmbedder(Fake, Embedder):
    """An :class:`~retrieval_core.ports.Embedder` without a model: texts are similar if they share words.

    A text's vector counts its words, each at the component given by a hash of its stem. The cosine of two texts is 0
    without common words and 1 with only common words, except for collisions. It is the same in every process and
    Python version. A text without words has a distinct vector.

    Args:
        dimension: Components of a vector, at least 1; the more, the fewer collisions.

    Attributes:
        queries: The texts of all calls of :meth:`embed_query`, in order.
        batches: The texts of all calls of :meth:`embed_texts`, in order.
    """

    def __init__(self, dimension: int = 256) -> None:
        super().__init__(f"fake-words-{dimension}")
        self._dimension = checked_count(dimension, "dimension")
        self.queries: list[str] = []
        self.batches: list[tuple[str, ...]] = []

    @property
    def dimension(self) -> int:
        """Number of components of each vector."""
        return self._dimension

    async def _embed_query(self, text: str) -> Vector:
        """Embed one question: shape ``(dimension,)``, float32, unit length."""
        self.queries.append(text)
        try:
            await self._obey()
        except EmbeddingError as error:
            error.query = text
            raise
        return self.vector(text)

    async def _embed_texts(self, texts: Sequence[str]) -> Matrix:
        """Embed passages: shape ``(len(texts), dimension)``, float32, rows of unit length."""
        self.batches.append(tuple(texts))
        await self._obey()
        vectors = np.empty((len(texts), self._dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            vectors[row] = self.vector(text)
        return vectors

    def vector(self, text: str) -> Vector:
        """Return the vector of a text, without a call that is recorded or fails."""
        counts = np.zeros(self._dimension, dtype=np.float32)
        for stem in _stems(text) or [""]:
            counts[_place(stem, self._dimension)] += 1
        return np.asarray(counts / np.linalg.norm(counts), dtype=np.float32)


class CountingFakeEmbedder(FakeEmbedder):
    """A :class:`FakeEmbedder` that also counts tokens; its tokens are words.

    Args:
        max_tokens: Words, divided by white space, that it reads of a text; at least 1.
    """

    def __init__(self, dimension: int = 256, max_tokens: int = 512) -> None:
        super().__init__(dimension)
        self._max_tokens = checked_count(max_tokens, "max_tokens")

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

    def vector(self, text: str) -> Vector:
        """Return the vector of what it reads of a text."""
        return super().vector(" ".join(text.split()[: self._max_tokens]))


def _stems(text: str) -> list[str]:
    """Return the words of a text in lower case without common English endings."""
    return [_ENDING.sub("", word) for word in _WORD.findall(text.lower())]


def _place(stem: str, dimension: int) -> int:
    digest = blake2b(stem.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % dimension
