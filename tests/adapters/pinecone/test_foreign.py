"""Indexes that others filled: LlamaIndex, LangChain and programs of the user's own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pinecone", reason="the extra 'pinecone' is not installed")

from retrieval_core.errors import IndexFormatError
from retrieval_core.ports import ChunkRange, FetchRequest, SearchRequest
from retrieval_core.testing.store_kit import DIMENSION
from retrieval_core.testing.store_kit.base import by_vector, unit
from retrieval_core.types.filters import And, Eq, Exists, Filter, Gte, Ne, Not
from support.pinecone_service import PineconeService
from support.pinecone_support import run
from support.wire_server import WireServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from retrieval_core.adapters.stores.pinecone import PineconeStore

REVIEWS = {
    "r1": {
        "review_text": "Great phone",
        "product_name": "Pixel",
        "sku": "p1",
        "part": 0,
        "rating": 5,
        "title": "ours?",
    },
    "r2": {"review_text": "Poor battery", "product_name": "Pixel", "sku": "p1", "part": 1, "rating": 2},
    "r3": {"review_text": "Fine", "product_name": "Nokia", "sku": "n1", "part": 0, "rating": 4},
    "r4": {"review_text": "No name"},
}
FIELDS = {"text": "review_text", "title": "product_name", "document_id": "sku", "chunk_index": "part"}


def reviews() -> PineconeService:
    """Return an index of a user's own making."""
    service = PineconeService(DIMENSION)
    for number, (name, metadata) in enumerate(REVIEWS.items()):
        service.put(name, unit(number), metadata, "phone-reviews")
    return service


def test_fields_are_mapped() -> None:
    """A chunk has its text, title, document and position from the named fields, and keeps the rest as metadata."""

    async def test(store: PineconeStore) -> None:
        found = await store.search(SearchRequest(1, vector=unit(0), with_vectors=True))
        chunk = found[0].chunk
        assert chunk is not None
        assert (chunk.id, chunk.text, chunk.title, chunk.document_id, chunk.chunk_index) == (
            "r1",
            "Great phone",
            "Pixel",
            "p1",
            0,
        )
        assert dict(chunk.metadata) == {name: value for name, value in REVIEWS["r1"].items() if name != "review_text"}
        assert found[0].vector is not None
        assert (await store.fetch(FetchRequest(("r4",)))).chunks["r4"].document_id == "r4"
        info = await store.describe()
        assert (info.chunks, info.documents, info.manifest) == (4, 0, None)
        assert store.id.endswith(", dense")
        sampled = await store.sample_fields()
        assert sampled is not None
        fields, looked_at = sampled
        assert looked_at == 4
        assert {"review_text", "rating", "title", "document_id", "chunk_index"} <= fields
        assert "nothing" not in fields

    with WireServer(reviews()) as server:
        run(server, test, fields=FIELDS, namespace="phone-reviews")


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        (Eq("title", "Pixel"), ["r1", "r2"]),
        (Eq("product_name", "Pixel"), ["r1", "r2"]),
        (Eq("title", "ours?"), []),
        (Ne("title", "Pixel"), ["r3", "r4"]),
        (And((Gte("rating", 4), Not(Eq("document_id", "n1")))), ["r1"]),
        (Exists("rating", False), ["r4"]),
        (Eq("chunk_index", 1), ["r2"]),
    ],
)
def test_filters_on_mapped_and_other_fields(condition: Filter, names: list[str]) -> None:
    """Both our names and the index's own can be filtered by; a mapped name means the field that it is mapped to."""

    async def test(store: PineconeStore) -> None:
        assert sorted(await by_vector(store, unit(0), condition=condition)) == names
        assert sorted((await store.fetch(FetchRequest(tuple(REVIEWS), filter=condition))).chunks) == names

    with WireServer(reviews()) as server:
        run(server, test, fields=FIELDS, namespace="phone-reviews")


def test_neighbours_and_deletion_by_mapped_fields() -> None:
    """Ranges and deletion go by the mapped document and position, and do without where these are not mapped."""

    async def mapped(store: PineconeStore) -> None:
        assert set((await store.fetch(FetchRequest(ranges=(ChunkRange("p1", 0, 5),)))).chunks) == {"r1", "r2"}
        assert await store.delete(["p1"]) == 2
        assert sorted(await by_vector(store, unit(0))) == ["r3", "r4"]

    async def unmapped(store: PineconeStore) -> None:
        assert not (await store.fetch(FetchRequest(ranges=(ChunkRange("p1", 0, 5),)))).chunks
        assert await store.delete(["p1"]) == 0

    with WireServer(reviews()) as server:
        run(server, unmapped, fields={"text": "review_text"}, namespace="phone-reviews")
        run(server, mapped, fields=FIELDS, namespace="phone-reviews")


