"""Pipelines over parts of LlamaIndex, as its users have them."""

from __future__ import annotations

import asyncio
import pickle
from contextlib import suppress
from datetime import date
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core import SummaryIndex
from llama_index.core.bridge.pydantic import Field
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import Document as LlamaDocument
from llama_index.core.schema import ImageNode, NodeRelationship, NodeWithScore, QueryBundle, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores import (
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    SimpleVectorStore,
    VectorStoreQuery,
    VectorStoreQueryResult,
)
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQueryMode

from llama_index.retrievers.retrieval_core import RetrievalCoreRetriever, node_from_chunk
from llama_index.retrievers.retrieval_core.adapters import (
    LlamaIndexEmbedder,
    LlamaIndexRetriever,
    LlamaIndexStore,
    StoreAbilities,
    from_index,
    pipeline_from,
)
from retrieval_core.config import load_config
from retrieval_core.errors import (
    IncompleteSearchError,
    InvalidParameterError,
    SearchError,
    StoreError,
)
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import Change, ChunkRange, FetchRequest, SearchRequest
from retrieval_core.testing.fakes import FakeEmbedder, FakeReranker
from retrieval_core.types import Chunk
from retrieval_core.types.filters import Eq, Ne, Not
from support.llamaindex_parts import DIMENSION, WordEmbedding, index_of, nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llama_index.core.schema import BaseNode

    from retrieval_core.ports import Candidate
    from retrieval_core.types import RetrievalResult


class KeepsText(BasePydanticVectorStore):
    """A store of somebody else's that keeps text, evaluates no filter and gives back what it is told to.

    Attributes:
        give: Changes a result before it is given back.
    """

    stores_text: bool = True
    nodes: list[Any] = Field(default_factory=list)
    asked: list[VectorStoreQuery] = Field(default_factory=list[VectorStoreQuery])
    give: Any = None

    @property
    def client(self) -> Any:
        return None

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        self.nodes.extend(node.model_copy() for node in nodes)
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        raise NotImplementedError

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        self.asked.append(query)
        if query.mode is VectorStoreQueryMode.DEFAULT:
            assert query.query_embedding is not None
            scored = [
                (sum(a * b for a, b in zip(node.embedding, query.query_embedding, strict=True)), node)
                for node in self.nodes
            ]
        else:
            words = set((query.query_str or "").lower().split())
            scored = [(float(len(words & set(node.text.lower().split()))), node) for node in self.nodes]
        scored.sort(key=lambda item: -item[0])
        best = scored[: query.similarity_top_k]
        result = VectorStoreQueryResult(
            nodes=[node for _, node in best],
            similarities=[score for score, _ in best],
            ids=[node.node_id for _, node in best],
        )
        return result if self.give is None else self.give(result)


def ask(pipeline: RetrievalPipeline, question: str, **options: Any) -> RetrievalResult:
    return asyncio.run(_ask(pipeline, question, **options))


async def _ask(pipeline: RetrievalPipeline, question: str, **options: Any) -> RetrievalResult:
    async with pipeline:
        return await pipeline.aretrieve(question, **options)


def search(store: Any, request: SearchRequest) -> tuple[Candidate, ...]:
    async def main() -> tuple[Candidate, ...]:
        return await store.search(request)

    return asyncio.run(main())


def by_vector(store: LlamaIndexStore, text: str = "moon", limit: int = 10, **rest: Any) -> list[str]:
    vector = FakeEmbedder(DIMENSION).vector(text)
    return [item.chunk_id for item in search(store, SearchRequest(limit, vector=vector, **rest))]


def names(result: RetrievalResult) -> list[str]:
    return [hit.id for hit in result.hits]


def reasons(result: RetrievalResult) -> list[str]:
    return [f"{item.stage}: {item.reason}" for item in result.degraded]


# --- an index in three lines


def test_an_index_becomes_a_hybrid_search() -> None:
    """Vector store, docstore and model are the index's; a name that no vector knows is found by its words."""
    index = index_of()
    pipeline = from_index(index)
    retriever = RetrievalCoreRetriever(pipeline, top_k=2)
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
    response = engine.query("XQ-77")
    assert response.source_nodes[0].node.node_id == "sea-5"
    result = pipeline.retrieve("how far away is the moon", top_k=2)
    assert names(result)[0] == "moon-1"
    assert result.hits[0].scores.dense is not None
    assert result.hits[0].scores.lexical is not None
    assert result.metadata["mode"] == "hybrid"
    assert result.degraded == ()
    pipeline.close()


