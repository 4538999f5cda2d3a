"""``retrieval copy`` and ``copy_index()`` between all stores: what arrives, what is said, and what is refused."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from retrieval_core import Chunk, Document, copy_index, load_config, open_index
from retrieval_core.errors import DimensionMismatchError, InvalidParameterError, RetrievalError, StoreError
from retrieval_core.testing.fakes import FakeEmbedder
from support.command_line import main
from support.killing import kills
from support.pinecone_service import KEY, PineconeService
from support.wire_server import WireServer

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core import Index
    from retrieval_core.types import CopyProgress

DIMENSION = 32
QUERIES = ("moon distance", "light of the sun", "tides of the sea")
LEXICAL: dict[str, Any] = {"embedder.kind": "none", "search.mode": "lexical", "chunking.min_tokens": 0}
NEEDS = {"lancedb": "lancedb", "qdrant": "qdrant_client", "pinecone": "pinecone"}


def write_files(folder: Path, count: int = 12) -> None:
    (folder / "docs").mkdir()
    for number in range(count):
        text = f"# Moon {number}\n\nIt goes round.\n\n## Distance\n\nIt is {number} km.\n\n## Tides\n\nOf the sea.\n"
        (folder / f"docs/{number:02}.md").write_text(text, encoding="utf-8")
    (folder / "docs/t.csv").write_text("name,price\nsun,1\nlight,2.5\n", encoding="utf-8")


def opened(embedder: FakeEmbedder | None = None, /, **overrides: object) -> Index:
    config = load_config(overrides={"chunking.min_tokens": 0, "cache.kind": "none", **overrides})
    return open_index(config=config, embedder=embedder or FakeEmbedder(DIMENSION))


def found(index: Index) -> list[Any]:
    return [[(hit.id, hit.chunk, round(hit.score, 4)) for hit in index.retrieve(query).hits] for query in QUERIES]


def ids(results: list[Any]) -> list[Any]:
    return [{hit[0] for hit in result} for result in results]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with files and their index ``a.db``."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    with opened(index="a.db") as index:
        index.ingest("docs")
        index.add([Chunk("own", "own", "Sea light of my own.", metadata={"price": 1})])
    return tmp_path


def command(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.parametrize("kind", ["memory", "sqlite", "lancedb", "qdrant"])
def test_an_index_is_used_at_its_new_place_as_before(folder: Path, kind: str) -> None:
    """Results are equal, indexing again embeds nothing, and a copy back has the same checksum."""
    if kind in NEEDS:
        pytest.importorskip(NEEDS[kind], reason="this store needs its extra")
    place: dict[str, Any] = {
        "index": str(folder / "b.db"),
        "store.kind": kind,
        "store.qdrant.path": str(folder / "qdrant"),
    }
    if kind == "memory":
        with opened(index="a.db") as index, opened(**place) as other:
            before = found(index)
            report = copy_index(load_config(overrides={"index": "a.db"}), other.store)
            assert ids(found(other)[:1]) == ids(before[:1])
            back = copy_index(other.store, "back.db")
    else:
        report = copy_index("a.db", load_config(overrides=place))
        embedder = FakeEmbedder(DIMENSION)
        with opened(index="a.db") as index, opened(embedder, **place) as other:
            before = found(index)
            assert ids(found(other)) == ids(before)
            assert (again := other.ingest("docs")).unchanged == again.documents - 1
            assert embedder.batches == []
            assert other.check_integrity().verdict == "unverifiable"  # the chunk of no file
        back = copy_index(load_config(overrides=place), "back.db")
    assert (report.documents, report.chunks, report.copied) == (15, 39, 15)
    assert (report.rounded > 0, back.rounded) == (kind == "qdrant", 0)  # which brings vectors to the length 1 again
    assert report.checksum == back.checksum or kind == "qdrant"
    with opened(index="a.db") as index, opened(index="back.db") as copy:
        assert found(copy) == found(index)


def test_pinecone_says_what_it_cannot_keep(folder: Path) -> None:
    """Texts of whole documents are named once; chunks, vectors and the states of files arrive, there and back."""
    pytest.importorskip("pinecone", reason="this store needs its extra")
    with WireServer(PineconeService(DIMENSION, "dotproduct")) as server:
        settings = {"store.pinecone.host": server.url, "store.pinecone.api_key": KEY, "store.pinecone.sparse": True}
        place = {"store.kind": "pinecone", "index": str(folder / "b.db"), **settings}
        report = copy_index("a.db", load_config(overrides=place))
        assert [note for note in report.notes if "texts of whole documents" in note]
        embedder = FakeEmbedder(DIMENSION)
        with opened(embedder, **place) as other:
            assert other.ingest("docs").unchanged == 14
            assert embedder.batches == []
        back = copy_index(load_config(overrides=place), "back.db")
        assert back.checksum == report.checksum


def test_the_command(folder: Path) -> None:
    """Settings are remembered; what isn't possible ends with a message and changes nothing."""
    command("index", "docs", "--index", "k.db", "--set", "embedder.kind=none", "--set", "chunking.max_tokens=90")
    assert "15 documents" not in command("copy", "k.db", "c.db")
    report = json.loads(command("copy", "k.db", "d.db", "--json"))
    assert (report["documents"], report["notes"]) == (14, [])
    assert "14 unchanged" in command("index", "docs", "--index", "c.db")
    assert "chunking.max_tokens" in command("info", "--index", "c.db")
    again = " ".join(command("copy", "k.db", "c.db", code=1).split())
    assert "not empty: it has 14 documents" in again
    assert "If you copied this index to it before, the copy is complete" in again
    assert "to itself" in command("copy", "k.db", str(folder / "k.db"), code=2)
    assert "no index at" in command("copy", "absent.db", "e.db", code=1)
    assert "absent.toml" in command("copy", "k.db", "absent.toml", code=2)
    assert "store.qdrant" in command(
        "copy", "k.db", str(written(folder / "q.toml", '[store]\nkind = "qdrant"')), code=2
    )
    assert not (folder / "e.db").exists()
    (folder / "elsewhere").mkdir()
    assert "relative to" in command("copy", "k.db", "elsewhere/c.db")
    file = written(folder / "language.toml", 'index = "f.db"\n[chunking]\nmax_tokens = 200\n')
    assert "set for the copy, as for the source: chunking.max_tokens = 90" in command("copy", "k.db", str(file))


