from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields
from enum import StrEnum
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.pipeline.stages.state import Plan, digest
from retrieval_core.testing.filter_strategies import filters
from retrieval_core.types.filters import CONDITIONS, And, Eq, Filter, In, Not, Or
from support.examples import times
from support.results import json_values, texts

GIVEN: dict[str, Any] = {
    "query": "How?",
    "filters": And((Eq("a", 1), Or((In("b", ("x", "y")), Not(Eq("c", "\ud800")))))),
    "parameters": {"top_k": 5, "threshold": 0.5, "mode": "hybrid", "more": {"a": [1, None, True]}},
    "fingerprint": "abc",
    "version": "7",
    "epoch": 0,
}


def result_key(**inputs: Any) -> str:
    return digest(*(inputs[name] for name in GIVEN))


def key(**changes: Any) -> str:
    return result_key(**{**GIVEN, **changes})


inputs: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "query": texts,
        "filters": st.none() | filters(),
        "parameters": st.dictionaries(texts, json_values, max_size=3),
        "fingerprint": texts,
        "version": st.none() | texts,
        "epoch": st.integers(0, 3),
    }
)


def exact(value: Any) -> Any:
    """A value that is equal to another's only where the two mean the same: types count, the order of keys does not."""
    if isinstance(value, dict):
        mapping = cast("dict[str, Any]", value)
        return ("mapping", frozenset((name, exact(item)) for name, item in mapping.items()))
    if isinstance(value, (list, tuple)):
        return ("list", tuple(exact(item) for item in cast("list[Any]", value)))
    if hasattr(value, "operator"):
        return (
            type(value),
            *(
                exact(getattr(value, name))
                for name in ("field", "value", "values", "filter", "filters")
                if hasattr(value, name)
            ),
        )
    return (type(value), repr(value))


@settings(max_examples=times(500))
@given(inputs, inputs)
def test_different_inputs_have_different_keys(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Two keys are equal exactly where all inputs are, types included."""
    assert (result_key(**one) == result_key(**other)) == (exact(one) == exact(other))


@settings(max_examples=times(300))
@given(data=st.data(), given_inputs=inputs)
def test_each_input_counts(data: st.DataObject, given_inputs: dict[str, Any]) -> None:
    """With all others alike, each input alone decides whether two keys are equal."""
    name = data.draw(st.sampled_from(sorted(given_inputs)))
    other = {**given_inputs, name: data.draw(inputs)[name]}
    assert (result_key(**given_inputs) == result_key(**other)) == (exact(given_inputs) == exact(other))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"filters": Eq("a", 1)}, {"filters": Eq("a", True)}),
        ({"filters": Eq("a", 1)}, {"filters": Eq("a", "1")}),
        ({"filters": Eq("a", 1)}, {"filters": In("a", (1,))}),
        ({"filters": In("a", (1,))}, {"filters": In("a", (True,))}),
        ({"filters": In("a", ("x", "y"))}, {"filters": In("a", ("x,y",))}),
        ({"filters": In("a", ("x", "y"))}, {"filters": In("a", ("x','y",))}),
        ({"filters": And(())}, {"filters": Or(())}),
        ({"filters": And(())}, {"filters": None}),
        ({"filters": And((Eq("a", 1), Eq("b", 2)))}, {"filters": And((And((Eq("a", 1),)), Eq("b", 2)))}),
        ({"parameters": {"a": 1}}, {"parameters": {"a": 1.0}}),
        ({"parameters": {"a": 1}}, {"parameters": {"a": True}}),
        ({"parameters": {"a": None}}, {"parameters": {}}),
        ({"parameters": {"a": None}}, {"parameters": {"a": "None"}}),
        ({"parameters": {"a": {}}}, {"parameters": {"a": []}}),
        ({"version": None}, {"version": "None"}),
        ({"epoch": 0}, {"epoch": 1}),
        ({"query": "\ud800"}, {"query": "\\ud800"}),
        ({"query": "é"}, {"query": "e\u0301"}),
    ],
)
def test_what_must_differ(left: dict[str, Any], right: dict[str, Any]) -> None:
    """Values that Python, or a careless join, takes for the same have two keys."""
    assert key(**left) != key(**right)


def test_what_may_not_differ() -> None:
    """The order of parameters, and whether a list is a tuple, mean nothing; a subclass is what it is a kind of."""

    class Mode(StrEnum):
        HYBRID = "hybrid"

    parameters = dict(reversed(GIVEN["parameters"].items()))
    assert key(parameters={**parameters, "more": {"a": (1, None, True)}}) == key()
    assert key(parameters={**parameters, "mode": Mode.HYBRID, "threshold": np.float64(0.5)}) == key()


@pytest.mark.parametrize("kind", CONDITIONS.values(), ids=lambda kind: kind.operator)
def test_every_condition_counts(kind: type[Filter]) -> None:
    """Each kind of condition has keys of its own, by field and by operand."""
    make: Any = kind
    operands: tuple[Any, Any] = ("a", "b")
    if kind.operator in {"$in", "$nin"}:
        operands = (("a",), ("b",))
    if kind.operator == "$exists":
        operands = (True, False)
    keys = {key(filters=make("f", operand)) for operand in operands} | {key(filters=make("g", operands[0]))}
    assert len(keys | {key(filters=Not(make("f", operands[0])))}) == 4


def test_the_key_is_the_same_everywhere() -> None:
    """Another process, with another seed of hashes, has the same key, which never changes by accident."""
    program = (
        "from retrieval_core.pipeline.stages.state import digest\n"
        "from retrieval_core.types.filters import *\n"
        f"print(digest(*{list(GIVEN.values())!r}))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("0", "1", "4242")
    }
    assert found == {key()}
    assert key() == "bcae8ec1b0960c24a34896a265f60837201243be6c521eb1826a511ac46762fb"


def test_every_setting_of_a_query_is_in_the_key() -> None:
    """Fields of a plan that change no result say so; a new field is in the key without anybody thinking of it."""
    assert {field.name for field in fields(Plan) if not field.compare} == {"session_id", "use_cache"}