def test_dense_search_is_what_llamaindex_finds() -> None:
    index = index_of()
    theirs = index.as_retriever(similarity_top_k=6).retrieve("eight light minutes")
    ours = ask(from_index(index), "eight light minutes", mode="dense", top_k=6)
    assert names(ours) == [item.node.node_id for item in theirs]
    for hit, item in zip(ours.hits, theirs, strict=True):
        assert hit.score == pytest.approx(item.score, abs=1e-6)


def test_what_the_index_takes_in_is_found_at_once_and_what_it_drops_is_not() -> None:
    """By words too, though LlamaIndex leaves the nodes of a document that was deleted in the docstore."""
    index = index_of()
    pipeline = from_index(index)
    assert "new" not in names(pipeline.retrieve("comet"))
    index.insert_nodes([TextNode(id_="new", text="A comet has a tail.")])
    assert names(pipeline.retrieve("comet", mode="lexical")) == ["new"]
    index.delete_ref_doc("sea")
    assert "sea-5" in index.docstore.docs
    assert names(pipeline.retrieve("XQ-77", mode="lexical")) == []
    index.insert_nodes([TextNode(id_="new", text="A planet has none.")])  # the same node, changed
    assert names(pipeline.retrieve("comet", mode="lexical")) == []
    assert names(pipeline.retrieve("planet", mode="lexical")) == ["new"]
    index.delete_nodes(["new"])
    assert "new" in index.docstore.docs
    assert names(pipeline.retrieve("planet", mode="lexical")) == []
    pipeline.close()


def test_rerank_budget_and_context_work_on_it() -> None:
    pytest.importorskip("tokenizers", reason="needs the local tokenizer")
    pipeline = from_index(index_of(), rerank=FakeReranker(), config=load_config(overrides={"search.top_k": 3}))
    result = pipeline.retrieve("the sun")
    assert all(hit.scores.rerank is not None for hit in result.hits)
    assert not pipeline.retrieve("the sun").from_cache  # the index may have changed
    pack = pipeline.context("the sun is a star", max_tokens=30)
    assert "The sun is a star." in pack.context_pack
    assert pack.token_count <= 30
    pipeline.close()


def test_neighbours_come_in_the_order_of_the_document() -> None:
    """Places follow from LlamaIndex's PREVIOUS and NEXT, so what stands beside a passage can be read."""
    index = index_of()
    store = LlamaIndexStore(index.vector_store, docstore=index.docstore)

    async def main() -> None:
        found = await store.fetch(FetchRequest(ranges=(ChunkRange("moon", 1, 2),)))
        assert {name: (chunk.chunk_index, chunk.total_chunks) for name, chunk in found.chunks.items()} == {
            "moon-1": (1, 3),
            "moon-2": (2, 3),
        }

    asyncio.run(main())


def test_other_nodes_of_a_shared_docstore_are_not_found() -> None:
    """LlamaIndex keeps parents, documents and nodes of other indexes in one docstore."""
    leaves: list[BaseNode] = [TextNode(id_=f"leaf-{row}", text="Comets have tails.") for row in range(3)]
    parent = TextNode(id_="parent", text="Comets have tails. " * 3)
    parent.relationships[NodeRelationship.CHILD] = [leaf.as_related_node_info() for leaf in leaves]
    tree = [parent, *leaves]
    index = index_of(nodes=leaves)
    index.docstore.add_documents([*tree, LlamaDocument(id_="whole", text="Comets have tails.")])
    pipeline = from_index(index)
    found = names(pipeline.retrieve("comets", mode="lexical", top_k=100))
    assert set(found) == {node.node_id for node in leaves}
    pipeline.close()
    alone = LlamaIndexStore(KeepsText(), docstore=index.docstore)  # without the index: no parents, no documents
    assert {item.chunk_id for item in search(alone, SearchRequest(1000, text="comets"))} == set(found)


def test_a_language_model_of_llamaindex_writes_answers() -> None:
    pytest.importorskip("tokenizers", reason="needs the local tokenizer")
    pipeline = from_index(index_of(), llm=MockLLM())
    assert pipeline.answer("how far away is the moon").text
    pipeline.close()


