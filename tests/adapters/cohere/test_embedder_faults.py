"""How the Cohere embedder fails, is cancelled and keeps its key."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("cohere", reason="the extra 'cohere' is not installed")

from retrieval_core.errors import (
    DimensionMismatchError,
    EmbeddingError,
    MalformedAnswerError,
    RetrievalError,
    ServiceError,
)
from support.cohere_service import CohereService, error, vector_of
from support.cohere_support import MODEL, embedder_of, run
from support.wire_server import (
    Changed,
    Hang,
    Response,
    Status,
    WireServer,
)

if TYPE_CHECKING:
    from retrieval_core.types import Vector
    from support.wire_server import Fault


@pytest.fixture
def service() -> CohereService:
    return CohereService(dimensions={"mine": 2})


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
        (Status(500, body=error(500, "internal server error").body), ServiceError, "500: internal server", True),
        (Status(429, body=error(429, "You are using a Trial key").body), ServiceError, "429: You are using", True),
        (Status(400, body=error(400, "invalid request: x").body), ServiceError, "400: invalid request: x", False),
        (Status(498, body=error(498, "invalid token").body), ServiceError, "498: invalid token", False),
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
