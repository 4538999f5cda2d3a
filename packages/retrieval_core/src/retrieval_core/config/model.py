"""All settings of the library, as one tree; every field says what it is for."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator

from retrieval_core.config.analysis import AnalysisConfig
from retrieval_core.config.answer import AnswerConfig
from retrieval_core.config.backends import (
    CohereRerankerConfig,
    EmbedderConfig,
    FastembedRerankerConfig,
    LLMConfig,
    LocalRerankerConfig,
    Settings,
    StoreConfig,
    WithOptions,
)
from retrieval_core.config.federation import FederationConfig
from retrieval_core.config.graph import GraphConfig
from retrieval_core.config.limits import LimitsConfig, TimeoutsConfig
from retrieval_core.config.pruner import PrunerConfig
from retrieval_core.config.semantic_cache import SemanticCacheConfig
from retrieval_core.config.templates import DEFAULT_TEMPLATE, checked_delimiter, parse_template
from retrieval_core.config.transform import TransformConfig
from retrieval_core.config.vectors import VectorsConfig
from retrieval_core.errors import ConfigurationError


def _well_formed(template: str, known: set[str] | None = None) -> str:
    try:
        pieces = parse_template(template)
    except ConfigurationError as error:
        raise ValueError(str(error)) from error
    if known is not None and "text" not in {name for _, name in pieces}:
        msg = "the field text is missing: passages without their text say nothing"
        raise ValueError(msg)
    unknown = sorted({name for _, name in pieces if name is not None and known is not None and name not in known})
    if unknown:
        msg = f"there is no field {', '.join(unknown)}; there are {', '.join(sorted(known or ()))}"
        raise ValueError(msg)
    return template


class ChunkingConfig(Settings):
    """How documents are split."""

    max_tokens: int = Field(default=384, ge=16, le=8192)
    """The longest passage, in the embedder's tokens."""
    min_tokens: int = Field(default=64, ge=0)
    """Sections shorter than this are joined with their small neighbours, as long as they fit."""
    text_column: str | None = None
    """Column of CSV and JSONL files that holds the text; found by itself where it is not set."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Names of columns, and the metadata field that each becomes instead; a file need not have them."""


class QueryConfig(Settings):
    """How questions are prepared."""

    max_length: int = Field(default=10_000, ge=1)
    """Longest question in code points, after normalisation; the rest is cut off and the result says so."""
    normalize_unicode: bool = True
    """Whether Unicode is composed (NFC) first."""
    truncate_at: Literal["code_point", "grapheme"] = "code_point"
    """``grapheme`` cuts before the character, as people see it, that would be torn, and so may cut a little more."""


class SearchConfig(Settings):
    """How passages are found and put in order."""

    mode: Literal["hybrid", "dense", "lexical"] = "hybrid"
    """Search by meaning, by words, or by both."""
    top_k: int = Field(default=10, ge=1, le=1000)
    """The most passages in a result."""
    candidates: int = Field(default=200, ge=1, le=10_000)
    """Passages asked of each side before they are combined; never less than ``top_k``."""
    fusion: Literal["zscore", "rrf", "minmax", "dbsf", "native"] = "zscore"
    """How the sides are combined, see ``retrieval_core.pipeline.stages.fuse``; ``native`` leaves it to a store that
    can."""
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

    @model_validator(mode="after")
    def _there_is_a_choice(self) -> Self:
        if self.search_type == "mmr" and "fetch_k" in self.model_fields_set and self.fetch_k < self.top_k:
            msg = (
                f"fetch_k is {self.fetch_k}, so mmr has no {self.top_k} passages to choose top_k from; "
                f"set fetch_k to more than {self.top_k}, or leave it out"
            )
            raise ValueError(msg)
        return self


