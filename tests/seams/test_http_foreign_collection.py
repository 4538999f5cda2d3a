"""The service over HTTP on a Qdrant collection that another program filled: where chunks are from, and validation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")
pytest.importorskip("qdrant_client", reason="the extra 'qdrant' is not installed")
pytest.importorskip("jsonschema", reason="the group 'test-qdrant' is not installed")

import httpx2
from qdrant_client import models

from retrieval_core import Document, load_config, open_index
from retrieval_core.testing.fakes import FakeEmbedder
from support.http_process import http_process
from support.qdrant_service import KEY, QdrantService
from support.wire_server import WireServer

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")

FAKE = "retrieval_core.testing.fakes:FakeEmbedder"
QUERY = "what is a robot operating system"
POINTS = {
    "6f9619ff-8b86-4d01-b42d-00cf4fc964ff": {
        "content": "ROS 2 is a robot operating system framework",
        "source_url": "https://example.com/ros2-intro",
        "chunk_id": 3,
        "chunk_index": 2,
        "total_chunks": 10,
        "timestamp": "2025-12-10T15:30:00",
        "embedding_model": "embed-multilingual-v3.0",
    },
    "0666a40d-9b66-4e49-9045-3bf479f55338": {
        "content": "Robots that walk need an operating budget",
        "url": "https://example.com/walking",
        "chunk_id": "walk-1",
        "timestamp": "2025-12-10T17:30:00+02:00",
    },
    "1666a40d-9b66-4e49-9045-3bf479f55338": {
        "content": "The system of a robot has sensors",
        "source_url": "not a URL",
        "timestamp": "yesterday",
    },
}


def collection() -> QdrantService:
    """Return a server with the points as another program writes them."""
    service = QdrantService()
    embedder = FakeEmbedder()
    parameters = models.VectorParams(size=embedder.dimension, distance=models.Distance.COSINE)
    service.client.create_collection("textbook", vectors_config=parameters)
    service.indexes["textbook"] = {}
    for name, payload in POINTS.items():
        vector = asyncio.run(embedder.embed_query(str(payload["content"]))).tolist()
        service.client.upsert("textbook", [models.PointStruct(id=name, vector=vector, payload=payload)])
    return service


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """A service over the collection."""
    folder = tmp_path_factory.mktemp("textbook")
    with WireServer(collection()) as server:
        config = folder / "config.toml"
        config.write_text(
            f'[embedder]\nkind = "{FAKE}"\n[search]\nmode = "dense"\n[store]\nkind = "qdrant"\n'
            f'[store.qdrant]\nurl = "{server.url}"\ncollection = "textbook"\n'
            '[store.qdrant.fields]\ntext = "content"\n'
        )
        with http_process("--config", str(config), environment={"QDRANT_API_KEY": KEY}, folder=folder) as running:
            yield running.url


@pytest.fixture(scope="module")
def found(url: str) -> dict[str, Any]:
    """What a search returns, by the id of the point."""
    answer = httpx2.post(f"{url}/v1/search", json={"query_text": QUERY, "top_k": 5}, timeout=60)
    assert answer.status_code == 200, answer.text
    return {each["metadata"]["chunk_id"]: each["metadata"] for each in answer.json()["results"]}


def test_the_url_is_that_of_the_source(found: dict[str, Any]) -> None:
    """Whichever of the two usual fields has it; what is no URL is not passed off as one."""
    ros, walking, sensors = (found[name] for name in POINTS)
    assert ros["url"] == "https://example.com/ros2-intro"
    assert walking["url"] == "https://example.com/walking"
    assert sensors["url"].startswith("urn:retrieval:")


def test_the_timestamp_and_the_chunk_id_of_the_payload_are_there(found: dict[str, Any]) -> None:
    """The time in UTC; the payload's own number or name beside the id by which the service finds the chunk."""
    ros, walking, sensors = (found[name] for name in POINTS)
    assert (ros["timestamp"], ros["payload_chunk_id"]) == ("2025-12-10T15:30:00Z", 3)
    assert (walking["timestamp"], walking["payload_chunk_id"]) == ("2025-12-10T15:30:00Z", "walk-1")
    assert not {"timestamp", "payload_chunk_id"} & sensors.keys()


@pytest.mark.parametrize("name", POINTS)
def test_a_chunk_that_can_be_read_can_be_validated(url: str, name: str) -> None:
    """There is no original: the answer is no error, and says that nothing was compared."""
    read = httpx2.get(f"{url}/v1/chunks/{name}", timeout=60).json()
    assert read["metadata"]["chunk_id"] == name
    answer = httpx2.post(f"{url}/v1/chunks/{name}/validate", timeout=60)
    assert answer.status_code == 200, answer.text
    result = answer.json()
    assert result["stored_text"] == read["text"] == POINTS[name]["content"]
    assert (result["matches"], result["validation_passed"], result["original_text"]) == (False, False, "")
    assert "no original to compare with" in result["mismatch_details"]
    assert httpx2.post(f"{url}/v1/chunks/{name[:-1]}9/validate", timeout=60).status_code == 404


def test_the_source_of_an_own_index_is_the_url_too(tmp_path: Path) -> None:
    """A document whose source is a web address, without a field that says so."""
    config = tmp_path / "config.toml"
    config.write_text(f'[embedder]\nkind = "{FAKE}"\n')
    source = "https://example.com/moon?lang=en"
    with open_index(config=load_config(config, {"index": str(tmp_path / "index.db")}, {})) as index:
        index.add_documents([Document("moon", "The moon has no air.", source=source, content_hash="")])
    with http_process("--config", str(config), "--index", str(tmp_path / "index.db")) as running:
        answer = httpx2.post(f"{running.url}/v1/search", json={"query_text": "moon"}, timeout=60).json()
        assert [each["metadata"]["url"] for each in answer["results"]] == [source]
