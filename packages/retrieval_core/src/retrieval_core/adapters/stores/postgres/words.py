"""Keyword search by BM25 over postings in a table, with the scores of the other stores.

A row has the postings of one term in one segment: the chunks' numbers, how often each has the term, and how many terms
it has. The postings of a query's terms are read and scored here, as the server takes much longer to add them up.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from retrieval_core.adapters.stores.postgres.filters import to_sql
from retrieval_core.adapters.stores.postgres.schema import encode
from retrieval_core.adapters.stores.query_terms import query_terms
from retrieval_core.adapters.stores.segments import segments_to_merge, small_segments
from retrieval_core.ports import TermCounts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from retrieval_core.adapters.stores.held import Postings
    from retrieval_core.adapters.stores.postgres.session import View
    from retrieval_core.ports import SearchRequest
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types.filters import Filter

    Numbers = NDArray[np.int64]

LONGEST_TERM = 256
"""Bytes from which on a term is kept as its hash: PostgreSQL's indexes take no long keys."""
CACHED_BYTES = 64 * 1024 * 1024
"""The most memory for the postings of terms that were searched for."""
_ENTRY_BYTES = 1024
"""About how much a term or a filter takes without any chunks."""
CHECKED_FIRST = 200
"""How many of the best chunks are compared with a filter first; then ten times as many."""
READ_AT_ONCE = 2000
"""If too few of these pass the filter, and at most so many chunks do in all, those are found by one statement."""
MOST_GAPS = 8
"""How many times as many numbers as postings there may be between the first and the last for them to be an index."""
REWRITTEN_AT_ONCE = 2000
"""Rows of a segment with removed chunks that are rewritten at a time."""
_POSTING = [("number", "<i8"), ("frequency", "<u4"), ("length", "<u4")]
_POSTING_BYTES = 16
_COLUMNS = ("term", "segment", "block")

_SIZES = """
SELECT id, chunks, (SELECT count(*) FROM s.stale WHERE number BETWEEN first AND last) FROM s.segments ORDER BY first
"""
_MERGE = """
WITH gone AS (DELETE FROM s.postings WHERE segment = ANY(%(old)s) RETURNING *)
INSERT INTO s.postings SELECT term, %(new)s, string_agg(block, ''::bytea ORDER BY first)
FROM gone JOIN s.segments ON id = segment GROUP BY term
"""
_MERGE_SEGMENTS = """
WITH gone AS (DELETE FROM s.segments WHERE id = ANY(%(old)s) RETURNING *)
INSERT INTO s.segments SELECT %(new)s, min(first), max(last), sum(chunks) FROM gone
"""
_BLOCKS = """
SELECT term, block FROM s.postings JOIN s.segments ON id = segment WHERE term = ANY(%(terms)s) ORDER BY first
"""
_STALE = "SELECT number FROM s.stale JOIN s.segments ON number BETWEEN first AND last WHERE id = ANY(%(old)s)"
_ROWS = """
DELETE FROM s.postings WHERE segment = %(segment)s AND term IN (
    SELECT term FROM s.postings WHERE segment = %(segment)s AND term > %(term)s ORDER BY term LIMIT %(most)s
) RETURNING term, block
"""


def key_of(term: str) -> str:
    """Return the key of a term in the table of postings."""
    if len(term) * 4 > LONGEST_TERM and len(term.encode()) > LONGEST_TERM:
        return f"\x01#{blake2b(term.encode(), digest_size=20).hexdigest()}"
    return encode(term)


class Counted(NamedTuple):
    """The postings of chunks that have no numbers yet.

    Attributes:
        postings: By the keys of the terms.
        lengths: How many terms each chunk has.
        bags: The checksum of each chunk's postings.
    """

    postings: Postings
    lengths: Sequence[int]
    bags: Sequence[int]


