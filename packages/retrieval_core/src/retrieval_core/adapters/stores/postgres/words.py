"""Keyword search by BM25 over postings in tables, with the scores of the other stores."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from zlib import crc32

from retrieval_core.adapters.stores.postgres.filters import to_sql
from retrieval_core.adapters.stores.postgres.schema import encode
from retrieval_core.adapters.stores.query_terms import K1, B, query_terms
from retrieval_core.adapters.stores.segments import segments_to_merge, small_segments
from retrieval_core.ports import TermCounts

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from retrieval_core.adapters.stores.postgres.session import View
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types.filters import Filter

LONGEST_TERM = 256
"""Bytes from which on a term is kept as its hash: PostgreSQL's indexes take no long keys."""
GRAIN = 2.0**36
"""Scores are multiples of one by this, so that equal ones are equal in whatever order PostgreSQL adds them up."""

_SIZES = """
SELECT id, chunks, (SELECT count(*) FROM s.stale WHERE number BETWEEN first AND last) FROM s.segments ORDER BY first
"""
_MERGE = """
WITH gone AS (DELETE FROM s.postings WHERE segment = ANY(%(old)s) RETURNING *)
INSERT INTO s.postings (segment, term, numbers, frequencies, lengths)
SELECT %(new)s, term, array_agg(number ORDER BY number), array_agg(frequency ORDER BY number),
    array_agg(length ORDER BY number)
FROM gone, unnest(numbers, frequencies, lengths) AS posting (number, frequency, length)
WHERE NOT EXISTS (SELECT FROM s.stale WHERE stale.number = posting.number)
GROUP BY term
"""
_MERGE_SEGMENTS = """
INSERT INTO s.segments
SELECT %(new)s, min(first), max(last), sum(chunks) - (
    SELECT count(*) FROM s.stale, s.segments AS part
    WHERE part.id = ANY(%(old)s) AND number BETWEEN part.first AND part.last
) FROM s.segments WHERE id = ANY(%(old)s)
"""
_FORGET = """
DELETE FROM s.stale USING s.segments WHERE number BETWEEN first AND last AND id = ANY(%(old)s)
"""
_COUNTS = """
SELECT term, sum(CASE WHEN (SELECT count(*) FROM s.stale) = 0 THEN cardinality(numbers) ELSE (
    SELECT count(*) FROM unnest(numbers) AS posting (number)
    WHERE NOT EXISTS (SELECT FROM s.stale WHERE stale.number = posting.number)
) END)::bigint
FROM s.postings WHERE term = ANY(%(terms)s) GROUP BY term
"""
_PASSING_COUNTS = """
SELECT term, count(*) FROM s.postings, unnest(numbers) AS posting (number) JOIN s.entries USING (number)
WHERE term = ANY(%(terms)s) AND {where} GROUP BY term
"""
_SEARCH = """
SELECT id, score FROM (
    SELECT number, floor(sum(
        weight * frequency * {factor} / (frequency + %(base)s + %(slope)s * length)
    ) * {grain} + 0.5) / {grain} AS score
    FROM unnest(%(terms)s::text[], %(weights)s::float8[]) AS given (term, weight) JOIN s.postings USING (term),
        unnest(numbers, frequencies, lengths) AS posting (number, frequency, length)
    WHERE {where}
    GROUP BY number ORDER BY score DESC FETCH FIRST {limit} ROWS WITH TIES
) AS best JOIN s.entries USING (number)
"""
_ALIVE = "NOT EXISTS (SELECT FROM s.stale WHERE stale.number = posting.number)"


def key_of(term: str) -> str:
    """Return the key of a term in the table of postings."""
    if len(term) * 4 > LONGEST_TERM and len(term.encode()) > LONGEST_TERM:
        return f"\x01#{blake2b(term.encode(), digest_size=20).hexdigest()}"
    return encode(term)


def bag_of(counts: Mapping[str, int]) -> int:
    """Return the checksum of a chunk's postings: the sum of its terms' checksums, modulo 2 to the 32."""
    return sum(crc32(term.encode()) * count for term, count in counts.items()) & 0xFFFFFFFF


