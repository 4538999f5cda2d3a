"""Keyword search under a filter returns the same, whether it passes many chunks or few; its cache is bounded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")

from retrieval_core import parse_filter
from retrieval_core.adapters.stores.postgres import words
from retrieval_core.adapters.stores.postgres.session import View
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


def test_the_cache_forgets_words_and_filters_that_no_chunk_has(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are remembered for a while, as others are, and not for ever."""
    monkeypatch.setattr(words, "CACHED_BYTES", 50_000)
    statements: list[str] = []
    read = View.rows

    async def counted(self: View, statement: str, parameters: Any = None) -> list[Any]:
        statements.append(statement)
        return await read(self, statement, parameters)

    monkeypatch.setattr(View, "rows", counted)

    async def run() -> None:
        store = postgres.store(tmp_path)
        await store.upsert(Change((chunk("a", text="disk"),), units(1)))
        absent: list[dict[str, Any]] = [
            *({"terms": [f"absent{number}"], "condition": None} for number in range(200)),
            *({"terms": ["disk"], "condition": parse_filter({"team": f"absent{number}"})} for number in range(200)),
        ]

        async def asked(query: dict[str, Any]) -> int:
            statements.clear()
            await store.count_terms(**query)
            return len(statements)

        for query in (absent[0], absent[200]):
            assert await asked(query)
            assert not await asked(query)
        for query in absent:
            await asked(query)
        assert await asked(absent[0])
        assert await asked(absent[200])
        await store.aclose()

    asyncio.run(run())
