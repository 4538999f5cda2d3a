"""The test runner of the test-suite file: its deadlines, its retries, and its error names."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("qdrant_client", reason="the extra 'qdrant' is not installed")
pytest.importorskip("jsonschema", reason="the group 'test-qdrant' is not installed")

from qdrant_client import QdrantClient, models

from retrieval_core import load_config, open_index
from retrieval_core.compat import retrieval_tests as file
from retrieval_core.testing.fakes import FakeEmbedder
from support.qdrant_service import KEY, QdrantService
from support.wire_server import Hang, Status, WireServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retrieval_core import Index

pytestmark = [pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection"), pytest.mark.slow]

DIMENSION = 64
TEXT = "ROS 2 is a robot operating system."
PATH = "/collections/book/points/query"


@pytest.fixture
def server() -> Iterator[WireServer]:
    """Yield a Qdrant server with one collection that its own client filled."""
    with WireServer(QdrantService()) as running:
        client = QdrantClient(url=running.url, api_key=KEY, check_compatibility=False)
        size = models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE)
        client.create_collection("book", vectors_config=size)
        vector = [1.0] + [0.0] * (DIMENSION - 1)
        payload = {"content": TEXT, "source_url": "https://example.com/ros"}
        client.upsert("book", [models.PointStruct(id=1, vector=vector, payload=payload)])
        client.close()
        running.requests.clear()
        yield running


def opened(server: WireServer, **more: Any) -> Index:
    """Open the collection."""
    given: dict[str, Any] = {
        "cache.kind": "none",
        "store.kind": "qdrant",
        "store.qdrant.url": server.url,
        "store.qdrant.collection": "book",
        "store.qdrant.fields": "default",
        "retry.base_delay": 0.001,
        **more,
    }
    config = load_config(overrides=given, environment={"QDRANT_API_KEY": KEY})
    return open_index(config=config, embedder=FakeEmbedder(DIMENSION))


def case(**changes: Any) -> file.TestCase:
    """Return a case that passes."""
    given: dict[str, Any] = {
        "name": "basics",
        "query_text": TEXT,
        "collection_name": "book",
        "expected_doc_ids": ["https://example.com/ros"],
        "expected_keywords": ["robot"],
        "relevance_threshold": 0.0,
    }
    return file.TestCase(**{**given, **changes})


def test_one_503_is_retried(server: WireServer) -> None:
    """The case passes, and the request was made twice."""
    with opened(server) as index:
        server.fail(Status(503), path=PATH)
        (ended,) = file.RetrievalTester({"book": index}).run([case()]).test_results
    assert (ended.status.value, ended.error_message) == ("passed", None)
    assert server.count(PATH) == 2


def test_every_other_request_is_retried_too(server: WireServer) -> None:
    """Looking up documents, reading chunks and describing the collection, as well as a search by vector."""
    with opened(server) as index:
        tester = file.RetrievalTester({"book": index})
        for path in ("/collections/book/points/scroll", "/collections/book/points"):
            server.fail(Status(503), path=path)
            assert tester.run([case()]).passed == 1
        server.fail(Status(503))
        assert tester.info("book").status == "green"
        server.fail(Status(503), path=PATH)
        assert len(tester.search(file.RetrievalQuery("book", tester.embed("book", TEXT)))) == 1


def test_a_deadline_ends_a_silent_search(server: WireServer) -> None:
    """The request is given up at the deadline, and is not made again."""
    with opened(server) as index:  # loads all that is slow to load, under no deadline that could end it
        tester = file.RetrievalTester({"book": index})
        vector = tester.embed("book", TEXT)
        assert tester.search(file.RetrievalQuery("book", vector))
    with opened(server, deadline_seconds=3) as index:
        tester = file.RetrievalTester({"book": index})
        assert tester.search(file.RetrievalQuery("book", vector))
        made = server.count(PATH)
        server.fail_always(Hang(), path=PATH)
        with pytest.raises(file.TimeoutError, match="3 s"):
            tester.search(file.RetrievalQuery("book", vector))
        assert server.count(PATH) == made + 1
        (ended,) = tester.run([case()]).test_results
        assert ended.status.value == "error"
        assert (ended.error_message or "").startswith("TimeoutError: ")
        assert server.count(PATH) == made + 2


def test_a_dead_server_is_a_connection_error(server: WireServer) -> None:
    """By the file's name, in what is raised and in what a case says."""
    with opened(server) as index:
        tester = file.RetrievalTester({"book": index})
        vector = tester.embed("book", TEXT)
        server.refuse()
        with pytest.raises(file.ConnectionError) as caught:
            tester.search(file.RetrievalQuery("book", vector))
        assert type(caught.value).__name__ == "ConnectionError"
        (ended,) = tester.run([case()]).test_results
        assert (ended.error_message or "").startswith("ConnectionError: ")


def test_a_missing_collection_has_the_files_name(server: WireServer) -> None:
    """Whether the tester or the server does not know it."""
    with opened(server, **{"store.qdrant.collection": "nowhere"}) as index:
        tester = file.RetrievalTester({"book": index})
        ended = tester.run([case(), case(name="b", collection_name="other")]).test_results
        assert [each.status.value for each in ended] == ["error", "error"]
        assert all((each.error_message or "").startswith("CollectionNotFoundError: ") for each in ended)


def test_below_the_threshold_a_case_has_failed(server: WireServer) -> None:
    """Also if no chunk of the collection reaches it."""
    with opened(server) as index:
        (ended,) = file.RetrievalTester({"book": index}).run([case(relevance_threshold=1.0)]).test_results
    assert ended.status.value == "failed"
    assert (ended.error_message or "").startswith("RelevanceError: ")


def test_rates_are_in_the_dictionary_of_a_suite(server: WireServer) -> None:
    """With everything else that dataclasses.asdict gives."""
    with opened(server) as index:
        cases = [case(), case(name="b", relevance_threshold=1.0), case(name="c", expected_doc_ids=["none"])]
        told = asdict(file.RetrievalTester({"book": index}).run(cases))
    assert (told["pass_rate"], told["failure_rate"]) == pytest.approx((100 / 3, 100 / 3))
    assert told["degraded"] == ()
    assert all("degraded" in each for each in told["test_results"])
    assert all("degraded" in each for each in told["test_results"][0]["actual_results"])
