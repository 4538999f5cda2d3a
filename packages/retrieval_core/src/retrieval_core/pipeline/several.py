"""Several indexes that are searched as one: their plans, and the stages that search them and merge what they found."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, Protocol, cast

from retrieval_core.config.model import named_mode
from retrieval_core.errors import FilterError, InvalidParameterError, QueryValidationError, SearchError
from retrieval_core.pipeline.options import (
    MAX_TOP_K,
    OF_EACH,
    checked_number,
    checked_values,
    chosen,
    condition_of,
    further_options,
)
from retrieval_core.pipeline.results import why_empty, why_nothing
from retrieval_core.pipeline.stages.embed import SharedVectors
from retrieval_core.pipeline.stages.fuse import IndexResult, candidates_first, merge_indexes, weighted, without_copies
from retrieval_core.pipeline.stages.state import Plan, SearchState, Stage, digest
from retrieval_core.ports import BOTH_SIDES
from retrieval_core.run.outcomes import Failed, Ok, is_callers_fault, raise_nothing_searched
from retrieval_core.types import Degradation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.options import Filters, QueryOptions
    from retrieval_core.ports import Embedder, HeldIndex, Message, Side, Store
    from retrieval_core.run.runner import Run
    from retrieval_core.types import JSON, Query, Relevance, RetrievalResult

_NAME = re.compile(r"[^\s:]+")

MAX_OF_EACH = 100
"""Hits of each index, unless the caller or ``limits.max_results`` sets another maximum: `max_results_per_query` of the
specification."""
SHARED_CANDIDATES = 30
"""The least that each index is asked for, so that scores can be told apart; measured, more makes no difference."""
OF_THE_WHOLE = frozenset({"history", "variants", "intent"})
"""Options that an index needs no more if its query was transformed together with that of the others."""


class Retrieval(Protocol):
    """One way to search."""

    @property
    def fingerprint(self) -> str | None:
        """A name for the settings of all stages; ``None`` if results of one of them must not be cached."""
        ...

    def knowledge(self, plan: Plan) -> Mapping[str, object]:
        """Return the plug-ins of a query whose answers change with what they know, by name."""
        ...

    def plan(self, filters: Filters, options: QueryOptions, /) -> Plan:
        """Combine settings and arguments.

        Raises:
            RetrievalError: An argument is invalid.
            TypeError: An argument is for several indexes only.
        """
        ...

    async def retrieve(self, run: Run, query: Query, plan: Plan) -> RetrievalResult:
        """Return the result of a query.

        Raises:
            RetrievalError: The search failed.
        """
        ...

    def start(self, query: Query, plan: Plan, held: HeldIndex | None) -> SearchState:
        """Return the first state of a query, for :meth:`search`."""
        ...

    async def search(self, run: Run, state: SearchState) -> SearchState:
        """Return the last state of a query, without the cache.

        Raises:
            RetrievalError: The search failed.
        """
        ...


@dataclass(frozen=True, slots=True)
class SearchedIndex:
    """One of several indexes that are searched as one.

    Attributes:
        store: Its store.
        embedder: Its embedder; ``None`` if it is searched by keywords only.
        retrieval: Runs its stages.
        begin: Begins a run with its settings, which ends after so many seconds.
        transformers: The names of its transformers.
        weight: The factor for its scores, above 0.
        is_joined: Whether it searches for what the transformers of all indexes made of a query. Otherwise it transforms
            the query by itself.
    """

    store: Store
    embedder: Embedder | None
    retrieval: Retrieval
    begin: Callable[[float | None], Run]
    transformers: tuple[str, ...] = ()
    weight: float = 1.0
    is_joined: bool = False


def checked_weights(names: Iterable[str], weights: Mapping[str, float]) -> dict[str, float]:
    """Return the weight of each index, 1 by default.

    Raises:
        InvalidParameterError: There is no index, a name cannot be used, or a weight is negative or of no index.
    """
    names = tuple(names)
    if not names:
        msg = "there is no index to search; name at least one"
        raise InvalidParameterError(msg)
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"the name of an index is text without white space and colons, got {name!r:.80}"
            raise InvalidParameterError(msg)
    for name, weight in weights.items():
        if name not in names:
            msg = f"there is a weight for {name!r:.80}, which is no index; there are {', '.join(names)}"
            raise InvalidParameterError(msg)
        if type(weight) not in {int, float} or not isfinite(weight) or weight < 0:
            msg = f"the weight of the index {name} must be a number of at least 0, got {weight!r:.80}"
            raise InvalidParameterError(msg)
    return {name: float(weights.get(name, 1.0)) for name in names}


def plan_several(
    filters: Filters,
    options: QueryOptions,
    *,
    indexes: Mapping[str, SearchedIndex],
    transformers: Collection[str],
    config: RetrievalConfig,
    reranks: bool,
) -> Plan:
    """Put settings and a caller's arguments together, for all indexes and for each of them.

    Args:
        filters: What each chunk must pass.
        options: The caller's.
        indexes: All indexes by name.
        transformers: The names of the transformers that some of them share.
        config: The settings.
        reranks: Whether the hits of all indexes are reranked.

    Raises:
        FilterError: The filter is not well formed.
        InvalidParameterError: An argument is outside its range, or names an index that there is not.
    """
    options = checked_values(options)
    top_k, most = options.get("top_k"), options.get("max_results_per_query")
    allowed = config.limits.max_results
    top_k = checked_number("top_k", config.search.top_k if top_k is None else top_k, allowed)
    if most is None:
        most = allowed if "max_results" in config.limits.model_fields_set else MAX_OF_EACH
    most = min(checked_number("max_results_per_query", most, MAX_TOP_K), allowed)
    searched = {name: indexes[name] for name in _names(options.get("indexes"), indexes)}
    condition = condition_of(filters)
    of_each: dict[str, Any] = {name: value for name, value in options.items() if name in OF_EACH}
    of_each["syntax"] = False  # read once, for all of them
    of_each["top_k"] = min(most, max(top_k, config.reranker.candidates if reranks else 0, SHARED_CANDIDATES))
    plans = {name: _plan_of(index, condition, of_each, transformers) for name, index in searched.items()}
    wanted = options.get("transforms")
    transforms: tuple[str, ...] = ()
    if any(index.is_joined for index in searched.values()):
        transforms = tuple(dict.fromkeys(config.transform.use if wanted is None else wanted))
    return Plan(
        mode=named_mode(of_each.get("mode") or config.search.mode),
        top_k=top_k,
        candidates=top_k,
        condition=condition,
        transforms=tuple([name for name in transforms if name in transformers]),
        variants=options.get("variants", ()),  # pyright: ignore[reportArgumentType] - checked
        intent=options.get("intent") or "",
        history=cast("tuple[Message, ...]", options.get("history", ())),
        session_id=options.get("session_id"),
        use_cache=options.get("use_cache") is not False,
        reads_syntax=options.get("syntax", config.query.syntax) is not False,
        options=further_options(options),
        indexes=plans,
    )


def _plan_of(index: SearchedIndex, filters: Filters, options: Mapping[str, Any], transformers: Collection[str]) -> Plan:
    if not index.is_joined:
        return index.retrieval.plan(filters, cast("QueryOptions", options))
    own = {name: value for name, value in options.items() if name not in OF_THE_WHOLE}
    if (wanted := options.get("transforms")) is not None:
        names = chosen(wanted, (*transformers, *index.transformers))
        own["transforms"] = [name for name in names if name not in transformers]
    return index.retrieval.plan(filters, cast("QueryOptions", own))


def _names(wanted: object, indexes: Mapping[str, SearchedIndex]) -> tuple[str, ...]:
    if wanted is None:
        names = tuple(indexes)
    elif (
        not isinstance(wanted, Sequence)
        or isinstance(wanted, (str, bytes))
        or not wanted
        or not all(isinstance(name, str) for name in cast("Sequence[object]", wanted))
    ):
        msg = f"indexes must be a list of names of indexes, got {wanted!r:.80}"
        raise InvalidParameterError(msg)
    else:
        names = tuple(dict.fromkeys(cast("Sequence[str]", wanted)))
    for name in names:
        if name not in indexes:
            msg = f"there is no index {name!r:.80}; there are {', '.join(indexes)}"
            raise InvalidParameterError(msg)
    if not (left := tuple(name for name in names if indexes[name].weight)):
        msg = f"no index is left to ask: {', '.join(names)} have the weight 0"
        raise InvalidParameterError(msg)
    return left


class SearchIndexes(Stage):
    """Runs the stages of all indexes at once.

    Args:
        indexes: By name.
        deadline_share: The part of the deadline that it has.
    """

    name = "search"

    def __init__(self, indexes: Mapping[str, SearchedIndex], deadline_share: float) -> None:
        self._indexes = indexes
        self.deadline_share = deadline_share

    def fingerprint(self) -> str | None:
        """Return a name for the stages of all indexes."""
        prints = [index.retrieval.fingerprint for index in self._indexes.values()]
        return None if None in prints else digest(list(self._indexes), prints)

    def knowledge(self, plan: Plan) -> Mapping[str, object]:
        """Return the plug-ins of the indexes whose answers change with what they know."""
        return {
            f"index {name}: {of}": plugin
            for name, own in plan.indexes.items()
            for of, plugin in self._indexes[name].retrieval.knowledge(own).items()
        }

    def is_fault(self, error: Exception, _state: SearchState) -> bool:
        """Return whether to raise an error: only what is wrong with the query; the other indexes may answer it."""
        return isinstance(error, (FilterError, InvalidParameterError, QueryValidationError))

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state with the last state of each index that answered."""
        names, shared = tuple(state.plan.indexes), SharedVectors()
        once = run.without_retries()  # each index makes its own calls again if that can help
        searches = [
            once.on(f"index {name}").call(
                f"index {name}", self._search, run, name, self._first_state(name, state, shared)
            )
            for name in names
        ]
        outcomes = dict(zip(names, await asyncio.gather(*searches), strict=True))
        answers = {name: outcome.value for name, outcome in outcomes.items() if isinstance(outcome, Ok)}
        failures = [outcome for outcome in outcomes.values() if isinstance(outcome, Failed)]
        degraded: list[Degradation] = []
        for name, last in answers.items():
            failures += [
                replace(each, stage=f"index {name}: {each.stage}") for each in (*last.failures, *last.later_failures)
            ]
            degraded += [replace(each, stage=f"index {name}: {each.stage}") for each in last.degraded]
            if last.unknown_fields is not None:
                degraded.append(Degradation(f"index {name}: filter", last.unknown_fields))
        return state.failing(*failures).but(answers=answers, degraded=(*state.degraded, *degraded))

    def _first_state(self, name: str, state: SearchState, shared: SharedVectors) -> SearchState:
        """Return the first state of an index: of the query as it was asked, transformed or rewritten."""
        index, plan = self._indexes[name], state.plan.indexes[name]
        query = state.query if index.is_joined or state.attempts else state.asked
        if index.embedder is None and query.embedding is not None:
            query = replace(query, embedding=None)
        if state.attempts:
            plan = replace(plan, transforms=(), variants=(), intent="", history=())
        first = index.retrieval.start(query, plan, index.store.held()).but(shared_vectors=shared)
        if index.is_joined:
            return first.but(asked=state.asked, variants=state.variants, linked=state.linked)
        return first

    async def _search(self, run: Run, name: str, first: SearchState) -> SearchState:
        index, started = self._indexes[name], run.elapsed_ms
        inside = index.begin(run.seconds_left)
        last = await index.retrieval.search(inside, first)
        run.include(f"index {name}", inside.records, started)
        if (error := why_nothing(last)) is not None:
            raise SearchError(error)
        return last


