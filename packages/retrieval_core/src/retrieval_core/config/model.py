"""All settings of the library as one tree. Each field has a description."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Formatter
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

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
    StoreConfig,
    TransformConfig,
)
from retrieval_core.config.base import File, Settings, without_secrets
from retrieval_core.config.moved import rename_moved, replace_switches
from retrieval_core.errors import ConfigurationError, SettingRenamedWarning

if TYPE_CHECKING:
    from pathlib import Path

MODE_NAMES = {"vector": "dense", "keyword": "lexical"}
"""Other names of modes."""
DEFAULT_TEMPLATE = "[{rank}] {citation}\n{text}"
BLANK_LINE = "\n\n"
TOO_DEEP = "the settings are nested too deeply"
FIXED_DENSE_WEIGHT = 0.5
"""Of a fusion whose weights are the same for every question; see ``docs/dev/measurements.md``."""


_FIELDS = frozenset({"number", "citation", "text", "title", "source", "role"})
"""Of a passage in a context."""


def named_mode(mode: Any) -> Any:
    """Return a mode by its main name; every other value as it is."""
    return MODE_NAMES.get(mode, mode) if isinstance(mode, str) else mode


def parse_template(template: str) -> tuple[tuple[str, str | None], ...]:
    """Split a template into pieces of literal text, each with the name of the field behind it.

    Raises:
        ConfigurationError: A brace is unbalanced, or a field asks for more than a name.
    """
    try:
        pieces = tuple(Formatter().parse(template))
    except ValueError as error:
        msg = f"{error}; double each literal brace: {{{{ or }}}}"
        raise ConfigurationError(msg) from error
    for _, name, specification, conversion in pieces:
        if name == "" or specification or conversion or (name and "[" in name):
            msg = "a field of a template must be only a name in braces, as in {title}"
            raise ConfigurationError(msg)
    return tuple((literal, name) for literal, name, _, _ in pieces)


def checked_delimiter(delimiter: str) -> str:
    """Return a delimiter that can be marked where a passage holds it, without harm to what is written there.

    Raises:
        ConfigurationError: Every text has it, or it holds the mark.
    """
    is_common = len(delimiter) == 1 or (delimiter.isspace() and delimiter != BLANK_LINE)
    if not is_common and "\\" not in delimiter:
        return delimiter
    msg = (
        f"the delimiter {delimiter!r:.40} can't be distinguished from the text of chunks; use several characters that "
        "are not all white space and no backslash, for instance a line of ---, or an empty line"
    )
    raise ConfigurationError(msg)


@dataclass(frozen=True, slots=True, eq=False)
class Provenance:
    """The sources of settings that were loaded for an index; all are equal, so that settings compare by value.

    Attributes:
        sources: By source, weakest first, the keys whose values come from it.
        given: Keys that a person gave for this run: in a file or preset, or as arguments.
        file: The file or preset.
        overrides: The arguments.
        environment: Those variables of the environment that may be settings.
        warnings: Sentences about settings that were ignored.
    """

    sources: Mapping[str, tuple[str, ...]]
    given: frozenset[str]
    file: str | Path | None = field(default=None, repr=False)
    overrides: Mapping[str, Any] = field(default_factory=dict[str, "Any"], repr=False)
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    warnings: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return other is None or isinstance(other, Provenance)

    def __hash__(self) -> int:
        return 0


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
        msg = "the field text is missing: add {text}, so that the prompt contains the chunks"
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
    """Maximum tokens of a chunk, counted by the embedder. It is lowered to what the embedder reads."""
    min_tokens: int = Field(default=64, ge=0)
    """Minimum tokens of a chunk. Shorter sections are joined with small neighbours if they fit."""
    text_column: str | None = None
    """Column of CSV and JSONL files with the text. Default: it is detected."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Metadata fields by column name, to rename columns. Files without these columns are fine."""


class QueryConfig(Settings):
    """How queries are prepared."""

    max_length: int = Field(default=10_000, ge=1)
    """Maximum length of a query in code points, after normalisation. Longer ones are cut, and the result reports it."""
    normalize_unicode: bool = True
    """Whether queries are normalised to composed Unicode (NFC)."""
    syntax: bool = True
    """Whether ``"a phrase"``, ``-word``, ``path:`` and ``field:value`` in a query are query syntax."""


