"""Several questions at once: embedded in batches, answered side by side, each for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from retrieval_core.errors import (
    DimensionMismatchError,
    EmbeddingError,
    InvalidParameterError,
    RetrievalError,
    SearchError,
)
from retrieval_core.pipeline.stages.transform import normalize
from retrieval_core.ports.embedders import checked_vector
from retrieval_core.run.outcomes import Failed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.stages.embed import Questions
    from retrieval_core.pipeline.stages.state import Plan
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Query, RetrievalResult, Vector

AT_A_TIME = 8
"""Questions answered side by side: more would only wait for each other at the store."""
BATCH = 64
"""Questions embedded in one call."""


@dataclass(frozen=True, slots=True)
class QueryOutcome:
    """The outcome of one of several queries: either a result or an error.

    Attributes:
        query: The query as it was passed.
        result: The result; ``None`` if the query failed.
        error: The error; ``None`` if the query succeeded.
    """

    query: str
    result: RetrievalResult | None = None
    error: RetrievalError | None = None


async def answer_many(
    make_run: Callable[[], Run],
    questions: Questions | None,
    answer: Callable[[Query], Awaitable[RetrievalResult]],
    queries: Sequence[str],
    *,
    plan: Plan,
    config: RetrievalConfig,
) -> tuple[QueryOutcome, ...]:
    """Return an outcome for each question, in their order.

    Args:
        make_run: Begins a run with a deadline of its own.
        questions: Embeds.
        answer: Answers one question.
        queries: As they were asked.
        plan: Says whether their vectors are searched for.
        config: How questions are normalised.

    Raises:
        InvalidParameterError: The questions are one text and no list.
    """
    if isinstance(queries, (str, bytes)) or not isinstance(queries, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"queries must be a list of questions, got {type(queries).__name__}; for one question use retrieve"
        raise InvalidParameterError(msg)
    normal = [_normalized(query, config) for query in queries]
    valid = [query for query in normal if not isinstance(query, RetrievalError)]
    vectors: dict[str, Vector] = {}
    # In a conversation, or where a question is replaced, what is searched for is another text.
    if questions is not None and plan.mode != "lexical" and not plan.history:
        vectors = await _embedded(make_run, questions, [query.text for query in valid])
    slots = asyncio.Semaphore(AT_A_TIME)

    async def outcome(given: str, query: Query | RetrievalError) -> QueryOutcome:
        if isinstance(query, RetrievalError):
            return QueryOutcome(given, error=query)
        async with slots:
            try:
                return QueryOutcome(given, await answer(replace(query, embedding=vectors.get(query.text))))
            except RetrievalError as error:
                return QueryOutcome(given, error=error)
            except Exception as error:  # noqa: BLE001 - of a plug-in; it must not take the other questions along
                failed = SearchError(f"{type(error).__name__}: {error}")
                failed.__cause__ = error
                return QueryOutcome(given, error=failed)

    return tuple(await asyncio.gather(*map(outcome, queries, normal)))


def _normalized(query: str, config: RetrievalConfig) -> Query | RetrievalError:
    try:
        return normalize(query, config.query)
    except RetrievalError as error:
        return error


async def _embedded(make_run: Callable[[], Run], questions: Questions, texts: Sequence[str]) -> dict[str, Vector]:
    """Return the vectors of questions, as far as they could be embedded together; the others embed their own.

    One batch after the other, each with a time budget of its own, until one fails.
    """
    embedder, remembered = questions.embedder, questions.remembered
    known = {text: remembered.get(text) for text in texts} if remembered is not None else {}
    vectors = {text: vector for text, vector in known.items() if vector is not None}
    missing = [text for text in dict.fromkeys(texts) if text not in vectors]
    if "embed_queries" not in embedder.capabilities or len(missing) < 2:
        return vectors
    batches = [missing[start : start + BATCH] for start in range(0, len(missing), BATCH)]
    for batch in batches:
        outcome = await make_run().on("embedding questions").call("embed", embedder.embed_queries, batch)
        if isinstance(outcome, Failed):
            break
        try:
            made = {
                text: checked_vector(vector, embedder.dimension, text)
                for text, vector in zip(batch, outcome.value, strict=True)
            }
        except (DimensionMismatchError, EmbeddingError, TypeError, ValueError):
            break  # asked for alone, each of them will tell what is wrong
        vectors |= made if remembered is None else {text: remembered.set(text, made[text]) for text in made}
    return vectors
