"""Query bundles with filters and settings, which pass through LlamaIndex's query engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from llama_index.core.schema import QueryBundle

if TYPE_CHECKING:
    from llama_index.retrievers.retrieval_core.filters import Filters
    from retrieval_core.types import SearchMode


@dataclass
class RetrievalQueryBundle(QueryBundle):
    """A question with settings of its own; pass it wherever LlamaIndex takes a query.

    Attributes:
        filters: Conditions on every passage, on top of the retriever's own filters.
        top_k: The most passages, 1 to 1000; the retriever's where it is ``None``.
        mode: Search by meaning, by words, or by both; the retriever's where it is ``None``.
    """

    filters: Filters | None = None
    top_k: int | None = None
    mode: SearchMode | None = None


def question(
    query: str | QueryBundle, *, filters: Filters | None, top_k: int | None, mode: SearchMode | None
) -> RetrievalQueryBundle:
    """Return a query with the given settings in place of its own."""
    if isinstance(query, str):
        return RetrievalQueryBundle(query, filters=filters, top_k=top_k, mode=mode)
    given = query if isinstance(query, RetrievalQueryBundle) else RetrievalQueryBundle(query.query_str)
    return RetrievalQueryBundle(
        query.query_str,
        image_path=query.image_path,
        custom_embedding_strs=query.custom_embedding_strs,
        embedding=query.embedding,
        filters=given.filters if filters is None else filters,
        top_k=given.top_k if top_k is None else top_k,
        mode=given.mode if mode is None else mode,
    )
