"""The endpoint ``/mcp``: sessions for clients that open one, and single requests for all others."""

from __future__ import annotations

import copy
import json
from collections import Counter, OrderedDict, deque
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from mcp.server.streamable_http import EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request

from retrieval_core_mcp.http.admission import has_share
from retrieval_core_mcp.http.receiving import received

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http import EventCallback, StreamableHTTPServerTransport
    from mcp.types import JSONRPCMessage
    from starlette.types import Receive, Scope, Send

    from retrieval_core_mcp.http.settings import HttpSettings

KEPT_EVENTS = 200
"""Events of a session that a client can be told again, which had lost its connection."""
KEPT_CHARACTERS = 4_000_000
"""Of the JSON of these; the last one is kept however long it is."""
SESSION = "mcp-session-id"


class McpEndpoint:
    """An ASGI application that speaks the protocol's streamable HTTP, in all of its versions.

    A client that begins with ``initialize`` gets a session, with a stream of what the server has to say and the last
    events again after a lost connection. Whoever sends single requests is answered without one, as every client of the
    protocol of 2026 is. Host, origin and token are checked before, and the body is received.

    Args:
        server: Answers; its lifespan is that of :meth:`run`.
    """

    def __init__(self, server: Server[Any], settings: HttpSettings) -> None:
        options: dict[str, Any] = {
            "max_request_body_size": settings.max_body_bytes,
            "security_settings": TransportSecuritySettings(enable_dns_rebinding_protection=False),
        }
        self._sessions = _Sessions(server, max_sessions=settings.max_sessions, **options)
        single = copy.copy(server)  # the same handlers; what the server holds is opened and closed once
        single.lifespan = _no_lifespan
        self._single = StreamableHTTPSessionManager(single, stateless=True, **options)

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Serve as long as this context is open."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._sessions.run())
            await stack.enter_async_context(self._single.run())
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        headers = Request(scope).headers
        if scope["method"] != "POST" or SESSION in headers:
            await self._sessions.handle_request(scope, receive, send)
            return
        body = await Request(scope, receive).body()
        manager = self._sessions if _opens_session(body) else self._single
        await manager.handle_request(scope, received(body, receive), send)


class _Sessions(StreamableHTTPSessionManager):
    """Keeps the sessions that are used.

    If there are as many as may be, or a caller has its share (see ``Shares``), a new
    session takes the place of that of the caller's own which was not used for longest and has no request under way: its
    client is told that there is none, and opens another one. Otherwise whoever opens sessions and leaves them would
    lock itself out for half an hour. A caller without any takes the place of one of the caller with the most. Each
    session has events of its own: their streams have names that sessions share.
    """

    def __init__(self, server: Server[Any], **options: Any) -> None:
        super().__init__(server, **options)
        self._uses: OrderedDict[str, _Use] = OrderedDict()
        """Of each session, the session that was used last at the end."""

    async def handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = Request(scope).headers.get(SESSION)
        if session not in self._server_instances:
            await super().handle_request(scope, receive, send)
            return
        use = self._uses[session]
        self._uses.move_to_end(session)
        use.requests += 1
        try:
            await super().handle_request(scope, receive, send)
        finally:
            use.requests -= 1

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        for session in self._uses.keys() - self._server_instances.keys():
            del self._uses[session]
        caller = None if requestor is None else requestor["subject"]
        if not self._makes_room(caller):
            return None
        self.event_store = RecentEvents()
        transport = super()._admit_session(requestor)
        if transport is not None and transport.mcp_session_id is not None:
            self._uses[transport.mcp_session_id] = _Use(caller)
        return transport

    def _makes_room(self, caller: str | None) -> bool:
        """Whether a caller may open a session, for which another one was ended if that was needed."""
        assert self.max_sessions is not None  # noqa: S101 - the settings have a number
        counts = Counter(use.caller for use in self._uses.values())
        free = self.max_sessions - len(self._server_instances)
        if free > 0 and (caller is None or not has_share(counts[caller], free)):
            return True
        loser = caller if counts[caller] else counts.most_common(1)[0][0]
        idle = next((name for name, use in self._uses.items() if use.caller == loser and not use.requests), None)
        if idle is None or self._task_group is None:
            return False
        del self._uses[idle]
        self._session_owners.pop(idle, None)
        self._task_group.start_soon(self._server_instances.pop(idle).terminate)
        return True


@dataclass(slots=True)
class _Use:
    """The use of a session.

    Attributes:
        caller: Whose share it is of.
        requests: How many are under way.
    """

    caller: str | None
    requests: int = 0


class RecentEvents(EventStore):
    """The last events of a session, in memory."""

    def __init__(self) -> None:
        self._events: deque[tuple[int, str, JSONRPCMessage | None, int]] = deque()
        self._last = 0
        self._size = 0

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep an event, and return its id."""
        self._last += 1
        size = 0 if message is None else len(message.model_dump_json())
        self._events.append((self._last, stream_id, message, size))
        self._size += size
        while len(self._events) > KEPT_EVENTS or (self._size > KEPT_CHARACTERS and len(self._events) > 1):
            self._size -= self._events.popleft()[-1]
        return str(self._last)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send what followed an event in its stream, and return the stream's id; ``None`` where it is not kept."""
        stream = next((each for number, each, *_ in self._events if str(number) == last_event_id), None)
        if stream is None:
            return None
        for number, each, message, _ in tuple(self._events):
            if each == stream and number > int(last_event_id) and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


@asynccontextmanager
async def _no_lifespan(_server: Server[Any]) -> AsyncGenerator[Any]:
    yield {}


def _opens_session(body: bytes) -> bool:
    try:
        message: Any = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and cast("dict[str, Any]", message).get("method") == "initialize"
