"""Query rewriting: the question is put into other words as long as too little was found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from retrieval_core.pipeline.stages.normalize import normalize
from retrieval_core.pipeline.stages.sound import sound
from retrieval_core.ports import Rewritten
from retrieval_core.run.outcomes import Failed
from retrieval_core.types import RewriteResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from retrieval_core.config import QueryConfig
    from retrieval_core.pipeline.stages.search import Searched
    from retrieval_core.ports import Rewriter
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Degradation, Hit, Query


@dataclass(frozen=True, slots=True)
class Round:
    """One search with the stages that follow it.

    Attributes:
        selected: The best hits, before any was left out.
        hits: Those that are left.
        failures: Of all calls.
        degraded: What else was done without.
        relevance: In [0, 1]; ``None`` where there is nothing to tell it by, or nothing could be searched.
    """

    searched: Searched
    selected: tuple[Hit, ...]
    hits: tuple[Hit, ...]
    failures: tuple[Failed, ...]
    degraded: tuple[Degradation, ...]
    relevance: float | None

    @property
    def query(self) -> Query:
        """What was searched for."""
        return self.searched.query


@dataclass(frozen=True, slots=True)
class Rewriting:
    """The best of all rounds, and how it came about.

    Attributes:
        attempts: How often the rewriter was original.
        rewrites: One for each search that followed.
    """

    best: Round
    attempts: int = 0
    rewrites: tuple[RewriteResult, ...] = ()
    failures: tuple[Failed, ...] = ()


def should_rewrite(relevance: float | None, threshold: float) -> bool:
    """Whether a search did badly enough to ask in other words: if and only if its relevance is below the threshold."""
    return relevance is not None and relevance < threshold


async def rewrite_while_poor(
    run: Run,
    rewriter: Rewriter,
    first: Round,
    *,
    search_again: Callable[[Query], Awaitable[Round]],
    context_of: Callable[[Round], str],
    threshold: float,
    max_attempts: int,
    settings: QueryConfig,
) -> Rewriting:
    """Rewrite and search again until it is good enough, nothing new comes, or the attempts are used up.

    Args:
        run: Makes the rewriter's calls.
        rewriter: Always gets the question as it was asked first, with the passages of the best search so far.
        first: The search for that question.
        search_again: Searches for a rewritten one.
        context_of: The passages of a search, as one text.
        threshold: In [0, 1]; what reaches it is good enough.
        max_attempts: The most calls of the rewriter, at least 0.
        settings: How a question is normalised.
    """
    best, original = first, first.query
    tried = {original.text.casefold()}
    rewrites: list[RewriteResult] = []
    failures: list[Failed] = []
    attempt = 0
    while attempt < max_attempts and should_rewrite(best.relevance, threshold) and not run.is_over:
        attempt += 1
        outcome = await run.call("rewrite", rewriter.rewrite, original.text, context_of(best))
        outcome = sound(outcome, "rewrite", "the rewriter", Rewritten, _problem)
        if isinstance(outcome, Failed):
            failures.append(outcome)
            break
        rewritten = outcome.value
        query = replace(normalize(rewritten.query, settings), original=original.original)
        if query.text.casefold() in tried:
            run.note("rewrite", run.elapsed_ms, None, None, f"{query.text!r:.200} was searched for already")
            break
        tried.add(query.text.casefold())
        result = await search_again(query)
        # Not as it was typed: whoever asks the same in other white space may get this result from the cache.
        rewrites.append(RewriteResult(original.text, query.text, attempt, rewritten.reason, result.relevance))
        failures += result.failures  # also of searches that are not kept
        if result.relevance is None:
            break
        if best.relevance is None or result.relevance > best.relevance:
            best = result
    return Rewriting(best, attempt, tuple(rewrites), tuple(failures))


def _problem(rewritten: Rewritten) -> str | None:
    if not isinstance(rewritten.query, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        return f"it gave {rewritten!r:.80}, which is no Rewritten"
    return None if rewritten.query.strip() else "it gave an empty question"
