"""Servers and commands as child processes: how each is started, and how a server is asked over stdio or HTTP."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT = Path(__file__).parents[1]
PATIENCE = 60.0
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "benchmark", "version": "1"}}
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Subject:
    """What is started: a command, or a server and how it is asked.

    Attributes:
        kind: ``command``, ``stdio`` or ``http``; the latter gets a free port as its last argument.
        tool: That which searches.
        arguments: Makes its arguments of a question.
    """

    command: Sequence[str]
    kind: str = "command"
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    tool: str = "search"
    arguments: Callable[[str], dict[str, Any]] = lambda question: {"query": question}


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of what is started, in which bytecode is kept."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"} | dict(more)


def processor_of(process: int) -> float:
    """Return the processor seconds that a process has used, in all its threads."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Session:
    """A server as a child process, which has said hello, over standard input and output.

    Attributes:
        started: On the clock of ``time.perf_counter``.
        handshake: Seconds until its first answer.
    """

    def __init__(self, command: Sequence[str], more: Mapping[str, str] | None = None) -> None:
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(more or {})
        )
        self._ids = 0
        self._greet()
        self.handshake = time.perf_counter() - self.started
        self._notify("notifications/initialized")

    def _greet(self) -> None:
        self.ask("initialize", HELLO)

    def _notify(self, method: str) -> None:
        self._send({"jsonrpc": "2.0", "method": method})

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a request; what is sent before it, or is no message, is passed over."""
        self._ids += 1
        self._send({"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params})
        assert self.process.stdout is not None
        while True:
            line = self.process.stdout.readline()
            assert line, "the server has ended"
            answer: dict[str, Any] = json.loads(line) if line.startswith(b"{") else {}
            if answer.get("id") == self._ids:
                return answer["result"]

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool, and return the answer."""
        answer = self.ask("tools/call", {"name": tool, "arguments": arguments})
        assert not answer.get("isError"), (tool, answer)
        return answer

    def search(self, question: str) -> dict[str, Any]:
        """Return what is found, complete or not."""
        return self.call("search", {"query": question})

    def complete(self, subject: Subject, question: str) -> dict[str, Any]:
        """Return what is found; what is not by meaning yet is asked again."""
        while True:
            answer = self.call(subject.tool, subject.arguments(question))
            if not any("\nNote: " in part.get("text", "") for part in answer["content"]):
                return answer

    def status(self, key: str) -> float:
        """Return a figure that Linux keeps about the process."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8").splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith(f"{key}:")))

    def processor(self) -> float:
        """Return the processor seconds that the process has used, in all its threads."""
        return processor_of(self.process.pid)

    def end(self) -> None:
        """Let it end, and wait; some do not end when their input does."""
        try:
            self.process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


class HttpSession(Session):
    """A server as a child process, over streamable HTTP at a port of its own."""

    def __init__(self, command: Sequence[str], more: Mapping[str, str] | None = None) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port: int = free.getsockname()[1]
        self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        end = f"127.0.0.1:{self._port}" if command[-1] == "--http" else str(self._port)
        super().__init__([*command, end], more)

    def _greet(self) -> None:
        while True:
            with suppress(ConnectionRefusedError):
                self._connection.connect()
                break
            assert time.perf_counter() - self.started < PATIENCE, "the server does not listen"
            time.sleep(0.002)
        self.ask("initialize", HELLO)

    def _notify(self, method: str) -> None:
        self._post({"jsonrpc": "2.0", "method": method})

    def _post(self, message: dict[str, Any]) -> bytes:
        self._connection.request("POST", "/mcp", json.dumps(message), self._headers)
        answer = self._connection.getresponse()
        if (session := answer.getheader("Mcp-Session-Id")) is not None:
            self._headers["Mcp-Session-Id"] = session
        body = answer.read()
        assert answer.status < 300, (answer.status, body)
        return body

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a request, from a body of JSON or from a stream of events."""
        self._ids += 1
        body = self._post({"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params})
        for line in body.splitlines():
            text = line.removeprefix(b"data:").strip()
            answer: dict[str, Any] = json.loads(text) if text.startswith(b"{") else {}
            if answer.get("id") == self._ids:
                return answer["result"]
        raise AssertionError(body)

    def end(self) -> None:
        """Close the connection, end the server, and wait."""
        self._connection.close()
        self.process.terminate()
        super().end()
