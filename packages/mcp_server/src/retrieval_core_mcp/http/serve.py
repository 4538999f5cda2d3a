"""The command ``retrieval-mcp --http``: opening the indexes, serving with uvicorn, and ending in good order."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import uvicorn

from retrieval_core.cli.process import FAILURE, INTERRUPTED, WRONG_USE
from retrieval_core.errors import ConfigurationError
from retrieval_core.run.observe import Metrics
from retrieval_core_mcp.http.admission import Admission
from retrieval_core_mcp.http.app import create_app
from retrieval_core_mcp.http.audit import audit_log
from retrieval_core_mcp.http.connections import WaitingConnections, protocol_of
from retrieval_core_mcp.server import create_server
from retrieval_core_mcp.settings import serve_indexes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from starlette.types import ASGIApp

    from retrieval_core.ports import Embedder
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
    admission = Admission(settings.http.max_requests, settings.http.max_sessions)
    metrics = Metrics()
    try:
        indexes = serve_indexes(settings, places, embedder=embedder, observer=metrics)
        indexes.open()
        mcp = create_server(settings, indexes, at_once=settings.watch or settings.folder is not None)
        app = create_app(indexes, settings.http, metrics, mcp, admission, allow_writes=settings.allow_writes)
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
            return asyncio.run(serve_app(app, settings.http, admission, listening, log_level, listens=listens))
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        sys.stderr.write(f"Error: the audit log cannot be written to {settings.http.audit_log} ({reason})\n")
        return FAILURE


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
    server = _Server(
        uvicorn.Config(
            app,
            log_config=None,
            log_level=log_level,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # nobody reads the client's address
            lifespan="on",
            http=protocol_of(WaitingConnections(settings.receive_seconds, settings.max_waiting)),
            ws="none",
            timeout_graceful_shutdown=int(settings.shutdown_seconds) + AFTERWARDS,
        ),
        listens,
    )
    loop = asyncio.get_running_loop()
    code = 0

    def stop(with_code: int) -> None:
        nonlocal code
        if server.should_exit:  # the second signal: what is left is interrupted now
            admission.interrupt()
            return
        code = with_code
        admission.end()
        server.should_exit = True
        loop.call_later(settings.shutdown_seconds, admission.interrupt)

    for number, with_code in ((signal.SIGTERM, 0), (signal.SIGINT, INTERRUPTED)):
        with suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, stop, with_code)
    await server.serve([listening])
    return code if server.started else FAILURE


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
            host, port = listening.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            self._listens(f"http://{shown}:{port}")


def _listening(settings: HttpSettings) -> socket.socket:
    host = settings.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.create_server((host, settings.port), family=family, backlog=2048)
    # It names no protocol, and without that asyncio leaves Nagle's algorithm on: each answer would wait 40 ms.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, made.detach())
