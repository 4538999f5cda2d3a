"""Indexes as frameworks are given them, and hits as their documents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from retrieval_core.errors import InvalidParameterError
from retrieval_core.index.open import open_index
from retrieval_core.index.serialization import hit_to_json
from retrieval_core.pipeline.query_engine import QueryEngine

if TYPE_CHECKING:
    from retrieval_core.types import Hit, RetrievalResult


def engine_of(index: object) -> QueryEngine:
    """Return an open index; a path is opened.

    Raises:
        InvalidParameterError: It is neither.
        ConfigurationError: The settings of the index are wrong.
    """
    if isinstance(index, QueryEngine):
        return index
    if isinstance(index, (str, Path)):
        return open_index(index)
    msg = f"index must be an index of open_index() or open_indexes(), or a path, got a {type(index).__name__}"
    raise InvalidParameterError(msg)


def metadata_of(hit: Hit, result: RetrievalResult) -> dict[str, Any]:
    """Return the origin of a hit and its own metadata, as JSON.

    The origin is ``source``, ``title``, ``section``, ``lines``, ``pages``, ``document_id``, ``chunk_id``, ``citation``
    and ``source_index``, as far as it is known. ``score`` is the score of the hit. ``degraded`` lists the failures and
    fallbacks of the query, if there are any. If the chunk has a metadata field of one of these names, it keeps the
    name, as in filters.
    """
    json = hit_to_json(hit, 1)
    origin = {
        "source": json["source"] or json["document_id"],
        "title": json["title"],
        "section": " > ".join(json["section_path"]) or None,
        "lines": json["lines"],
        "pages": json["page_span"],
        "document_id": json["document_id"],
        "chunk_id": json["id"],
        "citation": json["citation"],
        "source_index": json.get("source_index"),
        "score": hit.score,
        "degraded": [f"{item.stage}: {item.reason}" for item in result.degraded] or None,
    }
    return {name: value for name, value in origin.items() if value is not None} | json["metadata"]
