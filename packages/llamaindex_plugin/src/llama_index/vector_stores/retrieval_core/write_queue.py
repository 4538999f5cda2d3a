"""Writes one after another, whatever event loops they come from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from threading import Lock


class WriteQueue:
    """Lets one in at a time, in the order in which they came; who waits blocks no event loop.

    A change of some nodes of a document reads what else is there, and writes it again; what another one wrote in
    between would be lost. Locks of asyncio belong to one loop, and the store's calls may come from several.
    """

    def __init__(self) -> None:
        self._lock = Lock()  # held for no longer than it takes to queue
        self._last: Future[None] | None = None

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Wait for all that came before, and keep out all that come after."""
        mine: Future[None] = Future()
        with self._lock:
            before, self._last = self._last, mine
        if before is not None:
            try:
                await asyncio.shield(asyncio.wrap_future(before))
            except BaseException:  # whoever stops to wait must not let in the next one early
                before.add_done_callback(lambda _: mine.set_result(None))
                raise
        try:
            yield
        finally:
            mine.set_result(None)
