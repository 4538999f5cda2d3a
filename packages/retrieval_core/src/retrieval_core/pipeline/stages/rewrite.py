"""Query rewriting: the query is put into other words as long as too little was found."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from retrieval_core.pipeline.stages.fingerprints import identify
from retrieval_core.pipeline.stages.format import context_of
from retrieval_core.pipeline.stages.normalize import normalize
from retrieval_core.pipeline.stages.state import Stage
from retrieval_core.ports import Rewriter, as_plugin
from retrieval_core.run.outcomes import Failed
from retrieval_core.types import RewriteResult

if TYPE_CHECKING:
    from collections.abc import Iterable

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.stages.state import SearchState
    from retrieval_core.run.runner import Run


class Rewrite(Stage):
    """Says what to search for next, if a search did badly: the question in other words.

    The rewriter always gets the question as it was first asked, with the chunks of the best search so far.

    Args:
        rewriter: Rewrites.
        settings: Of the pipeline.
    """

    name = "rewrite"
    deadline_share = 0

    def __init__(self, rewriter: Rewriter, settings: RetrievalConfig) -> None:
        self._rewriter = as_plugin(rewriter, Rewriter)
        self._settings = settings
        self._fingerprint = partial(identify, (settings.rewriter,), rewriter)

    def fingerprint(self) -> str | None:
        """Return a name for the settings and the rewriter."""
        return self._fingerprint()

    def plugins(self) -> Iterable[object]:
        """Return the rewriter."""
        return (self._rewriter,)

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state with another query in ``again``; with ``None`` if none is needed, or none is new."""
        state, wanted = state.but(again=None), self._settings.rewriter
        if state.attempts >= wanted.max_attempts or not should_rewrite(state.quality, wanted.relevance_threshold):
            return state
        if run.is_over or (state.rewrites and state.rewrites[-1].relevance is None):
            return state
        state = state.but(attempts=state.attempts + 1)
        question = state.question
        context = context_of(state.hits, self._settings.format).text
        outcome = await run.call("rewrite", self._rewriter.rewrite, question.text, context)
        if isinstance(outcome, Failed):
            return state.failing(outcome)
        rewritten = outcome.value
        query = replace(normalize(rewritten.query, self._settings.query), original=question.original)
        tried = {question.text.casefold(), *(each.rewritten_query.casefold() for each in state.rewrites)}
        if query.text.casefold() in tried:
            run.note("rewrite", run.elapsed_ms, None, None, f"{query.text!r:.200} was searched for already")
            return state
        # Not as it was typed: a query that differs in white space only may get this result from the cache.
        rewrite = RewriteResult(question.text, query.text, state.attempts, rewritten.reason, None)
        return state.but(again=query, rewrites=(*state.rewrites, rewrite))


def searching_again(first: SearchState, best: SearchState) -> SearchState:
    """Return the state before a search for another query, which needs no transformers."""
    assert best.again is not None  # noqa: S101 - of the stage above
    return first.but(query=best.again, variants=(), linked=(), attempts=best.attempts)


def better_of(best: SearchState, tried: SearchState) -> SearchState:
    """Return the better one of the best search so far and the next one, with what became of both."""
    rewrites = (*best.rewrites[:-1], replace(best.rewrites[-1], relevance=tried.quality))
    is_better = tried.quality is not None and (best.quality is None or tried.quality > best.quality)
    return (tried if is_better else best).but(
        rewrites=rewrites, attempts=best.attempts, later_failures=best.later_failures + tried.failures
    )


def should_rewrite(relevance: float | None, threshold: float) -> bool:
    """Return whether a search did badly enough to rewrite the query: its relevance is below the threshold."""
    return relevance is not None and relevance < threshold
