"""The names of documents: short, the same from everywhere, and kept for as long as the file is in the index."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import Chunk, Document, RetrievalConfig, open_index
from retrieval_core.ports import Change, SourceState
from support.processes import RETRIEVAL, with_our_modules

if TYPE_CHECKING:
    from retrieval_core import Index

KEYWORDS = ("--set", "embedder.kind=none", "--set", "search.mode=lexical")


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"The ferry {name} leaves at nine.\n")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command ``retrieval`` in a folder."""
    command = [*RETRIEVAL, *arguments, *KEYWORDS]
    return subprocess.run(command, cwd=folder, env=with_our_modules(), capture_output=True, text=True, check=False)


def run_json(folder: Path, *arguments: str) -> Any:
    done = run(folder, *arguments, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def index_in(folder: Path) -> Index:
    settings = {"index": str(folder / ".retrieval/index.db"), "embedder": {"kind": "none"}}
    return open_index(config=RetrievalConfig.model_validate({**settings, "search": {"mode": "lexical"}}))


def names(index: Index) -> list[str]:
    return [document.id for document in index.documents()]


def test_a_folder_elsewhere_is_named_by_its_own_name(tmp_path: Path) -> None:
    """The command shows no path to it; edits, checks and removals find its files all the same."""
    write(tmp_path, "data/docs/guide/pier.md", "data/docs/start.md", "project/own.md")
    project = tmp_path / "project"
    run_json(project, "index", ".", "../data/docs")
    done = run(project, "search", "ferry", "--json", "--trace")
    found = {hit["source"]: (hit["id"], hit["citation"]) for hit in json.loads(done.stdout)["hits"]}
    assert found == {
        name: (f"{name}#0", f"Doc: {name}:1") for name in ("docs/guide/pier.md", "docs/start.md", "own.md")
    }
    assert "../" not in done.stdout
    assert str(tmp_path / "data") not in done.stdout
    assert run(project, "verify").returncode == 0

    (tmp_path / "data/docs/start.md").write_text("The ferry leaves at ten.\n")
    report = json.loads(run(project, "verify", "--json").stdout)
    assert report["differences"][0]["document_id"] == "docs/start.md"
    (tmp_path / "data/docs/guide/pier.md").unlink()
    again = run_json(tmp_path, "index", str(tmp_path / "data/docs"), "--index", "project/.retrieval/index.db")
    assert (again["added"], again["updated"], again["removed"], again["documents"]) == (0, 1, 1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("index", [".retrieval/index.db", "index.db", "../elsewhere/kb.db"])
def test_names_do_not_depend_on_the_current_folder(tmp_path: Path, index: str) -> None:
    """Nor on the way a path is written."""
    write(tmp_path, "home/data/docs/a.md")
    home = tmp_path / "home"
    place = str((home / index).resolve())
    expected = "docs/a.md" if "elsewhere" in index else "data/docs/a.md"
    added: list[int] = []
    for current, path in ((".", "data/docs"), ("data/docs", "."), ("data", str(home / "data/../data/docs/"))):
        added.append(run_json(home / current, "index", path, "--index", place)["added"])
    hits = run_json(home / "data", "search", "ferry", "--index", place)["hits"]
    assert (added, [hit["source"] for hit in hits]) == ([1, 0, 0], [expected])


def test_an_index_of_before_keeps_its_names(tmp_path: Path) -> None:
    """Files that were named by a path upwards are updated and removed by that name; new files are named as today."""
    write(tmp_path, "docs/old.md", "docs/gone.md", "docs/new.md")
    with index_in(tmp_path / "project") as index:
        for name in ("../docs/old.md", "../docs/gone.md"):
            change = Change(
                chunks=(Chunk(f"{name}#0", name, "Before.", source=name),),
                documents=(Document(name, "Before.", source=name),),
                sources=(SourceState(name, "another", "recipe", 1),),
            )
            asyncio.run(index.store.upsert(change))
    with index_in(tmp_path / "project") as index:
        (tmp_path / "docs/gone.md").unlink()
        report = index.ingest(tmp_path / "docs")
        assert (report.added, report.updated, report.removed) == (1, 1, 1)
        assert names(index) == ["../docs/old.md", "docs/new.md"]
        assert index.check_integrity().verdict == "clean"
        assert index.ingest(tmp_path / "docs").unchanged == 2


def test_folders_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """The second gets its parent's name in front; neither replaces the other, and no name changes later."""
    write(tmp_path, "a/docs/x.md", "b/docs/x.md", "b/docs/y.md", "project/own.md")
    with index_in(tmp_path / "project") as index:
        index.ingest(tmp_path / "a/docs")
        index.ingest(tmp_path / "b/docs")
        expected = ["b/docs/x.md", "b/docs/y.md", "docs/x.md"]
        assert names(index) == expected
        write(tmp_path, "a/docs/z.md", "b/docs/z.md")
        index.ingest([tmp_path / "b/docs", tmp_path / "a/docs"])
        assert names(index) == sorted([*expected, "b/docs/z.md", "docs/z.md"])
        (tmp_path / "a/docs/x.md").unlink()
        assert index.ingest(tmp_path / "a/docs").removed == 1
        index.ingest(tmp_path / "b/docs")
        assert names(index) == ["b/docs/x.md", "b/docs/y.md", "b/docs/z.md", "docs/z.md"]


def test_a_folder_elsewhere_leaves_the_names_of_the_own_folder(tmp_path: Path) -> None:
    """A file in the folder of the index is named by its path in it, whatever was indexed before."""
    write(tmp_path, "project/docs/x.md", "data/docs/x.md", "data/x.md", "project/x.md")
    with index_in(tmp_path / "project") as index:
        index.ingest([tmp_path / "data/docs", tmp_path / "data/x.md"])
        assert names(index) == ["data/docs/x.md", "data/x.md"]
        index.ingest(tmp_path / "project")
        assert names(index) == ["data/docs/x.md", "data/x.md", "docs/x.md", "x.md"]


def test_a_name_that_was_given_away_is_never_overwritten(tmp_path: Path) -> None:
    """A file that appears where another one's name would point gets a longer name of its own."""
    write(tmp_path, "data/docs/x.md", "project/own.md")
    with index_in(tmp_path / "project") as index:
        index.ingest(tmp_path / "data/docs")
        write(tmp_path, "project/docs/x.md")
        index.ingest(tmp_path / "project")
        assert names(index) == ["docs/x.md", "own.md", "project/docs/x.md"]
        assert index.ingest([tmp_path / "data/docs", tmp_path / "project"]).unchanged == 3
        assert index.check_integrity().verdict == "clean"
        (tmp_path / "project/docs/x.md").unlink()
        index.ingest(tmp_path / "project")
        assert names(index) == ["docs/x.md", "own.md"]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("docs", "docs/sub", ["docs/a.md", "docs/sub/b.md", "docs/sub/new.md"]),
        ("docs/sub", "docs", ["docs/a.md", "sub/b.md", "sub/new.md"]),
        ("docs/sub/b.md", "docs", ["b.md", "docs/a.md", "docs/sub/new.md"]),
        ("docs", "docs/sub/b.md", ["docs/a.md", "docs/sub/b.md"]),
    ],
)
def test_overlapping_folders_make_no_duplicates(tmp_path: Path, first: str, second: str, expected: list[str]) -> None:
    """Files keep the names of the first run, and new files are named like those beside them."""
    write(tmp_path, "data/docs/a.md", "data/docs/sub/b.md")
    with index_in(tmp_path / "project") as index:
        index.ingest(tmp_path / "data" / first)
        before = names(index)
        if second != "docs/sub/b.md":
            write(tmp_path, "data/docs/sub/new.md")
        index.ingest(tmp_path / "data" / second)
        assert names(index) == expected
        assert set(before) <= set(expected)


