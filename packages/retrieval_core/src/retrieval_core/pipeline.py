"""The order of the stages, and what is done when one of them fails."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from retrieval_core.config import RetrievalConfig
from retrieval_core.errors import InvalidParameterError, RetrievalError, SearchError
from retrieval_core.filter_syntax import parse_filter, to_json
from retrieval_core.filters import Filter
from retrieval_core.run.runner import Failed, Run, is_callers_fault
from retrieval_core.run.sync import SyncBridge
from retrieval_core.run.threads import ThreadPool
from retrieval_core.stages.format import format_context
from retrieval_core.stages.fuse import fuse
from retrieval_core.stages.normalize import normalize
from retrieval_core.stages.plan import Plan
from retrieval_core.stages.search import search
from retrieval_core.stages.select import Selected, select
from retrieval_core.types import Degradation, RetrievalResult

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from retrieval_core.ports import Embedder, Store
    from retrieval_core.run.clock import Clock
    from retrieval_core.stages.search import Found
    from retrieval_core.types import JSON, SearchMode

MAX_TOP_K = 1000
SEARCH_SHARE = 0.8
"""How much of the deadline embedding and searching may use up; the rest is for reading what was found."""


class RetrievalPipeline:
    """Turns a question into the few passages that answer it.

    Args:
        store: Where to search.
        embedder: Embeds the question; without one only lexical search is possible.
        config: Defaults of every query.
        clock: Measures durations and the deadline; the system's where it is not given.

    The pipeline owns what it was given: :meth:`close` closes the store, and the embedder where it can be closed.
    """

    def __init__(
        self,
        store: Store,
        embedder: Embedder | None = None,
        *,
        config: RetrievalConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.store = store
        self.embedder = embedder
        self.config = config or RetrievalConfig()
        self._clock = clock
        self._pool = ThreadPool("retrieval-plugins", threads=4)
        self.sync = SyncBridge()

    def retrieve(
        self,
        query: str,
        filters: Filter | Mapping[str, Any] | None = None,
        *,
        top_k: int | None = None,
        mode: SearchMode | None = None,
    ) -> RetrievalResult:
        """Find the passages that answer a question; the same as :meth:`aretrieve`, from synchronous code.

        It may be called where an event loop is running, as in a notebook, and then blocks that loop's thread.
        """
        return self.sync.run(self.aretrieve(query, filters, top_k=top_k, mode=mode))

    async def aretrieve(
        self,
        query: str,
        filters: Filter | Mapping[str, Any] | None = None,
        *,
        top_k: int | None = None,
        mode: SearchMode | None = None,
    ) -> RetrievalResult:
        """Find the passages that answer a question.

        Args:
            query: The question.
            filters: What every passage must pass, typed or as JSON.
            top_k: The most hits, 1 to 1000; from the configuration where it is not given.
            mode: By meaning, by words, or both; from the configuration where it is not given.

        Raises:
            QueryValidationError: The query is empty or no text.
            FilterError: The filter is not well formed, or the store lacks one of its operators.
            InvalidParameterError: ``top_k`` or ``mode`` is outside its range.
            StoreError: The index cannot be used.
            ConfigurationError: Something needed is not installed or not set.
            RetrievalError: With ``strict``, whatever would otherwise be listed in ``result.degraded``.
        """
        plan = self._plan(filters, top_k, mode)
        run = Run(self._pool, seconds=self.config.deadline_seconds, clock=self._clock)
        normal = normalize(query, self.config.query.max_length)
        found = await search(run.until(SEARCH_SHARE), self.store, self.embedder, normal, plan)
        self._raise_what_must_not_be_hidden(found.failures)
        if found.dense is None and found.lexical is None:
            return self._result(run, found, Selected(failure=found.failures[-1]), plan)
        started = run.elapsed_ms
        ranked = fuse(found.dense, found.lexical, method=plan.fusion, dense_weight=plan.dense_weight)
        run.note("fuse", started, len(found.dense or ()) + len(found.lexical or ()), len(ranked))
        selected = await select(run, self.store, found, ranked, plan)
        if selected.failure is not None:
            self._raise_what_must_not_be_hidden((selected.failure,))
        if self.config.strict and selected.degraded:
            raise SearchError("; ".join(f"{item.stage}: {item.reason}" for item in selected.degraded))
        return self._result(run, found, selected, plan)

    def _plan(self, filters: Filter | Mapping[str, Any] | None, top_k: int | None, mode: SearchMode | None) -> Plan:
        settings = self.config.search
        mode = mode or settings.mode
        top_k = settings.top_k if top_k is None else top_k
        if mode not in {"hybrid", "dense", "lexical"}:
            msg = f"mode must be hybrid, dense or lexical, got {mode!r:.80}"
            raise InvalidParameterError(msg)
        if type(top_k) is not int or not 1 <= top_k <= MAX_TOP_K:
            msg = f"top_k must be a whole number between 1 and {MAX_TOP_K}, got {top_k!r:.80}"
            raise InvalidParameterError(msg)
        if mode != "lexical" and self.embedder is None:
            msg = f"mode {mode!r} needs an embedder and there is none; use mode 'lexical', or configure embedder.kind"
            raise InvalidParameterError(msg)
        fetch_k = max(settings.fetch_k, top_k) if settings.search_type == "mmr" else None
        return Plan(
            mode=mode,
            top_k=top_k,
            candidates=max(settings.candidates, top_k, fetch_k or 0),
            condition=_condition(filters),
            fusion=settings.fusion,
            dense_weight=settings.dense_weight,
            score_threshold=settings.score_threshold,
            on_unscored=settings.on_unscored,
            fetch_k=fetch_k,
            lambda_mult=settings.lambda_mult,
        )

    def _raise_what_must_not_be_hidden(self, failures: tuple[Failed, ...]) -> None:
        for failure in failures:
            if not self.config.strict and not is_callers_fault(failure.error):
                continue
            if isinstance(failure.error, RetrievalError):
                raise failure.error
            msg = f"{failure.stage}: {failure.reason}"
            raise SearchError(msg) from failure.error

    def _result(self, run: Run, found: Found, selected: Selected, plan: Plan) -> RetrievalResult:
        settings = self.config.format
        context = format_context(
            selected.hits,
            template=settings.template,
            delimiter=settings.delimiter,
            include_scores=settings.include_scores,
            max_length=settings.max_context_length,
        )
        metadata: dict[str, JSON] = {
            "query_normalized": found.query.text,
            "query_truncated": found.query.truncated,
            "mode": plan.mode,
            "filters_applied": to_json(plan.condition) if plan.condition is not None else {},
            "documents_fetched": len({c.chunk_id for side in (found.dense, found.lexical) for c in side or ()}),
            "context_truncated": context.truncated,
        }
        failures = found.failures
        if selected.failure is not None:
            if not selected.hits:
                metadata["error"] = selected.failure.reason
            if all(failure is not selected.failure for failure in failures):
                failures = (*failures, selected.failure)
        return RetrievalResult(
            query=found.query.original,
            hits=selected.hits,
            formatted_context=context.text,
            metadata=metadata,
            latency_ms=run.elapsed_ms,
            degraded=tuple(Degradation(item.stage, item.reason) for item in failures) + selected.degraded,
            trace=run.records,
        )

    async def aclose(self) -> None:
        """Close the store and the embedder. Closing twice is fine."""
        try:
            await self.store.aclose()
        finally:
            try:
                if (close := getattr(self.embedder, "aclose", None)) is not None:
                    await close()
            finally:
                await asyncio.to_thread(self._pool.close)

    def close(self) -> None:
        """Close the store and the embedder, and stop the background loop of synchronous calls."""
        self.sync.run(self.aclose())
        self.sync.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _condition(filters: Filter | Mapping[str, Any] | None) -> Filter | None:
    """Return the filter that a caller means; an empty object, as programs build it, means none."""
    if filters is None or isinstance(filters, Filter):
        return filters
    return None if filters == {} else parse_filter(filters)
