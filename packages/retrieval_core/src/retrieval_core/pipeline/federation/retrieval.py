"""The stages that search several indexes: all at once, and their results become one order."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from retrieval_core.errors import FilterError, InvalidParameterError, QueryValidationError, SearchError
from retrieval_core.pipeline.stages.merge import IndexResult, candidates_first, merge, weighted, without_copies
from retrieval_core.pipeline.stages.state import Stage
from retrieval_core.ports import BOTH_SIDES
from retrieval_core.run.outcomes import Failed, Ok, is_callers_fault, raise_nothing_searched
from retrieval_core.types import Degradation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline import RetrievalPipeline
    from retrieval_core.pipeline.federation.options import FederatedPlan
    from retrieval_core.pipeline.stages.state import SearchState
    from retrieval_core.ports import Side
    from retrieval_core.run.runner import Run
    from retrieval_core.types import JSON, Relevance, RetrievalResult


class SearchIndexes(Stage):
    """Asks all indexes at once.

    Args:
        pipelines: The indexes by name.
        deadline_share: The part of the deadline that it has.
    """

    name = "search"

    def __init__(self, pipelines: Mapping[str, RetrievalPipeline], deadline_share: float) -> None:
        self._pipelines = pipelines
        self.deadline_share = deadline_share

    def is_fault(self, error: Exception, _state: SearchState) -> bool:
        """Return whether to raise an error: only what is wrong with the query; the other indexes may answer it."""
        return isinstance(error, (FilterError, InvalidParameterError, QueryValidationError))

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state with the result of each index that answered."""
        plan = cast("FederatedPlan", state.plan)  # made for several indexes
        # Each index transforms the query as it was asked, and finds what the shared transformers made of it.
        plan, text = (plan.without_transforms, state.query.text) if state.attempts else (plan, state.asked.text)
        outcomes = await asyncio.gather(*(self._ask(run, name, text, plan) for name in plan.names))
        answered = zip(plan.names, outcomes, strict=True)
        answers = {name: outcome.value for name, outcome in answered if isinstance(outcome, Ok)}
        return state.failing(*[each for each in outcomes if isinstance(each, Failed)]).but(answers=answers)

    async def _ask(self, run: Run, name: str, text: str, plan: FederatedPlan) -> Ok[RetrievalResult] | Failed:
        stage = f"index {name}"

        async def retrieve() -> RetrievalResult:
            started = run.elapsed_ms
            result = await self._pipelines[name].aretrieve(text, plan.condition, **plan.of(name))
            run.include(stage, result.trace, started)
            return result

        # Each index makes its own calls again where that can help.
        outcome = await run.without_retries().on(stage).call(stage, retrieve)
        if isinstance(outcome, Ok) and "error" in outcome.value.metadata and not outcome.value.hits:
            return Failed(stage, SearchError(str(outcome.value.metadata["error"])))
        return outcome


class Merge(Stage):
    """Puts the hits of all indexes into one order, each hit once.

    Args:
        pipelines: The indexes by name.
        weights: Of the indexes, by name.
        config: The settings of what is done for all of them.
        reranks: Whether the hits of all are reranked.
    """

    name = "merge"
    deadline_share = 0

    def __init__(
        self,
        pipelines: Mapping[str, RetrievalPipeline],
        weights: Mapping[str, float],
        config: RetrievalConfig,
        *,
        reranks: bool,
    ) -> None:
        self._pipelines = pipelines
        self._weights = weights
        self._config = config
        self._reranks = reranks

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state with the hits, or with the reason why no index could be searched."""
        results, search = state.answers, self._config.search
        if not results:
            failures = [each for each in state.failures if each.stage.startswith("index ")]
            if not state.attempts and (
                self._config.raise_on_error or all(is_callers_fault(each.error) for each in failures)
            ):
                raise_nothing_searched(failures[-1])
            error = "; ".join(f"{failure.stage}: {failure.reason}" for failure in failures)
            return state.but(error=error, metadata=_metadata({}, "scores", search.mode), weights=self._weights)
        started = run.elapsed_ms
        found = [_index_result(name, self._pipelines[name], result) for name, result in results.items()]
        merged = merge(found, method="zscore" if search.fusion in ("native", "adaptive") else search.fusion)
        hits = without_copies(weighted(merged.hits, self._weights))
        copies = len(merged.hits) - len(hits)
        decision = f"by {merged.by}" + (f"; {copies} left out that another index has as well" if copies else "")
        run.note("merge", started, len(merged.hits), len(hits), decision)
        if self._reranks:
            # Weights choose what is reranked and then order what came of it, but are not counted twice in one score.
            kept = {(hit.source_index, hit.id) for hit in hits}
            unweighted = [hit for hit in merged.hits if (hit.source_index, hit.id) in kept]
            hits = candidates_first(unweighted, self._weights, self._config.reranker.candidates)
        plan = cast("FederatedPlan", state.plan)
        degraded = [
            Degradation(f"index {name}: {item.stage}", item.reason)
            for name, result in results.items()
            for item in result.degraded
        ]
        return state.but(
            hits=hits,
            degraded=(*state.degraded, *degraded),
            metadata=_metadata(results, merged.by, search.mode),
            note=_note(results),
            relevance=_relevance(results.values(), is_complete=len(results) == len(plan.names)),
            weights=self._weights,
            indexes={
                name: {
                    "found": len(result.hits),
                    "hits": 0,
                    "weight": self._weights[name],
                    "from_cache": result.from_cache,
                }
                for name, result in results.items()
            },
        )


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
