"""The embedder for open models that ``fastembed`` lists, downloads and keeps; they run as models in a folder do."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from pydantic import Field

from retrieval_core.adapters.local_models.bert import MODEL, TOKENIZER
from retrieval_core.adapters.local_models.embedding import EmbeddingModel, RunsEmbeddingModel
from retrieval_core.adapters.local_models.fastembed import fetched, unknown
from retrieval_core.adapters.local_models.files import LocalModel, ModelFiles
from retrieval_core.adapters.local_models.known_models import KNOWN_MODELS, ModelFacts, known_model, settled
from retrieval_core.adapters.local_models.work import needing_extra
from retrieval_core.config.base import AdapterSettings
from retrieval_core.errors import ConfigurationError
from retrieval_core.run.caching import Lazy

if TYPE_CHECKING:
    from typing import Self

    from retrieval_core.adapters.parts import AdapterParts


class FastembedEmbedderSettings(AdapterSettings):
    """An embedding model that ``fastembed`` downloads. It is used as its model card says."""

    model: str = "BAAI/bge-small-en-v1.5"
    """Name of the model, from ``TextEmbedding.list_supported_models()``."""
    dimension: int | None = Field(default=None, ge=1)
    """Components of a vector. Default: the model's own number. Fewer need a model with Matryoshka training."""


class FastembedEmbedder(RunsEmbeddingModel):
    """Embeds with an open model that ``fastembed`` finds in its cache or downloads with the first text.

    The model is used as its card says, by what is known of its name (``KNOWN_MODELS``). Its files are run one text a
    call, as :class:`~retrieval_core.adapters.embedders.local.LocalEmbedder` does: in a batch a quantised model would
    give a text another vector with each set of texts around it.

    Args:
        settings: The model's name, and the dimension of its vectors.
        threads: As with :class:`~retrieval_core.adapters.embedders.local.LocalEmbedder`.

    Raises:
        ConfigurationError: Nothing is known of such a model, or its vectors cannot be cut so.
        InvalidParameterError: ``threads`` is less than 1.
    """

    Settings = FastembedEmbedderSettings

    def __init__(self, settings: FastembedEmbedderSettings | None = None, *, threads: int | None = None) -> None:
        settings = settings or FastembedEmbedderSettings()
        self._name = settings.model
        _check_known(settings.model)
        facts = settled(
            ModelFacts(), settings.dimension, settings.model, section="embedder.fastembed", place=settings.model
        )
        files = LocalModel(f"fastembed/{settings.model}", {}, carrier="", extra="fastembed")
        model = EmbeddingModel.of(files, facts, settings.dimension)
        super().__init__("An embedding model of fastembed", model, threads=threads)
        self._files = Lazy(self._fetch)

    @classmethod
    def from_settings(cls, settings: FastembedEmbedderSettings, parts: AdapterParts) -> Self:  # noqa: ARG003 - it uses none
        """Make it from its settings, loading nothing."""
        return cls(settings)

    def _fetch(self) -> ModelFiles:
        with needing_extra("fastembed", self._needed_for):
            from fastembed import TextEmbedding  # noqa: PLC0415 - an extra
        listed: dict[str, dict[str, Any]] = {
            each["model"]: each
            for each in TextEmbedding.list_supported_models()
            if str(each["model_file"]).endswith(".onnx")
        }
        described = next((each for name, each in listed.items() if name.lower() == self._name.lower()), None)
        if described is None:
            raise ConfigurationError(unknown(self._name, list(listed)))
        setting = f"embedder.local.model_folder, with embedder.kind = local and embedder.local.model = {self._name}"
        folder = fetched(TextEmbedding, described, setting)
        return ModelFiles({MODEL: folder / described["model_file"], TOKENIZER: folder / TOKENIZER}, {})


def _check_known(name: str) -> None:
    """Refuse a model of which nothing is known.

    Raises:
        ConfigurationError: With names that are alike.
    """
    if known_model(name).dimension is None:
        close = get_close_matches(name, KNOWN_MODELS, n=3, cutoff=0.5) or ["BAAI/bge-base-en-v1.5"]
        msg = (
            f"{name}: prefixes, pooling and length of this embedding model are not known. Set embedder.fastembed.model "
            f"to a known name, such as {', '.join(close)}; or download the model, and set embedder.kind to local, "
            "embedder.local.model_folder to its folder, and embedder.local as on its model card"
        )
        raise ConfigurationError(msg)
