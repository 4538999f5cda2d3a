"""All settings of the library, as one tree; every field says what it is for."""

from __future__ import annotations

import re
from pathlib import Path  # noqa: TC003 - pydantic resolves it at run time
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from retrieval_core.config.adapters import (
    AnswerConfig,
    CacheConfig,
    EmbedderConfig,
    EvaluationConfig,
    LLMConfig,
    PrunerConfig,
    RelevanceFilterConfig,
    RerankerConfig,
    RewriterConfig,
    Settings,
    StoreConfig,
    TransformConfig,
    Use,
)
from retrieval_core.config.modes import named_mode
from retrieval_core.config.templates import DEFAULT_TEMPLATE, checked_delimiter, parse_template
from retrieval_core.errors import ConfigurationError

MOST_VECTORS = 8
"""Further vectors of a passage: each of them is a search of its own."""
MOST_WEIGHT = 1000.0
DEFAULT_WEIGHTS = {"max": 1.0, "mean": 0.3}
"""By rule; measured with titles, see ``docs/measurements.md``. Under ``max`` a lower weight soon takes away all effect,
since cosines of one question lie close together; under ``mean`` a higher one costs dense search more than it brings."""
FIXED_DENSE_WEIGHT = 0.5
"""Of a fusion whose weights are the same for every question; see ``docs/measurements.md``."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


_FIELDS = frozenset({"number", "citation", "text", "title", "source", "role"})
"""Of a passage in a context."""


def _fields_of(template: str) -> set[str]:
    try:
        return {name for _, name in parse_template(template) if name is not None}
    except ConfigurationError as error:
        raise ValueError(str(error)) from error


def _well_formed(template: str) -> str:
    _fields_of(template)
    return template


def _passage(template: str) -> str:
    names = _fields_of(template)
    if "text" not in names:
        msg = "the field text is missing: passages without their text say nothing"
        raise ValueError(msg)
    if unknown := sorted(names - _FIELDS):
        msg = f"there is no field {', '.join(unknown)}; there are {', '.join(sorted(_FIELDS))}"
        raise ValueError(msg)
    return template


def _delimiter(delimiter: str) -> str:
    try:
        return checked_delimiter(delimiter)
    except ConfigurationError as error:
        raise ValueError(str(error)) from error


class ChunkingConfig(Settings):
    """How documents are split."""

    max_tokens: int = Field(default=512, ge=16, le=8192)
    """The longest passage, in the embedder's tokens; with title and headings never more than the embedder reads."""
    min_tokens: int = Field(default=64, ge=0)
    """Sections shorter than this are joined with their small neighbours, as long as they fit."""
    text_column: str | None = None
    """Column of CSV and JSONL files that holds the text; found by itself where it is not set."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Names of columns, and the metadata field that each becomes instead; a file need not have them."""


class IndexingConfig(Settings):
    """How files become an index."""

    words_first: bool = True
    """Whether many new passages are found by their words first, and by meaning when all words are written. Otherwise a
    passage is written with its vector. Stores that cannot add vectors later are filled in this way in any case."""


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

    mode: Annotated[Literal["hybrid", "dense", "lexical"], BeforeValidator(named_mode)] = "hybrid"
    """``dense`` (or ``vector``), ``lexical`` (or ``keyword``), or ``hybrid``, which is both."""
    top_k: int = Field(default=10, ge=1, le=1000)
    """The most passages in a result."""
    candidates: int = Field(default=200, ge=1, le=10_000)
    """Passages asked of each side before they are combined; never less than ``top_k``."""
    fusion: Literal["adaptive", "zscore", "rrf", "minmax", "dbsf", "native"] = "adaptive"
    """How the sides are combined, see ``retrieval_core.pipeline.stages.fuse``; ``native`` leaves it to a store that
    can."""
    dense_weight: float = Field(default=0.65, ge=0, le=1)
    """Weight of the dense side; the lexical side has the rest. With ``adaptive`` it holds where neither side stands out
    more than the other; with any other fusion it holds for every question, and is 0.5 where it is not set."""
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
    def _fixed_weights_are_equal(self) -> Self:
        if self.fusion != "adaptive" and "dense_weight" not in self.model_fields_set:
            object.__setattr__(self, "dense_weight", FIXED_DENSE_WEIGHT)
        return self

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

    template: Annotated[str, AfterValidator(_well_formed)] = DEFAULT_TEMPLATE
    """One passage, with fields in braces; see ``retrieval_core.pipeline.stages.format``."""
    delimiter: Annotated[str, AfterValidator(_delimiter)] = "\n\n---\n\n"
    """What stands between two passages."""
    include_scores: bool = False
    """Whether each passage is preceded by its score."""
    max_context_length: int | None = Field(default=None, ge=1)
    """Longest text in code points; no limit where it is not set."""


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
    template: Annotated[str, AfterValidator(_passage)] = "[{number}] {citation}\n{text}"
    """One passage, with the fields ``number``, ``citation``, ``text``, ``title``, ``source`` and ``role`` in braces."""
    delimiter: str = "\n\n"
    """What stands between two passages."""
    token_counter: str = "auto"  # noqa: S105 - no password
    """``auto`` (the embedder's own where it counts, else the local embedder's), ``o200k_base``, ``cl100k_base`` or
    ``"package.module:factory"``."""


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


