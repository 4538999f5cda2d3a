"""The Cohere embedder, through the vendor's own SDK, against a server that speaks the vendor's protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from support.examples import times

pytest.importorskip("cohere", reason="the extra 'cohere' is not installed")

from retrieval_core.adapters.embedders.cohere import CohereEmbedder
from retrieval_core.config import load_config
from retrieval_core.errors import ConfigurationError, InvalidParameterError, ServiceError
from retrieval_core.testing.embedder_kit import EmbedderConformance
from support.building import build_embedder
from support.closing_embedder import ClosesConnections
from support.cohere_service import EMBEDDING_MODELS, KEY, CohereService, vector_of
from support.cohere_support import MODEL, embedder_of, run
from support.wire_server import Changed, Response, Status, WireServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retrieval_core.ports import Embedder
    from retrieval_core.types import Matrix


@pytest.fixture
def service() -> CohereService:
    return CohereService(dimensions={"mine": 8})


def passages(*texts: str, dimension: int = 1024) -> Matrix:
    return np.stack([vector_of(text, "search_document", dimension) for text in texts])


def test_a_question_is_one_request(server: WireServer) -> None:
    """The request says that it is a question and what becomes of a long one, and asks for nothing else."""
    embedder = embedder_of(server)
    vector = run(embedder, embedder.embed_query("which bread?"))
    np.testing.assert_allclose(vector, vector_of("which bread?", "search_query", 1024), atol=1e-6)
    [request] = server.requests
    assert (request.method, request.path) == ("POST", "/v2/embed")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.json() == {
        "model": MODEL,
        "input_type": "search_query",
        "texts": ["which bread?"],
        "embedding_types": ["float"],
        "truncate": "END",
    }


def test_passages_are_said_to_be_passages(server: WireServer) -> None:
    """The same text is another vector as a question, however many are embedded at once."""
    embedder = embedder_of(server)
    texts = ["one fish", "two birds"]
    as_passages, as_questions = run(embedder, embedder.embed_texts(texts), embedder.embed_queries(texts))
    np.testing.assert_allclose(as_passages, passages(*texts), atol=1e-6)
    np.testing.assert_allclose(as_questions, [vector_of(text, "search_query", 1024) for text in texts], atol=1e-6)
    assert {request.json()["input_type"] for request in server.requests} == {"search_document", "search_query"}


@pytest.mark.parametrize(
    ("model", "asked", "dimension"),
    [
        *((model, None, known.dimensions[0]) for model, known in EMBEDDING_MODELS.items()),
        *((model, size, size) for model, known in EMBEDDING_MODELS.items() for size in known.dimensions),
        ("mine", 8, 8),
    ],
)
def test_dimensions_are_asked_for_where_they_can_be(
    server: WireServer, model: str, asked: int | None, dimension: int
) -> None:
    """Only models that have several are asked for one, and only where it is not their own."""
    embedder = embedder_of(server, model, dimension=asked)
    vector = run(embedder, embedder.embed_query("a"))
    assert vector.shape == (dimension,)
    assert embedder.dimension == dimension
    is_own = model == "mine" or dimension == EMBEDDING_MODELS[model].dimensions[0]
    assert server.requests[0].json().get("output_dimension") == (None if is_own else dimension)


@pytest.mark.parametrize(
    ("model", "dimension", "words"),
    [
        ("no-such", None, "is not known; set dimension"),
        (MODEL, 512, "may be 1024, got 512"),
        ("embed-v4.0", 768, "may be 1536 or 1024 or 512 or 256, got 768"),
        ("x", 0, "at least 1"),
    ],
)
def test_impossible_dimensions_are_refused(model: str, dimension: int | None, words: str) -> None:
    """A dimension that is not known, or that the model cannot give, is an error before any request."""
    with pytest.raises(ConfigurationError, match=words):
        CohereEmbedder(model=model, dimension=dimension, api_key="k")


@pytest.mark.parametrize("batch_size", [0, 97])
def test_batch_sizes_beyond_the_limits_are_refused(batch_size: int) -> None:
    """The service takes 1 to 96 texts."""
    with pytest.raises(InvalidParameterError, match="batch_size"):
        CohereEmbedder(api_key="k", batch_size=batch_size)


def test_ids_tell_models_dimensions_and_servers_apart() -> None:
    """The same name on another server is another embedder; Cohere's own has no address."""
    assert CohereEmbedder(api_key="k").id == "cohere/embed-v4.0/1536"
    assert CohereEmbedder(api_key="k", dimension=256).id == "cohere/embed-v4.0/256"
    assert CohereEmbedder(api_key="k", base_url="https://api.cohere.com/").id == "cohere/embed-v4.0/1536"
    own = CohereEmbedder(model="mine", dimension=8, base_url="http://localhost:8000")
    assert own.id == "cohere/mine/8@localhost:8000"


