"""``documents()`` lists what an index contains, on every store and over several indexes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import Chunk, Document, RetrievalPipeline, load_config, open_index, open_indexes
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.errors import IndexNotFoundError, SearchError, StoreError
from retrieval_core.testing.fakes import FakeEmbedder

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core import Index

STORES = {
    "sqlite": {"store.kind": "sqlite"},
    "memory": {"store.kind": "memory"},
    "lancedb": {"store.kind": "lancedb"},
    "qdrant": {"store.kind": "qdrant", "store.qdrant.path": ":memory:"},
}
PACKAGES = {"lancedb": "lancedb", "qdrant": "qdrant_client"}


@pytest.fixture(params=STORES)
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Yield a new index on each store."""
    if request.param in PACKAGES and find_spec(PACKAGES[request.param]) is None:
        pytest.skip(f"the extra {request.param!r} is not installed")
    with open_index(tmp_path / "index", config=load_config("lexical", STORES[request.param])) as index:
        yield index


def test_documents_are_listed_by_id(index: Index) -> None:
    """Each document has its id, title, source, number of chunks and metadata, whether it came as text or as chunks."""
    long = "\n\n".join(f"Paragraph {number} about the moon, {'and so on, ' * 60}" for number in range(5))
    index.add_documents([Document("b", "One text.", title="B", metadata={"year": 2026}), Document("a", long, "a.txt")])
    index.add([Chunk("faq-1", "faq", "Refunds take five days."), Chunk("faq-2", "faq", "Returns are free.")])
    first, second, third = index.documents()
    assert (first.id, first.source) == ("a", "a.txt")
    assert first.chunks > 1
    assert (second.id, second.title, second.source, second.chunks) == ("b", "B", "b", 1)
    assert second.metadata == {"year": 2026}
    assert (third.id, third.source, third.chunks, third.source_index) == ("faq", None, 2, None)
    index.delete("a")
    assert [document.id for document in index.documents()] == ["b", "faq"]


def test_documents_of_files(index: Index, tmp_path: Path) -> None:
    """Files are listed with the title and the source that results name."""
    (tmp_path / "docs").mkdir()
    for name in ("moon", "sun"):
        (tmp_path / "docs" / f"{name}.md").write_text(f"# The {name}\n\nThe {name} is far away.\n")
    index.ingest(tmp_path / "docs")
    listed = {document.id: (document.title, document.source, document.chunks) for document in index.documents()}
    hits = {hit.chunk.document_id: (hit.chunk.title, hit.chunk.source, 1) for hit in index.retrieve("far away").hits}
    assert listed == hits
    assert len(listed) == 2


def test_more_documents_than_a_page(tmp_path: Path) -> None:
    """Every document of a large index is listed once, in order."""
    names = [f"d{number:04}" for number in range(1_050)]
    with open_index(tmp_path / "index.db", config="lexical") as index:
        index.add_documents(Document(name, f"Text of {name}") for name in reversed(names))
        assert [document.id for document in index.documents()] == names


def test_documents_may_be_left_early_and_read_again(tmp_path: Path) -> None:
    """A loop may stop after the first document; the index can be used and closed afterwards."""
    with open_index(tmp_path / "index.db", config="lexical") as index:
        index.add_documents(Document(name, name) for name in "abc")
        assert next(iter(index.documents())).id == "a"
        assert len(list(index.documents())) == 3
    with pytest.raises(StoreError, match="closed"):
        list(index.documents())


def test_documents_of_an_empty_document(tmp_path: Path) -> None:
    """A document without text has no chunks, and is listed."""
    with open_index(tmp_path / "index.db", config="lexical") as index:
        index.add_documents([Document("empty", ""), Document("full", "Text.")])
        assert [(document.id, document.chunks) for document in index.documents()] == [("empty", 0), ("full", 1)]


def test_documents_of_several_indexes(tmp_path: Path) -> None:
    """Documents of several indexes are listed index by index, each with the name of its index."""
    for name in ("news", "docs"):
        with open_index(tmp_path / f"{name}.db", config="lexical") as index:
            index.add_documents([Document("b", f"Text of {name}"), Document("a", f"Text of {name}")])
    with open_indexes([tmp_path / "news.db", tmp_path / "docs.db"], config="lexical") as both:
        listed = [(document.source_index, document.id) for document in both.documents()]
    assert listed == [("news", "a"), ("news", "b"), ("docs", "a"), ("docs", "b")]


def test_a_missing_index_has_no_list(tmp_path: Path) -> None:
    """A mistyped path is an error that names it, and not an empty list."""
    with (
        open_index(tmp_path / "mistyped.db", config="lexical") as index,
        pytest.raises(IndexNotFoundError, match="mist"),
    ):
        list(index.documents())


def test_a_store_that_cannot_list_says_so() -> None:
    """A custom store without ``document_ids`` raises a store error that says what it lacks."""

    class Bare:
        async def search(self, request: object) -> tuple[()]:
            return ()

        async def fetch(self, request: object) -> None: ...

        async def describe(self) -> None: ...

    with RetrievalPipeline(Bare()) as pipeline, pytest.raises(StoreError, match=r"Bare.*document_ids\(\)"):  # pyright: ignore[reportArgumentType]
        list(pipeline.documents())


@pytest.mark.parametrize("ids", [[1, 2], None, "ab"])
def test_a_store_that_lists_no_ids_is_named(ids: object) -> None:
    """Ids that aren't strings would be sorted and looked up, and nobody would know why nothing is found."""

    class Odd(MemoryStore):
        async def _document_ids(self) -> Any:
            return ids

    with RetrievalPipeline(Odd()) as pipeline, pytest.raises(SearchError, match=r"expected a list of ids, got"):
        list(pipeline.documents())


def test_documents_in_pinecone() -> None:
    """Pinecone lists what this library wrote; an index that another program filled is refused."""
    pytest.importorskip("pinecone", reason="the extra 'pinecone' is not installed")
    from support.pinecone_service import PineconeService
    from support.pinecone_support import store_of
    from support.wire_server import WireServer

    embedder = FakeEmbedder()
    with WireServer(PineconeService(embedder.dimension)) as server:
        store = store_of(server, embedder_id=embedder.id, dimension=embedder.dimension)
        with open_index(store=store, embedder=embedder) as index:
            assert list(index.documents()) == []
            index.add_documents([Document("b", "One text."), Document("a", "Another text.")])
            assert [(document.id, document.chunks) for document in index.documents()] == [("a", 1), ("b", 1)]


def test_documents_of_another_programs_collection(tmp_path: Path) -> None:
    """In a Qdrant collection that another program filled, a record without a document's ID is a document of its own."""
    qdrant = pytest.importorskip("qdrant_client", reason="the extra 'qdrant' is not installed")
    models, embedder = qdrant.models, FakeEmbedder(8)
    client = qdrant.QdrantClient(path=str(tmp_path / "qdrant"))
    size = models.VectorParams(size=embedder.dimension, distance=models.Distance.COSINE)
    client.create_collection("docs", vectors_config=size)
    point = models.PointStruct(id=1, vector=[1.0] * embedder.dimension, payload={"text": "One text."})
    client.upsert("docs", [point])
    client.close()
    places = {"path": str(tmp_path / "qdrant"), "collection": "docs", "fields": {"text": "text"}}
    config = load_config(overrides={"store.kind": "qdrant", "store.qdrant": places})
    with open_index(config=config, embedder=embedder) as index:
        (hit,) = index.retrieve("one text", mode="dense").hits
        assert [document.id for document in index.documents()] == [hit.chunk.document_id] == ["1"]
