"""The first specification file's names: a retrieval pipeline over Pinecone and OpenAI, and its parts one by one.

::

    from retrieval_core.compat.pipeline import MetadataFilter, RetrievalConfig, RetrievalPipeline

    with RetrievalPipeline(RetrievalConfig()) as pipeline:  # keys from the environment, see RetrievalSettings
        result = pipeline.retrieve("phones with a long battery life", MetadataFilter(max_price=500))
        print(result.formatted_context)

Each class also works by itself. All of them are thin: they translate settings, call the stages of
:mod:`retrieval_core.pipeline`, and return the results in the shapes of the specification.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from datetime import UTC, datetime
from operator import itemgetter
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ConfigDict, Field

from retrieval_core.adapters.registry import build_llm, build_relevance_filter, build_rewriter
from retrieval_core.compat.models import adapt_embedder, adapt_llm
from retrieval_core.compat.settings import CREDENTIALS, KEYS, PRESET, RetrievalSettings
from retrieval_core.config import RetrievalConfig as LibraryConfig
from retrieval_core.config import RetryConfig as LibraryRetryConfig
from retrieval_core.config import load_config
from retrieval_core.errors import (
    ConfigurationError,
    EmbeddingError,
    InvalidParameterError,
    QueryValidationError,
    RetrievalError,
    SearchError,
    ValidationError,
)
from retrieval_core.errors import ServiceConnectionError as ConnectionError  # noqa: A004 - the specification's name
from retrieval_core.index.open import open_index
from retrieval_core.pipeline.lifecycle import Calls, Closing, close_with
from retrieval_core.pipeline.options import condition_of, make_plan
from retrieval_core.pipeline.results import make_result
from retrieval_core.pipeline.stages.embed import QueryEmbedder
from retrieval_core.pipeline.stages.format import context_of
from retrieval_core.pipeline.stages.judge import CheckFilter
from retrieval_core.pipeline.stages.rerank import keep_relevant
from retrieval_core.pipeline.stages.search import Fuse, Search, Sources
from retrieval_core.pipeline.stages.select import Select
from retrieval_core.pipeline.stages.state import FormattedContext, SearchState, digest
from retrieval_core.pipeline.stages.transform import normalize, should_rewrite
from retrieval_core.ports import as_store
from retrieval_core.ports.models import checked_vector
from retrieval_core.run.caching import CacheEntry, LruCache
from retrieval_core.run.clock import SystemClock
from retrieval_core.run.outcomes import Failed, value_of
from retrieval_core.run.retry import MAY_PASS
from retrieval_core.run.sync import SyncBridge
from retrieval_core.types import Chunk, Degradation, Hit, Query, RewriteResult, Scores
from retrieval_core.types import RetrievalResult as LibraryResult
from retrieval_core.types.documents import unit_rows
from retrieval_core.types.filters import MetadataFilter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.index.index import Index
    from retrieval_core.pipeline import Stage
    from retrieval_core.pipeline.options import Filters
    from retrieval_core.ports import Embedder, RelevanceFilter, Store
    from retrieval_core.run.clock import Clock
    from retrieval_core.run.runner import Run

__all__ = [
    "CacheConfig", "CacheEntry", "CompressionResult", "CompressorConfig", "ConfigurationError", "ConnectionError",
    "ContextCompressor", "Document", "DocumentFormatter", "DocumentScore", "EmbeddingError", "EvaluationScores",
    "FormattedContext", "FormatterConfig", "MetadataFilter", "ProcessedQuery", "QueryConfig", "QueryProcessor",
    "QueryRewriter", "QueryValidationError", "ResultCache", "RetrievalConfig", "RetrievalError", "RetrievalMetadata",
    "RetrievalPipeline", "RetrievalResponse", "RetrievalResult", "RetrievalSettings", "RetryConfig", "RewriteResult",
    "RewriterConfig", "SearchConfig", "SearchError", "SearchResult", "ValidationError", "VectorSearcher",
]  # fmt: skip
logger = logging.getLogger("retrieval_core")


@dataclass(frozen=True, slots=True)
class QueryConfig:
    """How a query is prepared. ``embedding_model`` is OpenAI's, unless you pass an embedder."""

    max_length: int = 512
    embedding_model: str = "text-embedding-3-large"
    normalize_unicode: bool = True


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """How chunks are found: the best ``top_k``, or with ``mmr`` as many different ones of the best ``fetch_k``."""

    top_k: int = 4
    fetch_k: int = 20
    lambda_mult: float = 0.7
    score_threshold: float = 0.6
    search_type: str = "mmr"


