"""Identical questions that are asked at the same time share one run."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

T = TypeVar("T")


class _Flight(Generic[T]):
    """Work that is under way, and those who wait for it."""

    __slots__ = ("task", "waiting")

    def __init__(self) -> None:
        self.task: asyncio.Task[T]
        self.waiting: set[asyncio.Future[T]] = set()

    def landed(self) -> None:
        """Tell those who still wait how it ended, in whichever way it did."""
        is_cancelled = self.task.cancelled()
        error = None if is_cancelled else self.task.exception()
        for waiter in self.waiting:
            if waiter.done():
                continue
            if is_cancelled:
                waiter.cancel()
            elif error is not None:
                waiter.set_exception(error)
            else:
                waiter.set_result(self.task.result())


class SingleFlight(Generic[T]):
    """Runs one coroutine at a time for each key; whoever comes with a key that is under way waits for the same one.

    The work is a task of its own: it does not end with the caller who began it, but with the last one who waits. Tasks
    belong to event loops, so callers of different loops do not share.
    """

    def __init__(self) -> None:
        self._flights: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Flight[T]]] = WeakKeyDictionary()

    async def run(self, key: str, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what the work of a key comes to, and begin it if nobody did.

        Raises:
            BaseException: What the work raised, to each caller who waits for it.
        """
        loop = asyncio.get_running_loop()
        flights = self._flights.setdefault(loop, {})
        if (flight := flights.get(key)) is None:
            flight = flights[key] = _Flight()
            flight.task = loop.create_task(start())
            flight.task.add_done_callback(partial(_ended, flights, key, flight))
        waiter: asyncio.Future[T] = loop.create_future()
        flight.waiting.add(waiter)
        try:
            return await waiter
        finally:
            flight.waiting.discard(waiter)
            if not flight.waiting and not flight.task.done():
                _leave(flights, key, flight)  # whoever comes now begins anew
                flight.task.cancel()


def _ended(flights: dict[str, _Flight[T]], key: str, flight: _Flight[T], _: asyncio.Task[T]) -> None:
    _leave(flights, key, flight)
    flight.landed()


def _leave(flights: dict[str, _Flight[T]], key: str, flight: _Flight[T]) -> None:
    if flights.get(key) is flight:
        del flights[key]
