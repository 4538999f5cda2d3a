"""LlamaIndex's ``PineconeVectorStore``, with Pinecone's client, against a server that speaks Pinecone's protocol."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import contextmanager
from math import sin
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")
pytest.importorskip("llama_index.vector_stores.pinecone", reason="the extra 'pinecone' of the plug-in is not installed")

from llama_index.core.schema import TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery, VectorStoreQueryMode
from llama_index.vector_stores.pinecone import PineconeVectorStore
from pinecone import Pinecone

from llama_index.retrievers.retrieval_core import chunk_from_node
from llama_index.retrievers.retrieval_core.adapters import (
    LlamaIndexStore,
    from_index,
    pipeline_from,
)
from retrieval_core.config import load_config
from retrieval_core.errors import ServiceError
from retrieval_core.ports import FetchRequest, SearchRequest
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types.filters import OPERATORS, chunk_fields, matches
from support.examples import times
from support.llamaindex_parts import DIMENSION, WordEmbedding, index_of, nodes
from support.pinecone_service import KEY, PineconeService
from support.wire_server import WireServer

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from retrieval_core.pipeline import RetrievalPipeline
    from retrieval_core.types import RetrievalResult
    from retrieval_core.types.filters import Filter

MOON = FakeEmbedder(DIMENSION).vector("moon")


class Dense(WordEmbedding):
    """Has no zeros, as models have none."""

    def vector(self, text: str) -> list[float]:
        return [number + 0.001 * sin(row + len(text)) for row, number in enumerate(super().vector(text))]


def tokens(texts: Sequence[str]) -> list[list[int]]:
    return [[crc32(word.encode()) for word in re.findall(r"\w+", text.lower())] for text in texts]


@contextmanager
def served(metric: str = "cosine", **options: Any) -> Generator[tuple[WireServer, PineconeVectorStore]]:
    with WireServer(PineconeService(DIMENSION, metric)) as server:
        client = Pinecone(api_key=options.pop("key", KEY)).Index(host=server.url)
        quiet = {"show_progress": False}
        try:
            yield server, PineconeVectorStore(pinecone_index=client, insert_kwargs=quiet, **options)
        finally:
            client.close()


@contextmanager
def filled(metric: str = "cosine", **options: Any) -> Generator[tuple[WireServer, PineconeVectorStore]]:
    with served(metric, **options) as (server, store):
        index_of(vector_store=store)
        yield server, store


def queries(server: WireServer) -> list[dict[str, Any]]:
    return [request.json() for request in server.requests if request.path == "/query"]


def ask(pipeline: RetrievalPipeline, question: str, **options: Any) -> RetrievalResult:
    async def main() -> RetrievalResult:
        async with pipeline:
            return await pipeline.aretrieve(question, **options)

    return asyncio.run(main())


def search(store: LlamaIndexStore, limit: int = 10, **request: Any) -> list[str]:
    async def main() -> list[str]:
        return [item.chunk_id for item in await store.search(SearchRequest(limit, **request))]

    return asyncio.run(main())


def test_a_question_is_one_request_with_its_vector() -> None:
    with filled() as (server, store):
        pipeline = pipeline_from(
            vector_store=store, embed_model=WordEmbedding(), config=load_config(overrides={"search.mode": "dense"})
        )
        result = ask(pipeline, "eight light minutes", top_k=2)
        (asked,) = queries(server)
    assert result.hits[0].id == "sun-4"  # the node's id; the record's is sun#sun-4
    assert result.hits[0].chunk.document_id == "sun"
    assert result.degraded == ()
    assert asked["vector"] == pytest.approx(WordEmbedding().vector("eight light minutes"), abs=1e-6)  # of length 3
    assert (asked["topK"], asked["filter"], asked["includeValues"]) == (2, {}, False)


def test_a_docstore_makes_it_hybrid() -> None:
    """Nodes of both are the same by their ids; without a docstore every result says that there are no words."""
    docstore = SimpleDocumentStore()
    docstore.add_documents(nodes())
    with filled() as (_, store):
        both = ask(pipeline_from(vector_store=store, embed_model=WordEmbedding(), docstore=docstore), "model XQ-77")
        alone = ask(pipeline_from(vector_store=store, embed_model=WordEmbedding()), "model XQ-77")
    assert (both.hits[0].id, both.degraded) == ("sea-5", ())
    assert both.hits[0].scores.dense is not None
    assert both.hits[0].scores.lexical is not None
    assert len({hit.id for hit in both.hits}) == len(both.hits)
    assert "PineconeVectorStore has no keyword search" in alone.degraded[0].reason


def test_trap_modes_that_send_a_vector_of_zeros_are_never_used() -> None:
    """LlamaIndex's MMR and TEXT_SEARCH send one, and get whatever comes first; ours compare vectors and refuse."""
    with filled() as (server, store):
        for mode in (VectorStoreQueryMode.MMR, VectorStoreQueryMode.TEXT_SEARCH, VectorStoreQueryMode.SPARSE):
            store.query(
                VectorStoreQuery(query_embedding=MOON.tolist(), query_str="moon", mode=mode, similarity_top_k=2)
            )
            assert not any(queries(server)[-1]["vector"])
            assert "sparseVector" not in queries(server)[-1]
        before = len(queries(server))
        mmr = load_config(overrides={"search.search_type": "mmr"})
        diverse = ask(from_index(index_of(nodes=nodes()[:1], vector_store=store), config=mmr), "moon", top_k=3)
        assert [item.stage for item in diverse.degraded] == ["lexical"]  # their vectors came along, and were compared
        docstore = SimpleDocumentStore()
        docstore.add_documents(nodes())
        both = from_index(index_of(nodes=nodes()[:1], vector_store=store), docstore=docstore, config=mmr)
        assert ask(both, "moon", top_k=3).degraded == ()
        ask(from_index(index_of(nodes=nodes()[:1], vector_store=store)), "moon", mode="lexical")
        assert len(queries(server)) > before
        assert all(any(query["vector"]) for query in queries(server)[before:])


