"""What every request has to pass before anything is done for it: the host's name, the page it is from, the token."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from uuid import uuid4

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS
from opentelemetry import context, propagate
from starlette.exceptions import HTTPException
from starlette.responses import Response

from retrieval_core.types.filters import Eq
from retrieval_core_mcp.http import audit
from retrieval_core_mcp.http.admission import ending
from retrieval_core_mcp.http.envelope import Call, NobodyReadsError, RequestError, error_response, json_response
from retrieval_core_mcp.http.oauth import METADATA, READ, InvalidToken, JwtVerifier, OAuth, insufficient
from retrieval_core_mcp.http.page_files import is_public
from retrieval_core_mcp.http.problems import refused
from retrieval_core_mcp.http.receiving import Pace, read_parts, received
from retrieval_core_mcp.http.tokens import find_token

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from retrieval_core.run.clock import Clock
    from retrieval_core_mcp.http.admission import Admission
    from retrieval_core_mcp.http.metrics import HttpMetrics
    from retrieval_core_mcp.http.rates import RateLimit
    from retrieval_core_mcp.http.settings import HttpSettings
    from retrieval_core_mcp.http.tokens import BearerToken

    Headers = Mapping[str, str]

logger = logging.getLogger(__name__)

SERVED = ("/v1", "/mcp")
"""The beginnings of the paths at which something is done for callers."""
PROBES = ("/healthz", "/readyz")
"""Paths that answer ``GET`` without a token and by any name of the host, as probes of Kubernetes and proxies call."""
FILE_UPLOAD = ("POST", "/v1/files")
OWN_NAMES = ("127.0.0.1", "localhost", "[::1]")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_PORT = re.compile(r":\d{1,5}$")
_EXPOSED = {"access-control-expose-headers": "x-request-id, retry-after, mcp-session-id"}
_ALLOWED = {
    "access-control-allow-methods": "GET, POST, DELETE, OPTIONS",
    "access-control-allow-headers": "authorization, content-type, x-request-id, traceparent, mcp-protocol-version, "
    "mcp-session-id, mcp-method, mcp-name, last-event-id",
    "access-control-max-age": "600",
    **_EXPOSED,
}


class Gate:
    """An ASGI application in front of another one.

    Every answer carries ``X-Request-Id``; every error is one of the contract. A foreign name of the host is answered
    with 421, a script of a foreign page with 403, a wrong token with 401; probes pass, as strangers. A request that
    passes has in its state ``call``, which knows what the caller may see.

    Args:
        app: Handles the requests that pass.
        tokens: Those that are let in; if there are none, and no issuer, everybody is.
        clock: Measures the age of an issuer's keys.
        rate: Bounds the requests of each token in a minute.
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
        rate: RateLimit | None = None,
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._admission = admission
        self._metrics = metrics
        self._rate = rate
        own = (*OWN_NAMES, *settings.allowed_hosts)
        self._hosts = frozenset(name.lower() for name in (own if settings.host in OWN_NAMES else (*own, settings.host)))
        self._origins = frozenset(origin.rstrip("/").lower() for origin in settings.allowed_origins)
        self._tenant_field = settings.tenant_field
        self._oauth = OAuth.of(settings)
        self._verifier = None if self._oauth is None else JwtVerifier(self._oauth, clock)
        self._is_shared = self._oauth is not None or len({share_of(token) for token in tokens}) > 1
        self._pace = Pace(settings.receive_seconds, settings.min_bytes_per_second)
        self._most_bytes = settings.max_body_bytes
        self._patience = settings.request_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        scope["app"] = self  # so that the router raises for a path that there is not
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # The first of several of one name.
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}
        given = headers.get("x-request-id", "")
        call = Call(given if _REQUEST_ID.fullmatch(given) else uuid4().hex)
        scope.setdefault("state", {})["call"] = call
        answer = AnswerSender(send, call, self._cross_origin(headers), self._patience)
        with _traced(headers), self._metrics.request(scope, call):
            try:
                await self._handle(scope, headers, receive, answer, call)
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
                if not answer.is_stuck and not answer.has_begun:
                    await _refusal(error, scope, call)(scope, receive, answer.send)
            finally:
                audit.note(scope, call)

    async def _handle(self, scope: Scope, headers: Headers, receive: Receive, answer: AnswerSender, call: Call) -> None:
        path = scope["path"]
        check_framing(headers)
        if scope["method"] == "GET" and path in PROBES:
            try:
                await self._check_caller(scope, headers, call)
            except RequestError:
                call.is_stranger = True
            await self._app(scope, receive, answer.send)
            return
        self._check_host(headers)
        if scope["method"] == "OPTIONS" and "origin" in headers:
            await Response(status_code=204, headers=_ALLOWED)(scope, receive, answer.send)
            return
        if self._oauth is not None and path.startswith(METADATA):
            await json_response(self._oauth.metadata())(scope, receive, answer.send)
            return
        if not is_public(path):
            await self._check_caller(scope, headers, call)
        if not path.startswith(SERVED):
            await self._app(scope, receive, answer.send)
            return
        if self._rate is not None:
            await self._rate.check("" if call.token is None else share_of(call.token))
        receive = self._pace.bound(receive)
        if (scope["method"], path) != FILE_UPLOAD:
            with self._admission.arriving(call.share):
                parts = read_parts(receive, headers.get("content-length"), self._most_bytes)
                body = b"".join([part async for part in parts])
            receive = received(body, receive)
        is_stream = path == "/mcp" and (scope["method"] == "GET" or _listens(headers))
        with self._admission.streaming(call.share) if is_stream else self._admission.admitted(call.share):
            await self._app(scope, receive, answer.send)

    async def _check_caller(self, scope: Scope, headers: Headers, call: Call) -> None:
        self._check_host(headers)
        if self._tokens or self._verifier is not None:
            self._identify(scope, call, await self._check_token(headers))

    def _identify(self, scope: Scope, call: Call, token: BearerToken) -> None:
        """Note in a request's call whose it is and what that allows."""
        call.token = token
        call.share = share_of(token) if self._is_shared else None
        if token.tenant is not None:
            call.condition = Eq(self._tenant_field, token.tenant)
        if scope["path"] == "/mcp":  # nobody else may use the sessions of its owner
            owner = AccessToken(token="", client_id=token.digest.hex(), subject=call.share, scopes=[])
            scope["user"] = AuthenticatedUser(owner)

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
        msg = "the token is missing or invalid. Send the header Authorization: Bearer TOKEN"
        where = "" if self._oauth is None else f' resource_metadata="{self._oauth.metadata_url}"'
        raise RequestError(401, msg, headers={"www-authenticate": f"Bearer{where}"})

    def _check_host(self, headers: Headers) -> None:
        host = headers.get("host", "").lower()
        if _PORT.sub("", host) not in self._hosts:
            msg = f"this service has another name than {host[:200]}. Add the name to RETRIEVAL_MCP__HTTP__ALLOWED_HOSTS"
            raise RequestError(421, msg)
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in {*self._origins, f"http://{host}", f"https://{host}"}:
            msg = (
                "scripts of this page may not call the service. Add its origin to RETRIEVAL_MCP__HTTP__ALLOWED_ORIGINS"
            )
            raise RequestError(403, msg)

    def _cross_origin(self, headers: Headers) -> dict[str, str]:
        origin = headers.get("origin")
        if origin is None or origin.lower() not in self._origins:
            return {}
        return {"access-control-allow-origin": origin, "vary": "origin", **_EXPOSED}


