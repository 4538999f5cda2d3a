"""The first minutes with the library: what is missing, deleted or not finished yet is told."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import patch

import pytest

from retrieval_core import Chunk, Document, RetrievalConfig, open_index
from retrieval_core.errors import IndexNotFoundError, InvalidParameterError, StoreError, UnreadableFileError
from retrieval_core.testing.fakes import FakeEmbedder
from support.extras import needs_tokenizer
from support.http_process import http_process
from support.processes import RETRIEVAL, with_our_modules

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

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
    """Begin to index 250 files, and yield the index when so many batches of 128 files are written with vectors."""
    (folder / "docs").mkdir()
    for number in range(250):
        (folder / "docs" / f"{number}.md").write_text(f"Star {number} is bright.")
    held = Held(batches)
    together = patch("retrieval_core.ingest.ingester.CHUNKS_PER_WRITE", 1_000)  # so few are not searched by words first
    with together, index_in(folder, held) as index:
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


@needs_tokenizer
def test_a_search_of_the_first_documents(tmp_path: Path) -> None:
    """It finds what there is, and says how much of the index that is."""
    with indexing(tmp_path, batches=1) as index:
        (note,) = index.retrieve("star").degraded
        assert note.stage == "index"
        assert re.fullmatch(f"{PART}; the others can't be found yet", note.reason)
        assert index.context("star").degraded == (note,)
        ended = run(tmp_path, "search", "star")
        assert ended.returncode == 0
        assert re.search(PART, ended.stderr)


@pytest.mark.slow
def test_servers_say_how_far_indexing_is(tmp_path: Path) -> None:
    """MCP and HTTP do so before the first documents are there and after; nobody is told to run a command."""
    pytest.importorskip("retrieval_core_mcp")
    import httpx2

    from mcp import Client

    for batches, expected in ((0, "0 of 250 files indexed so far"), (1, PART)):
        folder = tmp_path / str(batches)
        folder.mkdir()
        environment = {"RETRIEVAL_EMBEDDER__KIND": "retrieval_core.testing.fakes:FakeEmbedder"}
        with indexing(folder, batches=batches), http_process(folder=folder, environment=environment) as service:
            said = httpx2.post(f"{service.url}/v1/search", json={"query_text": "star"}, timeout=PATIENCE).text
            assert re.search(expected, said)

            async def search(url: str) -> str:
                async with Client(f"{url}/mcp?structured=true") as client:
                    return str(await client.call_tool("search", {"query": "star"}))

            said = asyncio.run(search(service.url))
            assert re.search(expected, said)
            assert "retrieval index" not in said


def test_the_tool_index_path_removes_a_deleted_file(tmp_path: Path) -> None:
    """It reports one document as removed; a path that nobody knows is refused."""
    pytest.importorskip("retrieval_core_mcp")
    from mcp import Client

    environment = {"RETRIEVAL_EMBEDDER__KIND": "retrieval_core.testing.fakes:FakeEmbedder"}
    (tmp_path / "moon.md").write_text("The moon is far.")
    with http_process("--allow-writes", folder=tmp_path, environment=environment) as service:

        async def conversation() -> None:
            async with Client(f"{service.url}/mcp?structured=true") as client:
                first: Any = await client.call_tool("index_path", {"path": "."})
                assert first.structured_content["added"] == 1
                (tmp_path / "moon.md").unlink()
                gone: Any = await client.call_tool("index_path", {"path": "moon.md"})
                assert (gone.structured_content["removed"], gone.structured_content["documents"]) == (1, 0)
                unknown: Any = await client.call_tool("index_path", {"path": "moon.md"})
                assert unknown.is_error
                assert "there is no file or folder moon.md" in unknown.content[0].text

        asyncio.run(conversation())


def test_a_document_needs_an_id_and_a_text(tmp_path: Path) -> None:
    """Its source is its id and its hash is computed, also if somebody hands over None."""
    with index_in(tmp_path) as index:
        index.add_documents([Document("d1", "The moon is far."), Document("d2", "A star.", source=cast("Any", None))])
        hits = index.retrieve("moon").hits
        assert [(hit.chunk.document_id, hit.chunk.source) for hit in hits[:1]] == [("d1", "d1")]
        assert index.ingest([]).documents == 2


WRONG: dict[str, Any] = {
    "id": 5,
    "document_id": None,
    "text": b"text",
    "chunk_index": "5",
    "total_chunks": 1.5,
    "page_span": (1, 2),
    "section_path": "Moon",
    "span": (0, 4),
    "parent_id": 7,
    "row_range": "12",
    "item_range": (1,),
    "title": ["Moon"],
    "source": 3.5,
    "content_hash": 8,
    "timestamp": "2026-01-01",
    "embedding_model": object,
    "metadata": [("a", 1)],
    "missing_fields": 5,
    "lines": (1, 2, 3),
}


@pytest.mark.parametrize("name", [field.name for field in fields(Chunk)])
def test_a_chunk_with_a_wrong_type_is_refused(name: str) -> None:
    """The error names the field and the value, when the chunk is made."""
    right: dict[str, Any] = {"id": "c", "document_id": "d", "text": "The moon is far."}
    with pytest.raises(InvalidParameterError, match=f"^{name} .*got ") as caught:
        Chunk(**{**right, name: WRONG[name]})
    assert str(WRONG[name]) in str(caught.value)


@pytest.mark.parametrize("name", ["id", "text", "source", "content_hash", "title", "timestamp", "metadata"])
def test_a_document_with_a_wrong_type_is_refused(name: str) -> None:
    """As for chunks."""
    given: dict[str, Any] = {"id": "d", "text": "The moon is far.", name: 5}
    with pytest.raises(InvalidParameterError, match=f"^{name} .*got 5 "):
        Document(**given)


def test_other_values_than_those_that_a_method_takes(tmp_path: Path) -> None:
    """One value in place of a list, and values of another type, are named."""
    chunk, document = Chunk("c", "d", "text"), Document("d", "text")
    with index_in(tmp_path) as opened:
        index: Any = opened
        for call, given in (
            (index.add, chunk),
            (index.add, ["text"]),
            (index.add_documents, document),
            (index.add_documents, "text"),
            (index.ingest, None),
            (index.ingest, [5]),
            (index.delete, 5),
        ):
            with pytest.raises(InvalidParameterError, match=rf"^{call.__name__}\(\) takes "):
                call(given)


def old_index(folder: Path) -> Path:
    """Return an index as an earlier version wrote it: without some tables of today."""
    (folder / "moon.md").write_text("The moon is far.")
    with index_in(folder) as index:
        index.ingest(folder)
    file = folder / ".retrieval/index.db"
    with closing(sqlite3.connect(file)) as connection:
        for table in ("word_segments", "word_blocks", "stale_words", "late_vectors"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("PRAGMA user_version = 2")
        connection.commit()
        connection.execute("PRAGMA journal_mode = DELETE")
    return file


AS_NOBODY = """
import os, sys
from retrieval_core import Chunk, Document, RetrievalConfig, open_index
from retrieval_core.errors import StoreError
from retrieval_core.testing.fakes import FakeEmbedder
with open_index(sys.argv[1] + "/none.db", embedder=FakeEmbedder()) as index:
    try:
        index.retrieve("moon")  # loads all modules, which nobody may not read everywhere
    except StoreError:
        pass
