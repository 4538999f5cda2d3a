"""Subscriptions: a client gets a message when a resource that it follows has changed, in this or another process.

The state of each index is checked every few seconds while a client listens. Callers who may see different chunks are
kept apart: no message to one caller depends on chunks that only another caller may see.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, EmptyResult

from retrieval_core.run.clock import SystemClock
from retrieval_core_mcp.resources import LIST, read_address

if TYPE_CHECKING:
    from collections.abc import Collection

    from mcp.server.context import ServerRequestContext
    from mcp.server.session import ServerSession
    from mcp.types import SubscriptionsListenRequestParams, SubscriptionsListenResult

    from retrieval_core.run.clock import Clock
    from retrieval_core.service.served import ServedIndexes
    from retrieval_core.types.filters import Filter
    from retrieval_core_mcp.resources import Resources

logger = logging.getLogger(__name__)

INTERVAL = 2.0
"""Seconds between two checks."""
PATIENCE = 10.0
"""Seconds that a client of an earlier protocol may take for a message; after that it isn't told of the resource."""
MOST_FOLLOWED = 1_000
"""Addresses that callers who may see the same may follow at a time."""


@dataclass(slots=True)
class _Audience:
    """Callers who may see the same.

    Attributes:
        bus: Carries events to the streams of the protocol of 2026, which the handler serves.
        followers: Those of each address: connections of earlier protocols with their session, and streams.
        known: The fingerprint of each address at the last check.
    """

    tenant: Filter | None
    bus: InMemorySubscriptionBus = field(default_factory=InMemorySubscriptionBus)
    handler: ListenHandler = field(init=False)
    followers: dict[str, dict[object, ServerSession | None]] = field(
        default_factory=dict[str, "dict[object, ServerSession | None]"]
    )
    known: dict[str, str | None] = field(default_factory=dict[str, "str | None"])

    def __post_init__(self) -> None:
        self.handler = ListenHandler(self.bus)


class Subscriptions:
    """Follows resources for the clients of a server.

    Args:
        clock: Measures the time between two checks. Default: the system's clock.
    """

    def __init__(self, resources: Resources, indexes: ServedIndexes, clock: Clock | None = None) -> None:
        self._resources = resources
        self._indexes = indexes
        self._clock = clock or SystemClock()
        self._audiences: dict[Filter | None, _Audience] = {}
        self._versions: dict[str, str | None] = {}
        self._checking: asyncio.Task[None] | None = None

    async def listen(
        self, context: ServerRequestContext[Any], params: SubscriptionsListenRequestParams, tenant: Filter | None
    ) -> SubscriptionsListenResult:
        """Serve a stream of the protocol of 2026 until the client leaves it.

        Raises:
            MCPError: Too many addresses are followed.
        """
        wanted, stream = params.notifications, object()
        uris = {*(wanted.resource_subscriptions or ()), *([LIST] if wanted.resources_list_changed else [])}
        audience = self._follow(tenant, uris, stream, None)
        try:
            await self._begin(audience, uris)
            return await audience.handler(context, params)
        finally:
            self._leave(audience, uris, stream)

    async def subscribe(self, context: ServerRequestContext[Any], uri: str, tenant: Filter | None) -> EmptyResult:
        """Follow a resource for a client of an earlier protocol, until it ends that or leaves.

        Raises:
            MCPError: It is no address of a resource, or too many are followed.
        """
        if read_address(uri) is None:
            raise MCPError(INVALID_PARAMS, "Resource not found", {"uri": uri[:1_000]})
        connection = _connection(context)
        audience = self._follow(tenant, {uri}, connection, context.session)
        connection.exit_stack.callback(self._leave, audience, {uri}, connection)
        await self._begin(audience, {uri})
        return EmptyResult()

    async def unsubscribe(self, context: ServerRequestContext[Any], uri: str, tenant: Filter | None) -> EmptyResult:
        """Stop following a resource."""
        if (audience := self._audiences.get(tenant)) is not None:
            self._leave(audience, {uri}, _connection(context))
        return EmptyResult()

    async def look(self) -> None:
        """Tell all clients what has changed since the last check."""
        changed = False
        for served in self._indexes:
            version = await served.version()
            changed = changed or version is None or version != self._versions.get(served.name, version)
            self._versions[served.name] = version
        for audience in tuple(self._audiences.values()) if changed else ():
            for uri in tuple(audience.followers):
                await self._tell(audience, uri)

    def close(self) -> None:
        """End all streams and checks."""
        if self._checking is not None:
            self._checking.cancel()
        for audience in self._audiences.values():
            audience.handler.close()

    def _follow(
        self, tenant: Filter | None, uris: Collection[str], follower: object, session: ServerSession | None
    ) -> _Audience:
        audience = self._audiences.get(tenant) or _Audience(tenant)
        if len(audience.followers.keys() | uris) > MOST_FOLLOWED:
            msg = f"no more than {MOST_FOLLOWED:,} resources can be followed"
            raise MCPError(INVALID_PARAMS, msg)
        self._audiences[tenant] = audience
        for uri in uris:
            audience.followers.setdefault(uri, {})[follower] = session
        return audience

    def _leave(self, audience: _Audience, uris: Collection[str], follower: object) -> None:
        for uri in uris:
            if follower in (followers := audience.followers.get(uri, {})):
                del followers[follower]
                if not followers:
                    del audience.followers[uri]
        for uri in audience.known.keys() - audience.followers:
            del audience.known[uri]
        if not audience.followers and self._audiences.get(audience.tenant) is audience:
            del self._audiences[audience.tenant]

    async def _begin(self, audience: _Audience, uris: Collection[str]) -> None:
        """Check addresses for the first time, and regularly from now on."""
        if self._checking is None or self._checking.done():
            self._versions.clear()
            self._checking = asyncio.create_task(self._check())
        for served in self._indexes:
            version = await served.version()  # before the texts, so that no change between the two is missed
            self._versions.setdefault(served.name, version)
        for uri in uris:
            if uri not in audience.known:
                audience.known.setdefault(uri, await self._fingerprint(audience, uri))

    async def _check(self) -> None:
        while self._audiences:
            await self._clock.sleep(INTERVAL)
            try:
                await self.look()
            except Exception:
                logger.exception("the state of the indexes could not be read")

    async def _tell(self, audience: _Audience, uri: str) -> None:
        now = await self._fingerprint(audience, uri)
        if now == audience.known.setdefault(uri, now):
            return
        audience.known[uri] = now
        await audience.bus.publish(ResourcesListChanged() if uri == LIST else ResourceUpdated(uri=uri))
        followers = tuple(audience.followers.get(uri, {}).items())
        sent = (self._send(audience, uri, each, session) for each, session in followers if session is not None)
        await asyncio.gather(*sent)

    async def _send(self, audience: _Audience, uri: str, follower: object, session: ServerSession) -> None:
        """Tell one client; if it doesn't take that, others still do."""
        try:
            async with self._clock.timeout(PATIENCE):
                await session.send_resource_updated(uri)
        except Exception as error:  # noqa: BLE001 - it has left, or does not read
            logger.info("a client no longer gets resource updates: %s", type(error).__name__)
            self._leave(audience, {uri}, follower)

    async def _fingerprint(self, audience: _Audience, uri: str) -> str | None:
        try:
            return await self._resources.fingerprint(uri, audience.tenant)
        except MCPError:
            return audience.known.get(uri)


def _connection(context: ServerRequestContext[Any]) -> Any:
    """Return the connection of a client, for which the SDK has no public name."""
    return context.session._connection  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
