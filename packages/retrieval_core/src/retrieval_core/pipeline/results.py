"""The caller's result, made of the last state, its evaluation, and the outcomes of several queries."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from retrieval_core.errors import (
    DimensionMismatchError,
    EmbeddingError,
    IncompleteSearchError,
    InvalidParameterError,
    RetrievalError,
    SearchError,
)
from retrieval_core.pipeline.stages.state import Stage, identify
from retrieval_core.pipeline.stages.syntax import lacks_phrases
from retrieval_core.pipeline.stages.transform import normalize
from retrieval_core.ports import Evaluator, as_plugin
from retrieval_core.ports.models import checked_vector
from retrieval_core.run.outcomes import Failed, Ok, is_static, raise_faults
from retrieval_core.types import Degradation, EvaluationScores, RetrievalResult
from retrieval_core.types.filters.syntax import to_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.stages.embed import QueryEmbedder
    from retrieval_core.pipeline.stages.state import Plan, SearchState
    from retrieval_core.run.runner import Run
    from retrieval_core.text.query_syntax import ParsedQuery
    from retrieval_core.types import JSON, Chunk, Query, StageRecord, Vector

logger = logging.getLogger("retrieval_core")
AT_A_TIME = 8
"""Questions answered side by side: more would only wait for each other at the store."""
BATCH = 64
"""Questions embedded in one call."""


class Evaluate(Stage):
    """Scores the hits with an evaluator.

    Args:
        evaluator: Scores them.
        settings: Of the pipeline.
    """

    name = "evaluate"
    deadline_share = 0

    def __init__(self, evaluator: Evaluator, settings: RetrievalConfig) -> None:
        self.evaluator = as_plugin(evaluator, Evaluator)
        self._fingerprint = partial(identify, (settings.evaluation,), evaluator)

    def fingerprint(self) -> str | None:
        """Return a name for the settings and the evaluator."""
        return self._fingerprint()

    def plugins(self) -> Iterable[object]:
        """Return the evaluator."""
        return (self.evaluator,)

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state with scores; if the evaluator fails, they are ``None``."""
        response = "" if state.context is None else state.context.text
        chunks = [hit.chunk for hit in state.hits]
        outcome = await evaluate(run, self.evaluator, state.asked.text, chunks, response)
        if isinstance(outcome, Ok):
            return state.but(evaluation=outcome.value)
        return state.failing(outcome).but(evaluation=EvaluationScores())


def make_result(run: Run, state: SearchState, logged: set[Degradation]) -> RetrievalResult:
    """Return the hits of a query, with everything that was decided on the way.

    Args:
        run: Has the trace.
        state: After the last stage.
        logged: What was logged and holds for every query; it is not logged again.
    """
    condition, context, hits = state.plan.condition, state.context, state.hits
    metadata: dict[str, JSON] = {
        "query_normalized": state.asked.text,
        "query_truncated": state.asked.truncated,
        "filters_applied": to_json(condition) if condition is not None else {},
        **state.metadata,
        "documents_after_compression": len(hits),
        "filtered_count": len(state.selected) - len(hits),
        "relevance_score": state.quality,
        "query_rewritten": bool(state.rewrites),
        "rewrite_attempts": state.attempts,
        "query_searched": state.query.text,
        "context_truncated": context is not None and context.truncated,
    }
    if state.syntax is not None:
        metadata["query_syntax"] = _syntax_to_json(state, state.syntax)
    if state.indexes:
        taken = Counter(hit.source_index for hit in hits)
        metadata["indexes"] = {name: {**told, "hits": taken[name]} for name, told in state.indexes.items()}
    if (note := why_empty(state)) is not None:
        metadata["note"] = note
    if (error := why_nothing(state)) is not None:
        metadata["error"] = error
    return RetrievalResult(
        query=state.asked.original,
        hits=hits,
        formatted_context="" if context is None else context.text,
        metadata=metadata,
        latency_ms=run.elapsed_ms,
        degraded=_degraded(state, logged),
        trace=run.records,
        rewrites=state.rewrites,
        evaluation=state.evaluation,
        relevance=state.relevance,
    )


def _syntax_to_json(state: SearchState, syntax: ParsedQuery) -> JSON:
    """Return what was understood of a query, also as one line for people."""
    missing = syntax.required if state.has_missing_phrases or lacks_phrases(state) else ()
    told = ""
    if missing:
        named = " and ".join(f'"{phrase}"' for phrase in missing)
        why = "results match the words" if state.has_missing_phrases else "to match the words, search without quotes"
        told = f"not found: {named} ({why})"
    summary = replace(syntax, required=() if missing else syntax.required).summary()
    return {
        "summary": " \u00b7 ".join(filter(None, (summary, told))),
        "required": () if state.has_missing_phrases else syntax.required,
        "excluded": syntax.excluded,
        "conditions": tuple(map(str, syntax.conditions)),
        "not_found": missing,
    }


