"""The stages that find candidates: the search of an index and of everything beside it, and their fusion."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeVar

from retrieval_core.errors import IncompleteSearchError, NotYetEmbeddedError, as_embedding_error
from retrieval_core.pipeline.stages.fuse import Ranked, fuse, merge
from retrieval_core.pipeline.stages.state import Candidates, Expansion, SearchResults, Stage, identify
from retrieval_core.ports import Fetched, FetchRequest, Retriever, SearchRequest, as_plugin
from retrieval_core.run.outcomes import Failed, Ok, is_callers_fault, is_damage, raise_nothing_searched
from retrieval_core.run.sync import to_a_loop
from retrieval_core.types import Origin, Query, Scores
from retrieval_core.types.filters import chunk_fields, matches

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.stages.embed import QueryEmbedder
    from retrieval_core.pipeline.stages.fuse import FusionMethod
    from retrieval_core.pipeline.stages.state import Plan, SearchState
    from retrieval_core.ports import Candidate, HeldIndex, Linked, Store, Variant
    from retrieval_core.run.runner import Run
    from retrieval_core.types import JSON, SearchMode, Vector

T = TypeVar("T")

_chunk_id = attrgetter("chunk_id")
CALIBRATED_EMBEDDER: Final = "bge-small-en-v1.5-int8@4d60820e6ba7"
"""The id of the default embedder, whose cosines the curves of the judgement were fitted to."""
BESIDE: Final = 10
"""Candidates of the dense side whose mean cosine the judgement compares the best one with."""
BEFORE_WORDS = 0.75
"""How much of the time for searching embedding may use up where a search by words would stand in for it."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where passages are found.

    Attributes:
        questions: Embeds the question; ``None`` to search by words alone.
        retrievers: Further ways of finding passages, by name.
        held: The current version of the index in memory, which is searched in place of the store.
    """

    store: Store
    questions: QueryEmbedder | None = None
    retrievers: Mapping[str, Retriever] = field(default_factory=dict[str, "Retriever"])
    held: HeldIndex | None = None


async def search(run: Run, sources: Sources, query: Query, plan: Plan) -> SearchResults:
    """Search the dense side, the lexical side, or both at once; the lexical side does not wait for the embedding.

    In lexical mode the question is embedded only where a threshold has to be held against something. Where a question
    that was to be searched by meaning alone cannot be embedded, it is searched by words. Where the index cannot be
    searched by the one side that was asked for, or by both at once, the other side stands in, or each by itself.

    Args:
        run: Makes the calls.
        sources: What is searched.
        query: The normalised question.
        plan: What is asked of each side.
    """
    questions = sources.questions
    if questions is None:
        return await _search_by_words(run, sources, query, plan)
    if plan.mode == "hybrid":
        both = _search_both if plan.fusion == "native" else _search_side_by_side
        return await both(run, sources, questions, query, plan)
    if plan.mode == "lexical":
        found = await _search_by_words(run, sources, query, plan)
        if not found.sides and plan.has_words and is_damage(found.failures[-1].error):
            other = await _search_meaning(run, sources, questions, found.query, plan)
            return replace(other, failures=(*found.failures, *other.failures))
        return found
    found = await _search_meaning(run, sources, questions, query, plan)
    if (
        not found.sides
        and plan.has_words
        and (found.failures[0].stage == "embed" or is_damage(found.failures[-1].error))
    ):
        return _found(found.query, None, await _search_words(run, sources, query, plan), *found.failures)
    return found


async def _search_by_words(run: Run, sources: Sources, query: Query, plan: Plan) -> SearchResults:
    words = _search_words(run, sources, query, plan)
    if sources.questions is None or plan.score_threshold is None:
        return _found(query, None, await words)
    embedded, lexical = await asyncio.gather(sources.questions.embed(run, query), words)
    if isinstance(embedded, Failed):
        return _found(query, None, lexical, embedded)
    return _found(replace(query, embedding=embedded.value), None, lexical)


def _for_embedding(run: Run, plan: Plan) -> Run:
    """Return the run for embedding a question that is searched for by words where that takes too long."""
    return run.for_part_of_the_rest(BEFORE_WORDS) if plan.has_words else run


async def _search_words(run: Run, sources: Sources, query: Query, plan: Plan) -> Ok[Candidates] | Failed:
    request = SearchRequest(limit=plan.candidates, text=query.text, filter=plan.condition)
    return await _ask(run, sources, "lexical", request)


async def _search_meaning(
    run: Run, sources: Sources, questions: QueryEmbedder, query: Query, plan: Plan
) -> SearchResults:
    """Search by the question's vector."""
    embedded = await questions.embed(run if plan.mode == "hybrid" else _for_embedding(run, plan), query)
    if isinstance(embedded, Failed):
        return _found(query, None, None, embedded)
    if query.embedding is None:
        query = replace(query, embedding=embedded.value)
    return _found(query, await _ask(run, sources, "dense", _by_vector(embedded.value, plan)), None)


