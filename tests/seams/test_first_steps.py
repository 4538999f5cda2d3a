"""The first minutes with the library: what is missing, deleted or not finished yet is told."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mcp import Client
from retrieval_core import RetrievalConfig, open_index
from retrieval_core.errors import IndexNotFoundError, UnreadableFileError
from retrieval_core.testing.fakes import FakeEmbedder
from support.http_process import http_process
from support.processes import RETRIEVAL, with_our_modules

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from retrieval_core import Index

PART = r"12\d of 250 files indexed so far"
"""With 128 files written, the last of which may not be counted yet."""
PATIENCE = 300
"""Seconds that only a hang exceeds."""
FAKE = ("--set", "embedder.kind=retrieval_core.testing.fakes:FakeEmbedder")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command ``retrieval`` in a folder."""
    command = [*RETRIEVAL, *arguments, *FAKE]
    return subprocess.run(command, cwd=folder, env=with_our_modules(), capture_output=True, text=True, check=False)


def index_in(folder: Path, embedder: Any = None, **settings: Any) -> Index:
    settings = {"index": str(folder / ".retrieval/index.db"), "embedder": {"kind": "none"}, **settings}
    config = RetrievalConfig.model_validate(settings)
    return open_index(config=config, embedder=embedder or FakeEmbedder())


def test_a_deleted_file_that_is_named_is_removed(tmp_path: Path) -> None:
    """All documents of a table go with it, and the report counts them."""
    (tmp_path / "moon.md").write_text("The moon is far.")
    (tmp_path / "stars.csv").write_text("id,name\n1,Vega\n2,Sirius\n")
    with index_in(tmp_path) as index:
        assert index.ingest(tmp_path).added == 3
        (tmp_path / "moon.md").unlink()
        (tmp_path / "stars.csv").unlink()
        report = index.ingest([str(tmp_path / "moon.md"), tmp_path / "stars.csv"])
        assert (report.removed, report.documents, report.failed) == (3, 0, ())


def test_a_deleted_file_is_removed_by_the_command(tmp_path: Path) -> None:
    """It says so and succeeds; named once more, the file is unknown."""
    (tmp_path / "moon.md").write_text("The moon is far.")
    (tmp_path / "sun.md").write_text("The sun is hot.")
    assert run(tmp_path, "index", ".").returncode == 0
    (tmp_path / "moon.md").unlink()
    ended = run(tmp_path, "index", "moon.md", "--json")
    assert (ended.returncode, json.loads(ended.stdout)["removed"]) == (0, 1)
    again = run(tmp_path, "index", "moon.md")
    assert again.returncode == 1
    assert "moon.md: there is no such file or folder, and the index has no documents from it" in again.stderr


def test_a_path_that_was_never_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names it; beside others that are there, it is in the report."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "moon.md").write_text("The moon is far.")
    with index_in(tmp_path) as index:
        with pytest.raises(UnreadableFileError, match=r"^typo: there is no such file or folder"):
            index.ingest("typo")
        report = index.ingest(["typo", "moon.md"])
        assert report.added == 1
        assert ["there is no such file" in failed.error for failed in report.failed] == [True]


def test_a_missing_folder_keeps_its_documents(tmp_path: Path) -> None:
    """A network drive may be back in a moment; the report says how to remove them."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/moon.md").write_text("The moon is far.")
    with index_in(tmp_path) as index:
        index.ingest(tmp_path / "docs")
        (tmp_path / "docs").rename(tmp_path / "other")
        report = index.ingest(tmp_path / "docs")
        assert (report.removed, report.documents) == (0, 1)
        assert "the documents of 1 file in it stay in the index" in report.failed[0].error
        (tmp_path / "other").rename(tmp_path.parent / f"{tmp_path.name}-away")
        assert index.ingest(tmp_path).removed == 1


class Held(FakeEmbedder):
    """Embeds documents as often as it is told, and then waits until it is let go."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.is_waiting, self.go = Event(), Event()
        self._left = batches

    async def embed_texts(self, texts: Sequence[str]) -> Any:
        """Wait, but for the first calls."""
        self._left -= 1
        if self._left < 0:
            self.is_waiting.set()
            assert await asyncio.to_thread(self.go.wait, PATIENCE)
        return await super().embed_texts(texts)


