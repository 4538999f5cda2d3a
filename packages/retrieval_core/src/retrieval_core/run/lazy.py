"""Values that are made when they are first asked for, such as loaded models."""

from __future__ import annotations

from contextlib import suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Lazy(Generic[T]):
    """A value made once, however many threads ask for it at the same time.

    Where making it fails, the caller gets the error, and the next call tries again.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = Lock()
        self._made: tuple[T] | None = None

    @property
    def made(self) -> T | None:
        """The value, or ``None`` before it is made; never blocks."""
        made = self._made
        return None if made is None else made[0]

    def get(self) -> T:
        """Return the value, making it on the first call. Blocks while another thread makes it."""
        with self._lock:
            if self._made is None:
                self._made = (self._make(),)
            return self._made[0]

    def begin(self) -> None:
        """Begin to make the value, in a thread; whoever asks for it meanwhile waits, and meets a failure by itself."""
        Thread(target=self._attempt, name="lazy").start()

    def _attempt(self) -> None:
        with suppress(Exception):  # see begin()
            self.get()

    def forget(self) -> None:
        """Drop the value; the next :meth:`get` makes it anew. Whoever has it may go on using it."""
        with self._lock:
            self._made = None
