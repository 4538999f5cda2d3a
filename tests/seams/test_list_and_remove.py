"""``retrieval list`` and ``retrieval remove``, and names of documents where tools take them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import Document, RetrievalConfig, open_index
from retrieval_core.errors import InvalidParameterError
from support.processes import RETRIEVAL, with_our_modules

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command ``retrieval`` in a folder."""
    command = [*RETRIEVAL, *arguments]
    return subprocess.run(command, cwd=folder, env=with_our_modules(), capture_output=True, text=True, check=False)


def config_in(folder: Path) -> RetrievalConfig:
    settings = {"index": str(folder / ".retrieval/index.db"), "embedder": {"kind": "none"}}
    return RetrievalConfig.model_validate({**settings, "search": {"mode": "lexical"}})


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with an index of its own folder ``kb`` and of ``manuals`` elsewhere."""
    for name, text in {
        "project/kb/pier.md": "# The pier\n\nThe ferry leaves from pier four.\n",
        "project/kb/old/tram.md": "The tram is gone.\n",
        "project/kb/old/bus.md": "The bus is gone.\n",
        "manuals/ferry.md": "The ferry has a bar.\n",
        "manuals/prices.csv": "id,name,price\n1,Adult,4\n2,Child,2\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    with open_index(config=config_in(tmp_path / "project")) as index:
        index.ingest([tmp_path / "project/kb", tmp_path / "manuals"])
        index.add_documents([Document("note", "The ferry is late.", title="Note")])
    return tmp_path / "project"


def names(folder: Path) -> list[str]:
    with open_index(config=config_in(folder)) as index:
        return [document.id for document in index.documents()]


def test_documents_are_listed(project: Path) -> None:
    """One a line with chunks and title, and a count at the end; as JSON with all fields, and filtered."""
    shown = run(project, "list")
    assert shown.returncode == 0, shown.stderr
    *lines, last = shown.stdout.splitlines()
    assert [line.split()[0] for line in lines] == names(project)
    assert next(line for line in lines if "pier" in line).split(maxsplit=3) == ["kb/pier.md", "1", "chunk", "The pier"]
    assert last == "7 documents, 7 chunks"
    condition = '{"$and": [{"source": "manuals/prices.csv"}, {"price": {"$lt": 3}}]}'
    listed = json.loads(run(project, "list", "--json", "--filter", condition).stdout)
    assert listed["count"] == 1
    (child,) = listed["documents"]
    assert (child["id"], child["source"], child["chunks"]) == ("manuals/prices.csv#2", "manuals/prices.csv", 1)
    assert child["metadata"]["price"] == 2


def test_an_index_that_is_not_there_has_no_list(project: Path) -> None:
    """That is an error, and no empty list."""
    missing = run(project, "list", "--json", "--index", "nothing.db")
    assert (missing.returncode, json.loads(missing.stdout)["error"]["type"]) == (1, "IndexNotFoundError")


def test_documents_are_removed_by_name_path_and_folder(project: Path) -> None:
    """What is removed is printed; a table goes with its rows, and the files stay."""
    done = run(project, "remove", "kb/old/", "../manuals/prices.csv", "note")
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    removed = ["kb/old/bus.md", "kb/old/tram.md", "manuals/prices.csv#1", "manuals/prices.csv#2", "note"]
    assert [line.split()[0] for line in lines] == removed
    assert last.startswith("Removed 5 documents, 5 chunks.")
    assert names(project) == ["kb/pier.md", "manuals/ferry.md"]
    below = run(project / "kb", "remove", "pier.md", "--index", "../.retrieval/index.db", "--json")
    assert json.loads(below.stdout) == {
        "removed": [{"id": "kb/pier.md", "source": "kb/pier.md", "chunks": 1}],
        "count": 1,
        "chunks": 1,
    }
    with open_index(config=config_in(project)) as index:
        assert index.ingest(project / "kb").added == 3


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("kb/peir.md", "Did you mean 'kb/pier.md'?"),
        ("pier.md", "Did you mean 'kb/pier.md'?"),
        ("kb/old", "Did you mean 'kb/old/'?"),
        ("manual/", "Did you mean 'manuals/'?"),
        ("zzz", "Run 'retrieval list' to see all names."),
        ("../project", ""),
        ("", ""),
        (".", ""),
        ("*", ""),
    ],
)
def test_an_unknown_name_removes_nothing(project: Path, name: str, told: str) -> None:
    """The error names the closest one; a folder without its slash is no folder."""
    with open_index(config=config_in(project)) as index, pytest.raises(InvalidParameterError) as caught:
        index.find_documents(["note", name])
    assert told in str(caught.value)


def test_one_unknown_name_stops_the_command(project: Path) -> None:
    """Also the names before it stay."""
    done = run(project, "remove", "note", "kb/peir.md")
    assert done.returncode == 2
    assert done.stderr.strip() == (
        "Error: the index has no document 'kb/peir.md'. Did you mean 'kb/pier.md'? Nothing was removed."
    )
    assert "note" in names(project)


def test_several_documents_are_deleted_at_once(project: Path) -> None:
    """An id that is not text is refused before anything is written."""
    with open_index(config=config_in(project)) as index:
        wrong: Any = ["note", 1]
        with pytest.raises(InvalidParameterError, match="delete"):
            index.delete(wrong)
        assert index.delete(["note", "kb/pier.md", "unknown"]) == 2
        assert index.delete("note") == 0


def test_names_lead_to_files(project: Path) -> None:
    """Wherever they are."""
    with open_index(config=config_in(project)) as index:
        assert index.path_of("kb/pier.md") == project.resolve() / "kb/pier.md"
        assert index.path_of("manuals/ferry.md").read_text() == "The ferry has a bar.\n"
        assert index.path_of("manuals").resolve() == project.parent.resolve() / "manuals"


def asked(folder: Path, roots: tuple[Path, ...], ask: Callable[[Any], Awaitable[Any]]) -> Any:
    """Return what a client of the server gets."""
    pytest.importorskip("retrieval_core_mcp", reason="pip install retrieval-core-mcp")
    from mcp import Client
    from retrieval_core_mcp import ServerSettings, create_server

    given = {"retrieval": config_in(folder), "allow_writes": True, "roots": roots, "structured": True}
    settings = ServerSettings.model_validate(given)

    async def connected() -> Any:
        async with Client(create_server(settings)) as client:
            await client.list_tools()
            return await ask(client)

    return asyncio.run(connected())


@pytest.mark.parametrize("path", ["kb/pier.md", "pier.md", "kb", "manuals/ferry.md", "manuals", "ferry.md"])
def test_a_server_indexes_what_it_shows(project: Path, path: str) -> None:
    """The name in a result works as well as a path below one of the folders that may be indexed."""
    (project / "kb/pier.md").write_text("The ferry leaves from pier five.\n")
    (project.parent / "manuals/ferry.md").write_text("The ferry has no bar.\n")

    async def ask(client: Any) -> None:
        indexed = await client.call_tool("index_path", {"path": path})
        assert not indexed.is_error, indexed.content
        assert indexed.structured_content["updated"] == 1
        assert indexed.structured_content["added"] == indexed.structured_content["removed"] == 0

    asked(project, (project / "kb", project.parent / "manuals"), ask)


@pytest.mark.parametrize("path", ["manuals/ferry.md", "manuals", "../manuals/ferry.md"])
def test_a_server_indexes_nothing_outside_its_folders(project: Path, path: str) -> None:
    """Also if a document of the index is there, by whatever name."""

    async def ask(client: Any) -> None:
        refused = await client.call_tool("index_path", {"path": path})
        assert refused.is_error

    asked(project, (project / "kb",), ask)


def test_a_server_removes_what_it_shows(project: Path) -> None:
    """A document by its id, and a table by its name; never a folder."""

    async def ask(client: Any) -> None:
        for name, count in (("kb/pier.md", 1), ("manuals/prices.csv", 2)):
            removed = await client.call_tool("remove_document", {"id": name})
            assert removed.structured_content == {"removed_passages": count}
        assert (await client.call_tool("remove_document", {"id": "kb/old/"})).is_error

    asked(project, (project / "kb",), ask)
    assert names(project) == ["kb/old/bus.md", "kb/old/tram.md", "manuals/ferry.md", "note"]


@pytest.mark.parametrize("name", ["no\0path.md", "long" * 2000, "zebra.md"])
def test_a_name_that_is_no_path_is_unknown(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The error names it, also where the current folder was deleted; ids are found as ever."""
    gone = tmp_path / "gone"
    with open_index(config=config_in(project)) as index:
        if sys.platform != "win32":
            gone.mkdir()
            monkeypatch.chdir(gone)
            gone.rmdir()
        with pytest.raises(InvalidParameterError, match="the index has no document"):
            index.find_documents([name])
        assert [each.id for each in index.find_documents(["note"])] == ["note"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows deletes no folder that is in use")
def test_a_deleted_current_folder_is_named_as_the_reason(tmp_path: Path) -> None:
    """The system's own error names no file."""
    program = "import os, runpy; os.rmdir(os.getcwd()); runpy.run_module('retrieval_core.cli', run_name='__main__')"
    command = [sys.executable, "-P", "-c", program, "list"]  # without the folder that is gone on the path
    (tmp_path / "gone").mkdir()
    ended = subprocess.run(
        command, cwd=tmp_path / "gone", env=with_our_modules(), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr == "Error: the current folder does not exist any more: change to another folder\n"
