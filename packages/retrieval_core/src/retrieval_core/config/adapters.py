"""Settings of components with several kinds: a section for each port, and in it one for each kind with settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - pydantic resolves it at run time
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    field_validator,
    model_validator,
)

from retrieval_core.config.addresses import checked_host, host_of, without_secrets

PROMPTS = ("keywords", "decompose", "hyde", "history")
"""What of ``transform`` has instructions of its own."""
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
"""Keyword arguments for a factory. Any of them may be a secret, so a dump contains only their names."""


@dataclass(frozen=True, slots=True)
class Use:
    """What a setting is for, beside its type: which choice it belongs to, and whether that can do without it.

    Attributes:
        choice: It does nothing where another choice was made, such as another kind.
        chosen_by: The setting beside it that makes the choice.
        environment: The vendor's own name for it, which is looked for in the environment where it is not set.
        is_needed: Whether the choice cannot be used without it.
        unless: The setting beside it that takes its place.
        example: Of a value, for messages.
    """

    choice: str = ""
    chosen_by: str = "kind"
    environment: str = ""
    is_needed: bool = False
    unless: str = ""
    example: str = ""


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
    """A section with options for a custom factory. Built-in kinds take none."""

    options: Options = Field(default_factory=dict, repr=False)
    """Keyword arguments for a custom factory."""
    _kinds_in: ClassVar[tuple[str, ...]] = ("kind",)
    """The settings that can name a factory."""
    _take_options: ClassVar[tuple[str, ...]] = ()
    """Built-in kinds that take some after all."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that are used, in their order; none where the section is switched off."""
        return self._named() if getattr(self, "enabled", True) else ()

    def _named(self) -> tuple[str, ...]:
        given = (getattr(self, setting) for setting in self._kinds_in)
        return tuple(kind for value in given for kind in ((value,) if isinstance(value, str) else value))

    @model_validator(mode="after")
    def _options_are_for_something(self) -> Self:
        named = self._named()
        if not self.options or any(":" in kind or kind in self._take_options for kind in named):
            return self
        if set(named) <= {"none"} and not self.model_fields_set.isdisjoint(self._kinds_in):
            return self  # what has a factory was switched off
        setting, kinds = self._kinds_in[0], ", ".join(map(repr, named)) or "empty"
        msg = f'options are for a custom factory, and {setting} is {kinds}; set it to "package.module:factory"'
        raise ValueError(msg)


def _as_mapping(fields: object) -> object:
    """Return the name of a preset as a mapping."""
    return {"preset": fields} if isinstance(fields, str) else fields


class PineconeConfig(Settings):
    """An index at Pinecone."""

    api_key: Annotated[SecretStr | None, Use(environment="PINECONE_API_KEY", is_needed=True)] = None
    """API key. Default: the environment variable ``PINECONE_API_KEY``."""
    index_name: Annotated[str | None, Use(environment="PINECONE_INDEX_NAME", is_needed=True, unless="host")] = None
    """Name of the index. Default: the environment variable ``PINECONE_INDEX_NAME``. Not needed with ``host``."""
    host: Annotated[str | None, AfterValidator(_host)] = None
    """Address of the index. It saves the request that looks up the name."""
    namespace: Annotated[str, Use(environment="PINECONE_NAMESPACE")] = ""
    """Namespace in the index. Default: the environment variable ``PINECONE_NAMESPACE``."""
    sparse: bool = False
    """Whether sparse vectors are searched too, for hybrid search. The index needs the metric ``dotproduct``."""
    fields: Annotated[dict[str, str], BeforeValidator(_as_mapping)] = Field(default_factory=dict)
    """For an index that another program filled: the metadata field of a chunk's ``text``, ``document_id``, ``title`` …
    Or a preset: ``langchain``, ``llamaindex`` or ``haystack``. Default: the preset ``default``."""


