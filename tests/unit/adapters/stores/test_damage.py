"""An index of which one side is damaged: the other one answers, and what is wrong is told with what to do about it."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import open_index
from retrieval_core.adapters.stores.lancedb import LanceDBStore
from retrieval_core.config import load_config
from retrieval_core.errors import IndexFormatError, StoreError
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import AnswerDone

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core import Index

QUESTION = "How are parcels shipped?"
TEXTS = {
    "parcels": "# Parcels\n\nParcels are shipped by rail on Mondays.",
    "letters": "# Letters\n\nLetters are carried by a van every day.",
    "stamps": "# Stamps\n\nStamps are sold at the counter and in the shop.",
}
BUILD = "retrieval index PATH"

needs_lancedb = pytest.mark.skipif(find_spec("lancedb") is None, reason="the extra 'lancedb' is not installed")


def opened(path: Path, **settings: Any) -> Index:
    return open_index(path, config=load_config(overrides=settings), embedder=FakeEmbedder(), token_counter=len)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / f"{name}.md").write_text(text)
    return folder


@pytest.fixture
def index(tmp_path: Path, files: Path) -> Path:
    path = tmp_path / "index.db"
    with opened(path) as made:
        made.ingest(files)
    return path


def without(*tables: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for table in tables:
                connection.execute(f"DROP TABLE {table}")

    return damage


def overwritten(*tables: str, byte: bytes = b"\xff") -> Callable[[Path], None]:
    """Put the same byte all over the first page of tables, where their rows or the way to them is."""

    def damage(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            (size,) = connection.execute("PRAGMA page_size").fetchone()
            pages = dict(connection.execute("SELECT name, rootpage FROM sqlite_schema WHERE type = 'table'"))
        content = bytearray(path.read_bytes())
        for table in tables:
            start = (pages[table] - 1) * size
            content[start : start + size] = byte * size
        path.write_bytes(content)

    return damage


def changed(statement: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(statement)

    return damage


WORDS = {
    "no segments": without("word_segments"),
    "no blocks": without("word_blocks"),
    "no stale words": without("stale_words"),
    "blocks lost": changed("DELETE FROM word_blocks"),
    "blocks overwritten": overwritten("word_blocks"),
    "segments zeroed": overwritten("word_segments", byte=b"\0"),
    "all of words overwritten": overwritten("word_segments", "word_blocks", "stale_words"),
    "a block cut off": changed("UPDATE word_blocks SET block = substr(block, 1, 20)"),
    "a block of one byte": changed("UPDATE word_blocks SET block = x'00'"),
    "a block as text": changed("UPDATE word_blocks SET block = 'words'"),
    "lengths cut off": changed("UPDATE word_segments SET lengths = substr(lengths, 1, 4)"),
    "half a length": changed("UPDATE word_segments SET lengths = substr(lengths, 1, 5)"),
    "chunks cut off": changed(
        "UPDATE word_segments SET lengths = substr(lengths, 1, 4), numbers = substr(numbers, 1, 8)"
    ),
    "terms as a number": changed("UPDATE word_segments SET first_terms = x'ff'"),
}
VECTORS = {
    "no table of vectors": without("vectors"),
    "vectors overwritten": overwritten("vectors"),
    "vectors zeroed": overwritten("vectors", byte=b"\0"),
    "a vector cut off": changed("UPDATE vectors SET vector = substr(vector, 1, 8) WHERE number = 2"),
}


def check_the_other_side(path: Path, broken: str, **settings: Any) -> None:
    """Whatever is asked is answered from the side that is whole, and what is wrong is told."""
    with opened(path, **settings) as index:
        result = index.retrieve(QUESTION, top_k=3)
        assert result.hits[0].chunk.text.endswith(TEXTS["parcels"].split("\n\n")[1])
        told = {item.stage: item.reason for item in result.degraded}
        assert BUILD in told[broken], told
        assert str(path) in told[broken]
        again = index.retrieve(QUESTION, top_k=3)
        assert not again.from_cache
        (done,) = [event for event in index.answer_stream(QUESTION) if isinstance(event, AnswerDone)]
        assert "Parcels are shipped by rail" in done.answer.text
        assert broken in {item.stage for item in done.answer.degraded}
        mode = "lexical" if broken == "lexical" else "dense"
        one_side = index.retrieve(QUESTION, mode=mode)
        assert one_side.hits
        assert broken in {item.stage for item in one_side.degraded}
    with opened(path, strict=True, **settings) as index, pytest.raises(StoreError, match=BUILD):
        index.retrieve(QUESTION)


@pytest.mark.parametrize("damage", WORDS)
def test_damaged_words_leave_the_vectors(index: Path, damage: str) -> None:
    WORDS[damage](index)
    check_the_other_side(index, "lexical")


@pytest.mark.parametrize("damage", VECTORS)
def test_damaged_vectors_leave_the_words(index: Path, damage: str) -> None:
    VECTORS[damage](index)
    check_the_other_side(index, "dense")


@pytest.mark.parametrize("damage", WORDS)
@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
def test_both_sides_damaged_is_an_error(index: Path, damage: str, mode: Any) -> None:
    """It says what to do, whatever was asked for."""
    WORDS[damage](index)
    without("vectors")(index)
    with opened(index) as broken, pytest.raises(IndexFormatError, match=BUILD):
        broken.retrieve(QUESTION, mode=mode)


@pytest.mark.parametrize("damage", [without("chunks"), overwritten("chunks")])
def test_passages_that_cannot_be_read_are_an_error(index: Path, damage: Callable[[Path], None]) -> None:
    """Nothing can be done without them."""
    damage(index)
    with opened(index) as broken, pytest.raises(IndexFormatError, match=BUILD):
        broken.retrieve(QUESTION)


def test_vectors_that_are_lost_while_they_are_in_memory(index: Path) -> None:
    """The passages are read without them; that they are chosen for being different is done without."""
    with opened(index, search={"search_type": "mmr"}) as broken:
        assert not broken.retrieve(QUESTION, top_k=3).degraded
        without("vectors")(index)
        result = broken.retrieve("How are letters carried?", top_k=3)
        assert len(result.hits) == 3
        assert [item.stage for item in result.degraded] == ["fetch", "diversify"]
        assert BUILD in result.degraded[0].reason


def test_an_index_that_is_built_anew_is_whole(index: Path, files: Path) -> None:
    """What the message says helps."""
    without("word_blocks")(index)
    with opened(index) as broken:
        reason = broken.retrieve(QUESTION).degraded[0].reason
    assert f"build the index anew: {BUILD}" in reason
    index.unlink()
    with opened(index) as again:
        again.ingest(files)
        assert not again.retrieve(QUESTION).degraded


@pytest.mark.slow
@needs_lancedb
class TestLanceDB:
    @pytest.fixture(params=["zscore", "native"])
    def settings(self, request: pytest.FixtureRequest) -> dict[str, Any]:
        return {"store": {"kind": "lancedb"}, "search": {"fusion": request.param}}

    @pytest.fixture
    def folder(self, tmp_path: Path, files: Path, settings: dict[str, Any]) -> Path:
        path = tmp_path / "index"
        with opened(path, **settings) as made:
            made.ingest(files)
            assert isinstance(made.store, LanceDBStore)
            made.sync.run(made.store.optimize())
        return path

    @pytest.mark.parametrize("damage", ["missing", "overwritten", "empty"])
    def test_damaged_words_leave_the_vectors(self, folder: Path, damage: str, settings: dict[str, Any]) -> None:
        indexes = {path.parent for path in folder.rglob("_indices/*/metadata.lance")}
        assert indexes
        for index in indexes:
            damaged(index, damage)
        check_the_other_side(folder, "lexical", **settings)

    @pytest.mark.parametrize("damage", ["missing", "overwritten", "empty"])
    def test_both_sides_damaged_is_an_error(self, folder: Path, damage: str, settings: dict[str, Any]) -> None:
        for data in [*folder.rglob("_indices/*"), *folder.rglob("data")]:
            damaged(data, damage)
        with opened(folder, **settings) as broken, pytest.raises(StoreError, match=BUILD):
            broken.retrieve(QUESTION)


def damaged(folder: Path, how: str) -> None:
    """Take all files of a folder away, or what is in them."""
    if how == "missing":
        shutil.rmtree(folder)
        return
    for file in folder.iterdir():
        file.write_bytes(b"" if how == "empty" else b"\xff" * file.stat().st_size)
