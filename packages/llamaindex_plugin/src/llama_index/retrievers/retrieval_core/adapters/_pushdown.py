"""What of a filter a vector store of LlamaIndex is asked to evaluate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from retrieval_core.types import Chunk
from retrieval_core.types.filters import And, Eq, Gt, Gte, In, Lt, Lte, Ne, Not, NotIn, Or, chunk_fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.types.filters import Condition, Filter, Scalar

_MOST_VALUES = 1000
_LARGEST = 2**53
"""Whole numbers below it are told apart as 64-bit floats, as which stores keep numbers."""
_OWN_FIELDS = frozenset(chunk_fields(Chunk("", "", ""))) | {"doc_id", "ref_doc_id", "_node_content", "_node_type"}
"""Fields that stores keep something else in: of a chunk's own, and those that LlamaIndex adds to the metadata."""


def pushed(
    condition: Filter | None, operators: frozenset[FilterOperator], *, numbers: bool = True
) -> MetadataFilters | None:
    """Return what of a filter a store is asked to evaluate: something that passes all that the filter lets pass.

    Args:
        numbers: Whether the store is asked which fields equal numbers.
    """
    part = None if condition is None else _part(condition, operators, numbers)
    return MetadataFilters(filters=[part]) if isinstance(part, MetadataFilter) else part


def _part(
    condition: Filter, operators: frozenset[FilterOperator], numbers: bool
) -> MetadataFilter | MetadataFilters | None:
    match condition:
        case And(filters) | Or(filters):
            parts = [_part(part, operators, numbers) for part in filters]
            kept = [part for part in parts if part is not None]
            # A part of an $and may be left to the test of the results, one of an $or may not.
            if not kept or (isinstance(condition, Or) and len(kept) < len(parts)):
                return None
            joined = FilterCondition.AND if isinstance(condition, And) else FilterCondition.OR
            return MetadataFilters(filters=[*kept], condition=joined)
        case Not():
            return None
        case _:
            return _comparison(condition, operators, numbers)


_OPERATORS: Mapping[type[Condition], FilterOperator] = {
    Eq: FilterOperator.EQ,
    Ne: FilterOperator.NE,
    Gt: FilterOperator.GT,
    Gte: FilterOperator.GTE,
    Lt: FilterOperator.LT,
    Lte: FilterOperator.LTE,
    In: FilterOperator.IN,
    NotIn: FilterOperator.NIN,
}


def _comparison(condition: Condition, operators: frozenset[FilterOperator], numbers: bool) -> MetadataFilter | None:
    operator = _OPERATORS.get(type(condition))
    name = condition.field
    # The chunk's own fields are not metadata there. To some stores, names that begin with $ are operators, and marks
    # lead into objects.
    if operator is None or operator not in operators or name in _OWN_FIELDS or not name or {*name} & {*'$.[]"'}:
        return None
    values: Sequence[Scalar] = (
        condition.values if isinstance(condition, (In, NotIn)) else (cast("Any", condition).value,)
    )
    is_ordering = isinstance(condition, (Gt, Gte, Lt, Lte))
    if not (numbers or is_ordering or all(isinstance(value, str) for value in values)):
        return None
    if not 0 < len(values) <= _MOST_VALUES or not all(_can_be_sent(value, is_ordering) for value in values):
        return None
    if not isinstance(condition, (In, NotIn)):
        return MetadataFilter(key=name, value=cast("Any", values[0]), operator=operator)
    kinds = {isinstance(value, str) + 2 * isinstance(value, float) for value in values}
    return MetadataFilter(key=name, value=cast("Any", list(values)), operator=operator) if len(kinds) == 1 else None


def _can_be_sent(value: Scalar, is_ordering: bool) -> bool:
    """Whether every store compares a value alike: whole numbers beyond those of a float differ, and orders of text."""
    if isinstance(value, bool):
        return False
    return not is_ordering if isinstance(value, str) else abs(value) < _LARGEST
