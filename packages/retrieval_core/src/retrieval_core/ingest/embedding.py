"""The vectors of chunks: that of each passage, and named ones of its title, its headings or a metadata field."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from retrieval_core.errors import EmbeddingError, InvalidParameterError, as_embedding_error
from retrieval_core.types.filters import lookup
from retrieval_core.types.vectors import as_vectors, is_zero

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.ports import Embedder
    from retrieval_core.run.threads import ThreadPool
    from retrieval_core.types import Chunk, Matrix, Vector

METADATA = "metadata."
LONGEST_TEXT = 8000
"""Code points of a text that are embedded for a named vector; models read no more."""


class ChunkVectors:
    """Embeds chunks that are to be written.

    Args:
        embedder: ``None`` for an index without vectors.
        fields: The text of each named vector: ``title``, ``section`` or ``metadata.`` and the path of a field.
        pool: Runs an embedder that blocks.

    Raises:
        InvalidParameterError: There are named vectors and no embedder, or one of them is of something unknown.
    """

    def __init__(self, embedder: Embedder | None, fields: Mapping[str, str], pool: ThreadPool) -> None:
        if fields and embedder is None:
            msg = f"the named vectors {', '.join(fields)} need an embedder, and none was given"
            raise InvalidParameterError(msg)
        for name, field in fields.items():
            if field not in {"title", "section"} and not (field.startswith(METADATA) and field != METADATA):
                msg = f"the vector {name!r} cannot be of {field!r}; use title, section or metadata.<field>"
                raise InvalidParameterError(msg)
        self._embedder = embedder
        self._fields = dict(fields)
        self._pool = pool

    @property
    def recipe(self) -> str:
        """Names the embedder and the fields of the named vectors."""
        model = str(self._embedder.id if self._embedder else None)
        return f"{model} {json.dumps(self._fields, sort_keys=True)}" if self._fields else model

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

    async def named(self, chunks: Sequence[Chunk]) -> dict[str, dict[str, Vector]]:
        """Return the named vectors by name and chunk id, of those chunks that have a text for them.

        Equal texts are embedded once.

        Raises:
            EmbeddingError: A text could not be embedded.
        """
        texts = {name: _texts(chunks, field) for name, field in self._fields.items()}
        distinct = list(dict.fromkeys(text for of_chunk in texts.values() for text in of_chunk.values()))
        matrix = await self._embed(distinct)
        if matrix is None:
            return {}
        rows = dict(zip(distinct, matrix, strict=True))
        named = {name: {key: rows[text] for key, text in of_chunk.items()} for name, of_chunk in texts.items()}
        return {name: vectors for name, vectors in named.items() if vectors}

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


def _texts(chunks: Sequence[Chunk], field: str) -> dict[str, str]:
    """Return a field's texts by chunk id, of those chunks that have it."""
    found = ((chunk.id, _text(chunk, field).strip()[:LONGEST_TEXT]) for chunk in chunks)
    return {key: text for key, text in found if text}


def _text(chunk: Chunk, field: str) -> str:
    if field == "title":
        return chunk.title or ""
    if field == "section":
        return " > ".join(filter(None, chunk.section_path))
    value = lookup(chunk.metadata, field.removeprefix(METADATA))
    if isinstance(value, tuple):  # such as keywords
        return "\n".join(item for item in value if isinstance(item, str))
    return value if isinstance(value, str) else ""
