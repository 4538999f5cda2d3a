"""Asking both sides of the index, side by side."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from retrieval_core.errors import DimensionMismatchError, EmbeddingError, RetrievalError
from retrieval_core.ports import SearchRequest
from retrieval_core.run.runner import Failed, Ok

if TYPE_CHECKING:
    from retrieval_core.ports import Candidate, Embedder, Store
    from retrieval_core.run.runner import Run
    from retrieval_core.stages.plan import Plan
    from retrieval_core.types import Query, Vector


@dataclass(frozen=True, slots=True)
class Found:
    """What the sides found; ``None`` for a side that was not asked, or failed."""

    query: Query
    dense: tuple[Candidate, ...] | None
    lexical: tuple[Candidate, ...] | None
    failures: tuple[Failed, ...] = ()


async def search(run: Run, store: Store, embedder: Embedder | None, query: Query, plan: Plan) -> Found:
    """Search the dense side, the lexical side, or both at once; the lexical side does not wait for the embedding.

    In lexical mode the question is embedded only where a threshold has to be held against something.
    """
    (query, dense), lexical = await asyncio.gather(
        _embed_and_search(run, store, embedder, query, plan), _search_words(run, store, query, plan)
    )
    return Found(
        query,
        dense=dense.value if isinstance(dense, Ok) else None,
        lexical=lexical.value if isinstance(lexical, Ok) else None,
        failures=tuple(outcome for outcome in (dense, lexical) if isinstance(outcome, Failed)),
    )


async def _search_words(run: Run, store: Store, query: Query, plan: Plan) -> Ok[tuple[Candidate, ...]] | Failed | None:
    if plan.mode == "dense":
        return None
    request = SearchRequest(limit=plan.candidates, text=query.text, filter=plan.condition)
    return await run.call("lexical", store.search, request)


async def _embed_and_search(
    run: Run, store: Store, embedder: Embedder | None, query: Query, plan: Plan
) -> tuple[Query, Ok[tuple[Candidate, ...]] | Failed | None]:
    if embedder is None or (plan.mode == "lexical" and plan.score_threshold is None):
        return query, None
    embedded = await run.call("embed", embedder.embed_query, query.text)
    if isinstance(embedded, Failed):
        return query, replace(embedded, error=_as_embedding_error(embedded.error, query.original))
    try:
        vector = _checked(embedded.value, embedder.dimension, query.original)
    except EmbeddingError as error:
        return query, Failed("embed", error)
    query = replace(query, embedding=vector)
    if plan.mode == "lexical":
        return query, None
    request = SearchRequest(limit=plan.candidates, vector=vector, filter=plan.condition)
    return query, await run.call("dense", store.search, request)


def _checked(vector: Vector, dimension: int, query: str) -> Vector:
    """Return what an embedder gave as a float32 vector, if it can be searched for."""
    import numpy as np  # noqa: PLC0415 - loaded by whoever made the vector

    try:
        vector = np.asarray(vector, dtype=np.float32)
    except (TypeError, ValueError) as error:
        msg = f"the embedder gave no vector: {error}"
        raise EmbeddingError(msg, query) from error
    if vector.shape != (dimension,):
        raise DimensionMismatchError(dimension, vector.size, "the embedding of the query")
    if not np.isfinite(vector).all():
        msg = "the embedder gave a vector with components that are no finite numbers"
        raise EmbeddingError(msg, query)
    return vector


def _as_embedding_error(error: Exception, query: str) -> Exception:
    """Say which query failed, and make errors that are not the library's own ones of embedding."""
    if not isinstance(error, RetrievalError):
        msg = f"the query could not be embedded: {str(error) or type(error).__name__}"
        embedding_error = EmbeddingError(msg, query)
        embedding_error.__cause__ = error
        return embedding_error
    if isinstance(error, EmbeddingError) and error.query is None:
        error.query = query
    return error
