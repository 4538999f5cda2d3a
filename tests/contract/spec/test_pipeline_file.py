"""The first specification file: its declarations hold, and what it says of each part does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.compat import pipeline as module
from retrieval_core.compat.pipeline import (
    CacheConfig,
    CompressorConfig,
    ConfigurationError,
    ConnectionError,  # noqa: A004 - the file's name
    ContextCompressor,
    Document,
    DocumentFormatter,
    EmbeddingError,
    FormatterConfig,
    MetadataFilter,
    QueryConfig,
    QueryProcessor,
    QueryRewriter,
    QueryValidationError,
    ResultCache,
    RetrievalConfig,
    RetrievalError,
    RetrievalPipeline,
    RetrievalResponse,
    RetrievalResult,
    RetryConfig,
    RewriterConfig,
    SearchConfig,
    SearchError,
    ValidationError,
    VectorSearcher,
)
from retrieval_core.errors import ServiceError
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.testing.fakes_llm import FakeLLM
from retrieval_core.types import Chunk
from support.declarations import declared, differences
from support.openai_service import KEY as OPENAI_KEY
from support.openai_service import OpenAIService
from support.pinecone_reviews import KEY as PINECONE_KEY
from support.pinecone_reviews import ReviewIndex
from support.pipelines import TroubledStore, filled
from support.wire_server import WireServer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ports import CompletionRequest

DECLARED = declared("""
from dataclasses import dataclass, field

@dataclass
class QueryConfig:
    max_length: int = 512
    embedding_model: str = "text-embedding-3-large"
    normalize_unicode: bool = True

@dataclass
class ProcessedQuery:
    original: str
    normalized: str
    embedding: List[float]
    truncated: bool = False

class QueryProcessor:
    def __init__(self, config: QueryConfig, embeddings_model): ...
    def process(self, query: str) -> ProcessedQuery: ...

@dataclass
class SearchConfig:
    top_k: int = 4
    fetch_k: int = 20
    lambda_mult: float = 0.7
    score_threshold: float = 0.6
    search_type: str = "mmr"

@dataclass
class MetadataFilter:
    min_price: Optional[float] = None
    max_price: Optional[float] = None
    min_rating: Optional[float] = None
    product_name_pattern: Optional[str] = None

@dataclass
class SearchResult:
    documents: List[Document]
    scores: List[float]
    query_embedding: List[float]
    filters_applied: Dict[str, Any] = field(default_factory=dict)

class VectorSearcher:
    def __init__(self, config: SearchConfig, vector_store): ...
    def initialize(self) -> None: ...
    def search(self, query_embedding: List[float], filters: Optional[MetadataFilter] = None) -> SearchResult: ...

@dataclass
class CompressorConfig:
    enabled: bool = True
    relevance_prompt: str = None

@dataclass
class CompressionResult:
    documents: List[Document]
    filtered_count: int
    relevance_scores: List[float]

class ContextCompressor:
    def __init__(self, config: CompressorConfig, llm): ...
    def initialize(self) -> None: ...
    def compress(self, query: str, documents: List[Document]) -> CompressionResult: ...

@dataclass
class RewriterConfig:
    max_attempts: int = 2
    relevance_threshold: float = 0.5
    rewrite_prompt: str = None

@dataclass
class RewriteResult:
    original_query: str
    rewritten_query: str
    attempt_number: int
    improvement_reason: str

class QueryRewriter:
    def __init__(self, config: RewriterConfig, llm): ...
    def should_rewrite(self, relevance_score: float) -> bool: ...
    def rewrite(self, query: str, context: Optional[str] = None) -> RewriteResult: ...

@dataclass
class FormatterConfig:
    template: str = None
    delimiter: str = "\\n\\n---\\n\\n"
    include_scores: bool = False
    max_context_length: int = 4000

@dataclass
class FormattedContext:
    text: str
    document_count: int
    truncated: bool = False

class DocumentFormatter:
    def __init__(self, config: FormatterConfig): ...
    def format(self, documents: List[Document], scores: Optional[List[float]] = None) -> FormattedContext: ...

@dataclass
class CacheConfig:
    enabled: bool = True
    ttl_seconds: int = 300
    max_size: int = 1000

class ResultCache:
    def __init__(self, config: CacheConfig): ...
    def get(self, query: str, filters: Optional[Dict] = None) -> Optional[RetrievalResult]: ...
    def set(self, query: str, result: RetrievalResult, filters: Optional[Dict] = None) -> None: ...
    def clear(self) -> None: ...

