"""``retrieval index --watch`` as a process: files come, change and go while it runs, until Ctrl-C."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from support.processes import RETRIEVAL, as_at_a_terminal, with_our_modules

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

pytest.importorskip("watchfiles", reason="pip install 'retrieval-core[watch]'")
pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="signals are others there"), pytest.mark.slow]

FAKE = ("--set", "embedder.kind=retrieval_core.testing.fakes:FakeEmbedder")


class Watch:
    """A watch of the folder ``docs``, and what it says."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def report(self) -> dict[str, Any]:
        """Return the next report, as soon as it is there."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the watch has ended"
        return json.loads(line)

    def interrupt(self) -> tuple[int, str]:
        """Press Ctrl-C, and return how the watch ended and what it said on standard error."""
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=120)
        return self.process.returncode, errors


def put(path: Path, text: str) -> None:
    """Write a file that is never seen half written, which would be a change of its own."""
    new = path.parents[1] / "new"
    new.write_text(text)
    new.replace(path)


@contextmanager
def watching(folder: Path, *settings: str) -> Generator[Watch]:
    (folder / "docs").mkdir()
    (folder / "docs/moon.md").write_text("The moon is 384,400 km away.\n")
    command = (*RETRIEVAL, "index", "docs", "--watch", "--json", *FAKE, *settings)
    with subprocess.Popen(
        command, cwd=folder, env=with_our_modules(), text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **as_at_a_terminal(),
    ) as process:  # fmt: skip
        try:
            yield Watch(process)
        finally:
            process.kill()


def test_what_changes_is_indexed_until_ctrl_c(tmp_path: Path) -> None:
    """What is new, changed, gone, ignored or unreadable; then one line, and the exit code of an interrupt."""
    docs = tmp_path / "docs"
    with watching(tmp_path) as watch:
        assert watch.report()["added"] == 1
        put(docs / "sun.md", "The sun is eight light minutes away.\n")
        assert watch.report()["added"] == 1
        put(docs / "moon.md", "The moon is 405,500 km away.\n")
        assert watch.report()["updated"] == 1
        put(docs / "broken.md", "\0\1\2")
        (failed,) = watch.report()["failed"]
        assert failed["path"].endswith("broken.md")
        (docs / "broken.md").unlink()
        assert watch.report()["failed"] == []
        (docs / "sun.md").unlink()
        assert watch.report()["removed"] == 1
        put(docs / ".gitignore", "moon.md\n")
        assert watch.report()["removed_as_ignored"] == 1
        code, errors = watch.interrupt()
    assert code == 130
    assert errors.split("\n") == ["Watching docs. Press Ctrl-C to stop.", "", "Stopped watching.", ""]


def test_changes_in_quick_succession_and_whole_folders(tmp_path: Path) -> None:
    """Many files are few runs, and a folder that is moved comes and goes with all that is in it."""
    with watching(tmp_path) as watch:
        watch.report()
        for number in range(100):
            put(tmp_path / "docs" / f"{number}.md", f"Text {number}.\n")
        runs = 0
        while watch.report()["documents"] < 101:
            runs += 1
        assert runs < 50
        folder = tmp_path / "v1.2"
        folder.mkdir()
        for number in range(3):
            (folder / f"{number}.md").write_text(f"Other text {number}.\n")
        shutil.move(folder, tmp_path / "docs")
        assert watch.report()["added"] == 3
        shutil.move(tmp_path / "docs/v1.2", tmp_path)
        assert watch.report()["removed"] == 3
        assert watch.interrupt()[0] == 130


FAILING = """
from retrieval_core.testing.fakes import FakeEmbedder

class Failing(FakeEmbedder):
    async def embed_texts(self, texts):
        if any("poison" in text for text in texts):
            raise ConnectionError("the service is down")
        return await super().embed_texts(texts)
"""


def test_a_run_that_fails_is_made_up_for_by_the_next(tmp_path: Path) -> None:
    """It says so and goes on; nothing of what changed meanwhile is lost."""
    (tmp_path / "embedding.py").write_text(FAILING)
    with watching(tmp_path, "--set", "embedder.kind=embedding:Failing", "--set", "retry.max_retries=0") as watch:
        watch.report()
        errors = watch.process.stderr
        assert errors is not None
        assert errors.readline().startswith("Watching docs")
        put(tmp_path / "docs/a.md", "A poisoned text.\n")
        line = errors.readline()
        assert line.startswith("Error: ")
        assert line.endswith("The files are read again after the next change.\n")
        put(tmp_path / "docs/b.md", "Another text.\n")
        assert errors.readline().startswith("Error: ")
        put(tmp_path / "docs/a.md", "A text.\n")
        assert watch.report()["added"] == 2
        assert watch.interrupt()[0] == 130


def test_a_folder_that_is_gone_is_warned_of_once(tmp_path: Path) -> None:
    """The watch goes on until Ctrl-C, and what was indexed stays."""
    with watching(tmp_path) as watch:
        watch.report()
        errors = watch.process.stderr
        assert errors is not None
        assert errors.readline().startswith("Watching docs")
        (tmp_path / "docs").rename(tmp_path / "other")
        assert errors.readline().startswith("Warning: the folder docs is not there; its documents stay in the index")
        code, more = watch.interrupt()
    assert (code, more) == (130, "\nStopped watching.\n")
