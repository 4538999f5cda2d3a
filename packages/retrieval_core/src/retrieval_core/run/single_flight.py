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
        self.task: asyncio.Task[None]
        self.waiting: set[asyncio.Future[T]] = set()

    def landed(self, tell: Callable[[asyncio.Future[T]], object]) -> None:
        """Tell those who still wait how it ended."""
        for waiter in self.waiting:
            if not waiter.done():
                tell(waiter)


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
            Exception: What the work raised, to each caller who waits for it.
        """
        loop = asyncio.get_running_loop()
        flights = self._flights.setdefault(loop, {})
        if (flight := flights.get(key)) is None:
            flight = flights[key] = _Flight()
            flight.task = loop.create_task(_fly(flights, key, flight, start))
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


async def _fly(
    flights: dict[str, _Flight[T]], key: str, flight: _Flight[T], start: Callable[[], Coroutine[Any, Any, T]]
) -> None:
    try:
        result = await start()
    except Exception as error:  # noqa: BLE001 - it is for those who wait; nobody else is to be told of it
        failure = error
        flight.landed(lambda waiter: waiter.set_exception(failure))
    else:
        flight.landed(lambda waiter: waiter.set_result(result))
    finally:
        _leave(flights, key, flight)


def _ended(flights: dict[str, _Flight[T]], key: str, flight: _Flight[T], task: asyncio.Task[None]) -> None:
    """Let nobody wait for work that somebody else cancelled, be it before it began."""
    if task.cancelled():
        _leave(flights, key, flight)
        flight.landed(lambda waiter: waiter.cancel())


def _leave(flights: dict[str, _Flight[T]], key: str, flight: _Flight[T]) -> None:
    if flights.get(key) is flight:
        del flights[key]
