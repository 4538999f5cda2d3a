"""Filters of LlamaIndex are converted exactly, or refused by name."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, cast

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

from llama_index.retrievers.retrieval_core import as_filter, from_metadata_filters
from retrieval_core.errors import FilterError, UnsupportedFilterError
from retrieval_core.types.filters import (
    MAX_FILTER_DEPTH,
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
    matches,
)
from support.examples import times

O = FilterOperator  # noqa: E741
CONVERTED: list[tuple[FilterOperator, Any, Filter]] = [
    (O.EQ, "x", Eq("f", "x")),
    (O.EQ, 1, Eq("f", 1)),
    (O.NE, "x", Ne("f", "x")),
    (O.GT, 1.5, Gt("f", 1.5)),
    (O.GTE, 1, Gte("f", 1)),
    (O.LT, "2026", Lt("f", "2026")),
    (O.LTE, 1, Lte("f", 1)),
    (O.IN, ["a", "b"], In("f", ("a", "b"))),
    (O.IN, [], In("f", ())),
    (O.NIN, [1, 2], NotIn("f", (1, 2))),
    (O.ANY, ["a", "b"], Or((Contains("f", "a"), Contains("f", "b")))),
    (O.ANY, ["a"], Contains("f", "a")),
    (O.ANY, [], In("f", ())),
    (O.ALL, ["a", "b"], And((Contains("f", "a"), Contains("f", "b")))),
    (O.CONTAINS, "a", Contains("f", "a")),
    (O.TEXT_MATCH_INSENSITIVE, "a", Text("f", "a")),
]
REFUSED: list[tuple[FilterOperator, Any]] = [
    (O.TEXT_MATCH, "a"),
    (O.IS_EMPTY, None),
    (O.EQ, None),
    (O.NE, None),
    (O.EQ, ["a"]),
    (O.GT, [1]),
    (O.CONTAINS, ["a"]),
    (O.IN, "text"),
    (O.NIN, 1),
    (O.ANY, "a"),
    (O.ALL, "a"),
    (O.ALL, []),
    (O.TEXT_MATCH_INSENSITIVE, 1),
]


def one(operator: FilterOperator, value: Any, key: str = "f") -> MetadataFilter:
    return MetadataFilter(key=key, value=value, operator=operator)


@pytest.mark.parametrize(("operator", "value", "expected"), CONVERTED)
def test_an_operator_is_converted(operator: FilterOperator, value: Any, expected: Filter) -> None:
    """Each to the one that means the same."""
    assert from_metadata_filters(MetadataFilters(filters=[one(operator, value)])) == expected


@pytest.mark.parametrize(("operator", "value"), REFUSED)
def test_what_has_no_exact_counterpart_is_refused_by_name(operator: FilterOperator, value: Any) -> None:
    """The message names field and operator, and says what to do."""
    with pytest.raises(UnsupportedFilterError, match=f"'f'.*{operator.name} .*:"):
        as_filter(MetadataFilters(filters=[one(operator, value)]))


def test_every_operator_is_either_converted_or_refused() -> None:
    """Also those that LlamaIndex adds: this test then fails."""
    assert {case[0] for case in CONVERTED} | {case[0] for case in REFUSED} == set(FilterOperator)


def test_an_operator_of_the_future_is_refused() -> None:
    """It must not be taken for another one, nor a condition for no filter at all."""

    class Later(StrEnum):
        NEW = "new"

    unknown = MetadataFilter.model_construct(key="f", value=1, operator=cast("Any", Later.NEW))
    with pytest.raises(UnsupportedFilterError, match="NEW"):
        as_filter(MetadataFilters.model_construct(filters=[unknown], condition=None))
    with pytest.raises(UnsupportedFilterError, match="NEW"):
        as_filter(MetadataFilters.model_construct(filters=[one(O.EQ, 1)], condition=cast("Any", Later.NEW)))


def test_conditions_and_operators_may_be_assigned_as_text() -> None:
    """LlamaIndex checks what its constructors get, and not what is assigned later."""
    for condition in FilterCondition:
        assigned = MetadataFilters(filters=[one(O.EQ, 1), one(O.EQ, 2)])
        assigned.condition = cast("Any", condition.value)
        assert as_filter(assigned) == as_filter(MetadataFilters(filters=assigned.filters, condition=condition))
    for operator, value, expected in CONVERTED:
        item = one(O.EQ, value)
        item.operator = cast("Any", operator.value)
        assert as_filter(MetadataFilters(filters=[item])) == expected
    for operator, value in REFUSED:
        item = one(O.EQ, value)
        item.operator = cast("Any", operator.value)
        with pytest.raises(UnsupportedFilterError, match=f"'f'.*{operator.name} .*:"):
            as_filter(MetadataFilters(filters=[item]))


@pytest.mark.parametrize("wrong", ["NOT", "", "like", 1, []])
def test_what_is_assigned_and_unknown_is_refused(wrong: Any) -> None:
    """With what was given, and not as some other operator or condition."""
    filters = MetadataFilters(filters=[one(O.EQ, 1)])
    filters.condition = wrong
    with pytest.raises(UnsupportedFilterError, match=f"condition {re.escape(repr(wrong))}"):
        as_filter(filters)
    item = one(O.EQ, 1)
    item.operator = wrong
    with pytest.raises(UnsupportedFilterError, match=f"'f': the operator {re.escape(repr(wrong))} with 1"):
        as_filter(MetadataFilters(filters=[item]))


def test_filters_of_the_core_inside_those_of_llama_index_are_refused() -> None:
    """Lists are not checked either when something is added to them."""
    filters = MetadataFilters(filters=[])
    filters.filters.append(cast("Any", Eq("f", 1)))
    with pytest.raises(UnsupportedFilterError, match="got Eq"):
        as_filter(filters)


_SCALARS = st.one_of(st.integers(-2, 2), st.sampled_from(["a", "b", "ab", ""]))
_NUMBERS = st.lists(st.integers(-2, 2), min_size=1, max_size=2)
_WORDS = st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=2)
_FULL_LISTS = st.one_of(_NUMBERS, _WORDS)
_LISTS = st.one_of(st.just([]), _FULL_LISTS)
_SCALAR_OPERATORS = (O.EQ, O.NE, O.GT, O.GTE, O.LT, O.LTE)
_FILTERS = st.one_of(
    st.builds(one, st.sampled_from(_SCALAR_OPERATORS), _SCALARS, st.sampled_from(["f", "g"])),
    st.builds(one, st.just(O.TEXT_MATCH_INSENSITIVE), st.sampled_from(["a", "B", ""]), st.sampled_from(["f", "g"])),
    st.builds(one, st.sampled_from([O.IN, O.NIN]), _LISTS, st.sampled_from(["f", "g"])),
)
_OF_LISTS = st.one_of(
    st.builds(one, st.sampled_from([O.ANY, O.ALL]), _FULL_LISTS, st.just("l")),
    st.builds(one, st.just(O.CONTAINS), _SCALARS, st.just("l")),
)


@given(
    st.lists(st.one_of(_FILTERS, _OF_LISTS), min_size=1, max_size=3),
    st.sampled_from(FilterCondition) | st.none(),
    st.fixed_dictionaries({}, optional={"f": _SCALARS, "g": st.none() | _SCALARS, "l": _LISTS}),
)
@settings(max_examples=times(400))
def test_filters_mean_what_the_reference_store_of_llama_index_takes_them_for(
    filters: list[MetadataFilter], condition: FilterCondition | None, fields: dict[str, Any]
) -> None:
    """Its own function is the oracle, for fields of one value and lists; where it fails on types, nothing is said."""
    given_filters = MetadataFilters(filters=[*filters], condition=condition)
    try:
        expected = build_metadata_filter_fn(lambda _: fields, given_filters)("node")
    except TypeError:
        return
    assert matches(from_metadata_filters(given_filters), fields) == expected


_PLAIN = st.one_of(_SCALARS, st.booleans(), st.sampled_from(["ß", "SS", "A"]), st.sampled_from([1.0, 0.5]))
_ANY_VALUE = st.one_of(
    _PLAIN, st.none(), st.lists(_PLAIN, max_size=3), st.dictionaries(st.sampled_from(["a", "b"]), _PLAIN, max_size=2)
)
_HOLDS = (O.CONTAINS, O.ANY, O.ALL)
_ONE_OF_EACH = st.one_of(
    *(st.builds(one, st.just(operator), _SCALARS) for operator in (*_SCALAR_OPERATORS, O.CONTAINS)),
    *(st.builds(one, st.just(operator), _FULL_LISTS) for operator in (O.IN, O.NIN, O.ANY, O.ALL)),
    st.builds(one, st.just(O.TEXT_MATCH_INSENSITIVE), st.sampled_from(["a", "B", "", "ss", "ß"])),
)


def is_read_otherwise(item: MetadataFilter, field: Any) -> bool:
    """Whether the documentation says that LlamaIndex's function and the retriever differ on such a field."""
    inside: list[Any] = cast("list[Any]", field) if isinstance(field, list) else [field]
    if item.operator in _HOLDS:
        return isinstance(field, (str, dict)) or any(isinstance(part, bool) for part in inside)
    if item.operator is O.TEXT_MATCH_INSENSITIVE:
        return isinstance(field, list) or any(isinstance(part, str) and "ß" in part for part in (field, item.value))
    return isinstance(field, (list, bool))


