"""Searching an index by meaning and by words, side by side."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from retrieval_core.errors import IncompleteSearchError, NotYetEmbeddedError, SearchError
from retrieval_core.pipeline.stages.state import Candidates, SearchResults
from retrieval_core.ports import Fetched, FetchRequest, SearchRequest
from retrieval_core.ports.retrievers import are_candidates
from retrieval_core.run.outcomes import Failed, Ok, is_damage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from retrieval_core.pipeline.stages.embed import Questions
    from retrieval_core.pipeline.stages.state import Plan
    from retrieval_core.ports import HeldIndex, Retriever, Store
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Query, Vector

T = TypeVar("T")

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
    questions: Questions | None = None
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


async def _search_meaning(run: Run, sources: Sources, questions: Questions, query: Query, plan: Plan) -> SearchResults:
    """Search by the question's vector."""
    embedded = await questions.embed(run if plan.mode == "hybrid" else _for_embedding(run, plan), query)
    if isinstance(embedded, Failed):
        return _found(query, None, None, embedded)
    if query.embedding is None:
        query = replace(query, embedding=embedded.value)
    return _found(query, await _ask(run, sources, "dense", _by_vector(embedded.value, plan)), None)


async def _search_side_by_side(
    run: Run, sources: Sources, questions: Questions, query: Query, plan: Plan
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


async def _search_both(run: Run, sources: Sources, questions: Questions, query: Query, plan: Plan) -> SearchResults:
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
    return error.found if isinstance(error, IncompleteSearchError) and are_candidates(error.found) else None


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
    """Return what a store answered, as a failure where these are no candidates."""
    # Counted by the kind of search: one that is dead must not keep the others, and the passages, from being read.
    outcome = await run.on(f"the store's {stage} search").call(stage, function, request)
    return store_answer(outcome, stage, candidates_problem)


async def fetch(
    run: Run, store: Store, request: FetchRequest, *, stage: str = "fetch", backend: str = "store"
) -> Ok[Fetched] | Failed:
    """Return what a store has of what was asked for."""
    outcome = await run.on(backend).call(stage, store.fetch, request)
    return store_answer(outcome, stage, lambda answer: _problem(answer, Fetched))


def store_answer(outcome: Ok[T] | Failed, stage: str, problem: Callable[[Any], str | None]) -> Ok[T] | Failed:
    """Return the outcome of a call of a store, as a failure if its answer can't be used.

    Args:
        outcome: Of the call.
        stage: The call's.
        problem: Says what is wrong with an answer; ``None`` for nothing.
    """
    if isinstance(outcome, Failed) or (wrong := problem(outcome.value)) is None:
        return outcome
    return Failed(stage, SearchError(f"the answer of the store cannot be used: {wrong}"))


def candidates_problem(answer: object) -> str | None:
    """Return what is wrong with what a search found; ``None`` for nothing."""
    return None if are_candidates(answer) else f"it gave {answer!r:.80}, which are no candidates"


def _problem(answer: object, kind: type) -> str | None:
    return None if isinstance(answer, kind) else f"it gave {answer!r:.80}, which is no {kind.__name__}"
