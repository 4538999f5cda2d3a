"""Evaluation of filters over the passages' fields in memory.

LanceDB's SQL lacks most operators on metadata of any shape. So the fields that filters name are read once, kept by
column, and updated by reading the rows with higher numbers than before.
"""

from __future__ import annotations

from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from retrieval_core.adapters.stores.columns import Columns, evaluate
from retrieval_core.adapters.stores.lancedb.rows import read_rows
from retrieval_core.adapters.stores.lancedb.schema import is_record
from retrieval_core.adapters.stores.lancedb.view import StaleViewError
from retrieval_core.adapters.stores.rows import FIELD_COLUMNS, FieldReader
from retrieval_core.types.filters import paths_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from retrieval_core.adapters.stores.lancedb.view import View
    from retrieval_core.types import JSON
    from retrieval_core.types.filters import Filter


class Allowed(NamedTuple):
    """The passages that match a filter.

    Attributes:
        numbers: Ascending.
        total: The number of all passages.
    """

    numbers: NDArray[np.int64]
    total: int


class FieldCache:
    """The cached fields of all passages, shared by the threads of a process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._clear(None)

    def _clear(self, history: object) -> None:
        self._history = history
        self._version = -1
        self._numbers: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._alive: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._columns = Columns()

    def get(self, view: View, condition: Filter) -> Allowed:
        """Return the passages of a version that match.

        Raises:
            StaleViewError: Another thread has read a later version already.
        """
        with self._lock:
            self._refresh(view)
            numbers, alive = self._numbers, self._alive
            columns = self._columns.filled(paths_of(condition), numbers, partial(_fields, view))
        passing = alive & evaluate(condition, columns, len(numbers))
        return Allowed(numbers[passing], int(np.count_nonzero(alive)))

    def _refresh(self, view: View) -> None:
        if view.history is not self._history:
            self._clear(view.history)
        if view.version < self._version:
            raise StaleViewError
        if view.version == self._version:
            return
        found = view.select(is_record("chunk"), ["number"]).column("number").to_numpy()
        now = np.sort(found.astype(np.int64))
        alive = np.isin(self._numbers, now, assume_unique=True)
        if np.count_nonzero(alive) < len(alive) // 2:
            self._clear(view.history)  # mostly gaps: reading it all again is cheaper than keeping them
            alive = self._alive
        last = self._numbers[-1] if len(self._numbers) else -1
        fresh = now[now > last]  # numbers only ever grow
        self._numbers = np.concatenate([self._numbers, fresh])
        self._alive = np.concatenate([alive, np.ones(len(fresh), dtype=np.bool_)])
        self._version = view.version


def _fields(view: View, first: int) -> Iterator[tuple[int, Mapping[str, JSON]]]:
    fields_of = FieldReader()
    columns = ("number", *FIELD_COLUMNS)
    for number, *row in read_rows(view.select(f"{is_record('chunk')} AND number >= {first}", columns), columns):
        yield number, fields_of(row)
