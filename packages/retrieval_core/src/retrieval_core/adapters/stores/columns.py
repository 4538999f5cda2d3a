"""Filters over all chunks at once: each distinct value is tested once, and the rows follow by their code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from retrieval_core.types.filters import And, Not, Or, lookup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from retrieval_core.types import JSON
    from retrieval_core.types.filters import Condition, Filter

    Mask = NDArray[np.bool_]
    """One value for each row."""

REMEMBERED_TESTS = 64
"""Conditions whose outcome a column keeps, so that a filter which comes with every query is tested once."""
KEPT_COLUMNS = 256
"""Fields whose values are kept for the next filter; anyone may ask for fields that no chunk has."""


class Column:
    """What one path of the metadata holds in each row. Readers may use it while one thread extends it.

    Attributes:
        codes: For each row the position of its value among the distinct ones; 0 stands for an absent value.
    """

    def __init__(self) -> None:
        self.codes: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._values: list[JSON] = [None]
        self._code_of: dict[Any, int] = {_key(None): 0}
        self._tests: dict[str, Mask] = {}

    def extend(self, length: int, positions: NDArray[np.intp], values: Iterable[JSON]) -> None:
        """Grow to a number of rows, and set those at some positions."""
        codes = np.zeros(length, dtype=np.int32)
        codes[: len(self.codes)] = self.codes
        codes[positions] = [self._encode(value) for value in values]
        self.codes = codes

    def passing(self, condition: Condition, codes: NDArray[np.int32]) -> Mask:
        """Return which rows, given by their codes, pass a condition."""
        key = repr(condition)  # not the condition itself: 1, 1.0 and True are equal as keys
        tested = self._tests.pop(key, np.zeros(0, dtype=np.bool_))
        fresh = self._values[len(tested) :]
        if fresh:
            tested = np.concatenate([tested, np.array([condition.test(value) for value in fresh], dtype=np.bool_)])
        while len(self._tests) >= REMEMBERED_TESTS:
            self._tests.pop(next(iter(self._tests)), None)
        self._tests[key] = tested
        return tested[codes]

    def _encode(self, value: JSON) -> int:
        key = _key(value)
        code = self._code_of.get(key)
        if code is None:
            code = self._code_of[key] = len(self._values)
            self._values.append(value)
        return code


class Columns:
    """The columns of an index by their paths, read when a filter first names them; for one thread at a time."""

    def __init__(self) -> None:
        self._columns: dict[str, Column] = {}

    @property
    def loaded_bytes(self) -> int:
        """Bytes of the codes; it may be asked while another thread reads."""
        return sum(column.codes.nbytes for column in tuple(self._columns.values()))

    @property
    def paths(self) -> tuple[str, ...]:
        """The names of the fields; it may be read while another thread reads columns."""
        return tuple(self._columns)

    def filled(
        self,
        paths: frozenset[str],
        numbers: NDArray[np.int64],
        read: Callable[[int], Iterable[tuple[int, Mapping[str, JSON]]]],
    ) -> dict[str, tuple[Column, NDArray[np.int32]]]:
        """Return columns and their codes, a row for each number, reading those that are missing.

        Args:
            paths: Those that a filter names.
            numbers: The chunks' numbers, ascending; since the last call, some may have come at the end.
            read: Returns number and fields of each chunk from a number on, in any order.
        """
        columns = {path: self._columns.pop(path, None) or Column() for path in paths}
        self._columns.update(columns)  # at the end, so that those used longest ago come first
        behind: dict[int, list[str]] = {}
        for path, column in columns.items():
            if len(column.codes) < len(numbers):
                behind.setdefault(len(column.codes), []).append(path)
        for length, group in behind.items():  # several paths cost one pass
            found: list[int] = []
            values: dict[str, list[JSON]] = {path: [] for path in group}
            for number, fields in read(int(numbers[length])):
                found.append(number)
                for path in group:
                    values[path].append(lookup(fields, path))
            positions = np.searchsorted(numbers, np.array(found, dtype=np.int64))
            for path in group:
                columns[path].extend(len(numbers), positions, values[path])
        while len(self._columns) > max(KEPT_COLUMNS, len(paths)):
            del self._columns[next(iter(self._columns))]
        return {path: (column, column.codes) for path, column in columns.items()}


def _key(value: JSON) -> object:
    """Return what tells a value from others, as filters do: ``1`` is not ``true``, and ``"1"`` is neither."""
    if isinstance(value, str):
        return value
    return type(value), (value if isinstance(value, (bool, int, float)) else json.dumps(value))


def evaluate(condition: Filter, columns: Mapping[str, tuple[Column, NDArray[np.int32]]], length: int) -> Mask:
    """Return which rows a filter lets pass: what :func:`retrieval_core.types.filters.matches` says of each."""
    match condition:
        case And(filters):
            parts = [evaluate(part, columns, length) for part in filters]
            return np.logical_and.reduce(parts, axis=0) if parts else np.ones(length, dtype=np.bool_)
        case Or(filters):
            parts = [evaluate(part, columns, length) for part in filters]
            return np.logical_or.reduce(parts, axis=0) if parts else np.zeros(length, dtype=np.bool_)
        case Not(inner):
            return ~evaluate(inner, columns, length)
        case _:
            column, codes = columns[condition.field]
            return column.passing(condition, codes)
