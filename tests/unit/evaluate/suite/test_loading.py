"""Files of test cases: what is read, and the place of whatever is wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.errors import ConfigurationError, SuiteFileError, UnreadableFileError
from retrieval_core.evaluate.suite import parse_suite, read_suite
from retrieval_core.evaluate.suite.cases import read_with_lines

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """\
name: zoo
defaults: {top_k: 5, relevance_threshold: 0.5}
cases:
  - name: calves
    query: What do tapir calves look like?
    expect:
      documents: {tapirs.md: 2, owls.md: 1}
      phrases: [stripes and spots]
      matches: any
      keywords: [calf]
    tags: [animals]
  - name: pizza
    query: the best pizza
    relevance_threshold: null
    top_k: 3
    finds_nothing: true
"""
BEGIN = "name: zoo\ncases:\n"
ONE = "  - {name: a, query: q, finds_nothing: true}\n"

MALFORMED = {
    "empty": ("", 1, 1, "it is empty"),
    "a list": ("[1]", 1, 1, "a suite is an object"),
    "no cases": ("name: a", 1, 1, "cases: not set"),
    "cases that are none": ("name: a\ncases: []", 2, 8, "at least 1 item"),
    "no YAML": ("name: a\n\tcases: 1", 2, 1, "cannot start any token"),
    "an open bracket": (BEGIN + "  - {name: a", 3, 13, "while parsing a flow mapping"),
    "a control character": ("name: a\nquery: \x07", 2, 8, "U+0007"),
    "a duplicate key": ("name: a\nname: b", 2, 1, "the key 'name' is there twice"),
    "an unknown key": (BEGIN + "  - {name: a, query: q, expects: {}}", 3, 25, "unknown key; did you mean expect?"),
    "an unknown key inside": (BEGIN + "  - {name: a, query: q, expect: {docs: [x]}}", 3, 34, "docs: unknown key"),
    "an octal number": (BEGIN + "  - {name: a, query: q, top_k: 010}", 3, 32, "valid integer"),
    "a number of thousands of digits": (
        BEGIN + "  - {name: a, query: q, top_k: " + "1" * 5000 + "}", 3, 32, "valid integer",
    ),
    "a number for text": (BEGIN + "  - {name: a, query: 7, finds_nothing: true}", 3, 22, "a valid string, got 7"),
    "text for a number": (BEGIN + "  - {name: a, query: q, top_k: 'x'}", 3, 32, "valid integer"),
    "too many results": (BEGIN + "  - {name: a, query: q, top_k: 101}", 3, 32, "less than or equal to 100"),
    "no results": (BEGIN + "  - {name: a, query: q, top_k: 0}", 3, 32, "greater than or equal to 1"),
    "a threshold above 1": (BEGIN + "  - {name: a, query: q, relevance_threshold: 1.5}", 3, 46, "less than or equal"),
    "a blank query": (BEGIN + "  - {name: a, query: '  ', finds_nothing: true}", 3, 22, "must not be empty"),
    "two cases of one name": (BEGIN + ONE + ONE, 4, 12, "names are unique"),
    "a case that expects nothing": (BEGIN + "  - {name: a, query: q}", 3, 12, "it expects nothing"),
    "a contradiction": (
        BEGIN + "  - {name: a, query: q, finds_nothing: true, expect: {keywords: [x]}}", 3, 5, "contradicts",
    ),
    "expected and forbidden": (
        BEGIN + "  - {name: a, query: q, expect: {documents: [x]}, forbid: {documents: [x]}}", 3, 5, "both expected",
    ),
    "a document twice": (BEGIN + "  - {name: a, query: q, expect: {documents: [x, x]}}", 3, 45, "listed twice"),
    "a grade of 0": (BEGIN + "  - {name: a, query: q, expect: {documents: {x: 0}}}", 3, 49, "greater than or equal"),
    "an unknown operator": (BEGIN + "  - {name: a, query: q, filter: {price: {$x: 1}}}", 3, 33, "unknown operator"),
    "an unknown mode": (BEGIN + "  - {name: a, query: q, mode: fuzzy}", 3, 31, "hybrid"),
    "an unknown role": (
        BEGIN + "  - {name: a, query: q, history: [{role: robot, content: x}]}", 3, 42, "got 'robot'",
    ),
    "an anchor of itself": ("name: a\ncases: &a [*a]", 2, 8, "valid dictionary"),
    "a merge key": (BEGIN + "  - {name: a, query: q, <<: {top_k: 3}}", 3, 25, "<<: unknown key"),
    "a tag": ("name: !!python/object:os.system x", 1, 7, "could not determine a constructor"),
    "a number as a key": ("1: a", 1, 1, "a key is text"),
    "two documents": ("name: a\n---\nname: b", 2, 1, "a single document"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "line", "column", "told"), MALFORMED.values(), ids=MALFORMED)
def test_what_is_wrong_is_told_with_its_place(text: str, line: int, column: int, told: str) -> None:
    with pytest.raises(SuiteFileError) as raised:
        parse_suite(text, "zoo.retrieval.yaml")
    error = raised.value
    assert (error.line, error.column) == (line, column), str(error)
    assert error.problems[0].startswith(f"zoo.retrieval.yaml:{line}:{column}: ")
    assert told in error.problems[0]
    assert isinstance(error, ConfigurationError)


def test_a_good_file_is_read() -> None:
    """Defaults count where a case does not say otherwise, ``null`` included."""
    calves, pizza = parse_suite(GOOD).cases
    assert (calves.top_k, calves.relevance_threshold) == (5, 0.5)
    assert (pizza.top_k, pizza.relevance_threshold) == (3, None)
    assert calves.expect.documents == {"tapirs.md": 2, "owls.md": 1}
    assert calves.expect.phrases == {"stripes and spots": 1}


def test_a_default_threshold_is_none_of_cases_that_find_nothing() -> None:
    text = "name: zoo\ndefaults: {relevance_threshold: 0.5, top_k: 3}\ncases:\n" + ONE
    case = parse_suite(text).cases[0]
    assert (case.relevance_threshold, case.top_k) == (None, 3)


def test_every_problem_is_told_at_once() -> None:
    text = BEGIN + "  - {name: a, query: q, top_k: 0}\n  - {name: b, qery: q}\n"
    with pytest.raises(SuiteFileError) as raised:
        parse_suite(text)
    assert [problem.split(":")[1] for problem in raised.value.problems] == ["3", "4", "4"]


def test_of_very_many_problems_the_first_are_told() -> None:
    text = BEGIN + "".join(f"  - {{name: a{number}, query: q, top_k: 0}}\n" for number in range(100))
    with pytest.raises(SuiteFileError) as raised:
        parse_suite(text)
    assert len(raised.value.problems) == 21
    assert "80 more problems" in raised.value.problems[-1]


def test_plain_words_are_text() -> None:
    """But numbers, true, false and null."""
    queries = ("no", "2024-01-01", "010", "1:30", "<<", "0x1f", "yes", "~x")
    suite = parse_suite(
        BEGIN + "".join(f"  - {{name: {q}, query: {q}, finds_nothing: true, note: ~}}\n" for q in queries)
    )
    assert [(case.name, case.query, case.note) for case in suite.cases] == [(q, q, None) for q in queries]


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 50_000, "- " * 50_000])
def test_deep_files_end(text: str) -> None:
    with pytest.raises(SuiteFileError):
        parse_suite(text)


def test_an_alias_shares_a_value() -> None:
    text = BEGIN + (
        "  - {name: a, query: q, filter: &f {kind: {$eq: owls}}, finds_nothing: true}\n"
        "  - {name: b, query: q, filter: *f, finds_nothing: true}\n"
    )
    first, second = parse_suite(text).cases
    assert first.filter == second.filter == {"kind": {"$eq": "owls"}}


@pytest.mark.parametrize("indent", [None, 2, "\t"])
def test_json_is_read_by_its_own_rules(indent: int | str | None) -> None:
    """Tabs, surrogate pairs and numbers such as 1e-3 are no trouble, and what looks like YAML is text."""
    case = {"name": "a", "query": "no \U0001f989 \u2028", "latency_ms": 1e-3, "note": "010"}
    text = json.dumps({"name": "zoo", "cases": [case]}, indent=indent)
    read = parse_suite(text, is_json=True).cases[0]
    assert (read.query, read.latency_ms, read.note) == (case["query"], 0.001, "010")


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ('{"name": }', 1, 10),
        ('{\n"name": 7, "cases": [1]}', 2, 9),
        ('{"name": "a", "name": "b"}', 1, 15),
    ],
)
def test_json_that_is_wrong_is_told_with_its_place(text: str, line: int, column: int) -> None:
    with pytest.raises(SuiteFileError) as raised:
        parse_suite(text, is_json=True)
    assert (raised.value.line, raised.value.column) == (line, column)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match="cannot be opened"):
        read_suite(tmp_path / "absent.retrieval.yaml")
    latin = tmp_path / "latin.retrieval.yaml"
    latin.write_bytes("name: café".encode("latin-1"))
    with pytest.raises(UnreadableFileError, match="UTF-8 at byte 9"):
        read_suite(latin)


def test_each_case_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "zoo.retrieval.yaml"
    file.write_text(GOOD)
    assert read_with_lines(file)[1] == (4, 12)


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30).filter(str.strip)
NAMES = st.text(st.sampled_from("abcß漢 1-.:{}#'\"&*!%@`|>?,[]"), min_size=1, max_size=20).map(str.strip).filter(bool)


@given(
    st.lists(st.tuples(NAMES, TEXTS, st.lists(TEXTS, min_size=1, unique=True)), min_size=1, unique_by=lambda c: c[0])
)
@settings(max_examples=150)
def test_whatever_yaml_writes_is_read_back(cases: list[tuple[str, str, list[str]]]) -> None:
    """A text that YAML would take for something else is written in quotation marks, and is text when it is read."""
    told: dict[str, Any] = {
        "name": "any",
        "cases": [{"name": n, "query": q, "expect": {"documents": d}} for n, q, d in cases],
    }
    for text, is_json in ((yaml.safe_dump(told, allow_unicode=True), False), (json.dumps(told), True)):
        suite = parse_suite(text, is_json=is_json)
        assert [(c.name, c.query, list(c.expect.documents)) for c in suite.cases] == cases


@given(st.text(max_size=200))
@settings(max_examples=300)
def test_any_text_is_a_suite_or_an_error_with_a_place(text: str) -> None:
    for is_json in (False, True):
        place = (1, 1)
        try:
            parse_suite(text, is_json=is_json)
        except SuiteFileError as error:
            place = (error.line, error.column)
        assert min(place) >= 1
