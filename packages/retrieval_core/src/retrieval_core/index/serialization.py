"""Results as plain JSON values, the same for the command line and for servers."""

from __future__ import annotations

from dataclasses import asdict, fields, is_dataclass, replace
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.types import (
    AnswerDone,
    Citation,
    PageSpan,
    RetrievalDone,
    SentenceCited,
    SentenceVerified,
    Span,
    format_citation,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.types import (
        Answer,
        AnswerEvent,
        Chunk,
        CitationCheck,
        ContextPack,
        Hit,
        Relevance,
        RetrievalResult,
    )

_CHUNK = (
    "id document_id text title source section_path page_span row_range item_range lines span chunk_index total_chunks "
    "parent_id content_hash timestamp embedding_model metadata"
)
_CITATION = "number document_id chunk_ids source title section_path page_span row_range item_range lines quotes"
_SENTENCE = "text span says_something needs_source attributions"


def chunk_to_json(chunk: Chunk) -> dict[str, Any]:
    """Return a chunk as JSON: its text, where it comes from, and its metadata."""
    return {**_fields(chunk, _CHUNK), "citation": format_citation(chunk)}


def hit_to_json(hit: Hit, rank: int) -> dict[str, Any]:
    """Return a hit as JSON: its rank, from 1, its scores and where it is from, then its chunk.

    ``found_by``, ``excerpts`` and ``source_index`` are there where the hit has them. The lines of a hit with excerpts
    are those of the excerpts.
    """
    own: dict[str, Any] = {
        "rank": rank,
        "score": hit.score,
        **_fields(hit, "scores relevance_reason evidence"),
    }
    own |= {name: value for name, value in _fields(hit, "found_by excerpts").items() if value}
    if hit.source_index is not None:
        own["source_index"] = hit.source_index
    shown = hit.chunk if not hit.excerpts else replace(hit.chunk, lines=hit.lines)
    return {**own, **chunk_to_json(shown)}


def result_to_json(result: RetrievalResult, *, with_trace: bool = False) -> dict[str, Any]:
    """Return a result as JSON.

    Args:
        result: Of one query.
        with_trace: Whether what each stage did is in it, as ``trace``.
    """
    return {
        "query": result.query,
        "hits": [hit_to_json(hit, rank) for rank, hit in enumerate(result.hits, start=1)],
        "latency_ms": round(result.latency_ms, 3),
        "relevance": relevance_to_json(result.relevance),
        **_fields(result, "degraded from_cache metadata rewrites evaluation" + " trace" * with_trace),
    }


def relevance_to_json(relevance: Relevance | None) -> dict[str, Any] | None:
    """Return whether hits answer their query as JSON; ``None`` if nobody judged them."""
    if relevance is None:
        return None
    return {
        "value": relevance.value,
        "unlikely": relevance.is_unlikely,
        "unknown": list(relevance.unknown),
        "other_language": relevance.is_of_another_language,
        "note": relevance.note,
        "explanation": relevance.explanation,
    }


def pack_to_json(pack: ContextPack, checks: Sequence[CitationCheck] | None = None) -> dict[str, Any]:
    """Return a context pack as JSON.

    Args:
        pack: Of one query.
        checks: Of its citations, where they were checked.
    """
    checked = {"checks": [_check_to_json(check) for check in checks]} if checks is not None else {}
    names = "query context_pack token_count max_tokens citations selected_chunks ledger trace stages degraded note"
    judged = {"relevance": relevance_to_json(pack.relevance)}
    return {**_fields(pack, names), **judged, "latency_ms": round(pack.latency_ms, 3), **checked}


def _check_to_json(check: CitationCheck) -> dict[str, Any]:
    told = {"number": check.citation.number, "matches": check.matches, "differences": list(check.differences)}
    return {**told, "verdict": check.verdict, **({"found": list(check.found)} if check.found else {})}


def event_to_json(event: AnswerEvent, checks: Sequence[CitationCheck] | None = None) -> dict[str, Any]:
    """Return what happened while a question was answered as JSON, its ``type`` first.

    Args:
        event: Of the stream of an answer.
        checks: Of the answer's sources, where they were checked; for the last event alone.
    """
    told: dict[str, Any] = {"type": event.type}
    if isinstance(event, RetrievalDone):
        return {**told, **_evidence_to_json(event.pack), "confidence": _plain(event.confidence)}
    if isinstance(event, SentenceCited):
        return {**told, "index": event.index, **_fields(event.sentence, _SENTENCE)}
    if isinstance(event, SentenceVerified):
        return {**told, **_plain(event.check)}
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
        **_fields(answer, "query text kind sources confidence error degraded stages usage"),
        **_evidence_to_json(answer.pack),
        "sentences": [_fields(sentence, f"{_SENTENCE} check") for sentence in answer.sentences],
        "fallbacks": [_fields(fallback, "step reason") for fallback in answer.fallbacks],
        "latency_ms": round(answer.latency_ms, 3),
        **checked,
    }


def citation_to_json(citation: Citation) -> dict[str, Any]:
    """Return a citation as JSON: its number in its pack, where it is from, and its quotes word for word."""
    return {**_fields(citation, _CITATION), "citation": format_citation(citation)}


def _evidence_to_json(pack: ContextPack | None) -> dict[str, Any]:
    """Return what an answer can rest on; ``searched`` is false where nothing could be searched."""
    passages = () if pack is None else pack.passages
    return {
        "searched": pack is not None,
        "passages": [
            {**citation_to_json(passage.citation), **_fields(passage, "role score shortened")} for passage in passages
        ],
        "note": None if pack is None else pack.note,
        "relevance": None if pack is None else relevance_to_json(pack.relevance),
    }


def _fields(record: object, names: str) -> dict[str, Any]:
    return {name: _plain(getattr(record, name)) for name in names.split()}


def _plain(value: object) -> Any:
    """Return a value as JSON: a span as its two ends, any other record by the names of its fields."""
    if isinstance(value, tuple):
        return [_plain(item) for item in cast("tuple[Any, ...]", value)]
    if isinstance(value, dict):  # frozen, as its lists are tuples
        return {name: _plain(item) for name, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, datetime):
        return value.isoformat()
    if not (names := _field_names(type(value))):
        return value
    if isinstance(value, Citation):
        return citation_to_json(value)
    values = {name: _plain(getattr(value, name)) for name in names}
    return list(values.values()) if isinstance(value, (Span, PageSpan)) else values


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()
