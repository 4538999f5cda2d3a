"""Results as plain JSON values, the same for the command line and for servers."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from retrieval_core.types import (
    AnswerDone,
    RetrievalDone,
    SentenceCited,
    SentenceVerified,
    format_citation,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ingest.report import IndexReport
    from retrieval_core.types import (
        Answer,
        AnswerEvent,
        AnswerSentence,
        Attribution,
        Chunk,
        Citation,
        CitationCheck,
        ContextPack,
        Hit,
        Quote,
        RetrievalResult,
        SentenceCheck,
    )


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
    """Return what an indexing run did as JSON; what was skipped or ignored only where there is any."""
    told = asdict(report)
    for name in ("graph_failures", "skipped_links", "ignored", "removed_as_ignored"):
        if not told[name]:
            del told[name]
    return {**told, "seconds": round(report.seconds, 3)}


def event_to_json(event: AnswerEvent, checks: Sequence[CitationCheck] | None = None) -> dict[str, Any]:
    """Return what happened while a question was answered as JSON, its ``type`` first.

    Args:
        event: Of the stream of an answer.
        checks: Of the answer's sources, where they were checked; for the last event alone.
    """
    told: dict[str, Any] = {"type": event.type}
    if isinstance(event, RetrievalDone):
        confidence = None if event.confidence is None else asdict(event.confidence)
        return {**told, **_evidence_to_json(event.pack), "confidence": confidence}
    if isinstance(event, SentenceCited):
        return {**told, "index": event.index, **_sentence_to_json(event.sentence)}
    if isinstance(event, SentenceVerified):
        return {**told, **_sentence_check_to_json(event.check)}
    if isinstance(event, AnswerDone):
        return {**told, "answer": answer_to_json(event.answer, checks)}
    return {**told, **asdict(event)}


def answer_to_json(answer: Answer, checks: Sequence[CitationCheck] | None = None) -> dict[str, Any]:
    """Return an answer as JSON.

    Args:
        answer: To one question.
        checks: Of its sources, where they were checked.
    """
    checked = {"checks": [_check_to_json(check) for check in checks]} if checks is not None else {}
    return {
        "query": answer.query,
        "text": answer.text,
        "kind": answer.kind,
        "sentences": [
            {
                **_sentence_to_json(sentence),
                "check": None if sentence.check is None else _sentence_check_to_json(sentence.check),
            }
            for sentence in answer.sentences
        ],
        "sources": [citation_to_json(source) for source in answer.sources],
        **_evidence_to_json(answer.pack),
        "confidence": None if answer.confidence is None else asdict(answer.confidence),
        "fallbacks": [{"step": fallback.step, "reason": fallback.reason} for fallback in answer.fallbacks],
        "error": answer.error,
        "degraded": [asdict(entry) for entry in answer.degraded],
        "stages": [asdict(record) for record in answer.stages],
        "usage": None if answer.usage is None else asdict(answer.usage),
        "latency_ms": round(answer.latency_ms, 3),
        **checked,
    }


def citation_to_json(citation: Citation) -> dict[str, Any]:
    """Return a citation as JSON: its number in its pack, where it is from, and its quotes word for word."""
    return {
        "number": citation.number,
        "document_id": citation.document_id,
        "chunk_ids": list(citation.chunk_ids),
        "source": citation.source,
        "title": citation.title,
        "section_path": list(citation.section_path),
        "page_span": [citation.page_span.first, citation.page_span.last] if citation.page_span else None,
        "row_range": list(citation.row_range) if citation.row_range else None,
        "item_range": list(citation.item_range) if citation.item_range else None,
        "quotes": [_quote_to_json(quote) for quote in citation.quotes],
        "citation": format_citation(citation),
    }


def _quote_to_json(quote: Quote) -> dict[str, Any]:
    span = [quote.span.start, quote.span.end] if quote.span else None
    return {"text": quote.text, "span": span, "content_hash": quote.content_hash}


def _evidence_to_json(pack: ContextPack | None) -> dict[str, Any]:
    """Return what an answer can rest on; ``searched`` is false where nothing could be searched."""
    passages = () if pack is None else pack.passages
    return {
        "searched": pack is not None,
        "passages": [
            {
                **citation_to_json(passage.citation),
                "role": passage.role,
                "score": passage.score,
                "shortened": passage.shortened,
            }
            for passage in passages
        ],
        "note": None if pack is None else pack.note,
    }


def _sentence_to_json(sentence: AnswerSentence) -> dict[str, Any]:
    return {
        "text": sentence.text,
        "span": [sentence.span.start, sentence.span.end],
        "says_something": sentence.says_something,
        "needs_source": sentence.needs_source,
        "attributions": [_attribution_to_json(attribution) for attribution in sentence.attributions],
    }


def _attribution_to_json(attribution: Attribution) -> dict[str, Any]:
    return {
        "number": attribution.number,
        "marker": [attribution.marker.start, attribution.marker.end] if attribution.marker else None,
        "problem": attribution.problem,
        "citation": None if attribution.citation is None else citation_to_json(attribution.citation),
    }


def _sentence_check_to_json(check: SentenceCheck) -> dict[str, Any]:
    return {
        "sentence": check.sentence,
        "verdict": check.verdict,
        "passage": check.passage,
        "quote": None if check.quote is None else _quote_to_json(check.quote),
        "reason": check.reason,
    }
