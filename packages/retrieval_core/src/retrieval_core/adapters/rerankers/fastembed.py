"""Rerankers with models that ``fastembed`` finds and runs on this machine: cross-encoders and late interaction."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from math import isfinite, tanh
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from retrieval_core.adapters.local_models.fastembed import digest_of, fetched, lacking, unknown
from retrieval_core.adapters.local_models.work import Pooled, in_slices, needing_extra, thread_count
from retrieval_core.config.base import AdapterSettings, File
from retrieval_core.errors import ConfigurationError, ModelNotFoundError, ServiceError
from retrieval_core.ports import Reranker, RerankScores
from retrieval_core.run.caching import Lazy
from retrieval_core.types.escapes import valid_unicode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from fastembed import LateInteractionTextEmbedding
    from fastembed.rerank.cross_encoder import TextCrossEncoder

    from retrieval_core.adapters.parts import AdapterParts
    from retrieval_core.types import Matrix

# Where the files of a model that fastembed does not know may lie in its folder.
_MODEL_FILES = ("onnx/model.onnx", "model.onnx")
_OWN = "retrieval-core/"
BATCH_SIZE = 32
"""Passages of one call, as of the local cross-encoder."""
_LOCAL = ("CPUExecutionProvider",)


class FastembedRerankerSettings(AdapterSettings):
    """A reranking model that ``fastembed`` runs on this machine."""

    model: str | None = None
    """Name of the model on the Hugging Face hub. Default: ``BAAI/bge-reranker-base`` for ``cross-encoder``,
    ``answerdotai/answerai-colbert-small-v1`` for ``late-interaction``."""
    model_folder: File = None
    """Folder with the model's files. If it is set, nothing is downloaded."""


class _FastembedReranker(Pooled, Reranker):
    Settings = FastembedRerankerSettings
    _default_model: ClassVar[str]
    _needed_for: ClassVar[str]

    def __init__(
        self,
        model: str | None = None,
        model_folder: Path | str | None = None,
        *,
        threads: int | None = None,
        batch_size: int = BATCH_SIZE,
    ) -> None:
        super().__init__("fastembed", thread_count(threads), batch_size)
        self._model = model or self._default_model
        self._folder = None if model_folder is None else Path(model_folder)
        self._digest = "" if self._folder is None else f"@{digest_of(self._model, self._folder)}"
        self._loaded: Lazy[Any] = Lazy(self._load)
        self._file_bytes = 0

    @classmethod
    def from_settings(cls, settings: FastembedRerankerSettings, parts: AdapterParts) -> Self:
        """Make it from its settings, loading nothing."""
        return cls(**dict(settings), batch_size=parts.section.batch_size or BATCH_SIZE)

    @property
    def id(self) -> str:
        """Names the model, and a digest of its files where a folder is configured."""
        return f"fastembed/{self._model}{self._digest}"

    @property
    def is_loaded(self) -> bool:
        """Whether the model is in memory."""
        return self._loaded.made is not None

    async def load(self) -> None:
        """Load the model."""
        await self._pool.run(self._loaded.get)

    @property
    def loaded_bytes(self) -> int:
        """Bytes of the model's file, where it is in memory; inference takes more while it runs."""
        return self._file_bytes if self.is_loaded else 0

    async def _score(self, query: str, passages: Sequence[str]) -> RerankScores:
        """Score passages, each by itself, in [0, 1].

        Raises:
            MissingExtraError: ``fastembed`` is not installed.
            ModelNotFoundError: The model's files are neither here nor on the hub, or cannot be run.
            ConfigurationError: ``fastembed`` knows no such model, or the model in the folder is of another kind.
            ServiceError: The model failed.
            PoolSaturatedError: Too many calls are waiting.
        """
        if not passages:
            return RerankScores(())
        prepared = await self._pool.run(self._prepare, query)

        async def score_part(part: Sequence[str]) -> float:
            return await self._pool.run(self._checked, prepared, part[0])

        # One at a time: a call that is cancelled does not begin with the next passage.
        return RerankScores(tuple(await in_slices(passages, 1, min(self._threads, len(passages)), score_part)))

    def _prepare(self, query: str) -> Any:
        """Load the model if needed, and read the question once for all passages."""
        model = self._loaded.get()
        try:
            return self._read_query(model, valid_unicode(query))
        except Exception as error:  # the libraries' errors have no common base
            msg = f"{self.id}: {error}"
            raise ServiceError(msg, self.id) from error

    def _checked(self, query: Any, passage: str) -> float:
        model = self._loaded.get()
        try:
            score = self._score_one(model, query, valid_unicode(passage))
        except Exception as error:  # the libraries' errors have no common base
            msg = f"{self.id}: {error}"
            raise ServiceError(msg, self.id) from error
        if not isfinite(score):
            msg = f"{self.id} gave no number for a passage; the model's files may be damaged"
            raise ServiceError(msg, self.id)
        return min(1.0, max(0.0, score))

    def _load(self) -> Any:
        with needing_extra("fastembed", self._needed_for):
            vendor = self._vendor()
        described = {each["model"].lower(): each for each in vendor.list_supported_models()}
        name, folder = self._model, self._folder
        if folder is None:
            if name.lower() not in described:
                raise ConfigurationError(unknown(name, [each["model"] for each in described.values()]))
            folder = fetched(vendor, described[name.lower()])
        else:
            name = self._name_for(folder, described)
        try:
            # One thread a call, as more texts at a time are a matter of more calls; on the processor, as the rest.
            model = vendor(name, threads=1, providers=_LOCAL, specific_model_path=str(folder))
        except Exception as error:  # the libraries' errors have no common base
            msg = f"{folder} does not hold {self._model} in a form that can be run: {error}"
            raise ModelNotFoundError(msg) from error
        for tokenizer in (getattr(model.model, name, None) for name in ("tokenizer", "query_tokenizer")):
            if tokenizer is not None:
                tokenizer.encode_special_tokens = True  # [SEP] in a text is text
        self._check(model, folder)
        known = described.get(name.lower())
        file = known["model_file"] if known is not None else name.removeprefix(_OWN)
        self._file_bytes = (folder / file).stat().st_size
        return model

    @abstractmethod
    def _vendor(self) -> Any: ...

    @abstractmethod
    def _name_for(self, folder: Path, described: dict[str, Any]) -> str: ...

    @abstractmethod
    def _check(self, model: Any, folder: Path) -> None: ...

    @abstractmethod
    def _read_query(self, model: Any, query: str) -> Any: ...

    @abstractmethod
    def _score_one(self, model: Any, query: Any, passage: str) -> float: ...