# --- words


def test_where_there_are_no_words_every_result_says_so() -> None:
    """Meaning answers alone, and not silently; who wants only that says so and hears nothing."""
    index = index_of(vector_store=KeepsText())
    result = ask(from_index(index), "moon")
    assert "moon-0" in names(result)
    assert len(reasons(result)) == 1
    assert reasons(result)[0].startswith("lexical: KeepsText has no keyword search, and the docstore has none")
    assert "set search.mode = 'dense'" in reasons(result)[0]
    only_words = ask(from_index(index), "moon", mode="lexical")
    assert not only_words.hits
    assert "lexical: KeepsText has no keyword search" in str(only_words.metadata["error"])
    dense = ask(from_index(index, config=load_config(overrides={"search.mode": "dense"})), "moon")
    assert (dense.degraded, names(dense)) == ((), names(result))


def test_images_in_the_docstore_do_not_pass_for_its_text() -> None:
    """Of a store that keeps text, LlamaIndex keeps images alone in the docstore: words there would miss the rest."""
    index = index_of(vector_store=KeepsText())
    index.insert_nodes([ImageNode(id_="image", text="the moon in a picture")])
    assert "image" in index.docstore.docs
    assert "has no keyword search" in reasons(ask(from_index(index), "moon"))[0]


def test_a_docstore_gives_words_to_a_store_that_keeps_text() -> None:
    docstore = SimpleDocumentStore()
    docstore.add_documents(nodes())
    index = index_of(vector_store=KeepsText())
    result = ask(from_index(index, docstore=docstore), "XQ-77")
    assert (names(result)[0], result.degraded) == ("sea-5", ())
    overridden = index_of(vector_store=KeepsText(), store_nodes_override=True)
    assert ask(from_index(overridden), "XQ-77").degraded == ()


def test_a_mode_of_the_store_is_used_where_it_is_told() -> None:
    """In its own mode, with its own scores; nodes with none of the words are not found."""
    kept = KeepsText()
    index_of(vector_store=kept)
    kept.asked.clear()
    store = LlamaIndexStore(kept, abilities=StoreAbilities(words=VectorStoreQueryMode.TEXT_SEARCH))
    found = search(store, SearchRequest(10, text="the sun"))
    assert {item.chunk_id for item in found[:2]} == {"sun-3", "sun-4"}
    assert found[0].score == 2
    assert "moon-2" not in {item.chunk_id for item in found}
    assert {query.mode for query in kept.asked} == {VectorStoreQueryMode.TEXT_SEARCH}


def test_nodes_of_a_docstore_that_cannot_be_read_are_told() -> None:
    kept = KeepsText()
    docstore = SimpleDocumentStore()
    odd = node_from_chunk(Chunk("odd", "moon.md", "moon"))
    odd.metadata["timestamp"] = "no date"
    docstore.add_documents([*nodes(), odd])
    with pytest.raises(
        IncompleteSearchError, match="1 nodes of the docstore could not be read, such as 'odd'"
    ) as found:
        search(LlamaIndexStore(kept, docstore=docstore), SearchRequest(2, text="apollo"))
    assert [item.chunk_id for item in found.value.found] == ["moon-2"]


# --- filters


def test_filters_that_simple_vector_store_gets_wrong_are_right() -> None:
    """Its ``==`` is never true of a list, its ``!=`` is true of one that holds the value, and nested groups raise."""
    index = index_of()

    def theirs(*filters: Any, **rest: Any) -> list[str]:
        retriever = index.as_retriever(similarity_top_k=6, filters=MetadataFilters(filters=list(filters), **rest))
        return sorted(item.node.node_id for item in retriever.retrieve("moon"))

    def ours(condition: Any) -> list[str]:
        return sorted(names(ask(from_index(index), "moon", filters=condition, mode="dense", top_k=6)))

    rocks = MetadataFilter(key="tags", value="rocks")
    assert theirs(rocks) == []
    assert ours({"tags": "rocks"}) == ["moon-2"]
    not_rocks = MetadataFilter(key="tags", value="rocks", operator=FilterOperator.NE)
    assert "moon-2" in theirs(not_rocks)
    assert "moon-2" not in ours({"tags": {"$ne": "rocks"}})
    with pytest.raises(ValueError, match="Nested"):
        theirs(MetadataFilters(filters=[rocks]))
    assert ours({"$or": [{"$and": [{"kind": "moon"}, {"year": {"$gt": 1970}}]}, {"kind": "water"}]}) == [
        "moon-2",
        "sea-5",
    ]
    with pytest.raises(TypeError):
        theirs(MetadataFilter(key="kind", value=3, operator=FilterOperator.GT))
    assert ours({"kind": {"$gt": 3}}) == []


