"""How the Cohere embedder fails, is cancelled and keeps its key."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pydantic import SecretStr

pytest.importorskip("cohere", reason="the extra 'cohere' is not installed")

from retrieval_core.adapters.embedders.cohere import CohereEmbedder
from retrieval_core.errors import (
    ConfigurationError,
    DimensionMismatchError,
    EmbeddingError,
    MalformedAnswerError,
    MissingExtraError,
    RetrievalError,
    ServiceConnectionError,
    ServiceError,
    ServiceTimeoutError,
)
from support.cohere_service import KEY, CohereService, error, vector_of
from support.cohere_support import MODEL, embedder_of, run
from support.wire_server import (
    BrokenJSON,
    Changed,
    ClosedMidBody,
    EmptyBody,
    Hang,
    PausedMidBody,
    ResetMidBody,
    Response,
    Status,
    WireServer,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retrieval_core.types import Vector
    from support.wire_server import Fault


@pytest.fixture
def service() -> CohereService:
    return CohereService(dimensions={"mine": 2})


@pytest.fixture
def server(service: CohereService) -> Iterator[WireServer]:
    with WireServer(service) as running:
        yield running


def embeddings(value: Any) -> Fault:
    """Return a fault that answers with this in place of the embeddings."""
    return Changed(lambda response: replace(response, body={**response.body, "embeddings": value}))


def vectors(*rows: Any) -> Fault:
    return embeddings({"float": list(rows)})


def without_embeddings(response: Response) -> Response:
    return replace(response, body={"id": "1"})


@pytest.mark.parametrize(
    ("fault", "kind", "words", "retried"),
    [
        (ResetMidBody(), ServiceConnectionError, "connection", True),
        (ClosedMidBody(), ServiceConnectionError, "connection", True),
        (Status(500, body=error(500, "internal server error").body), ServiceError, "500: internal server", True),
        (Status(503, body=b"<html>down</html>"), ServiceError, "503: <html>down</html>", True),
        (Status(429, body=error(429, "You are using a Trial key").body), ServiceError, "429: You are using", True),
        (Status(408), ServiceTimeoutError, "408", True),
        (Status(400, body=error(400, "invalid request: x").body), ServiceError, "400: invalid request: x", False),
        (Status(401), ServiceError, "401.*key", False),
        (Status(403), ServiceError, "403.*key", False),
        (Status(404, body={"message": "model 'x' not found"}), ServiceError, "404: model 'x'.*base URL", False),
        (Status(409), ServiceError, "409", False),
        (Status(422, body=b""), ServiceError, "no reason given", False),
        (Status(498, body=error(498, "invalid token").body), ServiceError, "498: invalid token", False),
        (BrokenJSON(), MalformedAnswerError, "not JSON", True),
        (EmptyBody(), MalformedAnswerError, "not JSON", True),
        (Changed(lambda _: Response(body=b"\xff\xfe\xff")), MalformedAnswerError, "not JSON", True),
        (Changed(lambda _: Response(body=[1])), MalformedAnswerError, "not what the protocol says", True),
        (Changed(without_embeddings), MalformedAnswerError, "no list of vectors", True),
        (embeddings(None), MalformedAnswerError, "no list of vectors", True),
        (embeddings([[1.0, 0.0], [0.0, 1.0]]), MalformedAnswerError, "not what the protocol says", True),
        (embeddings({"int8": [[1, 0], [0, 1]]}), MalformedAnswerError, "no list of vectors", True),
        (embeddings({"float": 2}), MalformedAnswerError, "no list of vectors", True),
        (embeddings({"float": "ab"}), MalformedAnswerError, "no list of vectors", True),
        (vectors(), MalformedAnswerError, "0 vectors to 2 texts", True),
        (vectors([1.0, 0.0]), MalformedAnswerError, "1 vectors to 2 texts", True),
        (vectors([1.0, 0.0], [0.0, 1.0], [0.0, 1.0]), MalformedAnswerError, "3 vectors to 2 texts", True),
        (vectors([1.0, 0.0], [1.0]), MalformedAnswerError, "no list of vectors", True),
        (vectors([1.0, 0.0], None), MalformedAnswerError, "no list of vectors", True),
        (vectors([1.0, 0.0], 1.0), MalformedAnswerError, "no list of vectors", True),
        (vectors(1.0, 0.0), MalformedAnswerError, "no list of vectors", True),
        (vectors([[1.0], [0.0]], [[0.0], [1.0]]), MalformedAnswerError, "no list of vectors", True),
        (vectors([1.0, 0.0], [None, 1.0]), MalformedAnswerError, "no list of vectors", True),
        (vectors(["1.0", "0.0"], ["0.0", "1.0"]), MalformedAnswerError, "no list of vectors", True),
        (vectors([True, False], [False, True]), MalformedAnswerError, "no list of vectors", True),
        (vectors([1.0, 0.0], [float("nan"), 1.0]), MalformedAnswerError, "no list of vectors", True),
        (vectors([1.0, 0.0], [float("inf"), 1.0]), MalformedAnswerError, "no list of vectors", True),
        (vectors([1.0], [1.0]), DimensionMismatchError, "expected a vector of 2 components and got 1", False),
        (vectors([], []), DimensionMismatchError, "expected a vector of 2 components and got 0", False),
        (vectors([1.0, 0.0], [0.0, 0.0]), EmbeddingError, "no direction", False),
        (vectors([1.0, 0.0], [1e200, 0.0]), EmbeddingError, "out of range", False),
    ],
)
def test_each_fault_is_one_attempt_and_one_error(
    server: WireServer, fault: Fault, kind: type[RetrievalError], words: str, *, retried: bool
) -> None:
    """Every way to fail has its error, and is met once: trying again is for the pipeline to decide."""
    server.fail(fault)
    embedder = embedder_of(server, "mine", dimension=2)
    with pytest.raises(kind, match=words) as raised:
        run(embedder, embedder.embed_texts(["one", "two"]))
    assert type(raised.value) is kind
    assert server.count() == 1
    assert isinstance(raised.value, ServiceError | EmbeddingError)
    if isinstance(raised.value, ServiceError):
        assert raised.value.service == "cohere"
        assert raised.value.can_be_retried is retried
        assert raised.value.status == (fault.code if isinstance(fault, Status) else None)


def test_a_question_that_failed_is_in_its_error(server: WireServer) -> None:
    """An error of embedding names the question that it is about."""
    server.fail(vectors([1.0, 2.0, 3.0]))
    embedder = embedder_of(server)
    with pytest.raises(DimensionMismatchError) as raised:
        run(embedder, embedder.embed_query("a question"))
    assert raised.value.query == "a question"


def test_a_refused_connection_is_a_connection_error(server: WireServer) -> None:
    """A server that is not there is named, and found again once it is."""
    embedder = embedder_of(server)
    server.refuse()
    with pytest.raises(ServiceConnectionError, match=r"127\.0\.0\.1") as raised:
        run(embedder, embedder.embed_query("a"))
    assert raised.value.can_be_retried
    server.accept()
    run(embedder, embedder.embed_query("a"))
    assert server.count() == 1


@pytest.mark.parametrize("status", [429, 503])
def test_seconds_to_wait_are_read(server: WireServer, status: int) -> None:
    """What a service asks for reaches the error that the pipeline waits by, and the SDK does not wait itself."""
    server.fail(Status(status, retry_after=7))
    embedder = embedder_of(server)
    with pytest.raises(ServiceError) as raised:
        run(embedder, embedder.embed_query("a"))
    assert raised.value.retry_after == 7
    assert server.count() == 1


@pytest.mark.parametrize("key", ["co-a b", "co-a\r\nb", "co-ключ"])
def test_a_key_that_no_header_can_hold_is_refused(key: str) -> None:
    """Sent as it is, it would come back in the error of the HTTP library."""
    with pytest.raises(ConfigurationError) as raised:
        CohereEmbedder(api_key=key)
    assert key not in str(raised.value)


@pytest.mark.parametrize("key", [None, "", " \n", SecretStr("")])
def test_a_missing_key_is_named(key: str | SecretStr | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key and without a server of one's own there is nobody to ask; the environment is not looked at."""
    monkeypatch.setenv("CO_API_KEY", KEY)
    with pytest.raises(ConfigurationError, match="CO_API_KEY") as raised:
        CohereEmbedder(api_key=key)
    assert raised.value.missing_keys == ("CO_API_KEY",)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://", "http://user:word@host", "http://h/?a=b"])
