"""Several vectors for each chunk in one SQLite file: what it looks like, and what processes and crashes do to it."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from retrieval_core import load_config, open_index
from retrieval_core.adapters.stores import checks
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.adapters.stores.sqlite import SqliteStore, dense, snapshot, write
from retrieval_core.config.model import MOST_VECTORS
from retrieval_core.errors import ConfigurationError, EmbedderMismatchError, IndexFormatError, InvalidParameterError
from retrieval_core.ports import Change, FetchRequest, SearchRequest
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.testing.store_kit.base import by_text, by_vector, chunk, put, unit, units

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path
    from typing import IO

    from retrieval_core.types import Vector

NAMES = ("summary", "title")

WRITER = """
import asyncio, sys
import numpy as np
from retrieval_core.ports import Change
from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.types import Chunk, Document

async def main():
    store = SqliteStore(sys.argv[1], embedder_id="e", dimension=7, vectors=("title", "summary"))
    for number in range(int(sys.argv[2]), 10**9):
        parts = tuple(Chunk(f"{number}.{part}", f"d{number}", "word", part) for part in range(3))
        vectors = np.random.default_rng(number).normal(size=(3, 7)).astype(np.float32)
        named = {"title": {part.id: vectors[0] for part in parts}, "summary": {parts[0].id: vectors[1]}}
        documents = (Document(f"d{number}", "text", "source", "h"),)
        gone = (f"d{number - 10}",)
        await store.upsert(Change(parts, vectors, named_vectors=named, documents=documents, removed_documents=gone))
        print(number, flush=True)

