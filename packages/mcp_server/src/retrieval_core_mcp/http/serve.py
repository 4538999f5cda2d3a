"""The command ``retrieval-mcp --http``: opening the indexes, serving with uvicorn, and ending in good order."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import uvicorn

from retrieval_core.cli.process import FAILURE, INTERRUPTED, WRONG_USE
from retrieval_core.errors import ConfigurationError
from retrieval_core.run.observe import Metrics
from retrieval_core_mcp.http.admission import Admission
from retrieval_core_mcp.http.app import create_app
from retrieval_core_mcp.http.audit import audit_log
from retrieval_core_mcp.http.connections import WaitingConnections, protocol_of
from retrieval_core_mcp.http.rates import rate_limit
from retrieval_core_mcp.server import create_server
from retrieval_core_mcp.settings import serve_indexes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from starlette.types import ASGIApp

    from retrieval_core.ports import Embedder
    from retrieval_core_mcp.http.gate import Gate
    from retrieval_core_mcp.http.settings import HttpSettings
    from retrieval_core_mcp.settings import ServerSettings

AFTERWARDS = 2
"""Seconds for answers to be sent, once what was left has been interrupted."""


def say_where(address: str) -> None:
    """Tell whoever started the service where it listens."""
    sys.stderr.write(f"retrieval-mcp listens at {address}\n")
    sys.stderr.flush()


def serve_http(
    settings: ServerSettings,
    places: Sequence[str],
    log_level: str,
    *,
    embedder: Embedder | None = None,
    listens: Callable[[str], None] = say_where,
) -> int:
    """Serve indexes until a signal comes, and return the exit code.

    Args:
        places: Index files, or ``NAME=FILE``; the configured one where there is none.
        log_level: Of uvicorn.
        embedder: Of the first index, where its model has begun to load; the configured one where it is not given.
        listens: Is told the address once requests are answered there.
    """
    try:
        if settings.http.workers > 1:
            _check_sharing(settings)
            app = admission = None  # each worker makes its own
        else:
            app, admission = create_service(settings, places, embedder=embedder)
        listening = _listening(settings.http)
    except ConfigurationError as error:
        sys.stderr.write(f"Error: {error}\n")
        return WRONG_USE
    except OSError as error:
        # What creates a socket adds the address to the system's words, which resolving a name has of its own.
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        sys.stderr.write(f"Error: cannot listen at {settings.http.host}:{settings.http.port} ({reason})\n")
        return FAILURE
    try:
        with listening, audit_log(settings.http.audit_log):
            if app is not None and admission is not None:
                return asyncio.run(serve_app(app, settings.http, admission, listening, log_level, listens=listens))
            from retrieval_core_mcp.http.workers import serve_workers  # noqa: PLC0415 - for several processes

            return serve_workers(settings, places, log_level, listening, lambda: listens(_address(listening)))
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        sys.stderr.write(f"Error: the audit log cannot be written to {settings.http.audit_log} ({reason})\n")
        return FAILURE


def create_service(
    settings: ServerSettings, places: Sequence[str], *, embedder: Embedder | None = None, is_warm: bool = False
) -> tuple[Gate, Admission]:
    """Open indexes, and return the application that serves them and what bounds its requests.

    Args:
        places: As of :func:`serve_http`.
        embedder: Likewise.
        is_warm: Whether it begins to answer when the models are loaded.

    Raises:
        ConfigurationError: The settings are wrong.
    """
    admission = Admission(settings.http.max_requests, settings.http.max_sessions)
    metrics = Metrics()
    indexes = serve_indexes(settings, places, embedder=embedder, observer=metrics)
    indexes.open()
    app = create_app(
        indexes,
        settings.http,
        metrics,
        create_server(settings, indexes, at_once=settings.watch or settings.folder is not None),
        admission,
        allow_writes=settings.allow_writes,
        rate=rate_limit(settings.http.requests_per_minute, settings.retrieval),
        is_warm=is_warm,
    )
    return app, admission


def server_options(settings: HttpSettings, log_level: str) -> dict[str, Any]:
    """Return the arguments of :class:`uvicorn.Config` for one process or several."""
    return {
        "log_config": None,
        "log_level": log_level,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,  # nobody reads the client's address
        "lifespan": "on",
        "http": _Protocols(settings.receive_seconds, settings.max_waiting),
        "ws": "none",
        "timeout_graceful_shutdown": int(settings.shutdown_seconds) + AFTERWARDS,
    }


async def serve_app(
    app: ASGIApp,
    settings: HttpSettings,
    admission: Admission,
    listening: socket.socket,
    log_level: str = "warning",
    *,
    listens: Callable[[str], None] = say_where,
) -> int:
    """Serve until a signal comes, let requests under way end, and return the exit code."""
    server = _Server(uvicorn.Config(app, **server_options(settings, log_level)), listens)
    loop = asyncio.get_running_loop()
    code = 0

    def leave() -> None:
        server.should_exit = True

    ending = Ending(admission, settings, leave)

    def stop(with_code: int) -> None:
        nonlocal code
        if admission.is_draining:  # the second signal: what is left is interrupted now
            ending.hurry()
            return
        code = with_code
        ending.begin()

    for number, with_code in ((signal.SIGTERM, 0), (signal.SIGINT, INTERRUPTED)):
        with suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, stop, with_code)
    await server.serve([listening])
    return code if server.started else FAILURE


class Ending:
    """Ends a process in good order.

    Args:
        leave: Closes the port; the process ends after the requests in progress.
    """

    def __init__(self, admission: Admission, settings: HttpSettings, leave: Callable[[], None]) -> None:
        self._admission = admission
        self._settings = settings
        self._leave = leave
        self._has_left = False

    def begin(self) -> None:
        """Report that the process is not ready, and refuse requests after ``drain_seconds``. Again is fine."""
        if self._admission.is_draining:
            return
        self._admission.drain()
        if self._settings.drain_seconds:
            asyncio.get_running_loop().call_later(self._settings.drain_seconds, self._end)
        else:
            self._end()

    def hurry(self) -> None:
        """Interrupt what is in progress."""
        self._end()
        self._admission.interrupt()

    def _end(self) -> None:
        if self._has_left:
            return
        self._has_left = True
        self._admission.end()
        self._leave()
        asyncio.get_running_loop().call_later(self._settings.shutdown_seconds, self._admission.interrupt)


@dataclass(frozen=True)
class _Protocols:
    """Makes the protocols of connections; unlike their class, it can be sent to a worker."""

    seconds: float
    most: int

    def __call__(self, **given: Any) -> asyncio.Protocol:
        return self._kind(**given)

    @cached_property
    def _kind(self) -> type[asyncio.Protocol]:
        return protocol_of(WaitingConnections(self.seconds, self.most))


class _Server(uvicorn.Server):
    """Says where it listens, and leaves signals, and so the exit code, to :func:`serve_app`."""

    def __init__(self, config: uvicorn.Config, listens: Callable[[str], None]) -> None:
        super().__init__(config)
        self._listens = listens

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in (sockets or ()) if self.started else ():
            self._listens(_address(listening))


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


def _check_sharing(settings: ServerSettings) -> None:
    settings.http.known_tokens()  # so that wrong ones are reported once
    if settings.retrieval.store.kind == "memory":
        msg = "with store.kind = 'memory', each worker would have its own index. Choose another store, or 1 worker"
        raise ConfigurationError(msg)


def _listening(settings: HttpSettings) -> socket.socket:
    host = settings.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.create_server((host, settings.port), family=family, backlog=2048)
    # It names no protocol, and without that asyncio leaves Nagle's algorithm on: each answer would wait 40 ms.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, made.detach())
