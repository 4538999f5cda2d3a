"""``retrieval suite``: exit codes, reports, and what is printed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner, Result

from retrieval_core.cli.commands import main

if TYPE_CHECKING:
    from pathlib import Path

FAKE = ("--set", "embedder.kind=retrieval_core.testing.fakes:FakeEmbedder")
PAGES = {
    "moon.md": "# The moon\n\nThe moon is 384,400 km away from the earth and has no air.\n",
    "owls.md": "# Owls\n\nOwls hunt at night.\n",
    "bread.md": "# Bread\n\nBread is baked until it is brown.\n",
}
CASES: dict[str, dict[str, Any]] = {
    "far": {"query": "how far away is the moon", "expect": {"documents": ["moon.md"]}},
    "hunters": {"query": "who hunts at night?", "expect": {"keywords": ["owls"]}, "tags": ["animals"]},
    "bakers": {"query": "brown bread", "expect": {"documents": ["bread.md"]}},
    "air": {"query": "air of the moon", "expect": {"documents": ["moon.md"]}},
    "night": {"query": "night", "expect": {"documents": ["owls.md"]}},
    "earth": {"query": "earth", "expect": {"documents": ["moon.md"]}},
}
FAILS = {"query": "brown bread", "expect": {"documents": ["moon.md"]}, "top_k": 1}
BROKEN = {"query": "x", "expect": {"documents": ["absent.md"]}}


def retrieval(*arguments: str, fake: bool = True) -> Result:
    return CliRunner().invoke(main, ["suite", *arguments, *(FAKE if fake else ())])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small index."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name, text in PAGES.items():
        (tmp_path / name).write_text(text)
    indexed = CliRunner().invoke(main, ["index", *PAGES, "--index", "zoo.db", *FAKE])
    assert indexed.exit_code == 0, indexed.output
    return tmp_path


def written(folder: Path, cases: dict[str, dict[str, Any]] = CASES, **more: Any) -> str:
    told = {"name": "zoo", "index": "zoo.db", **more, "cases": [{"name": n, **case} for n, case in cases.items()]}
    (folder / "zoo.retrieval.yaml").write_text(yaml.safe_dump(told))
    return "zoo.retrieval.yaml"


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({}, 0),
        ({"wrong": FAILS}, 1),
        ({"broken": BROKEN}, 2),
        ({"wrong": FAILS, "broken": BROKEN}, 2),
        ({"later": {**FAILS, "skip": "not yet"}}, 0),
    ],
)
def test_the_exit_code_says_how_it_ended(folder: Path, more: dict[str, Any], code: int) -> None:
    result = retrieval("run", written(folder, {**CASES, **more}))
    assert result.exit_code == code, result.output


def test_a_mode_is_that_of_every_case_without_one(folder: Path) -> None:
    cases = {
        "words": {"query": "night", "expect": {"documents": ["owls.md"]}},
        "own": {**CASES["far"], "mode": "dense"},
    }
    told = json.loads(retrieval("run", written(folder, cases), "--mode", "lexical", "--json").stdout)
    assert [case["points"][0]["score"] is None for case in told["results"]] == [False, True]
    assert retrieval("run", "zoo.retrieval.yaml", "--mode", "fuzzy").exit_code == 2


def test_a_missed_criterion_is_a_failure(folder: Path) -> None:
    result = retrieval("run", written(folder, criteria={"average_ms": 1e-9}))
    assert result.exit_code == 1
    assert "missed" in result.output


def test_failures_are_printed_with_what_was_found_instead(folder: Path) -> None:
    result = retrieval("run", written(folder, {"wrong": {**FAILS, "query": "brown \x1b[31m bread"}}))
    assert "✗ wrong: brown \ufffd[31m bread" in result.output
    assert "MissingDocumentError: the document 'moon.md' is not among the first 1 results" in result.output
    assert "found: 1. bread.md#0" in result.output
    assert "SC-004" in result.output
    assert "0 passed, 1 failed" in result.output


def test_reports_are_written(folder: Path) -> None:
    names = ["r.json", "r.html"]
    options = [option for name in names for option in ("--report", name)]
    assert retrieval("run", written(folder), *options).exit_code == 0
    assert json.loads((folder / "r.json").read_text())["passed"] == 6
    assert (folder / "r.html").read_text().startswith("<!doctype html>")
    refused = retrieval("run", "zoo.retrieval.yaml", "--report", "r.pdf")
    assert (refused.exit_code, "Use .json or .html." in refused.output) == (2, True)
    refused = retrieval("run", "zoo.retrieval.yaml", "--report", "nowhere/r.json")
    assert (refused.exit_code, "the folder 'nowhere' does not exist" in refused.output) == (2, True)


def test_json_is_the_report(folder: Path) -> None:
    result = retrieval("run", written(folder), "--json", "-n", "1", "--twice")
    told = json.loads(result.stdout)
    assert (told["total_tests"], told["format"]) == (6, 1)
    assert {criterion["code"]: criterion["verdict"] for criterion in told["criteria"]}["SC-006"] == "met"


def test_cases_are_chosen_by_tag(folder: Path) -> None:
    told = json.loads(retrieval("run", written(folder), "--json", "--tag", "animals").stdout)
    assert [case["name"] for case in told["results"]] == ["hunters"]
    refused = retrieval("run", "zoo.retrieval.yaml", "--tag", "plants")
    assert (refused.exit_code, "Tags: animals" in refused.output) == (2, True)


def test_a_regression_has_an_exit_code_of_its_own(folder: Path) -> None:
    many = {
        f"{name} {number}": case for number in range(3) for name, case in CASES.items() if "documents" in case["expect"]
    }
    file = written(folder, many)
    before = retrieval("run", file, "--report", "before.json")
    assert before.exit_code == 0, before.output
    wrong = {name: {**case, "filter": {"source": {"$eq": "nowhere"}}} for name, case in many.items()}
    file = written(folder, wrong)
    assert retrieval("run", file, "--report", "after.json").exit_code == 1
    compared = retrieval("compare", "before.json", "after.json", fake=False)
    assert compared.exit_code == 3
    assert "recall@5 1.000 → 0.000" in compared.output
    assert "regression" in compared.output
    assert retrieval("compare", "after.json", "before.json", fake=False).exit_code == 0
    told = json.loads(retrieval("compare", "before.json", "before.json", "--json", fake=False).stdout)
    assert (told["change"], told["difference"]) == ("no more than noise", 0.0)


def test_reports_that_have_too_little_in_common_are_not_compared(folder: Path) -> None:
    few = {name: CASES[name] for name in ("far", "bakers")}
    retrieval("run", written(folder, few), "--report", "few.json")
    compared = retrieval("compare", "few.json", "few.json", fake=False)
    assert (compared.exit_code, "the runs have 2 cases" in compared.output) == (2, True)


def test_cases_that_could_not_be_judged_do_not_pass_a_comparison(folder: Path) -> None:
    many = {f"{name} {number}": case for number in range(2) for name, case in CASES.items()}
    retrieval("run", written(folder, many), "--report", "before.json")
    retrieval("run", written(folder, {**many, "far 0": {**CASES["far"], **BROKEN}}), "--report", "after.json")
    compared = retrieval("compare", "before.json", "after.json", fake=False)
    assert (compared.exit_code, "Warning: 1 case with errors not compared" in compared.output) == (2, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "latin.retrieval.yaml"),
        ("run", "skipped.retrieval.yaml", "--index", "absent.db"),
        ("compare", "latin.retrieval.yaml", "latin.retrieval.yaml"),
    ],
)
def test_what_cannot_be_done_has_another_exit_code_than_a_failed_case(folder: Path, arguments: tuple[str, ...]) -> None:
    written(folder, {"later": {**CASES["far"], "skip": "not yet"}})
    (folder / "zoo.retrieval.yaml").rename(folder / "skipped.retrieval.yaml")
    written(folder)
    (folder / "latin.retrieval.yaml").write_bytes("name: café".encode("latin-1"))
    assert retrieval(*arguments, fake=arguments[0] == "run").exit_code == 2


@pytest.mark.parametrize(
    "text", ["name: zoo\ncases:\n - {name: a, query: no}\n", "", "name: zoo\ncases: [{name: a, query: q}]\n"]
)
def test_a_malformed_file_is_wrong_use(folder: Path, text: str) -> None:
    (folder / "bad.retrieval.yaml").write_text(text)
    result = retrieval("run", "bad.retrieval.yaml")
    assert result.exit_code == 2
    assert "bad.retrieval.yaml:" in result.output
