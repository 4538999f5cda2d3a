"""The runner: the one place where calls of plug-ins are timed, bounded, repeated and turned into outcomes."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from retrieval_core.errors import DeadlineExceededError, MalformedAnswerError, RetrievalError, ServiceError
from retrieval_core.run.clock import SystemClock
from retrieval_core.run.outcomes import Failed, Ok
from retrieval_core.run.retry import NO_RETRIES, CircuitBreakers, RetryPolicy, retry
from retrieval_core.run.sync import to_a_loop
from retrieval_core.run.threads import name_of, start_task, wait_or_abandon
from retrieval_core.types import FailedAttempt, StageRecord, Usage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    from retrieval_core.config import TimeoutsConfig
    from retrieval_core.run.clock import Clock
    from retrieval_core.run.observe import Observer, StageSpan
    from retrieval_core.run.threads import ThreadPool
    from retrieval_core.types import DroppedPassage

P = ParamSpec("P")
T = TypeVar("T")

CALLED = {
    "embed": "embedding the query",
    "dense": "vector search",
    "lexical": "keyword search",
    "hybrid": "hybrid search",
    "fetch": "reading the chunks",
    "rerank": "reranking",
    "relevance": "the relevance filter",
    "load": "loading",
}
"""Names of stages in messages, if they differ from the names in code."""


STAGES = {
    "embedding_time": ("embed",),
    "retrieval_time": ("dense", "lexical", "hybrid", "retrieve", "fetch"),
    "reranking_time": ("rerank",),
    "synthesis_time": ("answer",),
}
"""Which stages the specification's times are made of: the calls of these."""
_UNOBSERVED: AbstractContextManager[None] = nullcontext()


@dataclass(frozen=True, slots=True)
class Guard:
    """Retries, circuit breakers, observer and time-outs, shared by all runs of a pipeline.

    Attributes:
        timeouts: By stage, the seconds that each of its calls may take, with all attempts and waits, and the setting
            that says so. A call that takes longer fails with :class:`~retrieval_core.errors.DeadlineExceededError`,
            which names the setting. The deadline holds as well.
    """

    policy: RetryPolicy = NO_RETRIES
    breakers: CircuitBreakers = field(default_factory=lambda: CircuitBreakers(failures=0, pause=0))
    observer: Observer | None = None
    timeouts: Mapping[str, tuple[float, str]] = field(default_factory=dict[str, "tuple[float, str]"])


def timeouts_of(config: TimeoutsConfig) -> dict[str, tuple[float, str]]:
    """Return for each stage with a timeout its seconds and the setting's key, for :attr:`Guard.timeouts`."""
    return {
        stage: (seconds, f"timeouts.{name}")
        for name in ("embedding", "retrieval", "reranking", "synthesis")
        if (seconds := getattr(config, name)) is not None
        for stage in STAGES[f"{name}_time"]
    }


