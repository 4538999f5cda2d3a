"""Scoring a result, as part of a query or afterwards."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from retrieval_core.errors import MalformedAnswerError
from retrieval_core.pipeline.results import with_troubles
from retrieval_core.pipeline.search_loop import raise_what_must_not_be_hidden
from retrieval_core.run.outcomes import Failed, Ok
from retrieval_core.types import EvaluationScores

if TYPE_CHECKING:
    from retrieval_core.ports import Evaluator
    from retrieval_core.run.runner import Run
    from retrieval_core.types import RetrievalResult


async def evaluated(
    run: Run, evaluator: Evaluator, query: str, result: RetrievalResult, response: str, *, strict: bool
) -> RetrievalResult:
    """Return a result with its scores for a response; where the evaluator fails, they are ``None``.

    Raises:
        RetrievalError: The evaluator is set up wrongly; or, with ``strict``, it failed.
    """
    outcome = await run.call("evaluate", evaluator.evaluate, query, result.documents, response)
    trace = (*result.trace, run.records[-1])
    if isinstance(outcome, Ok):
        if _are_scores(outcome.value):
            return replace(result, evaluation=outcome.value, trace=trace)
        problem = f"the evaluator's answer cannot be used: {outcome.value!r:.120}"
        outcome = Failed("evaluate", MalformedAnswerError(problem))
    raise_what_must_not_be_hidden((outcome,), strict=strict)
    return with_troubles(replace(result, evaluation=EvaluationScores(), trace=trace), (outcome,))


def _are_scores(value: object) -> bool:
    """Whether an evaluator's answer is one: each score is known and between 0 and 1, or not known."""
    if not isinstance(value, EvaluationScores):
        return False
    return all(score is None or 0 <= score <= 1 for score in (value.context_precision, value.response_relevancy))