async def _search_side_by_side(
    run: Run, sources: Sources, questions: QueryEmbedder, query: Query, plan: Plan
) -> SearchResults:
    meaning, words = _search_meaning(run, sources, questions, query, plan), _search_words(run, sources, query, plan)
    if sources.held is not None:  # keyword search waits for nothing
        lexical, found = await words, await meaning
    else:
        found, lexical = await asyncio.gather(meaning, words)
    failures = found.failures if isinstance(lexical, Ok) else (*found.failures, lexical)
    found = replace(found, lexical=_candidates_of(lexical), failures=failures)
    if any(isinstance(failure.error, NotYetEmbeddedError) for failure in found.failures):
        return replace(found, unembedded=await _unembedded(run, sources, found))
    return found


async def _unembedded(run: Run, sources: Sources, found: SearchResults) -> frozenset[str]:
    """Return which chunks that words alone found have no vector yet; all of them where that cannot be read."""
    known = {candidate.chunk_id for candidate in found.dense or ()}
    ids = tuple([item.chunk_id for item in found.lexical or () if item.chunk_id not in known])
    if not ids:
        return frozenset()
    outcome = await read(run, sources.store, sources.held, FetchRequest(chunk_ids=ids, with_vectors=True))
    return frozenset(ids) - (outcome.value.vectors.keys() if isinstance(outcome, Ok) else set[str]())


async def _search_both(run: Run, sources: Sources, questions: QueryEmbedder, query: Query, plan: Plan) -> SearchResults:
    embedded = await questions.embed(_for_embedding(run, plan), query)
    if isinstance(embedded, Failed):
        return _found(query, None, await _search_words(run, sources, query, plan), embedded)
    query = replace(query, embedding=embedded.value)
    request = replace(_by_vector(embedded.value, plan), text=query.text)
    outcome = await _ask_store(run, "hybrid", sources.store.search_both, request)
    if isinstance(outcome, Ok):
        return SearchResults(query, None, None, both=outcome.value)
    if not is_damage(outcome.error):
        return SearchResults(query, None, None, (outcome,), both=_candidates_of(outcome))
    dense = _ask(run, sources, "dense", _by_vector(embedded.value, plan))
    return _found(query, *await asyncio.gather(dense, _search_words(run, sources, query, plan)), outcome)


def _by_vector(vector: Vector, plan: Plan) -> SearchRequest:
    return SearchRequest(limit=plan.candidates, vector=vector, filter=plan.condition)


def _found(
    query: Query, dense: Ok[Candidates] | Failed | None, lexical: Ok[Candidates] | Failed | None, *failed: Failed
) -> SearchResults:
    return SearchResults(
        query,
        dense=_candidates_of(dense),
        lexical=_candidates_of(lexical),
        failures=(*failed, *[outcome for outcome in (dense, lexical) if isinstance(outcome, Failed)]),
    )


