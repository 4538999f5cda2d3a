"""The plan of a query, the state that its stages work on, the base class of stages, and the names of their settings.

A cache key is the SHA-256 of JSON in which a dataclass, such as a plan or a filter, is a list of its fields. Python's
own equality would not do: ``1``, ``1.0`` and ``True`` are equal to it, and a filter means something else by each. The
same values have the same key in every process.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, cast

from retrieval_core.run.outcomes import is_callers_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Self

    from pydantic import BaseModel

    from retrieval_core.pipeline.stages.embed import SharedVectors
    from retrieval_core.pipeline.stages.fuse import FusionMethod, Ranked
    from retrieval_core.ports import Candidate, HeldIndex, Linked, Message, Variant
    from retrieval_core.run.outcomes import Failed
    from retrieval_core.run.runner import Run
    from retrieval_core.text.query_syntax import ParsedQuery
    from retrieval_core.types import (
        JSON,
        Chunk,
        Degradation,
        EvaluationScores,
        Hit,
        Origin,
        Query,
        Relevance,
        RewriteResult,
        SearchMode,
    )
    from retrieval_core.types.filters import Filter

Candidates: TypeAlias = "tuple[Candidate, ...]"


@dataclass(frozen=True, slots=True)
class Phrases:
    """What the text of each chunk must and must not contain, in the form of :func:`text.query_syntax.folded`.

    Attributes:
        required: All of them must occur.
        excluded: None of them may occur.
        condition: A filter that the store can't evaluate.
    """

    required: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    condition: Filter | None = None


@dataclass(frozen=True)
class Plan:
    """The settings of one query. All of them are in the cache key but those that change no result (``compare=False``).

    Attributes:
        mode: Which sides are searched.
        top_k: The most hits, at least 1.
        candidates: How many to ask of each side, at least ``top_k``.
        condition: What every passage must pass.
        has_words: Whether the store can be searched by words at all.
        fusion: How the sides are combined; ``native`` leaves it to the store.
        dense_weight: In [0, 1]; the lexical side has the rest.
        score_threshold: The least dense score, in [0, 1]; ``None`` for none.
        on_unscored: What a threshold does to passages that have no dense score.
        fetch_k: From how many of the best ``top_k`` different ones are chosen; ``None`` for plain relevance.
        lambda_mult: In [0, 1]: relevance against difference, where hits are to be different.
        reranked: How many hits are put into a better order before the best ``top_k`` are taken; 0 for none.
        transforms: Names of the transformers that look at the question first, in their order.
        variants: Further texts to search for, which the caller gave.
        intent: Why the question is asked, which only vector search gets.
        history: The turns of the conversation before the question, oldest first.
        session_id: Whose question it is, where results are not shared between sessions.
        use_cache: Whether the result may be one that was kept.
        options: Further options of the query, by name; a stage reads its own.
        reads_syntax: Whether the query is read as query syntax.
        phrases: What the text of each passage must and must not contain; ``None`` for anything.
        indexes: The plan of each of several indexes that are searched, by name; empty for one.
    """

    mode: SearchMode
    top_k: int
    candidates: int
    condition: Filter | None = None
    has_words: bool = True
    fusion: FusionMethod | Literal["native"] = "zscore"
    dense_weight: float = 0.5
    score_threshold: float | None = None
    on_unscored: Literal["drop", "keep"] = "drop"
    fetch_k: int | None = None
    lambda_mult: float = 0.5
    reranked: int = 0
    transforms: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ()
    intent: str = ""
    history: tuple[Message, ...] = ()
    session_id: str | None = field(default=None, compare=False)
    use_cache: bool = field(default=True, compare=False)
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    reads_syntax: bool = False
    phrases: Phrases | None = None
    indexes: Mapping[str, Plan] = field(default_factory=dict[str, "Plan"])

    @cached_property
    def key(self) -> str:
        """A digest of the settings that change results; queries without options share one plan."""
        return digest(self)

    @property
    def shortlist(self) -> int:
        """How many hits the search hands on, at least ``top_k``."""
        return max(self.top_k, self.reranked)

    @property
    def depth(self) -> int | None:
        """How many candidates are looked at; ``None`` for all: with a threshold or phrases any of them may pass."""
        return self.least_depth if self.score_threshold is None and self.phrases is None else None

    @property
    def least_depth(self) -> int:
        """How many of the candidates that pass are looked at."""
        return max(self.shortlist, self.fetch_k or 0)


@dataclass(frozen=True, slots=True)
class JudgedHits:
    """The hits that a stage judged, for callers that have hits and no query to search for.

    Attributes:
        hits: In their new order. Hits that could not be judged stay.
        failures: The calls that failed.
        degraded: Faults of answers that were used.
        relevance_scores: The scores of a relevance filter, in [0, 1], also of the hits that it dropped.
    """

    hits: tuple[Hit, ...]
    failures: tuple[Failed, ...] = ()
    degraded: tuple[Degradation, ...] = ()
    relevance_scores: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchResults:
    """What the sides found; ``None`` for a side that was not asked, or failed.

    Attributes:
        dense: By the vectors of the passages.
        both: By both sides at once, in the store's own order.
        unembedded: Ids of those of ``lexical`` that have no vector yet.
    """

    query: Query
    dense: Candidates | None
    lexical: Candidates | None
    failures: tuple[Failed, ...] = ()
    both: Candidates | None = None
    unembedded: frozenset[str] = frozenset()

    @property
    def sides(self) -> tuple[Candidates, ...]:
        """The candidates of each side that was searched."""
        return tuple([side for side in (self.dense, self.lexical, self.both) if side is not None])

    @property
    def candidates(self) -> Candidates:
        """Everything that was found, by whichever side."""
        return tuple([item for side in self.sides for item in side])


@dataclass(frozen=True, slots=True)
class Expansion:
    """What one variant, retriever or link found, as one list.

    Attributes:
        ranked: Best first.
        chunks: Those that came along, by id.
        is_search: Whether it is a search of the same index, whose scores are of the same kind as the question's.
    """

    origin: Origin
    weight: float
    ranked: tuple[Ranked, ...]
    chunks: Mapping[str, Chunk]
    is_search: bool = True


@dataclass(frozen=True, slots=True)
class FormattedContext:
    """The text, how many hits are in it, and whether the length limit cut something off."""

    text: str
    document_count: int
    truncated: bool = False


@dataclass(frozen=True, kw_only=True)
class SearchState:
    """All that is known of one query; each stage returns a new one.

    Attributes:
        asked: The query as the user asked it, normalized.
        question: The same as the transformers left it. Rerankers, filters and pruners compare chunks with it.
        query: The query of this search: the question, or the one that a rewriter put in its place.
        plan: The settings of this query.
        held: The current version of the index in memory; ``None`` if there is none.
        syntax: The parts of the query that are syntax; ``None`` if all of it is text.
        has_missing_phrases: Whether nothing had the required phrases, so that they were searched for as text.
        shared_vectors: Vectors of the query that the indexes share, if it is one of several that are searched.
        variants: Further texts to search for.
        linked: Chunks that transformers found without a search.
        found: The candidates of keyword and vector search.
        expansions: The candidates of variants, linked chunks and further retrievers.
        ranked: All candidates, ranked, before their chunks are read.
        pool: The hits whose chunks were read, best first.
        selected: The best hits, before any was filtered out.
        hits: The hits of the result.
        relevance_scores: The scores that the relevance filter gave, in [0, 1].
        failures: Calls that failed.
        degraded: Other fallbacks.
        answers: The last states of several indexes that were searched, by name.
        error: Why nothing could be searched or read.
        note: Why nothing was found, if that is known.
        unknown_fields: Which fields of the filter no chunk has.
        metadata: Facts about the search for the metadata of the result.
        indexes: The same of each of several indexes, by name.
        weights: The weights of several indexes, by name.
        attempts: How many times the query was rewritten.
        again: The query to search for next; ``None`` if the search is good enough.
        rewrites: The queries that were searched for instead.
        later_failures: Calls of searches for these that failed.
        relevance: Whether the hits answer the query.
        context: The hits as one text.
        evaluation: The scores of an evaluator.
    """

    asked: Query
    question: Query
    query: Query
    plan: Plan
    held: HeldIndex | None = None
    syntax: ParsedQuery | None = None
    has_missing_phrases: bool = False
    shared_vectors: SharedVectors | None = None
    variants: tuple[Variant, ...] = ()
    linked: tuple[Linked, ...] = ()
    found: SearchResults | None = None
    expansions: tuple[Expansion, ...] = ()
    ranked: tuple[Ranked, ...] = ()
    pool: tuple[Hit, ...] = ()
    selected: tuple[Hit, ...] = ()
    hits: tuple[Hit, ...] = ()
    relevance_scores: tuple[float, ...] = ()
    failures: tuple[Failed, ...] = ()
    degraded: tuple[Degradation, ...] = ()
    answers: Mapping[str, SearchState] = field(default_factory=dict[str, "SearchState"])
    error: str | None = None
    note: str | None = None
    unknown_fields: str | None = None
    metadata: Mapping[str, JSON] = field(default_factory=dict[str, "JSON"])
    indexes: Mapping[str, Mapping[str, JSON]] = field(default_factory=dict[str, "Mapping[str, JSON]"])
    weights: Mapping[str, float] = field(default_factory=dict[str, float])
    attempts: int = 0
    again: Query | None = None
    rewrites: tuple[RewriteResult, ...] = ()
    later_failures: tuple[Failed, ...] = ()
    relevance: Relevance | None = None
    context: FormattedContext | None = None
    evaluation: EvaluationScores | None = None

    @staticmethod
    def of(query: Query, plan: Plan, held: HeldIndex | None = None) -> SearchState:
        """Return the state before the first stage."""
        return _BLANK.but(asked=query, question=query, query=query, plan=plan, held=held)

    def but(self, **changed: Any) -> Self:
        """Return the state with other values of some attributes.

        Raises:
            TypeError: A state has no such attribute.
        """
        if not changed.keys() <= self.__dict__.keys():
            msg = f"a search state has no attribute {min(changed.keys() - self.__dict__.keys())!r}"
            raise TypeError(msg)
        state = object.__new__(type(self))  # replace() takes ten times as long
        state.__dict__.update(self.__dict__ | changed)
        return state

    def failing(self, *failures: Failed) -> Self:
        """Return the state with further calls that failed."""
        return self.but(failures=(*self.failures, *failures)) if failures else self

    @property
    def quality(self) -> float | None:
        """How well the search did, in [0, 1]; ``None`` if nothing shows it.

        It is the highest score of the relevance filter, or else the best cosine, and 0 without hits.
        """
        if not self.hits:
            return None if self.error is not None and not self.selected else 0.0
        if self.relevance_scores:
            return max(self.relevance_scores)
        return max([hit.scores.dense for hit in self.hits if hit.scores.dense is not None], default=None)


_NOT_ASKED: Any = None
_BLANK = SearchState(asked=_NOT_ASKED, question=_NOT_ASKED, query=_NOT_ASKED, plan=_NOT_ASKED)
"""The state of no query, which is copied for each: that takes a third of the time of making one."""


class Stage(ABC):
    """One step of a query: it takes a state and returns another one.

    A stage neither retries nor catches errors nor looks at the clock. It makes its calls with ``run.call()``, which
    returns each failure as a value, and adds these to ``state.failures``; the engine decides which ones to raise.

    Attributes:
        name: Names the stage in traces and in ``degraded``.
        deadline_share: The part of the deadline that the stage has, in [0, 1]; 0 for all that is left.
        on_merged: Whether the stage runs once, on the merged hits of several indexes. Otherwise it also runs in each of
            them.
        after: Your own stages only: the name of the stage after which this one runs.
    """

    name: ClassVar[str]
    deadline_share: float = 0.1
    on_merged: bool = False
    after: str = "top_k"

    @abstractmethod
    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state after this stage."""

    def fingerprint(self) -> str | None:
        """Return a name for all settings of the stage, which becomes part of the cache key.

        Returns:
            ``None`` if results of the stage must not be cached, the default.
        """
        return None

    def plugins(self) -> Iterable[object]:
        """Return the plug-ins that the stage calls; they are loaded before the first query, and closed at the end."""
        return ()

    def knowledge(self, _plan: Plan) -> Mapping[str, object]:
        """Return plug-ins whose answers change with what they know, by name; their versions go into the cache key."""
        return {}

    def is_fault(self, error: Exception, _state: SearchState) -> bool:
        """Return whether an error of the stage is raised, since going on would hide a mistake of the caller."""
        return is_callers_fault(error)


