"""Collections that another program filled with the payload of the test-suite file, read by names or by a mapping."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("qdrant_client", reason="the extra 'qdrant' is not installed")
pytest.importorskip("jsonschema", reason="the group 'test-qdrant' is not installed")
pytest.importorskip("pinecone", reason="the extra 'pinecone' is not installed")

from pinecone import Pinecone
from qdrant_client import QdrantClient, models

from retrieval_core import load_config, open_index
from retrieval_core.compat.retrieval_tests import CollectionNotFoundError, RetrievalQuery, RetrievalTester, TestCase
from retrieval_core.ports import ChunkRange, FetchRequest
from retrieval_core.testing.fakes import FakeEmbedder
from support.pinecone_service import KEY as PINECONE_KEY
from support.pinecone_service import PineconeService
from support.qdrant_service import KEY as QDRANT_KEY
from support.qdrant_service import QdrantService
from support.wire_server import WireServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from retrieval_core import Index

pytestmark = pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")

DIMENSION = 64
URL = "https://example.com/ros2-intro"
OTHER_URL = "https://example.com/gazebo"
POINTS: tuple[dict[str, Any], ...] = tuple(
    {
        "content": text,
        "source_url": url,
        "chunk_id": number + 1,
        "chunk_index": position,
        "total_chunks": total,
        "timestamp": "2025-12-10T15:30:00",
        "embedding_model": "embed-multilingual-v3.0",
    }
    for number, (url, position, total, text) in enumerate(
        [
            (URL, 0, 2, "ROS 2 is a robot operating system framework."),
            (URL, 1, 2, "A node publishes messages on a topic."),
            (OTHER_URL, 0, 1, "Gazebo simulates the physics of a world."),
        ]
    )
)
FIELDS = tuple(POINTS[0])
IDS = ("0b0c7e0a-6f3c-4d0c-9b43-2f6f0c1d2e01", "0b0c7e0a-6f3c-4d0c-9b43-2f6f0c1d2e02", "7")
OTHER_NAMES = {
    "content": "body",
    "source_url": "link",
    "chunk_id": "nr",
    "chunk_index": "at",
    "total_chunks": "of_all",
    "timestamp": "made",
    "embedding_model": "model",
}
OURS = {"content": "text", "source_url": "source"}
MAPPING = {OURS.get(name, name): other for name, other in OTHER_NAMES.items()}
QUERY = "What is the robot operating system framework?"


def vectors(texts: list[str]) -> list[list[float]]:
    """Return the vectors of texts, as the other program computed them."""
    return asyncio.run(FakeEmbedder(DIMENSION).embed_texts(texts)).tolist()


def payloads(without: str | None = None, names: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return the payloads of all points: without one field, or with other names."""
    return [
        {(names or {}).get(name, name): value for name, value in point.items() if name != without} for point in POINTS
    ]


class Written:
    """A collection of one of the two services, and the settings that reach it."""

    def __init__(self, kind: str, settings: dict[str, Any], key: str) -> None:
        self.kind = kind
        self.settings = settings
        self.environment = {f"{kind.upper()}_API_KEY": key}

    def open(self, **more: Any) -> Index:
        """Open the collection through this library."""
        given = {"cache.kind": "none", **self.settings, **{f"store.{self.kind}.{k}": v for k, v in more.items()}}
        config = load_config(overrides=given, environment=self.environment)
        return open_index(config=config, embedder=FakeEmbedder(DIMENSION))


def fill_qdrant(client: QdrantClient, payload: list[dict[str, Any]], distance: str = "Cosine") -> None:
    """Write a collection as Qdrant's own client does."""
    size = models.VectorParams(size=DIMENSION, distance=models.Distance(distance))
    client.create_collection("textbook_embeddings", vectors_config=size)
    texts = [point["content"] for point in POINTS]
    points = [
        models.PointStruct(id=int(name) if name.isdigit() else name, vector=vector, payload=one)
        for name, vector, one in zip(IDS, vectors(texts), payload, strict=True)
    ]
    client.upsert("textbook_embeddings", points)


