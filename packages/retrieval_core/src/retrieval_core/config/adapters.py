"""Settings of what there are several kinds of: a section for each port, and in it one for each kind that has some."""

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
"""Keyword arguments for a factory; any of them may be a secret, so a dump has their names alone."""


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
    """A section with options for a factory of the user's own, which no built-in kind takes."""

    options: Options = Field(default_factory=dict, repr=False)
    """Keyword arguments for a factory of your own."""
    _kinds_in: ClassVar[tuple[str, ...]] = ("kind",)
    """The settings that may name a factory."""
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
        msg = f'options are for a factory of your own, and {setting} is {kinds}; set it to "package.module:factory"'
        raise ValueError(msg)


def _as_mapping(fields: object) -> object:
    """Return the name of a preset as a mapping."""
    return {"preset": fields} if isinstance(fields, str) else fields


class PineconeConfig(Settings):
    """An index at Pinecone."""

    api_key: Annotated[SecretStr | None, Use(environment="PINECONE_API_KEY", is_needed=True)] = None
    """``PINECONE_API_KEY`` of the environment where it is not set."""
    index_name: Annotated[str | None, Use(environment="PINECONE_INDEX_NAME", is_needed=True, unless="host")] = None
    """``PINECONE_INDEX_NAME`` of the environment where it is not set; not needed with ``host``."""
    host: Annotated[str | None, AfterValidator(_host)] = None
    """Address of the index; saves the request that looks it up by name."""
    namespace: Annotated[str, Use(environment="PINECONE_NAMESPACE")] = ""
    """``PINECONE_NAMESPACE`` of the environment where it is not set."""
    sparse: bool = False
    """Whether words are searched too, by sparse vectors; for an index with the metric dotproduct."""
    fields: Annotated[dict[str, str], BeforeValidator(_as_mapping)] = Field(default_factory=dict)
    """For an index that others filled: which metadata field holds a chunk's ``text``, ``document_id``, ``title`` …, or
    a preset: ``default``, ``langchain``, ``llamaindex`` or ``haystack``."""


