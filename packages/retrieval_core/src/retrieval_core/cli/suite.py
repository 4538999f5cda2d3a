"""``retrieval suite``: run search test suites and compare runs."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retrieval_core.cli.common import MODE_NAMES, MODES, common_options, index_options, print_json, progress_bar, warn
from retrieval_core.cli.process import WRONG_USE

if TYPE_CHECKING:
    from collections.abc import Generator

    from retrieval_core.cli.common import Given
    from retrieval_core.evaluate.suite import CaseStatus, Suite, SuiteResult
    from retrieval_core.index.index import Index

FAILED = 1
"""A case failed, or a criterion was missed."""
HAS_ERRORS = WRONG_USE
"""A case could not be judged."""
REGRESSION = 3
"""Less is found than before, by more than noise."""
_MEASURES = click.Choice(("recall@5", "recall@k", "ndcg@10", "mrr"))
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_NEW_FILE = click.Path(path_type=Path, dir_okay=False)


class _SuiteGroup(click.Group):
    """Ends with 2 where something could not be done at all: 1 says that a case failed."""

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
@click.option("--before", type=_FILE, help="Compare with an earlier JSON report.")
@index_options
def run_command(
    *,
    file: Path,
    tags: tuple[str, ...],
    concurrency: int,
    twice: bool,
    reports: tuple[Path, ...],
    before: Path | None,
    given: Given,
) -> None:
    """Run the cases of a suite and show the failures.

    FILE is *.retrieval.yaml or *.retrieval.json, and may name its index.
    """
    from retrieval_core.cli.render_suite import print_comparison, print_suite  # noqa: PLC0415 - help needs none of this
    from retrieval_core.errors import InvalidParameterError  # noqa: PLC0415
    from retrieval_core.evaluate.suite.cases import read_suite  # noqa: PLC0415
    from retrieval_core.evaluate.suite.results import compare, read_report  # noqa: PLC0415 - help needs none of this

    _check_reports(reports)
    suite = _tagged(read_suite(file), tags)
    earlier = None if before is None else read_report(before)
    with _index(suite, file, given) as index:
        result = _run(index, suite, concurrency, twice=twice)
    for report in reports:
        report.write_text(_report(result, earlier, report.suffix), encoding="utf-8")
    if given.as_json:
        print_json(result.to_json())
    else:
        print_suite(result)
    if earlier is not None:
        try:
            compared = compare(earlier, result)
        except InvalidParameterError as error:  # which is no fault of this run
            warn(f"reports not compared: {error}")
            raise SystemExit(_exit_code(result)) from None
        if not given.as_json:
            print_comparison(compared)
        if compared.change == "regression":
            raise SystemExit(REGRESSION)
    raise SystemExit(_exit_code(result))


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

    from retrieval_core.cli.render_suite import print_comparison  # noqa: PLC0415
    from retrieval_core.evaluate.suite.results import compare, read_report  # noqa: PLC0415 - help needs none of this

    compared = compare(read_report(before), read_report(after), measure=measure)
    if given.as_json:
        print_json({**asdict(compared), "difference": compared.difference})
    else:
        print_comparison(compared)
    if compared.change == "regression":
        raise SystemExit(REGRESSION)
    if compared.unjudged:
        raise SystemExit(HAS_ERRORS)


@suite_group.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of suites, for editors."""
    from retrieval_core.evaluate.suite.cases import schema  # noqa: PLC0415 - help needs none of this

    print_json(schema())


@contextmanager
def _index(suite: Suite, file: Path, given: Given) -> Generator[Index]:
    """Open the index of the command line, or else the one that the suite names, without a cache that would answer."""
    from dataclasses import replace  # noqa: PLC0415 - help needs none of this

    from retrieval_core.index.open import open_index  # noqa: PLC0415

    is_chosen = given.index_files or any(assignment.startswith("index=") for assignment in given.assignments)
    if suite.index is not None and not is_chosen:
        given = replace(given, index_files=(str(file.parent / suite.index),))
    config = replace(given, assignments=(*given.assignments, "cache.kind=none")).config()
    with open_index(config=config) as index:
        yield index


def _run(index: Index, suite: Suite, concurrency: int, *, twice: bool) -> SuiteResult:
    from retrieval_core.evaluate.suite import IndexTarget, run_suite  # noqa: PLC0415 - help needs none of this

    with progress_bar("cases") as show:

        def on_progress(_name: str, _status: CaseStatus, done: int, total: int) -> None:
            show(suite.name, done, total)

        target = IndexTarget(index)
        running = run_suite(target, suite, concurrency=concurrency, twice=twice, on_progress=on_progress)
        return index.sync.run(running, seconds=None)


def _tagged(suite: Suite, tags: tuple[str, ...]) -> Suite:
    if not tags:
        return suite
    cases = [case for case in suite.cases if set(tags) & set(case.tags)]
    if not cases:
        known = sorted({tag for case in suite.cases for tag in case.tags})
        msg = f"no case has the tag {' or '.join(tags)}. Tags: {', '.join(known) or 'none'}"
        raise click.UsageError(msg)
    return suite.model_copy(update={"cases": cases})


def _check_reports(reports: tuple[Path, ...]) -> None:
    for report in reports:
        if report.suffix not in {".json", ".html"}:
            msg = f"--report: unknown type of {report.name!r}. Use .json or .html."
            raise click.UsageError(msg)
        if not report.parent.is_dir():
            msg = f"--report: {str(report)!r} can't be written: the folder {str(report.parent)!r} does not exist"
            raise click.UsageError(msg)


def _report(result: SuiteResult, before: SuiteResult | None, suffix: str) -> str:
    from retrieval_core.evaluate.suite.results import to_html, to_json  # noqa: PLC0415 - help needs no report

    if suffix == ".html":
        return to_html(result, before)
    return to_json(result)


def _exit_code(result: SuiteResult) -> int:
    from retrieval_core.evaluate.suite import CaseStatus  # noqa: PLC0415 - help needs none of this

    if result.count(CaseStatus.ERROR):
        return HAS_ERRORS
    missed = any(criterion.verdict == "missed" for criterion in result.criteria)
    return FAILED if missed or result.count(CaseStatus.FAILED) else 0