def count_postings(chunks: Sequence[Sequence[str]]) -> Counted:
    """Return the postings of chunks, given the terms of each."""
    import numpy as np  # noqa: PLC0415 - slow to import

    from retrieval_core.adapters.stores.held import checksums_of, count_terms_of  # noqa: PLC0415 - likewise

    postings = count_terms_of(chunks)
    postings = postings._replace(terms=list(map(key_of, postings.terms)))
    bags = np.zeros(len(chunks), np.uint32)
    np.add.at(bags, postings.positions, checksums_of(postings))
    return Counted(postings, list(map(len, chunks)), bags.tolist())


def read_block(block: bytes) -> NDArray[Any]:
    """Return the postings of a block: number of the chunk, frequency of the term, and how many terms the chunk has."""
    import numpy as np  # noqa: PLC0415 - slow to import

    return np.frombuffer(block[: len(block) // _POSTING_BYTES * _POSTING_BYTES], _POSTING)


class PostingsCache:
    """The postings of terms at one version of the index, without those of removed chunks, and what passes filters."""

    def __init__(self) -> None:
        self._version = ""
        self._bytes = 0
        self._found: dict[str, tuple[Numbers, NDArray[Any], NDArray[Any]]] = {}
        self._passing: dict[str, Numbers] = {}

    async def find(self, view: View, terms: Collection[str]) -> dict[str, tuple[Numbers, NDArray[Any], NDArray[Any]]]:
        """Return the numbers of the chunks that have a term, how often, and how many terms they have, by the term."""
        self._renew(view)
        found = {term: known for term in terms if (known := self._found.get(term)) is not None}
        if missing := [term for term in terms if term not in found]:
            stale = [number for (number,) in await view.rows("SELECT number FROM s.stale")]
            keys = {key_of(term): term for term in missing}
            blocks: dict[str, list[bytes]] = {term: [] for term in missing}
            for key, block in await view.rows(_BLOCKS, {"terms": list(keys)}):
                blocks[keys[key]].append(block)
            read = {term: _read(b"".join(parts), stale) for term, parts in blocks.items()}
            found |= read
            if self._version == view.state.version:
                self._found |= read
                self._bytes += sum(_ENTRY_BYTES + 4 * len(term) + 16 * len(one[0]) for term, one in read.items())
        return found

    async def passing(self, view: View, condition: Filter) -> Numbers:
        """Return the numbers of the chunks that pass a filter; the filter of a tenant comes with each query."""
        import numpy as np  # noqa: PLC0415 - slow to import

        self._renew(view)
        parameters: dict[str, Any] = {}
        where = to_sql(condition, parameters)
        key = f"{where} {parameters!r}"
        passing = self._passing.get(key)
        if passing is None:
            rows = await view.rows(f"SELECT number FROM s.entries WHERE {where}", parameters)  # noqa: S608
            passing = np.array([number for (number,) in rows], np.int64)
            if self._version == view.state.version:
                self._passing[key] = passing
                self._bytes += _ENTRY_BYTES + 2 * len(key) + 8 * len(passing)
        return passing

    def _renew(self, view: View) -> None:
        """Forget everything if the index has changed, or if it is too much."""
        if self._version != view.state.version or self._bytes > CACHED_BYTES:
            self._version, self._bytes, self._found, self._passing = view.state.version, 0, {}, {}


def _read(block: bytes, stale: Sequence[int]) -> tuple[Numbers, NDArray[Any], NDArray[Any]]:
    import numpy as np  # noqa: PLC0415 - slow to import

    rows = read_block(block)
    if stale:
        rows = rows[~np.isin(rows["number"], stale)]
    return tuple(np.ascontiguousarray(rows[name]) for name in ("number", "frequency", "length"))  # pyright: ignore[reportReturnType]


async def add_postings(view: View, numbers: Sequence[int], counted: Counted) -> None:
    """Add a segment.

    Args:
        numbers: Of the chunks, ascending, and above those of all segments.
        counted: Their postings.
    """
    row = await view.row("SELECT coalesce(max(id), 0) + 1 FROM s.segments")
    rows = await asyncio.to_thread(_rows_of, row[0], numbers, counted)
    await view.copy("postings", _COLUMNS, rows, ("text", "int4", "bytea"))
    await view.copy("segments", ("id", "first", "last", "chunks"), [(row[0], numbers[0], numbers[-1], len(numbers))])


def _rows_of(segment: int, numbers: Sequence[int], counted: Counted) -> list[tuple[str, int, bytes]]:
    import numpy as np  # noqa: PLC0415 - slow to import

    postings = counted.postings
    rows = np.empty(len(postings.positions), _POSTING)
    rows["number"] = np.array(numbers, np.int64)[postings.positions]
    rows["frequency"] = postings.frequencies
    rows["length"] = np.array(counted.lengths, np.int64)[postings.positions]
    content, ends = rows.tobytes(), (np.cumsum(postings.counts) * _POSTING_BYTES).tolist()
    return [
        (term, segment, content[begin:end]) for term, begin, end in zip(postings.terms, [0, *ends], ends, strict=False)
    ]


async def mark_stale(view: View, numbers: Sequence[int]) -> None:
    """Note that chunks were removed whose postings are still there."""
    await view.run("INSERT INTO s.stale SELECT unnest(%(numbers)s::bigint[])", {"numbers": list(numbers)})


async def merge_segments(view: View) -> None:
    """Merge neighbouring segments that together are large enough, and rewrite those with many removed chunks."""
    while group := segments_to_merge([tuple(row) for row in await view.rows(_SIZES)]):
        await _merge(view, group)


async def merge_small_segments(view: View) -> bool:
    """Merge the last segments, so that each one is some times as large as all behind it; return whether any were."""
    group = small_segments([tuple(row) for row in await view.rows(_SIZES)])
    if len(group) > 1:
        await _merge(view, group)
    return len(group) > 1


async def _merge(view: View, group: Collection[int]) -> None:
    row = await view.row("SELECT max(id) + 1 FROM s.segments")
    given = {"old": list(group), "new": row[0]}
    stale = {number for (number,) in await view.rows(_STALE, given)}
    await view.run(_MERGE, given)
    await view.run(_MERGE_SEGMENTS, given)
    if not stale:
        return
    wanted = {"segment": row[0], "term": "", "most": REWRITTEN_AT_ONCE}
    while rows := await view.rows(_ROWS, wanted):
        blocks = await asyncio.to_thread(_without, rows, list(stale))
        await view.copy("postings", _COLUMNS, [(term, row[0], block) for term, block in blocks if block])
        wanted["term"] = max(term for term, _ in rows)
    await view.run("DELETE FROM s.stale WHERE number = ANY(%(numbers)s)", {"numbers": list(stale)})
    left = {"segment": row[0], "gone": len(stale)}
    await view.run("UPDATE s.segments SET chunks = chunks - %(gone)s WHERE id = %(segment)s", left)
    await view.run("DELETE FROM s.segments WHERE chunks = 0")


def _without(rows: Iterable[tuple[str, bytes]], stale: Sequence[int]) -> list[tuple[str, bytes]]:
    import numpy as np  # noqa: PLC0415 - slow to import

    read = [(term, read_block(block)) for term, block in rows]
    return [(term, found[~np.isin(found["number"], stale)].tobytes()) for term, found in read]


async def count_missing(view: View) -> int:
    """Return how many chunks should have postings and have none."""
    row = await view.row("SELECT coalesce(sum(chunks), 0)::bigint - (SELECT count(*) FROM s.stale) FROM s.segments")
    return view.state.chunks - row[0]


async def count_terms(view: View, cache: PostingsCache, terms: Sequence[str], condition: Filter | None) -> TermCounts:
    """Return how many chunks there are that pass a filter, and how many of them contain each term."""
    found = await cache.find(view, dict.fromkeys(terms))
    if condition is None:
        return TermCounts(view.state.chunks, {term: len(found[term][0]) for term in terms})
    passing = await cache.passing(view, condition)
    having = await asyncio.to_thread(_count_in, passing, {term: found[term][0] for term in terms})
    return TermCounts(len(passing), having)


def _count_in(passing: Numbers, numbers: Mapping[str, Numbers]) -> dict[str, int]:
    import numpy as np  # noqa: PLC0415 - slow to import

    return {term: int(np.count_nonzero(np.isin(one, passing, assume_unique=True))) for term, one in numbers.items()}


async def search_words(
    view: View, cache: PostingsCache, analyzer: Analyzer, request: SearchRequest
) -> list[tuple[str, float]]:
    """Return the ids and scores of the best chunks by BM25, in any order, and of all with the score of the last."""
    text, limit, condition = request.text or "", request.limit, request.filter
    asked = dict.fromkeys(analyzer.query_terms(text))
    for compound in analyzer.open_compounds(text):
        asked.update(dict.fromkeys((compound.joined, *compound.parts)))
    found = await cache.find(view, asked)
    terms = Counter(query_terms(analyzer, text, lambda term: len(found[term][0])))
    terms = {term: repeats for term, repeats in terms.items() if len(found[term][0])}
    if not terms:
        return []
    numbers, scores = await asyncio.to_thread(_scores, view, found, terms)
    parameters: dict[str, Any] = {}
    where = to_sql(condition, parameters)
    sql = f"SELECT number, id FROM s.entries WHERE number = ANY(%(numbers)s) AND {where}"  # noqa: S608
    import numpy as np  # noqa: PLC0415 - slow to import

    from retrieval_core.adapters.stores.scoring import best_rows  # noqa: PLC0415 - it imports numpy

    is_selective = condition is not None
    most = limit if condition is None else max(CHECKED_FIRST, limit)
    while True:
        rows = best_rows(scores, most)
        score_of = dict(zip(numbers[rows].tolist(), scores[rows].tolist(), strict=True))
        passing = await view.rows(sql, {**parameters, "numbers": list(score_of)})
        if len(passing) >= limit or len(rows) == len(scores):
            return [(name, score_of[number]) for number, name in passing]
        if is_selective:  # it passes few of the best chunks: if few in all, the others need no comparison
            few = f"SELECT number FROM s.entries WHERE {where} LIMIT {READ_AT_ONCE + 1}"  # noqa: S608
            passing = await view.rows(few, parameters)
            if len(passing) <= READ_AT_ONCE:
                passes = np.isin(numbers, [number for (number,) in passing])
                numbers, scores = numbers[passes], scores[passes]
            is_selective = False
        most *= 10


def _scores(view: View, found: Mapping[str, Any], terms: Mapping[str, int]) -> tuple[Numbers, NDArray[np.float64]]:
    """Return the numbers of the chunks that have one of the terms, and their scores."""
    import numpy as np  # noqa: PLC0415 - slow to import

    from retrieval_core.adapters.stores.scoring import length_norms, saturated, weight_of  # noqa: PLC0415 - likewise

    mean = view.state.words / max(1, view.state.chunks)
    numbers = np.concatenate([found[term][0] for term in terms])
    weights = np.concatenate(
        [
            repeats
            * weight_of(view.state.chunks, len(found[term][0]))
            * saturated(found[term][1], length_norms(found[term][2], mean))
            for term, repeats in terms.items()
        ]
    )
    first = numbers.min()
    sums_of: Any = np.bincount
    if numbers.max() - first > MOST_GAPS * len(numbers):
        numbers, places = np.unique(numbers, return_inverse=True)
        return numbers, sums_of(places, weights)
    scores = sums_of(numbers - first, weights)
    places = np.flatnonzero(scores)
    return places + first, scores[places]
