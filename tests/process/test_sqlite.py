"""Several processes on one index file: real children, killed for real."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from typing import IO, TYPE_CHECKING, cast

import pytest

from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.ports import ChunkRange, FetchRequest
from retrieval_core.testing.store_kit.base import by_text, by_vector, chunk, document, put, unit
from support.killing import PATIENCE, Tally, Writer, kills

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

PARTS = 3

# What pytest and hypothesis bring in would only slow the children down, so they do without the kit.
PRELUDE = """
import asyncio, os, sys
import numpy as np
from retrieval_core.ports import Change, SearchRequest
from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.types import Chunk, Document

store = SqliteStore(sys.argv[1], embedder_id="e", dimension=7)

def tell(value):
    print(value, flush=True)

async def put(*chunks, **rest):
    await store.upsert(Change(chunks, np.random.default_rng(0).normal(size=(len(chunks), 7)), **rest))

async def find(**side):
    return sorted(item.chunk_id for item in await store.search(SearchRequest(1000, **side)))

async def by_vector():
    return await find(vector=np.ones(7, dtype=np.float32))
"""

WRITER = """
async def main():
    for number in range(int(sys.argv[2]), 10**9):
        name = f"d{number}"
        tell(f"begin {number}")
        parts = (Chunk(f"{number}.{part}", name, "word", part) for part in range(3))
        await put(*parts, documents=(Document(name, "text", "source", "h"),), removed_documents=(f"d{number - 20}",))
        tell(f"done {number}")

asyncio.run(main())
"""

READER = """
async def main():
    tell("ready")
    for line in sys.stdin:
        tell(f"{len(await by_vector())} {len(await find(text='word'))}")
    await store.aclose()

asyncio.run(main())
"""

NAMER = """
from retrieval_core.adapters.stores.sqlite import changes

changes.SETTLED = -1.0  # a version is remembered at once

async def main():
    tell("ready")
    for line in sys.stdin:
        tell(await store.version())
    await store.aclose()

asyncio.run(main())
"""

FORKER = """
from retrieval_core.adapters.stores.sqlite import changes

changes.SETTLED = -1.0

async def version():
    return [await store.version() for _ in range(3)][-1]

async def search():
    assert await by_vector() == ["a"]
    return await version()

before = asyncio.run(search())
child = os.fork()
if child == 0:
    async def write():
        assert await by_vector() == ["a"]
        assert await version() == before
        await put(Chunk("b", "b", "text"))
        assert await version() == await store.version() != before
        await store.aclose()
    try:
        asyncio.run(write())
    except BaseException:
        os._exit(1)
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status

async def finish():
    changed = await version()
    assert changed != before
    assert await by_vector() == ["a", "b"]
    await put(Chunk("c", "c", "text"))
    assert await version() not in (before, changed)
    await store.aclose()
    tell("fine")

