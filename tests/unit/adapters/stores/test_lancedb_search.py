"""How LanceDB is searched: indexes of vectors, filters, expressions."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import pytest

from retrieval_core.adapters.stores.lancedb import LanceDBStore, schema, search, session
from retrieval_core.testing.store_kit.base import by_text, by_vector, chunk, put, unit, units
from retrieval_core.types.filters import Gte, Lt
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
        assert await store._current().read(lambda view: view.is_indexed)
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


def test_only_digits_get_into_expressions() -> None:
    """Names become digests, and anything else that would be quoted is refused."""
    name = "'; DROP TABLE chunks; -- \ud800"
    (expression,) = schema.any_of("key", [schema.digest("chunk", name)])
    assert re.fullmatch(r"key IN \('[0-9a-f]{32}'\)", expression)
    assert schema.digest("a", "b") != schema.digest("ab") != schema.digest("a,b")
    with pytest.raises(ValueError, match="hexadecimal"):
        list(schema.any_of("key", ["' OR 1=1 --"]))