def test_addresses_that_are_none_are_refused(url: str) -> None:
    """An address needs a scheme and a host, and holds no password, which would show."""
    with pytest.raises(ConfigurationError, match="base_url") as raised:
        CohereEmbedder(base_url=url)
    assert "word" not in str(raised.value).replace("password", "")


def test_a_server_of_ones_own_needs_no_key(
    server: WireServer, service: CohereService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key in the environment is not sent to a server that it was not given for."""
    monkeypatch.setenv("CO_API_KEY", KEY)
    service.key = None
    embedder = embedder_of(server, api_key=None)
    run(embedder, embedder.embed_query("a"))
    assert KEY not in json.dumps(server.requests[0].headers)


def test_a_missing_sdk_is_named(server: WireServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra the error holds the line that installs it."""
    monkeypatch.setitem(sys.modules, "cohere", None)
    embedder = embedder_of(server)
    with pytest.raises(MissingExtraError, match=r"\[cohere\]"):
        run(embedder, embedder.embed_query("a"))


@pytest.mark.parametrize("fault", [Hang(), PausedMidBody()])
def test_cancelling_reaches_the_server(server: WireServer, fault: Fault) -> None:
    """A call that is cancelled closes its connection, and the next one works."""
    embedder = embedder_of(server)

    async def main() -> None:
        server.fail(fault)
        call = asyncio.create_task(embedder.embed_query("a"))
        await server.until(lambda: server.count() == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await server.until(lambda: server.disconnected == 1)
        await embedder.embed_query("b")
        await embedder.aclose()

    asyncio.run(main())


def test_fifty_calls_are_under_way_at_once(server: WireServer) -> None:
    """Calls do not wait for each other, and none gets another's answer."""
    embedder = embedder_of(server, MODEL)
    texts = [f"question number {number}" for number in range(50)]

    async def main() -> list[Vector]:
        server.fail_always(Hang())
        calls = [asyncio.create_task(embedder.embed_query(text)) for text in texts]
        await server.until(lambda: server.count() == 50)
        server.release()
        vectors = await asyncio.gather(*calls)
        await embedder.aclose()
        return vectors

    expected = [vector_of(text, "search_query", 1024) for text in texts]
    np.testing.assert_allclose(asyncio.run(main()), expected, atol=1e-6)
    assert server.count() == 50
