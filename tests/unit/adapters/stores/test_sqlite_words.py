"""Words in the SQLite store: segments of postings, and scores that are those of SQLite's own FTS5."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.adapters.stores.scoring import best_rows
from retrieval_core.adapters.stores.segments import FANOUT
from retrieval_core.adapters.stores.sqlite import SqliteStore, schema
from retrieval_core.adapters.stores.sqlite.words import (
    InvertedIndex,
    add_postings,
    has_small_segments,
    merge_segments,
    merge_small_segments,
    read_segments,
)
from retrieval_core.errors import EmbedderMismatchError, IndexFormatError, StoreError
from retrieval_core.ports import Change, SearchRequest
from retrieval_core.testing.store_kit.base import by_text, by_vector, chunk, document, put, unit
from retrieval_core.text.analysis import Analyzer
from retrieval_core.types import Chunk
from retrieval_core.types.filters import Eq

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from pathlib import Path

pytestmark = pytest.mark.slow

VOCABULARY = [f"w{number}" for number in range(12)]
ANALYZER = Analyzer()


def with_store(path: Path, test: Callable[[SqliteStore], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        store = SqliteStore(path, **settings)
        try:
            await test(store)
        finally:
            await store.aclose()

    asyncio.run(main())


async def add(store: SqliteStore, *chunks: Chunk) -> None:
    """Add chunks without vectors."""
    await store.upsert(Change(chunks))


class Fts5:
    """The same texts in a table of FTS5, which knows no more of segments than of this library."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.execute("""CREATE VIRTUAL TABLE words USING fts5 (terms, tokenize = "ascii tokenchars '_'")""")
        self._names: dict[int, str] = {}

    def put(self, chunks: Iterable[Chunk]) -> None:
        for each in chunks:
            self.remove([each.id])
            terms = " ".join(ANALYZER.terms(each.indexed_text))
            number = self._connection.execute("INSERT INTO words (terms) VALUES (?)", (terms,)).lastrowid
            assert number is not None
            self._names[number] = each.id

    def remove(self, names: Sequence[str]) -> None:
        for number in [number for number, name in self._names.items() if name in names]:
            self._connection.execute("DELETE FROM words WHERE rowid = ?", (number,))
            del self._names[number]

    def scores(self, question: str) -> dict[str, float]:
        expression = " OR ".join(f'"{term}"' for term in ANALYZER.query_terms(question))
        found = self._connection.execute("SELECT rowid, -bm25(words) FROM words WHERE words MATCH ?", (expression,))
        return {self._names[number]: score for number, score in found}

    def close(self) -> None:
        self._connection.close()


texts = st.lists(st.sampled_from(VOCABULARY), max_size=30).map(" ".join)
questions = st.lists(st.sampled_from(VOCABULARY), max_size=8).map(" ".join)
writes = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(0, 30), texts), max_size=12), st.lists(st.integers(0, 30), max_size=4)),
    min_size=1,
    max_size=24,
)


@given(writes=writes, questions=st.lists(questions, min_size=1, max_size=4), optimizes=st.booleans())
def test_scores_are_those_of_fts5_whatever_was_written_and_removed(
    tmp_path_factory: pytest.TempPathFactory,
    writes: list[tuple[list[tuple[int, str]], list[int]]],
    questions: list[str],
    optimizes: bool,
) -> None:
    path = tmp_path_factory.mktemp("words") / "index.db"
    judge = Fts5()

    async def test(store: SqliteStore) -> None:
        for added, removed in writes:
            chunks = [chunk(f"c{number}", text, f"d{number}") for number, text in dict(added).items()]
            await store.upsert(Change(tuple(chunks)))
            judge.put(chunks)
            await store.delete([f"d{number}" for number in removed])
            judge.remove([f"c{number}" for number in removed])
        if optimizes:
            await store.optimize()
        for question in questions:
            found = await store.search(SearchRequest(100, text=question))
            expected = judge.scores(question) if question else {}
            assert {each.chunk_id: each.score for each in found} == pytest.approx(expected, rel=1e-9)
            assert list(found) == sorted(found, key=lambda each: (-each.score, each.chunk_id))
            assert found[:3] == await store.search(SearchRequest(3, text=question))

    with_store(path, test)
    judge.close()


def test_terms_fill_several_blocks_and_frequencies_any_width(tmp_path: Path) -> None:
    """Many terms, one in many chunks, and one that a chunk has more than 255 and more than 65,535 times."""
    judge = Fts5()
    rare = [chunk(f"r{number}", " ".join(f"x{number}y{each}" for each in range(300))) for number in range(20)]
    common = [chunk(f"c{number:04}", "common " * (number % 3 + 1) + f"own{number}") for number in range(1500)]
    often = [chunk("o1", "often " * 300), chunk("o2", "often " * 70_000), chunk("o3", "often")]

    async def test(store: SqliteStore) -> None:
        for chunks in (rare, common[:700], often, common[700:]):
            await store.upsert(Change(tuple(chunks)))
            judge.put(chunks)
        for question in ("x7y3 x19y299 x0y0", "common", "own3 own1499 common", "often", "common often x7y3", "nothing"):
            for _ in range(2):
                found = await store.search(SearchRequest(2000, text=question))
                scores = {each.chunk_id: each.score for each in found}
                assert scores == pytest.approx(judge.scores(question), rel=1e-9)
            await store.optimize()

    with_store(tmp_path / "index.db", test)
    judge.close()


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_segments_stay_few(sizes: list[int]) -> None:
    """However writes come, few in a row are of about one size; optimized, each outweighs the rest."""
    with closing(tables()) as connection:
        number = 0
        for size in sizes:
            rows = [(number + each, [f"t{number + each}", "all"]) for each in range(1, size + 1)]
            number += size
            add_postings(connection, rows)
            merge_segments(connection)
        chunks = [len(segment.numbers) for segment in read_segments(connection)]
        assert sum(chunks) == number
        limit = FANOUT
        while limit <= number:
            run = 0
            for each in chunks:
                run = run + each if each < limit else 0
                assert run < limit
            limit *= FANOUT
        if has_small_segments(connection):
            merge_small_segments(connection)
        chunks = [len(segment.numbers) for segment in read_segments(connection)]
        assert sum(chunks) == number
        assert all(each >= FANOUT * sum(chunks[place + 1 :]) for place, each in enumerate(chunks))
        assert not has_small_segments(connection)


def tables() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema._execute(connection, schema._WORDS)
    return connection


def test_removed_chunks_leave_their_segments(tmp_path: Path) -> None:
    """When more than a quarter of a segment is gone it is written anew, and one of which nothing is left goes."""

    async def test(store: SqliteStore) -> None:
        await store.upsert(Change(tuple(chunk(f"c{number}", "word", f"d{number}") for number in range(100))))
        for last, stale in ((25, 25), (26, 0)):
            await store.delete([f"d{number}" for number in range(last)])
            assert await counts(store, "stale_words") == stale
        await store.delete([f"d{number}" for number in range(100)])
        assert [await counts(store, table) for table in ("stale_words", "word_segments", "word_blocks")] == [0, 0, 0]
        assert await by_text(store, "word") == []
        await add(store, chunk("again", "word"))
        assert await by_text(store, "word") == ["again"]

    with_store(tmp_path / "index.db", test)


async def counts(store: SqliteStore, table: str) -> int:
    sql = f"SELECT count(*) FROM {table}"
    return await store._current().read(lambda connection: connection.execute(sql).fetchone()[0])


def test_optimizing_is_seen_by_readers_and_changes_nothing_found(tmp_path: Path) -> None:
    path = tmp_path / "index.db"

    async def test(store: SqliteStore) -> None:
        assert "optimize" in store.capabilities
        await store.optimize()
        assert not path.exists()
        for number in range(5):
            await add(store, chunk(f"c{number}", f"word w{number}"))
        reader = SqliteStore(path)
        before = await reader.search(SearchRequest(10, text="word w3"))
        version = await reader.version()
        await store.optimize()
        assert await counts(store, "word_segments") == 1
        assert await reader.version() != version
        assert await reader.search(SearchRequest(10, text="word w3")) == before
        version = await reader.version()
        await store.optimize()
        assert await reader.version() == version, "there was nothing to do"
        await reader.aclose()

    with_store(path, test)


def test_filters_apply_where_the_arrays_of_words_and_fields_differ(tmp_path: Path) -> None:
    """Removed chunks leave the one before the other."""

    async def test(store: SqliteStore) -> None:
        chunks = [chunk(f"c{number}", "word", f"d{number}", metadata={"odd": number % 2}) for number in range(40)]
        await store.upsert(Change(tuple(chunks)))
        assert len(await by_text(store, "word", 50, Eq("odd", 1))) == 20
        for gone in (["d1"], [f"d{number}" for number in range(30)]):
            await store.delete(gone)
            await add(store, chunk(f"new{gone[-1]}", "word", metadata={"odd": 1}))
            expected = {each.id for each in chunks if each.metadata["odd"] and each.document_id not in gone}
            expected -= {"c1"}
            found = await by_text(store, "word", 50, Eq("odd", 1))
            assert {name for name in found if name.startswith("c")} == expected

    with_store(tmp_path / "index.db", test)


def test_postings_in_memory_are_bounded(tmp_path: Path) -> None:
    """Those of terms that were searched longest ago go first, and are read again."""
    path = tmp_path / "index.db"
    with_store(path, lambda store: store.upsert(Change(tuple(chunk(f"c{n}", f"word w{n}") for n in range(50)))))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        words = InvertedIndex(connection, most_bytes=1000)
        empty = words.loaded_bytes
        for _ in range(2):
            for number in range(50):
                assert words.count_chunks(connection, f"w{number}") == 1
                assert words.loaded_bytes <= empty + 1000
        assert words.count_chunks(connection, "word") == 50


@given(
    scores=st.lists(st.integers(0, 20), min_size=1, max_size=400), limit=st.integers(1, 12), spread=st.integers(1, 40)
)
def test_the_best_rows_are_all_that_reach_the_last_place(scores: list[int], limit: int, spread: int) -> None:
    array = np.repeat(np.array(scores, dtype=np.float64), spread)
    rows = best_rows(array, limit)
    ordered = np.sort(array)[::-1]
    worst = ordered[min(limit, len(ordered)) - 1]
    assert sorted(rows.tolist()) == np.flatnonzero(array >= worst).tolist()


def as_before(path: Path, version: int, *, tokens: bool = True) -> None:
    """Make an index what it was in an older format."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("""CREATE VIRTUAL TABLE words USING fts5 (terms, tokenize = "ascii tokenchars '_'")""")
        for number, title, text in connection.execute("SELECT number, title, text FROM chunks").fetchall():
            terms = " ".join(ANALYZER.terms(f"{title or ''} {text}"))
            connection.execute("INSERT INTO words (rowid, terms) VALUES (?, ?)", (number, terms))
        for table in ("word_segments", "word_blocks", "stale_words", "late_vectors", *(() if tokens else ("writes",))):
            connection.execute(f"DROP TABLE {table}")
        if not tokens:
            connection.execute("ALTER TABLE state DROP COLUMN token")
        connection.execute(f"PRAGMA user_version = {version}")


@pytest.mark.parametrize(("version", "tokens"), [(1, False), (1, True), (2, True)])
@pytest.mark.parametrize("first", ["read", "write"])
def test_an_index_of_an_older_format_is_converted(tmp_path: Path, version: int, tokens: bool, first: str) -> None:
    """By who comes first, a search or a write; passages and vectors stay."""
    path = tmp_path / "index.db"
    settings: dict[str, Any] = {"embedder_id": "e", "dimension": 7}

    async def fill(store: SqliteStore) -> None:
        await put(store, chunk("a", "alpha word"), chunk("b", "beta word"), documents=(document("d"),))

    async def test(store: SqliteStore) -> None:
        if first == "write":
            await put(store, chunk("c", "gamma", "other"))
        assert await by_text(store, "alpha") == ["a"]
        assert sorted(await by_text(store, "word")) == ["a", "b"]
        assert {"a", "b"} <= set(await by_vector(store, unit(0), 5))
        assert (await store.version() or "").count(":") == 1
        sql = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'words%'"
        assert await store._current().read(lambda connection: connection.execute(sql).fetchone()[0]) == 0

    with_store(path, fill, **settings)
    as_before(path, version, tokens=tokens)
    with_store(path, test, **settings)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.FORMAT,)


def test_an_older_index_of_another_analysis_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    with_store(path, lambda store: put(store, chunk("a", "alpha")), embedder_id="e", dimension=7)
    as_before(path, 1)
    before = path.read_bytes()

    async def test(store: SqliteStore) -> None:
        for call in (store.describe, lambda: put(store, chunk("b"))):
            with pytest.raises((IndexFormatError, EmbedderMismatchError)):
                await call()

    with_store(path, test, embedder_id="e", dimension=7, analyzer=Analyzer("german", stop_words=()))
    assert path.read_bytes() == before


def test_an_older_index_that_cannot_be_written_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "index.db"
    with_store(path, lambda store: add(store, chunk("a", "alpha")))
    as_before(path, 1)

    async def test(store: SqliteStore) -> None:
        def fails(_connection: object) -> None:
            msg = "attempt to write a readonly database"
            raise sqlite3.OperationalError(msg)

        monkeypatch.setattr(store._current(), "_prepare", fails)
        with pytest.raises(StoreError, match=r"index\.db.*readonly"):
            await by_text(store, "alpha")

    with_store(path, test)


def test_chunks_without_words_count_and_are_not_found(tmp_path: Path) -> None:
    async def test(store: SqliteStore) -> None:
        await store.upsert(Change((Chunk("none", "d", "?!"), Chunk("less", "d", "..."))))
        assert await by_text(store, "word") == []
        await add(store, chunk("one", "word"))
        assert await by_text(store, "word") == ["one"]
        await store.optimize()
        assert await by_text(store, "word ?!") == ["one"]

    with_store(tmp_path / "index.db", test)