class FormatterConfig(Settings):
    """How the passages become one text."""

    template: str = DEFAULT_TEMPLATE
    """One passage, with fields in braces; see ``retrieval_core.pipeline.stages.format``."""
    delimiter: str = "\n\n---\n\n"
    """What stands between two passages."""
    include_scores: bool = False
    """Whether each passage is preceded by its score."""
    max_context_length: int | None = Field(default=None, ge=1)
    """Longest text in code points; no limit where it is not set."""

    @field_validator("template")
    @classmethod
    def _template_is_well_formed(cls, value: str) -> str:
        return _well_formed(value)

    @field_validator("delimiter")
    @classmethod
    def _delimiter_can_be_marked(cls, value: str) -> str:
        try:
            return checked_delimiter(value)
        except ConfigurationError as error:
            raise ValueError(str(error)) from error


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
    batch_size: int = Field(default=10, ge=1, le=100)
    """For ``llm``: passages scored in one request."""
    max_characters: int = Field(default=1200, ge=4)
    """For ``llm``: the longest part of a passage that is shown."""
    strict_json: bool = True
    """For ``llm``: whether the provider is held to a JSON schema; some servers know none."""
    prompt: str | None = None
    """For ``llm``: instructions in place of the built-in rubric."""
    local: LocalRerankerConfig = LocalRerankerConfig()
    """For the kind ``local``."""
    cohere: CohereRerankerConfig = CohereRerankerConfig()
    """For the kind ``cohere``."""
    cross_encoder: FastembedRerankerConfig = FastembedRerankerConfig()
    """For the kind ``cross-encoder``."""
    late_interaction: FastembedRerankerConfig = FastembedRerankerConfig()
    """For the kind ``late-interaction``."""


class ContextConfig(Settings):
    """How hits and what stands around them become one text within a token budget."""

    max_tokens: int = Field(default=12_000, ge=1)
    """The budget: the whole text is never longer."""
    min_primaries: int = Field(default=3, ge=0)
    """So many of the best hits are kept as long as one sentence of each fits, and shortened for it."""
    neighbor_same_page: int = Field(default=1, ge=0, le=100)
    """Chunks before and after a hit on the same page or under the same parent, such as a section."""
    neighbor_cross_page: int = Field(default=2, ge=0, le=100)
    """How far before and after a hit chunks are taken from an adjacent page; none where there are no pages."""
    include_parents: bool = True
    """Whether the section or page around each hit is added."""
    window: int = Field(default=0, ge=0, le=100)
    """Chunks before and after a hit that become one passage with it, in the document's order; takes the place of both
    kinds of neighbours."""
    template: str = "[{number}] {citation}\n{text}"
    """One passage, with the fields ``number``, ``citation``, ``text``, ``title``, ``source`` and ``role`` in braces."""
    delimiter: str = "\n\n"
    """What stands between two passages."""
    token_counter: str = "auto"  # noqa: S105 - no password
    """``auto`` (the embedder's own where it counts, else the local embedder's), ``o200k_base``, ``cl100k_base`` or
    ``"package.module:factory"``."""

    @field_validator("template")
    @classmethod
    def _template_is_well_formed(cls, value: str) -> str:
        return _well_formed(value, {"number", "citation", "text", "title", "source", "role"})


class RelevanceFilterConfig(WithOptions):
    """Leaving out passages that do not bear on the question."""

    enabled: bool = True
    """Whether the relevance filter named by ``kind`` is used."""
    kind: str = "none"
    """``none``, ``llm``, ``local`` (a cross-encoder on this machine) or ``"package.module:factory"``."""
    relevance_prompt: str | None = None
    """For ``llm``: instructions in place of the built-in ones."""
    relevance_threshold: float = Field(default=0.0001, ge=0, le=1)
    """For ``local``: the least score of a passage that is kept; measured, see ``CrossEncoderRelevanceFilter``."""
    batch_size: int = Field(default=1, ge=1, le=100)
    """For ``llm``: passages judged in one request."""
    concurrency: int = Field(default=8, ge=1, le=100)
    """Requests at a time."""


class RewriterConfig(WithOptions):
    """Asking again in other words when too little was found."""

    kind: str = "none"
    """``none``, ``llm`` or ``"package.module:factory"``."""
    max_attempts: int = Field(default=2, ge=0, le=10)
    """Further searches after the first one."""
    relevance_threshold: float = Field(default=0.5, ge=0, le=1)
    """A question whose passages reach this is not rewritten."""
    rewrite_prompt: str | None = None
    """For ``llm``: instructions in place of the built-in ones."""


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
    url: SecretStr | None = None
    """For ``redis``: ``redis://host:port/db``, with user and password where there are any."""


