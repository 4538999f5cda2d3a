"""What filters mean, and how they are written."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.errors import FilterError
from retrieval_core.testing.filter_strategies import conditions, example_of, filters, metadata, texts
from retrieval_core.types import Chunk, PageSpan
from retrieval_core.types.filters import (
    MAX_FILTER_DEPTH,
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
    MetadataFilter,
    Ne,
    Not,
    NotIn,
    Or,
    Text,
    _Comparison,
    _Condition,
    all_of,
    chunk_fields,
    lookup,
    matches,
    operators_of,
)
from retrieval_core.types.filters.syntax import MAX_CONDITIONS, parse_filter, to_json, where

FIELDS: dict[str, Any] = {
    "brand": "Acme",
    "price": 100,
    "new": True,
    "tags": ["red", "blue", 3],
    "specs": {"ram": 8, "cpu": {"cores": 4}},
    "specs.ram": 16,
    "none": None,
}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Eq("brand", "Acme"), True),
        (Eq("brand", "acme"), False),
        (Eq("price", 100.0), True),
        (Eq("new", 1), False),
        (Eq("price", "100"), False),
        (Eq("tags", "red"), True),
        (Eq("none", "None"), False),
        (Ne("brand", "Acme"), False),
        (Ne("absent", "x"), True),
        (Ne("tags", "red"), False),
        (In("brand", ("x", "Acme")), True),
        (In("new", (1, 0)), False),
        (In("brand", ()), False),
        (In("tags", ("blue",)), True),
        (NotIn("brand", ("x",)), True),
        (NotIn("absent", ("x",)), True),
        (NotIn("tags", (3,)), False),
        (Gt("price", 99.5), True),
        (Gt("price", 100), False),
        (Gte("price", 100), True),
        (Lt("price", 101), True),
        (Lt("price", 100), False),
        (Lte("price", 100), True),
        (Gt("brand", "Abc"), True),
        (Gt("brand", 1), False),
        (Gt("price", "1"), False),
        (Gte("new", 0), False),
        (Lt("tags", 4), True),
        (Lt("specs", 4), False),
        (Lt("absent", 4), False),
        (Contains("tags", "red"), True),
        (Contains("tags", 3), True),
        (Contains("brand", "Acme"), False),
        (Contains("absent", "x"), False),
        (Text("brand", "CM"), True),
        (Text("tags", "lu"), True),
        (Text("price", "1"), False),
        (Text("absent", ""), False),
        (Glob("brand", "a*E"), True),
        (Glob("brand", "a?m?"), True),
        (Glob("brand", "cme"), False),
        (Glob("tags", "*D"), True),
        (Glob("price", "*"), False),
        (Exists("brand"), True),
        (Exists("none"), False),
        (Exists("absent", value=False), True),
        (Eq("specs.ram", 16), True),
        (Eq("specs.cpu.cores", 4), True),
        (Exists("specs.cpu.cores.x"), False),
        (Exists("brand.x"), False),
        (And((Eq("brand", "Acme"), Eq("price", 100))), True),
        (And((Eq("brand", "Acme"), Eq("price", 1))), False),
        (And(()), True),
        (Or((Eq("brand", "x"), Eq("price", 100))), True),
        (Or(()), False),
        (Not(Eq("brand", "x")), True),
        (None, True),
    ],
)
def test_meaning(condition: Filter | None, *, expected: bool) -> None:
    assert matches(condition, FIELDS) is expected


@given(metadata(), filters(), filters())
def test_algebra(fields: dict[str, Any], one: Filter, two: Filter) -> None:
    """Negation, De Morgan and the pairs of opposite operators hold for any filter."""
    assert matches(Not(one), fields) is not matches(one, fields)
    assert matches(And((one, two)), fields) is (matches(one, fields) and matches(two, fields))
    assert matches(Not(Or((one, two))), fields) is matches(And((Not(one), Not(two))), fields)


@given(metadata(), texts())
def test_opposites(fields: dict[str, Any], value: str) -> None:
    for path in (*fields, "a.b"):
        assert matches(Eq(path, value), fields) is not matches(Ne(path, value), fields)
        assert matches(In(path, (value,)), fields) is matches(Eq(path, value), fields)
        assert matches(NotIn(path, (value,)), fields) is not matches(In(path, (value,)), fields)
        assert matches(Exists(path), fields) is not matches(Exists(path, value=False), fields)


@given(st.text("aB*?.\n", max_size=8), st.text("abB.\n*", max_size=12))
def test_globs_agree_with_regular_expressions(pattern: str, text: str) -> None:
    translated = "".join({"*": ".*", "?": "."}.get(letter, re.escape(letter)) for letter in pattern.casefold())
    expected = re.fullmatch(translated, text.casefold(), re.DOTALL) is not None
    assert matches(Glob("a", pattern), {"a": text}) is expected


def test_conditions_must_say_what_they_test() -> None:
    class Incomplete(_Comparison):
        operator = "$incomplete"

    for make in (lambda: _Condition("a"), lambda: Incomplete("a", 1)):  # type: ignore[abstract]
        with pytest.raises(TypeError, match="abstract"):
            make()


def test_globs_do_not_blow_up() -> None:
    assert not matches(Glob("a", "*a" * 30 + "b"), {"a": "a" * 5000})


@pytest.mark.parametrize(
    "make",
    [
        lambda: Eq("a", None),  # type: ignore[arg-type]
        lambda: Ne("a", [1]),  # type: ignore[arg-type]
        lambda: Eq("a", float("nan")),
        lambda: Gt("a", float("inf")),
        lambda: Gte("a", True),
        lambda: In("a", (None,)),  # type: ignore[arg-type]
        lambda: Contains("a", {}),  # type: ignore[arg-type]
        lambda: Text("a", 1),  # type: ignore[arg-type]
        lambda: Glob("a", None),  # type: ignore[arg-type]
        lambda: Exists("a", "yes"),  # type: ignore[arg-type]
    ],
)
def test_operands_of_the_wrong_kind_are_refused(make: Any) -> None:
    with pytest.raises(FilterError, match=r"\$"):
        make()


def test_fields_of_a_chunk() -> None:
    time = datetime(2024, 1, 2, tzinfo=UTC)
    chunk = Chunk(
        "c", "d", "text", 3, page_span=PageSpan(2, 4), section_path=("A",), title="T", timestamp=time,
        metadata={"title": "own", "x": 1},
    )  # fmt: skip
    fields = chunk_fields(chunk)
    assert fields["page"] == (2, 3, 4)
    assert fields["timestamp"] == "2024-01-02T00:00:00+00:00"
    assert (fields["title"], fields["x"], fields["section"], fields["source"]) == ("own", 1, ("A",), None)
    assert chunk_fields(Chunk("c", "d", "text"))["page"] is None
    assert lookup(fields, "no.such") is None


def test_all_of_leaves_out_what_is_not_given() -> None:
    one, two = Eq("a", 1), Eq("b", 2)
    assert all_of(None, None) is None
    assert all_of(None, one) is one
    assert all_of(one, None, two) == And((one, two))


@given(filters())
def test_operators_of(condition: Filter) -> None:
    assert operators_of(condition) <= OPERATORS
    assert {f'"{name}"' in json.dumps(to_json(condition)) for name in operators_of(condition)} == {True}


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_every_operator_has_an_example(name: str) -> None:
    assert name in operators_of(example_of(name))


@given(filters())
def test_json_round_trip(condition: Filter) -> None:
    """Every filter that the syntax can express is read back equal; empty And and Or have no syntax."""
    form = to_json(condition)
    if '"$and": []' in json.dumps(form) or '"$or": []' in json.dumps(form):
        with pytest.raises(FilterError):
            parse_filter(form)
    else:
        assert repr(parse_filter(form)) == repr(condition)
        assert repr(parse_filter(json.dumps(form))) == repr(condition)


@given(conditions(frozenset({"$eq"})))
def test_operator_subsets_are_kept(condition: Filter) -> None:
    assert operators_of(condition) == {"$eq"}


@given(filters(frozenset({"$eq", "$lt"})))
def test_without_combinators_there_are_conditions_only(condition: Filter) -> None:
    assert isinstance(condition, (Eq, Lt))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('{"price": {"$lte": 150}, "brand": "Acme"}', And((Lte("price", 150), Eq("brand", "Acme")))),
        ({"price": {"$gte": 1, "$lt": 2}}, And((Gte("price", 1), Lt("price", 2)))),
        ({"price": {"$not": {"$gt": 5}}}, Not(Gt("price", 5))),
        ({"price": {"$not": 5}}, Not(Eq("price", 5))),
        ({"$not": {"a": 1}}, Not(Eq("a", 1))),
        ({"$or": [{"a": 1}, {"b": True}]}, Or((Eq("a", 1), Eq("b", True)))),
        ({"$and": [{"a": {"$in": ["x"]}}]}, And((In("a", ("x",)),))),
        ({"a": {"$exists": False}}, Exists("a", value=False)),
    ],
)
def test_parsing(source: Any, expected: Filter) -> None:
    assert parse_filter(source) == expected


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "JSON object"),
        ({}, "JSON object"),
        ("3", "JSON object"),
        ({"$and": []}, r"\$and takes a list"),
        ({"$or": {"a": 1}}, r"\$or takes a list"),
        ({"$or": [1]}, "JSON object"),
        ({"$nor": [{"a": 1}]}, r"unknown operator '\$nor'. Did you mean \$or"),
        ({"a": {"$regexp": 1}}, "field 'a': unknown operator"),
        ({"a": {"$zzzzzz": 1}}, r"Use one of \$and"),
        ({"a": {"b": 1}}, "unknown operator 'b'"),
        ({"a": [1, 2]}, r"\$in"),
        ({"a": {}}, "operator is missing"),
        ({"a": {"$in": "x"}}, "list"),
        ({"a": {"$lt": True}}, r"field 'a': \$lt"),
        ({"a": None}, r"\$exists for an absent"),
    ],
)
def test_faults_are_named(source: Any, message: str) -> None:
    with pytest.raises(FilterError, match=message):
        parse_filter(source)


def test_nesting_is_limited() -> None:
    def nested(depth: int) -> dict[str, Any]:
        return {"a": 1} if depth == 0 else {"$not": nested(depth - 1)}

    def nested_field(depth: int) -> Any:
        return 1 if depth == 0 else {"$not": nested_field(depth - 1)}

    assert parse_filter(nested(MAX_FILTER_DEPTH))
    assert parse_filter({"a": nested_field(MAX_FILTER_DEPTH)})
    for source in (nested(MAX_FILTER_DEPTH + 1), {"a": nested_field(MAX_FILTER_DEPTH + 1)}):
        with pytest.raises(FilterError, match="levels deep"):
            parse_filter(source)


def test_the_number_of_conditions_is_limited() -> None:
    """Each condition costs a look at every chunk, so a filter from outside cannot have any number of them."""
    few = {f"f{number}": 1 for number in range(MAX_CONDITIONS - 1)}
    assert parse_filter({**few, "$not": {"last": 1}})
    too_many: tuple[dict[str, Any], ...] = (
        {**few, "$not": {"$or": [{"a": 1}, {"b": 1}]}},
        {"$or": [{"a": number} for number in range(MAX_CONDITIONS + 1)]},
        {"a": {"$gt": 1, "$lt": 2}, **{f"f{number}": {"$not": {"$eq": 1}} for number in range(MAX_CONDITIONS)}},
    )
    for source in too_many:
        with pytest.raises(FilterError, match=r"at most \d+ conditions, got \d+; .* use \$in"):
            parse_filter(source)


def test_messages_stay_short() -> None:
    """A field's name from outside may be of any length, and is not repeated whole."""
    wrong: tuple[Any, ...] = ({"$foo": 1}, [1], {}, {"$in": 1})
    for source in ({"x" * 10_000: value} for value in wrong):
        with pytest.raises(FilterError) as caught:
            parse_filter(source)
        assert len(str(caught.value)) < 500


def test_keywords() -> None:
    assert where(brand="Acme") == Eq("brand", "Acme")
    assert where(price__lte=150, specs__ram__gte=8) == And((Lte("price", 150), Gte("specs.ram", 8)))
    assert where(specs__ram=8) == Eq("specs.ram", 8)
    assert where(eq=8) == Eq("eq", 8)
    assert where(a__in=["x", "y"]) == In("a", ("x", "y"))
    with pytest.raises(FilterError, match="at least one"):
        where()
    with pytest.raises(FilterError, match="list"):
        where(a__nin=3)


@pytest.mark.parametrize("bound", ["100", True, [1], float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["min_price", "max_price", "min_rating"])
def test_the_short_form_takes_numbers(name: str, bound: Any) -> None:
    """Text would be compared with text, and find nothing without a word."""
    with pytest.raises(FilterError):
        MetadataFilter(**{name: bound})
    assert MetadataFilter().as_filter() is None
