"""How often callers may ask, and what is written down of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")


from retrieval_core import Chunk
from retrieval_core.testing.clock import FakeClock
from support.http_service import hashed, opened, serving

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from support.http_service import Service


def served(tmp_path: Path, test: Callable[[Service], Awaitable[None]], **given: Any) -> None:
    async def run() -> None:
        index = opened(tmp_path / "index.db")
        await index.aadd([Chunk("a", "a", "A ferry.")])
        async with serving({"index": index}, **given) as service:
            await test(service)

    asyncio.run(run())


def test_who_asks_too_often_is_told_when_to_come_again(tmp_path: Path) -> None:
    """By token, over both interfaces together; probes are not counted."""
    clock = FakeClock()

    async def check(service: Service) -> None:
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        accept = {"accept": "application/json, text/event-stream"}
        assert (await service.ask("GET", "/v1/indexes", "a")).status_code == 200
        assert (await service.ask("POST", "/mcp", "a", json=call, headers=accept)).status_code == 200
        refused = await service.ask("GET", "/v1/indexes", "a")
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "30"
        assert refused.json()["errors"] == ["too many requests: 2 a minute are let in; ask again in 30 seconds"]
        assert (await service.ask("GET", "/healthz", "a")).status_code == 200
        assert (await service.ask("GET", "/v1/indexes", "b")).status_code == 200
        clock.advance(30)
        assert (await service.ask("GET", "/v1/indexes", "a")).status_code == 200

    served(tmp_path, check, tokens=(hashed("a"), hashed("b")), requests_per_minute=2, clock=clock)
