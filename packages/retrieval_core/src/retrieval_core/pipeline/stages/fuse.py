"""One order of several lists: of both sides of a search, and of several indexes.

The sides' scores have nothing in common: a cosine lies in [-1, 1], BM25 has no upper bound. Each method first makes
them comparable within the one query, then adds them up with weights ``dense_weight`` and ``1 - dense_weight``.

========== =========================================================================================================
zscore     ``(score - mean) / deviation`` of the side; a chunk that the side did not find counts as the side's lowest
adaptive   as ``zscore``, and a side counts the more in a question the further its best chunk stands out: the weights'
           ratio is multiplied by that of both sides' leads, a lead being the best value minus the tenth best
rrf        ``1 / (60 + rank)``; not found counts as 0 (Cormack, Clarke and Büttcher, SIGIR 2009)
minmax     ``(score - lowest) / (highest - lowest)``; not found counts as 0
dbsf       ``(score - (mean - 3 deviations)) / 6 deviations``, with the sample's deviation as in Qdrant; not found
           counts as 0
========== =========================================================================================================

A side whose scores are all the same, such as one with a single chunk, cannot tell its chunks apart: z-score and min-max
count them as 1, and distribution-based fusion as 0.5. So the only hit of a search never has the score 0.

The fused scores of one index mean nothing in another, since they depend on everything that was found with a hit. So the
hits of all indexes become one pool, and each gets a value that holds in the whole pool:

====== =============================================================================================================
scores the hits' cosines and BM25 scores, fused anew over the pool, with a dense weight of 0.8: how rare a word is, and
       so its BM25 score, differs from index to index, and a cosine does not
ranks  ``1 / (60 + rank)``, with the rank in the hit's own index (Cormack, Clarke and Büttcher, SIGIR 2009)
====== =============================================================================================================

Scores can be compared if each index was searched on the same sides, with one embedder; otherwise ranks are. Either way
each index keeps its own order, which knows more than both scores do, such as what else found a hit. The values only
decide how the indexes' hits are put between each other: the first hit of an index has the highest value of its hits,
and so on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count, islice
from math import frexp, fsum, inf, ldexp, sqrt
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, TypeAlias

from retrieval_core.ports import Candidate, Side
from retrieval_core.types import Scores

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from retrieval_core.types import Hit

FusionMethod: TypeAlias = Literal["adaptive", "zscore", "rrf", "minmax", "dbsf"]

LEAD = 10
"""The place that a side's best value is held against; see ``docs/dev/measurements.md``."""

RRF_RANK_CONSTANT = 60
"""From Cormack, Clarke and Büttcher, "Reciprocal rank fusion outperforms Condorcet", SIGIR 2009."""
MergedBy: TypeAlias = Literal["scores", "ranks"]

DENSE_WEIGHT = 0.8
"""Measured on three collections searched together, and on one in three parts; see ``docs/dev/measurements.md``."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A chunk's place in the common order, before the chunk itself is read."""

    chunk_id: str
    scores: Scores

    @property
    def score(self) -> float:
        """The value that orders it."""
        return self.scores.final or 0.0


def fuse(
    dense: Sequence[Candidate] | None,
    lexical: Sequence[Candidate] | None,
    *,
    method: FusionMethod = "zscore",
    dense_weight: float = 0.5,
    limit: int | None = None,
    unembedded: Collection[str] = (),
) -> tuple[Ranked, ...]:
    """Put the chunks that either side found into one order, each chunk once, by its id.

    Args:
        dense: Best first; ``None`` where that side was not asked or failed, and its own order then stands alone.
        lexical: The same of the other side.
        method: See the module's documentation.
        dense_weight: In [0, 1]; the lexical side has the rest. In ``adaptive``, the weight where both leads are equal.
        limit: How many are wanted; all of them where it is not given.
        unembedded: Ids of chunks that have no vector yet. Their words stand in for their meaning, of which nothing is
            known: the value of the lexical side counts for both.

    Returns:
        Best first; equal scores are ordered by chunk id.
    """
    if dense is None or lexical is None:
        return _alone(dense, lexical, limit)
    sides = _scores_by_id(dense), _scores_by_id(lexical)
    dense_values, dense_absent = _normalized(sides[0], method)
    lexical_values, lexical_absent = _normalized(sides[1], method)
    if method == "adaptive":
        dense_weight = _adapted(dense_weight, _lead(dense_values), _lead(lexical_values))
    dense_values |= {name: lexical_values[name] for name in unembedded if name in lexical_values}
    lexical_weight = 1 - dense_weight
    fused = {
        name: dense_weight * value + lexical_weight * lexical_values.get(name, lexical_absent)
        for name, value in dense_values.items()
    }
    for name, value in lexical_values.items():
        if name not in fused:
            fused[name] = dense_weight * dense_absent + lexical_weight * value
    lowest = -inf if limit is None or limit >= len(fused) else sorted(fused.values())[-limit]
    order = sorted([(-value, name) for name, value in fused.items() if value >= lowest])[:limit]
    ranks = _ranks(sides[0]), _ranks(sides[1])
    return tuple([Ranked(name, _scores(name, sides, ranks, fused=-negated)) for negated, name in order])


