"""The values that flow through the pipeline, from a file on disk to the result of a query.

All of them are frozen: a stage makes new values with :func:`dataclasses.replace` and never edits the ones it was given.
Offsets count code points and are half open, ``document.text[start:end]``. Pages and rows count from 1, positions of
chunks from 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - dataclass fields are resolved at run time
from hashlib import sha256
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, cast

from retrieval_core.errors import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    Vector: TypeAlias = NDArray[np.float32]
    """One embedding, shape ``(dimension,)``."""
    Matrix: TypeAlias = NDArray[np.float32]
    """Several embeddings, shape ``(count, dimension)``."""

JSON: TypeAlias = "str | int | float | bool | list[JSON] | tuple[JSON, ...] | Mapping[str, JSON] | None"
Metadata: TypeAlias = "Mapping[str, JSON]"
SearchMode: TypeAlias = Literal["hybrid", "dense", "lexical"]


class FrozenDict(dict[str, Any]):
    """A dictionary that cannot be changed; it still is a ``dict`` to :mod:`json` and to equality."""

    __slots__ = ()

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        msg = "this mapping is frozen; make a new one with {**mapping, key: value}"
        raise TypeError(msg)

    __setitem__ = __delitem__ = __ior__ = _refuse  # type: ignore[assignment]
    clear = pop = popitem = setdefault = update = _refuse  # type: ignore[assignment]

    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, Any]]]:
        return FrozenDict, (dict(self),)


def freeze(value: Any) -> Any:
    """Return a JSON value with its mappings and lists made immutable, all the way down.

    Raises:
        InvalidParameterError: The value holds something that JSON cannot express.
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if not isfinite(value):
            msg = f"metadata numbers must be finite, got {value}; leave the field out where there is no value"
            raise InvalidParameterError(msg)
        return value
    if isinstance(value, FrozenDict):
        return value
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value)
        if not all(isinstance(key, str) for key in items):
            msg = f"metadata keys must be strings, got {sorted(map(repr, items))}"
            raise InvalidParameterError(msg)
        return FrozenDict({key: freeze(item) for key, item in items.items()})
    if isinstance(value, (list, tuple)):
        return tuple(freeze(item) for item in cast("list[Any]", value))
    msg = (
        f"metadata values must be JSON (text, number, boolean, null, list, object), got {type(value).__name__}. "
        "Convert dates and other objects to text or numbers first."
    )
    raise InvalidParameterError(msg)


def content_hash(text: str) -> str:
    """SHA-256 of the text's UTF-8 bytes, in hexadecimal; lone surrogates are hashed as they stand."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of code points in a document's text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PageSpan:
    """First and last page, counted from 1."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Document:
    """A whole text as it was read, kept so that every span can be checked against it.

    Attributes:
        id: Unique in its index; for files the path relative to the index, for rows that path with ``#`` and the row.
        text: The text that all spans of its chunks and sections point into.
        source: Path or URL of what was read; several documents (rows of a table) may share one.
        content_hash: :func:`content_hash` of ``text`` and, for rows, their metadata.
    """

    id: str
    text: str
    source: str
    content_hash: str
    title: str | None = None
    metadata: Metadata = field(default_factory=FrozenDict)
    timestamp: datetime | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "metadata", freeze(self.metadata))


@dataclass(frozen=True, slots=True)
class Section:
    """A larger unit around chunks, their parent: a part under one heading, or a page.

    Attributes:
        id: Unique in its index.
        path: Headings from the outermost to the section's own; empty for pages and untitled text.
        span: Where it lies in the document's text.
    """

    id: str
    document_id: str
    kind: Literal["section", "page"]
    path: tuple[str, ...]
    span: Span
    page_span: PageSpan | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """The unit of search: a passage of a document, with everything needed to cite it.

    Attributes:
        id: Unique in its index, ``<document id>#<chunk index>`` for chunks made by this library.
        chunk_index: Position in its document, from 0.
        total_chunks: Number of chunks of its document.
        section_path: Headings above the passage, outermost first.
        span: Where the text lies in its document's text, ``None`` for chunks that were added without a document.
        parent_id: Id of the :class:`Section` it lies in.
        row_range: First and last row of a table, counted from 1, where the passage is made of rows.
        item_range: First and last item of a list, counted from 1, where the passage is made of items.
        source: Path or URL.
        content_hash: :func:`content_hash` of ``text``; computed when it is not given.
        timestamp: When it was indexed.
        embedding_model: Id of the embedder of its vector.
        metadata: The user's own fields, JSON values.
    """

    id: str
    document_id: str
    text: str
    chunk_index: int = 0
    total_chunks: int = 1
    page_span: PageSpan | None = None
    section_path: tuple[str, ...] = ()
    span: Span | None = None
    parent_id: str | None = None
    row_range: tuple[int, int] | None = None
    item_range: tuple[int, int] | None = None
    title: str | None = None
    source: str | None = None
    content_hash: str = ""
    timestamp: datetime | None = None
    embedding_model: str | None = None
    metadata: Metadata = field(default_factory=FrozenDict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metadata", freeze(self.metadata))
        if not self.content_hash:
            object.__setattr__(self, "content_hash", content_hash(self.text))

    @property
    def indexed_text(self) -> str:
        """The text that is embedded and searched: title and headings, then the passage.

        A passage from the middle of a document often lacks the words that say what it is about; its headings have them.
        """
        heading = " > ".join(dict.fromkeys(part for part in (self.title, *self.section_path) if part))
        return f"{heading}\n{self.text}" if heading else self.text


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
        relevance: The compressor's score, in [0, 1].
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
class Hit:
    """A chunk that was found, with the score it is ordered by and the scores that led there.

    Attributes:
        relevance_reason: Why the compressor kept it; ``None`` where none looked at it.
    """

    chunk: Chunk
    score: float
    scores: Scores
    relevance_reason: str | None = None

    @property
    def id(self) -> str:
        """The chunk's id: what makes two hits the same, never their text."""
        return self.chunk.id


@dataclass(frozen=True, slots=True)
class Query:
    """A question on its way through the pipeline.

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


@dataclass(frozen=True, slots=True)
class Degradation:
    """One thing that did not work as configured, and was done without."""

    stage: str
    reason: str


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
    """

    stage: str
    milliseconds: float
    count_in: int | None = None
    count_out: int | None = None
    error: str | None = None
    attempts: int = 0
    decision: str | None = None
    usage: Usage | None = None


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
        metadata: Facts about the run: the normalised query, the mode, the filter, counts, whether the context was cut.
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
