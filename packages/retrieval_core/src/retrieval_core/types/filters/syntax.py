"""Metadata filters as JSON, in the syntax of Pinecone and MongoDB, and as Python keywords."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, cast

from retrieval_core.errors import FilterError
from retrieval_core.types.filters import (
    CONDITIONS,
    OPERATORS,
    And,
    Condition,
    Eq,
    Filter,
    In,
    Not,
    NotIn,
    Or,
    check_filter_depth,
    parts_of,
    shown,
)

MAX_CONDITIONS = 256
"""Maximum number of conditions of a filter: each of them is tested on every chunk."""


def parse_filter(source: str | Mapping[str, Any]) -> Filter:
    """Parse a metadata filter from JSON, and check it.

    All fields, and all operators of a field, must match. A bare value means ``$eq``.

    Args:
        source: JSON text, or the decoded object, such as ``{"price": {"$lte": 150}, "brand": "Acme"}``.

    Returns:
        The filter, for the argument ``filters`` of every query.

    Raises:
        FilterError: The JSON is invalid, an operator is unknown, or a value has the wrong type. A filter has at most
            256 conditions and 64 levels.

    Example::

        with open_index("notes.db") as index:
            print(index.retrieve("moon", parse_filter('{"source": {"$glob": "notes/*"}}')).hits)
    """
    decoded: object = source
    if isinstance(source, str):
        try:
            decoded = json.loads(source)
        except (ValueError, RecursionError) as error:
            msg = f'the filter is not valid JSON ({error}); write for instance {{"brand": "Acme"}}'
            raise FilterError(msg) from error
    parsed = _parse(decoded, 0)
    count = sum(not isinstance(part, (And, Or, Not)) for part in parts_of(parsed))
    if count > MAX_CONDITIONS:
        msg = f"a filter may have at most {MAX_CONDITIONS} conditions, got {count}; to match one of many values use $in"
        raise FilterError(msg)
    return parsed


def _parse(source: object, depth: int) -> Filter:
    check_filter_depth(depth)
    if not isinstance(source, Mapping) or not source:
        msg = f"a filter is a JSON object with at least one field or operator, got {shown(cast('object', source))}"
        raise FilterError(msg)
    items = cast("Mapping[str, object]", source)
    parts = tuple(_parse_item(key, value, depth) for key, value in items.items())
    return parts[0] if len(parts) == 1 else And(parts)


def _parse_item(key: object, value: object, depth: int) -> Filter:
    if not isinstance(key, str):
        msg = f"a filter's keys are names of fields or operators, which are text, got {shown(key)}"
        raise FilterError(msg)
    if key in {"$and", "$or"}:
        if not isinstance(value, (list, tuple)) or not value:
            msg = f"{key} takes a list of at least one filter, got {shown(cast('object', value))}"
            raise FilterError(msg)
        parts = tuple(_parse(part, depth + 1) for part in cast("list[object]", value))
        return And(parts) if key == "$and" else Or(parts)
    if key == "$not":
        return Not(_parse(value, depth + 1))
    if key.startswith("$"):
        raise _unknown_operator(key)
    return _parse_field(key, value, depth)


def _parse_field(field: str, value: object, depth: int) -> Filter:
    check_filter_depth(depth)
    if not isinstance(value, Mapping):
        if isinstance(value, (list, tuple)):
            msg = f'field {field!r:.80}: to match one of several values write {{"{field:.80}": {{"$in": [...]}}}}'
            raise FilterError(msg)
        return _condition(Eq, field, value)
    operators = cast("Mapping[str, object]", value)
    if not operators:
        msg = f'field {field!r:.80}: an operator is missing; write for instance {{"{field:.80}": {{"$eq": "value"}}}}'
        raise FilterError(msg)
    parts: list[Filter] = []
    for name, operand in operators.items():
        if name == "$not":
            parts.append(Not(_parse_field(field, operand, depth + 1)))
        elif name in CONDITIONS:
            parts.append(_condition(CONDITIONS[name], field, operand))
        else:
            raise _unknown_operator(name, field)
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _condition(kind: Callable[[str, Any], Condition], field: str, operand: object) -> Condition:
    if kind in {In, NotIn} and not isinstance(operand, (list, tuple)):
        msg = f"field {field!r:.80}: $in and $nin take a list of values, got {shown(operand)}"
        raise FilterError(msg)
    try:
        return kind(field, cast("Any", operand))
    except FilterError as error:
        msg = f"field {field!r:.80}: {error}"
        raise FilterError(msg) from error


def _unknown_operator(name: object, field: str | None = None) -> FilterError:
    where = f"field {field!r:.80}: " if field else ""
    near = get_close_matches(name, OPERATORS, n=1) if isinstance(name, str) else []
    hint = f"Did you mean {near[0]}?" if near else f"Use one of {', '.join(sorted(OPERATORS))}."
    return FilterError(f"{where}unknown operator {shown(name)}. {hint}")


def where(**conditions: Any) -> Filter:
    """Build a metadata filter from keyword arguments, such as ``where(brand="Acme", price__lte=150)``.

    Args:
        conditions: One keyword per condition, all of which must match. The name is the field; add ``__`` and an
            operator without ``$`` for other conditions than equality: ``price__lte``. Any other ``__`` is the dot of a
            nested
            field: ``specs__ram__gte`` is ``specs.ram``.

    Returns:
        The filter, for the argument ``filters`` of every query.

    Raises:
        FilterError: There is no condition, or a value has the wrong type.

    Example::

        with open_index("notes.db") as index:
            print(index.retrieve("moon", where(source__glob="notes/*")).hits)
    """
    if not conditions:
        msg = "where() needs at least one condition, for instance where(brand='Acme')"
        raise FilterError(msg)
    parts: list[Filter] = []
    for name, value in conditions.items():
        *path, last = name.split("__")
        if path and f"${last}" in CONDITIONS:
            parts.append(_condition(CONDITIONS[f"${last}"], ".".join(path), value))
        else:
            parts.append(_condition(Eq, ".".join((*path, last)), value))
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def to_json(condition: Filter) -> dict[str, Any]:
    """Return a filter as JSON; :func:`parse_filter` returns an equal filter."""
    match condition:
        case And(filters) | Or(filters):
            return {condition.operator: [to_json(part) for part in filters]}
        case Not(inner):
            return {"$not": to_json(inner)}
        case In(field, values) | NotIn(field, values):
            return {field: {condition.operator: list(values)}}
        case _:
            return {condition.field: {condition.operator: condition.value}}
