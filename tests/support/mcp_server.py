"""An index with a fake embedder, and the server as a real child process that is spoken to in raw lines."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from retrieval_core import Document, open_index
from retrieval_core.config import EmbedderConfig, RetrievalConfig
from retrieval_core.service.served import ServedIndex, ServedIndexes
from retrieval_core.testing.fakes import FakeEmbedder
from support.processes import EVERYTHING, as_at_a_terminal

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

CONFIG = '[embedder]\nkind = "retrieval_core.testing.fakes:FakeEmbedder"\n'
LONG = " ".join(f"Sentence {number} tells of the sea and of its many ships." for number in range(1_000))
DOCUMENTS = {
    "moon.md": "The moon is 384,400 km away from the earth. It has no air.",
    "sun.md": "The sun is eight light minutes away. Its light takes so long.",
    "sea.md": LONG,
}
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "a test", "version": "1"},
}
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "a test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def fill(path: Path) -> None:
    """Make an index of three documents."""
    documents = [
        Document(name, text, source=f"notes/{name}", content_hash="", title=name.removesuffix(".md").title())
        for name, text in DOCUMENTS.items()
    ]
    with open_index(path, embedder=FakeEmbedder()) as index:
        index.add_documents(documents)


def words(text: str) -> int:
    """A token counter that needs nothing installed."""
    return len(text.split())


def served(config: RetrievalConfig, name: str = "documents", **settings: Any) -> ServedIndex:
    """Return an index that counts words."""
    return ServedIndex(
        name, config, embedder=FakeEmbedder(), open_index=partial(open_index, token_counter=words), **settings
    )


@pytest.fixture(scope="session")
def index_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index that no test writes to."""
    path = tmp_path_factory.mktemp("index") / "secret-folder" / "index.db"
    fill(path)
    return path


@pytest.fixture(scope="session")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration file with the fake embedder."""
    path = tmp_path_factory.mktemp("config") / "fake.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def config(index_file: Path) -> RetrievalConfig:
    """The configuration of the filled index with the fake embedder."""
    embedder = EmbedderConfig(kind="retrieval_core.testing.fakes:FakeEmbedder")
    return RetrievalConfig(index=str(index_file), embedder=embedder)


@pytest.fixture
def library(config: RetrievalConfig) -> ServedIndexes:
    return ServedIndexes(served(config))


class Child:
    """A server in a process of its own; whatever it prints on standard output is read as JSON."""

    def __init__(self, process: subprocess.Popen[bytes], *, modern: bool) -> None:
        self.process = process
        self.modern = modern
        self._ids = 0
        if not modern:
            self.ask("initialize", INITIALIZE)
            self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send_line(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def send(self, message: dict[str, Any]) -> None:
        self.send_line(json.dumps(message))

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the server ended without an answer"
        return json.loads(line)

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return a request in the protocol's version of this child."""
        self._ids += 1
        params = {**params, "_meta": MODERN} if self.modern else params
        return {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params}

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        message = self.request(method, params)
        self.send(message)
        answer = self.receive()
        assert answer["id"] == message["id"]
        return answer

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return self.ask("tools/call", {"name": tool, "arguments": arguments})["result"]

    def end(self) -> tuple[bytes, bytes]:
        """Close its input, and return what else it printed; it has a second on an idle machine."""
        return self.process.communicate(timeout=30)


@pytest.fixture
def start(config_file: Path) -> Any:
    """Return a context manager that starts a server on an index."""

    @contextmanager
    def started(index: Path, *options: str, modern: bool = False, config: Path = config_file) -> Generator[Child]:
        command = [
            sys.executable,
            "-m",
            "retrieval_core_mcp",
            "--index",
            str(index),
            "--config",
            str(config),
            *EVERYTHING,
            *options,
        ]
        pipe = subprocess.PIPE
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, **as_at_a_terminal())
        with cast("subprocess.Popen[bytes]", child) as process:
            try:
                yield Child(process, modern=modern)
            finally:
                process.kill()

    return started
