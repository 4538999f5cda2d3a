"""Values that are costly to make, and so are made when they are first asked for."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Lazy(Generic[T]):
    """A value made once, however many threads ask for it at the same time.

    Where making it fails, all that asked so far get the error or try themselves, and the next call tries again.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = Lock()
        self._made: tuple[T] | None = None

    @property
    def made(self) -> T | None:
        """The value where it is there; asking neither makes it nor waits for it."""
        made = self._made
        return None if made is None else made[0]

    def get(self) -> T:
        """Return the value, making it if it is not there. Blocks while another thread makes it."""
        with self._lock:
            if self._made is None:
                self._made = (self._make(),)
            return self._made[0]

    def forget(self) -> None:
        """Let go of the value; the next call makes it anew. Whoever has it may go on using it."""
        with self._lock:
            self._made = None
