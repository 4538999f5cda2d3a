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
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ConfigDict, Field

from retrieval_core.adapters.registry import (
    build_embedder,
    build_llm,
    build_relevance_filter,
    build_rewriter,
    build_store,
)
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
from retrieval_core.index.open import build_pipeline
from retrieval_core.pipeline.lifecycle import Calls, Closing, close_with
from retrieval_core.pipeline.options import make_plan
from retrieval_core.pipeline.stages.embed import QueryEmbedder
from retrieval_core.pipeline.stages.format import format_context
from retrieval_core.pipeline.stages.fuse import fuse
from retrieval_core.pipeline.stages.judge import find_unknown_fields
from retrieval_core.pipeline.stages.rerank import keep_relevant
from retrieval_core.pipeline.stages.search import Sources, search
from retrieval_core.pipeline.stages.select import Select
from retrieval_core.pipeline.stages.state import FormattedContext, SearchState, digest
from retrieval_core.pipeline.stages.transform import normalize, should_rewrite
from retrieval_core.ports.models import checked_vector
from retrieval_core.run.caching import CacheEntry, LruCache
from retrieval_core.run.clock import SystemClock
from retrieval_core.run.outcomes import Failed, Ok, value_of
from retrieval_core.run.retry import MAY_PASS
from retrieval_core.run.sync import SyncBridge
from retrieval_core.types import Chunk, Degradation, Hit, Query, RewriteResult, Scores, freeze
from retrieval_core.types import RetrievalResult as LibraryResult
from retrieval_core.types.filters import Filter, MetadataFilter, chunk_fields
from retrieval_core.types.filters.syntax import to_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.pipeline import RetrievalPipeline as LibraryPipeline
    from retrieval_core.pipeline.stages.state import Plan
    from retrieval_core.ports import LLM, Embedder, RelevanceFilter, Rewriter, Store
    from retrieval_core.run.clock import Clock
    from retrieval_core.run.runner import Run

    Filters = Filter | MetadataFilter | Mapping[str, Any] | None

__all__ = [
    "CacheConfig", "CacheEntry", "CompressionResult", "CompressorConfig", "ConfigurationError", "ConnectionError",
    "ContextCompressor", "Document", "DocumentFormatter", "DocumentScore", "EmbeddingError", "EvaluationScores",
    "FormattedContext", "FormatterConfig", "MetadataFilter", "ProcessedQuery", "QueryConfig", "QueryProcessor",
    "QueryRewriter", "QueryValidationError", "ResultCache", "RetrievalConfig", "RetrievalError", "RetrievalMetadata",
    "RetrievalPipeline", "RetrievalResponse", "RetrievalResult", "RetrievalSettings", "RetryConfig", "RewriteResult",
    "RewriterConfig", "SearchConfig", "SearchError", "SearchResult", "ValidationError", "VectorSearcher",
]  # fmt: skip
logger = logging.getLogger("retrieval_core")
COMPONENTS = ("query_processor", "vector_searcher", "context_compressor", "query_rewriter", "document_formatter")
"""The attributes of a pipeline that can be replaced."""


@dataclass(frozen=True, slots=True)
class QueryConfig:
    """How a query is prepared. ``embedding_model`` is OpenAI's, unless you pass an embedder."""

    max_length: int = 512
    embedding_model: str = "text-embedding-3-large"
    normalize_unicode: bool = True


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """How passages are found: the best ``top_k``, or with ``mmr`` as many different ones of the best ``fetch_k``."""

    top_k: int = 4
    fetch_k: int = 20
    lambda_mult: float = 0.7
    score_threshold: float = 0.6
    search_type: str = "mmr"


@dataclass(frozen=True, slots=True)
class CompressorConfig:
    """Whether passages are judged by a language model, and by which instructions; ``None`` for the built-in ones."""

    enabled: bool = True
    relevance_prompt: str | None = None


@dataclass(frozen=True, slots=True)
class RewriterConfig:
    """How often, and below which relevance, a question is put into other words."""

    max_attempts: int = 2
    relevance_threshold: float = 0.5
    rewrite_prompt: str | None = None


