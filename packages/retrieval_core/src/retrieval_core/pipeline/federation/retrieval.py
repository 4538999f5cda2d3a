"""Retrieval from several indexes: each is asked side by side, and what they found becomes one order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, cast

from retrieval_core.errors import FilterError, InvalidParameterError, QueryValidationError, SearchError
from retrieval_core.pipeline.federation.options import make_federated_plan
from retrieval_core.pipeline.federation.together import transform_query
from retrieval_core.pipeline.results import make_result
from retrieval_core.pipeline.search_index import TRANSFORM_SHARE
from retrieval_core.pipeline.search_loop import search_in_rounds
from retrieval_core.pipeline.stages.merge import IndexResult, candidates_first, merge, weighted, without_copies
from retrieval_core.pipeline.stages.search import Searched
from retrieval_core.ports import BOTH_SIDES
from retrieval_core.run.outcomes import Failed, Ok, is_callers_fault, raise_faults, raise_nothing_searched
from retrieval_core.run.sync import to_a_loop
from retrieval_core.types import Degradation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline import RetrievalPipeline
    from retrieval_core.pipeline.federation.options import FederatedPlan
    from retrieval_core.pipeline.federation.together import Together, TransformedQuery
    from retrieval_core.pipeline.options import QueryOptions
    from retrieval_core.pipeline.planning import Filters
    from retrieval_core.pipeline.search_loop import Bounds, Stages
    from retrieval_core.pipeline.stages.plan import Plan
    from retrieval_core.ports import Side
    from retrieval_core.run.runner import Run
    from retrieval_core.types import JSON, Query, Relevance, RetrievalResult


@dataclass(frozen=True, slots=True)
class FederatedRetrieval:
    """Finds the passages of several indexes that answer a question.

    Attributes:
        pipelines: Of the indexes, by name.
        weights: Of the indexes, by name.
        stages: What works on the hits of all of them.
        together: What looks at a question once for indexes that share it.
        config: The settings of what is done for all.
    """

    pipelines: Mapping[str, RetrievalPipeline]
    weights: Mapping[str, float]
    stages: Stages
    together: Together
    config: RetrievalConfig

    def plan(self, filters: Filters, options: QueryOptions) -> FederatedPlan:
        """Put settings and a caller's arguments together; see :func:`make_federated_plan`."""
        reranked = self.config.reranker.candidates if self.stages.rerankers else 0
        return make_federated_plan(filters, options, self.weights, self.config, reranked=reranked)

    async def retrieve(self, run: Run, query: Query, plan: Plan) -> RetrievalResult:
        """Return the result of a query.

        Raises:
            RetrievalError: As :meth:`FederatedIndex.aretrieve`.
        """
        await to_a_loop()
        federated = cast("FederatedPlan", plan)  # made by the method above
        # As much time as each index has for it.
        bound = run.until(TRANSFORM_SHARE * self.stages.share_of_indexes)
        first = await transform_query(bound, query, federated, self.together, self.config)
        search_once = partial(self._search_once, query, federated, first)
        rewriting = await search_in_rounds(
            run, self.stages, plan, first.query.text, search_once=search_once, config=self.config
        )
        rewriting = replace(rewriting, failures=first.failures + rewriting.failures)
        return await make_result(
            run,
            query,
            rewriting,
            plan.condition,
            self.config,
            evaluator=self.stages.evaluator,
            relevance=rewriting.best.searched.relevance,
        )

    async def _search_once(
        self, query: Query, plan: FederatedPlan, first: TransformedQuery, bounds: Bounds, again: Query | None
    ) -> Searched:
        # Each index looks at the question as it was asked, and finds what was already made of it.
        plan, text = (first.plan, query.text) if again is None else (plan.without_transforms, again.text)
        searched = Searched(first.query if again is None else again, weights=self.weights)
        run = bounds.select if again is not None else bounds.select.until(self.stages.share_of_indexes)
        outcomes = await asyncio.gather(*(self._ask(run, name, text, plan) for name in plan.names))
        failures = tuple(outcome for outcome in outcomes if isinstance(outcome, Failed))
        raise_faults(failures, strict=self.config.strict, is_fault=_is_fault_of_the_question)
        answered = zip(plan.names, outcomes, strict=True)
        results = {name: outcome.value for name, outcome in answered if isinstance(outcome, Ok)}
        if not results:
            if again is None:
                _raise_where_nothing_is_left(failures, raise_on_error=self.config.raise_on_error)
            error = "; ".join(f"{failure.stage}: {failure.reason}" for failure in failures)
            metadata = _metadata({}, "scores", self.config.search.mode)
            return replace(searched, failures=failures, error=error, metadata=metadata)
        started = run.elapsed_ms
        fusion = self.config.search.fusion
        found = [_index_result(name, self.pipelines[name], result) for name, result in results.items()]
        merged = merge(found, method="zscore" if fusion in ("native", "adaptive") else fusion)
        hits = without_copies(weighted(merged.hits, self.weights))
        copies = len(merged.hits) - len(hits)
        decision = f"by {merged.by}" + (f"; {copies} left out that another index has as well" if copies else "")
        run.note("merge", started, len(merged.hits), len(hits), decision)
        if self.stages.rerankers:
            # Weights choose what is reranked and then order what came of it, but are not counted twice in one score.
            kept = {(hit.source_index, hit.id) for hit in hits}
            unweighted = [hit for hit in merged.hits if (hit.source_index, hit.id) in kept]
            hits = candidates_first(unweighted, self.weights, self.config.reranker.candidates)
        return replace(
            searched,
            hits=hits,
            failures=failures,
            degraded=tuple(
                Degradation(f"index {name}: {item.stage}", item.reason)
                for name, result in results.items()
                for item in result.degraded
            ),
            metadata=_metadata(results, merged.by, self.config.search.mode),
            note=_note(results),
            relevance=_relevance(results.values(), is_complete=not failures),
            indexes={
                name: {
                    "found": len(result.hits),
                    "hits": 0,
                    "weight": self.weights[name],
                    "from_cache": result.from_cache,
                }
                for name, result in results.items()
            },
        )

    async def _ask(self, run: Run, name: str, text: str, plan: FederatedPlan) -> Ok[RetrievalResult] | Failed:
        stage = f"index {name}"

        async def retrieve() -> RetrievalResult:
            started = run.elapsed_ms
            result = await self.pipelines[name].aretrieve(text, plan.condition, **plan.of(name))
            run.include(stage, result.trace, started)
            return result

        # Each index makes its own calls again where that can help.
        outcome = await run.without_retries().on(stage).call(stage, retrieve)
        if isinstance(outcome, Ok) and "error" in outcome.value.metadata and not outcome.value.hits:
            return Failed(stage, SearchError(str(outcome.value.metadata["error"])))
        return outcome


