"""Whether the MCP server's memory stays flat: many calls of every tool that reads, by several servers on one index.

    python -m benchmarks.mcp_soak [--calls N] [--servers N] [--index FILE]

The calls are shared by the servers, which take turns, while another process writes to the index now and then. Results
that are kept are bounded to a hundred, so that these are full after the first calls. Prints the resident memory of each
server after each tenth of the calls, and percentiles of a call's time. The exit code is 1 where an answer is an error,
or a server has grown by more than a tenth from the second tenth of the calls to the end. Without ``--index`` it first
makes an index of the documentation, with the local model. Needs Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.sessions import ROOT, Session
from benchmarks.start import QUESTIONS

MOST_GROWTH = 1.1
WRITES = 20


def calls_of(session: Session) -> list[tuple[str, dict[str, Any]]]:
    """Return a call of each tool that reads, with ids that a search has found."""
    answer = session.ask("tools/call", {"name": "search", "arguments": {"query": QUESTIONS[0], "top_k": 20}})
    ids = re.findall(r"(?m)^id: (.*)$", answer["content"][0]["text"])
    return [
        ("search", {"query": "", "top_k": 5}),
        ("search", {"query": "", "top_k": 30}),
        ("fetch", {"id": ids[0], "around": 2}),
        ("fetch", {"id": ids[1].rpartition("#")[0]}),
        ("retrieve_context", {"query": ""}),
        ("get_neighbors", {"id": ids[2]}),
        ("explain", {"query": "", "id": ids[3]}),
        ("list", {}),
        ("list", {"path": "a"}),
        ("verify_citation", {"id": ids[4], "quote": "the"}),
    ]


def main() -> int:
    """Run the calls, and print the table."""
    parser = argparse.ArgumentParser(description="Many calls of the MCP server.")
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--index", type=Path, help="an index made with the local model")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        index = Path(folder, "index.db")
        make = [sys.executable, "-m", "retrieval_core.cli", "index", "--index", str(index)]
        if options.index is None:
            subprocess.run([*make, str(ROOT / "docs")], check=True)
        else:
            shutil.copy(options.index, index)
        command = [sys.executable, "-m", "retrieval_core_mcp", "--index", str(index)]
        os.environ.update({"RETRIEVAL_CACHE__MAX_SIZE": "100", "RETRIEVAL_CACHE__EMBEDDINGS": "100"})
        sessions = [Session(command) for _ in range(options.servers)]
        calls = calls_of(sessions[0])
        choose = random.Random(7)
        memory: list[list[float]] = []
        took: list[float] = []
        failed = 0
        for number in range(options.calls):
            tool, given = calls[number % len(calls)]
            if "query" in given:
                words = (choose.choice(QUESTIONS), f"number {choose.randrange(5_000)}")
                given = {**given, "query": " ".join(words)}
            before = time.perf_counter()
            answer = sessions[number % len(sessions)].ask("tools/call", {"name": tool, "arguments": given})
            took.append((time.perf_counter() - before) * 1000)
            if answer.get("isError"):
                failed += 1
                print(tool, given, json.dumps(answer)[:300])
            if (number + 1) % (options.calls // 10) == 0:
                memory.append([session.status("VmRSS") / 1024 for session in sessions])
                print(f"{number + 1:>8}" + "".join(f"{each:>10.1f} MB" for each in memory[-1]), flush=True)
            if (number + 1) % (options.calls // WRITES) == 0:
                note = Path(folder, "note.md")
                note.write_text(f"# A note\n\nIt was written after call {number}.\n")
                subprocess.run([*make, str(note)], check=True, stdout=subprocess.DEVNULL)
        for session in sessions:
            session.process.communicate(timeout=30)
    growth = max(last / early for last, early in zip(memory[-1], memory[1], strict=True))
    print(f"p50 {median(took):.2f} ms, p95 {quantiles(took, n=20)[-1]:.2f} ms, {failed} errors, growth {growth:.3f}")
    return int(failed > 0 or growth > MOST_GROWTH)


if __name__ == "__main__":
    raise SystemExit(main())
