"""Which changes of files matter to an index that is kept up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from retrieval_core.cli.watching import matters

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "is_gone", "expected"),
    [
        *(("a.md", False, True), ("sub/a.MD", False, True), ("a.bin", False, False), ("a.md~", False, False)),
        *(("v1.2", True, True), ("a.md", True, True), ("folder", False, True), ("sub/.gitignore", False, True)),
        *((".hidden.md", False, False), (".git/index.lock", True, False), (".venv/a.md", False, False)),
        *(("my.db", True, False), ("my.db-wal", True, False), ("my.db/table.md", False, False)),
    ],
)
def test_what_may_be_read_or_was_a_folder_matters(tmp_path: Path, name: str, is_gone: bool, expected: bool) -> None:
    """Hidden files do not, nor does the index itself, which would be written for ever."""
    (tmp_path / "folder").mkdir()
    assert matters(tmp_path / name, is_gone, [tmp_path], tmp_path / "my.db") is expected


def test_a_watched_folder_may_be_hidden_itself(tmp_path: Path) -> None:
    """Who names it wants it."""
    assert matters(tmp_path / ".notes/a.md", False, [tmp_path / ".notes"], tmp_path / "my.db")