class RetryConfig(Settings):
    """Calling a backend again that failed in a way that may pass."""

    max_retries: int = Field(default=3, ge=0, le=20)
    """Further attempts after the first one."""
    base_delay: float = Field(default=1.0, ge=0)
    """Seconds before the first of them; a random part of as much is added."""
    max_delay: float = Field(default=10.0, ge=0)
    """The longest wait in seconds, unless the backend asks for more."""
    exponential_base: float = Field(default=2.0, ge=1)
    """By how much each wait is longer than the one before."""


class BreakerConfig(Settings):
    """Leaving a backend alone that keeps failing."""

    failures: int = Field(default=5, ge=0)
    """Failures in a row after which it is left alone; 0 for never."""
    pause_seconds: float = Field(default=30.0, gt=0)
    """For how long."""


class EvaluationConfig(WithOptions):
    """Scores of how good a result is, computed with each query."""

    enabled: bool = False
    kind: str = "auto"
    """``ragas`` (needs an LLM), ``local`` (an estimate without one), ``auto`` (the former where it is possible) or
    ``"package.module:factory"``."""


class RetrievalConfig(Settings):
    """All settings of the library. Make one with :func:`load_config`, or directly, and it reads nothing else."""

    index: str = ".retrieval/index.db"
    """The index file, relative to the current folder."""
    store: StoreConfig = StoreConfig()
    embedder: EmbedderConfig = EmbedderConfig()
    chunking: ChunkingConfig = ChunkingConfig()
    analysis: AnalysisConfig = AnalysisConfig()
    vectors: VectorsConfig = VectorsConfig()
    query: QueryConfig = QueryConfig()
    transform: TransformConfig = TransformConfig()
    search: SearchConfig = SearchConfig()
    graph: GraphConfig = GraphConfig()
    llm: LLMConfig = LLMConfig()
    reranker: RerankerConfig = RerankerConfig()
    relevance_filter: RelevanceFilterConfig = RelevanceFilterConfig()
    pruner: PrunerConfig = PrunerConfig()
    rewriter: RewriterConfig = RewriterConfig()
    format: FormatterConfig = FormatterConfig()
    context: ContextConfig = ContextConfig()
    answer: AnswerConfig = AnswerConfig()
    cache: CacheConfig = CacheConfig()
    retry: RetryConfig = RetryConfig()
    breaker: BreakerConfig = BreakerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    timeouts: TimeoutsConfig = TimeoutsConfig()
    limits: LimitsConfig = LimitsConfig()
    federation: FederationConfig = FederationConfig()
    deadline_seconds: float | None = Field(default=30.0, gt=0)
    """The time budget of a query; ``null`` for none. Where it is not set and the ``timeouts`` come to more, it is three
    times their sum, so that none of them is cut short."""
    strict: bool = False
    """Whether a failure that could be done without is raised instead."""
    raise_on_error: bool = False
    """Whether it is an error, and not an empty result, when nothing could be searched at all."""

    @field_validator("limits")
    @classmethod
    def _limits_are_kept(cls, value: LimitsConfig, info: ValidationInfo) -> LimitsConfig:
        search, chunking = info.data.get("search"), info.data.get("chunking")
        if search is not None and search.top_k > value.max_results:
            msg = f"search.top_k is {search.top_k}, and limits.max_results allows {value.max_results}"
            raise ValueError(msg)
        if chunking is not None and chunking.max_tokens > value.max_chunk_tokens:
            tokens = value.max_chunk_tokens
            msg = f"chunking.max_tokens is {chunking.max_tokens}, and limits.max_chunk_tokens allows {tokens}"
            raise ValueError(msg)
        return value

    @model_validator(mode="after")
    def _timeouts_fit_the_deadline(self) -> Self:
        given = {name: seconds for name, seconds in dict(self.timeouts).items() if seconds is not None}
        if self.deadline_seconds is None or not given:
            return self
        if "deadline_seconds" not in self.model_fields_set:
            if sum(given.values()) > self.deadline_seconds:
                # A search has half of an answer's time and what is written two fifths, however they are shared out.
                object.__setattr__(self, "deadline_seconds", 3 * sum(given.values()))
            return self
        for name, seconds in given.items():
            if seconds > self.deadline_seconds:
                msg = (
                    f"timeouts.{name} is {seconds:g}, and deadline_seconds ends the whole query after "
                    f"{self.deadline_seconds:g}; set deadline_seconds to more, or leave it out"
                )
                raise ValueError(msg)
        return self