@contextmanager
def indexing(folder: Path, *, batches: int) -> Generator[Index]:
    """Begin to index 250 files, and yield the index when so many batches of 128 files are written."""
    (folder / "docs").mkdir()
    for number in range(250):
        (folder / "docs" / f"{number}.md").write_text(f"Star {number} is bright.")
    held = Held(batches)
    with index_in(folder, held, indexing={"words_first": False}) as index:
        with ThreadPoolExecutor() as pool:
            report = pool.submit(index.ingest, folder / "docs")
            assert held.is_waiting.wait(PATIENCE)
            try:
                yield index
            finally:
                held.go.set()
            assert report.result().added == 250
        assert not index.retrieve("star").degraded
        with open_index(config=index.config, embedder=FakeEmbedder()) as another:
            assert not another.retrieve("star").degraded


def test_a_search_before_the_first_documents_are_there(tmp_path: Path) -> None:
    """It says how far indexing is, in the same process and in another."""
    with indexing(tmp_path, batches=0) as index:
        with pytest.raises(IndexNotFoundError, match="0 of 250 files indexed so far"):
            index.retrieve("star")
        ended = run(tmp_path, "search", "star")
        assert ended.returncode == 1
        assert "0 of 250 files indexed so far" in ended.stderr


def test_a_search_of_the_first_documents(tmp_path: Path) -> None:
    """It finds what there is, and says how much of the index that is."""
    with indexing(tmp_path, batches=1) as index:
        (note,) = index.retrieve("star").degraded
        assert note.stage == "index"
        assert re.fullmatch(f"{PART}; the others can't be found yet", note.reason)
        assert index.context("star").degraded == (note,)
        ended = run(tmp_path, "search", "star")
        assert ended.returncode == 0
        assert re.search(PART, ended.stdout)


def test_servers_say_how_far_indexing_is(tmp_path: Path) -> None:
    """MCP and HTTP do so before the first documents are there and after; nobody is told to run a command."""
    pytest.importorskip("retrieval_core_mcp")
    for batches, expected in ((0, "0 of 250 files indexed so far"), (1, PART)):
        folder = tmp_path / str(batches)
        folder.mkdir()
        environment = {"RETRIEVAL_EMBEDDER__KIND": "retrieval_core.testing.fakes:FakeEmbedder"}
        with indexing(folder, batches=batches), http_process(folder=folder, environment=environment) as service:
            said = httpx.post(f"{service.url}/v1/search", json={"query_text": "star"}, timeout=PATIENCE).text
            assert re.search(expected, said)

            async def search(url: str) -> str:
                async with Client(f"{url}/mcp") as client:
                    return str(await client.call_tool("search", {"query": "star"}))

            said = asyncio.run(search(service.url))
            assert re.search(expected, said)
            assert "retrieval index" not in said


def test_the_tool_index_path_removes_a_deleted_file(tmp_path: Path) -> None:
    """It reports one document as removed; a path that nobody knows is refused."""
    pytest.importorskip("retrieval_core_mcp")
    environment = {"RETRIEVAL_EMBEDDER__KIND": "retrieval_core.testing.fakes:FakeEmbedder"}
    (tmp_path / "moon.md").write_text("The moon is far.")
    with http_process("--allow-writes", folder=tmp_path, environment=environment) as service:

        async def conversation() -> None:
            async with Client(f"{service.url}/mcp") as client:
                first: Any = await client.call_tool("index_path", {"path": "."})
                assert first.structured_content["added"] == 1
                (tmp_path / "moon.md").unlink()
                gone: Any = await client.call_tool("index_path", {"path": "moon.md"})
                assert (gone.structured_content["removed"], gone.structured_content["documents"]) == (1, 0)
                unknown: Any = await client.call_tool("index_path", {"path": "moon.md"})
                assert unknown.is_error
                assert "there is no file or folder moon.md" in unknown.content[0].text

        asyncio.run(conversation())
