"""What the service over HTTP carries, beside a route of the same framework that does nothing, and what happens beyond.

    python benchmarks/http_load.py [--seconds N] [--overload N] [--passages N]

Needs Linux and ``wrk``. The server has one processor and the load another one. Questions differ from each other, so
that neither the cache nor a search under way answers them; the embedder is the tests' fake, which costs nothing: it is
the library and the service that are measured. Prints requests a second and percentiles of latency at 1, 8 and 64
connections; the specification's numbers; and with ``--overload`` what so many seconds of four times as much lead to.
The exit code is 1 where a promise for that is not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from retrieval_core import Chunk, load_config
from retrieval_core.index.open import open_index

if TYPE_CHECKING:
    from collections.abc import Generator

SERVER_CPU, LOAD_CPU = "0", "1"
CONNECTIONS = (1, 8, 64)
REQUEST_SECONDS = 5.0
"""The service's limit for a request in these runs."""
TOP_K = 10
WORDS = (
    "engine", "boiler", "valve", "pump", "filter", "motor", "wheel", "clutch", "gear", "shaft", "seal", "bolt",
    "spring", "hose", "tank", "gauge",
)  # fmt: skip
CONFIG = """
[embedder]
kind = "retrieval_core.testing.fakes:FakeEmbedder"
"""
BARE = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

async def search(request):
    await request.json()
    return Response(b"{" + b" " * int(sys.argv[2]) + b"}", media_type="application/json")

app = Starlette(routes=[Route("/v1/search", search, methods=["POST"])])
print("retrieval-mcp listens at http://127.0.0.1:" + sys.argv[1], file=sys.stderr, flush=True)
uvicorn.run(app, port=int(sys.argv[1]), log_level="error", access_log=False)
"""
LUA = """
local number = 0
function request()
  number = number + 1
  local body = string.format('{"query_text": "the %s and the seal number %d of %d", "top_k": %d}', "pump", number, SEED, TOP_K)
  return wrk.format("POST", "/v1/search", {["Content-Type"] = "application/json"}, body)
