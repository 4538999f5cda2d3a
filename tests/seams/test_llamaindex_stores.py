"""``from_index`` over vector stores with a synchronous or an asynchronous client, a docstore, or a dead service."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core import Document, StorageContext, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import ImageNode, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores import MetadataFilters, SimpleVectorStore

from llama_index.retrievers.retrieval_core import RetrievalCoreRetriever
from llama_index.retrievers.retrieval_core.adapters import (
    LlamaIndexEmbedder,
    LlamaIndexStore,
    from_index,
    pipeline_from,
)
from llama_index.storage.docstore.retrieval_core import RetrievalCoreDocumentStore
from llama_index.vector_stores.retrieval_core import RetrievalCoreVectorStore
from retrieval_core import load_config
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.errors import (
    EmbedderMismatchError,
    IndexFormatError,
    InvalidParameterError,
    ModelNotFoundError,
    SearchError,
    StoreError,
)
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from support.llamaindex_parts import DIMENSION, WordEmbedding
from support.llamaindex_stores import KEEP_TEXT, async_qdrant, opened, pinecone
from support.wire_server import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from llama_index.core.schema import BaseNode
    from llama_index.core.vector_stores.types import (
        BasePydanticVectorStore,
        VectorStoreQuery,
        VectorStoreQueryResult,
    )

pytestmark = pytest.mark.filterwarnings("ignore")  # of the vendors' clients

MOON, SUN, MODEL = (f"{number}0000000-0000-4000-8000-000000000000" for number in (1, 2, 3))
TEXTS = {MOON: "The moon is bright at night.", SUN: "The sun is a star.", MODEL: "Model XQ-77 dives deep."}


@pytest.fixture(autouse=True)
def loop() -> Iterator[None]:
    """LlamaIndex's synchronous methods take the thread's event loop."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


def nodes() -> list[BaseNode]:
    return [TextNode(id_=name, text=text, metadata={"kind": text.split()[1]}) for name, text in TEXTS.items()]


def index_over(store: BasePydanticVectorStore, docstore: SimpleDocumentStore | None = None) -> VectorStoreIndex:
    """Return LlamaIndex's own pattern: nodes in a docstore, and in a vector store."""
    if docstore is not None:
        docstore.add_documents(nodes())
    context = StorageContext.from_defaults(vector_store=store, docstore=docstore)
    return VectorStoreIndex(nodes(), storage_context=context, embed_model=WordEmbedding())


def ids(found: Any) -> list[str]:
    return [item.node.node_id for item in found]


def degraded(found: Any) -> list[str]:
    return found[0].degraded


# --- synchronous and asynchronous clients


class Recording(SimpleVectorStore):
    """Has both methods, and records which of them was called."""

    _called: list[str] = PrivateAttr(default_factory=list[str])

    @property
    def called(self) -> list[str]:
        return self._called

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        self._called.append("query")
        return super().query(query, **kwargs)

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        self._called.append("aquery")
        await asyncio.sleep(0)
        return super().query(query, **kwargs)


def test_qdrant_with_a_synchronous_client_only() -> None:
    """Synchronous and asynchronous queries find the same nodes, with nothing degraded."""
    with opened("qdrant") as store:
        retriever = RetrievalCoreRetriever(from_index(index_over(store, SimpleDocumentStore())), top_k=1)
        found = retriever.retrieve("the sun is a star")
        assert (ids(found), degraded(found)) == ([SUN], [])
        assert ids(asyncio.run(retriever.aretrieve("the sun is a star"))) == [SUN]
        assert ids(retriever.retrieve_with("the moon", mode="dense")) == [MOON]
        retriever.pipeline.close()


def test_qdrant_with_an_asynchronous_client_only() -> None:
    """LlamaIndex writes and reads it asynchronously; a synchronous query finds the same here."""

    async def main() -> RetrievalCoreRetriever:
        store = async_qdrant()
        index = VectorStoreIndex.from_vector_store(store, embed_model=WordEmbedding())
        await index.ainsert_nodes(nodes())
        docstore = SimpleDocumentStore()
        docstore.add_documents(nodes())
        retriever = RetrievalCoreRetriever(from_index(index, docstore=docstore), top_k=1)
        found = await retriever.aretrieve("the sun is a star")
        assert (ids(found), degraded(found)) == ([SUN], [])
        return retriever

    retriever = asyncio.run(main())
    found = retriever.retrieve("model XQ-77")
    assert (ids(found), degraded(found)) == ([MODEL], [])
    retriever.pipeline.close()


