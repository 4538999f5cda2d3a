"""From the start of a process to its first complete answer, beside a server of the same protocol library. Needs Linux.

    python -m benchmarks.start [--runs N] [--index FILE] [--peers FOLDER] [--json FILE] [--svg FILE]

Prints, as medians over runs that take turns: seconds until the handshake is answered and until the first answer is
complete (of a search by meaning, with nothing degraded), how much that is above the bare server's in the same round,
and the processor seconds until then, in all threads; of servers also milliseconds of a warm search, with questions that
were not asked before, resident memory after 50 of them, and characters of an answer. A command's answer is its end.

Bytecode is written beforehand, as pip does it. Without ``--index`` an index of the documentation is made first, with
the local model. With ``--peers``, a folder as in ``mcp_peers.py``, other servers are measured too. ``--svg`` draws what
one more run spends its time on, which is a little slower than the others.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import mean, median, quantiles
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.mcp_peers import filled_peers
from benchmarks.sessions import ROOT, HttpSession, Session, Subject, environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BARE = """
import sys
from mcp.server import MCPServer

server = MCPServer("bare", log_level="WARNING")

@server.tool()
def search(query: str) -> str:
    "Give back what was asked."
    return query

if len(sys.argv) > 1:
    server.run("streamable-http", port=int(sys.argv[1]))
else:
    server.run()
"""
QUESTIONS = [
    "how do I filter by price", "which settings are there", "make an embedder of my own", "what is an index",
    "search by words only", "how are documents split", "the fusion of both sides", "limits of the server",
]  # fmt: skip
WARM_CALLS = 50
BARE_STDIO, BARE_HTTP = "bare server, stdio", "bare server, HTTP"
OWN_STDIO, OWN_HTTP = "retrieval-mcp, stdio", "retrieval-mcp, HTTP"


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: seconds, but for warm calls in milliseconds, memory in MB and answers in characters."""

    first_answer: float
    processor: float
    handshake: float | None = None
    p50: float | None = None
    p95: float | None = None
    memory: float | None = None
    characters: float | None = None