def _alone(
    dense: Sequence[Candidate] | None, lexical: Sequence[Candidate] | None, limit: int | None
) -> tuple[Ranked, ...]:
    """Return what one side found, in its own order."""
    scores = enumerate(islice(_scores_by_id(lexical if dense is None else dense).items(), limit), 1)
    if dense is None:
        return tuple([Ranked(name, Scores(None, None, score, rank, final=score)) for rank, (name, score) in scores])
    return tuple([Ranked(name, Scores(cosine_to_score(score), rank, final=score)) for rank, (name, score) in scores])


def merge(
    first: Sequence[Ranked],
    others: Sequence[tuple[Sequence[Ranked], float]],
    *,
    method: FusionMethod = "zscore",
    limit: int | None = None,
) -> tuple[Ranked, ...]:
    """Put what was found for the question and for its expansion into one order, each chunk once.

    Each list's scores are made comparable in the way of the module's methods and added up with the lists' weights.

    Args:
        first: What was found for the question itself, best first; it has the weight 1, and its scores are kept.
        others: Further lists, each with its weight above 0. The scores of their sides compare passages with something
            else than the question, and so are not taken over.
        method: See the module's documentation.
        limit: How many are wanted; all of them where it is not given.

    Returns:
        Best first, ``fused`` being the sum; equal ones are ordered by chunk id.
    """
    weighted = [(first, 1.0), *others]
    fused: dict[str, float] = {}
    sides = [
        (_normalized({item.chunk_id: item.score for item in ranked}, method), weight) for ranked, weight in weighted
    ]
    for (values, _), _ in sides:
        fused.update(dict.fromkeys(values, 0.0))
    for (values, absent), weight in sides:
        for chunk_id in fused:
            fused[chunk_id] += weight * values.get(chunk_id, absent)
    scores = {item.chunk_id: item.scores for item in first}
    order = sorted(fused, key=lambda chunk_id: (-fused[chunk_id], chunk_id))[:limit]
    return tuple(
        [Ranked(name, replace(scores.get(name, _UNSCORED), fused=fused[name], final=fused[name])) for name in order]
    )


def cosine_to_score(cosine: float) -> float:
    """Return a cosine as the score in [0, 1] that results and thresholds use: negative similarity counts as 0."""
    return 0.0 if cosine <= 0 else 1.0 if cosine > 1 else cosine


def _scores_by_id(side: Sequence[Candidate] | None) -> dict[str, float]:
    """Return each chunk's score, in the side's order; if a chunk comes twice, its better score counts."""
    scores = {candidate.chunk_id: float(candidate.score) for candidate in side or ()}
    if side and len(scores) < len(side):
        scores.clear()
        for candidate in side:
            scores.setdefault(candidate.chunk_id, float(candidate.score))
    return scores


def _ranks(side: Mapping[str, float]) -> dict[str, int]:
    return dict(zip(side, count(1)))


def _scores(
    chunk_id: str, sides: tuple[Mapping[str, float], ...], ranks: tuple[Mapping[str, int], ...], *, fused: float
) -> Scores:
    cosine = sides[0].get(chunk_id)
    return Scores(
        dense=None if cosine is None else cosine_to_score(cosine),
        dense_rank=ranks[0].get(chunk_id),
        lexical=sides[1].get(chunk_id),
        lexical_rank=ranks[1].get(chunk_id),
        fused=fused,
        final=fused,
    )


