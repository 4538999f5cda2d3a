"""Several processes on one folder of LanceDB: real children, killed for real."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from retrieval_core.adapters.stores.lancedb import LanceDBStore
from retrieval_core.ports import ChunkRange, FetchRequest
from retrieval_core.testing.store_kit.base import by_text, by_vector, chunk, document, put, unit
from support.killing import PATIENCE, Tally, Writer, kills

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(find_spec("lancedb") is None, reason="the extra 'lancedb' is not installed"),
    pytest.mark.slow,
]

PARTS = 3

WRITER = """
import asyncio, sys
import numpy as np
from retrieval_core.ports import Change
from retrieval_core.adapters.stores.lancedb import LanceDBStore, session
from retrieval_core.types import Chunk, Document

session.SWEEP_WRITES = 7  # so that some are killed while the indexes are brought up to date

async def main():
    store = LanceDBStore(sys.argv[1], embedder_id="e", dimension=7)
    for number in range(int(sys.argv[2]), int(sys.argv[3])):
        print("begin", number, flush=True)
        parts = tuple(Chunk(f"d#{number}.{part}", "d", f"word version{number}", part) for part in range(3))
        vectors = np.random.default_rng(0).normal(size=(3, 7))
        await store.upsert(Change(parts, vectors, documents=(Document("d", f"version{number}", "source", "h"),)))
        print("done", number, flush=True)
    await store.aclose()

asyncio.run(main())
"""

FORKER = """
import asyncio, os, sys
import numpy as np
from retrieval_core.errors import StoreError
from retrieval_core.ports import Change, SearchRequest
from retrieval_core.adapters.stores.lancedb import LanceDBStore
from retrieval_core.types import Chunk

store = LanceDBStore(sys.argv[1], embedder_id="e", dimension=7)

async def found():
    return sorted(item.chunk_id for item in await store.search(SearchRequest(9, text="word")))

asyncio.run(store.upsert(Change((Chunk("parent", "d", "word"),), np.ones((1, 7)))))
child = os.fork()
if child == 0:
    try:
        asyncio.run(found())
    except StoreError as error:
        os._exit(7 if "spawn" in str(error) else 8)
    os._exit(9)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert asyncio.run(found()) == ["parent"]
asyncio.run(store.aclose())
print("done", flush=True)
"""


def start(code: str, path: Path, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, str(path), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def version_of(path: Path) -> int:
    """Return which version of the document is there, after checking that it is whole, in one read."""
    store = LanceDBStore(path, embedder_id="e", dimension=7)
    try:
        found = await store.fetch(FetchRequest(ranges=(ChunkRange("d", 0, 99),), document_ids=("d",)))
        number = int(found.documents["d"].text.removeprefix("version"))
        assert set(found.chunks) == {f"d#{number}.{part}" for part in range(PARTS)}
        return number
    finally:
        await store.aclose()


async def settled_version_of(path: Path) -> int:
    """Return which version is there while nobody writes, after checking that both sides find it and nothing else."""
    number = await version_of(path)
    store = LanceDBStore(path, embedder_id="e", dimension=7)
    try:
        names = {f"d#{number}.{part}" for part in range(PARTS)}
        assert set(await by_text(store, f"version{number}")) == names == set(await by_text(store, "word"))
        assert set(await by_vector(store, unit(0))) == names
        assert (await store.describe()).chunks == PARTS
        return number
    finally:
        await store.aclose()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_killed_writer_leaves_the_former_version_or_the_new_one(tmp_path: Path) -> None:
    """Killed in the midst of a write after others, or of the upkeep after it; what was acknowledged is there, whole."""
    path, generator, tally = tmp_path / "index", random.Random(30), Tally()
    asyncio.run(write_once(path))
    last = 0
    for _ in range(kills(4)):
        killed = Writer(WRITER, (path, last + 1, 10**9)).killed_in_a_write(generator, generator.randint(1, 8))
        last = asyncio.run(settled_version_of(path))
        assert last in {killed.acknowledged, killed.under_way}
        tally.count(killed, there=last == killed.under_way)
    print(tally)  # noqa: T201 - shown by pytest -rA


async def write_once(path: Path) -> None:
    """Make the index, so that whoever is killed comes after the first commit."""
    store = LanceDBStore(path, embedder_id="e", dimension=7)
    parts = [chunk(f"d#0.{part}", "word version0", chunk_index=part) for part in range(PARTS)]
    await put(store, *parts, documents=(document("d", "version0"),))
    await store.aclose()


def test_writers_of_several_processes_take_turns(tmp_path: Path) -> None:
    """Two processes that replace one document again and again both succeed, and a reader sees whole versions only."""
    path = tmp_path / "index"
    children = [start(WRITER, path, first, first + 12) for first in (0, 100)]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
        child.stdout.readline()  # it has written once
    seen = [asyncio.run(version_of(path)) for _ in range(5)]
    # Not communicate(), which passes over what a line that was read has left in the buffer.
    outputs: list[int] = []
    for child in children:
        assert child.stdout is not None
        with child.stdout:
            outputs.append(child.stdout.read().count("done"))
    assert [child.wait(PATIENCE) for child in children] == [0, 0]
    assert outputs == [11, 11]
    assert {asyncio.run(settled_version_of(path)), *seen} <= {*range(12), *range(100, 112)}


@pytest.mark.skipif(sys.platform == "win32", reason="this system cannot fork")
def test_a_forked_process_is_told_to_open_the_index_itself(tmp_path: Path) -> None:
    """A child that was forked while the store was open gets an error that says what to do; the parent goes on."""
    child = start(FORKER, tmp_path / "index")
    assert child.communicate(timeout=PATIENCE)[0] == "done\n"
    assert child.returncode == 0


def test_opening_loads_nothing(tmp_path: Path) -> None:
    """LanceDB, Arrow and numpy are imported when they are first needed, and not to hear that there is no index."""
    code = (
        "import asyncio, sys\n"
        "from retrieval_core.adapters.stores.lancedb import LanceDBStore\n"
        "store = LanceDBStore(sys.argv[1])\n"
        "assert asyncio.run(store.version()) is None\n"
        "assert not {'lancedb', 'pyarrow', 'numpy'} & sys.modules.keys()\n"
        "print('done')\n"
    )
    child = start(code, tmp_path / "index")
    assert child.communicate(timeout=PATIENCE)[0] == "done\n"


def test_an_index_that_is_replaced_while_it_is_open_is_found(tmp_path: Path) -> None:
    """A folder that was removed and made again by another store is read as what it is now."""
    import shutil

    async def test() -> None:
        store, other = (LanceDBStore(tmp_path / "index", embedder_id="e", dimension=7) for _ in range(2))
        await put(store, chunk("old", "word"))
        version = await store.version()
        assert await by_text(store, "word") == ["old"]
        shutil.rmtree(tmp_path / "index")
        assert await store.version() is None
        await put(other, chunk("new", "word"))
        assert await store.version() not in {None, version}
        assert await by_text(store, "word") == ["new"]
        for each in (store, other):
            await each.aclose()

    asyncio.run(test())
