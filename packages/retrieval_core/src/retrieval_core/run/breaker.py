"""Circuit breakers: a backend that keeps failing is left alone for a while, so that callers need not wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.errors import CircuitOpenError

if TYPE_CHECKING:
    from retrieval_core.run.clock import Clock

BREAKER_PAUSE = 30.0
"""Seconds for which a backend that keeps failing is skipped: the default deadline of a query, so each is tried once."""


class CircuitBreaker:
    """Stops calls to one backend after so many failures in a row, and tries again with a single one after a pause.

    Args:
        backend: Named in errors.
        failures: Failed calls in a row, at least 1, before calls are stopped; a call with all its retries counts once.
        pause: Seconds until one call is let through; if it works all are, and if not the pause begins again.
        clock: Measures the pause.
    """

    def __init__(self, backend: str, *, failures: int, pause: float, clock: Clock) -> None:
        self._backend = backend
        self._failures = failures
        self._pause = pause
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
                f"{self._closed_until_tried_at - now:.0f} s. Last error: {self._last}"
            )
            raise CircuitOpenError(msg, self._backend)
        # This call tries whether it works again; the others go on waiting until it has ended, or another pause is over.
        self._closed_until_tried_at = now + self._pause

    def succeeded(self) -> None:
        """Report that a call was answered."""
        self._in_a_row = 0
        self._closed_until_tried_at = None

    def failed(self, error: BaseException) -> None:
        """Report that the backend did not answer, or said that it cannot."""
        self._in_a_row += 1
        self._last = " ".join(str(error).split()) or type(error).__name__
        if self._in_a_row >= self._failures:
            self._closed_until_tried_at = self._clock.now() + self._pause


class CircuitBreakers:
    """One :class:`CircuitBreaker` for each backend of a pipeline, made when it is first called.

    Args:
        failures: As for :class:`CircuitBreaker`; 0 for no breakers.
    """

    def __init__(self, *, failures: int, pause: float) -> None:
        self._failures = failures
        self._pause = pause
        self._breakers: dict[str, CircuitBreaker] = {}

    def of(self, backend: str, clock: Clock) -> CircuitBreaker | None:
        """Return a backend's breaker; ``None`` where ``failures`` is 0."""
        if not self._failures:
            return None
        if (breaker := self._breakers.get(backend)) is None:
            breaker = CircuitBreaker(backend, failures=self._failures, pause=self._pause, clock=clock)
            breaker = self._breakers.setdefault(backend, breaker)
        return breaker