@dataclass(frozen=True, slots=True)
class FormatterConfig:
    """How passages become one text; ``max_context_length`` in code points."""

    template: str | None = None
    delimiter: str = "\n\n---\n\n"
    include_scores: bool = False
    max_context_length: int = 4000


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """How many results are kept, and for how long."""

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
        query, wanted, formatter = self.query_config, self.search_config, self.formatter_config
        compressor, rewriter, cache = self.compressor_config, self.rewriter_config, self.cache_config
        settings: dict[str, Any] = {
            "query": {"max_length": query.max_length, "normalize_unicode": query.normalize_unicode},
            "embedder": {"openai": {"model": query.embedding_model}},
            "search": {**asdict(wanted), "fetch_k": max(wanted.fetch_k, wanted.top_k)},
            "relevance_filter": {
                "kind": "llm" if compressor.enabled else "none",
                "llm": {"prompt": compressor.relevance_prompt},
            },
            "rewriter": {
                "max_attempts": rewriter.max_attempts,
                "relevance_threshold": rewriter.relevance_threshold,
                "llm": {"prompt": rewriter.rewrite_prompt},
            },
            "format": {**asdict(formatter), "template": formatter.template or DocumentFormatter.DEFAULT_TEMPLATE},
            "cache": {
                "kind": "memory" if cache.enabled else "none",
                "ttl_seconds": cache.ttl_seconds,
                "max_size": cache.max_size,
            },
            "retry": {"max_retries": self.max_retries},
            "evaluation": {"kind": "auto" if self.enable_evaluation else "none"},
        }
        config = load_config(PRESET, {**settings, **(overrides or {})}, environment)
        return config if self.retry_config is None else config.model_copy(update={"retry": self.retry_config})


@dataclass(frozen=True, slots=True)
class Document:
    """A passage, of the shape that LangChain gives its documents; theirs serve as well wherever one is taken."""

    page_content: str
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    id: str | None = None


