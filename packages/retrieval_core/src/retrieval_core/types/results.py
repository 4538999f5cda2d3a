"""Results of queries: hits with their scores, records of the stages, and the whole result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from retrieval_core.types.display import Display
from retrieval_core.types.documents import (
    Chunk,
    FrozenDict,
    Span,
    clean_texts,
    freeze,
)
from retrieval_core.types.fast_init import fast_init

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.types.documents import Metadata, Vector

SearchMode: TypeAlias = Literal["hybrid", "dense", "lexical", "vector", "keyword"]
"""How an index is searched; ``vector`` is another name for ``dense``, and ``keyword`` for ``lexical``."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of calls of a model, by its own count."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens)


@dataclass(frozen=True, slots=True)
class Judgement:
    """A relevance filter's judgement of a passage.

    Attributes:
        relevant: Whether it is kept.
        score: Relevance in [0, 1].
        reason: One sentence for people; may be empty.
    """

    relevant: bool
    score: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """A rewrite of a question.

    Attributes:
        original_query: Normalised.
        attempt_number: From 1.
        improvement_reason: Why the new words should find more.
        relevance: How relevant the hits of the rewritten query were; ``None`` where that is unknown.
    """

    original_query: str
    rewritten_query: str
    attempt_number: int
    improvement_reason: str
    relevance: float | None = None


@fast_init
@dataclass(frozen=True, slots=True, repr=False)
class Scores(Display):
    """A hit's score at each stage; ``None`` where a stage did not see it. Ranks count from 1.

    Attributes:
        dense: Cosine similarity of query and passage in [0, 1] (a negative cosine counts as 0).
        lexical: BM25, unbounded above; comparable within one query only.
        fused: The combination of both sides, whose scale depends on the fusion method.
        mmr: Marginal relevance when it was selected, in [-1, 1].
        relevance: The relevance filter's score, in [0, 1].
        final: The score that the hits are ordered by.
    """

    dense: float | None = None
    dense_rank: int | None = None
    lexical: float | None = None
    lexical_rank: int | None = None
    fused: float | None = None
    mmr: float | None = None
    rerank: float | None = None
    relevance: float | None = None
    final: float | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """A reranker's finding on whether a passage answers the question.

    Attributes:
        answers: Whether the passage holds the answer.
        text: The words that it was judged by; may be empty.
        is_quoted: Whether the passage holds these words, but for white space.
    """

    answers: bool
    text: str
    is_quoted: bool


@dataclass(frozen=True, slots=True)
class Origin:
    """A search beside the question's own that found a hit.

    Attributes:
        kind: ``sub-question``, ``keywords``, ``passage``, ``graph``, a retriever's name …
        text: The text searched for, or for a graph the entities and relations that led there.
    """

    kind: str
    text: str


@fast_init
@dataclass(frozen=True, slots=True, repr=False)
class Hit(Display):
    """A chunk that was found, with the score it is ordered by and the scores of all stages.

    Attributes:
        found_by: The searches beside the question's own that found it, such as those for sub-questions.
        source_index: Which of several indexes it is from; ``None`` where one was asked.
        excerpts: Spans of the chunk's text that bear on the question, in order; the rest is not shown. Empty for the
            whole text.
        relevance_reason: Why the relevance filter kept it; ``None`` where none judged it.
        evidence: The reranker's; ``None`` without a reranker, or with one that gives scores only.
    """

    chunk: Chunk
    score: float
    scores: Scores
    relevance_reason: str | None = None
    evidence: Evidence | None = None
    found_by: tuple[Origin, ...] = ()
    source_index: str | None = None
    excerpts: tuple[Span, ...] = ()

    @property
    def id(self) -> str:
        """The chunk's id, by which hits are deduplicated."""
        return self.chunk.id


@fast_init
@dataclass(frozen=True, slots=True)
class Query:
    """A question on its way through the pipeline; lone surrogates in its texts become U+FFFD.

    Attributes:
        original: As it was asked.
        text: Normalised, and cut to the configured length.
        embedding: Shape ``(dimension,)``; ``None`` before embedding and in lexical mode.
    """

    original: str
    text: str
    truncated: bool = False
    embedding: Vector | None = None

    def __post_init__(self) -> None:
        clean_texts(self, "original", "text")


@dataclass(frozen=True, slots=True)
class Degradation:
    """A stage that did not work as configured; the query went on without it."""

    stage: str
    reason: str