class AnalysisConfig(Settings):
    """How text becomes terms. An index keeps what it was made with, and is opened with the same."""

    language: str = Field(default="english", pattern=r"^[a-z_]{1,32}$")
    """Whose stemmer removes endings: a language of Snowball, such as ``german``; ``porter`` for English by Porter's
    original rules; ``none`` for whole words."""
    stop_words: tuple[str, ...] | None = None
    """What questions drop, unless they have nothing else; those of the language where not set, ``[]`` for none."""
    word_ngrams: int = Field(default=1, ge=1, le=4)
    """Up to so many neighbouring words are one term, too."""
    character_ngrams: int = Field(default=0, ge=0, le=8)
    """The length, from 2, of the parts of words that are terms, too; 0 for none."""

    @field_validator("character_ngrams")
    @classmethod
    def _parts_are_shorter_than_words(cls, value: int) -> int:
        if value == 1:
            msg = "parts of one character are in every text; use 0 for none, or 2 to 8"
            raise ValueError(msg)
        return value


class VectorsConfig(Settings):
    """Further vectors of each passage, such as that of its title, which are compared with the question too."""

    fields: dict[str, str] = Field(default_factory=dict)
    """By the vector's name, what is embedded for it: ``title``, ``section`` (the headings), or ``metadata.summary`` for
    text in the field ``summary``. An index keeps the names that it was made with."""
    weights: dict[str, float] = Field(default_factory=dict)
    """By name, the weight of its cosine; the passage's own has 1, and so have those that are not named, or 0.3 where
    ``rule`` is ``mean``. Without ``fields``, what is named here is searched as it is in the store."""
    rule: Literal["mean", "max"] = "max"
    """How the cosines become one score; see ``retrieval_core.pipeline.stages.combine``."""

    @field_validator("fields")
    @classmethod
    def _fields_are_known(cls, value: dict[str, str]) -> dict[str, str]:
        if len(value) > MOST_VECTORS:
            msg = f"there may be {MOST_VECTORS} further vectors, got {len(value)}"
            raise ValueError(msg)
        for name, source in value.items():
            if not _NAME.fullmatch(name):
                msg = f"{name!r:.80} is no name of a vector: lower-case letters, digits and underscores, a letter first"
                raise ValueError(msg)
            if source not in {"title", "section"} and not (source.startswith("metadata.") and source[9:]):
                msg = f"{source!r:.80} is nothing to embed; use title, section or metadata.<field>"
                raise ValueError(msg)
        return value

    @field_validator("weights")
    @classmethod
    def _weights_are_of_vectors(cls, value: dict[str, float], info: ValidationInfo) -> dict[str, float]:
        if wrong := {name: weight for name, weight in value.items() if not 0 < weight <= MOST_WEIGHT}:
            msg = f"weights must be above 0 and at most {MOST_WEIGHT:g}, and these are not: {wrong}"
            raise ValueError(msg)
        fields = info.data.get("fields")  # none where they are wrong themselves, which is told already
        if fields and (unknown := sorted(value.keys() - fields.keys())):
            msg = f"there is no vector {', '.join(unknown)}; vectors.fields has {', '.join(sorted(fields))}"
            raise ValueError(msg)
        return value

    @property
    def weighted(self) -> dict[str, float]:
        """The weight of every further vector that is searched, by name."""
        return {**dict.fromkeys(self.fields, DEFAULT_WEIGHTS[self.rule]), **self.weights}


class GraphConfig(Settings):
    """Facts as triples, which lead from the names in a question to chunks."""

    file: Path | None = None
    """A file of triples of your own, one JSON object a line."""
    extract: bool = False
    """Whether a language model notes the facts of chunks as they are indexed, in a file beside the index."""
    prompt: Annotated[str | None, Use("true", "extract")] = None
    """For ``extract``: instructions in place of the built-in ones."""


class TimeoutsConfig(Settings):
    """The longest time of one call to a backend in seconds, with all its attempts; a query's deadline holds as well."""

    embedding: float | None = Field(default=None, gt=0, le=86_400)
    """Embedding a question; no bound but the deadline where it is not set, here and below."""
    retrieval: float | None = Field(default=None, gt=0, le=86_400)
    """Searching one side, and reading the passages that were found: each of these calls."""
    reranking: float | None = Field(default=None, gt=0, le=86_400)
    """Scoring the passages of one request."""
    synthesis: float | None = Field(default=None, gt=0, le=86_400)
    """Writing an answer, from the request to its last word."""


class LimitsConfig(Settings):
    """What other settings, and callers, may not exceed."""

    max_results: int = Field(default=1000, ge=1, le=1000)
    """The most that ``top_k`` may be, of the configuration or of a call."""
    max_chunk_tokens: int = Field(default=8192, ge=16, le=8192)
    """The most that ``chunking.max_tokens`` may be."""


class FederationConfig(Settings):
    """Searching several indexes as one."""

    max_results_per_query: int = Field(default=100, ge=1, le=1000)
    """The most passages that one query takes from each index."""
    weights: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=dict)
    """What the scores of an index's passages are multiplied by, by its name; 1 where it is not set, and an index with 0
    is not asked."""


class RetrievalConfig(Settings):
    """All settings of the library. Make one with :func:`load_config`, or directly, and it reads nothing else."""

    index: str = ".retrieval/index.db"
    """The index file, relative to the current folder."""
    store: StoreConfig = StoreConfig()
    embedder: EmbedderConfig = EmbedderConfig()
    chunking: ChunkingConfig = ChunkingConfig()
    indexing: IndexingConfig = IndexingConfig()
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
