"""The report of the last run of a test suite, as far as people ask for it: what was reached, and what was not found."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from retrieval_core.errors import InvalidParameterError, UnreadableFileError
from retrieval_core_mcp.http.answers import ReportCase, ReportCriterion, SuiteReportAnswer
from retrieval_core_mcp.http.envelope import RequestError

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.evaluate.suite.results import CaseResult
    from retrieval_core.service.redaction import Redact

MOST_CASES = 200
MOST_DOCUMENTS = 10
MEASURES = ("recall@5", "recall@k", "ndcg@10", "mrr")


async def read_suite_report(file: Path | None, redact: Redact) -> SuiteReportAnswer:
    """Return a report without where its index is and how it is set up.

    Args:
        file: ``None`` if none is configured.
        redact: Removes places of this machine from errors.

    Raises:
        RequestError: There is none, or it can't be read.
    """
    if file is None:
        msg = "no report of a suite is shown here: RETRIEVAL_MCP__HTTP__SUITE_REPORT names the file of one"
        raise RequestError(404, msg)
    return await asyncio.to_thread(_read, file, redact)


def _read(file: Path, redact: Redact) -> SuiteReportAnswer:
    from retrieval_core.evaluate.suite.results import CaseStatus, read_report  # noqa: PLC0415 - for who asks for a report

    try:
        report = read_report(file)
    except UnreadableFileError as error:
        raise RequestError(404, f"the report of the suite is not there: {error.reason}") from None
    except InvalidParameterError as error:
        msg = f"{file.name} is no report that 'retrieval suite run --report FILE.json' of this version wrote"
        raise RequestError(404, msg) from error
    failed = [case for case in report.results if case.status in {CaseStatus.FAILED, CaseStatus.ERROR}]

    def told(case: CaseResult) -> ReportCase:
        problems = [problem.message for problem in case.problems]
        if case.status is CaseStatus.ERROR:  # of the machine; what was not found is named as the index has it
            problems = [redact(problem) for problem in problems]
        documents = tuple(case.documents[:MOST_DOCUMENTS])
        return ReportCase(name=case.name, query=case.query, problems=tuple(problems), documents=documents)

    means = {name: report.mean(name) for name in MEASURES}
    return SuiteReportAnswer(
        suite=report.suite,
        timestamp=report.timestamp,
        total=report.total_tests,
        passed=report.count(CaseStatus.PASSED),
        skipped=report.skipped,
        means={name: value for name, value in means.items() if value is not None},
        criteria=tuple(
            ReportCriterion(code=each.code, text=each.text, verdict=each.verdict, value=each.value, target=each.target)
            for each in report.criteria
        ),
        not_passed=tuple(told(case) for case in failed[:MOST_CASES]),
    )
