"""Several processes that answer at one port: uvicorn starts them, and replaces those that end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from contextlib import nullcontext
from functools import partial
from multiprocessing import parent_process
from threading import Thread
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from retrieval_core.cli.process import FAILURE, INTERRUPTED
from retrieval_core.errors import ConfigurationError
from retrieval_core_mcp.http.audit import audit_log
from retrieval_core_mcp.http.rates import shares_cache
from retrieval_core_mcp.http.serve import Ending, create_service, server_options

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from retrieval_core_mcp.settings import ServerSettings

HUNG_SECONDS = 20
"""Seconds after which a worker that does not react is replaced: it reacts as soon as it has imported the service."""
STUCK_SECONDS = 10
"""Seconds for closing indexes, after ``drain_seconds`` and ``shutdown_seconds``, before a worker is killed."""
_ENDS = frozenset({signal.SIGINT, signal.SIGTERM})

logger = logging.getLogger(__name__)


def serve_workers(
    settings: ServerSettings,
    places: Sequence[str],
    log_level: str,
    listening: socket.socket,
    listens: Callable[[], None],
) -> int:
    """Serve with several processes until a signal comes, and return the exit code.

    The first process starts alone, so that wrong settings are reported once, and a model is downloaded once. A process
    begins to answer when its model is loaded. SIGHUP replaces them one after another.
    """
    workers = settings.http.workers
    if not shares_cache(settings.retrieval):
        also = ", and counts requests_per_minute by itself" if settings.http.requests_per_minute else ""
        sys.stderr.write(
            f"Each of the {workers} processes caches results for itself{also}. Set cache.kind to redis to share\n"
        )
    config = uvicorn.Config(
        partial(create_worker, settings, tuple(places), log_level),
        factory=True,
        workers=workers,
        timeout_worker_healthcheck=HUNG_SECONDS,
        **server_options(settings.http, log_level),
    )
    patience = settings.http.drain_seconds + settings.http.shutdown_seconds + STUCK_SECONDS
    supervisor = _Supervisor(config, [listening], listens, patience)
    supervisor.run()
    return supervisor.code


def create_worker(settings: ServerSettings, places: Sequence[str], log_level: str) -> ASGIApp:
    """Return the application of a worker, and end it with the signals that its process gets.

    Raises:
        SystemExit: It can't be made; the supervisor then ends.
    """
    logging.basicConfig(
        level=log_level.upper(), stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s", force=True
    )
    logging.captureWarnings(True)
    try:
        app, admission = create_service(settings, places, is_warm=True)
    except ConfigurationError as error:
        sys.stderr.write(f"Error: {error}\n")
        sys.exit(STARTUP_FAILURE)
    leave: Any = signal.getsignal(signal.SIGTERM)  # of uvicorn's server
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the supervisor passes it on
    ending = Ending(admission, settings.http, lambda: leave(signal.SIGTERM, None))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ending.begin)
    Thread(target=_end_with_supervisor, daemon=True).start()

    async def logged(scope: Scope, receive: Receive, send: Send) -> None:
        with audit_log(settings.http.audit_log) if scope["type"] == "lifespan" else nullcontext():
            await app(scope, receive, send)

    return logged


class _Supervisor(Multiprocess):
    """Starts the first worker before the others, replaces each when another one is ready, and returns an exit code.

    Args:
        patience: Seconds from SIGTERM until a worker that still runs is killed.
    """

    def __init__(
        self, config: uvicorn.Config, sockets: list[socket.socket], listens: Callable[[], None], patience: float
    ) -> None:
        super().__init__(config, sockets)
        self._listens = listens
        self._patience = patience
        self._leaving: list[Process] = []
        self.code = 0

    def run(self) -> None:
        super().run()
        self.handle_signals()  # the one to end may have come while workers were started

    def init_processes(self) -> None:
        wanted, self.processes_num = self.processes_num, 1
        super().init_processes()
        if not self._is_started(self.processes[0]):
            if not self.should_exit.is_set():
                self.code = FAILURE
                self.should_exit.set()
            return
        self.processes_num = wanted - 1
        super().init_processes()
        self.processes_num = wanted
        self._listens()

    def restart_all(self) -> None:
        for at, old in enumerate(self.processes):
            new = Process(self.config, self.sockets)
            new.start()
            if not self._is_started(new):
                new.kill()
                new.join()
                if not self.should_exit.is_set():
                    logger.error("worker %s ended before it was ready; worker %s goes on", new.pid, old.pid)
                return
            self.processes[at] = new
            self._leaving = [old]
            old.terminate()
            until = time.monotonic() + self._patience
            while old.process.is_alive() and time.monotonic() < until:
                if self._is_ending():
                    return
                old.process.join(0.1)
            self._join(old, until)

    def terminate_all(self) -> None:
        self.handle_signals()  # any later Ctrl-C is a second one
        super().terminate_all()

    def join_all(self) -> None:
        until = time.monotonic() + self._patience
        for process in (*self._leaving, *self.processes):
            self._join(process, until)

    def _join(self, process: Process, until: float) -> None:
        """Wait for the end of a worker after SIGTERM; kill it if it hangs, or on a second Ctrl-C."""
        while process.exitcode is None and time.monotonic() < until and signal.SIGINT not in self.signal_queue:
            process.process.join(0.1)
        if process.exitcode is None:
            if signal.SIGINT not in self.signal_queue:
                logger.error("worker %s did not end within %g s and is killed", process.pid, self._patience)
            process.process.kill()
            process.process.join()

    def _is_started(self, process: Process) -> bool:
        """Wait until a worker has loaded its model; false if it has ended, or if all are to end."""
        while not process.wait_until_ready(1):
            if self._is_ending() or process.exitcode is not None:
                return False
        return True

    def _is_ending(self) -> bool:
        if not _ENDS.isdisjoint(self.signal_queue):
            self.should_exit.set()
        return self.should_exit.is_set()

    def keep_subprocess_alive(self) -> None:
        was_ending = self.should_exit.is_set()
        before = tuple(self.processes)
        super().keep_subprocess_alive()
        for old, new in zip(before, self.processes, strict=True):
            if new is not old:
                logger.warning("worker %s ended with code %s; worker %s replaces it", old.pid, old.exitcode, new.pid)
        if self.should_exit.is_set() and not was_ending:  # a worker that took another's place could not start
            self.code = FAILURE

    def handle_int(self) -> None:
        self.code = INTERRUPTED
        super().handle_int()


def _end_with_supervisor() -> None:
    """End the process if its supervisor was killed: nobody else could end it."""
    if (supervisor := parent_process()) is not None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)
