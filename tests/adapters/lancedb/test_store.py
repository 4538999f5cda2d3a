"""What the LanceDB store does beyond the kit: what is on the disk, who writes, and how its indexes are kept."""

from __future__ import annotations

import asyncio
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import open_index
from retrieval_core.adapters.stores.lancedb import LanceDBStore
from retrieval_core.config import load_config
from retrieval_core.errors import (
    EmbedderMismatchError,
    IndexFormatError,
    InvalidParameterError,
    MissingExtraError,
    StoreError,
)
from retrieval_core.ports import Change, FetchRequest, SearchRequest, SourceState
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.testing.store_kit import DIMENSION
from retrieval_core.testing.store_kit.base import by_text, by_vector, chunk, document, put, unit
from retrieval_core.types.filters import Eq, Gte
from support.lancedb_stores import run, store_at

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(find_spec("lancedb") is None, reason="the extra 'lancedb' is not installed")


def test_an_index_remembers_its_settings(tmp_path: Path) -> None:
    """Those that it was built with are used by whoever opens it later."""
    path, built = tmp_path / "index.lance", {"chunking.max_tokens": 77, "store.kind": "lancedb"}
    (tmp_path / "moon.md").write_text("The moon is bright.", encoding="utf-8")
    with open_index(path, config=load_config("lexical", overrides=built)) as index:
        index.ingest(tmp_path / "moon.md")
    with open_index(path) as index:
        assert index.config.chunking.max_tokens == 77
        assert index.retrieve("moon").hits
    assert [file.suffix for file in path.iterdir() if "settings" in file.name] == [".json"]


def test_what_was_written_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    """Passages, their vectors, texts and sources outlive the store, and so does its version."""
    state = SourceState("s", "h", "r", 1)
    versions: list[str | None] = []

    async def fill(store: LanceDBStore) -> None:
        await put(store, chunk("a", "word"), documents=(document("d"),), sources=(state,))
        versions.append(await store.version())

    async def look(store: LanceDBStore) -> None:
        assert await by_text(store, "word") == ["a"] == await by_vector(store, unit(0))
        assert dict(await store.sources()) == {"s": state}
        assert (await store.fetch(FetchRequest(document_ids=("d",)))).documents["d"] == document("d")
        assert versions == [await store.version()]

    run(tmp_path / "index", fill)
    run(tmp_path / "index", look)


def test_vectors_of_an_index_without_vectors(tmp_path: Path) -> None:
    """Whoever asks for them gets the chunks without any."""

    async def test() -> None:
        store = LanceDBStore(tmp_path / "index")
        await store.upsert(Change((chunk("a", "word"),)))
        (found,) = await store.search(SearchRequest(5, text="word", with_vectors=True))
        assert (found.chunk_id, found.vector) == ("a", None)
        assert (await store.fetch(FetchRequest(("a",), with_vectors=True))).vectors == {}
        await store.aclose()

    asyncio.run(test())


def test_bringing_the_indexes_up_to_date_changes_no_answer(tmp_path: Path) -> None:
    """Rows that are gone are swept away, and what is found before and after is the same."""

    async def test(store: LanceDBStore) -> None:
        for row in range(30):
            await put(store, chunk(f"c{row:02}", f"word number{row % 3}", f"d{row}", metadata={"n": row}))
        await put(store, chunk("new", "other", "d0"), documents=(document("d0"),))
        before = [await by_text(store, "number1 word"), await by_vector(store, unit(5), condition=Gte("n", 20))]
        await store.optimize()
        assert [await by_text(store, "number1 word"), await by_vector(store, unit(5), condition=Gte("n", 20))] == before
        info = await store.describe()
        assert (info.chunks, info.documents) == (30, 30)
        assert "c00" not in before[0]

    run(tmp_path / "index", test)


def test_several_indexes_share_a_folder(tmp_path: Path) -> None:
    """Tables of other names are other indexes; a name is checked."""

    async def fill(store: LanceDBStore) -> None:
        await put(store, chunk("a", "word"))

    async def look(store: LanceDBStore) -> None:
        assert await store.version() is None
        await put(store, chunk("b", "word"))
        assert await by_text(store, "word") == ["b"]

    run(tmp_path / "index", fill)
    run(tmp_path / "index", look, table="text_pages_two")
    for name in ("", "../up", "a b", "-a"):
        with pytest.raises(InvalidParameterError, match="table"):
            store_at(tmp_path, table=name)


