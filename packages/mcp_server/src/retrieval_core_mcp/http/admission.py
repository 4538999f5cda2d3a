"""How many requests are in progress at a time, whose they are, and how they end when the process does."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from retrieval_core_mcp.http.envelope import RequestError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from contextlib import AbstractContextManager

BODIES = 4
"""Requests that may arrive at a time, for each that may be in progress."""


class Places:
    """Places of which no caller takes all.

    A caller may take a further place if at least as many are free as it has after that. A single caller gets half of
    them, of two each gets a third, and so on: there is always a place for one more.

    Args:
        most: How many places there are.
        message: Why there is none, if all are taken.
        headers: Of the answer to a request for which there is none.
    """

    def __init__(self, most: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        self._most = most
        self._message = message
        self._headers = {"retry-after": "1", **(headers or {})}
        self._taken: Counter[str | None] = Counter()
        self._tasks: set[asyncio.Task[object] | None] = set()

    @property
    def taken(self) -> int:
        """How many places are taken."""
        return self._taken.total()

    @contextmanager
    def held(self, caller: str | None) -> Generator[None]:
        """Take a place for as long as the context lasts.

        Args:
            caller: Whose share it is of; ``None`` if there is only one caller.

        Raises:
            RequestError: All are taken, or the caller has its share.
        """
        free, task = self._most - self.taken, asyncio.current_task()
        if free <= 0:
            raise RequestError(503, self._message, headers=self._headers)
        if caller is not None and has_share(self._taken[caller], free):
            msg = "this token has as many requests running as it may have. Try again in a moment"
            raise RequestError(429, msg, headers=self._headers)
        self._taken[caller] += 1
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]

    def cancel(self) -> None:
        """Cancel the tasks that have a place."""
        for task in tuple(self._tasks):
            if task is not None:
                task.cancel()


def has_share(own: int, free: int) -> bool:
    """Whether a caller with so many places has its share: after another one, fewer would be free than it has."""
    return own >= free


class Admission:
    """Bounds the number of requests, and interrupts those that are left when the process has to end.

    Args:
        most: The most requests in progress at a time.
        most_streams: The most streams that wait for events.
    """

    def __init__(self, most: int, most_streams: int) -> None:
        too_many = "too many requests arrive; send this one in a moment"
        self._bodies = Places(BODIES * most, too_many, {"connection": "close"})
        self._requests = Places(most, "the service is busy; ask again in a moment")
        self._streams = Places(most_streams, "too many streams are open; open another one in a moment")
        self._ending = False
        self._draining = False

    @property
    def in_progress(self) -> int:
        """How many requests have a place."""
        return self._requests.taken

    @property
    def is_ending(self) -> bool:
        """Whether all further requests are refused."""
        return self._ending

    @property
    def is_draining(self) -> bool:
        """Whether the process ends soon, and should get no further requests."""
        return self._draining or self._ending

    def arriving(self, caller: str | None = None) -> AbstractContextManager[None]:
        """Return the context in which a body is received, for a request that has no place yet.

        Args:
            caller: Whose share it is of; ``None`` if there is only one caller.

        Raises:
            RequestError: Too many arrive, or the process ends.
        """
        return self._held(self._bodies, caller)

    def admitted(self, caller: str | None = None) -> AbstractContextManager[None]:
        """Return the context in which a request is in progress; arguments and errors as of :meth:`arriving`."""
        return self._held(self._requests, caller)

    def streaming(self, caller: str | None = None) -> AbstractContextManager[None]:
        """Return the context in which a stream waits for events: it takes no place, and ends as the process begins to.

        Arguments and errors are those of :meth:`arriving`.
        """
        return self._held(self._streams, caller)

    def _held(self, places: Places, caller: str | None) -> AbstractContextManager[None]:
        if self._ending:
            raise ending()
        return places.held(caller)

    def drain(self) -> None:
        """Report that the process is not ready any more; requests are still taken."""
        self._draining = True

    def end(self) -> None:
        """Refuse all further requests, and end the streams that wait."""
        self._ending = True
        self._streams.cancel()

    def interrupt(self) -> None:
        """Cancel the requests that are left; each then answers that the process ends."""
        self._ending = True
        self._requests.cancel()
        self._bodies.cancel()


def ending() -> RequestError:
    """Return how requests are answered that come too late, or take too long, for a process that ends."""
    return RequestError(503, "the service is shutting down", headers={"retry-after": "5"})
