"""Return the source of a chunk in the form of the specification's ``ChunkMetadata``."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin, urlsplit

from retrieval_core.service.service_context import in_utc
from retrieval_core_mcp.tools.names import URL_FIELDS

if TYPE_CHECKING:
    from retrieval_core.service.served import ServedIndex
    from retrieval_core.types import Chunk

_LONGEST_TITLE = 500


def source_of(chunk: Chunk, served: ServedIndex) -> dict[str, Any]:
    """Return where a chunk is from."""
    told: dict[str, Any] = {"chunk_id": chunk.id, "url": _url(chunk, served)}
    if "chunk_index" not in chunk.missing_fields:
        told["position"] = chunk.chunk_index
    if (timestamp := chunk.timestamp or _as_moment(chunk.metadata.get("timestamp"))) is not None:
        told["timestamp"] = in_utc(timestamp)
    if chunk.title is not None:
        told["document_title"] = chunk.title[:_LONGEST_TITLE]
    if chunk.lines is not None:
        told["lines"] = chunk.lines
    own_id = chunk.metadata.get("chunk_id")
    if isinstance(own_id, (int, str)) and not isinstance(own_id, bool):
        told["payload_chunk_id"] = own_id
    return told


def _url(chunk: Chunk, served: ServedIndex) -> str:
    for name in URL_FIELDS:
        if isinstance(own := chunk.metadata.get(name), str) and is_url(own):
            return own
    if chunk.source is not None and is_url(chunk.source):
        return chunk.source
    return _url_of_document(chunk.document_id, served.name, served.base_url)


@lru_cache(1_000)
def _url_of_document(document_id: str, index: str, base_url: str | None) -> str:
    if base_url is not None:
        return urljoin(base_url, quote(document_id))
    return f"urn:retrieval:{quote(index, safe='')}:{quote(document_id, safe='')}"


def _as_moment(written: object) -> datetime | None:
    """Return the time that a field of another program has in ISO 8601; ``None`` if it has none."""
    if not isinstance(written, str):
        return None
    try:
        moment = datetime.fromisoformat(written)
        return moment if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def is_url(text: str) -> bool:
    """Whether a text is an absolute address of the web."""
    if not text[:8].lower().startswith(("http://", "https://")):  # most texts, in a fraction of the time
        return False
    if any(character.isspace() or ord(character) < 32 for character in text):
        return False
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.netloc)
