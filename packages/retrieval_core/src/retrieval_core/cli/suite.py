"""``retrieval suite``: run search test suites and compare runs."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retrieval_core.cli.common import MODE_NAMES, MODES, common_options, index_options, print_json, progress_bar
from retrieval_core.cli.process import WRONG_USE

if TYPE_CHECKING:
    from collections.abc import Generator

    from retrieval_core.cli.common import Given
    from retrieval_core.evaluate.suite import Suite
    from retrieval_core.index.index import Index

FAILED = 1
"""A case failed, or a criterion was missed."""
HAS_ERRORS = WRONG_USE
"""A case could not be judged."""
REGRESSION = 3
"""A measure is lower than before, by more than noise."""
_MEASURES = click.Choice(("recall@5", "recall@k", "ndcg@10", "mrr"))
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_NEW_FILE = click.Path(path_type=Path, dir_okay=False)


class _SuiteGroup(click.Group):
    """Ends with 2 after an error: 1 means that a case failed."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SystemExit as end:
            if end.__cause__ is not None:
                raise SystemExit(HAS_ERRORS) from end.__cause__
            raise


@click.group("suite", cls=_SuiteGroup)
def suite_group() -> None:
    """Test search results: run suites and compare runs.

    Exit codes: 0 success, 1 a case failed or a criterion was missed, 2 an error or wrong use, 3 a regression.
    """


@suite_group.command("run")
@click.argument("file", type=_FILE)
@click.option("--mode", type=MODES, metavar=MODE_NAMES, help="Set the mode of cases that have none.")
@click.option("--tag", "tags", multiple=True, help="Run only cases with this tag. Repeatable.")
@click.option(
    "-n", "--concurrency", type=click.IntRange(min=1), default=4, help="Run so many queries in parallel.  [default: 4]"
)
@click.option("--twice", is_flag=True, help="Run everything twice and compare the results.")
@click.option("--report", "reports", type=_NEW_FILE, multiple=True, help="Write a report: .json or .html.")
@index_options
def run_command(
    *, file: Path, tags: tuple[str, ...], concurrency: int, twice: bool, reports: tuple[Path, ...], given: Given
) -> None:
    """Run the cases of a suite and show the failures.

    FILE is *.retrieval.yaml or *.retrieval.json, and may name its index.
    """
    from retrieval_core.cli.render_suite import print_suite  # noqa: PLC0415 - help needs none of this
    from retrieval_core.evaluate.suite import CaseStatus, IndexTarget, read_suite, run_suite  # noqa: PLC0415 - as above
    from retrieval_core.evaluate.suite.results import to_html, to_json  # noqa: PLC0415 - as above

    _check_reports(reports)
    suite = _select_tags(read_suite(file), tags)
    with _open_index(suite, file, given) as index, progress_bar() as show:
        running = run_suite(
            IndexTarget(index), suite, concurrency=concurrency, twice=twice, on_progress=partial(show, suite.name)
        )
        result = index.sync.run(running, seconds=None)
    for report in reports:
        report.write_text(to_html(result) if report.suffix == ".html" else to_json(result), encoding="utf-8")
    if given.as_json:
        print_json(result.to_json())
    else:
        print_suite(result)
    if result.count(CaseStatus.ERROR):
        raise SystemExit(HAS_ERRORS)
    if result.count(CaseStatus.FAILED) or any(criterion.verdict == "missed" for criterion in result.criteria):
        raise SystemExit(FAILED)


@suite_group.command("compare")
@click.argument("before", type=_FILE)
@click.argument("after", type=_FILE)
@click.option("--measure", type=_MEASURES, default="recall@5", help="Compare this measure.  [default: recall@5]")
@common_options
def compare_command(*, before: Path, after: Path, measure: str, given: Given) -> None:
    """Compare two JSON reports of one suite.

    It lists the cases that changed, and tells a significant change from noise.
    """
    from dataclasses import asdict  # noqa: PLC0415 - help needs none of this

    from retrieval_core.cli.render_suite import print_comparison  # noqa: PLC0415 - as above
    from retrieval_core.evaluate.suite.results import compare, read_report  # noqa: PLC0415 - as above

    compared = compare(read_report(before), read_report(after), measure=measure)
    if given.as_json:
        print_json({**asdict(compared), "difference": compared.difference})
    else:
        print_comparison(compared)
    if compared.change == "regression":
        raise SystemExit(REGRESSION)
    if compared.unjudged:
        raise SystemExit(HAS_ERRORS)


@contextmanager
def _open_index(suite: Suite, file: Path, given: Given) -> Generator[Index]:
    """Open the index of the command line, or else the one that the suite names, without a cache."""
    from dataclasses import replace  # noqa: PLC0415 - help needs none of this

    from retrieval_core.index.open import open_index  # noqa: PLC0415 - as above

    is_chosen = given.index_files or any(assignment.startswith("index=") for assignment in given.assignments)
    if suite.index is not None and not is_chosen:
        given = replace(given, index_files=(str(file.parent / suite.index),))
    config = replace(given, assignments=(*given.assignments, "cache.kind=none")).config()
    with open_index(config=config) as index:
        yield index


def _select_tags(suite: Suite, tags: tuple[str, ...]) -> Suite:
    cases = [case for case in suite.cases if set(tags) & set(case.tags)]
    if tags and not cases:
        known = sorted({tag for case in suite.cases for tag in case.tags})
        msg = f"no case has the tag {' or '.join(tags)}. Tags: {', '.join(known) or 'none'}"
        raise click.UsageError(msg)
    return suite.model_copy(update={"cases": cases}) if tags else suite


def _check_reports(reports: tuple[Path, ...]) -> None:
    for report in reports:
        if report.suffix not in {".json", ".html"}:
            msg = f"--report: unknown type of {report.name!r}. Use .json or .html."
            raise click.UsageError(msg)
        if not report.parent.is_dir():
            msg = f"--report: {str(report)!r} can't be written: the folder {str(report.parent)!r} does not exist"
            raise click.UsageError(msg)
