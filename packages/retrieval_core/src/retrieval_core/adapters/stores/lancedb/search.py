"""Dense, lexical and hybrid search; filters apply before the limit, and ties are ordered by id.

LanceDB's SQL lacks most operators on metadata of any shape. So the fields that filters name are read once, kept by
column, and updated by reading the rows with higher numbers than before.
"""

from __future__ import annotations

from functools import partial
from math import ceil
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from retrieval_core.adapters.stores.columns import Columns, evaluate
from retrieval_core.adapters.stores.lancedb.records import ALL, StaleViewError
from retrieval_core.adapters.stores.lancedb.schema import VECTOR, ZERO, arrow, is_record, lancedb, read_rows
from retrieval_core.adapters.stores.local import Match, best
from retrieval_core.adapters.stores.query_terms import query_terms
from retrieval_core.adapters.stores.rows import FIELD_COLUMNS, FieldReader
from retrieval_core.types.filters import paths_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from retrieval_core.adapters.stores.lancedb.records import View
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import JSON, Vector
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


FEW = 1000
"""Up to this number of matching passages, a filter is sent to LanceDB as a list of them, at about 0.04 ms each."""
MOST_NAMED = 10_000
RARE = 0.05
"""Up to this share of all passages, a filter is sent as a list of up to :data:`MOST_NAMED` too. Otherwise the best of
all passages are fetched until enough of them match: with few matches, that took seconds with 300,000 passages."""
REFINE = 10
"""Multiple of the limit that is taken from the index of vectors, and compared exactly."""
GROWTH = 4
"""Factor by which more are fetched where too few of the best match."""


def search_vectors(view: View, query: Vector, limit: int, allowed: Allowed | None) -> list[Match]:
    """Return the passages with the highest cosine, best first.

    Exact while the vectors have no index; approximate then.
    """
    found = _best(partial(_nearest, view, query), limit, allowed)
    if len(found) < limit or found[-1].score <= 0:
        # Vectors that are zero have no cosine for LanceDB; here it is 0.
        found = best([*found, *_zeros(view, f"{VECTOR}{ZERO}", limit, allowed)], limit)
    return found


def search_words(view: View, analyzer: Analyzer, text: str, limit: int, allowed: Allowed | None) -> list[Match]:
    """Return the best passages by BM25, best first."""
    terms = query_terms(analyzer, text, _counter(view, analyzer, text))
    return _best(partial(_matching, view, _any_of(terms)), limit, allowed) if terms else []


def fuse(dense: Sequence[Match], lexical: Sequence[Match], limit: int) -> list[Match]:
    """Return the matches of both sides, ordered and scored by LanceDB's reciprocal rank fusion."""
    pa = arrow()

    def side(found: Sequence[Match], score: str) -> Any:
        columns = {
            "_rowid": pa.array([item.number for item in found], type=pa.uint64()),
            "id": pa.array([item.chunk_id for item in found], type=pa.string()),
            score: pa.array([item.score for item in found], type=pa.float32()),
        }
        return pa.table(columns)

    fused = lancedb().rerankers.RRFReranker().rerank_hybrid("", side(dense, "_distance"), side(lexical, "_score"))
    columns = (fused.column(name).to_pylist() for name in ("_rowid", "id", "_relevance_score"))
    return best(map(Match, *columns), limit)


def _best(fetch: Callable[[int, str | None], list[Match]], limit: int, allowed: Allowed | None) -> list[Match]:
    """Return the best matching passages, with ties ordered by id.

    Args:
        fetch: Returns a number of passages, best first, among those for which an expression holds.
    """
    where, passes, wanted = None, None, limit + 1
    if allowed is not None:
        if not len(allowed.numbers):
            return []
        count = len(allowed.numbers)
        if count <= FEW or (count <= MOST_NAMED and count <= allowed.total * RARE):
            where = f"number IN ({', '.join(map(str, allowed.numbers.tolist()))})"
        else:
            wanted = ceil(wanted * allowed.total / len(allowed.numbers) * 1.5)
            passes = allowed.numbers
    while True:
        found = fetch(wanted, where)
        passing = found if passes is None else _those_in(passes, found)
        # More may have the score of the last one, so the order below it is not yet known.
        if len(found) < wanted or (len(passing) >= limit and passing[limit - 1].score > found[-1].score):
            return best(passing, limit)
        wanted *= GROWTH


def _those_in(numbers: Any, found: list[Match]) -> list[Match]:
    there = np.isin(np.array([item.number for item in found], dtype=np.int64), numbers)
    return [item for item, passes in zip(found, there, strict=True) if passes]


def _nearest(view: View, query: Vector, wanted: int, where: str | None) -> list[Match]:
    def ask(*, exactly: bool) -> list[Match]:
        asked = view.table.search(query, vector_column_name=VECTOR).distance_type("cosine").limit(wanted)
        asked = asked.bypass_vector_index() if exactly else asked.refine_factor(REFINE)
        asked = asked.where(where) if where else asked
        table = asked.select(["number", "id", "_distance"]).to_arrow()
        cosines = np.clip(1.0 - table.column("_distance").to_numpy().astype(np.float64), -1.0, 1.0)
        return _found(table, cosines.tolist())

    # What few passages a filter leaves may lie outside the parts that the index looks into.
    exactly = not view.is_indexed or where is not None
    found = ask(exactly=exactly)
    return found if exactly or len(found) >= wanted else ask(exactly=True)


def _zeros(view: View, which: str, limit: int, allowed: Allowed | None) -> list[Match]:
    table = view.select(which, ["number", "id"])
    found = _found(table, [0.0] * table.num_rows)
    return best(found if allowed is None else _those_in(allowed.numbers, found), limit)


def _matching(view: View, query: Any, wanted: int, where: str | None) -> list[Match]:
    asked = view.table.search(query, query_type="fts").limit(wanted)
    asked = asked.where(where) if where else asked
    table = asked.select(["number", "id", "_score"]).to_arrow()
    return _found(table, table.column("_score").to_pylist())


def _found(table: Any, scores: list[float]) -> list[Match]:
    return list(map(Match, table.column("number").to_pylist(), table.column("id").to_pylist(), scores))


def _any_of(terms: Iterable[str]) -> Any:
    """Return terms as LanceDB's query object, so that nothing in them is parsed as a query language.

    LanceDB adds up the scores of all terms, repeated ones too.
    """
    return lancedb().query.MatchQuery(" ".join(terms), "terms")


def _counter(view: View, analyzer: Analyzer, text: str) -> Callable[[str], int]:
    """Return a function that counts the chunks that contain a term."""

    def count(terms: Iterable[str], most: int) -> int:
        asked = view.table.search(_any_of(terms), query_type="fts").limit(most)
        return asked.select(["number", "_score"]).to_arrow().num_rows

    joined = dict.fromkeys(compound.joined for compound in analyzer.open_compounds(text))
    if not joined or not count(joined, 1):
        return lambda _: 0  # one search instead of one for each two neighbouring words
    return lambda term: count((term,), ALL)
