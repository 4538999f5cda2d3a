"""What a tenant sees: the passages that pass its condition, and of an answer nothing that tells of others.

The condition keeps other passages out of every search and every reading. Beside passages an answer has sentences and
numbers of its own: a warning of an unknown field names one of all passages, what a stage found is counted
before the filter where the stage knows none, as a graph does, and a search by words weighs a word by how rare it is
among all passages, so that a score tells how many others have it. A tenant sees none of these.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from retrieval_core.types import Answer, AnswerEvent, ContextPack, Degradation, Hit, RetrievalResult, StageRecord
    from retrieval_core.types.filters import Filter


def narrowed(filters: Mapping[str, Any] | None, condition: Filter | None) -> Mapping[str, Any] | Filter | None:
    """Return a caller's filter with what every passage must pass; an empty one is how some assistants leave it out.

    Raises:
        FilterError: The filter is not well formed, and there is a condition; else it is found by who searches.
    """
    if condition is None or not filters:
        return condition or filters or None
    from retrieval_core.types.filters import And  # noqa: PLC0415 - the handshake does not wait for it
    from retrieval_core.types.filters.syntax import parse_filter  # noqa: PLC0415 - likewise

    return And((condition, parse_filter(filters)))


def own_result(result: RetrievalResult) -> RetrievalResult:
    """Return a result without what it says of more than its passages.

    That is why nothing was found, the words that led to a hit beside its own, and :func:`scores of words <own_hits>`.
    """
    told = {name: value for name, value in result.metadata.items() if name != "note"}
    return replace(
        result,
        hits=own_hits(result.hits),
        metadata=told,
        trace=own_stages(result.trace),
        degraded=own_degraded(result.degraded),
    )


def own_degraded(entries: Iterable[Degradation]) -> tuple[Degradation, ...]:
    """Return degradations without warnings about filters, which name the fields of all passages."""
    return tuple(entry for entry in entries if entry.stage != "filter")


def own_hits(hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Return the hits of a result, best first, with scores that rest on themselves and the question alone.

    Where words were searched for, the score is one by the rank, which orders them as well.
    """
    by_meaning = _are_by_meaning(hits)
    return tuple(
        replace(
            hit,
            score=hit.score if by_meaning else 1 / rank,
            scores=hit.scores if by_meaning else replace(hit.scores, lexical=None, fused=None, mmr=None, final=None),
            found_by=tuple(replace(origin, text="") for origin in hit.found_by),
        )
        for rank, hit in enumerate(hits, 1)
    )


def own_pack(pack: ContextPack) -> ContextPack:
    """Return a pack without what it says of more than its passages."""
    found = sorted((hit for passage in pack.passages for hit in passage.hits), key=lambda hit: (-hit.score, hit.id))
    own = {hit.id: hit for hit in own_hits(found)}
    trace = dict(pack.trace)
    if not _are_by_meaning(found):
        candidates: Any = trace["pinecone_candidates"]
        trace["pinecone_candidates"] = [{**each, "score": 1 / rank} for rank, each in enumerate(candidates, 1)]
    passages = tuple(replace(each, hits=tuple(own[hit.id] for hit in each.hits)) for each in pack.passages)
    note = pack.relevance.note if pack.passages and pack.relevance is not None else None  # of what it sees
    degraded = own_degraded(pack.degraded)
    stages = own_stages(pack.stages)
    return replace(pack, passages=passages, trace=trace, note=note, stages=stages, degraded=degraded)


def own_event(event: AnswerEvent) -> AnswerEvent:
    """Return an event of an answer without what it says of more than its passages."""
    from retrieval_core.types import AnswerDone, RetrievalDone  # noqa: PLC0415 - the handshake does not wait for it

    match event:
        case RetrievalDone(pack=pack) if pack is not None:
            return replace(event, pack=own_pack(pack))
        case AnswerDone(answer=answer):
            return replace(event, answer=own_answer(answer))
        case _:
            return event


def own_answer(answer: Answer) -> Answer:
    """Return an answer without what it says of more than its passages."""
    pack = None if answer.pack is None else own_pack(answer.pack)
    return replace(answer, pack=pack, stages=own_stages(answer.stages), degraded=own_degraded(answer.degraded))


def own_stages(records: Iterable[StageRecord]) -> tuple[StageRecord, ...]:
    """Return records of stages with their times alone."""
    return tuple(replace(record, count_in=None, count_out=None, decision=None) for record in records)


def _are_by_meaning(hits: Sequence[Hit]) -> bool:
    """Whether no search for words has scored any of the hits; false of none, which tell nothing."""
    return bool(hits) and all(hit.scores.lexical is None and hit.scores.fused is None for hit in hits)