def _candidates_of(outcome: Ok[Candidates] | Failed | None) -> Candidates | None:
    """Return what was found, by a search that could not look at everything too; ``None`` for one that failed."""
    if isinstance(outcome, Ok):
        return outcome.value
    error = None if outcome is None else outcome.error
    return error.found if isinstance(error, IncompleteSearchError) else None


async def _ask(run: Run, sources: Sources, stage: str, request: SearchRequest) -> Ok[Candidates] | Failed:
    if sources.held is not None:
        return run.now(stage, sources.held.search, request)
    return await _ask_store(run, stage, sources.store.search, request)


async def read(run: Run, store: Store, held: HeldIndex | None, request: FetchRequest) -> Ok[Fetched] | Failed:
    """Return what the index has of what was asked for."""
    return await fetch(run, store, request) if held is None else run.now("fetch", held.fetch, request)


async def _ask_store(
    run: Run, stage: str, function: Callable[[SearchRequest], Awaitable[Candidates]], request: SearchRequest
) -> Ok[Candidates] | Failed:
    """Return what a store found."""
    # Counted by the kind of search: one that is dead must not keep the others, and the passages, from being read.
    return await run.on(f"the store's {stage} search").call(stage, function, request)


async def fetch(
    run: Run, store: Store, request: FetchRequest, *, stage: str = "fetch", backend: str = "store"
) -> Ok[Fetched] | Failed:
    """Return what a store has of what was asked for."""
    return await run.on(backend).call(stage, store.fetch, request)


async def search_expansions(
    run: Run, sources: Sources, state: SearchState
) -> tuple[tuple[Expansion, ...], tuple[Failed, ...]]:
    """Search for each variant, and ask each further retriever, all at once.

    Returns:
        What each of them found, and what failed on the way; a variant whose search failed in part has the rest.
    """
    query, plan = state.query, state.plan
    searches = [_search_variant(run, sources, query, variant, plan) for variant in state.variants]
    asking = [_ask_retriever(run, name, retriever, query, plan) for name, retriever in sources.retrievers.items()]
    reading = [_read_linked(run, sources.store, link, plan) for link in state.linked]
    outcomes = await asyncio.gather(*searches, *asking, *reading)
    lists = [found for found, _ in outcomes if found is not None]
    failures = [failure for _, failed in outcomes for failure in failed]
    return tuple(found for found in lists if found.ranked), tuple(failures)


def origins_of(expansions: Sequence[Expansion], depth: int) -> dict[str, tuple[Origin, ...]]:
    """Return for each chunk what has it among its best, ``depth`` at most, in the order of the lists."""
    origins: dict[str, tuple[Origin, ...]] = {}
    for found in expansions:
        for item in found.ranked[:depth]:
            origins[item.chunk_id] = (*origins.get(item.chunk_id, ()), found.origin)
    return origins


async def _search_variant(
    run: Run, sources: Sources, question: Query, variant: Variant, plan: Plan
) -> tuple[Expansion | None, tuple[Failed, ...]]:
    mode: SearchMode = "hybrid" if len(variant.sides) > 1 else next(iter(variant.sides))
    questions = sources.questions
    query = Query(question.original, variant.text)
    if variant.is_passage and mode != "lexical" and questions is not None:
        embedded = await questions.embed_passage(run, variant.text)
        if isinstance(embedded, Failed):
            return None, (embedded,)
        query = replace(query, embedding=embedded.value)
    fusion: FusionMethod = "rrf" if plan.fusion == "native" else plan.fusion
    own = replace(plan, mode=mode, score_threshold=None, fusion=fusion, has_words=False)
    found = await search(run, sources, query, own)
    weight = plan.dense_weight
    ranked = fuse(found.dense, found.lexical, method=fusion, dense_weight=weight, unembedded=found.unembedded)
    chunks = {item.chunk_id: item.chunk for item in found.candidates if item.chunk is not None}
    return Expansion(Origin(variant.kind, variant.text), variant.weight, ranked, chunks), found.failures


