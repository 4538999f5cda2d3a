"""A Qdrant collection whose program counted the chunks of a document from 1 is tested like any other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("qdrant_client", reason="the extra 'qdrant' is not installed")

from qdrant_client import QdrantClient, models

from retrieval_core import load_config, open_index
from retrieval_core.compat.retrieval_tests import RetrievalTester, TestCase
from retrieval_core.testing.fakes import FakeEmbedder

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ("ROS 2 is a robot operating system.", "A node publishes messages.", "Gazebo simulates a world.")


def test_a_case_passes(tmp_path: Path) -> None:
    """The last chunk has the index 3 of 3, which is no error."""
    client = QdrantClient(path=str(tmp_path))
    client.create_collection("book", vectors_config=models.VectorParams(size=64, distance=models.Distance.COSINE))
    rows = asyncio.run(FakeEmbedder(64).embed_texts(list(TEXTS))).tolist()
    client.upsert(
        "book",
        [
            models.PointStruct(
                id=number,
                vector=row,
                payload={"content": text, "source_url": "https://a.example", "chunk_index": number, "total_chunks": 3},
            )
            for number, (text, row) in enumerate(zip(TEXTS, rows, strict=True), start=1)
        ],
    )
    client.close()
    settings = {"store.kind": "qdrant", "store.qdrant.path": str(tmp_path), "store.qdrant.collection": "book"}
    config = load_config(overrides={**settings, "store.qdrant.fields": "default"})
    with open_index(config=config, embedder=FakeEmbedder(64)) as index:
        case = TestCase("robots", "robot operating system", "book", ["https://a.example"], [], 0.0, 5)
        result = RetrievalTester({"book": index}).run([case])
    assert (result.passed, result.test_results[0].error_message) == (1, None)
    assert {found.payload["chunk_index"] for found in result.test_results[0].actual_results or ()} == {1, 2, 3}