class LanceDBConfig(Settings):
    """A folder that LanceDB keeps."""

    table: str = Field(default="text_pages", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$")
    """Name of the table; several indexes may share a folder, such as ``text_pages_<name of the index>``."""


class QdrantConfig(Settings):
    """A collection of a Qdrant server, or of its client's local mode."""

    url: Annotated[
        str | None, AfterValidator(_address), Use(environment="QDRANT_URL", is_needed=True, unless="path")
    ] = None
    """Address of the server. Default: the environment variable ``QDRANT_URL``."""
    api_key: Annotated[SecretStr | None, Use(environment="QDRANT_API_KEY")] = None
    """API key. Default: the environment variable ``QDRANT_API_KEY``. Local servers may not need one."""
    path: str | None = None
    """Folder of the client's local mode, or ``:memory:``, instead of a server. For trials."""
    collection: str = Field(default="retrieval", min_length=1, max_length=255)
    """Name of the collection. The first write creates it."""
    indexed_fields: tuple[str, ...] = ()
    """Metadata fields that get an index for range operators such as ``$gt``. All have one for equality."""
    fields: Annotated[dict[str, str], BeforeValidator(_as_mapping)] = Field(default_factory=dict)
    """For a collection that another program filled: the part of the payload with a chunk's ``text``, ``metadata`` …
    Or a preset: ``langchain``, ``llamaindex`` or ``haystack``. Default: the preset ``default``."""
    vector: str | None = None
    """Name of the vector that is searched, if such a collection has several."""


class OpenAIEmbedderConfig(Settings):
    """An embedding model of OpenAI, or of any server with the same API."""

    model: str = "text-embedding-3-large"
    dimension: int | None = Field(default=None, ge=1)
    """Components of a vector. Default: the model's own number, if it is known."""
    base_url: Annotated[str | None, AfterValidator(_address)] = None
    """Address of another server with the same API."""
    api_key: Annotated[SecretStr | None, Use(environment="OPENAI_API_KEY", is_needed=True, unless="base_url")] = None
    """API key. Default: the environment variable ``OPENAI_API_KEY``."""
    batch_size: int = Field(default=128, ge=1, le=2048)
    """Texts in one request."""
    query_prefix: str = ""
    """Text before each query, if the model was trained with one and the server does not add it."""
    passage_prefix: str = ""
    """Text before each chunk, if the model was trained with one and the server does not add it."""


class LocalEmbedderConfig(Settings):
    """The embedding model that is installed or downloaded, or one in a folder of this machine.

    Defaults come from the model's files, then from its name.
    """

    dimension: int | None = Field(default=None, ge=1)
    """Components of a vector. A model needs Matryoshka training for fewer than its own number."""
    query_prefix: str | None = None
    """Text before each query."""
    passage_prefix: str | None = None
    """Text before each chunk. Default: empty if ``query_prefix`` is set."""
    pooling: Literal["cls", "mean", "last"] | None = None
    """How token vectors become one vector: the first (``cls``), their mean, or the last."""
    max_tokens: int | None = Field(default=None, ge=34)
    """Maximum number of tokens that the model reads, with those that its tokenizer adds."""
    source: Literal["auto", "package", "hub"] = "auto"
    """Source of the default model. ``package``: installed by the extra ``local``. ``hub``: downloaded by the extra
    ``hub`` at first use. ``auto``: the package if it is installed, otherwise the hub."""
    model: str | None = None
    """Its name on the Hugging Face hub, to look up its defaults."""
    file: str | None = None
    """The ONNX file in ``embedder.model_folder``, for instance one that is quantised to int8. It is ``model.onnx`` or
    ``onnx/model.onnx`` by default."""


class FastembedEmbedderConfig(Settings):
    """An embedding model that ``fastembed`` downloads. It is used as its model card says."""

    model: str = "BAAI/bge-small-en-v1.5"
    """Its name, as ``TextEmbedding.list_supported_models()`` has it."""
    dimension: int | None = Field(default=None, ge=1)
    """Components of a vector. A model needs Matryoshka training for fewer than its own number."""


class CohereEmbedderConfig(Settings):
    """An embedding model of Cohere."""

    model: str = "embed-v4.0"
    dimension: int | None = Field(default=None, ge=1)
    """Components of a vector. Default: the model's own number, if it is known."""
    base_url: Annotated[str | None, AfterValidator(_address)] = None
    """Address of another server with the same API."""
    api_key: Annotated[SecretStr | None, Use(environment="CO_API_KEY", is_needed=True, unless="base_url")] = None
    """API key. Default: the environment variable ``CO_API_KEY``."""


class OpenAILLMConfig(Settings):
    """A language model of OpenAI, or of any server with the same API."""

    model: str = "gpt-4.1-mini"
    base_url: Annotated[str | None, AfterValidator(_address)] = None
    """Address of another server with the same API: Ollama, vLLM, llama.cpp, a gateway."""
    api_key: Annotated[SecretStr | None, Use(environment="OPENAI_API_KEY", is_needed=True, unless="base_url")] = None
    """API key. Default: the environment variable ``OPENAI_API_KEY``."""


class CohereRerankerConfig(Settings):
    """A reranking model of Cohere."""

    model: str = "rerank-v3.5"
    base_url: Annotated[str | None, AfterValidator(_address)] = None
    """Address of another server with the same API."""
    api_key: Annotated[SecretStr | None, Use(environment="CO_API_KEY", is_needed=True, unless="base_url")] = None
    """API key. Default: the environment variable ``CO_API_KEY``."""


class FastembedRerankerConfig(Settings):
    """A reranking model that ``fastembed`` runs on this machine."""

    model: str | None = None
    """Its name on the hub. Default: the kind's own."""
    model_folder: Path | None = None
    """Folder with the model's files. If it is set, nothing is downloaded."""


class SqliteConfig(Settings):
    """An index in one SQLite file."""

    quantization: Literal["none", "int8"] = "none"
    """How vectors are kept in memory. ``int8`` needs a quarter of it, and compares the best hits exactly."""


class StoreConfig(WithOptions):
    """The store that keeps the index."""

    kind: str = "sqlite"
    """``sqlite`` (one file), ``lancedb`` (a folder, for large collections), ``memory`` (gone with the process),
    ``pinecone``, ``qdrant`` or ``"package.module:factory"``."""
    busy_timeout: float = Field(default=30.0, ge=0)
    """Seconds that a writer waits for another one."""
    sqlite: SqliteConfig = SqliteConfig()
    """For the kind ``sqlite``."""
    lancedb: Annotated[LanceDBConfig, Use("lancedb")] = LanceDBConfig()
    """For the kind ``lancedb``."""
    pinecone: Annotated[PineconeConfig, Use("pinecone")] = PineconeConfig()
    """For the kind ``pinecone``."""
    qdrant: Annotated[QdrantConfig, Use("qdrant")] = QdrantConfig()
    """For the kind ``qdrant``."""


class EmbedderConfig(WithOptions):
    """The embedder, which turns text into vectors."""

    kind: str = "local"
    """``local`` (on this machine: bge-small-en-v1.5 or a model in a folder), ``fastembed`` (other open models),
    ``openai``, ``cohere``, ``none`` (keyword search only) or ``"package.module:factory"``."""
    model_folder: Path | None = None
    """Folder with an ONNX file and ``tokenizer.json`` instead of the installed model."""
    threads: int | None = Field(default=None, ge=1, le=256)
    """Texts embedded at a time. Default: the number of processors."""
    local: LocalEmbedderConfig = LocalEmbedderConfig()
    """For the kind ``local``."""
    fastembed: Annotated[FastembedEmbedderConfig, Use("fastembed")] = FastembedEmbedderConfig()
    """For the kind ``fastembed``."""
    openai: Annotated[OpenAIEmbedderConfig, Use("openai")] = OpenAIEmbedderConfig()
    """For the kind ``openai``."""
    cohere: Annotated[CohereEmbedderConfig, Use("cohere")] = CohereEmbedderConfig()
    """For the kind ``cohere``."""


class LLMConfig(WithOptions):
    """The language model for the stages that need one. Without it they are absent."""

    kind: str = "none"
    """``none``, ``openai`` or ``"package.module:factory"``."""
    openai: Annotated[OpenAILLMConfig, Use("openai")] = OpenAILLMConfig()
    """For the kind ``openai``."""


class RerankerConfig(WithOptions):
    """Rerank the best hits with a model that reads query and chunk together."""

    _kinds_in: ClassVar[tuple[str, ...]] = ("kind", "fallbacks")

    enabled: bool = True
    """Whether the reranker named by ``kind`` is used."""
    kind: str = "none"
    """``none``, ``local`` (a cross-encoder on this machine), ``llm``, ``cohere``, ``cross-encoder`` and
    ``late-interaction`` (both with ``fastembed``) or ``"package.module:factory"``."""
    fallbacks: tuple[str, ...] = ()
    """Kinds to try in this order if it fails. If all fail, the hits keep their ranks."""
    candidates: int = Field(default=30, ge=1, le=1000)
    """Number of hits that are reranked."""
    weight: float = Field(default=0.3, ge=0, le=1)
    """Weight of the reranker's ranks, from 0 to 1; those of the search have the rest. With 1 only its scores count."""
    batch_size: int | None = Field(default=None, ge=1, le=1000)
    """Chunks scored in one call. Default: 10 for ``llm``, 32 for the models of this machine."""
    max_characters: Annotated[int, Use("llm")] = Field(default=1200, ge=4)
    """For ``llm``: characters of each chunk that the model sees."""
    strict_json: Annotated[bool, Use("llm")] = True
    """For ``llm``: whether requests contain a JSON schema. Set it to false if the server supports none."""
    prompt: Annotated[str | None, Use("llm")] = None
    """For ``llm``: instructions in place of the built-in rubric."""
    cohere: Annotated[CohereRerankerConfig, Use("cohere")] = CohereRerankerConfig()
    """For the kind ``cohere``."""
    cross_encoder: Annotated[FastembedRerankerConfig, Use("cross-encoder")] = FastembedRerankerConfig()
    """For the kind ``cross-encoder``."""
    late_interaction: Annotated[FastembedRerankerConfig, Use("late-interaction")] = FastembedRerankerConfig()
    """For the kind ``late-interaction``."""


class RelevanceFilterConfig(WithOptions):
    """Drop chunks that are not relevant to the query."""

    enabled: bool = True
    """Whether the relevance filter named by ``kind`` is used."""
    kind: str = "none"
    """``none``, ``llm``, ``local`` (a cross-encoder on this machine) or ``"package.module:factory"``."""
    relevance_prompt: Annotated[str | None, Use("llm")] = None
    """For ``llm``: instructions in place of the built-in ones."""
    relevance_threshold: Annotated[float, Use("local")] = Field(default=0.0001, ge=0, le=1)
    """For ``local``: the lowest score of a chunk that is kept; measured, see ``CrossEncoderRelevanceFilter``."""


class PrunerConfig(WithOptions):
    """Keep only the sentences of each chunk that are relevant to the query."""

    _take_options: ClassVar[tuple[str, ...]] = ("provence",)  # model and revision

    kind: str = "none"
    """``none``, ``embedder`` (the index's own), ``local`` (a cross-encoder on this machine), ``provence`` or
    ``"package.module:factory"``."""
    threshold: float | None = Field(default=None, ge=-1, le=1)
    """The lowest score of a sentence that is kept, on the kind's own scale. Default: a measured one, which ``embedder``
    has for the default embedder only."""


class RewriterConfig(WithOptions):
    """Rewrite the query and search again if the results are not relevant enough."""

    kind: str = "none"
    """``none``, ``llm`` or ``"package.module:factory"``."""
    max_attempts: int = Field(default=2, ge=0, le=10)
    """Further searches after the first one."""
    relevance_threshold: float = Field(default=0.5, ge=0, le=1)
    """Lowest relevance of results at which the query is not rewritten."""
    rewrite_prompt: Annotated[str | None, Use("llm")] = None
    """For ``llm``: instructions in place of the built-in ones."""


class TransformConfig(WithOptions):
    """Transform queries before the search: add keywords, sub-questions or a hypothetical answer."""

    _kinds_in: ClassVar[tuple[str, ...]] = ("use",)

    use: tuple[str, ...] = ()
    """Default transformers of each query: ``keywords``, ``decompose``, ``hyde`` (these need an LLM), ``graph`` (needs a
    graph), or ``"package.module:factory"``."""
    history: Literal["auto", "llm", "heuristic", "none"] = "auto"
    """How a follow-up question becomes a complete one. ``auto`` is ``llm`` if a language model is configured, otherwise
    ``heuristic``."""
    model: str | None = None
    """The language model for transformers, at the same provider. Default: the model of ``llm``."""
    prompts: dict[str, str] = Field(default_factory=dict)
    """Instructions in place of the built-in ones, for ``keywords``, ``decompose``, ``hyde`` and ``history``."""

    @field_validator("use")
    @classmethod
    def _names_are_told_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) < len(value):
            msg = f"each name can be given once, got {', '.join(value)}"
            raise ValueError(msg)
        return value

    @field_validator("prompts")
    @classmethod
    def _prompts_are_known(cls, value: dict[str, str]) -> dict[str, str]:
        if unknown := sorted(value.keys() - set(PROMPTS)):
            msg = f"there are no instructions for {', '.join(unknown)}; there are for {', '.join(PROMPTS)}"
            raise ValueError(msg)
        if blank := sorted(name for name, prompt in value.items() if not prompt.strip()):
            msg = f"the instructions for {', '.join(blank)} are blank; leave them out for the built-in ones"
            raise ValueError(msg)
        return value