class Run:
    """One query's run: its deadline, and the records of what its stages did.

    Args:
        pool: Runs functions that are not coroutine functions.
        seconds: The time budget of the whole run; ``None`` for no bound.
        clock: Measures the deadline and the durations; by default :class:`SystemClock`.
        guard: By default no retries, breakers, observer or time-outs.
    """

    def __init__(
        self, pool: ThreadPool, *, seconds: float | None = None, clock: Clock | None = None, guard: Guard | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._pool = pool
        self._guard = guard or Guard()
        self._policy = self._guard.policy
        self._backend: str | None = None
        self._repair: Callable[..., Awaitable[object]] | None = None
        self._has_begun: Callable[[], bool] | None = None
        self._round: int | None = None
        self._started = self._clock.now()
        self._before_ms = 0.0
        self._seconds = seconds
        self._limit = seconds
        self._bound_by: str | None = None
        self._deadline = seconds
        self._records: list[StageRecord] = []

    def until(self, share: float) -> Run:
        """Return this run with only the first ``share`` of its deadline, so that later stages have time left."""
        return self._part(_limit=None if self._seconds is None else self._seconds * share)

    def within(self, share: float) -> Run:
        """Return this run for a part that may take ``share`` of the whole deadline from now on."""
        if self._seconds is None:
            return self
        soon = self.elapsed_ms / 1000 + self._seconds * share
        return self._part(_limit=soon if self._limit is None else min(self._limit, soon))

    def for_part_of_the_rest(self, part: float) -> Run:
        """Return this run with only ``part``, in [0, 1], of the time that is left; a fallback then has the rest."""
        remaining = self._remaining()
        return self if remaining is None else self._part(_limit=self.elapsed_ms / 1000 + remaining * part)

    def afresh(self, part: float) -> Run:
        """Return this run for a search with a separate deadline: ``part``, in (0, 1], of the time that is left."""
        remaining = self._remaining()
        seconds = None if remaining is None else max(0.0, remaining) * part
        now = self._clock.now()
        before = self._since_query(now)
        return self._part(_started=now, _before_ms=before, _seconds=seconds, _limit=seconds)

    def on(self, backend: str) -> Run:
        """Return this run for calls to one backend, whose failures are counted together by its circuit breaker.

        Without it, each stage counts as a separate backend.
        """
        return self._part(_backend=backend)

    def in_round(self, number: int) -> Run:
        """Return this run for one of several searches; its records carry the number, from 1."""
        return self._part(_round=number)

    def without_retries(self) -> Run:
        """Return this run for calls that are made once, since skipping them is better than waiting."""
        return self._part(_policy=NO_RETRIES)

    def repairing(self, repair: Callable[..., Awaitable[object]] | None) -> Run:
        """Return this run for calls whose unusable answers can be repaired; ``None`` changes nothing.

        If an attempt raised :class:`~retrieval_core.errors.MalformedAnswerError`, the next attempt calls ``repair``
        instead of the function, with the same arguments and that error after them. It returns the same kind of result.
        If a repair fails in another way, the function is called again.
        """
        return self._part(_repair=repair)

    def once_begun(self, has_begun: Callable[[], bool]) -> Run:
        """Return this run for calls, as of a stream, that are not repeated once ``has_begun()`` is true."""
        return self._part(_has_begun=has_begun)

    def _part(self, **changed: object) -> Run:
        part = object.__new__(Run)
        part.__dict__ = self.__dict__ | changed
        return part

    @property
    def seconds(self) -> float | None:
        """The time budget; ``None`` for no bound."""
        return self._seconds

    @property
    def seconds_left(self) -> float | None:
        """The time that this run, or this part of it, has left; ``None`` for no bound."""
        return self._remaining()

    @property
    def elapsed_ms(self) -> float:
        """Milliseconds since the run began."""
        return (self._clock.now() - self._started) * 1000

    @property
    def is_over(self) -> bool:
        """Whether the time of this run, or of this part of it, is used up."""
        remaining = self._remaining()
        return remaining is not None and remaining <= 0

    @property
    def records(self) -> tuple[StageRecord, ...]:
        """One record for each stage so far, in the order they ended."""
        return tuple(self._records)

    def note(
        self,
        stage: str,
        started_ms: float,
        count_in: int | None,
        count_out: int | None,
        decision: str | None = None,
        *,
        dropped: tuple[DroppedPassage, ...] = (),
    ) -> None:
        """Record a stage that made no call, from ``started_ms`` until now."""
        took = self.elapsed_ms - started_ms
        self._records.append(
            StageRecord(
                stage,
                took,
                count_in,
                count_out,
                decision=decision,
                round=self._round,
                dropped=dropped,
                started_ms=self._before_ms + started_ms,
            )
        )

    def include(self, name: str, records: Iterable[StageRecord], started_ms: float) -> None:
        """Record what a run inside of this one did, which began at ``started_ms``, under its name."""
        before = self._before_ms + started_ms
        for record in records:
            self._records.append(_later(record, before, stage=f"{name}: {record.stage}", round=self._round))

    def _since_query(self, moment: float) -> float:
        """Return the milliseconds from the beginning of the query to a moment of the clock."""
        return self._before_ms + (moment - self._started) * 1000

    async def call(
        self, stage: str, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> Ok[T] | Failed:
        """Call a plug-in within what is left of the deadline, with retries, and record it.

        A function that is no coroutine function runs in a thread; if it returns an awaitable, that is awaited.
        Errors become :class:`Failed`; cancellation of the caller passes through.
        """
        await to_a_loop()
        guard = self._guard
        bound = guard.timeouts.get(stage)
        run = self if bound is None else self._bound_for_a_call(*bound)
        with _UNOBSERVED if guard.observer is None else guard.observer.span(stage) as span:
            calls = _Calls(self._clock.now())
            outcome = await run._outcome(stage, calls, function, args, kwargs)  # noqa: SLF001 - of this run's part
            self._record(outcome, stage, calls, span)
        return outcome

    def now(self, stage: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Ok[T] | Failed:
        """Call a function that computes only, without waiting, and record it as :meth:`call` does.

        It is called once, on this thread, if the deadline is not over. Its errors become :class:`Failed`.
        """
        observer = self._guard.observer
        with _UNOBSERVED if observer is None else observer.span(stage) as span:
            calls = _Calls(self._clock.now())
            outcome: Ok[T] | Failed
            if self._limit is not None and calls.started - self._started >= self._limit:
                outcome = Failed(stage, self._exceeded(stage))
            else:
                calls.attempts = 1
                try:
                    outcome = Ok(function(*args, **kwargs))
                    calls.size = _size(outcome.value)
                except Exception as error:  # noqa: BLE001 - whether to go on is not for a stage to decide
                    outcome = Failed(stage, error, 1)
                    calls.failed = (self._failed_attempt(stage, calls.started, error),)
            self._record(outcome, stage, calls, span)
        return outcome

    def _record(self, outcome: Ok[Any] | Failed, stage: str, calls: _Calls, span: StageSpan | None) -> None:
        """Record a call that has just ended, and pass it to the observer."""
        is_ok = isinstance(outcome, Ok)
        started = calls.started
        record = StageRecord(
            stage,
            (self._clock.now() - started) * 1000,
            count_out=calls.size if is_ok else None,
            error=None if is_ok else outcome.reason,
            attempts=calls.attempts,
            usage=calls.usage if is_ok else None,
            round=self._round,
            started_ms=self._before_ms + (started - self._started) * 1000,
            failed=calls.failed,
        )
        self._records.append(record)
        if span is not None:
            span.end(record, None if is_ok else outcome.error)

    def _failed_attempt(self, stage: str, started: float, error: Exception) -> FailedAttempt:
        took = (self._clock.now() - started) * 1000
        return FailedAttempt(self._since_query(started), took, Failed(stage, error).reason)

    def _bound_for_a_call(self, seconds: float, setting: str) -> Run:
        """Return this run for one call that begins now."""
        end = self.elapsed_ms / 1000 + seconds
        if self._limit is not None and self._limit <= end:
            return self
        return self._part(_limit=end, _bound_by=f"{seconds:g} s. Increase `{setting}`.")

    async def _outcome(
        self,
        stage: str,
        calls: _Calls,
        function: Callable[..., Awaitable[T]],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> Ok[T] | Failed:
        """Make a call with its retries, unless its circuit breaker is open."""
        breakers, backend = self._guard.breakers, self._backend or stage
        try:
            if (breaker := breakers.failed.get(backend)) is not None:
                breaker.admit()
            try:
                value = await self._attempt(stage, calls, function, args, kwargs)
            except Exception as error:  # noqa: BLE001 - whether to go on is not for a stage to decide
                again = partial(self._attempt, stage, calls, function, args, kwargs)
                value = await retry(error, again, self._policy, self._clock, self._remaining)
            usage, calls.size = getattr(value, "usage", None), _size(value)  # a plug-in's value may raise here too
            calls.usage = usage if isinstance(usage, Usage) else None  # a plug-in may return anything
        except Exception as raised:  # noqa: BLE001 - a plug-in may raise anything; here it becomes a value
            error = raised.error if isinstance(raised, _Final) else raised
            if calls.attempts:
                breakers.record(backend, error, self._clock)
            return Failed(stage, error, calls.attempts)
        if (breaker := breakers.failed.get(backend)) is not None:
            breaker.succeeded()
        return Ok(value)

    async def settle(
        self, stage: str, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> Ok[T] | Failed:
        """Await a function that makes calls itself, and return its value or the library error that it raised.

        Only its calls are timed, bounded and repeated, not the function as a whole.
        """
        try:
            return Ok(await function(*args, **kwargs))
        except RetrievalError as error:
            return Failed(stage, error)

    def _remaining(self) -> float | None:
        limit = self._limit
        return None if limit is None else limit - (self._clock.now() - self._started)

    async def _attempt(
        self,
        stage: str,
        calls: _Calls,
        function: Callable[..., Awaitable[T]],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> T:
        started = self._clock.now() if calls.attempts else calls.started
        remaining = None if self._limit is None else self._limit - (started - self._started)
        if remaining is not None and remaining <= 0:
            raise self._exceeded(stage)
        calls.attempts += 1
        if self._repair is not None and calls.wrong is not None:
            function, args = cast("Callable[..., Awaitable[T]]", self._repair), (*args, calls.wrong)
        # A plug-in may change its own list.
        given = [[*cast("list[object]", arg)] if isinstance(arg, list) else arg for arg in args]
        try:
            task = start_task(self._pool.call(function, *given, **kwargs))
            if not task.done():
                begin_timeout = lambda: self._clock.timeout(self._remaining())  # noqa: E731 - most calls need none
                return await wait_or_abandon(task, begin_timeout, lambda: f"{stage}: {name_of(function)}")
            return task.result()
        except Exception as raised:
            error = raised
            if isinstance(error, TimeoutError) and self._is_of_the_deadline(error):
                error = self._exceeded(stage)
            calls.failed = (*calls.failed, self._failed_attempt(stage, started, error))
            if self._has_begun is not None and self._has_begun():
                raise _Final(error) from raised
            calls.wrong = error if isinstance(error, MalformedAnswerError) else None
            if error is raised:
                raise
            raise error from raised

    def _is_of_the_deadline(self, error: TimeoutError) -> bool:
        """Whether the call was ended because its time was over, and did not itself give up on something."""
        return not (isinstance(error, ServiceError) or self._limit is None or self.elapsed_ms < self._limit * 1000)

    def _exceeded(self, stage: str) -> DeadlineExceededError:
        called = CALLED.get(stage, stage)
        if self._bound_by is not None:
            return DeadlineExceededError(f"{called} timed out after {self._bound_by}")
        limits = f"after {self._limit:.4g} s (deadline {self._deadline:.4g} s)"
        msg = f"{called} timed out {limits}. Increase `deadline_seconds`."
        return DeadlineExceededError(msg)


@dataclass(slots=True)
class _Calls:
    """One stage's call so far: its attempts, the malformed answer of the last one, and facts about the result."""

    started: float
    attempts: int = 0
    failed: tuple[FailedAttempt, ...] = ()
    wrong: MalformedAnswerError | None = None
    size: int | None = None
    usage: Usage | None = None


class _Final(Exception):  # noqa: N818 - never seen outside
    """Carries the error of an attempt after which there must be no other."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _later(record: StageRecord, milliseconds: float, **changed: Any) -> StageRecord:
    """Return a record as a run has it that began so much earlier."""
    started = None if record.started_ms is None else record.started_ms + milliseconds
    failed = tuple(replace(each, started_ms=each.started_ms + milliseconds) for each in record.failed)
    return replace(record, started_ms=started, failed=failed, **changed)


def _size(value: object) -> int | None:
    value = getattr(value, "hits", value)
    return len(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else None
