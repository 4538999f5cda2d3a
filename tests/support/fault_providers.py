"""What a pipeline is made of in the table of faults: providers that can be made to fail, and a store that uses one."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.testing.fakes import FakeEmbedder
from support.wire_server import Hang, ResetMidBody

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.ports import Candidate, Fetched, FetchRequest, SearchRequest, Side, Store
    from support.wire_server import Fault, WireServer

DIMENSION = 64
BOTH: frozenset[Side] = frozenset({"dense", "lexical"})
READING, WRITING = "GETRANGE", "NX"
"""What tells the commands of the Redis cache apart."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Nobody listens any more."""


class Provider(Protocol):
    """Something outside of the process that can be made to fail.

    Attributes:
        port: Where it listens.
    """

    port: int

    def asked(self) -> int:
        """Return how many requests of the stage arrived so far."""
        ...

    async def spoil(self, fault: Fault | Refused, *, path: str, once: bool) -> None: ...

    async def has_been_asked(self, before: int) -> None:
        """Wait until more requests arrived than before."""
        ...

    async def has_been_left(self) -> None:
        """Wait until a client went away whose request was held."""
        ...


class HttpProvider:
    """A vendor's service, of which requests to one path count."""

    def __init__(self, server: WireServer, path: str) -> None:
        self._server = server
        self._path = path
        self.port = int(server.url.rpartition(":")[2])

    def asked(self) -> int:
        return self._server.count(self._path)

    async def spoil(self, fault: Fault | Refused, *, path: str, once: bool) -> None:
        self._path = path
        if isinstance(fault, Refused):
            await asyncio.to_thread(self._server.refuse)
        elif once:
            self._server.fail(fault, path=path)
        else:
            self._server.fail_always(fault, path=path)

    async def has_been_asked(self, before: int) -> None:
        await self._server.until(lambda: self.asked() > before)

    async def has_been_left(self) -> None:
        await self._server.until(lambda: self._server.disconnected > 0)


class RedisProvider:
    """Passes on what a Redis server and its clients say, save for the commands that it is to spoil."""

    def __init__(self, behind: Path, command: str) -> None:
        self._behind = behind
        self._command = command.encode()
        self._asked = 0
        self._arrived = asyncio.Event()
        self._left = asyncio.Event()
        self._fault: Fault | Refused | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.port = 0

    async def listen(self) -> None:
        self._listener = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    def asked(self) -> int:
        return self._asked

    async def spoil(self, fault: Fault | Refused, *, path: str, once: bool) -> None:
        self._fault = fault
        if isinstance(fault, Refused) and self._command == READING.encode():  # the first command of a query
            await self.close()

    async def has_been_asked(self, before: int) -> None:
        while self._asked <= before:
            self._arrived.clear()
            await self._arrived.wait()

    async def has_been_left(self) -> None:
        await self._left.wait()

    async def close(self) -> None:
        self._listener.close()
        for writer in self._open.values():
            writer.transport.abort()
        await asyncio.gather(*self._open)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        replies, questions = await asyncio.open_unix_connection(str(self._behind))
        with suppress(ConnectionError):
            while asked := await reader.read(65536):
                is_meant = self._command in asked
                self._asked += is_meant
                self._arrived.set()
                fault = self._fault if is_meant else None
                if isinstance(fault, Hang):
                    await reader.read()
                    self._left.set()
                    break
                questions.write(asked)
                reply = await replies.read(65536)
                if isinstance(fault, ResetMidBody):
                    writer.write(reply[: len(reply) // 2])
                    await writer.drain()
                    connection: socket.socket = writer.get_extra_info("socket")
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    break
                writer.write(reply)
                if isinstance(self._fault, Refused) and not is_meant:  # the next command is the one
                    self._listener.close()
                    break
        questions.close()
        writer.close()
        del self._open[task]


class PartlyRemote(MemoryStore):
    """A store in memory, one verb of which another store serves: ``dense``, ``lexical`` or ``fetch``."""

    def __init__(
        self, verb: str, remote: Store | None, *, sides: frozenset[Side] = BOTH, brings_chunks: bool = True
    ) -> None:
        super().__init__(embedder_id=FakeEmbedder(DIMENSION).id, dimension=DIMENSION)
        self.sides = sides
        self._remotes = {verb: remote} if remote is not None else {}
        self._brings_chunks = brings_chunks

    @property
    def is_remote(self) -> bool:
        return bool(self._remotes)

    async def search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        remote = self._remotes.get("dense" if request.vector is not None else "lexical")
        found = await (super().search(request) if remote is None else remote.search(request))
        return found if self._brings_chunks else tuple(replace(candidate, chunk=None) for candidate in found)

    async def fetch(self, request: FetchRequest) -> Fetched:
        remote = self._remotes.get("fetch")
        return await (super().fetch(request) if remote is None else remote.fetch(request))

    async def aclose(self) -> None:
        for remote in self._remotes.values():
            await remote.aclose()
        await super().aclose()
