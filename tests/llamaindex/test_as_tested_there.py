"""What LlamaIndex's own tests of its stores, retrievers and postprocessors check, checked of ours.

None of them are in its packages. What a test of another file of this folder checks already is in the table at the end.
"""

# LlamaIndex's own types are unknown in parts.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import ast
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core import StorageContext, VectorStoreIndex, load_index_from_storage
from llama_index.core.base.llms.types import CompletionResponse
from llama_index.core.callbacks import CallbackManager
from llama_index.core.indices.vector_store.retrievers import VectorIndexRetriever
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import IndexNode, NodeRelationship, NodeWithScore, QueryBundle, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores import ExactMatchFilter, MetadataFilters
from llama_index.core.vector_stores.types import VectorStoreQuery

from llama_index.retrievers.retrieval_core import RetrievalCoreRetriever
from llama_index.vector_stores.retrieval_core import RetrievalCoreVectorStore
from retrieval_core.adapters.stores.memory import MemoryStore
from support.llamaindex_library import Library
from support.llamaindex_parts import WordEmbedding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

QUESTION = "how far away is the moon"


def ids(nodes: Sequence[NodeWithScore]) -> list[str]:
    return [item.node.node_id for item in nodes]


@pytest.fixture
def retriever() -> Iterator[RetrievalCoreRetriever]:
    with Library() as library:
        yield RetrievalCoreRetriever(library.pipeline, top_k=6)


def new_store(dimension: int) -> RetrievalCoreVectorStore:
    return RetrievalCoreVectorStore(MemoryStore(embedder_id="m", dimension=dimension))


# --- vector stores


def test_documents_nodes_and_filters_narrow_each_other() -> None:
    """Also filters that contradict each other, which nothing passes."""
    store = new_store(2)
    for document, chunk in (("a", 0), ("a", 1), ("b", 0), ("b", 1), ("a", 2)):
        node = TextNode(id_=f"{document}-{chunk}", text="x", embedding=[1.0, chunk], metadata={"chunk": min(chunk, 1)})
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=document)
        store.add([node])

    def found(*chunks: int, **arguments: Any) -> set[str]:
        filters = MetadataFilters(filters=[ExactMatchFilter(key="chunk", value=chunk) for chunk in chunks])
        asked = VectorStoreQuery(query_embedding=[1.0, 0.0], similarity_top_k=9, filters=filters, **arguments)
        return set(store.query(asked).ids or [])

    assert found(1, doc_ids=["a"], node_ids=["a-0", "a-1", "b-1"]) == {"a-1"}
    assert found(1, doc_ids=["a"]) == {"a-1", "a-2"}
    assert found(1, node_ids=["a-0", "b-1"]) == {"b-1"}
    assert found(0, 1) == set()
    assert found(doc_ids=["missing"]) == set()
    store.close()


def test_an_index_is_stored_and_loaded_with_its_vector_store(tmp_path: Path) -> None:
    """What the store holds stays where it is, and LlamaIndex's own part goes into the folder."""
    model, store = WordEmbedding(), new_store(WordEmbedding().size)
    context = StorageContext.from_defaults(vector_store=store)
    index = VectorStoreIndex([TextNode(id_="sea", text="the deep sea")], embed_model=model, storage_context=context)
    index.storage_context.persist(str(tmp_path))
    context = StorageContext.from_defaults(persist_dir=str(tmp_path), vector_store=store)
    loaded: Any = load_index_from_storage(context, embed_model=model)
    for each in (index, loaded):
        assert ids(each.as_retriever().retrieve("sea")) == ["sea"]
    assert not list(tmp_path.glob("*sea*"))
    store.close()


# --- retrievers of retrievers


def test_objects_of_an_index_over_ours_are_followed() -> None:
    """To a node, a retriever and a query engine, whose answer has the metadata of its sources; sync and async."""
    model, store = WordEmbedding(), new_store(WordEmbedding().size)
    paris = TextNode(id_="paris", text="Paris is the capital.", metadata={"source": "geography.pdf"})
    sub = VectorStoreIndex([paris], embed_model=model)
    objects = [
        IndexNode(text="quartz", index_id="1", obj=TextNode(id_="hidden", text="Hidden")),
        IndexNode(text="violin", index_id="2", obj=sub.as_retriever()),
        IndexNode(text="teapot", index_id="3", obj=sub.as_query_engine(llm=MockLLM())),
    ]
    context = StorageContext.from_defaults(vector_store=store)
    top = VectorStoreIndex([], objects=objects, embed_model=model, storage_context=context)
    ours = top.as_retriever(similarity_top_k=1)

    def wait(question: str) -> list[NodeWithScore]:
        return asyncio.run(ours.aretrieve(question))

    for ask in (ours.retrieve, wait):
        assert ids(ask("quartz")) == ["hidden"]
        assert ids(ask("violin")) == ["paris"]
        assert ask("teapot")[0].node.metadata == {"paris": {"source": "geography.pdf"}}
    store.close()


@pytest.mark.parametrize("way", ["the retriever itself", "store_nodes_override"])
def test_texts_beside_objects_are_found(way: str) -> None:
    """For a store that keeps texts ``as_retriever`` names the objects alone as what may be found."""
    model, store = WordEmbedding(), new_store(WordEmbedding().size)
    objects = [IndexNode(text="quartz", index_id="1", obj=TextNode(id_="hidden", text="Hidden"))]
    context = StorageContext.from_defaults(vector_store=store)
    overrides = way == "store_nodes_override"
    index = VectorStoreIndex(
        [TextNode(id_="plain", text="violin")],
        objects=objects,
        embed_model=model,
        storage_context=context,
        store_nodes_override=overrides,
    )
    objects_of: Any = index._object_map
    ours = index.as_retriever() if overrides else VectorIndexRetriever(index, object_map=objects_of)
    assert sorted(ids(ours.retrieve("violin quartz"))) == ["hidden", "plain"]
    store.close()