class SearchConfig(Settings):
    """How chunks are found and ranked."""

    mode: Annotated[Literal["hybrid", "dense", "lexical"], BeforeValidator(named_mode)] = "hybrid"
    """``dense`` (or ``vector``), ``lexical`` (or ``keyword``), or ``hybrid``, which is both."""
    top_k: int = Field(default=10, ge=1, le=1000)
    """Maximum number of chunks in a result."""
    candidates: int = Field(default=200, ge=1, le=10_000)
    """Chunks that each search returns before fusion; never less than ``top_k``."""
    fusion: Literal["adaptive", "zscore", "rrf", "minmax", "dbsf", "native"] = "adaptive"
    """How vector and keyword search are fused, see ``retrieval_core.pipeline.stages.fuse``. ``native`` leaves it to the
    store, if it can."""
    dense_weight: float = Field(default=0.65, ge=0, le=1)
    """Weight of vector search, from 0 to 1; keyword search has the rest. ``adaptive`` shifts it for each query. Other
    fusions use it unchanged, and their default is 0.5."""
    score_threshold: float | None = Field(default=None, ge=0, le=1)
    """Lowest cosine similarity of a chunk in a result."""
    on_unscored: Literal["drop", "keep"] = "drop"
    """Whether a threshold drops or keeps chunks without a cosine similarity."""
    search_type: Literal["similarity", "mmr"] = "similarity"
    """``mmr`` selects chunks that do not repeat each other, at the cost of some relevance."""
    fetch_k: int = Field(default=20, ge=1, le=10_000)
    """Chunks that ``mmr`` selects from; never less than ``top_k`` of the configuration or the call."""
    lambda_mult: float = Field(default=0.7, ge=0, le=1)
    """For ``mmr``: 1 is only relevance, 0 is only diversity."""

    @model_validator(mode="after")
    def _fixed_weights_are_equal(self) -> Self:
        if self.fusion != "adaptive" and "dense_weight" not in self.model_fields_set:
            object.__setattr__(self, "dense_weight", FIXED_DENSE_WEIGHT)
        return self

    @model_validator(mode="after")
    def _there_is_a_choice(self) -> Self:
        if self.search_type == "mmr" and "fetch_k" in self.model_fields_set and self.fetch_k < self.top_k:
            msg = (
                f"fetch_k is {self.fetch_k}, less than top_k, which is {self.top_k}; "
                f"set fetch_k to more than {self.top_k}, or leave it out"
            )
            raise ValueError(msg)
        return self


class FormatterConfig(Settings):
    """How the chunks become one text."""

    template: Annotated[str, AfterValidator(_well_formed)] = DEFAULT_TEMPLATE
    """Template of a chunk, with fields in braces; see ``retrieval_core.pipeline.stages.format``."""
    delimiter: Annotated[str, AfterValidator(_delimiter)] = "\n\n---\n\n"
    """Separator between two chunks."""
    include_scores: bool = False
    """Whether each chunk begins with its score."""
    max_context_length: int | None = Field(default=None, ge=1)
    """Maximum length of the text in code points. Default: no limit."""


class ContextConfig(Settings):
    """How hits and their surroundings become one text within a token budget."""

    max_tokens: int = Field(default=12_000, ge=1)
    """Token budget. The whole text is never longer."""
    min_primaries: int = Field(default=3, ge=0)
    """Number of best hits that are kept, if necessary shortened, as long as one sentence of each fits."""
    neighbor_same_page: int = Field(default=1, ge=0, le=100)
    """Chunks before and after a hit on the same page or under the same parent, such as a section."""
    neighbor_cross_page: int = Field(default=2, ge=0, le=100)
    """Chunks before and after a hit from adjacent pages; none if the document has no pages."""
    include_parents: bool = True
    """Whether the section or page of each hit is added."""
    window: int = Field(default=0, ge=0, le=100)
    """Chunks before and after a hit that are merged with it, in the document's order. It replaces both kinds of
    neighbors."""
    template: Annotated[str, AfterValidator(_passage)] = "[{number}] {citation}\n{text}"
    """Template of a chunk, with the fields ``number``, ``citation``, ``text``, ``title``, ``source`` and ``role``."""
    delimiter: str = "\n\n"
    """Separator between two chunks."""
    token_counter: str = "auto"  # noqa: S105 - no password
    """``auto`` (the embedder's own tokenizer, otherwise the local embedder's), ``o200k_base``, ``cl100k_base`` or
    ``"package.module:factory"``."""