def test_trap_its_asynchronous_query_blocks_so_threads_are_used() -> None:
    """BlockBuster is on: a request on the event loop would fail."""
    assert PineconeVectorStore.aquery is BasePydanticVectorStore.aquery
    with filled() as (server, store):
        adapted = LlamaIndexStore(store)

        async def main() -> None:
            found = await asyncio.gather(*(adapted.search(SearchRequest(3, vector=MOON)) for _ in range(20)))
            assert {item.chunk_id for item in found[0]} == {"moon-0", "moon-1", "moon-2"}
            assert all(one == found[0] for one in found)
            await adapted.aclose()

        asyncio.run(main())
        assert len(queries(server)) == 20


@pytest.mark.parametrize(
    "operator",
    [
        FilterOperator.ANY,
        FilterOperator.ALL,
        FilterOperator.TEXT_MATCH,
        FilterOperator.TEXT_MATCH_INSENSITIVE,
        FilterOperator.CONTAINS,
        FilterOperator.IS_EMPTY,
    ],
)
def test_trap_operators_that_it_lacks_raise_there(operator: FilterOperator) -> None:
    with filled() as (_, store):
        asked = MetadataFilters(filters=[MetadataFilter(key="kind", value="moon", operator=operator)])
        with pytest.raises(ValueError, match="not supported"):
            store.query(VectorStoreQuery(query_embedding=MOON.tolist(), filters=asked))
        neither = MetadataFilters(filters=[MetadataFilter(key="kind", value="moon")] * 2, condition=FilterCondition.NOT)
        with pytest.raises(ValueError, match="not supported"):
            store.query(VectorStoreQuery(query_embedding=MOON.tolist(), filters=neither))


