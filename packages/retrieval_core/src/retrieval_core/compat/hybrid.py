"""The second specification file's names: hybrid retrieval with flags for each request, and answers that are streamed.

::

    from retrieval_core.compat.hybrid import RetrievalPipeline

    config = {"search_type": "hybrid", "retrieval_k": 20, "dense_weight": 0.7, "ai_rerank": True}
    with RetrievalPipeline(config, ollama_config={"host": "http://localhost:11434"}) as pipeline:
        pipeline.index.ingest("docs")
        for text in pipeline.answer_stream("What does it cost?", search_type="dense", ai_rerank=False):
            print(text, end="")

Settings may have the file's names throughout, see :mod:`retrieval_core.compat.flags`. The base classes for retrievers
and rerankers take and return dictionaries, as in the file. Custom components do not need them, see
:mod:`retrieval_core.ports`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack, ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakSet

from retrieval_core.adapters.graph import GraphQueryTranslator
from retrieval_core.adapters.registry import OffersModels, build_embedder, build_llm, build_rerankers
from retrieval_core.adapters.rerankers.fastembed import FastembedLateInteraction as ColBERTSmall
from retrieval_core.adapters.transformers.decompose import QueryDecomposer as _Decomposer
from retrieval_core.adapters.transformers.hyde import HyDEGenerator as _HyDEGenerator
from retrieval_core.adapters.transformers.keywords import KeywordExpander as QueryTransformer
from retrieval_core.compat.flags import load_flags, translated
from retrieval_core.compat.models import adapt_embedder, adapt_llm
from retrieval_core.compat.tracker import PerformanceTracker
from retrieval_core.compat.vectors import SeveralVectors
from retrieval_core.config import RetrievalConfig, load_config
from retrieval_core.config.base import copy_tree, merge_into, nested_tree
from retrieval_core.config.loading import read_toml
from retrieval_core.errors import IndexNotFoundError, InvalidParameterError, MalformedAnswerError
from retrieval_core.index.open import open_index, open_indexes
from retrieval_core.index.serialization import event_to_json, hit_to_json, result_to_json
from retrieval_core.pipeline import RetrievalPipeline as LibraryPipeline
from retrieval_core.pipeline.lifecycle import Closing, close_with
from retrieval_core.ports import Candidate, QueryContext, RerankScores
from retrieval_core.run.caching import LruCache
from retrieval_core.run.observe import monitor_memory_usage
from retrieval_core.run.sync import SyncBridge, in_step
from retrieval_core.types import AnswerChunk, Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence

    from retrieval_core.index.federated import FederatedIndex
    from retrieval_core.index.index import Index
    from retrieval_core.pipeline.options import Filters
    from retrieval_core.pipeline.stages.fuse import FusionMethod
    from retrieval_core.ports import Embedder, Reranker, Retriever, Store, Verifier
    from retrieval_core.ports import QueryTransformer as TransformerPort
    from retrieval_core.run.observe import MemoryUsage
    from retrieval_core.types import AnswerEvent, Hit, Matrix, RetrievalResult

    EventCallback = Callable[[dict[str, Any]], object]

__all__ = [
    "BM25Retriever", "BaseReranker", "BaseRetriever", "ColBERTSmall", "DenseRetriever", "GraphQueryTranslator",
    "HyDEGenerator", "HybridRetriever", "MultiVectorRetriever", "PerformanceTracker", "QueryDecomposer",
    "QueryTransformer", "RetrievalPipeline", "StoreRetriever", "select_embedder",
]  # fmt: skip
T = TypeVar("T")
logger = logging.getLogger(__name__)

PRESET = "local-hybrid"
GENERATION_MODEL = "qwen3:8b"
"""The model of a client if ollama_config names none."""
ENRICHMENT_MODEL = "qwen3:0.6b"
FLAGS = {
    **dict.fromkeys(("search_type", "searchType", "retrievalMode"), "search_type"),
    **dict.fromkeys(("retrieval_k", "retrievalK"), "retrieval_k"),
    **dict.fromkeys(("dense_weight", "denseWeight"), "dense_weight"),
    **dict.fromkeys(("ai_rerank", "aiRerank"), "ai_rerank"),
    **dict.fromkeys(("reranker_top_k", "rerankerTopK"), "reranker_top_k"),
    **dict.fromkeys(("context_window_size", "contextWindowSize"), "contextWindowSize"),
}
"""The flags of a request by their names, each with its name in :mod:`retrieval_core.compat.flags`."""
MOST_FLAGS = 32
"""For how many combinations of flags an index, or several as one, is kept open."""


class BaseRetriever(ABC):
    """Base class of custom retrievers."""

    @abstractmethod
    def search(self, query: str, k: int = 10) -> Any:
        """Find chunks.

        Returns:
            At most ``k`` dictionaries, best first, each with ``text``, and optionally ``chunk_id``, ``document_id``,
            ``score`` and ``metadata``.
        """

    def get_embeddings(self, texts: list[str]) -> Matrix:
        """Embed texts: one row for each. The library doesn't call it."""
        msg = f"{type(self).__name__} has no embeddings for {len(texts)} texts; give it a method get_embeddings"
        raise InvalidParameterError(msg)

    def as_retriever(self) -> Retriever:
        """Return it as a retriever of the library."""
        return cast("Retriever", _Dictionaries(self))