def test_more_is_asked_for_until_enough_match() -> None:
    """A store that evaluates no filter is asked for more, and nothing that matches is missed."""
    kept = KeepsText()
    many = [TextNode(id_=f"n{row:03}", text=f"moon {row}", metadata={"row": row}) for row in range(300)]
    index_of(nodes=many, vector_store=kept)
    kept.asked.clear()
    store = LlamaIndexStore(kept)
    full = by_vector(store, limit=300)
    wanted = [name for name in full if int(name[1:]) >= 297]
    assert by_vector(store, limit=2, filter=Not(Ne("row", 299))) == ["n299"]
    assert by_vector(store, limit=3, filter=Not(Eq("row", -1))) == full[:3]
    asked: list[int] = []
    from retrieval_core.types.filters import Gte

    kept.asked.clear()
    assert by_vector(store, limit=3, filter=Gte("row", 297)) == wanted
    asked = [query.similarity_top_k for query in kept.asked]
    assert asked == [3, 12, 48, 192, 768]
    assert all(query.filters is None for query in kept.asked)


def test_a_store_that_refuses_a_filter_is_asked_without_it() -> None:
    """Qdrant may be set up to filter by indexed fields only, and answers 400 for others."""

    class BadRequestError(Exception):
        status_code = 400

    class Strict(KeepsText):
        def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
            if query.filters is not None:
                raise BadRequestError("Index required but not found for field")
            return super().query(query, **kwargs)

    kept = Strict()
    index_of(vector_store=kept)
    store = LlamaIndexStore(kept, abilities=StoreAbilities(operators=frozenset({FilterOperator.EQ})))
    assert by_vector(store, filter=Eq("kind", "moon")) == by_vector(LlamaIndexStore(kept), filter=Eq("kind", "moon"))


def test_one_refused_read_by_id_does_not_bring_back_deleted_nodes() -> None:
    class Reads(KeepsText):
        refuses: bool = False

        def get_nodes(self, node_ids: Any = None, filters: Any = None) -> list[BaseNode]:
            if self.refuses:
                raise ValueError("a moment, please")
            return [node for node in self.nodes if node.node_id in node_ids]

    kept = Reads()
    index = index_of(vector_store=kept)
    docstore = SimpleDocumentStore()
    docstore.add_documents(nodes())
    kept.nodes = [node for node in kept.nodes if node.node_id != "moon-0"]
    with from_index(index, docstore=docstore) as pipeline:

        def found() -> list[str]:
            return names(pipeline.retrieve("moon", mode="lexical"))

        before = found()
        assert before
        assert "moon-0" not in before
        kept.refuses = True
        with suppress(SearchError):
            assert pipeline.retrieve("moon far", mode="lexical").degraded
        kept.refuses = False
        assert found() == before


def test_documents_that_are_nodes_are_found_by_keyword_search() -> None:
    """Others are not: an ``IngestionPipeline`` keeps the documents that it made nodes of."""

    class Reads(KeepsText):
        def get_nodes(self, node_ids: Any = None, filters: Any = None) -> list[BaseNode]:
            return [node for node in self.nodes if node.node_id in node_ids]

    kept, docstore = Reads(), SimpleDocumentStore()
    given = [LlamaDocument(id_=name, text=f"the comet {name}") for name in ("halley", "encke")]
    index_of(nodes=given, vector_store=kept)
    docstore.add_documents([*given, LlamaDocument(id_="whole", text="a comet that is in no vector store")])
    with pipeline_from(vector_store=kept, docstore=docstore, embed_model=WordEmbedding()) as pipeline:
        assert sorted(names(pipeline.retrieve("comet", mode="lexical"))) == ["encke", "halley"]
        docstore.add_documents([LlamaDocument(id_="encke", text="now an asteroid")])
        assert names(pipeline.retrieve("comet", mode="lexical")) == ["halley"]


