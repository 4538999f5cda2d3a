"""What an answer leaves out for a tenant: what was said of the whole index, and not of the tenant's own passages.

The tenant's filter keeps other passages out of every search and every reading. Beside passages an answer has sentences
and numbers of its own: why a filter lets nothing pass names the fields of all passages, and what a stage found is
counted before the filter where the stage knows none, as a graph does. A tenant sees neither.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from retrieval_core.types import AnswerDone, RetrievalDone

if TYPE_CHECKING:
    from collections.abc import Iterable

    from retrieval_core.types import AnswerEvent, ContextPack, RetrievalResult, StageRecord


def own_stages(records: Iterable[StageRecord]) -> tuple[StageRecord, ...]:
    """Return records of stages with their times alone."""
    return tuple(replace(record, count_in=None, count_out=None, decision=None) for record in records)


def own_result(result: RetrievalResult) -> RetrievalResult:
    """Return a result without why nothing was found, and without the words that led to a hit beside its own."""
    told = {name: value for name, value in result.metadata.items() if name != "note"}
    hits = tuple(
        replace(hit, found_by=tuple(replace(origin, text="") for origin in hit.found_by)) if hit.found_by else hit
        for hit in result.hits
    )
    return replace(result, hits=hits, metadata=told, trace=own_stages(result.trace))


def own_pack(pack: ContextPack) -> ContextPack:
    """Return a pack without what it says of more than its passages."""
    return replace(pack, note=None, stages=own_stages(pack.stages))


def own_event(event: AnswerEvent) -> AnswerEvent:
    """Return an event of an answer without what it says of more than its passages."""
    match event:
        case RetrievalDone(pack=pack) if pack is not None:
            return replace(event, pack=own_pack(pack))
        case AnswerDone(answer=answer):
            pack = None if answer.pack is None else own_pack(answer.pack)
            return replace(event, answer=replace(answer, pack=pack, stages=own_stages(answer.stages)))
        case _:
            return event
