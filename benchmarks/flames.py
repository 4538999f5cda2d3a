"""What the time goes into before and after a change, function by function. Needs ``py-spy`` and Linux.

    python -m benchmarks flames SCENARIO --before CHECKOUT [--rounds N] [--files FOLDER] [--svg FILE]

``CHECKOUT`` is the former state, as ``git worktree add`` makes it; it runs with the interpreter and the benchmarks of
this one. The scenarios: a ``cold`` question to 10,000 passages that are made up, its vector given, without a result
cache; a ``cached`` one, asked again and again; the ``start`` of ``retrieval search`` over this documentation, to its
end; and ``indexing`` a folder of Markdown, by file.

Both states take turns: each round times one and then the other, and does the same once more for py-spy, which looks 250
times a second at all threads but those that wait. What is drawn is processor time, as the system counts it where nobody
looks, divided among the functions by what was seen: other work on the machine makes it hardly longer. py-spy sees the
threads of Python alone, so what onnxruntime does in several counts as one.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import signal
import subprocess
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.collection import make, opened
from benchmarks.flames_picture import draw, own_times, trimmed
from benchmarks.report import machine
from benchmarks.sessions import ROOT, environment, processor_of
from benchmarks.start import QUESTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.flames_picture import Stacks

RATE = 250
PASSAGES, DIFFERENT = 10_000, 2_000
OPERATIONS = {"cold": 300, "cached": 10_000}
"""Questions of a round."""
RUN = [sys.executable, "-m", "retrieval_core.cli"]
WHAT = {
    "cold": f"A hybrid question to {PASSAGES:,} passages, without its embedding and without a result cache",
    "cached": f"A question to {PASSAGES:,} passages whose result is in the cache",
    "start": "retrieval search over this documentation, from the start of its process to its end",
    "indexing": "Indexing a file of Markdown, with the local model",
}


class Asked:
    """A process with an open index, which asks as many questions as it is told to."""

    def __init__(self, scenario: str, path: dict[str, str], place: Path, collection: Path) -> None:
        place.mkdir()
        self.operations = OPERATIONS[scenario]
        code = "from benchmarks.flames import ask; ask()"
        command = [sys.executable, "-c", code, scenario, str(place), str(collection)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=path, cwd=ROOT, text=True
        )
        self.run()

    def run(self) -> float:
        """Ask the questions of a round, and return the processor seconds that it took."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        before = processor_of(self._process.pid)
        self._process.stdin.write(f"{self.operations}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline(), "the process has ended"
        return processor_of(self._process.pid) - before

    def sample(self, spy: Sequence[str]) -> None:
        """Do so while it is looked at."""
        command = [*spy, "--pid", str(self._process.pid)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as spying:
            assert spying.stdout is not None
            assert "Sampling" in (line := spying.stdout.readline()), line
            self.run()
            spying.send_signal(signal.SIGINT)
            spying.communicate()

    def end(self) -> None:
        """Let the process end."""
        self._process.communicate()


class Command:
    """A command, which is run anew each time."""

    def __init__(self, arguments: Sequence[str], path: dict[str, str], operations: int, made: Path | None) -> None:
        self.operations = operations
        self._command = [*RUN, *arguments]
        self._path = path
        self._made = made
        if made is None:
            self.run()  # writes bytecode that is not there yet

    def run(self) -> float:
        """Run it, and return the processor seconds that it took; what it makes is removed before."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.sample([])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def sample(self, spy: Sequence[str]) -> None:
        """Run it while it is looked at."""
        if self._made is not None:
            self._made.unlink(missing_ok=True)
        subprocess.run(
            [*spy, *(["--"] if spy else []), *self._command], env=self._path, check=True, capture_output=True
        )

    def end(self) -> None:
        """There is nothing to end."""


def ask() -> None:
    """Make an index, and ask it as many questions as each line of the input says."""
    from benchmarks.peers.ours import System

    scenario, place, folder = sys.argv[1:]
    collection = opened(Path(folder))
    cached = scenario == "cached"
    system = System(collection, Path(place), {"system": "retrieval-core", "cache.kind": "memory" if cached else "none"})
    system.load()
    system.open()

    async def questions(first: int, number: int) -> None:
        for row in range(first, first + number):
            await system.asearch(collection.question(0 if cached else row))

    with asyncio.Runner() as runner:
        asked = 0
        for line in sys.stdin:
            runner.run(questions(asked, int(line)))
            asked += int(line)
            print("done", flush=True)
    system.close()


def subject(scenario: str, checkout: Path, work: Path, files: Path) -> Asked | Command:
    """Return one state of the library in a scenario."""
    path = environment({"PYTHONPATH": str(checkout / "packages/retrieval_core/src")})
    if scenario in OPERATIONS:
        return Asked(scenario, path, work, work.parent / "collection")
    work.mkdir()
    index = work / "index.db"
    if scenario == "indexing":
        return Command(["index", str(files), "--index", str(index)], path, len(list(files.rglob("*.md"))), index)
    made = [*RUN, "index", str(ROOT / "docs"), "--index", str(index)]
    subprocess.run(made, env=path, check=True, capture_output=True)
    return Command(["search", QUESTIONS[0], "--index", str(index)], path, 1, None)


def measured(subjects: dict[str, Asked | Command], spy: str, rounds: int, file: Path) -> dict[str, Stacks]:
    """Return the stacks of each, in milliseconds an operation, and print what it takes without being looked at."""
    record = [spy, "record", "--format", "raw", "--function", "--rate", str(RATE), "--output", str(file)]
    elapsed: dict[str, list[float]] = {name: [] for name in subjects}
    processor: dict[str, list[float]] = {name: [] for name in subjects}
    seen: dict[str, defaultdict[tuple[str, ...], int]] = {name: defaultdict(int) for name in subjects}
    for _ in range(rounds):
        for name, one in subjects.items():
            began = time.perf_counter()
            processor[name].append(1000 * one.run() / one.operations)
            elapsed[name].append(1000 * (time.perf_counter() - began) / one.operations)
            one.sample(record)
            for line in file.read_text("utf-8").splitlines():
                stack, _, count = line.rpartition(" ")
                if kept := trimmed(stack):
                    seen[name][kept] += int(count)
    for what, times in (("elapsed", elapsed), ("processor", processor)):
        before, after = times.values()
        ratio = median(one / other for one, other in zip(before, after, strict=True))
        print(f"{what}: {median(before):.3g} ms before, {median(after):.3g} after, ratio {ratio:.3g}, {rounds} rounds")
    return {name: _scaled(stacks, median(processor[name])) for name, stacks in seen.items()}


def _scaled(seen: Mapping[tuple[str, ...], int], total: float) -> Stacks:
    share = total / sum(seen.values())
    return {stack: share * count for stack, count in seen.items()}


def main(argv: Sequence[str]) -> int:
    """Measure, print what takes longest by itself, and draw."""
    parser = argparse.ArgumentParser(prog="benchmarks flames", description="What the time goes into, before and after.")
    parser.add_argument("scenario", choices=WHAT)
    parser.add_argument("--before", type=Path, required=True, metavar="CHECKOUT", help="the former state")
    parser.add_argument("--rounds", type=int, default=10, help="of both states, at least 1 (default 10)")
    parser.add_argument("--files", type=Path, default=ROOT / "docs", metavar="FOLDER", help="that is indexed")
    parser.add_argument("--spy", default="py-spy", metavar="COMMAND", help="py-spy, where it is not in the path")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw here")
    options = parser.parse_args(argv)
    with TemporaryDirectory(prefix="benchmark-") as folder:
        work = Path(folder)
        if options.scenario in OPERATIONS:
            (work / "collection").mkdir()
            make(work / "collection", PASSAGES, DIFFERENT)
        checkouts = {"before": options.before.resolve(), "after": ROOT}
        subjects = {name: subject(options.scenario, at, work / name, options.files) for name, at in checkouts.items()}
        graphs = measured(subjects, options.spy, options.rounds, work / "stacks")
        for one in subjects.values():
            one.end()
    for name, stacks in graphs.items():
        print(f"{name}, by themselves:")
        total = sum(stacks.values())
        for frame, spent in list(own_times(stacks).items())[:15]:
            print(f"  {spent / total:4.0%}  {spent:.2g} ms  {frame}")
    if options.svg is not None:
        beneath = f"Milliseconds of processor time, by {RATE} looks a second. {datetime.now(UTC).date()}, {machine()}."
        options.svg.write_text(draw(WHAT[options.scenario], [beneath], graphs), "utf-8")
    return 0
