"""What the tests of stores at a service have in common."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from retrieval_core.errors import MalformedAnswerError, ServiceConnectionError, ServiceError
from retrieval_core.ports import ChunkRange, FetchRequest
from retrieval_core.testing.store_kit.base import StoreTestBase, chunk, document, put
from support.wire_server import BrokenJSON, ClosedMidBody, EmptyBody, ResetMidBody, Status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from retrieval_core.ports import Store
    from support.wire_server import Fault

    S = TypeVar("S", bound=Store)


def run_store(make: Callable[[], S], test: Callable[[S], Awaitable[None]]) -> None:
    """Run a test on a store, on an event loop of its own, and close the store."""

    async def main() -> None:
        store = make()
        try:
            await test(store)
        finally:
            await store.aclose()

    asyncio.run(main())


def faults(body: Any = None) -> dict[str, tuple[Fault, type[ServiceError], int | None, bool]]:
    """Return what a service does wrong, the error and status that it becomes, and whether a retry may help.

    Args:
        body: Of the answers that have a status.
    """
    given: dict[str, Any] = {} if body is None else {"body": body}
    statuses = {
        "bad request": (400, False),
        "wrong key": (401, False),
        "forbidden": (403, False),
        "not found": (404, False),
        "conflict": (409, False),
        "rate limit": (429, True),
        "server fault": (500, True),
        "unavailable": (503, True),
    }
    return {
        **{name: (Status(code, **given), ServiceError, code, may) for name, (code, may) in statuses.items()},
        "no JSON in the error": (Status(502, body=b"<html>Bad Gateway"), ServiceError, 502, True),
        "reset": (ResetMidBody(), ServiceConnectionError, None, True),
        "closed": (ClosedMidBody(), ServiceConnectionError, None, True),
        "broken JSON": (BrokenJSON(), MalformedAnswerError, None, True),
        "empty body": (EmptyBody(), MalformedAnswerError, None, True),
    }


class HasNoTransactions(StoreTestBase):
    """Takes the place of a case of the kit that a store without transactions can't pass."""

    def test_readers_see_each_document_whole(self, tmp_path: Path) -> None:
        """A service has no transactions; a document is never without chunks while it is replaced, though."""

        async def test(store: Store) -> None:
            await put(store, chunk("v0"), documents=(document("d"),))
            done = asyncio.Event()

            async def write() -> None:
                for number in range(1, 10):
                    await put(store, chunk(f"v{number}"), documents=(document("d"),))
                done.set()

            async def read() -> None:
                while not done.is_set():
                    assert (await store.fetch(FetchRequest(ranges=(ChunkRange("d", 0, 9),)))).chunks

            await asyncio.gather(write(), read(), read())
            assert set((await store.fetch(FetchRequest(ranges=(ChunkRange("d", 0, 9),)))).chunks) == {"v9"}

        self.run(tmp_path, test)
