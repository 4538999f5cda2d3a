"""Suites out of other programs' files: tables of questions with the file that answers, and promptfoo's tests."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import yaml
from pydantic import ValidationError

from retrieval_core.errors import InvalidParameterError, UnreadableFileError
from retrieval_core.evaluate.suite.cases import Case

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
        name = _unique(fields["query"], names)
        try:
            cases.append(Case.model_validate({"name": name, **fields}))
            names.add(name)
        except ValidationError as error:
            left_out.append(f"{place}: {error.errors(include_url=False)[0]['msg']}")
    return Imported(tuple(cases), tuple(left_out))


def _unique(question: str, names: set[str]) -> str:
    """Return a name for a case: its question in one line, with a number where another one has it."""
    plain = "".join(letter if letter.isprintable() else " " for letter in question)
    name = " ".join(plain.split())[:150] or "empty"
    return next(each for each in (name, *(f"{name} ({number})" for number in range(2, 10**6))) if each not in names)


def _from_csv(text: str, path: Path) -> Iterator[tuple[str, dict[str, Any] | str]]:
    rows = csv.DictReader(text.splitlines(keepends=True))
    columns = {(name or "").strip().lower(): name for name in rows.fieldnames or ()}
    question = next((columns[name] for name in _QUESTIONS if name in columns), None)
    file = next((columns[name] for name in _FILES if name in columns), None)
    if question is None or file is None:
        msg = f"{path.name!r} needs the columns question and expected_file; it has {', '.join(columns) or 'none'}"
        raise InvalidParameterError(msg)
    for row in rows:
        files = [part.strip() for part in (row[file] or "").split(";") if part.strip()]
        asked = (row[question] or "").strip()
        if not asked or not files:
            yield f"line {rows.line_num}", "it has no question" if not asked else "it has no expected file"
        else:
            yield f"line {rows.line_num}", {"query": asked, "expect": {"documents": list(dict.fromkeys(files))}}


def _from_promptfoo(text: str, path: Path) -> Iterator[tuple[str, dict[str, Any] | str]]:
    try:
        told = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        msg = f"{path.name!r} is no YAML: {error}"
        raise InvalidParameterError(msg) from error
    tests = cast("dict[str, Any]", told).get("tests") if isinstance(told, dict) else told
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
        phrases: dict[str, None] = {}
        matches = "all"
        for assertion in cast("list[Any]", fields.get("assert") or []):
            own = cast("dict[str, Any]", assertion) if isinstance(assertion, dict) else {}
            kind, value = own.get("type"), own.get("value")
            texts = cast("list[Any]", value) if isinstance(value, list) else [value]
            if kind in _TEXTS and texts and all(isinstance(each, str) and each.strip() for each in texts):
                matches = "any" if _TEXTS[kind] == "any" and len(texts) > 1 else matches
                phrases |= dict.fromkeys(cast("list[str]", texts))
            else:
                yield place, f"the assertion {kind!r:.80} says nothing of what is retrieved"
        if phrases:
            yield place, {"query": question, "expect": {"phrases": list(phrases), "matches": matches}}
        else:
            yield place, "none of its assertions says which text has to be found"
