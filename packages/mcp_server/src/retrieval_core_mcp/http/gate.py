"""What every request has to pass before anything is done for it: the host's name, the page it is from, the token."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response

from retrieval_core.types.filters import Eq
from retrieval_core_mcp.http import audit
from retrieval_core_mcp.http.admission import ending
from retrieval_core_mcp.http.envelope import Call, NobodyReadsError, RequestError, error_response, json_response
from retrieval_core_mcp.http.oauth import METADATA, READ, InvalidToken, JwtVerifier, OAuth, insufficient
from retrieval_core_mcp.http.page_files import is_public
from retrieval_core_mcp.http.problems import refused
from retrieval_core_mcp.http.rates import RateLimit
from retrieval_core_mcp.http.receiving import Bodies, Pace, paced, received
from retrieval_core_mcp.http.tokens import find_token

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from retrieval_core.run.clock import Clock
    from retrieval_core_mcp.http.admission import Admission
    from retrieval_core_mcp.http.metrics import HttpMetrics
    from retrieval_core_mcp.http.settings import HttpSettings
    from retrieval_core_mcp.http.tokens import BearerToken

logger = logging.getLogger(__name__)

SERVED = ("/v1", "/mcp")
"""What paths begin with at which something is done for callers."""
FILE_UPLOAD = ("POST", "/v1/files")
OWN_NAMES = ("127.0.0.1", "localhost", "[::1]")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_PORT = re.compile(r":\d{1,5}$")
_ALLOWED = {
    "access-control-allow-methods": "GET, POST, DELETE, OPTIONS",
    "access-control-allow-headers": "authorization, content-type, x-request-id, traceparent, mcp-protocol-version, "
    "mcp-session-id, mcp-method, mcp-name, last-event-id",
    "access-control-expose-headers": "x-request-id, retry-after, mcp-session-id",
    "access-control-max-age": "600",
}


class Gate:
    """An ASGI application before another one.

    Every answer carries ``X-Request-Id``; every error is one of the contract. Who asks under a foreign name of the host
    gets 421, a script of a foreign page 403, a wrong token 401. What passes has in its state ``call``, which
    knows what the caller may see.

    Args:
        app: Handles what passes.
        tokens: Those that are let in; where there are none, and no issuer, everybody is.
        clock: Measures how often callers ask, and the age of an issuer's keys.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: HttpSettings,
        tokens: tuple[BearerToken, ...],
        admission: Admission,
        metrics: HttpMetrics,
        *,
        clock: Clock,
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._admission = admission
        self._metrics = metrics
        own = (*OWN_NAMES, *settings.allowed_hosts)
        self._hosts = frozenset(name.lower() for name in (own if settings.host in OWN_NAMES else (*own, settings.host)))
        self._origins = frozenset(origin.rstrip("/").lower() for origin in settings.allowed_origins)
        self._tenant_field = settings.tenant_field
        self._oauth = OAuth.of(settings)
        self._verifier = None if self._oauth is None else JwtVerifier(self._oauth, clock)
        self._is_shared = self._oauth is not None or len({share_of(token) for token in tokens}) > 1
        self._rate = RateLimit(settings.requests_per_minute, clock)
        self._pace = Pace(settings.receive_seconds, settings.min_bytes_per_second)
        self._bodies = Bodies(settings.max_requests, settings.max_body_bytes, self._pace)
        self._patience = settings.request_seconds
        self._traced = _tracing()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        call = Call(given if _REQUEST_ID.fullmatch(given) else uuid4().hex)
        scope.setdefault("state", {})["call"] = call
        answer = AnswerSender(send, call.request_id, self._cross_origin(headers), self._patience)
        with self._traced(headers), self._metrics.request(scope, answer, call):
            try:
                await self._handle(scope, headers, receive, answer, call)
            finally:
                audit.note(scope, call, answer.status)

    async def _handle(self, scope: Scope, headers: Headers, receive: Receive, answer: AnswerSender, call: Call) -> None:
        try:
            check_framing(headers)
            self._check_place(headers)
            if scope["method"] == "OPTIONS" and "origin" in headers:
                await Response(status_code=204, headers=_ALLOWED)(scope, receive, answer.send)
                return
            if self._oauth is not None and scope["path"].startswith(METADATA):
                await json_response(self._oauth.metadata())(scope, receive, answer.send)
                return
            await self._identify(scope, headers, call)
            receive = await self._received(scope, headers, receive, call)
            with self._place(scope, headers, call):
                await self._app(scope, receive, answer.send)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._admission.is_ending or task is None:
                raise
            task.uncancel()
            if not answer.has_begun:
                await error_response(call, ending())(scope, receive, answer.send)
            elif not answer.is_complete:  # a stream that said why it ends has ended itself
                await answer.send({"type": "http.response.body", "body": b"", "more_body": False})
        except Exception as error:  # noqa: BLE001 - every request gets an answer
            if answer.is_stuck:
                return
            problem = refused(error, None, call.request_id)
            if not answer.has_begun:
                await error_response(call, problem)(scope, receive, answer.send)

    async def _identify(self, scope: Scope, headers: Headers, call: Call) -> None:
        """Note in a request's call who asks and what that allows.

        Raises:
            RequestError: Nobody may ask without a token, or the caller has asked too often.
        """
        if (self._tokens or self._verifier is not None) and not is_public(scope["path"]):
            call.token = await self._check_token(headers)
        if scope["path"].startswith(SERVED):
            self._rate.check(_caller(scope, call))
        call.condition = None if call.tenant is None else Eq(self._tenant_field, call.tenant)
        if call.token is not None:  # whose sessions of MCP nobody else may use
            call.share = share_of(call.token) if self._is_shared else None
            owner = AccessToken(token="", client_id=call.token.digest.hex(), subject=call.share, scopes=[])
            scope["user"] = AuthenticatedUser(owner)

    async def _received(self, scope: Scope, headers: Headers, receive: Receive, call: Call) -> Receive:
        """Return a function that gives a request's body: as a whole, or for a file in parts.

        Raises:
            RequestError: It is too large or too slow, or the process ends.
        """
        if not scope["path"].startswith(SERVED):
            return receive
        if (scope["method"], scope["path"]) == FILE_UPLOAD:
            return paced(receive, self._pace)
        with self._admission.arriving():
            body = await self._bodies.receive(
                receive, headers.get("content-length"), call.share or _caller(scope, call)
            )
        return received(body, receive)

    def _place(self, scope: Scope, headers: Headers, call: Call) -> AbstractContextManager[None]:
        """Return the context that takes a place for a request, or a stream if the request only listens."""
        if not scope["path"].startswith(SERVED):
            return nullcontext()
        is_stream = scope["path"] == "/mcp" and (scope["method"] == "GET" or _listens(headers))
        return self._admission.streaming(call.share) if is_stream else self._admission.admitted(call.share)

    async def _check_token(self, headers: Headers) -> BearerToken:
        given = headers.get("authorization")
        token = find_token(self._tokens, given)
        if token is not None:
            return token
        scheme, _, text = (given or "").partition(" ")
        if self._verifier is not None and scheme.lower() == "bearer":
            with suppress(InvalidToken):
                token, scopes = await self._verifier.verify(text.strip())
                if READ not in scopes:
                    raise insufficient(READ, self._oauth)
                return token
        msg = "this needs a valid token, sent as the header Authorization: Bearer TOKEN"
        where = "" if self._oauth is None else f' resource_metadata="{self._oauth.metadata_url}"'
        raise RequestError(401, msg, headers={"www-authenticate": f"Bearer{where}"})

    def _check_place(self, headers: Headers) -> None:
        host = headers.get("host", "")
        if _PORT.sub("", host).lower() not in self._hosts:
            msg = f"this service is not called {host[:200]}; RETRIEVAL_MCP__HTTP__ALLOWED_HOSTS has the names it has"
            raise RequestError(421, msg)
        origin = headers.get("origin")
        if origin is not None and not self._is_allowed(origin, host):
            msg = (
                "scripts of this page may not call the service; RETRIEVAL_MCP__HTTP__ALLOWED_ORIGINS has those that may"
            )
            raise RequestError(403, msg)

    def _is_allowed(self, origin: str, host: str) -> bool:
        return origin.lower() in self._origins or origin.lower() in {
            f"http://{host.lower()}",
            f"https://{host.lower()}",
        }

    def _cross_origin(self, headers: Headers) -> dict[str, str]:
        origin = headers.get("origin")
        if origin is None or origin.lower() not in self._origins:
            return {}
        return {"access-control-allow-origin": origin, "vary": "origin"} | {
            name: value for name, value in _ALLOWED.items() if name.endswith("expose-headers")
        }


