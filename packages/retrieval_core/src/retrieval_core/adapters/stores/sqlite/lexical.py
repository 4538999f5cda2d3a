"""Lexical search by FTS5."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.adapters.stores.compounds import limited
from retrieval_core.adapters.stores.local import Match, best

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from sqlite3 import Connection

    from retrieval_core.adapters.stores.compounds import WordQuery

# ORDER BY bm25() LIMIT is faster than FTS5's own ORDER BY rank, which carries the positions of all words along.
_BEST = """
SELECT chunks.number, chunks.id, best.score
FROM (
    SELECT rowid AS number, -bm25(words) AS score FROM words WHERE words MATCH ? ORDER BY score DESC LIMIT ?
) AS best JOIN chunks USING (number)
ORDER BY best.score DESC
"""
_TIES = """
SELECT chunks.number, chunks.id, tied.score
FROM (
    SELECT rowid AS number, -bm25(words) AS score FROM words WHERE words MATCH ? AND score = ?
) AS tied JOIN chunks USING (number)
ORDER BY chunks.id LIMIT ?
"""
_BEST_ALLOWED, _TIES_ALLOWED = (sql.replace("MATCH ?", "MATCH ? AND allowed(rowid)") for sql in (_BEST, _TIES))


def search_words(
    connection: Connection, query: WordQuery, limit: int, allowed: Callable[[int], bool] | None = None
) -> list[Match]:
    """Return the best chunks by BM25, best first; equal scores are ordered by chunk id.

    A term counts as often as the question repeats it: FTS5 adds up the phrases of an expression, equal ones too.

    Args:
        allowed: Whether the chunk with a number matches the filter; called before the chunk is scored.
    """
    if not query.terms:
        return []
    pairs = (f"({_all(pair)})" for pair in query.pairs)
    expression = " OR ".join([*map(_quoted, limited(query.terms)), *pairs])
    connection.create_function("allowed", 1, allowed or bool, deterministic=True)
    first, ties = (_BEST_ALLOWED, _TIES_ALLOWED) if allowed else (_BEST, _TIES)
    # One more than asked for tells whether chunks with the score of the last one were cut off.
    found = [Match(*row) for row in connection.execute(first, (expression, limit + 1))]
    if len(found) > limit and found[-1].score == found[-2].score:
        worst = found[-1].score
        tied = connection.execute(ties, (expression, worst, limit))
        found = [item for item in found if item.score > worst] + [Match(*row) for row in tied]
    return best(found, limit)


def count_passages(connection: Connection, terms: Sequence[str], limit: int | None) -> int:
    """Return how many chunks have all of the terms, counting up to the limit."""
    sql = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)"
    return connection.execute(sql, (_all(terms), -1 if limit is None else limit)).fetchone()[0]


def _all(terms: Sequence[str]) -> str:
    return " AND ".join(map(_quoted, terms))


def _quoted(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'
