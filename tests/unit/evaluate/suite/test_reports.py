"""Reports: JSON that is read again, and a page that nothing can break out of."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.errors import InvalidParameterError, UnreadableFileError
from retrieval_core.evaluate.suite import CaseResult, CaseStatus, Criterion, RetrievedPoint
from retrieval_core.evaluate.suite.results import Problem, read_report, remove_times, to_html, to_json
from support.suites import made_up, run, small_index

if TYPE_CHECKING:
    from retrieval_core.evaluate.suite import SuiteResult

HOSTILE = (
    "<script>alert(1)</script> ]]> <!-- \u202e evil \x00\x07\x1b[31m \ufffe & \" ' </main><img src=http://x.example/>"
)


def hostile(text: str = HOSTILE, status: CaseStatus = CaseStatus.FAILED) -> SuiteResult:
    """Return a result in which every text that somebody else wrote is hostile."""
    point = RetrievedPoint(text, 0.5, {"content": text})
    case = CaseResult(
        text,
        text,
        status,
        tags=(text,),
        problems=(Problem(text, text),),
        points=(point,),
        ranks={f"document:{text}": 1},
        measures={"recall@5": 1.0},
        retrieval_time_ms=1.0,
    )
    result = made_up({})
    subject = replace(result.subject, location=text, embedder=text, configuration={text: text})
    return replace(
        result, suite=text, subject=subject, results=(case, CaseResult("s", "q", CaseStatus.PENDING, skipped=text))
    )


def several() -> SuiteResult:
    """Return a result with cases of every kind."""
    result = made_up({"good": 1.0, "bad": 0.0})
    results = {case.name: case for case in result.results}
    results["bad"] = replace(results["bad"], problems=(Problem("MissingDocumentError", "not there"),))
    results["broken"] = CaseResult("broken", "q", CaseStatus.ERROR, problems=(Problem("EmbeddingError", "down"),))
    results["later"] = CaseResult("later", "q", CaseStatus.PENDING, skipped="not yet")
    criterion = Criterion("SC-004", "percentage of cases that pass", "missed", 33.3, 100.0)
    return replace(result, results=tuple(results.values()), criteria=(criterion,))


def test_a_report_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    for result in (several(), hostile(HOSTILE.replace("\x00", ""))):
        file.write_text(to_json(result), encoding="utf-8")
        assert read_report(file) == result


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"format": 2}', '{"format": 1}', '{"format": 1, "suite": 7}', "[" * 100_000]
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "report.json"
    file.write_text(text)
    with pytest.raises(InvalidParameterError):
        read_report(file)


def test_a_report_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError):
        read_report(tmp_path / "absent.json")


class Elements(HTMLParser):
    """Collects what a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in {"src", "href", "action", "style"}]
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(page: str) -> Elements:
    elements = Elements()
    elements.feed(page)
    return elements


OWN = {
    "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "ul", "ol", "li", "b", "bdi", "q",
    "table", "thead", "tbody", "tr", "th", "td", "div", "details", "summary", "span",
}  # fmt: skip


@given(st.text())
def test_no_text_becomes_markup(text: str) -> None:
    page = parsed(to_html(hostile(text)))
    assert page.tags <= OWN
    assert page.addresses == []


def test_hostile_texts_stay_text() -> None:
    page = to_html(hostile())
    elements = parsed(page)
    assert elements.tags <= OWN
    assert "<script>alert(1)</script> ]]>" in elements.text
    assert not set(page) & {"\u202e", "\x00", "\x1b"}
    assert "\\u202e" in page


def test_the_page_asks_for_nothing() -> None:
    page = to_html(several())
    assert (
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
    ) in page
    assert not re.search(r"https?://|url\(|@import|<script|javascript:", page)


@pytest.mark.parametrize("word", ["word ", "漢字仮名", "<&>", "\u202e"])
def test_a_thousand_cases_are_less_than_a_megabyte(word: str) -> None:
    """In whatever script, and with whatever has to be escaped."""
    point = RetrievedPoint(f"a document/with a long path/{word * 9}.md#12", 0.5, {"content": word * 500})
    case = CaseResult(
        "",
        word * 100,
        CaseStatus.FAILED,
        problems=(Problem("MissingDocumentError", word * 200),) * 3,
        points=(point,) * 10,
        ranks={"document:x": 3},
        measures={"recall@5": 1.0},
        retrieval_time_ms=12.0,
    )
    result = made_up({})
    result = replace(result, results=tuple(replace(case, name=f"{number} {word * 40}") for number in range(1000)))
    assert len(to_html(result).encode()) <= 1_000_000


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_chromium_loads_the_page_alone(tmp_path: Path) -> None:
    """Its network log has the file and nothing else, and no script ran."""
    file = tmp_path / "report.html"
    file.write_text(to_html(hostile()), encoding="utf-8")
    log = tmp_path / "log.json"
    subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--window-size=390,800",
         f"--user-data-dir={tmp_path / 'profile'}", f"--log-net-log={log}", "--dump-dom", file.as_uri()],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    told = log.read_text(encoding="utf-8", errors="replace")
    assert "report.html" in told or "file:" in told
    assert "x.example" not in told


def test_reports_are_the_same_in_other_processes(tmp_path: Path) -> None:
    """Byte by byte once the times are blanked, with another hash seed, order of cases and concurrency."""
    program = """
import sys
from pathlib import Path
from retrieval_core.evaluate.suite.results import to_html
from retrieval_core.evaluate.suite.results import to_json
from retrieval_core.evaluate.suite.results import remove_times
from support.suites import run, small_index

folder, order, concurrency = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
cases = [
    {"name": "calves", "query": "stripes of a calf", "expect": {"documents": ["tapirs.md"]}},
    {"name": "bread", "query": "brown crust", "expect": {"documents": ["owls.md"]}, "top_k": 1},
    {"name": "night", "query": "night", "forbid": {"documents": ["trains.md"]}, "tags": ["a", "b"]},
    {"name": "none", "query": "Kafka", "finds_nothing": True},
]
with small_index(folder) as index:
    result = remove_times(run(index, *cases[::order], concurrency=concurrency))
sys.stdout.write(to_json(result) + to_html(result))
"""
    printed: list[str] = []
    for number, (seed, order, concurrency) in enumerate([("0", 1, 1), ("1", -1, 2), ("2", 1, 4)]):
        folder = tmp_path / "index"
        folder.mkdir(exist_ok=True)
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[3])}
        done = subprocess.run(
            [sys.executable, "-c", program, str(folder), str(order), str(concurrency)],
            check=True, capture_output=True, text=True, env=environment, encoding="utf-8",
        )  # fmt: skip
        printed.append(done.stdout)
        assert len(done.stdout) > 5_000, number
    assert printed[0] == printed[1] == printed[2]


def test_two_runs_differ_by_their_times_alone(tmp_path: Path) -> None:
    case: dict[str, Any] = {"query": "night", "expect": {"documents": ["owls.md"]}}
    with small_index(tmp_path) as index:
        first, second = run(index, case), run(index, case)
    assert to_json(first) != to_json(second)
    assert to_json(remove_times(first)) == to_json(remove_times(second))
    assert json.loads(to_json(first))["results"][0]["retrieval_time_ms"] > 0
