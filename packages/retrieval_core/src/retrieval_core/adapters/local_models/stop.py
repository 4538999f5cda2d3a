"""Ending a computation that runs in another thread."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


class StopSignal:
    """Carries a wish to stop from a coroutine that was cancelled to the thread that works for it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._sent = False
        self._interrupt: Callable[[], None] | None = None

    def send(self) -> None:
        """Interrupt what runs now and what begins later. Does not block."""
        with self._lock:
            self._sent = True
            if self._interrupt is not None:
                self._interrupt()

    @contextmanager
    def reaching(self, interrupt: Callable[[], None]) -> Generator[None]:
        """Let the signal call a function while the block runs; at once if it was sent before.

        Args:
            interrupt: Makes the work in the block end early; it must be quick, and may be called in another thread.
        """
        with self._lock:
            self._interrupt = interrupt
            if self._sent:
                interrupt()
        try:
            yield
        finally:
            with self._lock:
                self._interrupt = None
