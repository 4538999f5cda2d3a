"""The relevance filter: passages that do not bear on the question are left out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from retrieval_core.pipeline.stages.fingerprints import identify
from retrieval_core.pipeline.stages.state import Stage
from retrieval_core.ports import RelevanceFilter, as_plugin
from retrieval_core.run.outcomes import Failed
from retrieval_core.text.prompting import shorten
from retrieval_core.types import DroppedPassage, Judgement

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.stages.state import SearchState
    from retrieval_core.ports import Judgements
    from retrieval_core.run.outcomes import Ok
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Hit

_REASON_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class RelevanceResult:
    """The hits that stay, in their order, and what was decided about all of them.

    Attributes:
        hits: Those judged relevant, and those that could not be judged.
        filtered_count: How many were left out.
        relevance_scores: The relevance filter's scores, in [0, 1], of every hit that it judged, also of those left out.
        failures: Calls that failed; their hits stay.
    """

    hits: tuple[Hit, ...]
    filtered_count: int = 0
    relevance_scores: tuple[float, ...] = ()
    failures: tuple[Failed, ...] = ()


CONCURRENCY = 8
"""Calls at a time: the 10 hits of a query are judged one a request by default, in two rounds."""


class DropIrrelevant(Stage):
    """Drops hits that don't bear on the question; none takes their place.

    Args:
        relevance_filter: Judges each hit.
        settings: Of the pipeline.
        deadline_share: The part of the deadline that it has.
    """

    name = "relevance"

    def __init__(self, relevance_filter: RelevanceFilter, settings: RetrievalConfig, deadline_share: float) -> None:
        self._filter = as_plugin(relevance_filter, RelevanceFilter)
        self._fingerprint = partial(identify, (settings.relevance_filter,), relevance_filter)
        self.deadline_share = deadline_share

    def fingerprint(self) -> str | None:
        """Return a name for the settings and the filter."""
        return self._fingerprint()

    def plugins(self) -> Iterable[object]:
        """Return the filter."""
        return (self._filter,)

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state without irrelevant hits."""
        if not state.hits:
            return state
        kept = await keep_relevant(run, self._filter, state.question.text, state.hits)
        return state.failing(*kept.failures).but(hits=kept.hits, relevance_scores=kept.relevance_scores)


async def keep_relevant(
    run: Run, relevance_filter: RelevanceFilter, query: str, hits: Sequence[Hit]
) -> RelevanceResult:
    """Have every hit judged, several calls at a time, and keep the relevant ones; chunks are never changed.

    Nothing takes the place of what is left out: ``top_k`` passages are retrieved, and then filtered. The run's record
    has those that are left out, each with its score and the reason.

    Args:
        run: Makes the calls.
        relevance_filter: Judges.
        query: The question that counts: as the user asked it, whatever was searched for.
        hits: In their order.
    """
    size = max(1, relevance_filter.batch_size)
    batches = [hits[start : start + size] for start in range(0, len(hits), size)]
    free = asyncio.Semaphore(CONCURRENCY)
    started = run.elapsed_ms

    async def judge(batch: Sequence[Hit]) -> Ok[Judgements] | Failed:
        async with free:
            return await run.call("relevance", relevance_filter.judge, query, [hit.chunk for hit in batch])

    outcomes = await asyncio.gather(*map(judge, batches))
    kept: list[Hit] = []
    scores: list[float] = []
    dropped: list[DroppedPassage] = []
    for batch, outcome in zip(batches, outcomes, strict=True):
        if isinstance(outcome, Failed):
            kept += batch
            continue
        for hit, judgement in zip(batch, outcome.value.judgements, strict=True):
            scores.append(judgement.score)
            if judgement.relevant:
                kept.append(_judged(hit, judgement))
            else:
                reason = shorten(str(judgement.reason or ""), _REASON_CHARACTERS)
                dropped.append(DroppedPassage(hit.id, judgement.score, reason))
    decision = f"none of {len(hits)} chunks is relevant to the query" if hits and not kept else None
    run.note("relevance", started, len(hits), len(kept), decision, dropped=tuple(dropped))
    return RelevanceResult(
        tuple(kept), len(dropped), tuple(scores), tuple(item for item in outcomes if isinstance(item, Failed))
    )


def _judged(hit: Hit, judgement: Judgement) -> Hit:
    scores = replace(hit.scores, relevance=judgement.score)
    return replace(hit, scores=scores, relevance_reason=judgement.reason or None)
