"""The ways to get the server beside its package: the registry's file, and the bundle for Claude Desktop.

That the bundle runs when uv has installed it is seen by ``nox -s bundle``.
"""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from mcp import Client
from retrieval_core_mcp import ServerSettings, __version__, create_server, read_settings
from support.mcp_bundle import BUNDLE, MANIFEST, PACKAGE, PARTS, VARIABLE, WHEELS, pack, start_of
from support.mcp_command import read_options

PROJECT = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SERVER: dict[str, Any] = json.loads((PACKAGE / "server.json").read_text(encoding="utf-8"))
(PYPI,) = SERVER["packages"]


def test_all_are_of_one_version() -> None:
    """A release changes the version in each."""
    bundled = tomllib.loads((BUNDLE / "pyproject.toml").read_text(encoding="utf-8"))
    wheels = [f"{name}-{__version__}-py3-none-any.whl" for name in ("retrieval_core", "retrieval_core_mcp")]
    assert sorted(WHEELS) == wheels
    versions = [PROJECT["version"], SERVER["version"], PYPI["version"], MANIFEST["version"]]
    assert [*versions, bundled["project"]["version"]] == [__version__] * 5


def test_the_registry_finds_the_package() -> None:
    """By the name in the README that PyPI shows, and starts it by the package's own name."""
    readme = (PACKAGE / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^<!-- mcp-name: (\S+) -->$", readme, re.MULTILINE) == [SERVER["name"]]
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", SERVER["name"])
    assert max(len(SERVER["title"]), len(SERVER["description"])) <= 100
    assert (PYPI["registryType"], PYPI["runtimeHint"], PYPI["transport"]) == ("pypi", "uvx", {"type": "stdio"})
    assert PYPI["identifier"] == PROJECT["name"]
    assert PROJECT["scripts"][PROJECT["name"]] == PROJECT["scripts"]["retrieval-mcp"]


def test_what_the_registry_tells_is_understood() -> None:
    """Arguments are options of the command, and variables are settings."""
    arguments = [word for argument in PYPI["packageArguments"] for word in (argument["name"], "given")]
    assert read_options(arguments).index == ["given"]
    read_settings(environment={variable["name"]: "given" for variable in PYPI["environmentVariables"]})


def test_the_same_wheels_give_the_same_bundle(tmp_path: Path) -> None:
    """Whenever and wherever it is made; what is in it is what is meant to be."""
    bundles: list[bytes] = []
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        for name in WHEELS:
            (tmp_path / place / name).write_text(f"what {name} holds")
        bundles.append(pack(tmp_path / place, tmp_path / place / "dist").read_bytes())
    assert bundles[0] == bundles[1]
    with ZipFile(tmp_path / "a/dist" / f"retrieval-core-{__version__}.mcpb") as archive:
        assert archive.namelist() == sorted([*PARTS, *(f"wheels/{name}" for name in WHEELS)])
        assert json.loads(archive.read("manifest.json")) == MANIFEST
        assert MANIFEST["server"]["entry_point"] in archive.namelist()


def test_what_the_user_fills_in_reaches_the_server(tmp_path: Path) -> None:
    """What need not be filled in has a default, or its placeholder would stay."""
    line, environment = start_of(tmp_path, {"index": "/x/index.db"})
    assert line == ["uv", "run", "--directory", str(tmp_path), MANIFEST["server"]["entry_point"]]
    assert not VARIABLE.search(" ".join([*line, *environment.values()]))
    assert read_settings(environment=environment).retrieval.index == "/x/index.db"
    assert read_settings(environment=environment).about == ""
    _, environment = start_of(tmp_path, {"index": "/x/index.db", "description": "The moon."})
    assert read_settings(environment=environment).description == "The moon."
    for option in MANIFEST["user_config"].values():
        assert option.get("required") is not ("default" in option)


def test_the_manifest_lists_the_tools() -> None:
    """Each with its title, so that a user sees before what will be there."""
    settings = ServerSettings(structured=True)

    async def listed() -> list[dict[str, Any]]:
        async with Client(create_server(settings)) as client:
            tools = (await client.list_tools()).tools
        return [{"name": tool.name, "description": tool.title} for tool in tools]

    assert asyncio.run(listed()) == MANIFEST["tools"]


def test_the_bundle_runs_where_the_package_does() -> None:
    """With the same versions of Python."""
    bundled = tomllib.loads((BUNDLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert MANIFEST["compatibility"]["runtimes"]["python"] == bundled["requires-python"]
    lowest, above = bundled["requires-python"].split(",")
    assert lowest == PROJECT["requires-python"]
    newest = max(int(name.rpartition(".")[2]) for name in PROJECT["classifiers"] if "Python :: 3." in name)
    assert above == f"<3.{newest + 1}"