class AnswerConfig(WithOptions):
    """Answer questions from the results: written by a language model if one is configured, otherwise quoted."""

    _kinds_in: ClassVar[tuple[str, ...]] = ("verifier",)

    prompt: str | None = None
    """Instructions to the language model in place of the built-in ones."""

    @field_validator("prompt")
    @classmethod
    def _prompt_says_something(cls, value: str | None) -> str | None:
        if value is not None and not value.strip():
            msg = "it is blank; leave it out for the built-in instructions"
            raise ValueError(msg)
        return value

    max_tokens: int | None = Field(default=None, ge=1)
    """Maximum length of an answer in the model's tokens. Default: the provider's limit."""
    abstain_below: float = Field(default=0.22, ge=0, le=1)
    """Abstain if the probability that the chunks answer the question is lower. A question with an identifier that no
    chunk contains is not answered either. 0 means always answer."""
    without_documents: bool = True
    """Whether the language model gives a general answer, marked as such, when no index can be searched."""
    verify: bool = False
    """Whether each sentence of a written answer is verified against the chunks."""
    verifier: str = "auto"
    """``auto`` and ``llm`` ask the language model. ``"package.module:factory"`` names your own verifier."""

    @field_validator("verifier")
    @classmethod
    def _verifier_is_not_local(cls, value: str) -> str:
        if value == "local":
            msg = "there is no local verifier any more; leave it out to ask the language model, or name your own"
            raise ValueError(msg)
        return value


