"""Suites out of other programs' files: tables of questions with the file that answers, and promptfoo's tests."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import yaml
from pydantic import ValidationError

from retrieval_core.errors import InvalidParameterError, UnreadableFileError
from retrieval_core.evaluate.suite.cases import Case, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_QUESTIONS = ("question", "query", "input", "prompt")
_FILES = ("expected_file", "expected_document", "document", "file", "source")
_TEXTS = {"contains": "all", "icontains": "all", "contains-all": "all", "icontains-all": "all"} | dict.fromkeys(
    ("contains-any", "icontains-any"), "any"
)
"""Promptfoo's assertions that say which text has to be there, and whether all of several has."""


@dataclass(frozen=True, slots=True)
class Imported:
    """Cases out of another program's file, and lines that say what was not taken over and why."""

    cases: tuple[Case, ...]
    left_out: tuple[str, ...]


def import_cases(path: Path) -> Imported:
    """Read cases from a file: CSV with a question and a file that answers in each row, or promptfoo's YAML.

    Columns are ``question`` and ``expected_file`` (several are separated by ``;``), or what such columns are often
    called. Of promptfoo's assertions those are taken over that say which text has to be there.

    Raises:
        UnreadableFileError: The file cannot be read.
        InvalidParameterError: It is neither of these.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UnreadableFileError(str(path), f"it cannot be opened: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UnreadableFileError(str(path), f"it is not UTF-8 at byte {error.start}") from error
    if path.suffix.lower() == ".csv":
        proposed = _from_csv(text, path)
    elif path.suffix.lower() in {".yaml", ".yml", ".json"}:
        proposed = _from_promptfoo(text, path)
    else:
        msg = f"{path.name!r} is neither a CSV file (.csv) nor one of promptfoo (.yaml, .json)"
        raise InvalidParameterError(msg)
    cases: list[Case] = []
    left_out: list[str] = []
    names: set[str] = set()
    for place, fields in proposed:
        if isinstance(fields, str):
            left_out.append(f"{place}: {fields}")
            continue
        try:
            cases.append(Case.model_validate({"name": name_of(fields["query"], names), **fields}))
        except ValidationError as error:
            left_out.append(f"{place}: {error.errors(include_url=False)[0]['msg']}")
    return Imported(tuple(cases), tuple(left_out))


def _from_csv(text: str, path: Path) -> Iterator[tuple[str, dict[str, Any] | str]]:
    rows = csv.DictReader(io.StringIO(text, newline=""))
    columns = {(name or "").strip().lower(): name for name in rows.fieldnames or ()}
    question = next((columns[name] for name in _QUESTIONS if name in columns), None)
    file = next((columns[name] for name in _FILES if name in columns), None)
    if question is None or file is None:
        msg = f"{path.name!r} needs the columns question and expected_file; it has {', '.join(columns) or 'none'}"
        raise InvalidParameterError(msg)
    for column in columns.values():
        if column not in {question, file}:
            yield f"the column {column!r:.80}", "cases have nothing like it"
    for row in _rows(rows, path):
        files = [part.strip() for part in (row[file] or "").split(";") if part.strip()]
        asked = (row[question] or "").strip()
        if not asked or not files:
            yield f"line {rows.line_num}", "it has no question" if not asked else "it has no expected file"
        else:
            yield f"line {rows.line_num}", {"query": asked, "expect": {"documents": list(dict.fromkeys(files))}}


def _rows(rows: csv.DictReader[str], path: Path) -> Iterator[dict[str, str | None]]:
    try:
        yield from rows
    except csv.Error as error:
        msg = f"{path.name!r} is no CSV at line {rows.line_num + 1}: {error}"
        raise InvalidParameterError(msg) from error


def _from_promptfoo(text: str, path: Path) -> Iterator[tuple[str, dict[str, Any] | str]]:
    is_json = path.suffix.lower() == ".json"
    try:
        told = json.loads(text) if is_json else yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        msg = f"{path.name!r} is no {'JSON' if is_json else 'YAML'}: {error}"
        raise InvalidParameterError(msg) from error
    tests = told
    if isinstance(told, dict):
        tests = cast("dict[str, Any]", told).get("tests")
        if "defaultTest" in told:
            yield "defaultTest", "what it says of all tests belongs into each"
    if not isinstance(tests, list):
        msg = f"{path.name!r} is no file of promptfoo: it has no list of tests"
        raise InvalidParameterError(msg)
    for number, test in enumerate(cast("list[Any]", tests), 1):
        place = f"test {number}"
        fields = cast("dict[str, Any]", test) if isinstance(test, dict) else {}
        variables = fields.get("vars")
        given = cast("dict[str, Any]", variables) if isinstance(variables, dict) else {}
        question = next((given[name] for name in _QUESTIONS if isinstance(given.get(name), str)), None)
        if question is None or not question.strip():
            yield place, f"it has no question; one of the variables {', '.join(_QUESTIONS)} has to be it"
            continue
        expected, refused = _phrases(fields.get("assert") or [])
        for complaint in refused:
            yield place, complaint
        if expected["phrases"]:
            yield place, {"query": question, "expect": expected}
        else:
            yield place, "none of its assertions says which text has to be found"


def _phrases(asserted: object) -> tuple[dict[str, Any], list[str]]:
    """Return what a test's assertions expect to be found, and why the others are not taken over."""
    phrases: dict[str, None] = {}
    matches = "all"
    refused: list[str] = []
    for assertion in cast("list[Any]", asserted if isinstance(asserted, list) else [asserted]):
        own = cast("dict[str, Any]", assertion) if isinstance(assertion, dict) else {}
        kind, value = str(own.get("type")), own.get("value")
        texts = cast("list[Any]", value) if isinstance(value, list) else [value]
        if kind not in _TEXTS or not texts or not all(isinstance(each, str) and each.strip() for each in texts):
            refused.append(f"the assertion {kind!r:.80} says nothing of what is retrieved")
            continue
        is_choice = _TEXTS[kind] == "any" and len(texts) > 1
        if phrases and (is_choice or matches == "any"):
            refused.append(f"the assertion {kind!r}, since a case expects all of its texts or any of them")
            continue
        matches = "any" if is_choice else "all"
        phrases |= dict.fromkeys(cast("list[str]", texts))
    return {"phrases": list(phrases), "matches": matches}, refused