def digest(*values: Any) -> str:
    """Return the key of some values, 64 hexadecimal digits.

    A tuple counts as a list, and the order of a mapping and of a set doesn't count. The order within a filter does:
    ``Or((a, b))`` and ``Or((b, a))`` have two keys, which costs a second search and is never wrong.

    Args:
        values: JSON values, dataclasses and sets. Freeze mappings of users first
            (:func:`~retrieval_core.types.freeze`), since JSON takes ``1`` and ``"1"`` for the same name.
    """
    return sha256(_ENCODER.encode(values).encode()).hexdigest()


def identify(settings: Sequence[BaseModel | tuple[str, ...]], *plugins: object) -> str | None:
    """Return a name for the settings and the plug-ins of a stage; ``None`` if one of the plug-ins has no id."""
    ids = [None if plugin is None else getattr(plugin, "id", "") for plugin in plugins]
    if "" in ids:
        return None
    # A dump hides objects of programs, so these are named apart.
    custom = [getattr(section, "custom", None) for section in settings]
    dumps = [section if isinstance(section, tuple) else section.model_dump_json() for section in settings]
    from pydantic_core import to_json  # noqa: PLC0415 - once for each stage

    return digest(dumps, to_json(custom).decode(), ids)


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    if isinstance(value, (set, frozenset)):
        return sorted(cast("frozenset[str]", value))
    if is_dataclass(value):
        kind = type(value)
        return [kind.__name__, *[getattr(value, name) for name in _compared(kind)]]
    msg = f"{value!r:.80} can't be part of a cache key"
    raise TypeError(msg)


@cache
def _compared(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass that its equality compares."""
    return tuple(field.name for field in fields(kind) if field.compare)


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_as_json)