def test_a_field_that_no_node_has_is_named() -> None:
    """Without a docstore too, and for stores that evaluate the filter."""

    def give(result: VectorStoreQueryResult) -> VectorStoreQueryResult:
        return VectorStoreQueryResult([], [], []) if kept.asked[-1].filters else result

    kept = KeepsText()
    index_of(vector_store=kept)
    told = "filter: none of the 6 chunks looked at has a field 'kidn'; did you mean 'kind'?"
    for abilities in (StoreAbilities(), StoreAbilities(operators=frozenset({FilterOperator.EQ}))):
        store = LlamaIndexStore(kept, abilities=abilities)
        kept.give = give
        with RetrievalPipeline(store, LlamaIndexEmbedder(WordEmbedding())) as pipeline:
            assert pipeline.retrieve("moon", {"kidn": "moon"}, mode="dense").metadata["note"] == told


def test_where_the_most_results_do_not_suffice_the_result_says_so() -> None:
    kept = KeepsText()
    index_of(
        nodes=[TextNode(id_=f"n{row:03}", text=f"moon {row}", metadata={"row": row}) for row in range(100)],
        vector_store=kept,
    )
    store = LlamaIndexStore(kept)
    store.most_results = 50
    with pytest.raises(IncompleteSearchError, match="of the 50 best only 0 match the filter") as raised:
        by_vector(store, filter=Eq("row", "none"))
    assert raised.value.found == ()
    pipeline = RetrievalPipeline(store, LlamaIndexEmbedder(WordEmbedding()))
    result = ask(pipeline, "moon", filters={"row": "none"}, mode="dense")
    assert "there may be others" in reasons(result)[0]


def test_only_told_operators_are_asked_of_the_store() -> None:
    """What is asked passes at least what the filter passes: an ``$or`` as a whole or not at all."""
    kept = KeepsText()
    index_of(vector_store=kept)
    abilities = StoreAbilities(operators=frozenset({FilterOperator.EQ, FilterOperator.IN, FilterOperator.GT}))
    store = LlamaIndexStore(kept, abilities=abilities)

    def asked(condition: dict[str, Any]) -> Any:
        from retrieval_core import parse_filter

        kept.asked.clear()
        by_vector(store, filter=parse_filter(condition))
        filters = kept.asked[0].filters
        return None if filters is None else filters.model_dump(mode="json")

    one = {"key": "kind", "value": "moon", "operator": "=="}
    assert asked({"kind": "moon"}) == {"filters": [one], "condition": "and"}
    assert asked({"kind": "moon", "year": {"$ne": 3}}) == {"filters": [one], "condition": "and"}
    either = asked({"$or": [{"kind": "moon"}, {"year": {"$gt": 3}}]})
    assert either["condition"] == "or"
    left_to_us: tuple[dict[str, Any], ...] = (
        {"$or": [{"kind": "moon"}, {"year": {"$ne": 3}}]},
        {"$not": {"kind": "moon"}},
        {"year": {"$gt": "text"}},
        {"kind": True},
        {"kind": {"$in": ["a", 1]}},
        {"kind": {"$in": []}},
        {"year": 2**60},
        {"document_id": "moon"},
        {"kind": {"$exists": True}},
    )
    for left in left_to_us:
        assert asked(left) is None, left
    store = LlamaIndexStore(kept, abilities=StoreAbilities(abilities.operators, numbers=False))
    assert asked({"kind": "moon", "year": 1969}) == {"filters": [one], "condition": "and"}
    assert asked({"year": {"$gt": 3}}) is not None


# --- scores, ids, abilities


