"""One system in its own process, which reads requests and writes answers, a line each.

``python -m benchmarks.worker NAME COLLECTION PLACE SETTINGS`` first answers with the versions that take part. A request
is a JSON object whose ``do`` names one of :class:`Worker`'s methods, the rest of it that method's arguments; the answer
is what it returns, or ``{"error": …}``. What a library prints goes to stderr.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.metadata import version
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.collection import FILTERS, TOP_K, Mode, opened
from benchmarks.peers import PEERS, Searches, SearchesAsync

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Worker:
    """Answers requests for one system over one collection.

    Attributes:
        versions: Of the distributions that take part.
    """

    def __init__(self, name: str, folder: str, place: str, settings: Mapping[str, str]) -> None:
        peer = PEERS[name]
        self.versions = {package: version(package) for package in peer.packages}
        self._collection = opened(Path(folder))
        module = import_module(f"benchmarks.peers.{peer.module}")
        self._system: Searches = module.System(self._collection, Path(place), {**settings, "system": name})
        self._runner = asyncio.Runner()

    def load(self) -> dict[str, Any]:
        """Take the passages in."""
        return {"seconds": _seconds(self._system.load)}

    def open(self) -> dict[str, Any]:
        """Make ready to search."""
        return {"seconds": _seconds(self._system.open)}

    def search(self, numbers: Sequence[int], share: str | None = None, mode: Mode = "hybrid") -> dict[str, Any]:
        """Ask questions one after the other; return milliseconds and rows of each, and processor seconds of all."""
        condition = None if share is None else FILTERS[share]
        questions = [self._collection.question(number, condition, mode) for number in numbers]
        took: list[float] = []
        found: list[list[int]] = []
        processor = self._processor_time()
        for question in questions:
            began = time.perf_counter()
            rows = self._system.search(question)
            took.append(1000 * (time.perf_counter() - began))
            found.append(rows[:TOP_K])
        return {"milliseconds": took, "found": found, "processor": self._processor_time() - processor}

    def together(self, callers: int, seconds: float, first: int) -> dict[str, Any]:
        """Ask from so many callers at once, each its next question when one is answered, until the time is over.

        Callers are tasks of one event loop where the system has an API for that, otherwise threads. All have their
        first question at the start, and each gets at least that one answered, however late its turn comes.
        """
        numbers = count(first)
        if isinstance(self._system, SearchesAsync):
            began, took = time.perf_counter(), self._runner.run(self._tasks(self._system, callers, seconds, numbers))
        else:
            began, took = time.perf_counter(), self._threads(callers, seconds, numbers)
        elapsed = time.perf_counter() - began
        how = "tasks" if isinstance(self._system, SearchesAsync) else "threads"
        return {"seconds": elapsed, "milliseconds": took, "how": how}

    def memory(self) -> dict[str, Any]:
        """Return resident memory in MB, now and at most, and its server's if it has one, where known (Linux)."""
        status = Path("/proc/self/status")
        if not status.exists():
            return {"now": None, "most": None}
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        memory = {name: int(fields[field].split()[0]) / 1024 for name, field in (("now", "VmRSS"), ("most", "VmHWM"))}
        server = getattr(self._system, "server", None)
        return memory if server is None else {**memory, "server": server.memory()}

    def _processor_time(self) -> float:
        server = getattr(self._system, "server", None)
        return time.process_time() + (0 if server is None else server.processor_time())

    def close(self) -> None:
        """Give back what is open."""
        self._system.close()
        self._runner.close()

    async def _tasks(self, system: SearchesAsync, callers: int, seconds: float, numbers: Iterator[int]) -> list[float]:
        took: list[float] = []
        start = time.perf_counter()

        async def call() -> None:
            asked = start
            while True:
                await system.asearch(self._collection.question(next(numbers)))
                answered = time.perf_counter()
                took.append(1000 * (answered - asked))
                if answered >= start + seconds:
                    return
                asked = answered

        await asyncio.gather(*(call() for _ in range(callers)))
        return took

    def _threads(self, callers: int, seconds: float, numbers: Iterator[int]) -> list[float]:
        took: list[float] = []
        start = time.perf_counter()

        def call(_: int) -> None:
            asked = start
            while True:
                self._system.search(self._collection.question(next(numbers)))
                answered = time.perf_counter()
                took.append(1000 * (answered - asked))
                if answered >= start + seconds:
                    return
                asked = answered

        with ThreadPoolExecutor(callers) as pool:
            list(pool.map(call, range(callers)))
        return took


def _seconds(act: Any) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def main() -> None:
    """Make the system, and answer until the requests end."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        name, folder, place, settings = sys.argv[1:]
        worker: Worker | None = None
        for line in chain(("{}",), sys.stdin):
            try:
                request: dict[str, Any] = json.loads(line)
                if worker is None:
                    worker = Worker(name, folder, place, json.loads(settings))
                    answer: dict[str, Any] = {"versions": worker.versions}
                else:
                    answer = getattr(worker, request.pop("do"))(**request)
            except Exception:  # noqa: BLE001  # whatever a library raises is told to the driver
                answer = {"error": traceback.format_exc()}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
        if worker is not None:
            worker.close()


if __name__ == "__main__":
    main()
