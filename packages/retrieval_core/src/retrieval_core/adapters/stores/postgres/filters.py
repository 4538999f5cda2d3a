"""Filters in SQL, and the form of a chunk's fields that they look at.

The column ``fields`` has an object ``is`` with a list of scalars for each path at which a filter finds a value, the
paths of ``lists``, and in ``folded`` the texts of a path without their case, if that changes any. Whatever a user gives
is a parameter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from retrieval_core.adapters.stores.postgres.schema import encode, has_escapes, widen
from retrieval_core.adapters.stores.services import flat, is_text
from retrieval_core.types.filters import (
    And,
    Contains,
    Eq,
    Exists,
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
    chunk_fields,
)

if TYPE_CHECKING:
    from retrieval_core.types import JSON, Chunk
    from retrieval_core.types.filters import Condition, Filter, Scalar

_MARK = "\x01"
"""Begins a text in its wide form; no other encoded text without case begins so."""
_COMPARISONS = {Gt: ">", Gte: ">=", Lt: "<", Lte: "<="}
_SURROGATE = re.compile("[\ud800-\udfff]")
_ABOVE_SURROGATES = "\ue000"
_SIGNS = {"*": "%", "?": "_"}
_WIDE_SIGNS = {"*": "%", "?": "___"}
_LIKE = """EXISTS (
    SELECT FROM jsonb_array_elements(coalesce(fields->'folded'->{path}, fields->'is'->{path})) AS item (value)
    WHERE jsonb_typeof(value) = 'string' AND (value #>> '{{}}') COLLATE "C" LIKE
        CASE WHEN starts_with(value #>> '{{}}', E'\\x01') THEN {wide} ELSE {plain} END
)"""


def fields_json(chunk: Chunk) -> str:
    """Return the value of the column ``fields`` for a chunk."""
    scalars: dict[str, list[Any]] = {}
    folded: dict[str, list[str]] = {}
    lists: list[str] = []
    for name, value in flat(chunk_fields(chunk)).items():
        path = encode(name)
        is_list = isinstance(value, (list, tuple))
        items: Any = value if is_list else () if isinstance(value, Mapping) else (value,)
        scalars[path] = [_scalar(item) for item in items if isinstance(item, (str, int, float))]
        if is_list:
            lists.append(path)
        texts = [item for item in items if isinstance(item, str)]
        if any(has_escapes(text) or text.casefold() != text for text in texts):
            folded[path] = list(map(_folded, texts))
    return json.dumps({"is": scalars, "lists": lists, "folded": folded}, ensure_ascii=False, separators=(",", ":"))


def _scalar(value: JSON) -> Any:
    """Return a scalar so that two are equal in PostgreSQL's decimal numbers exactly if they are in Python.

    A float that is no whole number is as its shortest decimal form, as no whole number is between the two.
    """
    if isinstance(value, str):
        return encode(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _folded(text: str) -> str:
    text = text.casefold()
    return _MARK + widen(text) if has_escapes(text) else text


def to_sql(condition: Filter | None, parameters: dict[str, Any]) -> str:  # noqa: PLR0911 - a case for each kind
    """Return a filter as an expression over ``entries`` that is true or false, and add its parameters."""
    match condition:
        case None:
            return "true"
        case And(filters):
            return f"({' AND '.join(['true', *(to_sql(part, parameters) for part in filters)])})"
        case Or(filters):
            return f"({' OR '.join(['false', *(to_sql(part, parameters) for part in filters)])})"
        case Not(inner):
            return f"(NOT {to_sql(inner, parameters)})"
        case Exists(value=False):
            return f"(NOT {_test(condition, parameters)})"
        case Ne(field, value):
            return f"(NOT {_test(Eq(field, value), parameters)})"
        case NotIn(field, values):
            return f"(NOT {_test(In(field, values), parameters)})"
        case _:
            return _test(condition, parameters)


def _test(condition: Condition, parameters: dict[str, Any]) -> str:  # noqa: PLR0911 - a case for each operator
    """Return a condition that only a chunk with the field can meet."""
    if not is_text(condition.field):
        return "false"
    path = encode(condition.field)

    def given(value: Any) -> str:
        name = f"filter{len(parameters)}"
        parameters[name] = value
        return f"%({name})s"

    match condition:
        case Eq(value=value):
            return f"fields @> ANY({given(_containing(path, (value,)))}::jsonb[])"
        case In(values=values):
            return f"fields @> ANY({given(_containing(path, values))}::jsonb[])"
        case Contains(value=value):
            return f"fields @> ANY({given(_containing(path, (value,), lists=[path]))}::jsonb[])"
        case Text(value=text) | Glob(value=text):
            if not is_text(text):
                return "false"
            folded = text.casefold()
            parts = ["", "*", folded, "*", ""] if isinstance(condition, Text) else re.split("([*?])", folded)
            plain = "".join(_SIGNS[part] if at % 2 else _literal(encode(part)) for at, part in enumerate(parts))
            wide = "".join(_WIDE_SIGNS[part] if at % 2 else _literal(widen(part)) for at, part in enumerate(parts))
            return _LIKE.format(path=given(path), plain=given(plain), wide=given(_MARK + wide))
        case Gt() | Gte() | Lt() | Lte():
            value, comparison = condition.value, _COMPARISONS[type(condition)]
            if isinstance(value, str) and (half := _SURROGATE.search(value)):  # no stored text is equal to such a one
                value, comparison = value[: half.start()] + _ABOVE_SURROGATES, "<" if comparison[0] == "<" else ">="
            operand = given(json.dumps({"value": _scalar(value)}, ensure_ascii=False))
            found = (
                f"jsonb_path_exists(fields->'is'->{given(path)}, '$[*] ? (@ {comparison} $value)', {operand}::jsonb)"
            )
            return f"coalesce({found}, false)"
        case _:
            return f"jsonb_exists(fields->'is', {given(path)})"


def _literal(text: str) -> str:
    return re.sub(r"([\\%_])", r"\\\1", text)


def _containing(path: str, values: tuple[Scalar, ...], **more: Any) -> list[str]:
    known = [value for value in values if not isinstance(value, str) or is_text(value)]
    return [json.dumps({"is": {path: [_scalar(value)]}, **more}, ensure_ascii=False) for value in known]
