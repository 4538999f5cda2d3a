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
from retrieval_core.testing.filter_strategies import HOSTILE_TEXTS
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
from support.pinecone_service import KEY, PineconeService, filter_test
from support.wire_server import Request

EXAMPLES = 300
BOTH_KINDS = (False, True)

FILM = {"genre": ["comedy", "documentary"], "year": 2020.0, "title": "One", "is_new": True}
"""A record like those of Pinecone's guide to filters."""


def mapping(fields: dict[str, str]) -> FieldMapping:
    return FieldMapping.load(fields, "store.pinecone.fields", is_flat=True)


@pytest.mark.parametrize(
    ("expression", "passes"),
    [
        ({}, True),
        ({"title": "One"}, True),
        ({"title": {"$eq": "Two"}}, False),
        ({"genre": "comedy"}, True),
        ({"genre": {"$in": ["documentary", "action"]}}, True),
        ({"$and": [{"genre": "comedy"}, {"genre": "documentary"}]}, True),
        ({"$and": [{"genre": "comedy"}, {"genre": "drama"}]}, False),
        ({"genre": {"$ne": "comedy"}}, False),
        ({"genre": {"$nin": ["comedy"]}}, False),
        ({"genre": {"$ne": "drama"}}, True),
        ({"year": {"$gte": 2020, "$lt": 2021}}, True),
        ({"year": {"$gt": 2020}}, False),
        ({"year": "2020"}, False),
        ({"is_new": {"$eq": True}}, True),
        ({"is_new": {"$eq": 1}}, False),
        ({"absent": {"$exists": False}}, True),
        ({"title": {"$exists": True}}, True),
        ({"$or": [{"title": "Two"}, {"year": {"$lte": 2020}}]}, True),
    ],
)
def test_the_service_reads_filters_as_documented(expression: dict[str, Any], passes: bool) -> None:
    """The examples of Pinecone's guide, and what follows from its table of operators."""
    assert filter_test(expression)(FILM) is passes


@pytest.mark.parametrize(
    "expression",
    [
        "year > 2000",
        {"$gt": 3},
        {"$not": {"a": 1}},
        {"a": {"$regex": "x"}},
        {"a": {"$gt": "x"}},
        {"a": {"$in": "x"}},
        {"a": {"$in": []}},
        {"a": {"$in": [True]}},
        {"a": {"$in": ["x", 1]}},
        {"a": {"$eq": None}},
        {"a": {"$eq": ["x"]}},
        {"a": {"$exists": 1}},
        {"$and": []},
        {"$or": {"a": 1}},
        {"a": {}},
    ],
)
def test_the_service_refuses_what_is_not_documented(expression: Any) -> None:
    """Unknown operators, operands of another kind and empty lists get status 400."""
    body = {"filter": expression, "limit": 1}
    assert _asked("/vectors/fetch_by_metadata", body) == 400


@pytest.mark.parametrize(
    "vector",
    [
        {"id": "a", "values": [1, 0]},
        {"id": "a", "values": [0, 0, 0]},
        {"id": "ü", "values": [1, 0, 0]},
        {"id": "", "values": [1, 0, 0]},
        {"id": "x" * 513, "values": [1, 0, 0]},
        {"id": "a", "values": [1, 0, 0], "metadata": {"a": None}},
        {"id": "a", "values": [1, 0, 0], "metadata": {"a": {"b": 1}}},
        {"id": "a", "values": [1, 0, 0], "metadata": {"a": [1]}},
        {"id": "a", "values": [1, 0, 0], "metadata": {"$a": 1}},
        {"id": "a", "values": [1, 0, 0], "metadata": {"a": "x" * 40_960}},
    ],
)
def test_the_service_refuses_records_that_pinecone_refuses(vector: dict[str, Any]) -> None:
    """Limits and kinds are those of the reference."""
    assert _asked("/vectors/upsert", {"vectors": [{"id": "a", "values": [1, 0, 0]}]}) == 200
    assert _asked("/vectors/upsert", {"vectors": [vector]}) == 400


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


@pytest.mark.parametrize("text", [*HOSTILE_TEXTS, "x" * 1_000_000, "lone \ud800", "$eq", "_rc", "_rc_doc"])
def test_hostile_values_stay_values(text: str) -> None:
    """Text of any kind is a value or a name, never an expression."""
    for condition in (
        Eq("a", text),
        Ne("a", text),
        In("a", (text, 1, True)),
        Exists(text),
        Eq(text, text),
        Not(Eq(text, 1)),
    ):
        for fields in ({"a": text}, {text: text}, {"a": "other"}, {}):
            if "\ud800" in text and fields and "other" not in fields.values():
                continue  # cannot be stored
            expression = translate(condition)
            passes = expression if isinstance(expression, bool) else filter_test(expression)(storable(fields))
            assert passes is matches(condition, fields)


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


def _asked(path: str, body: Any) -> int:
    import json

    headers = {"api-key": KEY, "x-pinecone-api-version": "2025-10"}
    return PineconeService(3)(Request("POST", path, {}, headers, json.dumps(body).encode())).status


def test_the_service_wants_the_key() -> None:
    """A wrong key is refused with status 401, as in the reference."""
    assert PineconeService(3)(Request("GET", "/describe_index_stats", {}, {"api-key": "x"}, b"")).status == 401