class LanceDBConfig(Settings):
    """A folder that LanceDB keeps."""

    table: str = Field(default="text_pages", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$")
    """Name of the table; several indexes may share a folder, such as ``text_pages_<name of the index>``."""


class QdrantConfig(Settings):
    """A collection of a Qdrant server, or of its client's local mode."""

    url: Annotated[
        str | None, AfterValidator(_address), Use(environment="QDRANT_URL", is_needed=True, unless="path")
    ] = None
    """Address of the server; ``QDRANT_URL`` of the environment where it is not set."""
    api_key: Annotated[SecretStr | None, Use(environment="QDRANT_API_KEY")] = None
    """``QDRANT_API_KEY`` of the environment where it is not set; a server of your own may need none."""
    path: str | None = None
    """In place of a server: the folder of the local mode, or ``:memory:``; for trials."""
    collection: str = Field(default="retrieval", min_length=1, max_length=255)
    """Name of the collection; the first write makes it."""
    indexed_fields: tuple[str, ...] = ()
    """Metadata fields that get an index for ``$gt`` and its like; all have one for equality."""
    fields: Annotated[dict[str, str], BeforeValidator(_as_mapping)] = Field(default_factory=dict)
    """For a collection that others filled: which part of a payload holds a chunk's ``text``, ``metadata`` …, or a
    preset: ``default``, ``langchain``, ``llamaindex`` or ``haystack``."""
    vector: str | None = None
    """For such a collection with several vectors: the one that is searched."""


class OpenAIEmbedderConfig(Settings):
    """An embedding model behind OpenAI's API, or any other that speaks it."""

    model: str = "text-embedding-3-large"
    dimension: int | None = Field(default=None, ge=1)
    """Components of a vector; the model's own number where it is known and this is not set."""
    base_url: Annotated[str | None, AfterValidator(_address)] = None
    """Another server that speaks the same protocol."""
    api_key: Annotated[SecretStr | None, Use(environment="OPENAI_API_KEY", is_needed=True, unless="base_url")] = None
    """``OPENAI_API_KEY`` of the environment where it is not set."""
    batch_size: int = Field(default=128, ge=1, le=2048)
    """Texts in one request."""
    query_prefix: str = ""
    """Put before questions, where the model was trained so and the server does not do it."""
    passage_prefix: str = ""
    """Put before passages, likewise."""


class EmbeddingModelConfig(Settings):
    """How an embedding model is to be used; what is not set is taken from its files, then from its name."""

    dimension: int | None = Field(default=None, ge=1)
    """Components of a vector; fewer than the model's own only where it was trained for that (Matryoshka)."""
    matryoshka_dimensions: tuple[int, ...] | None = None
    """What its vectors may be cut to, where that is not known."""
    query_prefix: str | None = None
    """Put before questions."""
    passage_prefix: str | None = None
    """Put before passages; blank where only ``query_prefix`` is told."""
    pooling: Literal["cls", "mean", "last"] | None = None
    """How the vectors of tokens become one: that of the first, their mean, or that of the last."""
    max_tokens: int | None = Field(default=None, ge=34)
    """Tokens that the model reads of a text, with those that its tokenizer adds."""


class LocalEmbedderConfig(EmbeddingModelConfig):
    """An embedding model in a folder of this machine."""

    model: str | None = None
    """Its name on the Hugging Face hub, for what is known of it."""
    file: str | None = None
    """The ONNX file within ``embedder.model_folder``, such as one that is quantised to int8; ``model.onnx`` or
    ``onnx/model.onnx`` where it is not set."""


class FastembedEmbedderConfig(EmbeddingModelConfig):
    """An embedding model that ``fastembed`` downloads."""

    model: str = "BAAI/bge-small-en-v1.5"
    """Its name, as ``TextEmbedding.list_supported_models()`` has it."""


class CohereEmbedderConfig(Settings):
    """An embedding model of Cohere's."""

    model: str = "embed-v4.0"
    dimension: int | None = Field(default=None, ge=1)
    """Components of a vector; the model's own number where it is known and this is not set."""
    base_url: Annotated[str | None, AfterValidator(_address)] = None
    """Another server that speaks the same protocol."""
    api_key: Annotated[SecretStr | None, Use(environment="CO_API_KEY", is_needed=True, unless="base_url")] = None
    """``CO_API_KEY`` of the environment where it is not set."""
    batch_size: int = Field(default=96, ge=1, le=96)
    """Texts in one request."""


class OpenAILLMConfig(Settings):
    """A language model behind OpenAI's API, or any other that speaks it."""

    model: str = "gpt-4.1-mini"
    base_url: Annotated[str | None, AfterValidator(_address)] = None
    """Another server that speaks the same protocol: Ollama, vLLM, llama.cpp, a gateway."""
    api_key: Annotated[SecretStr | None, Use(environment="OPENAI_API_KEY", is_needed=True, unless="base_url")] = None
    """``OPENAI_API_KEY`` of the environment where it is not set."""


class CohereRerankerConfig(Settings):
    """A reranking model of Cohere's."""

    model: str = "rerank-v3.5"
    base_url: Annotated[str | None, AfterValidator(_address)] = None
    """Another server that speaks the same protocol."""
    api_key: Annotated[SecretStr | None, Use(environment="CO_API_KEY", is_needed=True, unless="base_url")] = None
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


class SqliteConfig(Settings):
    """An index in one SQLite file."""

    quantization: Literal["none", "int8"] = "none"
    """How vectors are kept in memory: as they are, or in a quarter of the memory, as integers of eight bits, whose best
    are then compared exactly."""


class StoreConfig(WithOptions):
    """Where the index is kept."""

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
    """What turns text into vectors."""

    kind: str = "local"
    """``local`` (bge-small-en-v1.5 on this machine, or a model in a folder), ``fastembed`` (other open models on this
    machine), ``openai``, ``cohere``, ``none`` (lexical search only) or ``"package.module:factory"``."""
    model_folder: Path | None = None
    """Folder with an ONNX file and ``tokenizer.json`` instead of the installed model."""
    threads: int | None = Field(default=None, ge=1, le=256)
    """Texts embedded at a time; as many as there are processors where it is not set."""
    local: LocalEmbedderConfig = LocalEmbedderConfig()
    """For the kind ``local``."""
    fastembed: Annotated[FastembedEmbedderConfig, Use("fastembed")] = FastembedEmbedderConfig()
    """For the kind ``fastembed``."""
    openai: Annotated[OpenAIEmbedderConfig, Use("openai")] = OpenAIEmbedderConfig()
    """For the kind ``openai``."""
    cohere: Annotated[CohereEmbedderConfig, Use("cohere")] = CohereEmbedderConfig()
    """For the kind ``cohere``."""


class LLMConfig(WithOptions):
    """The language model for the stages that need one; without it they are absent."""

    kind: str = "none"
    """``none``, ``openai`` or ``"package.module:factory"``."""
    openai: Annotated[OpenAILLMConfig, Use("openai")] = OpenAILLMConfig()
    """For the kind ``openai``."""


class RerankerConfig(WithOptions):
    """Putting the best hits into a better order, with a model that reads question and passage together."""

    _kinds_in: ClassVar[tuple[str, ...]] = ("kind", "fallbacks")

    enabled: bool = True
    """Whether the reranker named by ``kind`` is used."""
    kind: str = "none"
    """``none``, ``local`` (a cross-encoder on this machine), ``llm``, ``cohere``, ``cross-encoder`` and
    ``late-interaction`` (both with ``fastembed``) or ``"package.module:factory"``."""
    fallbacks: tuple[str, ...] = ()
    """Kinds that are asked in this order when it fails; where they fail too, the hits keep their order."""
    candidates: int = Field(default=30, ge=1, le=1000)
    """How many hits are scored."""
    weight: float = Field(default=0.3, ge=0, le=1)
    """Weight of the reranker's order; that of the search has the rest. With 1 its scores alone count."""
    concurrency: int = Field(default=4, ge=1, le=100)
    """Requests at a time."""
    batch_size: Annotated[int, Use("llm")] = Field(default=10, ge=1, le=100)
    """For ``llm``: passages scored in one request."""
    max_characters: Annotated[int, Use("llm")] = Field(default=1200, ge=4)
    """For ``llm``: the longest part of a passage that is shown."""
    strict_json: Annotated[bool, Use("llm")] = True
    """For ``llm``: whether the provider is held to a JSON schema; some servers know none."""
    prompt: Annotated[str | None, Use("llm")] = None
    """For ``llm``: instructions in place of the built-in rubric."""
    local: LocalRerankerConfig = LocalRerankerConfig()
    """For the kind ``local``."""
    cohere: Annotated[CohereRerankerConfig, Use("cohere")] = CohereRerankerConfig()
    """For the kind ``cohere``."""
    cross_encoder: Annotated[FastembedRerankerConfig, Use("cross-encoder")] = FastembedRerankerConfig()
    """For the kind ``cross-encoder``."""
    late_interaction: Annotated[FastembedRerankerConfig, Use("late-interaction")] = FastembedRerankerConfig()
    """For the kind ``late-interaction``."""


class RelevanceFilterConfig(WithOptions):
    """Leaving out passages that do not bear on the question."""

    enabled: bool = True
    """Whether the relevance filter named by ``kind`` is used."""
    kind: str = "none"
    """``none``, ``llm``, ``local`` (a cross-encoder on this machine) or ``"package.module:factory"``."""
    relevance_prompt: Annotated[str | None, Use("llm")] = None
    """For ``llm``: instructions in place of the built-in ones."""
    relevance_threshold: Annotated[float, Use("local")] = Field(default=0.0001, ge=0, le=1)
    """For ``local``: the least score of a passage that is kept; measured, see ``CrossEncoderRelevanceFilter``."""
    batch_size: Annotated[int, Use("llm")] = Field(default=1, ge=1, le=100)
    """For ``llm``: passages judged in one request."""
    concurrency: int = Field(default=8, ge=1, le=100)
    """Requests at a time."""


class PrunerConfig(WithOptions):
    """Showing of each passage only the sentences that bear on the question."""

    _take_options: ClassVar[tuple[str, ...]] = ("provence",)  # model and revision

    kind: str = "none"
    """``none``, ``embedder`` (the index's own), ``local`` (a cross-encoder on this machine), ``provence`` or
    ``"package.module:factory"``."""
    threshold: float | None = Field(default=None, ge=-1, le=1)
    """The least score of a sentence that is kept, on the kind's own scale; a measured one where it is not set, which
    ``embedder`` has for the default embedder only."""
    concurrency: int = Field(default=4, ge=1, le=100)
    """Calls at a time."""


class RewriterConfig(WithOptions):
    """Asking again in other words when too little was found."""

    kind: str = "none"
    """``none``, ``llm`` or ``"package.module:factory"``."""
    max_attempts: int = Field(default=2, ge=0, le=10)
    """Further searches after the first one."""
    relevance_threshold: float = Field(default=0.5, ge=0, le=1)
    """A question whose passages reach this is not rewritten."""
    rewrite_prompt: Annotated[str | None, Use("llm")] = None
    """For ``llm``: instructions in place of the built-in ones."""


class TransformConfig(WithOptions):
    """Putting a question in other words, and searching for more than the question."""

    _kinds_in: ClassVar[tuple[str, ...]] = ("use",)

    use: tuple[str, ...] = ()
    """Names of the transformers that each query uses that does not name its own: ``keywords``, ``decompose``, ``hyde``
    (these need an LLM), ``graph`` (needs a graph), or ``"package.module:factory"``."""
    history: Literal["auto", "llm", "heuristic", "none"] = "auto"
    """How a question that belongs to a conversation is made to stand alone; ``auto`` is ``llm`` where there is one, and
    else ``heuristic``."""
    history_turns: int = Field(default=3, ge=1, le=100)
    """How many of the last turns, of either side, are looked at for that."""
    model: str | None = None
    """The language model for all this, at the same provider; that of ``llm`` where it is not set."""
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
    """Answering a question from its passages; with a language model where one is configured, else in their words."""

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
    """The longest answer in the model's tokens; the provider's own bound where it is not set."""
    abstain_below: float = Field(default=0.22, ge=0, le=1)
    """With a lower probability that the chunks answer, nothing is answered, and searches say so. The same goes for a
    question with an identifier that no chunk contains. 0 for always answering."""
    without_documents: bool = True
    """Whether the language model answers in general, and says so, when nothing can be searched."""
    verify: bool = False
    """Whether each sentence of a written answer is held against the passages."""
    verifier: str = "auto"
    """``llm``, ``local`` (on this machine), ``auto`` (the former where there is a language model) or
    ``"package.module:factory"``."""


_WHEN_ENABLED = Use("true", "enabled")


class SemanticCacheConfig(Settings):
    """Answering a question with the result of one that asks the same in other words."""

    enabled: bool = False
    """Whether that is done; it needs an embedder, and ``cache.enabled``."""
    threshold: Annotated[float, _WHEN_ENABLED] = Field(default=0.98, ge=0, le=1)
    """The least cosine of two questions that may be the same; what their words say has to agree all the same."""
    max_size: Annotated[int, _WHEN_ENABLED] = Field(default=1000, ge=1)
    """The most questions in memory; those longest unused go first."""
    scope: Annotated[Literal["global", "session"], _WHEN_ENABLED] = "global"
    """``session`` compares a question only with those of the same ``session_id``."""


class CacheConfig(WithOptions):
    """Keeping results for the next time the same is asked."""

    enabled: bool = True
    kind: str = "memory"
    """``memory``, ``redis`` (shared by several processes) or ``"package.module:factory"``."""
    ttl_seconds: float = Field(default=300, gt=0)
    """How long a result is kept."""
    max_size: int = Field(default=1000, ge=1)
    """The most results in memory; those asked for longest ago go first."""
    embeddings: int = Field(default=1000, ge=0)
    """The most embedded questions in memory; 0 for none."""
    reranks: int = Field(default=1000, ge=0)
    """The most calls of rerankers whose scores are kept in memory; 0 for none."""
    semantic: SemanticCacheConfig = SemanticCacheConfig()
    """Answering a question with the result of one that asks the same in other words."""
    url: Annotated[SecretStr | None, Use("redis", is_needed=True, example="redis://localhost:6379/0")] = None
    """For ``redis``: ``redis://host:port/db``, with user and password where there are any."""


class EvaluationConfig(WithOptions):
    """Scores of how good a result is, computed with each query."""

    enabled: bool = False
    kind: str = "auto"
    """``ragas`` (needs an LLM), ``local`` (an estimate without one), ``auto`` (the former where it is possible) or
    ``"package.module:factory"``."""
