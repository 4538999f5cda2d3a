"""Results as plain JSON values, the same for the command line and for servers."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from retrieval_core.types import format_citation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ingest.report import IndexReport
    from retrieval_core.types import Chunk, CitationCheck, ContextPack, Hit, RetrievalResult


def chunk_to_json(chunk: Chunk) -> dict[str, Any]:
    """Return a chunk as JSON: its text, where it comes from, and its metadata."""
    return {
        "id": chunk.id,
        "document_id": chunk.document_id,
        "text": chunk.text,
        "title": chunk.title,
        "source": chunk.source,
        "section_path": list(chunk.section_path),
        "page_span": [chunk.page_span.first, chunk.page_span.last] if chunk.page_span else None,
        "row_range": list(chunk.row_range) if chunk.row_range else None,
        "item_range": list(chunk.item_range) if chunk.item_range else None,
        "span": [chunk.span.start, chunk.span.end] if chunk.span else None,
        "chunk_index": chunk.chunk_index,
        "total_chunks": chunk.total_chunks,
        "parent_id": chunk.parent_id,
        "content_hash": chunk.content_hash,
        "timestamp": chunk.timestamp.isoformat() if chunk.timestamp else None,
        "embedding_model": chunk.embedding_model,
        "metadata": chunk.metadata,
        "citation": format_citation(chunk),
    }


def hit_to_json(hit: Hit, rank: int) -> dict[str, Any]:
    """Return a hit as JSON: its rank, from 1, its scores and where it is from, then its chunk.

    ``found_by``, ``excerpts`` and ``source_index`` are there where the hit has them.
    """
    own: dict[str, Any] = {
        "rank": rank,
        "score": hit.score,
        "scores": asdict(hit.scores),
        "relevance_reason": hit.relevance_reason,
        "evidence": None if hit.evidence is None else asdict(hit.evidence),
    }
    if hit.found_by:
        own["found_by"] = [asdict(origin) for origin in hit.found_by]
    if hit.excerpts:
        own["excerpts"] = [[span.start, span.end] for span in hit.excerpts]
    if hit.source_index is not None:
        own["source_index"] = hit.source_index
    return {**own, **chunk_to_json(hit.chunk)}


def result_to_json(result: RetrievalResult, *, with_trace: bool = False) -> dict[str, Any]:
    """Return a result as JSON.

    Args:
        result: Of one query.
        with_trace: Whether what each stage did is in it, as ``trace``.
    """
    trace = {"trace": [asdict(record) for record in result.trace]} if with_trace else {}
    return {
        "query": result.query,
        "hits": [hit_to_json(hit, rank) for rank, hit in enumerate(result.hits, start=1)],
        "degraded": [asdict(entry) for entry in result.degraded],
        "latency_ms": round(result.latency_ms, 3),
        "from_cache": result.from_cache,
        "metadata": result.metadata,
        "rewrites": [asdict(rewrite) for rewrite in result.rewrites],
        "evaluation": None if result.evaluation is None else asdict(result.evaluation),
        **trace,
    }


def pack_to_json(pack: ContextPack, checks: Sequence[CitationCheck] | None = None) -> dict[str, Any]:
    """Return a context pack as JSON.

    Args:
        pack: Of one query.
        checks: Of its citations, where they were checked.
    """
    checked = {"checks": [_check_to_json(check) for check in checks]} if checks is not None else {}
    return {
        "query": pack.query,
        "context_pack": pack.context_pack,
        "token_count": pack.token_count,
        "max_tokens": pack.max_tokens,
        "citations": list(pack.citations),
        "selected_chunks": list(pack.selected_chunks),
        "ledger": [asdict(entry) for entry in pack.ledger],
        "trace": pack.trace,
        "stages": [asdict(record) for record in pack.stages],
        "degraded": [asdict(entry) for entry in pack.degraded],
        "latency_ms": round(pack.latency_ms, 3),
        "note": pack.note,
        **checked,
    }


def _check_to_json(check: CitationCheck) -> dict[str, Any]:
    return {"number": check.citation.number, "matches": check.matches, "differences": list(check.differences)}


def report_to_json(report: IndexReport) -> dict[str, Any]:
    """Return what an indexing run did as JSON; ``graph_failures`` is there where there are any."""
    told = asdict(report)
    if not report.graph_failures:
        del told["graph_failures"]
    return {**told, "seconds": round(report.seconds, 3)}
