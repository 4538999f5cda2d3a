"""Asking both sides of the index, side by side."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, cast

from retrieval_core.errors import DimensionMismatchError, EmbeddingError, RetrievalError, SearchError
from retrieval_core.ports import Candidate, SearchRequest
from retrieval_core.run.runner import Failed, Ok
from retrieval_core.types import Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ports import Embedder, Store
    from retrieval_core.run.runner import Run
    from retrieval_core.stages.plan import Plan
    from retrieval_core.types import Vector


class EmbeddedQuestions(Protocol):
    """Remembers the vectors of questions."""

    def get(self, text: str) -> Vector | None:
        """Return the vector of a question that was embedded before."""
        ...

    def set(self, text: str, vector: Vector) -> Vector:
        """Remember the vector of a question, and return it as one that cannot be changed."""
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """What the sides found; ``None`` for a side that was not asked, or failed."""

    query: Query
    dense: tuple[Candidate, ...] | None
    lexical: tuple[Candidate, ...] | None
    failures: tuple[Failed, ...] = ()


async def search(
    run: Run,
    store: Store,
    embedder: Embedder | None,
    query: Query,
    plan: Plan,
    *,
    embedded: EmbeddedQuestions | None = None,
) -> Found:
    """Search the dense side, the lexical side, or both at once; the lexical side does not wait for the embedding.

    In lexical mode the question is embedded only where a threshold has to be held against something. Where a question
    that was to be searched by meaning alone cannot be embedded, it is searched by words.

    Args:
        run: Makes the calls.
        store: Is searched.
        embedder: Embeds the question.
        query: The normalised question.
        plan: What is asked of each side.
        embedded: Questions that were embedded before.
    """
    meaning = _embed_and_search(run, store, embedder, query, plan, embedded=embedded)
    if plan.mode == "dense":
        (query, dense), lexical = await meaning, None
    else:
        (query, dense), lexical = await asyncio.gather(meaning, _search_words(run, store, query, plan))
    failures = tuple(outcome for outcome in (dense, lexical) if isinstance(outcome, Failed))
    if lexical is None and isinstance(dense, Failed) and dense.stage == "embed" and plan.has_words:
        lexical = await _search_words(run, store, query, plan)
        failures += (lexical,) if isinstance(lexical, Failed) else ()
    return Found(
        query,
        dense=dense.value if isinstance(dense, Ok) else None,
        lexical=lexical.value if isinstance(lexical, Ok) else None,
        failures=failures,
    )


async def _search_words(run: Run, store: Store, query: Query, plan: Plan) -> Ok[tuple[Candidate, ...]] | Failed:
    request = SearchRequest(limit=plan.candidates, text=query.text, filter=plan.condition)
    return _sound(await run.on("store").call("lexical", store.search, request))


async def _embed_and_search(
    run: Run, store: Store, embedder: Embedder | None, query: Query, plan: Plan, *, embedded: EmbeddedQuestions | None
) -> tuple[Query, Ok[tuple[Candidate, ...]] | Failed | None]:
    if embedder is None or (plan.mode == "lexical" and plan.score_threshold is None):
        return query, None
    vector = embedded.get(query.text) if embedded is not None else None
    if vector is None:
        outcome = await run.call("embed", embedder.embed_query, query.text)
        if isinstance(outcome, Failed):
            return query, replace(outcome, error=_as_embedding_error(outcome.error, query.original))
        try:
            vector = _checked(outcome.value, embedder.dimension, query.original)
        except EmbeddingError as error:
            return query, Failed("embed", error)
        if embedded is not None:
            vector = embedded.set(query.text, vector)
    else:
        run.note("embed", run.elapsed_ms, None, None, "embedded before")
    query = Query(query.original, query.text, query.truncated, vector)
    if plan.mode == "lexical":
        return query, None
    request = SearchRequest(limit=plan.candidates, vector=vector, filter=plan.condition)
    return query, _sound(await run.on("store").call("dense", store.search, request))


def _sound(outcome: Ok[tuple[Candidate, ...]] | Failed) -> Ok[tuple[Candidate, ...]] | Failed:
    """Return what a store answered, as a failure where these are no candidates."""
    if isinstance(outcome, Failed):
        return outcome
    if _are_candidates(outcome.value):
        return outcome
    return Failed("search", SearchError(f"the store's answer cannot be used: {outcome.value!r:.80} are no candidates"))


def _are_candidates(answer: object) -> bool:
    """Whether this is what a store should find, whatever its port says."""
    return isinstance(answer, (tuple, list)) and all(
        isinstance(item, Candidate) for item in cast("Sequence[object]", answer)
    )


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
