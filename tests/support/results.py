"""Results of all kinds, for property tests. The fields are read from the types, so that none is forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta, timezone
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from retrieval_core.types import RetrievalResult

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = (None, UTC, timezone(timedelta(hours=-3, seconds=7)), BERLIN, ZoneInfo("UTC"))

texts = st.text(max_size=20) | st.sampled_from(["\U0001f600", "\x00"])
integers = st.integers(-(2**70), 2**70)
moments = st.datetimes(timezones=st.sampled_from(ZONES), allow_imaginary=True) | st.builds(
    datetime, *map(st.just, (2024, 10, 27, 2, 30)), tzinfo=st.just(BERLIN), fold=st.integers(0, 1)
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | integers | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=4,
)


class AnyJson:
    """Stands for JSON in type hints."""


PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    NoneType: st.none(),
    str: texts,
    int: integers,
    float: st.floats(),
    bool: st.booleans(),
    datetime: moments,
    AnyJson: json_values,
}


def hints_of(kind: type) -> dict[str, Any]:
    names = {"JSON": AnyJson, "Metadata": Mapping[str, AnyJson], "Mapping": Mapping, "datetime": datetime}
    hints = get_type_hints(kind, localns=names)
    return {field.name: hints[field.name] for field in fields(kind)}


def strategy_for(hint: Any) -> st.SearchStrategy[Any]:
    """Return values of a type as the library's value types write it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in PLAIN:
        return PLAIN[hint]
    if origin in (Union, UnionType):
        return st.one_of(*map(strategy_for, arguments))
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(strategy_for(arguments[0]), max_size=2).map(lambda items: cast("Any", tuple(items)))
    if origin is tuple:
        return st.tuples(*map(strategy_for, arguments))
    if origin is get_origin(Mapping[str, int]):
        return st.dictionaries(texts, strategy_for(arguments[1]), max_size=3)
    assert is_dataclass(hint), f"no strategy for {hint}"
    return st.builds(
        cast("Any", hint), **{name: strategy_for(inner) for name, inner in hints_of(cast("type", hint)).items()}
    )


results: st.SearchStrategy[RetrievalResult] = strategy_for(RetrievalResult)
