"""Tests of the catalogue of fields, which must match what filters find."""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrieval_core.errors import InvalidParameterError, StoreError
from retrieval_core.ports import Change, FieldInfo
from retrieval_core.testing import filter_strategies
from retrieval_core.testing.store_kit.base import StoreTestBase, chunk, document, on_new_store, put, units
from retrieval_core.types import Chunk, PageSpan
from retrieval_core.types.filters import chunk_fields, lookup

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from retrieval_core.ports import Store


EXAMPLES = 100
OF_EVERY_PASSAGE = chunk_fields(Chunk("", "", "")).keys()


class FieldTests(StoreTestBase):
    """The promises of :meth:`retrieval_core.ports.Store.fields`; skipped for a store that is none."""

    @on_new_store(needs="fields")
    async def test_fields_have_their_types_and_counts(self, store: Store) -> None:
        """Nested fields have paths, nulls do not count, and a list has the types of its items."""
        metadata: list[dict[str, Any]] = [
            {"price": 1, "tags": ["a", 2], "specs": {"ram": 8, "maker": None}},
            {"price": "n/a", "tags": [], "specs": {"ram": 9.5}, "new": True},
            {"price": None, "tags": [{"a": 1}, None]},
        ]
        await put(store, *(chunk(f"c{row}", metadata=fields) for row, fields in enumerate(metadata)))
        fields = await store.fields(100)
        assert {name: info for name, info in fields.items() if name not in OF_EVERY_PASSAGE} == {
            "tags": FieldInfo(3, {"list of text": 1, "list of numbers": 1, "list": 2}),
            "price": FieldInfo(2, {"number": 1, "text": 1}),
            "specs": FieldInfo(2, {"object": 2}),
            "specs.ram": FieldInfo(2, {"number": 2}),
            "new": FieldInfo(1, {"boolean": 1}),
        }
        assert fields["document_id"] == FieldInfo(3, {"text": 3})
        assert fields["chunk_index"] == FieldInfo(3, {"number": 3})
        assert not {"page", "parent_id", "title"} & fields.keys()

    def test_fields_agree_with_what_filters_find(self, tmp_path: Path) -> None:
        """For any metadata each path is there exactly as often as a filter finds a value at it."""
        with asyncio.Runner() as runner:
            store = runner.run(self.open_store(tmp_path))
            if "fields" not in store.capabilities:
                runner.run(store.aclose())
                pytest.skip("this store has no catalogue of fields")

            @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
            @given(st.lists(filter_strategies.metadata(), min_size=1, max_size=5))
            def check(metadata: list[dict[str, Any]]) -> None:
                runner.run(_check_fields(store, metadata))

            try:
                check()
            finally:
                runner.run(store.aclose())

    @on_new_store(needs="fields")
    async def test_fields_are_bounded_and_ordered(self, store: Store) -> None:
        """The fields that most passages have come first, then by name, and never more than were asked for."""
        rows = [{"all": 1, **({"half": 1, "also half": 1} if row % 2 else {}), f"own{row}": 1} for row in range(4)]
        await put(store, *(chunk(f"c{row}", metadata=fields) for row, fields in enumerate(rows)))
        everything = await store.fields(1000)
        counts = [(-info.passages, name) for name, info in everything.items()]
        assert counts == sorted(counts)
        for limit in (1, 5, len(everything), 1000):
            assert dict(await store.fields(limit)) == dict(list(everything.items())[:limit])
        with pytest.raises(InvalidParameterError):
            await store.fields(0)

    @on_new_store(needs="fields")
    async def test_fields_change_with_each_write(self, store: Store) -> None:
        """Before the first write there are none; those of chunks that are replaced or removed go."""
        assert dict(await store.fields(10)) == {}
        await put(store, chunk("a", document="d", metadata={"old": 1}), documents=(document("d"),))
        assert "old" in await store.fields(100)
        await put(store, chunk("a", document="d", metadata={"new": 1}), documents=(document("d"),))
        assert {"old", "new"} & (await store.fields(100)).keys() == {"new"}
        await store.delete(["d"])
        assert dict(await store.fields(100)) == {}

    @on_new_store(needs="fields")
    async def test_a_closed_catalogue_of_fields_refuses(self, store: Store) -> None:
        """After closing, it raises a store error."""
        await store.aclose()
        with pytest.raises(StoreError):
            await store.fields(10)


async def _check_fields(store: Any, metadata: list[dict[str, Any]]) -> None:
    chunks = tuple(
        chunk(
            f"c{number}",
            document=f"d{number}",
            page_span=PageSpan(1, 2) if number else None,
            section_path=("a", "b")[:number],
            title="t" if number else None,
            timestamp=datetime(2024, 1, 1, tzinfo=UTC) if number else None,
            metadata=fields,
        )
        for number, fields in enumerate(metadata)
    )
    gone = tuple(f"d{number}" for number in range(10))
    await store.upsert(Change(chunks, units(len(chunks)), removed_documents=gone))
    found: Mapping[str, FieldInfo] = await store.fields(1000)
    values = {
        path: [lookup(chunk_fields(item), path) for item in chunks] for path in (*found, *filter_strategies.PATHS)
    }
    counts = {path: sum(value is not None for value in of_path) for path, of_path in values.items()}
    assert {path: info.passages for path, info in found.items()} == {path: n for path, n in counts.items() if n}
    for path, info in found.items():
        scalars = [value for value in values[path] if value is not None and not isinstance(value, (tuple, dict))]
        of_type = [info.types.get(name, 0) for name in ("text", "number", "boolean")]
        assert sum(of_type) == len(scalars)
        assert info.types.get("text", 0) == sum(isinstance(value, str) for value in scalars)
        assert info.types.get("boolean", 0) == sum(isinstance(value, bool) for value in scalars)
        assert info.types.get("object", 0) == sum(isinstance(value, dict) for value in values[path])
