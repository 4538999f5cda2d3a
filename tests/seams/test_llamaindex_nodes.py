"""``from_index`` returns the nodes that LlamaIndex wrote, as they are now, as LlamaIndex's own retrievers do."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core import Document, StorageContext, VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.postprocessor import PrevNextNodePostprocessor
from llama_index.core.retrievers import QueryFusionRetriever, RecursiveRetriever, VectorIndexRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import ImageNode, IndexNode, MetadataMode, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_index.retrievers.retrieval_core import RetrievalCoreRetriever
from llama_index.retrievers.retrieval_core.adapters import from_index, pipeline_from
from retrieval_core import load_config
from support.llamaindex_parts import DIMENSION, WordEmbedding
from support.llamaindex_stores import KEEP_TEXT, KINDS, opened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from llama_index.core.schema import BaseNode, NodeWithScore
    from llama_index.core.vector_stores.types import BasePydanticVectorStore

pytestmark = pytest.mark.filterwarnings("ignore")  # of the vendors' clients

TEXTS = {
    "moon": "The moon is bright at night. The moon is 384,400 km away from here. Apollo carried moon rocks home.",
    "sun": "The sun is a star. The sun is eight light minutes away from the earth. Model XQ-77 watches the sun.",
    "sea": "The sea is deep and salty. Whales live in the sea. The tide follows the moon above the sea.",
}
IMAGE = "11111111-1111-4111-8111-111111111111"
REFERENCE = "22222222-2222-4222-8222-222222222222"


@pytest.fixture(autouse=True)
def loop() -> Iterator[None]:
    """LlamaIndex's synchronous methods take the thread's event loop."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


class Embedding(WordEmbedding):
    """Gives no two texts the same similarity, as models do not."""

    def vector(self, text: str) -> list[float]:
        noise = [1e-3 * (crc32(f"{row} {text}".encode()) / 2**32 - 0.5) for row in range(DIMENSION)]
        return [number + small for number, small in zip(super().vector(text), noise, strict=True)]


def sentences(text: str) -> list[str]:
    return re.findall(r"[^.]+\.\s*", text) or [text]


def split() -> list[BaseNode]:
    """Return nodes as LlamaIndex's splitter makes them, with templates and excluded keys, an image and a reference."""
    documents = [
        Document(
            id_=name,
            text=text,
            metadata={"file_name": f"{name}.md", "kind": name, "pages": 3},
            excluded_llm_metadata_keys=["pages"],
            excluded_embed_metadata_keys=["file_name", "pages"],
            metadata_template="{key} = {value}",
            text_template="<{metadata_str}>\n{content}",
        )
        for name, text in TEXTS.items()
    ]
    nodes: list[BaseNode] = list(
        SentenceSplitter(chunk_size=26, chunk_overlap=0, chunking_tokenizer_fn=sentences).get_nodes_from_documents(
            documents
        )
    )
    assert len(nodes) > len(documents)
    nodes.append(ImageNode(id_=IMAGE, text="a picture of the comet", image_url="https://pictures.test/comet.png"))
    nodes.append(IndexNode(id_=REFERENCE, text="everything about volcanoes", index_id="volcanoes"))
    return nodes


def index_over(
    store: BasePydanticVectorStore, nodes: Sequence[BaseNode] | None = None, docstore: SimpleDocumentStore | None = None
) -> VectorStoreIndex:
    context = StorageContext.from_defaults(vector_store=store, docstore=docstore)
    return VectorStoreIndex(list(split() if nodes is None else nodes), storage_context=context, embed_model=Embedding())


def dense(index: VectorStoreIndex, top_k: int = 30, **options: Any) -> RetrievalCoreRetriever:
    config = load_config(overrides={"search.mode": "dense"})
    return RetrievalCoreRetriever(from_index(index, config=config), top_k=top_k, **options)


def stock(index: VectorStoreIndex, top_k: int = 30) -> VectorIndexRetriever:
    """Return LlamaIndex's retriever; that of ``as_retriever`` looks among images and references only."""
    return VectorIndexRetriever(index, similarity_top_k=top_k)


def written(node: BaseNode) -> dict[str, Any]:
    return {**node.model_dump(exclude={"embedding"}), "class": type(node).__name__, "hash": node.hash}


def by_id(found: Sequence[NodeWithScore]) -> dict[str, dict[str, Any]]:
    return {item.node.node_id: written(item.node) for item in found}


def texts(found: Sequence[NodeWithScore]) -> list[str]:
    return [item.node.get_content() for item in found]


# --- as they are now


