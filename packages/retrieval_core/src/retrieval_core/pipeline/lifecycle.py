"""The life of a query engine: its plug-ins, its runs and its end."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from retrieval_core.config import RetrievalConfig
from retrieval_core.errors import DeadlineExceededError, InvalidParameterError, checked_count
from retrieval_core.pipeline.stages.embed import EmbeddingCache, QueryEmbedder, Recovery
from retrieval_core.pipeline.stages.rerank import RerankCache
from retrieval_core.ports import Reranker, as_plugin
from retrieval_core.run.clock import SystemClock
from retrieval_core.run.observe.observer import SeveralObservers
from retrieval_core.run.outcomes import Failed
from retrieval_core.run.retry import BREAKER_PAUSE, CircuitBreakers, RetryPolicy
from retrieval_core.run.runner import Guard, Run, timeouts_of
from retrieval_core.run.sync import SingleFlight, SyncBridge, to_a_loop
from retrieval_core.run.threads import ThreadPool, name_of, start_task, wait_or_abandon

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from contextlib import AbstractContextManager
    from typing import Self

    from retrieval_core.config import CacheConfig
    from retrieval_core.ports import Embedder
    from retrieval_core.run.clock import Clock
    from retrieval_core.run.observe import Observer
    from retrieval_core.types import RetrievalResult

logger = logging.getLogger("retrieval_core")

LOAD_SECONDS = 120.0
"""How long a query waits for models to be loaded and stores to be opened, apart from its deadline."""
PATIENCE = 5.0
"""How many seconds closing waits for a synchronous plug-in."""
CLOSE_SECONDS = 5.0
"""How long the ``aclose`` of one plug-in may take."""


class Closing(ABC):
    """Closes its resources at the end of ``with`` or ``async with``."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close files, threads and models. Closing twice is fine."""

    @abstractmethod
    def close(self) -> None:
        """Close files, threads and models. Closing twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()


class Lifecycle(Closing):
    """Makes the runs of questions, lets an observer watch them, and closes everything in the end.

    Args:
        config: Defaults of every query.
        observer: Is told what happens; what it raises is kept from the query.
        clock: Measures durations and the deadline; the system's where it is not given.
        threads: Prefix of the names of the threads that synchronous plug-ins run in.
    """

    def __init__(
        self, config: RetrievalConfig | None, observer: Observer | None, clock: Clock | None, *, threads: str
    ) -> None:
        self.config = config or RetrievalConfig()
        self.sync = SyncBridge(self.config.deadline_seconds)
        self._clock = clock or SystemClock()
        self._observer = None if observer is None else SeveralObservers(observer)
        self._guard = guard_of(self.config, self._observer)
        self._pool = ThreadPool(threads, threads=4, patience=PATIENCE)
        self._loads: SingleFlight[None] = SingleFlight()
        self._slow: set[int] = set()

    def _run(self, at_most: float | None = None) -> Run:
        """Begin a run with a new deadline, ``at_most`` so many seconds."""
        seconds = self.config.deadline_seconds
        if at_most is not None:
            seconds = at_most if seconds is None else min(at_most, seconds)
        return Run(self._pool, seconds=seconds, clock=self._clock, guard=self._guard)

    async def _load(self, parts: Iterable[object]) -> None:
        """Load the parts of a query that are not loaded yet, before its deadline begins.

        A part that fails or takes longer than :data:`LOAD_SECONDS` is met again by the query itself.

        Args:
            parts: A part that has to load something has ``is_loaded`` and a coroutine method ``load()``.
        """
        cold = [part for part in parts if hasattr(part, "load") and getattr(part, "is_loaded", True) is False]
        if cold := [part for part in cold if id(part) not in self._slow]:
            await to_a_loop()
            await asyncio.gather(*(self._loads.run(str(id(part)), partial(self._load_part, part)) for part in cold))

    def _loading(self) -> Run:
        return Run(self._pool, seconds=LOAD_SECONDS, clock=self._clock)

    async def _load_part(self, part: Any) -> None:
        outcome = await self._loading().call("load", part.load)
        if isinstance(outcome, Failed) and isinstance(outcome.error, DeadlineExceededError):
            self._slow.add(id(part))
            logger.warning("loading %s takes longer than %g s; queries no longer wait for it", part, LOAD_SECONDS)

    def _watched(self) -> AbstractContextManager[None]:
        """Return the context in which one question is answered."""
        return nullcontext() if self._observer is None else self._observer.query()

    def _told(self, result: RetrievalResult) -> None:
        """Tell who watches what a question came to; inside :meth:`_watched`."""
        if self._observer is not None:
            self._observer.answered(result)

    @property
    @abstractmethod
    def _held(self) -> Sequence[object]:
        """What is closed with it, the last one first; what cannot be closed is passed over."""

    async def aclose(self) -> None:
        """Close files, threads and models. Closing twice is fine.

        A synchronous component that has not returned after 5 s is abandoned, with a warning in the log.
        """
        async with AsyncExitStack() as stack:  # whatever fails, the rest is closed too
            stack.push_async_callback(asyncio.to_thread, self._pool.close)
            close_with(stack, self._held)

    def close(self) -> None:
        """Close files, threads and models. Closing twice is fine.

        A synchronous component that has not returned after 5 s is abandoned, with a warning in the log.
        """
        self.sync.finish(self.aclose)


class Calls(Lifecycle):
    """Begins runs, whose deadline, retries and time-outs are those of the settings; closing it closes what it owns."""

    def __init__(self, config: RetrievalConfig, clock: Clock | None = None, owned: Sequence[object] = ()) -> None:
        super().__init__(config, None, clock, threads="retrieval-parts")
        self.begin = self._run
        self._owned = owned

    @property
    def _held(self) -> Sequence[object]:
        return self._owned


def reranker_chain(reranker: Reranker | Sequence[Reranker] | None) -> tuple[Reranker, ...]:
    """Return rerankers as they are asked, one after the other.

    Raises:
        InvalidParameterError: One of them is no reranker.
    """
    if reranker is None:
        return ()
    chain = tuple(reranker) if isinstance(reranker, Sequence) and not isinstance(reranker, str) else (reranker,)
    links = tuple([as_plugin(link, Reranker) for link in chain])
    for link in links:
        if not isinstance(link.id, str):
            msg = f"the id of a reranker must be text, got {link.id!r:.80} from a {type(link).__name__}"
            raise InvalidParameterError(msg)
        checked_count(link.batch_size, f"the batch_size of the reranker {link.id}")
    return links


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


def questions_with(embedder: Embedder, settings: RetrievalConfig, now: Callable[[], float]) -> QueryEmbedder:
    """Return what embeds questions, remembers as many as is configured, and reopens the embedder after a failure."""
    kept = settings.cache.embeddings if settings.cache.is_on else 0
    remembered = EmbeddingCache(kept, now) if kept else None
    return QueryEmbedder(embedder, remembered, Recovery(now, BREAKER_PAUSE))


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