async def add_postings(view: View, numbers: Sequence[int], chunks: Sequence[Counter[str]]) -> None:
    """Add a segment.

    Args:
        numbers: Of the chunks, ascending, and above those of all segments.
        chunks: How often each chunk has each of its terms.
    """
    postings: dict[str, tuple[list[int], list[int], list[int]]] = {}
    for number, counts in zip(numbers, chunks, strict=True):
        length = counts.total()
        for term, frequency in counts.items():
            entry = postings.setdefault(term, ([], [], []))
            for column, value in zip(entry, (number, frequency, length), strict=True):
                column.append(value)
    row = await view.row("SELECT coalesce(max(id), 0) + 1 FROM s.segments")
    columns = ("term", "segment", "numbers", "frequencies", "lengths")
    await view.copy("postings", columns, [(term, row[0], *entry) for term, entry in sorted(postings.items())])
    await view.copy("segments", ("id", "first", "last", "chunks"), [(row[0], numbers[0], numbers[-1], len(numbers))])


async def mark_stale(view: View, numbers: Sequence[int]) -> None:
    """Note that chunks were removed whose postings are still there."""
    await view.run("INSERT INTO s.stale SELECT unnest(%(numbers)s::bigint[])", {"numbers": list(numbers)})


async def merge_segments(view: View) -> None:
    """Merge neighbouring segments that together are large enough, and rewrite those with many removed chunks."""
    while group := segments_to_merge([tuple(row) for row in await view.rows(_SIZES)]):
        await _merge(view, group)


async def merge_small_segments(view: View) -> None:
    """Merge the last segments, so that each one that is left is some times as large as all behind it."""
    group = small_segments([tuple(row) for row in await view.rows(_SIZES)])
    if len(group) > 1:
        await _merge(view, group)


async def _merge(view: View, group: Collection[int]) -> None:
    row = await view.row("SELECT max(id) + 1 FROM s.segments")
    given = {"old": list(group), "new": row[0]}
    await view.run(_MERGE, given)
    await view.run(_MERGE_SEGMENTS, given)
    await view.run(_FORGET, given)
    await view.run("DELETE FROM s.segments WHERE id = ANY(%(old)s) OR chunks = 0", given)


async def count_missing(view: View) -> int:
    """Return how many chunks should have postings and have none."""
    row = await view.row("SELECT coalesce(sum(chunks), 0)::bigint - (SELECT count(*) FROM s.stale) FROM s.segments")
    return view.state.chunks - row[0]


async def count_terms(view: View, terms: Sequence[str], condition: Filter | None) -> TermCounts:
    """Return how many chunks there are that pass a filter, and how many of them contain each term."""
    keys = {key_of(term): term for term in terms}
    parameters: dict[str, Any] = {"terms": list(keys)}
    if condition is None:
        chunks, sql = view.state.chunks, _COUNTS
    else:
        where = to_sql(condition, parameters)
        chunks = (await view.row(f"SELECT count(*) FROM s.entries WHERE {where}", parameters))[0]  # noqa: S608
        sql = _PASSING_COUNTS.format(where=where)
    having = {keys[term]: count for term, count in await view.rows(sql, parameters)}
    return TermCounts(chunks, {term: having.get(term, 0) for term in terms})


async def search_words(
    view: View, analyzer: Analyzer, text: str, limit: int, condition: Filter | None
) -> list[tuple[str, float]]:
    """Return the ids and scores of the best chunks by BM25, in any order, and of all with the score of the last."""
    from retrieval_core.adapters.stores.scoring import weight_of  # noqa: PLC0415 - it imports numpy

    asked = Counter(analyzer.query_terms(text))
    for compound in analyzer.open_compounds(text):
        asked.update((compound.joined, *compound.parts))
    known = (await count_terms(view, list(asked), None)).having
    terms = Counter(term for term in query_terms(analyzer, text, known.__getitem__) if known[term])
    if not terms:
        return []
    chunks, mean = view.state.chunks, view.state.words / view.state.chunks or 1.0
    parameters: dict[str, Any] = {
        "terms": [key_of(term) for term in terms],
        "weights": [repeats * weight_of(chunks, known[term]) for term, repeats in terms.items()],
        "base": K1 * (1 - B),
        "slope": K1 * B / mean,
    }
    where = _ALIVE
    if condition is not None:
        where = f"number IN (SELECT number FROM s.entries WHERE {to_sql(condition, parameters)})"  # noqa: S608
    sql = _SEARCH.format(factor=f"{K1 + 1}::float8", grain=f"{GRAIN:.0f}::float8", where=where, limit=limit)
    return await view.rows(sql, parameters)
