"""What many passages take: time to load, disk, memory, the first search of a new process, speed and recall.

With ``--folder``, the collection and what each system has loaded stay there, and the next run only searches.
"""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.collection import CANDIDATES, DIMENSION, FILTERS, TOP_K, MadeUp, make
from benchmarks.concurrency import QUESTIONS, together
from benchmarks.peers import OURS, PEERS
from benchmarks.report import Column, Report
from benchmarks.systems import BLOCK, Systems, parser, percentile_95, whole

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from benchmarks.report import Cell

SYSTEMS = (OURS, "lancedb", "lancedb-ivf")
CALLERS = (1, 8, 64)
LOADED = "loaded.json"
COLUMNS = (
    Column("passages", "passages"),
    Column("system", "system"),
    Column("load", "load, s"),
    Column("loading", "memory of loading at most, MB"),
    Column("disk", "disk, MB"),
    Column("bytes", "bytes of disk a passage"),
    Column("first", "open and first search, ms"),
    Column("p50", "p50, ms"),
    Column("p95", "p95, ms"),
    Column("ratio", "p50, times ours"),
    Column("processor", "processor time, ms"),
    *(
        Column(f"{percentile}, {callers} callers", f"{percentile} of {callers} callers, ms")
        for callers in CALLERS
        for percentile in ("p50", "p95")
    ),
    Column("dense", "vectors alone, p50, ms"),
    *(Column(f"p50, {share}", f"p50 where {share} pass a filter, ms") for share in FILTERS),
    *(Column(f"processor, {share}", f"processor time where {share} pass, ms") for share in FILTERS),
    Column("recall", f"recall@{TOP_K}"),
    Column("recall, dense", f"recall@{TOP_K} of vectors alone"),
    *(Column(f"recall, {share}", f"recall@{TOP_K} where {share} pass") for share in FILTERS),
    Column("memory", "memory of searching, MB"),
    Column("server", "memory of the server, MB"),
)


def main(argv: Sequence[str]) -> int:
    """Measure each size, and return the exit code."""
    arguments = parser("scale", __doc__ or "", SYSTEMS, (100_000,))
    arguments.add_argument("--questions", type=whole(1), default=50, metavar="N", help="that each system is asked")
    arguments.add_argument("--seconds", type=float, default=2, help="in which callers ask, of one turn")
    arguments.add_argument("--turns", type=whole(1), default=3, help="of each system with each number of callers")
    arguments.add_argument("--folder", type=Path, metavar="FOLDER", help="keep what is loaded, for the next run")
    options = arguments.parse_args(argv)
    settings = {
        "questions": options.questions,
        "dimension": DIMENSION,
        "set": options.set,
        "seconds": options.seconds,
        "turns": options.turns,
    }
    details = f"with vectors of {DIMENSION} numbers, {CANDIDATES} candidates a side, {TOP_K} hits"
    report = Report("Many passages", details, COLUMNS, "passages", "system", "p50", settings)
    for passages in options.passages:
        with TemporaryDirectory(prefix="benchmark-") if options.folder is None else nullcontext(options.folder) as top:
            collection = collection_in(Path(top) / str(passages), passages, max(options.questions + BLOCK, QUESTIONS))
            with Systems(options, collection, report) as systems:
                report.rows += measure(systems, collection.folder, passages, options)
    report.details += f", load of the machine at the end {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return report.give(options)


def collection_in(folder: Path, passages: int, questions: int) -> MadeUp:
    """Return the collection in a folder, made if it isn't there yet."""
    if (folder / "questions.json").exists():
        return MadeUp(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return make(folder, passages, questions)


def measure(systems: Systems, folder: Path, passages: int, options: argparse.Namespace) -> list[dict[str, Cell]]:
    """Return a row for each system."""
    questions: int = options.questions
    rows: dict[str, dict[str, Cell]] = {}
    for name in systems.wanted:
        row = load(systems, name, folder / name, passages)
        if row is not None:
            rows[name] = {"passages": passages, "system": PEERS[name].title, **row}
    for name in [*rows]:
        first = open_anew(systems, name)
        if first is None:
            del rows[name]
        else:
            rows[name]["first"] = first
    asked = systems.search(list(rows), questions)
    recall = systems.recall(asked)
    dense = systems.search([name for name in asked if PEERS[name].dense], questions, mode="dense")
    recall_dense = systems.recall(dense, mode="dense")
    filtered = systems.filtered(asked, questions)
    for name, answers in asked.items():
        row = rows[name]
        row["p50"], row["p95"], row["recall"] = answers.p50, answers.p95, recall[name]
        row["processor"] = answers.processor_milliseconds
        row["dense"] = dense[name].p50 if name in dense else None
        row["recall, dense"] = recall_dense.get(name)
        row |= filtered.get(name, {})
        memory = systems.ask(name, "memory")
        row["memory"] = None if memory is None else memory["now"]
        row["server"] = None if memory is None else memory.get("server")
        row["ratio"] = answers.p50 / asked[OURS].p50 if OURS in asked else None
    names = [*asked]
    for callers in CALLERS:
        for name, told in together(systems, names, callers, options.seconds, options.turns).items():
            took = [milliseconds for answer in told for milliseconds in answer["milliseconds"]]
            rows[name] |= {f"p50, {callers} callers": median(took), f"p95, {callers} callers": percentile_95(took)}
    return [rows[name] for name in asked]


def load(systems: Systems, name: str, place: Path, passages: int) -> dict[str, Cell] | None:
    """Load the passages in a process of their own, which goes on where everything is in its memory."""
    kept = place / LOADED
    if kept.exists():
        row: dict[str, Cell] = json.loads(kept.read_text("utf-8"))
        return row
    if not systems.start(name) or (loaded := systems.ask(name, "load")) is None:
        return None
    memory = systems.ask(name, "memory")
    row = {"load": loaded["seconds"], "loading": None if memory is None else memory["most"]}
    if PEERS[name].keeps_files:
        systems.stop(name)
        # PostgreSQL's log of changes is as large as its settings let it, whatever the passages.
        files = (file for file in place.rglob("*") if file.is_file() and "pg_wal" not in file.parts)
        size = sum(map(room, files))
        row["disk"], row["bytes"] = size / 2**20, size / passages
        kept.write_text(json.dumps(row), "utf-8")
    return row


def open_anew(systems: Systems, name: str) -> float | None:
    """Open what is on the disk in a new process, and return the milliseconds of that and of the first search."""
    if PEERS[name].keeps_files and not systems.start(name):
        return None
    opened = systems.ask(name, "open")
    found = None if opened is None else systems.ask(name, "search", numbers=[0])
    if opened is None or found is None:
        return None
    return 1000 * opened["seconds"] + found["milliseconds"][0]


def room(file: Path) -> int:
    """Return the bytes that a file takes on the disk, which is less than its size where it has holes."""
    status = file.stat()
    return status.st_blocks * 512 if hasattr(status, "st_blocks") else status.st_size