def test_llamaindex_nodes_are_understood() -> None:
    """With their preset the node's JSON gives text and document, and what stands beside it the metadata."""
    node: dict[str, Any] = {
        "id_": "n1",
        "embedding": None,
        "metadata": {"file_path": "a/b.md", "year": 2020},
        "relationships": {"1": {"node_id": "doc-7", "node_type": "4", "metadata": {}}},
        "text": "The node's text",
        "class_name": "TextNode",
    }
    metadata: dict[str, Any] = {
        "_node_content": json.dumps(node),
        "_node_type": "TextNode",
        "doc_id": "doc-7",
        "document_id": "doc-7",
        "ref_doc_id": "doc-7",
        "file_path": "a/b.md",
        "year": 2020,
    }
    apart = {**metadata, "_node_content": json.dumps({**node, "text": ""}), "text": "The node's text"}
    newer = {
        **metadata,
        "_node_content": json.dumps({**node, "text": None, "text_resource": {"text": "The node's text"}}),
    }
    bare = {"_node_content": json.dumps({**node, "metadata": None}), "year": 2020}

    async def test(store: PineconeStore) -> None:
        found = await store.search(SearchRequest(9, vector=unit(0), filter=Eq("year", 2020)))
        assert [item.chunk_id for item in found] == ["apart", "bare", "newer", "plain"]
        for item in found:
            assert item.chunk is not None
            assert (item.chunk.text, item.chunk.document_id) == ("The node's text", "doc-7")
            assert item.chunk.metadata["year"] == 2020
            assert "_node_content" not in item.chunk.metadata
        assert found[3].chunk is not None
        assert found[3].chunk.source == "a/b.md"

    service = PineconeService(DIMENSION)
    for name, fields in {"plain": metadata, "apart": apart, "newer": newer, "bare": bare}.items():
        service.put(name, unit(0), fields if name != "bare" else {**fields, "text": "The node's text"})
    with WireServer(service) as server:
        run(server, test, fields="llamaindex")


def test_langchain_records_are_understood() -> None:
    """The key ``text`` holds the passage; the rest is metadata. With the preset, the source is the document."""

    def reads(document_id: str) -> Callable[[PineconeStore], Awaitable[None]]:
        async def test(store: PineconeStore) -> None:
            chunk = (await store.search(SearchRequest(1, vector=unit(0))))[0].chunk
            assert chunk is not None
            assert (chunk.text, chunk.source, chunk.document_id) == ("Hello", "x.pdf", document_id)
            assert dict(chunk.metadata) == {"source": "x.pdf", "page": 3.0}

        return test

    service = PineconeService(DIMENSION)
    service.put("u1", unit(0), {"text": "Hello", "source": "x.pdf", "page": 3})
    with WireServer(service) as server:
        run(server, reads("u1"))
        run(server, reads("x.pdf"), fields="langchain")


@pytest.mark.parametrize("metadata", [{}, {"body": "x"}, {"text": 3}, {"_node_content": "{"}, {"_node_content": "[]"}])
def test_a_record_without_text_is_told(metadata: dict[str, Any]) -> None:
    """The error names the record and its fields, and says how to name the one that holds the text."""

    async def test(store: PineconeStore) -> None:
        with pytest.raises(IndexFormatError, match=r"record 'r' has no text in .*fields"):
            await store.search(SearchRequest(1, vector=unit(0)))

    service = PineconeService(DIMENSION)
    service.put("r", unit(0), metadata)
    with WireServer(service) as server:
        run(server, test)


def test_hostile_fields_of_others_are_read_as_text() -> None:
    """Odd kinds where a chunk has text, numbers or paths do no harm."""

    async def test(store: PineconeStore) -> None:
        chunk = (await store.search(SearchRequest(1, vector=unit(0))))[0].chunk
        assert chunk is not None
        assert (chunk.document_id, chunk.chunk_index, chunk.total_chunks, chunk.title) == ("7", 0, 1, None)
        assert chunk.section_path == ("A", "B")

    service = PineconeService(DIMENSION)
    metadata = {"text": "t", "d": 7, "i": 1.5, "n": True, "t": ["x"], "s": ["A", "B"]}
    service.put("r", unit(0), metadata)
    fields = {"document_id": "d", "chunk_index": "i", "total_chunks": "n", "title": "t", "section": "s"}
    with WireServer(service) as server:
        run(server, test, fields=fields)
