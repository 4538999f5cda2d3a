"""Identical questions that are asked at the same time share one run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

T = TypeVar("T")


@dataclass(slots=True)
class _Flight(Generic[T]):
    task: asyncio.Task[T]
    waiting: int = 0


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
        flights = self._flights.setdefault(asyncio.get_running_loop(), {})
        if (flight := flights.get(key)) is None:
            flight = flights[key] = _Flight(asyncio.create_task(start()))
            flight.task.add_done_callback(partial(_landed, flights, key, flight))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                if flights.get(key) is flight:  # whoever comes now begins anew
                    del flights[key]
                flight.task.cancel()


def _landed(flights: dict[str, _Flight[T]], key: str, flight: _Flight[T], task: asyncio.Task[T]) -> None:
    if flights.get(key) is flight:
        del flights[key]
    if not task.cancelled():
        task.exception()  # looked at, so that nobody is told of a failure that no caller was left to hear of