class _Dictionaries:
    """A :class:`~retrieval_core.ports.Retriever` over one that gives dictionaries."""

    def __init__(self, retriever: BaseRetriever) -> None:
        self.id = str(getattr(retriever, "id", ""))
        self._retriever = retriever

    def search(self, query: str, k: int = 10) -> Sequence[Candidate]:  # no coroutine function: it runs in a thread
        found = self._retriever.search(query, k)
        return [_as_candidate(item, 1 / rank, type(self._retriever).__name__) for rank, item in enumerate(found, 1)]


def _as_candidate(item: Any, score: float, name: str) -> Candidate:
    try:
        text, metadata = item["text"], dict(item.get("metadata") or {})
        chunk_id = str(item.get("chunk_id") or f"{name} {text!r:.80}")
        chunk = Chunk(chunk_id, str(item.get("document_id") or name), text, metadata=metadata)
        return Candidate(chunk_id, float(item.get("score", score)), chunk)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        msg = f"{name} gave {item!r:.80}; a passage is a dictionary with text"
        raise MalformedAnswerError(msg) from error


class BaseReranker(ABC):
    """Base class of custom rerankers, which you can pass wherever a reranker is accepted.

    Results are cached by its ``id``: change it with whatever changes the order.
    """

    batch_size = 1000
    """The most documents of one call; it only compares those."""

    @property
    def id(self) -> str:
        """Names the class."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    @abstractmethod
    def rank(self, query: str, documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return documents best first.

        Args:
            query: The query.
            documents: Each with ``text`` and ``index``, which must come back with it.
        """

    def score(self, query: str, passages: Sequence[str]) -> RerankScores:
        """Score chunks by the order of :meth:`rank`; those that it leaves out get 0.

        Raises:
            MalformedAnswerError: It returned a document without the index of one that it got.
        """
        ranked = self.rank(query, [{"index": number, "text": text} for number, text in enumerate(passages)])
        scores = [0.0] * len(passages)
        try:
            for rank, document in enumerate(ranked):
                number = range(len(passages))[cast("int", document["index"])]
                scores[number] = scores[number] or 1 - rank / len(passages)
        except (KeyError, IndexError, TypeError) as error:
            msg = f"{self.id} must give documents that it was given, each with its index; it gave {ranked!r:.80}"
            raise MalformedAnswerError(msg) from error
        return RerankScores(tuple(scores))