def test_a_synchronous_call_uses_the_synchronous_method_and_an_asynchronous_one_the_other() -> None:
    """Clients of both kinds are used where they belong."""
    store = Recording()
    retriever = RetrievalCoreRetriever(from_index(index_over(store)), mode="dense")
    retriever.retrieve("the moon")
    assert set(store.called) == {"query"}
    store.called.clear()
    asyncio.run(retriever.aretrieve("the moon"))
    assert set(store.called) == {"aquery"}
    retriever.pipeline.close()


def test_an_asynchronous_call_falls_back_to_a_thread_once_for_all() -> None:
    """A store without an asynchronous client raises before it sends anything; it is not asked again."""
    tried: list[str] = []

    class Unfit(Recording):
        async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
            tried.append("aquery")
            raise ValueError("Async client is not initialized!")

    store = Unfit()
    pipeline = from_index(index_over(store), config=load_config(overrides={"search.mode": "dense"}))

    async def main() -> None:
        async with pipeline:
            for query in ("the moon", "the sun"):
                result = await pipeline.aretrieve(query)
                assert (len(result.hits), result.degraded) == (3, ())

    asyncio.run(main())
    assert tried == ["aquery"]
    assert set(store.called) == {"query"}


def test_an_error_of_a_service_is_not_tried_with_the_other_client() -> None:
    """What fails after it has waited for the service has failed."""

    class Down(Recording):
        async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
            await asyncio.sleep(0)
            raise RuntimeError("the service is down")

    store = Down()
    retriever = RetrievalCoreRetriever(from_index(index_over(store)), mode="dense")
    with pytest.raises(SearchError, match="dense: Down failed: RuntimeError: the service is down"):
        asyncio.run(retriever.aretrieve("the moon"))
    assert store.called == []
    retriever.pipeline.close()


# --- nodes in a docstore


@pytest.mark.parametrize("kind", KEEP_TEXT)
def test_keyword_search_reads_the_docstore_of_the_storage_context(kind: str) -> None:
    """A name that no embedding knows is found by its words, and nothing is degraded."""
    with opened(kind) as store:
        index = index_over(store, SimpleDocumentStore())
        assert not index.index_struct.nodes_dict
        result = from_index(index).retrieve("XQ-77")
        assert (result.hits[0].id, result.degraded) == (MODEL, ())
        assert result.hits[0].scores.lexical is not None
        assert result.hits[0].scores.dense is not None


@pytest.mark.parametrize("kind", KEEP_TEXT)
def test_images_in_the_index_do_not_hide_the_texts_of_the_docstore(kind: str) -> None:
    """LlamaIndex lists images and references in such an index, and no texts."""
    with opened(kind) as store:
        index = index_over(store, SimpleDocumentStore())
        image = ImageNode(id_="40000000-0000-4000-8000-000000000000", text="a picture of a comet")
        index.insert_nodes([image])
        assert list(index.index_struct.nodes_dict) == [image.node_id] or kind == "pinecone"
        pipeline = from_index(index)
        for query, name in (("XQ-77", MODEL), ("comet", image.node_id)):
            result = pipeline.retrieve(query, mode="lexical")
            assert ([hit.id for hit in result.hits], result.degraded) == ([name], ())
        pipeline.close()


def test_nodes_that_come_later_are_found() -> None:
    """An index that was empty at first is no exception."""
    with opened("chroma") as store:
        docstore = SimpleDocumentStore()
        context = StorageContext.from_defaults(vector_store=store, docstore=docstore)
        index = VectorStoreIndex([], storage_context=context, embed_model=WordEmbedding())
        pipeline = from_index(index)
        assert not pipeline.retrieve("XQ-77").hits
        docstore.add_documents(nodes())
        index.insert_nodes(nodes())
        result = pipeline.retrieve("XQ-77")
        assert (result.hits[0].id, result.degraded) == (MODEL, ())
        pipeline.close()


# --- failures


