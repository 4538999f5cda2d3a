"""The files about the project agree with each other, and link to what exists."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PACKAGES = sorted((ROOT / "packages").glob("*/pyproject.toml"))
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "tests/README.md")
GITHUB = sorted(str(path.relative_to(ROOT)) for path in (ROOT / ".github").rglob("*.*") if path.is_file())
LINK = re.compile(r"\]\(([^)\s]+)\)")


def load(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


WORKSPACE = load(ROOT / "pyproject.toml")["tool"]["retrieval-core"]


def expected_urls(repository: str) -> dict[str, str]:
    """Return the URLs that each package has to name: none while the repository has no address."""
    if not repository:
        return {}
    return {
        "Repository": repository,
        "Documentation": f"{repository}/tree/main/docs",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: path.parent.name)
def test_each_package_names_the_authors_and_addresses_of_the_workspace(path: Path) -> None:
    """One place holds them: [tool.retrieval-core] in the repository's pyproject.toml."""
    project = load(path)["project"]
    assert project["authors"] == WORKSPACE["authors"]
    urls = expected_urls(WORKSPACE["repository"])
    lines = "\n".join(f'{name} = "{url}"' for name, url in urls.items())
    assert project.get("urls", {}) == urls, f"{path.parent.name}/pyproject.toml needs\n[project.urls]\n{lines}"


def test_all_packages_and_their_manifests_have_one_version_that_the_changelog_knows() -> None:
    server = ROOT / "packages/mcp_server"
    registry, bundle = (
        json.loads((server / name).read_text(encoding="utf-8")) for name in ("server.json", "bundle/manifest.json")
    )
    versions = {load(path)["project"]["version"] for path in PACKAGES}
    versions |= {registry["version"], registry["packages"][0]["version"], bundle["version"]}
    assert len(versions) == 1
    assert bundle["author"] == WORKSPACE["authors"][0]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (.+)$", changelog, re.MULTILINE)
    assert sections[0] == "Unreleased"
    assert re.fullmatch(re.escape(versions.pop()) + r" - \d{4}-\d\d-\d\d", sections[1])


@pytest.mark.parametrize("name", PAGES)
def test_every_relative_link_leads_to_a_file_and_a_heading(name: str) -> None:
    page = ROOT / name
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        file = page.parent / target if target else page
        assert file.exists(), link
        assert not anchor or anchor in headings(file), link


@pytest.mark.parametrize("name", [*PAGES, *GITHUB])
def test_no_badge_or_link_names_an_address_of_this_project_that_nobody_set(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    own = [address for address in re.findall(r"https?://[^\s)>\"']+", text) if "retrieval-core" in address]
    assert all(WORKSPACE["repository"] and address.startswith(WORKSPACE["repository"]) for address in own)
    assert "shields.io" not in text
    assert "badge.svg" not in text


def test_the_workflow_runs_the_tests_on_each_system_and_supported_python() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    matrix = jobs["tests"]["strategy"]["matrix"]
    assert [name.partition("-")[0] for name in matrix["os"]] == ["ubuntu", "macos", "windows"]
    classified = {line.rpartition(" ")[2] for path in PACKAGES for line in load(path)["project"]["classifiers"]}
    assert set(matrix["python"]) == {version for version in classified if version.startswith("3.")}
    commands = {job: [step["run"] for step in jobs[job]["steps"] if "run" in step] for job in jobs}
    assert commands == {"tests": ['pip install "nox[uv]"', "nox"], "full": ['pip install "nox[uv]"', "nox -s full"]}


def test_the_release_publishes_each_package_with_its_own_identity_and_no_token() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    publish = yaml.safe_load(text)["jobs"]["publish"]
    rows = publish["strategy"]["matrix"]["include"]
    names = {load(path)["project"]["name"] for path in PACKAGES}
    assert {row["package"]: row["files"] for row in rows} == {name: name.replace("-", "_") for name in names}
    assert rows[0]["package"] == "retrieval-core"
    assert publish["permissions"] == {"id-token": "write"}
    assert "secrets." not in text
