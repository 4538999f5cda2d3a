"""What a suite costs beside a bare loop over ``retrieve``: ``python benchmarks/suite_cost.py INDEX SUITE``.

SUITE is a file of cases, whose paraphrases are left out. Each case gets a threshold and a time limit. Both ask one
question after the other, each on an index of its own so that no question was embedded before. They take turns at parts
of the cases, so that whatever else the machine does slows both; prints the ratio of the sums, in seconds that passed
and in seconds of the processor.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from typing import Any

from retrieval_core import load_config, open_index
from retrieval_core.evaluate.suite import Case, CaseStatus, IndexTarget, Suite, read_suite, run_suite

PART = 100
"""Cases of a turn."""


def cases_of(suite: Path) -> list[Case]:
    """Return cases of one query each that are not skipped."""
    limits: dict[str, Any] = {"skip": None, "paraphrases": [], "relevance_threshold": 0.3, "latency_ms": 60_000.0}
    return [case.model_copy(update=limits) for case in read_suite(suite).cases]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What a suite costs beside a bare loop.")
    parser.add_argument("index", type=Path)
    parser.add_argument("suite", type=Path)
    options = parser.parse_args()
    config = load_config(overrides={"cache.kind": "none"})
    cases = cases_of(options.suite)
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
