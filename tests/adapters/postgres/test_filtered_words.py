"""Keyword search under a filter returns the same, whether it passes many chunks or few."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")

from retrieval_core import parse_filter
from retrieval_core.adapters.stores.postgres import words
from retrieval_core.ports import Change, SearchRequest
from retrieval_core.testing.store_kit.base import chunk, units

if TYPE_CHECKING:
    from pathlib import Path

    from support.postgres_server import PostgresServer


def test_a_selective_filter_finds_the_same(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "CHECKED_FIRST", 2)

    async def run() -> None:
        store = postgres.store(tmp_path)
        chunks = tuple(
            chunk(f"c{row}", text="disk " * (1 + row % 7) + "full", metadata={"team": row % 5}) for row in range(60)
        )
        await store.upsert(Change(chunks, units(len(chunks))))
        for limit in (1, 3, 100):
            for filters in ({"team": 3}, {"team": {"$gt": 1}}, {"team": 9}):
                request = SearchRequest(text="disk", limit=limit, filter=parse_filter(filters))
                found: list[Any] = []
                for first in (0, 12, 2000):
                    monkeypatch.setattr(words, "READ_AT_ONCE", first)
                    found.append(await store.search(request))
                assert found[0] == found[1] == found[2]
                assert bool(found[0]) == (filters != {"team": 9})
        await store.aclose()

    asyncio.run(run())
