"""Questions a second, and how long each takes, when many callers ask at once."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.collection import CANDIDATES, TOP_K, make
from benchmarks.peers import OURS, PEERS
from benchmarks.report import Column, Report
from benchmarks.systems import BLOCK, Systems, parser, percentile_95, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.report import Cell

SYSTEMS = (OURS, "langchain", "llamaindex", "haystack")
CALLERS = (1, 8, 64, 256)
QUESTIONS = 1_000
"""Made up; far more than there are callers, so that no two ask the same at once."""
COLUMNS = (
    Column("callers", "callers"),
    Column("system", "system"),
    Column("how", "as"),
    Column("rate", "questions/s"),
    Column("p50", "p50, ms"),
    Column("p95", "p95, ms"),
)


def main(argv: Sequence[str]) -> int:
    """Measure each number of callers, and return the exit code."""
    arguments = parser("concurrency", __doc__ or "", SYSTEMS, (10_000,))
    arguments.add_argument("--callers", type=whole(1), nargs="+", default=list(CALLERS), metavar="N", help="at once")
    arguments.add_argument("--seconds", type=float, default=2, help="in which callers ask, of one turn")
    arguments.add_argument("--turns", type=whole(1), default=3, help="of each system with each number of callers")
    options = arguments.parse_args(argv)
    settings = {"passages": options.passages, "seconds": options.seconds, "turns": options.turns, "set": options.set}
    sizes = " and ".join(f"{passages:,}" for passages in options.passages)
    details = (
        f"hybrid questions without their embedding to {sizes} passages, {CANDIDATES} candidates a side, {TOP_K} hits"
    )
    several = len(options.passages) > 1
    columns = (Column("passages", "passages"), *COLUMNS) if several else COLUMNS
    report = Report("Callers at once", details, columns, "callers", "label", "rate", settings)
    for passages in options.passages:
        with TemporaryDirectory(prefix="benchmark-") as folder:
            collection = make(Path(folder), passages, max(QUESTIONS, 2 * max(options.callers)))
            with Systems(options, collection, report) as systems:
                for row in measure(systems, options.callers, options.seconds, options.turns):
                    label = f"{row['system']}, {passages:,}" if several else row["system"]
                    report.rows.append({"passages": passages, "label": label, **row})
    return report.give(options)


def measure(systems: Systems, callers: Sequence[int], seconds: float, turns: int) -> list[dict[str, Cell]]:
    """Return a row for each system and number of callers; the rate is the median of the turns'."""
    names = [*systems.search(systems.ready(), BLOCK)]  # so that all are warm
    rows: list[dict[str, Cell]] = []
    for count in callers:
        for name, answers in together(systems, names, count, seconds, turns).items():
            took = [milliseconds for answer in answers for milliseconds in answer["milliseconds"]]
            rows.append(
                {
                    "callers": count,
                    "system": PEERS[name].title,
                    "how": answers[0]["how"],
                    "rate": median(len(answer["milliseconds"]) / answer["seconds"] for answer in answers),
                    "p50": median(took),
                    "p95": percentile_95(took),
                }
            )
    return rows


def together(
    systems: Systems, names: list[str], callers: int, seconds: float, turns: int
) -> dict[str, list[dict[str, Any]]]:
    """Have so many callers ask each system in turns, and return the answers; one that fails is taken out of names."""
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for turn in range(turns):
        for name in (*names[turn % len(names) :], *names[: turn % len(names)]) if names else ():
            answer = systems.ask(name, "together", callers=callers, seconds=seconds, first=turn * callers)
            if answer is None:
                names.remove(name)
                del answers[name]
            else:
                answers[name].append(answer)
    return answers
