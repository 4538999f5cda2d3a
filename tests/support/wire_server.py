"""A local HTTP server for tests: vendors' real clients talk to it, and it fails in the ways that it is told to.

It has a thread and an event loop of its own, so that a test may be synchronous or run a loop itself. Nothing in it
waits for time to pass: what is held is held until the test releases it, or leaves.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from contextlib import suppress
from threading import Condition, Event, Thread
from typing import TYPE_CHECKING, Self

from support.wire_messages import (
    BrokenJSON,
    Changed,
    ClosedMidBody,
    EmptyBody,
    Fault,
    Hang,
    PausedMidBody,
    Request,
    ResetMidBody,
    Response,
    Status,
    encoded,
    read,
    spoilt,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "BrokenJSON",
    "Changed",
    "ClosedMidBody",
    "EmptyBody",
    "Fault",
    "Hang",
    "PausedMidBody",
    "Request",
    "ResetMidBody",
    "Response",
    "Status",
    "WireServer",
]

# A test that waits for something that never comes fails after so many seconds instead of hanging.
_PATIENCE = 30.0
_NO_LINGER = struct.pack("ii", 1, 0)


class WireServer:
    """Serves at a free port of this machine while its ``with`` block runs.

    Args:
        service: Answers a request; called in the server's thread, one request at a time. An exception of it becomes
            the status 500, and ends the ``with`` block with an error.

    Attributes:
        requests: Every request that arrived, in order, those that met a fault included.
        disconnected: How many clients left while their request was held.
    """

    def __init__(self, service: Callable[[Request], Response]) -> None:
        self.requests: list[Request] = []
        self.disconnected = 0
        self.service = service
        self._errors: list[Exception] = []
        self._once: list[tuple[str, Fault]] = []
        self._always: list[tuple[str, Fault]] = []
        self._changed = Condition()
        self._port = 0
        self._loop: asyncio.AbstractEventLoop
        self._listener: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def url(self) -> str:
        """Address without a path and without a slash at the end."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def connected(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    def count(self, path: str | None = None) -> int:
        """Return how many requests arrived, at all or for exactly this path."""
        counts = Counter(request.path for request in tuple(self.requests))
        return counts.total() if path is None else counts[path]

    def fail(self, *faults: Fault, path: str = "") -> None:
        """Let the next requests, one for each fault, fail; with ``path`` those whose path begins with it."""
        with self._changed:
            self._once += [(path, fault) for fault in faults]

    def fail_always(self, fault: Fault, *, path: str = "") -> None:
        """Let every request fail that meets no fault of :meth:`fail`; with ``path`` those whose path begins with it."""
        with self._changed:
            self._always.append((path, fault))

    def heal(self) -> None:
        """Forget all faults that did not happen yet. What is held stays held."""
        with self._changed:
            self._once.clear()
            self._always.clear()

    def release(self) -> None:
        """Let the requests that are held now be answered as if there had been no fault."""
        self._call(self._open_gate)

    def refuse(self) -> None:
        """Close the port and all connections: the next client is refused."""
        asyncio.run_coroutine_threadsafe(self._stop_listening(), self._loop).result(_PATIENCE)

    def accept(self) -> None:
        """Open the same port again after :meth:`refuse`."""
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(_PATIENCE)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Block until something is so about :attr:`requests`, :attr:`disconnected` or :attr:`connected`.

        Raises:
            AssertionError: It never was.
        """
        with self._changed:
            assert self._changed.wait_for(condition, _PATIENCE), "what was waited for did not happen"

    async def until(self, condition: Callable[[], bool]) -> None:
        """Do what :meth:`wait_until` does, without blocking the event loop."""
        await asyncio.to_thread(self.wait_until, condition)

    def __enter__(self) -> Self:
        started = Event()
        self._thread = Thread(target=lambda: asyncio.run(self._run(started)), name="wire-server", daemon=True)
        self._thread.start()
        assert started.wait(_PATIENCE), "the server did not start"
        return self

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        self._call(self._stopped.set)
        self._thread.join(_PATIENCE)
        assert not self._thread.is_alive(), "the server did not stop"
        if self._errors and value is None:
            msg = f"the service failed: {self._errors[0]!r}"
            raise AssertionError(msg) from self._errors[0]

    def _call(self, function: Callable[[], None]) -> None:
        done = Event()

        def call() -> None:
            function()
            done.set()

        self._loop.call_soon_threadsafe(call)
        assert done.wait(_PATIENCE), "the server's thread does not respond"

    # What follows runs in the server's thread.

    async def _run(self, started: Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._gate, self._stopped = asyncio.Event(), asyncio.Event()
        await self._listen()
        started.set()
        await self._stopped.wait()
        await self._stop_listening()

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._connected, "127.0.0.1", self._port)
        self._port = self._listener.sockets[0].getsockname()[1]

    async def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is None:
            return
        # asyncio loses connections that were accepted in the moment when a listener is closed, so nothing more is
        # accepted first, and some turns of the loop let what was accepted show.
        for listening in listener.sockets:
            self._loop.remove_reader(listening.fileno())
        await _some_turns()
        listener.close()
        for writer in self._connections.values():
            writer.transport.abort()
        await asyncio.gather(*self._connections)
        await _some_turns()

    def _open_gate(self) -> None:
        self._gate.set()
        self._gate = asyncio.Event()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(self._disconnected)

    def _disconnected(self, task: asyncio.Task[None]) -> None:
        with self._changed:
            del self._connections[task]
            self._changed.notify_all()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # A client may leave whenever it likes.
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._serve_one(reader, writer):
                    pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether the connection stays open for another."""
        request = await read(reader)
        with self._changed:
            fault = self._next_fault(request.path)
            self.requests.append(request)
            self._changed.notify_all()
        if isinstance(fault, Hang) and not await self._held(reader):
            return False
        head, pieces = encoded(spoilt(self._answer(request), fault))
        if request.method == "HEAD":
            pieces = []
        half = len(pieces) // 2
        writer.write(head + b"".join(pieces[:half]))
        await writer.drain()
        match fault:
            case PausedMidBody() if not await self._held(reader):
                return False
            case ResetMidBody():
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
                return False
            case ClosedMidBody():
                return False
            case _:
                for piece in pieces[half:]:
                    writer.write(piece)
                    await writer.drain()
                return request.headers.get("connection", "").lower() != "close"

    def _next_fault(self, path: str) -> Fault | None:
        for number, (prefix, fault) in enumerate(self._once):
            if path.startswith(prefix):
                del self._once[number]
                return fault
        return next((fault for prefix, fault in self._always if path.startswith(prefix)), None)

    def _answer(self, request: Request) -> Response:
        try:
            return self.service(request)
        except Exception as error:  # noqa: BLE001 - reported when the server ends
            self._errors.append(error)
            return Response(500, repr(error).encode(), {"Content-Type": "text/plain"})

    async def _held(self, reader: asyncio.StreamReader) -> bool:
        """Wait until the test says so, and return whether the client is still there."""
        left, released = asyncio.ensure_future(_end_of(reader)), asyncio.ensure_future(self._gate.wait())
        await asyncio.wait((left, released), return_when=asyncio.FIRST_COMPLETED)
        gone = left.done()
        left.cancel()
        released.cancel()
        await asyncio.gather(left, released, return_exceptions=True)
        if gone and self._listener is not None:  # else it was the server that left
            with self._changed:
                self.disconnected += 1
                self._changed.notify_all()
        return not gone


async def _some_turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def _end_of(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        assert await reader.read(1) == b"", "a client sent more before it was answered"