@dataclass(frozen=True, slots=True)
class DroppedPassage:
    """A passage that the relevance filter left out.

    Attributes:
        id: The chunk's.
        score: Its relevance in [0, 1].
        reason: Cut after 300 code points; may be empty.
    """

    id: str
    score: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt of a stage that failed, whether another one followed or not.

    Attributes:
        started_ms: Milliseconds from the beginning of the query.
        milliseconds: Wall time.
        error: Why it failed.
    """

    started_ms: float
    milliseconds: float
    error: str


@fast_init
@dataclass(frozen=True, slots=True)
class StageRecord:
    """One run of a stage.

    Attributes:
        milliseconds: Wall time.
        count_in: How many candidates went in; ``None`` where that makes no sense.
        count_out: How many came out, likewise.
        error: Why it failed after all attempts.
        attempts: How often its backend was called; 0 for stages that are plain arithmetic, and for calls not made.
        decision: In words.
        usage: The model's tokens.
        round: The search that it belongs to: 1 for the question as it was asked, one more for each rewrite. ``None``
            for stages outside of searches, such as the rewriting itself.
        dropped: In the order of the hits.
        started_ms: When it began, in milliseconds from the beginning of the query; ``None`` where that is not known.
        failed: Attempts that failed, in order; the others, up to ``attempts``, came after them.
    """

    stage: str
    milliseconds: float
    count_in: int | None = None
    count_out: int | None = None
    error: str | None = None
    attempts: int = 0
    decision: str | None = None
    usage: Usage | None = None
    round: int | None = None
    dropped: tuple[DroppedPassage, ...] = ()
    started_ms: float | None = None
    failed: tuple[FailedAttempt, ...] = ()


@dataclass(frozen=True, slots=True)
class EvaluationScores:
    """Scores of a result that need no reference answer, in [0, 1]; ``None`` where one cannot be computed.

    Attributes:
        context_precision: Whether the relevant passages come first.
        response_relevancy: Whether the response answers the question.
        methods: How each score was computed, by its name.
    """

    context_precision: float | None = None
    response_relevancy: float | None = None
    methods: Mapping[str, str] = field(default_factory=FrozenDict)
    usage: Usage | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "methods", freeze(self.methods))


NOT_HERE = "Not in these documents, as far as the search can tell."
"""The note on a query that the documents probably don't answer."""


@fast_init
@dataclass(frozen=True, slots=True)
class Relevance:
    """Whether the hits of a query answer it: one judgement, which every interface reports and answers act on.

    Attributes:
        value: Probability that they do, in [0, 1]; ``None`` if nothing indicates it.
        is_unlikely: Whether ``value`` is below ``answer.abstain_below``.
        unknown: Identifiers, codes and numbers of the query that no chunk contains which the caller may see.
        is_of_another_language: Whether the query is in another language than the hits; ``value`` is then ``None``.
        explanation: How it was computed, for people.
        coverage: The part of the query's words that one of the hits contains, by their weight; ``None`` without words.
        cosine: The best of query and chunk, if it is of the default embedder; else ``None``.
        margin: How much that is above the mean of the first ten.
    """

    value: float | None = None
    is_unlikely: bool = False
    unknown: tuple[str, ...] = ()
    is_of_another_language: bool = False
    explanation: str = ""
    coverage: float | None = None
    cosine: float | None = None
    margin: float = 0.0

    @property
    def is_unanswerable(self) -> bool:
        """Whether an answer abstains: the hits are unlikely to answer, or an identifier is unknown."""
        return self.is_unlikely or bool(self.unknown)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what to tell people, the unknown identifiers first; nothing if nothing speaks against an answer."""
        told: list[str] = []
        if self.unknown:
            told.append(f"No chunk contains {' or '.join(self.unknown)}.")
        if self.is_of_another_language:
            told.append("The query is in another language than the documents: ask in theirs.")
        if self.is_unlikely:
            told.append(NOT_HERE)
        return tuple(told)

    @property
    def note(self) -> str | None:
        """Return all notes in one line; ``None`` if there are none."""
        return " ".join(self.notes) or None


@fast_init
@dataclass(frozen=True, slots=True, repr=False)
class RetrievalResult(Display):
    """The result of one query.

    Attributes:
        query: As it was asked.
        hits: Best first.
        formatted_context: The passages as one text, ready for a prompt.
        metadata: Facts about the run: the normalised query, the mode, the filter, counts, whether the context was cut,
            and ``note``: why nothing was found, where that is known.
        latency_ms: Wall time.
        degraded: Empty when everything worked as configured.
        trace: One record for each stage, in the order they ended.
        rewrites: In order.
        evaluation: ``None`` where evaluation is off.
        relevance: Whether the hits answer the query; ``None`` for results that no pipeline of ours made.
    """

    query: str
    hits: tuple[Hit, ...]
    formatted_context: str
    metadata: Metadata
    latency_ms: float
    from_cache: bool = False
    degraded: tuple[Degradation, ...] = ()
    trace: tuple[StageRecord, ...] = ()
    rewrites: tuple[RewriteResult, ...] = ()
    evaluation: EvaluationScores | None = None
    relevance: Relevance | None = None

    def __post_init__(self) -> None:
        if type(self.hits) is not tuple:
            object.__setattr__(self, "hits", tuple(self.hits))
        if type(self.metadata) is not FrozenDict:
            object.__setattr__(self, "metadata", freeze(self.metadata))

    @property
    def documents(self) -> tuple[Chunk, ...]:
        """The chunks of the hits, best first."""
        return tuple(hit.chunk for hit in self.hits)

    @property
    def scores(self) -> tuple[float | None, ...]:
        """The hits' cosine similarities in [0, 1], ``None`` where there is no vector to compare."""
        return tuple(hit.scores.dense for hit in self.hits)

    @property
    def evaluation_scores(self) -> dict[str, float | None] | None:
        """The scores of :attr:`evaluation` by name; ``None`` where evaluation is off."""
        if self.evaluation is None:
            return None
        return {
            "context_precision": self.evaluation.context_precision,
            "response_relevancy": self.evaluation.response_relevancy,
        }