def written(file: Path, text: str) -> Path:
    file.write_text(text, encoding="utf-8")
    return file


def test_a_file_with_the_settings_of_the_new_store_lies_beside_the_old_index(folder: Path) -> None:
    """The index file is still the source, as when one moves from a file to a server."""
    pytest.importorskip("lancedb", reason="this store needs its extra")
    command("index", "docs", "--index", "k.db", "--set", "embedder.kind=none")
    written(folder / "retrieval.toml", 'index = "new.db"\n[store]\nkind = "lancedb"\n')
    assert "14 documents" in command("copy", "k.db", "retrieval.toml")
    assert "14 documents" in command("list", "--config", "retrieval.toml")
    assert "14 documents" in command("copy", "new.lance", "back.db")


class InterruptedByTestError(Exception):
    """Ends a copy."""


def interrupt(_: CopyProgress) -> None:
    raise InterruptedByTestError


def test_an_incomplete_copy_is_no_index_yet(folder: Path) -> None:
    """Searches say so, strict ones fail, nothing can be added, and only the same copy can be continued."""
    command("index", "docs", "--index", "k.db", "--set", "embedder.kind=none")
    with pytest.raises(InterruptedByTestError):
        copy_index("k.db", "c.db", interrupt)
    told = command("search", "moon", "--index", "c.db", "--mode", "keyword")
    assert "at least 0 of 14 documents copied so far; the others can't be found yet" in " ".join(told.split())
    assert "unfinished-copy" not in command("list", "--index", "c.db")
    with opened(index="c.db", strict=True, **LEXICAL) as index, pytest.raises(RetrievalError, match="copied so far"):
        index.retrieve("moon")
    for arguments in (("index", "docs"), ("remove", "docs/01.md")):
        assert "is a copy of k.db that is not complete" in command(*arguments, "--index", "c.db", code=1)
    assert "incomplete copy of another index" in command("copy", "a.db", "c.db", code=1)
    assert "itself a copy that is not complete" in command("copy", "c.db", "e.db", code=1)
    assert "14 documents" in command("copy", "k.db", "c.db")
    assert "copied so far" not in command("search", "moon", "--index", "c.db", "--mode", "keyword")
    assert "14 unchanged" in command("index", "docs", "--index", "c.db")


def test_a_source_that_changes_is_copied_as_it_is_at_the_end(folder: Path) -> None:
    """A change while it is copied is noticed; if it never ends, the copy fails and can be continued."""
    changes = iter(range(100))

    def change(progress: CopyProgress) -> None:
        if progress.step == "copy" or (progress.done == progress.total and is_restless):
            (folder / "docs/00.md").write_text(f"# Moon\n\nChange {next(changes)}\n")
            (folder / "docs/01.md").unlink(missing_ok=True)
            with opened(index="a.db") as index:
                index.ingest("docs")

    is_restless = True
    with pytest.raises(StoreError, match="written to all the time"):
        copy_index("a.db", "b.db", change)
    is_restless = False
    report = copy_index("a.db", "b.db", change)
    assert any("was changed while it was copied" in note for note in report.notes)
    with opened(index="a.db") as index, opened(index="b.db") as copy:
        assert found(copy) == found(index)
        assert copy.ingest("docs").unchanged == 13


def test_a_damaged_index_is_not_copied(folder: Path) -> None:
    """Its copy would have new checksums, and nobody could tell any more."""
    with closing(sqlite3.connect(folder / "a.db")) as connection, connection:
        connection.execute("UPDATE chunks SET text = 'changed' WHERE id = 'own'")
    with pytest.raises(StoreError, match=r"is damaged .*repair it first"):
        copy_index("a.db", "b.db")