class RetryConfig(Settings):
    """How calls to a backend are retried after a transient failure."""

    max_retries: int = Field(default=3, ge=0, le=20)
    """Maximum number of retries after the first attempt."""
    base_delay: float = Field(default=1.0, ge=0)
    """Seconds before the first retry, with a random delay of up to as much. Each further delay is twice as long, at
    most 10 seconds unless the backend asks for more."""


class BreakerConfig(Settings):
    """Circuit breaker: when a failing backend is not called for a while."""

    failures: int = Field(default=5, ge=0)
    """Failures in a row that open the circuit for 2 to 30 seconds. 0 means never."""


class AnalysisConfig(Settings):
    """How text becomes terms. An index keeps the analysis that it was built with."""

    language: str = Field(default="english", pattern=r"^[a-z_]{1,32}$")
    """Language of the Snowball stemmer, for instance ``german``; ``porter`` for Porter's original rules for English;
    ``none`` for whole words."""
    stop_words: tuple[str, ...] | None = None
    """Words that queries drop, unless they contain no others. Default: those of the language; ``[]`` for none."""
    word_ngrams: int = Field(default=1, ge=1, le=4)
    """Maximum number of adjacent words that also form a term."""


class GraphConfig(Settings):
    """Knowledge graph: triples that lead from names in a query to chunks."""

    file: File = None
    """File of triples, one JSON object a line."""


class TimeoutsConfig(Settings):
    """Timeouts of backend calls in seconds, with all retries. The deadline of the query holds as well."""

    embedding: float | None = Field(default=None, gt=0, le=86_400)
    """Embedding a query. Default of all timeouts: only the deadline."""
    retrieval: float | None = Field(default=None, gt=0, le=86_400)
    """Vector search, keyword search, or reading the chunks: each of these calls."""
    reranking: float | None = Field(default=None, gt=0, le=86_400)
    """Scoring the chunks of one request."""
    synthesis: float | None = Field(default=None, gt=0, le=86_400)
    """Writing an answer, from the request to its last word."""


class LimitsConfig(Settings):
    """Limits of other settings and of calls."""

    max_results: int = Field(default=1000, ge=1, le=1000)
    """Maximum of ``top_k``, in the configuration or in a call."""


class FederationConfig(Settings):
    """Searching several indexes as one."""

    weights: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=dict)
    """Factor for the scores of each index, by its name. Default: 1. An index with 0 is not searched."""


class RetrievalConfig(Settings):
    """All settings of the library. Create it with :func:`load_config`, or directly; then it reads nothing else."""

    index: str = ".retrieval/index.db"
    """The index file, relative to the current folder."""
    store: StoreConfig = StoreConfig()
    embedder: EmbedderConfig = EmbedderConfig()
    chunking: ChunkingConfig = ChunkingConfig()
    analysis: AnalysisConfig = AnalysisConfig()
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
    """Time budget of a query in seconds; ``null`` for none. If only ``timeouts`` are set and their sum is larger, the
    default is three times that sum."""
    strict: bool = False
    """Whether failures raise an error instead of a fallback."""
    raise_on_error: bool = False
    """Whether a query raises an error instead of returning an empty result if all searches fail."""

    _provenance: Provenance | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _has_new_names(cls, data: Any) -> Any:
        """Return what a program gave by today's names; settings that were loaded have no others."""
        if not isinstance(data, Mapping):
            return data
        gone, renamed = list[str](), list[str]()
        try:
            tree = rename_moved(cast("Mapping[str, Any]", data), cls.__name__, gone, renamed)
            replace_switches(tree, gone)
        except RecursionError:
            tree = {}
            gone.append(TOO_DEEP)
        for warning in renamed:
            warnings.warn(without_secrets(warning), SettingRenamedWarning, stacklevel=3)
        if gone:
            raise ValueError(without_secrets("\n  ".join(gone)))
        return tree

    @property
    def provenance(self) -> Provenance | None:
        """The sources of the settings, if they were loaded for an index."""
        return self._provenance

    def with_provenance(self, provenance: Provenance | None) -> Self:
        """Return the settings with their sources."""
        config = self.model_copy()
        config._provenance = provenance  # noqa: SLF001 - of this class
        return config

    @field_validator("limits")
    @classmethod
    def _limits_are_kept(cls, value: LimitsConfig, info: ValidationInfo) -> LimitsConfig:
        search = info.data.get("search")
        if search is not None and search.top_k > value.max_results:
            msg = f"search.top_k is {search.top_k}, and limits.max_results allows {value.max_results}"
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