@dataclass
class RetrievalConfig:
    query_config: QueryConfig
    search_config: SearchConfig
    compressor_config: CompressorConfig
    rewriter_config: RewriterConfig
    formatter_config: FormatterConfig
    cache_config: CacheConfig
    max_retries: int = 3
    enable_evaluation: bool = False

@dataclass
class RetrievalResult:
    query: str
    documents: List[Document]
    formatted_context: str
    scores: List[float]
    metadata: Dict[str, Any] = field(default_factory=dict)
    latency_ms: float = 0.0
    from_cache: bool = False
    evaluation_scores: Optional[Dict[str, float]] = None

class RetrievalPipeline:
    def __init__(self, config: RetrievalConfig): ...
    def initialize(self) -> None: ...
    def retrieve(self, query: str, filters: Optional[MetadataFilter] = None) -> RetrievalResult: ...
    async def aretrieve(self, query: str, filters: Optional[MetadataFilter] = None) -> RetrievalResult: ...

@dataclass
class DocumentScore:
    content: str
    metadata: Dict[str, Any]
    score: float

@dataclass
class RetrievalMetadata:
    query_normalized: str
    documents_fetched: int
    documents_after_compression: int
    query_truncated: bool = False
    filters_applied: Dict[str, Any] = field(default_factory=dict)
    query_rewritten: bool = False
    rewrite_attempts: int = 0
    cache_hit: bool = False

@dataclass
class EvaluationScores:
    context_precision: Optional[float] = None
    response_relevancy: Optional[float] = None

@dataclass
class RetrievalSettings:
    openai_api_key: str
    pinecone_api_key: str
    pinecone_index_name: str = "ecommerce-products"
    pinecone_namespace: str = "phone-reviews"
    top_k: int = 4
    fetch_k: int = 20
    lambda_mult: float = 0.7
    score_threshold: float = 0.6
    max_query_length: int = 512
    compression_enabled: bool = True
    max_rewrite_attempts: int = 2
    rewrite_threshold: float = 0.5
    cache_enabled: bool = True
    cache_ttl_seconds: int = 300
    max_retries: int = 3
    enable_evaluation: bool = False

@dataclass
class RetryConfig:
    max_retries: int = 3
    base_delay: float = 1.0
    max_delay: float = 10.0
    exponential_base: float = 2.0
    retryable_exceptions: tuple = (ConnectionError, TimeoutError)