async def _ask_retriever(
    run: Run, name: str, retriever: Retriever, query: Query, plan: Plan
) -> tuple[Expansion | None, tuple[Failed, ...]]:
    outcome = await run.on(f"retriever {name}").call("retrieve", retriever.search, query.text, plan.candidates)
    if isinstance(outcome, Failed):
        return None, (replace(outcome, of=name),)
    found = outcome.value[: plan.candidates]
    chunks = {item.chunk_id: item.chunk for item in found if item.chunk is not None}
    if plan.condition is not None:
        chunks = {chunk_id: chunk for chunk_id, chunk in chunks.items() if matches(plan.condition, chunk_fields(chunk))}
    passing = [item for item in found if item.chunk_id in chunks]
    return Expansion(Origin(name, query.text), 1.0, _as_ranked(passing), chunks, is_search=False), ()


async def _read_linked(run: Run, store: Store, link: Linked, plan: Plan) -> tuple[Expansion | None, tuple[Failed, ...]]:
    """Read the chunks, so that what is gone, or stopped by the filter, takes nobody's place."""
    ranked = _as_ranked(link.candidates)[: plan.candidates]
    request = FetchRequest(chunk_ids=tuple([item.chunk_id for item in ranked]), filter=plan.condition)
    outcome = await fetch(run, store, request)
    if isinstance(outcome, Failed):
        return None, (replace(outcome, of=link.kind),)
    chunks = outcome.value.chunks
    ranked = tuple([item for item in ranked if item.chunk_id in chunks])
    return Expansion(Origin(link.kind, link.text), link.weight, ranked, chunks, is_search=False), ()


def _as_ranked(candidates: Sequence[Candidate]) -> tuple[Ranked, ...]:
    best: dict[str, Ranked] = {}
    for item in candidates:
        best.setdefault(item.chunk_id, Ranked(item.chunk_id, Scores(final=float(item.score))))
    return tuple(best.values())