@dataclass(frozen=True, slots=True)
class CompressorConfig:
    """Whether a language model judges chunks, and by which instructions; ``None`` for the built-in ones."""

    enabled: bool = True
    relevance_prompt: str | None = None


@dataclass(frozen=True, slots=True)
class RewriterConfig:
    """How often, and below which relevance, a query is rewritten."""

    max_attempts: int = 2
    relevance_threshold: float = 0.5
    rewrite_prompt: str | None = None


@dataclass(frozen=True, slots=True)
class FormatterConfig:
    """How documents become one text; ``max_context_length`` in code points."""

    template: str | None = None
    delimiter: str = "\n\n---\n\n"
    include_scores: bool = False
    max_context_length: int = 4000


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """How many results are cached, and for how many seconds."""

    enabled: bool = True
    ttl_seconds: int = 300
    max_size: int = 1000


class RetryConfig(LibraryRetryConfig):
    """When and how often a call is retried.

    The library always retries its own ``ConnectionError``, timeouts, rate limits (429), server faults (5xx) and
    unusable answers. ``retryable_exceptions`` has further errors to retry.
    """

    max_delay: float = Field(default=10.0, ge=0)
    """Maximum delay in seconds, unless the backend asks for more."""
    exponential_base: float = Field(default=2.0, ge=1)
    """Factor by which each delay is longer than the one before."""
    retryable_exceptions: tuple[type[BaseException], ...] = Field(default=MAY_PASS, exclude=True)


@dataclass(frozen=True, slots=True)
class RetrievalConfig:
    """The settings of a pipeline.

    Attributes:
        retry_config: Everything about retries; ``None`` for the defaults with ``max_retries``.
    """

    query_config: QueryConfig = QueryConfig()
    search_config: SearchConfig = SearchConfig()
    compressor_config: CompressorConfig = CompressorConfig()
    rewriter_config: RewriterConfig = RewriterConfig()
    formatter_config: FormatterConfig = FormatterConfig()
    cache_config: CacheConfig = CacheConfig()
    max_retries: int = 3
    enable_evaluation: bool = False
    _: KW_ONLY
    retry_config: RetryConfig | None = None

    def to_config(
        self, overrides: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
    ) -> LibraryConfig:
        """Return the same as settings of the library, over its preset ``ecommerce-cloud``.

        Args:
            overrides: Settings by the library's names, which override all others.
            environment: Environment with ``RETRIEVAL_…`` names, for settings that are not set here.

        Raises:
            ConfigurationError: A setting is outside its range.
        """
        query, search, cache = self.query_config, self.search_config, self.cache_config
        compressor, rewriter, formatter = self.compressor_config, self.rewriter_config, self.formatter_config
        settings: dict[str, Any] = {
            "query.max_length": query.max_length,
            "query.normalize_unicode": query.normalize_unicode,
            "embedder.openai.model": query.embedding_model,
            "search": {**asdict(search), "fetch_k": max(search.fetch_k, search.top_k)},
            "relevance_filter.kind": "llm" if compressor.enabled else "none",
            "relevance_filter.llm.prompt": compressor.relevance_prompt,
            "rewriter.max_attempts": rewriter.max_attempts,
            "rewriter.relevance_threshold": rewriter.relevance_threshold,
            "rewriter.llm.prompt": rewriter.rewrite_prompt,
            "format": {**asdict(formatter), "template": formatter.template or DocumentFormatter.DEFAULT_TEMPLATE},
            "cache.kind": "memory" if cache.enabled else "none",
            "cache.ttl_seconds": cache.ttl_seconds,
            "cache.max_size": cache.max_size,
            "retry.max_retries": self.max_retries,
            "evaluation.kind": "auto" if self.enable_evaluation else "none",
        }
        config = load_config(PRESET, {**settings, **(overrides or {})}, environment)
        return config if self.retry_config is None else config.model_copy(update={"retry": self.retry_config})


