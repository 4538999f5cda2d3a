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
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, Any

from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from llama_index.retrievers.retrieval_core.convert import thawed
from llama_index.retrievers.retrieval_core.filters import (
    as_filter,
    checked_operator,
    condition_of,
    joined,
    operator_of,
    parts_of,
    unsupported,
)
from llama_index.vector_stores.retrieval_core.nodes import DOCUMENT_PATH, written_node_of
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
    chunk_fields,
    lookup,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from llama_index.retrievers.retrieval_core.filters import Filters
    from retrieval_core.types import Chunk
    from retrieval_core.types.filters import Scalar

O = FilterOperator  # noqa: E741 - it stands on nearly every line
OF_DOCUMENT = frozenset({"doc_id", "ref_doc_id", "document_id"})
"""Keys under which LlamaIndex writes a node's document into its metadata."""
_ORDERS: Mapping[FilterOperator, Callable[[str, Scalar], Filter]] = {O.GT: Gt, O.GTE: Gte, O.LT: Lt, O.LTE: Lte}
_COMPARES: Mapping[FilterOperator, Callable[[Any, Any], bool]] = {
    O.EQ: eq,
    O.NE: ne,
    O.GT: gt,
    O.GTE: ge,
    O.LT: lt,
    O.LTE: le,
    O.IN: lambda field, values: field in values,
    O.NIN: lambda field, values: field not in values,
    O.CONTAINS: lambda field, value: _is_in(value, field),
    O.ANY: lambda field, values: any(_is_in(value, field) for value in values),
    O.ALL: lambda field, values: all(_is_in(value, field) for value in values),
    O.IS_EMPTY: lambda field, _: field in ("", []),
    O.TEXT_MATCH: lambda field, value: isinstance(field, str) and value in field,
    O.TEXT_MATCH_INSENSITIVE: lambda field, value: isinstance(field, str) and value.lower() in field.lower(),
}


@dataclass(frozen=True, slots=True)
class Matching:
    """The conditions that a node has to meet.

    Attributes:
        condition: For the store; ``None`` lets everything through.
        filters: For each chunk that the store finds; ``None`` where the store's answer is exact.
        nodes: The ids of the nodes that pass; ``None`` for all.
        documents: The ids of their documents; ``None`` for all.
    """

    condition: Filter | None = None
    filters: MetadataFilters | None = None
    nodes: frozenset[str] | None = None
    documents: frozenset[str] | None = None

    @property
    def is_named(self) -> bool:
        """Whether all that may pass can be read by its names, which costs less than searching for it."""
        return self.nodes is not None or self.documents is not None

    @property
    def is_exact(self) -> bool:
        """Whether the store's answer is all that passes."""
        return self.filters is None and not self.is_named

    def matches(self, chunk: Chunk) -> bool:
        """Whether a chunk that the store found matches."""
        return (
            (self.nodes is None or chunk.id in self.nodes)
            and (self.documents is None or chunk.document_id in self.documents)
            and (self.filters is None or _group_matches(self.filters, _fields(chunk)))
        )


def matching(
    filters: Filters | None, *, nodes: Sequence[str] | None = None, documents: Sequence[str] | None = None
) -> Matching:
    """Return filters in any form, and restrictions to nodes and documents.

    Raises:
        UnsupportedFilterError: A value is of a type that the operator does not take; the message names both.
        FilterError: The filter is not well formed, or nests too deeply.
    """
    named = [None if names is None else frozenset(names) for names in (nodes, documents)]
    if not isinstance(filters, MetadataFilters):
        return Matching(as_filter(filters), None, *named)
    return Matching(_implied_by(filters, 0), filters if filters.filters else None, *named)


def _implied_by(filters: MetadataFilters, depth: int) -> Filter | None:
    """Return a condition that holds wherever the filters match."""
    condition = condition_of(filters)
    parts = [
        _implied_by(item, depth + 1) if isinstance(item, MetadataFilters) else _implied_by_one(item)
        for item in parts_of(filters, depth)
    ]
    known = [part for part in parts if part is not None]
    if not known or condition is FilterCondition.NOT or (condition is FilterCondition.OR and len(known) < len(parts)):
        return None
    return joined(And if condition is FilterCondition.AND else Or, known)


def _implied_by_one(item: MetadataFilter) -> Filter | None:
    operator = checked_operator(item, with_lists=(O.EQ, O.NE))
    if operator not in _COMPARES:
        raise unsupported(item, "it is not known here")
    keys = (DOCUMENT_PATH, "document_id", item.key) if item.key in OF_DOCUMENT else (item.key,)
    parts = [_condition(key, operator, item.value) for key in keys]
    known = [part for part in parts if part is not None]
    return joined(Or, known) if len(known) == len(parts) else None


def _condition(key: str, operator: FilterOperator, value: Any) -> Filter | None:  # noqa: PLR0911 - one line an operator
    match operator:
        case O.EQ if isinstance(value, list):
            return Exists(key)
        case O.EQ:
            return In(key, _equals(value))
        case O.IN:
            return In(key, tuple(same for item in value for same in _equals(item)))
        case O.GT | O.GTE | O.LT | O.LTE:
            kind, compares = _ORDERS[operator], _COMPARES[operator]
            # To Python, and so to LlamaIndex, false and true are the numbers 0 and 1.
            truths = () if isinstance(value, str) else tuple(truth for truth in (False, True) if compares(truth, value))
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
    texts = [Text(key, value)] if isinstance(value, str) else []
    return joined(Or, [*(Contains(key, same) for same in _equals(value)), *texts])


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
    if field is None:
        return operator in {O.NE, O.NIN, O.IS_EMPTY}
    try:
        return _COMPARES[operator](field, value)
    except TypeError:  # of two kinds that cannot be compared
        return False


def _is_in(value: Scalar, field: Any) -> bool:
    return not isinstance(field, dict) and value in field