def test_what_is_no_index_is_refused(tmp_path: Path) -> None:
    """A file, a table of another program, and another embedder; each message says what to do."""
    import lancedb

    (tmp_path / "file").write_text("text")
    database: Any = lancedb.connect(tmp_path / "foreign")
    database.create_table("text_pages", [{"a": 1}])

    async def of_file(store: LanceDBStore) -> None:
        for call in (store.describe, lambda: put(store, chunk("a"))):
            with pytest.raises(IndexFormatError, match="folder"):
                await call()

    async def of_others(store: LanceDBStore) -> None:
        for call in (store.describe, lambda: put(store, chunk("a"))):
            with pytest.raises(IndexFormatError, match="another program"):
                await call()

    async def fill(store: LanceDBStore) -> None:
        await put(store, chunk("a"))

    async def of_another_embedder() -> None:
        store = LanceDBStore(tmp_path / "index", embedder_id="another", dimension=DIMENSION)
        with pytest.raises(EmbedderMismatchError):
            await store.describe()
        await store.aclose()

    run(tmp_path / "file", of_file)
    run(tmp_path / "foreign", of_others)
    run(tmp_path / "index", fill)
    asyncio.run(of_another_embedder())


@pytest.mark.parametrize(("version", "advice"), [(2, "Upgrade retrieval-core"), (0, "Build the index anew")])
def test_another_format_is_refused(tmp_path: Path, version: int, advice: str) -> None:
    """A newer version of the library may have written it, or a much older one."""
    import lancedb

    async def fill(store: LanceDBStore) -> None:
        await put(store, chunk("a"))

    async def look(store: LanceDBStore) -> None:
        for call in (store.describe, lambda: put(store, chunk("b"))):
            with pytest.raises(IndexFormatError, match=f"has index format {version}, .* {advice}"):
                await call()

    run(tmp_path / "index", fill)
    database: Any = lancedb.connect(tmp_path / "index")
    table = database.open_table("text_pages")
    metadata = {
        key: value.replace(b'"format": 1', b'"format": %d' % version) for key, value in table.schema.metadata.items()
    }
    rows = table.to_arrow().replace_schema_metadata(metadata)
    database.create_table("text_pages", rows, mode="overwrite")
    run(tmp_path / "index", look)


def test_a_damaged_index_is_a_store_error(tmp_path: Path) -> None:
    """What LanceDB raises comes as the store's own error, which names the place."""

    async def fill(store: LanceDBStore) -> None:
        await put(store, chunk("a"))

    async def look(store: LanceDBStore) -> None:
        with pytest.raises(StoreError, match="index"):
            await store.describe()

    run(tmp_path / "index", fill)
    for path in (tmp_path / "index" / "text_pages.lance" / "_versions").iterdir():
        path.write_bytes(b"damaged")
    run(tmp_path / "index", look)


def test_two_stores_see_each_others_writes(tmp_path: Path) -> None:
    """A store that is open sees what another one wrote, at once, in searches with filters too."""

    async def test(store: LanceDBStore) -> None:
        other = store_at(tmp_path / "index")
        for row in range(3):
            await put(store, chunk(f"c{row}", "word", f"d{row}", metadata={"t": row % 2}))
            assert len(await by_text(other, "word")) == row + 1
            assert len(await by_vector(other, unit(0), condition=Eq("t", 0))) == row // 2 + 1
        await other.delete(["d0"])
        assert await by_text(store, "word", condition=Eq("t", 0)) == ["c2"]
        await other.aclose()

    run(tmp_path / "index", test)


def test_a_missing_extra_names_its_install_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without lancedb the first write says what to install; reading says that there is no index."""
    monkeypatch.setitem(sys.modules, "lancedb", None)

    async def test(store: LanceDBStore) -> None:
        assert await store.version() is None
        with pytest.raises(MissingExtraError, match=r"\[lancedb\]"):
            await put(store, chunk("a"))

    run(tmp_path / "index", test)


def test_the_configuration_opens_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``store.kind = "lancedb"`` indexes files and answers; the default place gets an ending of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "note.md").write_text("# Zebras\n\nThey have stripes.")
    config = load_config(overrides={"store.kind": "lancedb", "store.lancedb.table": "text_pages_notes"})
    with open_index(config=config, embedder=FakeEmbedder()) as index:
        assert index.ingest("note.md").documents == 1
        assert [hit.chunk.document_id for hit in index.retrieve("zebra stripes").hits] == ["note.md"]
    assert (tmp_path / ".retrieval" / "index.lance" / "text_pages_notes.lance").is_dir()
    with open_index(tmp_path / "place", config=config, embedder=FakeEmbedder()) as index:
        index.ingest("note.md")
    assert (tmp_path / "place" / "text_pages_notes.lance").is_dir()


def test_the_lock_is_let_go_of_after_each_write(tmp_path: Path) -> None:
    """Another store may write while this one is open, without waiting."""

    async def test(store: LanceDBStore) -> None:
        await put(store, chunk("a"))
        other = store_at(tmp_path / "index", busy_timeout=0)
        await put(other, chunk("b", document="e"))
        assert (await store.describe()).chunks == 2
        await other.aclose()

    run(tmp_path / "index", test)
