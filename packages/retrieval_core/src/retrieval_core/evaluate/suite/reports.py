"""Reports of suites as files: JSON, which is read again, and JUnit's XML, which CI systems show."""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import TYPE_CHECKING, Any, cast
from xml.etree import ElementTree as ET

from pydantic import TypeAdapter, ValidationError

from retrieval_core.errors import InvalidParameterError, UnreadableFileError
from retrieval_core.evaluate.suite.results import CaseStatus, SuiteResult

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.evaluate.suite.results import CaseResult

FORMAT = 1
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML cannot hold, not even escaped."""


def to_json(result: SuiteResult) -> str:
    """Return a report as JSON; :func:`read_report` reads it."""
    return json.dumps(result.to_json(), ensure_ascii=False, indent=2) + "\n"


def read_report(path: Path) -> SuiteResult:
    """Read a report that was written as JSON.

    Raises:
        UnreadableFileError: The file cannot be read.
        InvalidParameterError: It is no report.
    """
    try:
        told = _decoded(path)
        if not isinstance(told, dict) or cast("dict[str, Any]", told).get("format") != FORMAT:
            msg = f"{path} is no report of 'retrieval suite run --report FILE.json'"
            raise InvalidParameterError(msg)
        # Counts and means follow from the rest.
        return TypeAdapter(SuiteResult).validate_python(told)
    except OSError as error:
        raise UnreadableFileError(str(path), f"it cannot be opened: {error.strerror or error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        msg = f"{path} is no report of this version: {place}: {first['msg']}"
        raise InvalidParameterError(msg) from error


def _decoded(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        msg = f"{path} is no JSON: {error}"
        raise InvalidParameterError(msg) from error


def _finite(text: str) -> float:
    if not isfinite(number := float(text)):
        msg = f"{text} is no finite number"
        raise ValueError(msg)
    return number


def to_junit(result: SuiteResult) -> str:
    """Return a report as JUnit's XML: a test case for each case, and the criteria as properties of the suite."""
    counts = {
        "tests": str(len(result.results)),
        "failures": str(result.count(CaseStatus.FAILED)),
        "errors": str(result.count(CaseStatus.ERROR)),
    }
    seconds = f"{result.execution_time_ms / 1000:.3f}"
    root = ET.Element("testsuites", {"name": _text(result.suite), "time": seconds, **counts})
    own = {"name": _text(result.suite), **counts, "skipped": str(result.skipped), "time": seconds}
    suite = ET.SubElement(root, "testsuite", own | ({"timestamp": result.timestamp} if result.timestamp else {}))
    properties = ET.SubElement(suite, "properties")
    subject = result.subject
    made_on = {"index": subject.location, "corpus": subject.corpus, "embedder": subject.embedder, **subject.versions}
    if subject.configuration:
        made_on["configuration"] = json.dumps(subject.configuration, ensure_ascii=False, sort_keys=True)
    for name, value in made_on.items():
        if value is not None:
            ET.SubElement(properties, "property", {"name": _text(name), "value": _text(value)})
    for criterion in result.criteria:
        ET.SubElement(properties, "property", {"name": criterion.code, "value": criterion.verdict})
    for case in result.results:
        _append(suite, result.suite, case)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _append(suite: ET.Element, classname: str, case: CaseResult) -> None:
    seconds = f"{(case.retrieval_time_ms or 0.0) / 1000:.3f}"
    test = ET.SubElement(suite, "testcase", {"classname": _text(classname), "name": _text(case.name), "time": seconds})
    if case.skipped is not None:
        ET.SubElement(test, "skipped", {"message": _text(case.skipped)})
    if case.status in {CaseStatus.FAILED, CaseStatus.ERROR}:
        kind = "failure" if case.status is CaseStatus.FAILED else "error"
        first = case.problems[0]
        told = ET.SubElement(test, kind, {"type": _text(first.error), "message": _text(first.message)})
        told.text = _text("\n".join([f"asked: {case.query}", *case.failure_lines()]))


def _text(text: str) -> str:
    return _NOT_XML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
