"""The exact translation of LlamaIndex's filters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

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
    from collections.abc import Callable, Collection, Sequence

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

O = FilterOperator  # noqa: E741 - it stands on nearly every line
LISTS = frozenset({O.IN, O.NIN, O.ANY, O.ALL})
TEXTS = frozenset({O.TEXT_MATCH, O.TEXT_MATCH_INSENSITIVE})
_CONDITIONS: dict[FilterOperator, Callable[[str, Any], Filter]] = {
    O.EQ: Eq,
    O.NE: Ne,
    O.GT: Gt,
    O.GTE: Gte,
    O.LT: Lt,
    O.LTE: Lte,
    O.CONTAINS: Contains,
    O.TEXT_MATCH_INSENSITIVE: Text,
    O.IN: lambda key, values: In(key, tuple(values)),
    O.NIN: lambda key, values: NotIn(key, tuple(values)),
    # With no values nothing is held, which is what In says of none.
    O.ANY: lambda key, values: joined(Or, [Contains(key, value) for value in values]) if values else In(key, ()),
    O.ALL: lambda key, values: joined(And, [Contains(key, value) for value in values]),
}
_ABSENT = 'for a field that is absent or null use the filter {{"{}": {{"$exists": false}}}}'


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
    condition = condition_of(filters)
    parts = [
        cast("Filter", _group(item, depth + 1)) if isinstance(item, MetadataFilters) else _condition(item)
        for item in parts_of(filters, depth)
    ]
    if not parts:
        return None
    whole = joined(And if condition is FilterCondition.AND else Or, parts)
    return Not(whole) if condition is FilterCondition.NOT else whole


def parts_of(filters: MetadataFilters, depth: int) -> Sequence[MetadataFilter | MetadataFilters]:
    """Return the filters of a group at this depth.

    Raises:
        UnsupportedFilterError: One of them is of another kind, or an empty group.
        FilterError: The group is nested too deeply.
    """
    check_filter_depth(depth)
    for item in filters.filters:
        if not isinstance(item, (MetadataFilters, MetadataFilter)):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"MetadataFilters hold MetadataFilter and MetadataFilters, got {type(item).__name__}"
            raise UnsupportedFilterError(msg)
        if isinstance(item, MetadataFilters) and not item.filters:
            msg = "a group of MetadataFilters inside another one is empty; leave it out"
            raise UnsupportedFilterError(msg)
    return filters.filters


def condition_of(filters: MetadataFilters) -> FilterCondition:
    """Return a group's condition, which may be text, as LlamaIndex does not validate assignments."""
    try:
        return FilterCondition.AND if filters.condition is None else FilterCondition(filters.condition)
    except ValueError:
        msg = f"the condition {filters.condition!r:.80} of MetadataFilters is not known here; use AND, OR or NOT"
        raise UnsupportedFilterError(msg) from None


def joined(kind: type[And | Or], parts: Sequence[Filter]) -> Filter:
    """Return several filters as one."""
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def _condition(item: MetadataFilter) -> Filter:
    operator = checked_operator(item)
    if operator is O.TEXT_MATCH:
        raise unsupported(item, "text is compared without regard to case; use TEXT_MATCH_INSENSITIVE")
    if operator is O.IS_EMPTY:
        raise unsupported(item, f"empty lists are not supported; {_ABSENT.format(item.key)}")
    if operator is O.ALL and not item.value:
        raise unsupported(item, "it takes at least one value")
    if operator not in _CONDITIONS:
        raise unsupported(item, "it is not known here")
    return _CONDITIONS[operator](item.key, item.value)


def checked_operator(item: MetadataFilter, *, with_lists: Collection[FilterOperator] = ()) -> FilterOperator:
    """Return a filter's operator, which may be text too.

    Args:
        with_lists: The operators that compare one value, which may be a list.

    Raises:
        UnsupportedFilterError: It is unknown, or doesn't take the value.
    """
    operator, value = operator_of(item), item.value
    if operator in LISTS:
        if not isinstance(value, list):
            raise unsupported(item, "it takes a list of values")
    elif operator is not O.IS_EMPTY:
        if value is None:
            raise unsupported(item, _ABSENT.format(item.key))
        if isinstance(value, list) and operator not in with_lists:
            raise unsupported(item, "it takes one value; for several use IN, ANY or ALL")
        if operator in TEXTS and not isinstance(value, str):
            raise unsupported(item, "it takes text")
    return operator


def operator_of(item: MetadataFilter) -> FilterOperator:
    """Return a filter's operator, which may be text too."""
    try:
        return FilterOperator(item.operator)
    except ValueError:
        raise unsupported(item, "it is not known here") from None


def unsupported(item: MetadataFilter, reason: str) -> UnsupportedFilterError:
    """Return the error for a filter that is refused; its message has field, operator, value and the reason."""
    try:
        name = FilterOperator(item.operator).name
    except ValueError:
        name = f"the operator {item.operator!r:.80}"
    return UnsupportedFilterError(f"field {item.key!r:.80}: {name} with {item.value!r:.80} is not supported: {reason}")
