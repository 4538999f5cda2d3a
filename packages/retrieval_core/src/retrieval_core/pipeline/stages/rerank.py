"""The stages that read hits with a model: reranking, which orders them, and the relevance filter, which drops some."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from hashlib import sha256
from math import fsum, sqrt
from typing import TYPE_CHECKING

from retrieval_core.pipeline.stages.fuse import weighted
from retrieval_core.pipeline.stages.state import JudgedHits, Stage, identify
from retrieval_core.ports import RelevanceFilter, Reranker, RerankScores, as_plugin
from retrieval_core.run.caching import LruCache
from retrieval_core.run.outcomes import Failed, in_batches, is_fault_of_an_improvement
from retrieval_core.text.prompting import shorten
from retrieval_core.types import Degradation, DroppedPassage, Judgement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from retrieval_core.config import RerankerConfig, RetrievalConfig
    from retrieval_core.pipeline.stages.state import SearchState
    from retrieval_core.ports import Judgements
    from retrieval_core.run.outcomes import Ok
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Chunk, Hit

BEFORE_THE_NEXT = 2 / 3
"""How much of the time that is left a reranker may use up where another one would stand in for it."""
_REASON_CHARACTERS = 300


class Rerank(Stage):
    """Puts the best hits into a better order, by the first reranker of a chain that can.

    Args:
        chain: Asked in this order until one succeeds.
        settings: Of the pipeline.
        cache: Where scores are kept for the next time.
        deadline_share: The part of the deadline that it has.
    """

    name = "rerank"

    def __init__(
        self, chain: Sequence[Reranker], settings: RetrievalConfig, cache: RerankCache | None, deadline_share: float
    ) -> None:
        self.chain = tuple([as_plugin(reranker, Reranker) for reranker in chain])
        self._settings = settings.reranker
        self._cache = cache
        self._fingerprint = partial(identify, (settings.reranker,), *chain)
        self.deadline_share = deadline_share

    def fingerprint(self) -> str | None:
        """Return a name for the settings and the rerankers."""
        return self._fingerprint()

    def plugins(self) -> Iterable[object]:
        """Return the rerankers."""
        return self.chain

    def is_fault(self, error: Exception, _state: SearchState) -> bool:
        """Return whether to raise an error: a reranker that is not installed is done without."""
        return is_fault_of_an_improvement(error)

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state with its hits in another order."""
        if not state.hits:
            return state
        text = state.question.text
        reranked = await rerank(run, self.chain, text, state.hits, self._settings, cache=self._cache)
        return state.failing(*reranked.failures).but(
            hits=weighted(reranked.hits, state.weights) if state.weights else reranked.hits,
            degraded=state.degraded + reranked.degraded,
        )


class TopK(Stage):
    """Keeps the best hits, as many as are wanted."""

    name = "top_k"
    deadline_share = 0

    def fingerprint(self) -> str:
        """Return nothing: how many are wanted is in the plan."""
        return ""

    async def __call__(self, _run: Run, state: SearchState) -> SearchState:
        """Return the state with the best hits."""
        hits = state.hits[: state.plan.top_k]
        return state.but(hits=hits, selected=hits)


async def rerank(
    run: Run,
    chain: Sequence[Reranker],
    query: str,
    hits: Sequence[Hit],
    settings: RerankerConfig,
    *,
    cache: RerankCache | None = None,
) -> JudgedHits:
    """Have the best hits scored by the first reranker of a chain that can, and order them by it.

    The new order blends ``weight`` of one over the reranker's rank with ``1 - weight`` of the first stage's score, each
    as its distance from the mean in standard deviations over the hits that were scored. The rank alone is taken since
    models scale their scores each in its own way; measured, this was also better than blending scores, see the page
    on measurements. With a weight of 1 the reranker's own scores stand. Equal ones keep the first stage's order; where
    all are the same they say nothing, and the order stays. Hits beyond ``candidates`` follow in their order.

    Args:
        run: Makes the calls.
        chain: Asked in this order until one succeeds.
        query: The question that counts: as the user asked it, whatever was searched for.
        hits: In the first stage's order.
        settings: How many hits are scored, and the weight.
        cache: Where scores are kept for the next time.
    """
    head, rest = hits[: settings.candidates], hits[settings.candidates :]
    failures: list[Failed] = []
    if not head:
        return JudgedHits(tuple(hits))
    for reranker in chain:
        started = run.elapsed_ms
        bound = run if reranker is chain[-1] else run.for_part_of_the_rest(BEFORE_THE_NEXT)
        scored = await _score(bound, reranker, query, head, cache=cache)
        if isinstance(scored, Failed):
            failures.append(replace(scored, of=reranker.id))
            continue
        decision = f"by {reranker.id}"
        if len(head) > 1 and min(scored.scores) == max(scored.scores):
            decision += ", which gave all passages the same score, so the order stays"
        run.note("rerank", started, len(head), len(head), decision)
        degraded = tuple(Degradation("rerank", problem) for problem in scored.problems)
        return JudgedHits(_reordered(head, rest, scored, settings.weight), tuple(failures), degraded)
    return JudgedHits(tuple(hits), tuple(failures))