def test_the_order_of_the_store_counts_and_its_similarities_if_they_fall() -> None:
    """Products of long vectors are kept, as stock keeps them; distances count by their order."""

    def given(*numbers: float | None) -> Any:
        def give(result: VectorStoreQueryResult) -> VectorStoreQueryResult:
            assert result.nodes is not None
            bare = [node.model_copy(update={"embedding": None}) for node in result.nodes]
            similarities = None if None in numbers else list(numbers)[: len(bare)]
            return VectorStoreQueryResult(nodes=bare, ids=[node.node_id for node in bare], similarities=similarities)  # type: ignore[arg-type]

        return give

    kept = KeepsText()
    index_of(vector_store=kept)
    vector = FakeEmbedder(DIMENSION).vector("moon")
    request = SearchRequest(6, vector=vector)
    kept.give = given(0.9, 0.5, 0.4, 0.3, 0.2, -0.1)
    assert [item.score for item in search(LlamaIndexStore(kept), request)] == [0.9, 0.5, 0.4, 0.3, 0.2, -0.1]
    kept.give = given(17.0, 9.0, 5.0, 3.0, 2.0, 1.0)
    assert [item.score for item in search(LlamaIndexStore(kept), request)] == [17.0, 9.0, 5.0, 3.0, 2.0, 1.0]
    for numbers in ((0.1, 0.2, 0.3, 0.4, 0.5, 0.6), (None,), (float("nan"),) * 6):
        kept.give = given(*numbers)
        found = search(LlamaIndexStore(kept), request)
        assert [item.score for item in found] == pytest.approx([1 / place for place in range(1, 7)])


def test_vectors_that_come_along_are_compared() -> None:
    """Where results are to be diverse."""
    kept = KeepsText()
    index = index_of(vector_store=kept)
    diverse = ask(
        from_index(index, config=load_config(overrides={"search.search_type": "mmr", "search.mode": "dense"})), "moon"
    )
    assert diverse.degraded == ()


def test_ids_of_a_vector_store_are_mapped_to_nodes() -> None:
    """Some stores, such as FAISS, number their vectors; the index knows which node is which."""

    class Numbered(SimpleVectorStore):
        def add(self, nodes: Sequence[BaseNode], **add_kwargs: Any) -> list[str]:
            copies = [node.model_copy(update={"id_": str(row)}) for row, node in enumerate(nodes)]
            return super().add(copies)

    index = index_of(vector_store=Numbered())
    assert set(index.index_struct.nodes_dict) == {str(row) for row in range(6)}
    assert names(ask(from_index(index), "eight light minutes", mode="dense"))[0] == "sun-4"
    filtered = ask(from_index(index), "moon", filters={"kind": "moon"})
    assert sorted(names(filtered)) == ["moon-0", "moon-1", "moon-2"]
    assert all(hit.scores.dense is not None for hit in filtered.hits)


def test_a_vector_whose_node_is_gone_is_told() -> None:
    """LlamaIndex raises a ``KeyError`` for the whole query."""
    index = index_of()
    index.docstore.delete_document("moon-0")
    result = ask(from_index(index), "moon", mode="dense")
    assert "moon-0" not in names(result)
    assert len(result.hits) == 5
    assert "1 of the best could not be read: the docstore has no node 'moon-0'" in reasons(result)[0]


@pytest.mark.parametrize("odd", [float("nan"), date(2026, 1, 2), {1, 2}, b"x", {1: "a"}])
def test_metadata_that_no_json_holds_are_left_to_the_node(odd: Any) -> None:
    """Filters don't see them, and a warning names them; other fields of the node are there."""
    index = index_of(vector_store=KeepsText(), store_nodes_override=True)
    index.insert_nodes([TextNode(id_="odd", text="moon", metadata={"odd": odd, "kind": "rock"})])
    with pytest.warns(UserWarning, match=r"filters can't evaluate: 'odd' \(") as told:
        result = ask(from_index(index), "moon", filters={"kind": "rock"})
    assert (names(result), result.degraded) == (["odd"], ())
    assert cast("Any", result.hits[0].chunk).node.metadata["kind"] == "rock"
    assert {str(each.message).partition(" (")[0] for each in told} == {
        "nodes have metadata that filters can't evaluate: 'odd'"
    }


def test_nodes_that_a_docstore_lacks_are_told() -> None:
    """LlamaIndex writes inserted nodes only to a store that keeps text, so keyword search can't find them."""
    index = index_of(vector_store=KeepsText())
    docstore = SimpleDocumentStore()
    docstore.add_documents(nodes())
    assert ask(from_index(index, docstore=docstore), "moon").degraded == ()
    index.insert(LlamaDocument(id_="new", text="ZZ-99 moon"))
    assert (
        "keyword search can't find 1 of the best"
        in reasons(ask(from_index(index, docstore=docstore), "ZZ-99", top_k=9))[0]
    )
    docstore.add_documents(index.vector_store.nodes)  # type: ignore[attr-defined]
    told = ask(from_index(index, docstore=docstore), "ZZ-99", top_k=9)
    assert told.degraded == ()
    assert cast("Any", told.hits[0].chunk).node.text == "ZZ-99 moon"


