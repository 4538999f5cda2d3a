"""The vector store does what LlamaIndex's own one is tested for, and keeps a whole index."""

from __future__ import annotations

import asyncio
import pickle
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, get_args

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core import MockEmbedding, StorageContext, VectorStoreIndex
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.node_parser import TokenTextSplitter
from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageNode,
    IndexNode,
    Node,
    NodeRelationship,
    ObjectType,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores import FilterOperator, MetadataFilter, MetadataFilters, SimpleVectorStore
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from llama_index.embeddings.retrieval_core import RetrievalCoreEmbedding
from llama_index.retrievers.retrieval_core import RetrievalCoreRetriever
from llama_index.retrievers.retrieval_core.adapters import LlamaIndexEmbedder, from_index
from llama_index.vector_stores.retrieval_core import RetrievalCoreVectorStore
from retrieval_core import open_index
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.config import load_config
from retrieval_core.errors import (
    ConfigurationError,
    DimensionMismatchError,
    EmbedderMismatchError,
    IndexFormatError,
    IndexNotFoundError,
    InvalidParameterError,
    StoreError,
)
from retrieval_core.ports import Change, FetchRequest
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.testing.filter_strategies import metadata, texts
from retrieval_core.testing.store_kit import DIMENSION
from retrieval_core.testing.store_kit.base import units
from retrieval_core.types import Chunk, SearchMode
from support.examples import times
from support.llamaindex_library import CHUNKS, Library
from support.pinecone_service import PineconeService
from support.wire_server import WireServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from retrieval_core.ports import Store

MODES = VectorStoreQueryMode


def node(
    name: str, text: str, vector: Sequence[float] = (1.0, 0.0), document: str | None = None, **metadata: Any
) -> TextNode:
    source = {} if document is None else {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)}
    return TextNode(id_=name, text=text, embedding=list(vector), metadata=metadata, relationships=source)


NODES = [
    node("a", "lorem ipsum moon", (1.0, 0.0), "d0", weight=1.0, rank="a"),
    node("b", "lorem ipsum sun", (0.0, 1.0), "d1", weight=2.0, rank="c"),
    node("c", "lorem ipsum", (1.0, 1.0), "d2", weight=3.0, rank="c"),
]


def bare(item: BaseNode) -> BaseNode:
    return item.model_copy(update={"embedding": None})


def asked(mode: str = "default", **arguments: Any) -> VectorStoreQuery:
    given: dict[str, Any] = {"query_embedding": [1.0, 1.0], "query_str": "lorem", "similarity_top_k": 3}
    return VectorStoreQuery(mode=MODES(mode), **{**given, **arguments})


def memory() -> MemoryStore:
    return MemoryStore(embedder_id="m", dimension=2)


