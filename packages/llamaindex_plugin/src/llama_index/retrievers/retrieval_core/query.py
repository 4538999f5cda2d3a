"""Query bundles with filters and settings, which pass through LlamaIndex's query engines."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

from llama_index.core.schema import QueryBundle

from llama_index.retrievers.retrieval_core.filters import Filters, as_filter
from retrieval_core.types import SearchMode
from retrieval_core.types.filters.syntax import to_json

_LATEST: ContextVar[ref[RetrievalQueryBundle] | None] = ContextVar("_LATEST", default=None)
"""The latest bundle with settings that was made in this context."""


def _as_json(filters: Filters | None) -> dict[str, Any] | None:
    condition = as_filter(filters)
    return None if condition is None else to_json(condition)


def _unchanged(filters: Any) -> Any:
    return filters


_JSON_FORM: dict[str, Any] = {"dataclasses_json": {"encoder": _as_json, "decoder": _unchanged}}
"""How :class:`QueryBundle`, which is a class of dataclasses-json, writes and reads filters."""


@dataclass
class RetrievalQueryBundle(QueryBundle):
    """A question with settings of its own; pass it wherever LlamaIndex takes a query.

    What makes new queries of it, as HyDE, sub-questions and fusion do, leaves the settings behind. A retriever that
    gets such a query says so, among what is degraded; ``retriever.bound(filters=…)`` has them in every query.

    Attributes:
        filters: Conditions on every passage, on top of the retriever's own filters.
        top_k: The most passages, 1 to 1000; the retriever's where it is ``None``.
        mode: Search by meaning, by words, or by both; the retriever's where it is ``None``.
    """

    filters: Filters | None = field(default=None, metadata=_JSON_FORM)
    top_k: int | None = None
    mode: SearchMode | None = None

    def __post_init__(self) -> None:
        if not (self.filters is self.top_k is self.mode is None):
            _LATEST.set(ref(self))


def settings_left_behind(query: QueryBundle) -> str | None:
    """Return what to say of a query without settings that reaches a retriever while one with settings is asked.

    LlamaIndex does not tell of which query another one was made, so this looks for a bundle with settings that was made
    in this context, and that somebody still holds.
    """
    latest = _LATEST.get()
    bundle = None if latest is None else latest()
    if bundle is None or isinstance(query, RetrievalQueryBundle):
        return None
    names = [name for name in ("filters", "top_k", "mode") if getattr(bundle, name) is not None]
    return (
        f"query: it came without the {', '.join(names)} of the RetrievalQueryBundle {bundle.query_str!r:.60}; what "
        "makes new queries (HyDE, sub-questions, fusion) leaves them behind: give the engine "
        f"retriever.bound({names[0]}=…)"
    )


def question(
    query: str | QueryBundle, *, filters: Filters | None, top_k: int | None, mode: SearchMode | None
) -> RetrievalQueryBundle:
    """Return a query with the given settings in place of its own."""
    latest = _LATEST.get()
    plain = QueryBundle(query) if isinstance(query, str) else query
    given = plain if isinstance(plain, RetrievalQueryBundle) else RetrievalQueryBundle(plain.query_str)
    asked = RetrievalQueryBundle(
        plain.query_str,
        image_path=plain.image_path,
        custom_embedding_strs=plain.custom_embedding_strs,
        embedding=plain.embedding,
        filters=given.filters if filters is None else filters,
        top_k=given.top_k if top_k is None else top_k,
        mode=given.mode if mode is None else mode,
    )
    _LATEST.set(latest)  # nothing makes other queries of this one
    return asked
