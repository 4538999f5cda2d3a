"""Plug-ins of a pipeline: they are checked when they come, and closed with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.errors import InvalidParameterError, checked_count
from retrieval_core.pipeline.stages.embed import EmbeddingCache, Questions, Recovery
from retrieval_core.pipeline.stages.rerank import RerankCache
from retrieval_core.ports.checks import check_components
from retrieval_core.run.retry import BREAKER_PAUSE, CircuitBreakers, RetryPolicy
from retrieval_core.run.runner import Guard, timeouts_of
from retrieval_core.run.threads import ThreadPool, name_of, start_task, wait_or_abandon

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from contextlib import AsyncExitStack

    from retrieval_core.config import CacheConfig, RetrievalConfig
    from retrieval_core.ports import Embedder, Reranker
    from retrieval_core.run.observe import Observer

CLOSE_SECONDS = 5.0
"""How long the ``aclose`` of one plug-in may take."""
logger = logging.getLogger("retrieval_core")


def reranker_chain(reranker: Reranker | Sequence[Reranker] | None) -> tuple[Reranker, ...]:
    """Return rerankers as they are asked, one after the other.

    Raises:
        InvalidParameterError: One of them is no reranker.
    """
    if reranker is None:
        return ()
    chain = tuple(reranker) if isinstance(reranker, Sequence) and not isinstance(reranker, str) else (reranker,)
    check_components(reranker=chain)
    for link in cast("tuple[Any, ...]", chain):
        if not isinstance(link.id, str):
            msg = f"the id of a reranker must be text, got {link.id!r:.80} from a {type(link).__name__}"
            raise InvalidParameterError(msg)
        checked_count(link.batch_size, f"the batch_size of the reranker {link.id}")
    return cast("tuple[Reranker, ...]", chain)


def by_name(given: Mapping[str, Any] | None, kind: str, method: str) -> dict[str, Any]:
    """Return plug-ins by their names.

    Raises:
        InvalidParameterError: They are no mapping, or one of them lacks the method that makes it one.
    """
    if given is not None and not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"{kind}s are given by name, as in {{'mine': ...}}, got {type(given).__name__}"
        raise InvalidParameterError(msg)
    for name, part in (given or {}).items():
        if not callable(getattr(part, method, None)):
            msg = f"{part!r:.80} ({name!r}) is no {kind}: it needs a method {method}; see retrieval_core.ports"
            raise InvalidParameterError(msg)
    return dict(given or {})


def guard_of(config: RetrievalConfig, observer: Observer | None = None) -> Guard:
    """Return what protects the calls of all runs: retries, circuit breakers and time-outs as they are configured."""
    return Guard(
        RetryPolicy(**dict(config.retry)),
        CircuitBreakers(failures=config.breaker.failures, pause=BREAKER_PAUSE),
        observer,
        timeouts_of(config.timeouts),
    )


def questions_with(embedder: Embedder, settings: RetrievalConfig, now: Callable[[], float]) -> Questions:
    """Return what embeds questions, remembers as many as is configured, and opens the embedder anew when it fails."""
    kept = settings.cache.embeddings if settings.cache.is_on else 0
    remembered = EmbeddingCache(kept, now) if kept else None
    return Questions(embedder, remembered, Recovery(now, BREAKER_PAUSE))


def kept_reranks(settings: CacheConfig, now: Callable[[], float]) -> RerankCache | None:
    """Return what keeps the scores of rerankers; ``None`` where they are not kept."""
    return RerankCache(settings.reranks, now, settings.ttl_seconds) if settings.is_on and settings.reranks else None


def close_with(stack: AsyncExitStack, parts: Iterable[object]) -> None:
    """Have everything closed that can be when a stack is left, the last one first; whatever fails, the rest is too."""
    for part in parts:
        if (close := getattr(part, "aclose", None)) is not None:
            stack.push_async_callback(_close, close)


async def _close(close: Callable[..., Awaitable[object]]) -> None:
    """Call a plug-in's ``aclose``; one that takes longer than :data:`CLOSE_SECONDS` is abandoned, and logged."""
    pool = ThreadPool("retrieval-closing", threads=1, patience=CLOSE_SECONDS)  # an ordinary function may block
    limit = asyncio.timeout(CLOSE_SECONDS)
    try:
        await wait_or_abandon(start_task(pool.call(close)), lambda: limit, lambda: name_of(close))
    except TimeoutError:
        if not limit.expired():
            raise
        logger.warning("%s did not return within %g s; the rest is closed without it", name_of(close), CLOSE_SECONDS)
