"""Searching for patterns in files of all formats, in all stores, and on the command line."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

pytest.importorskip("re2", reason="the extra grep")

from retrieval_core import Chunk, Document, load_config, open_index
from retrieval_core.adapters.stores.first_run import remove_progress, write_progress
from retrieval_core.errors import IndexNotFoundError, SearchError
from retrieval_core.service.contents import IndexRequest, describe_index
from retrieval_core.service.emptiness import explain_emptiness
from retrieval_core.service.grep import GrepRequest, grep
from retrieval_core.service.searching import AnswerRequest, SearchIndexRequest, answer_events, search
from retrieval_core.service.served import OpenedIndex, ServedIndexes
from retrieval_core.service.service_context import ServiceContext
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types.filters import Eq
from support.command_line import main
from support.pdf_files import make_chapters
from support.read_only import LOOK_AT_READ_ONLY

if TYPE_CHECKING:
    from retrieval_core import Index
    from retrieval_core.types import GrepResult

STRICT = load_config(overrides={"embedder.kind": "none", "strict": True})
NO_EMBEDDER = load_config(overrides={"embedder.kind": "none"})
STORES = {"memory": None, "sqlite": None, "lancedb": "lancedb", "qdrant": "qdrant_client"}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a busy machine search everything at once."""
    monkeypatch.setattr("retrieval_core.index.index.SECONDS", 60)


def shown(result: GrepResult) -> list[tuple[str, int, str]]:
    return [(each.id, line.number, line.text) for each in result.documents for line in each.lines]


def opened_with(store: str, folder: Path) -> Index:
    """Open an empty index in a store."""
    if (module := STORES[store]) is not None:
        pytest.importorskip(module, reason=f"the extra {store!r} is not installed")
    if store == "qdrant":
        from retrieval_core.adapters.stores.qdrant import QdrantStore

        embedder = FakeEmbedder()
        local = QdrantStore(path=":memory:", embedder_id=embedder.id, dimension=embedder.dimension)
        return open_index(store=local, embedder=embedder)
    config = load_config(overrides={"embedder.kind": "none", "store.kind": store})
    return open_index(folder / f"index.{store}", config=config)


@pytest.mark.parametrize("store", STORES)
def test_every_store_gives_the_same_lines(tmp_path: Path, store: str) -> None:
    """Also of documents that have chunks only, and before anything was written."""
    with opened_with(store, tmp_path) as index:
        if store != "memory":
            with pytest.raises(IndexNotFoundError):
                index.grep("secret")
        index.add_documents(
            [Document("a.md", "alpha secret\n\nbeta", metadata={"team": "red"}), Document("b.md", "nothing")]
        )
        index.add(
            [
                Chunk("own#0", "own", "a Secret line", metadata={"team": "red"}),
                Chunk("own#1", "own", "a secret other line", 1, metadata={"team": "blue"}),
            ]
        )
        assert shown(index.grep("secret")) == [
            ("a.md", 1, "alpha secret"),
            ("own", 1, "a Secret line"),
            ("own", 3, "a secret other line"),
        ]
        assert shown(index.grep("secret", filters={"team": "blue"})) == [("own", 1, "a secret other line")]
        assert [
            (each.id, each.count) for each in index.grep("SECRET|beta", output="counts", ignore_case=True).documents
        ] == [
            ("a.md", 2),
            ("own", 2),
        ]
        index.delete("a.md")
        assert [each.id for each in index.grep("secret|beta", output="files").documents] == ["own"]


