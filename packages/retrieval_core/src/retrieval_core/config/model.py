"""All settings of the library, as one tree; every field says what it is for."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - pydantic resolves it at run time
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, field_validator

from retrieval_core.config.addresses import checked_host, host_of
from retrieval_core.errors import ConfigurationError
from retrieval_core.templates import DEFAULT_TEMPLATE, parse_template


def _address(value: str | None) -> str | None:
    """Check an address of a server; blank text, as an empty variable of the environment gives it, is none."""
    address = (value or "").strip()
    if not address:
        return None
    host_of(address)
    return address


def _host(value: str | None) -> str | None:
    return checked_host(value) if value else None


class _Settings(BaseModel):
    # What was given is told by load_config, which knows what must not show.
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True)


class PineconeConfig(_Settings):
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


class OpenAIEmbedderConfig(_Settings):
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


class OpenAILLMConfig(_Settings):
    """A language model behind OpenAI's API, or any other that speaks it."""

    model: str = "gpt-4.1-mini"
    base_url: Annotated[str | None, AfterValidator(_address)] = None
    """Another server that speaks the same protocol: Ollama, vLLM, llama.cpp, a gateway."""
    api_key: SecretStr | None = None
    """``OPENAI_API_KEY`` of the environment where it is not set."""


class StoreConfig(_Settings):
    """Where the index is kept."""

    kind: str = "sqlite"
    """``sqlite`` (one file), ``memory`` (gone with the process), ``pinecone`` or ``"package.module:factory"``."""
    busy_timeout: float = Field(default=30.0, ge=0)
    """Seconds that a writer waits for another one."""
    pinecone: PineconeConfig = PineconeConfig()
    """For the kind ``pinecone``."""
    options: dict[str, Any] = Field(default_factory=dict, repr=False)
    """Keyword arguments for a factory of your own."""


class EmbedderConfig(_Settings):
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
    options: dict[str, Any] = Field(default_factory=dict, repr=False)
    """Keyword arguments for a factory of your own."""


class ChunkingConfig(_Settings):
    """How documents are split."""

    max_tokens: int = Field(default=384, ge=16, le=8192)
    """The longest passage, in the embedder's tokens."""
    min_tokens: int = Field(default=64, ge=0)
    """Sections shorter than this are joined with their small neighbours, as long as they fit."""
    text_column: str | None = None
    """Column of CSV and JSONL files that holds the text; found by itself where it is not set."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Names of columns, and the metadata field that each becomes instead; a file need not have them."""


class QueryConfig(_Settings):
    """How questions are prepared."""

    max_length: int = Field(default=10_000, ge=1)
    """Longest question in code points, after normalisation; the rest is cut off and the result says so."""
    normalize_unicode: bool = True
    """Whether Unicode is composed (NFC) first."""
    truncate_at: Literal["code_point", "grapheme"] = "code_point"
    """``grapheme`` cuts before the character, as people see it, that would be torn, and so may cut a little more."""


class SearchConfig(_Settings):
    """How passages are found and put in order."""

    mode: Literal["hybrid", "dense", "lexical"] = "hybrid"
    """Search by meaning, by words, or by both."""
    top_k: int = Field(default=10, ge=1, le=1000)
    """The most passages in a result."""
    candidates: int = Field(default=200, ge=1, le=10_000)
    """Passages asked of each side before they are combined; never less than ``top_k``."""
    fusion: Literal["zscore", "rrf", "minmax", "dbsf"] = "zscore"
    """How the sides are combined; see ``retrieval_core.stages.fuse``."""
    dense_weight: float = Field(default=0.5, ge=0, le=1)
    """Weight of the dense side; the lexical side has the rest."""
    score_threshold: float | None = Field(default=None, ge=0, le=1)
    """The least cosine similarity of a passage in a result."""
    on_unscored: Literal["drop", "keep"] = "drop"
    """What a threshold does to passages without a cosine similarity."""
    search_type: Literal["similarity", "mmr"] = "similarity"
    """``mmr`` chooses passages that do not repeat each other, which costs relevance."""
    fetch_k: int = Field(default=20, ge=1, le=10_000)
    """Passages that ``mmr`` chooses from; never less than ``top_k``, of the configuration or of a call."""
    lambda_mult: float = Field(default=0.7, ge=0, le=1)
    """In ``mmr``, 1 is relevance alone and 0 is difference alone."""


class FormatterConfig(_Settings):
    """How the passages become one text."""

    template: str = DEFAULT_TEMPLATE
    """One passage, with fields in braces; see ``retrieval_core.stages.format``."""
    delimiter: str = "\n\n---\n\n"
    """What stands between two passages."""
    include_scores: bool = False
    """Whether each passage is preceded by its score."""
    max_context_length: int | None = Field(default=None, ge=1)
    """Longest text in code points; no limit where it is not set."""

    @field_validator("template")
    @classmethod
    def _template_is_well_formed(cls, value: str) -> str:
        try:
            parse_template(value)
        except ConfigurationError as error:
            raise ValueError(str(error)) from error
        return value


