"""The endpoint ``/mcp``: sessions for clients that open one, and single requests for all others."""

from __future__ import annotations

import json
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.exceptions import HTTPException
from starlette.requests import Request

from retrieval_core_mcp.http.admission import has_share
from retrieval_core_mcp.http.receiving import received

if TYPE_CHECKING:
    from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http import EventCallback, StreamableHTTPServerTransport
    from mcp.types import JSONRPCMessage
    from starlette.types import Receive, Scope, Send

    from retrieval_core_mcp.http.settings import HttpSettings

KEPT_EVENTS = 200
"""Events of a session that a client can read again after it lost its connection."""
KEPT_CHARACTERS = 4_000_000
"""The most characters of their JSON; the last event is kept however long it is."""


class McpEndpoint(StreamableHTTPSessionManager):
    """An ASGI application that speaks all versions of the protocol's streamable HTTP.

    A client that begins with ``initialize`` gets a session, unless the settings say that there are none. Other requests
    are answered without one, as those of the protocol of 2026 always are. Host, origin and token are checked before,
    and the body is received.

    If the sessions are used up, or a caller has its share (see ``Places``), a new session replaces the caller's session
    that wasn't used for longest and has no request in progress. Its client gets a 404, and opens another one. A caller
    without any replaces one of the caller with the most.

    Args:
        server: Answers; its lifespan is that of ``run()``.
    """

    def __init__(self, server: Server[Any], settings: HttpSettings) -> None:
        super().__init__(
            server,
            stateless=settings.stateless or settings.workers > 1,
            max_sessions=settings.max_sessions,
            max_request_body_size=settings.max_body_bytes,
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request.

        Raises:
            HTTPException: It opens a stream of a session, or ends a session, where there are none.
        """
        if self.stateless and scope["method"] != "POST":
            raise HTTPException(405, headers={"Allow": "POST"})
        await self.handle_request(scope, receive, send)

    async def _handle_stateful_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        session = request.headers.get(MCP_SESSION_ID_HEADER, "")
        if (transport := self._server_instances.pop(session, None)) is not None:
            self._server_instances[session] = transport  # the session that was used last is at the end
        elif scope["method"] == "POST" and not session:
            body = await request.body()
            receive = received(body, receive)
            if not _opens_session(body):
                version = request.headers.get("mcp-protocol-version")
                await self._handle_stateless_request(version, scope, receive, send)
                return
        await super()._handle_stateful_request(scope, receive, send)

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        caller = None if requestor is None else requestor["subject"]
        owners = {session: self._session_owners.get(session) for session in self._server_instances}
        callers = {session: None if owner is None else owner["subject"] for session, owner in owners.items()}
        counts = Counter(callers.values())
        free = cast("int", self.max_sessions) - len(callers)
        if free <= 0 or (caller is not None and has_share(counts[caller], free)):
            loser = caller if counts[caller] else counts.most_common(1)[0][0]
            idle = next((each for each, owner in callers.items() if owner == loser and self._is_idle(each)), None)
            if idle is None or self._task_group is None:
                return None
            self._session_owners.pop(idle, None)
            self._task_group.start_soon(self._server_instances.pop(idle).terminate)
        self.event_store = RecentEvents()  # one for each session: their streams have the same names
        return super()._admit_session(requestor)

    def _is_idle(self, session: str) -> bool:
        return not self._server_instances[session]._requests_in_flight  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


class RecentEvents(EventStore):
    """The last events of a session, in memory."""

    def __init__(self) -> None:
        self._events: dict[str, tuple[str, JSONRPCMessage | None, int]] = {}
        self._ids = map(str, count(1))

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep an event, and return its id."""
        event_id = next(self._ids)
        self._events[event_id] = stream_id, message, 0 if message is None else len(message.model_dump_json())
        size = sum(length for _, _, length in self._events.values())
        while len(self._events) > KEPT_EVENTS or (size > KEPT_CHARACTERS and len(self._events) > 1):
            size -= self._events.pop(next(iter(self._events)))[2]
        return event_id

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send the later events of an event's stream, and return the stream's id; ``None`` if it isn't kept."""
        if last_event_id not in self._events:
            return None
        stream = self._events[last_event_id][0]
        for event_id, (each, message, _) in tuple(self._events.items()):
            if each == stream and int(event_id) > int(last_event_id) and message is not None:
                await send_callback(EventMessage(message, event_id))
        return stream


def _opens_session(body: bytes) -> bool:
    try:
        message: Any = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and cast("dict[str, Any]", message).get("method") == "initialize"
