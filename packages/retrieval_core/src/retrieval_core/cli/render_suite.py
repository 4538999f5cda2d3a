"""Terminal output of test suites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.cli.common import count, print_table, say, warn
from retrieval_core.evaluate.suite import CaseStatus

if TYPE_CHECKING:
    from retrieval_core.evaluate.suite import CaseResult, SuiteResult
    from retrieval_core.evaluate.suite.results import Comparison

_STYLES = {
    CaseStatus.FAILED: "red", CaseStatus.ERROR: "yellow", "regression": "red",
    "improvement": "green",
}  # fmt: skip
MOST_CHANGES = 50
"""Cases that changed and are listed; a JSON report has all."""


def print_suite(result: SuiteResult) -> None:
    """Print the cases that did not pass and why, the criteria, and the counts."""
    for case in result.results:
        if case.problems:
            _print_failure(case)
    rows = [(f"{one.code} {one.text}", _figure(one.value), _figure(one.target), one.verdict) for one in result.criteria]
    colours = ["red" if one.verdict == "missed" else None for one in result.criteria]
    print_table(rows, ("Criterion", "Measured", "Target", ""), colours=colours)
    means = {name: result.mean(name) for name in ("recall@5", "ndcg@10", "mrr")}
    told = [f"{count} {name}" for name, count in result.counts.items() if count or name == "passed"]
    told += [f"{name} {mean:.3f}" for name, mean in means.items() if mean is not None]
    seconds = f"({result.execution_time_ms / 1000:.1f} s)"
    say(f"{result.suite}: {', '.join(told)} {seconds}")


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _print_failure(case: CaseResult) -> None:
    sign = "✗" if case.status is CaseStatus.FAILED else "!"
    took = "" if case.retrieval_time_ms is None else f" ({case.retrieval_time_ms:.0f} ms)"
    say(f"{sign} {case.name}: {case.query}{took}", fg=_STYLES[case.status])
    for line in case.failure_lines():
        say(f"    {line}")


def print_comparison(compared: Comparison) -> None:
    """Print the cases that changed, and whether the change is significant."""
    for case in compared.changed[:MOST_CHANGES]:
        values = (f"{value:.3f}" if value is not None else "-" for value in (case.before, case.after))
        states = f"{case.status_before or 'absent'} → {case.status_after or 'absent'}"
        say(f"  {case.name}: {states}, {' → '.join(values)}")
    if len(compared.changed) > MOST_CHANGES:
        say(f"  and {len(compared.changed) - MOST_CHANGES} more")
    if compared.is_same_corpus is False:
        warn("the two runs searched different documents")
    if compared.unjudged:
        warn(f"{count(len(compared.unjudged), 'case')} with errors not compared")
    told = (
        f"{compared.measure} {compared.before:.3f} → {compared.after:.3f}: {compared.difference:+.3f}, 95% confidence "
        f"interval {compared.low:+.3f} to {compared.high:+.3f} ({count(compared.cases, 'case')}): {compared.change}"
    )
    say(told, fg=_STYLES.get(compared.change))
