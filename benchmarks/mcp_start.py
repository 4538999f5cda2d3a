"""What the MCP server costs a user who waits for it, beside a server of the same protocol library that does nothing.

    python benchmarks/mcp_start.py [--runs N] [--index FILE]

Prints, as medians over runs that take turns: seconds from the start of the process to the answer of the handshake, and
to the first answer of a tool (for a search by meaning that is complete, with nothing degraded), both as a client sees
them; the processor seconds until then; milliseconds of a warm call, and resident memory after 50 of them. Without
``--index`` it first makes an index of the documentation, with the local model.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[1]
BARE = """
from mcp.server import MCPServer

server = MCPServer("bare")

@server.tool()
def search(query: str) -> str:
    "Give back what was asked."
    return query

server.run()
"""
QUESTIONS = [
    "how do I filter by price", "which settings are there", "make an embedder of my own", "what is an index",
    "search by words only", "how are documents split", "the fusion of both sides", "limits of the server",
]  # fmt: skip
WARM_CALLS = 50
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "benchmark", "version": "1"}}


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: seconds, but for warm calls in milliseconds and memory in MB."""

    handshake: float
    first_answer: float
    processor: float
    degraded: int
    p50: float
    p95: float
    memory: float


class Session:
    """A server as a child process, which has said hello."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.started = time.perf_counter()
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env={**os.environ, **(environment or {})})
        self._ids = 0
        self.ask("initialize", HELLO)
        self.handshake = time.perf_counter() - self.started
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

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
        """Return what is found."""
        return self.call("search", {"query": question})

    def status(self, key: str) -> float:
        """Return a figure that Linux keeps about the process."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8").splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith(f"{key}:")))

    def processor(self) -> float:
        """Return the processor seconds that the process has used, in all its threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / 100


def measure(command: list[str]) -> Measured:
    """Run one server through its life."""
    session = Session(command)
    degraded = 0
    while session.search(QUESTIONS[0]).get("structuredContent", {}).get("degraded"):
        degraded += 1
    first_answer = time.perf_counter() - session.started
    processor = session.processor()
    calls: list[float] = []
    for number in range(WARM_CALLS):
        before = time.perf_counter()
        session.search(QUESTIONS[number % len(QUESTIONS)])
        calls.append((time.perf_counter() - before) * 1000)
    memory = session.status("VmRSS") / 1024
    session.process.communicate(timeout=30)
    p95 = quantiles(calls, n=20)[-1]
    return Measured(session.handshake, first_answer, processor, degraded, median(calls), p95, memory)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description="Start, speed and memory of the MCP server.")
    parser.add_argument("--runs", type=int, default=5, help="runs of each server (default 5)")
    parser.add_argument("--index", type=Path, help="an index made with the local model")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        index = options.index or Path(folder, "index.db")
        if options.index is None:
            make = ["-m", "retrieval_core.cli", "index", str(ROOT / "docs"), "--index", str(index)]
            subprocess.run([sys.executable, *make], check=True)
        servers = {
            "bare one-tool server": [sys.executable, "-c", BARE],
            "retrieval-mcp": [sys.executable, "-m", "retrieval_core_mcp", "--index", str(index)],
        }
        for command in servers.values():
            measure(command)  # compiles what is not compiled yet
        rounds = [{name: measure(command) for name, command in servers.items()} for _ in range(options.runs)]
    columns = Measured.__slots__
    print(f"{'':<24}" + "".join(f"{name:>14}" for name in columns))
    for name in servers:
        figures = [median(getattr(run[name], column) for run in rounds) for column in columns]
        print(f"{name:<24}" + "".join(f"{figure:>14.2f}" for figure in figures))


if __name__ == "__main__":
    main()
