"""LlamaIndex's filters as its own vector store reads them.

What a filter means is defined by ``build_metadata_filter_fn`` of LlamaIndex, which its ``SimpleVectorStore`` uses. That
is not quite what stores of retrieval-core evaluate: ``==`` does not look into lists, ``contains`` finds parts of texts
too, ``text_match`` regards case. So a store is asked for a condition that lets through at least what matches, and each
chunk that it finds is then held against the filter itself.

Where LlamaIndex raises an error, since field and value cannot be compared (``5 > "a"``), the field does not match here;
and the keys of a field that is an object are not looked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from llama_index.retrievers.retrieval_core.convert import thawed
from llama_index.retrievers.retrieval_core.filters import as_filter, condition_of, operator_of, unsupported
from llama_index.vector_stores.retrieval_core.nodes import DOCUMENT_PATH, written_node_of
from retrieval_core.errors import UnsupportedFilterError
from retrieval_core.types.filters import (
    And,
    Contains,
    Exists,
    Filter,
    Gt,
    Gte,
    In,
    Lt,
    Lte,
    Or,
    Text,
    check_filter_depth,
    chunk_fields,
    lookup,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from llama_index.retrievers.retrieval_core.filters import Filters
    from retrieval_core.types import Chunk
    from retrieval_core.types.filters import Scalar

O = FilterOperator  # noqa: E741 - it stands on nearly every line
OF_DOCUMENT = frozenset({"doc_id", "ref_doc_id", "document_id"})
"""Keys under which LlamaIndex writes a node's document into its metadata."""
_LISTS = frozenset({O.IN, O.NIN, O.ANY, O.ALL})
_TEXTS = frozenset({O.TEXT_MATCH, O.TEXT_MATCH_INSENSITIVE})
_OPPOSITES = {O.EQ: O.NE, O.NE: O.EQ, O.IN: O.NIN, O.NIN: O.IN}
_ORDERS: Mapping[FilterOperator, tuple[Callable[[str, Scalar], Filter], Callable[[Any, Any], bool]]] = {
    O.GT: (Gt, lambda left, right: left > right),
    O.GTE: (Gte, lambda left, right: left >= right),
    O.LT: (Lt, lambda left, right: left < right),
    O.LTE: (Lte, lambda left, right: left <= right),
}


@dataclass(frozen=True, slots=True)
class Matching:
    """A filter in two parts.

    Attributes:
        condition: For the store; ``None`` lets everything through.
        filters: For each chunk that the store finds; ``None`` where the store's answer is exact.
    """

    condition: Filter | None = None
    filters: MetadataFilters | None = None

    def matches(self, chunk: Chunk) -> bool:
        """Whether a chunk that the store found matches."""
        return self.filters is None or _group_matches(self.filters, _fields(chunk))


def matching(filters: Filters | None) -> Matching:
    """Return a filter in any form in its two parts.

    Raises:
        UnsupportedFilterError: A value is of a type that the operator does not take; the message names both.
        FilterError: The filter is not well formed, or nests too deeply.
    """
    if not isinstance(filters, MetadataFilters):
        return Matching(as_filter(filters))
    _check(filters, 0)
    return Matching(_implied_by(filters, negated=False), filters) if filters.filters else Matching()


def _check(filters: MetadataFilters, depth: int) -> None:
    check_filter_depth(depth)
    condition_of(filters)
    for item in filters.filters:
        if isinstance(item, MetadataFilters):
            if not item.filters:
                msg = "a group of MetadataFilters inside another one is empty; leave it out"
                raise UnsupportedFilterError(msg)
            _check(item, depth + 1)
        else:
            _check_value(item)


def _check_value(item: MetadataFilter) -> None:
    operator, value = operator_of(item), item.value
    if operator is O.IS_EMPTY:
        return
    if operator in _LISTS:
        if not isinstance(value, list):
            raise unsupported(item, "it takes a list of values")
    elif value is None:
        raise unsupported(item, "for a field that is absent or null use IS_EMPTY")
    elif isinstance(value, list) and operator not in {O.EQ, O.NE}:
        raise unsupported(item, "it takes one value; for several use IN, ANY or ALL")
    elif operator in _TEXTS and not isinstance(value, str):
        raise unsupported(item, "it takes text")


def _implied_by(filters: MetadataFilters, *, negated: bool) -> Filter | None:
    """Return a condition that holds wherever the filters match or, negated, wherever they do not."""
    condition = condition_of(filters)
    inner = negated is not (condition is FilterCondition.NOT)
    parts = [
        _implied_by(item, negated=inner) if isinstance(item, MetadataFilters) else _implied_by_one(item, negated=inner)
        for item in filters.filters
    ]
    # NOT is that none matches: all of the negated ones; negated, it is that one does.
    every = (condition is FilterCondition.AND) is not negated if condition is not FilterCondition.NOT else not negated
    known = [part for part in parts if part is not None]
    if not known or (not every and len(known) < len(parts)):
        return None
    return known[0] if len(known) == 1 else And(tuple(known)) if every else Or(tuple(known))