def syntax_summary(result: RetrievalResult) -> str:
    """Return the line that says what was understood of a query; it is empty if all of it is text."""
    told = result.metadata.get("query_syntax")
    return str(told["summary"]) if isinstance(told, Mapping) else ""


def _degraded(state: SearchState, logged: set[Degradation]) -> tuple[Degradation, ...]:
    """Return what was done without, each once, and log it."""
    failures = state.failures + state.later_failures
    if not (failures or state.degraded or state.unknown_fields):
        return ()
    own = [Degradation(item.stage, item.reason) for item in failures]
    if state.unknown_fields is not None:
        own.append(Degradation("filter", state.unknown_fields))
    degraded = tuple(dict.fromkeys((*own, *state.degraded)))
    for entry in degraded:
        if entry not in logged:
            logger.warning("%s: %s", entry.stage, entry.reason)
    logged.update(Degradation(item.stage, item.reason) for item in failures if is_static(item.error))
    return degraded


def why_empty(state: SearchState) -> str | None:
    """Return why there are no hits, if that is known."""
    if state.selected and not state.hits:
        return f"the relevance filter dropped all results ({len(state.selected)})"
    if state.unknown_fields is not None and not state.selected:
        return f"filter: {state.unknown_fields}"
    return state.note


def why_nothing(state: SearchState) -> str | None:
    """Return what failed, if there are no hits for that; ``None`` for hits, and for a search that found none."""
    if state.hits:
        return None
    return state.error or (None if state.selected else _why_incomplete(state.failures))


def _why_incomplete(failures: Iterable[Failed]) -> str | None:
    """Return which part of a search did not answer, if nothing was found; it may be what has the hits."""
    return next((item.reason for item in failures if not _has_answered(item.error)), None)


def _has_answered(error: Exception) -> bool:
    """Whether a part carries what it found, or can never be searched as the program is set up."""
    return isinstance(error, IncompleteSearchError) or is_static(error)


def as_asked(
    result: RetrievalResult, query: Query, latency_ms: float, *, from_cache: bool, trace: tuple[StageRecord, ...]
) -> RetrievalResult:
    """Return a result as this caller asked for it; written out, since ``replace`` takes four times as long."""
    return RetrievalResult(
        query.original,
        result.hits,
        result.formatted_context,
        result.metadata,
        latency_ms,
        from_cache,
        result.degraded,
        trace,
        result.rewrites,
        result.evaluation,
        result.relevance,
    )


def with_failures(result: RetrievalResult, failures: tuple[Failed, ...]) -> RetrievalResult:
    """Return a result that also lists what was done without after it was made."""
    if not failures:
        return result
    return replace(result, degraded=result.degraded + tuple(Degradation(item.stage, item.reason) for item in failures))


async def evaluated(
    run: Run, evaluator: Evaluator, query: str, result: RetrievalResult, response: str, *, strict: bool
) -> RetrievalResult:
    """Return a result with its scores for a response; if the evaluator fails, they are ``None``.

    Raises:
        RetrievalError: The evaluator is set up wrongly; or, with ``strict``, it failed.
    """
    outcome = await evaluate(run, evaluator, query, result.documents, response)
    trace = (*result.trace, run.records[-1])
    if isinstance(outcome, Ok):
        return replace(result, evaluation=outcome.value, trace=trace)
    raise_faults((outcome,), strict=strict)
    return with_failures(replace(result, evaluation=EvaluationScores(), trace=trace), (outcome,))


async def evaluate(
    run: Run, evaluator: Evaluator, query: str, chunks: Sequence[Chunk], response: str
) -> Ok[EvaluationScores] | Failed:
    """Return the scores of chunks and a response."""
    return await run.call("evaluate", evaluator.evaluate, query, tuple(chunks), response)


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
    questions: QueryEmbedder | None,
    answer: Callable[[Query], Awaitable[RetrievalResult]],
    queries: Sequence[str],
    *,
    plan: Plan,
    config: RetrievalConfig,
) -> tuple[QueryOutcome, ...]:
    """Return an outcome for each question, in their order.

    Args:
        make_run: Begins a run with a new deadline.
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


async def _embedded(make_run: Callable[[], Run], questions: QueryEmbedder, texts: Sequence[str]) -> dict[str, Vector]:
    """Return the vectors of questions, as far as they could be embedded together; the others embed their own.

    One batch after the other, each with its own deadline, until one fails.
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
            break  # each of them reports its error when it is requested separately
        vectors |= made if remembered is None else {text: remembered.set(text, made[text]) for text in made}
    return vectors
