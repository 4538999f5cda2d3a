"""Connections to OpenAI's API."""

from __future__ import annotations

import asyncio
import traceback
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

pytest.importorskip("openai", reason="the extra 'openai' is not installed")

from retrieval_core.adapters.vendors.http import retry_after, what_was_said
from retrieval_core.errors import (
    ServiceError,
    ServiceTimeoutError,
)
from support.openai_service import OpenAIService
from support.openai_support import embedder_of, run
from support.wire_server import (
    Hang,
    Status,
    WireServer,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def service() -> OpenAIService:
    return OpenAIService(dimensions={"nomic-embed-text": 768, "mine": 8})


@pytest.fixture
def server(service: OpenAIService) -> Iterator[WireServer]:
    with WireServer(service) as running:
        yield running


def test_a_server_that_stays_silent_is_a_timeout(server: WireServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no deadline ends a call, the client's own great patience does."""
    monkeypatch.setattr("retrieval_core.adapters.vendors.openai._SILENCE_SECONDS", 0.01)
    server.fail_always(Hang())
    embedder = embedder_of(server)
    with pytest.raises(ServiceTimeoutError):
        run(embedder, embedder.embed_query("a"))


def test_seconds_to_wait_are_read(server: WireServer) -> None:
    """What a service asks for reaches the error that the pipeline waits by."""
    server.fail(Status(429, retry_after=7))
    embedder = embedder_of(server)
    with pytest.raises(ServiceError) as raised:
        run(embedder, embedder.embed_query("a"))
    assert raised.value.retry_after == 7


def test_times_to_wait_are_seconds_or_dates() -> None:
    """Both forms of the standard are read, the finer header first, and nonsense is nothing."""
    now = datetime(2030, 1, 1, tzinfo=UTC)
    date = format_datetime(now + timedelta(seconds=90), usegmt=True)
    assert retry_after({"retry-after": "1.5"}) == 1.5
    assert retry_after({"retry-after": "9", "retry-after-ms": "250"}) == 0.25
    assert retry_after({"retry-after": date}, now) == 90
    assert retry_after({"retry-after": date.replace("GMT", "-0000")}, now) == 90
    assert retry_after({"retry-after": date}, now + timedelta(days=1)) == 0
    assert retry_after({"retry-after": format_datetime(datetime.now(UTC) - timedelta(days=1))}) == 0
    for nonsense in ("", "soon", "nan", "inf", "-1"):
        assert retry_after({"retry-after": nonsense}) is None
    assert retry_after({}) is None


def test_what_a_service_says_is_bounded() -> None:
    """Long and nested messages become one short line."""
    assert what_was_said({"error": {"message": "a\n  b"}}) == "a b"
    assert what_was_said({"error": "plain"}) == "plain"
    assert what_was_said({"detail": ["x"]}) == "['x']"
    assert what_was_said(None) == what_was_said({"other": 1}) == ""
    assert len(what_was_said("x" * 10_000)) == 300
    assert what_was_said("y" * 290 + "secret-secret", "secret-secret") == "y" * 290 + "[secret]"


def test_the_key_is_shown_nowhere(server: WireServer) -> None:
    """A server that repeats the key it was given does not make it show: not in the message, nor in what caused it."""
    secret = "sk-very-secret-key"
    embedder = embedder_of(server, api_key=SecretStr(secret))
    with pytest.raises(ServiceError) as raised:
        run(embedder, embedder.embed_query("a"))
    assert raised.value.status == 401
    shown = [*traceback.format_exception(raised.value), repr(raised.value), str(raised.value), repr(embedder)]
    shown += [repr(vars(embedder)), repr(vars(embedder._connection))]
    assert not any(secret in text for text in shown)
    assert "[secret]" in str(raised.value)


def test_each_event_loop_has_its_own_client(server: WireServer) -> None:
    """An embedder outlives the loop it was first used in, and keeps nothing of loops that ended."""
    embedder = embedder_of(server)
    for _ in range(3):
        run(embedder, embedder.embed_query("a"), embedder.embed_query("b"))

    async def leave_open() -> int:
        client = await embedder._connection.client()
        assert client is await embedder._connection.client()
        return len(embedder._connection._clients)

    assert [asyncio.run(leave_open()) for _ in range(3)] == [1, 1, 1]
    asyncio.run(embedder.aclose())