""")
"""What the file declares; of its pydantic models the fields alone, as a record."""

PHONES = tuple(
    Chunk(
        f"r{number}",
        "reviews",
        text,
        metadata={"product_name": name, "price": 100 * number, "rating": number},
    )
    for number, (name, text) in enumerate(
        (
            ("Acme One", "The battery lasts two days of heavy use."),
            ("Acme One", "The battery lasts three days of light use."),
            ("Tern Mini", "The battery lasts one day of use."),
            ("Osprey", "A camera for pictures at night."),
        ),
        start=1,
    )
)
QUESTION = "how long the battery lasts"


def a_store() -> TroubledStore:
    store = TroubledStore()
    filled(store, PHONES)
    return store


def embedded(text: str) -> list[float]:
    vector: list[float] = asyncio.run(FakeEmbedder().embed_query(text)).tolist()
    return vector


def verdicts(relevant: str) -> FakeLLM:
    """Return a model for which the passages with a word bear on the question, and that rewrites to a fixed one."""

    def answer(request: CompletionRequest) -> dict[str, Any]:
        shown = request.messages[-1].content
        if request.schema is not None and "query" in str(request.schema):
            return {"reason": "it names the part", "query": "battery life of phones"}
        told = relevant in shown
        return {"1": {"reason": "so it says", "relevant": told, "score": 0.9 if told else 0.1}}

    return FakeLLM(answer)


@pytest.mark.parametrize("name", DECLARED)
def test_what_the_file_declares_is_there(name: str) -> None:
    """Every class has the fields, arguments and defaults that the file gives it."""
    assert differences(DECLARED[name], module) == []


def test_query_processor() -> None:
    """White space goes, what is too long is cut, and nothing but white space is refused."""
    embedder = FakeEmbedder()
    processor = QueryProcessor(QueryConfig(max_length=12), embedder)
    processed = processor.process("  battery \n life of phones")
    assert (processed.original, processed.normalized) == ("  battery \n life of phones", "battery life")
    assert processed.truncated
    assert processed.embedding == embedded("battery life")
    with pytest.raises(ValidationError):
        processor.process(" \t\n")
    embedder.failure = ServiceError("the key was refused", status=401)
    with pytest.raises(EmbeddingError, match="refused") as raised:
        processor.process("battery")
    assert raised.value.query == "battery"


def test_vector_searcher() -> None:
    """At most top_k documents, each above the threshold and through the filter, as many scores as documents."""
    searcher = VectorSearcher(SearchConfig(top_k=2, score_threshold=0.3), a_store())
    assert searcher.retriever is None
    searcher.initialize()
    vector = embedded(QUESTION)
    result = searcher.search(vector)
    assert len(result.documents) == len(result.scores) == 2
    assert all(score is not None and score >= 0.3 for score in result.scores)
    assert (result.query_embedding, result.filters_applied) == (vector, {})
    dear = searcher.search(vector, MetadataFilter(min_price=250, max_price=350))
    assert [document.metadata["price"] for document in dear.documents] == [300]
    assert dear.filters_applied
    assert searcher.search(embedded("quantum"), MetadataFilter(min_rating=1)).documents == []


def test_mmr_against_similarity() -> None:
    """Both choose the nearest document first; with mmr the second one repeats it less."""
    vector = embedded("battery lasts days of use camera")
    near = VectorSearcher(SearchConfig(top_k=2, score_threshold=0, search_type="similarity"), a_store()).search(vector)
    mmr = SearchConfig(top_k=2, score_threshold=0, lambda_mult=0.1)
    different = VectorSearcher(mmr, a_store()).search(vector)
    assert near.documents[0] == different.documents[0]
    assert [document.id for document in near.documents] == ["r3", "r1"]
    assert [document.id for document in different.documents] == ["r3", "r4"]


def test_context_compressor() -> None:
    """Documents that bear on the question stay as they were given, LangChain's own too."""

    @dataclass
    class TheirDocument:
        page_content: str
        metadata: dict[str, Any]

    documents: Sequence[Any] = [
        Document("The battery lasts.", {"price": 5}),
        Document("The colour is red.", {"price": 6}),
        TheirDocument("A new battery.", {"price": 7}),
    ]
    result = ContextCompressor(CompressorConfig(), verdicts("battery")).compress("power", documents)
    assert result.documents == [documents[0], documents[2]]
    assert result.documents[1] is documents[2]
    assert (result.filtered_count, result.relevance_scores) == (1, [0.9, 0.1, 0.9])
    off = ContextCompressor(CompressorConfig(enabled=False), verdicts("battery")).compress("power", documents)
    assert (off.documents, off.filtered_count) == (list(documents), 0)


def test_a_compressor_whose_model_fails(caplog: pytest.LogCaptureFixture) -> None:
    """The log warns, and the documents come back uncompressed."""
    llm = FakeLLM([ServiceError("refused", status=401)])
    documents = [Document("The colour is red.")]
    assert ContextCompressor(CompressorConfig(), llm).compress("power", documents).documents == documents
    assert "refused" in caplog.text


def test_query_rewriter(caplog: pytest.LogCaptureFixture) -> None:
    """It is asked for if and only if the score is below the threshold; a failure keeps the question, with a warning."""
    rewriter = QueryRewriter(RewriterConfig(), verdicts(""))
    assert [rewriter.should_rewrite(score) for score in (0.0, 0.49, 0.5, 1.0)] == [True, True, False, False]
    result = rewriter.rewrite("how long", context="Batteries.")
    assert (result.original_query, result.rewritten_query) == ("how long", "battery life of phones")
    assert (result.attempt_number, result.improvement_reason) == (1, "it names the part")
    broken = QueryRewriter(RewriterConfig(), FakeLLM([ServiceError("refused", status=401)]))
    assert broken.rewrite("how long").rewritten_query == "how long"
    assert "refused" in caplog.text


def test_document_formatter() -> None:
    """Every field is there or N/A, and one delimiter fewer than documents."""
    config = FormatterConfig()
    formatter = DocumentFormatter(config)
    fields = {"product_name": "Acme", "price": 5, "rating": 4, "review_text": "Good."}
    context = formatter.format([Document("Good.", fields), Document("Bad.", {"price": 6})])
    assert context.text == (
        "Title: Acme\nPrice: 5\nRating: 4\nReview: Good." + config.delimiter + "Title: N/A\nPrice: 6\nRating: N/A\n"
        "Review: Bad."
    )
    assert (context.document_count, context.truncated) == (2, False)
    scored = DocumentFormatter(FormatterConfig(template="{text}", include_scores=True, max_context_length=20))
    assert scored.format([Document("Good.")], [0.5]).text == "Score: 0.5000\nGood."
    assert scored.format([Document("Good, and more.")], [0.5]).truncated
    assert scored.format([Document("Good.")]).text == "Good."


