"""The specification's first file, played with the real client against an index that a shop's own program filled."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("pinecone", reason="the extra 'pinecone' is not installed")

from retrieval_core import load_config, open_index
from retrieval_core.compat.context_pack import retrieve
from retrieval_core.errors import (
    EmbeddingError,
    IncompleteSearchError,
    IndexFormatError,
    InvalidParameterError,
    ServiceConnectionError,
    ServiceError,
)
from retrieval_core.ports import ChunkRange, FetchRequest, SearchRequest
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types.filters import MetadataFilter
from support.pinecone_reviews import KEY, ReviewIndex
from support.wire_server import Status, WireServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from retrieval_core import Index
    from retrieval_core.types import RetrievalResult, Vector

NAMESPACE = "phone-reviews"
DIMENSION = 4
QUESTION = "phone with a long battery life"
NAMES = ("Acme One", "Acme One Pro", "Tern Mini", "Osprey")


class Fixed(FakeEmbedder):
    """An embedder for which every question points one way."""

    def __init__(self) -> None:
        super().__init__(DIMENSION)

    async def embed_query(self, text: str) -> Vector:
        await super().embed_query(text)  # fails where it is told to
        return np.array([1.0, 0.0, 0.0, 0.0], dtype=np.float32)


def towards(similarity: float, side: int = 1) -> list[float]:
    """Return a vector with that cosine to every question."""
    vector = [similarity, 0.0, 0.0, 0.0]
    vector[side] = math.sqrt(1 - similarity**2)
    return vector


@pytest.fixture
def reviews() -> ReviewIndex:
    index = ReviewIndex(DIMENSION)
    for number in range(40):
        index.put(
            NAMESPACE,
            f"review/{number:02} %é?&=#" if number == 3 else f"r{number:02}",
            towards(0.95 - number / 100, 1 + number % 3),
            product_name=NAMES[number % 4],
            price=100 + number,
            rating=1 + number % 5,
            review_text=f"The battery of number {number} lasts.",
            doc_id=f"doc{number % 4}",
            pg=number + 1,
        )
    return index


@pytest.fixture
def server(reviews: ReviewIndex) -> Iterator[WireServer]:
    with WireServer(reviews) as server:
        yield server


def opened(server: WireServer, embedder: FakeEmbedder | None = None, **overrides: Any) -> Index:
    settings = {
        "store.pinecone.host": server.url,
        "store.pinecone.api_key": KEY,
        "store.pinecone.index_name": "ecommerce-products",
        "store.pinecone.namespace": NAMESPACE,
        "embedder.openai.api_key": "sk-none",
        "llm.kind": "none",
        "retry.base_delay": 0.001,
    }
    given = {name.replace("__", "."): value for name, value in overrides.items()}
    return open_index(config=load_config("ecommerce-cloud", {**settings, **given}), embedder=embedder or Fixed())


def ask(
    server: WireServer, filters: Any = None, *, fields: Mapping[str, str] | None = None, **more: Any
) -> RetrievalResult:
    if fields is not None:
        more["store__pinecone__fields"] = dict(fields)
    with opened(server, **more) as index:
        return index.retrieve(QUESTION, filters)


def test_the_template_shows_the_review(server: WireServer) -> None:
    """Records that are named as in the specification need no mapping; MMR, threshold and template are its own."""
    result = ask(server)
    assert len(result.hits) == 4
    assert all(score is not None and score >= 0.6 for score in result.scores)
    assert len({str(hit.chunk.metadata["product_name"]) for hit in result.hits}) > 1
    first = result.formatted_context.split("\n\n---\n\n")[0]
    assert first == "Title: Acme One\nPrice: 100.0\nRating: 1.0\nReview: The battery of number 0 lasts."
    assert result.degraded == ()
    assert ask(server, fields={"text": "review_text"}).formatted_context == result.formatted_context


def test_a_filter_by_document_goes_the_way_that_reading_goes(server: WireServer) -> None:
    """A document is filtered by under the name by which it is cited, mapped or not."""
    for fields in (None, {"document_id": "doc_id"}):
        result = ask(server, {"document_id": "doc2"}, fields=fields)
        assert {hit.chunk.document_id for hit in result.hits} == {"doc2"}
        assert len(result.hits) == 4
        assert not {
            hit.chunk.document_id for hit in ask(server, {"document_id": {"$ne": "doc2"}}, fields=fields).hits
        } & {"doc2"}
        mapped: dict[str, Any] = {} if fields is None else {"store__pinecone__fields": fields}
        with opened(server, **mapped) as index:
            pack = retrieve(QUESTION, {"doc_id": "doc1"}, index=index)
            assert pack.citations
            assert all(citation.startswith("Doc: doc1") for citation in pack.citations)


def test_pages_are_mapped(server: WireServer) -> None:
    """A page is read from where it stands, cited, and filtered by, as number and in ranges."""
    fields = {"page": "pg", "document_id": "doc_id"}
    (hit,) = ask(server, {"page": 3}, fields=fields).hits
    assert (hit.chunk.page_span.first, hit.chunk.page_span.last) == (3, 3) if hit.chunk.page_span else False
    assert {str(hit.chunk.metadata["pg"]) for hit in ask(server, {"page": {"$lte": 2}}, fields=fields).hits} == {
        "1.0",
        "2.0",
    }


def test_pages_and_documents_that_are_kept_as_another_kind(reviews: ReviewIndex, server: WireServer) -> None:
    """Pages as text and documents as numbers are found by what a citation shows of them."""
    reviews.put(NAMESPACE, "odd", towards(0.99), review_text="Odd.", doc_id=77, label="12")
    fields = {"page": "label"}
    for wanted in ({"document_id": "77"}, {"document_id": 77}, {"page": 12}, {"page": {"$gt": 11}}, {"id": "odd"}):
        (hit,) = ask(server, wanted, fields=fields).hits
        assert (hit.id, hit.chunk.document_id, hit.chunk.page_span and hit.chunk.page_span.first) == ("odd", "77", 12)


def test_a_record_without_a_document_is_one_itself(reviews: ReviewIndex, server: WireServer) -> None:
    """It is cited by its own id, and found by it."""
    reviews.put(NAMESPACE, "alone", towards(0.99), review_text="Alone.")
    (hit,) = ask(server, {"document_id": "alone"}).hits
    assert (hit.id, hit.chunk.document_id) == ("alone", "alone")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("tern*", {"Tern Mini"}),
        ("acme one", {"Acme One", "Acme One Pro"}),
        ("ACME ?ne", {"Acme One"}),
        ("*o*", {"Acme One", "Acme One Pro", "Osprey"}),
        ("(a+)+$", set[str]()),
        (".*", set[str]()),
    ],
)
def test_patterns_of_names(reviews: ReviewIndex, server: WireServer, pattern: str, names: set[str]) -> None:
    """Names are found by part of them or by a glob; nothing is left out in silence, and no pattern is a program."""
    result = ask(
        server, MetadataFilter(product_name_pattern=pattern, max_price=130), search__fetch_k=40, search__top_k=40
    )
    assert {str(hit.chunk.metadata["product_name"]) for hit in result.hits} == names
    expected = sum(
        metadata["product_name"] in names and metadata["price"] <= 130
        for _, metadata in reviews.namespaces[NAMESPACE].values()
    )
    assert len(result.hits) == expected
    assert result.degraded == ()


def test_a_pattern_that_finds_less_than_it_should_says_so(reviews: ReviewIndex, server: WireServer) -> None:
    """Where Pinecone refuses so large an answer as would be needed, the result is what was found, and is listed."""
    reviews.most_bytes = 3_000
    pattern = MetadataFilter(product_name_pattern="osprey*", min_rating=2)
    result = ask(server, pattern, search__candidates=12, search__fetch_k=12)
    assert result.hits
    assert {str(hit.chunk.metadata["product_name"]) for hit in result.hits} == {"Osprey"}
    (degraded,) = result.degraded
    assert degraded.stage == "dense"
    assert "there may be others" in degraded.reason
    with pytest.raises(IncompleteSearchError):
        ask(server, pattern, search__candidates=12, search__fetch_k=12, strict=True)


def test_other_conditions_that_pinecone_has_no_words_for(server: WireServer) -> None:
    """Comparisons of text, and negated ones, are made here, and none is refused."""
    for condition in (
        {"product_name": {"$gt": "Osp"}},
        {"product_name": {"$text": "tern"}},
        {"$not": {"price": {"$gt": 103}}},
        {"$not": {"product_name": {"$glob": "a*"}}},
    ):
        result = ask(server, condition)
        assert len(result.hits) == 4
        assert result.degraded == ()


def test_the_least_requests_are_made(reviews: ReviewIndex, server: WireServer) -> None:
    """One query asks for one more than is wanted; a tie at the limit, or no match, costs four times that.

    If nothing is found, a sample of records shows whether any has the fields of the filter.
    """

    def asked(filters: Any = None) -> list[int]:
        reviews.bodies.clear()
        assert ask(server, filters, search__candidates=8, search__fetch_k=8).degraded == ()
        return [body["topK"] for body in reviews.bodies]

    assert asked() == [9]
    assert asked({"price": {"$lt": 120}}) == [9]
    assert asked({"product_name": {"$glob": "*"}}) == [9]
    assert asked({"product_name": {"$glob": "tern*"}}) == [9, 36]
    assert asked({"product_name": {"$glob": "nothing*"}}) == [9, 36, 144, 100]
    for number in range(20):
        reviews.put(NAMESPACE, f"t{number:02}", towards(0.99), review_text="The same.")
    assert asked() == [9, 36]


def test_prices_as_text_and_records_without_fields(reviews: ReviewIndex, server: WireServer) -> None:
    """A price as text passes no bound, as in any store; what is missing is shown as such."""
    reviews.put(NAMESPACE, "texts", towards(0.999), product_name="Odd", price="99.00", review_text="Fine.")
    reviews.put(NAMESPACE, "bare", towards(0.998), review_text="Bare.")
    result = ask(server)
    assert "Title: Odd\nPrice: 99.00\nRating: N/A\nReview: Fine." in result.formatted_context
    assert (
        "Title: N/A\nPrice: N/A\nRating: N/A\nReview: Bare."
        in ask(server, {"price": {"$exists": False}}).formatted_context
    )
    assert not {"texts", "bare"} & {hit.id for hit in ask(server, MetadataFilter(max_price=1000)).hits}


def test_one_record_without_text_does_not_hide_the_others(reviews: ReviewIndex, server: WireServer) -> None:
    """It is left out and listed; where no record has a text, the mapping is wrong and that is raised."""
    reviews.put(NAMESPACE, "wordless", towards(0.999), product_name="Silent")
    result = ask(server)
    assert len(result.hits) == 4
    assert "'wordless' has no text" in result.degraded[0].reason
    with pytest.raises(IndexFormatError, match="has no text in 'body'"):
        ask(server, fields={"text": "body"})


def test_a_namespace_that_does_not_exist(server: WireServer) -> None:
    """It holds nothing, which is no error."""
    result = ask(server, store__pinecone__namespace="nowhere")
    assert (result.hits, result.degraded) == ((), ())


def test_neighbours_come_page_after_page(reviews: ReviewIndex, server: WireServer) -> None:
    """Reading by metadata goes on where an answer is in several pages."""
    fields = {"document_id": "doc_id", "chunk_index": "pg"}
    with opened(server, store__pinecone__fields=fields) as index:
        fetched = index.sync.run(index.store.fetch(FetchRequest(ranges=(ChunkRange("doc1", 0, 99),))))
    assert len(fetched.chunks) == 10


@pytest.mark.parametrize(("status", "attempts"), [(429, 4), (500, 4), (503, 4), (400, 1)])
def test_faults_are_retried_as_specified(server: WireServer, status: int, attempts: int) -> None:
    """What may pass is tried four times at most; then the result is empty and says why, or is raised."""
    server.fail_always(Status(status), path="/query")
    result = ask(server)
    assert (result.hits, server.count("/query")) == ((), attempts)
    assert str(status) in str(result.metadata["error"])
    with pytest.raises(ServiceError) as caught:
        ask(server, raise_on_error=True)
    assert (caught.value.service, caught.value.status) == ("pinecone", status)


def test_a_wrong_key_and_no_connection(server: WireServer) -> None:
    """A refused key is raised at once; a lost connection is a ``ConnectionError`` with the service's name."""
    with pytest.raises(ServiceError, match="401"):
        ask(server, store__pinecone__api_key="wrong")
    assert server.count() == 1
    server.refuse()
    with pytest.raises(ConnectionError) as caught:
        ask(server, raise_on_error=True)
    assert isinstance(caught.value, ServiceConnectionError)
    assert caught.value.service == "pinecone"
    assert ask(server).hits == ()
    server.accept()


@pytest.mark.parametrize("status", [401, 500])
def test_a_question_that_cannot_be_embedded(server: WireServer, status: int) -> None:
    """It is an error of embedding with the query, whose cause says what the service answered."""
    embedder = Fixed()
    embedder.failure = ServiceError("refused", "openai", status=status)
    with pytest.raises(EmbeddingError) as caught, opened(server, embedder) as index:
        index.retrieve(QUESTION)
    assert (caught.value.query, caught.value.__cause__) == (QUESTION, embedder.failure)
    assert caught.value.kind == ("authentication" if status == 401 else "service")
    assert server.count("/query") == 0


def test_more_than_pinecone_returns(server: WireServer) -> None:
    """More than 10,000 are refused before anything is asked for."""
    request = SearchRequest(10_001, vector=np.ones(DIMENSION, dtype=np.float32))
    with opened(server) as index, pytest.raises(InvalidParameterError, match="10000"):
        index.sync.run(index.store.search(request))
    assert server.count("/query") == 0
