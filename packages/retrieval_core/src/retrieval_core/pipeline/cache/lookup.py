"""Asking the cache for a result, and handing it one, without making the question wait for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from retrieval_core.errors import DeadlineExceededError, ServiceError
from retrieval_core.run.outcomes import Failed, Ok
from retrieval_core.types import RetrievalResult

if TYPE_CHECKING:
    from retrieval_core.ports import ResultCache
    from retrieval_core.run.runner import Run

CACHE_SHARE = 0.05
"""How much of the deadline asking the cache may use up: an answer from there is only worth having at once."""


async def ask_cache(run: Run, cache: ResultCache, key: str) -> RetrievalResult | Failed | None:
    """Return the result of a key; ``None`` where there is none."""
    if getattr(cache, "in_process", False):
        started = run.elapsed_ms
        result = await cache.get(key)
        run.note("cache", started, None, None)
        return result
    asking = run.within(CACHE_SHARE).without_retries()
    if not getattr(cache, "is_loaded", True):
        failure = await _load(asking, cast("_LoadedLate", cache))
        if failure is not None:
            return failure
    outcome = await asking.on("cache").call("cache", cache.get, key)
    if isinstance(outcome, Failed):
        return outcome
    kept: Any = outcome.value  # a plug-in may give anything
    if kept is not None and not isinstance(kept, RetrievalResult):
        return Failed("cache", ServiceError(f"the cache's answer cannot be used: {kept!r:.80} is no RetrievalResult"))
    return kept


class _LoadedLate(Protocol):
    """A cache that has to load something first, once, and says so with an attribute ``is_loaded``."""

    async def load(self) -> None: ...


async def _load(asking: Run, cache: _LoadedLate) -> Failed | None:
    """Have a cache load what it needs; it goes on with that also when the time to ask it is over."""
    started = asking.elapsed_ms
    # Not as a call to the cache: how long this takes says nothing of its server, which need not be left alone for it.
    outcome = await asking.on("loading the cache").call("cache", cache.load)
    if not isinstance(outcome, Failed):
        return None
    if not isinstance(outcome.error, DeadlineExceededError):
        return outcome
    msg = (
        f"it was skipped: its client was still loading after {asking.elapsed_ms - started:.0f} ms, "
        f"{CACHE_SHARE:.0%} of deadline_seconds. It is loaded once per process. "
        "To load it before the first query: await cache.load()"
    )
    return replace(outcome, error=DeadlineExceededError(msg))


async def keep(run: Run, cache: ResultCache, key: str, result: RetrievalResult) -> Ok[None] | Failed:
    """Hand a result to the cache."""
    if getattr(cache, "in_process", False):
        await cache.set(key, result)
        return Ok(None)
    return await run.within(CACHE_SHARE).without_retries().on("cache").call("cache", cache.set, key, result)
