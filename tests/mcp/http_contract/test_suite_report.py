"""The report of the last run of a test suite."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from retrieval_core.evaluate.suite import CaseResult, CaseStatus, Criterion, SuiteResult
from support.http_service import hashed
from support.suites import PerformanceMetrics, Problem, Subject, to_json

if TYPE_CHECKING:
    from pathlib import Path

    from support.http_service import Served, Service

REPORT = SuiteResult(
    "docs",
    Subject("secret.db", 3),
    (
        CaseResult("far", "how far", CaseStatus.PASSED, measures={"mrr": 1.0}),
        CaseResult(
            "sea", "how deep", CaseStatus.FAILED, problems=(Problem("NotFound", "sea.md is missing"),), documents=("a",)
        ),
    ),
    (Criterion("SC-003", "recall", "missed", 0.5, 0.95),),
    PerformanceMetrics(),
    10.0,
    "2026-01-02T03:04:05+00:00",
)


def test_what_was_reached_and_what_was_not(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(to_json(REPORT), "utf-8")

    async def check(service: Service) -> None:
        answer = await service.ask("GET", "/v1/suite-report", "all")
        assert answer.json() == {
            "suite": "docs", "timestamp": "2026-01-02T03:04:05+00:00", "total": 2, "passed": 1, "skipped": 0,
            "means": {"mrr": 1.0},
            "criteria": [{"code": "SC-003", "text": "recall", "verdict": "missed", "value": 0.5, "target": 0.95}],
            "not_passed": [
                {"name": "sea", "query": "how deep", "problems": ["sea.md is missing"], "documents": ["a"]}
            ],
        }  # fmt: skip
        assert (await service.ask("GET", "/v1/suite-report", "one")).status_code == 403

    served(check, suite_report=file, tokens=(hashed("all"), hashed("one", "a")))


def test_what_went_wrong_does_not_say_where(served: Served, tmp_path: Path) -> None:
    """Unlike what was not found, which is named as it is in the index."""
    problem = Problem("StoreError", f"{tmp_path / 'secret.db'} cannot be read")
    missing = Problem("NotFound", "guides/install/linux.md is missing")
    cases = (
        CaseResult("sea", "how deep", CaseStatus.ERROR, problems=(problem,)),
        CaseResult("sun", "how far", CaseStatus.FAILED, problems=(missing,)),
    )
    (tmp_path / "report.json").write_text(to_json(replace(REPORT, results=cases)), "utf-8")

    async def check(service: Service) -> None:
        told = (await service.ask("GET", "/v1/suite-report")).json()["not_passed"]
        assert [each["problems"] for each in told] == [["… cannot be read"], [missing.message]]

    served(check, suite_report=tmp_path / "report.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is not there"),
        ("{}", "is no report"),
        ("no JSON", "is no report"),
        ("", "is no report"),
        ("[" * 100_000, "is no report"),
        ("1" * 5_000, "is no report"),
        *((to_json(REPORT).replace("1.0", number), "is no report") for number in ("NaN", "Infinity", "1e999")),
    ],
    ids=range(9),
)
def test_a_report_that_cannot_be_read(served: Served, tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "report.json"
    if content is not None:
        file.write_text(content, "utf-8")

    async def check(service: Service) -> None:
        answer = await service.ask("GET", "/v1/suite-report")
        assert answer.status_code == 404
        assert message in answer.json()["errors"][0]
        assert str(tmp_path) not in answer.text

    served(check, suite_report=file)


def test_without_a_report(served: Served) -> None:
    async def check(service: Service) -> None:
        answer = await service.ask("GET", "/v1/suite-report")
        assert answer.status_code == 404
        assert "SUITE_REPORT names the file" in answer.json()["errors"][0]

    served(check)