@pytest.mark.parametrize(("mode", "is_given"), [("dense", False), ("hybrid", False), ("hybrid", True)])
@pytest.mark.parametrize("kind", KINDS)
def test_deleted_and_corrected_nodes_show_in_the_next_query(kind: str, mode: Any, is_given: bool) -> None:
    """Nothing that the index no longer has is answered from a cache."""
    with opened(kind) as store:
        docstore = SimpleDocumentStore()
        docstore.add_documents(nodes := split())
        index = index_over(store, nodes, None if is_given else docstore)
        pipeline = from_index(index, docstore=docstore if is_given else None)
        retriever = RetrievalCoreRetriever(pipeline, top_k=30, mode=mode)
        query = "how deep is the sea"
        assert any("deep and salty" in text for text in texts(retriever.retrieve(query)))
        index.delete_ref_doc("sea")
        docstore.delete_ref_doc("sea", raise_error=False)
        assert not any("sea" in text for text in texts(retriever.retrieve(query)))
        corrected = SentenceSplitter(chunking_tokenizer_fn=sentences).get_nodes_from_documents(
            [Document(id_="sea", text="The sea is 11 km deep.")]
        )
        docstore.add_documents(corrected)
        index.insert_nodes(corrected)
        found = retriever.retrieve(query)
        assert "The sea is 11 km deep." in texts(found)
        assert found[0].node.node_id == corrected[0].node_id
        retriever.pipeline.close()


@pytest.mark.parametrize("kind", ["chroma", "qdrant"])
def test_a_node_that_only_the_docstore_still_has_is_not_found(kind: str) -> None:
    """LlamaIndex deletes from the vector store only, if that keeps text."""
    with opened(kind) as store:
        docstore = SimpleDocumentStore()
        docstore.add_documents(nodes := split())
        index = index_over(store, nodes, docstore)
        retriever = RetrievalCoreRetriever(from_index(index), top_k=30)
        assert any("salty" in text for text in texts(retriever.retrieve("salty sea")))
        index.delete_ref_doc("sea", delete_from_docstore=True)
        assert not any("sea" in text for text in texts(retriever.retrieve("salty sea")))
        assert retriever.retrieve_with("salty whales", mode="lexical") == []
        retriever.pipeline.close()


@pytest.mark.parametrize("kind", KEEP_TEXT)
def test_the_text_in_the_vector_store_counts(kind: str) -> None:
    """A corrected node has the new text, as with LlamaIndex's own retriever, though the docstore has the old one."""
    with opened(kind) as store:
        docstore = SimpleDocumentStore()
        docstore.add_documents(nodes := split())
        index = index_over(store, nodes, docstore)
        retriever = RetrievalCoreRetriever(from_index(index), top_k=30)
        old = next(item.node for item in retriever.retrieve("salty sea") if "salty" in item.node.get_content())
        name = f"{old.ref_doc_id}#{old.node_id}" if kind == "pinecone" else old.node_id
        index.delete_nodes([name])
        index.insert_nodes([TextNode(id_=old.node_id, text="The sea is shallow and sweet.")])
        found = {item.node.node_id: item.node.get_content() for item in retriever.retrieve("salty sea")}
        assert found[old.node_id] == "The sea is shallow and sweet."
        retriever.pipeline.close()


def test_a_retriever_in_place_of_an_index_is_asked_each_time() -> None:
    """It does not report when its index changes."""
    with opened("simple") as store:
        index = index_over(store)
        pipeline = pipeline_from(retriever=index.as_retriever(similarity_top_k=20))
        assert any("sea" in hit.chunk.text for hit in pipeline.retrieve("the sea").hits)
        index.delete_ref_doc("sea")
        assert not any("sea" in hit.chunk.text for hit in pipeline.retrieve("the sea").hits)
        pipeline.close()


# --- the user's own nodes


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
@pytest.mark.parametrize("kind", KINDS)
def test_nodes_are_those_of_the_stock_retriever(kind: str, mode: Any) -> None:
    """Ids, hashes, classes, relationships, metadata, templates, excluded keys, and what a language model is shown."""
    with opened(kind) as store:
        docstore = SimpleDocumentStore()
        docstore.add_documents(nodes := split())
        index = index_over(store, nodes, docstore)
        ours = RetrievalCoreRetriever(from_index(index), top_k=30, mode=mode)
        query = "how far away is the moon"
        expected = stock(index).retrieve(query)
        found = ours.retrieve(query)
        assert by_id(found) == by_id(expected)
        assert len(found) == len(nodes)
        for item in found:
            other = next(one.node for one in expected if one.node.node_id == item.node.node_id)
            for shown in MetadataMode:
                assert item.node.get_content(metadata_mode=shown) == other.get_content(metadata_mode=shown)
        kinds = {item.node.node_id: item.node for item in found}
        image, reference = kinds[IMAGE], kinds[REFERENCE]
        assert isinstance(image, ImageNode)
        assert image.image_url == "https://pictures.test/comet.png"
        assert isinstance(reference, IndexNode)
        assert reference.index_id == "volcanoes"
        ours.pipeline.close()


def test_scores_and_citation_are_beside_the_node() -> None:
    """They are fields of the result, which neither prompt nor hash sees."""
    with opened("simple") as store:
        retriever = RetrievalCoreRetriever(from_index(index_over(store)), top_k=3)
        best: Any = retriever.retrieve("the sun is a star")[0]
        assert (best.rank, best.document_id, best.degraded) == (1, "sun", [])
        assert best.scores["dense_rank"] == 1
        assert best.scores["lexical_rank"] == 1
        assert best.citation == "Doc: sun"
        assert "citation" not in best.node.metadata
        retriever.pipeline.close()


