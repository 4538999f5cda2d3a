"""LlamaIndex's auto-merging and its neighbours work on our nodes, and the document store only reads."""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core import StorageContext
from llama_index.core.postprocessor import PrevNextNodePostprocessor
from llama_index.core.retrievers import AutoMergingRetriever, BaseRetriever
from llama_index.core.schema import (
    Document,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.storage.docstore.types import RefDocInfo

from llama_index.retrievers.retrieval_core import RetrievalCoreRetriever, node_from_chunk
from llama_index.storage.docstore.retrieval_core import RetrievalCoreDocumentStore
from llama_index.vector_stores.retrieval_core import RetrievalCoreVectorStore
from retrieval_core import open_index
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.errors import InvalidParameterError, StoreError
from retrieval_core.testing.fakes import FakeEmbedder
from support.llamaindex_library import CHUNKS, Library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path


@pytest.fixture(scope="module", name="library")
def moon_and_sun() -> Iterator[Library]:
    with Library() as library:
        yield library


@pytest.fixture(scope="module", name="view")
def document_store(library: Library) -> Iterator[RetrievalCoreDocumentStore]:
    view = RetrievalCoreDocumentStore(library.store)
    yield view
    view.close()
    view.close()


class Fixed(BaseRetriever):
    """Finds the same nodes for every question."""

    def __init__(self, nodes: Sequence[NodeWithScore]) -> None:
        self._nodes = list(nodes)
        super().__init__()  # pyright: ignore[reportUnknownMemberType] - it has an argument of bare Dict

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return list(self._nodes)


def merging(view: RetrievalCoreDocumentStore, retriever: Any, **arguments: Any) -> list[NodeWithScore]:
    context = StorageContext.from_defaults(docstore=view)
    return AutoMergingRetriever(retriever, context, **arguments).retrieve("moon")


def found(*numbers: int) -> list[NodeWithScore]:
    return [NodeWithScore(node=node_from_chunk(CHUNKS[number]), score=1.0 - number / 10) for number in numbers]


def ids(nodes: Sequence[NodeWithScore]) -> list[str]:
    return [item.node.node_id for item in nodes]


def test_sections_are_parents_that_know_their_passages(view: RetrievalCoreDocumentStore) -> None:
    """In their order, with the provenance of passages."""
    section = view.get_node("moon.md/section")
    assert [child.node_id for child in section.child_nodes or ()] == [f"moon.md#{number}" for number in range(4)]
    assert (section.ref_doc_id, section.metadata["source"], section.prev_node) == ("moon.md", "moon.md", None)
    assert section.get_content().startswith("The moon is bright.\n\nThe moon is 384,400 km away.")
    assert "citation" in section.metadata


def test_passages_of_a_section_are_merged_where_most_of_them_were_found(view: RetrievalCoreDocumentStore) -> None:
    """LlamaIndex's AutoMergingRetriever: three of four become their parent, one of two stays."""
    assert ids(merging(view, Fixed(found(0, 1, 3, 4)))) == ["moon.md/section", "sun.md#0"]
    assert ids(merging(view, Fixed(found(0, 4)))) == ["moon.md#0", "sun.md#0"]
    assert ids(merging(view, Fixed(found(0, 4)), simple_ratio_thresh=0.2)) == ["moon.md/section", "sun.md/section"]
    # What lies between two passages is filled in: two of four are then three.
    assert ids(merging(view, Fixed(found(0, 2)))) == ["moon.md/section"]


def test_merging_works_on_what_our_retriever_finds(tmp_path: Path) -> None:
    """Over files: the parent's text is the section as it stands in the document."""
    parts = "\n\n".join(f"Moon part {number}. " + "The crew looked at the moon again. " * 45 for number in range(4))
    (tmp_path / "moon.md").write_text(f"# Moon\n\n## Log\n\n{parts}\n\n## Else\n\nNothing of that kind.\n")
    embedder = FakeEmbedder()
    with open_index(tmp_path / "x.db", embedder=embedder) as index:
        index.ingest(tmp_path / "moon.md")
    with RetrievalCoreRetriever.from_index_file(tmp_path / "x.db", embedder=embedder, top_k=10) as retriever:
        view = RetrievalCoreDocumentStore(retriever.pipeline.store)
        single = retriever.retrieve("moon")
        merged = merging(view, retriever)
        whole = [item for item in merged if item.node.child_nodes]
        assert len(single) > len(merged)
        assert whole
        document = view.get_document("moon.md")
        assert isinstance(document, Document)
        for item in whole:
            assert item.node.get_content() in document.get_content()
            assert item.node.metadata["source"] == "moon.md"
        view.close()


@pytest.mark.parametrize(
    ("mode", "count", "wanted"),
    [
        ("next", 1, [1, 2]),
        ("next", 9, [1, 2, 3]),
        ("previous", 1, [0, 1]),
        ("previous", 9, [0, 1]),
        ("both", 1, [0, 1, 2]),
        ("both", 2, [0, 1, 2, 3]),
    ],
)
def test_neighbours_are_found(view: RetrievalCoreDocumentStore, mode: str, count: int, wanted: list[int]) -> None:
    """LlamaIndex's PrevNextNodePostprocessor, forward, backward and both."""
    postprocessor = PrevNextNodePostprocessor(docstore=view, num_nodes=count, mode=mode)
    given = found(1)
    nodes = postprocessor.postprocess_nodes(given)
    assert sorted(ids(nodes)) == [f"moon.md#{number}" for number in wanted]
    assert [item.score for item in nodes if item.node.node_id == "moon.md#1"] == [given[0].score]
    if count == 1:
        assert ids(nodes) == [f"moon.md#{number}" for number in wanted]


def test_nodes_of_the_vector_store_have_their_neighbours_and_parents() -> None:
    """Relationships of nodes that LlamaIndex wrote are what they were, also to a parent that is kept beside them."""
    nodes = [TextNode(id_=f"n{number}", text=f"part {number}", embedding=[1.0, 0.0]) for number in range(3)]
    parent = TextNode(id_="parent", text="all parts", embedding=[0.0, 1.0])
    parent.relationships[NodeRelationship.CHILD] = [item.as_related_node_info() for item in nodes]
    for number, item in enumerate(nodes):
        item.relationships[NodeRelationship.PARENT] = parent.as_related_node_info()
        if number:
            item.relationships[NodeRelationship.PREVIOUS] = RelatedNodeInfo(node_id=f"n{number - 1}")
        if number < 2:
            item.relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id=f"n{number + 1}")
    store = RetrievalCoreVectorStore(MemoryStore(embedder_id="m", dimension=2))
    store.add([*nodes, parent])
    view, simple = RetrievalCoreDocumentStore(store.client), SimpleDocumentStore()
    bare = [item.model_copy(update={"embedding": None}) for item in (*nodes, parent)]
    simple.add_documents(bare)
    given = [NodeWithScore(node=bare[0], score=0.5), NodeWithScore(node=bare[1], score=0.7)]
    for either in (
        PrevNextNodePostprocessor(docstore=view, mode="both"),
        PrevNextNodePostprocessor(docstore=simple, mode="both"),
    ):
        assert ids(either.postprocess_nodes(given)) == ["n0", "n1", "n2"]
    assert ids(merging(view, Fixed(given))) == ["parent"]
    assert view.get_nodes(["n1", "parent"]) == simple.get_nodes(["n1", "parent"]) == [bare[1], bare[3]]
    assert view.get_node_dict({3: "n2"}) == {3: bare[2]}
    assert view.docs == {item.node_id: item for item in bare}
    assert view.get_document_hash("n0") == simple.get_document_hash("n0") == bare[0].hash
    assert view.get_all_document_hashes() == {item.hash: item.node_id for item in bare}
    store.close()
    view.close()


