"""How many requests are worked on at a time, whose they are, and how they end when the process does."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from retrieval_core_mcp.http.envelope import RequestError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping


class Shares:
    """Places of which no caller takes all.

    A caller may take a further place if at least as many are free as it has after that. Alone it gets half of them, of
    two each gets a third, and so on: there is always a place for one more.

    Args:
        most: How many places there are.
        headers: Of the answer to a request for which there is none.
    """

    def __init__(self, most: int, headers: Mapping[str, str] | None = None) -> None:
        self._most = most
        self._headers = {"retry-after": "1", **(headers or {})}
        self._taken = 0
        self._of: Counter[str] = Counter()

    @contextmanager
    def held(self, caller: str | None, message: str) -> Generator[None]:
        """Take a place for as long as the context lasts.

        Args:
            caller: Whose share it is of; ``None`` if there is only one caller.
            message: Why there is none, if all are taken.

        Raises:
            RequestError: All are taken, or the caller has its share.
        """
        free = self._most - self._taken
        if free <= 0:
            raise RequestError(503, message, headers=self._headers)
        if caller is not None and has_share(self._of[caller], free):
            msg = "this token has as many requests under way as it may have; ask again in a moment"
            raise RequestError(429, msg, headers=self._headers)
        name = caller or ""
        self._taken += 1
        self._of[name] += 1
        try:
            yield
        finally:
            self._taken -= 1
            self._of[name] -= 1
            if not self._of[name]:
                del self._of[name]


def has_share(own: int, free: int) -> bool:
    """Whether a caller with so many places has its share: after another one, fewer would be free than it has."""
    return own >= free


class Admission:
    """Lets a bounded number of requests in, and interrupts those that are left when the process has to end.

    Args:
        most: The most requests at a time.
        most_streams: The most streams that wait for what may come, likewise.
    """

    def __init__(self, most: int, most_streams: int) -> None:
        self._places = Shares(most)
        self._stream_places = Shares(most_streams)
        self._interrupts: set[asyncio.Task[object]] = set()
        self._streams: set[asyncio.Task[object]] = set()
        self._arriving: set[asyncio.Task[object]] = set()
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
    def arriving(self) -> Generator[None]:
        """Receive a request that has no place yet.

        Raises:
            RequestError: The process ends.
        """
        if self._ending:
            raise ending()
        with _among(self._arriving):
            yield

    @contextmanager
    def admitted(self, caller: str | None = None) -> Generator[None]:
        """Hold one of the places.

        Args:
            caller: Whose share it is of; ``None`` if there is only one caller.

        Raises:
            RequestError: All are taken, the caller has its share, or the process ends.
        """
        if self._ending:
            raise ending()
        with self._places.held(caller, "the service is busy; ask again in a moment"), _among(self._interrupts):
            yield

    @contextmanager
    def streaming(self, caller: str | None = None) -> Generator[None]:
        """Hold a stream open that waits for what may come: it takes no place, and ends when the process is to end.

        Args:
            caller: As in :meth:`admitted`.

        Raises:
            RequestError: There are too many, or the process ends.
        """
        if self._ending:
            raise ending()
        message = "too many streams are open; open another one in a moment"
        with self._stream_places.held(caller, message), _among(self._streams):
            yield

    def end(self) -> None:
        """Let nobody in any more, and end the streams that wait."""
        self._ending = True
        for task in tuple(self._streams):
            task.cancel()

    def interrupt(self) -> None:
        """Cancel the requests that are left; each then answers that the process ends."""
        self._ending = True
        for task in (*self._interrupts, *self._arriving):
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
