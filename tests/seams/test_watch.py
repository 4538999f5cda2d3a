"""Folders that are replaced while ``retrieval index --watch`` and ``retrieval-mcp --watch`` follow them."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from threading import Timer
from typing import IO, TYPE_CHECKING

import pytest

from support.processes import MCP, RETRIEVAL, as_at_a_terminal, with_our_modules

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

pytest.importorskip("watchfiles", reason="the commands need the extra watch")
pytest.importorskip("retrieval_core_mcp", reason="one of the commands is that of retrieval-core-mcp")
pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="open folders can't be replaced there"),
    pytest.mark.slow,
]

EMBEDDER = {"RETRIEVAL_EMBEDDER__KIND": "retrieval_core.testing.fakes:FakeEmbedder"}
COUNTS = ("added", "updated", "removed")
PATIENCE = 120
"""Seconds after which a command that says nothing is killed."""


class Watching:
    """A command that follows folders."""

    def __init__(self, process: subprocess.Popen[str], *, prints_reports: bool) -> None:
        self.process = process
        self._prints_reports = prints_reports

    def counts(self) -> dict[str, int]:
        """Wait for the next run, and return what it did."""
        if self._prints_reports:
            report = json.loads(_next_line(self.process.stdout, '"unchanged"'))
            return {name: report[name] for name in COUNTS if report[name]}
        found = re.findall(r"(\d+) (\w+)", _next_line(self.process.stderr, "indexed: "))
        return {name: int(count) for count, name in found if name in COUNTS and int(count)}

    def counts_of_runs_until(self, expected: dict[str, int]) -> dict[str, int]:
        """Return the sum of the next runs, as soon as it is as expected; a slow machine may need several runs."""
        total: dict[str, int] = dict.fromkeys(COUNTS, 0)
        while True:
            for name, count in self.counts().items():
                total[name] += count
            if {name: count for name, count in total.items() if count} == expected:
                return expected

    def says(self, text: str) -> str:
        """Wait for a line with a text on standard error."""
        return _next_line(self.process.stderr, text)


def _next_line(stream: IO[str] | None, text: str) -> str:
    assert stream is not None
    for line in stream:
        if text in line:
            return line
    pytest.fail(f"the command ended before it said {text!r}")


@contextmanager
def watching(command: str, folder: Path, *docs: str) -> Generator[Watching]:
    """Start a command in a folder, with Ctrl-C at the end."""
    if command == "retrieval":
        arguments = [*RETRIEVAL, "index", *docs, "--watch", "--json"]
    else:
        roots = [argument for name in docs for argument in ("--root", name)]
        arguments = [*MCP, "--http", "127.0.0.1:0", "--watch", "--log-level", "info", *roots]
    with subprocess.Popen(
        arguments, cwd=folder, env=with_our_modules() | EMBEDDER, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **as_at_a_terminal(),
    ) as process:  # fmt: skip
        patience = Timer(PATIENCE, process.kill)
        patience.start()
        try:
            yield Watching(process, prints_reports=command == "retrieval")
            process.send_signal(signal.SIGINT)
            process.communicate()
            assert process.returncode == 130
        finally:
            patience.cancel()
            process.kill()


def write(folder: Path, **texts: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        new = folder.parent / f"{name}.new"
        new.write_text(text)
        new.rename(folder / f"{name}.md")
    return folder


def switch(link: Path, target: Path) -> None:
    """Replace a link in one step, as deployments do."""
    new = link.with_name("switching")
    new.symlink_to(target, target_is_directory=True)
    new.rename(link)


both = pytest.mark.parametrize("command", ["retrieval", "retrieval-mcp"])


@both
def test_a_folder_that_is_deleted_and_made_again(tmp_path: Path, command: str) -> None:
    """Site generators do so: it is followed on, and its documents are not dropped while it is away or empty."""
    docs = write(tmp_path / "docs", moon="The moon is far.", sun="The sun is hot.")
    with watching(command, tmp_path, "docs") as watch:
        assert watch.counts() == {"added": 2}
        shutil.move(docs, tmp_path / "old")
        assert "docs is not there; its documents stay" in watch.says("its documents stay")
        docs.mkdir()
        write(tmp_path / "built", moon="The moon is far.", sun="The sun is very hot.", mars="Mars is red.")
        for file in (tmp_path / "built").iterdir():
            file.rename(docs / file.name)
        watch.says("is back")
        assert watch.counts_of_runs_until({"added": 1, "updated": 1})
        write(docs, venus="Venus is bright.")
        assert watch.counts() == {"added": 1}


@both
def test_a_folder_that_is_replaced_at_once(tmp_path: Path, command: str) -> None:
    """Deleted and made again without a pause, twice, it is followed all the same."""
    docs = write(tmp_path / "docs", moon="The moon is far.")
    with watching(command, tmp_path, "docs") as watch:
        assert watch.counts() == {"added": 1}
        for number in range(2):
            write(tmp_path / "new", moon="The moon is far.", **{f"star{number}": f"Star {number} is bright."})
            if number:
                write(tmp_path / "new", star0="Star 0 is bright.")
            shutil.rmtree(docs)
            (tmp_path / "new").rename(docs)
            assert watch.counts_of_runs_until({"added": 1})
        write(docs, venus="Venus is bright.")
        assert watch.counts() == {"added": 1}


@both
def test_a_folder_that_is_renamed_and_put_back(tmp_path: Path, command: str) -> None:
    """What changed while it was elsewhere is indexed when it is back."""
    docs = write(tmp_path / "docs", moon="The moon is far.")
    with watching(command, tmp_path, "docs") as watch:
        assert watch.counts() == {"added": 1}
        docs.rename(tmp_path / "elsewhere")
        watch.says("its documents stay")
        write(tmp_path / "elsewhere", sun="The sun is hot.")
        (tmp_path / "elsewhere").rename(docs)
        watch.says("is back")
        assert watch.counts() == {"added": 1}
        write(docs, mars="Mars is red.")
        assert watch.counts() == {"added": 1}


@both
@pytest.mark.parametrize("followed", ["current", "current/docs"])
def test_a_link_that_is_switched(tmp_path: Path, command: str, followed: str) -> None:
    """Deployments do so: documents keep their names, so each is there once, in the version of the new folder."""
    below = followed.removeprefix("current").strip("/")
    write(tmp_path / "releases/1" / below, moon="The moon is far.", sun="The sun is hot.")
    write(tmp_path / "releases/2" / below, moon="The moon is near.", mars="Mars is red.")
    switch(tmp_path / "current", tmp_path / "releases/1")
    with watching(command, tmp_path, followed) as watch:
        assert watch.counts() == {"added": 2}
        switch(tmp_path / "current", tmp_path / "releases/2")
        assert watch.counts() == {"added": 1, "updated": 1, "removed": 1}
        write(tmp_path / "releases/2" / below, venus="Venus is bright.")
        assert watch.counts() == {"added": 1}


@both
def test_a_parent_that_is_replaced(tmp_path: Path, command: str) -> None:
    """The path is followed into the new parent."""
    write(tmp_path / "site/docs", moon="The moon is far.")
    with watching(command, tmp_path, "site/docs") as watch:
        assert watch.counts() == {"added": 1}
        (tmp_path / "site").rename(tmp_path / "old")
        watch.says("its documents stay")
        write(tmp_path / "new/docs", moon="The moon is far.", sun="The sun is hot.")
        (tmp_path / "new").rename(tmp_path / "site")
        watch.says("is back")
        assert watch.counts() == {"added": 1}


@both
def test_the_other_folders_are_followed_while_one_is_missing(tmp_path: Path, command: str) -> None:
    """The documents of the missing folder stay, and it is warned of once."""
    docs, notes = write(tmp_path / "docs", moon="The moon is far."), write(tmp_path / "notes", sun="The sun is hot.")
    with watching(command, tmp_path, "docs", "notes") as watch:
        assert watch.counts() == {"added": 2}
        docs.rename(tmp_path / "old")
        watch.says("docs is not there")
        for name in ("mars", "venus"):
            write(notes, **{name: f"About {name}."})
            assert watch.counts() == {"added": 1}
        (tmp_path / "old").rename(docs)
        assert "docs is back" in watch.says("docs is")
        (docs / "moon.md").unlink()
        assert watch.counts() == {"removed": 1}


def test_a_server_waits_for_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    """It may start before the documents are built."""
    with watching("retrieval-mcp", tmp_path, "docs") as watch:
        watch.says("docs is not there")
        write(tmp_path / "built", moon="The moon is far.")
        (tmp_path / "built").rename(tmp_path / "docs")
        watch.says("docs is back")
        assert watch.counts() == {"added": 1}