asyncio.run(finish())
"""


@contextmanager
def child(script: str, *arguments: object) -> Generator[subprocess.Popen[str], None, None]:
    command = [sys.executable, "-c", PRELUDE + script, *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        try:
            yield process
        finally:
            process.kill()


def lines(process: subprocess.Popen[str]) -> IO[str]:
    return cast("IO[str]", process.stdout)


def say(process: subprocess.Popen[str]) -> None:
    pipe = cast("IO[str]", process.stdin)
    pipe.write("\n")
    pipe.flush()


def open_store(path: Path) -> SqliteStore:
    return SqliteStore(path, embedder_id="e", dimension=7)


def test_processes_read_while_one_writes(tmp_path: Path) -> None:
    """Two children see each write of a third as soon as it is acknowledged."""
    path = tmp_path / "index.db"

    async def main() -> None:
        store = open_store(path)
        await put(store, chunk("first", "word"))
        with child(READER, path) as one, child(READER, path) as two:
            for reader in (one, two):
                assert lines(reader).readline() == "ready\n"
            for written in range(2, 6):
                for reader in (one, two):
                    say(reader)
                for reader in (one, two):
                    assert lines(reader).readline() == f"{written - 1} {written - 1}\n"
                await put(store, chunk(f"c{written}", "word"))
        await store.aclose()

    asyncio.run(main())


def test_each_write_is_another_version_to_every_process(tmp_path: Path) -> None:
    """Two children, which remember the version, tell that of each write of this process from its commit on."""
    path = tmp_path / "index.db"

    async def main() -> None:
        store = open_store(path)
        await put(store, chunk("first"))
        with child(NAMER, path) as one, child(NAMER, path) as two:
            for reader in (one, two):
                assert lines(reader).readline() == "ready\n"
            for written in range(12):
                version = await store.version()
                for reader in (one, two) * 3:
                    say(reader)
                    assert lines(reader).readline() == f"{version}\n"
                await put(store, chunk(f"c{written}"))
        await store.aclose()

    asyncio.run(main())


def test_another_process_commits_between_searches(tmp_path: Path) -> None:
    """What a child wrote and removed is in the arrays of this process at the next search."""
    path = tmp_path / "index.db"

    async def main() -> None:
        store = open_store(path)
        await put(store, chunk("first", "word"))
        assert await by_vector(store, unit(0)) == ["first"]
        with child(WRITER, path, 0) as writer:
            said = [lines(writer).readline() for _ in range(60)]
            await asyncio.to_thread(kill, writer)
        assert said[-1] == "done 29\n"
        found = set(await by_vector(store, unit(0), 1000))
        assert "first" in found
        assert "0.0" not in found
        # It went on until it was killed, and removes what it wrote twenty documents before.
        assert max(int(name.partition(".")[0]) for name in found - {"first"}) >= 29
        await store.aclose()

    asyncio.run(main())


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_a_writer_is_killed(tmp_path: Path) -> None:
    """Each document is there as a whole or not at all, the index is sound, and the next writer goes on."""
    path, generator, tally = tmp_path / "index.db", random.Random(30), Tally()
    last = -1
    for _ in range(kills(6)):
        writer = Writer(PRELUDE + WRITER, (path, last + 1))
        killed = writer.killed_in_a_write(generator, generator.randint(1, 12))
        last = killed.acknowledged
        newest = asyncio.run(check_documents(path, range(max(0, last - 19), last + 1)))
        tally.count(killed, there=newest == killed.under_way)
        last = newest
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    print(tally)  # noqa: T201 - shown by pytest -rA


async def check_documents(path: Path, acknowledged: range) -> int:
    """Return the number of the newest document, after checking that all are there and whole."""
    store = open_store(path)
    names = tuple(f"d{number}" for number in range(acknowledged.stop + 2))
    ranges = tuple(ChunkRange(name, 0, PARTS) for name in names)
    found = await store.fetch(FetchRequest(ranges=ranges, document_ids=names, with_vectors=True))
    parts = {name: sum(item.document_id == name for item in found.chunks.values()) for name in found.documents}
    whole = set(parts)
    # The write after the last acknowledged one may have been committed, and then took the oldest document with it.
    oldest = {f"d{acknowledged.start}"} if f"d{acknowledged.stop}" in whole else set[str]()
    assert {f"d{number}" for number in acknowledged} - oldest <= whole
    assert set(parts.values()) == {PARTS}
    assert len(found.chunks) == len(found.vectors) == PARTS * len(whole)
    assert set(await by_text(store, "word", 1000)) == set(found.chunks)
    assert set(await by_vector(store, unit(0), 1000)) == set(found.chunks)
    await put(store, chunk("extra", "extra", "extra"), documents=(document("extra"),))
    await store.delete(["extra"])
    await store.aclose()
    return max(int(name.removeprefix("d")) for name in whole)


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(PATIENCE)


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system has no fork")
def test_a_store_survives_a_fork(tmp_path: Path) -> None:
    """Parent and child both go on with a store that was open when the process forked."""
    path = tmp_path / "index.db"

    async def fill() -> None:
        store = open_store(path)
        await put(store, chunk("a"))
        await store.aclose()

    asyncio.run(fill())
    with child(FORKER, path) as process:
        assert lines(process).readline() == "fine\n"
