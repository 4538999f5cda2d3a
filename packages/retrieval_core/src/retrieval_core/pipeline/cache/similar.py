"""Answering a question with the result of one that was asked in other words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from retrieval_core.pipeline.cache.lookup import ask_cache
from retrieval_core.run.outcomes import Failed, Ok

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core.config import CacheConfig
    from retrieval_core.pipeline.stages.embed import Questions
    from retrieval_core.pipeline.stages.plan import Plan
    from retrieval_core.ports import ResultCache
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Query, RetrievalResult, Vector

EMBED_SHARE = 0.1
"""The part of the deadline by which the question must be embedded to be compared with others; transformers have to be
done by a quarter of it, and an embedder that hangs must not take their time."""


class SimilarQuestions:
    """Knows the questions whose results are kept, and finds one that asks the same.

    Args:
        results: Keeps the results.
        questions: Embeds the question.
        settings: Of the cache.
        now: Tells the time in seconds; it never goes back.
    """

    def __init__(
        self, results: ResultCache, questions: Questions, settings: CacheConfig, now: Callable[[], float]
    ) -> None:
        self._results = results
        # The search, which comes next, makes the further attempts, and has a failed embedder opened anew.
        self._questions = replace(questions, recovery=None)
        from retrieval_core.pipeline.cache.semantic import MAX_QUESTIONS, SemanticCache  # noqa: PLC0415 - off by default

        wanted = settings.semantic
        self._per_session = wanted.scope == "session"
        self.known = SemanticCache(wanted.threshold, MAX_QUESTIONS, settings.ttl_seconds, now)

    def is_for(self, plan: Plan) -> bool:
        """Whether a question is embedded anyway, and its words alone say what it asks."""
        return plan.mode != "lexical" and not plan.history

    def session_of(self, plan: Plan) -> str | None:
        """Return whose questions this one may be compared with; ``None`` is a session too."""
        return plan.session_id if self._per_session else None

    async def embed(self, run: Run, query: Query) -> Query:
        """Return the query with its vector, or as it is if there is none in time."""
        outcome = await self._questions.embed(run.until(EMBED_SHARE).without_retries(), query)
        return replace(query, embedding=outcome.value) if isinstance(outcome, Ok) else query

    async def ask(self, run: Run, query: Query, vector: Vector, partition: str) -> RetrievalResult | Failed | None:
        """Return the result of a question that asks the same; ``None`` where there is none."""
        started = run.elapsed_ms
        found = self.known.find(partition, query.text, vector)
        match = found.match
        if match is None:
            refused = f"; {found.refused} as near ask something else" if found.refused else ""
            run.note("similar", started, found.compared, 0, f"none asks the same{refused}")
            return None
        run.note("similar", started, found.compared, 1, f"{match.question!r:.200}, cosine {match.similarity:.4f}")
        kept = await ask_cache(run, self._results, match.key)
        if kept is None:
            self.known.discard(partition, match.key)
        if kept is None or isinstance(kept, Failed):
            return kept
        told = {
            "query_normalized": query.text,
            "cache_matched_query": match.question,
            "cache_similarity": match.similarity,
        }
        return replace(kept, from_cache=True, trace=run.records, metadata={**kept.metadata, **told})
