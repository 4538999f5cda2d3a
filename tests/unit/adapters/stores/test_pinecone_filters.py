"""Filters in Pinecone's language: what the service takes from its reference, and what ours become."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.adapters.stores.foreign import FieldMapping
from retrieval_core.adapters.stores.pinecone.records import MOST_VALUES, storable, translate
from retrieval_core.adapters.stores.services import flat
from retrieval_core.errors import UnsupportedFilterError
from retrieval_core.testing import filter_strategies
from retrieval_core.types import JSON, freeze
from retrieval_core.types.filters import (
    OPERATORS,
    And,
    Contains,
    Eq,
    Exists,
    Filter,
    Glob,
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
    lookup,
    matches,
    operators_of,
)
from support.examples import times
from support.pinecone_service import filter_test

EXAMPLES = 300
BOTH_KINDS = (False, True)


def mapping(fields: dict[str, str]) -> FieldMapping:
    return FieldMapping.load(fields, "store.pinecone.fields", is_flat=True)


@pytest.mark.parametrize("absent", BOTH_KINDS)
@settings(max_examples=times(EXAMPLES))
@given(filter_strategies.metadata(), filter_strategies.filters(OPERATORS))
def test_what_is_translated_never_loses_a_match(absent: bool, metadata: dict[str, Any], condition: Filter) -> None:
    """What matches passes at Pinecone; what passes beyond is what it has no words for."""
    fields = freeze(metadata)
    expression = translate(condition)
    stored = storable(fields)
    passes = (
        expression if isinstance(expression, bool) else filter_test(expression, negations_match_absent=absent)(stored)
    )
    if matches(condition, fields):
        assert passes
    elif passes:
        assert "_rc_opaque" in stored or has_no_words_for(condition)


def has_no_words_for(condition: Filter) -> bool:
    """Whether Pinecone is asked for more than the filter lets pass."""
    match condition:
        case And(parts) | Or(parts):
            return any(map(has_no_words_for, parts))
        case Not(inner):
            return has_no_words_for(inner) or bool(operators_of(inner) & {"$gt", "$gte", "$lt", "$lte"})
        case Text() | Glob() | Contains():
            return True
        case Gt(path, value) | Gte(path, value) | Lt(path, value) | Lte(path, value):
            return isinstance(value, str) or path in {"id", "document_id", "page"}
        case _:
            return condition.field in {"id", "document_id", "title", "source", "parent_id", "page"}


@settings(max_examples=times(EXAMPLES))
@given(filter_strategies.metadata(), st.sampled_from([*filter_strategies.PATHS, "a.b.c.b", "b.b.c", "b.c"]))
def test_flat_fields_are_those_that_filters_look_up(metadata: dict[str, Any], path: str) -> None:
    """Every path leads to the same value, before and after."""
    fields: dict[str, JSON] = freeze(metadata)
    assert flat(fields).get(path) == lookup(fields, path)


@pytest.mark.parametrize(
    ("condition", "asked"),
    [
        (Text("a", "x"), {"a": {"$exists": True}}),
        (Glob("a", "x*"), {"a": {"$exists": True}}),
        (Gt("a", "x"), {"a": {"$exists": True}}),
        (Lte("timestamp", "2024-01-01"), {"timestamp": {"$exists": True}}),
        (Not(Gt("a", 1)), True),
        (And((Eq("b", 1), Not(Lt("a", 2)))), {"b": {"$eq": 1.0}}),
        (Not(Contains("a", "x")), True),
        (Not(Glob("a", "x*")), True),
    ],
)
def test_what_pinecone_cannot_say_is_asked_for_more_widely(condition: Filter, asked: Any) -> None:
    """Records that have the field at all, or for a negation all records; the store looks through what comes."""
    assert translate(condition, mapping({"title": "x"})) == asked


def test_too_many_values_are_refused() -> None:
    """Pinecone takes 10,000 in one operator."""
    with pytest.raises(UnsupportedFilterError, match="Pinecone"):
        translate(In("a", tuple(f"v{number}" for number in range(MOST_VALUES + 1))))


@pytest.mark.parametrize(
    ("condition", "stored", "expected"),
    [
        (Gt("n", 2**53 + 1), 2.0**53, False),
        (Gt("n", 2**53 + 1), 2.0**53 + 2, True),
        (Gte("n", 2**53 + 1), 2.0**53 + 2, True),
        (Lt("n", 2**53 + 1), 2.0**53, True),
        (Lte("n", 2**53 + 1), 2.0**53 + 2, False),
        (Eq("n", 2**53 + 1), 2.0**53, False),
        (Eq("n", 1), 1.0, True),
        (Ne("n", 1), True, True),
        (Eq("n", 5e-324), 5e-324, True),
        (Eq("n", -0.0), 0.0, True),
    ],
)
def test_numbers_compare_exactly(condition: Filter, stored: float | bool, expected: bool) -> None:
    """Numbers that 64-bit floats cannot hold are compared as what they are."""
    assert matches(condition, {"n": stored}) is expected
    expression = translate(condition)
    assert (expression if isinstance(expression, bool) else filter_test(expression)({"n": stored})) is expected


def test_a_field_of_an_own_record_is_absent_whatever_else_it_has() -> None:
    """Other names of a field are those of other programs: here they are a user's metadata."""
    fields = freeze({"url": "x", "text": "x", "content": "x", "position": 1})
    for condition in (Ne("source", "x"), NotIn("document_id", ("x",)), Exists("source", False), Ne("chunk_index", 1)):
        expression = translate(condition)
        assert matches(condition, fields)
        assert expression is True or filter_test(expression)(storable(fields))


def test_fields_within_json_are_not_asked_for() -> None:
    """Pinecone cannot look into text: it is asked for every record that may have the value there."""
    nodes = mapping({"preset": "llamaindex"})
    inside = mapping({"json": "data", "text": "data.text", "metadata": "data.meta"})
    assert translate(Eq("lang", "en"), inside) is True
    expression = translate(Eq("document_id", "d"), nodes)
    assert isinstance(expression, dict)
    accepts = filter_test(expression)
    assert [accepts(fields) for fields in ({"doc_id": "d"}, {"doc_id": "e"}, {"_node_content": "{}"})] == [
        True,
        False,
        True,
    ]


def test_small_filters_stay_small() -> None:
    """Constant parts fall away, and nothing is asked for that cannot be."""
    assert translate(None) is True
    assert translate(And(())) is True
    assert translate(Or(())) is False
    assert translate(Not(Or(()))) is True
    assert translate(In("a", ())) is False
    assert translate(NotIn("a", ())) is True
    assert translate(And((Eq("a", 1), Or(())))) is False
    assert translate(Eq("title", "x"), mapping({"title": "product"})) == {"product": {"$eq": "x"}}
    assert translate(Gte("price", 3), mapping({"title": "product"})) == {"price": {"$gte": 3.0}}