@pytest.mark.parametrize(
    ("condition", "sent", "expected"),
    [
        ({"kind": "star"}, {"kind": {"$eq": "star"}}, {"sun-3", "sun-4"}),
        ({"tags": "rocks"}, {"tags": {"$eq": "rocks"}}, {"moon-2"}),
        ({"kind": {"$in": ["star", "water"]}}, {"kind": {"$in": ["star", "water"]}}, {"sun-3", "sun-4", "sea-5"}),
        (
            {"$or": [{"kind": "water"}, {"$and": [{"kind": "moon"}, {"year": {"$gte": 1970}}]}]},
            {"$or": [{"kind": {"$eq": "water"}}, {"$and": [{"kind": {"$eq": "moon"}}, {"year": {"$gte": 1970}}]}]},
            {"moon-1", "moon-2", "sea-5"},
        ),
        ({"kind": {"$ne": "moon"}}, {}, {"sun-3", "sun-4", "sea-5"}),
        ({"kind": {"$nin": ["moon", "star"]}}, {}, {"sea-5"}),
        ({"year": {"$ne": 1969}}, {}, {"moon-1", "moon-2", "sun-3", "sun-4", "sea-5"}),
        ({"$not": {"kind": "moon"}}, {}, {"sun-3", "sun-4", "sea-5"}),
        ({"tags": {"$contains": "far"}}, {}, {"sun-4"}),
        ({"kind": {"$text": "STA"}}, {}, {"sun-3", "sun-4"}),
        ({"kind": {"$glob": "w*"}}, {}, {"sea-5"}),
        ({"year": {"$exists": False}}, {}, {"sun-3", "sun-4"}),
        ({"document_id": "sea"}, {}, {"sea-5"}),
        ({"kind": "moon", "year": {"$ne": 1969}}, {"kind": {"$eq": "moon"}}, {"moon-1", "moon-2"}),
    ],
)
def test_every_operator_is_answered_exactly(
    condition: dict[str, Any], sent: dict[str, Any], expected: set[str]
) -> None:
    """What Pinecone evaluates safely it is asked; the rest is tested here, and nothing raises."""
    with filled() as (server, store):
        pipeline = pipeline_from(vector_store=store, embed_model=WordEmbedding())
        result = ask(pipeline, "moon", filters=condition, mode="dense", top_k=20)
        assert queries(server)[0]["filter"] == sent
    assert {hit.id for hit in result.hits} == expected
    assert result.degraded == ()


_NAMES = st.sampled_from(["a", "b", "c"])
_VALUES = st.one_of(st.sampled_from(["x", "y", "X"]), st.integers(-3, 3), st.booleans(), st.floats(-2, 2))
_METADATA = st.dictionaries(_NAMES, _VALUES | st.lists(st.sampled_from(["x", "y", "z"]), max_size=2), max_size=3)


def _filters() -> st.SearchStrategy[Filter]:
    from retrieval_core.testing.filter_strategies import filters

    return filters(OPERATORS)


@pytest.mark.slow
@settings(max_examples=times(60), deadline=None)
@given(st.lists(_METADATA, min_size=1, max_size=5), st.lists(_filters(), min_size=1, max_size=3))
def test_filters_agree_with_matches(metadata: list[dict[str, Any]], filters: list[Filter]) -> None:
    with served() as (_, store):
        made = [TextNode(id_=f"n{row}", text="moon", metadata=own) for row, own in enumerate(metadata)]
        index_of(nodes=made, vector_store=store)
        adapted = LlamaIndexStore(store)
        for condition in filters:
            expected = {node.node_id for node in made if matches(condition, chunk_fields(chunk_from_node(node)))}
            assert set(search(adapted, vector=MOON, filter=condition)) == expected


def test_words_are_searched_with_its_sparse_vectors_where_it_has_some() -> None:
    """With ``add_sparse_vector`` the zeros stand beside the words' own vector, as Pinecone wants it for words alone."""
    with filled("dotproduct", add_sparse_vector=True, tokenizer=tokens) as (server, store):
        adapted = LlamaIndexStore(store)
        assert search(adapted, text="xq 77")[0] == "sea-5"
        asked = queries(server)[-1]
        assert not any(asked["vector"])
        assert sorted(asked["sparseVector"]["indices"]) == sorted(set(tokens(["xq 77"])[0]))
        assert search(adapted, text="absent") == []
        result = ask(pipeline_from(vector_store=store, embed_model=WordEmbedding()), "XQ-77")
        assert (result.hits[0].id, result.degraded) == ("sea-5", ())
        native = load_config(overrides={"search.fusion": "native"})
        before = len(queries(server))
        both = ask(pipeline_from(vector_store=store, embed_model=WordEmbedding(), config=native), "the moon XQ-77")
        (asked,) = queries(server)[before:]
        assert any(asked["vector"])
        assert asked["sparseVector"]["indices"]
    assert {"sea-5", "moon-0"} <= {hit.id for hit in both.hits}
    assert both.degraded == ()