def test_a_store_that_reads_by_id_is_read_by_id() -> None:
    class Awaits(KeepsText):
        async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
            await asyncio.sleep(0)
            return self.query(query)

        def get_nodes(self, node_ids: Any = None, filters: Any = None) -> list[BaseNode]:
            return [node for node in self.nodes if node.node_id in node_ids]

    kept = Awaits()
    index_of(vector_store=kept)
    store = LlamaIndexStore(kept)

    async def main() -> None:
        found = await store.fetch(FetchRequest(chunk_ids=("sun-3", "none"), with_vectors=True))
        assert (list(found.chunks), list(found.vectors)) == (["sun-3"], ["sun-3"])

    assert by_vector(store, "sun")[0] == "sun-3"
    asyncio.run(main())


def test_it_is_read_only_and_says_how_to_write() -> None:
    store = LlamaIndexStore(KeepsText())

    async def main() -> None:
        with pytest.raises(StoreError, match=r"write with LlamaIndex, for instance index\.insert_nodes"):
            await store.upsert(Change())
        with pytest.raises(StoreError, match="only read here"):
            await store.delete(["d"])
        with pytest.raises(StoreError, match="cannot tell how many"):
            await store.describe()
        await store.aclose()
        with pytest.raises(StoreError, match="closed"):
            await store.search(SearchRequest(1, text="x"))

    asyncio.run(main())


# --- arguments


def test_parts_that_do_not_fit_are_refused() -> None:
    index, wrong = index_of(), SummaryIndex([])
    odd: Any = wrong
    with pytest.raises(InvalidParameterError, match="give one of vector_store, index and retriever, got none"):
        pipeline_from()
    with pytest.raises(InvalidParameterError, match="got vector_store and index"):
        pipeline_from(vector_store=index.vector_store, index=index)
    with pytest.raises(InvalidParameterError, match=r"a VectorStoreIndex; for others call pipeline_from\(retriever="):
        pipeline_from(index=odd)
    with pytest.raises(InvalidParameterError, match="vector_store must be a vector store of LlamaIndex"):
        pipeline_from(vector_store=odd, embed_model=WordEmbedding())
    with pytest.raises(InvalidParameterError, match="a vector store needs embed_model"):
        pipeline_from(vector_store=KeepsText())
    with pytest.raises(InvalidParameterError, match="keeps no text; give the docstore"):
        pipeline_from(vector_store=index.vector_store, embed_model=WordEmbedding())
    with pytest.raises(InvalidParameterError, match="embeds questions itself"):
        pipeline_from(vector_store=KeepsText(is_embedding_query=False), embed_model=WordEmbedding())
    with pytest.raises(InvalidParameterError, match="rerank must be an object with"):
        from_index(index, rerank=odd)
    with pytest.raises(InvalidParameterError, match="embed_model must be an object with"):
        from_index(index, embed_model=odd)
    with pytest.raises(InvalidParameterError, match="llm must be an object with"):
        from_index(index, llm=odd)
    with pytest.raises(InvalidParameterError, match="retriever has its own"):
        pipeline_from(retriever=index.as_retriever(), docstore=index.docstore)
    with pytest.raises(InvalidParameterError, match="got <VectorStoreQueryMode"):
        LlamaIndexStore(KeepsText(), abilities=StoreAbilities(words=VectorStoreQueryMode.HYBRID))


def test_adapters_are_not_pickled() -> None:
    index = index_of()
    for adapter in (
        LlamaIndexStore(index.vector_store, docstore=index.docstore),
        LlamaIndexEmbedder(WordEmbedding()),
        LlamaIndexRetriever(index.as_retriever()),
        from_index(index).store,
    ):
        with pytest.raises(TypeError, match="cannot be pickled, since it has threads; make a new one"):
            pickle.dumps(adapter)


# --- retrievers


