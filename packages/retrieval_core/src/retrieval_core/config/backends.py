"""Settings of what the stages run on: stores, embedding, language and reranking models."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - pydantic resolves it at run time
from typing import Annotated, Any, ClassVar, Self, TypeAlias, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    field_validator,
    model_validator,
)

from retrieval_core.config.addresses import checked_host, host_of, without_secrets

HIDDEN = "**********"
"""Stands for a secret, as Pydantic has it."""


def _address(value: str | None) -> str | None:
    """Check an address of a server; blank text, as an empty variable of the environment gives it, is none."""
    address = (value or "").strip()
    if not address:
        return None
    host_of(address)
    return address


def _host(value: str | None) -> str | None:
    return checked_host(value) if value else None


def _hidden(options: dict[str, Any]) -> dict[str, Any]:
    return {without_secrets(name): HIDDEN for name in options}


Options: TypeAlias = Annotated[dict[str, Any], PlainSerializer(_hidden)]
"""Keyword arguments for a factory; any of them may be a secret, so a dump has their names alone."""


class Settings(BaseModel):
    """What all sections have in common."""

    # What was given is told by load_config, which knows what must not show.
    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True, allow_inf_nan=False
    )

    @field_validator("*")
    @classmethod
    def _is_not_what_stands_for_a_secret(cls, value: Any) -> Any:
        given = value.get_secret_value() if isinstance(value, SecretStr) else value
        values = cast("dict[str, Any]", given).values() if isinstance(given, dict) else (given,)
        if any(isinstance(one, str) and one == HIDDEN for one in values):
            msg = "this comes from a dump of the settings, which shows no secrets; give what it was made from"
            raise ValueError(msg)
        return value


class WithOptions(Settings):
    """A section with options for a factory of the user's own, which no built-in kind takes."""

    options: Options = Field(default_factory=dict, repr=False)
    """Keyword arguments for a factory of your own."""
    _kinds_in: ClassVar[tuple[str, ...]] = ("kind",)
    """The settings that may name a factory."""
    _take_options: ClassVar[tuple[str, ...]] = ()
    """Built-in kinds that take some after all."""

    @model_validator(mode="after")
    def _options_are_for_something(self) -> Self:
        named: list[str] = []
        for setting in self._kinds_in:
            value = getattr(self, setting)
            named += [value] if isinstance(value, str) else value
        if not self.options or any(":" in kind or kind in self._take_options for kind in named):
            return self
        if set(named) <= {"none"} and not self.model_fields_set.isdisjoint(self._kinds_in):
            return self  # what has a factory was switched off
        setting, kinds = self._kinds_in[0], ", ".join(map(repr, named)) or "empty"
        msg = f'options are for a factory of your own, and {setting} is {kinds}; set it to "package.module:factory"'
        raise ValueError(msg)


class PineconeConfig(Settings):
    """An index at Pinecone."""

    api_key: SecretStr | None = None
    """``PINECONE_API_KEY`` of the environment where it is not set."""
    index_name: str | None = None
    """``PINECONE_INDEX_NAME`` of the environment where it is not set; not needed with ``host``."""
    host: Annotated[str | None, AfterValidator(_host)] = None
    """Address of the index; saves the request that looks it up by name."""
    namespace: str = ""
    """``PINECONE_NAMESPACE`` of the environment where it is not set."""
    sparse: bool = False
    """Whether words are searched too, by sparse vectors; for an index with the metric dotproduct."""
    fields: dict[str, str] = Field(default_factory=dict)
    """For an index that others filled: which metadata field holds a chunk's ``text``, ``document_id``, ``title`` …"""


class LanceDBConfig(Settings):
    """A folder that LanceDB keeps."""

    table: str = Field(default="text_pages", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$")
    """Name of the table; several indexes may share a folder, such as ``text_pages_<name of the index>``."""


class OpenAIEmbedderConfig(Settings):
    """An embedding model behind OpenAI's API, or any other that speaks it."""

    model: str = "text-embedding-3-large"
    dimension: int | None = Field(default=None, ge=1)
    """Components of a vector; the model's own number where it is known and this is not set."""
    base_url: Annotated[str | None, AfterValidator(_address)] = None
    """Another server that speaks the same protocol."""
    api_key: SecretStr | None = None
    """``OPENAI_API_KEY`` of the environment where it is not set."""
    batch_size: int = Field(default=128, ge=1, le=2048)
    """Texts in one request."""
    query_prefix: str = ""
    """Put before questions, never before passages, where the model was trained so."""


class OpenAILLMConfig(Settings):
    """A language model behind OpenAI's API, or any other that speaks it."""

    model: str = "gpt-4.1-mini"
    base_url: Annotated[str | None, AfterValidator(_address)] = None
    """Another server that speaks the same protocol: Ollama, vLLM, llama.cpp, a gateway."""
    api_key: SecretStr | None = None
    """``OPENAI_API_KEY`` of the environment where it is not set."""


class CohereRerankerConfig(Settings):
    """A reranking model of Cohere's."""

    model: str = "rerank-v3.5"
    base_url: Annotated[str | None, AfterValidator(_address)] = None
    """Another server that speaks the same protocol."""
    api_key: SecretStr | None = None
    """``CO_API_KEY`` of the environment where it is not set."""


class LocalRerankerConfig(Settings):
    """The cross-encoder of this machine."""

    batch_size: int = Field(default=32, ge=1, le=1000)
    """Passages of one call."""


class FastembedRerankerConfig(Settings):
    """A reranking model that ``fastembed`` runs on this machine."""

    model: str | None = None
    """Its name on the hub; the kind's own default where it is not set."""
    model_folder: Path | None = None
    """Folder with the model's files; nothing is downloaded then."""
    batch_size: int = Field(default=32, ge=1, le=1000)
    """Passages of one call."""


class StoreConfig(WithOptions):
    """Where the index is kept."""

    kind: str = "sqlite"
    """``sqlite`` (one file), ``lancedb`` (a folder, for large collections), ``memory`` (gone with the process),
    ``pinecone`` or ``"package.module:factory"``."""
    busy_timeout: float = Field(default=30.0, ge=0)
    """Seconds that a writer waits for another one."""
    lancedb: LanceDBConfig = LanceDBConfig()
    """For the kind ``lancedb``."""
    pinecone: PineconeConfig = PineconeConfig()
    """For the kind ``pinecone``."""


class EmbedderConfig(WithOptions):
    """What turns text into vectors."""

    kind: str = "local"
    """``local`` (bge-small-en-v1.5 on this machine), ``openai``, ``none`` (lexical search only) or
    ``"package.module:factory"``."""
    model_folder: Path | None = None
    """Folder with ``model.onnx`` and ``tokenizer.json`` instead of the installed model."""
    threads: int | None = Field(default=None, ge=1, le=256)
    """Texts embedded at a time; as many as there are processors where it is not set."""
    openai: OpenAIEmbedderConfig = OpenAIEmbedderConfig()
    """For the kind ``openai``."""


class LLMConfig(WithOptions):
    """The language model for the stages that need one; without it they are absent."""

    kind: str = "none"
    """``none``, ``openai`` or ``"package.module:factory"``."""
    openai: OpenAILLMConfig = OpenAILLMConfig()
    """For the kind ``openai``."""