class Merge(Stage):
    """Puts the hits of all indexes into one order, each hit once.

    Args:
        indexes: By name.
        config: The settings of all of them.
        reranks: Whether the hits of all are reranked.
    """

    name = "merge"
    deadline_share = 0

    def __init__(self, indexes: Mapping[str, SearchedIndex], config: RetrievalConfig, *, reranks: bool) -> None:
        self._indexes = indexes
        self._weights = {name: index.weight for name, index in indexes.items()}
        self._config = config
        self._reranked = config.reranker.candidates if reranks else 0

    def fingerprint(self) -> str:
        """Return a name for the weights, and for how scores are made comparable."""
        return digest(self._weights, self._config.search.fusion, self._reranked)

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state with the hits, or with the reason why no index could be searched."""
        answers, search = state.answers, self._config.search
        if not answers:
            failures = [each for each in state.failures if each.stage.startswith("index ")]
            if not state.attempts and (
                self._config.raise_on_error or all(is_callers_fault(each.error) for each in failures)
            ):
                raise_nothing_searched(failures[-1])
            error = "; ".join(f"{failure.stage}: {failure.reason}" for failure in failures)
            return state.but(error=error, metadata=_metadata({}, "scores", search.mode), weights=self._weights)
        started = run.elapsed_ms
        found = [_index_result(name, self._indexes[name].embedder, last) for name, last in answers.items()]
        merged = merge_indexes(found, method="zscore" if search.fusion in ("native", "adaptive") else search.fusion)
        hits = without_copies(weighted(merged.hits, self._weights))
        copies = len(merged.hits) - len(hits)
        decision = f"by {merged.by}" + (f"; {copies} left out that another index has as well" if copies else "")
        run.note("merge", started, len(merged.hits), len(hits), decision)
        if self._reranked:
            # Weights choose what is reranked and then order what came of it, but are not counted twice in one score.
            kept = {(hit.source_index, hit.id) for hit in hits}
            unweighted = [hit for hit in merged.hits if (hit.source_index, hit.id) in kept]
            hits = candidates_first(unweighted, self._weights, self._reranked)
        return state.but(
            hits=hits,
            metadata=_metadata(answers, merged.by, search.mode),
            note=_note(answers),
            relevance=_relevance(answers.values(), is_complete=len(answers) == len(state.plan.indexes)),
            weights=self._weights,
            indexes={
                name: {"found": len(last.hits), "hits": 0, "weight": self._weights[name]}
                for name, last in answers.items()
            },
        )


def _index_result(name: str, embedder: Embedder | None, last: SearchState) -> IndexResult:
    failed = {each.stage for each in (*last.failures, *last.later_failures, *last.degraded)}
    if "embed" in failed:
        failed.add("dense")
    wanted: frozenset[Side] = frozenset(side for side in BOTH_SIDES if last.plan.mode in {"hybrid", side})
    scored: frozenset[Side] = frozenset(
        side for side in BOTH_SIDES if any(getattr(hit.scores, side) is not None for hit in last.hits)
    )
    # If what was asked for failed, the other side is the fallback, and its scores tell which one that is.
    sides = wanted - failed or scored - failed
    return IndexResult(name, last.hits, sides, None if embedder is None or "dense" not in sides else embedder.id)


def _metadata(answers: Mapping[str, SearchState], merged_by: str, mode: str) -> dict[str, JSON]:
    modes = {str(last.metadata["mode"]) for last in answers.values()}
    fetched = [(last.metadata.get("documents_fetched"), len(last.hits)) for last in answers.values()]
    metadata: dict[str, JSON] = {
        "mode": modes.pop() if len(modes) == 1 else "mixed" if modes else mode,
        "indexes": {},
        "merged_by": merged_by,
        "documents_fetched": sum(told if isinstance(told, int) else hits for told, hits in fetched),
    }
    expansions = [
        item
        for last in answers.values()
        for item in cast("Sequence[Mapping[str, JSON]]", last.metadata.get("query_expansion", ()))
    ]
    if expansions:
        metadata["query_expansion"] = list({(item["kind"], item["text"]): item for item in expansions}.values())
    return metadata


def _relevance(answers: Iterable[SearchState], *, is_complete: bool) -> Relevance | None:
    """Return the judgement of the index that most likely answers; no index may contain what is unknown.

    Args:
        answers: Of the indexes that answered.
        is_complete: Whether all of them did; an index that failed may contain what the others do not.
    """
    judged = [last.relevance for last in answers if last.relevance is not None]
    if not judged:
        return None
    best = max(judged, key=lambda each: (not each.is_unlikely, each.value or 0.0))
    is_unknown = [is_complete and all(each in other.unknown for other in judged) for each in best.unknown]
    unknown = tuple(each for each, is_so in zip(best.unknown, is_unknown, strict=True) if is_so)
    return replace(best, unknown=unknown)


def _note(answers: Mapping[str, SearchState]) -> str | None:
    if any(last.hits for last in answers.values()):
        return None
    notes = {name: why_empty(last) for name, last in answers.items()}
    return "; ".join(f"{name}: {note}" for name, note in notes.items() if note is not None) or None
