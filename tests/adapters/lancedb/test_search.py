"""Search in LanceDB beyond the kit: its index of vectors, its version of filters and its fusion of both sides."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import pytest

from retrieval_core.adapters.stores.base import Identity
from retrieval_core.adapters.stores.lancedb import LanceDBStore
from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.errors import InvalidParameterError
from retrieval_core.ports import Change, Manifest, SearchRequest
from retrieval_core.testing.store_kit import DIMENSION, EMBEDDER_ID
from retrieval_core.testing.store_kit.base import by_text, by_vector, chunk, ids, put, unit, units
from retrieval_core.types.filters import Eq
from support.lancedb_stores import run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(find_spec("lancedb") is None, reason="the extra 'lancedb' is not installed")


def test_both_sides_are_fused_by_lancedb(tmp_path: Path) -> None:
    """What both sides find comes first, with the sum of the reciprocals, and the filter holds for both."""

    async def test(store: LanceDBStore) -> None:
        assert "search_both" in store.capabilities
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


def test_named_vectors_of_older_versions_stay_unused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table with columns for the vectors of titles is searched by those of chunks, and written to."""

    def manifest_then(identity: Identity) -> Manifest:
        return Manifest(identity.embedder_id, identity.dimension, identity.analyzer, vectors=("title",))

    monkeypatch.setattr(Identity, "manifest", manifest_then)

    async def fill(store: LanceDBStore) -> None:
        await put(store, chunk("one", "zebra"))

    run(tmp_path / "index", fill)
    monkeypatch.undo()

    async def test(store: LanceDBStore) -> None:
        await put(store, chunk("two", "zebra", "other"), vectors=units(1, 1))
        assert await by_vector(store, unit(1), 1) == ["two"]
        assert await by_text(store, "zebra") == ["one", "two"]
        manifest = (await store.describe()).manifest
        assert manifest is not None
        assert manifest.vectors == ("title",)
        assert (await store.find_damage()).is_none

    run(tmp_path / "index", test)
