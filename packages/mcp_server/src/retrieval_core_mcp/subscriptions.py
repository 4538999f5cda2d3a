"""Subscriptions: clients are told when a resource that they follow has changed, by whatever process.

The state of each index is looked at every few seconds, while anybody listens. Callers who may see different passages
are kept apart: what one of them is told rests on nothing that another one alone may see.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
)
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, EmptyResult

from retrieval_core.run.clock import SystemClock
from retrieval_core_mcp.resources import read_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mcp.server.context import ServerRequestContext
    from mcp.server.session import ServerSession
    from mcp.types import SubscriptionsListenRequestParams, SubscriptionsListenResult

    from retrieval_core.run.clock import Clock
    from retrieval_core.types.filters import Filter
    from retrieval_core_mcp.library import Library
    from retrieval_core_mcp.resources import Resources

logger = logging.getLogger(__name__)

INTERVAL = 2.0
"""Seconds between two looks."""
PATIENCE = 10.0
"""Seconds that a client of an earlier protocol may take for a message; it is told of a resource no more after that."""
MOST_FOLLOWED = 1_000
"""Addresses that callers of one kind may follow at a time."""


@dataclass(slots=True)
class _Audience:
    """Callers who may see the same.

    Attributes:
        bus: Carries events to the streams of the protocol of 2026, which the handler serves.
        streams: How many of these follow an address; the empty address stands for the list.
        sessions: Those of earlier protocols that follow an address, by their connection.
        known: What was known of an address at the last look.
    """

    condition: Filter | None
    bus: InMemorySubscriptionBus = field(default_factory=InMemorySubscriptionBus)
    handler: ListenHandler = field(init=False)
    streams: Counter[str] = field(default_factory=Counter[str])
    sessions: dict[str, dict[Any, ServerSession]] = field(default_factory=dict[str, "dict[Any, ServerSession]"])
    known: dict[str, str | None] = field(default_factory=dict[str, "str | None"])

    def __post_init__(self) -> None:
        self.handler = ListenHandler(self.bus)

    @property
    def followed(self) -> set[str]:
        return {*self.streams, *self.sessions}


LIST = ""


class Subscriptions:
    """Follows resources for the clients of a server.

    Args:
        libraries: The indexes by name.
        clock: Measures the time between two looks; the system's where it is not given.
    """

    def __init__(self, resources: Resources, libraries: Mapping[str, Library], clock: Clock | None = None) -> None:
        self._resources = resources
        self._libraries = libraries
        self._clock = clock or SystemClock()
        self._audiences: dict[Filter | None, _Audience] = {}
        self._versions: dict[str, str | None] = {}
        self._looking: asyncio.Task[None] | None = None

    async def listen(
        self, context: ServerRequestContext[Any], params: SubscriptionsListenRequestParams, condition: Filter | None
    ) -> SubscriptionsListenResult:
        """Serve a stream of the protocol of 2026 until the client leaves it."""
        audience = self._audience(condition)
        wanted = params.notifications
        asked = [*(wanted.resource_subscriptions or ()), *([LIST] if wanted.resources_list_changed else [])]
        followed = dict.fromkeys(asked)
        self._check_room(audience, followed)
        audience.streams.update(followed.keys())
        try:
            await self._begin(audience, followed)
            return await audience.handler(context, params)
        finally:
            for uri in followed:
                audience.streams[uri] -= 1
                if not audience.streams[uri]:
                    del audience.streams[uri]
            self._forget(audience)

    async def subscribe(self, context: ServerRequestContext[Any], uri: str, condition: Filter | None) -> EmptyResult:
        """Follow a resource for a client of an earlier protocol, until it ends that or leaves.

        Raises:
            MCPError: It is no address of a resource, or too many are followed.
        """
        if read_address(uri) is None:
            raise MCPError(INVALID_PARAMS, "Resource not found", {"uri": uri[:1_000]})
        audience = self._audience(condition)
        self._check_room(audience, (uri,))
        connection = _connection(context)
        sessions = audience.sessions.setdefault(uri, {})
        if connection not in sessions:
            connection.exit_stack.callback(self._unfollow, audience, uri, connection)
        sessions[connection] = context.session
        await self._begin(audience, (uri,))
        return EmptyResult()

    async def unsubscribe(self, context: ServerRequestContext[Any], uri: str, condition: Filter | None) -> EmptyResult:
        """Follow a resource no more."""
        if (audience := self._audiences.get(condition)) is not None:
            self._unfollow(audience, uri, _connection(context))
        return EmptyResult()

    async def look(self) -> None:
        """Tell everybody of what has changed since the last look."""
        changed = False
        for name, library in self._libraries.items():
            version = await library.version()
            changed = changed or version is None or version != self._versions.get(name, version)
            self._versions[name] = version
        for audience in tuple(self._audiences.values()) if changed else ():
            for uri in audience.followed:
                await self._tell(audience, uri)

    def close(self) -> None:
        """End all streams, and look no more."""
        if self._looking is not None:
            self._looking.cancel()
        for audience in self._audiences.values():
            audience.handler.close()

    def _audience(self, condition: Filter | None) -> _Audience:
        return self._audiences.setdefault(condition, _Audience(condition))

    def _check_room(self, audience: _Audience, uris: Iterable[str]) -> None:
        """Raise where too many would be followed; what is followed is noted before anything is waited for.

        Else the last listener, who leaves meanwhile, would take the audience along.
        """
        if len(audience.followed.union(uris)) > MOST_FOLLOWED:
            self._forget(audience)
            msg = f"no more than {MOST_FOLLOWED:,} resources can be followed"
            raise MCPError(INVALID_PARAMS, msg)

    async def _begin(self, audience: _Audience, uris: Iterable[str]) -> None:
        """Look at addresses for the first time, and again and again from now on."""
        if self._looking is None or self._looking.done():
            self._versions.clear()
            self._looking = asyncio.create_task(self._look_again_and_again())
        for name, library in self._libraries.items():
            version = await library.version()  # before the texts, so that no change between the two is missed
            self._versions.setdefault(name, version)
        for uri in uris:
            if uri not in audience.known:
                audience.known.setdefault(uri, await self._fingerprint(audience, uri))

    def _unfollow(self, audience: _Audience, uri: str, connection: Any) -> None:
        if (sessions := audience.sessions.get(uri)) is not None:
            sessions.pop(connection, None)
            if not sessions:
                del audience.sessions[uri]
        self._forget(audience)

    def _forget(self, audience: _Audience) -> None:
        for uri in audience.known.keys() - audience.followed:
            del audience.known[uri]
        if not audience.followed:
            self._audiences.pop(audience.condition, None)

    async def _look_again_and_again(self) -> None:
        while self._audiences:
            await self._clock.sleep(INTERVAL)
            try:
                await self.look()
            except Exception:
                logger.exception("the state of the indexes could not be looked at")

    async def _tell(self, audience: _Audience, uri: str) -> None:
        now = await self._fingerprint(audience, uri)
        if now == audience.known.setdefault(uri, now):
            return
        audience.known[uri] = now
        await audience.bus.publish(ResourcesListChanged() if uri == LIST else ResourceUpdated(uri=uri))
        sessions = tuple(audience.sessions.get(uri, {}).items())
        await asyncio.gather(*(self._send(audience, uri, *session) for session in sessions))

    async def _send(self, audience: _Audience, uri: str, connection: Any, session: ServerSession) -> None:
        """Tell one client; whether it takes that does not matter to the others."""
        try:
            async with self._clock.timeout(PATIENCE):
                await session.send_resource_updated(uri)
        except Exception as error:  # noqa: BLE001 - it has left, or does not read
            logger.info("a client no longer gets resource updates: %s", type(error).__name__)
            self._unfollow(audience, uri, connection)

    async def _fingerprint(self, audience: _Audience, uri: str) -> str | None:
        try:
            if uri == LIST:
                return await self._resources.fingerprint_of_list(audience.condition)
            return await self._resources.fingerprint(uri, audience.condition)
        except MCPError:
            return audience.known.get(uri)


def _connection(context: ServerRequestContext[Any]) -> Any:
    """Return what stands for a client as long as it is connected; the protocol's library names it in no public way."""
    return context.session._connection  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
