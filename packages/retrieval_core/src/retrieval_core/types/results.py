"""What comes of a question: hits with their scores, what was decided on the way, and the whole result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from retrieval_core.types.documents import (
    Chunk,
    FrozenDict,
    Span,
    clean_texts,
    freeze,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.types.documents import Metadata, Vector

SearchMode: TypeAlias = Literal["hybrid", "dense", "lexical"]


@dataclass(frozen=True, slots=True)
class Usage:
    """What calls of a model cost, in its own tokens."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a passage bears on a question.

    Attributes:
        relevant: Whether it is kept.
        score: In [0, 1], how much it bears on the question.
        reason: One sentence for people; empty where the judge gives none.
    """

    relevant: bool
    score: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """A question that was put into other words.

    Attributes:
        original_query: As it was asked, normalised.
        rewritten_query: As it was searched for instead.
        attempt_number: From 1.
        improvement_reason: Why the new words should find more.
        relevance: What the search for them came to; ``None`` where that cannot be told.
    """

    original_query: str
    rewritten_query: str
    attempt_number: int
    improvement_reason: str
    relevance: float | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """Where a hit's rank comes from; ``None`` where a stage did not see it. Ranks count from 1.

    Attributes:
        dense: Cosine similarity of query and passage in [0, 1] (a negative cosine counts as 0).
        lexical: BM25, unbounded above, higher is better; comparable within one query only.
        fused: The combination of both sides, whose scale depends on the fusion method.
        mmr: Marginal relevance at the moment of selection, in [-1, 1].
        rerank: The reranker's score.
        relevance: The relevance filter's score, in [0, 1].
        final: The value that the hits are ordered by.
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
    """What a reranker says a passage tells on the question.

    Attributes:
        answers: Whether the passage holds the answer.
        text: The words that it was judged by; empty where there are none.
        is_quoted: Whether these words stand in the passage as they are, but for white space.
    """

    answers: bool
    text: str
    is_quoted: bool


@dataclass(frozen=True, slots=True)
class Origin:
    """What a hit was found by, where that was not the question alone.

    Attributes:
        kind: ``sub-question``, ``keywords``, ``passage``, ``graph``, a retriever's name …
        text: What was searched for, or what led there.
    """

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that was found, with the score it is ordered by and the scores that led there.

    Attributes:
        found_by: What else than the question found it, such as the sub-questions; empty where only the question did.
        source_index: Which of several indexes it is from; ``None`` where one was asked.
        excerpts: The parts of the chunk's text that bear on the question, in order, where the rest is not shown; spans
            of the chunk's text. Empty for the whole text.
        relevance_reason: Why the relevance filter kept it; ``None`` where none looked at it.
        evidence: What the reranker found in it; ``None`` where none looked, or it gives scores only.
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
        """The chunk's id: what makes two hits the same, never their text."""
        return self.chunk.id


@dataclass(frozen=True, slots=True)
class Query:
    """A question on its way through the pipeline; lone surrogates in its texts become U+FFFD.

    Attributes:
        original: As it was asked.
        text: Normalised, and cut to the configured length.
        truncated: Whether something was cut off.
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
    """One thing that did not work as configured, and was done without."""

    stage: str
    reason: str


@dataclass(frozen=True, slots=True)
class DroppedPassage:
    """A passage that was found and left out again.

    Attributes:
        id: The chunk's.
        score: In [0, 1], how much it bears on the question, as the relevance filter has it.
        reason: Why it was left out, cut after 300 code points; empty where the relevance filter gives none.
    """

    id: str
    score: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StageRecord:
    """What one stage did.

    Attributes:
        milliseconds: Wall time.
        count_in: How many candidates went in; ``None`` where that makes no sense.
        count_out: How many came out, likewise.
        error: Why it failed in the end.
        attempts: How often its backend was called; 0 for stages that are plain arithmetic, and for calls not made.
        decision: What was decided, in words, where something was.
        usage: What a model took, where it tells.
        round: Which search it belongs to: 1 for the question as it was asked, one more for each rewrite of it. ``None``
            for what belongs to none, such as the rewriting itself.
        dropped: The passages that were left out, in the order of the hits.
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


@dataclass(frozen=True, slots=True)
class EvaluationScores:
    """How good a result is, as far as that can be told without knowing the right answer.

    Attributes:
        context_precision: In [0, 1]: whether the passages that bear on the question come first. ``None`` where it
            cannot be computed.
        response_relevancy: In [0, 1]: whether the response answers the question. ``None`` likewise.
        methods: How each of them was computed, by its name.
        usage: What the models took for it, where they tell.
    """

    context_precision: float | None = None
    response_relevancy: float | None = None
    methods: Mapping[str, str] = field(default_factory=FrozenDict)
    usage: Usage | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "methods", freeze(self.methods))


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """The answer to one query.

    Attributes:
        query: The query as it was asked.
        hits: Best first.
        formatted_context: The passages as one text, ready for a prompt.
        metadata: Facts about the run: the normalised query, the mode, the filter, counts, whether the context was cut,
            and ``note``: why nothing was found, where that is known.
        latency_ms: Wall time in milliseconds.
        degraded: Empty when everything worked as configured.
        trace: One record for each stage, in the order they ended.
        rewrites: Other words that were searched for, in order.
        evaluation: Scores of the result, where evaluation is on.
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "metadata", freeze(self.metadata))

    @property
    def documents(self) -> tuple[Chunk, ...]:
        """The chunks of the hits, best first."""
        return tuple(hit.chunk for hit in self.hits)

    @property
    def scores(self) -> tuple[float | None, ...]:
        """The hits' dense cosine similarities in [0, 1], ``None`` where there is no vector to compare."""
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