def measure(subject: Subject) -> Measured:
    """Run a subject through its life."""
    if subject.kind == "command":
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.perf_counter()
        subprocess.run(subject.command, stdout=subprocess.DEVNULL, env=environment(subject.environment), check=True)
        ended = time.perf_counter()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return Measured(ended - started, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    session = (HttpSession if subject.kind == "http" else Session)(subject.command, subject.environment)
    session.complete(subject, QUESTIONS[0])
    first_answer = time.perf_counter() - session.started
    processor = session.processor()
    calls: list[float] = []
    sizes: list[int] = []
    for number in range(WARM_CALLS):
        question = f"{QUESTIONS[number % len(QUESTIONS)]} number {number}"
        before = time.perf_counter()
        answer = session.complete(subject, question)
        calls.append((time.perf_counter() - before) * 1000)
        sizes.append(sum(len(part.get("text", "")) for part in answer["content"]))
    memory = session.status("VmRSS") / 1024
    session.end()
    p95 = quantiles(calls, n=20)[-1]
    return Measured(first_answer, processor, session.handshake, median(calls), p95, memory, mean(sizes))


def subjects(index: Path) -> dict[str, Subject]:
    """Return what is measured, but for peers; all of ours over one index."""
    python = sys.executable
    run = [python, "-m", "retrieval_core.cli"]
    serve = [python, "-m", "retrieval_core_mcp", "--index", str(index)]
    return {
        "empty interpreter": Subject([python, "-c", ""]),
        "import numpy": Subject([python, "-c", "import numpy"]),
        "import pydantic": Subject([python, "-c", "import pydantic; pydantic.BaseModel"]),
        "import retrieval_core": Subject([python, "-c", "import retrieval_core"]),
        "retrieval --help": Subject([*run, "--help"]),
        "retrieval search": Subject([*run, "search", QUESTIONS[0], "--index", str(index)]),
        BARE_STDIO: Subject([python, "-c", BARE], "stdio"),
        OWN_STDIO: Subject(serve, "stdio"),
        BARE_HTTP: Subject([python, "-c", BARE], "http"),
        OWN_HTTP: Subject([*serve, "--http"], "http"),
    }


def bare_of(subject: Subject) -> str:
    """Return the name of the bare server that a subject is held against."""
    return BARE_HTTP if subject.kind == "http" else BARE_STDIO


def rows_of(measured: Mapping[str, Subject], rounds: Sequence[Mapping[str, Measured]]) -> list[dict[str, Any]]:
    """Return a row for each subject: medians over the rounds."""
    rows: list[dict[str, Any]] = []
    for name, subject in measured.items():
        runs = [asdict(one[name]) for one in rounds]
        row: dict[str, Any] = {"name": name}
        for column in Measured.__slots__:
            values = [run[column] for run in runs if run[column] is not None]
            row[column] = median(values) if values else None
        above = [one[name].first_answer - one[bare_of(subject)].first_answer for one in rounds]
        asks = subject.kind != "command" or "search" in subject.command
        row["above_bare"] = median(above) if asks and not name.startswith("bare") else None
        rows.append(row)
    return rows


COLUMNS = {
    "name": "", "handshake": "handshake, s", "first_answer": "first complete answer, s",
    "above_bare": "above the bare server, s", "processor": "processor, s",
    "p50": "warm search p50, ms", "p95": "p95, ms", "memory": "memory, MB", "characters": "characters of an answer",
}  # fmt: skip


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table."""

    def shown(column: str, value: Any) -> str:
        if value is None:
            return "–"  # noqa: RUF001 - an empty cell, as in all tables of the documentation
        digits = {"name": "", "memory": ".0f", "characters": ",.0f", "p50": ".1f", "p95": ".1f"}.get(column, ".3f")
        return format(value, digits)

    lines = ["| " + " | ".join(COLUMNS.values()) + " |", "|---" * len(COLUMNS) + "|"]
    lines += ["| " + " | ".join(shown(column, row[column]) for column in COLUMNS) + " |" for row in rows]
    return "\n".join(lines)


def traced(name: str, subject: Subject, folder: Path) -> dict[str, Any]:
    """Return what one run of a subject spends its time on, see ``start_trace.py``."""
    file = folder / "trace.json"
    code = subject.command[1] == "-c"
    given = ["-c", *subject.command[2:]] if code else subject.command[2:]
    command = [sys.executable, str(ROOT / "benchmarks/start_trace.py"), str(file), *given]
    if subject.kind == "command":
        started = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, env=environment({}), check=True)
        moments = {"answer": time.perf_counter() - started}
    else:
        session = Session(command)
        started = session.started
        session.complete(subject, QUESTIONS[0])
        moments = {"handshake": session.handshake, "answer": time.perf_counter() - started}
        session.end()
    spans = [
        {**span, "begin": span["begin"] - started, "end": span["end"] - started}
        for span in json.loads(file.read_text("utf-8"))
    ]
    return {"name": name, "moments": moments, "spans": spans}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and write the files that are asked for."""
    parser = argparse.ArgumentParser(prog="benchmarks start", description="From process start to complete answer.")
    parser.add_argument("--runs", type=int, default=7, help="runs of each, at least 1 (default 7)")
    parser.add_argument("--index", type=Path, help="an index made with the local model")
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="the environments of other servers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw here where the time goes")
    options = parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        work = Path(folder)
        index: Path = options.index or work / "index.db"
        if options.index is None:
            make = [sys.executable, "-m", "retrieval_core.cli", "index", str(ROOT / "docs"), "--index", str(index)]
            subprocess.run(make, stdout=subprocess.DEVNULL, env=environment({}), check=True)
        measured = subjects(index)
        if options.peers is not None:
            measured |= filled_peers(options.peers, work, index)
        for subject in measured.values():
            measure(subject)  # writes bytecode that is not there yet
        rounds = [{name: measure(subject) for name, subject in measured.items()} for _ in range(options.runs)]
        rows = rows_of(measured, rounds)
        print(markdown(rows))
        if options.json is not None:
            told = {
                "date": datetime.now(UTC).date().isoformat(),
                "machine": f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
                "versions": {name: version(name) for name in ("mcp", "numpy", "onnxruntime", "pydantic", "tokenizers")},
                "runs": options.runs,
                "rows": rows,
            }
            options.json.write_text(json.dumps(told, indent=2) + "\n", "utf-8")
        if options.svg is not None:
            from benchmarks.start_picture import draw

            names = (BARE_STDIO, OWN_STDIO, "retrieval search")
            options.svg.write_text(draw([traced(name, measured[name], work) for name in names]), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