asyncio.run(main())
"""


def open_store(path: Path, vectors: Sequence[str] = NAMES, **settings: Any) -> SqliteStore:
    usual: dict[str, Any] = {"embedder_id": "e", "dimension": 7, "vectors": vectors}
    return SqliteStore(path, **(usual | settings))


def with_store(store: SqliteStore, test: Callable[[SqliteStore], Awaitable[None]]) -> None:
    async def main() -> None:
        try:
            await test(store)
        finally:
            await store.aclose()

    asyncio.run(main())


async def named(store: SqliteStore, name: str, vector: Vector) -> list[str]:
    return [item.chunk_id for item in await store.search(SearchRequest(1000, vector=vector, vector_name=name))]


async def fill(store: SqliteStore) -> None:
    await put(store, chunk("a", "word"), chunk("b", "word"), named_vectors={"title": {"a": unit(5)}})


def query(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def test_only_indexes_with_names_have_room_for_them(tmp_path: Path) -> None:
    plain, several = tmp_path / "plain.db", tmp_path / "several.db"
    with_store(open_store(plain, ()), lambda store: put(store, chunk("a")))
    with_store(open_store(several), fill)
    assert query(plain, "SELECT key FROM manifest ORDER BY key") == [
        ("analyzer",),
        ("dimension",),
        ("embedder_id",),
        ("metric",),
        ("sources",),
    ]
    assert query(plain, "SELECT name FROM sqlite_schema WHERE name = 'named_vectors'") == []
    assert query(several, "SELECT name FROM sqlite_schema WHERE name = 'named_vectors'") == [("named_vectors",)]


def test_other_names_are_refused_with_both(tmp_path: Path) -> None:
    """Whatever is asked; the error says which names the index has, and what to do."""
    path = tmp_path / "index.db"
    with_store(open_store(path, ()), lambda store: put(store, chunk("a")))

    async def test(store: SqliteStore) -> None:
        calls: list[Callable[[], Awaitable[object]]] = [
            store.describe,
            lambda: store.search(SearchRequest(1, text="x")),
            lambda: put(store, chunk("x")),
        ]
        for call in calls:
            with pytest.raises(IndexFormatError, match=r"are none, and it was opened with 'summary', 'title'.*anew"):
                await call()

    with_store(open_store(path), test)


def test_without_an_embedder_the_words_are_searched(tmp_path: Path) -> None:
    """Names are left alone as vectors are, deleting removes them too, and asking for names needs an embedder."""
    path = tmp_path / "index.db"
    with_store(open_store(path), fill)

    async def test(store: SqliteStore) -> None:
        assert await by_text(store, "word") == ["a", "b"]
        assert set((await store.fetch(FetchRequest(("a",)))).chunks) == {"a"}
        with pytest.raises(EmbedderMismatchError):
            await store.search(SearchRequest(1, vector=unit(0), vector_name="title"))
        assert await store.delete(["d"]) == 2

    with_store(open_store(path, (), embedder_id=None, dimension=None), test)
    assert query(path, "SELECT * FROM named_vectors") == []
    with pytest.raises(InvalidParameterError, match="need an embedder"):
        open_store(path, embedder_id=None, dimension=None)
    with pytest.raises(InvalidParameterError, match="need an embedder"):
        MemoryStore(vectors=NAMES)


def test_an_index_without_vectors_is_opened_with_any_names(tmp_path: Path) -> None:
    """As with any embedder: it is searched by words, and says that it has no vectors of that name."""
    path = tmp_path / "index.db"
    words = open_store(path, (), embedder_id=None, dimension=None)
    with_store(words, lambda store: store.upsert(Change((chunk("a", "word"),))))

    async def test(store: SqliteStore) -> None:
        assert await by_text(store, "word") == ["a"]
        with pytest.raises(InvalidParameterError, match=r"no vectors named 'title'; there are none"):
            await store.upsert(Change((chunk("b"),), named_vectors={"title": {"b": unit(0)}}))

    with_store(open_store(path), test)


def test_arrays_keep_up_with_every_way_to_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Growing, mostly gaps, and being far behind: the arrays of each name are those of the file."""
    monkeypatch.setattr(snapshot, "BATCH", 3)
    monkeypatch.setattr(write, "KEPT_GENERATIONS", 4)
    path = tmp_path / "index.db"

    async def main() -> None:
        writer, reader = open_store(path), open_store(path)
        alive: dict[str, Vector] = {}
        for number in range(60):
            name = f"c{number:02}"
            rows = {name: unit(number)} if number % 3 else {}
            await put(writer, chunk(name, document=name), named_vectors={"title": rows})
            alive |= rows
            if number % 7 == 6:
                gone = [f"c{number - step:02}" for step in range(6)]
                await writer.delete(gone)
                alive = {key: vector for key, vector in alive.items() if key not in gone}
            if number % 11 in (0, 1, 2):
                cosines = {key: float(vector @ unit(99)) for key, vector in alive.items()}
                expected = sorted(cosines, key=lambda key: -cosines[key])
                for store in (writer, reader) if number % 2 else (reader,):
                    assert await named(store, "title", unit(99)) == expected
                    assert set(await by_vector(store, unit(99), 1000)) >= set(expected)
                    assert await named(store, "summary", unit(99)) == []
        await writer.aclose()
        await reader.aclose()

    asyncio.run(main())
    assert query(path, "SELECT * FROM named_vectors WHERE number NOT IN (SELECT number FROM chunks)") == []