@pytest.fixture(params=["memory", "sqlite", "lancedb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RetrievalCoreVectorStore]:
    """A vector store over each store that is on this machine, with three nodes."""
    own: Store
    if request.param == "memory":
        own = memory()
    elif request.param == "sqlite":
        own = SqliteStore(tmp_path / "index.db", embedder_id="m", dimension=2)
    else:
        pytest.importorskip("lancedb")
        from retrieval_core.adapters.stores.lancedb import LanceDBStore

        own = LanceDBStore(tmp_path / "index.lance", embedder_id="m", dimension=2)
    with RetrievalCoreVectorStore(own) as opened:
        opened.add(NODES)
        yield opened
        asyncio.run(own.aclose())


def test_what_the_simple_store_does(store: RetrievalCoreVectorStore) -> None:
    """The best come first with their cosines; limit, ids and filters hold; a deleted document has no nodes."""
    simple = SimpleVectorStore()
    simple.add(NODES)
    ranked = MetadataFilters(filters=[MetadataFilter(key="rank", value="c")])
    queries = [
        asked(),
        asked(similarity_top_k=1),
        asked(filters=ranked),
        asked(filters=ranked, similarity_top_k=1),
        asked(filters=ranked, node_ids=["c"]),
        asked(node_ids=["a", "b", "unknown"]),
        asked(query_embedding=[0.0, 2.0]),
        asked(filters=MetadataFilters(filters=[MetadataFilter(key="unknown", value="c")])),
    ]
    for query in queries:
        result, wanted = store.query(query), simple.query(query)
        assert sorted(result.ids or []) == sorted(wanted.ids or [])
        assert result.similarities == pytest.approx(wanted.similarities, abs=1e-6)
        assert [item.node_id for item in result.nodes or ()] == result.ids
    store.delete("d1")
    simple.delete("d1")
    assert store.query(asked()).ids == simple.query(asked()).ids == ["c", "a"]
    store.delete_nodes(["a", "unknown"])
    assert [bare(item) for item in store.get_nodes()] == [bare(NODES[2])]
    store.add([node("c", "new", (1.0, 1.0), "d2"), node("c", "newest", (0.0, 1.0), "d2")])
    assert [item.get_content() for item in store.get_nodes()] == ["newest"]
    store.clear()
    assert store.get_nodes() == [] == store.query(asked()).ids
    store.clear()
    assert store.add([]) == []
    assert store.add(NODES) == ["a", "b", "c"]
    assert len(store.get_nodes()) == 3


def test_each_mode_has_its_order_and_scores(store: RetrievalCoreVectorStore) -> None:
    """Words find by words, meaning by vectors, and hybrid search moves from one to the other with alpha."""
    dense = store.query(asked())
    words = store.query(asked("text_search", query_str="sun"))
    assert (words.ids, store.query(asked("sparse", query_str="sun"))) == (["b"], words)
    assert words.similarities is not None
    assert words.similarities[0] > 0
    assert store.query(asked("hybrid", query_str="sun", alpha=1)) == dense
    assert store.query(asked("hybrid", query_str="sun", alpha=0)) == words
    by_words = store.query(asked("hybrid", query_str="sun ipsum", query_embedding=[1.0, 0.0], alpha=0.1))
    by_meaning = store.query(asked("hybrid", query_str="sun ipsum", query_embedding=[1.0, 0.0], alpha=0.9))
    assert ((by_words.ids or [])[0], (by_meaning.ids or [])[0]) == ("b", "a")
    one = store.query(asked("hybrid", query_str="sun", hybrid_top_k=1, sparse_top_k=1))
    assert len(one.ids or []) == 1


def test_ids_of_nodes_and_documents_restrict_every_mode(store: RetrievalCoreVectorStore) -> None:
    """Whatever fields of their own the nodes have by the names id and document_id.

    An empty list of nodes restricts nothing, as LlamaIndex gives it with every query; one of documents allows none.
    """
    store.add([node("e", "lorem", (1.0, 1.0), "d9", id="a", document_id="d0"), node("f", "lorem", (1.0, 0.9))])
    for mode in ("default", "mmr", "hybrid", "text_search", "sparse"):
        cases: list[tuple[dict[str, list[str]], set[str]]] = [
            ({"node_ids": ["a", "b"]}, {"a", "b"}),
            ({"doc_ids": ["d0", "d9"]}, {"a", "e"}),
            ({"doc_ids": ["d0"], "node_ids": ["a", "b"]}, {"a"}),
            ({"doc_ids": ["f"]}, {"f"}),
            ({"node_ids": []}, {"a", "b", "c", "e", "f"}),
            ({"doc_ids": [], "node_ids": []}, set()),
            ({"node_ids": ["unknown"]}, set()),
        ]
        for arguments, wanted in cases:
            result = store.query(asked(mode, similarity_top_k=9, **arguments))
            assert set(result.ids or []) == wanted, (mode, arguments)


VECTORS = st.lists(st.tuples(*[st.integers(-3, 3)] * 3).filter(any), min_size=1, max_size=7, unique=True)


@given(VECTORS, st.sampled_from([0.0, 0.3, 0.5, 0.8, 1.0]), st.integers(1, 7))
@settings(max_examples=times(100))
def test_mmr_weighs_relevance_against_likeness(drawn: list[tuple[int, ...]], threshold: float, top_k: int) -> None:
    """Each node is a best one of those that were left, and at a threshold of 1 that is the order by relevance.

    LlamaIndex compares with the node chosen last alone; here it is with all that were chosen (Carbonell and Goldstein).
    """
    vectors = {str(number): np.asarray(vector, dtype=np.float64) for number, vector in enumerate(drawn)}
    unit = {name: vector / np.linalg.norm(vector) for name, vector in vectors.items()}
    query = np.asarray([1.0, 0.2, 0.04])
    query /= np.linalg.norm(query)
    cosines = {name: float(vector @ query) for name, vector in unit.items()}

    async def ask(**arguments: Any) -> Any:
        store = RetrievalCoreVectorStore(MemoryStore(embedder_id="m", dimension=3))
        await store.async_add([node(name, name, vector.tolist()) for name, vector in vectors.items()])
        return await store.aquery(asked("mmr", query_embedding=query.tolist(), similarity_top_k=top_k), **arguments)

    result = asyncio.run(ask(mmr_threshold=threshold))
    assert len(result.ids) == len(set(result.ids)) == min(top_k, len(vectors))
    assert result.similarities == pytest.approx([cosines[name] for name in result.ids], abs=1e-5)
    chosen: list[str] = []
    for name in result.ids:

        def marginal(other: str) -> float:
            likeness = max([0.0, *(float(unit[other] @ unit[former]) for former in chosen)])
            return threshold * max(0.0, cosines[other]) - (1 - threshold) * likeness

        assert marginal(name) == pytest.approx(
            max(marginal(other) for other in vectors if other not in chosen), abs=1e-5
        )
        chosen.append(name)
    if threshold == 1 and min(cosines.values()) > 0:
        best = sorted(cosines.values(), reverse=True)[:top_k]
        assert [cosines[name] for name in result.ids] == pytest.approx(best)


def test_the_threshold_comes_with_the_query_or_beside_it() -> None:
    """LlamaIndex's retriever gives it beside the query, and 0.5 is its default."""
    store = RetrievalCoreVectorStore(memory(), candidates=1)
    store.add([node("a", "a", (1.0, 0.0)), node("b", "b", (1.0, 0.01)), node("c", "c", (0.0, -1.0))])
    two = {"query_embedding": [1.0, -0.5], "similarity_top_k": 2}
    assert store.query(asked("mmr", **two), mmr_prefetch_k=3).ids == ["a", "c"]
    assert store.query(asked("mmr", mmr_threshold=1.0, **two), mmr_prefetch_k=3).ids == ["a", "b"]
    assert store.query(asked("mmr", mmr_threshold=1.0, **two), mmr_threshold=0, mmr_prefetch_k=3).ids == ["a", "c"]
    assert store.query(asked("mmr", **two)).ids == ["a", "b"]  # it chooses from as many as are wanted, at least
    store.close()


@pytest.mark.parametrize(
    ("query", "arguments", "message"),
    [
        *(
            (asked(mode), {}, "not supported; use one of")
            for mode in ("semantic_hybrid", "svm", "linear_regression", "logistic_regression")
        ),
        (asked(query_embedding=None), {}, "needs query_embedding"),
        (asked("mmr", query_embedding=None), {}, "needs query_embedding"),
        (asked("hybrid", query_str=None), {}, "needs query_str"),
        (asked("text_search", query_str=None), {}, "needs query_str"),
        (asked(similarity_top_k=0), {}, "similarity_top_k"),
        (asked("hybrid", alpha=1.5), {}, "alpha"),
        (asked("hybrid", sparse_top_k=0), {}, "sparse_top_k"),
        (asked("hybrid", hybrid_top_k=-1), {}, "hybrid_top_k"),
        (asked("mmr", mmr_threshold=-0.1), {}, "mmr_threshold"),
        (asked("mmr"), {"mmr_prefetch_k": 0}, "mmr_prefetch_k"),
        (asked(output_fields=["rank"]), {}, "output_fields"),
        (asked(embedding_field="title"), {}, "one vector"),
        (asked(), {"namespace": "x"}, "query does not take namespace"),
    ],
)
def test_what_a_query_cannot_have_is_refused(query: VectorStoreQuery, arguments: dict[str, Any], message: str) -> None:
    """With words, and not left out of account."""
    store = RetrievalCoreVectorStore(memory())
    store.add(NODES)
    with pytest.raises(InvalidParameterError, match=message):
        store.query(query, **arguments)
    store.close()


def test_arguments_are_checked_where_they_are_given() -> None:
    """Among them whatever LlamaIndex passes through to stores of other makes."""
    with pytest.raises(InvalidParameterError, match="store must be an object"):
        RetrievalCoreVectorStore("index.db")  # type: ignore[arg-type]
    wrong: list[dict[str, Any]] = [{"candidates": 0}, {"alpha": 2}, {"fusion": "native"}]
    for arguments in wrong:
        with pytest.raises(InvalidParameterError, match=next(iter(arguments))):
            RetrievalCoreVectorStore(memory(), **arguments)
    store = RetrievalCoreVectorStore(memory())
    assert (store.stores_text, store.is_embedding_query, store.class_name()) == (True, True, "RetrievalCoreVectorStore")
    with pytest.raises(InvalidParameterError, match="ids or filters"):
        store.delete_nodes()
    for call in (store.add, store.delete, store.delete_nodes):
        with pytest.raises(InvalidParameterError, match="does not take wait"):
            call(NODES, wait=True)  # type: ignore[operator]
    with pytest.raises(InvalidParameterError, match="no embedding, such as 'n'"):
        store.add([*NODES, TextNode(id_="n", text="n")])
    with pytest.raises(InvalidParameterError, match="several lengths, 2, 3"):
        store.add([*NODES, node("n", "n", (1.0, 2.0, 3.0))])
    with pytest.raises(InvalidParameterError, match="reserved"):
        store.add([node("n", "n", _llama_index_node="x")])
    with pytest.raises(InvalidParameterError, match="JSON"):
        store.add([node("n", "n", when=object())])
    with pytest.raises(DimensionMismatchError):
        store.add([node("n", "n", (1.0, 2.0, 3.0))])
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(store)
    store.close()


RELATED = st.builds(
    RelatedNodeInfo,
    node_id=st.text("abc#", max_size=3),
    node_type=st.sampled_from([None, ObjectType.TEXT, ObjectType.DOCUMENT]),
    metadata=st.dictionaries(st.sampled_from("ab"), st.integers(), max_size=1),
    hash=st.none() | st.just("h"),
)


def with_children(single: dict[NodeRelationship, RelatedNodeInfo]) -> dict[NodeRelationship, Any]:
    """Children are a list; the others are one each."""
    return {kind: [other, other] if kind is NodeRelationship.CHILD else other for kind, other in single.items()}


SHARED: dict[str, st.SearchStrategy[Any]] = {
    "metadata": metadata(),
    "excluded_embed_metadata_keys": st.lists(st.sampled_from("ab"), max_size=2),
    "excluded_llm_metadata_keys": st.lists(st.sampled_from("ab"), max_size=2),
    "metadata_template": st.sampled_from(["{key}: {value}", "{key}={value}"]),
    "metadata_separator": st.sampled_from(["\n", "; "]),
    "relationships": st.dictionaries(st.sampled_from(NodeRelationship), RELATED, max_size=5).map(with_children),
}
TEXT: dict[str, st.SearchStrategy[Any]] = {
    "text": texts(),
    "mimetype": st.sampled_from(["text/plain", "text/html"]),
    "start_char_idx": st.none() | st.integers(0, 99),
    "end_char_idx": st.none() | st.integers(0, 99),
    "text_template": st.sampled_from(["{metadata_str}\n\n{content}", "{content}"]),
}
# LlamaIndex itself lost the object of an IndexNode until 0.14.18.
HAS_OBJECTS = tuple(map(int, version("llama-index-core").split(".")[:3])) >= (0, 14, 18)
OBJECTS = st.none() | st.builds(TextNode, text=texts()) if HAS_OBJECTS else st.none()
ALL_NODES = st.one_of(
    st.builds(TextNode, **SHARED, **TEXT),
    st.builds(ImageNode, image=st.none() | st.just("aGk="), image_path=st.none() | st.just("x.png"), **SHARED, **TEXT),
    st.builds(IndexNode, index_id=st.just("i"), obj=OBJECTS, **SHARED, **TEXT),
    st.builds(Document, text=texts(), **SHARED),
    st.builds(Node, **SHARED),
)


@given(st.lists(ALL_NODES, min_size=1, max_size=4))
@settings(max_examples=times(200))
def test_nodes_come_back_equal(nodes: list[BaseNode]) -> None:
    """All that LlamaIndex's own classes hold, and their hashes; nothing of ours is in their metadata."""

    async def kept() -> list[BaseNode]:
        store = RetrievalCoreVectorStore(memory())
        written = [item.model_copy(update={"embedding": [1.0, 0.0]}) for item in nodes]
        names = await store.async_add(written)
        return await store.aget_nodes(names)

    got = asyncio.run(kept())
    for back, item in zip(got, nodes, strict=True):
        assert type(back) is type(item)
        assert back.to_dict() == item.to_dict()
        assert back.hash == item.hash
        assert back.get_content() == item.get_content()


def test_passages_written_as_nodes_are_passages_again() -> None:
    """Nodes of our own retriever need nothing beside what a chunk holds."""
    with Library() as library:
        from_index = RetrievalCoreRetriever(library.pipeline, top_k=9)
        nodes = [item.node for item in from_index.retrieve("moon sun")]
        assert nodes
        for item in nodes:
            item.embedding = [1.0] * 256
        other = MemoryStore(embedder_id="fake-words-256", dimension=256)
        store = RetrievalCoreVectorStore(other)
        for item in reversed(nodes):
            store.add([item])
        chunks = asyncio.run(other.fetch(FetchRequest(chunk_ids=tuple(item.node_id for item in nodes)))).chunks
        known = {item.id: item for item in CHUNKS}
        for name, chunk in chunks.items():
            assert (chunk.metadata, chunk.span, chunk.chunk_index) == (
                known[name].metadata,
                known[name].span,
                known[name].chunk_index,
            )
        store.close()


def test_a_node_that_cannot_be_read_back_says_so() -> None:
    """Somebody changed what is below the reserved key."""
    own = memory()
    store = RetrievalCoreVectorStore(own)
    for broken in ("{", "[]", '{"class_name": "TextNode", "relationships": {"x": 1}}'):
        chunk = Chunk("x", "x", "x", metadata={"_llama_index_node": {"ref_doc_id": "None", "node": broken}})
        asyncio.run(own.upsert(Change((chunk,), np.ones((1, 2), dtype=np.float32))))
        with pytest.raises(IndexFormatError, match="cannot be read back"):
            store.get_nodes(["x"])
    for other in ("x", {"ref_doc_id": 1}):  # somebody else's field of that name
        chunk = Chunk("x", "x", "x", metadata={"_llama_index_node": other})
        asyncio.run(own.upsert(Change((chunk,), np.ones((1, 2), dtype=np.float32))))
        assert store.get_nodes(["x"])[0].metadata["citation"]
    store.close()


def linked(count: int, document: str = "d") -> list[TextNode]:
    nodes = [node(f"{document}{number}", f"part {number}", document=document) for number in range(count)]
    for before, after in itertools.pairwise(nodes):
        before.relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id=after.node_id)
        after.relationships[NodeRelationship.PREVIOUS] = RelatedNodeInfo(node_id=before.node_id)
    return nodes


def places(store: RetrievalCoreVectorStore, names: Sequence[str]) -> list[tuple[str, int, int]]:
    return asyncio.run(read_places(store, names))


async def read_places(store: RetrievalCoreVectorStore, names: Sequence[str]) -> list[tuple[str, int, int]]:
    chunks = (await store.client.fetch(FetchRequest(chunk_ids=tuple(names)))).chunks.values()
    return sorted((chunk.id, chunk.chunk_index, chunk.total_chunks) for chunk in chunks)


def test_nodes_that_come_by_and_by_have_their_places(store: RetrievalCoreVectorStore) -> None:
    """A document in two batches, in whatever order, is one; so it is when some of its nodes go."""
    nodes = linked(5)
    names = [item.node_id for item in nodes]
    store.add([nodes[3], nodes[2]])
    store.add([nodes[4], nodes[0], nodes[1]])
    assert places(store, names) == [(f"d{number}", number, 5) for number in range(5)]
    vectors = asyncio.run(store.client.fetch(FetchRequest(chunk_ids=("d3",), with_vectors=True))).vectors
    assert vectors["d3"].tolist() == [1.0, 0.0]
    store.delete_nodes(["d1", "d2"])
    assert [item.node_id for item in store.get_nodes(names)] == ["d0", "d3", "d4"]
    assert places(store, names) == [("d0", 0, 3), ("d3", 1, 3), ("d4", 2, 3)]
    assert [bare(item) for item in store.get_nodes(names)] == [bare(nodes[number]) for number in (0, 3, 4)]
    filters = MetadataFilters(filters=[MetadataFilter(key="doc_id", value="d")])
    store.delete_nodes(["d0", "a"], filters)
    assert {item.node_id for item in store.get_nodes()} == {"a", "b", "c", "d3", "d4"}


def test_documents_of_files_stay_what_they_are() -> None:
    """Nodes that are added to one come behind its passages; removing a passage leaves document and sections."""
    with Library() as library:
        store = RetrievalCoreVectorStore(library.store)
        store.add([node("x", "More of the moon.", [1.0] * 256, "moon.md")])
        assert places(store, ["moon.md#3", "x"]) == [("moon.md#3", 3, 4), ("x", 4, 5)]
        store.delete_nodes(["moon.md#1"])
        fetched = asyncio.run(
            library.store.fetch(FetchRequest(document_ids=("moon.md",), section_ids=("moon.md/section",)))
        )
        assert (len(fetched.documents), len(fetched.sections)) == (1, 1)
        assert [item.node_id for item in store.get_nodes(filters={"document_id": "moon.md"})] == [
            "moon.md#0",
            "moon.md#2",
            "moon.md#3",
            "x",
        ]
        store.close()


def test_an_index_without_vectors_is_read_by_words() -> None:
    """Its nodes can be named, listed and removed; embeddings are not for it, and nodes without are."""
    own = MemoryStore()
    store = RetrievalCoreVectorStore(own)
    store.add([TextNode(id_="n", text="the moon"), TextNode(id_="o", text="the sun")])
    assert store.query(asked("text_search", query_str="moon")).ids == ["n"]
    assert [item.node_id for item in store.get_nodes(["o", "n"])] == ["o", "n"]
    assert [item.node_id for item in store.get_nodes()] == ["n", "o"]
    with pytest.raises(EmbedderMismatchError):
        store.add(NODES)
    store.delete_nodes(["n"])
    assert [item.node_id for item in store.get_nodes()] == ["o"]
    store.clear()
    assert store.get_nodes() == []
    store.close()


# --- with LlamaIndex's index and pipeline, and with our own readers ---


@pytest.fixture(name="model")
def embedding_model() -> Iterator[RetrievalCoreEmbedding]:
    model = RetrievalCoreEmbedding(FakeEmbedder())
    yield model
    model.close()


DOCUMENTS = [
    Document(id_="moon", text="The moon is 384,400 km away.", metadata={"file_path": "notes/moon.md", "kind": "moon"}),
    Document(
        id_="sun", text="The sun is eight light minutes away.", metadata={"file_name": "sun.md", "page_label": "3"}
    ),
]


def test_an_index_of_llamaindex_is_an_index_of_ours(tmp_path: Path, model: RetrievalCoreEmbedding) -> None:
    """Written by VectorStoreIndex, it is read by open_index, by the retriever, and by LlamaIndex from its file."""
    path = tmp_path / "notes.db"
    with RetrievalCoreVectorStore.from_index_file(path, embed_model=model) as store:
        context = StorageContext.from_defaults(vector_store=store)
        index = VectorStoreIndex.from_documents(DOCUMENTS, storage_context=context, embed_model=model)
        assert [item.node.ref_doc_id for item in index.as_retriever(similarity_top_k=1).retrieve("the moon")] == [
            "moon"
        ]
        index.delete_ref_doc("moon")
        index.insert(DOCUMENTS[0])
    with open_index(path, embedder=model.embedder) as ours:
        hit = ours.retrieve("how far is the sun").hits[0]
        assert (hit.chunk.document_id, hit.chunk.title, hit.chunk.embedding_model) == (
            "sun",
            "sun.md",
            "fake-words-256",
        )
        assert hit.chunk.page_span is not None
        assert hit.chunk.timestamp is not None
        manifest = ours.describe().manifest
        assert manifest is not None
        assert manifest.embedder_id == "fake-words-256"
    with RetrievalCoreRetriever.from_index_file(path, embedder=model.embedder) as retriever:
        found = retriever.retrieve("how far is the moon")[0].node
        assert (found.metadata["source"], found.metadata["kind"]) == ("notes/moon.md", "moon")
        assert not any("llama" in key for key in found.metadata)
    with RetrievalCoreVectorStore.from_index_file(path) as store:
        again = VectorStoreIndex.from_vector_store(store, embed_model=model)
        for mode in ("default", "mmr", "hybrid", "text_search", "sparse"):
            nodes = again.as_retriever(similarity_top_k=1, vector_store_query_mode=mode).retrieve("the sun")
            assert [item.node.metadata for item in nodes] == [DOCUMENTS[1].metadata]


def test_a_pipeline_over_it_searches_by_words_too(tmp_path: Path, model: RetrievalCoreEmbedding) -> None:
    """The store tells what it can be asked, which LlamaIndex has no name for."""
    with RetrievalCoreVectorStore.from_index_file(tmp_path / "x.db", embed_model=model) as store:
        index = VectorStoreIndex.from_vector_store(store, embed_model=model)
        for document in DOCUMENTS:
            index.insert(document)
        pipeline = from_index(index)
        for mode in get_args(SearchMode):
            result = pipeline.retrieve("how far is the moon", {"kind": {"$glob": "m*"}}, mode=mode)
            assert [hit.chunk.metadata["kind"] for hit in result.hits] == ["moon"]
            assert result.degraded == ()
        pipeline.close()


def test_an_index_of_ours_is_an_index_of_llamaindex(tmp_path: Path, model: RetrievalCoreEmbedding) -> None:
    """Files that ``retrieval index`` took in, with their provenance; sync, async, and where a loop is running."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "moon.md").write_text("# The moon\n\nThe moon is 384,400 km away.\n")
    (folder / "sun.md").write_text("# The sun\n\nThe sun is eight light minutes away.\n")
    with open_index(tmp_path / "notes.db", embedder=model.embedder) as ours:
        ours.ingest(folder)
    with RetrievalCoreVectorStore.from_index_file(tmp_path / "notes.db", embed_model=model.embedder) as store:
        index = VectorStoreIndex.from_vector_store(store, embed_model=model)
        retriever = index.as_retriever(similarity_top_k=1, vector_store_query_mode="hybrid")
        nodes = retriever.retrieve("how far is the moon")
        assert nodes[0].node.metadata["source"] == "notes/moon.md"

        async def inside() -> None:
            assert await retriever.aretrieve("how far is the moon") == nodes
            assert [item.node_id for item in await store.aget_nodes()] == [item.node_id for item in store.get_nodes()]
            await index.ainsert_nodes([TextNode(id_="n", text="more of the moon")])
            await index.adelete_nodes(["n"])
            assert await store.aget_nodes(["n"]) == []

        asyncio.run(inside())


def test_a_pipeline_of_llamaindex_fills_it_and_keeps_it_in_step(tmp_path: Path, model: RetrievalCoreEmbedding) -> None:
    """Upserts by document: what is unchanged stays, what changed is replaced."""
    text = " ".join(f"Sentence {number} is of the moon." for number in range(60))
    with RetrievalCoreVectorStore.from_index_file(tmp_path / "x.db", embed_model=model) as store:
        pipeline = IngestionPipeline(
            transformations=[TokenTextSplitter(chunk_size=64, chunk_overlap=0), model],
            docstore=SimpleDocumentStore(),
            vector_store=store,
            docstore_strategy=DocstoreStrategy.UPSERTS,
        )
        nodes = pipeline.run(documents=[Document(id_="d", text=text), DOCUMENTS[1]])
        assert pipeline.run(documents=[Document(id_="d", text=text)]) == []
        kept = store.get_nodes([item.node_id for item in nodes])
        assert [item.to_dict() for item in kept] == [bare(item).to_dict() for item in nodes]
        of_text = [item.node_id for item in nodes if item.ref_doc_id == "d"]
        assert sorted(places(store, of_text)) == sorted(
            (name, index, len(of_text)) for index, name in enumerate(of_text)
        )
        asyncio.run(pipeline.arun(documents=[Document(id_="d", text="All is new.")]))
        assert sorted(item.get_content() for item in store.get_nodes()) == ["All is new.", DOCUMENTS[1].text]


def test_the_model_is_named_once_and_held_to(tmp_path: Path) -> None:
    """LlamaIndex does not tell a store its model; an index without a name, or of another one, is refused with words."""
    path, model = tmp_path / "x.db", MockEmbedding(embed_dim=2)
    with pytest.raises(InvalidParameterError, match="Name the model"):
        RetrievalCoreVectorStore.from_index_file(path)
    with RetrievalCoreVectorStore.from_index_file(path, embed_model=model) as store:
        with pytest.raises(IndexNotFoundError):
            store.query(asked())
        store.delete("unknown")
        store.delete_nodes(["unknown"])
        store.clear()
        with pytest.raises(InvalidParameterError, match="came without vectors"):
            store.add([TextNode(text="n")])
        store.add(NODES)
    for same in (None, model):
        with RetrievalCoreVectorStore.from_index_file(path, embed_model=same) as store:
            store.add([node("n", "n")])
            assert len(store.get_nodes()) == 4
            with pytest.raises(DimensionMismatchError):
                store.query(asked(query_embedding=[1.0]))
    for other in (MockEmbedding(embed_dim=3), FakeEmbedder(2)):
        with pytest.raises(EmbedderMismatchError, match="llama-index/MockEmbedding/unknown/2"):
            RetrievalCoreVectorStore.from_index_file(path, embed_model=other)
    with (
        open_index(path, embedder=FakeEmbedder(2)) as ours,
        pytest.raises(EmbedderMismatchError, match="MockEmbedding"),
    ):
        ours.retrieve("lorem")


def test_an_index_of_a_model_of_llamaindex_is_asked_with_the_same_model(tmp_path: Path) -> None:
    model = MockEmbedding(embed_dim=2)
    with RetrievalCoreVectorStore.from_index_file(tmp_path / "x.db", embed_model=model) as store:
        store.add(NODES)
    with open_index(tmp_path / "x.db", embedder=LlamaIndexEmbedder(model)) as ours:
        result = ours.retrieve("sun")
        assert {hit.chunk.id for hit in result.hits} == {"a", "b", "c"}
        assert not result.degraded
    with open_index(tmp_path / "x.db", config=load_config(overrides={"embedder.kind": "none"})) as words:
        assert [hit.chunk.id for hit in words.retrieve("sun", mode="lexical").hits] == ["b"]


def test_the_place_of_an_index_is_as_configured(tmp_path: Path) -> None:
    """By the kind of store, and with the settings of search; what LlamaIndex cannot have is refused at once."""
    settings = {"store.kind": "memory", "search.candidates": 7, "search.dense_weight": 0.25, "search.fusion": "rrf"}
    config = load_config(overrides=settings)
    with RetrievalCoreVectorStore.from_index_file(config=config, embed_model=MockEmbedding(embed_dim=2)) as store:
        assert (store.candidates, store.alpha, store.fusion) == (7, 0.25, "rrf")
        assert store.add(NODES) == ["a", "b", "c"]
        assert store.query(asked("hybrid", query_str="sun")).ids
    with pytest.raises(InvalidParameterError, match="native"):
        RetrievalCoreVectorStore.from_index_file(config=load_config(overrides={"search.fusion": "native"}))
    with pytest.raises(InvalidParameterError, match="embed_model"):
        RetrievalCoreVectorStore.from_index_file(tmp_path / "x.db", embed_model="default")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        RetrievalCoreVectorStore.from_index_file(tmp_path / "x.db", config="no such preset")


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    """Closing twice is fine; a store that was given stays open."""
    store = RetrievalCoreVectorStore.from_index_file(tmp_path / "x.db", embed_model=MockEmbedding(embed_dim=2))
    store.add(NODES)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.query(asked())

    async def inside() -> None:
        async with RetrievalCoreVectorStore.from_index_file(tmp_path / "x.db") as again:
            results = await asyncio.gather(*(again.aquery(asked()) for _ in range(20)))
            assert all(result.ids == results[0].ids for result in results)

    asyncio.run(inside())
    own = memory()
    RetrievalCoreVectorStore(own).close()
    assert asyncio.run(own.describe()).chunks == 0


def test_embedders_are_models_of_llamaindex(model: RetrievalCoreEmbedding) -> None:
    """With the same vectors, sync and async."""
    vector = model.get_query_embedding("the moon")
    assert vector == model.get_text_embedding("the moon") == asyncio.run(model.aget_query_embedding("the moon"))
    assert model.get_text_embedding_batch(["the moon", "x"])[0] == vector
    assert asyncio.run(model.aget_text_embedding("the moon")) == vector
    assert (LlamaIndexEmbedder(model).id, model.model_name, model.class_name()) == (
        *["fake-words-256"] * 2,
        "RetrievalCoreEmbedding",
    )
    with pytest.raises(InvalidParameterError, match="embedder"):
        RetrievalCoreEmbedding(MockEmbedding(embed_dim=2))  # type: ignore[arg-type]


def test_pinecone_holds_an_index_of_llamaindex() -> None:
    """Which says no dimension by itself, refuses zero vectors, and keeps flat metadata."""
    pytest.importorskip("pinecone", reason="the extra 'pinecone' is not installed")
    from support.pinecone_support import store_of

    nodes = [
        node("a", "moon", units(3)[0].tolist(), "d", kind={"of": ["x", 1]}, label="Moon"),
        node("b", "sun", units(3)[1].tolist(), "d", label="sun"),
        node("c", "star", units(3)[2].tolist()),
    ]

    async def ask(server: WireServer) -> None:
        own = store_of(server)  # its connections are those of one event loop, and are closed there
        store = RetrievalCoreVectorStore(own)
        await store.async_add(nodes)
        assert await store.aget_nodes(["a", "b", "c"]) == [bare(item) for item in nodes]
        assert sorted(item.node_id for item in await store.aget_nodes()) == ["a", "b", "c"]
        query: dict[str, Any] = {"query_embedding": nodes[0].get_embedding()}
        assert ((await store.aquery(asked(**query))).ids or [])[0] == "a"
        assert ((await store.aquery(asked("mmr", **query))).ids or [])[0] == "a"
        match = MetadataFilters(filters=[MetadataFilter(key="label", value="Moon", operator=FilterOperator.TEXT_MATCH)])
        assert (await store.aquery(asked(filters=match, **query))).ids == ["a"]
        assert (await store.aquery(asked(doc_ids=["d"], similarity_top_k=1, **query))).ids == ["a"]
        assert await read_places(store, ["a", "b"]) == [("a", 0, 2), ("b", 1, 2)]
        with pytest.raises(StoreError, match="has no keyword search"):
            await store.aquery(asked("hybrid", **query))
        await store.adelete_nodes(["a"])
        assert await read_places(store, ["a", "b"]) == [("b", 0, 1)]
        await store.aclear()
        assert await store.aget_nodes(["a", "b", "c"]) == []
        await store.aclose()
        await own.aclose()

    with WireServer(PineconeService(DIMENSION)) as server:
        asyncio.run(ask(server))
