"""A tester of the specification's own Qdrant collection, for readers who have only the specification."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("qdrant_client", reason="the extra 'qdrant' is not installed")
pytest.importorskip("jsonschema", reason="the group 'test-qdrant' is not installed")
pytest.importorskip("cohere", reason="the extra 'cohere' is not installed")

import httpx
from cohere import ClientV2
from qdrant_client import QdrantClient, models

from retrieval_core.compat.retrieval_tests import (
    CollectionInfo,
    CollectionNotFoundError,
    ConnectionError,  # noqa: A004 - the file's name
    DimensionMismatchError,
    RetrievalQuery,
    RetrievalTester,
    TestCase,
)
from retrieval_core.errors import ConfigurationError
from retrieval_core.testing.fakes import FakeEmbedder
from support.cohere_service import KEY as COHERE_KEY
from support.cohere_service import CohereService
from support.page_examples import assert_prints, expected_output
from support.qdrant_service import KEY as QDRANT_KEY
from support.qdrant_service import QdrantService
from support.wire_server import WireServer

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")

PAGE = Path(__file__).parents[2] / "docs/dev/specification.md"
COLLECTION = "textbook_embeddings"
URL = "https://example.com/ros2-intro"
TEXTS = {
    "0b0c7e0a-6f3c-4d0c-9b43-2f6f0c1d2e01": "ROS 2 is a robot operating system framework.",
    "0b0c7e0a-6f3c-4d0c-9b43-2f6f0c1d2e02": "A node publishes messages on a topic.",
}
QUERY = "What is ROS 2?"
CASE = TestCase("test_ros2_basics", QUERY, COLLECTION, [URL], ["ROS 2", "operating system"], 0.3, 5)


@pytest.fixture
def vendor() -> Iterator[WireServer]:
    """Yield Cohere's API."""
    with WireServer(CohereService()) as server:
        yield server


@pytest.fixture
def qdrant(vendor: WireServer) -> Iterator[WireServer]:
    """Yield a Qdrant server with the collection, filled by the clients of the two services only."""
    with httpx.Client() as client:
        cohere = ClientV2(api_key=COHERE_KEY, base_url=vendor.url, httpx_client=client)
        answer: Any = cohere.embed(
            texts=list(TEXTS.values()),
            model="embed-multilingual-v3.0",
            input_type="search_document",
            embedding_types=["float"],
        )
    with WireServer(QdrantService()) as server:
        database = QdrantClient(url=server.url, api_key=QDRANT_KEY, check_compatibility=False)
        size = models.VectorParams(size=1024, distance=models.Distance.COSINE)
        database.create_collection(COLLECTION, vectors_config=size)
        points = [
            models.PointStruct(
                id=name,
                vector=vector,
                payload={
                    "content": text,
                    "source_url": URL,
                    "chunk_id": number + 1,
                    "chunk_index": number,
                    "total_chunks": len(TEXTS),
                    "timestamp": "2025-12-10T15:30:00",
                    "embedding_model": "embed-multilingual-v3.0",
                },
            )
            for number, ((name, text), vector) in enumerate(zip(TEXTS.items(), answer.embeddings.float_, strict=True))
        ]
        database.upsert(COLLECTION, points)
        database.close()
        yield server


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the keys of both services, as a user does."""
    monkeypatch.setenv("QDRANT_API_KEY", QDRANT_KEY)
    monkeypatch.setenv("CO_API_KEY", COHERE_KEY)


def stand_in(vendor: WireServer) -> dict[str, str]:
    """Return the settings that lead to the stand-in for Cohere."""
    return {"embedder.cohere.base_url": vendor.url, "embedder.cohere.api_key": COHERE_KEY}


def test_the_files_collection_is_searched_and_tested(qdrant: WireServer, vendor: WireServer) -> None:
    """Info, search and cases."""
    with RetrievalTester.at_qdrant(qdrant.url, COLLECTION, settings=stand_in(vendor)) as tester:
        assert tester.info(COLLECTION) == CollectionInfo(COLLECTION, 1024, "Cosine", 2, 2, "green")
        vector = tester.embed(COLLECTION, QUERY)
        results = tester.search(RetrievalQuery(COLLECTION, vector, filters={"source_url": URL}))
        assert [result.id for result in results] == list(TEXTS)
        assert results[0].payload["content"] == TEXTS[str(results[0].id)]
        assert results[0].payload["chunk_id"] == 1
        assert tester.search(RetrievalQuery(COLLECTION, vector, filters={"source_url": "https://other.example"})) == []
        result = tester.run([CASE])
    assert (result.passed, result.test_results[0].error_message) == (1, None)


def test_the_example_of_the_page_runs(
    qdrant: WireServer, vendor: WireServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It prints what the page says."""
    opened = partial(RetrievalTester.at_qdrant, settings=stand_in(vendor))
    monkeypatch.setattr(RetrievalTester, "at_qdrant", opened)
    section = PAGE.read_text(encoding="utf-8").partition("## Test suites")[2]
    code = section.partition("```py\n")[2].partition("```\n")[0]
    exec(code.replace("http://localhost:6333", qdrant.url), {})
    assert_prints(capsys.readouterr().out, expected_output(code))


def test_keys_and_embedder_can_be_given(qdrant: WireServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Your own embedder needs no key of Cohere."""
    monkeypatch.delenv("QDRANT_API_KEY")
    monkeypatch.delenv("CO_API_KEY")
    more: dict[str, Any] = {"api_key": QDRANT_KEY, "embedder": FakeEmbedder(1024), "latency_ms": 60_000.0}
    with RetrievalTester.at_qdrant(qdrant.url, COLLECTION, **more) as tester:
        assert tester.info(COLLECTION).points_count == 2


def test_an_address_that_is_not_there_is_a_connection_error(qdrant: WireServer) -> None:
    """After all attempts; here it is made once."""
    qdrant.refuse()
    with pytest.raises(ConnectionError):
        RetrievalTester.at_qdrant(qdrant.url, COLLECTION, settings={"retry.max_retries": 0})


def test_a_missing_collection_is_not_found(qdrant: WireServer) -> None:
    """Its name is in the message."""
    with pytest.raises(CollectionNotFoundError, match="nowhere"):
        RetrievalTester.at_qdrant(qdrant.url, "nowhere")


def test_a_wrong_vector_size_is_a_mismatch(qdrant: WireServer) -> None:
    """Both sizes are in the message, before anything is searched."""
    with pytest.raises(DimensionMismatchError, match=r"1024 components and got 1536") as caught:
        RetrievalTester.at_qdrant(qdrant.url, COLLECTION, embedding_model="embed-v4.0")
    assert (caught.value.expected, caught.value.actual) == (1024, 1536)


def test_a_missing_key_is_named(qdrant: WireServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which one."""
    monkeypatch.delenv("CO_API_KEY")
    with pytest.raises(ConfigurationError, match="CO_API_KEY"):
        RetrievalTester.at_qdrant(qdrant.url, COLLECTION)
