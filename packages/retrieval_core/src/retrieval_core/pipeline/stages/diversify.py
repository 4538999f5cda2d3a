"""Maximal marginal relevance: passages that bear on the question and do not repeat each other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.pipeline.stages.fuse import Ranked
    from retrieval_core.types import Vector


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
        lambda_mult: In [0, 1]; 1 orders by relevance alone, 0 by difference alone.

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
