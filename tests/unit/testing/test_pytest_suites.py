"""The plug-in for pytest, run as a project would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from retrieval_core.config import load_config
from retrieval_core.index.open import open_index
from retrieval_core.testing.fakes import FakeEmbedder
from support.suites import chunks

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

SUITE = """\
name: zoo
index: zoo.db
cases:
  - {name: calves, query: stripes of a tapir calf, expect: {documents: [tapirs.md]}, tags: [animals]}
  - {name: hunters, query: owls hunt, expect: {documents: [owls.md]}, tags: [animals]}
  - {name: bakers, query: brown crust, expect: {documents: [owls.md]}, top_k: 1}
  - {name: absent, query: brown crust, expect: {documents: [absent.md]}}
  - {name: later, query: x, expect: {keywords: [x]}, skip: not yet}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with an index and a suite."""
    config = load_config(overrides={"cache.kind": "none"})
    with open_index(tmp_path / "zoo.db", config=config, embedder=FakeEmbedder()) as index:
        index.add(chunks())
    (tmp_path / "pytest.ini").write_text("[pytest]\nretrieval_config = zoo.toml\n")
    (tmp_path / "zoo.toml").write_text('[embedder]\nkind = "retrieval_core.testing.fakes:FakeEmbedder"\n')
    (tmp_path / "zoo.retrieval.yaml").write_text(SUITE)
    return tmp_path


def run(project: Path, *options: str, plugin: tuple[str, ...] = ()) -> tuple[int, str]:
    """Run pytest in a project with nothing but the plug-in, and return its exit code and what it printed."""
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"}
    command = [sys.executable, "-m", "pytest", "-p", "retrieval_core.testing.pytest_suites", *plugin, *options]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_each_case_is_a_test(project: Path) -> None:
    code, printed = run(project, "-v")
    assert code == 1
    for line in (
        "zoo.retrieval.yaml::calves PASSED", "zoo.retrieval.yaml::hunters PASSED", "zoo.retrieval.yaml::bakers FAILED",
        "zoo.retrieval.yaml::absent FAILED", "zoo.retrieval.yaml::later SKIPPED",
    ):  # fmt: skip
        assert line in printed
    assert "MissingDocumentError: the document 'owls.md' is not among the first 1 results" in printed
    assert "found: 1. bread.md#0" in printed
    assert "InvalidParameterError: the index does not contain the document 'absent.md'" in printed
    assert "2 failed, 2 passed, 1 skipped" in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("-k", "calves or hunters"), "2 passed, 3 deselected"),
        (("-k", "animals"), "2 passed, 3 deselected"),
        (("-x",), "1 failed, 2 passed"),
        (("--collect-only", "-q"), "5 tests collected"),
        (("zoo.retrieval.yaml::hunters",), "1 passed"),
    ],
)
def test_cases_are_chosen_as_tests_are(project: Path, options: tuple[str, ...], told: str) -> None:
    assert told in run(project, *options)[1]


def test_any_name_can_be_chosen(project: Path) -> None:
    (project / "zoo.retrieval.yaml").write_text(SUITE.replace("name: calves", "name: 'std::sort [of] tapirs'"))
    assert "1 passed" in run(project, "zoo.retrieval.yaml::std:sort [of] tapirs")[1]


def test_the_last_failures_are_run_again(project: Path) -> None:
    run(project)
    assert "2 failed" in run(project, "--lf")[1]


@pytest.mark.skipif(find_spec("xdist") is None, reason="needs pytest-xdist")
def test_cases_run_in_several_processes(project: Path) -> None:
    assert "2 failed, 2 passed, 1 skipped" in run(project, "-n", "2", plugin=("-p", "xdist"))[1]


def test_a_broken_file_is_one_error_with_its_place(project: Path) -> None:
    (project / "bad.retrieval.json").write_text('{"name": "a",\n "cases": [{"name": "x", "qery": "q"}]}')
    code, printed = run(project)
    assert code == 2
    assert "bad.retrieval.json:2:26: cases[1].qery: unknown key; did you mean query?" in printed
    assert "1 error in" in printed


def test_the_index_can_be_given(project: Path) -> None:
    assert "CollectionNotFoundError" in run(project, "--retrieval-index", "other.db")[1]


def test_the_time_of_loading_a_model_is_no_cases(project: Path) -> None:
    """As the command does, the first question is asked beforehand."""
    (project / "conftest.py").write_text("""
from retrieval_core.evaluate.suite import IndexTarget

retrieve = IndexTarget.retrieve

async def told(self, case):
    print("\\nasked", case.query)
    return await retrieve(self, case)

IndexTarget.retrieve = told
""")
    printed = run(project, "-s", "-k", "calves or hunters")[1]
    asked = [line for line in printed.splitlines() if line.startswith("asked ")]
    assert asked == ["asked stripes of a tapir calf"] * 2 + ["asked owls hunt"]


def test_a_project_without_suites_imports_nothing(tmp_path: Path) -> None:
    """Neither a store nor what reads suites: it does not wait for them."""
    (tmp_path / "test_one.py").write_text("""
import sys

def test_one():
    ours = {name for name in sys.modules if name.startswith("retrieval_core")}
    assert ours <= {"retrieval_core", "retrieval_core.testing", "retrieval_core.testing.pytest_suites"}
    assert "numpy" not in sys.modules
    assert "yaml" not in sys.modules
""")
    assert "1 passed" in run(tmp_path)[1]


def test_pytest_finds_the_plug_in_by_itself() -> None:
    from importlib.metadata import entry_points

    found = {entry.name: entry.value for entry in entry_points(group="pytest11")}
    assert found.get("retrieval_suites") == "retrieval_core.testing.pytest_suites"