def test_a_dead_store_is_named_before_the_keyword_search_that_there_is_not() -> None:
    """Both sides and their causes are in the message, and in its details."""
    with pinecone() as (server, store):
        retriever = RetrievalCoreRetriever(pipeline_from(vector_store=store, embed_model=WordEmbedding()))
        server.fail_always(Status(400))
        with pytest.raises(SearchError) as raised:
            retriever.retrieve("the moon")
        message = str(raised.value)
        assert "dense: PineconeVectorStore failed: " in message
        assert "[400]" in message
        assert message.index("dense: ") < message.index("lexical: PineconeVectorStore has no keyword search")
        assert len(raised.value.details["degraded"]) == 2
        retriever.pipeline.close()


@pytest.mark.parametrize(("mode", "side"), [("dense", "dense"), ("lexical", "lexical")])
def test_one_failed_side_is_named(mode: Any, side: str) -> None:
    """With the mode that was asked for."""

    class Down(SimpleVectorStore):
        stores_text: bool = True

        def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
            raise OSError("the disk is gone")

    retriever = RetrievalCoreRetriever(pipeline_from(vector_store=Down(), embed_model=WordEmbedding()), mode=mode)
    with pytest.raises(SearchError, match=f"at least one search failed: {side}: Down "):
        retriever.retrieve("the moon")
    retriever.pipeline.close()


def test_a_search_that_failed_is_named_where_the_other_one_found_nothing() -> None:
    """Keyword search ran, so the message does not say that nothing could be searched."""

    class Down(MemoryStore):
        async def search(self, request: Any) -> Any:
            if request.vector is not None:
                raise StoreError("the vectors are gone")
            return await super().search(request)

    embedder = FakeEmbedder(DIMENSION)
    store = Down(embedder_id=embedder.id, dimension=DIMENSION)
    retriever = RetrievalCoreRetriever(RetrievalPipeline(store, embedder))
    with pytest.raises(SearchError) as raised:
        retriever.retrieve("zebra")
    assert str(raised.value).startswith("nothing was found, and at least one search failed: dense: the vectors are ")
    retriever.pipeline.close()


def test_a_missing_keyword_search_is_logged_once_a_pipeline(caplog: pytest.LogCaptureFixture) -> None:
    """Every result still says it."""
    with opened("chroma") as store, caplog.at_level(logging.WARNING):
        retriever = RetrievalCoreRetriever(from_index(index_over(store)), top_k=1)
        for query in ("the moon", "the sun", "the model"):
            assert "has no keyword search" in degraded(retriever.retrieve(query))[0]
        assert len([message for message in caplog.messages if "has no keyword search" in message]) == 1
        another = RetrievalCoreRetriever(from_index(index_over(store)), top_k=1)
        another.retrieve("the moon")
        assert len([message for message in caplog.messages if "has no keyword search" in message]) == 2
        retriever.pipeline.close()
        another.pipeline.close()


def test_a_model_that_is_not_there_is_logged_once_a_pipeline(caplog: pytest.LogCaptureFixture) -> None:
    """A service that fails is logged with each query; it may work for the next one."""

    class Reranker:
        id = "missing"
        batch_size = 10
        error: Exception = ModelNotFoundError("the model's files are not on this machine")

        async def score(self, query: str, passages: Any) -> Any:
            raise self.error

    reranker: Any = Reranker()
    with opened("simple") as store, caplog.at_level(logging.WARNING):
        pipeline = from_index(index_over(store), rerank=reranker)
        for query in ("the moon", "the sun"):
            assert pipeline.retrieve(query).degraded
        assert len([message for message in caplog.messages if "not on this machine" in message]) == 1
        Reranker.error = OSError("the service is down")
        for query in ("the moon", "the sun"):
            assert pipeline.retrieve(query).degraded
        assert len([message for message in caplog.messages if "the service is down" in message]) == 2
        pipeline.close()