@given(_ONE_OF_EACH, _ANY_VALUE)
@settings(max_examples=times(600))
def test_on_fields_of_any_kind_it_differs_from_llamaindex_where_the_documentation_says_so(
    item: MetadataFilter, field: Any
) -> None:
    """And nowhere else; where LlamaIndex cannot compare, nothing matches."""
    filters = MetadataFilters(filters=[item])
    try:
        expected = build_metadata_filter_fn(lambda _: {"f": field}, filters)("node")
    except TypeError:
        expected = False
    if not is_read_otherwise(item, field):
        assert matches(from_metadata_filters(filters), {"f": field}) == expected


@pytest.mark.parametrize(
    ("item", "field", "theirs"),
    [
        (one(O.EQ, "a"), ["a"], False),
        (one(O.IN, ["a"]), ["a"], False),
        (one(O.NE, "a"), ["a"], True),
        (one(O.NIN, ["a"]), ["a"], True),
        (one(O.CONTAINS, "a"), "ab", True),
        (one(O.ANY, ["a"]), "ab", True),
        (one(O.ALL, ["a"]), {"a": 1}, True),
        (one(O.EQ, 1), True, True),
        (one(O.GT, 0), True, True),
        (one(O.TEXT_MATCH_INSENSITIVE, "ss"), "ß", False),
    ],
)
def test_where_the_documentation_says_so_it_does_differ(item: MetadataFilter, field: Any, theirs: bool) -> None:
    filters = MetadataFilters(filters=[item])
    assert build_metadata_filter_fn(lambda _: {"f": field}, filters)("node") is theirs
    assert matches(from_metadata_filters(filters), {"f": field}) is not theirs
    assert is_read_otherwise(item, field)