class StoreRetriever(BaseRetriever, Closing):
    """A retriever over a store: one mode of the pipeline, without reranking or anything else that follows a search.

    Closing it closes the store and the embedder. Use it by itself, or as a further retriever of another pipeline, for
    instance to search a second index beside the first one.

    Raises:
        ConfigurationError: A setting is outside its range.
    """

    def __init__(self, store: Store, embedder: Embedder | None, settings: Mapping[str, Any]) -> None:
        config = load_config(overrides={**settings, "strict": True})
        self._pipeline = LibraryPipeline(store, embedder, config=config)

    @property
    def id(self) -> str:
        """Names the kind of search and the embedder; empty if the store has no version, so that nothing is cached."""
        if "version" not in self._pipeline.store.capabilities:
            return ""
        embedder = self._pipeline.embedder
        settings = self._pipeline.config.model_dump_json(include={"search"})
        return f"{type(self).__name__} {settings} {None if embedder is None else embedder.id}"

    async def version(self) -> str | None:
        """Return the version of the index; ``None`` before the first write, and if its store has no versions.

        Raises:
            StoreError: The index can't be read.
        """
        store = self._pipeline.store
        return await store.version() if "version" in store.capabilities else None

    async def search(self, query: str, k: int = 10, filters: Filters = None) -> tuple[Candidate, ...]:
        """Find chunks: at most ``k``, best first; none in an index that was not yet written.

        Raises:
            RetrievalError: As :meth:`RetrievalPipeline.aretrieve`, and whatever failed.
        """
        most = self._pipeline.config.limits.max_results
        try:
            result = await self._pipeline.aretrieve(query, filters, top_k=min(k, most), syntax=False)
        except IndexNotFoundError:
            return ()
        return tuple(Candidate(hit.id, hit.score, hit.chunk) for hit in result.hits)

    def get_embeddings(self, texts: list[str]) -> Matrix:
        """Embed texts: one row of unit length for each.

        Raises:
            InvalidParameterError: It has no embedder.
            EmbeddingError: A text could not be embedded.
        """
        if self._pipeline.embedder is None:
            return super().get_embeddings(texts)
        return self._pipeline.sync.run(self._pipeline.embedder.embed_texts(texts))

    def retrieve(self, query: str, k: int = 10, filters: Filters = None) -> tuple[Hit, ...]:
        """Find chunks from synchronous code: at most ``k`` hits, best first, with all their scores.

        Raises:
            RetrievalError: As :meth:`search`.
        """
        return self._pipeline.retrieve(query, filters, top_k=k, syntax=False).hits

    def as_retriever(self) -> Retriever:
        """Return it as it is."""
        return cast("Retriever", self)

    async def aclose(self) -> None:
        """Close the store and the embedder. Closing twice is fine."""
        await self._pipeline.aclose()

    def close(self) -> None:
        """Close the store and the embedder. Closing twice is fine."""
        self._pipeline.close()