@pytest.mark.skipif(os.name == "nt", reason="symbolic links need a privilege there")
@pytest.mark.parametrize("place", ["project/docs", "data/docs"])
@pytest.mark.parametrize("way", ["real first", "link first"])
def test_a_path_through_a_link_makes_no_duplicates(tmp_path: Path, place: str, way: str) -> None:
    """A file has one name by whatever path it is reached, and is removed when it is gone by either."""
    write(tmp_path, f"{place}/a.md", f"{place}/b.md")
    (tmp_path / "project").mkdir(exist_ok=True)
    (tmp_path / "link").symlink_to(tmp_path / place.partition("/")[0], target_is_directory=True)
    paths = [tmp_path / place, tmp_path / "link/docs"]
    if way == "link first":
        paths.reverse()
    with index_in(tmp_path / "project") as index:
        index.ingest(paths[0])
        assert index.ingest(paths[1]).unchanged == 2
        assert names(index) == ["docs/a.md", "docs/b.md"]
        (tmp_path / place / "b.md").unlink()
        index.ingest(paths[1])
        assert names(index) == ["docs/a.md"]


def test_edits_of_files_elsewhere_are_noticed(tmp_path: Path) -> None:
    """Also by a process that has only opened the index, and for a table whose rows are documents."""
    write(tmp_path, "data/docs/a.md", "project/docs.md")
    (tmp_path / "data/docs/t.csv").write_text("id,name\n1,ferry\n")
    with index_in(tmp_path / "project") as index:
        index.ingest(tmp_path / "data/docs")
        assert names(index) == ["docs/a.md", "docs/t.csv#1"]
    later = (tmp_path / "data/docs/a.md").stat().st_mtime + 60
    for name in ("a.md", "t.csv"):
        path = tmp_path / "data/docs" / name
        path.write_text(path.read_text() + "\nMore.\n")
        os.utime(path, (later, later))
    with index_in(tmp_path / "project") as index:
        chunks = [hit.chunk for hit in index.retrieve("ferry").hits]
        assert asyncio.run(index.aedited_since(chunks)) == {"docs/a.md#0", "docs/t.csv#1#0"}