class FastembedCrossEncoder(_FastembedReranker):
    """Scores with a cross-encoder off the event loop; a :class:`~retrieval_core.ports.Reranker`.

    A score is the logistic function of the model's one output, in [0, 1]. Text beyond the model's length (512 tokens
    for the default model) is left out.

    The first call loads and, if needed, downloads the model; after a failure the next call tries again. A cancelled
    call ends after the passages that are being scored. It may be used from several event loops and threads.

    Args:
        model: As ``TextCrossEncoder.list_supported_models()`` names it; ``BAAI/bge-reranker-base`` (MIT licence,
            English and Chinese, 1 GB) by default. Any name for a model in a folder.
        model_folder: Holds the model's files as its repository on the hub does: ``tokenizer.json``,
            ``tokenizer_config.json``, and ``onnx/model.onnx`` or ``model.onnx``. Nothing is downloaded then. Without
            it, the files are taken from fastembed's cache (``FASTEMBED_CACHE_PATH``), else from the hub.
        threads: Passages scored at a time, at least 1; by default as many as this process has processors, at most 8.
        batch_size: Passages of one call, at least 1.

    Raises:
        ModelNotFoundError: The folder lacks a file.
        InvalidParameterError: ``threads`` or ``batch_size`` is less than 1.
    """

    _default_model = "BAAI/bge-reranker-base"
    _needed_for = "A cross-encoder of fastembed"

    def _vendor(self) -> Any:
        from fastembed.rerank.cross_encoder import TextCrossEncoder  # noqa: PLC0415 - an extra

        return TextCrossEncoder

    def _name_for(self, folder: Path, described: dict[str, Any]) -> str:
        known = described.get(self._model.lower())
        if known is not None and (folder / known["model_file"]).is_file():
            return self._model
        file = next((file for file in _MODEL_FILES if (folder / file).is_file()), None)
        if file is None:
            raise ModelNotFoundError(lacking(self._model, folder, [" or ".join(_MODEL_FILES)]))
        from fastembed.common.model_description import ModelSource  # noqa: PLC0415 - loaded by now

        # All that the vendor needs to know of such a model is which of the folder's files it is.
        name = f"{_OWN}{file}"
        vendor: type[TextCrossEncoder] = self._vendor()
        with suppress(ValueError):  # it has been told already
            vendor.add_custom_model(name, ModelSource(hf=name), model_file=file)
        return name

    def _check(self, model: Any, folder: Path) -> None:
        size = model.model.model.get_outputs()[0].shape
        if len(size) != 2 or (isinstance(size[1], int) and size[1] != 1):
            msg = f"{folder} holds no cross-encoder: its output has the shape {size}, and one number a pair is needed"
            raise ConfigurationError(msg)

    def _read_query(self, model: Any, query: str) -> str:
        del model
        return query

    def _score_one(self, model: TextCrossEncoder, query: str, passage: str) -> float:
        (logit,) = model.rerank(query, [passage], batch_size=1)
        return (1 + tanh(logit / 2)) / 2  # 1 / (1 + e^-logit), for large values too