def test_nodes_of_different_documents_with_one_text_stay_two_sync_and_async() -> None:
    store = new_store(WordEmbedding().size)
    nodes = [
        TextNode(id_=f"n{n}", text="shared", relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"d{n}")})
        for n in range(2)
    ]
    context = StorageContext.from_defaults(vector_store=store)
    index = VectorStoreIndex([*nodes, nodes[0]], embed_model=WordEmbedding(), storage_context=context)
    ours = index.as_retriever()
    for found in (ours.retrieve("shared"), asyncio.run(ours.aretrieve("shared"))):
        assert sorted(str(item.node.ref_doc_id) for item in found) == ["d0", "d1"]
    store.close()


def test_a_retriever_has_what_every_retriever_has(retriever: RetrievalCoreRetriever) -> None:
    """A callback manager, an empty map of objects, no prompts; a text and a bundle are the same question."""
    manager = CallbackManager()
    ours = RetrievalCoreRetriever(retriever.pipeline, callback_manager=manager, verbose=True)
    assert ours.callback_manager is manager
    assert ours._verbose
    assert not retriever._verbose
    assert retriever.object_map == {}
    assert retriever.get_prompts() == {}
    assert retriever.retrieve(QUESTION) == retriever.retrieve(QueryBundle(query_str=QUESTION))


# --- fusion


@pytest.mark.parametrize("mode", [mode.value for mode in FUSION_MODES])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_questions_of_a_fusion_are_generated_and_asked(
    retriever: RetrievalCoreRetriever, mode: str, asynchronous: bool
) -> None:
    """By the model's asynchronous method where it is asked so; no more of them than were wanted."""
    written: list[str] = []

    class Writes(MockLLM):
        def complete(self, prompt: Any, formatted: bool = False, **_: Any) -> CompletionResponse:
            assert not asynchronous
            written.append("sync")
            return CompletionResponse(text="sun star\nmoon rocks\none too many")

        async def acomplete(self, prompt: Any, formatted: bool = False, **_: Any) -> CompletionResponse:
            assert asynchronous
            written.append("async")
            return CompletionResponse(text="sun star\nmoon rocks\none too many")

    asked: list[str] = []

    class Listens(RetrievalCoreRetriever):
        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            asked.append(query_bundle.query_str)
            return super()._retrieve(query_bundle)

        async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            asked.append(query_bundle.query_str)
            return await super()._aretrieve(query_bundle)

    ours = QueryFusionRetriever(
        [Listens(retriever.pipeline, top_k=2)],
        llm=Writes(max_tokens=None),
        mode=FUSION_MODES(mode),
        num_queries=3,
        similarity_top_k=3,
        use_async=False,
    )
    nodes = asyncio.run(ours.aretrieve(QUESTION)) if asynchronous else ours.retrieve(QUESTION)
    assert written == ["async" if asynchronous else "sync"]
    assert sorted(asked) == sorted([QUESTION, "sun star", "moon rocks"])
    assert len(nodes) == len(set(ids(nodes))) == 3
    scores = [item.get_score() for item in nodes]
    assert scores == sorted(scores, reverse=True)


# --- what tests of other files check

ELSEWHERE = {
    "vector stores: order, limit, ids, filters, deletion, clearing": (
        "test_vector_store.py::test_what_the_simple_store_does"
    ),
    "vector stores: operators": "test_vector_store_filters.py::test_each_operator_and_its_negation",
    "vector stores: conditions and their nesting": (
        "test_vector_store_filters.py::test_filters_mean_what_they_mean_to_llamaindex"
    ),
    "vector stores: values that an operator does not take": (
        "test_vector_store_filters.py::test_values_that_an_operator_does_not_take_are_refused"
    ),
    "vector stores: the threshold of MMR, in the query and beside it": (
        "test_what_bites.py::test_the_threshold_of_mmr_may_be_zero"
    ),
    "vector stores: source documents, also none": (
        "test_what_bites.py::test_documents_that_are_named_are_the_only_ones_and_no_names_are_none"
    ),
    "retrievers: objects": "test_stock_uses.py::test_index_nodes_among_objects_are_followed",
    "retrievers: nothing found": "test_retriever.py::test_nothing_found_is_no_error",
    "fusion: weights": "test_what_bites.py::test_weights_of_llamaindexs_fusion_are_honoured_with_ours",
    "fusion: each node once, in every mode": (
        "test_stock_uses.py::test_fusion_recognises_passages_that_several_questions_find"
    ),
    "docstores: nodes by id, hashes, source documents": (
        "test_document_store.py::test_nodes_of_the_vector_store_have_their_neighbours_and_parents"
    ),
    "docstores: writing and deleting, which ours refuses": "test_document_store.py::test_writing_is_refused",
    "docstores: storing": "test_document_store.py::test_what_is_no_store_is_refused",
    "postprocessors: neighbours, forward and backward": "test_document_store.py::test_neighbours_are_found",
    "postprocessors: windows that touch, and gaps": (
        "test_neighbors.py::test_every_passage_of_every_window_comes_exactly_once"
    ),
    "postprocessors: scores where windows overlap": "test_what_bites.py::test_windows_that_overlap_lose_no_score",
    "postprocessors: the best of all batches": (
        "test_rerank_postprocessors.py::test_the_best_of_all_batches_come_first"
    ),
}


@pytest.mark.parametrize("test", ELSEWHERE.values(), ids=[*ELSEWHERE])
def test_what_is_checked_elsewhere_has_its_test(test: str) -> None:
    file, _, name = test.partition("::")
    tree = ast.parse((Path(__file__).parent / file).read_text("utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