@pytest.mark.parametrize("kind", ["memory", "sqlite", "lancedb", "qdrant"])
def test_every_store_keeps_where_files_are(tmp_path: Path, kind: str) -> None:
    """What is unchanged is not read again, and what is gone is removed, by the name it was given."""
    if kind in ("lancedb", "qdrant"):
        pytest.importorskip("lancedb" if kind == "lancedb" else "qdrant_client")
    write(tmp_path, "data/docs/a.md", "data/docs/b.md")
    store: dict[str, Any] = {"kind": kind}
    if kind == "qdrant":
        store["qdrant"] = {"path": str(tmp_path / "qdrant")}
    place = tmp_path / "project/.retrieval" / ("index.db" if kind == "sqlite" else "index")
    settings = {"index": str(place), "store": store, "embedder": {"kind": "retrieval_core.testing.fakes:FakeEmbedder"}}
    with closing(open_index(config=RetrievalConfig.model_validate(settings))) as index:
        index.ingest(tmp_path / "data/docs")
        assert names(index) == ["docs/a.md", "docs/b.md"]
        (tmp_path / "data/docs/b.md").unlink()
        report = index.ingest(tmp_path / "data/docs")
        assert (report.unchanged, report.removed) == (1, 1)
        assert index.check_integrity().verdict != "mismatch"


def test_pages_of_files_elsewhere_are_shown(tmp_path: Path) -> None:
    """The page of a chunk is read from its file, wherever that is."""
    pytest.importorskip("pypdfium2")
    pytest.importorskip("PIL")
    canvas = pytest.importorskip("reportlab.pdfgen.canvas").Canvas
    (tmp_path / "manuals").mkdir()
    drawn = canvas(str(tmp_path / "manuals/ferry.pdf"))
    drawn.drawString(100, 500, "The ferry leaves at nine.")
    drawn.save()
    with index_in(tmp_path / "project") as index:
        index.ingest(tmp_path / "manuals")
        (hit,) = index.retrieve("ferry").hits
        assert hit.chunk.source == "manuals/ferry.pdf"
        assert index.place_on_page(hit.chunk).page == 1
        assert index.picture_of_page(hit.chunk, 100).startswith(b"\x89PNG")


def test_a_server_tells_that_a_file_elsewhere_was_edited(tmp_path: Path) -> None:
    """In the results of a search, as of files in the folder of the index."""
    pytest.importorskip("retrieval_core_mcp", reason="pip install retrieval-core-mcp")
    from mcp import Client
    from retrieval_core_mcp import ServerSettings, create_server

    write(tmp_path, "data/docs/a.md", "data/docs/b.md")
    with index_in(tmp_path / "project") as index:
        index.ingest(tmp_path / "data/docs")
        config = index.config
    path = tmp_path / "data/docs/b.md"
    later = path.stat().st_mtime + 60
    path.write_text("The ferry leaves at ten.\n")
    os.utime(path, (later, later))
    settings = ServerSettings.model_validate({"retrieval": config, "structured": True})

    async def ask() -> Any:
        async with Client(create_server(settings)) as client:
            return await client.call_tool("search", {"query": "ferry"})

    answer = asyncio.run(ask())
    assert {hit["id"]: hit.get("changed") for hit in answer.structured_content["results"]} == {
        "docs/a.md#0": None,
        "docs/b.md#0": True,
    }


def test_index_and_files_can_be_moved_together(tmp_path: Path) -> None:
    """Also files outside of the folder of the index, which stay where they are relative to it."""
    write(tmp_path, "here/data/docs/a.md", "here/data/docs/b.md")
    with index_in(tmp_path / "here/project") as index:
        index.ingest(tmp_path / "here/data/docs")
    (tmp_path / "here").rename(tmp_path / "there")
    (tmp_path / "there/data/docs/b.md").unlink()
    with index_in(tmp_path / "there/project") as index:
        report = index.ingest(tmp_path / "there/data/docs")
        assert (report.unchanged, report.removed, names(index)) == (1, 1, ["docs/a.md"])