def _index_result(name: str, pipeline: RetrievalPipeline, result: RetrievalResult) -> IndexResult:
    failed = {item.stage for item in result.degraded}
    if "embed" in failed:
        failed.add("dense")
    mode = result.metadata["mode"]
    wanted: frozenset[Side] = frozenset(side for side in BOTH_SIDES if mode in {"hybrid", side})
    scored: frozenset[Side] = frozenset(
        side for side in BOTH_SIDES if any(getattr(hit.scores, side) is not None for hit in result.hits)
    )
    # Where what was asked for failed, the other side stands in, and its scores tell which one that is.
    sides = wanted - failed or scored - failed
    embedder = pipeline.embedder if "dense" in sides else None
    return IndexResult(name, result.hits, sides, None if embedder is None else embedder.id)


def _metadata(results: Mapping[str, RetrievalResult], merged_by: str, mode: str) -> dict[str, JSON]:
    modes = {str(result.metadata["mode"]) for result in results.values()}
    fetched = [(result.metadata.get("documents_fetched"), len(result.hits)) for result in results.values()]
    metadata: dict[str, JSON] = {
        "mode": modes.pop() if len(modes) == 1 else "mixed" if modes else mode,
        "indexes": {},
        "merged_by": merged_by,
        "documents_fetched": sum(told if isinstance(told, int) else hits for told, hits in fetched),
    }
    expansions = [
        item
        for result in results.values()
        for item in cast("Sequence[Mapping[str, JSON]]", result.metadata.get("query_expansion", ()))
    ]
    if expansions:
        metadata["query_expansion"] = list({(item["kind"], item["text"]): item for item in expansions}.values())
    return metadata


def _relevance(results: Iterable[RetrievalResult], *, is_complete: bool) -> Relevance | None:
    """Return the judgement of the index that most likely answers; no index may contain what is unknown.

    Args:
        results: Of the indexes that answered.
        is_complete: Whether all of them did; an index that failed may contain what the others do not.
    """
    judged = [result.relevance for result in results if result.relevance is not None]
    if not judged:
        return None
    best = max(judged, key=lambda each: (not each.is_unlikely, each.value or 0.0))
    is_unknown = [is_complete and all(each in other.unknown for other in judged) for each in best.unknown]
    unknown = tuple(each for each, is_so in zip(best.unknown, is_unknown, strict=True) if is_so)
    return replace(best, unknown=unknown)


def _note(results: Mapping[str, RetrievalResult]) -> str | None:
    if any(result.hits for result in results.values()):
        return None
    notes = {name: result.metadata.get("note") for name, result in results.items()}
    return "; ".join(f"{name}: {note}" for name, note in notes.items() if note is not None) or None


def _is_fault_of_the_question(error: Exception) -> bool:
    return isinstance(error, (FilterError, InvalidParameterError, QueryValidationError))


def _raise_where_nothing_is_left(failures: tuple[Failed, ...], *, raise_on_error: bool) -> None:
    if raise_on_error or all(is_callers_fault(failure.error) for failure in failures):
        raise_nothing_searched(failures[-1])