async def _score(
    run: Run,
    reranker: Reranker,
    query: str,
    hits: Sequence[Hit],
    *,
    cache: RerankCache | None,
) -> RerankScores | Failed:
    """Return the scores of all hits, in as many calls as it takes, several at a time."""
    name = reranker.id
    run = run.on(f"reranker {name}")
    repair = reranker.repair if "repair" in reranker.capabilities else None

    async def score(batch: Sequence[Hit]) -> RerankScores | Failed:
        chunks = [hit.chunk for hit in batch]
        if cache is not None and (kept := cache.get(name, query, chunks)) is not None:
            return kept
        texts = [chunk.indexed_text for chunk in chunks]
        outcome = await run.repairing(repair).call("rerank", reranker.score, query, texts)
        if isinstance(outcome, Failed):
            return outcome
        if cache is not None and not outcome.value.problems:
            cache.set(name, query, chunks, outcome.value)
        return outcome.value

    parts: list[RerankScores] = []
    for _, outcome in await in_batches(score, hits, reranker.batch_size):
        if isinstance(outcome, Failed):
            return outcome
        parts.append(outcome)
    return RerankScores(
        tuple(score for part in parts for score in part.scores),
        evidence=tuple(evidence for part in parts for evidence in part.evidence or (None,) * len(part.scores)),
        problems=tuple(problem for part in parts for problem in part.problems),
    )


def _reordered(head: Sequence[Hit], rest: Sequence[Hit], scored: RerankScores, weight: float) -> tuple[Hit, ...]:
    scores = [float(score) for score in scored.scores]
    finals = scores
    if min(scores) == max(scores):
        finals = [hit.score for hit in head]
    elif weight < 1:
        ours, theirs = _standardized(_reciprocal_ranks(scores)), _standardized([hit.score for hit in head])
        finals = [weight * one + (1 - weight) * other for one, other in zip(ours, theirs, strict=True)]
    new = [
        replace(hit, score=final, scores=replace(hit.scores, rerank=score, final=final), evidence=proof)
        for hit, score, final, proof in zip(head, scores, finals, scored.evidence, strict=True)
    ]
    new.sort(key=lambda hit: -hit.score)  # a stable sort: what is equal keeps its order
    if rest:
        shift = new[-1].score - rest[0].score  # so that scores go on falling where the reranker stopped
        new += (
            replace(hit, score=hit.score + shift, scores=replace(hit.scores, final=hit.score + shift)) for hit in rest
        )
    return tuple(new)


def _reciprocal_ranks(scores: Sequence[float]) -> list[float]:
    """Return 1 for the best score, 1/2 for the next, and so on; equal ones share the better rank."""
    ordered = sorted(scores, reverse=True)
    ranks = {score: rank for rank, score in reversed(list(enumerate(ordered, start=1)))}
    return [1 / ranks[score] for score in scores]


def _standardized(values: Sequence[float]) -> list[float]:
    mean = fsum(values) / len(values)
    deviation = sqrt(fsum((value - mean) ** 2 for value in values) / len(values))
    return [(value - mean) / deviation if deviation else 0.0 for value in values]


class RerankCache:
    """Keeps scores in memory by reranker, question, ids and contents: a passage that changed is scored anew.

    Args:
        max_size: The most calls whose scores are kept; at least 1.
        now: Tells the time in seconds; it never goes back.
        ttl_seconds: How long scores are kept; as long as there is room where it is not given.

    Raises:
        InvalidParameterError: ``max_size`` or ``ttl_seconds`` is out of its range.
    """

    def __init__(self, max_size: int, now: Callable[[], float], ttl_seconds: float | None = None) -> None:
        self._scores: LruCache[str, RerankScores] = LruCache(max_size, ttl_seconds, now)

    def get(self, reranker_id: str, query: str, chunks: Sequence[Chunk]) -> RerankScores | None:
        """Return the scores of a call; ``None`` where there are none."""
        return self._scores.get(_cache_key(reranker_id, query, chunks))

    def set(self, reranker_id: str, query: str, chunks: Sequence[Chunk], scores: RerankScores) -> None:
        """Keep the scores of a call."""
        self._scores.set(_cache_key(reranker_id, query, chunks), scores)

    def __len__(self) -> int:
        return len(self._scores)


def _cache_key(reranker_id: str, query: str, chunks: Sequence[Chunk]) -> str:
    # What a reranker reads of a chunk is more than its text: the title and headings belong to it.
    parts = [reranker_id, query, *(part for chunk in chunks for part in (chunk.id, chunk.indexed_text))]
    digest = sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()


FILTER_CONCURRENCY = 8
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


async def keep_relevant(run: Run, relevance_filter: RelevanceFilter, query: str, hits: Sequence[Hit]) -> JudgedHits:
    """Have every hit judged, several calls at a time, and keep the relevant ones; chunks are never changed.

    Nothing takes the place of what is left out: ``top_k`` passages are retrieved, and then filtered. The run's record
    has those that are left out, each with its score and the reason.

    Args:
        run: Makes the calls.
        relevance_filter: Judges.
        query: The question that counts: as the user asked it, whatever was searched for.
        hits: In their order.
    """
    started = run.elapsed_ms

    async def judge(batch: Sequence[Hit]) -> Ok[Judgements] | Failed:
        return await run.call("relevance", relevance_filter.judge, query, [hit.chunk for hit in batch])

    failures: list[Failed] = []
    kept: list[Hit] = []
    scores: list[float] = []
    dropped: list[DroppedPassage] = []
    for batch, outcome in await in_batches(judge, hits, relevance_filter.batch_size, at_a_time=FILTER_CONCURRENCY):
        if isinstance(outcome, Failed):
            failures.append(outcome)
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
    return JudgedHits(tuple(kept), tuple(failures), relevance_scores=tuple(scores))


def _judged(hit: Hit, judgement: Judgement) -> Hit:
    scores = replace(hit.scores, relevance=judgement.score)
    return replace(hit, scores=scores, relevance_reason=judgement.reason or None)
