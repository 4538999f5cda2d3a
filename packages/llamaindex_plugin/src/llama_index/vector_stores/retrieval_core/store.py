"""LlamaIndex's port for vector stores, over any store of retrieval-core."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast, get_args

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

from llama_index.embeddings.retrieval_core import RetrievalCoreEmbedding
from llama_index.retrievers.retrieval_core.adapters.embedder import as_embedder
from llama_index.retrievers.retrieval_core.adapters.store import StoreAbilities
from llama_index.retrievers.retrieval_core.checks import checked_share
from llama_index.retrievers.retrieval_core.filters import Filters
from llama_index.vector_stores.retrieval_core.matching import Matching, matching
from llama_index.vector_stores.retrieval_core.nodes import chunks_of, node_of, place_nodes, written_node_of
from llama_index.vector_stores.retrieval_core.reading import (
    all_chunks,
    best_passing,
    chunks_by_id,
    nearest,
    search,
    whole,
)
from llama_index.vector_stores.retrieval_core.write_queue import WriteQueue
from retrieval_core.adapters.registry import build_analyzer, build_store
from retrieval_core.config import RetrievalConfig, load_config
from retrieval_core.errors import (
    DimensionMismatchError,
    EmbedderMismatchError,
    IndexNotFoundError,
    InvalidParameterError,
    checked_count,
)
from retrieval_core.index.settings import load_index_config
from retrieval_core.pipeline.lifecycle import Closing
from retrieval_core.pipeline.stages.fuse import FusionMethod, fuse
from retrieval_core.pipeline.stages.select import maximal_marginal_relevance
from retrieval_core.ports import (
    Candidate,
    Change,
    Embedder,
    Fetched,
    FetchRequest,
    SearchRequest,
    Store,
    StoreInfo,
    as_store,
)
from retrieval_core.run.sync import SyncBridge
from retrieval_core.types import Chunk

if TYPE_CHECKING:
    from retrieval_core.types import Matrix, Vector

MMR_THRESHOLD = 0.5
"""LlamaIndex's default."""
_UNNAMED = (
    "{} is new, and LlamaIndex does not say which model its vectors are from. Name the model that you give to "
    "LlamaIndex: RetrievalCoreVectorStore.from_index_file(path, embed_model=…)"
)
_DENSE = frozenset({VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR, VectorStoreQueryMode.HYBRID})
_LEXICAL = frozenset({VectorStoreQueryMode.HYBRID, VectorStoreQueryMode.TEXT_SEARCH, VectorStoreQueryMode.SPARSE})