@dataclass(frozen=True, slots=True)
class ProcessedQuery:
    """A question with its vector; ``truncated`` if and only if something of it was cut off."""

    original: str
    normalized: str
    embedding: list[float]
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Passages with the cosine of each, in [0, 1]."""

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


class QueryProcessor:
    """Checks, normalizes and embeds queries; the model stays the caller's to close.

    Args:
        config: How a query is prepared.
        embeddings_model: An embedder of this library, or embeddings of LangChain.

    Raises:
        InvalidParameterError: The model is neither.
    """

    def __init__(self, config: QueryConfig, embeddings_model: Any) -> None:
        self.config = config
        self.embeddings_model = embeddings_model
        self._embedder = adapt_embedder(embeddings_model)
        self._calls = Calls(RetrievalConfig(query_config=config).to_config())

    def process(self, query: str) -> ProcessedQuery:
        """Return a question ready to be searched for.

        Raises:
            QueryValidationError: It is empty or no text.
            EmbeddingError: It could not be embedded; ``query`` has it.
        """
        asked = normalize(query, self._calls.config.query)
        embedding = QueryEmbedder(self._embedder).embed(self._calls.begin(), asked)
        vector = value_of(self._calls.sync.run(embedding))
        return ProcessedQuery(asked.original, asked.text, vector.tolist(), asked.truncated)


class VectorSearcher:
    """Finds passages by a question's vector; the store stays the caller's to close."""

    def __init__(self, config: SearchConfig, vector_store: Store) -> None:
        check_store(vector_store)
        self.config = config
        self.vector_store = vector_store
        self.retriever: Sources | None = None
        self._calls = Calls(RetrievalConfig(search_config=config).to_config())

    def initialize(self) -> None:
        """Make the retriever; the first search does so itself."""
        # Questions come with their vectors, so that their embedder is never asked.
        self.retriever = Sources(self.vector_store, QueryEmbedder(cast("Embedder", self)))

    def search(self, query_embedding: Sequence[float], filters: Filters = None) -> SearchResult:
        """Search for a vector. Without hits the result is empty.

        Args:
            query_embedding: A vector other than zero, with as many components as the index has.
            filters: Filter that every chunk must pass.

        Raises:
            FilterError: The filter is not well formed.
            RetrievalError: The index cannot be searched, after all attempts; a service that cannot be reached is a
                ``ConnectionError``.
        """
        return self._calls.sync.run(self._search(query_embedding, filters))

    async def _search(self, query_embedding: Sequence[float], filters: Filters) -> SearchResult:
        if self.retriever is None:
            self.initialize()
        sources = cast("Sources", self.retriever)
        store = self.vector_store
        plan = make_plan(self._calls.config, filters, {"mode": "dense"}, store=store, has_embedder=True)
        vector = checked_vector(query_embedding, len(query_embedding), "")
        vector = vector / float(vector @ vector) ** 0.5
        run = self._calls.begin()
        query = Query("", "", embedding=vector)
        found = await search(run, sources, query, replace(plan, has_words=False))
        if found.dense is None:
            value_of(found.failures[-1])
        ranked = fuse(found.dense, None, dense_weight=plan.dense_weight)
        selected = await Select(store)(run, SearchState.of(query, plan).but(found=found, ranked=ranked))
        for failure in selected.failures:
            value_of(failure)
        return SearchResult(
            [_as_document(hit.chunk) for hit in selected.hits],
            [hit.scores.dense for hit in selected.hits],
            list(query_embedding),
            {} if plan.condition is None else to_json(plan.condition),
            await self._degraded(run, found.failures, selected, plan),
        )

    async def _degraded(
        self, run: Run, failures: Sequence[Failed], selected: SearchState, plan: Plan
    ) -> tuple[Degradation, ...]:
        told = (*_as_degradations(failures), *selected.degraded)
        if plan.condition is None:
            return told
        seen = (chunk_fields(hit.chunk) for hit in selected.hits)
        unknown = await find_unknown_fields(run, self.vector_store, plan.condition, seen)
        return told if unknown is None else (*told, Degradation("filter", unknown))


class ContextCompressor:
    """Leaves out documents that do not bear on a query; without a language model every one stays.

    Args:
        config: Whether and how documents are judged.
        llm: A language model of this library, or a chat model of LangChain.

    Raises:
        InvalidParameterError: The model is neither.
    """

    def __init__(self, config: CompressorConfig, llm: Any | None) -> None:
        self.config = config
        self.llm = llm
        self._model = None if llm is None else adapt_llm(llm)
        self.compressor: RelevanceFilter | None = None
        self._calls = Calls(RetrievalConfig(compressor_config=config).to_config())

    def initialize(self) -> None:
        """Make the filter; the first call of :meth:`compress` does so itself."""
        self.compressor = build_relevance_filter(self._calls.config.relevance_filter, self._model)

    def compress(self, query: str, documents: Sequence[Document | Chunk]) -> CompressionResult:
        """Return the documents that bear on a question; one that could not be judged stays, and the log says so."""
        if self.compressor is None:
            self.initialize()
        if self.compressor is None:
            return CompressionResult(list(documents), 0, [])
        hits = _as_hits(documents)
        given = {id(hit.chunk): document for hit, document in zip(hits, documents, strict=True)}
        judging = keep_relevant(self._calls.begin(), self.compressor, query, hits)
        judged = self._calls.sync.run(judging)
        _warn(judged.failures)
        kept = [given[id(hit.chunk)] for hit in judged.hits]
        degraded = _as_degradations(judged.failures)
        return CompressionResult(kept, len(documents) - len(kept), list(judged.relevance_scores), degraded)


class QueryRewriter:
    """Rewrites queries; without a language model every one stays as it is.

    Args:
        config: How often, and below which relevance.
        llm: A language model of this library, or a chat model of LangChain.

    Raises:
        InvalidParameterError: The model is neither.
    """

    def __init__(self, config: RewriterConfig, llm: Any | None) -> None:
        self.config = config
        self.llm = llm
        self._calls = Calls(RetrievalConfig(rewriter_config=config).to_config())
        self._rewriter: Rewriter | None = build_rewriter(
            self._calls.config.rewriter, None if llm is None else adapt_llm(llm)
        )

    def should_rewrite(self, relevance_score: float) -> bool:
        """Whether a search did badly enough: if and only if its score is below the threshold."""
        return should_rewrite(relevance_score, self.config.relevance_threshold)

    def rewrite(self, query: str, context: str | None = None) -> RewriteResult:
        """Return a question in other words: one attempt; the log says why where the question stays as it is.

        Raises:
            QueryValidationError: It is empty or no text.
        """
        asked = normalize(query, self._calls.config.query)
        if self._rewriter is None:
            return RewriteResult(query, query, 0, "there is no language model")
        call = self._calls.begin().call("rewrite", self._rewriter.rewrite, asked.text, context or "")
        outcome = self._calls.sync.run(call)
        if isinstance(outcome, Failed):
            _warn((outcome,))
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
        """Return documents as one text; ``review_text`` is a document's text, and what it lacks is written ``N/A``.

        Scores are shown where ``include_scores`` says so.

        Raises:
            InvalidParameterError: There are not as many scores as documents.
        """
        settings = self._settings
        return format_context(
            _as_hits(documents, scores),
            template=settings.template,
            delimiter=settings.delimiter,
            include_scores=settings.include_scores and scores is not None,
            max_length=settings.max_context_length,
        )


class ResultCache:
    """Keeps results for a while, in memory, for several threads; those asked for longest ago go first."""

    def __init__(self, config: CacheConfig, *, clock: Clock | None = None) -> None:
        self.config = config
        self._cache: LruCache[str, RetrievalResult] = LruCache(
            config.max_size, config.ttl_seconds, (clock or SystemClock()).now
        )

    def get(self, query: str, filters: Filters = None) -> RetrievalResult | None:
        """Return the cached result of a query and its filters; ``None`` if there is none, or it has expired."""
        return self._cache.get(_key(query, filters)) if self.config.enabled else None

    def set(self, query: str, result: RetrievalResult, filters: Filters = None) -> None:
        """Keep a result."""
        if self.config.enabled:
            self._cache.set(_key(query, filters), result)

    def entry(self, query: str, filters: Filters = None) -> CacheEntry[RetrievalResult] | None:
        """Return a cached result with its age and number of hits, without counting a hit."""
        return self._cache.entry(_key(query, filters))

    def clear(self) -> None:
        """Forget all results."""
        self._cache.clear()


class RetrievalPipeline(Closing):
    """Finds what answers a question; a :class:`retrieval_core.pipeline.RetrievalPipeline` by other names.

    The components are there after :meth:`initialize`, which the first query calls. Each of them can be replaced by an
    object with the same methods; queries after that are carried out by the components. A model or store that is not
    given is made from the settings in the environment. It owns what it uses, and closes it.

    Args:
        config: How.
        embeddings_model: Used in place of OpenAI's: an embedder of this library, or embeddings of LangChain.
        vector_store: Used in place of Pinecone's.
        llm: Used in place of OpenAI's: a language model of this library, or a chat model of LangChain. If store and
            embedder are given and this is not, there is none.
        settings: Keys and the name of the index; the environment's if it is not given.

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
        settings: RetrievalSettings | None = None,
    ) -> None:
        if vector_store is not None:
            check_store(vector_store)
        embedder: Embedder | None = None if embeddings_model is None else adapt_embedder(embeddings_model)
        model: LLM | None = None if llm is None else adapt_llm(llm)
        self.config = config
        self.query_processor: Any = None
        self.vector_searcher: Any = None
        self.context_compressor: Any = None
        self.query_rewriter: Any = None
        self.document_formatter: Any = None
        self.cache: Any = None
        self._embedder, self._store, self._llm, self._settings = embedder, vector_store, model, settings
        self._pipeline: LibraryPipeline | None = None
        self._own: dict[str, object] = {}
        self._lock = Lock()

    def initialize(self) -> None:
        """Make all parts; doing so again changes nothing.

        Raises:
            ConfigurationError: A setting is outside its range, or missing; ``missing_keys`` names those.
        """
        with self._lock:
            if self._pipeline is None:
                self._pipeline = self._made()

    def _made(self) -> LibraryPipeline:
        overrides: dict[str, Any] = {"cache.kind": "none"}  # results are kept in self.cache, where they can be seen
        environment = None
        if self._embedder is None or self._store is None:
            settings = self._settings or RetrievalSettings()
            environment = settings.prefixed
            overrides |= {key: getattr(settings, name) for name in CREDENTIALS for key in KEYS[name]}
        elif self._llm is None:
            overrides["llm.kind"] = "none"
        config = self.config.to_config(overrides, environment)
        embedder = self._embedder or cast("Embedder", build_embedder(config.embedder))
        store = self._store or build_store(config.store, Path(config.index), embedder)
        llm = self._llm or build_llm(config.llm)
        ours = self.config
        self.query_processor = QueryProcessor(ours.query_config, embedder)
        self.vector_searcher = VectorSearcher(ours.search_config, store)
        self.context_compressor = ContextCompressor(ours.compressor_config, llm)
        self.query_rewriter = QueryRewriter(ours.rewriter_config, llm)
        self.document_formatter = DocumentFormatter(ours.formatter_config)
        self.cache = ResultCache(ours.cache_config)
        self._own = {name: getattr(self, name) for name in COMPONENTS}
        return build_pipeline(config, store, embedder, llm=llm)

    def retrieve(self, query: str, filters: Filters = None) -> RetrievalResult:
        """Find what answers a question; the same as :meth:`aretrieve`, from synchronous code."""
        self.initialize()
        return cast("LibraryPipeline", self._pipeline).sync.run(self.aretrieve(query, filters))

    async def aretrieve(self, query: str, filters: Filters = None) -> RetrievalResult:
        """Find what answers a question; asked again, from the cache, unless something did not work the first time.

        Raises:
            QueryValidationError: The question is empty or no text.
            EmbeddingError: It could not be embedded, and the store has no keyword search.
            RetrievalError: As :meth:`retrieval_core.pipeline.RetrievalPipeline.aretrieve`. A store that cannot be
                reached is no error: the result is empty, and its metadata has the error.
        """
        started = perf_counter()
        if self._pipeline is None:
            await asyncio.to_thread(self.initialize)
        pipeline, cache = cast("LibraryPipeline", self._pipeline), cast("ResultCache", self.cache)
        normalize(query, pipeline.config.query)  # what is no question is refused before it is looked for
        if (kept := cache.get(query, filters)) is not None:
            own = {"documents": [*kept.documents], "scores": [*kept.scores]}  # whoever changes them changes their own
            return replace(kept, **own, from_cache=True, latency_ms=(perf_counter() - started) * 1000)
        logger.debug("query %r, filters %r", query, filters)
        if any(getattr(self, name) is not part for name, part in self._own.items()):
            result = await self._retrieve_by_components(query, filters, started)
        else:
            result = await self._retrieve_by_pipeline(pipeline, query, filters)
        for document, score in zip(result.documents, result.scores, strict=True):
            logger.debug("result of %r: %s %s %r", query, document.id, score, document.page_content)
        is_whole = all(entry.stage == "filter" for entry in result.degraded)
        if is_whole and "error" not in result.metadata:
            cache.set(query, replace(result, documents=[*result.documents], scores=[*result.scores]), filters)
        return result

    async def _retrieve_by_pipeline(self, pipeline: LibraryPipeline, query: str, filters: Filters) -> RetrievalResult:
        found = await pipeline.aretrieve(query, filters)
        return RetrievalResult(
            query,
            [_as_document(chunk) for chunk in found.documents],
            found.formatted_context,
            list(found.scores),
            found.metadata,
            found.latency_ms,
            evaluation_scores=found.evaluation_scores,
            degraded=found.degraded,
        )

    async def _retrieve_by_components(self, query: str, filters: Filters, started: float) -> RetrievalResult:
        """Search with the present components, including replaced ones."""
        config = cast("LibraryPipeline", self._pipeline).config
        asked = normalize(query, config.query)
        async with Calls(config) as calls:
            searching = _Components(self, calls.begin())
            processed = value_of(await searching.call("query_processor", "process", query))
            best = await searching.search(query, processed.embedding, filters)
            attempts, text = 0, query
            while best.error is None and attempts < self.config.rewriter_config.max_attempts:
                if not self.query_rewriter.should_rewrite(best.relevance):
                    break
                attempts += 1
                rewritten = await searching.rewrite(text)
                if rewritten is None or rewritten == text:
                    break
                text = rewritten
                processed = value_of(await searching.call("query_processor", "process", text))
                again = await searching.search(query, processed.embedding, filters)
                best = again if again.error is None and again.relevance > best.relevance else best
            formatted = value_of(await searching.call("document_formatter", "format", best.documents, best.scores))
        metadata: dict[str, Any] = {
            "query_normalized": asked.text,
            "query_truncated": asked.truncated,
            "filters_applied": dict(best.filters_applied),
            "documents_fetched": best.fetched,
            "documents_after_compression": len(best.documents),
            "query_rewritten": text != query,
            "rewrite_attempts": attempts,
        }
        if best.error is not None:
            metadata["error"] = best.error
        return RetrievalResult(
            query,
            best.documents,
            formatted.text,
            best.scores,
            metadata,
            (perf_counter() - started) * 1000,
            evaluation_scores={"context_precision": None, "response_relevancy": None}
            if self.config.enable_evaluation
            else None,
            degraded=tuple(dict.fromkeys(searching.degraded)),
        )

    async def aclose(self) -> None:
        """Close all components, also those that were never used. Closing twice is fine."""
        if self._pipeline is not None:
            await self._pipeline.aclose()
            return
        async with AsyncExitStack() as stack:
            close_with(stack, (self._llm, self._embedder, self._store))

    def close(self) -> None:
        """Close what it uses; see :meth:`aclose`."""
        if self._pipeline is not None:
            self._pipeline.close()
        else:
            SyncBridge().finish(self.aclose)