class Search(Stage):
    """Searches the index by vectors and keywords, and beside it everything else that finds chunks.

    Args:
        sources: What is searched.
        settings: Of the pipeline.
        deadline_share: The part of the deadline that it has.
    """

    name = "search"

    def __init__(self, sources: Sources, settings: RetrievalConfig, deadline_share: float) -> None:
        retrievers = {name: as_plugin(each, Retriever) for name, each in sources.retrievers.items()}
        self.sources = replace(sources, retrievers=retrievers)
        embedder = None if sources.questions is None else sources.questions.embedder
        self._fingerprint = partial(identify, (settings.search, tuple(sources.retrievers)), embedder)
        self.deadline_share = deadline_share

    def fingerprint(self) -> str | None:
        """Return a name for the settings and the embedder; the index is in the key by its version."""
        return self._fingerprint()

    def plugins(self) -> Iterable[object]:
        """Return the retrievers and the embedder."""
        questions = self.sources.questions
        return (*self.sources.retrievers.values(), None if questions is None else questions.embedder)

    def knowledge(self, _plan: Plan) -> Mapping[str, object]:
        """Return the further retrievers."""
        return {f"retriever {name}": retriever for name, retriever in self.sources.retrievers.items()}

    def is_fault(self, error: Exception, state: SearchState) -> bool:
        """Return whether to raise an error: damage of one side is hidden if the other side was searched."""
        return is_callers_fault(error) and not (state.found is not None and state.found.sides and is_damage(error))

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state with the candidates of each side, and of each expansion."""
        prepare = None if state.held is None else state.held.preparation(state.plan.condition)
        if prepare is not None:
            await to_a_loop()
            await asyncio.to_thread(prepare)
        sources = self.sources if state.held is None else replace(self.sources, held=state.held)
        if state.shared_vectors is not None and sources.questions is not None:
            sources = replace(sources, questions=replace(sources.questions, shared=state.shared_vectors))
        plan = state.plan
        if not (state.variants or state.linked or self.sources.retrievers):
            found = await search(run, sources, state.query, self._as_few_as_needed(plan))
            return state.failing(*found.failures).but(found=found, query=found.query)
        searching = search(run, sources, state.query, plan)
        found, (expansions, failures) = await asyncio.gather(searching, search_expansions(run, sources, state))
        known = {(item.stage, item.reason) for item in found.failures}
        further = [item for item in failures if (item.stage, item.reason) not in known]
        return state.failing(*found.failures, *further).but(found=found, query=found.query, expansions=expansions)

    def _as_few_as_needed(self, plan: Plan) -> Plan:
        """Return the plan of a search of one side, whose other candidates nobody would look at."""
        if not self.sources.store.is_costly or plan.mode == "hybrid" or plan.depth is None:
            return plan
        questions = self.sources.questions
        is_judged = questions is not None and questions.embedder.id == CALIBRATED_EMBEDDER
        return replace(plan, candidates=min(plan.candidates, max(plan.depth, BESIDE if is_judged else 0)))


class Fuse(Stage):
    """Puts all candidates into one order, each chunk once.

    Args:
        settings: Of the pipeline.
    """

    name = "fuse"
    deadline_share = 0

    def __init__(self, settings: RetrievalConfig) -> None:
        self._raise_on_error = settings.raise_on_error

    def fingerprint(self) -> str:
        """Return nothing: how to fuse is in the plan."""
        return ""

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state with the candidates in order, or with the reason why nothing could be searched."""
        found, expansions, plan = state.found, state.expansions, state.plan
        assert found is not None  # noqa: S101 - the search is the stage before
        lists: list[Sequence[Candidate | Ranked]] = [*found.sides, *[each.ranked for each in expansions]]
        distinct = len(set(map(_chunk_id, chain.from_iterable(lists))))
        metadata: dict[str, JSON] = {"mode": plan.mode, "documents_fetched": distinct}
        if expansions:
            metadata["query_expansion"] = [{"kind": each.origin.kind, "text": each.origin.text} for each in expansions]
        if not lists:
            failures = sorted(found.failures, key=_is_of_keywords)
            if not state.attempts:
                self._raise_where_nothing_is_left(state, failures)
            error = "; ".join(dict.fromkeys(f"{item.stage}: {item.reason}" for item in failures))
            return state.but(metadata=metadata, error=error)
        started = run.elapsed_ms
        depth = plan.depth
        method = "rrf" if plan.fusion == "native" else plan.fusion
        if found.both is not None:
            best = tuple([Ranked(each.chunk_id, Scores(fused=each.score, final=each.score)) for each in found.both])
        else:
            best = fuse(
                found.dense,
                found.lexical,
                method=method,
                dense_weight=plan.dense_weight,
                limit=None if expansions else depth,
                unembedded=found.unembedded,
            )
        if expansions:
            # The distribution of short lists, and of scores of unknown scale, says nothing; their ranks do.
            method = method if all(each.is_search for each in expansions) else "rrf"
            best = merge(best, [(each.ranked, each.weight) for each in expansions], method=method, limit=depth)
        run.note("fuse", started, sum(map(len, lists)), len(best))
        return state.but(metadata=metadata, ranked=best)

    def _raise_where_nothing_is_left(self, state: SearchState, failures: Sequence[Failed]) -> None:
        """Raise that a query could not be embedded, if there is no keyword search, and what settings want raised."""
        last = state.found.failures[-1]  # pyright: ignore[reportOptionalMemberAccess]
        if last.stage == "embed" and not state.plan.has_words:
            raise as_embedding_error(last.error, "the query", state.query.original)
        if self._raise_on_error:
            raise_nothing_searched(failures[0])


def _is_of_keywords(failed: Failed) -> bool:
    return failed.stage == "lexical"
