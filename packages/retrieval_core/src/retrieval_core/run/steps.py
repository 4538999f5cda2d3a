"""A coroutine taken one step, as far as its first wait, before anything is set up for the waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

T = TypeVar("T")


class FirstStep(Generic[T]):
    """Runs a coroutine up to its first wait; many a call of a plug-in never waits for anything.

    The step is part of the task that takes it, as if the coroutine were awaited there.

    Args:
        coroutine: Not begun yet.

    Attributes:
        is_done: Whether it came to its end; ``value`` is then what it returned. Otherwise it is to be awaited.

    Raises:
        BaseException: What the coroutine raised.
    """

    __slots__ = ("_coroutine", "_waits_for", "is_done", "value")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self.value: T
        try:
            self._waits_for = coroutine.send(None)
        except StopIteration as end:
            self.value, self.is_done = end.value, True
        else:
            self.is_done = False

    def __await__(self) -> Generator[Any, Any, T]:
        """Go on to the end, and return what the coroutine returns."""
        coroutine, waits_for = self._coroutine, self._waits_for
        while True:
            try:
                sent = yield waits_for
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:  # noqa: BLE001 - it is the coroutine's to deal with
                step, given = coroutine.throw, error
            else:
                step, given = coroutine.send, sent
            try:
                waits_for = step(given)
            except StopIteration as end:
                return end.value

    def close(self) -> None:
        """End a coroutine that is not awaited after all."""
        self._coroutine.close()
