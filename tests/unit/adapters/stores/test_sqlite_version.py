"""The version of an SQLite index is never that of a former state, whatever was done to the file."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import threading
import time
from contextlib import closing
from math import inf
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.adapters.stores.sqlite import SqliteStore, connections, read
from retrieval_core.adapters.stores.sqlite.changes import SETTLED, SETTLED_FINE
from retrieval_core.adapters.stores.sqlite.connections import Connections
from retrieval_core.errors import IndexNotFoundError
from retrieval_core.testing.store_kit.base import chunk, put

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path


@pytest.fixture(autouse=True, scope="module")
def at_once() -> Generator[None]:
    """What is held is built again without a pause."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "IDLE", 0)
        patch.setattr(connections, "LEAST_PAUSE", 0)
        yield


def much_later() -> float:
    """The time of day when every change of a file is long past."""
    return time.time() + 10 * SETTLED


class Named:
    """Asks a file for its version on one session, and counts how often it was read."""

    def __init__(self, path: Path, now: Callable[[], float] = much_later) -> None:
        self.session = Connections(path, 1.0, now)
        self.reads = 0

    async def version(self) -> str | None:
        try:
            return await self.session.version(self.name)
        except IndexNotFoundError:
            return None

    def name(self, connection: sqlite3.Connection) -> str:
        self.reads += 1
        return "{}:{}".format(*read.read_state(connection))

    async def held(self) -> str | None:
        """What is held in memory of the present state; ``None`` if nothing is. What is being built is waited for."""
        held = None
        for _ in range(3):
            held = held or self.session.hold(self.name)
            self.session.searches += 1
            while self.session._idle_until == inf:  # noqa: ASYNC110  # pyright: ignore[reportPrivateUsage]
                await asyncio.sleep(0.001)
        return held


def make_index(path: Path) -> None:
    async def make() -> None:
        store = SqliteStore(path, embedder_id="e", dimension=7)
        await put(store, chunk("a"))
        await store.aclose()

    asyncio.run(make())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    make_index(tmp_path / "index.db")
    return tmp_path / "index.db"


@pytest.fixture
def named(path: Path) -> Generator[Named]:
    found = Named(path)
    yield found
    found.session.close()


def truth(path: Path) -> str | None:
    """What a process that opens the file now reads."""
    if not path.exists():
        return None
    with closing(sqlite3.connect(path)) as connection:
        return "{}:{}".format(*connection.execute("SELECT token, generation FROM state").fetchone())