def test_what_is_there_is_found_by_its_id(view: RetrievalCoreDocumentStore) -> None:
    """Passages, sections and documents, sync and async, also where a loop is running; one read for many ids."""
    names = ["sun.md#1", "moon.md", "sun.md/section", "moon.md#0", "sun.md#1"]
    nodes = view.get_nodes(names)
    assert [item.node_id for item in nodes] == names

    async def inside() -> None:
        assert await view.aget_nodes(names) == nodes == view.get_nodes(names)
        assert await view.aget_nodes(["unknown", "moon.md#0"], raise_error=False) == [nodes[3]]
        assert await view.aget_node("moon.md#0") == await view.aget_document("moon.md#0") == nodes[3]
        assert await view.aget_document("unknown", raise_error=False) is None
        assert (await view.adocument_exists("moon.md"), await view.adocument_exists("unknown")) == (True, False)
        with pytest.raises(StoreError, match="only reads"):  # only what is going to write asks for it
            await view.aget_document_hash("unknown")
        info = await view.aget_ref_doc_info("sun.md")
        assert info is not None
        assert info == RefDocInfo(node_ids=["sun.md#0", "sun.md#1"], metadata={"source": "sun.md"})
        assert await view.aget_ref_doc_info("unknown") is None
        everything = await view.aget_all_ref_doc_info()
        assert (list(everything), everything["sun.md"]) == (["moon.md", "sun.md"], info)

    asyncio.run(inside())
    assert view.get_all_ref_doc_info() == {name: view.get_ref_doc_info(name) for name in ("moon.md", "sun.md")}
    assert (view.document_exists("sun.md#0"), view.document_exists("")) == (True, False)
    assert view.get_node("unknown", raise_error=False) is None
    for lookup in (view.get_node, view.get_document):
        with pytest.raises(ValueError, match="unknown not found"):
            lookup("unknown")
    assert len(view.docs) == 6


WRITES: list[Callable[[RetrievalCoreDocumentStore], object]] = [
    lambda view: view.add_documents([TextNode(text="x")]),
    lambda view: asyncio.run(view.async_add_documents([TextNode(text="x")])),
    lambda view: view.delete_document("moon.md#0"),
    lambda view: asyncio.run(view.adelete_document("moon.md#0")),
    lambda view: view.delete_ref_doc("moon.md", raise_error=False),
    lambda view: asyncio.run(view.adelete_ref_doc("moon.md")),
    lambda view: view.set_document_hash("moon.md", "x"),
    lambda view: asyncio.run(view.aset_document_hash("moon.md", "x")),
    lambda view: view.set_document_hashes({"moon.md": "x"}),
    lambda view: asyncio.run(view.aset_document_hashes({"moon.md": "x"})),
]


@pytest.mark.parametrize("write", WRITES)
def test_writing_is_refused(
    view: RetrievalCoreDocumentStore, write: Callable[[RetrievalCoreDocumentStore], object]
) -> None:
    """With words on where to write instead."""
    with pytest.raises(StoreError, match="RetrievalCoreVectorStore"):
        write(view)
    assert len(view.docs) == 6


def test_what_is_no_store_is_refused(view: RetrievalCoreDocumentStore, tmp_path: Path) -> None:
    """As is pickling; storing a storage context leaves the index where it is."""
    with pytest.raises(InvalidParameterError, match="store must be an object"):
        RetrievalCoreDocumentStore("index.db")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(view)
    context = StorageContext.from_defaults(docstore=view)
    context.persist(str(tmp_path))  # pyright: ignore[reportUnknownMemberType] - it takes a bare PathLike
    assert not (tmp_path / "docstore.json").exists()