end
function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format("RESULT %d %d %d %d %d %d %d\\n", summary.requests, summary.duration, latency:percentile(50),
    latency:percentile(95), latency:percentile(99), errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
"""  # noqa: E501


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of ``wrk``: requests a second, percentiles in milliseconds, and answers that were no success."""

    rate: float
    p50: float
    p95: float
    p99: float
    failed: int


@dataclass(slots=True)
class Overloaded:
    """What came of requests at a steady rate: how many ended with which status, and seconds of each."""

    statuses: Counter[str] = field(default_factory=Counter[str])
    seconds: list[float] = field(default_factory=list[float])


@dataclass(frozen=True, slots=True)
class Server:
    """A process that serves at a port."""

    pid: int
    port: int

    def memory(self, name: str = "VmRSS") -> float:
        """Return resident memory in MB; ``VmHWM`` for the most that there was."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.findall(rf"{name}:\s+(\d+) kB", status)[0]) / 1024


@contextmanager
def serving(command: list[str], **environment: str) -> Generator[Server]:
    """Run a server on its processor, as soon as it listens."""
    process = subprocess.Popen(
        ["taskset", "-c", SERVER_CPU, sys.executable, *command],
        stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
    )  # fmt: skip
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert "listens at" in line, line + process.stderr.read()
        yield Server(process.pid, int(line.rpartition(":")[2]))
    finally:
        process.terminate()
        process.wait()


def load(server: Server, connections: int, seconds: int, folder: Path) -> Measured:
    """Ask as fast as so many connections can."""
    script = folder / "ask.lua"
    script.write_text(LUA.replace("SEED", str(time.monotonic_ns() % 10**9)).replace("TOP_K", str(TOP_K)))
    command = ["taskset", "-c", LOAD_CPU, "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "60s"]
    command += ["-s", str(script), f"http://127.0.0.1:{server.port}"]
    said = ""
    for _ in range(100):  # until the port of the bare route is open
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if found := re.search(r"RESULT (.*)", ended.stdout):
            count, micros, p50, p95, p99, status, broken = map(int, found[1].split())
            return Measured(count / micros * 1e6, p50 / 1000, p95 / 1000, p99 / 1000, status + broken)
        said = ended.stderr
        time.sleep(0.1)
    raise RuntimeError(said)


class Client:
    """A connection that is kept open, for requests one after the other."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, question: str, top_k: int = TOP_K) -> tuple[int, bytes]:
        """Return the status and the body of an answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        body = json.dumps({"query_text": question, "top_k": top_k}).encode()
        head = "POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
        writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(re.findall(rb"content-length: (\d+)", answer)[0])
        return int(answer[9:12]), await reader.readexactly(length)

    def close(self) -> None:
        """Close the connection, where it is open."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def overload(server: Server, rate: float, seconds: float, workers: int = 512) -> Overloaded:
    """Ask at a steady rate, whatever is answered, with so many connections in turn."""
    told = Overloaded()
    start = time.monotonic()

    async def work(number: int) -> None:
        client, turn = Client(server.port), number
        while (due := turn / rate) < seconds:
            await asyncio.sleep(start + due - time.monotonic())
            began = time.monotonic()
            try:
                status, _ = await client.ask(f"the valve of {turn} and {began}")
                told.statuses[str(status)] += 1
            except (OSError, asyncio.IncompleteReadError) as error:
                told.statuses[type(error).__name__] += 1
                client.close()
            told.seconds.append(time.monotonic() - began)
            turn += workers
        client.close()

    await asyncio.gather(*(work(number) for number in range(workers)))
    return told


async def times_of(server: Server, count: int, *, top_k: int = TOP_K, same: bool = False) -> tuple[list[float], bytes]:
    """Return milliseconds of requests one after the other, and the last body."""
    client, body = Client(server.port), b""
    times: list[float] = []
    for number in range(count):
        began = time.perf_counter()
        _, body = await client.ask("the pump and its valve" if same else f"the pump {number} {began}", top_k)
        times.append((time.perf_counter() - began) * 1000)
    client.close()
    return times, body


async def side_by_side(server: Server, count: int, top_k: int) -> None:
    """Ask so many questions at the same time."""
    clients = [Client(server.port) for _ in range(count)]
    began = time.monotonic()
    await asyncio.gather(*(client.ask(f"the tank {number} {began}", top_k) for number, client in enumerate(clients)))
    for client in clients:
        client.close()


def fill(folder: Path, passages: int) -> list[str]:
    """Make an index and return the command that serves it."""
    config, index = folder / "config.toml", folder / "index.db"
    config.write_text(CONFIG)
    with open_index(config=load_config(config, {"index": str(index)}, {})) as filled:
        filled.add(
            [
                Chunk(
                    f"d{row}#0", f"d{row}", " ".join(WORDS[(row * step) % 16] for step in range(1, 125)), title=f"{row}"
                )
                for row in range(passages)
            ]
        )
    return ["-m", "retrieval_core_mcp", "--http", "127.0.0.1:0", "--index", str(index), "--config", str(config)]


def show_throughput(command: list[str], seconds: int, folder: Path) -> float:
    """Print the table of throughput, and return what the service carried at most."""
    print("| | connections | requests/s | p50 ms | p95 ms | p99 ms | failed |\n|---|---|---|---|---|---|---|")
    best = 0.0
    with serving(command, **environment()) as service:
        body = asyncio.run(times_of(service, 20))[1]
        bare = ["-c", BARE, "18765", str(len(body) - 2)]
        with serving(bare) as nothing:
            for connections in CONNECTIONS:
                for name, server in (("bare route", nothing), ("service", service)):
                    seen = load(server, connections, seconds, folder)
                    best = max(best, seen.rate) if server is service else best
                    row = f"{seen.rate:,.0f} | {seen.p50:.1f} | {seen.p95:.1f} | {seen.p99:.1f} | {seen.failed}"
                    print(f"| {name} | {connections} | {row} |", flush=True)
    return best


def environment() -> dict[str, str]:
    """Return settings with which every question is searched for."""
    return {"RETRIEVAL_CACHE__KIND": "none", "RETRIEVAL_MCP__HTTP__REQUEST_SECONDS": str(REQUEST_SECONDS)}


def show_overload(command: list[str], capacity: float, seconds: float) -> bool:
    """Print what four times the capacity leads to, and return whether all promises were kept."""
    with serving(command, **environment()) as server:
        asyncio.run(overload(server, 4 * capacity, 10))  # warm, with what a busy server keeps
        before, memory = median(asyncio.run(times_of(server, 50))[0]), server.memory()
        told = asyncio.run(overload(server, 4 * capacity, seconds))
        grown = server.memory() / memory - 1
        time.sleep(1)
        after = median(asyncio.run(times_of(server, 50))[0])
    served = sum(count for status, count in told.statuses.items() if status.startswith("2")) / seconds
    others = {status for status in told.statuses if not re.fullmatch(r"2..|429|503", status)}
    promises = {
        f"every request ends within {REQUEST_SECONDS * 1.1:g} s: {max(told.seconds):.2f} s": max(told.seconds)
        <= REQUEST_SECONDS * 1.1,
        f"memory grows by less than 10 %: {grown:+.1%} of {memory:.0f} MB": grown < 0.1,
        f"at least 80 % of {capacity:.0f} requests/s are served: {served / capacity:.0%}": served >= 0.8 * capacity,
        f"nothing but 2xx, 429 and 503: {dict(told.statuses)}": not others,
        f"a second later one request takes what it took: {before:.1f} ms, then {after:.1f} ms": after
        < 1.5 * before + 2,
    }
    print(f"\n{4 * capacity:.0f} requests/s for {seconds:g} s:")
    for promise, kept in promises.items():
        print(f"- {'kept' if kept else 'BROKEN'}: {promise}")
    return all(promises.values())


def show_numbers(command: list[str]) -> None:
    """Print the specification's numbers beside those measured."""
    with serving(command, **environment()) as server:
        asyncio.run(times_of(server, 20))
        p95 = quantiles(asyncio.run(times_of(server, 100))[0], n=20)[-1]
        body = asyncio.run(times_of(server, 1))[1]
        small = len(asyncio.run(times_of(server, 1, top_k=5))[1])
        asyncio.run(times_of(server, 3, top_k=1000))
        memory = server.memory("VmHWM")
        asyncio.run(side_by_side(server, 8, 1000))
        each = (server.memory("VmHWM") - memory) / 8
    with serving(command, RETRIEVAL_CACHE__KIND="memory") as server:
        whole = median(asyncio.run(times_of(server, 200, same=True))[0])
    results = [len(json.dumps(result)) for result in json.loads(body)["results"]]
    query = len(json.dumps({"query_text": "How do I set up a vector database?", "top_k": 10}))
    rows: list[tuple[str, str, str, bool]] = [
        ("total, p95 of one after the other", f"{p95:.1f} ms", "< 2,000 ms", p95 < 2000),
        ("the same and 300 ms of vendors, computed", f"{p95 + 300:.0f} ms", "< 2,000 ms", p95 < 1700),
        ("formatting 10 results: a whole request out of the cache", f"{whole:.1f} ms", "< 10 ms", whole < 10),
        ("size of a query", f"{query} bytes", "about 100", query < 200),
        ("size of a result", f"{min(results)} to {max(results)} bytes", "500 to 2,000",
         500 <= min(results) <= max(results) <= 2000),
        ("size of an answer with 5 and 10 results", f"{small:,} and {len(body):,} bytes", "5 to 10 KB",
         small >= 5_000 and len(body) <= 10_240),
        ("memory of a query with top_k 1000, eight at a time", f"{each:.1f} MB each", "2 to 5 MB", each <= 5),
    ]  # fmt: skip
    print("\n| | measured | target | met |\n|---|---|---|---|")
    for name, measured, target, met in rows:
        print(f"| {name} | {measured} | {target} | {'yes' if met else 'no'} |")


def main() -> int:
    """Measure, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=int, default=10, help="of each run")
    parser.add_argument("--overload", type=float, default=0, help="seconds at four times the capacity")
    parser.add_argument("--passages", type=int, default=2000)
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        command = fill(folder, options.passages)
        capacity = show_throughput(command, options.seconds, folder)
        show_numbers(command)
        return 0 if not options.overload or show_overload(command, capacity, options.overload) else 1


def _load_stays_on_its_processor() -> None:
    os.sched_setaffinity(0, {int(LOAD_CPU)})


if __name__ == "__main__":
    _load_stays_on_its_processor()
    sys.exit(main())
