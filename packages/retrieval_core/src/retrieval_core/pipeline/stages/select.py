"""Selection of hits: the chunks of ranked ids are read, and those chosen that the caller gets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from retrieval_core.errors import DimensionMismatchError
from retrieval_core.pipeline.stages.fuse import Ranked, cosine_to_score
from retrieval_core.pipeline.stages.search import origins_of, read
from retrieval_core.pipeline.stages.state import Stage
from retrieval_core.ports import Fetched, FetchRequest
from retrieval_core.run.outcomes import Failed, is_damage
from retrieval_core.types import Degradation, Hit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.pipeline.stages.state import Plan, SearchState
    from retrieval_core.ports import Store
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Chunk, Vector


class Select(Stage):
    """Reads the chunks of the best candidates, in one request, and chooses among them.

    Chunks that vector search did not find get their cosine here, from their vectors. If reading fails, what the search
    brought along has to do.

    Args:
        store: Where chunks are read.
        deadline_share: The part of the deadline that it has.
    """

    name = "select"

    def __init__(self, store: Store, deadline_share: float = 0) -> None:
        self._store = store
        self.deadline_share = deadline_share

    def fingerprint(self) -> str:
        """Return nothing: how to select is in the plan."""
        return ""

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state with hits."""
        if state.error is not None:
            return state
        plan, found = state.plan, state.found
        assert found is not None  # noqa: S101 - the search is a stage before
        pool = state.ranked[: plan.depth]
        fetched, failure, degraded = await self._fetch(run, state, pool)
        pool = _with_dense_scores(pool, fetched.vectors, found.query.embedding)
        pool = tuple([item for item in pool if item.chunk_id in fetched.chunks])
        if plan.score_threshold is not None:
            started, before = run.elapsed_ms, len(pool)
            pool, unscored = _above_threshold(pool, plan.score_threshold, plan)
            degraded += unscored
            run.note("threshold", started, before, len(pool))
        if plan.fetch_k is not None:
            started, before = run.elapsed_ms, len(pool)
            pool, not_compared = _diverse(pool[: plan.fetch_k], fetched.vectors, plan)
            degraded += not_compared
            run.note("diversify", started, before, len(pool))
        hits = tuple([Hit(fetched.chunks[item.chunk_id], item.score, item.scores) for item in pool[: plan.shortlist]])
        if state.expansions:
            origins = origins_of(state.expansions, plan.shortlist)
            hits = tuple([replace(hit, found_by=origins.get(hit.id, ())) for hit in hits])
        return state.but(
            pool=hits,
            hits=hits,
            degraded=state.degraded + degraded,
            failures=state.failures if failure is None else (*state.failures, failure),
            error=None if failure is None else f"{failure.stage}: {failure.reason}",
        )

    async def _fetch(
        self, run: Run, state: SearchState, pool: Sequence[Ranked]
    ) -> tuple[Fetched, Failed | None, tuple[Degradation, ...]]:
        """Return chunks and vectors of the pool, asking the store only for what the search did not bring along.

        Where the index cannot read their vectors, it is asked for the passages alone.
        """
        plan, found = state.plan, state.found
        assert found is not None  # noqa: S101 - the search is a stage before
        needed = [item.chunk_id for item in pool]
        wanted = set(needed)
        at_hand: dict[str, Chunk] = {}
        for expansion in state.expansions:
            at_hand.update(expansion.chunks)
        for side in reversed(found.sides):  # a vector index is never behind the texts that keyword search reads
            at_hand.update([(each.chunk_id, each.chunk) for each in side if each.chunk_id in wanted and each.chunk])
        to_compare = plan.fetch_k is not None
        to_score: set[str] = set()
        if found.query.embedding is not None:
            to_score = {item.chunk_id for item in pool if item.scores.dense is None}
        everything = to_compare or not at_hand
        missing = tuple([name for name in needed if everything or name in to_score or name not in at_hand])
        if not missing:
            return Fetched(chunks=at_hand), None, ()
        request = FetchRequest(chunk_ids=missing, filter=plan.condition, with_vectors=to_compare or bool(to_score))
        outcome = await read(run, self._store, state.held, request)
        degraded: tuple[Degradation, ...] = ()
        if isinstance(outcome, Failed) and request.with_vectors and is_damage(outcome.error):
            degraded = (Degradation(outcome.stage, outcome.reason),)
            outcome = await read(run, self._store, state.held, replace(request, with_vectors=False))
        if isinstance(outcome, Failed):
            return Fetched(chunks=at_hand), outcome, ()
        if (mismatch := _mismatch(outcome.value.vectors, found.query.embedding)) is not None:
            return Fetched(chunks=at_hand), Failed("fetch", mismatch), ()
        return replace(outcome.value, chunks={**at_hand, **outcome.value.chunks}), None, degraded


