"""Haystack: a retriever component over an index.

::

    from haystack import Pipeline
    from retrieval_core.integrations.haystack import RetrievalCoreRetriever

    pipeline = Pipeline()
    pipeline.add_component("retriever", RetrievalCoreRetriever("notes.db", top_k=4))
    documents = pipeline.run({"retriever": {"query": "how far away is the moon"}})["retriever"]["documents"]
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.adapters.local_models.work import needing_extra

with needing_extra("haystack", "The retriever of Haystack"):
    from haystack import Document, component, default_from_dict, default_to_dict

from retrieval_core.errors import FilterError, InvalidParameterError
from retrieval_core.integrations.hits import engine_of, metadata_of
from retrieval_core.pipeline.options import MAX_TOP_K, checked_number, condition_of
from retrieval_core.pipeline.stages.format import shown_text
from retrieval_core.types.filters import check_filter_depth, shown

if TYPE_CHECKING:
    from typing import Self

    from retrieval_core.pipeline.options import Filters, QueryOptions
    from retrieval_core.pipeline.query_engine import QueryEngine
    from retrieval_core.types import RetrievalResult, SearchMode
    from retrieval_core.types.filters import Filter

_OPERATORS = {
    "==": "$eq",
    "!=": "$ne",
    ">": "$gt",
    ">=": "$gte",
    "<": "$lt",
    "<=": "$lte",
    "in": "$in",
    "not in": "$nin",
}
_PARTS = frozenset({"field", "conditions"})


@component
class RetrievalCoreRetriever:
    """Search an index from Haystack.

    The ``meta`` of each document have its origin: ``source``, ``title``, ``section``, ``lines``, ``pages``,
    ``document_id``, ``chunk_id`` and ``citation``, and then the document's own fields, which keep their names.
    ``score`` is comparable within one query only. ``id`` is the chunk's.

    Args:
        index: An open index, or several of :func:`retrieval_core.open_indexes`; or the path of one. A pipeline can be
            saved only if it is a path.
        filters: Metadata filter that every document must match, in Haystack's form or that of the library. A filter of
            :meth:`run` replaces it.
        top_k: Most documents, 1 to 1000. Default: as configured, 10.
        mode: ``hybrid``, ``vector`` or ``keyword``. Default: as configured.

    Raises:
        InvalidParameterError: ``index`` is neither an index nor a path, or ``top_k`` is out of range.
        FilterError: The filter is invalid.
    """

    def __init__(
        self,
        index: QueryEngine | str | Path,
        *,
        filters: Filters = None,
        top_k: int | None = None,
        mode: SearchMode | None = None,
    ) -> None:
        as_filter(filters)
        self.index = engine_of(index)
        self.filters = filters
        self.top_k = None if top_k is None else checked_number("top_k", top_k, MAX_TOP_K)
        self.mode: SearchMode | None = mode
        self._path = str(index) if isinstance(index, (str, Path)) else None

    def warm_up(self) -> None:
        """Load the models, so that the first query doesn't have to wait for them."""
        self.index.load()

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the documents that answer a query, best first, as ``documents``.

        Raises:
            RetrievalError: As :meth:`retrieval_core.Index.retrieve`.
        """
        return _documents(self.index.retrieve(query, self._filter(filters), **self._options(top_k)))

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the documents that answer a query, best first, as ``documents``.

        Raises:
            RetrievalError: As :meth:`retrieval_core.Index.aretrieve`.
        """
        return _documents(await self.index.aretrieve(query, self._filter(filters), **self._options(top_k)))

    def _filter(self, given: dict[str, Any] | None) -> Filter | None:
        return as_filter(self.filters if given is None else given)

    def _options(self, top_k: int | None) -> QueryOptions:
        return {"top_k": self.top_k if top_k is None else top_k, "mode": self.mode}

    def to_dict(self) -> dict[str, Any]:
        """Return the component as a dictionary.

        Raises:
            InvalidParameterError: It was made of an open index, or with a filter that is not JSON.
        """
        if self._path is None or not isinstance(self.filters, (dict, type(None))):
            msg = "only a retriever of a path, with a filter in JSON, can be saved; make it with the path of the index"
            raise InvalidParameterError(msg)
        return default_to_dict(self, index=self._path, filters=self.filters, top_k=self.top_k, mode=self.mode)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return the component of a dictionary; its index is opened."""
        return default_from_dict(cls, data)


def as_filter(filters: Filters) -> Filter | None:
    """Return a filter in Haystack's form, or one of the library.

    Raises:
        FilterError: It is not well formed.
    """
    is_theirs = isinstance(filters, Mapping) and "operator" in filters and not filters.keys().isdisjoint(_PARTS)
    return condition_of(_translated(filters) if is_theirs else filters)


def _translated(given: object, depth: int = 0) -> dict[str, Any]:
    check_filter_depth(depth)
    fields: Mapping[str, Any] = cast("Any", given) if isinstance(given, Mapping) else {}
    operator, conditions, field = fields.get("operator"), fields.get("conditions"), fields.get("field")
    if operator in ("AND", "OR", "NOT") and isinstance(conditions, list):
        parts = [_translated(each, depth + 1) for each in cast("list[object]", conditions)]
        return {"$or": parts} if operator == "OR" else _all(parts) if operator == "AND" else {"$not": _all(parts)}
    if (
        not isinstance(operator, str)
        or operator not in _OPERATORS
        or not isinstance(field, str)
        or "value" not in fields
    ):
        msg = (
            f"a filter of Haystack has field, operator ({', '.join(_OPERATORS)}) and value, or operator (AND, OR, NOT) "
            f"and conditions, got {shown(cast('object', given))}"
        )
        raise FilterError(msg)
    name, value = field.removeprefix("meta."), fields["value"]
    if value is None and operator in ("==", "!="):
        return {name: {"$exists": operator == "!="}}
    return {name: {_OPERATORS[operator]: value}}


def _all(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"$and": parts}


def _documents(result: RetrievalResult) -> dict[str, list[Document]]:
    documents = [
        Document(id=hit.id, content=shown_text(hit), meta=metadata_of(hit, result), score=hit.score)
        for hit in result.hits
    ]
    return {"documents": documents}
