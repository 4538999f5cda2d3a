"""Silence and secrets of Cohere's embedder."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

pytest.importorskip("cohere", reason="the extra 'cohere' is not installed")

from retrieval_core.errors import (
    ServiceError,
    ServiceTimeoutError,
)
from support.cohere_service import CohereService
from support.cohere_support import embedder_of, run
from support.wire_server import (
    Hang,
    WireServer,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def service() -> CohereService:
    return CohereService(dimensions={"mine": 2})


@pytest.fixture
def server(service: CohereService) -> Iterator[WireServer]:
    with WireServer(service) as running:
        yield running


def test_a_server_that_stays_silent_is_a_timeout(server: WireServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no deadline ends a call, the client's own great patience does."""
    monkeypatch.setattr("retrieval_core.adapters.vendors.cohere._SILENCE_SECONDS", 0.01)
    server.fail_always(Hang())
    embedder = embedder_of(server)
    with pytest.raises(ServiceTimeoutError):
        run(embedder, embedder.embed_query("a"))


def test_the_key_is_shown_nowhere(server: WireServer) -> None:
    """A server that repeats the key it was given does not make it show: not in the message, nor in what caused it."""
    secret = "co-very-secret-key"
    embedder = embedder_of(server, api_key=SecretStr(secret))
    with pytest.raises(ServiceError) as raised:
        run(embedder, embedder.embed_query("a"))
    assert raised.value.status == 401
    shown = [*traceback.format_exception(raised.value), repr(raised.value), str(raised.value), repr(embedder)]
    shown += [repr(vars(embedder)), repr(vars(embedder._connection))]
    assert not any(secret in text for text in shown)
    assert "[secret]" in str(raised.value)