@pytest.mark.parametrize("filters", [{}, MetadataFilters(filters=[]), None])
def test_an_empty_filter_is_no_filter(filters: Any) -> None:
    """Of the retriever, of one query, and of a bound retriever."""
    with opened("simple") as store:
        pipeline = from_index(index_over(store))
        retriever = RetrievalCoreRetriever(pipeline, filters=filters)
        assert len(retriever.retrieve("the moon")) == 3
        assert len(retriever.retrieve_with("the moon", filters=filters)) == 3
        assert len(retriever.bound(filters=filters).retrieve("the moon")) == 3
        if not isinstance(filters, MetadataFilters):
            assert len(pipeline.retrieve("the moon", filters=filters).hits) == 3
        pipeline.close()


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
def test_a_dead_pinecone_fails_with_the_attempts_and_waits_of_the_stock_store(
    mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pinecone's client retries by itself; nothing is added to its attempts, nor waited for besides."""
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    with pinecone() as (server, store):
        index = index_over(store)
        server.fail_always(Status(503))
        before = server.count("/query")
        with pytest.raises(Exception, match="503"):
            index.as_retriever(similarity_top_k=3).retrieve("the moon")
        stock, stock_waits = server.count("/query") - before, len(waits)
        assert stock > 1
        assert stock_waits > 0
        clock = FakeClock()
        pipeline = RetrievalPipeline(LlamaIndexStore(store), LlamaIndexEmbedder(WordEmbedding()), clock=clock)

        async def main() -> None:
            async with pipeline:
                with pytest.raises(SearchError, match=r"dense: PineconeVectorStore failed: .*503"):
                    await RetrievalCoreRetriever(pipeline, mode=mode).aretrieve("the moon")

        asyncio.run(main())
        assert server.count("/query") - before == 2 * stock
        assert len(waits) == 2 * stock_waits
        assert clock.slept == []


# --- what cannot be written is refused before anything is embedded


class Counting(BaseEmbedding):
    """Counts the texts that it embeds."""

    model_name: str = "counting"
    embed_dim: int = DIMENSION
    _texts: list[str] = PrivateAttr(default_factory=list[str])

    @property
    def texts(self) -> list[str]:
        return self._texts

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        self._texts.append(text)
        return [1.0] * self.embed_dim


def ingest(model: Counting, **stores: Any) -> None:
    pipeline = IngestionPipeline(transformations=[model], **{name: make() for name, make in stores.items()})
    pipeline.run(documents=[Document(id_=f"d{number}", text=f"text {number}") for number in range(5)])


def written_with(path: Path, model: Any) -> None:
    with RetrievalCoreVectorStore.from_index_file(path, embed_model=model) as store:
        store.add([TextNode(text="The moon.", embedding=[1.0] * DIMENSION)])


def test_an_ingestion_pipeline_over_a_new_file_without_a_model_is_refused_first(tmp_path: Path) -> None:
    """A new file needs the model's name."""
    model = Counting()
    with pytest.raises(InvalidParameterError, match="Name the model"):
        ingest(model, vector_store=lambda: RetrievalCoreVectorStore.from_index_file(tmp_path / "new.db"))
    assert model.texts == []


def other_model(path: Path) -> None:
    written_with(path, WordEmbedding(embed_dim=DIMENSION))


def text_file(path: Path) -> None:
    path.write_text("no index")


def folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("prepare", "error"),
    [(other_model, EmbedderMismatchError), (text_file, IndexFormatError), (folder, IndexFormatError)],
)
def test_an_ingestion_pipeline_over_a_file_that_does_not_fit_is_refused_first(
    tmp_path: Path, prepare: Callable[[Path], object], error: type[Exception]
) -> None:
    """A file of another model, a file that is no index, a folder."""
    path, model = tmp_path / "index.db", Counting()
    prepare(path)
    with pytest.raises(error):
        ingest(model, vector_store=lambda: RetrievalCoreVectorStore.from_index_file(path, embed_model=model))
    assert model.texts == []


@pytest.mark.parametrize("is_async", [False, True])
def test_an_ingestion_pipeline_with_the_read_only_docstore_is_refused_first(is_async: bool) -> None:
    """It could keep no hashes, and would fail after everything is embedded and written."""
    model, view = Counting(), RetrievalCoreDocumentStore(MemoryStore())
    pipeline = IngestionPipeline(transformations=[model], docstore=view, vector_store=SimpleVectorStore())
    documents = [Document(id_="d", text="text")]

    def run() -> object:
        return asyncio.run(pipeline.arun(documents=documents)) if is_async else pipeline.run(documents=documents)

    with pytest.raises(StoreError, match="only reads"):
        run()
    assert model.texts == []
    view.close()
