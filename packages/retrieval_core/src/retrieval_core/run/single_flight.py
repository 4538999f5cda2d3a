"""Single flight: identical calls that are made at the same time share one run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakKeyDictionary

from retrieval_core.run.sync import begin, has_loop, to_a_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Flight(Generic[T]):
    """A task that is under way, and how many callers wait for it."""

    task: asyncio.Task[T]
    waiting: int = 0


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
        loop = asyncio.get_running_loop()
        flights = self._flights.setdefault(loop, {})
        flight = flights.get(key)
        if flight is None or flight.task.done():
            flight = flights[key] = _Flight(loop.create_task(start() if begun is None else begun))
        elif begun is not None:
            begun.close()
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting:
                if flights.get(key) is flight:
                    del flights[key]  # whoever comes now begins anew
                flight.task.cancel()
