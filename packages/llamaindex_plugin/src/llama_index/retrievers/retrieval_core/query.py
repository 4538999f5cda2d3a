"""Query bundles with filters and settings, which pass through LlamaIndex's query engines."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

from llama_index.core.callbacks.base import global_stack_trace, global_stack_trace_ids
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
    """A query with settings; pass it wherever LlamaIndex takes a query.

    HyDE, sub-questions and fusion make new queries of it, and drop its settings. A retriever that gets such a query
    reports that in ``degraded``; ``retriever.bound(filters=…)`` applies them to every query.

    Attributes:
        filters: A filter for every chunk, in addition to the retriever's filters.
        top_k: The most chunks, 1 to 1000; ``None`` for the retriever's.
        mode: ``hybrid``, ``vector`` or ``keyword``; ``None`` for the retriever's.
    """

    filters: Filters | None = field(default=None, metadata=_JSON_FORM)
    top_k: int | None = None
    mode: SearchMode | None = None

    def __post_init__(self) -> None:
        # A text of its own, so that whoever takes it out of the bundle can be told from who has the same words.
        if type(self.query_str) is str:
            self.query_str = f"{self.query_str} "[:-1]
        self._call: str | None = None
        if not (self.filters is self.top_k is self.mode is None):
            _LATEST.set(ref(self))

    def left_behind_by(self, query: QueryBundle, call: str) -> str | None:
        """Return what to say of a query that reaches a retriever in the course of a call, if it is another one.

        Args:
            query: May be this bundle itself.
            call: Names the call of an engine, or of a retriever of retrievers, that led to it. Only what belongs to the
                first call that this bundle was part of was made of it, and what has this bundle's own text.
        """
        if isinstance(query, RetrievalQueryBundle):
            self._call = call
            return None
        self._call = self._call or call
        if call != self._call and query.query_str is not self.query_str:
            return None
        names = [name for name in ("filters", "top_k", "mode") if getattr(self, name) is not None]
        return (
            f"query: it came without the {', '.join(names)} of the RetrievalQueryBundle {self.query_str!r:.60}; what "
            "makes new queries (HyDE, sub-questions, fusion, chat) leaves them behind: give the engine "
            f"retriever.bound({names[0]}=…)"
        )


def settings_left_behind(query: QueryBundle) -> str | None:
    """Return what to say of a query that was made of one with settings, and has lost them.

    LlamaIndex does not tell what a query was made of. It is taken for one of the latest bundle with settings that was
    made in this context, as long as somebody holds that, and not where a retriever is asked directly.
    """
    latest, calls, traces = _LATEST.get(), global_stack_trace.get(), global_stack_trace_ids.get()
    bundle = None if latest is None else latest()
    # Of the calls the first entry stands for none, and the last one is the retriever's own, as is the last trace. Query
    # engines of users, and chat engines, are traces without being calls.
    is_asked_directly = len(calls) < 3 and len(traces) < 2
    if bundle is None or (is_asked_directly and not isinstance(query, RetrievalQueryBundle)):
        return None
    return bundle.left_behind_by(query, calls[1])


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