def test_result_cache() -> None:
    """A question and its filters name a result, until it is too old, or the least used of too many."""
    clock = FakeClock()
    cache = ResultCache(CacheConfig(max_size=2), clock=clock)
    result = RetrievalResult(query="q", documents=[], formatted_context="", scores=[])
    assert cache.get("q") is None
    cache.set("q", result)
    cache.set("q", result, {"price": {"$gte": 5}})
    assert cache.get("q") is cache.get("q", {}) is result
    assert cache.get("q", {"price": {"$gte": 5}}) is result
    assert cache.get("q", {"price": {"$gte": 6}}) is None
    entry = cache.entry("q")
    assert entry is not None
    assert (entry.value, entry.hits) == (result, 2)
    cache.set("other", result, {"brand": "Acme"})
    assert cache.get("q") is None or cache.get("q", {"price": {"$gte": 5}}) is None
    clock.advance(300)
    assert cache.get("other", {"brand": "Acme"}) is None
    cache.set("q", result)
    cache.clear()
    assert cache.get("q") is None
    off = ResultCache(CacheConfig(enabled=False))
    off.set("q", result)
    assert off.get("q") is None


def test_pipeline() -> None:
    """The parts are there once it is initialised; the same question comes from the cache the second time."""
    store = a_store()
    config = RetrievalConfig(search_config=SearchConfig(score_threshold=0.3))
    with RetrievalPipeline(config, embeddings_model=FakeEmbedder(), vector_store=store) as pipeline:
        assert pipeline.cache is None
        assert pipeline.query_processor is None
        pipeline.initialize()
        first = pipeline.retrieve(QUESTION, MetadataFilter(max_price=250))
        assert first.query == QUESTION
        assert {document.metadata["product_name"] for document in first.documents} == {"Acme One"}
        assert first.documents[0].page_content in first.formatted_context
        assert len(first.scores) == len(first.documents)
        assert (first.from_cache, first.evaluation_scores) == (False, None)
        again = asyncio.run(pipeline.aretrieve(QUESTION, MetadataFilter(max_price=250)))
        assert again.from_cache
        assert again.documents == first.documents
        assert store.calls["dense"] == 1
        again.documents.clear()
        assert pipeline.retrieve(QUESTION, MetadataFilter(max_price=250)).documents == first.documents
        parts = pipeline.query_processor, pipeline.vector_searcher, pipeline.cache
        assert all(part is not None for part in parts)
        assert pipeline.cache is not None
        assert pipeline.cache.get(QUESTION, MetadataFilter(max_price=250)) is not None
        for no_question in ("  ", cast("Any", b"battery")):
            with pytest.raises(QueryValidationError):
                pipeline.retrieve(no_question)
    response = RetrievalResponse.from_result(first)
    assert response.metadata.cache_hit is False
    assert [one.content for one in response.documents] == [one.page_content for one in first.documents]


def test_pipeline_with_a_language_model() -> None:
    """Passages are judged, the question is rewritten while they are poor, and the result is evaluated where asked."""
    config = RetrievalConfig(search_config=SearchConfig(score_threshold=0.1), enable_evaluation=False)
    llm = verdicts("two days")
    store = a_store()
    with RetrievalPipeline(config, embeddings_model=FakeEmbedder(), vector_store=store, llm=llm) as pipeline:
        result = pipeline.retrieve(QUESTION)
        assert pipeline.context_compressor is not None
        assert [document.id for document in result.documents] == ["r1"]
        assert result.metadata["query_rewritten"] is False
    poor = RetrievalConfig(search_config=SearchConfig(score_threshold=0.1), rewriter_config=RewriterConfig(1))
    with RetrievalPipeline(poor, embeddings_model=FakeEmbedder(), vector_store=a_store(), llm=verdicts("?")) as one:
        result = one.retrieve(QUESTION)
    assert (result.metadata["query_rewritten"], result.metadata["rewrite_attempts"]) == (True, 1)


def test_evaluation() -> None:
    """With enable_evaluation both scores are there by name."""
    config = RetrievalConfig(search_config=SearchConfig(score_threshold=0.1), enable_evaluation=True)
    with RetrievalPipeline(config, embeddings_model=FakeEmbedder(), vector_store=a_store()) as pipeline:
        scores = pipeline.retrieve(QUESTION).evaluation_scores
    assert scores is not None
    assert scores.keys() == {"context_precision", "response_relevancy"}