@dataclass(frozen=True, slots=True)
class _Searched:
    """The outcome of one search and its compression."""

    documents: list[Any] = field(default_factory=list[Any])
    scores: list[float | None] = field(default_factory=list["float | None"])
    fetched: int = 0
    relevance: float = 0.0
    filters_applied: Mapping[str, Any] = field(default_factory=dict[str, Any])
    error: str | None = None


class _Components:
    """Calls the components of a pipeline, with retries for those that were replaced: the others have their own."""

    def __init__(self, pipeline: RetrievalPipeline, run: Run) -> None:
        self._pipeline = pipeline
        self._run = run
        self.degraded: list[Degradation] = []

    async def call(self, component: str, method: str, *arguments: object) -> Ok[Any] | Failed:
        part = getattr(self._pipeline, component)
        has_retries = isinstance(part, (QueryProcessor, VectorSearcher, ContextCompressor, QueryRewriter))
        run = self._run.without_retries() if has_retries else self._run
        return await run.call(component, getattr(part, method), *arguments)

    async def search(self, query: str, embedding: Sequence[float], filters: Filters) -> _Searched:
        outcome = await self.call("vector_searcher", "search", embedding, filters)
        if isinstance(outcome, Failed):
            self._note(outcome)
            return _Searched(error=outcome.reason)
        found = outcome.value
        self.degraded += getattr(found, "degraded", ())
        documents, judged = list(found.documents), list[float]()
        compressed = await self.call("context_compressor", "compress", query, documents)
        if isinstance(compressed, Failed):
            self._note(compressed)
        else:
            documents, judged = list(compressed.value.documents), list(compressed.value.relevance_scores)
            self.degraded += getattr(compressed.value, "degraded", ())
        known = {id(document): score for document, score in zip(found.documents, found.scores, strict=True)}
        scores = [known.get(id(document)) for document in documents]
        relevance = max(judged or [score for score in scores if score is not None], default=0.0)
        applied = getattr(found, "filters_applied", {})
        return _Searched(documents, scores, len(found.documents), relevance, applied)

    async def rewrite(self, query: str) -> str | None:
        outcome = await self.call("query_rewriter", "rewrite", query)
        if isinstance(outcome, Failed):
            self._note(outcome)
            return None
        return outcome.value.rewritten_query

    def _note(self, failed: Failed) -> None:
        self.degraded.append(Degradation(failed.stage, failed.reason))
        _warn((failed,))


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class DocumentScore(_Model):
    """A passage with its similarity to the question."""

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


def check_store(store: object) -> None:
    """Raise :class:`InvalidParameterError` for what is no store."""
    if not (callable(getattr(store, "search", None)) and callable(getattr(store, "fetch", None))):
        msg = (
            "a vector store has search() and fetch(), see retrieval_core.ports.Store; got a "
            f"{type(store).__module__}.{type(store).__qualname__}"
        )
        raise InvalidParameterError(msg)


def _as_document(chunk: Chunk) -> Document:
    return Document(chunk.text, chunk.metadata, chunk.id)


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
    """Return what names a question with its filters; no filter and an empty one are the same."""
    fields = (
        {name: value for name, value in asdict(filters).items() if value is not None}
        if isinstance(filters, MetadataFilter)
        else filters
    )
    return digest(query, fields if isinstance(fields, Filter) else freeze(fields) if fields else None)


def _as_degradations(failures: Sequence[Failed]) -> tuple[Degradation, ...]:
    return tuple(Degradation(failure.stage, failure.reason) for failure in failures)


def _warn(failures: Sequence[Failed]) -> None:
    for failure in failures:
        logger.warning("%s: %s", failure.stage, failure.reason)
