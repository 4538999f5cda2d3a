"""What the SQLite store does beyond the kit, within one process."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from retrieval_core.adapters.stores import columns
from retrieval_core.adapters.stores.rows import FIELD_COLUMNS, FieldReader
from retrieval_core.adapters.stores.sqlite import SqliteStore, arrays, connections, read, schema, write
from retrieval_core.adapters.stores.sqlite.arrays import SnapshotCache
from retrieval_core.adapters.stores.sqlite.connections import Connections, DamagedError, StaleReadError
from retrieval_core.errors import (
    DimensionMismatchError,
    EmbedderMismatchError,
    IndexBusyError,
    IndexFormatError,
    IndexNotFoundError,
    InvalidParameterError,
    StoreError,
)
from retrieval_core.ports import Change, FetchRequest, Manifest, SearchRequest
from retrieval_core.testing.store_kit.base import by_text, by_vector, chunk, document, put, unit, units
from retrieval_core.testing.store_kit.writing import FULL
from retrieval_core.text.analysis import Analyzer
from retrieval_core.types import Chunk
from retrieval_core.types.filters import And, Eq, Gte, Not, chunk_fields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


def open_store(path: Path, **settings: Any) -> SqliteStore:
    usual: dict[str, Any] = {"embedder_id": "e", "dimension": 7}
    return SqliteStore(path, **(usual | settings))


def with_stores(test: Callable[..., Awaitable[None]], *stores: SqliteStore) -> None:
    async def main() -> None:
        try:
            await test(*stores)
        finally:
            for store in stores:
                await store.aclose()

    asyncio.run(main())


def remove_files(folder: Path) -> None:
    for path in folder.glob("index.db*"):
        path.unlink()


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """An index of one document with two chunks."""
    path = tmp_path / "index.db"

    async def fill(store: SqliteStore) -> None:
        await put(store, chunk("a", "alpha word"), chunk("b", "beta word"), documents=(document("d"),))

    with_stores(fill, open_store(path))
    return path


def test_a_missing_file_is_named_with_the_remedy(tmp_path: Path) -> None:
    async def test(store: SqliteStore) -> None:
        for call in (
            store.describe,
            lambda: store.search(SearchRequest(1, text="x")),
            lambda: store.search(SearchRequest(1, vector=unit(0))),
            lambda: store.fetch(FetchRequest()),
        ):
            with pytest.raises(IndexNotFoundError, match=r"no index at .*none\.db.*retrieval index PATH"):
                await call()
        assert not (tmp_path / "sub").exists()

    with_stores(test, open_store(tmp_path / "sub" / "none.db"))


def test_an_empty_file_becomes_an_index(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()

    async def test(store: SqliteStore) -> None:
        with pytest.raises(IndexNotFoundError):
            await store.describe()
        await put(store, chunk("a"))
        assert (await store.describe()).chunks == 1

    with_stores(test, open_store(path))


def test_other_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    text, foreign, folder, damaged = (tmp_path / name for name in ("text.db", "foreign.db", "folder", "damaged.db"))
    text.write_text("no database at all, but long enough to be mistaken for the header of one" * 20)
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
        connection.execute("PRAGMA user_version = 3")
    folder.mkdir()
    damaged.write_bytes(foreign.read_bytes()[:1000] + b"\xff" * 7000)
    other = "another program, and was not changed. Choose another path"
    cases = [(text, IndexFormatError, "."), (foreign, IndexFormatError, other), (folder, StoreError, ".")]
    for path, error, message in [*cases, (damaged, IndexFormatError, ".")]:
        before = path.read_bytes() if path.is_file() else b""

        async def test(store: SqliteStore, error: type[Exception] = error, message: str = message) -> None:
            with pytest.raises(error, match=message):
                await store.describe()
            with pytest.raises(error, match=message):
                await put(store, chunk("a"))

        with_stores(test, open_store(path))
        assert (path.read_bytes() if path.is_file() else b"") == before


def test_a_folder_is_told_how_lancedb_is_chosen(tmp_path: Path) -> None:
    """An index that LanceDB keeps is a folder, and easily given without the store's kind."""

    async def test(store: SqliteStore) -> None:
        with pytest.raises(IndexFormatError, match=r"docs\.lance is a folder.*--store lancedb"):
            await store.describe()

    (tmp_path / "docs.lance").mkdir()
    with_stores(test, open_store(tmp_path / "docs.lance"))


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    async def test(store: SqliteStore) -> None:
        with pytest.raises(StoreError, match="file"):
            await put(store, chunk("a"))

    with_stores(test, open_store(tmp_path / "file" / "index.db"))