def test_a_collection_of_another_program_is_read(tmp_path: Path) -> None:
    """A point without a document's ID is a document of its own."""
    client: Any = pytest.importorskip("qdrant_client", reason="the extra 'qdrant' is not installed")
    from retrieval_core.adapters.stores.qdrant import QdrantStore

    place = str(tmp_path / "qdrant")
    other = client.QdrantClient(path=place)
    vectors = client.models.VectorParams(size=4, distance=client.models.Distance.COSINE)
    other.create_collection("retrieval", vectors_config=vectors)
    other.upsert("retrieval", [client.models.PointStruct(id=1, vector=[1, 0, 0, 0], payload={"text": "a valve"})])
    other.close()
    embedder = FakeEmbedder(4)
    store = QdrantStore(path=place, embedder_id=embedder.id, dimension=4)
    with open_index(store=store, embedder=embedder) as index:
        assert shown(index.grep("valve")) == [("1", 1, "a valve")]


def test_lines_of_pdf_and_word_files_have_their_pages(tmp_path: Path) -> None:
    docx: Any = pytest.importorskip("docx")
    make_chapters(tmp_path / "guide.pdf", 3)
    word = docx.Document()
    word.add_heading("Setup", 1)
    word.add_paragraph("Open the valve.")
    word.save(str(tmp_path / "setup.docx"))
    with open_index(tmp_path / "index.db", config=NO_EMBEDDER) as index:
        index.ingest(tmp_path)
        pdf, docx_file = index.grep("number (17|2[0-2])|open").documents
        pages = [line.page_span and (line.page_span.first, line.page_span.last) for line in pdf.lines]
        assert pages == [(1, 1), (2, 2), (2, 2), (2, 2)]
        assert pdf.lines[0].text == "Row 7 of page 1 has the valve number 17."
        text = index.document("guide.pdf")
        assert text is not None
        for line in pdf.lines:
            assert text.text.split("\n")[line.number - 1] == line.text
        assert [(docx_file.id, line.number, line.text) for line in docx_file.lines] == [
            ("setup.docx", 3, "Open the valve.")
        ]


READ_ONLY = """
import os
from retrieval_core import load_config, open_index

def look():
    with open_index("index.db", config=load_config(overrides={"embedder.kind": "none"})) as index:
        print([each.id for each in index.grep("valve").documents], index.grep("zzz").documents)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="folders have no such permission there")
def test_an_old_file_in_a_read_only_folder_is_searched() -> None:
    """It has no index of three characters, and gets none."""
    with TemporaryDirectory() as place:
        folder = Path(place) / "index"
        folder.mkdir()
        folder.parent.chmod(0o755)
        with open_index(folder / "index.db", config=NO_EMBEDDER) as index:
            index.add_documents([Document("a", "a valve"), Document("b", "nothing")])
        with sqlite3.connect(folder / "index.db") as file:
            file.execute("DROP TABLE trigrams")
            file.execute("DELETE FROM manifest WHERE key = 'trigrams'")
        file.close()
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY + LOOK_AT_READ_ONLY],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        folder.chmod(0o755)
    assert done.stdout.splitlines() == ["['a'] ()"] * 2, done.stderr


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Index two files, and go to their folder."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("# Valves\n\nOpen the valve.\n\x1b[31mred\x1b[0m valve\nShut it.\n")
    (tmp_path / "docs/b.txt").write_text("No VALVE here\n")
    monkeypatch.chdir(tmp_path)
    assert command("index", "docs", "--set", "embedder.kind=none")[0] == 0
    return tmp_path


def command(*arguments: str) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error of a command."""
    done = CliRunner().invoke(main, arguments)
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "output"),
    [
        (["open"], 0, "docs/a.md:3: Open the valve.\n"),
        (["-s", "VALVE"], 0, "docs/b.txt:1: No VALVE here\n"),
        (
            ["-C1", "open"],
            0,
            "docs/a.md-2- \ndocs/a.md:3: Open the valve.\ndocs/a.md-4- \ufffd[31mred\ufffd[0m valve\n",
        ),
        (["-l", "valve"], 0, "docs/a.md\ndocs/b.txt\n"),
        (["-c", "valve"], 0, "docs/a.md: 3\ndocs/b.txt: 1\n"),
        (["-F", "valve."], 0, "docs/a.md:3: Open the valve.\n"),
        (["-w", "Valve"], 1, ""),
        (["valve", "*.txt"], 0, "docs/b.txt:1: No VALVE here\n"),
        (["-g", "b.txt", "valve"], 0, "docs/b.txt:1: No VALVE here\n"),
        (["--filter", '{"source": "docs/b.txt"}', "valve"], 0, "docs/b.txt:1: No VALVE here\n"),
        (["nowhere"], 1, ""),
    ],
)
def test_the_command_prints_lines_as_grep_does(folder: Path, arguments: list[str], code: int, output: str) -> None:
    assert command("grep", *arguments)[:2] == (code, output)