class FastembedLateInteraction(_FastembedReranker):
    """Scores with a model that gives each token a vector (ColBERT); a :class:`~retrieval_core.ports.Reranker`.

    The score is MaxSim (Khattab and Zaharia, "ColBERT", https://arxiv.org/abs/2004.12832), scaled to [0, 1]: with m the
    mean over the question's tokens of the greatest cosine with a token of the passage, (1 + m) / 2. Scores of good and
    bad passages lie close together.

    Loading, cancelling, threads and event loops are as with :class:`FastembedCrossEncoder`.

    Args:
        model: As ``LateInteractionTextEmbedding.list_supported_models()`` names it;
            ``answerdotai/answerai-colbert-small-v1`` (Apache-2.0 licence, English, 130 MB) by default.
        model_folder: Holds the files of this model as its repository on the hub does: ``tokenizer.json``,
            ``tokenizer_config.json``, and the ONNX file that fastembed reads (``vespa_colbert.onnx`` for the default
            model). Nothing is downloaded then.
        threads: As with :class:`FastembedCrossEncoder`.
        batch_size: Passages of one call, at least 1.

    Raises:
        ModelNotFoundError: The folder lacks a file.
        InvalidParameterError: ``threads`` or ``batch_size`` is less than 1.
    """

    _default_model = "answerdotai/answerai-colbert-small-v1"
    _needed_for = "A late interaction model of fastembed"

    def _vendor(self) -> Any:
        from fastembed import LateInteractionTextEmbedding  # noqa: PLC0415 - an extra

        return LateInteractionTextEmbedding

    def _name_for(self, folder: Path, described: dict[str, Any]) -> str:
        known = described.get(self._model.lower())
        if known is None:
            raise ConfigurationError(unknown(self._model, [each["model"] for each in described.values()]))
        if not (folder / known["model_file"]).is_file():
            raise ModelNotFoundError(lacking(self._model, folder, [known["model_file"]]))
        return self._model

    def _check(self, model: Any, folder: Path) -> None:
        size = model.model.model.get_outputs()[0].shape
        if len(size) != 3:
            msg = f"{folder} holds no late interaction model: its output has the shape {size}, not a vector a token"
            raise ConfigurationError(msg)

    def _read_query(self, model: LateInteractionTextEmbedding, query: str) -> Matrix:
        return _unit_rows(next(iter(model.query_embed(query))))

    def _score_one(self, model: LateInteractionTextEmbedding, query: Matrix, passage: str) -> float:
        tokens = _unit_rows(next(iter(model.embed([passage], batch_size=1))))
        return max_similarity(query, tokens)


def max_similarity(query: Matrix, passage: Matrix) -> float:
    """Return (1 + m) / 2, with m the mean over the question's tokens of the best cosine with a token of the passage.

    Args:
        query: Unit vectors of the question's tokens, shape ``(tokens, size)``, at least one.
        passage: Those of the passage; without any, the score is 0.
    """
    if not len(passage):
        return 0.0
    return (1 + float((query @ passage.T).max(axis=1).mean())) / 2


def _unit_rows(vectors: Any) -> Matrix:
    import numpy as np  # noqa: PLC0415 - loaded with the model

    rows = np.asarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)
