"""Three services that answer from one index, for two tenants, while documents change.

    python benchmarks/replicas.py [--calls N] [--services N] [--postgres URL] [--redis URL] [--grace SECONDS]
                                  [--minutes N]

Each tenant asks any of the services: searches, contexts, and calls of MCP's tool. Meanwhile documents of both are
replaced through any of them. Counts late answers (to a call that was sent after a newer text was acknowledged), stale
ones (late by more than the grace), leaks (texts of the other tenant), and errors. The exit code is 1 if there is one
that is stale, a leak or an error. The embedder is the tests' fake, which costs nothing. Without ``--postgres``, the
index is one of SQLite; with ``--redis``, the services share cached results.
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
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from random import Random
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any

import httpx2

TENANTS = ("acme", "globex")
WRITER = "writer"
SUBJECTS = 20
"""Documents of each tenant that are replaced."""
CALLERS = 8
WRITES = 0.03
"""Share of the calls that write."""
EMBEDDER = "retrieval_core.testing.fakes:FakeEmbedder"
_VERSION = re.compile(r"text (\d+) of (\w+) on subject(\d+)")


class Run:
    """What was written, and what was answered.

    Attributes:
        acknowledged: By tenant and subject, the versions with the time when each was acknowledged.
        latest: Seconds from the acknowledgement of a text to the last call that did not find it.
    """

    def __init__(self, urls: list[str], calls: int, grace: float, minutes: float) -> None:
        self.left = calls
        self.end = time.monotonic() + 60 * minutes
        self.grace = grace
        self.counts: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.latest = 0.0
        self.acknowledged: dict[tuple[str, int], list[tuple[int, float]]] = {}
        self.turns = {(tenant, subject): asyncio.Lock() for tenant in TENANTS for subject in range(SUBJECTS)}
        self.clients = [httpx2.AsyncClient(base_url=url, timeout=60) for url in urls]

    async def write(self, random: Random, tenant: str, subject: int) -> None:
        """Replace a document through one of the services."""
        async with self.turns[tenant, subject]:
            known = self.acknowledged.setdefault((tenant, subject), [])
            version = known[-1][0] + 1 if known else 0
            document = {
                "id": f"{tenant}-{subject}",
                "text": f"This is text {version} of {tenant} on subject{subject}, about the moon.",
                "metadata": {"tenant": tenant},
            }
            answer = await self.send(random, WRITER, "/v1/documents", {"documents": [document]})
            if answer.status_code == 200:
                known.append((version, time.monotonic()))
                self.counts["writes"] += 1
            else:
                self.count_error(answer)

    async def ask(self, random: Random, tenant: str, subject: int) -> None:
        """Ask one of the services, and check what it says."""
        query = f"text on subject{subject}"
        kind = random.choices(("search", "context", "mcp"), (8, 1, 1))[0]
        began = time.monotonic()
        if kind == "mcp":
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                    "params": {"name": "search", "arguments": {"query": query}}}  # fmt: skip
            answer = await self.send(random, tenant, "/mcp", body)
        else:
            answer = await self.send(random, tenant, f"/v1/{kind}", {"query_text": query})
        self.seconds.append(time.monotonic() - began)
        self.counts[kind] += 1
        if answer.status_code != 200:
            self.count_error(answer)
            return
        found = _VERSION.findall(answer.text)
        self.counts["leaks"] += any(owner != tenant for _, owner, _ in found)
        known = self.acknowledged[tenant, subject]
        seen = max((int(version) for version, _, which in found if int(which) == subject), default=-1)
        late = max((began - when for version, when in known if version > seen), default=0.0)
        self.counts["late"] += late > 0
        self.counts["stale"] += late > self.grace
        self.latest = max(self.latest, late)

    async def send(self, random: Random, token: str, path: str, body: object) -> httpx2.Response:
        """Send a request to one of the services."""
        headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
        return await random.choice(self.clients).post(path, json=body, headers=headers)

    def count_error(self, answer: httpx2.Response) -> None:
        """Count an answer that is an error, and print the first ones."""
        self.counts["busy" if answer.status_code == 503 else "errors"] += 1
        if self.counts["errors"] + self.counts["busy"] <= 3:
            print(answer.status_code, answer.text[:300], file=sys.stderr)

    async def call(self, seed: int) -> None:
        """Call the services until all calls are made, or the time is over."""
        random = Random(seed)
        while self.left > 0 and time.monotonic() < self.end:
            self.left -= 1
            what = random.choice(TENANTS), random.randrange(SUBJECTS)
            await (self.write if random.random() < WRITES else self.ask)(random, *what)

    async def main(self) -> None:
        """Write each document once, then make all calls."""
        for tenant, subject in self.turns:
            await self.write(Random(0), tenant, subject)
        await asyncio.gather(*(self.call(seed) for seed in range(CALLERS)))
        for client in self.clients:
            await client.aclose()


def start(running: ExitStack, options: argparse.Namespace, folder: Path) -> str:
    """Start a service, and return its address."""
    tokens = [f"sha256:{sha256(tenant.encode()).hexdigest()}:{tenant}" for tenant in TENANTS]
    tokens.append(f"sha256:{sha256(WRITER.encode()).hexdigest()}")
    settings = {
        "RETRIEVAL_INDEX": str(folder / "index.db"),
        "RETRIEVAL_EMBEDDER__KIND": EMBEDDER,
        "RETRIEVAL_MCP__HTTP__TOKENS": ",".join(tokens),
        "RETRIEVAL_MCP__HTTP__STATELESS": "true",
    }
    if options.postgres:
        settings |= {"RETRIEVAL_STORE__KIND": "postgres", "RETRIEVAL_STORE__POSTGRES__URL": options.postgres}
    if options.redis:
        settings |= {"RETRIEVAL_CACHE__KIND": "redis", "RETRIEVAL_CACHE__REDIS__URL": options.redis}
    process = running.enter_context(
        subprocess.Popen(
            [sys.executable, "-m", "retrieval_core_mcp", "--http", "127.0.0.1:0", "--allow-writes"],
            env={**os.environ, **settings},
            stderr=subprocess.PIPE,
            text=True,
        )
    )
    running.callback(process.terminate)
    assert process.stderr is not None
    for line in process.stderr:
        if (found := re.search(r"listens at (\S+)", line)) is not None:
            return found[1]
    msg = "a service did not start"
    raise RuntimeError(msg)


def main() -> int:
    """Run the calls, and print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--services", type=int, default=3)
    parser.add_argument("--postgres")
    parser.add_argument("--redis")
    parser.add_argument("--grace", type=float, default=0.0)
    parser.add_argument("--minutes", type=float, default=60.0)
    options = parser.parse_args()
    with TemporaryDirectory() as folder, ExitStack() as running:
        urls = [start(running, options, Path(folder)) for _ in range(options.services)]

        async def run() -> Run:
            made = Run(urls, options.calls, options.grace, options.minutes)
            await made.main()
            return made

        began = time.monotonic()
        run_ = asyncio.run(run())
        took = time.monotonic() - began
    counts: dict[str, Any] = {name: run_.counts[name] for name in ("stale", "leaks", "errors", "busy", *run_.counts)}
    cuts = quantiles(run_.seconds, n=100)
    times = {"p50_ms": cuts[49] * 1000, "p95_ms": cuts[94] * 1000, "latest_ms": run_.latest * 1000}
    counts["calls_per_second"] = round((options.calls - run_.left) / took)
    print(json.dumps(counts | {name: round(value, 1) for name, value in times.items()}, indent=1))
    return int(any(counts[name] for name in ("stale", "leaks", "errors")))


if __name__ == "__main__":
    sys.exit(main())
