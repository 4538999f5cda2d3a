"""Documents as their readers see them: as they are kept, or joined from their passages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from retrieval_core.types import JSON, Chunk, Document
    from retrieval_core.types.filters import Filter

BETWEEN = "\n\n"
"""What joins the passages of a document without its text."""


@dataclass(frozen=True, slots=True)
class PlacedChunk:
    """A passage, and where it lies in the text of its document, in code points."""

    chunk: Chunk
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class WholeDocument:
    """A document with its passages.

    Attributes:
        chunks: Those whose place in the text is known, in order.
        timestamp: When it was indexed.
    """

    id: str
    text: str
    chunks: tuple[PlacedChunk, ...]
    title: str | None = None
    source: str | None = None
    timestamp: datetime | None = None
    metadata: Mapping[str, JSON] = field(default_factory=dict[str, "JSON"])


def fields_of(document: Document) -> dict[str, JSON]:
    """Return the fields of a document that filters can name."""
    moment = document.timestamp.isoformat() if document.timestamp else None
    return {"source": document.source, "timestamp": moment, **document.metadata}


def may_see(document: Document, condition: Filter | None) -> bool:
    """Whether a document itself passes a condition, and not passages of it alone."""
    from retrieval_core.types.filters import matches  # noqa: PLC0415 - the handshake does not wait for it

    return condition is None or matches(condition, fields_of(document))


def kept(document: Document, chunks: Sequence[Chunk]) -> WholeDocument:
    """Return a document with its passages, which are in order."""
    return WholeDocument(
        document.id,
        document.text,
        tuple(PlacedChunk(chunk, chunk.span.start, chunk.span.end) for chunk in chunks if chunk.span is not None),
        document.title,
        document.source,
        document.timestamp,
        document.metadata,
    )


def joined(document_id: str, chunks: Sequence[Chunk]) -> WholeDocument | None:
    """Return a document made of its passages, which are in order; ``None`` where there is none.

    Of its fields it has those that all of these share.
    """
    if not chunks:
        return None
    placed: list[PlacedChunk] = []
    end = -len(BETWEEN)
    for chunk in chunks:
        start = end + len(BETWEEN)
        end = start + len(chunk.text)
        placed.append(PlacedChunk(chunk, start, end))
    first = chunks[0]
    shared = {
        name: value
        for name, value in first.metadata.items()
        if all(name in chunk.metadata and chunk.metadata[name] == value for chunk in chunks)
    }
    text = BETWEEN.join(chunk.text for chunk in chunks)
    return WholeDocument(document_id, text, tuple(placed), first.title, first.source, first.timestamp, shared)
