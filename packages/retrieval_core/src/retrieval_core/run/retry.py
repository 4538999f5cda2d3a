"""Failing backends: which calls are repeated, and when a backend is skipped for a while."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from retrieval_core.errors import (
    CircuitOpenError,
    DeadlineExceededError,
    MalformedAnswerError,
    RetrievalError,
    ServiceError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tenacity import RetryCallState

    from retrieval_core.run.clock import Clock

T = TypeVar("T")

MAY_PASS: tuple[type[BaseException], ...] = (ConnectionError, TimeoutError)
"""What Python raises, and plug-ins with it, where the same call may succeed later."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a failed call is made again, and the exponential backoff in between.

    Attributes:
        max_retries: Further attempts after the first one, at least 0.
        base_delay: Seconds before the first of them, before jitter.
        max_delay: The longest wait in seconds, unless a service asks for more.
        exponential_base: Factor from each wait to the next.
        retryable_exceptions: Errors of plug-ins that are worth another attempt, see :func:`can_help`.
    """

    max_retries: int = 3
    base_delay: float = 1.0
    max_delay: float = 10.0
    exponential_base: float = 2.0
    retryable_exceptions: tuple[type[BaseException], ...] = MAY_PASS


NO_RETRIES = RetryPolicy(max_retries=0)


def can_help(error: BaseException, retryable: tuple[type[BaseException], ...] = MAY_PASS) -> bool:
    """Whether the same call may succeed when it is made again.

    True for lost connections, time-outs, rate limits (429), server faults (5xx), busy indexes and malformed answers,
    and for the ``retryable`` errors that a plug-in raises.
    """
    if isinstance(error, DeadlineExceededError):
        return False
    if isinstance(error, ServiceError) and (error.can_be_retried or error.was_retried):
        return error.can_be_retried
    if isinstance(error, RetrievalError) and error.transient:
        return True
    return isinstance(error, retryable)


async def retry(
    first: Exception,
    attempt: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    clock: Clock,
    remaining: Callable[[], float | None],
) -> T:
    """Repeat a call whose first attempt failed, as long as that can help and there is time.

    Waits grow exponentially, with jitter. They are never shorter than a service asks for (``Retry-After``). After a
    malformed answer there is no wait: the service is up, and no more likely to do better later.

    Args:
        first: What the first attempt raised.
        attempt: Makes the call again.
        remaining: Seconds left, ``None`` for no bound; a wait that would use them up is not begun.

    Raises:
        Exception: What the last attempt raised.
    """
    if policy.max_retries < 1 or not can_help(first, policy.retryable_exceptions):
        raise first
    # Most calls never fail, and need not wait for this import.
    from tenacity import AsyncRetrying, retry_if_exception, wait_exponential_jitter  # noqa: PLC0415

    backoff = wait_exponential_jitter(
        multiplier=policy.base_delay, max=policy.max_delay, exp_base=policy.exponential_base, jitter=policy.base_delay
    )

    def wait(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = error.retry_after if isinstance(error, ServiceError) else None
        own = 0.0 if isinstance(error, MalformedAnswerError) else backoff(state)
        return max(own, asked or 0.0)

    def stop(state: RetryCallState) -> bool:
        left = remaining()
        return state.attempt_number > policy.max_retries or (left is not None and state.upcoming_sleep >= left)

    failed: list[Exception] = [first]

    async def attempt_after_the_first() -> T:
        if failed:
            raise failed.pop()
        return await attempt()

    retrying = AsyncRetrying(
        sleep=clock.sleep,
        stop=stop,
        wait=wait,
        retry=retry_if_exception(lambda error: can_help(error, policy.retryable_exceptions)),
        reraise=True,
    )
    return await retrying(attempt_after_the_first)


BREAKER_PAUSE = 30.0
"""The most seconds for which a backend that keeps failing is skipped: the default deadline of a query."""
FIRST_PAUSE = 2.0
"""Seconds of the first pause; so a server that restarts is not skipped for much longer than it was away."""


class CircuitBreaker:
    """Stops calls to one backend after so many failures in a row, and tries again with a single one after a pause.

    If that call works, all calls are let through. If not, the next pause is twice as long.

    Args:
        backend: Named in errors.
        failures: Failed calls in a row, at least 1, before calls are stopped; a call with all its retries counts once.
        pause: The longest pause in seconds.
        clock: Measures the pause.
    """

    def __init__(self, backend: str, *, failures: int, pause: float, clock: Clock) -> None:
        self._backend = backend
        self._failures = failures
        self._longest = pause
        self._pause = min(FIRST_PAUSE, pause)
        self._clock = clock
        self._in_a_row = 0
        self._closed_until_tried_at: float | None = None
        self._last = ""

    def admit(self) -> None:
        """Let a call through; its caller then reports with :meth:`succeeded` or :meth:`failed`.

        Raises:
            CircuitOpenError: The breaker is open: the backend is to be left alone.
        """
        if self._closed_until_tried_at is None:
            return
        now = self._clock.now()
        if now < self._closed_until_tried_at:
            msg = (
                f"{self._backend} failed {self._in_a_row} times in a row and is skipped for another "
                f"{max(1.0, self._closed_until_tried_at - now):.0f} s. Last error: {self._last}"
            )
            raise CircuitOpenError(msg, self._backend)
        # This call tries whether it works again; the others go on waiting until it has ended, or another pause is over.
        self._pause = min(2 * self._pause, self._longest)
        self._closed_until_tried_at = now + self._pause

    def succeeded(self) -> None:
        """Report that a call was answered."""
        self._in_a_row = 0
        self._pause = min(FIRST_PAUSE, self._longest)
        self._closed_until_tried_at = None

    def failed(self, error: BaseException) -> None:
        """Report that the backend did not answer, or said that it cannot."""
        self._in_a_row += 1
        self._last = " ".join(str(error).split()) or type(error).__name__
        if self._in_a_row >= self._failures:
            self._closed_until_tried_at = self._clock.now() + self._pause


class CircuitBreakers:
    """One :class:`CircuitBreaker` for each backend of a pipeline that has failed.

    Args:
        failures: As for :class:`CircuitBreaker`; 0 for no breakers.
    """

    def __init__(self, *, failures: int, pause: float) -> None:
        self.failed: dict[str, CircuitBreaker] = {}
        self._failures = failures
        self._pause = pause

    def record(self, backend: str, error: Exception, clock: Clock) -> None:
        """Count an error if it shows that a backend does not answer, and not only that it refuses one request."""
        if not self._failures or not (isinstance(error, DeadlineExceededError) or can_help(error)):
            return
        if (breaker := self.failed.get(backend)) is None:
            breaker = CircuitBreaker(backend, failures=self._failures, pause=self._pause, clock=clock)
            breaker = self.failed.setdefault(backend, breaker)
        breaker.failed(error)