class LLMConfig(_Settings):
    """The language model for the stages that need one; without it they are absent."""

    kind: str = "none"
    """``none``, ``openai`` or ``"package.module:factory"``."""
    openai: OpenAILLMConfig = OpenAILLMConfig()
    """For the kind ``openai``."""
    options: dict[str, Any] = Field(default_factory=dict, repr=False)
    """Keyword arguments for a factory of your own."""


class CompressorConfig(_Settings):
    """Leaving out passages that do not bear on the question."""

    enabled: bool = True
    """Whether the compressor named by ``kind`` is used."""
    kind: str = "none"
    """``none``, ``llm``, ``local`` (a cross-encoder on this machine) or ``"package.module:factory"``."""
    relevance_prompt: str | None = None
    """For ``llm``: instructions in place of the built-in ones."""
    relevance_threshold: float = Field(default=0.0001, ge=0, le=1)
    """For ``local``: the least score of a passage that is kept; measured, see ``CrossEncoderCompressor``."""
    batch_size: int = Field(default=1, ge=1, le=100)
    """For ``llm``: passages judged in one request."""
    concurrency: int = Field(default=8, ge=1, le=100)
    """Requests at a time."""
    options: dict[str, Any] = Field(default_factory=dict, repr=False)
    """Keyword arguments for a factory of your own."""


class RewriterConfig(_Settings):
    """Asking again in other words when too little was found."""

    kind: str = "none"
    """``none``, ``llm`` or ``"package.module:factory"``."""
    max_attempts: int = Field(default=2, ge=0, le=10)
    """Further searches after the first one."""
    relevance_threshold: float = Field(default=0.5, ge=0, le=1)
    """A question whose passages reach this is not rewritten."""
    rewrite_prompt: str | None = None
    """For ``llm``: instructions in place of the built-in ones."""
    options: dict[str, Any] = Field(default_factory=dict, repr=False)
    """Keyword arguments for a factory of your own."""


class CacheConfig(_Settings):
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
    url: SecretStr | None = None
    """For ``redis``: ``redis://host:port/db``, with user and password where there are any."""
    options: dict[str, Any] = Field(default_factory=dict, repr=False)
    """Keyword arguments for a factory of your own."""


class RetryConfig(_Settings):
    """Calling a backend again that failed in a way that may pass."""

    max_retries: int = Field(default=3, ge=0, le=20)
    """Further attempts after the first one."""
    base_delay: float = Field(default=1.0, ge=0)
    """Seconds before the first of them; a random part of as much is added."""
    max_delay: float = Field(default=10.0, ge=0)
    """The longest wait in seconds, unless the backend asks for more."""
    exponential_base: float = Field(default=2.0, ge=1)
    """By how much each wait is longer than the one before."""


class BreakerConfig(_Settings):
    """Leaving a backend alone that keeps failing."""

    failures: int = Field(default=5, ge=0)
    """Failures in a row after which it is left alone; 0 for never."""
    pause_seconds: float = Field(default=30.0, gt=0)
    """For how long."""


class EvaluationConfig(_Settings):
    """Scores of how good a result is, computed with each query."""

    enabled: bool = False
    kind: str = "auto"
    """``ragas`` (needs an LLM), ``local`` (an estimate without one), ``auto`` (the former where it is possible) or
    ``"package.module:factory"``."""
    options: dict[str, Any] = Field(default_factory=dict, repr=False)
    """Keyword arguments for a factory of your own."""


class RetrievalConfig(_Settings):
    """All settings of the library. Make one with :func:`load_config`, or directly, and it reads nothing else."""

    index: str = ".retrieval/index.db"
    """The index file, relative to the current folder."""
    store: StoreConfig = StoreConfig()
    embedder: EmbedderConfig = EmbedderConfig()
    chunking: ChunkingConfig = ChunkingConfig()
    query: QueryConfig = QueryConfig()
    search: SearchConfig = SearchConfig()
    llm: LLMConfig = LLMConfig()
    compressor: CompressorConfig = CompressorConfig()
    rewriter: RewriterConfig = RewriterConfig()
    format: FormatterConfig = FormatterConfig()
    cache: CacheConfig = CacheConfig()
    retry: RetryConfig = RetryConfig()
    breaker: BreakerConfig = BreakerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    deadline_seconds: float | None = Field(default=30.0, gt=0)
    """The time budget of a query; ``null`` for none."""
    strict: bool = False
    """Whether a failure that could be done without is raised instead."""
    raise_on_error: bool = False
    """Whether it is an error, and not an empty result, when nothing could be searched at all."""
