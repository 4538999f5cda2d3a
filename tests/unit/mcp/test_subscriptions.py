"""Who follows a resource is told of its changes, whatever other clients do meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any, cast

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from mcp.shared.exceptions import MCPError

from retrieval_core.testing.clock import FakeClock
from retrieval_core_mcp.subscriptions import MOST_FOLLOWED, PATIENCE, Subscriptions

URI = "document://notes/a.md"


class Index:
    """An index whose one document changes, as what is followed and as what holds it.

    Attributes:
        open: Nothing can be read before it is set.
    """

    name = "notes"

    def __init__(self) -> None:
        self.state = 0
        self.open = asyncio.Event()
        self.open.set()

    async def version(self) -> str:
        return str(self.state)

    async def fingerprint(self, uri: str, condition: object) -> str:
        told = f"{uri} {self.state}"
        await self.open.wait()
        return told


class Client:
    """A client of an earlier protocol, as the server sees it: a session on a connection.

    Attributes:
        told: The resources whose change it was told of.
    """

    def __init__(self, failure: Exception | None = None, *, reads: bool = True) -> None:
        self.told: list[str] = []
        self.failure = failure
        self.reads = reads
        self.session = self
        self.exit_stack = ExitStack()
        self._connection = self

    async def send_resource_updated(self, uri: str) -> None:
        if self.failure is not None:
            raise self.failure
        if not self.reads:
            await asyncio.Event().wait()
        self.told.append(uri)


def followed(index: Index, clock: FakeClock) -> Subscriptions:
    return Subscriptions(cast("Any", index), cast("Any", [index]), clock)


@pytest.mark.parametrize("reads", [True, False], ids=["one that is gone", "one that does not read"])
def test_a_client_keeps_no_other_from_being_told(reads: bool) -> None:
    """Neither one whose connection is broken, nor one that takes nothing; both are told no more."""

    async def run() -> None:
        index, clock = Index(), FakeClock()
        subscriptions = followed(index, clock)
        bad, good = Client(ConnectionError("gone") if reads else None, reads=reads), Client()
        for client in (bad, good):
            await subscriptions.subscribe(cast("Any", client), URI, None)
        for _ in range(2):
            index.state += 1
            looking = asyncio.create_task(subscriptions.look())
            for _ in range(20):
                await asyncio.sleep(0)
            clock.advance(PATIENCE)
            await looking
        assert good.told == [URI, URI]
        bad.reads, bad.failure = True, None
        index.state += 1
        await subscriptions.look()
        assert (good.told, bad.told) == ([URI] * 3, [])
        subscriptions.close()

    asyncio.run(run())


def test_who_comes_as_the_last_one_leaves_is_told() -> None:
    """Its first look at the resource takes as long as it takes."""

    async def run() -> None:
        index = Index()
        subscriptions = followed(index, FakeClock())
        leaving, coming = Client(), Client()
        await subscriptions.subscribe(cast("Any", leaving), URI, None)
        index.open.clear()
        waiting = asyncio.create_task(subscriptions.subscribe(cast("Any", coming), f"{URI}2", None))
        await asyncio.sleep(0)
        leaving.exit_stack.close()
        index.open.set()
        await waiting
        index.state += 1
        await subscriptions.look()
        assert (leaving.told, coming.told) == ([], [f"{URI}2"])
        subscriptions.close()

    asyncio.run(run())


def test_there_is_a_bound_for_what_is_followed() -> None:
    """A client is told so, and what it follows already stays."""

    async def run() -> None:
        index, client = Index(), Client()
        subscriptions = followed(index, FakeClock())
        for number in range(MOST_FOLLOWED):
            await subscriptions.subscribe(cast("Any", client), f"{URI}{number}", None)
        with pytest.raises(MCPError, match="no more than 1,000 resources"):
            await subscriptions.subscribe(cast("Any", client), URI, None)
        index.state += 1
        await subscriptions.look()
        assert len(client.told) == MOST_FOLLOWED
        subscriptions.close()

    asyncio.run(run())


def test_a_client_that_leaves_ends_no_other_ones_updates() -> None:
    """Even if it had ended its own before, and another one began after that."""

    async def run() -> None:
        index = Index()
        subscriptions = followed(index, FakeClock())
        leaving, other = Client(), Client()
        await subscriptions.subscribe(cast("Any", leaving), URI, None)
        await subscriptions.unsubscribe(cast("Any", leaving), URI, None)
        await subscriptions.subscribe(cast("Any", other), URI, None)
        leaving.exit_stack.close()
        index.state += 1
        await subscriptions.look()
        assert (leaving.told, other.told) == ([], [URI])
        subscriptions.close()

    asyncio.run(run())