def test_the_command_continues_with_a_cursor(folder: Path) -> None:
    code, output, error = command("grep", "--limit", "2", "valve")
    assert (code, output.count("\n")) == (0, 2)
    cursor = error.removeprefix("cursor: ").strip()
    code, output, error = command("grep", "--limit", "2", "--cursor", cursor, "valve")
    assert (code, [line.partition(": ")[0] for line in output.splitlines()]) == (0, ["docs/a.md:4", "docs/b.txt:1"])
    cursor = error.removeprefix("cursor: ").strip()
    assert command("grep", "--limit", "2", "--cursor", cursor, "valve") == (1, "", "")
    assert [each["id"] for each in json.loads(command("grep", "--json", "valve")[1])["documents"]] == [
        "docs/a.md",
        "docs/b.txt",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-i", "-s", "a"], "not both"),
        (["-g", "b", "a", "b"], "not both"),
        (["a(?=b)"], "lookaround"),
        (["("], "set literal (-F)"),
        (["-C", "21", "a"], "20"),
        (["--limit", "0", "a"], "limit"),
        (["--cursor", "x", "a"], "cursor"),
        ([""], "pattern"),
        (["a", "x" * 3000], "path"),
        (["\udc80"], "valid string"),
        (["--filter", "{", "a"], "filter"),
    ],
)
def test_wrong_use_of_the_command_has_exit_code_2(folder: Path, arguments: list[str], said: str) -> None:
    code, output, error = command("grep", *arguments)
    assert (code, output) == (2, "")
    assert said in error


def test_an_index_that_is_not_there_has_its_own_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, output, error = command("grep", "a")
    assert (code, output) == (1, "")
    assert "there is no index" in error
    assert list(tmp_path.iterdir()) == []


def test_an_index_that_is_being_built_says_so(folder: Path) -> None:
    (place,) = folder.rglob("index.db")
    write_progress(place, 2, 5)
    code, output, error = command("grep", "nowhere")
    assert (code, output) == (1, "")
    assert "still being built: 2 of 5 files indexed so far; the others can't be found yet" in error

    async def check() -> None:
        async with open_index(place) as index:
            context = ServiceContext(ServedIndexes(OpenedIndex(index)))
            assert "2 of 5 files" in await explain_emptiness(context, None, None)
            assert (await describe_index(context, IndexRequest())).status == "yellow"
            tenant = replace(context, tenant=Eq("tenant", "a"))
            assert (await grep(tenant, GrepRequest(pattern="valve"))).incomplete == "more may be found later"
            told = (await search(tenant, SearchIndexRequest(query="valve"))).degraded
            assert [each.reason for each in told if each.stage == "index"] == ["more may be found later"]
        async with open_index(place, config=STRICT) as index:
            tenant = ServiceContext(ServedIndexes(OpenedIndex(index)), tenant=Eq("tenant", "a"))
            with pytest.raises(SearchError, match=r"^index: more may be found later$"):
                await search(tenant, SearchIndexRequest(query="valve"))
            with pytest.raises(SearchError, match=r"^index: more may be found later$"):
                _ = [each async for each in answer_events(tenant, AnswerRequest(query="valve"))]

    asyncio.run(check())
    remove_progress(place)
    assert command("grep", "nowhere") == (1, "", "")