def test_trap_adding_shows_a_progress_bar_and_reading_does_not(capfd: pytest.CaptureFixture[str]) -> None:
    with served() as (_, store):
        store.insert_kwargs = {}
        index_of(vector_store=store)
        assert capfd.readouterr().err != ""
        ask(pipeline_from(vector_store=store, embed_model=WordEmbedding()), "moon", filters={"kind": {"$ne": "x"}})
    assert capfd.readouterr() == ("", "")


def test_a_refused_key_is_an_error_with_its_status() -> None:
    with served(key="pc-another-key") as (_, store):
        pipeline = pipeline_from(vector_store=store, embed_model=WordEmbedding())
        with pytest.raises(ServiceError, match="PineconeVectorStore failed: UnauthorizedError") as raised:
            ask(pipeline, "moon")
    assert raised.value.status == 401


def test_a_record_of_another_program_is_told() -> None:
    """LlamaIndex raises a bare ``KeyError('text')`` for the whole query."""
    with served() as (server, store):
        service: Any = server.service
        service.put("other", MOON, {"page_content": "of somebody else"})
        pipeline = pipeline_from(vector_store=store, embed_model=WordEmbedding())
        result = ask(pipeline, "moon", mode="dense")
    assert not result.hits
    assert "PineconeVectorStore failed: KeyError: 'text'" in str(result.metadata["error"])


def test_it_reads_what_was_found() -> None:
    with filled(namespace="own") as (_, store):
        adapted = LlamaIndexStore(store, vectors=True)

        async def main() -> None:
            assert not (await adapted.fetch(FetchRequest(("moon-0",)))).chunks  # Pinecone is not asked by id
            await adapted.search(SearchRequest(3, vector=MOON))
            found = await adapted.fetch(FetchRequest(("moon-0",), with_vectors=True))
            assert (list(found.chunks), list(found.vectors)) == (["moon-0"], ["moon-0"])
            await adapted.aclose()

        asyncio.run(main())


def test_an_index_over_it_works_in_three_lines() -> None:
    with served() as (server, store):
        index = index_of(vector_store=store, store_nodes_override=True)
        pipeline = from_index(index)
        result = ask(pipeline, "model XQ-77")
        assert (result.hits[0].id, result.degraded) == ("sea-5", ())
        assert len(queries(server)) == 1
    assert json.dumps(queries(server)[0])


def test_trap_values_that_make_an_answer_too_large_are_left_out() -> None:
    """LlamaIndex asks for all vectors; those of 201 records, as long as OpenAI's, exceed Pinecone's 4 MB."""
    size = 1536
    model = Dense(size=size)
    with WireServer(PineconeService(size)) as server, Pinecone(api_key=KEY).Index(host=server.url) as client:
        quiet = {"show_progress": False}
        store = PineconeVectorStore(pinecone_index=client, insert_kwargs=quiet, batch_size=20)
        made = [TextNode(id_=f"n{row:03}", text=f"moon number {row}") for row in range(205)]
        index_of(model, store, nodes=made)
        with pytest.raises(Exception, match="larger than 4 MB"):
            store.query(VectorStoreQuery(query_embedding=model.vector("moon"), similarity_top_k=201))
        result = ask(pipeline_from(vector_store=store, embed_model=model), "number 77", mode="dense")
        assert (result.hits[0].id, result.degraded) == ("n077", ())
        assert not queries(server)[-1]["includeValues"]
