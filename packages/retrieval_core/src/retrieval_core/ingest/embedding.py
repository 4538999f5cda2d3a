"""The vectors of chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.errors import EmbeddingError, InvalidParameterError, as_embedding_error
from retrieval_core.types.documents import as_vectors, is_zero

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.ports import Embedder
    from retrieval_core.run.threads import ThreadPool
    from retrieval_core.types import Chunk, Matrix, Vector


class ChunkVectors:
    """Embeds chunks that are to be written.

    Args:
        embedder: ``None`` for an index without vectors.
        pool: Runs an embedder that blocks.
    """

    def __init__(self, embedder: Embedder | None, pool: ThreadPool) -> None:
        self._embedder = embedder
        self._pool = pool

    @property
    def recipe(self) -> str:
        """Names the embedder."""
        return str(self._embedder.id if self._embedder else None)

    async def passages(self, chunks: Sequence[Chunk], known: Mapping[str, Vector] | None = None) -> Matrix | None:
        """Return the vector of each passage with its headings; ``None`` without any, or for an index without vectors.

        Equal texts are embedded once.

        Args:
            chunks: To be embedded.
            known: Vectors of this embedder by their text, which is not embedded again.

        Raises:
            EmbeddingError: A text could not be embedded.
        """
        if self._embedder is None or not chunks:
            return None
        texts = [chunk.indexed_text for chunk in chunks]
        vectors = dict(known or {})
        unknown = [text for text in dict.fromkeys(texts) if text not in vectors]
        matrix = await self._embed(unknown)
        if len(unknown) == len(texts):
            return matrix
        if matrix is not None:
            vectors.update(zip(unknown, matrix, strict=True))
        import numpy as np  # noqa: PLC0415 - only those who have vectors pay for numpy

        return np.stack([vectors[text] for text in texts])

    async def _embed(self, texts: list[str]) -> Matrix | None:
        if self._embedder is None or not texts:
            return None
        try:
            matrix = as_vectors(await self._pool.call(self._embedder.embed_texts, texts))
        except InvalidParameterError as error:
            msg = f"{self._embedder.id} gave no vectors: {error}"
            raise EmbeddingError(msg) from error
        except Exception as error:  # noqa: BLE001 - raised again as an error of embedding
            failure = as_embedding_error(error, f"{self._embedder.id}: {len(texts)} texts")
            raise failure from failure.__cause__
        if matrix.ndim != 2 or len(matrix) != len(texts):
            msg = f"{self._embedder.id} gave vectors of the shape {matrix.shape} for {len(texts)} texts"
            raise EmbeddingError(msg)
        if matrix.size and (zero := is_zero(matrix)).any():
            text = texts[int(zero.argmax())]
            msg = f"{self._embedder.id} gave a vector of zeros, which no search can find, for the text {text!r:.80}"
            raise EmbeddingError(msg)
        return matrix.astype("float32", copy=False)