def _implied_by_one(item: MetadataFilter, *, negated: bool) -> Filter | None:
    operator = operator_of(item)
    if negated:
        if operator not in _OPPOSITES:
            return None
        operator = _OPPOSITES[operator]
    keys = (DOCUMENT_PATH, "document_id", item.key) if item.key in OF_DOCUMENT else (item.key,)
    parts = [_condition(key, operator, item.value) for key in keys]
    known = tuple(part for part in parts if part is not None)
    return None if len(known) < len(parts) else known[0] if len(known) == 1 else Or(known)


def _condition(key: str, operator: FilterOperator, value: Any) -> Filter | None:  # noqa: PLR0911 - one line an operator
    match operator:
        case O.EQ if isinstance(value, list):
            return Exists(key)
        case O.EQ:
            return In(key, _equals(value))
        case O.IN:
            return In(key, tuple(same for item in value for same in _equals(item)))
        case O.GT | O.GTE | O.LT | O.LTE:
            kind, orders = _ORDERS[operator]
            # To Python, and so to LlamaIndex, false and true are the numbers 0 and 1.
            truths = () if isinstance(value, str) else tuple(truth for truth in (False, True) if orders(truth, value))
            return Or((kind(key, value), In(key, truths))) if truths else kind(key, value)
        case O.CONTAINS:
            return _holds(key, value)
        case O.ANY:
            return Or(tuple(_holds(key, item) for item in value)) if value else In(key, ())
        case O.ALL:
            return And(tuple(_holds(key, item) for item in value)) if value else Exists(key)
        case O.TEXT_MATCH | O.TEXT_MATCH_INSENSITIVE:
            return Text(key, value)
        case _:  # what is absent matches, and stores find fields of passages where a node has none
            return None


def _equals(value: Scalar) -> tuple[Scalar, ...]:
    """Return the values that are equal to a value, booleans included."""
    return (value, *(truth for truth in (False, True) if truth == value))


def _holds(key: str, value: Scalar) -> Filter:
    parts: list[Filter] = [Contains(key, same) for same in _equals(value)]
    if isinstance(value, str):
        parts.append(Text(key, value))
    return parts[0] if len(parts) == 1 else Or(tuple(parts))


def _fields(chunk: Chunk) -> Callable[[str], Any]:
    """Return what finds the value of a key for filters.

    Of a node it is that of its metadata, to which LlamaIndex adds its document; of a passage that filters of
    retrieval-core find.
    """
    written = written_node_of(chunk)
    if written is not None:
        metadata = {**thawed(chunk.metadata), **dict.fromkeys(OF_DOCUMENT, written.ref_doc_id)}
        return metadata.get
    fields = {**dict.fromkeys(OF_DOCUMENT, chunk.document_id), **chunk_fields(chunk)}

    def find(key: str) -> Any:
        value = lookup(fields, key)
        return list(value) if isinstance(value, tuple) else value

    return find


def _group_matches(filters: MetadataFilters, find: Callable[[str], Any]) -> bool:
    parts = (
        _group_matches(item, find) if isinstance(item, MetadataFilters) else _matches(item, find(item.key))
        for item in filters.filters
    )
    match condition_of(filters):
        case FilterCondition.AND:
            return all(parts)
        case FilterCondition.OR:
            return any(parts)
        case FilterCondition.NOT:
            return not any(parts)


def _matches(item: MetadataFilter, field: Any) -> bool:
    operator, value = operator_of(item), item.value
    if operator is O.IS_EMPTY:
        return field is None or field in ("", [])
    if field is None:
        return operator in {O.NE, O.NIN}
    try:
        return _compares(operator, field, value)
    except TypeError:  # of two kinds that cannot be compared
        return False


def _compares(operator: FilterOperator, field: Any, value: Any) -> bool:  # noqa: PLR0911 - one line an operator
    match operator:
        case O.EQ:
            return field == value
        case O.NE:
            return field != value
        case O.IN:
            return field in value
        case O.NIN:
            return field not in value
        case O.GT | O.GTE | O.LT | O.LTE:
            return not isinstance(field, list) and _ORDERS[operator][1](field, value)
        case O.CONTAINS:
            return _is_in(value, field)
        case O.ANY:
            return any(_is_in(item, field) for item in value)
        case O.ALL:
            return all(_is_in(item, field) for item in value)
        case O.TEXT_MATCH:
            return isinstance(field, str) and value in field
        case _:
            return isinstance(field, str) and value.lower() in field.lower()


def _is_in(value: Scalar, field: Any) -> bool:
    return not isinstance(field, dict) and value in field