def test_a_store_that_cannot_be_reached() -> None:
    """When all attempts are used up, the result is empty, with the error in its metadata, and is not kept."""
    store = a_store()
    store.failures["dense"] = store.failures["lexical"] = ConnectionError("no route to host", "pinecone")
    config = RetrievalConfig(max_retries=0)
    with RetrievalPipeline(config, embeddings_model=FakeEmbedder(), vector_store=store) as pipeline:
        result = pipeline.retrieve(QUESTION)
        assert result.documents == []
        assert "no route" in result.metadata["error"]
        store.failures.clear()
        assert pipeline.retrieve(QUESTION).from_cache is False


@pytest.mark.parametrize(("named", "attempts"), [((KeyError,), 3), ((TimeoutError,), 1)])
def test_retryable_exceptions(named: tuple[type[Exception], ...], attempts: int) -> None:
    """What is named there is tried again, and what is not is not."""
    embedder, store = FakeEmbedder(), MemoryStore(embedder_id=FakeEmbedder().id, dimension=256)
    filled(store, PHONES)
    embedder.failure = KeyError("lost")
    retry = RetryConfig(max_retries=2, base_delay=0, retryable_exceptions=named)
    with RetrievalPipeline(RetrievalConfig(retry_config=retry), embeddings_model=embedder, vector_store=store) as one:
        one.retrieve(QUESTION)
    assert len(embedder.queries) == attempts


def test_missing_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """RetrievalPipeline(RetrievalConfig()) works with Pinecone and OpenAI, and names the keys that it lacks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.delenv("PINECONE_API_KEY", raising=False)
    pipeline = RetrievalPipeline(RetrievalConfig())
    with pytest.raises(ConfigurationError) as raised:
        pipeline.initialize()
    assert list(raised.value.missing_keys) == ["PINECONE_API_KEY"]


def test_pinecone_and_openai(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Set by the environment alone, it asks both services through their SDKs: vectors, passages and judgements."""
    pytest.importorskip("pinecone", reason="the extra 'pinecone' is not installed")
    reviews, openai = ReviewIndex(3072), OpenAIService(lambda _: '{"1": {"reason": "", "relevant": true, "score": 1}}')
    for chunk in PHONES:
        vector = asyncio.run(FakeEmbedder(3072).embed_query(chunk.text)).tolist()
        reviews.put("phone-reviews", chunk.id, vector, review_text=chunk.text, **chunk.metadata)
    monkeypatch.chdir(tmp_path)
    with WireServer(openai) as models, WireServer(reviews) as index:
        for name, value in {
            "OPENAI_API_KEY": OPENAI_KEY,
            "PINECONE_API_KEY": PINECONE_KEY,
            "RETRIEVAL_EMBEDDER__OPENAI__BASE_URL": f"{models.url}/v1",
            "RETRIEVAL_LLM__OPENAI__BASE_URL": f"{models.url}/v1",
            "RETRIEVAL_STORE__PINECONE__HOST": index.url,
        }.items():
            monkeypatch.setenv(name, value)
        with RetrievalPipeline(RetrievalConfig(search_config=SearchConfig(score_threshold=0.3))) as pipeline:
            result = pipeline.retrieve(QUESTION, MetadataFilter(max_price=250))
    assert [document.metadata["product_name"] for document in result.documents] == ["Acme One", "Acme One"]
    assert result.metadata["relevance_score"] == 1
    assert "Review: The battery lasts two days of heavy use." in result.formatted_context


def test_errors() -> None:
    """Each takes what the file gives it, and is a RetrievalError."""
    assert QueryValidationError("m", query="q").query == "q"
    assert EmbeddingError("m", query="q").query == "q"
    assert SearchError("m", details={"a": 1}).details == {"a": 1}
    assert SearchError("m").details == {}
    assert ConnectionError("m", service="s").service == "s"
    assert list(ConfigurationError("m", missing_keys=["K"]).missing_keys) == ["K"]
    kinds = (QueryValidationError, EmbeddingError, SearchError, ConnectionError, ConfigurationError)
    assert all(issubclass(kind, RetrievalError) for kind in kinds)


def test_closing_before_the_first_question_closes_what_was_handed_over() -> None:
    """It owns that whether it was used or not; without anything there is nothing to close."""
    store = a_store()
    RetrievalPipeline(RetrievalConfig(), embeddings_model=FakeEmbedder(), vector_store=store).close()
    assert store.closed == 1
    RetrievalPipeline(RetrievalConfig()).close()