def _lead(values: Mapping[str, float]) -> float:
    """Return by how much a side's best value is above its tenth best, or above its last one where there are fewer."""
    best = list(islice(values.values(), LEAD))
    return best[0] - best[-1] if best else 0.0


def _adapted(dense_weight: float, dense_lead: float, lexical_lead: float) -> float:
    """Return the dense side's weight for this question; the given one where neither side tells its best ones apart."""
    dense, lexical = dense_weight * dense_lead, (1 - dense_weight) * lexical_lead
    return dense / (dense + lexical) if dense + lexical else dense_weight


_SMALLEST, _LARGEST = 1e-100, 1e100
_UNSCORED = Scores()


def _normalized(side: Mapping[str, float], method: FusionMethod) -> tuple[dict[str, float], float]:
    """Return the side's comparable values by chunk id, and the value of a chunk that it did not find."""
    if not side:
        return {}, 0.0
    if method == "rrf":
        return {chunk_id: 1 / (RRF_RANK_CONSTANT + rank) for rank, chunk_id in enumerate(side, 1)}, 0.0
    values = _METHODS[method](_scaled([*side.values()]))
    return dict(zip(side, values, strict=True)), min(values) if _METHODS[method] is _zscore else 0.0


def _scaled(scores: Sequence[float]) -> Sequence[float]:
    """Bring scores whose squares could leave the range of numbers near 1, by a power of two, which is exact."""
    largest = max(map(abs, scores))
    if _SMALLEST < largest < _LARGEST:  # as nearly always
        return scores
    exponent = frexp(largest)[1]
    return [ldexp(score, -exponent) for score in scores]


def _mean_and_deviation(scores: Sequence[float], degrees_of_freedom: int) -> tuple[float, float]:
    """Return mean and standard deviation, the latter exactly 0 where all scores are the same."""
    if min(scores) == max(scores):
        return scores[0], 0.0
    mean = fsum(scores) / len(scores)
    differences = [score - mean for score in scores]
    return mean, sqrt(fsum([each * each for each in differences]) / degrees_of_freedom)


def _zscore(scores: Sequence[float]) -> list[float]:
    mean, deviation = _mean_and_deviation(scores, len(scores))
    return [(score - mean) / deviation for score in scores] if deviation else [1.0] * len(scores)


def _minmax(scores: Sequence[float]) -> list[float]:
    lowest, width = min(scores), max(scores) - min(scores)
    return [(score - lowest) / width if width else 1.0 for score in scores]


def _dbsf(scores: Sequence[float]) -> list[float]:
    mean, deviation = _mean_and_deviation(scores, len(scores) - 1)
    lowest = mean - 3 * deviation
    return [(score - lowest) / (6 * deviation) if deviation else 0.5 for score in scores]


_METHODS: dict[str, Callable[[Sequence[float]], list[float]]] = {
    "adaptive": _zscore,
    "zscore": _zscore,
    "minmax": _minmax,
    "dbsf": _dbsf,
}


@dataclass(frozen=True, slots=True)
class IndexResult:
    """The hits of one index.

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


def merge_indexes(answers: Sequence[IndexResult], *, method: FusionMethod = "zscore") -> Merged:
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
        sorted(dense, key=_falling_score) if "dense" in sides else None,
        sorted(lexical, key=_falling_score) if "lexical" in sides else None,
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
    found.sort(key=_falling_score)
    return tuple(found)


def _by_ranks(answers: Sequence[IndexResult]) -> tuple[Hit, ...]:
    found: list[Hit] = []
    for answer in answers:
        for rank, hit in enumerate(answer.hits, start=1):
            value = 1 / (RRF_RANK_CONSTANT + rank)
            scores = replace(hit.scores, fused=None, final=value)
            found.append(replace(hit, score=value, scores=scores, source_index=answer.name))
    found.sort(key=_falling_score)
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
    scaled.sort(key=_falling_score)
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


def _falling_score(found: Hit | Candidate) -> float:
    return -found.score
