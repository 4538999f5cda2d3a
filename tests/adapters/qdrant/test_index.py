"""Whole ways through the library with Qdrant: files to answers, and collections of other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("qdrant_client", reason="the extra 'qdrant' is not installed")
pytest.importorskip("jsonschema", reason="the group 'test-qdrant' is not installed")

from qdrant_client import models

from retrieval_core import load_config, open_index, where
from retrieval_core.testing.fakes import FakeEmbedder
from support.qdrant_service import KEY, QdrantService
from support.wire_server import WireServer

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core import Index

pytestmark = pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")


def opened(folder: Path, **store: Any) -> Index:
    overrides = {"index": str(folder / "index.db"), "store.kind": "qdrant", "store.qdrant": store}
    config = load_config(overrides=overrides, environment={"QDRANT_API_KEY": KEY})
    return open_index(config=config, embedder=FakeEmbedder())


def fill(folder: Path) -> Path:
    documents = folder / "documents"
    documents.mkdir()
    (documents / "phone.md").write_text("# Phone\n\nThe phone is sturdy, and its battery lasts.", encoding="utf-8")
    (documents / "lamp.md").write_text("# Lamp\n\nThe lamp is bright. It has a switch.", encoding="utf-8")
    return documents


def check(folder: Path, store: dict[str, Any]) -> None:
    documents = fill(folder)
    with opened(folder, **store) as index:
        assert index.ingest(documents).added == 2
        result = index.retrieve("sturdy phone")
        assert result.hits[0].chunk.document_id == "documents/phone.md"
        assert result.hits[0].scores.lexical is not None
        assert result.hits[0].scores.dense is not None
        assert not result.degraded
        only = index.retrieve("sturdy phone", filters=where(document_id="documents/lamp.md"))
        assert {hit.chunk.document_id for hit in only.hits} == {"documents/lamp.md"}
        assert index.document("documents/lamp.md") is not None
    with opened(folder, **store) as index:
        assert index.ingest(documents).unchanged == 2
        (documents / "lamp.md").write_text("# Lamp\n\nThe lamp is broken.", encoding="utf-8")
        assert index.ingest(documents).updated == 1
        assert "broken" in index.retrieve("lamp").hits[0].chunk.text
        (documents / "lamp.md").unlink()
        assert index.ingest(documents).removed == 1
        assert {hit.chunk.document_id for hit in index.retrieve("lamp").hits} <= {"documents/phone.md"}
        assert index.delete("documents/phone.md") == 1
        assert not index.retrieve("sturdy phone").hits


def test_an_index_in_a_folder(tmp_path: Path) -> None:
    """Files are indexed, found by meaning and by words, changed and removed, in the local mode."""
    check(tmp_path, {"path": str(tmp_path / "qdrant")})


def test_an_index_at_a_server(tmp_path: Path) -> None:
    """The same over Qdrant's protocol."""
    with WireServer(QdrantService()) as server:
        check(tmp_path, {"url": server.url})


def test_a_collection_of_another_program_is_asked(tmp_path: Path) -> None:
    """The default, hybrid, becomes a search by meaning, and says so; neighbours and filters work as far as they can."""
    embedder, service = FakeEmbedder(), QdrantService()
    parameters = models.VectorParams(size=embedder.dimension, distance=models.Distance.COSINE)
    service.client.create_collection("memories", vectors_config={"fast-any": parameters})
    texts = ["The firewall opens ports.", "Lamps are bright."]
    points = [
        models.PointStruct(
            id=number,
            vector={"fast-any": embedder.vector(text).tolist()},
            payload={"document": text, "metadata": {"source": f"{number}.md"}},
        )
        for number, text in enumerate(texts)
    ]
    service.client.upsert("memories", points)
    fields = {"text": "document", "metadata": "metadata", "source": "metadata.source"}
    with WireServer(service) as server, opened(tmp_path, url=server.url, collection="memories", fields=fields) as index:
        result = index.retrieve("firewall ports")
        assert result.hits[0].chunk.text == texts[0]
        assert result.hits[0].chunk.source == "0.md"
        assert result.metadata["mode"] == "dense"
        found = index.retrieve("firewall ports", filters=where(source="1.md"))
        assert [hit.chunk.text for hit in found.hits] == [texts[1]]