class RetrievalCoreVectorStore(BasePydanticVectorStore, Closing):
    """A vector store of LlamaIndex that keeps its nodes in an index of retrieval-core.

    The result is a complete index: ``retrieval search``, ``open_index`` and ``RetrievalCoreRetriever`` read it with the
    same embedding model, and it reads their indexes. Nodes come back equal to those that were written. Metadata are
    JSON, and one key of them is reserved. Nodes that were not written through LlamaIndex have their provenance, as
    those of ``RetrievalCoreRetriever``.

    The modes are ``DEFAULT``, ``MMR``, ``HYBRID``, and ``TEXT_SEARCH`` or ``SPARSE`` for keyword search (BM25). Others
    raise an error. Similarities of ``DEFAULT`` and ``MMR`` are cosines in [-1, 1], in the order in which nodes were
    chosen. Keyword search has BM25 scores above 0, and ``HYBRID`` fused scores, which compare nodes of one query only.
    ``alpha`` of ``HYBRID`` is the weight of vector search: 1 is only vector search, 0 only keyword search.

    Filters follow the rules of LlamaIndex's ``SimpleVectorStore``, see
    :mod:`llama_index.vector_stores.retrieval_core.matching`; every operator and any nesting works. Filters of
    retrieval-core and JSON work too.

    If you call synchronous methods while an event loop is running, they block its thread; asynchronous methods block no
    loop. Writes through one vector store run one after another. If two processes write to one index, each must write
    different documents.

    Args:
        store: You close it. To write vectors, open it with the id and the dimension of their embedder.
        candidates: Nodes of each search of ``HYBRID``, and those that ``MMR`` chooses from, at least 1; never less than
            ``similarity_top_k``.
        alpha: The default of queries, in [0, 1].
        fusion: How ``HYBRID`` combines the two searches, see :mod:`retrieval_core.pipeline.stages.fuse`.

    Raises:
        InvalidParameterError: ``store`` is not a store, or another argument is outside its range.
    """

    stores_text: bool = True
    is_embedding_query: bool = True
    candidates: int = 200
    alpha: float = 0.5
    fusion: FusionMethod = "zscore"
    _store: Store = PrivateAttr()
    _owned: bool = PrivateAttr(default=False)
    _model_id: str | None = PrivateAttr(default=None)
    _bridge: SyncBridge = PrivateAttr(default_factory=SyncBridge)
    _queue: WriteQueue = PrivateAttr(default_factory=WriteQueue)

    def __init__(
        self, store: Store, *, candidates: int = 200, alpha: float = 0.5, fusion: FusionMethod = "zscore"
    ) -> None:
        if fusion not in get_args(FusionMethod):
            msg = f"fusion must be one of {', '.join(get_args(FusionMethod))}, got {fusion!r:.80}"
            raise InvalidParameterError(msg)
        super().__init__(stores_text=True)
        self.candidates = checked_count(candidates, "candidates")
        self.alpha = checked_share(alpha, "alpha")
        self.fusion = fusion
        self._store = as_store(store)

    @classmethod
    def from_index_file(
        cls,
        path: str | Path | None = None,
        *,
        embed_model: BaseEmbedding | Embedder | None = None,
        config: RetrievalConfig | str | Path | None = None,
    ) -> Self:
        """Make a vector store over an index that is named, and that it closes.

        An index that is there is opened whatever embedder it names, as LlamaIndex embeds by itself: give LlamaIndex
        the same model. A new one needs the model, whose name is written into it, so that it is never read with another
        one. An index that does not fit is refused here, before LlamaIndex embeds anything for it. To find that out, it
        is opened for a moment, which blocks.

        Args:
            path: The file. Default: ``config.index``.
            embed_model: The model that LlamaIndex embeds with, its own or an embedder of retrieval-core. An index of
                another model is refused. A new one needs it; if a model does not say its dimension, it embeds a word.
            config: Settings, the name of a preset, or a TOML file: the kind of store, the analysis of words, and
                ``search.candidates``, ``search.dense_weight`` and ``search.fusion``. By default those that the index
                remembers, and a ``retrieval.toml`` beside it.

        Raises:
            ConfigurationError: A setting is wrong.
            InvalidParameterError: ``embed_model`` is no model, or is missing for a new file; or ``search.fusion`` is
                ``native``.
            EmbedderMismatchError: The index was built with another model.
            StoreError: There is an index, or a file or folder of something else, that cannot be opened.
        """
        if config is None:
            config = load_index_config(path)
        settings = config if isinstance(config, RetrievalConfig) else load_config(config)
        if isinstance(embed_model, RetrievalCoreEmbedding):
            embed_model = embed_model.embedder
        model = None if embed_model is None else as_embedder(embed_model, "embed_model")
        search = settings.search
        if search.fusion == "native":
            msg = f"search.fusion is native, which is not for LlamaIndex; use {', '.join(get_args(FusionMethod))}"
            raise InvalidParameterError(msg)
        with closing(SyncBridge()) as bridge:  # also if the index is refused
            store, model_id = bridge.run(_open_store(settings, Path(path or settings.index), model))
        opened = cls(store, candidates=search.candidates, alpha=search.dense_weight, fusion=search.fusion)
        opened._owned, opened._model_id = True, model_id
        return opened

    @classmethod
    def class_name(cls) -> str:
        """Name the store in what LlamaIndex records."""
        return "RetrievalCoreVectorStore"

    @property
    def client(self) -> Store:
        """The store of retrieval-core, which ``RetrievalCoreDocumentStore`` and postprocessors take too."""
        return self._store

    @property
    def abilities(self) -> StoreAbilities:
        """The abilities that ``from_index`` and ``pipeline_from`` use.

        No operator is among it, since filters of LlamaIndex compare lists as a whole and those of a pipeline their
        items. Over an index file, ``RetrievalCoreRetriever.from_index_file`` has the store itself evaluate filters.
        """
        return StoreAbilities(words=VectorStoreQueryMode.TEXT_SEARCH)

    def __getstate__(self) -> dict[str, Any]:
        # LlamaIndex would silently leave the store out.
        msg = "a RetrievalCoreVectorStore cannot be pickled, because its store cannot; make a new one instead"
        raise TypeError(msg)

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Write nodes; see :meth:`async_add`."""
        return self._bridge.run(self.async_add(nodes, **kwargs))

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Write nodes, all of them or none; each replaces the one with its id.

        The nodes of a document, with those already in the index, are ordered by ``PREVIOUS`` and ``NEXT``, by their
        positions, or as given.

        Args:
            nodes: All of them or none have an embedding. If several have one id, the last one counts.

        Returns:
            Their ids, in the given order.

        Raises:
            InvalidParameterError: Embeddings are missing or of several lengths, or metadata contain the reserved key or
                a value that JSON can't express. Or the index is new and its model was not named, or an argument is
                unknown.
            DimensionMismatchError: The embeddings have another dimension than the index.
            EmbedderMismatchError: The index is of another model than the one that was named.
            StoreError: The index cannot be written.
        """
        _refuse(kwargs, "add")
        if not nodes:
            return []
        distinct = list({node.node_id: node for node in nodes}.values())
        vectors = _vectors(distinct)
        async with self._queue.turn():
            await self._add(distinct, vectors)
        return [node.node_id for node in nodes]

    async def _add(self, nodes: Sequence[BaseNode], vectors: Matrix | None) -> None:
        info = await self._info()
        there = Fetched()
        if info is not None and info.chunks:
            documents = whole(chunk.document_id for chunk in chunks_of(nodes))
            there = await self._store.fetch(FetchRequest(ranges=documents, with_vectors=True))
        names = {node.node_id for node in nodes}
        staying = [chunk for chunk in there.chunks.values() if chunk.id not in names]
        placed = place_nodes(staying, nodes)
        chunks = placed[len(placed) - len(nodes) :]
        moved = [chunk for chunk in placed[: len(placed) - len(nodes)] if chunk != there.chunks[chunk.id]]
        if vectors is not None and moved:
            moved_vectors = np.stack([there.vectors[chunk.id] for chunk in moved])
            if vectors.shape[1] != moved_vectors.shape[1]:
                raise DimensionMismatchError(moved_vectors.shape[1], vectors.shape[1], "the nodes")
            vectors = np.concatenate([vectors, moved_vectors])
        model = info.manifest.embedder_id if info is not None and info.manifest is not None else None
        if model is None and vectors is not None:
            model = self._model_id
        now = datetime.now(UTC)
        stamped = tuple(replace(chunk, embedding_model=model, timestamp=chunk.timestamp or now) for chunk in chunks)
        await self._store.upsert(Change(chunks=(*stamped, *moved), vectors=vectors))

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Remove a document's nodes; see :meth:`adelete`."""
        self._bridge.run(self.adelete(ref_doc_id, **delete_kwargs))

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Remove all nodes of a document, and a node of no document that has this id itself.

        Raises:
            InvalidParameterError: There are further arguments.
            StoreError: The index cannot be written.
        """
        _refuse(delete_kwargs, "delete")
        async with self._queue.turn():
            await self._store.delete((ref_doc_id,))

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: Filters | None = None, **delete_kwargs: Any
    ) -> None:
        """Remove nodes; see :meth:`adelete_nodes`."""
        self._bridge.run(self.adelete_nodes(node_ids, filters, **delete_kwargs))

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: Filters | None = None, **delete_kwargs: Any
    ) -> None:
        """Remove the nodes that have one of the ids and match the filters.

        Raises:
            InvalidParameterError: Neither ids nor filters were given, or there are further arguments.
            StoreError: The index cannot be written.
            FilterError: The filters are not well formed.
        """
        _refuse(delete_kwargs, "delete_nodes")
        if node_ids is None and filters is None:
            msg = "delete_nodes takes ids or filters; to remove all nodes call clear()"
            raise InvalidParameterError(msg)
        async with self._queue.turn():
            try:
                leaving = {chunk.id: chunk for chunk in await self._selected(node_ids, filters)}
            except IndexNotFoundError:
                return
            if leaving:
                await self._remove(leaving)

    def get_nodes(self, node_ids: list[str] | None = None, filters: Filters | None = None) -> list[BaseNode]:
        """Return nodes; see :meth:`aget_nodes`."""
        return self._bridge.run(self.aget_nodes(node_ids, filters))

    async def aget_nodes(self, node_ids: list[str] | None = None, filters: Filters | None = None) -> list[BaseNode]:
        """Return the nodes that have one of the ids and match the filters; all of them without ids and filters.

        Returns:
            In the order of the ids, without ids by document and position; without embeddings.

        Raises:
            StoreError: The index cannot be read; or no ids were given, and the store cannot list its documents.
            FilterError: The filters are not well formed.
        """
        return [node_of(chunk) for chunk in await self._selected(node_ids, filters)]

    def clear(self) -> None:
        """Remove everything; see :meth:`aclear`."""
        self._bridge.run(self.aclear())

    async def aclear(self) -> None:
        """Remove all nodes, passages and documents; the index remains one of the same embedding model.

        Raises:
            StoreError: The index cannot be written, or the store cannot list its documents.
        """
        async with self._queue.turn():
            with suppress(IndexNotFoundError):
                await self._store.delete(await self._store.document_ids())

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Find nodes; see :meth:`aquery`."""
        return self._bridge.run(self.aquery(query, **kwargs))

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Find the nodes that a query asks for, best first.

        Args:
            query: With ``HYBRID``, ``sparse_top_k`` nodes of keyword search are used, and ``hybrid_top_k`` are
                returned. An empty list of ``doc_ids`` finds nothing. An empty list of ``node_ids`` restricts nothing,
                because LlamaIndex passes it everywhere. ``embedding_field`` must be ``None``: a node has one vector.
            kwargs: ``mmr_threshold``, from 0 (only difference) to 1 (only relevance), and ``mmr_prefetch_k``, the
                number of nodes ``MMR`` chooses from.

        Raises:
            InvalidParameterError: The mode is none of those above, what it needs is missing or outside its range, or
                there are further arguments.
            DimensionMismatchError: The embedding has another dimension than the index.
            FilterError: The filters are not well formed.
            IndexNotFoundError: Nothing was written yet.
            StoreError: The index cannot be read.
        """
        threshold, prefetch = _mmr_settings(query, kwargs)
        mode = _checked_mode(query)
        if query.embedding_field is not None:
            msg = f"a node has one vector; leave embedding_field out, got {query.embedding_field!r:.80}"
            raise InvalidParameterError(msg)
        # VectorStoreIndex.as_retriever gives an empty list of nodes where nothing is restricted.
        test = matching(query.filters, nodes=query.node_ids or None, documents=query.doc_ids)
        top_k = checked_count(query.similarity_top_k, "similarity_top_k")
        pool = max(self.candidates, top_k)
        if mode is VectorStoreQueryMode.DEFAULT:
            found = await self._by_vector(query, test, top_k)
        elif mode is VectorStoreQueryMode.MMR:
            found = _diverse(await self._by_vector(query, test, max(prefetch or pool, top_k)), top_k, threshold)
        elif mode is VectorStoreQueryMode.HYBRID:
            found = await self._by_both(query, test, top_k, pool)
        else:
            found = await self._by_words(query, test, top_k)
        chunks = await chunks_by_id(self._store, found, {})
        there = [item for item in found if item.chunk_id in chunks]
        return VectorStoreQueryResult(
            nodes=[node_of(chunks[item.chunk_id]) for item in there],
            similarities=[float(item.score) for item in there],
            ids=[item.chunk_id for item in there],
        )

    def close(self) -> None:
        """Close the index that :meth:`from_index_file` opened; a store that was given stays open.

        Closing twice is fine.
        """
        if self._owned:
            self._bridge.run(self._store.aclose())
        self._bridge.close()

    async def aclose(self) -> None:
        """Close without blocking the event loop."""
        if self._owned:
            await self._store.aclose()
        self._bridge.close()

    async def _info(self) -> StoreInfo | None:
        """Return what the store says of itself, ``None`` before the first write."""
        try:
            return await self._store.describe()
        except IndexNotFoundError:
            return None

    async def _selected(self, node_ids: Sequence[str] | None, filters: Filters | None) -> list[Chunk]:
        match = matching(filters)
        if node_ids is None:
            return [chunk for chunk in await all_chunks(self._store, match.condition) if match.matches(chunk)]
        request = FetchRequest(chunk_ids=tuple(dict.fromkeys(node_ids)), filter=match.condition)
        found = (await self._store.fetch(request)).chunks
        return [found[name] for name in request.chunk_ids if name in found and match.matches(found[name])]

    async def _remove(self, leaving: dict[str, Chunk]) -> None:
        """Remove chunks; of documents that keep some, these are written again in the same change."""
        documents = tuple(sorted({chunk.document_id for chunk in leaving.values()}))
        fetched = await self._store.fetch(
            FetchRequest(ranges=whole(documents), document_ids=documents, with_vectors=True)
        )
        staying = [chunk for chunk in fetched.chunks.values() if chunk.id not in leaving]
        kept = {chunk.document_id for chunk in staying}
        if gone := tuple(name for name in documents if name not in kept):
            await self._store.delete(gone)
        if not staying:
            return
        chunks = (*(chunk for chunk in staying if written_node_of(chunk) is None), *place_nodes(staying))
        parents = tuple(dict.fromkeys(chunk.parent_id for chunk in chunks if chunk.parent_id is not None))
        sections = (await self._store.fetch(FetchRequest(section_ids=parents))).sections
        await self._store.upsert(
            Change(
                chunks=chunks,
                vectors=np.stack([fetched.vectors[chunk.id] for chunk in chunks]) if fetched.vectors else None,
                documents=tuple(document for name, document in fetched.documents.items() if name in kept),
                sections=tuple(sections.values()),
                removed_documents=tuple(name for name in documents if name in kept and name not in fetched.documents),
            )
        )

    async def _by_vector(self, query: VectorStoreQuery, test: Matching, limit: int) -> tuple[Candidate, ...]:
        vector = np.asarray(query.query_embedding, dtype=np.float32)
        mmr = query.mode == VectorStoreQueryMode.MMR
        request = SearchRequest(limit=limit, vector=vector, filter=test.condition, with_vectors=mmr)
        if test.is_exact:
            return await search(self._store, request)
        if not test.is_named:
            return await best_passing(self._store, request, test.matches)
        await search(self._store, replace(request, limit=1))  # refuses a vector of another dimension
        documents = whole(sorted(test.documents or ())) if test.nodes is None else ()
        wanted = FetchRequest(
            chunk_ids=tuple(sorted(test.nodes or ())), ranges=documents, filter=test.condition, with_vectors=True
        )
        fetched = await self._store.fetch(wanted)
        return nearest(fetched, vector, test.matches)[:limit]

    async def _by_words(self, query: VectorStoreQuery, test: Matching, limit: int) -> tuple[Candidate, ...]:
        request = SearchRequest(limit=limit, text=query.query_str, filter=test.condition)
        if test.is_exact:
            return await self._store.search(request)
        return await best_passing(self._store, request, test.matches)

    async def _by_both(self, query: VectorStoreQuery, test: Matching, top_k: int, pool: int) -> tuple[Candidate, ...]:
        alpha = self.alpha if query.alpha is None else checked_share(query.alpha, "alpha")
        wanted = top_k if query.hybrid_top_k is None else checked_count(query.hybrid_top_k, "hybrid_top_k")
        words = pool if query.sparse_top_k is None else checked_count(query.sparse_top_k, "sparse_top_k")
        if alpha == 1:
            return await self._by_vector(query, test, wanted)
        if alpha == 0:
            return await self._by_words(query, test, wanted)
        dense = await self._by_vector(query, test, max(pool, wanted))
        lexical = await self._by_words(query, test, words)
        ranked = fuse(dense, lexical, method=self.fusion, dense_weight=alpha, limit=wanted)
        known = {item.chunk_id: item for item in (*lexical, *dense)}
        return tuple(replace(known[item.chunk_id], score=item.score) for item in ranked)


@dataclass(frozen=True, slots=True)
class _Model:
    """The part of an embedder that a store reads."""

    id: str
    dimension: int | None


async def _open_store(settings: RetrievalConfig, location: Path, model: Embedder | None) -> tuple[Store, str | None]:
    """Return the store of an index, and the id of the model of its vectors: for a new index, the given model.

    Raises:
        InvalidParameterError: The index is new, and no model was given.
        EmbedderMismatchError: The index is of another model than the given one.
        StoreError: The index cannot be opened.
    """
    build = partial(build_store, settings.store, location, analyzer=build_analyzer(settings.analysis))
    known = build(None)
    try:
        manifest = (await known.describe()).manifest
    except IndexNotFoundError:
        manifest = None
    finally:
        await known.aclose()
    if manifest is not None and manifest.embedder_id is None:
        return build(None), None
    if manifest is None:
        if model is None:
            raise InvalidParameterError(_UNNAMED.format(location))
        return build(model), model.id
    if model is not None and model.id != manifest.embedder_id:
        raise EmbedderMismatchError(manifest.embedder_id, model.id, str(location))
    return build(cast("Embedder", _Model(cast("str", manifest.embedder_id), manifest.dimension))), None


def _vectors(nodes: Sequence[BaseNode]) -> Matrix | None:
    missing = [node.node_id for node in nodes if not node.embedding]
    if len(missing) == len(nodes):
        return None
    if missing:
        msg = f"{len(missing)} of {len(nodes)} nodes have no embedding, such as {missing[0]!r:.80}; embed all of them"
        raise InvalidParameterError(msg)
    lengths = {len(node.get_embedding()) for node in nodes}
    if len(lengths) > 1:
        msg = f"the nodes' embeddings have several lengths, {', '.join(map(str, sorted(lengths)))}; use one model"
        raise InvalidParameterError(msg)
    return np.asarray([node.get_embedding() for node in nodes], dtype=np.float32)


def _diverse(found: Sequence[Candidate], top_k: int, threshold: float) -> tuple[Candidate, ...]:
    """Choose nodes by maximal marginal relevance; their scores stay cosines."""
    vectors: dict[str, Vector] = {item.chunk_id: item.vector for item in found if item.vector is not None}
    chosen = maximal_marginal_relevance(fuse(found, None), vectors, top_k=top_k, lambda_mult=threshold)
    known = {item.chunk_id: item for item in found}
    return tuple(known[item.chunk_id] for item in chosen)


def _checked_mode(query: VectorStoreQuery) -> VectorStoreQueryMode:
    modes = _DENSE | _LEXICAL
    if query.mode not in modes:
        names = ", ".join(sorted(mode.name for mode in modes))
        msg = f"the query mode {query.mode!r:.80} is not supported; use one of {names}"
        raise InvalidParameterError(msg)
    mode = VectorStoreQueryMode(query.mode)
    if mode in _DENSE and query.query_embedding is None:
        msg = f"the query mode {mode.name} needs query_embedding, and it is not given; embed the question"
        raise InvalidParameterError(msg)
    if mode in _LEXICAL and query.query_str is None:
        msg = f"the query mode {mode.name} needs query_str, and it is not given; give the question's text"
        raise InvalidParameterError(msg)
    if query.output_fields is not None:
        msg = "output_fields are not supported, nodes come with all of their metadata; leave them out"
        raise InvalidParameterError(msg)
    return mode


def _mmr_settings(query: VectorStoreQuery, kwargs: dict[str, Any]) -> tuple[float, int | None]:
    """Return the threshold and how many nodes to choose from; LlamaIndex's retriever gives both as ``kwargs``."""
    given = dict(kwargs)
    threshold = given.pop("mmr_threshold", None)
    prefetch = given.pop("mmr_prefetch_k", None)
    _refuse(given, "query")
    threshold = query.mmr_threshold if threshold is None else threshold
    return (
        MMR_THRESHOLD if threshold is None else checked_share(threshold, "mmr_threshold"),
        None if prefetch is None else checked_count(prefetch, "mmr_prefetch_k"),
    )


def _refuse(arguments: Iterable[str], method: str) -> None:
    if names := ", ".join(sorted(arguments)):
        msg = f"{method} does not take {names}; leave it out"
        raise InvalidParameterError(msg)
