"""Narrow requests to the chunks of a tenant, and remove everything from results that reveals other chunks.

The filter keeps other chunks out of every search and read. A result also contains messages and numbers: a warning
about an unknown field names a field of all chunks, the counts of a stage may be from before the filter, and BM25 weighs
a term by how many of all chunks contain it. A tenant gets none of these.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from retrieval_core.errors import SearchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core.types import Answer, ContextPack, Degradation, Hit, RetrievalResult, StageRecord
    from retrieval_core.types.filters import Filter

BEING_BUILT = "more may be found later"
"""The message that a tenant gets while an index is being built; it has no counts."""


def narrow(filters: Mapping[str, Any] | None, tenant: Filter | None) -> Mapping[str, Any] | Filter | None:
    """Return the caller's filter combined with its tenant's. An empty filter means none, since assistants send it.

    Raises:
        FilterError: The caller's filter is invalid.
    """
    if tenant is None or not filters:
        return tenant or filters or None
    from retrieval_core.types.filters import And  # noqa: PLC0415 - the handshake does not wait for it
    from retrieval_core.types.filters.syntax import parse_filter  # noqa: PLC0415 - likewise

    return And((tenant, parse_filter(filters)))


def result_for_tenant(result: RetrievalResult) -> RetrievalResult:
    """Return a result without the note on its filter, and without counts and names of other chunks."""
    return replace(
        result,
        hits=hits_for_tenant(result.hits),
        metadata={name: value for name, value in result.metadata.items() if name != "note"},
        trace=records_for_tenant(result.trace),
        degraded=degraded_for_tenant(result.degraded),
    )


def degraded_for_tenant(entries: Iterable[Degradation]) -> tuple[Degradation, ...]:
    """Return degradations without warnings about filters, which name the fields of all chunks, and without counts."""
    return tuple(
        replace(entry, reason=BEING_BUILT) if is_stage(entry.stage, "index") else entry
        for entry in entries
        if not is_stage(entry.stage, "filter")
    )


def error_as_shown(context: ServiceContext, error: SearchError) -> SearchError:
    """Return an error of a search; if ``strict`` raised it for degradations, with those that a tenant may see."""
    degraded = error.details.get("degraded")
    if context.tenant is None or degraded is None:
        return error
    shown = degraded_for_tenant(degraded)
    reasons = "; ".join(f"{entry.stage}: {entry.reason}" for entry in shown)
    return SearchError(reasons or "the result is degraded, and the setting strict is true", {"degraded": shown})


def without_counts(context: ServiceContext, progress: str) -> str:
    """Return how far a new index is built; a tenant doesn't learn how many files there are."""
    return progress if context.tenant is None else BEING_BUILT


def is_stage(stage: str, name: str) -> bool:
    """Whether a stage has a name, also as the stage of one of several indexes, such as ``index docs: filter``."""
    return stage.rpartition(": ")[2] == name


def hits_for_tenant(hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Return the hits of a result, best first, with scores that depend only on the hit and the query.

    After a keyword search the score is 1 divided by the rank, so that the order is the same.
    """
    by_vector = _are_by_vector(hits)
    return tuple(
        replace(
            hit,
            score=hit.score if by_vector else 1 / rank,
            scores=hit.scores if by_vector else replace(hit.scores, lexical=None, fused=None, mmr=None, final=None),
            found_by=tuple(replace(origin, text="") for origin in hit.found_by),
        )
        for rank, hit in enumerate(hits, 1)
    )


def pack_for_tenant(pack: ContextPack) -> ContextPack:
    """Return a pack without counts and names of other chunks."""
    found = sorted((hit for passage in pack.passages for hit in passage.hits), key=lambda hit: (-hit.score, hit.id))
    own = {hit.id: hit for hit in hits_for_tenant(found)}
    trace = dict(pack.trace)
    if not _are_by_vector(found):
        candidates: Any = trace["pinecone_candidates"]
        trace["pinecone_candidates"] = [{**each, "score": 1 / rank} for rank, each in enumerate(candidates, 1)]
    degraded = degraded_for_tenant(pack.degraded)
    note = pack.note if pack.note in {entry.reason for entry in degraded} else None
    return replace(
        pack,
        passages=tuple(replace(each, hits=tuple(own[hit.id] for hit in each.hits)) for each in pack.passages),
        trace=trace,
        note=pack.relevance.note if pack.passages and pack.relevance is not None else note,
        stages=records_for_tenant(pack.stages),
        degraded=degraded,
    )


def answer_for_tenant(answer: Answer) -> Answer:
    """Return an answer without counts and names of other chunks."""
    return replace(
        answer,
        pack=None if answer.pack is None else pack_for_tenant(answer.pack),
        stages=records_for_tenant(answer.stages),
        degraded=degraded_for_tenant(answer.degraded),
    )


def records_for_tenant(records: Iterable[StageRecord]) -> tuple[StageRecord, ...]:
    """Return records of stages without counts and decisions."""
    return tuple(replace(record, count_in=None, count_out=None, decision=None) for record in records)


def _are_by_vector(hits: Sequence[Hit]) -> bool:
    """Whether no keyword search has scored any of the hits; false if there are none, which reveal nothing."""
    return bool(hits) and all(hit.scores.lexical is None and hit.scores.fused is None for hit in hits)
