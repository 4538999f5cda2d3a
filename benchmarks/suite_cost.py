"""What a suite costs beside a bare loop over ``retrieve``: ``python benchmarks/suite_cost.py INDEX [--cases N]``.

The cases ask for the headings of what is indexed, each with the document to be found, a threshold and a limit of time.
Both ask one question after the other, each on an index of its own so that no question was embedded before. They take
turns at parts of the cases, so that whatever else the machine does slows both; prints the ratio of the sums, in seconds
that passed and in seconds of the processor.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

from retrieval_core import load_config, open_index
from retrieval_core.evaluate.suite import Case, CaseStatus, IndexTarget, Suite, run_suite
from retrieval_core.evaluate.suite.drafting import draft_from_index

PART = 100
"""Cases of a turn."""


def cases_of(index: Path, count: int) -> list[Case]:
    """Return cases that are not skipped."""
    with open_index(index) as opened:
        drafts = opened.sync.run(draft_from_index(opened, count), seconds=None)
    limits = {"skip": None, "relevance_threshold": 0.3, "latency_ms": 60_000.0}
    return [draft.model_copy(update=limits) for draft in drafts]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What a suite costs beside a bare loop.")
    parser.add_argument("index", type=Path)
    parser.add_argument("--cases", type=int, default=1_000)
    options = parser.parse_args()
    config = load_config(overrides={"cache.enabled": False})
    cases = cases_of(options.index, options.cases)
    totals = {"loop": [0.0, 0.0], "suite": [0.0, 0.0]}
    passed = 0
    with open_index(options.index, config=config) as one, open_index(options.index, config=config) as other:
        for index in (one, other):
            index.retrieve("loads the model")
        for start in range(0, len(cases), PART):
            part = cases[start : start + PART]
            turns = ("loop", "suite") if start // PART % 2 else ("suite", "loop")
            for what in turns:
                began = (time.perf_counter(), time.process_time())
                if what == "loop":
                    for case in part:
                        one.retrieve(case.query)
                else:
                    suite = Suite(name="cost", cases=part)
                    passed += asyncio.run(run_suite(IndexTarget(other), suite, concurrency=1)).count(CaseStatus.PASSED)
                for number, now in enumerate((time.perf_counter(), time.process_time())):
                    totals[what][number] += now - began[number]
    for name, number in (("passed", 0), ("of the processor", 1)):
        loop, whole = totals["loop"][number], totals["suite"][number]
        print(f"seconds {name}: loop {loop:.2f}, suite {whole:.2f}, ratio {whole / loop:.2f}")
    print(f"{len(cases)} cases, of which {passed} pass")


if __name__ == "__main__":
    main()