os.setgid(65534)
os.setuid(65534)
with open_index(sys.argv[1] + "/index.db", embedder=FakeEmbedder()) as index:
    try:
        print(index.retrieve("moon").hits)
    except StoreError as error:
        print(error)
"""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become somebody else")
def test_an_index_of_an_old_format_in_a_read_only_folder() -> None:
    """The error says what has to happen, not what SQLite calls it."""
    with TemporaryDirectory() as place:  # that of pytest is for its user alone
        file = old_index(Path(place))
        for path in (Path(place), file.parent, file):
            path.chmod(0o555 if path.is_dir() else 0o444)
        command = [sys.executable, "-c", AS_NOBODY, str(file.parent)]
        ended = subprocess.run(command, env=with_our_modules(), capture_output=True, text=True, check=True)
    assert "index.db has index format 2, which this version of retrieval-core has to convert" in ended.stdout
    assert "Open it once with permission to write in its folder, or copy it" in ended.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="SQLite tells files apart by their names there")
def test_an_index_that_is_open_under_another_name(tmp_path: Path) -> None:
    """SQLite calls it a disk I/O error; we name the hard link."""
    (tmp_path / "moon.md").write_text("The moon is far.")
    with index_in(tmp_path) as index:
        index.ingest(tmp_path)
        other = tmp_path / ".retrieval/other.db"
        other.hardlink_to(tmp_path / ".retrieval/index.db")
        with index_in(tmp_path, index=str(other)) as linked, pytest.raises(StoreError, match="a hard link, and SQLite"):
            linked.retrieve("moon")
        assert index.retrieve("moon").hits


def test_a_hard_link_to_an_indexed_file_is_a_file_of_its_own(tmp_path: Path) -> None:
    """Each name has its document, and one that is deleted takes only its own along."""
    (tmp_path / "moon.md").write_text("The moon is far.")
    (tmp_path / "copy.md").hardlink_to(tmp_path / "moon.md")
    with index_in(tmp_path) as index:
        assert index.ingest(tmp_path).added == 2
        (tmp_path / "moon.md").unlink()
        assert index.ingest(tmp_path).removed == 1
        assert {hit.chunk.document_id for hit in index.retrieve("moon").hits} == {"copy.md"}


def test_the_report_counts_empty_files_and_types_that_are_not_read(tmp_path: Path) -> None:
    """Neither makes the command fail; text and JSON name the suffixes, most frequent first."""
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in ("a.png", "b.PNG", "c.zip", "payload", ".hidden.png", "out.log"):
        (docs / name).write_bytes(b"x")
    (docs / ".gitignore").write_text("*.log\n")
    (docs / "moon.md").write_text("The moon is far.")
    (docs / "empty.md").write_text("")
    ended = run(tmp_path, "index", "docs")
    assert ended.returncode == 0
    assert ended.stdout.startswith("1 document, 1 chunk in .retrieval/index.db · 1 added · ")
    assert "Warning: 1 empty file skipped\n" in ended.stderr
    assert "Warning: 4 files of unsupported types skipped: 2 .png, 1 without suffix, 1 .zip\n" in ended.stderr
    (docs / "moon.md").write_text("")
    ended = run(tmp_path, "index", "docs", "--json")
    report = json.loads(ended.stdout)
    assert (ended.returncode, report["empty"], report["removed"], report["documents"]) == (0, 2, 1, 0)
    assert report["skipped_types"] == {".png": 2, ".zip": 1, "": 1}
    assert report["store"] == ".retrieval/index.db"


def test_the_report_names_the_store_that_was_filled(tmp_path: Path) -> None:
    """It never names a file that does not exist."""
    (tmp_path / "docs").mkdir()
    ended = run(tmp_path, "index", "docs")
    assert "0 documents, 0 chunks · " in ended.stdout
    assert ".db" not in ended.stdout
    (tmp_path / "docs/moon.md").write_text("The moon is far.")
    ended = run(tmp_path, "index", "docs", "--store", "memory")
    assert "1 chunk in memory, which is lost when the process ends" in ended.stdout
    assert ".db" not in ended.stdout


@pytest.mark.slow
def test_the_report_names_a_folder_of_lancedb(tmp_path: Path) -> None:
    """The default place becomes a folder."""
    pytest.importorskip("lancedb")
    (tmp_path / "moon.md").write_text("The moon is far.")
    ended = run(tmp_path, "index", "moon.md", "--store", "lancedb")
    assert "1 chunk in .retrieval/index.lance" in ended.stdout


@pytest.mark.slow
def test_the_report_names_a_collection_of_qdrant(tmp_path: Path) -> None:
    """With the address of its server, or the folder of its local mode."""
    pytest.importorskip("qdrant_client")
    (tmp_path / "moon.md").write_text("The moon is far.")
    qdrant = ("--store", "qdrant", "--set", "store.qdrant.path=folder", "--set", "store.qdrant.collection=notes")
    ended = run(tmp_path, "index", "moon.md", *qdrant)
    assert "1 chunk in the Qdrant collection notes at folder · " in ended.stdout


def test_the_only_hit_does_not_have_the_score_zero(tmp_path: Path) -> None:
    """Of one value nothing can be normalized, so it is the best there is."""
    with index_in(tmp_path) as index:
        index.add_documents([Document("moon", "The moon is far.")])
        (hit,) = index.retrieve("moon").hits
        assert hit.score == 1
        index.add_documents([Document("sun", "The sun is hot.")])
        first, *_ = index.retrieve("moon").hits
        assert first.chunk.document_id == "moon"
        assert first.score > 0
