"""Why a search returned nothing: an empty index, one that is being built, or a filter that excludes everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrieval_core.errors import RetrievalError
from retrieval_core.service.tenancy import narrow, without_counts
from retrieval_core.types.filters import And
from retrieval_core.types.filters.syntax import parse_filter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.service.service_context import ServiceContext

EMPTY = "The index is empty: it has no documents yet."
EXCLUDED = "The filter excludes all documents."
NO_MATCH = "Not in these documents: nothing matches the query."


async def explain_emptiness(context: ServiceContext, index: str | None, filters: Mapping[str, Any] | None) -> str:
    """Return in a sentence why a search without results has none, as far as the caller may know.

    A search that failed or fell back has its reason in ``degraded``.

    Args:
        index: Name of the searched index; ``None`` for the first one.
        filters: Those of the search, without the tenant's.
    """
    from retrieval_core.service.contents import IndexRequest, describe_index  # noqa: PLC0415 - most searches find

    try:
        if (progress := await (await context.index(index).index()).progress_note()) is not None:
            reason = without_counts(context, progress.reason)
            return f"Nothing found so far: the index is still being built, {reason}. Search again later."
        counted = await describe_index(context, IndexRequest(index=index))
        if counted.chunks == 0:
            return EMPTY
        if filters:
            store = await context.index(index).store()
            narrowed: Any = narrow(filters, context.tenant)
            condition = narrowed if isinstance(narrowed, And) else parse_filter(narrowed)
            if "count_chunks" in store.capabilities and not await store.count_chunks(condition):
                return EXCLUDED
    except RetrievalError:  # the search itself has succeeded
        return NO_MATCH
    if counted.status == "yellow":
        return (
            f"Nothing found so far: the index is still being built, and {counted.embedded:,} of {counted.chunks:,} "
            "chunks have vectors. Search again later."
        )
    return NO_MATCH
