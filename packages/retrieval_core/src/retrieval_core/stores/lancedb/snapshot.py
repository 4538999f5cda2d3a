"""Which passages a filter lets pass: evaluated here, over their fields in memory, as it is by the other stores.

LanceDB's SQL has no equal of most operators on metadata of any shape. So the fields that filters name are read once,
kept by column, and brought up to date by reading the rows with higher numbers than before.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from retrieval_core.filters import lookup, paths_of
from retrieval_core.stores.lancedb.rows import read_rows
from retrieval_core.stores.lancedb.schema import columns_of, is_record
from retrieval_core.stores.lancedb.view import StaleReadError
from retrieval_core.stores.sqlite.columns import Column, evaluate
from retrieval_core.stores.sqlite.rows import FIELD_COLUMNS, FieldReader

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from retrieval_core.filters import Filter
    from retrieval_core.stores.lancedb.view import View
    from retrieval_core.types import JSON

KEPT_COLUMNS = 256
"""Fields whose values are kept for the next filter; anyone may ask for fields that no chunk has."""
FIELDS = columns_of(FIELD_COLUMNS)


class Allowed(NamedTuple):
    """The passages that a filter lets pass.

    Attributes:
        numbers: Theirs, ascending.
        total: How many passages there are.
    """

    numbers: NDArray[np.int64]
    total: int


class SnapshotCache:
    """The fields of one process, shared by its threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._clear("")

    def _clear(self, identity: str) -> None:
        self._identity = identity
        self._version = -1
        self._numbers: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._alive: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._columns: dict[str, Column] = {}

    def get(self, view: View, condition: Filter) -> Allowed:
        """Return which passages of a version pass.

        Raises:
            StaleReadError: Another thread has read a later version already.
        """
        with self._lock:
            self._refresh(view)
            paths = paths_of(condition)
            self._fill(view, paths)
            columns = {path: (self._columns[path], self._columns[path].codes) for path in paths}
            numbers, alive = self._numbers, self._alive
        passing = alive & evaluate(condition, columns, len(numbers))
        return Allowed(numbers[passing], int(np.count_nonzero(alive)))

    def _refresh(self, view: View) -> None:
        if view.identity != self._identity:
            self._clear(view.identity)
        if view.version < self._version:
            raise StaleReadError
        if view.version == self._version:
            return
        found = view.select(is_record("chunk"), ["number"]).column("number").to_numpy()
        now = np.sort(found.astype(np.int64))
        alive = np.isin(self._numbers, now, assume_unique=True)
        if np.count_nonzero(alive) < len(alive) // 2:
            self._clear(view.identity)  # mostly gaps: reading it all again is cheaper than keeping them
            alive = self._alive
        last = self._numbers[-1] if len(self._numbers) else -1
        fresh = now[now > last]  # numbers only ever grow
        self._numbers = np.concatenate([self._numbers, fresh])
        self._alive = np.concatenate([alive, np.ones(len(fresh), dtype=np.bool_)])
        self._version = view.version

    def _fill(self, view: View, paths: frozenset[str]) -> None:
        columns = {path: self._columns.pop(path, None) or Column() for path in paths}
        self._columns.update(columns)  # at the end, so that those used longest ago come first
        behind: dict[int, list[str]] = {}
        for path, column in columns.items():
            if len(column.codes) < len(self._numbers):
                behind.setdefault(len(column.codes), []).append(path)
        for length, group in behind.items():
            self._read(view, group, length)
        while len(self._columns) > max(KEPT_COLUMNS, len(paths)):
            del self._columns[next(iter(self._columns))]

    def _read(self, view: View, paths: list[str], length: int) -> None:
        """Read the values of the rows from a position on; several paths cost one pass."""
        first = int(self._numbers[length])
        table = view.select(f"{is_record('chunk')} AND number >= {first}", ["number", *FIELDS])
        numbers: NDArray[np.int64] = table.column("number").to_numpy().astype(np.int64)
        fields_of = FieldReader()
        values: dict[str, list[JSON]] = {path: [] for path in paths}
        for row in read_rows(table, FIELDS):
            fields = fields_of(row)
            for path in paths:
                values[path].append(lookup(fields, path))
        positions: NDArray[np.intp] = np.searchsorted(self._numbers, numbers)
        for path in paths:
            self._columns[path].extend(len(self._numbers), positions, values[path])
