"""One order for what several indexes found, each hit once.

What orders the hits of one index says nothing beside another: a fused score depends on everything that was found with
it. So the hits of all indexes become one pool, and each gets a value that holds in the whole pool:

====== =============================================================================================================
scores the hits' cosines, and their BM25 scores, combined anew over the pool as
:func:`retrieval_core.pipeline.stages.fuse.fuse`
       combines them over one index, but with a dense weight of 0.8: how rare a word is, and so what BM25 makes of it,
       differs from index to index, and a cosine does not
ranks  ``1 / (60 + rank)``, with the rank in the hit's own index (Cormack, Clarke and Büttcher, SIGIR 2009)
====== =============================================================================================================

Scores can be compared where every index was searched on the same sides, with one embedder; else ranks are. Either way
each index keeps its own order, which knows more than both scores do: what else found a hit, say, or that its like was
chosen before. The values only decide how the indexes' hits are put between each other: the first hit of an index has
the highest value of its hits, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, TypeAlias

from retrieval_core.pipeline.stages.fuse import RRF_RANK_CONSTANT, fuse
from retrieval_core.ports import Candidate, Side

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.pipeline.stages.fuse import FusionMethod
    from retrieval_core.types import Hit

MergedBy: TypeAlias = Literal["scores", "ranks"]

DENSE_WEIGHT = 0.8
"""Measured on three collections searched together, and on one in three parts; see ``docs/measurements.md``."""


@dataclass(frozen=True, slots=True)
class IndexResult:
    """What one index found.

    Attributes:
        name: The index's.
        hits: In the index's order; no id twice.
        sides: How it was searched, without what failed.
        embedder_id: What its cosines were made with; ``None`` where it was not searched by meaning.
    """

    name: str
    hits: tuple[Hit, ...]
    sides: frozenset[Side]
    embedder_id: str | None = None


@dataclass(frozen=True, slots=True)
class Merged:
    """The hits of all indexes, best first, each with the name of its index, and what put them in order."""

    hits: tuple[Hit, ...]
    by: MergedBy


def merge(answers: Sequence[IndexResult], *, method: FusionMethod = "zscore") -> Merged:
    """Put what several indexes found into one order.

    Args:
        answers: Of different indexes; equal values are ordered as these are.
        method: How both sides' scores are combined.

    Returns:
        Every hit of every answer. ``score`` and ``scores.final`` are its value, which falls; ``scores.fused`` is the
        combination of its own scores where they were combined. Ranks of both sides stay those in its index.
    """
    if _are_comparable(answers):
        return Merged(_by_scores(answers, method), "scores")
    return Merged(_by_ranks(answers), "ranks")


def _are_comparable(answers: Sequence[IndexResult]) -> bool:
    found = [answer for answer in answers if answer.hits]
    if len({(answer.sides, answer.embedder_id) for answer in found}) > 1:
        return False
    return all(
        ("dense" in answer.sides and hit.scores.dense is not None)
        or ("lexical" in answer.sides and hit.scores.lexical is not None)
        for answer in found
        for hit in answer.hits
    )


def _by_scores(answers: Sequence[IndexResult], method: FusionMethod) -> tuple[Hit, ...]:
    sides = next((answer.sides for answer in answers if answer.hits), frozenset[Side]())
    keys = {
        (answer.name, hit.id): f"{place:06d} {hit.id}" for place, answer in enumerate(answers) for hit in answer.hits
    }
    hits = [(keys[answer.name, hit.id], hit.scores) for answer in answers for hit in answer.hits]
    dense = [Candidate(key, scores.dense) for key, scores in hits if scores.dense is not None]
    lexical = [Candidate(key, scores.lexical) for key, scores in hits if scores.lexical is not None]
    pool = fuse(
        sorted(dense, key=_falling) if "dense" in sides else None,
        sorted(lexical, key=_falling) if "lexical" in sides else None,
        method=method,
        dense_weight=DENSE_WEIGHT,
    )
    values = {item.chunk_id: item.score for item in pool}
    found: list[Hit] = []
    for answer in answers:
        own = [values[keys[answer.name, hit.id]] for hit in answer.hits]
        for hit, value, final in zip(answer.hits, own, sorted(own, reverse=True), strict=True):
            scores = replace(hit.scores, fused=value if len(sides) > 1 else None, final=final)
            found.append(replace(hit, score=final, scores=scores, source_index=answer.name))
    found.sort(key=_falling)
    return tuple(found)


def _by_ranks(answers: Sequence[IndexResult]) -> tuple[Hit, ...]:
    found: list[Hit] = []
    for answer in answers:
        for rank, hit in enumerate(answer.hits, start=1):
            value = 1 / (RRF_RANK_CONSTANT + rank)
            scores = replace(hit.scores, fused=None, final=value)
            found.append(replace(hit, score=value, scores=scores, source_index=answer.name))
    found.sort(key=_falling)
    return tuple(found)


def weighted(hits: Sequence[Hit], weights: Mapping[str, float]) -> tuple[Hit, ...]:
    """Return hits of several indexes in their order with the indexes' weights.

    A hit's score is brought to [0, 1], the lowest of all to 0 and the highest to 1, and multiplied by the weight of its
    index: with a weight of 0.5 the best hit of all counts as one halfway down to the worst. A higher weight never puts
    a hit of that index further down. Where all weights are the same, the hits are returned as they are.

    Args:
        hits: With ``source_index``; equal scores keep this order.
        weights: Above 0, by the name of the index.
    """
    if len({weights[name] for name in {str(hit.source_index) for hit in hits}}) < 2:
        return tuple(hits)
    lowest, highest = min(map(_score, hits)), max(map(_score, hits))
    width = highest - lowest
    scaled: list[Hit] = []
    for hit in hits:
        share = (hit.score - lowest) / width if width else 1.0
        score = share * weights[str(hit.source_index)]
        scaled.append(replace(hit, score=score, scores=replace(hit.scores, final=score)))
    scaled.sort(key=_falling)
    return tuple(scaled)


def without_copies(hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Return hits without those that are the same passage of the same document as an earlier one from another index.

    The same passage: its document has the same id, and its text is the same. The same words in another document are a
    passage of their own, and an index's hits are never compared with each other.
    """
    first: dict[tuple[str, str], str | None] = {}
    kept: list[Hit] = []
    for hit in hits:
        index = first.setdefault((hit.chunk.document_id, hit.chunk.text), hit.source_index)
        if index == hit.source_index:
            kept.append(hit)
    return tuple(kept)


def candidates_first(hits: Sequence[Hit], weights: Mapping[str, float], count: int) -> tuple[Hit, ...]:
    """Return hits so that those to be reranked come first: the best with the indexes' weights.

    The scores stay as they are, and so does the order among the first ``count`` and among the others.
    """
    chosen = {(hit.source_index, hit.id) for hit in weighted(hits, weights)[:count]}
    return tuple(sorted(hits, key=lambda hit: (hit.source_index, hit.id) not in chosen))


_score = attrgetter("score")


def _falling(found: Hit | Candidate) -> float:
    return -found.score
