"""An index that may not be written to is searched all the same, and never with less than what is there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from support.killing import PATIENCE

pytestmark = pytest.mark.slow

CODE = """
import asyncio, os, sys
import numpy as np
from retrieval_core.errors import StoreError
from retrieval_core.types.filters import Eq
from retrieval_core.ports import Change, SearchRequest
from retrieval_core.adapters.stores.{module} import {store} as Store
from retrieval_core.types import Chunk

store = Store(sys.argv[2], embedder_id="e", dimension=7)

async def found(**side):
    return sorted(item.chunk_id for item in await store.search(SearchRequest(9, **side)))

async def write(*names):
    for name in names:
        await store.upsert(Change((Chunk(name, name, "word", metadata=dict(name=name)),), np.ones((1, 7))))

async def read():
    names = await found(text="word")
    assert names == await found(vector=np.ones(7, dtype=np.float32)), names
    for name in names:
        assert await found(text="word", filter=Eq("name", name)) == [name]
    assert (await store.describe()).chunks == len(names)
    assert await store.version() is not None
    return " ".join(names)

async def refuse():
    try:
        await write("never")
    except StoreError:
        return
    raise AssertionError("it was written to")

async def main():
    what = sys.argv[1]
    if what in ("write", "crash"):
        await write(*sys.argv[3:])
        if what == "crash":
            os._exit(0)
    else:
        if what == "as nobody":
            await read()  # loads all modules, which nobody may not read everywhere
            await store.aclose()
            globals()["store"] = Store(sys.argv[2], embedder_id="e", dimension=7)
            os.setgid(65534)
            os.setuid(65534)
        try:
            print(await read(), flush=True)
            for line in sys.stdin:
                print(await read(), flush=True)
            await refuse()
        except StoreError as error:
            print("StoreError", error, flush=True)
    await store.aclose()

asyncio.run(main())
"""
STORES = {"sqlite": "SqliteStore", "lancedb": "LanceDBStore"}
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


def can_mount() -> bool:
    """Whether a part of the files can be mounted once more, so that nobody, not even root, may write there."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="session")
def may_mount() -> None:
    """Skip what needs to mount something, where that may not be done."""
    if not can_mount():
        pytest.skip("this user may not mount anything")


needs_mount = pytest.mark.usefixtures("may_mount")


@pytest.fixture(params=STORES)
def code(request: pytest.FixtureRequest) -> str:
    module: str = request.param
    if find_spec(module) is None and module != "sqlite":
        pytest.skip(f"the extra {module!r} is not installed")
    return CODE.replace("{module}", module).replace("{store}", STORES[module])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "index's folder"
    folder.mkdir()
    return folder


def start(code: str, what: str, folder: Path, *names: str, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    command = [*prefix, sys.executable, "-c", code, what, str(folder / "index"), *names]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run(code: str, what: str, folder: Path, *names: str, prefix: tuple[str, ...] = ()) -> str:
    process = start(code, what, folder, *names, prefix=prefix)
    output = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == 0
    return output.strip()


def mounted(folder: Path) -> tuple[str, ...]:
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    return ("unshare", "-m", "sh", "-c", script, str(folder))


@needs_mount
def test_an_index_on_a_read_only_mount_is_searched(code: str, folder: Path) -> None:
    """All that was written is there, though the writer did not come to close it; a write is refused."""
    run(code, "crash", folder, "a", "b")
    assert run(code, "read", folder, prefix=mounted(folder)) == "a b"


@pytest.mark.skipif(not IS_ROOT, reason="only root can become somebody else")
def test_an_index_without_permission_to_write_is_searched(code: str) -> None:
    with TemporaryDirectory() as place:  # that of pytest is for its user alone
        folder = Path(place)
        run(code, "write", folder, "a", "b")
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        assert run(code, "as nobody", folder) == "a b"


@needs_mount
def test_what_others_write_meanwhile_is_found(code: str, folder: Path) -> None:
    """Who may not write notices what those who may have written, while they have it open and after they closed it."""
    run(code, "write", folder, "a")
    reader = start(code, "read", folder, prefix=mounted(folder))
    assert reader.stdin is not None
    assert reader.stdout is not None
    with reader:
        assert reader.stdout.readline() == "a\n"
        for writer, name, expected in (("crash", "b", "a b"), ("write", "c", "a b c")):
            run(code, writer, folder, name)
            reader.stdin.write("\n")
            reader.stdin.flush()
            assert reader.stdout.readline() == f"{expected}\n"
    assert reader.returncode == 0  # a write was refused


@needs_mount
def test_what_was_written_last_is_found_or_told_to_be_missing(folder: Path) -> None:
    """It lies beside the file, and whether SQLite can read it there depends on its version: nothing older is found."""
    code = CODE.replace("{module}", "sqlite").replace("{store}", STORES["sqlite"])
    run(code, "crash", folder, "a", "b")
    (folder / "index-shm").unlink()
    told = run(code, "read", folder, prefix=mounted(folder))
    if told != "a b":
        assert told.startswith("StoreError")
        assert "index-wal" in told
    run(code, "write", folder, "c")
    assert run(code, "read", folder, prefix=mounted(folder)) == "a b c"
