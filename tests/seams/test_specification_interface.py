"""The interface of the specification's files, with the models and components that their snippets hand over."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import Chunk, load_config, open_index
from retrieval_core.compat import context_pack, hybrid, pipeline
from retrieval_core.compat import retrieval_tests as file
from retrieval_core.errors import InvalidParameterError
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.testing.fakes_llm import FakeLLM
from support.extras import needs_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core import Index

DIMENSION = 64
PHONES = [
    Chunk("p#0", "p", "The battery lasts two days.", metadata={"product_name": "Pixel", "price": 400, "rating": 4}),
    Chunk("n#0", "n", "The camera is poor at night.", metadata={"product_name": "Nokia", "price": 200, "rating": 3}),
]
QUERY = "How long does the battery last?"
SECRET = "sk-very-secret-0123456789"


def config_of(**more: Any) -> pipeline.RetrievalConfig:
    """Return settings of the first file that let everything through."""
    search = pipeline.SearchConfig(score_threshold=0.0, search_type="similarity")
    return pipeline.RetrievalConfig(search_config=search, **more)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """Yield an index of two reviews."""
    config = load_config(overrides={"cache.kind": "none", "store.kind": "memory"})
    with open_index(tmp_path / "index.db", config=config, embedder=FakeEmbedder(DIMENSION)) as opened:
        opened.add(PHONES)
        yield opened


@pytest.fixture
def made(index: Index) -> Iterator[pipeline.RetrievalPipeline]:
    """Yield the first file's pipeline over the same store."""
    with pipeline.RetrievalPipeline(
        config_of(), embeddings_model=FakeEmbedder(DIMENSION), vector_store=index.store
    ) as one:
        yield one


