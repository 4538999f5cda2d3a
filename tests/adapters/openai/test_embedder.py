"""The OpenAI embedder, through the vendor's own SDK, against a server that speaks the vendor's protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

pytest.importorskip("openai", reason="the extra 'openai' is not installed")

from retrieval_core.adapters.embedders.openai import OpenAIEmbedder
from retrieval_core.errors import (
    ConfigurationError,
    ServiceError,
)
from retrieval_core.testing.embedder_kit import EmbedderConformance
from support.closing_embedder import ClosesConnections
from support.openai_service import KEY, OpenAIService
from support.openai_support import MODEL, embedder_of, expected, run
from support.wire_server import (
    Changed,
    Response,
    Status,
    WireServer,
)

if TYPE_CHECKING:
    from retrieval_core.ports import Embedder


@pytest.fixture
def service() -> OpenAIService:
    return OpenAIService(dimensions={"nomic-embed-text": 768, "mine": 8})


def test_a_query_is_one_request(server: WireServer) -> None:
    """The request names model, text and format, is authorised, and asks for the model's own dimension by silence."""
    embedder = embedder_of(server)
    vector = run(embedder, embedder.embed_query("which bread?"))
    np.testing.assert_allclose(vector, expected("which bread?"), atol=1e-6)
    [request] = server.requests
    assert (request.method, request.path) == ("POST", "/v1/embeddings")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.json() == {"model": MODEL, "input": ["which bread?"], "encoding_format": "base64"}


def test_texts_keep_their_order(server: WireServer) -> None:
    """Vectors are put where their index says, whatever the order of the answer."""
    embedder = embedder_of(server)
    texts = ["one fish", "two birds", "three cats"]
    vectors = run(embedder, embedder.embed_texts(texts))
    np.testing.assert_allclose(vectors, np.stack([expected(text) for text in texts]), atol=1e-6)
    assert server.count() == 1


@pytest.mark.parametrize(
    ("model", "asked", "dimension"),
    [
        ("text-embedding-3-large", None, 3072),
        ("text-embedding-3-large", 256, 256),
        ("text-embedding-3-small", None, 1536),
        ("text-embedding-3-small", 1536, 1536),
        ("text-embedding-ada-002", None, 1536),
        ("nomic-embed-text", 768, 768),
    ],
)
def test_dimensions_are_asked_for_where_they_can_be(
    server: WireServer, model: str, asked: int | None, dimension: int
) -> None:
    """Only models that can shorten their vectors are asked to, and only where that is wanted."""
    embedder = embedder_of(server, model, dimension=asked)
    vector = run(embedder, embedder.embed_query("a"))
    assert vector.shape == (dimension,)
    assert embedder.dimension == dimension
    assert server.requests[0].json().get("dimensions") == (256 if dimension == 256 else None)


@pytest.mark.parametrize(
    ("model", "dimension"),
    [("no-such", None), ("text-embedding-3-small", 1537), ("text-embedding-ada-002", 8), ("x", 0)],
)
def test_impossible_dimensions_are_refused(model: str, dimension: int | None) -> None:
    """A dimension that is not known, or that the model cannot give, is an error before any request."""
    with pytest.raises(ConfigurationError, match="dimension"):
        OpenAIEmbedder(model, dimension=dimension, api_key="k")


def test_ids_tell_models_dimensions_and_servers_apart() -> None:
    """The same name on another server is another embedder; OpenAI's own has no address."""
    assert OpenAIEmbedder(api_key="k").id == "openai/text-embedding-3-large/3072"
    assert OpenAIEmbedder(api_key="k", dimension=256).id == "openai/text-embedding-3-large/256"
    assert OpenAIEmbedder(api_key="k", base_url="https://api.openai.com/v1/").id == "openai/text-embedding-3-large/3072"
    local = OpenAIEmbedder("nomic", dimension=768, base_url="http://localhost:11434/v1")
    assert local.id == "openai/nomic/768@localhost:11434"


@pytest.mark.parametrize("floats", [True, False])
def test_numbers_are_read_as_well_as_base64(server: WireServer, service: OpenAIService, *, floats: bool) -> None:
    """Servers that do not know base64 answer with lists, and are understood."""
    service.floats = floats
    embedder = embedder_of(server)
    vectors = run(embedder, embedder.embed_texts(["some words", "others"]))
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, np.stack([expected("some words"), expected("others")]), atol=1e-6)