_WHEN_ENABLED = Use("true", "enabled")


class SemanticCacheConfig(Settings):
    """Reuse the cached result of a query with the same meaning in other words."""

    enabled: bool = False
    """Whether similar queries are looked up. It needs an embedder, and ``cache.enabled``."""
    threshold: Annotated[float, _WHEN_ENABLED] = Field(default=0.98, ge=0, le=1)
    """Lowest cosine similarity of two queries that can be the same. Their numbers and names must agree too."""
    scope: Annotated[Literal["global", "session"], _WHEN_ENABLED] = "global"
    """``session`` compares a query only with those of the same ``session_id``."""


class CacheConfig(WithOptions):
    """Cache results for queries that are repeated."""

    enabled: bool = True
    kind: str = "memory"
    """``memory``, ``redis`` (shared by several processes) or ``"package.module:factory"``."""
    ttl_seconds: float = Field(default=300, gt=0)
    """Seconds until a result expires."""
    max_size: int = Field(default=1000, ge=1)
    """Maximum number of results in memory. The least recently used are dropped first."""
    embeddings: int = Field(default=1000, ge=0)
    """Maximum number of embedded queries in memory. 0 means none."""
    reranks: int = Field(default=1000, ge=0)
    """Maximum number of reranker calls whose scores are kept in memory. 0 means none."""
    semantic: SemanticCacheConfig = SemanticCacheConfig()
    """Reuse of cached results for queries with the same meaning in other words."""
    url: Annotated[SecretStr | None, Use("redis", is_needed=True, example="redis://localhost:6379/0")] = None
    """For ``redis``: ``redis://host:port/db``, with user and password if the server needs them."""


class EvaluationConfig(WithOptions):
    """Quality scores, computed for each query."""

    enabled: bool = False
    kind: str = "auto"
    """``ragas`` (needs an LLM), ``local`` (an estimate without one), ``auto`` (``ragas`` if an LLM is configured,
    otherwise ``local``) or ``"package.module:factory"``."""