class Fixed(BaseRetriever):
    """Gives back what it has, as any retriever of LlamaIndex does."""

    def __init__(self, *scores: float | None) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.given = [NodeWithScore(node=node, score=score) for node, score in zip(nodes(), scores, strict=False)]
        self.asked: list[str] = []

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.asked.append(query_bundle.query_str)
        return self.given


def test_a_retriever_answers_in_place_of_an_index() -> None:
    """In its order and with its scores, without an embedder; reranker, context and cache work on what it gives."""
    pytest.importorskip("tokenizers", reason="needs the local tokenizer")
    retriever = Fixed(9.0, 7.5, 7.5, 1.0)
    pipeline = pipeline_from(retriever=retriever)
    result = pipeline.retrieve("how bright is the moon")
    assert names(result) == ["moon-0", "moon-1", "moon-2", "sun-3"]
    assert [hit.score for hit in result.hits] == [9.0, 7.5, 7.5, 1.0]
    assert result.degraded == ()
    pipeline.retrieve("how bright is the moon")
    assert retriever.asked == ["how bright is the moon"] * 2  # it may find something else
    assert "The moon is bright" in pipeline.context("how bright is the moon", max_tokens=40).context_pack
    pipeline.close()
    reranked = ask(pipeline_from(retriever=retriever, rerank=FakeReranker()), "the sun is a star")
    assert max(reranked.hits, key=lambda hit: hit.scores.rerank or 0).id == "sun-3"


def test_a_filter_on_a_retriever_says_where_there_may_be_others() -> None:
    retriever = Fixed(4, 3, 2, 1)
    some = ask(pipeline_from(retriever=retriever), "moon", filters={"kind": "star"})
    assert names(some) == ["sun-3"]
    assert "of 4 nodes that Fixed gave 1 match the filter" in reasons(some)[0]
    every = ask(pipeline_from(retriever=retriever), "moon", filters={"kind": {"$in": ["moon", "star"]}})
    assert (len(every.hits), every.degraded) == (4, ())


def test_scores_of_a_retriever_that_contradict_its_order_do_not_count() -> None:
    for given_scores in ((None, None, None), (1.0, 2.0, 3.0), (0.9, None, 0.5)):
        result = ask(pipeline_from(retriever=Fixed(*given_scores)), "moon")
        assert names(result) == ["moon-0", "moon-1", "moon-2"]
        assert [hit.score for hit in result.hits] == pytest.approx([1, 1 / 2, 1 / 3])


def test_a_retriever_beside_an_index_adds_what_it_finds() -> None:
    store = LlamaIndexStore(SimpleVectorStore(), docstore=SimpleDocumentStore())
    mine = LlamaIndexRetriever(Fixed(2.0, 1.0), name="mine")
    pipeline = RetrievalPipeline(store, LlamaIndexEmbedder(WordEmbedding()), retrievers={"mine": mine})
    result = ask(pipeline, "moon")
    assert names(result) == ["moon-0", "moon-1"]
    assert result.hits[0].found_by[0].kind == "mine"


def test_a_retriever_takes_no_vector_and_is_not_written() -> None:
    pipeline = pipeline_from(retriever=Fixed(1.0))

    async def main() -> None:
        with pytest.raises(SearchError, match="takes a question and no vector"):
            await pipeline.store.search(SearchRequest(1, vector=FakeEmbedder(3).vector("x")))
        with pytest.raises(StoreError, match="does not tell what it searches"):
            await pipeline.store.describe()
        with pytest.raises(StoreError, match="only read"):
            await pipeline.store.upsert(Change())
        found = await pipeline.store.search(SearchRequest(1, text="x"))
        assert list((await pipeline.store.fetch(FetchRequest((found[0].chunk_id, "other")))).chunks) == ["moon-0"]
        await pipeline.aclose()
        with pytest.raises(StoreError, match="closed"):
            await pipeline.store.search(SearchRequest(1, text="x"))

    asyncio.run(main())


def test_questions_at_once_do_not_block_the_loop() -> None:
    """BlockBuster is on, and LlamaIndex's own asynchronous query would search on the loop."""
    pipeline = from_index(index_of())

    async def main() -> None:
        async with pipeline:
            questions = [f"moon and sun number {row}" for row in range(50)]
            results = await asyncio.gather(*(pipeline.aretrieve(question) for question in questions))
        assert all(result.hits and not result.degraded for result in results)

    asyncio.run(main())