def qdrant(server: WireServer, payload: list[dict[str, Any]]) -> Written:
    """Fill a Qdrant server over HTTP."""
    client = QdrantClient(url=server.url, api_key=QDRANT_KEY, check_compatibility=False)
    fill_qdrant(client, payload)
    client.close()
    at = {"store.kind": "qdrant", "store.qdrant.url": server.url, "store.qdrant.collection": "textbook_embeddings"}
    return Written("qdrant", at, QDRANT_KEY)


def pinecone(server: WireServer, payload: list[dict[str, Any]]) -> Written:
    """Fill a Pinecone index through Pinecone's own client."""
    index = Pinecone(api_key=PINECONE_KEY).Index(host=server.url)
    texts = [point["content"] for point in POINTS]
    records = [
        {"id": name, "values": vector, "metadata": one}
        for name, vector, one in zip(IDS, vectors(texts), payload, strict=True)
    ]
    index.upsert(vectors=records, namespace="book")
    index.close()
    at = {"store.kind": "pinecone", "store.pinecone.host": server.url, "store.pinecone.namespace": "book"}
    return Written("pinecone", at, PINECONE_KEY)


@pytest.fixture(params=["qdrant", "pinecone"])
def service(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Yield a function that fills one of the two services with payloads."""
    made = QdrantService() if request.param == "qdrant" else PineconeService(DIMENSION)
    with WireServer(made) as server:
        fill = qdrant if request.param == "qdrant" else pinecone

        def filled(payload: list[dict[str, Any]]) -> Written:
            return fill(server, payload)

        yield filled


def search(index: Index, **more: Any) -> list[Any]:
    """Search the collection with the file's own class."""
    tester = RetrievalTester({"book": index})
    return tester.search(RetrievalQuery("book", tester.embed("book", QUERY), top_k=3, **more))


@pytest.mark.parametrize("fields", [{}, {"fields": "default"}])
def test_the_seven_fields_of_the_file_come_back_as_they_were_written(service: Any, fields: dict[str, str]) -> None:
    """Every field of the payload is in the result's payload, without any mapping too, as the other program wrote it."""
    written = service(payloads())
    with written.open(**fields) as index:
        results = search(index)
        assert results[0].id == IDS[0]
        by_id = {result.id: result.payload for result in results}
        for name, point in zip(IDS, POINTS, strict=True):
            assert {field: by_id[name][field] for field in FIELDS} == point
            assert type(by_id[name]["chunk_id"]) is int
        hit = index.retrieve(QUERY).hits[0]
        assert (hit.chunk.source, hit.chunk.document_id) == (URL, URL)


def test_llamaindex_lists_and_searches_the_nodes(service: Any) -> None:
    """Without ids they are found by their vectors, since the documents of another program can't be listed."""
    pytest.importorskip("llama_index.vector_stores.retrieval_core", reason="the LlamaIndex plug-in is not installed")
    from llama_index.core.vector_stores import MetadataFilter, MetadataFilters, VectorStoreQuery

    from llama_index.vector_stores.retrieval_core import RetrievalCoreVectorStore

    def where(position: int) -> MetadataFilters:
        return MetadataFilters(filters=[MetadataFilter(key="chunk_index", value=position)])

    async def asynchronously() -> None:
        async with written.open(fields="default") as index:
            store = RetrievalCoreVectorStore(index.store)
            assert {node.get_content() for node in await store.aget_nodes()} == {point["content"] for point in POINTS}
            assert [node.node_id for node in await store.aget_nodes(filters=where(1))] == [IDS[1]]
            assert [node.node_id for node in await store.aget_nodes([IDS[0]])] == [IDS[0]]
            query = VectorStoreQuery(query_embedding=vector, similarity_top_k=1)
            assert (await store.aquery(query)).ids == [IDS[0]]

    written, (vector,) = service(payloads()), vectors([POINTS[0]["content"]])
    asyncio.run(asynchronously())


@pytest.mark.parametrize("lacks", [name for name in FIELDS if name != "content"])
def test_a_field_that_the_collection_lacks_is_absent(service: Any, lacks: str) -> None:
    """A missing field is not in the payload, and the search still works."""
    written = service(payloads(without=lacks))
    with written.open(fields="default") as index:
        first = search(index)[0]
        assert first.id == IDS[0]
        expected = {name: value for name, value in POINTS[0].items() if name != lacks}
        assert {name: value for name, value in first.payload.items() if name in FIELDS} == expected


@pytest.mark.parametrize("lacks", [None, *[name for name in FIELDS if name != "content"]])
def test_other_names_are_mapped(service: Any, lacks: str | None) -> None:
    """With a mapping, the file's names are in the payload, whatever the collection calls them."""
    written = service(payloads(without=lacks, names=OTHER_NAMES))
    with written.open(fields=MAPPING) as index:
        first = search(index)[0]
        expected = {name: value for name, value in POINTS[0].items() if name != lacks}
        assert {name: value for name, value in first.payload.items() if name in FIELDS} == expected


def test_a_collection_on_disk_is_read_like_one_on_a_server(tmp_path: Path) -> None:
    """The local mode of Qdrant's client holds the same collection."""
    client = QdrantClient(path=str(tmp_path / "q"))
    fill_qdrant(client, payloads())
    client.close()
    at = {"store.kind": "qdrant", "store.qdrant.path": str(tmp_path / "q")}
    written = Written("qdrant", at, "")
    with written.open(collection="textbook_embeddings", fields="default") as index:
        assert {name: search(index)[0].payload[name] for name in FIELDS} == POINTS[0]


@pytest.mark.parametrize("name", ["source_url", "url"])
def test_both_names_of_the_source_are_known(service: Any, name: str) -> None:
    """The two files call the source differently; either is found without a mapping."""
    written = service(payloads(names={"source_url": name}))
    with written.open(fields="default") as index:
        assert index.retrieve(QUERY).hits[0].chunk.source == URL
        assert search(index)[0].payload["source_url"] == URL
        narrowed = index.retrieve(QUERY, {"source": OTHER_URL}).hits
        assert [hit.chunk.source for hit in narrowed] == [OTHER_URL]


def test_a_case_passes_and_fails_on_somebody_elses_collection(service: Any) -> None:
    """Documents are known by their URL, or by the id of a point."""
    written = service(payloads())
    with written.open(fields="default") as index:
        cases = [
            TestCase("by url", QUERY, "book", [URL], ["robot"], 0.3, 2),
            TestCase("by point", QUERY, "book", [IDS[0]], ["robot"], 0.3, 2),
            TestCase("too low", QUERY, "book", [OTHER_URL], [], 0.3, 1),
            TestCase("nowhere", QUERY, "book", ["https://example.com/none"], [], 0.3, 1),
        ]
        run = RetrievalTester({"book": index}).run(cases)
        ended = {case.name: (case.status.value, (case.error_message or "").split(":")[0]) for case in run.test_results}
        assert ended == {
            "by url": ("passed", ""),
            "by point": ("passed", ""),
            "too low": ("failed", "MissingDocumentError"),
            "nowhere": ("error", "InvalidParameterError"),
        }


def test_positions_may_be_text(service: Any) -> None:
    """A collection whose chunk_index is text, such as "1", has its documents, chunks and neighbours."""
    textual = [{**point, "chunk_index": str(point["chunk_index"])} for point in payloads()]
    written = service(textual)
    with written.open(fields="default") as index:
        cases = [TestCase(url, QUERY, "book", [url], [], 0.0, 3) for url in (URL, OTHER_URL)]
        run = RetrievalTester({"book": index}).run(cases)
        assert [(case.status.value, case.error_message) for case in run.test_results] == [("passed", None)] * 2
        positions = {hit.id: (hit.chunk.chunk_index, hit.chunk.total_chunks) for hit in index.retrieve(QUERY).hits}
        assert positions == dict(zip(IDS, [(0, 2), (1, 2), (0, 1)], strict=True))
        neighbour = FetchRequest(ranges=(ChunkRange(URL, 1, 1),))
        assert list(index.sync.run(index.store.fetch(neighbour)).chunks) == [IDS[1]]


@pytest.mark.slow
@pytest.mark.parametrize(("keyword", "code", "status"), [("robot", 0, "passed"), ("zebra", 1, "failed")])
def test_a_suite_runs_from_the_command_line(service: Any, tmp_path: Path, keyword: str, code: int, status: str) -> None:
    """The command ends with 0 if every case passes, and with 1 if one fails."""
    written = service(payloads())
    suite = {
        "name": "book",
        "cases": [
            {
                "name": "basics",
                "query": QUERY,
                "expect": {"documents": [URL], "keywords": [keyword]},
                "relevance_threshold": 0.3,
            }
        ],
    }
    file = tmp_path / "book.retrieval.json"
    file.write_text(json.dumps(suite), encoding="utf-8")
    settings = {
        **written.settings,
        f"store.{written.kind}.fields": "default",
        "embedder.kind": "retrieval_core.testing.fakes:FakeEmbedder",
        "embedder.custom.dimension": DIMENSION,
    }
    config = tmp_path / "retrieval.toml"
    config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()), encoding="utf-8")
    command = [sys.executable, "-m", "retrieval_core.cli", "suite", "run", str(file), "--json", "--config", str(config)]
    environment = {**os.environ, **written.environment}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["results"][0]["status"] == status
    assert report["results"][0]["points"][0]["payload"]["chunk_id"] == 1


