"""Connections to Cohere."""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

pytest.importorskip("cohere", reason="the extra 'cohere' is not installed")

from retrieval_core.adapters.rerankers.cohere import CohereReranker
from retrieval_core.errors import (
    ServiceError,
    ServiceTimeoutError,
)
from support.cohere_service import KEY, CohereService
from support.wire_server import (
    Hang,
    WireServer,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from retrieval_core.ports import RerankScores


@pytest.fixture
def service() -> CohereService:
    return CohereService()


@pytest.fixture
def server(service: CohereService) -> Iterator[WireServer]:
    with WireServer(service) as running:
        yield running


def reranker_of(server: WireServer, **settings: Any) -> CohereReranker:
    defaults: dict[str, Any] = {"api_key": SecretStr(KEY), "base_url": server.url}
    return CohereReranker(**(defaults | settings))


def run(reranker: CohereReranker, *work: Coroutine[Any, Any, RerankScores]) -> list[tuple[float, ...]]:
    """Run calls at the same time, then close what their loop holds."""

    async def main() -> list[RerankScores]:
        try:
            return await asyncio.gather(*work)
        finally:
            await reranker.aclose()

    return [scores.scores for scores in asyncio.run(main())]


def test_a_server_that_stays_silent_is_a_timeout(server: WireServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no deadline ends a call, the client's own great patience does."""
    monkeypatch.setattr("retrieval_core.adapters.vendors.cohere._SILENCE_SECONDS", 0.01)
    server.fail_always(Hang())
    reranker = reranker_of(server)
    with pytest.raises(ServiceTimeoutError):
        run(reranker, reranker.score("a", ["b"]))


def test_the_key_is_shown_nowhere(server: WireServer) -> None:
    """A server that repeats the key it was given does not make it show: not in the message, nor in what caused it."""
    secret = "co-very-secret-key"
    reranker = reranker_of(server, api_key=SecretStr(secret))
    with pytest.raises(ServiceError) as raised:
        run(reranker, reranker.score("a", ["b"]))
    assert raised.value.status == 401
    shown = [*traceback.format_exception(raised.value), repr(raised.value), str(raised.value), repr(reranker)]
    shown += [repr(vars(reranker)), repr(vars(reranker._connection))]
    assert not any(secret in text for text in shown)
    assert "[secret]" in str(raised.value)


def test_each_event_loop_has_its_own_client(server: WireServer) -> None:
    """A reranker outlives the loop it was first used in, and keeps nothing of loops that ended."""
    reranker = reranker_of(server)
    for _ in range(3):
        run(reranker, reranker.score("a", ["b"]), reranker.score("a", ["c"]))

    async def leave_open() -> int:
        client = await reranker._connection.client()
        assert client is await reranker._connection.client()
        return len(reranker._connection._clients)

    assert [asyncio.run(leave_open()) for _ in range(3)] == [1, 1, 1]
    asyncio.run(reranker.aclose())


def test_connections_are_closed(server: WireServer) -> None:
    """Closing closes what the client opened; closing again, and calling again, is fine."""
    reranker = reranker_of(server)

    async def main() -> None:
        await reranker.score("a", ["b"])
        connections = reranker._connection._clients[asyncio.get_running_loop()].connections
        await reranker.aclose()
        assert connections.is_closed
        await reranker.aclose()
        await reranker.score("a", ["b"])
        await reranker.aclose()

    asyncio.run(main())
    assert server.count() == 2