def write(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE state SET generation = generation + 1, token = hex(randomblob(16))")


def checkpoint(path: Path, kind: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA wal_checkpoint({kind})").fetchall()


def remove(path: Path, *suffixes: str) -> None:
    for suffix in suffixes:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def wait_for_the_clock_of_files(folder: Path) -> None:
    """Return when a change of a file has another time than all before it."""
    scratch = folder / "scratch"
    scratch.write_text("")
    begun = scratch.stat().st_ctime_ns
    while scratch.stat().st_ctime_ns == begun:
        scratch.write_text("")


def test_it_is_read_once_for_each_state(path: Path, named: Named) -> None:
    """While nothing is written no thread is asked; a write of this process or of another one is seen at once."""

    async def test() -> None:
        for _ in range(2):  # the first time opens what counts, the second one remembers
            assert await named.version() == truth(path)
        for _ in range(5):
            assert await named.version() == truth(path)
        assert named.reads == 2
        write(path)
        assert await named.version() == truth(path)
        assert named.reads == 3
        assert await named.version() == truth(path)
        assert named.reads == 3
        await named.session.write(
            lambda connection: connection.execute("UPDATE state SET token = 'own'"), lambda _: None
        )
        assert await named.version() == truth(path)
        assert named.reads == 4

    asyncio.run(test())


def test_what_is_held_is_built_once_for_each_state(path: Path, named: Named) -> None:
    """It is there until something is written, and then built again when it is asked for the second time."""

    async def test() -> None:
        for _ in range(3):
            assert named.session.hold(named.name) is None or named.reads
            assert await named.held() == truth(path)
            reads = named.reads
            for _ in range(5):
                assert named.session.hold(named.name) == truth(path)
            assert named.reads == reads
            write(path)
            assert named.session.hold(named.name) is None

    asyncio.run(test())


def test_what_changed_just_now_is_not_remembered(path: Path) -> None:
    """Two changes of a file within one tick of its clock look the same, so that it is read until the tick is over."""
    changed = path.stat().st_ctime_ns / 1e9
    named = Named(path, lambda: changed + SETTLED_FINE / 2)

    async def test() -> None:
        for reads in range(1, 6):
            assert await named.version() == truth(path)
            assert named.reads == reads

    asyncio.run(test())
    named.session.close()


def test_who_waits_for_nothing_keeps_no_checkpoint_waiting(path: Path, named: Named) -> None:
    """The connection that counts is in no transaction between two questions."""

    async def test() -> None:
        for _ in range(3):
            await named.version()
        write(path)
        await named.version()
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0

    asyncio.run(test())


class Handled:
    """An index file, and what people and programs do to one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path, self.backup, self.other = folder / "index.db", folder / "backup.db", folder / "other.db"

    def write(self) -> None:
        write(self.path)

    def checkpoint(self) -> None:
        checkpoint(self.path, "PASSIVE")

    def truncate_the_log(self) -> None:
        checkpoint(self.path, "TRUNCATE")

    def begin_the_log_anew(self) -> None:
        checkpoint(self.path, "RESTART")

    def save(self) -> None:
        checkpoint(self.path, "TRUNCATE")
        shutil.copy2(self.path, self.backup)

    def put_in_its_place(self) -> None:
        shutil.copy2(self.backup, self.other)
        remove(self.path, "-wal", "-shm")
        self.other.replace(self.path)

    def copy_over(self) -> None:
        remove(self.path, "-wal", "-shm")
        shutil.copy2(self.backup, self.path)

    def copy_over_and_then_remove_the_log(self) -> None:
        shutil.copy2(self.backup, self.path)
        remove(self.path, "-wal", "-shm")

    def swap_and_swap_back(self) -> None:
        self.path.replace(self.other)
        shutil.copy2(self.backup, self.path)
        self.other.replace(self.path)

    def delete(self) -> None:
        remove(self.path, "", "-wal", "-shm")


STEPS = ("write", *sorted(name for name in vars(Handled) if name != "write" and not name.startswith("_")))


@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.booleans(), st.integers(1, 3)), min_size=1, max_size=12))
def test_it_is_that_of_the_file_whatever_is_done_to_it(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bool, int]]
) -> None:
    """Writes, checkpoints, copies that are put in its place or over it, and deletions, in any order."""
    file = Handled(tmp_path_factory.mktemp("index"))

    async def own_write(session: Connections) -> None:
        sql = "UPDATE state SET generation = generation + 1, token = hex(randomblob(16))"
        await session.write(lambda connection: connection.execute(sql), lambda _: None)

    async def test(named: Named) -> None:
        for step, is_own, questions in steps:
            if not file.path.exists():
                file.copy_over()
            elif step == "write" and is_own:
                await own_write(named.session)
            else:
                getattr(file, step)()
            for _ in range(questions):
                assert await named.version() == truth(file.path), step
                assert await named.held() in {None, truth(file.path)}, step
            wait_for_the_clock_of_files(file.folder)

    make_index(file.path)
    file.save()
    named = Named(file.path)
    try:
        asyncio.run(test(named))
    finally:
        named.session.close()
        shutil.rmtree(file.folder)


def test_a_copy_over_the_file_is_read_at_once(path: Path, named: Named) -> None:
    """No connection to what was there before keeps SQLite from opening what is there now."""
    file = Handled(path.parent)
    file.save()

    async def test() -> None:
        for _ in range(2):
            for _ in range(2):
                file.write()
                assert await named.version() == truth(path)
                await named.held()
                wait_for_the_clock_of_files(path.parent)
            file.copy_over()
            assert await named.version() == truth(path)

    asyncio.run(test())


def test_several_event_loops_never_see_less_than_was_committed(path: Path, named: Named) -> None:
    """Each answer is at least the last write that had returned when it was asked for."""
    committed, is_over, problems = [0], threading.Event(), list[str]()
    committed[0] = int((truth(path) or "").split(":")[1])

    async def ask() -> None:
        while not is_over.is_set():
            least = committed[0]
            generation = int((await named.version() or ":-1").split(":")[1])
            if generation < least:
                problems.append(f"{generation} after {least}")
            least, held = committed[0], named.session.hold(named.name)
            if held is not None and int(held.split(":")[1]) < least:
                problems.append(f"{held} is held after {least}")

    askers = [threading.Thread(target=lambda: asyncio.run(ask())) for _ in range(3)]
    for asker in askers:
        asker.start()
    for number in range(100):
        write(path)
        committed[0] += 1
        if number % 20 == 19:
            checkpoint(path, "TRUNCATE")
    is_over.set()
    for asker in askers:
        asker.join()
    assert problems == []
    assert asyncio.run(named.version()) == truth(path)