def test_it_is_made_of_its_settings() -> None:
    """Model, dimension and address are the configured ones, and the key is that of the environment."""
    settings = {"model": "embed-v4.0", "dimension": 512, "base_url": "http://h:1"}
    overrides = {"embedder.kind": "cohere", "embedder.cohere": settings}
    config = load_config(overrides=overrides, environment={"RETRIEVAL_EMBEDDER__COHERE__API_KEY": "k"})
    embedder = build_embedder(config.embedder)
    assert isinstance(embedder, CohereEmbedder)
    assert embedder.id == "cohere/embed-v4.0/512@h:1"
    config = load_config(overrides={"embedder.kind": "cohere"}, environment={"CO_API_KEY": "k"})
    assert config.embedder.cohere.api_key == SecretStr("k")
    assert getattr(build_embedder(config.embedder), "id", None) == "cohere/embed-v4.0/1536"


def test_vectors_are_scaled_to_unit_length(server: WireServer) -> None:
    """A server that does not normalise its vectors does not matter, nor one that writes them as whole numbers."""

    def longer(response: Response) -> Response:
        response.body["embeddings"]["float"] = [[3, 4, 0, 0, 0, 0, 0, 0]]
        return response

    server.fail(Changed(longer))
    embedder = embedder_of(server, "mine", dimension=8)
    vector = run(embedder, embedder.embed_query("a"))
    assert vector.dtype == np.float32
    np.testing.assert_allclose(vector[:2], [0.6, 0.8])


def test_the_service_gets_as_many_texts_as_it_takes(server: WireServer) -> None:
    """No request has more than 96 texts, and all vectors arrive."""
    embedder = embedder_of(server, "mine", dimension=8)
    texts = [f"text number {number}" for number in range(200)]
    vectors = run(embedder, embedder.embed_texts(texts))
    assert [len(request.json()["texts"]) for request in server.requests] == [96, 96, 8]
    np.testing.assert_allclose(vectors, passages(*texts, dimension=8), atol=1e-6)


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
    assert run(embedder, embedder.embed_texts([])).shape == (0, 1024)
    assert server.count() == 0


def test_empty_text_is_sent_as_a_space(server: WireServer) -> None:
    """A document may have one, and a row is kept for it."""
    embedder = embedder_of(server)
    assert len(run(embedder, embedder.embed_texts(["", "a", " \n"]))) == 3
    assert server.requests[0].json()["texts"] == [" ", "a", " \n"]


def test_long_texts_lose_their_end(server: WireServer) -> None:
    """What the model does not read is left out by the service, which is asked to."""
    embedder = embedder_of(server)
    read = "word " * 512
    vectors = run(embedder, embedder.embed_texts([f"{read} fish", f"{read} bird"]))
    np.testing.assert_allclose(vectors, passages(read, read), atol=1e-6)


@pytest.mark.slow
@settings(max_examples=times(100), deadline=None)
@given(texts=st.lists(st.text(max_size=8), max_size=25), batch_size=st.integers(1, 9), questions=st.booleans())
def test_batches_keep_order_and_lose_nothing(
    texts: Sequence[str], batch_size: int, server_of_examples: WireServer, *, questions: bool
) -> None:
    """The requests together hold every text in its order, each is as full as it may be, and rows belong to texts."""
    before = server_of_examples.count()
    embedder = embedder_of(server_of_examples, "mine", dimension=8, batch_size=batch_size)
    vectors = run(embedder, embedder.embed_queries(texts) if questions else embedder.embed_texts(texts))
    sent = [request.json()["texts"] for request in server_of_examples.requests[before:]]
    assert [text for batch in sent for text in batch] == [text or " " for text in texts]
    assert all(len(batch) == batch_size for batch in sent[:-1])
    assert all(1 <= len(batch) <= batch_size for batch in sent)
    kind = "search_query" if questions else "search_document"
    for row, text in zip(vectors, texts, strict=True):
        np.testing.assert_allclose(row, vector_of(text or " ", kind, 8), atol=1e-6)


@pytest.fixture(scope="module")
def server_of_examples() -> Iterator[WireServer]:
    """One server for all examples of a property."""
    with WireServer(CohereService(dimensions={"mine": 8})) as running:
        yield running


class ClosingEmbedder(ClosesConnections, CohereEmbedder):
    pass


class TestConformance(EmbedderConformance):
    @pytest.fixture
    def embedder(self, server: WireServer) -> Embedder:
        return ClosingEmbedder(model=MODEL, api_key=KEY, base_url=server.url)
