"""How the OpenAI adapters fail, cancel, keep their key and share connections, with the embedder as the example."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pydantic import SecretStr

pytest.importorskip("openai", reason="the extra 'openai' is not installed")

from retrieval_core.adapters.embedders.openai import OpenAIEmbedder
from retrieval_core.errors import (
    ConfigurationError,
    DimensionMismatchError,
    EmbeddingError,
    InvalidParameterError,
    MalformedAnswerError,
    MissingExtraError,
    RetrievalError,
    ServiceConnectionError,
    ServiceError,
    ServiceTimeoutError,
)
from support.openai_service import KEY, OpenAIService, error
from support.openai_support import embedder_of, expected, run
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
    from collections.abc import Callable, Iterator

    from retrieval_core.types import Vector
    from support.wire_server import Fault


@pytest.fixture
def service() -> OpenAIService:
    return OpenAIService(dimensions={"nomic-embed-text": 768, "mine": 8})


@pytest.fixture
def server(service: OpenAIService) -> Iterator[WireServer]:
    with WireServer(service) as running:
        yield running


def no_such_dimension(response: Response) -> Response:
    response.body["data"][0]["embedding"] = [1.0, 0.0]
    return response


def zeros(response: Response) -> Response:
    response.body["data"][0]["embedding"] = [0.0] * 1536
    return response


def without(name: str) -> Callable[[Response], Response]:
    return lambda response: replace(response, body={key: value for key, value in response.body.items() if key != name})


def data(value: Any) -> Callable[[Response], Response]:
    return lambda response: replace(response, body={**response.body, "data": value})


@pytest.mark.parametrize(
    ("fault", "kind", "words", "retried"),
    [
        (ResetMidBody(), ServiceConnectionError, "connection", True),
        (ClosedMidBody(), ServiceConnectionError, "connection", True),
        (Status(500, body=error(500, "The server had an error").body), ServiceError, "500: The server had", True),
        (Status(503, body=b"<html>down</html>"), ServiceError, "503: <html>down</html>", True),
        (Status(429, body=error(429, "Rate limit reached", "rate_limit_exceeded").body), ServiceError, "429", True),
        (Status(408), ServiceTimeoutError, "408", True),
        (Status(400, body=error(400, "'$.input' is invalid").body), ServiceError, r"\$\.input", False),
        (Status(401), ServiceError, "401.*key", False),
        (Status(403), ServiceError, "403.*key", False),
        (Status(404, body={"detail": "nothing here"}), ServiceError, "404: nothing here.*base URL", False),
        (Status(422, body=b""), ServiceError, "no reason given", False),
        (BrokenJSON(), MalformedAnswerError, "not JSON", True),
        (EmptyBody(), MalformedAnswerError, "not JSON", True),
        (
            Changed(lambda _: Response(body=b"<html>", headers={"Content-Type": "text/html"})),
            MalformedAnswerError,
            "no list of vectors",
            True,
        ),
        (Changed(lambda _: Response(body=[1])), MalformedAnswerError, "no list of vectors", True),
        (Changed(without("data")), MalformedAnswerError, "no list of vectors", True),
        (Changed(data([])), MalformedAnswerError, "0 vectors to 1", True),
        (Changed(data([{"index": 1, "embedding": [1.0]}])), MalformedAnswerError, "1 vectors to 1", True),
        (Changed(data([{"index": 0, "embedding": "not base64!"}])), MalformedAnswerError, "no list", True),
        (Changed(data([{"index": 0, "embedding": [[1.0]]}])), MalformedAnswerError, "no list", True),
        (Changed(no_such_dimension), DimensionMismatchError, "expected a vector of 1536 components and got 2", False),
        (Changed(zeros), EmbeddingError, "no direction", False),
    ],
)
def test_each_fault_is_one_attempt_and_one_error(
    server: WireServer, fault: Fault, kind: type[RetrievalError], words: str, *, retried: bool
) -> None:
    """Every way to fail has its error, and is met once: trying again is for the pipeline to decide."""
    server.fail(fault)
    embedder = embedder_of(server)
    with pytest.raises(kind, match=words) as raised:
        run(embedder, embedder.embed_query("a question"))
    assert type(raised.value) is kind
    assert server.count() == 1
    if isinstance(raised.value, ServiceError):
        assert raised.value.service == "openai"
        assert raised.value.can_be_retried is retried
        assert raised.value.status == (fault.code if isinstance(fault, Status) else None)
    if isinstance(raised.value, EmbeddingError):
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


@pytest.mark.parametrize("key", ["sk-a b", "sk-a\r\nb", "sk-ключ"])
def test_a_key_that_no_header_can_hold_is_refused(key: str) -> None:
    """Sent as it is, it would come back in the error of the HTTP library."""
    with pytest.raises(ConfigurationError) as raised:
        OpenAIEmbedder(api_key=key)
    assert key not in str(raised.value)


@pytest.mark.parametrize("key", [None, "", " \n", SecretStr("")])
def test_a_missing_key_is_named(key: str | SecretStr | None) -> None:
    """Without a key and without a server of one's own there is nobody to ask; the environment is not looked at."""
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY") as raised:
        OpenAIEmbedder(api_key=key)
    assert raised.value.missing_keys == ("OPENAI_API_KEY",)


@pytest.mark.parametrize(
    "url", ["localhost:11434", "ftp://host/v1", "http://", "http://user:word@host/v1", "http://h:x"]
)
def test_addresses_that_are_none_are_refused(url: str) -> None:
    """An address needs a scheme and a host, and holds no password, which would show."""
    with pytest.raises(ConfigurationError, match="base_url") as raised:
        OpenAIEmbedder(base_url=url)
    assert "word" not in str(raised.value).replace("password", "")


@pytest.mark.parametrize("batch_size", [0, 2049])
def test_batch_sizes_beyond_the_limits_are_refused(batch_size: int) -> None:
    """The service takes 1 to 2,048 inputs."""
    with pytest.raises(InvalidParameterError, match="batch_size"):
        OpenAIEmbedder(api_key="k", batch_size=batch_size)


def test_a_server_of_ones_own_needs_no_key(
    server: WireServer, service: OpenAIService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key in the environment is not sent to a server that it was not given for."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    service.key = None
    embedder = embedder_of(server, api_key=None)
    run(embedder, embedder.embed_query("a"))
    assert KEY not in json.dumps(server.requests[0].headers)


def test_a_missing_sdk_is_named(server: WireServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra the error holds the line that installs it."""
    monkeypatch.setitem(sys.modules, "openai", None)
    embedder = embedder_of(server)
    with pytest.raises(MissingExtraError, match=r"\[openai\]"):
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
    embedder = embedder_of(server)
    texts = [f"question number {number}" for number in range(50)]

    async def main() -> list[Vector]:
        server.fail_always(Hang())
        calls = [asyncio.create_task(embedder.embed_query(text)) for text in texts]
        await server.until(lambda: server.count() == 50)
        server.release()
        vectors = await asyncio.gather(*calls)
        await embedder.aclose()
        return vectors

    np.testing.assert_allclose(asyncio.run(main()), [expected(text) for text in texts], atol=1e-6)
    assert server.count() == 50
