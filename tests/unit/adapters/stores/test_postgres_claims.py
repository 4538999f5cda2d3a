"""How long a process waits for another one with the same work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")

from retrieval_core.adapters.stores.postgres import session
from retrieval_core.errors import IndexBusyError

if TYPE_CHECKING:
    from pathlib import Path

    from support.postgres_server import PostgresServer


def test_a_wait_for_a_claim_says_who_has_it_and_ends(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that hangs doesn't stop the others for ever; connections of claims are used again."""
    monkeypatch.setattr(session, "_WARNING_SECONDS", 0.01)
    monkeypatch.setattr(session, "_WARNINGS", 2)

    async def run() -> None:
        one, other = postgres.store(tmp_path), postgres.store(tmp_path)
        try:
            async with one.claimed("writing"):
                with pytest.raises(IndexBusyError, match="another process has been writing for an hour"):
                    async with other.claimed("writing"):
                        raise AssertionError
            async with other.claimed("writing") as is_ours, one.claimed("embedding") as is_free:
                assert is_ours
                assert is_free
        finally:
            await one.aclose()
            await other.aclose()

    asyncio.run(run())
    told = [record.getMessage() for record in caplog.records if record.name == session.__name__]
    assert len(told) == 2
    assert "waiting for another process that is writing: connection " in told[0]
    assert "SELECT pg_terminate_backend(" in told[0]
