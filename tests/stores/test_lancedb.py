"""What the LanceDB store does beyond the kit: its indexes, its version of filters, and its place on the disk."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from retrieval_core import open_index
from retrieval_core.config import LanceDBConfig, RetrievalConfig, StoreConfig
from retrieval_core.errors import (
    EmbedderMismatchError,
    IndexBusyError,
    IndexFormatError,
    InvalidParameterError,
    MissingExtraError,
    StoreError,
)
from retrieval_core.filters import Eq, Gte, Lt
from retrieval_core.ports import Change, FetchRequest, SearchesBoth, SearchRequest, SourceState
from retrieval_core.stores.lancedb import LanceDBStore, schema, search, session, view
from retrieval_core.stores.lancedb.locking import one_writer
from retrieval_core.stores.sqlite import SqliteStore
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.testing.store_kit import DIMENSION, EMBEDDER_ID
from retrieval_core.testing.store_kit.base import by_text, by_vector, chunk, document, ids, put, unit, units

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(find_spec("lancedb") is None, reason="the extra 'lancedb' is not installed")


def store_at(path: Path, **options: Any) -> LanceDBStore:
    return LanceDBStore(path, embedder_id=EMBEDDER_ID, dimension=DIMENSION, **options)


def run(path: Path, test: Callable[[LanceDBStore], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        store = store_at(path, **options)
        try:
            await test(store)
        finally:
            await store.aclose()

    asyncio.run(main())


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


def test_many_writes_bring_the_indexes_up_to_date_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After so many writes it happens in the background; all that was written is found afterwards."""
    monkeypatch.setattr(session, "SWEEP_WRITES", 3)
    swept: list[None] = []
    sweep = session.Session._sweep

    def counted(self: session.Session) -> None:
        sweep(self)
        swept.append(None)

    monkeypatch.setattr(session.Session, "_sweep", counted)

    async def test(store: LanceDBStore) -> None:
        for row in range(10):
            await put(store, chunk(f"c{row}", "word", f"d{row}"))
        assert await by_text(store, "word") == [f"c{row}" for row in range(10)]

    run(tmp_path / "index", test)
    assert swept


def test_a_fault_of_the_background_is_logged_and_hurts_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Writes and searches go on when the indexes cannot be brought up to date."""
    monkeypatch.setattr(session, "SWEEP_WRITES", 1)

    def broken(_self: session.Session) -> None:
        msg = "no room"
        raise OSError(msg)

    monkeypatch.setattr(session.Session, "_sweep", broken)

    async def test(store: LanceDBStore) -> None:
        await put(store, chunk("a", "word"))
        await put(store, chunk("b", "word"))
        assert await by_text(store, "word") == ["a", "b"]

    with caplog.at_level(logging.WARNING, "retrieval_core"):
        run(tmp_path / "index", test)
    assert "could not be brought up to date" in caplog.text


def test_vectors_get_an_index_above_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best are found through it, also for limits that its parts do not fill, and behind narrow filters."""
    monkeypatch.setattr(session, "VECTOR_INDEX_FROM", 300)
    monkeypatch.setattr(search, "RARE", 0.0)
    monkeypatch.setattr(search, "FEW", 20)
    rows = 600
    matrix = units(rows)

    async def test(store: LanceDBStore) -> None:
        chunks = [chunk(f"c{row:03}", "word", f"d{row}", metadata={"n": row}) for row in range(rows)]
        await put(store, *chunks, vectors=matrix)
        await store.optimize()
        assert (await store._current().session.read(lambda view: view.indexed)) == {"vector"}
        order = [f"c{row:03}" for row in np.argsort(-(matrix @ unit(-1 % 1000)))]
        found = await by_vector(store, unit(999), 10)
        assert len(set(found) & set(order[:10])) >= 9
        assert sorted(await by_vector(store, unit(999), rows + 1)) == sorted(order)
        for condition, last in ((Lt("n", 15), 15), (Lt("n", 300), 300)):
            wanted = [name for name in order if int(name[1:]) < last]
            assert await by_vector(store, unit(999), last, condition) == wanted
        await put(store, chunk("late", "word", "late"), vectors=unit(999)[np.newaxis])
        assert (await by_vector(store, unit(999), 3))[0] == "late"

    run(tmp_path / "index", test)


