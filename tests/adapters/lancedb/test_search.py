"""Search in LanceDB beyond the kit: its index of vectors, its version of filters and its fusion of both sides."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import pytest

from retrieval_core.adapters.stores.lancedb import LanceDBStore, schema, search, session
from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.errors import InvalidParameterError
from retrieval_core.ports import Change, SearchesBoth, SearchRequest
from retrieval_core.testing.store_kit import DIMENSION, EMBEDDER_ID
from retrieval_core.testing.store_kit.base import by_text, by_vector, chunk, ids, put, unit, units
from retrieval_core.types.filters import Eq, Gte, Lt
from support.lancedb_stores import run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(find_spec("lancedb") is None, reason="the extra 'lancedb' is not installed")


@pytest.mark.slow
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
        assert (await store._current().read(lambda view: view.indexed)) == {"vector"}
        order = [f"c{row:03}" for row in np.argsort(-(matrix @ unit(999)))]
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
    """As in the other stores, ``roll back`` finds ``rollback`` where more chunks have it, and repeats count."""

    async def test(store: LanceDBStore) -> None:
        await put(store, chunk("one", "rollback a release"), chunk("two", "rollback now"), chunk("x", "back office"))
        assert {"one", "two"} <= set(await by_text(store, "roll back"))
        (once,), (twice,) = [await store.search(SearchRequest(1, text=text)) for text in ("office", "office office")]
        assert twice.score == pytest.approx(2 * once.score)

    run(tmp_path / "index", test)


def test_only_digits_get_into_expressions() -> None:
    """Names become digests, and anything else that would be quoted is refused."""
    name = "'; DROP TABLE chunks; -- \ud800"
    (expression,) = schema.any_of("key", [schema.digest("chunk", name)])
    assert re.fullmatch(r"key IN \('[0-9a-f]{32}'\)", expression)
    assert schema.digest("a", "b") != schema.digest("ab") != schema.digest("a,b")
    with pytest.raises(ValueError, match="hexadecimal"):
        list(schema.any_of("key", ["' OR 1=1 --"]))


def test_it_agrees_with_the_default_store(tmp_path: Path) -> None:
    """Both find the same passages in the same order by vector, and nearly the same ones by words."""
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
            assert one
            assert len(set(one) & set(other)) >= 0.8 * len(one)
        await default.aclose()

    run(tmp_path / "index", test)