def test_vectors_are_scaled_to_unit_length(server: WireServer) -> None:
    """A server that does not normalise its vectors does not matter."""

    def longer(response: Response) -> Response:
        for item in response.body["data"]:
            item["embedding"] = [3.0, 4.0] + [0.0] * 1534
        return response

    server.fail(Changed(longer))
    embedder = embedder_of(server)
    vector = run(embedder, embedder.embed_query("a"))
    np.testing.assert_allclose(vector[:2], [0.6, 0.8])


def test_long_lists_are_sent_in_parts(server: WireServer) -> None:
    """No request has more texts than the batch size, and all vectors arrive."""
    embedder = embedder_of(server, batch_size=3)
    texts = [f"text number {number}" for number in range(8)]
    vectors = run(embedder, embedder.embed_texts(texts))
    assert [len(request.json()["input"]) for request in server.requests] == [3, 3, 2]
    np.testing.assert_allclose(vectors, np.stack([expected(text) for text in texts]), atol=1e-6)


def test_a_part_that_fails_fails_the_call(server: WireServer) -> None:
    """Nothing is left out without a word: the error of the second request is the call's."""
    server.fail(Changed(lambda response: response), Status(500))
    embedder = embedder_of(server, batch_size=1)
    with pytest.raises(ServiceError):
        run(embedder, embedder.embed_texts(["a", "b", "c"]))
    assert server.count() == 2


def test_nothing_to_embed_needs_no_request(server: WireServer) -> None:
    """No texts make a matrix without rows."""
    embedder = embedder_of(server)
    assert run(embedder, embedder.embed_texts([])).shape == (0, 1536)
    assert server.count() == 0


def test_empty_text_is_sent_as_a_space(server: WireServer) -> None:
    """The service refuses empty inputs, and a document may have one."""
    embedder = embedder_of(server)
    run(embedder, embedder.embed_texts(["", "a"]))
    assert server.requests[0].json()["input"] == [" ", "a"]


def test_long_texts_are_embedded_in_windows(server: WireServer) -> None:
    """A text too long for the model is sent whole, in pieces of one request, and its vector is their weighted mean."""
    embedder = embedder_of(server)
    text = "é" * 4096 + "fish " * 600
    query, texts = run(embedder, embedder.embed_query(text), embedder.embed_texts(["short", text]))
    pieces = ["é" * 4096, "fish " * 600]
    assert {tuple(request.json()["input"]) for request in server.requests} == {tuple(pieces), ("short", *pieces)}
    mean = 8192 * expected(pieces[0]) + 3000 * expected(pieces[1])
    np.testing.assert_allclose(query, mean / np.linalg.norm(mean), atol=1e-6)
    np.testing.assert_allclose(texts[1], query, atol=1e-6)
    np.testing.assert_allclose(texts[0], expected("short"), atol=1e-6)


def test_a_query_is_one_request_however_long(server: WireServer) -> None:
    """What does not fit into one request of the service is cut off a question; of a passage nothing is."""
    embedder = embedder_of(server, batch_size=1)
    run(embedder, embedder.embed_query("word " * 100_000))
    assert sum(len(text) for text in server.requests[0].json()["input"]) == 300_000
    assert server.count() == 1
    run(embedder, embedder.embed_texts(["word " * 100_000]))
    assert sum(len(text) for request in server.requests[1:] for text in request.json()["input"]) == 500_000


def test_texts_for_other_models_go_as_they_are(server: WireServer) -> None:
    """The limits of OpenAI's models say nothing about others."""
    embedder = embedder_of(server, "mine", dimension=8)
    run(embedder, embedder.embed_texts(["x" * 100_000, "y" * 300_000]))
    assert [len(text) for text in server.requests[0].json()["input"]] == [100_000, 300_000]


class ClosingEmbedder(ClosesConnections, OpenAIEmbedder):
    pass


class TestConformance(EmbedderConformance):
    @pytest.fixture
    def embedder(self, server: WireServer) -> Embedder:
        return ClosingEmbedder(MODEL, api_key=KEY, base_url=f"{server.url}/v1")