class BM25Retriever(StoreRetriever):
    """Find chunks with keyword search (BM25)."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, None, {"search": {"mode": "lexical"}})


class DenseRetriever(StoreRetriever):
    """Find chunks with vector search; the embedder must be the one that the index was built with."""

    def __init__(self, store: Store, embedder: Embedder) -> None:
        super().__init__(store, embedder, {"search": {"mode": "dense"}})


class HybridRetriever(StoreRetriever):
    """Find chunks with hybrid search: keyword and vector search, fused.

    Args:
        dense_weight: Weight of vector search, in [0, 1]; keyword search has the rest.
        fusion: See :mod:`retrieval_core.pipeline.stages.fuse`; ``minmax`` is ``(1 - w) * bm25 + w * dense`` of scaled
            scores.
        candidates: The most candidates of each of them.
    """

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        *,
        dense_weight: float = 0.5,
        fusion: FusionMethod = "zscore",
        candidates: int = 200,
    ) -> None:
        search = {"mode": "hybrid", "dense_weight": dense_weight, "fusion": fusion, "candidates": candidates}
        super().__init__(store, embedder, {"search": search})


class MultiVectorRetriever(StoreRetriever):
    """Find chunks by several vectors of each: a second search in another store, combined with the first one.

    It owns the other stores too: closing it closes them.

    Args:
        store: Has the chunks, and the vector of each.
        embedder: The one that all vectors were made with.
        weights: Weight of each other store's cosines, above 0; those of ``store`` have 1.
        stores: Other stores with a vector for the same chunk IDs, by name. For instance an index of the titles, or the
            same Qdrant collection with another ``vector``.
        vision_model: ``None``: images have no vectors.
        fusion_config: ``weights``, and the ``rule``: ``max`` takes the highest weighted cosine of a chunk, ``mean`` the
            weighted mean. ``{}`` for only the chunk's own vector. Default: ``weights`` and ``max``.

    Raises:
        InvalidParameterError: A weight has no store, a value is outside its range, or there is a vision model.
    """

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        weights: Mapping[str, float] | None = None,
        *,
        stores: Mapping[str, Store] | None = None,
        vision_model: None = None,
        fusion_config: Mapping[str, Any] | None = None,
    ) -> None:
        if vision_model is not None:
            msg = f"images have no vectors here; leave vision_model out, got {vision_model!r:.80}"
            raise InvalidParameterError(msg)
        if fusion_config is None and not weights:
            msg = "weights must name at least one other store, for instance {'title': 1.0}; else use DenseRetriever"
            raise InvalidParameterError(msg)
        self._several = SeveralVectors(store, stores or {}, fusion_config or {"weights": dict(weights or {})})
        super().__init__(self._several, embedder, {"search": {"mode": "dense"}})

    @property
    def id(self) -> str:
        """Names the kind of search and the embedder; empty if one of the stores has no version."""
        return f"{super().id} {self._several.id}" if self._several.has_versions else ""


class QueryDecomposer(_Decomposer):
    """Splits a question into simpler ones.

    Args:
        llm_client: A language model of this library, a chat model of LangChain, or a client with
            ``complete(prompt, model)``.
        enrichment_model: The model that such a client uses.
        prompt: Custom instructions.
    """

    def __init__(self, llm_client: Any, enrichment_model: str = ENRICHMENT_MODEL, *, prompt: str | None = None) -> None:
        super().__init__(adapt_llm(llm_client, enrichment_model), prompt=prompt)

    def decompose_query(self, query: str) -> list[str]:
        """Return two to four sub-questions, or only the question if it is simple.

        Raises:
            ServiceError: The model failed, or gave none.
        """
        made = _once(self.transform(query, QueryContext()))
        return [variant.text for variant in made.variants] or [query]


class HyDEGenerator(_HyDEGenerator):
    """Writes a text that would answer a question; the arguments are those of :class:`QueryDecomposer`."""

    def __init__(self, llm_client: Any, enrichment_model: str = ENRICHMENT_MODEL, *, prompt: str | None = None) -> None:
        super().__init__(adapt_llm(llm_client, enrichment_model), prompt=prompt)

    def generate_hypothetical_doc(self, query: str) -> str:
        """Return the text; the question if the model only repeats it.

        Raises:
            ServiceError: The model failed, or gave none.
        """
        made = _once(self.transform(query, QueryContext()))
        return next((variant.text.strip() for variant in made.variants), query)


def _once(coroutine: Any) -> Any:
    with closing(SyncBridge()) as bridge:
        return bridge.run(coroutine)


def select_embedder(name: str, host: str | None = None) -> Embedder:
    """Return an embedder of Ollama by its name, not yet loaded. Default host: Ollama's usual address.

    Raises:
        ConfigurationError: The name or the host is invalid.
    """
    at = {} if host is None else {"ollama_config": {"host": host}}
    return cast("Embedder", build_embedder(load_flags(PRESET, {"embedding_model_name": name, **at}).embedder))


class RetrievalPipeline(Closing):
    """Search and answer questions with flags for each request, on the library's index with the same settings.

    The flags are ``search_type``, ``retrieval_k``, ``dense_weight``, ``ai_rerank``, ``reranker_top_k`` and
    ``context_window_size``, in these names or those of a user interface, such as ``searchType``. Methods with flags
    also take the library's own options: ``top_k``, ``history``, ``session_id``, and for answers ``verify``,
    ``prompt_override`` and ``max_tokens``. Closing it closes its components.

    Args:
        config: Settings over those of the preset ``local-hybrid``, by the file's names or the library's.
        ollama_client: A language model of this library, a chat model of LangChain, or a client with
            ``complete(prompt, model)``; it replaces the configured ones.
        ollama_config: ``host``, ``generation_model``, ``embedding_model`` and ``enrichment_model``.
        store: Replaces the configured one, as do embedder, reranker and verifier.
        retrievers: Further retrievers, by name.
        transformers: Further query transformers, by name, for every query.

    Attributes:
        index: The index for requests without flags; you can add documents to it.

    Raises:
        ConfigurationError: A setting is unknown or outside its range.
        InvalidParameterError: A model is of another kind.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        ollama_client: Any | None = None,
        ollama_config: Mapping[str, Any] | None = None,
        *,
        store: Store | None = None,
        embedder: Any | None = None,
        retrievers: Mapping[str, Retriever | BaseRetriever] | None = None,
        transformers: Mapping[str, TransformerPort] | None = None,
        reranker: Reranker | BaseReranker | Sequence[Reranker | BaseReranker] | None = None,
        verifier: Verifier | None = None,
    ) -> None:
        given = {**config, **({} if ollama_config is None else {"ollama_config": dict(ollama_config)})}
        llm = None
        if ollama_client is not None:
            name = {"generation_model": GENERATION_MODEL, **config, **(ollama_config or {})}["generation_model"]
            llm = adapt_llm(ollama_client, name)
            if not isinstance(llm, OffersModels):
                given["transform.model"] = None  # the client is asked for everything
        self.config = load_flags(PRESET, given)
        self._defaults = {FLAGS[name]: given.pop(name) for name in ("aiRerank", "ai_rerank") if name in given}
        self._settings = read_toml(PRESET)
        chosen, _ = translated(nested_tree(given), self._settings, RetrievalConfig.model_fields, [])
        merge_into(self._settings, chosen)
        self._llm = build_llm(self.config.llm) if llm is None else llm
        self._embedder = None if embedder is None else adapt_embedder(embedder)
        self._store = store
        self._reranker: Any = reranker
        self._loaded: dict[str, Sequence[Reranker]] = {}
        self._retrievers = {
            name: one.as_retriever() if isinstance(one, BaseRetriever) else one
            for name, one in (retrievers or {}).items()
        }
        self._plugged_in: dict[str, Any] = {"llm": self._llm, "transformers": transformers, "verifier": verifier}
        self._kept: LruCache[str, Index | FederatedIndex] = LruCache(MOST_FLAGS, None, monotonic)
        # Also those that made room for others, as long as a request uses them.
        self._others: WeakSet[Index | FederatedIndex] = WeakSet()
        self._former: list[Index] = []
        self.index = self._open(self.config)
        self._embedder, self._store = self.index.embedder, self.index.store

    @property
    def text_embedder(self) -> Any:
        """The embedder of queries. Set it to use another one; ``None`` opens the present one again."""
        return self.index.embedder

    @text_embedder.setter
    def text_embedder(self, embedder: Any | None) -> None:
        if embedder is None:
            self.index.recover_from_embedding_failure()
            return
        self._embedder = adapt_embedder(embedder)
        self._reopen()

    @property
    def ai_reranker(self) -> Any:
        """The reranker. Set it to use another one; ``None`` uses the configured one."""
        return self._reranker

    @ai_reranker.setter
    def ai_reranker(self, reranker: Any | None) -> None:
        self._reranker = reranker
        self._reopen()

    def _reopen(self) -> None:
        """Open the index again with components that were replaced; the former one is closed with the pipeline."""
        self._former.append(self.index)
        self._kept.clear()
        self.index = self._open(self.config)

    def _configured(self, flags: Mapping[str, Any]) -> RetrievalConfig:
        if not flags:
            return self.config
        problems: list[str] = []
        tree, _ = translated({**self._defaults, **flags}, self._settings, {}, problems)
        if problems:
            raise InvalidParameterError("; ".join(problems))
        settings = copy_tree(self._settings)
        merge_into(settings, tree)
        return load_config(overrides=settings)

    def _rerankers(self, config: RetrievalConfig) -> Any:
        """Return the rerankers of some settings, which load their models once for all requests."""
        if config.reranker.kind == "none":
            return ()
        if self._reranker is not None:
            return self._reranker
        name = config.reranker.model_dump_json(exclude={"candidates", "weight"})
        if name not in self._loaded:
            self._loaded[name] = build_rerankers(config.reranker, self._llm)
        return self._loaded[name]

    def _open(self, config: RetrievalConfig) -> Index:
        parts = {"store": self._store, "retrievers": self._retrievers, "reranker": self._rerankers(config)}
        return open_index(config=config, embedder=self._embedder, **parts, **self._plugged_in)

    def _open_several(self, config: RetrievalConfig, index_ids: Sequence[str]) -> FederatedIndex:
        place = Path(config.index)
        weights = {name: weight for name, weight in config.federation.weights.items() if name in index_ids}
        return open_indexes(
            {name: place.with_name(f"text_pages_{name}{place.suffix}") for name in index_ids},
            config=config,
            weights=weights,
            embedder=self._embedder,
            reranker=self._rerankers(config),
            **self._plugged_in,
        )

    def _asked(self, options: Mapping[str, Any], index_ids: Sequence[str] = ()) -> tuple[Any, dict[str, Any]]:
        """Return the index for the flags of a request, and its other options. The same flags share what is cached."""
        flags = {FLAGS[name]: value for name, value in options.items() if name in FLAGS and value is not None}
        rest = {"syntax": False} | {name: value for name, value in options.items() if name not in FLAGS}
        name = repr((sorted(index_ids), sorted(flags.items())))
        index = self._kept.get(name) if flags or index_ids else self.index
        if index is None:
            config = self._configured(flags)
            index = self._open_several(config, index_ids) if index_ids else self._open(config)
            self._kept.set(name, index)
            self._others.add(index)
        if "retrieval_k" in flags and rest.get("top_k") is None:
            rest["top_k"] = min(index.config.search.top_k, index.config.search.candidates)
        return index, rest

    def search(self, query: str, filters: Filters = None, **options: Any) -> list[dict[str, Any]]:
        """Find chunks: dictionaries with ``text``, ``score`` and everything else that is known of each, best first.

        Raises:
            InvalidParameterError: A flag is unknown.
            RetrievalError: As :meth:`retrieval_core.pipeline.RetrievalPipeline.aretrieve`.
        """
        index, rest = self._asked(options)
        return _as_dicts(self._run(index.aretrieve(query, filters, **rest)))

    def process_query_batch(self, queries: Sequence[str], **options: Any) -> list[dict[str, Any]]:
        """Search for several queries, embedded together: for each one the JSON of its result.

        A query that fails has ``error``, and you still get the results of the others.
        """
        index, rest = self._asked(options)
        found = self._run(index.aretrieve_many(queries, **rest))
        return [
            {"query": one.query, "error": str(one.error), "degraded": []}
            if one.result is None
            else result_to_json(one.result)
            for one in found
        ]

    def get_cached_result(self, query: str, session_id: str | None = None, **options: Any) -> dict[str, Any] | None:
        """Return the cached result of a query, or of one with the same meaning; ``None`` if there is none.

        Give the options of the earlier query. The session counts if ``cache_scope`` is ``session``.
        """
        index, rest = self._asked({**options, "session_id": session_id})
        cached = self._run(index.acached_result(query, **rest))
        return None if cached is None else result_to_json(cached)

    def answer_stream(
        self, query: str, filters: Filters = None, *, event_callback: EventCallback | None = None, **options: Any
    ) -> Generator[str]:
        """Answer a question, and yield the answer's text piece by piece.

        If the configured search fails, the fallback is vector search without a reranker. If that fails too, the model
        answers without documents, and says so; see :meth:`retrieval_core.Index.answer_stream`.

        Args:
            event_callback: Is called with every event, such as ``{"type": "answer_chunk", "content": "…"}``.
        """
        index, rest = self._asked(options)
        return _texts(in_step(self.index.sync, index.aanswer_stream(query, filters, **rest)), event_callback)

    def answer_with_history(
        self, query: str, conversation_history: Sequence[Mapping[str, Any]], **options: Any
    ) -> Generator[str]:
        """Answer a question of a conversation, whose turns, oldest first, have ``role`` and ``content``."""
        return self.answer_stream(query, **options, history=conversation_history)

    def search_multiple_indexes(self, query: str, index_ids: Sequence[str], **options: Any) -> list[dict[str, Any]]:
        """Find chunks in several indexes, reranked together; each has its ``source_index``.

        Each ID names the index ``text_pages_<id>`` in the folder of the configured one.

        Raises:
            InvalidParameterError: The IDs are one text, or there are none.
            ValueError: An ID can't be a part of a file's name.
        """
        if isinstance(index_ids, str) or not index_ids:
            msg = f"index_ids must be a list of ids, got {index_ids!r}; for one index write [{index_ids or 'main'!r}]"
            raise InvalidParameterError(msg)
        index, rest = self._asked(options, index_ids)
        return _as_dicts(self._run(index.aretrieve(query, **rest)))

    def recover_from_embedding_failure(self, query: str, **options: Any) -> bool:  # noqa: ARG002 - the file's
        """Reopen the embedder and try it. Until it works, queries use keyword search only."""
        return self.index.recover_from_embedding_failure()

    def monitor_memory_usage(self) -> MemoryUsage:
        """Measure the memory of the process and its components. The log has a warning if it is too much."""
        return monitor_memory_usage(self.index.components)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.index.sync.run(coroutine)  # one loop for all requests

    async def aclose(self) -> None:
        """Close its components. Closing twice is fine."""
        async with AsyncExitStack() as stack:  # whatever fails, the rest is closed too
            close_with(stack, (self.index, *self._former, *self._others))

    def close(self) -> None:
        """Close its components. Closing twice is fine."""
        with ExitStack() as stack:
            for opened in (self.index, *self._former, *self._others):
                stack.callback(opened.close)


def _as_dicts(result: RetrievalResult) -> list[dict[str, Any]]:
    """Return hits as dictionaries, each with the degradations of the search, and log them."""
    degraded = [asdict(entry) for entry in result.degraded]
    found = [
        {"chunk_id": hit.id, **hit_to_json(hit, rank), "degraded": degraded}
        for rank, hit in enumerate(result.hits, start=1)
    ]
    logger.debug("query %r, filter %s: %s", result.query, result.metadata.get("filters_applied"), found)
    return found


def _texts(events: Generator[AnswerEvent], event_callback: EventCallback | None) -> Generator[str]:
    for event in events:
        if event_callback is not None:
            event_callback(event_to_json(event))
        if isinstance(event, AnswerChunk):
            yield event.content
