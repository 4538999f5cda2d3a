"""The exact translation of LlamaIndex's filters."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from llama_index.core.bridge.pydantic import WithJsonSchema
from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from retrieval_core.errors import FilterError, UnsupportedFilterError
from retrieval_core.types.filters import (
    And,
    Contains,
    Eq,
    Filter,
    Gt,
    Gte,
    In,
    Lt,
    Lte,
    Ne,
    Not,
    NotIn,
    Or,
    Text,
    check_filter_depth,
)
from retrieval_core.types.filters.syntax import parse_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrieval_core.types.filters import Scalar

Filters: TypeAlias = Annotated[
    Filter | Mapping[str, Any] | MetadataFilters,
    WithJsonSchema(
        {
            "type": "object",
            "description": 'Conditions on fields, such as {"year": {"$gte": 1970}, "kind": {"$in": ["moon", "sun"]}}',
        }
    ),
]
"""A filter in any form: typed, as JSON, or of LlamaIndex. A model that calls a tool is told of JSON alone."""

_COMPARISONS: dict[FilterOperator, Callable[[str, Scalar], Filter]] = {
    FilterOperator.EQ: Eq,
    FilterOperator.NE: Ne,
    FilterOperator.GT: Gt,
    FilterOperator.GTE: Gte,
    FilterOperator.LT: Lt,
    FilterOperator.LTE: Lte,
    FilterOperator.CONTAINS: Contains,
}
_GROUPS: dict[FilterCondition, Callable[[tuple[Filter, ...]], Filter]] = {
    FilterCondition.AND: And,
    FilterCondition.OR: Or,
    FilterCondition.NOT: Or,  # negated as a whole
}
_REFUSED: dict[FilterOperator, str] = {
    FilterOperator.TEXT_MATCH: "text is compared without regard to case; use TEXT_MATCH_INSENSITIVE",
    FilterOperator.IS_EMPTY: (
        "empty lists are not supported; for fields that are absent or null use the filter "
        '{{"{key}": {{"$exists": false}}}}'
    ),
}


def as_filter(filters: Filters | None) -> Filter | None:
    """Return a typed filter from one in any form; ``None`` for ``None`` and for empty filters.

    Raises:
        UnsupportedFilterError: An operator or value of LlamaIndex has no exact counterpart; the message names it.
        FilterError: The filter is not well formed.
    """
    if filters is None or isinstance(filters, Filter):
        return filters
    if isinstance(filters, MetadataFilters):
        return from_metadata_filters(filters)
    if isinstance(filters, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers need not check types
        return parse_filter(filters) if filters else None
    msg = f"filters are a filter, JSON as a dictionary, or MetadataFilters of LlamaIndex, got {type(filters).__name__}"
    raise FilterError(msg)


def from_metadata_filters(filters: MetadataFilters) -> Filter | None:
    """Return filters of LlamaIndex as a typed filter, or ``None`` if they are empty.

    The result follows the rules of :mod:`retrieval_core.types.filters`. LlamaIndex's ``SimpleVectorStore`` differs in
    this: it compares lists as a whole; ``contains``, ``any`` and ``all`` also look into text and the keys of objects;
    true is 1; case is ignored by lowering, not by folding. ``RetrievalCoreVectorStore`` follows LlamaIndex's rules.
    ``NOT`` matches if none of its filters does.

    Raises:
        UnsupportedFilterError: An operator or value has no exact counterpart; the message names it.
        FilterError: Filters nest deeper than :data:`~retrieval_core.types.filters.MAX_FILTER_DEPTH`.
    """
    return _group(filters, 0)


def _group(filters: MetadataFilters, depth: int) -> Filter | None:
    check_filter_depth(depth)
    parts: list[Filter] = []
    for item in filters.filters:
        if not isinstance(item, (MetadataFilters, MetadataFilter)):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"MetadataFilters hold MetadataFilter and MetadataFilters, got {type(item).__name__}"
            raise UnsupportedFilterError(msg)
        part = _group(item, depth + 1) if isinstance(item, MetadataFilters) else _condition(item)
        if part is None:
            msg = "a group of MetadataFilters inside another one is empty; leave it out"
            raise UnsupportedFilterError(msg)
        parts.append(part)
    if not parts:
        return None
    condition = condition_of(filters)
    joined = _joined(_GROUPS[condition], parts)
    return Not(joined) if condition is FilterCondition.NOT else joined


def condition_of(filters: MetadataFilters) -> FilterCondition:
    """Return a group's condition, which may be text, as LlamaIndex does not validate assignments."""
    with suppress(ValueError):
        condition = FilterCondition.AND if filters.condition is None else FilterCondition(filters.condition)
        if condition in _GROUPS:
            return condition
    msg = f"the condition {filters.condition!r:.80} of MetadataFilters is not known here; use AND, OR or NOT"
    raise UnsupportedFilterError(msg)


def _joined(kind: Callable[[tuple[Filter, ...]], Filter], parts: Sequence[Filter]) -> Filter:
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def _condition(item: MetadataFilter) -> Filter:
    key, value, operator = item.key, item.value, operator_of(item)
    if (reason := _REFUSED.get(operator)) is not None:
        raise unsupported(item, reason.format(key=key))
    if operator in {FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL}:
        if not isinstance(value, list):
            raise unsupported(item, "it takes a list of values")
        return _of_a_list(item, operator, value)
    if value is None:
        raise unsupported(item, f'for a field that is absent or null use the filter {{"{key}": {{"$exists": false}}}}')
    if isinstance(value, list):
        raise unsupported(item, "it takes one value; for several use IN, ANY or ALL")
    if operator is FilterOperator.TEXT_MATCH_INSENSITIVE:
        if not isinstance(value, str):
            raise unsupported(item, "it takes text")
        return Text(key, value)
    if operator not in _COMPARISONS:
        raise unsupported(item, "it is not known here")
    return _COMPARISONS[operator](key, value)


def operator_of(item: MetadataFilter) -> FilterOperator:
    """Return a filter's operator, which may be text too."""
    try:
        return FilterOperator(item.operator)
    except ValueError:
        raise unsupported(item, "it is not known here") from None


def _of_a_list(item: MetadataFilter, operator: FilterOperator, values: Sequence[Scalar]) -> Filter:
    match operator:
        case FilterOperator.IN:
            return In(item.key, tuple(values))
        case FilterOperator.NIN:
            return NotIn(item.key, tuple(values))
        case FilterOperator.ANY:
            # With no values nothing is held, which is what In says of none.
            return _joined(Or, [Contains(item.key, value) for value in values]) if values else In(item.key, ())
        case _:
            if not values:
                raise unsupported(item, "it takes at least one value")
            return _joined(And, [Contains(item.key, value) for value in values])


def unsupported(item: MetadataFilter, reason: str) -> UnsupportedFilterError:
    """Return the error for a filter that is refused; its message has field, operator, value and the reason."""
    try:
        name = FilterOperator(item.operator).name
    except ValueError:
        name = f"the operator {item.operator!r:.80}"
    return UnsupportedFilterError(f"field {item.key!r:.80}: {name} with {item.value!r:.80} is not supported: {reason}")