def test_the_citation_is_in_the_prompt_on_request() -> None:
    """Language models then see it beside the node's own metadata; what is embedded stays the same."""
    with opened("simple") as store:
        index = index_over(store)
        plain: Any = dense(index).retrieve("the sun is a star")[0]
        asked: Any = dense(index, llm_metadata=["citation", "pages"]).retrieve("the sun is a star")[0]
        prompt = asked.node.get_content(metadata_mode=MetadataMode.LLM)
        assert f"citation = {plain.citation}" in prompt
        assert "pages = 3" in prompt
        assert "kind = sun" in prompt
        assert "citation" not in plain.node.get_content(metadata_mode=MetadataMode.LLM)
        embedded = [item.node.get_content(metadata_mode=MetadataMode.EMBED) for item in (plain, asked)]
        assert embedded[0] == embedded[1]


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_are_copies(kind: str) -> None:
    """A program may change what it gets, and neither docstore nor the next query sees that."""
    with opened(kind) as store:
        index = index_over(store)
        retriever = dense(index)
        before = by_id(retriever.retrieve("the moon"))
        for item in retriever.retrieve("the moon"):
            item.node.metadata["changed"] = True
            item.node.relationships.clear()
            item.node.excluded_llm_metadata_keys.append("kind")
        assert by_id(retriever.retrieve("the moon")) == before


def test_a_reference_is_not_copied_with_what_it_leads_to() -> None:
    """An object behind an ``IndexNode`` stays the same object."""
    target = TextNode(text="Volcanoes spit fire.")
    reference = IndexNode(id_=REFERENCE, text="everything about volcanoes", index_id="volcanoes")
    with opened("simple") as store:
        index = VectorStoreIndex(
            split()[:3],
            objects=[reference],
            storage_context=StorageContext.from_defaults(vector_store=store),
            embed_model=Embedding(),
        )
        retriever = dense(index, top_k=1, object_map={"volcanoes": target})
        assert retriever.retrieve("everything about volcanoes")[0].node is target


# --- what LlamaIndex makes of them


@pytest.mark.parametrize("kind", KINDS)
def test_prev_next_adds_the_nodes_beside(kind: str) -> None:
    """``PrevNextNodePostprocessor`` reads the relationships."""
    with opened(kind) as store:
        docstore = SimpleDocumentStore()
        docstore.add_documents(nodes := split())
        index = index_over(store, nodes, docstore)
        around = PrevNextNodePostprocessor(docstore=docstore, num_nodes=2, mode="both")
        found = dense(index, top_k=1).retrieve("Whales live in the sea")
        added = around.postprocess_nodes(found)
        assert [item.node.node_id for item in added] == [node.node_id for node in nodes if node.ref_doc_id == "sea"]


def test_a_recursive_retriever_follows_references() -> None:
    """An ``IndexNode`` leads to another retriever, and the result is that one's."""
    volcanoes = VectorStoreIndex([TextNode(text="Volcanoes spit fire.")], embed_model=Embedding())
    with opened("simple") as store:
        retriever = RecursiveRetriever(
            "root",
            retriever_dict={"root": dense(index_over(store), top_k=1), "volcanoes": volcanoes.as_retriever()},
        )
        assert texts(retriever.retrieve("everything about volcanoes")) == ["Volcanoes spit fire."]


@pytest.mark.parametrize("kind", KINDS)
def test_fusion_recognizes_the_nodes_of_stock_retrievers(kind: str) -> None:
    """A fusion of ours and a stock retriever scores as one of that retriever with itself: by hash, each node once."""

    def fused(*retrievers: Any) -> list[tuple[str, float]]:
        made = QueryFusionRetriever(
            list(retrievers),
            llm=MockLLM(),
            mode=FUSION_MODES.RECIPROCAL_RANK,
            num_queries=1,
            similarity_top_k=30,
            use_async=False,
        )
        return [(item.node.node_id, round(item.score or 0, 6)) for item in made.retrieve("how far away is the moon")]

    with opened(kind) as store:
        index = index_over(store, [node for node in split() if isinstance(node, TextNode) and type(node) is TextNode])
        assert sorted(fused(dense(index), stock(index))) == sorted(fused(stock(index), stock(index)))


def test_fusion_with_stock_bm25_scores_as_stock_vector_search_does() -> None:
    """``BM25Retriever`` beside our vector search gives the scores that it gives beside LlamaIndex's."""
    bm25: Any = pytest.importorskip("llama_index.retrievers.bm25")
    nodes = [node for node in split() if type(node) is TextNode]
    with opened("simple") as store:
        index = index_over(store, nodes)
        words = bm25.BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=5)

        def fused(first: Any) -> dict[str, float]:
            made = QueryFusionRetriever(
                [first, words],
                llm=MockLLM(),
                mode=FUSION_MODES.RECIPROCAL_RANK,
                num_queries=1,
                similarity_top_k=30,
                use_async=False,
            )
            return {item.node.node_id: round(item.score or 0, 6) for item in made.retrieve("how far away is the moon")}

        assert fused(dense(index, top_k=5)) == fused(stock(index, top_k=5))
