"""The one place where calls that leave the process, or load a model, are timed, bounded and turned into outcomes."""

from __future__ import annotations

import asyncio
import inspect
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar, cast

from retrieval_core.errors import (
    ConfigurationError,
    DeadlineExceededError,
    DimensionMismatchError,
    FilterError,
    InvalidParameterError,
    ServiceError,
    StoreError,
)
from retrieval_core.run.clock import SystemClock
from retrieval_core.types import StageRecord

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from retrieval_core.run.clock import Clock
    from retrieval_core.run.threads import ThreadPool

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ok(Generic[T]):
    """A call that worked."""

    value: T


@dataclass(frozen=True, slots=True)
class Failed:
    """A call that did not work, after everything that could help was tried."""

    stage: str
    error: Exception

    @property
    def reason(self) -> str:
        """One line for people: what went wrong, without a traceback."""
        text = " ".join(str(self.error).split())
        return text or type(self.error).__name__


def is_callers_fault(error: Exception) -> bool:
    """Whether an error says that something is set up or asked wrongly, so that going on without would hide it."""
    if isinstance(error, ServiceError):
        return error.status in {401, 403, 404}
    if isinstance(error, StoreError):
        return not error.transient
    return isinstance(error, (ConfigurationError, DimensionMismatchError, FilterError, InvalidParameterError))


class Run:
    """One query's run: its deadline, and the records of what its stages did.

    Args:
        clock: What the deadline and the durations are measured with.
        seconds: The time budget of the whole run; ``None`` for no bound.
        pool: Where functions run that are not coroutine functions.
    """

    def __init__(self, pool: ThreadPool, *, seconds: float | None = None, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._pool = pool
        self._started = self._clock.now()
        self._seconds = seconds
        self._limit = seconds
        self._records: list[StageRecord] = []

    def until(self, share: float) -> Run:
        """Return this run with only the first part of its deadline, so that what comes afterwards has time left.

        Clock and records are the same.
        """
        part = copy(self)
        part._limit = None if self._seconds is None else self._seconds * share  # noqa: SLF001 - of the same class
        return part

    @property
    def elapsed_ms(self) -> float:
        """Milliseconds since the run began."""
        return (self._clock.now() - self._started) * 1000

    @property
    def records(self) -> tuple[StageRecord, ...]:
        """What was done so far, in the order it ended."""
        return tuple(self._records)

    def note(self, stage: str, started_ms: float, count_in: int | None, count_out: int | None) -> None:
        """Record a stage that was plain arithmetic, from ``started_ms`` until now."""
        self._records.append(StageRecord(stage, self.elapsed_ms - started_ms, count_in, count_out))

    async def call(
        self, stage: str, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> Ok[T] | Failed:
        """Call something that may fail or hang, within what is left of the deadline.

        A function that is no coroutine function runs in a thread; if it then returns something to await, that is
        awaited. Cancellation of the caller passes through.
        """
        started = self.elapsed_ms
        remaining = None if self._limit is None else self._limit - started / 1000
        if remaining is not None and remaining <= 0:
            return self._failed(stage, started, self._exceeded(stage))
        try:
            async with self._clock.timeout(remaining):
                returned: object = await self._pool.call(function, *args, **kwargs)
                value = cast("T", await returned if inspect.isawaitable(returned) else returned)
        except TimeoutError as error:
            return self._failed(stage, started, self._as_deadline(error, stage))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            cancelled = ServiceError(f"{stage} was cancelled from within")
            cancelled.__cause__ = error
            return self._failed(stage, started, cancelled)
        except Exception as error:  # noqa: BLE001 - a plug-in may raise anything; here it becomes a value
            return self._failed(stage, started, error)
        self._records.append(StageRecord(stage, self.elapsed_ms - started, count_out=_size(value)))
        return Ok(value)

    def _as_deadline(self, error: TimeoutError, stage: str) -> Exception:
        if isinstance(error, ServiceError) or self._limit is None or self.elapsed_ms < self._limit * 1000:
            return error
        exceeded = self._exceeded(stage)
        exceeded.__cause__ = error
        return exceeded

    def _exceeded(self, stage: str) -> DeadlineExceededError:
        share = "" if self._limit == self._seconds else f"its {self._limit:g} s of "
        msg = (
            f"{stage} was not done when {share}the query's {self._seconds:g} s were over; "
            "raise deadline_seconds to allow more"
        )
        return DeadlineExceededError(msg)

    def _failed(self, stage: str, started: float, error: Exception) -> Failed:
        failed = Failed(stage, error)
        self._records.append(StageRecord(stage, self.elapsed_ms - started, error=failed.reason))
        return failed


def _size(value: object) -> int | None:
    return len(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else None
