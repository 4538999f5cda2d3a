"""Embedding models of one ONNX file: what there is to know of one, and the base of the adapters that run them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from retrieval_core.adapters.local_models.bert import RunsBert
from retrieval_core.adapters.local_models.work import in_slices, run_stoppable, thread_count
from retrieval_core.errors import ConfigurationError, EmbeddingError
from retrieval_core.ports import Embedder
from retrieval_core.run.caching import Lazy
from retrieval_core.run.threads import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from retrieval_core.adapters.local_models.files import LocalModel, ModelFiles
    from retrieval_core.adapters.local_models.known_models import ModelFacts, Pooling
    from retrieval_core.adapters.local_models.work import StopSignal
    from retrieval_core.types import Matrix, Vector

# Texts handed to a thread at a time: enough to make the hand-over cheap, few enough to stop soon.
_SLICE = 16
# What the tokenizers of encoders add to a text: a mark before it and one behind it.
ADDED_TOKENS = 2


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """A transformer whose vectors of tokens become one vector of a text, scaled to unit length.

    Attributes:
        files: ``model.onnx`` and ``tokenizer.json``.
        dimension: Components of a vector.
        max_tokens: Tokens that the model reads, without those that it adds itself.
        query_prefix: Put before questions, never before passages.
        passage_prefix: Put before passages, never before questions.
        pooling: How the vectors of tokens become one; a model that does so itself is left to it.
        full_dimension: Components that the model gives, where its vectors are cut to fewer; ``None`` for ``dimension``.
        centred: Whether the mean of all components is taken from each before a vector is cut.
    """

    files: LocalModel
    dimension: int
    max_tokens: int
    query_prefix: str = ""
    passage_prefix: str = ""
    pooling: Pooling = "cls"
    full_dimension: int | None = None
    centred: bool = False

    @property
    def given_dimension(self) -> int:
        """Components that the model gives."""
        return self.full_dimension or self.dimension

    @classmethod
    def of(cls, files: LocalModel, facts: ModelFacts, dimension: int | None) -> EmbeddingModel:
        """Return the model that :func:`~retrieval_core.adapters.local_models.known_models.settled` facts describe.

        Args:
            dimension: To cut its vectors to.
        """
        full, pooling = facts.dimension or 0, facts.pooling or "cls"
        is_cut = dimension is not None and dimension != full
        return cls(
            files=files,
            dimension=dimension or full,
            max_tokens=(facts.max_tokens or 0) - ADDED_TOKENS,
            query_prefix=facts.query_prefix or "",
            passage_prefix=facts.passage_prefix or "",
            pooling=pooling,
            full_dimension=full if is_cut else None,
            centred=is_cut and bool(facts.centred),
        )


class RunsEmbeddingModel(RunsBert, Embedder):
    """Embeds with an ONNX model on the processor, off the event loop; an :class:`~retrieval_core.ports.Embedder`.

    The model is loaded by the first text, and after a failure by the next. Questions have threads of their own, so that
    they never wait behind passages. A cancelled call ends its inference. It may be used from several event loops.

    Args:
        needed_for: As of :class:`RunsBert`, and ``files`` likewise.
        model: The model that is run.
        threads: Passages embedded at a time, and questions at a time, at least 1; by default as :func:`thread_count`.

    Raises:
        InvalidParameterError: ``threads`` is less than 1.
    """

    _role = "Embedding model"

    def __init__(
        self,
        needed_for: str,
        model: EmbeddingModel,
        files: ModelFiles | None = None,
        *,
        threads: int | None = None,
    ) -> None:
        super().__init__(needed_for, model.files, files)
        self._model = model
        self._threads = thread_count(threads)
        self._counter = Lazy(self._make_counter)
        self._queries = ThreadPool("embed-query", self._threads)
        self._passages = ThreadPool("embed-passages", self._threads)

    @property
    def id(self) -> str:
        """Names the model, and a digest of all that its vectors depend on: files, prefixes, pooling and length."""
        return self._id

    @cached_property
    def _id(self) -> str:
        model = self._model
        further = (model.passage_prefix, model.pooling, model.dimension, model.given_dimension, model.centred)
        plain = ("", "cls", model.given_dimension, model.given_dimension, False)
        return self._id_with(model.query_prefix, model.max_tokens, *(() if further == plain else further))

    @property
    def dimension(self) -> int:
        """Number of components of each vector."""
        return self._model.dimension

    @property
    def max_tokens(self) -> int:
        """Tokens of a passage that the model reads, without those that are put before it and that the model adds.

        Where something is put before passages, the first use reads the model's files, and raises as :attr:`tokenizer`.
        """
        prefix = self._model.passage_prefix
        return self._model.max_tokens - (self.count_tokens(prefix) if prefix else 0)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer without truncation and padding: a copy for the caller, made in some 30 ms.

        The first use reads the model's files, so do not ask on an event loop.

        Raises:
            MissingExtraError: ``tokenizers`` is not installed.
            ModelNotFoundError: The files are missing or are not the right ones.
        """
        tokenizer = self._tokenizer.get()
        from retrieval_core.adapters.local_models.tokens import copy_tokenizer  # noqa: PLC0415 - loads tokenizers

        return copy_tokenizer(tokenizer)

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of the whole text, without those that the model adds.

        The first call reads the model's files, and raises as :attr:`tokenizer`; do not call it on an event loop.
        """
        return self._counter.get()(text)

    async def _embed_query(self, text: str) -> Vector:
        """Embed one question: shape ``(dimension,)``, float32, unit length; text past the model's length is left out.

        Raises:
            MissingExtraError: ``onnxruntime`` or ``tokenizers`` is not installed.
            ModelNotFoundError: The files are missing or are not the right ones.
            ServiceConnectionError: The files could not be downloaded.
            EmbeddingError: The model failed.
            PoolSaturatedError: Too many queries are waiting.
        """
        try:
            vectors = await self._embed(self._queries, [self._model.query_prefix + text])
        except EmbeddingError as error:
            error.query = text
            raise
        return vectors[0]

    async def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """Embed questions: shape ``(len(texts), dimension)``, each row as :meth:`embed_query` gives it.

        Raises:
            RetrievalError: As :meth:`embed_query`.
        """
        return await self._spread(self._queries, [self._model.query_prefix + text for text in texts])

    async def _embed_texts(self, texts: Sequence[str]) -> Matrix:
        """Embed passages: shape ``(len(texts), dimension)``, float32, rows of unit length, in the order of the texts.

        Raises:
            RetrievalError: As :meth:`embed_query`.
        """
        prefix = self._model.passage_prefix
        return await self._spread(self._passages, [prefix + text for text in texts] if prefix else texts)

    async def reopen(self) -> None:
        """Drop the model from memory; the next text loads its files anew."""
        self._failed = None
        for part in (self._files, self._tokenizer, self._counter, self._onnx):
            await asyncio.to_thread(part.forget)  # waits for whoever loads it just now

    async def aclose(self) -> None:
        """Wait for what runs, drop what waits, and refuse further texts. Closing twice is fine."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Do what :meth:`aclose` does, blocking."""
        self._queries.close()
        self._passages.close()

    async def _spread(self, pool: ThreadPool, texts: Sequence[str]) -> Matrix:
        size = max(1, min(_SLICE, -(-len(texts) // self._threads)))
        parts = await in_slices(texts, size, self._threads, lambda part: self._embed(pool, part))
        import numpy as np  # noqa: PLC0415 - a thread has loaded it by now

        return np.concatenate(parts)

    async def _embed(self, pool: ThreadPool, texts: Sequence[str]) -> Matrix:
        return await run_stoppable(pool, self._vectors, texts)

    def _vectors(self, texts: Sequence[str], stop: StopSignal) -> Matrix:
        import numpy as np  # noqa: PLC0415 - loaded in a thread, with the model

        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            vectors[row] = self._vector(text, stop)
        return vectors

    def _vector(self, text: str, stop: StopSignal) -> Vector:
        model, tokenizer = self._onnx.get(), self._tokenizer.get()
        import numpy as np  # noqa: PLC0415 - loaded above

        from retrieval_core.adapters.local_models.tokens import encode_start  # noqa: PLC0415 - loaded above

        try:
            output = model.run(encode_start(tokenizer, text, self._model.max_tokens), stop)
        except Exception as error:  # the libraries' errors have no common base
            msg = f"{self.id}: {error}"
            raise EmbeddingError(msg) from error
        vector = _pooled(output, self._model.pooling).astype(np.float32, copy=False)  # some give half precision
        if len(vector) != self._model.given_dimension:
            msg = f"{self.id}: the model gave a vector of {len(vector)} components, and {self._model.given_dimension} "
            msg += "were configured"
            raise EmbeddingError(msg)
        if self._model.centred:
            vector = vector - vector.mean()
        vector = vector[: self.dimension]
        length = np.linalg.norm(vector)
        if not 0 < length < np.inf:
            msg = f"{self.id} gave no direction for a text: all zeros, or not numbers; its files may be damaged"
            raise EmbeddingError(msg)
        return vector / np.float32(length)

    def _make_counter(self) -> Callable[[str], int]:
        tokenizer = self._tokenizer.get()
        from retrieval_core.adapters.local_models.tokens import token_counter  # noqa: PLC0415 - loaded above

        return token_counter(tokenizer)

    def _check_output(self, path: Path, size: int) -> None:
        if size != self._model.given_dimension:
            msg = f"{path} gives vectors of {size} components, and {self._model.given_dimension} were configured"
            raise ConfigurationError(msg)


def _pooled(output: NDArray[np.float32], pooling: Pooling) -> NDArray[np.float32]:
    """Return one vector of those of the tokens, shape ``(tokens, size)``; what is one already stays so."""
    if output.ndim == 1:
        return output
    if pooling == "mean":
        return output.mean(axis=0)
    return output[0 if pooling == "cls" else -1]
