"""The names that the specification has for the fields of a chunk, in filters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from retrieval_core.evaluate.suite.results import point_of
from retrieval_core.types.filters import And, Exists, Filter, Ne, Not, NotIn, Or, chunk_fields, paths_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.types import JSON, Hit

OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "source_url": ("source", "document_id"),
    "url": ("source", "document_id"),
    "chunk_id": ("id",),
    "document_title": ("title",),
    "position": ("chunk_index",),
    "doc_id": ("document_id",),
    "content": (),
    "total_chunks": (),
    "embedding_model": (),
}
"""The stores' names of the specification's fields; empty for fields that a store can't filter by."""


def uses_other_names(condition: Filter) -> bool:
    """Return whether a filter has a name of the specification that a store may not know."""
    return not paths_of(condition).isdisjoint(OTHER_NAMES)


def widen(condition: Filter) -> Filter | None:
    """Return a filter in a store's names that passes every chunk which the given one passes; ``None`` for no filter.

    Results still have to be tested with the given filter, see :func:`specification_fields`.
    """
    if not uses_other_names(condition):
        return condition
    match condition:
        case And(filters):
            parts = tuple(part for each in filters if (part := widen(each)) is not None)
            return And(parts) if parts else None
        case Or(filters):
            some = [part for each in filters if (part := widen(each)) is not None]
            return Or(tuple(some)) if len(some) == len(filters) else None
        case Not() | Ne() | NotIn() | Exists(value=False):
            return None
        case _:
            names = OTHER_NAMES[condition.field]
            if not names:
                return Or((condition, Exists(condition.field, False)))
            return Or((condition, *(replace(condition, field=name) for name in names)))


def specification_fields(hit: Hit) -> dict[str, JSON]:
    """Return the fields of a hit under the names of stores and of the specification."""
    fields: dict[str, Any] = {**chunk_fields(hit.chunk), **point_of(hit).payload}
    for name, places in OTHER_NAMES.items():
        if name not in fields:
            fields[name] = next((fields[place] for place in places if fields.get(place) is not None), None)
    return fields
