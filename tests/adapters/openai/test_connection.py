"""How the OpenAI adapters fail, cancel, keep their key and share connections, with the embedder as the example."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("openai", reason="the extra 'openai' is not installed")

from retrieval_core.adapters.embedders.openai import OpenAIEmbedder
from retrieval_core.errors import (
    DimensionMismatchError,
    EmbeddingError,
    InvalidParameterError,
    MalformedAnswerError,
    RetrievalError,
    ServiceError,
)
from support.openai_service import OpenAIService, error
from support.openai_support import embedder_of, expected, run
from support.wire_server import (
    Changed,
    Hang,
    Response,
    Status,
    WireServer,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core.types import Vector
    from support.wire_server import Fault


@pytest.fixture
def service() -> OpenAIService:
    return OpenAIService(dimensions={"nomic-embed-text": 768, "mine": 8})


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
        (Status(500, body=error(500, "The server had an error").body), ServiceError, "500: The server had", True),
        (Status(429, body=error(429, "Rate limit reached", "rate_limit_exceeded").body), ServiceError, "429", True),
        (Status(400, body=error(400, "'$.input' is invalid").body), ServiceError, r"\$\.input", False),
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


@pytest.mark.parametrize("batch_size", [0, 2049])
def test_batch_sizes_beyond_the_limits_are_refused(batch_size: int) -> None:
    """The service takes 1 to 2,048 inputs."""
    with pytest.raises(InvalidParameterError, match="batch_size"):
        OpenAIEmbedder(api_key="k", batch_size=batch_size)


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