@pytest.mark.parametrize(("version", "advice"), [(schema.FORMAT + 1, "Upgrade"), (0, "Build the index anew")])
def test_other_format_versions_are_refused(index: Path, version: int, advice: str) -> None:
    with closing(sqlite3.connect(index)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")

    async def test(store: SqliteStore) -> None:
        with pytest.raises(IndexFormatError, match=advice):
            await store.describe()

    with_stores(test, open_store(index))


def test_another_embedder_is_refused(index: Path) -> None:
    async def test(store: SqliteStore) -> None:
        for call in (
            store.describe,
            lambda: store.fetch(FetchRequest()),
            lambda: store.search(SearchRequest(1, text="x")),
            lambda: put(store, chunk("x")),
        ):
            with pytest.raises(EmbedderMismatchError, match=r"built with the embedder e and .* other"):
                await call()

    with_stores(test, open_store(index, embedder_id="other"))


def test_the_same_embedder_with_another_dimension_is_refused(index: Path) -> None:
    async def test(store: SqliteStore) -> None:
        with pytest.raises(DimensionMismatchError):
            await store.describe()

    with_stores(test, open_store(index, dimension=8))


def test_another_analysis_is_refused_with_the_settings(index: Path) -> None:
    """The error names the settings of an analysis."""

    async def test(store: SqliteStore) -> None:
        with pytest.raises(IndexFormatError, match=r"analysis\.word_ngrams as it was built, or build it anew"):
            await store.describe()

    with_stores(test, open_store(index, analyzer=Analyzer(word_ngrams=2)))


def test_an_unknown_analysis_is_refused(index: Path) -> None:
    class OtherAnalyzer(Analyzer):
        @property
        def id(self) -> str:
            return "other"

    async def test(store: SqliteStore) -> None:
        with pytest.raises(IndexFormatError, match=r"by 'other', so they would not meet"):
            await store.describe()

    with_stores(test, open_store(index, analyzer=OtherAnalyzer()))


def test_without_an_embedder_vectors_are_left_alone(index: Path) -> None:
    async def test(store: SqliteStore) -> None:
        info = await store.describe()
        assert info.sides == {"lexical"}
        assert info.manifest is not None
        assert info.manifest.embedder_id == "e"
        assert await by_text(store, "alpha") == ["a"]
        assert set((await store.fetch(FetchRequest(("a",), with_vectors=True))).vectors) == {"a"}
        with pytest.raises(EmbedderMismatchError):
            await store.search(SearchRequest(1, vector=unit(0)))
        with pytest.raises(EmbedderMismatchError):
            await store.upsert(Change((chunk("x"),)))
        await store.upsert(Change(documents=(document("other"),)))
        assert await store.delete(["d"]) == 2

    with_stores(test, open_store(index, embedder_id=None, dimension=None))


def test_an_index_without_vectors(tmp_path: Path) -> None:
    path = tmp_path / "lexical.db"

    async def test(store: SqliteStore, dense: SqliteStore) -> None:
        await store.upsert(Change((chunk("a", "alpha", metadata={"n": 1}), chunk("b", "alpha"))))
        assert await by_text(store, "alpha", condition=Gte("n", 1)) == ["a"]
        assert (await store.describe()).sides == {"lexical"}
        found = await store.search(SearchRequest(1, text="alpha", with_vectors=True))
        assert found[0].vector is None
        with pytest.raises(StoreError, match="no vectors"):
            await store.search(SearchRequest(1, vector=unit(0)))
        with pytest.raises(EmbedderMismatchError, match="no vectors"):
            await put(store, chunk("c"))
        assert (await dense.describe()).sides == {"lexical"}
        assert await by_text(dense, "alpha", condition=Gte("n", 1)) == ["a"]
        with pytest.raises(StoreError, match="no vectors"):
            await dense.search(SearchRequest(1, vector=unit(0)))
        with pytest.raises(EmbedderMismatchError, match="no vectors"):
            await put(dense, chunk("c"))

    with_stores(test, open_store(path, embedder_id=None, dimension=None), open_store(path))


@pytest.mark.parametrize(
    "settings", [{"dimension": None}, {"embedder_id": None}, {"dimension": 0}, {"busy_timeout": -1.0}]
)
def test_settings_are_checked(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError):
        open_store(tmp_path / "x.db", **settings)


def test_an_index_that_is_made_while_its_format_is_read_is_one(tmp_path: Path) -> None:
    """Whoever comes between is seen as a whole or not at all, and never taken for another program."""
    path = tmp_path / "index.db"
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as reader,
        closing(sqlite3.connect(path, isolation_level=None)) as writer,
    ):
        writer.execute("PRAGMA journal_mode = WAL")
        seen: list[str] = []

        def make(statement: str) -> None:
            seen.append(statement)
            if len(seen) == 2:
                writer.execute("BEGIN IMMEDIATE")
                schema.create_tables(writer, Manifest("e", 7, "a"))
                writer.execute("COMMIT")

        reader.set_trace_callback(make)
        assert schema.read_format(reader, path) in (0, schema.FORMAT)
        assert schema.read_format(reader, path) == schema.FORMAT
        assert len(seen) > 1


