"""Terminal output of test suites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from retrieval_core.cli.common import count, harmless, warn
from retrieval_core.cli.render import console_of
from retrieval_core.evaluate.suite import CaseStatus

if TYPE_CHECKING:
    from retrieval_core.evaluate.suite import CaseResult, SuiteResult
    from retrieval_core.evaluate.suite.results import Comparison

_STYLES = {
    CaseStatus.FAILED: "red", CaseStatus.ERROR: "yellow", "missed": "red", "met": "green", "regression": "red",
    "improvement": "green",
}  # fmt: skip
MOST_CHANGES = 50
"""Cases that changed and are listed; a JSON report has all."""


def print_suite(result: SuiteResult) -> None:
    """Print the cases that did not pass and why, the criteria, and the counts."""
    console = console_of()
    for case in result.results:
        if case.problems:
            console.print(_failure(case), soft_wrap=True)
    table = Table("Criterion", "Measured", "Target", "")
    for criterion in result.criteria:
        values = ("-" if value is None else f"{value:.4g}" for value in (criterion.value, criterion.target))
        verdict = Text(criterion.verdict, style=_STYLES.get(criterion.verdict, ""))
        table.add_row(f"{criterion.code} {criterion.text}", *values, verdict)
    console.print(table)
    means = {name: result.mean(name) for name in ("recall@5", "ndcg@10", "mrr")}
    told = [f"{count} {name}" for name, count in result.counts.items() if count or name == "passed"]
    told += [f"{name} {mean:.3f}" for name, mean in means.items() if mean is not None]
    seconds = f"({result.execution_time_ms / 1000:.1f} s)"
    console.print(Text(harmless(f"{result.suite}: {', '.join(told)} {seconds}")), soft_wrap=True)


def _failure(case: CaseResult) -> Text:
    sign = "✗" if case.status is CaseStatus.FAILED else "!"
    took = "" if case.retrieval_time_ms is None else f" ({case.retrieval_time_ms:.0f} ms)"
    text = Text(harmless(f"{sign} {case.name}: {case.query}{took}\n"), style=_STYLES[case.status])
    for line in case.failure_lines():
        text.append(harmless(f"    {line}\n"), style="default")
    text.right_crop(1)
    return text


def print_comparison(compared: Comparison) -> None:
    """Print the cases that changed, and whether the change is significant."""
    console = console_of()
    for case in compared.changed[:MOST_CHANGES]:
        values = (f"{value:.3f}" if value is not None else "-" for value in (case.before, case.after))
        states = f"{case.status_before or 'absent'} → {case.status_after or 'absent'}"
        console.print(Text(harmless(f"  {case.name}: {states}, {' → '.join(values)}")), soft_wrap=True)
    if len(compared.changed) > MOST_CHANGES:
        console.print(f"  and {len(compared.changed) - MOST_CHANGES} more")
    if compared.is_same_corpus is False:
        warn("the two runs searched different documents")
    if compared.unjudged:
        warn(f"{count(len(compared.unjudged), 'case')} with errors not compared")
    told = (
        f"{compared.measure} {compared.before:.3f} → {compared.after:.3f}: {compared.difference:+.3f}, 95% confidence "
        f"interval {compared.low:+.3f} to {compared.high:+.3f} ({count(compared.cases, 'case')}): {compared.change}"
    )
    console.print(Text(told, style=_STYLES.get(compared.change, "")), soft_wrap=True)
