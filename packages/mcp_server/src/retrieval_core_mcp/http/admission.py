"""How many requests are worked on at a time, and how they end when the process does."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from retrieval_core_mcp.http.envelope import RequestError

if TYPE_CHECKING:
    from collections.abc import Generator


class Admission:
    """Lets a bounded number of requests in, and interrupts those that are left when the process has to end.

    Args:
        most: The most requests at a time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._interrupts: set[asyncio.Task[object]] = set()
        self._streams: set[asyncio.Task[object]] = set()
        self._ending = False

    @property
    def in_progress(self) -> int:
        """How many requests are worked on."""
        return len(self._interrupts)

    @property
    def is_ending(self) -> bool:
        """Whether the process is about to end."""
        return self._ending

    @contextmanager
    def admitted(self) -> Generator[None]:
        """Hold one of the places.

        Raises:
            RequestError: All are taken, or the process ends.
        """
        if self._ending:
            raise ending()
        if len(self._interrupts) >= self._most:
            raise RequestError(503, "the service is busy; ask again in a moment", headers={"retry-after": "1"})
        with _among(self._interrupts):
            yield

    @contextmanager
    def streaming(self) -> Generator[None]:
        """Hold a stream open that waits for what may come: it takes no place, and ends when the process is to end.

        Raises:
            RequestError: The process ends.
        """
        if self._ending:
            raise ending()
        with _among(self._streams):
            yield

    def end(self) -> None:
        """Let nobody in any more, and end the streams that wait."""
        self._ending = True
        for task in tuple(self._streams):
            task.cancel()

    def interrupt(self) -> None:
        """Cancel the requests that are left; each then answers that the process ends."""
        self._ending = True
        for task in tuple(self._interrupts):
            task.cancel()


@contextmanager
def _among(tasks: set[asyncio.Task[object]]) -> Generator[None]:
    """Count the task that runs this among others as long as the context is open."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine is always run by a task
    tasks.add(task)
    try:
        yield
    finally:
        tasks.discard(task)


def ending() -> RequestError:
    """Return how requests are answered that come too late, or take too long, for a process that ends."""
    return RequestError(503, "the service is shutting down", headers={"retry-after": "5"})