def test_filters_that_many_pass_apply_before_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where too many pass to be named, more and more of the best are asked for until enough of them pass."""
    monkeypatch.setattr(search, "FEW", 2)
    monkeypatch.setattr(search, "RARE", 0.0)
    matrix = units(200)

    async def test(store: LanceDBStore) -> None:
        order = list(np.argsort(-(matrix @ unit(999))))
        rank = {int(row): position for position, row in enumerate(order)}
        chunks = [chunk(f"c{row:03}", "word " * (rank[row] + 1), metadata={"rank": rank[row]}) for row in range(200)]
        await put(store, *chunks, vectors=matrix)
        worst = [f"c{row:03}" for row in order[-5:]]  # those that pass are the last ones
        assert await by_vector(store, unit(999), 3, Gte("rank", 195)) == worst[:3]
        full = [name for name in await by_text(store, "word", 200) if name in worst]
        assert await by_text(store, "word", 2, Gte("rank", 195)) == full[:2]

    run(tmp_path / "index", test)


def test_both_sides_are_fused_by_lancedb(tmp_path: Path) -> None:
    """What both sides find comes first, with the sum of the reciprocals, and the filter holds for both."""

    async def test(store: LanceDBStore) -> None:
        assert isinstance(store, SearchesBoth)
        await put(
            store,
            chunk("both", "zebra", metadata={"t": 1}),
            chunk("words", "zebra zebra", metadata={"t": 2}),
            chunk("near", "other", metadata={"t": 1}),
            vectors=np.stack([unit(1), -unit(1), unit(1) + 0.1 * unit(2)]).astype(np.float32),
        )
        request = SearchRequest(2, vector=unit(1), text="zebra", with_vectors=True)
        found = await store.search_both(request)
        assert ids(found)[0] == "both"
        assert found[0].score == pytest.approx(1 / 61 + 1 / 62)
        assert found[0].vector is not None
        bound = await store.search_both(SearchRequest(5, vector=unit(1), text="zebra", filter=Eq("t", 2)))
        assert ids(bound) == ["words"]
        assert ids(await store.search_both(SearchRequest(5, vector=unit(1), text="absent"))) == [
            "both",
            "near",
            "words",
        ]
        with pytest.raises(InvalidParameterError, match="a vector and a text"):
            await store.search_both(SearchRequest(5, text="zebra"))

    run(tmp_path / "index", test)


def test_two_words_find_the_one_that_is_written_together(tmp_path: Path) -> None:
    """As in the other stores, ``roll back`` finds ``rollback`` where the passages prefer it, and repeats count."""

    async def test(store: LanceDBStore) -> None:
        await put(store, chunk("one", "rollback a release"), chunk("two", "rollback now"), chunk("x", "back office"))
        assert sorted(await by_text(store, "roll back")) == ["one", "two"]
        (once,), (twice,) = [await store.search(SearchRequest(1, text=text)) for text in ("office", "office office")]
        assert twice.score == pytest.approx(2 * once.score)

    run(tmp_path / "index", test)


def test_a_query_of_no_direction_scores_everything_zero(tmp_path: Path) -> None:
    """A vector of zeros finds all passages, in the order of their ids; a filter still holds."""

    async def test(store: LanceDBStore) -> None:
        await put(store, chunk("b", metadata={"t": 1}), chunk("a"), chunk("c", metadata={"t": 1}))
        zero = np.zeros(DIMENSION, dtype=np.float32)
        assert await by_vector(store, zero, 2) == ["a", "b"]
        assert await by_vector(store, zero, 5, Eq("t", 1)) == ["b", "c"]

    run(tmp_path / "index", test)


def test_only_digits_get_into_expressions() -> None:
    """Names become digests, and anything else that would be quoted is refused."""
    name = "'; DROP TABLE chunks; -- \ud800"
    (expression,) = schema.any_of("key", [schema.digest("chunk", name)])
    assert re.fullmatch(r"key IN \('[0-9a-f]{32}'\)", expression)
    assert schema.digest("a", "b") != schema.digest("ab") != schema.digest("a,b")
    with pytest.raises(ValueError, match="hexadecimal"):
        list(schema.any_of("key", ["' OR 1=1 --"]))


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


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    """While another writer holds the lock, a write fails after its patience; reading goes on."""

    async def test(store: LanceDBStore) -> None:
        await put(store, chunk("a", "word"))
        with one_writer(tmp_path / "index" / "text_pages.lock", 0):
            with pytest.raises(IndexBusyError, match="writing"):
                await put(store, chunk("b", "word"))
            assert await by_text(store, "word") == ["a"]
        await put(store, chunk("b", "word"))

    run(tmp_path / "index", test, busy_timeout=0)
    with pytest.raises(InvalidParameterError, match="busy_timeout"):
        store_at(tmp_path, busy_timeout=-1)


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


def test_a_read_that_came_too_late_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where another thread has read a later version, the newest one is taken."""

    async def test(store: LanceDBStore) -> None:
        await put(store, chunk("a"))
        calls: list[int] = []

        def late(found: view.View) -> int:
            calls.append(found.version)
            if len(calls) < 3:
                raise view.StaleReadError
            return len(calls)

        assert await store._current().session.read(late) == 3

    run(tmp_path / "index", test)