@dataclass(frozen=True, slots=True)
class Document:
    """A document as LangChain's: text and metadata. Theirs, and chunks of this library, are accepted too."""

    page_content: str
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    id: str | None = None


@dataclass(frozen=True, slots=True)
class ProcessedQuery:
    """A query with its vector; ``truncated`` if and only if it was too long."""

    original: str
    normalized: str
    embedding: list[float]
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Documents with the cosine of each, in [0, 1]."""

    documents: list[Document]
    scores: list[float | None]
    query_embedding: list[float]
    filters_applied: dict[str, Any] = field(default_factory=dict[str, Any])
    degraded: tuple[Degradation, ...] = ()
    """Degraded stages, with their fallbacks, and warnings about the filter."""


@dataclass(frozen=True, slots=True)
class CompressionResult:
    """The documents that are relevant to the query, unchanged.

    Attributes:
        filtered_count: Number of documents that were dropped.
        relevance_scores: Scores of all judged documents, also of the dropped ones, in their order.
    """

    documents: list[Any]
    filtered_count: int
    relevance_scores: list[float]
    degraded: tuple[Degradation, ...] = ()
    """Why documents could not be judged."""


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """The result of a query. ``metadata["error"]`` has the reason if no search was possible."""

    query: str
    documents: list[Document]
    formatted_context: str
    scores: list[float | None]
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    latency_ms: float = 0.0
    from_cache: bool = False
    evaluation_scores: dict[str, float | None] | None = None
    degraded: tuple[Degradation, ...] = ()
    """The parts that did not work as configured, and warnings about the filter."""


class _Component:
    """A part of the pipeline that also works by itself: it calls a stage of the library, with its retries."""

    def __init__(self, **settings: Any) -> None:
        self._calls = Calls(RetrievalConfig(**settings).to_config())


class QueryProcessor(_Component):
    """Validates, normalizes and embeds queries. You close the model yourself.

    Args:
        config: How a query is prepared.
        embeddings_model: An embedder of this library, or embeddings of LangChain.

    Raises:
        InvalidParameterError: The model is neither.
    """

    def __init__(self, config: QueryConfig, embeddings_model: Any) -> None:
        super().__init__(query_config=config)
        self.config = config
        self.embeddings_model = embeddings_model
        self._embedder = QueryEmbedder(adapt_embedder(embeddings_model))

    def process(self, query: str) -> ProcessedQuery:
        """Return a query ready to be searched for.

        Raises:
            QueryValidationError: It is empty, or is not text.
            EmbeddingError: It could not be embedded; ``query`` has it.
        """
        asked = normalize(query, self._calls.config.query)
        vector = value_of(self._calls.sync.run(self._embedder.embed(self._calls.begin(), asked)))
        return ProcessedQuery(asked.original, asked.text, vector.tolist(), asked.truncated)


class VectorSearcher(_Component):
    """Finds documents by the vector of a query. You close the store yourself.

    Raises:
        InvalidParameterError: The store lacks a method.
    """

    def __init__(self, config: SearchConfig, vector_store: Store) -> None:
        super().__init__(search_config=config)
        self.config = config
        self.vector_store = vector_store
        self.retriever: tuple[Stage, ...] | None = None
        self._store = as_store(vector_store)

    def initialize(self) -> None:
        """Make the retriever; the first search does so itself."""
        config, store = self._calls.config, self._store
        embedder = QueryEmbedder(cast("Embedder", self))  # never called, since queries come with their vectors
        self.retriever = (Search(Sources(store, embedder), config, 0), Fuse(config), Select(store), CheckFilter(store))

    def search(self, query_embedding: Sequence[float], filters: Filters = None) -> SearchResult:
        """Search for a vector. Without hits the result is empty.

        Args:
            query_embedding: A vector other than zero, with as many components as the index has.
            filters: Filter that every chunk must pass.

        Raises:
            FilterError: The filter is invalid.
            RetrievalError: The index can't be searched, after all retries; if a service can't be reached, it is a
                ``ConnectionError``.
        """
        return self._calls.sync.run(self._search(query_embedding, filters))

    async def _search(self, query_embedding: Sequence[float], filters: Filters) -> SearchResult:
        if self.retriever is None:
            self.initialize()
        config, run = self._calls.config, self._calls.begin()
        plan = make_plan(config, filters, {"mode": "dense"}, store=self._store, has_embedder=True)
        vector = unit_rows(checked_vector(query_embedding, len(query_embedding), ""))
        state = SearchState.of(Query("", "", embedding=vector), replace(plan, has_words=False))
        for stage in cast("tuple[Stage, ...]", self.retriever):
            state = await stage(run, state)
        if state.error is not None:
            value_of(state.failures[-1])
        result = make_result(run, state, set())
        return SearchResult(
            [_as_document(chunk) for chunk in result.documents],
            list(result.scores),
            list(query_embedding),
            cast("dict[str, Any]", result.metadata["filters_applied"]),
            result.degraded,
        )


class ContextCompressor(_Component):
    """Drops documents that are not relevant to a query; without a language model all of them stay.

    Args:
        config: Whether and how documents are judged.
        llm: A language model of this library, or a chat model of LangChain.

    Raises:
        InvalidParameterError: The model is neither.
    """

    def __init__(self, config: CompressorConfig, llm: Any | None) -> None:
        super().__init__(compressor_config=config)
        self.config = config
        self.llm = llm
        self.compressor: RelevanceFilter | None = None
        self._model = None if llm is None else adapt_llm(llm)

    def initialize(self) -> None:
        """Make the filter; the first call of :meth:`compress` does so itself."""
        self.compressor = build_relevance_filter(self._calls.config.relevance_filter, self._model)

    def compress(self, query: str, documents: Sequence[Document | Chunk]) -> CompressionResult:
        """Return the documents that are relevant to a query. One that could not be judged stays, with a warning."""
        if self.compressor is None:
            self.initialize()
        if self.compressor is None:
            return CompressionResult(list(documents), 0, [])
        hits = _as_hits(documents)
        given = {id(hit.chunk): document for hit, document in zip(hits, documents, strict=True)}
        judged = self._calls.sync.run(keep_relevant(self._calls.begin(), self.compressor, query, hits))
        kept = [given[id(hit.chunk)] for hit in judged.hits]
        degraded = tuple(map(_as_degradation, judged.failures))
        return CompressionResult(kept, len(documents) - len(kept), list(judged.relevance_scores), degraded)


class QueryRewriter(_Component):
    """Rewrites queries; without a language model every query stays as it is.

    Args:
        config: How often, and below which relevance.
        llm: A language model of this library, or a chat model of LangChain.

    Raises:
        InvalidParameterError: The model is neither.
    """

    def __init__(self, config: RewriterConfig, llm: Any | None) -> None:
        super().__init__(rewriter_config=config)
        self.config = config
        self.llm = llm
        self._rewriter = build_rewriter(self._calls.config.rewriter, None if llm is None else adapt_llm(llm))

    def should_rewrite(self, relevance_score: float) -> bool:
        """Return whether a search did badly enough: if and only if its score is below the threshold."""
        return should_rewrite(relevance_score, self.config.relevance_threshold)

    def rewrite(self, query: str, context: str | None = None) -> RewriteResult:
        """Return a query in other words, after one attempt. If the model fails, it stays as it is, with a warning.

        Raises:
            QueryValidationError: The query is empty, or is not text.
        """
        asked = normalize(query, self._calls.config.query)
        if self._rewriter is None:
            return RewriteResult(query, query, 0, "there is no language model")
        call = self._calls.begin().call("rewrite", self._rewriter.rewrite, asked.text, context or "")
        outcome = self._calls.sync.run(call)
        if isinstance(outcome, Failed):
            _as_degradation(outcome)
            return RewriteResult(query, query, 1, "the language model failed")
        return RewriteResult(query, outcome.value.query, 1, outcome.value.reason)


class DocumentFormatter:
    """Writes documents as one text for a prompt."""

    DEFAULT_TEMPLATE = "Title: {product_name}\nPrice: {price}\nRating: {rating}\nReview: {review_text}"

    def __init__(self, config: FormatterConfig) -> None:
        self.config = config
        self._settings = RetrievalConfig(formatter_config=config).to_config().format

    def format(
        self, documents: Sequence[Document | Chunk], scores: Sequence[float | None] | None = None
    ) -> FormattedContext:
        """Return documents as one text; ``review_text`` is a document's text, and missing fields are ``N/A``.

        Scores are shown if ``include_scores`` is set.

        Raises:
            InvalidParameterError: There are not as many scores as documents.
        """
        shows_scores = self._settings.include_scores and scores is not None
        settings = self._settings.model_copy(update={"include_scores": shows_scores})
        return context_of(_as_hits(documents, scores), settings)


class ResultCache:
    """Caches results in memory, for several threads; if it is full, the least recently used one goes."""

    def __init__(self, config: CacheConfig, *, clock: Clock | None = None) -> None:
        self.config = config
        now = (clock or SystemClock()).now
        self._cache: LruCache[str, RetrievalResult] = LruCache(config.max_size, config.ttl_seconds, now)

    def get(self, query: str, filters: Filters = None) -> RetrievalResult | None:
        """Return the cached result of a query and its filters; ``None`` if there is none, or it has expired."""
        return self._cache.get(_key(query, filters)) if self.config.enabled else None

    def set(self, query: str, result: RetrievalResult, filters: Filters = None) -> None:
        """Cache a result."""
        if self.config.enabled:
            self._cache.set(_key(query, filters), result)

    def entry(self, query: str, filters: Filters = None) -> CacheEntry[RetrievalResult] | None:
        """Return a cached result with its age and number of hits, without counting a hit."""
        return self._cache.entry(_key(query, filters))

    def clear(self) -> None:
        """Remove all results."""
        self._cache.clear()


class RetrievalPipeline(Closing):
    """Finds what answers a query; a :class:`retrieval_core.pipeline.RetrievalPipeline` by other names.

    :meth:`initialize`, which the first query calls, makes the components. Each of them can be replaced by an object
    with the same methods, which later queries call. A model or store that is not given is made from the settings in the
    environment. Closing the pipeline closes its models and its store.

    Args:
        config: The settings.
        embeddings_model: Replaces OpenAI's: an embedder of this library, or embeddings of LangChain.
        vector_store: Replaces Pinecone's.
        llm: Replaces OpenAI's: a language model of this library, or a chat model of LangChain. If store and embedder
            are given and this is not, there is none.

    Raises:
        InvalidParameterError: A model or the store is of another kind.
    """

    def __init__(
        self,
        config: RetrievalConfig,
        *,
        embeddings_model: Any | None = None,
        vector_store: Store | None = None,
        llm: Any | None = None,
    ) -> None:
        self.config = config
        self.query_processor: Any = None
        self.vector_searcher: Any = None
        self.context_compressor: Any = None
        self.query_rewriter: Any = None
        self.document_formatter: Any = None
        self.cache: Any = None
        self._embedder = None if embeddings_model is None else adapt_embedder(embeddings_model)
        self._store = None if vector_store is None else as_store(vector_store)
        self._llm = None if llm is None else adapt_llm(llm)
        self._index: Index | None = None
        self._made: dict[str, object] = {}
        self._lock = Lock()

    def initialize(self) -> None:
        """Make all components. Calling it again changes nothing.

        Raises:
            ConfigurationError: A setting is outside its range, or missing; ``missing_keys`` names those.
        """
        with self._lock:
            if self._index is None:
                self._index = self._make()

    def _make(self) -> Index:
        overrides: dict[str, Any] = {"cache.kind": "none"}  # results are cached in self.cache, which you can see
        environment = None
        if self._embedder is None or self._store is None:
            settings = RetrievalSettings()
            environment = settings.prefixed
            overrides |= {key: getattr(settings, name) for name in CREDENTIALS for key in KEYS[name]}
        elif self._llm is None:
            overrides["llm.kind"] = "none"
        ours, config = self.config, self.config.to_config(overrides, environment)
        llm = self._llm or build_llm(config.llm)
        index = open_index(config=config, store=self._store, embedder=self._embedder, llm=llm)
        self.cache = ResultCache(ours.cache_config)
        self._made = {
            "query_processor": QueryProcessor(ours.query_config, index.embedder),
            "vector_searcher": VectorSearcher(ours.search_config, index.store),
            "context_compressor": ContextCompressor(ours.compressor_config, llm),
            "query_rewriter": QueryRewriter(ours.rewriter_config, llm),
            "document_formatter": DocumentFormatter(ours.formatter_config),
        }
        vars(self).update(self._made)
        return index

    def retrieve(self, query: str, filters: Filters = None) -> RetrievalResult:
        """Find what answers a query; the same as :meth:`aretrieve`, from synchronous code."""
        self.initialize()
        return cast("Index", self._index).sync.run(self.aretrieve(query, filters))

    async def aretrieve(self, query: str, filters: Filters = None) -> RetrievalResult:
        """Find what answers a query. The same query again comes from the cache, if nothing failed the first time.

        Raises:
            QueryValidationError: The query is empty, or is not text.
            EmbeddingError: It could not be embedded, and the store has no keyword search.
            RetrievalError: As :meth:`retrieval_core.pipeline.RetrievalPipeline.aretrieve`. A store that can't be
                reached is no error: the result is empty, and its metadata has the error.
        """
        started = perf_counter()
        if self._index is None:
            await asyncio.to_thread(self.initialize)
        index, cache = cast("Index", self._index), cast("ResultCache", self.cache)
        normalize(query, index.config.query)  # what is no query is refused before it is looked for
        if (cached := cache.get(query, filters)) is not None:
            return _copy(cached, from_cache=True, latency_ms=(perf_counter() - started) * 1000)
        if any(getattr(self, name) is not component for name, component in self._made.items()):
            result = await self._retrieve_by_components(query, filters)
        else:
            result = _as_result(await index.aretrieve(query, filters, syntax=False))
        result = replace(result, latency_ms=(perf_counter() - started) * 1000)
        found = [(one.id, score, one.page_content) for one, score in zip(result.documents, result.scores, strict=True)]
        logger.debug("query %r, filters %r: %s", query, filters, found)
        is_whole = all(entry.stage == "filter" for entry in result.degraded)
        if is_whole and "error" not in result.metadata:
            cache.set(query, result, filters)
        return _copy(result)

    async def _retrieve_by_components(self, query: str, filters: Filters) -> RetrievalResult:
        """Search with the present components, including replaced ones."""
        config = cast("Index", self._index).config
        asked = normalize(query, config.query)
        most = self.config.rewriter_config.max_attempts
        tried: list[tuple[float, RetrievalResult]] = []
        attempts, text = 0, query
        async with Calls(config) as calls:
            components = _Components(self, calls.begin())
            while True:
                tried.append(await components.search(query, text, filters))
                is_over = attempts == most or "error" in tried[-1][1].metadata
                if is_over or not self.query_rewriter.should_rewrite(max(tried, key=itemgetter(0))[0]):
                    break
                attempts += 1
                rewritten = await components.call("query_rewriter", "rewrite", text)
                if rewritten is None or rewritten.rewritten_query == text:
                    break
                text = rewritten.rewritten_query
            best = max(tried, key=itemgetter(0))[1]
            formatted = await components.call("document_formatter", "format", best.documents, best.scores, needed=True)
        metadata = {
            "query_normalized": asked.text,
            "query_truncated": asked.truncated,
            **best.metadata,
            "query_rewritten": text != query,
            "rewrite_attempts": attempts,
        }
        return replace(
            best,
            formatted_context=formatted.text,
            metadata=metadata,
            evaluation_scores=dict.fromkeys(EvaluationScores.model_fields) if self.config.enable_evaluation else None,
            degraded=tuple(dict.fromkeys(components.degraded)),
        )

    async def aclose(self) -> None:
        """Close all components, also those that were never used. Closing twice is fine."""
        if self._index is not None:
            await self._index.aclose()
            return
        async with AsyncExitStack() as stack:
            close_with(stack, (self._llm, self._embedder, self._store))

    def close(self) -> None:
        """Close all components; see :meth:`aclose`."""
        if self._index is not None:
            self._index.close()
        else:
            SyncBridge().finish(self.aclose)


class _Components:
    """Calls the components of a pipeline, with retries for those that were replaced: the others have their own."""

    def __init__(self, pipeline: RetrievalPipeline, run: Run) -> None:
        self._pipeline = pipeline
        self._run = run
        self.degraded: list[Degradation] = []

    async def call(self, component: str, method: str, *arguments: object, needed: bool = False) -> Any:
        """Return the result of a component; ``None`` if it failed.

        Raises:
            RetrievalError: It failed, and it is needed.
        """
        part = getattr(self._pipeline, component)
        run = self._run.without_retries() if isinstance(part, _Component) else self._run
        outcome = await run.call(component, getattr(part, method), *arguments)
        if isinstance(outcome, Failed) and not needed:
            self.degraded.append(_as_degradation(outcome))
            return None
        result = value_of(outcome)
        self.degraded += getattr(result, "degraded", ())
        return result

    async def search(self, query: str, text: str, filters: Filters) -> tuple[float, RetrievalResult]:
        """Return what was found for a text, not yet formatted, and before it, how relevant it is to the query."""
        processed = await self.call("query_processor", "process", text, needed=True)
        found = await self.call("vector_searcher", "search", processed.embedding, filters)
        if found is None:
            facts = {"documents_fetched": 0, "documents_after_compression": 0, "error": self.degraded[-1].reason}
            return -1.0, RetrievalResult(query, [], "", [], facts)
        judged = await self.call("context_compressor", "compress", query, list(found.documents))
        documents = list(found.documents if judged is None else judged.documents)
        known = {id(document): score for document, score in zip(found.documents, found.scores, strict=True)}
        scores = [known.get(id(document)) for document in documents]
        facts = {
            "filters_applied": dict(getattr(found, "filters_applied", {})),
            "documents_fetched": len(found.documents),
            "documents_after_compression": len(documents),
        }
        relevance = [] if judged is None else list(judged.relevance_scores)
        best = max(relevance or [score for score in scores if score is not None], default=0.0)
        return best, RetrievalResult(query, documents, "", scores, facts)


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class DocumentScore(_Model):
    """A document with its similarity to the query."""

    content: str
    metadata: dict[str, Any]
    score: float | None = Field(default=None, ge=0.0, le=1.0)
    """The cosine similarity; ``None`` for a chunk without a vector, found by keyword search."""


class RetrievalMetadata(_Model):
    """Facts about the search."""

    query_normalized: str
    query_truncated: bool = False
    filters_applied: dict[str, Any] = {}
    documents_fetched: int = Field(ge=0)
    documents_after_compression: int = Field(ge=0)
    query_rewritten: bool = False
    rewrite_attempts: int = Field(default=0, ge=0)
    cache_hit: bool = False
    note: str | None = None
    """The reason for an empty result, if it is known."""
    error: str | None = None
    """The error, if the search failed. The documents may contain hits all the same."""
    degraded: tuple[Degradation, ...] = ()
    """The parts that did not work as configured, and warnings about the filter."""


class EvaluationScores(_Model):
    """How good the result is; ``None`` where a score cannot be computed."""

    context_precision: float | None = None
    response_relevancy: float | None = None


class RetrievalResponse(_Model):
    """A result as it goes over a wire, with a schema."""

    query: str
    documents: list[DocumentScore]
    formatted_context: str
    metadata: RetrievalMetadata
    evaluation: EvaluationScores | None = None
    latency_ms: float = Field(ge=0)
    timestamp: datetime = Field(default_factory=lambda: datetime.now(UTC))
    """When the response was made, in UTC."""

    @classmethod
    def from_result(cls, result: RetrievalResult | LibraryResult) -> RetrievalResponse:
        """Return a result, of this module's pipeline or of the library's, as a response."""
        facts = {name: result.metadata[name] for name in RetrievalMetadata.model_fields if name in result.metadata}
        scores = result.evaluation_scores
        chunks = [hit.chunk for hit in _as_hits(result.documents)]
        return cls(
            query=result.query,
            documents=[
                DocumentScore(content=chunk.text, metadata=dict(chunk.metadata), score=score)
                for chunk, score in zip(chunks, result.scores, strict=True)
            ],
            formatted_context=result.formatted_context,
            metadata=RetrievalMetadata.model_validate(
                {**facts, "cache_hit": result.from_cache, "degraded": result.degraded}
            ),
            evaluation=None if scores is None else EvaluationScores.model_validate(scores),
            latency_ms=result.latency_ms,
        )


def _as_document(chunk: Chunk) -> Document:
    return Document(chunk.text, chunk.metadata, chunk.id)


def _as_result(found: LibraryResult) -> RetrievalResult:
    return RetrievalResult(
        found.query,
        [_as_document(chunk) for chunk in found.documents],
        found.formatted_context,
        list(found.scores),
        found.metadata,
        evaluation_scores=found.evaluation_scores,
        degraded=found.degraded,
    )


def _copy(result: RetrievalResult, **changes: Any) -> RetrievalResult:
    """Return a result with lists of its own, which its receiver may change."""
    return replace(result, documents=[*result.documents], scores=[*result.scores], **changes)


def _as_hits(documents: Sequence[object], scores: Sequence[float | None] | None = None) -> tuple[Hit, ...]:
    """Return documents, of this module, LangChain's or the library's own chunks, as hits in their order."""
    given = [0.0] * len(documents) if scores is None else scores
    if len(given) != len(documents):
        msg = f"each document needs a score, got {len(documents)} documents and {len(given)} scores"
        raise InvalidParameterError(msg)
    chunks = [_as_chunk(document, number) for number, document in enumerate(documents, start=1)]
    return tuple([Hit(chunk, score or 0.0, Scores()) for chunk, score in zip(chunks, given, strict=True)])


def _as_chunk(document: Any, number: int) -> Chunk:
    if isinstance(document, Chunk):
        return document
    text, metadata = getattr(document, "page_content", None), getattr(document, "metadata", None)
    if not isinstance(text, str):
        msg = f"a document has page_content (text) and metadata, got {type(document).__name__}: {document!r:.80}"
        raise InvalidParameterError(msg)
    name = str(getattr(document, "id", None) or f"document {number}")
    return Chunk(name, name, text, metadata=dict(metadata or {}))


def _key(query: str, filters: Filters) -> str:
    return digest(query, condition_of(filters))


def _as_degradation(failure: Failed) -> Degradation:
    """Return a failure as the result reports it, and log it."""
    logger.warning("%s: %s", failure.stage, failure.reason)
    return Degradation(failure.stage, failure.reason)
