"""Reading a file in a process of its own."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

import pytest

from retrieval_core import open_index
from retrieval_core.errors import UnreadableFileError
from retrieval_core.ingest import reading
from retrieval_core.ingest.isolated import read_isolated
from retrieval_core.ingest.readers import ReadOptions, read_file
from retrieval_core.testing.fakes import FakeEmbedder

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.ingest.report import Note

NUMBERS = "text,price\n" + "".join(f"A lamp.,{price}\n" for price in [*range(40), "call us"])


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-c", code


def test_it_reads_what_is_read_without_it(tmp_path: Path) -> None:
    """Fields, rows and notes too, in tables with more rows than are read at a time."""
    (tmp_path / "a.md").write_text("---\ntags: [x, y]\n---\n# Ä\n\nText \U0001f315.\n", "utf-8")
    (tmp_path / "b.csv").write_text(NUMBERS, "utf-8")
    for name in ("a.md", "b.csv"):
        notes: list[Note] = []
        others: list[Note] = []
        options = ReadOptions(columns={"price": "cost"}, on_note=notes.append)
        isolated = list(read_isolated(tmp_path / name, options))
        assert isolated == list(
            read_file(tmp_path / name, ReadOptions(columns={"price": "cost"}, on_note=others.append))
        )
        assert notes == others
    assert notes


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os; os.abort()", "its reader broke down"),
        ("print('{\"docu', end='')", "its reader broke down"),
        ("import time; time.sleep(1000)", "it was not read within 0.2 seconds"),
    ],
)
def test_a_reader_that_breaks_down_or_does_not_end_is_a_file_that_cannot_be_read(
    tmp_path: Path, code: str, reason: str
) -> None:
    with pytest.raises(UnreadableFileError, match=reason):
        list(read_isolated(tmp_path / "a.pdf", seconds=0.2 if "sleep" in code else 60, command=python(code)))


def test_an_index_lists_it_among_the_failures(tmp_path: Path) -> None:
    (tmp_path / "empty.md").write_bytes(b" ")
    (tmp_path / "full.md").write_text("# Full\n\nOf words.\n", "utf-8")
    with open_index(tmp_path / "index.db", embedder=FakeEmbedder()) as index:
        report = index.ingest([tmp_path / "empty.md", tmp_path / "full.md"], isolated=True)
    assert (report.added, [failed.error for failed in report.failed]) == (1, ["it contains no text"])


def test_who_has_left_ends_the_process_and_frees_its_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than there are threads that read: one after them is read all the same."""
    begun = [tmp_path / f"begun {number}" for number in range(3)]
    for number in range(3):
        (tmp_path / f"{number}.md").write_text("# Endless\n", "utf-8")
    (tmp_path / "last.md").write_text("# Last\n\nOf words.\n", "utf-8")

    async def run() -> None:
        async with open_index(tmp_path / "index.db", embedder=FakeEmbedder()) as index:
            for number, sign in enumerate(begun):
                code = f"import pathlib, time; pathlib.Path({str(sign)!r}).touch(); time.sleep(1000)"
                endless = partial(read_isolated, seconds=1000, command=python(code))
                with monkeypatch.context() as patched:
                    patched.setattr(reading, "read_isolated", endless)
                    ingesting = asyncio.ensure_future(index.aingest(tmp_path / f"{number}.md", isolated=True))
                    while not sign.exists():  # noqa: ASYNC110 - made by a process
                        await asyncio.sleep(0.01)
                ingesting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await ingesting
            assert (await index.aingest(tmp_path / "last.md", isolated=True)).added == 1

    asyncio.run(asyncio.wait_for(run(), 60))


def test_it_ends_when_it_is_over(tmp_path: Path) -> None:
    over = Event()
    over.set()
    with pytest.raises(UnreadableFileError, match="its reader broke down"):
        list(read_isolated(tmp_path / "a.pdf", over=over, command=python("import time; time.sleep(1000)")))