def test_a_missing_extra_names_its_install_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without lancedb the first write says what to install; reading says that there is no index."""
    monkeypatch.setitem(sys.modules, "lancedb", None)

    async def test(store: LanceDBStore) -> None:
        assert await store.version() is None
        with pytest.raises(MissingExtraError, match=r"retrieval-core\[lancedb\]"):
            await put(store, chunk("a"))

    run(tmp_path / "index", test)


def test_the_configuration_opens_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``store.kind = "lancedb"`` indexes files and answers; the default place gets an ending of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "note.md").write_text("# Zebras\n\nThey have stripes.")
    config = RetrievalConfig(store=StoreConfig(kind="lancedb", lancedb=LanceDBConfig(table="text_pages_notes")))
    with open_index(config=config, embedder=FakeEmbedder()) as index:
        assert index.index("note.md").documents == 1
        assert [hit.chunk.document_id for hit in index.retrieve("zebra stripes").hits] == ["note.md"]
    assert (tmp_path / ".retrieval" / "index.lance" / "text_pages_notes.lance").is_dir()
    with open_index(tmp_path / "place", config=config, embedder=FakeEmbedder()) as index:
        index.index("note.md")
    assert (tmp_path / "place" / "text_pages_notes.lance").is_dir()


def test_it_agrees_with_the_default_store(tmp_path: Path) -> None:
    """Both find the same passages in the same order, by words and by vector."""
    generator = np.random.default_rng(3)
    chunks = [
        chunk(f"c{row:03}", " ".join(f"w{word}" for word in generator.zipf(1.5, size=30) % 50), f"d{row}")
        for row in range(150)
    ]

    async def test(store: LanceDBStore) -> None:
        default = SqliteStore(tmp_path / "index.db", embedder_id=EMBEDDER_ID, dimension=DIMENSION)
        for each in (store, default):
            await each.upsert(Change(tuple(chunks), units(150)))
        await store.optimize()
        for row in range(10):
            assert await by_vector(store, unit(500 + row), 10) == await by_vector(default, unit(500 + row), 10)
            text = f"w{row + 9} w{2 * row + 20}"  # rare ones: those of half the passages are weighed in another way
            one, other = await by_text(store, text, 20), await by_text(default, text, 20)
            assert len(set(one) & set(other)) >= 0.8 * len(one)
        await default.aclose()

    run(tmp_path / "index", test)


def test_a_closed_store_takes_no_lock_with_it(tmp_path: Path) -> None:
    """The lock is let go of after each write, so that another store may write while this one is open."""

    async def test(store: LanceDBStore) -> None:
        await put(store, chunk("a"))
        other = store_at(tmp_path / "index", busy_timeout=0)
        await put(other, chunk("b", document="e"))
        assert (await store.describe()).chunks == 2
        await other.aclose()

    run(tmp_path / "index", test)