def test_two_operators_are_refused() -> None:
    """Whatever their value; each of the others is taken with some."""
    taken = {case[0] for case in CONVERTED}
    assert set(FilterOperator) - taken == {O.TEXT_MATCH, O.IS_EMPTY}
    assert len(set(FilterOperator)) == 14


def test_groups_nest() -> None:
    """NOT matches where none of its filters does."""
    inner = MetadataFilters(filters=[one(O.EQ, 1), one(O.EQ, 2)], condition=FilterCondition.NOT)
    outer = MetadataFilters(filters=[inner, one(O.EQ, 3)], condition=FilterCondition.OR)
    assert as_filter(outer) == Or((Not(Or((Eq("f", 1), Eq("f", 2)))), Eq("f", 3)))


def test_no_filters_are_none() -> None:
    """An empty group inside another one would be ambiguous."""
    nothing = MetadataFilters(filters=[])
    assert as_filter(nothing) is None
    assert as_filter(None) is None
    with pytest.raises(UnsupportedFilterError, match="empty"):
        as_filter(MetadataFilters(filters=[nothing]))


def test_filters_that_nest_too_deeply_are_refused() -> None:
    """As in JSON."""
    filters = MetadataFilters(filters=[one(O.EQ, 1)])
    for _ in range(MAX_FILTER_DEPTH + 1):
        filters = MetadataFilters(filters=[filters])
    with pytest.raises(FilterError, match=f"{MAX_FILTER_DEPTH} levels"):
        as_filter(filters)


def test_filters_of_the_core_are_taken_in_all_forms() -> None:
    """Typed as they are, JSON as the core reads it, and nothing else."""
    assert as_filter(Eq("f", 1)) == Eq("f", 1)
    assert as_filter({"f": {"$gte": 1}}) == Gte("f", 1)
    with pytest.raises(FilterError, match="list"):
        as_filter(cast("Any", ["f"]))
