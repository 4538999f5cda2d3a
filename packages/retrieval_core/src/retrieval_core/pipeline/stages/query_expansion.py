"""Query expansion: searching for variants of the question, asking further retrievers, and reading linked chunks."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from retrieval_core.pipeline.stages.fuse import Ranked, fuse
from retrieval_core.pipeline.stages.search import fetch, search
from retrieval_core.pipeline.stages.state import Expansion
from retrieval_core.ports import FetchRequest
from retrieval_core.run.outcomes import Failed
from retrieval_core.types import Origin, Query, Scores
from retrieval_core.types.filters import chunk_fields, matches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.pipeline.stages.fuse import FusionMethod
    from retrieval_core.pipeline.stages.search import Sources
    from retrieval_core.pipeline.stages.state import Plan, SearchState
    from retrieval_core.ports import Candidate, Linked, Retriever, Store, Variant
    from retrieval_core.run.runner import Run
    from retrieval_core.types import SearchMode


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
    return Expansion(Origin(name, query.text), 1.0, _ranked(passing), chunks, is_search=False), ()


async def _read_linked(run: Run, store: Store, link: Linked, plan: Plan) -> tuple[Expansion | None, tuple[Failed, ...]]:
    """Read the chunks, so that what is gone, or stopped by the filter, takes nobody's place."""
    ranked = _ranked(link.candidates)[: plan.candidates]
    request = FetchRequest(chunk_ids=tuple([item.chunk_id for item in ranked]), filter=plan.condition)
    outcome = await fetch(run, store, request)
    if isinstance(outcome, Failed):
        return None, (replace(outcome, of=link.kind),)
    chunks = outcome.value.chunks
    ranked = tuple([item for item in ranked if item.chunk_id in chunks])
    return Expansion(Origin(link.kind, link.text), link.weight, ranked, chunks, is_search=False), ()


def _ranked(candidates: Sequence[Candidate]) -> tuple[Ranked, ...]:
    best: dict[str, Ranked] = {}
    for item in candidates:
        best.setdefault(item.chunk_id, Ranked(item.chunk_id, Scores(final=float(item.score))))
    return tuple(best.values())