def test_what_a_collection_is_comes_from_the_collection(service: Any) -> None:
    """Size, distance, status and counts are those that the service reports."""
    written = service(payloads())
    with written.open(fields="default") as index:
        info = RetrievalTester({"book": index}).info("book")
        assert (info.name, info.vector_size, info.distance_metric) == ("book", DIMENSION, "Cosine")
        assert (info.points_count, info.status) == (3, "green")


@pytest.mark.parametrize(("distance", "told"), [("Dot", "Dot"), ("Euclid", "Euclidean")])
def test_the_distance_is_the_collections_own(distance: str, told: str) -> None:
    """A collection that this library cannot search is described all the same."""
    with WireServer(QdrantService()) as server:
        client = QdrantClient(url=server.url, api_key=QDRANT_KEY, check_compatibility=False)
        fill_qdrant(client, payloads(), distance)
        client.close()
        at = {"store.kind": "qdrant", "store.qdrant.url": server.url, "store.qdrant.collection": "textbook_embeddings"}
        with Written("qdrant", at, QDRANT_KEY).open(fields="default") as index:
            info = RetrievalTester({"book": index}).info("book")
    assert (info.vector_size, info.distance_metric, info.points_count) == (DIMENSION, told, 3)


@pytest.mark.parametrize("fields", [None, "default"])
def test_an_empty_collection_is_empty_and_not_missing(fields: str | None) -> None:
    """It has 0 points and a search finds nothing, while a collection that is not there is an error."""
    with WireServer(QdrantService()) as server:
        client = QdrantClient(url=server.url, api_key=QDRANT_KEY, check_compatibility=False)
        size = models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE)
        client.create_collection("empty", vectors_config=size)
        client.close()
        at = {"store.kind": "qdrant", "store.qdrant.url": server.url}
        written = Written("qdrant", at, QDRANT_KEY)
        more = {} if fields is None else {"fields": fields}
        with written.open(collection="empty", **more) as index:
            tester = RetrievalTester({"book": index})
            info = tester.info("book")
            assert (info.vector_size, info.points_count, info.status) == (DIMENSION, 0, "green")
            assert search(index) == []
            assert index.describe().chunks == 0
            assert index.retrieve(QUERY).hits == ()
        with written.open(collection="nowhere", **more) as index, pytest.raises(CollectionNotFoundError):
            RetrievalTester({"book": index}).info("book")


def test_presets_read_what_frameworks_write() -> None:
    """A preset names the layout of a framework, and a field beside it is mapped in addition."""
    with WireServer(QdrantService()) as server:
        client = QdrantClient(url=server.url, api_key=QDRANT_KEY, check_compatibility=False)
        size = models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE)
        shapes: dict[str, dict[str, Any]] = {
            "langchain": {"page_content": "Robots", "metadata": {"source": URL, "lang": "en"}},
            "haystack": {"content": "Robots", "meta": {"url": URL, "lang": "en"}},
        }
        at = {"store.kind": "qdrant", "store.qdrant.url": server.url}
        for preset, payload in shapes.items():
            client.create_collection(preset, vectors_config=size)
            client.upsert(preset, [models.PointStruct(id=1, vector=vectors(["Robots"])[0], payload=payload)])
            with Written("qdrant", at, QDRANT_KEY).open(collection=preset, fields={"preset": preset}) as index:
                (hit,) = index.retrieve("Robots", {"lang": "en"}).hits
                assert (hit.chunk.text, hit.chunk.source) == ("Robots", URL)
        client.close()