def test_a_target_that_cannot_take_it(folder: Path) -> None:
    """Another dimension, chunks that wait for vectors, and a place where nothing can be written."""
    with opened(FakeEmbedder(8), index="small.db") as index:
        index.add([Chunk("x", "x", "text")])
        with pytest.raises((DimensionMismatchError, StoreError)):
            copy_index("a.db", index.store)
    (folder / "file").write_text("")
    assert "file" in command("copy", "a.db", "file/b.db", code=1)
    pytest.importorskip("lancedb", reason="this store needs its extra")
    with closing(sqlite3.connect(folder / "a.db")) as connection, connection:
        connection.execute("DELETE FROM vectors WHERE number = 1")
        connection.execute("INSERT OR REPLACE INTO late_vectors (number) VALUES (1)")
        connection.execute("UPDATE seals SET vector = NULL WHERE number = 1")
    with pytest.raises(StoreError, match="1 chunks have no vectors yet"):
        copy_index("a.db", "b.lance")


def test_no_space_is_left(folder: Path) -> None:
    """The command says so, and goes on when there is space again."""
    command("index", "docs", "--index", "k.db", "--set", "embedder.kind=none")

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))

    arguments = [sys.executable, "-m", "retrieval_core.cli", "copy", "k.db", "c.db"]
    done = subprocess.run(arguments, preexec_fn=limit, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "14 documents" in command("copy", "k.db", "c.db")


CHILD = """
import os, sys
from retrieval_core import copy_index
from retrieval_core.index import copying
copying.FIRST_DOCUMENTS = copying.MOST_DOCUMENTS = 5
left = int(sys.argv[3])
def stop(progress):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), 9)
print(copy_index(sys.argv[1], sys.argv[2], stop).checksum)
"""


@pytest.mark.slow
def test_killed_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From SQLite to LanceDB and back to SQLite: nothing is lost, and results and checksums are equal."""
    pytest.importorskip("lancedb", reason="this store needs its extra")
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, 60)
    with opened(index="a.db") as index:
        index.ingest("docs")
        before = found(index)
    generator = random.Random(17)
    checksums: list[str] = []
    last = ""
    for source, target in (("a.db", "b.lance"), ("b.lance", "c.db")):
        steps = [generator.randint(1, 30) for _ in range(kills(3))]
        for number in (*steps, 0):  # the last one is not killed, and an earlier one may come to its end before that
            arguments = [sys.executable, "-c", CHILD, source, target, str(number)]
            done = subprocess.run(arguments, capture_output=True, text=True, check=False)
            last = done.stdout
            if not done.returncode:
                break
            assert done.returncode == -signal.SIGKILL, done.stderr
        assert last
        checksums.append(last)
    assert checksums[0] == checksums[1]
    with opened(index="c.db") as index:
        assert found(index) == before
        assert index.check_integrity().verdict == "clean"


def test_no_document_of_a_user_makes_an_index_look_like_an_unfinished_copy(tmp_path: Path) -> None:
    """It would lock out everybody who writes to the index."""
    reserved = ".retrieval/unfinished-copy"
    with opened(index=str(tmp_path / "a.db")) as index:
        with pytest.raises(InvalidParameterError, match="reserved"):
            index.add_documents([Document(reserved, "The moon.", reserved)])
        with pytest.raises(InvalidParameterError, match="reserved"):
            index.add([Chunk("c", reserved, "The moon.")])
    with opened(index=str(tmp_path / "a.db")) as index:
        index.add([Chunk("c", "own", "The moon.")])
        assert index.retrieve("moon").degraded == ()


@pytest.mark.parametrize("kind", ["sqlite", "lancedb"])
def test_a_program_that_has_the_index_open_notices_that_it_is_replaced_by_a_copy(folder: Path, kind: str) -> None:
    """It has found hits and written before; another program empties the index, and begins to copy into it."""
    if kind in NEEDS:
        pytest.importorskip(NEEDS[kind], reason="this store needs its extra")
    place: dict[str, Any] = {"index": str(folder / "b.db"), "store.kind": kind}
    with opened(**place) as index:
        index.add([Chunk("old", "old", "The moon of old.")])
        assert index.retrieve("moon").degraded == ()
        with opened(**place) as other:
            other.delete(["old"])
        with pytest.raises(InterruptedByTestError):
            copy_index("a.db", load_config(overrides=place), interrupt)
        assert any("copied so far" in each.reason for each in index.retrieve("moon").degraded)
        assert any("copied so far" in each.reason for each in index.retrieve("moon").degraded)
        with pytest.raises(StoreError, match="is a copy of"):
            index.add([Chunk("new", "new", "The moon of now.")])
        copy_index("a.db", load_config(overrides=place))
        assert index.retrieve("moon").degraded == ()
        index.add([Chunk("new", "new", "The moon of now.")])
