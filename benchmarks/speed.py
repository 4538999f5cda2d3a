"""Milliseconds of a hybrid question without its embedding, beside plain numpy with bm25s and other libraries."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.collection import CANDIDATES, DIMENSION, FILTERS, TOP_K, make
from benchmarks.peers import OURS, PEERS, PLAIN
from benchmarks.report import Column, Report
from benchmarks.systems import BLOCK, Systems, parser, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.report import Cell

SYSTEMS = (OURS, PLAIN, "txtai", "lancedb", "lancedb-ivf", "langchain", "llamaindex", "haystack")
COLUMNS = (
    Column("passages", "passages"),
    Column("system", "system"),
    Column("p50", "p50, ms"),
    Column("p95", "p95, ms"),
    Column("of_plain", "times the p50 of numpy + bm25s"),
    *(Column(f"p50, {share}", f"p50 where {share} pass a filter, ms") for share in FILTERS),
    Column("recall", f"recall@{TOP_K}"),
)


def main(argv: Sequence[str]) -> int:
    """Measure each size, and return the exit code."""
    arguments = parser("speed", __doc__ or "", SYSTEMS, (1_000, 10_000))
    arguments.add_argument("--questions", type=whole(1), default=100, metavar="N", help="that each system is asked")
    options = arguments.parse_args(argv)
    settings = {
        "questions": options.questions,
        "candidates": CANDIDATES,
        "top_k": TOP_K,
        "dimension": DIMENSION,
        "set": options.set,
    }
    details = f"without their embedding, {CANDIDATES} candidates a side, {TOP_K} hits"
    report = Report("Hybrid questions", details, COLUMNS, "passages", "system", "p50", settings)
    for passages in options.passages:
        with TemporaryDirectory(prefix="benchmark-") as folder:
            collection = make(Path(folder), passages, options.questions + BLOCK)
            with Systems(options, collection, report) as systems:
                report.rows += measure(systems, passages, options.questions)
    return report.give(options)


def measure(systems: Systems, passages: int, questions: int) -> list[dict[str, Cell]]:
    """Return a row for each system."""
    asked = systems.search(systems.ready(), questions)
    recall = systems.recall(asked)
    filtered = systems.filtered(asked, questions)
    plain = asked.get(PLAIN)
    rows: list[dict[str, Cell]] = []
    for name, answers in asked.items():
        row: dict[str, Cell] = {
            "passages": passages,
            "system": PEERS[name].title,
            "p50": answers.p50,
            "p95": answers.p95,
            "of_plain": None if plain is None else answers.p50 / plain.p50,
            "recall": recall[name],
        }
        rows.append(row | filtered.get(name, {}))
    return rows
