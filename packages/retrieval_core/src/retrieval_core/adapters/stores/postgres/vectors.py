"""Vector search: exact, or over an index and then exact among the candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrieval_core.adapters.stores.postgres.filters import to_sql
from retrieval_core.adapters.stores.postgres.schema import (
    SentVector,
    vector_bytes,
    vectors_from,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.adapters.stores.postgres.session import View
    from retrieval_core.types import Vector
    from retrieval_core.types.filters import Filter

INDEXED_FROM = 10_000
"""Chunks from which on their vectors have an index: a scan of fewer takes some milliseconds."""
EXACT_BELOW = 5000
"""If fewer chunks pass a filter, their vectors are compared one by one."""
_LARGEST_EF = 1000
"""pgvector looks at no more candidates at a time."""
_LEAST_EF = 200
_PRODUCT = "greatest(embedding <#> %(query)s::vector, -1)"
"""The negated cosine of vectors with the length 1."""
_EXACT = """
SELECT id, -least({product}, 1) FROM s.entries WHERE embedding IS NOT NULL AND {where}
ORDER BY {product}, id LIMIT {limit}
"""
_NEAR = """
WITH near AS MATERIALIZED (
    SELECT id, embedding FROM s.entries WHERE {where}
    ORDER BY (embedding::halfvec({dimension})) <#> (%(query)s::vector)::halfvec({dimension}) LIMIT {wanted}
) SELECT id, -least({product}, 1) FROM near ORDER BY {product}, id LIMIT {limit}
"""


async def search_vectors(view: View, vector: Vector, limit: int, condition: Filter | None) -> list[tuple[str, float]]:
    """Return the ids and cosines of the nearest chunks, best first."""
    parameters: dict[str, Any] = {"query": SentVector(vector_bytes(vector))}
    given = {"where": to_sql(condition, parameters), "product": _PRODUCT, "limit": limit}
    if view.state.is_indexed and 2 * limit <= _LARGEST_EF:
        found = await _search_index(view, given, parameters, limit, is_filtered=condition is not None)
        if found is not None:
            return found
    return await view.rows(_EXACT.format(**given), parameters)


async def _search_index(
    view: View, given: dict[str, Any], parameters: dict[str, Any], limit: int, *, is_filtered: bool
) -> list[tuple[str, float]] | None:
    """Search by the index; return ``None`` if a filter leaves too few chunks for it."""
    if is_filtered:
        sql = "SELECT count(*) FROM (SELECT FROM s.entries WHERE {where} LIMIT {most}) AS passing"
        if (await view.row(sql.format(most=EXACT_BELOW, **given), parameters))[0] < EXACT_BELOW:
            return None
    breadth = min(_LARGEST_EF, max(_LEAST_EF, 2 * limit))
    await view.run(
        "SELECT set_config('hnsw.ef_search', %(breadth)s, true), set_config('hnsw.iterative_scan', %(scan)s, true), "
        "set_config('enable_seqscan', 'off', true), set_config('enable_sort', 'off', true)",
        {"breadth": str(breadth), "scan": "relaxed_order" if is_filtered else "off"},
    )
    # Vectors of the index have 16 bits a component, so a few more are compared exactly.
    wanted = limit + max(10, limit // 2)
    sql = _NEAR.format(dimension=view.state.manifest.dimension, wanted=wanted, **given)
    found = await view.rows(sql, parameters)
    return found if len(found) == limit else None


async def vectors_of(view: View, ids: Sequence[str]) -> dict[str, Vector]:
    """Return the vectors of chunks, by encoded id."""
    if not ids or view.state.manifest.dimension is None:
        return {}
    sql = "SELECT id, embedding FROM s.entries WHERE id = ANY(%(ids)s) AND embedding IS NOT NULL"
    rows = await view.rows(sql, {"ids": list(ids)})
    return dict(zip((name for name, _ in rows), vectors_from([blob for _, blob in rows]), strict=True)) if rows else {}