def _refusal(error: Exception, scope: Scope, call: Call) -> Response:
    """Return the answer to a request that failed; also to one for a path or a method that there is not."""
    if isinstance(error, HTTPException):
        message = error.detail
        if error.status_code == 405:
            allowed = (error.headers or {}).get("Allow", "")
            message = f"{scope['method']} is not possible here" + (f"; {allowed} is" if allowed else "")
        elif error.status_code == 404:
            message = "there is nothing at this path; /openapi.json has all that there are"
        error = RequestError(error.status_code, message, headers=error.headers)
    return error_response(call, refused(error, call))


def check_framing(headers: Headers) -> None:
    """Refuse a request that says in two ways where it ends, of which somebody on its way may believe the other one.

    Raises:
        RequestError: It does.
    """
    if "content-length" in headers and "transfer-encoding" in headers:
        msg = "the request has both Content-Length and Transfer-Encoding. Send one of them"
        raise RequestError(400, msg, headers={"connection": "close"})


def share_of(token: BearerToken) -> str:
    """Return the key of all callers that share places with a token: its tenant, or itself."""
    return token.digest.hex() if token.tenant is None else f"tenant {token.tenant}"


def _listens(headers: Headers) -> bool:
    """Whether a request opens a stream in the protocol of 2026, whose headers are held against its body."""
    version = headers.get("mcp-protocol-version")
    is_modern = version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS
    return is_modern and headers.get("mcp-method") == "subscriptions/listen"


class AnswerSender:
    """Sends an answer with the headers that all answers have, and knows how far it is.

    Nothing more is done for a client that stays and does not read: a few of those could hold all places.

    Args:
        call: Gets the status.
        patience: Seconds that the client may take for each part.

    Attributes:
        is_complete: Whether its end was sent.
        is_stuck: Whether the client does not read.
    """

    def __init__(self, send: Send, call: Call, headers: Mapping[str, str], patience: float) -> None:
        self._send = send
        self._call = call
        self._patience = patience
        self._headers = {
            "x-request-id": call.request_id,
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            "cross-origin-resource-policy": "same-origin",
            **headers,
        }
        self.is_complete = False
        self.is_stuck = False

    @property
    def has_begun(self) -> bool:
        """Whether its status was sent."""
        return self._call.status is not None

    async def send(self, message: Message) -> None:
        """Pass a message on.

        Raises:
            NobodyReadsError: The client does not read.
        """
        if message["type"] == "http.response.start":
            self._call.status = message["status"]
            given = dict(message["headers"])
            own = [(name.encode(), value.encode("latin-1")) for name, value in self._headers.items()]
            message["headers"] = [*message["headers"], *[each for each in own if each[0] not in given]]
        elif not message.get("more_body", False):
            self.is_complete = True
        try:
            async with asyncio.timeout(self._patience):
                await self._send(message)
        except TimeoutError:
            self.is_stuck = True
            raise NobodyReadsError from None


@contextmanager
def _traced(headers: Headers) -> Generator[None]:
    """Make the span in the header ``traceparent`` the parent of what is recorded of a request."""
    token = context.attach(propagate.extract(headers)) if "traceparent" in headers else None
    try:
        yield
    finally:
        if token is not None:
            context.detach(token)