def test_nothing_is_half_there_when_a_writer_is_killed(tmp_path: Path) -> None:
    """Each chunk has its vectors or is not there, through two crashes; what was acknowledged is there."""
    path = tmp_path / "index.db"
    last = -1
    for _ in range(2):
        command = [sys.executable, "-c", WRITER, str(path), str(last + 1)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            output = cast("IO[str]", writer.stdout)
            for _ in range(8):
                last = int(output.readline())
            writer.kill()
            last = max([last, *(int(line) for line in output if line.endswith("\n"))])
        with_store(open_store(path), lambda store, last=last: check_documents(store, last))
    assert query(path, "PRAGMA integrity_check") == [("ok",)]


async def check_documents(store: SqliteStore, last: int) -> None:
    found = set(await by_vector(store, unit(0), 1000))
    numbers = {name.partition(".")[0] for name in found}
    assert {str(number) for number in range(max(0, last - 8), last + 1)} <= numbers
    assert found == {f"{number}.{part}" for number in numbers for part in range(3)}
    assert set(await named(store, "title", unit(0))) == found
    assert set(await named(store, "summary", unit(0))) == {f"{number}.0" for number in numbers}
    for number in numbers:
        titles = np.random.default_rng(int(number)).normal(size=(3, 7)).astype(np.float32)[0]
        best = await named(store, "title", titles)
        assert best[:3] == [f"{number}.{part}" for part in range(3)]


def test_a_change_with_a_wrong_vector_changes_nothing(tmp_path: Path) -> None:
    """What is found wrong while writing takes everything of the change back."""
    path = tmp_path / "index.db"
    with_store(open_store(path), fill)

    async def test(store: SqliteStore) -> None:
        wrong = np.full(7, np.inf, dtype=np.float32)
        with pytest.raises(InvalidParameterError, match="finite"):
            await store.upsert(
                Change((chunk("a"), chunk("c")), units(2, 50), named_vectors={"title": {"a": unit(1), "c": wrong}})
            )
        assert await named(store, "title", unit(5)) == ["a"]
        assert set(await by_vector(store, unit(0))) == {"a", "b"}

    with_store(open_store(path), test)


def test_limits_agree() -> None:
    """What a configuration allows, stores allow."""
    assert checks.MOST_VECTORS == MOST_VECTORS


def test_quantized_vectors_take_a_quarter_of_the_memory_and_find_the_same(tmp_path: Path) -> None:
    """With the same scores to the last digit, as those that are found are compared exactly."""
    random = np.random.default_rng(5)
    vectors = random.normal(size=(2000, 64)).astype(np.float32)
    path = tmp_path / "index.db"
    settings: dict[str, Any] = {"embedder_id": "e", "dimension": 64}
    exact, quantized = SqliteStore(path, **settings), SqliteStore(path, **settings, quantized=True)

    async def main() -> None:
        await exact.upsert(Change(tuple(chunk(f"c{number}") for number in range(2000)), vectors))
        for _ in range(20):
            request = SearchRequest(20, vector=random.normal(size=64).astype(np.float32))
            assert await quantized.search(request) == await exact.search(request)
        assert 3 * quantized.loaded_bytes < exact.loaded_bytes
        for store in (exact, quantized):
            await store.aclose()

    asyncio.run(main())


def test_quantization_is_a_setting(tmp_path: Path) -> None:
    config = load_config(overrides={"store.sqlite.quantization": "int8", "index": str(tmp_path / "index.db")})
    with open_index(config=config, embedder=FakeEmbedder()) as index:
        index.add([chunk("a", "word")])
        assert index.retrieve("word").hits[0].chunk.id == "a"
        assert isinstance(index.store, SqliteStore)
        stored = index.store.loaded_bytes
    exact = load_config(overrides={"index": config.index})
    with open_index(config=exact, embedder=FakeEmbedder()) as index:
        assert index.retrieve("word").hits[0].chunk.id == "a"
        assert isinstance(index.store, SqliteStore)
        assert index.store.loaded_bytes > stored
    with pytest.raises(ConfigurationError, match=r"store\.sqlite\.quantization"):
        load_config(overrides={"store.sqlite.quantization": "int4"})


@pytest.mark.parametrize("rows", [1, 49_999, 50_000, 75_001])
def test_many_rows_are_compared_on_several_processors_with_the_same_scores(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    random = np.random.default_rng(rows)
    matrix = random.normal(size=(rows, 8)).astype(np.float32)
    query = random.normal(size=8).astype(np.float32)
    assert np.array_equal(dense._products(matrix, query), dense._dots(matrix, query))