def _mismatch(vectors: Mapping[str, Vector], embedding: Vector | None) -> DimensionMismatchError | None:
    sizes = {vector.size for vector in vectors.values()}
    expected = embedding.size if embedding is not None else max(sizes, default=0)
    wrong = next(iter(sizes - {expected}), None)
    return None if wrong is None else DimensionMismatchError(expected, wrong, "a vector that the store returned")


def _with_dense_scores(
    pool: tuple[Ranked, ...], vectors: Mapping[str, Vector], embedding: Vector | None
) -> tuple[Ranked, ...]:
    if embedding is None or not vectors:
        return pool
    return tuple(
        replace(item, scores=replace(item.scores, dense=cosine_to_score(float(vector @ embedding))))
        if item.scores.dense is None and (vector := vectors.get(item.chunk_id)) is not None
        else item
        for item in pool
    )


def _above_threshold(
    pool: tuple[Ranked, ...], threshold: float, plan: Plan
) -> tuple[tuple[Ranked, ...], tuple[Degradation, ...]]:
    keep = plan.on_unscored == "keep"
    kept = tuple(item for item in pool if (keep if item.scores.dense is None else item.scores.dense >= threshold))
    unscored = sum(item.scores.dense is None for item in pool)
    if keep or not unscored:
        return kept, ()
    reason = f"score_threshold dropped {unscored} chunk{'s' * (unscored != 1)} without a vector score"
    return kept, (Degradation("threshold", reason),)


def _diverse(
    pool: tuple[Ranked, ...], vectors: Mapping[str, Vector], plan: Plan
) -> tuple[tuple[Ranked, ...], tuple[Degradation, ...]]:
    if pool and not vectors:
        reason = "the chunks have no vectors to compare, so they are ranked by relevance"
        return pool, (Degradation("diversify", reason),)
    chosen = maximal_marginal_relevance(pool, vectors, top_k=plan.shortlist, lambda_mult=plan.lambda_mult)
    return chosen, ()


def maximal_marginal_relevance(
    ranked: Sequence[Ranked], vectors: Mapping[str, Vector], *, top_k: int, lambda_mult: float
) -> tuple[Ranked, ...]:
    """Choose chunks one by one, each time the one with the highest marginal relevance.

    It is ``lambda_mult * relevance - (1 - lambda_mult) * similarity`` (Carbonell and Goldstein, SIGIR 1998), where
    similarity is the highest cosine to a chunk chosen before (at least 0) and relevance is the fused score scaled to
    [0, 1] over the given chunks or, where one side alone was searched, the dense score.

    Args:
        ranked: Best first. Chunks without a vector cannot be compared; they keep their relevance and repel nothing.
        vectors: By chunk id, shape ``(dimension,)``, unit length.
        top_k: How many to choose, at least 1.
        lambda_mult: In [0, 1]; 1 orders only by relevance, 0 only by difference.

    Returns:
        At most ``top_k``, in the order they were chosen; the marginal relevances never rise.
    """
    import numpy as np  # noqa: PLC0415 - not needed unless results are to be diverse

    if not ranked:
        return ()
    relevance = np.array(_relevance(ranked))
    zero = np.zeros_like(next(iter(vectors.values()))) if vectors else np.zeros(1, np.float32)
    matrix = np.stack([vectors.get(item.chunk_id, zero) for item in ranked])
    penalty = np.zeros(len(ranked))
    open_places = np.ones(len(ranked), dtype=bool)
    chosen: list[Ranked] = []
    for _ in range(min(top_k, len(ranked))):
        marginal = np.where(open_places, lambda_mult * relevance - (1 - lambda_mult) * penalty, -np.inf)
        best = int(np.argmax(marginal))
        open_places[best] = False
        value = float(marginal[best])
        chosen.append(replace(ranked[best], scores=replace(ranked[best].scores, mmr=value, final=value)))
        penalty = np.maximum(penalty, matrix @ matrix[best])
    return tuple(chosen)


def _relevance(ranked: Sequence[Ranked]) -> list[float]:
    if all(item.scores.fused is None and item.scores.dense_rank is not None for item in ranked):
        return [item.scores.dense or 0.0 for item in ranked]
    scores = [item.score for item in ranked]
    lowest, highest = min(scores), max(scores)
    return [(score - lowest) / (highest - lowest) if highest > lowest else 1.0 for score in scores]
