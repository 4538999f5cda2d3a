"""Terminal output of test suites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from retrieval_core.cli.render import console_of, harmless
from retrieval_core.evaluate.suite import CaseStatus

if TYPE_CHECKING:
    from retrieval_core.evaluate.suite import CaseResult, SuiteResult
    from retrieval_core.evaluate.suite.comparing import Comparison, Tuning

_STYLES = {
    CaseStatus.FAILED: "red", CaseStatus.ERROR: "yellow", "missed": "red", "met": "green", "regression": "red",
    "improvement": "green",
}  # fmt: skip
MOST_CHANGES = 50
"""Cases that changed and are listed; a JSON report has all."""


def print_suite(result: SuiteResult) -> None:
    """Print what became of a suite: the cases that did not pass and why, the criteria, and the counts."""
    console = console_of()
    for case in result.results:
        if case.problems:
            console.print(_failure(case), soft_wrap=True)
    table = Table("Criterion", "Measured", "Wanted", "")
    for criterion in result.criteria:
        values = ("-" if value is None else f"{value:.4g}" for value in (criterion.value, criterion.target))
        verdict = Text(criterion.verdict, style=_STYLES.get(criterion.verdict, ""))
        table.add_row(f"{criterion.code} {criterion.text}", *values, verdict)
    console.print(table)
    counts = {
        "passed": result.count(CaseStatus.PASSED),
        "failed": result.count(CaseStatus.FAILED),
        "errors": result.count(CaseStatus.ERROR),
        "skipped": result.skipped,
    }
    means = {name: result.mean(name) for name in ("recall@5", "ndcg@10", "mrr")}
    told = [f"{count} {name}" for name, count in counts.items() if count or name == "passed"]
    told += [f"{name} {mean:.3f}" for name, mean in means.items() if mean is not None]
    seconds = f"({result.execution_time_ms / 1000:.1f} s)"
    console.print(Text(harmless(f"{result.suite}: {', '.join(told)} {seconds}")), soft_wrap=True)


def _failure(case: CaseResult) -> Text:
    sign = "✗" if case.status is CaseStatus.FAILED else "!"
    took = "" if case.retrieval_time_ms is None else f" ({case.retrieval_time_ms:.0f} ms)"
    text = Text(harmless(f"{sign} {case.name}: {case.query}{took}\n"), style=_STYLES[case.status])
    for problem in case.problems:
        text.append(harmless(f"    {problem.error}: {problem.message}\n"), style="default")
    for line in case.explanation:
        text.append(harmless(f"      {line}\n"), style="dim")
    text.right_crop(1)
    return text


def print_comparison(compared: Comparison) -> None:
    """Print which cases changed, and whether that is more than noise."""
    console = console_of()
    for case in compared.changed[:MOST_CHANGES]:
        values = (f"{value:.3f}" if value is not None else "-" for value in (case.before, case.after))
        states = f"{case.status_before or 'absent'} → {case.status_after or 'absent'}"
        console.print(Text(harmless(f"  {case.name}: {states}, {' → '.join(values)}")), soft_wrap=True)
    if len(compared.changed) > MOST_CHANGES:
        console.print(f"  and {len(compared.changed) - MOST_CHANGES} more")
    if compared.is_same_corpus is False:
        console.print(Text("! the documents are not the same in both runs", style="yellow"))
    if compared.unjudged:
        console.print(Text(f"! {len(compared.unjudged)} cases ended in an error and are not compared", style="yellow"))
    told = (
        f"{compared.measure} {compared.before:.3f} → {compared.after:.3f}: {compared.difference:+.3f}, with 95 % "
        f"confidence from {compared.low:+.3f} to {compared.high:+.3f} ({compared.cases} cases): {compared.change}"
    )
    console.print(Text(told, style=_STYLES.get(compared.change, "")), soft_wrap=True)


def print_tuning(tuned: Tuning) -> None:
    """Print how well each setting did, and which one wins."""
    console = console_of()
    table = Table("Setting", tuned.measure, "Gain", "p", "Best on the rest")
    for tried in tuned.tried:
        chosen = str(tuned.chosen.get(tried.name, 0))
        table.add_row(Text(harmless(tried.name)), f"{tried.mean:.4f}", f"{tried.gain:+.4f}", f"{tried.p:.3f}", chosen)
    console.print(table)
    if tuned.winner is None:
        told = "no setting is better than what is configured by more than chance"
    else:
        told = f"{tuned.winner} is better than what is configured"
    told += (
        f"; held out, what is best elsewhere has {tuned.held_out:.4f}, what is configured {tuned.held_out_first:.4f}"
    )
    console.print(Text(harmless(f"{told} ({tuned.cases} cases)")), soft_wrap=True)