def check_framing(headers: Headers) -> None:
    """Refuse a request that says in two ways where it ends, of which somebody on its way may believe the other one.

    Raises:
        RequestError: It does.
    """
    if "content-length" in headers and "transfer-encoding" in headers:
        msg = "send Content-Length or Transfer-Encoding, not Content-Length and Transfer-Encoding"
        raise RequestError(400, msg, headers={"connection": "close"})


def share_of(token: BearerToken) -> str:
    """Return the key of all callers that share places with a token: its tenant, or itself."""
    return token.digest.hex() if token.tenant is None else f"tenant {token.tenant}"


def _caller(scope: Scope, call: Call) -> str:
    """Return what names a caller: its token, or without tokens its address."""
    if call.token is not None:
        return call.token.digest.hex()
    return (scope.get("client") or ("",))[0]


def _listens(headers: Headers) -> bool:
    """Whether a request opens a stream in the protocol of 2026, whose headers are held against its body."""
    version = headers.get("mcp-protocol-version")
    is_modern = version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS
    return is_modern and headers.get("mcp-method") == "subscriptions/listen"


class AnswerSender:
    """Sends an answer with the headers that all answers have, and knows how far it is.

    Nothing more is done for a client that stays and does not read: else a few of those would hold all places.

    Args:
        patience: Seconds that the client may take for each part.

    Attributes:
        status: ``None`` before it has begun.
        is_complete: Whether its end was sent.
        is_stuck: Whether the client does not read it.
    """

    def __init__(self, send: Send, request_id: str, headers: dict[str, str], patience: float) -> None:
        self._send = send
        self._patience = patience
        self._headers = {
            "x-request-id": request_id,
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            "cross-origin-resource-policy": "same-origin",
            **headers,
        }
        self.status: int | None = None
        self.is_complete = False
        self.is_stuck = False

    @property
    def has_begun(self) -> bool:
        """Whether its status was sent."""
        return self.status is not None

    async def send(self, message: Message) -> None:
        """Pass a message on.

        Raises:
            NobodyReadsError: The client does not read.
        """
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in self._headers.items():
                headers.setdefault(name, value)
        elif not message.get("more_body", False):
            self.is_complete = True
        try:
            async with asyncio.timeout(self._patience):
                await self._send(message)
        except TimeoutError:
            self.is_stuck = True
            raise NobodyReadsError from None


class _NoTracing:
    def __call__(self, _headers: Headers) -> AbstractContextManager[Any]:
        return nullcontext()


class _Tracing:
    """Makes the span that the header ``traceparent`` names the parent of what is recorded of a request."""

    def __init__(self) -> None:
        from opentelemetry import context, propagate  # noqa: PLC0415 - an extra

        self._context = context
        self._extract = propagate.extract

    def __call__(self, headers: Headers) -> AbstractContextManager[Any]:
        from contextlib import contextmanager  # noqa: PLC0415

        @contextmanager
        def attached() -> Any:
            token = self._context.attach(self._extract(headers))
            try:
                yield
            finally:
                self._context.detach(token)

        return attached() if "traceparent" in headers else nullcontext()


def _tracing() -> _Tracing | _NoTracing:
    try:
        return _Tracing()
    except ImportError:
        return _NoTracing()
