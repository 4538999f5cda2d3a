"""What a suite costs beside a bare loop over ``retrieve``: ``python benchmarks/suite_cost.py INDEX [--cases N]``.

The cases ask for the headings of what is indexed, each with the document to be found, a threshold and a limit of time.
Both ask one question after the other, on an index opened anew so that no question was embedded before, and take turns;
prints the seconds of each turn and the ratio of the sums.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

from retrieval_core import load_config, open_index
from retrieval_core.evaluate.suite import Case, IndexTarget, Suite, run_suite
from retrieval_core.evaluate.suite.drafting import draft_from_index

TURNS = 3


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
    suite = Suite(name="cost", cases=cases)
    totals = {"loop": 0.0, "suite": 0.0}
    passed = 0.0
    for _ in range(TURNS):
        for what in totals:
            with open_index(options.index, config=config) as index:
                index.retrieve("loads the model")
                started = time.perf_counter()
                if what == "loop":
                    for case in cases:
                        index.retrieve(case.query)
                else:
                    result = asyncio.run(run_suite(IndexTarget(index), suite, concurrency=1))
                    assert result.total_tests == len(cases)
                    passed = result.pass_rate
                totals[what] += (seconds := time.perf_counter() - started)
                print(f"{what}: {seconds:.2f} s", flush=True)
    ratio = totals["suite"] / totals["loop"]
    print(f"{len(cases)} cases, of which {passed:.1f} % pass: the suite takes {ratio:.2f} times as long as the loop")


if __name__ == "__main__":
    main()