def test_an_unfit_sqlite_is_refused(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "OLDEST_SQLITE", (99, 0, 0))

    async def test(store: SqliteStore) -> None:
        with pytest.raises(IndexFormatError, match=r"3\.40 or later"):
            await store.describe()

    with_stores(test, open_store(index))


def test_a_cancelled_read_is_interrupted(index: Path) -> None:
    """The query that nobody waits for any more ends, or closing the store would wait for ever."""

    async def test(store: SqliteStore) -> None:
        started = threading.Event()

        def endless(connection: sqlite3.Connection) -> None:
            started.set()
            connection.execute(ENDLESS).fetchone()

        task = asyncio.create_task(store._current().read(endless))
        await asyncio.to_thread(started.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await by_text(store, "alpha") == ["a"]

    with_stores(test, open_store(index))


def test_a_cancelled_write_is_undone(index: Path) -> None:
    async def test(store: SqliteStore) -> None:
        started = threading.Event()

        def endless(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM chunks")
            started.set()
            connection.execute(ENDLESS).fetchone()

        task = asyncio.create_task(store._current().write(endless, store._prepare))
        queued = asyncio.create_task(put(store, chunk("never")))
        await asyncio.to_thread(started.wait)
        for one in (queued, task):
            one.cancel()
        for one in (queued, task):
            with pytest.raises(asyncio.CancelledError):
                await one
        await put(store, chunk("c", document="e"))
        assert (await store.describe()).chunks == 3

    with_stores(test, open_store(index))


def test_a_write_that_waits_can_be_cancelled(index: Path) -> None:
    async def test(store: SqliteStore) -> None:
        with closing(sqlite3.connect(index, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            tasks = [asyncio.create_task(put(store, chunk(name))) for name in ("x", "y")]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            for task in tasks:
                with pytest.raises(asyncio.CancelledError):
                    await task
            other.execute("ROLLBACK")
        await put(store, chunk("z"))
        assert set((await store.fetch(FetchRequest(("x", "y", "z")))).chunks) == {"z"}

    with_stores(test, open_store(index, busy_timeout=3600))


def test_a_writer_that_waits_notices_that_nobody_waits_for_it(index: Path) -> None:
    with closing(sqlite3.connect(index, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        tried = threading.Event()

        class Call(connections._Call):
            def check(self) -> None:
                tried.set()
                super().check()

        async def test(store: SqliteStore) -> None:
            task = asyncio.create_task(put(store, chunk("x")))
            await asyncio.to_thread(tried.wait)
            tried.clear()
            await asyncio.to_thread(tried.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connections, "_Call", Call)
            with_stores(test, open_store(index, busy_timeout=3600))
        other.execute("ROLLBACK")


def test_fields_that_nobody_has_are_forgotten(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters may name any number of fields; the values of the last few are kept, and all of one filter's."""
    monkeypatch.setattr(columns, "KEPT_COLUMNS", 2)

    async def test(store: SqliteStore) -> None:
        await put(store, chunk("a", metadata={"year": 2001}), chunk("b", metadata={"year": 2002}))
        for number in range(9):
            condition = And((Eq("year", 2001), Not(Eq(f"no{number}", 1)), Not(Eq(f"nor{number}", 1))))
            assert await by_vector(store, unit(0), condition=condition) == ["a"]
        assert await by_vector(store, unit(0), condition=Eq("year", 2002)) == ["b"]
        assert store._session is not None
        cache = store._session._cache
        assert cache is not None
        assert list(cache._columns._columns)[-1] == "year"
        assert len(cache._columns._columns) == 2

    with_stores(test, open_store(index))


def test_conditions_are_remembered_within_bounds(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "REMEMBERED_TESTS", 2)

    async def test(store: SqliteStore) -> None:
        for turn in range(2):
            for number in range(4):
                await put(store, chunk(f"{turn}{number}", metadata={"n": number}))
                found = await by_vector(store, unit(0), condition=Eq("n", number))
                assert sorted(found) == [f"{past}{number}" for past in range(turn + 1)]

    with_stores(test, open_store(index))


def test_a_second_writer_waits_and_then_gives_up(index: Path) -> None:
    async def test(impatient: SqliteStore, patient: SqliteStore) -> None:
        with closing(sqlite3.connect(index, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(IndexBusyError) as raised:
                await put(impatient, chunk("x"))
            assert raised.value.transient
            assert await by_text(impatient, "alpha") == ["a"], "readers do not wait"
            task = asyncio.create_task(put(patient, chunk("y")))
            await asyncio.sleep(0)
            other.execute("COMMIT")
        await task

    with_stores(test, open_store(index, busy_timeout=0), open_store(index))


def test_other_errors_of_sqlite_are_store_errors(index: Path) -> None:
    async def test(store: SqliteStore) -> None:
        with pytest.raises(StoreError, match="no such table"):
            await store._current().read(lambda connection: connection.execute("SELECT * FROM absent"))
        with pytest.raises(StoreError, match=r"index\.db"):
            await store._current().read(lambda connection: connection.execute("SELECT ?", (1, 2)))

    with_stores(test, open_store(index))


@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_failed_call_does_not_hold_the_index_at_its_state(
    index: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever keeps the error may keep a statement that was left half read; the thread's next call sees what is new."""
    monkeypatch.setattr(connections, "READERS", 1)
    kept: list[sqlite3.Cursor] = []

    def fails(connection: sqlite3.Connection) -> None:
        kept.append(connection.execute("SELECT id FROM chunks"))
        kept[-1].fetchone()
        msg = "odd"
        raise sqlite3.OperationalError(msg)

    async def test(store: SqliteStore, other: SqliteStore) -> None:
        calls = store._current()
        with pytest.raises(StoreError, match="odd"):
            await (calls.read(fails) if kind == "read" else calls.write(fails, lambda _connection: None))
        await put(other, chunk("c", "gamma word"))
        await put(store, chunk("d", "delta word"))
        assert set(await by_text(store, "word")) == {"a", "b", "c", "d"}

    with_stores(test, open_store(index), open_store(index))


def test_the_arrays_follow_the_writes_of_others(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are added, replaced and removed through another connection; also more writes than are remembered."""
    for module in (write,):
        monkeypatch.setattr(module, "KEPT_GENERATIONS", 5)

    async def test(reader: SqliteStore, writer: SqliteStore) -> None:
        is_even = Eq("even", value=True)
        expected: dict[str, bool] = {"a": False, "b": False}
        generator = np.random.default_rng(0)
        for step in range(40):
            for name in generator.choice(20, size=generator.integers(1, 8)).tolist():
                await put(writer, chunk(f"c{name}", "word", f"d{name}", metadata={"even": step % 2 == 0}))
                expected[f"c{name}"] = step % 2 == 0
            if step % 5 == 4:
                gone = [str(name) for name in generator.choice(20, size=12).tolist()]
                await writer.delete([f"d{name}" for name in gone])
                expected = {name: even for name, even in expected.items() if name[1:] not in gone}
            assert set(await by_vector(reader, unit(step))) == set(expected)
            wanted = {name for name, even in expected.items() if even}
            assert set(await by_vector(reader, unit(step), condition=is_even)) == wanted
            assert set(await by_text(reader, "word", condition=is_even)) == wanted

    with_stores(test, open_store(index), open_store(index))


def test_growing_arrays_leave_those_in_use_alone(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BATCH", 2)

    async def test(store: SqliteStore) -> None:
        cache = SnapshotCache()
        seen: list[tuple[read.Snapshot, np.ndarray[Any, Any]]] = []
        for step in range(10):
            await put(store, *(chunk(f"{step}.{row}") for row in range(step)), vectors=units(step, 100 * step))
            found = await store._current().read(lambda connection: cache.get(connection, None, 7))
            seen.append((found, found.matrix.copy()))
        for found, matrix in seen:
            np.testing.assert_array_equal(found.matrix, matrix)
        assert len(seen[-1][0].numbers) == 47
        assert (await store.describe()).chunks == 47

    with_stores(test, open_store(index))


def test_a_reader_that_is_behind_reads_again(index: Path) -> None:
    cache = SnapshotCache()
    old, as_old = (sqlite3.connect(index, isolation_level=None, check_same_thread=False) for _ in range(2))
    for connection in (old, as_old):
        connection.execute("BEGIN")
        assert read.read_state(connection)[1] == 1

    async def test(store: SqliteStore) -> None:
        await put(store, chunk("c"))
        await store._current().read(lambda connection: cache.get(connection, None, None))
        for connection in (old, as_old):  # each is behind, and none is an older file that was put back
            with pytest.raises(StaleReadError):
                await asyncio.to_thread(cache.get, connection, None, None)
        tries = list[int]()

        def stale_at_first(connection: sqlite3.Connection) -> int:
            tries.append(1)
            if len(tries) == 1:
                raise StaleReadError
            return read.read_state(connection)[1]

        assert await store._current().read(stale_at_first) == 2

    with closing(old), closing(as_old):
        with_stores(test, open_store(index))


class FrozenConnections(Connections):
    """Opens the file as one that nobody may write to."""

    def _connect(self, mode: str, *, writing: bool) -> sqlite3.Connection:
        if mode == "rw":
            error = sqlite3.OperationalError("attempt to write a readonly database")
            error.sqlite_errorcode = sqlite3.SQLITE_READONLY
            raise error
        return super()._connect(mode, writing=writing)


@pytest.mark.parametrize(
    "error",
    [DamagedError("a vector"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no text"), TypeError("None"), KeyError("x")],
)
def test_a_file_that_changes_while_it_is_read_is_read_again(index: Path, error: Exception) -> None:
    """Who takes it for one that nobody writes to may see half of a change; what fails then says nothing of the file."""
    tries: list[int] = []

    def torn_at_first(connection: sqlite3.Connection) -> int:
        tries.append(1)
        if len(tries) == 1:
            os.utime(index, ns=(1, 1))
            raise error
        return read.read_state(connection)[1]

    def fails(_connection: sqlite3.Connection) -> None:
        raise error

    async def main() -> None:
        assert await connections.read(torn_at_first) == 1
        assert len(tries) == 2
        with pytest.raises((StoreError, TypeError, KeyError)):
            await connections.read(fails)

    connections = FrozenConnections(index, 1)
    try:
        asyncio.run(main())
    finally:
        connections.close()


def test_a_file_that_is_deleted_and_made_anew_is_opened_anew(index: Path, tmp_path: Path) -> None:
    async def test(store: SqliteStore, other: SqliteStore) -> None:
        assert sorted(await by_vector(store, unit(0))) == ["a", "b"]
        remove_files(tmp_path)
        with pytest.raises(IndexNotFoundError):
            await store.describe()
        await put(other, chunk("new", "alpha"))
        assert await by_vector(store, unit(0)) == ["new"]
        assert await by_text(store, "alpha") == ["new"]
        await put(store, chunk("newer"))
        assert (await other.describe()).chunks == 2

    with_stores(test, open_store(index), open_store(index))


def restored_by_sqlite(backup: Path, index: Path) -> None:
    with closing(sqlite3.connect(backup)) as source, closing(sqlite3.connect(index)) as target:
        source.backup(target)


def overwritten(backup: Path, index: Path) -> None:
    shutil.copyfile(backup, index)


def replaced(backup: Path, index: Path) -> None:
    shutil.copyfile(backup, index.with_name("new"))
    remove_files(index.parent)
    index.with_name("new").replace(index)


@pytest.mark.parametrize("restore", [restored_by_sqlite, overwritten, replaced])
@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_a_backup_that_is_put_back_under_a_reader_is_noticed(
    index: Path, tmp_path: Path, restore: Callable[[Path, Path], None], writes: int
) -> None:
    """However it came back, and however often it was written to since: with fewer, as many and more writes than before.

    Whoever wrote has closed the index by then, so that nothing of it lies outside the file.
    """
    backup = tmp_path / "backup"
    shutil.copyfile(index, backup)

    async def write(name: str) -> None:
        writer = open_store(index)
        await put(writer, chunk(name, "word", name, metadata={"name": name}), documents=(document(name),))
        await writer.aclose()

    async def found(reader: SqliteStore) -> set[str]:
        names = await by_text(reader, "word")
        assert sorted(await by_vector(reader, unit(0))) == sorted(names)
        for name in set(names) - {"a", "b"}:
            assert await by_vector(reader, unit(0), condition=Eq("name", name)) == [name]
        return set(names)

    async def test(reader: SqliteStore) -> None:
        for name in ("new", "newer"):
            await write(name)
            assert name in await found(reader)
        before = await reader.version()
        restore(backup, index)
        for number in range(writes):
            await write(f"since{number}")
        assert await found(reader) == {"a", "b", *(f"since{number}" for number in range(writes))}
        assert await reader.version() != before

    with_stores(test, open_store(index))


def test_describing_counts_again_only_after_a_write(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(store: SqliteStore) -> None:
        first = await store.describe()
        with monkeypatch.context() as patch:
            patch.setattr("retrieval_core.adapters.stores.sqlite.read.count", None)
            assert await store.describe() == first
        await put(store, chunk("c"))
        assert (await store.describe()).chunks == 3

    with_stores(test, open_store(index))


@pytest.mark.parametrize("item", [FULL, Chunk("c", "d", "text")])
def test_fields_are_read_as_filters_see_them(index: Path, item: Chunk) -> None:
    """The fields made from a row are those made from the chunk, but for lists and tuples."""

    async def test(store: SqliteStore) -> None:
        await put(store, item)

        def read(connection: sqlite3.Connection) -> Any:
            sql = f"SELECT {', '.join(FIELD_COLUMNS)} FROM chunks WHERE id = ?"
            return FieldReader()(connection.execute(sql, (item.id,)).fetchone())

        fields = await store._current().read(read)
        assert schema_free(fields) == schema_free(dict(chunk_fields(item)))

    with_stores(test, open_store(index))


def schema_free(value: Any) -> Any:
    """Lists and tuples alike."""
    if isinstance(value, (list, tuple)):
        return [schema_free(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {key: schema_free(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return value


def test_long_questions_are_bounded(index: Path) -> None:
    async def test(store: SqliteStore) -> None:
        question = "alpha " * 10_000 + " ".join(f"q{'x' * number}" for number in range(2000))
        assert await by_text(store, question) == ["a"]

    with_stores(test, open_store(index))
