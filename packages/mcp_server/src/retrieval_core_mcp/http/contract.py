"""Functions of the service with the responses of the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from retrieval_core.compat.service import CollectionInfo, ValidationResult
from retrieval_core.index.serialization import chunk_to_json
from retrieval_core.service import checking, contents, reading
from retrieval_core_mcp.http.answers import ValidationAnswer
from retrieval_core_mcp.http.sources import source_of

if TYPE_CHECKING:
    from retrieval_core.service.service_context import ServiceContext


async def read_chunk(context: ServiceContext, request: reading.ChunkRequest) -> dict[str, Any]:
    """Return a chunk as it is stored, or a section that a citation names, with its source."""
    chunk = await reading.read_cited(context, request)
    told = chunk_to_json(chunk)
    return {"text": told.pop("text"), "metadata": source_of(chunk, context.index(request.index)), "fields": told}


async def validate_chunk(context: ServiceContext, request: reading.ChunkRequest) -> dict[str, Any]:
    """Compare a chunk with its document, as the specification's ``ValidationResult``."""
    validated = await checking.validate_chunk(context, request)
    result = ValidationResult.of(validated.validation).model_dump()
    return ValidationAnswer(**result, file_changed=validated.file_changed).model_dump(mode="json")


async def describe_index(context: ServiceContext, request: contents.IndexRequest) -> CollectionInfo:
    """Return an index as the specification's ``CollectionInfo``."""
    return collection_of(await contents.describe_index(context, request))


def collection_of(summary: contents.IndexSummary) -> CollectionInfo:
    """Return what is known of an index, likewise."""
    return CollectionInfo(
        name=summary.name,
        vector_size=summary.vector_size,
        distance_metric=cast("Any", summary.distance),
        points_count=summary.chunks or 0,
        indexed_vectors_count=summary.embedded,
        status=summary.status,
    )
