"""Printed install commands name the place that this copy came from, never a name that a stranger could register."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import retrieval_core

METADATA = """\
Metadata-Version: 2.4
Name: retrieval-core
Version: 0.1.0
Provides-Extra: absent
Requires-Dist: no-such-distribution-as-this; extra == 'absent'
"""
ORIGINS: dict[str, tuple[dict[str, Any] | None, list[str]]] = {
    "index": (None, ["retrieval-core[absent]"]),
    "checkout": (
        {"url": "file:///co/packages/retrieval_core", "dir_info": {}},
        ["/co/packages/retrieval_core[absent]"],
    ),
    "editable": (
        {"url": "file:///co/packages/retrieval_core", "dir_info": {"editable": True}},
        ["-e", "/co/packages/retrieval_core[absent]"],
    ),
    "wheel": (
        {"url": "file:///my%20wheels/retrieval_core-0.1.0-py3-none-any.whl", "archive_info": {}},
        ["/my wheels/retrieval_core-0.1.0-py3-none-any.whl[absent]"],
    ),
    "address": (
        {"url": "https://files.example/retrieval_core-0.1.0-py3-none-any.whl", "archive_info": {}},
        ["retrieval-core[absent] @ https://files.example/retrieval_core-0.1.0-py3-none-any.whl"],
    ),
    "repository": (
        {
            "url": "https://git.example/project.git",
            "vcs_info": {"vcs": "git", "commit_id": "abc123"},
            "subdirectory": "packages/retrieval_core",
        },
        [
            "retrieval-core[absent] @ git+https://git.example/project.git@abc123#subdirectory=packages/retrieval_core",
        ],
    ),
}


def installed_copy(folder: Path, origin: dict[str, Any] | None) -> dict[str, str]:
    """Make a copy of the library as pip leaves it in site-packages, and return the environment that imports it."""
    source = Path(retrieval_core.__file__).parent
    shutil.copytree(source, folder / "retrieval_core", ignore=shutil.ignore_patterns("__pycache__"))
    info = folder / "retrieval_core-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA, encoding="utf-8")
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin), encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONWARNINGS": "ignore"}


def run(environment: dict[str, str], cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "retrieval_core.cli", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="the expected lines are those of a POSIX shell")
@pytest.mark.parametrize("origin", ORIGINS)
def test_doctor_prints_a_line_for_where_this_copy_came_from(origin: str, tmp_path: Path) -> None:
    """`retrieval doctor` names the checkout, wheel, address, commit or index that the library was installed from."""
    direct_url, expected = ORIGINS[origin]
    environment = installed_copy(tmp_path, direct_url)

    printed = json.loads(run(environment, tmp_path, "doctor", "--json").stdout)

    detail = next(found["detail"] for found in printed["findings"] if found["subject"] == "extra absent")
    words = shlex.split(detail.partition(". Install: ")[2])
    assert words[words.index("install") + 1 :][-len(expected) :] == expected
    assert words[0] in {"pip", sys.executable, "uv"}


def test_a_missing_page_is_installed_from_beside_the_core(tmp_path: Path) -> None:
    """`retrieval open` without the server names the server's package of the same checkout."""
    origin: dict[str, Any] = {"url": (tmp_path / "packages" / "retrieval_core").as_uri(), "dir_info": {}}
    environment = installed_copy(tmp_path, origin)
    # The tests' own environment has the server: for this process it is not there.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['retrieval_core_mcp'] = None\n", encoding="utf-8"
    )

    finished = run(environment, tmp_path, "open")

    assert finished.returncode != 0
    assert f"packages{os.sep}mcp_server" in finished.stderr
    assert "install retrieval-core-mcp" not in finished.stderr
