"""Which changes of files matter to an index that is kept up to date."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from retrieval_core import RetrievalConfig, open_index
from retrieval_core.cli.watching import Changes, find_changed, matters
from retrieval_core.config import EmbedderConfig

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


def test_only_files_of_the_index_are_indexed_by_themselves(tmp_path: Path) -> None:
    """Whether another file counts depends on the folders that it is in, and on what they ignore."""
    for name in ("a.md", "sub/b.md", "gone.md", "old/c.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    config = RetrievalConfig(index=str(tmp_path / ".retrieval/index.db"), embedder=EmbedderConfig(kind="none"))

    async def found(*names: str) -> list[str]:
        async with open_index(config=config) as index:
            changes = Changes((tmp_path,), frozenset(tmp_path / name for name in names))
            paths = await find_changed(changes, index.store, tmp_path)
            return sorted(path.relative_to(tmp_path).as_posix() for path in paths)

    async def check() -> None:
        async with open_index(config=config) as index:
            await index.aingest(tmp_path)
            assert await find_changed(Changes((tmp_path,), None), index.store, tmp_path) == (tmp_path,)
        (tmp_path / "gone.md").unlink()
        (tmp_path / "old").rename(tmp_path.with_name("elsewhere"))
        (tmp_path / "new.md").touch()
        assert await found("a.md", "sub/b.md") == ["a.md", "sub/b.md"]
        assert await found("a.md", "a.md.tmp") == ["a.md"]  # an editor has put a new file in its place
        assert await found("a.md.tmp") == []
        for other in ("new.md", "gone.md", "old", "sub", ".gitignore"):
            (tmp_path / ".gitignore").touch()
            assert await found("a.md", other) == ["."]

    asyncio.run(check())