def embeddings() -> Any:
    """Return LangChain's own class of embeddings, filled with vectors that fit the index."""
    core = pytest.importorskip("langchain_core.embeddings", reason="langchain-core is not installed")
    fake = FakeEmbedder(DIMENSION)

    class Embeddings(core.Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return (2 * asyncio.run(fake.embed_texts(texts))).tolist()

        def embed_query(self, text: str) -> list[float]:
            return self.embed_documents([text])[0]

    return Embeddings()


def chat() -> Any:
    """Return a chat model of LangChain that likes batteries."""
    models = pytest.importorskip("langchain_core.language_models", reason="langchain-core is not installed")

    class Chat(models.SimpleChatModel):
        @property
        def _llm_type(self) -> str:
            return "test"

        def _call(self, messages: list[Any], *_: Any, **__: Any) -> str:
            asked = messages[-1].content
            if "passage 1" not in asked:
                return '{"query": "battery life", "reason": "shorter"}'
            likes = "two days" in asked
            return f'{{"1": {{"reason": "so", "relevant": {str(likes).lower()}, "score": {0.9 if likes else 0.1}}}}}'

    return Chat()


def test_langchain_embeddings_are_an_embedding_model(index: Index) -> None:
    """In the query processor, and in the whole pipeline."""
    processed = pipeline.QueryProcessor(pipeline.QueryConfig(), embeddings()).process(QUERY)
    assert len(processed.embedding) == DIMENSION
    assert sum(value * value for value in processed.embedding) == pytest.approx(1)
    with pipeline.RetrievalPipeline(config_of(), embeddings_model=embeddings(), vector_store=index.store) as one:
        assert one.retrieve(QUERY).documents[0].id == "p#0"


def test_a_langchain_chat_model_judges_and_rewrites(index: Index) -> None:
    """In the compressor, in the rewriter, and in the whole pipeline."""
    documents = [pipeline.Document(chunk.text) for chunk in PHONES]
    kept = pipeline.ContextCompressor(pipeline.CompressorConfig(), chat()).compress(QUERY, documents)
    assert (kept.documents, kept.filtered_count, kept.degraded) == (documents[:1], 1, ())
    rewriter = pipeline.QueryRewriter(pipeline.RewriterConfig(), chat())
    assert rewriter.rewrite(QUERY).rewritten_query == "battery life"
    with pipeline.RetrievalPipeline(
        config_of(), embeddings_model=embeddings(), vector_store=index.store, llm=chat()
    ) as one:
        assert [document.id for document in one.retrieve(QUERY).documents] == ["p#0"]


class PromptClient:
    """The client of the second file: complete(prompt, model), and the same as a stream."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str]] = []

    def complete(self, prompt: str, model: str) -> str:
        self.asked.append((prompt, model))
        return self.answer

    def complete_stream(self, prompt: str, model: str) -> Iterator[str]:
        self.asked.append((prompt, model))
        yield from (self.answer[:5], self.answer[5:])


def test_a_plain_client_decomposes_and_imagines() -> None:
    """With the model that the file calls the enrichment model."""
    client = PromptClient('{"passage": "The battery lasts long."}')
    assert hybrid.HyDEGenerator(client).generate_hypothetical_doc(QUERY) == "The battery lasts long."
    assert client.asked[0][1] == "qwen3:0.6b"
    assert QUERY in client.asked[0][0]


@needs_tokenizer
def test_a_plain_client_answers(tmp_path: Path) -> None:
    """With the generation model, piece by piece, and with the custom prompt of the file filled."""
    client = PromptClient("Two days [1].")
    prompt = 'Facts:\n{facts}\nEnd of facts. ORIGINAL QUESTION: "{query}" {other}'
    with hybrid.RetrievalPipeline(
        {"index": str(tmp_path / "i.db"), "store.kind": "memory", "search_type": "dense", "ai_rerank": False},
        client,
        {"generation_model": "qwen3:8b"},
        embedder=FakeEmbedder(DIMENSION),
    ) as one:
        one.index.add(PHONES)
        assert "".join(one.answer_stream(QUERY, prompt_override=prompt)).startswith("Two days")
    asked, model = client.asked[-1]
    assert model == "qwen3:8b"
    assert "The battery lasts two days." in asked.split("Facts:")[1].split("End of facts")[0]
    assert f'ORIGINAL QUESTION: "{QUERY}" {{other}}' in asked
    assert asked.count("The battery lasts two days.") == 1


@needs_tokenizer
def test_placeholders_in_data_stay_as_they_are(tmp_path: Path) -> None:
    """A query that contains a placeholder is not filled in turn."""
    config = load_config(overrides={"cache.kind": "none", "store.kind": "memory"})
    llm = FakeLLM(["So it is [1]."])
    with open_index(tmp_path / "i.db", config=config, embedder=FakeEmbedder(DIMENSION), llm=llm) as opened:
        opened.add([Chunk("a#0", "a", "The word {query} is in braces.")])
        opened.answer("Which word {facts} is in braces?", prompt_override="{facts} -- {query}")
    text = "\n".join(message.content for message in llm.requests[-1].messages)
    assert "The word {query} is in braces." in text
    assert text.count("Which word {facts} is in braces?") == 1


WRONG: dict[str, Any] = {
    "query processor": lambda: pipeline.QueryProcessor(pipeline.QueryConfig(), object()),
    "vector searcher": lambda: pipeline.VectorSearcher(pipeline.SearchConfig(), object()),  # type: ignore[arg-type]
    "compressor": lambda: pipeline.ContextCompressor(pipeline.CompressorConfig(), object()),
    "rewriter": lambda: pipeline.QueryRewriter(pipeline.RewriterConfig(), object()),
    "pipeline's embeddings": lambda: pipeline.RetrievalPipeline(config_of(), embeddings_model=object()),
    "pipeline's store": lambda: pipeline.RetrievalPipeline(config_of(), vector_store=object()),  # type: ignore[arg-type]
    "pipeline's model": lambda: pipeline.RetrievalPipeline(config_of(), llm=object()),
    "hybrid client": lambda: hybrid.RetrievalPipeline({}, object()),
    "decomposer": lambda: hybrid.QueryDecomposer(object()),
    "reranker": lambda: context_pack.OpenAIReranker(None, object()),  # type: ignore[arg-type]
    "assembler": lambda: context_pack.DefaultContextAssembler(object()),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_model_is_refused_at_once(name: str) -> None:
    """The error says what was given and what is needed."""
    with pytest.raises(InvalidParameterError, match="object"):
        WRONG[name]()


class Broken:
    """A language model that fails."""

    id = "broken"

    async def complete(self, request: object) -> Any:
        raise ValueError("the model is gone")


def test_every_result_says_what_it_did_without(index: Index, made: pipeline.RetrievalPipeline, tmp_path: Path) -> None:
    """Results of all files have degraded; it is empty if everything worked."""
    result = made.retrieve(QUERY)
    assert result.degraded == ()
    assert pipeline.RetrievalResponse.from_result(result).model_dump()["metadata"]["degraded"] == ()
    warned = made.retrieve(QUERY, {"prize": {"$ne": 1}})
    assert "'price'" in warned.degraded[0].reason
    searcher = pipeline.VectorSearcher(pipeline.SearchConfig(score_threshold=0.0), index.store)
    vector = asyncio.run(FakeEmbedder(DIMENSION).embed_query(QUERY)).tolist()
    assert searcher.search(vector).degraded == ()
    assert "'price'" in searcher.search(vector, {"prize": {"$ne": 1}}).degraded[0].reason
    compressor = pipeline.ContextCompressor(pipeline.CompressorConfig(), Broken())
    judged = compressor.compress(QUERY, [pipeline.Document("text")])
    assert (len(judged.documents), "the model is gone" in judged.degraded[0].reason) == (1, True)
    with hybrid.RetrievalPipeline(
        {"index": str(tmp_path / "i.db"), "store.kind": "memory", "ai_rerank": False}, embedder=FakeEmbedder(DIMENSION)
    ) as one:
        one.index.add(PHONES)
        assert [hit["degraded"] for hit in one.search(QUERY)] == [[], []]
        assert [each["degraded"] for each in one.process_query_batch([QUERY, " "])] == [[], []]
    pack = context_pack.retrieve(QUERY, index=index, token_counter=lambda text: len(text.split()))
    assert pack.degraded == ()


def test_replacing_any_component_of_the_pipeline_works(made: pipeline.RetrievalPipeline) -> None:
    """A component is used from the next query on, whatever its class."""
    made.initialize()

    class Processor:
        def process(self, query: str) -> Any:
            return SimpleNamespace(original=query, normalized=query, embedding=[1.0, 0.0], truncated=False)

    class Searcher:
        def search(self, query_embedding: list[float], filters: Any = None) -> Any:
            documents = [pipeline.Document(f"found by {query_embedding}"), pipeline.Document("off topic")]
            return pipeline.SearchResult(documents, [0.9, 0.2], query_embedding)

    class Compressor:
        def compress(self, query: str, documents: list[Any]) -> Any:
            return pipeline.CompressionResult(documents[:1], 1, [0.8, 0.1])

    class Formatter:
        def format(self, documents: list[Any], scores: Any = None) -> Any:
            return pipeline.FormattedContext("formatted", len(documents))

    made.query_processor = Processor()
    made.vector_searcher = Searcher()
    assert [document.page_content for document in made.retrieve("a").documents] == ["found by [1.0, 0.0]", "off topic"]
    made.context_compressor = Compressor()
    made.document_formatter = Formatter()
    result = made.retrieve("b")
    assert [document.page_content for document in result.documents] == ["found by [1.0, 0.0]"]
    assert (result.scores, result.formatted_context) == ([0.9], "formatted")
    assert (result.metadata["documents_fetched"], result.metadata["documents_after_compression"]) == (2, 1)
    assert made.retrieve("b").from_cache


def test_a_replaced_rewriter_is_asked_as_often_as_configured(made: pipeline.RetrievalPipeline) -> None:
    """As long as the relevance is below its threshold."""
    made.initialize()
    asked: list[str] = []

    class Rewriter:
        def should_rewrite(self, relevance_score: float) -> bool:
            return relevance_score <= 1

        def rewrite(self, query: str, context: str | None = None) -> Any:
            asked.append(query)
            return pipeline.RewriteResult(query, f"{query} again", len(asked), "")

    made.query_rewriter = Rewriter()
    result = made.retrieve(QUERY)
    assert asked == [QUERY, f"{QUERY} again"]
    assert (result.metadata["rewrite_attempts"], result.metadata["query_rewritten"]) == (2, True)


def test_a_replaced_searcher_that_fails_gives_an_empty_result(made: pipeline.RetrievalPipeline) -> None:
    """With the error in the metadata, as the file's table says; and it is not kept."""
    made.initialize()

    class Searcher:
        def search(self, query_embedding: list[float], filters: Any = None) -> Any:
            raise ValueError("no index")

    made.vector_searcher = Searcher()
    result = made.retrieve(QUERY)
    assert (result.documents, result.metadata["error"]) == ([], "no index")
    assert not made.retrieve(QUERY).from_cache


def test_the_embedder_and_the_reranker_of_the_second_file_are_replaced(tmp_path: Path) -> None:
    """As its snippets do it, by assignment."""

    class Backwards(hybrid.BaseReranker):
        def rank(self, query: str, documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return sorted(documents, key=lambda document: "camera" not in document["text"])

    counting = FakeEmbedder(DIMENSION)
    with hybrid.RetrievalPipeline(
        {"index": str(tmp_path / "i.db"), "store.kind": "memory", "search_type": "dense", "reranker.weight": 1.0},
        embedder=FakeEmbedder(DIMENSION),
        reranker=(),
    ) as one:
        one.index.add(PHONES)
        assert one.search(QUERY)[0]["chunk_id"] == "p#0"
        one.text_embedder = counting
        assert one.search(QUERY)[0]["chunk_id"] == "p#0"
        assert counting.queries == [QUERY]
        one.ai_reranker = Backwards()
        assert one.search(QUERY)[0]["chunk_id"] == "n#0"


def test_queries_and_results_are_logged_for_debugging(
    index: Index, made: pipeline.RetrievalPipeline, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the level DEBUG only, and never a key."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    tester = file.RetrievalTester({"phones": index})
    query = file.RetrievalQuery("phones", tester.embed("phones", QUERY), 1, filters={"price": 400})
    with caplog.at_level(logging.INFO):
        tester.search(query)
        made.retrieve(QUERY)
    assert "The battery lasts two days." not in caplog.text
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        tester.search(query)
        made.cache.clear()
        made.retrieve(QUERY)
        context_pack.retrieve(QUERY, index=index, token_counter=lambda text: len(text.split()))
    lines = [record for record in caplog.records if record.levelno == logging.DEBUG and "retrieval_core" in record.name]
    text = "\n".join(record.getMessage() for record in lines)
    assert "'price': 400" in text
    assert QUERY in text
    assert text.count("The battery lasts two days.") >= 3
    assert SECRET not in caplog.text
