"""Single flight: identical calls that are made at the same time share one run."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakKeyDictionary

from retrieval_core.run.sync import begin, go_on, has_loop, to_a_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any

T = TypeVar("T")


class _Flight(Generic[T]):
    """A task that is under way, and the futures of those who wait for it."""

    __slots__ = ("task", "waiting")

    def __init__(self) -> None:
        self.task: asyncio.Task[T]
        self.waiting: set[asyncio.Future[T]] = set()

    async def fly(self, start: Callable[[], Awaitable[T]], end: Callable[[], None]) -> T:
        """Run the coroutine, and hand out its result at once; a task tells of its end a turn of the loop later."""
        result = await start()
        end()
        for waiter in self.waiting:
            if not waiter.done():
                waiter.set_result(result)
        return result

    def landed(self) -> None:
        """Hand the task's result, error or cancellation to those who still wait."""
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
    """Runs one coroutine at a time for each key; callers with a key that is under way wait for the same one.

    It is a task of its own, cancelled when its last caller is. Callers of different event loops do not share. Where no
    loop is running, a coroutine that needs none is run where it is, and shared with nobody.
    """

    def __init__(self) -> None:
        self._flights: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Flight[T]]] = WeakKeyDictionary()

    async def run(self, key: str, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of the key's coroutine, starting it if none is under way.

        Raises:
            BaseException: What the coroutine raised, to each caller.
        """
        begun: Coroutine[Any, Any, T] | None = None
        if not has_loop():
            begun = start()
            if (result := begin(begun)) is not None:
                return result[0]
            await to_a_loop()
        fly = start if begun is None else partial(go_on, begun)
        loop = asyncio.get_running_loop()
        flights = self._flights.get(loop)
        if flights is None:
            flights = self._flights.setdefault(loop, {})
        if (flight := flights.get(key)) is not None:
            if begun is not None:
                begun.close()
        else:
            flight = flights[key] = _Flight()
            flight.task = loop.create_task(flight.fly(fly, partial(_leave, flights, key, flight)))
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
