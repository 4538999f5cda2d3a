"""Filters in SQL for a table of another program.

An expression holds for all rows that match a filter, and maybe for others, which Python leaves out. Whatever a user
gives is a parameter; names of columns are quoted.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from retrieval_core.adapters.stores.foreign import OF_THE_RECORD
from retrieval_core.adapters.stores.services import is_text
from retrieval_core.types.filters import And, Contains, Eq, Gt, Gte, In, Lt, Lte, Or

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from retrieval_core.adapters.stores.foreign import FieldMapping, FieldPath
    from retrieval_core.types.filters import Filter, Scalar

_TEXTS = frozenset({"text", "varchar"})
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,14}")
"""A whole number that a float has exactly."""
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _is_integer(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None and -(2**63) <= int(text) < 2**63


_CAN_BE: Mapping[str, Callable[[str], object]] = {
    "int2": _is_integer,
    "int4": _is_integer,
    "int8": _is_integer,
    "uuid": _UUID.fullmatch,
}
"""Types of columns other than text that are compared as such, and what tells whether a text can be a value of one."""
_COMPARISONS = {Gt: ">", Gte: ">=", Lt: "<", Lte: "<="}
_EXACT = 2**53
_MOST_LEVELS = 16
_REFERENCE = ("ref_doc_id",)
"""The ID of a document that LlamaIndex's tables have an index of."""


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of a table.

    Attributes:
        schema: Quoted.
        name: Quoted, with the schema.
        key: The column that identifies a row.
        key_type: Its type, quoted and with the schema of the type.
        vector: The column that is searched.
        type: Of the vector: ``vector`` or ``halfvec``.
        dimension: Components of a vector; 0 if rows may have several.
        types: Of the columns that a record has, by their names, and of the key.
        fields: The JSON column whose fields are those of the record.
        casts: Types by dimension: the table has an index for the cosine distance of vectors as these.
        is_indexed: Whether it has one of the vectors as they are.
    """

    schema: str
    name: str
    key: str
    key_type: str
    vector: str
    type: str
    dimension: int
    types: Mapping[str, str]
    fields: str | None
    casts: Mapping[int, str]
    is_indexed: bool


class TableFilter:
    """Writes filters as expressions over the rows ``t`` of a table.

    Args:
        mapping: How rows are read.
        given: Gets the parameters of the expressions.
    """

    def __init__(self, table: Table, mapping: FieldMapping, given: dict[str, Any]) -> None:
        self._table = table
        self._mapping = mapping
        self._given = given

    def write(self, condition: Filter | None) -> str | None:
        """Return an expression that holds for all rows that match; ``None`` for all rows."""
        match condition:
            case And(filters):
                parts = [part for each in filters if (part := self.write(each)) is not None]
                return f"({' AND '.join(parts)})" if parts else None
            case Or(filters):
                parts = [self.write(each) for each in filters]
                known = [part for part in parts if part is not None]
                return _any(known) if len(known) == len(parts) else None
            case Eq(field, value) | Contains(field, value):
                return self._equal(field, (value,))
            case In(field, values):
                return self._equal(field, values)
            case Gt(field, value) | Gte(field, value) | Lt(field, value) | Lte(field, value):
                return self._compared(field, _COMPARISONS[type(condition)], value)
            case _:
                return None

    def is_key(self, texts: Iterable[str]) -> str:
        """Return an expression for the rows with some keys."""
        return self._column_is(self._table.key, texts)

    def _equal(self, field: str, values: Iterable[Scalar]) -> str | None:
        """Return an expression for rows in which a field is one of some values, or a list with one."""
        found = [_forms(value, is_ours=field in self._mapping.paths) for value in values]
        forms = [form for each in found if each is not None for form in each]
        paths = self._paths(field)
        if None in found or paths is None:
            return None
        arms = self._equal_at(filter(self._can_read, paths), forms)
        for at, path in enumerate(paths):
            if not self._can_read(path):  # it counts if none of those before it is there
                arms.append(f"({' AND '.join(['true', *map(self._absent, filter(self._can_read, paths[:at]))])})")
        texts = [form for form in forms if isinstance(form, str)]
        if field in OF_THE_RECORD:
            arms.append(self.is_key(texts))
        expression = _any(arms)
        if field == "document_id" and paths[0] == _REFERENCE and self._table.fields and len(texts) == len(forms):
            own = f"{self._column(self._table.fields)} ->> 'ref_doc_id'"
            looked_up = f"{own} = ANY({self._parameter(texts)}::text[])"
            expression = f"({_any([looked_up, f'{own} IS NULL', arms[-1]])} AND {expression})"
        return expression

    def _compared(self, field: str, operator: str, value: Scalar) -> str | None:
        """Return an expression for rows in which a field, or an item of it, compares with a value."""
        is_known = _is_stored(value) if isinstance(value, str) else abs(value) < _EXACT
        paths = self._paths(field)
        if (
            field in self._mapping.paths
            or field in OF_THE_RECORD
            or not is_known
            or paths is None
            or not all(map(self._can_read, paths))
        ):
            return None
        operand = self._parameter(json.dumps({"value": value}, ensure_ascii=False))
        arms: list[str] = []
        for place, rest in (found for path in paths for found in self._places(path)):
            steps = "".join(f".{json.dumps(name, ensure_ascii=False)}" for name in rest)
            wanted = self._parameter(f"${steps} ? (@ {operator} $value)")
            arms.append(f"jsonb_path_exists({place}, {wanted}::jsonpath, {operand}::jsonb)")
        return _any(arms)

    def _paths(self, field: str) -> Sequence[FieldPath] | None:
        """Return where a record may have a field; ``None`` if that is not known."""
        if not _is_stored(field):
            return None
        if field in self._mapping.paths:
            return self._mapping.places(field)
        names = field.split(".")  # a name may have the dots
        if len(names) > _MOST_LEVELS:
            return None
        return [(*self._mapping.metadata, *names[:at], ".".join(names[at:])) for at in range(len(names))]

    def _can_read(self, path: FieldPath) -> bool:
        """Whether a path does not lead into JSON that is kept as text."""
        return self._mapping.json.isdisjoint(path)

    def _places(self, path: FieldPath) -> list[tuple[str, FieldPath]]:
        """Return expressions of JSON in which a path may lead to a value, each with the path in it."""
        found: list[tuple[str, FieldPath]] = []
        if path[0] in self._table.types:
            found.append((self._json(path[0]), path[1:]))
        if self._table.fields is not None:
            found.append((self._json(self._table.fields), path))
        return found

    def _equal_at(self, paths: Iterable[FieldPath], forms: Sequence[Scalar]) -> list[str]:
        arms: list[str] = []
        contained: dict[str, list[str]] = {}  # by place, so that a row's JSON is parsed once
        for path in paths:
            for place, rest in self._places(path):
                if not rest and (kind := self._table.types[path[0]]) in _TEXTS | _CAN_BE.keys():
                    texts = (form for form in forms if isinstance(form, str) or kind not in _TEXTS)
                    arms.append(self._column_is(path[0], map(str, texts)))
                else:
                    wanted = [json.dumps(_nested(rest, one)) for form in forms for one in (form, [form])]
                    contained.setdefault(place, []).extend(wanted)
        return arms + [f"{place} @> ANY({self._parameter(each)}::jsonb[])" for place, each in contained.items()]

    def _absent(self, path: FieldPath) -> str:
        parts = [f"({place} #>> {self._parameter(list(rest))}::text[]) IS NULL" for place, rest in self._places(path)]
        return " AND ".join(parts) or "true"

    def _column_is(self, name: str, texts: Iterable[str]) -> str:
        kind = self._table.types[name]
        if kind not in _CAN_BE:
            return f"{self._column(name)}::text = ANY({self._parameter(list(filter(_is_stored, texts)))}::text[])"
        known = self._parameter(list(filter(_CAN_BE[kind], texts)))
        return f"{self._column(name)} = ANY({known}::text[]::{'int8' if kind.startswith('int') else kind}[])"

    def _json(self, name: str) -> str:
        """Return a column as JSON: bare where it is that, so that an index of it is used."""
        column = self._column(name)
        return column if self._table.types[name] == "jsonb" else f"to_jsonb({column})"

    def _column(self, name: str) -> str:
        return f"t.{quoted(name)}"

    def _parameter(self, value: Any) -> str:
        name = f"given{len(self._given)}"
        self._given[name] = value
        return f"%({name})s"


def quoted(name: str) -> str:
    """Return a name as an identifier of a statement with parameters, in which a percent sign is doubled."""
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


def _any(arms: Iterable[str]) -> str:
    return f"({' OR '.join(['false', *arms])})"


def _forms(value: Scalar, *, is_ours: bool) -> list[Scalar] | None:
    """Return what a record may have for a value; ``None`` if that is left to Python.

    Args:
        is_ours: Whether it is a chunk's own field, for which numbers may be read as text, or text as numbers.
    """
    if not isinstance(value, str):
        if is_ours or (not isinstance(value, bool) and (abs(value) >= _EXACT or value != int(value))):
            return None
        return [value if isinstance(value, bool) else int(value)]
    if not _is_stored(value):
        return []
    if is_ours and _WHOLE.fullmatch(value):
        return [value, int(value)]
    return None if is_ours and _is_number(value) else [value]


def _is_stored(text: str) -> bool:
    """Whether PostgreSQL can store a text."""
    return is_text(text) and "\0" not in text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _nested(path: FieldPath, value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value
