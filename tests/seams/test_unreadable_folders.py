"""Folders that cannot be entered: they are reported, and everything else is indexed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from support.processes import RETRIEVAL, with_our_modules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FAKE = ("--set", "embedder.kind=retrieval_core.testing.fakes:FakeEmbedder")
RIGHTS = "-dac_override,-dac_read_search"
"""The rights by which root reads everything."""


def as_others() -> tuple[str, ...]:
    """Return the beginning of a command for which permissions hold."""
    if sys.platform == "win32":
        pytest.skip("permissions are others there")
    if os.geteuid() != 0:
        return ()
    if (setpriv := shutil.which("setpriv")) is None:
        pytest.skip("root reads everything, and there is no setpriv to prevent that")
    return (setpriv, f"--bounding-set={RIGHTS}", f"--inh-caps={RIGHTS}")


def index(folder: Path, *paths: str) -> tuple[int, dict[str, Any]]:
    command = (*as_others(), *RETRIEVAL, "index", *paths, "--json", *FAKE)
    ended = subprocess.run(command, cwd=folder, env=with_our_modules(), text=True, capture_output=True, check=False)
    assert "Traceback" not in ended.stderr
    return ended.returncode, json.loads(ended.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Two files, and a third in a folder that nobody may enter."""
    closed = tmp_path / "docs/closed"
    closed.mkdir(parents=True)
    (tmp_path / "docs/moon.md").write_text("The moon is far away.\n")
    (tmp_path / "docs/sun.md").write_text("The sun is a star.\n")
    (closed / "secret.md").write_text("Nobody reads this.\n")
    yield tmp_path
    closed.chmod(0o700)


def test_the_other_files_are_indexed_and_the_folder_is_reported_once(folder: Path) -> None:
    """One report names the folder; the command ends with 1, as for any file that cannot be read."""
    (folder / "docs/closed").chmod(0)
    code, report = index(folder, "docs")
    assert (code, report["documents"], report["added"]) == (1, 2, 2)
    assert [item["path"].endswith("docs/closed") for item in report["failed"]] == [True]
    assert "cannot be read" in report["failed"][0]["error"]


def test_a_folder_that_is_closed_later_keeps_its_documents(folder: Path) -> None:
    """Nobody knows whether its files are gone."""
    assert index(folder, "docs")[0] == 0
    (folder / "docs/closed").chmod(0)
    code, report = index(folder, "docs")
    assert (code, report["documents"], report["removed"]) == (1, 3, 0)


def test_the_rules_of_a_folder_above_hold_beside_a_closed_one(folder: Path) -> None:
    """A ``.gitignore`` of the working tree is heeded as everywhere."""
    (folder / ".git").mkdir()
    (folder / ".gitignore").write_text("sun.md\n")
    (folder / "docs/closed").chmod(0)
    _, report = index(folder, "docs")
    assert report["documents"] == 1
