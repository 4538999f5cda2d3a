"""LlamaIndex's ``OpenAIEmbedding``, with OpenAI's own client, against a server that speaks OpenAI's protocol."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")
pytest.importorskip("llama_index.embeddings.openai", reason="the extra 'openai' of the plug-in is not installed")

from llama_index.embeddings.openai import OpenAIEmbedding

from llama_index.retrievers.retrieval_core.adapters import LlamaIndexEmbedder
from retrieval_core.errors import ServiceConnectionError, ServiceError
from retrieval_core.testing.fakes import FakeEmbedder
from support.openai_service import KEY, OpenAIService
from support.wire_server import ClosedMidBody, Status, WireServer

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

MODEL = "text-embedding-3-small"
TEXTS = ("The moon is bright.", "The sun is a star.", "The sea is deep.", "Apollo flew.", "Rocks are old.")


@contextmanager
def served(**options: Any) -> Generator[tuple[WireServer, OpenAIEmbedding]]:
    with WireServer(OpenAIService()) as server:
        usual: dict[str, Any] = {"model": MODEL, "api_key": KEY, "api_base": f"{server.url}/v1", "dimensions": 64}
        model = OpenAIEmbedding(**(usual | options))
        yield server, model
        if model._client is not None:
            model._client.close()


def expected(text: str) -> np.ndarray:
    return FakeEmbedder(64).vector(text)


def run(embedder: LlamaIndexEmbedder, *work: Coroutine[Any, Any, Any]) -> list[Any]:
    async def main() -> list[Any]:
        try:
            return await asyncio.gather(*work)
        finally:
            await embedder.aclose()

    return asyncio.run(main())


def test_questions_and_passages_on_the_wire() -> None:
    """One request for a question, and one for each ``embed_batch_size`` passages; it refuses empty texts."""
    with served(embed_batch_size=2) as (server, model):
        embedder = LlamaIndexEmbedder(model)
        assert embedder.dimension == 64
        assert server.count() == 0
        (vector, matrix) = run(embedder, embedder.embed_query("moon"), embedder.embed_texts([*TEXTS[:2], ""]))
        asked = [request.json() for request in server.requests]
    np.testing.assert_allclose(vector, expected("moon"), atol=1e-6)
    np.testing.assert_allclose(matrix[:2], [expected(text) for text in TEXTS[:2]], atol=1e-6)
    inputs = sorted((one["input"] for one in asked), key=str)
    assert inputs == sorted([["moon"], [*TEXTS[:2]], [" "]], key=str)
    assert all(one["model"] == MODEL and one["dimensions"] == 64 for one in asked)


def test_trap_vectors_are_ordered_by_the_index_that_the_service_gives() -> None:
    """LlamaIndex takes them as they come; the API does not promise an order, but numbers them."""
    with served() as (_, model):
        theirs = model.get_text_embedding_batch(list(TEXTS))
        assert not np.allclose(theirs, [expected(text) for text in TEXTS], atol=1e-4)
        for is_async in (True, False):
            embedder = LlamaIndexEmbedder(model, is_async=is_async)
            (matrix,) = run(embedder, embedder.embed_texts(TEXTS))
            np.testing.assert_allclose(matrix, [expected(text) for text in TEXTS], atol=1e-6)


@pytest.mark.parametrize("is_async", [True, False])
def test_trap_a_failure_is_one_attempt(is_async: bool) -> None:
    """By itself it makes ten attempts of eleven requests, with waits; how many is for the pipeline to decide."""
    with served() as (server, model):
        assert model.max_retries == 10
        server.fail(Status(429, retry_after=9))
        embedder = LlamaIndexEmbedder(model, is_async=is_async)
        with pytest.raises(ServiceError, match="RateLimitError") as raised:
            run(embedder, embedder.embed_query("moon"))
        assert server.count() == 1
        assert (raised.value.status, raised.value.retry_after) == (429, 9.0)
        assert model.max_retries == 10  # the user's own object stays as it was


def test_trap_its_client_belongs_to_one_event_loop() -> None:
    """LlamaIndex keeps one asynchronous client, whose open connections fail on the next loop."""
    with served() as (server, model):
        embedder = LlamaIndexEmbedder(model)
        first = asyncio.run(_twice(embedder))
        for _ in range(2):
            np.testing.assert_allclose(asyncio.run(embedder.embed_query("moon")), first, atol=1e-6)
        run(embedder)
        assert server.count() == 4


async def _twice(embedder: LlamaIndexEmbedder) -> Any:
    try:
        await embedder.embed_query("sun")
        return await embedder.embed_query("moon")
    finally:
        for client in embedder._clients:
            if client.is_async:
                await client.close()


def test_it_waits_without_blocking() -> None:
    """BlockBuster is on; many questions at once are as many requests."""
    with served() as (server, model):
        embedder = LlamaIndexEmbedder(model)
        found = run(embedder, *(embedder.embed_query(f"moon {row}") for row in range(20)))
        assert server.count() == 20
    np.testing.assert_allclose(found, [expected(f"moon {row}") for row in range(20)], atol=1e-6)


@pytest.mark.parametrize("is_async", [True, False])
def test_faults_are_errors_of_this_library(is_async: bool) -> None:
    with served() as (server, model):
        server.fail(ClosedMidBody())
        embedder = LlamaIndexEmbedder(model, is_async=is_async)
        with pytest.raises(ServiceError):
            run(embedder, embedder.embed_query("moon"))
    with served(api_key="sk-wrong-key-123456") as (_, model):
        embedder = LlamaIndexEmbedder(model, is_async=is_async)
        with pytest.raises(ServiceError, match=r"AuthenticationError.*\[secret\]") as raised:
            run(embedder, embedder.embed_query("moon"))
        assert raised.value.status == 401
        assert "sk-wrong" not in str(raised.value)
    embedder = LlamaIndexEmbedder(model, is_async=is_async)  # its server is gone
    with pytest.raises(ServiceConnectionError):
        run(embedder, embedder.embed_query("moon"))


def test_the_id_tells_models_and_servers_apart() -> None:
    """It does not change with the key, the batch size or the attempts; the usual server is not named."""
    one = OpenAIEmbedding(model=MODEL, api_key="k")
    assert LlamaIndexEmbedder(one).id == f"llama-index/OpenAIEmbedding/{MODEL}"
    other = OpenAIEmbedding(model=MODEL, api_key="k", api_base="http://localhost:8000/v1", dimensions=64)
    assert LlamaIndexEmbedder(other).id == f"llama-index/OpenAIEmbedding/{MODEL}/64@localhost:8000"
    same = OpenAIEmbedding(model=MODEL, api_key="l", embed_batch_size=3, max_retries=1)
    assert LlamaIndexEmbedder(same).id == f"llama-index/OpenAIEmbedding/{MODEL}"


def test_the_language_models_package_is_there() -> None:
    """It comes with the same extra; the bridge to it has tests of its own."""
    llms = pytest.importorskip("llama_index.llms.openai", reason="the extra 'openai' of the plug-in is not installed")
    assert llms.OpenAI(model="gpt-4.1-mini", api_key="k").metadata.model_name == "gpt-4.1-mini"
