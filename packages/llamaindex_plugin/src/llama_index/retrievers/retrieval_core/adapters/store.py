"""A vector store of LlamaIndex as a store."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isfinite
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from llama_index.core.schema import ObjectType
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.vector_stores import FilterOperator, SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery, VectorStoreQueryMode

from llama_index.retrievers.retrieval_core.adapters._calls import PartCalls
from llama_index.retrievers.retrieval_core.adapters._docstore import DocstorePassages, Passages
from llama_index.retrievers.retrieval_core.adapters._pushdown import pushed
from llama_index.retrievers.retrieval_core.adapters._read_only import ReadOnlyStore
from llama_index.retrievers.retrieval_core.checks import check_kind
from llama_index.retrievers.retrieval_core.convert import NodeChunk, chunk_with_node
from retrieval_core.errors import (
    DimensionMismatchError,
    IncompleteSearchError,
    InvalidParameterError,
    ServiceError,
    StoreError,
    UnsupportedSearchError,
)
from retrieval_core.ports import Candidate, Fetched, StoreInfo
from retrieval_core.run.caching import LruCache
from retrieval_core.text.analysis import Analyzer
from retrieval_core.types.documents import unit_rows
from retrieval_core.types.filters import OPERATORS, chunk_fields, matches

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence

    from llama_index.core.schema import BaseNode
    from llama_index.core.vector_stores.types import VectorStoreQueryResult

    from retrieval_core.ports import FetchRequest, FieldInfo, SearchRequest, Side
    from retrieval_core.types import Chunk, Vector
    from retrieval_core.types.filters import Filter

MOST_RESULTS = 10_000
"""The most results that are asked of a store in one query; Pinecone's limit."""
MOST_REMEMBERED = 4096
"""Passages that a search found and that can be read by id, where the store cannot read by id."""
REMEMBERED_SECONDS = 300.0
_TOLERANCE = 1e-3
_REFUSED = 400
"""The status with which services refuse answers that would be too large; Pinecone's may have 4 MB."""
_MOST_NUMBERS = 100_000
"""Numbers of the vectors in one answer of Pinecone, of about 20 characters each."""
_FEW = 12
"""Results that no service refuses for their size; a query for as many is not made smaller."""


@dataclass(frozen=True, slots=True)
class StoreAbilities:
    """The abilities of a vector store of LlamaIndex; :func:`abilities_of` returns them.

    Attributes:
        is_async: Whether to call ``aquery`` on the event loop for an asynchronous caller. Otherwise, for a synchronous
            caller, and if the store has no asynchronous client, ``query`` is called in a thread.
        operators: Operators of ``MetadataFilters`` that the store evaluates. Each must accept every node that this
            library accepts, and may accept more: results are tested again. Other operators are tested only on results,
            of which more are then requested.
        words: The mode for keyword search, ``SPARSE`` or ``TEXT_SEARCH``; ``None`` without keyword search.
        is_hybrid: Whether mode ``HYBRID`` includes keyword search.
        reads_by_id: Whether ``get_nodes(node_ids=…)`` works.
        narrows_by_id: Whether a query is held to its ``node_ids``.
        most_results: The most results of one query.
    """

    is_async: bool = False
    operators: frozenset[FilterOperator] = frozenset()
    words: VectorStoreQueryMode | None = None
    is_hybrid: bool = False
    reads_by_id: bool = False
    narrows_by_id: bool = False
    most_results: int = MOST_RESULTS


OF_PINECONE = frozenset(map(FilterOperator, ("==", "in", ">", ">=", "<", "<=")))
"""What Pinecone is asked. Of ``!=`` and ``nin`` it does not document what becomes of nodes without the field, and
LlamaIndex's ``any``, ``all``, ``contains``, ``text_match``, ``is_empty`` and ``NOT`` raise ``ValueError`` for it."""


def abilities_of(vector_store: BasePydanticVectorStore) -> StoreAbilities:
    """Return the abilities of a vector store.

    Two stores are known. The operators of ``SimpleVectorStore`` are not used: its ``==`` is never true of a list, and
    others raise for values of mixed types. ``PineconeVectorStore`` has keyword search if it was made with
    ``add_sparse_vector``; in every mode but these two it sends a vector of zeros. A store with an attribute
    ``abilities``, such as ``RetrievalCoreVectorStore``, reports its own. Any other store is inspected for its own
    ``aquery`` and ``get_nodes``. Pass its operators and modes yourself, and ``is_async=False`` if its ``aquery``
    blocks.
    """
    told = getattr(vector_store, "abilities", None)
    if isinstance(told, StoreAbilities):
        return told
    base = BasePydanticVectorStore
    is_async = type(vector_store).aquery is not base.aquery
    if isinstance(vector_store, SimpleVectorStore):
        return StoreAbilities(is_async=is_async, narrows_by_id=True)
    if _is_pinecone(vector_store):
        is_sparse = getattr(vector_store, "add_sparse_vector", False) is True
        words = VectorStoreQueryMode.SPARSE if is_sparse else None
        return StoreAbilities(is_async=is_async, operators=OF_PINECONE, words=words, is_hybrid=is_sparse)
    return StoreAbilities(is_async=is_async, reads_by_id=type(vector_store).get_nodes is not base.get_nodes)


@dataclass(frozen=True, slots=True)
class _Found:
    """The outcome of one query: matching candidates, best first, and what is wrong with the others."""

    candidates: list[Candidate]
    last: float
    returned: int
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Item:
    """One result of a query."""

    chunk: Chunk
    similarity: float | None
    vector: Vector | None


class LlamaIndexStore(ReadOnlyStore):
    """Search a vector store of LlamaIndex, as a read-only :class:`~retrieval_core.ports.Store`.

    *Vector search* queries the store in its default mode. Scores are cosines with the returned vectors, or the store's
    similarities if it returns no vectors.

    *Keyword search* queries the store in its mode for it. Without one, it searches the nodes of the docstore by BM25 in
    memory. Without a docstore, a hybrid search uses vectors only, and every result reports that under ``degraded``.
    Nodes that the vector store deleted are not found, if it keeps text and reads by id.

    Chunks have the node that they were read from. The vector store's own text counts; images and references are the
    docstore's, as for LlamaIndex's retrievers.

    Results are not cached, since a vector store of LlamaIndex reports no version.

    *Filters* are those of :func:`retrieval_core.types.filters.matches`. The store evaluates what it can evaluate
    safely, and every result is tested. More results are requested until enough match or there are no more. If
    ``most_results`` doesn't suffice for that, the result is reported as incomplete.

    Args:
        vector_store: You write to it with LlamaIndex, and close it.
        docstore: The nodes; needed for a store that keeps no text.
        node_ids: Maps each id in the vector store to the id of its node, like ``index_struct.nodes_dict``; it may
            change. Only these nodes of the docstore are used. If it is missing or empty, both ids are the same, and all
            nodes are used except documents and nodes with children. With a ``SimpleVectorStore``, only nodes with
            vectors are used. If the store keeps text, a mapping of only images and references counts as empty.
        analyzer: Turns text into terms for BM25.
        abilities: The abilities of the store. Default: those that :func:`abilities_of` returns.
        similarities: ``order`` for a store whose similarities are no cosines: only their order then counts, as the
            scores 1, 1/2, 1/3 …. With ``cosine``, results of such a store report that.
        words: False to switch keyword search off.
        refresh_seconds: Seconds until the docstore is read again for changes. Default: 0 if it is in this process
            (``SimpleDocumentStore``), otherwise 60.
        name: The name of the index in reports.

    Raises:
        InvalidParameterError: One of the arguments is of another kind; the store keeps no text and there is no
            docstore; it embeds questions itself; or it cannot search in the modes of ``abilities``.
    """

    def __init__(
        self,
        vector_store: BasePydanticVectorStore,
        *,
        docstore: BaseDocumentStore | None = None,
        node_ids: Mapping[str, str] | None = None,
        analyzer: Analyzer | None = None,
        abilities: StoreAbilities | None = None,
        similarities: Literal["cosine", "order"] = "cosine",
        words: bool = True,
        refresh_seconds: float | None = None,
        name: str | None = None,
    ) -> None:
        check_kind(vector_store, "vector_store", BasePydanticVectorStore, "a vector store of LlamaIndex")
        if docstore is not None:
            check_kind(docstore, "docstore", BaseDocumentStore, "a document store of LlamaIndex, as in index.docstore")
        self._store = vector_store
        self._who = type(vector_store).__name__
        super().__init__(
            name or f"llama-index/{self._who}/{token_hex(8)}",
            f"{self._who} is only read here; write with LlamaIndex, for instance index.insert_nodes(…)",
        )
        self.abilities = abilities_of(vector_store) if abilities is None else abilities
        self._check(docstore, similarities)
        self._node_ids = node_ids
        self._refuses_ids = False
        self._similarities = similarities
        self._calls = PartCalls(vector_store, is_async=self.abilities.is_async)
        analyzer = analyzer or Analyzer()
        self._nothing = Passages(analyzer)
        self._passages = None
        if docstore is not None:
            lists_text = not vector_store.stores_text
            self._passages = DocstorePassages(
                docstore, analyzer, self._listed, refresh_seconds, time.monotonic, lists_text=lists_text
            )
        self._remembered: LruCache[str, _Item] = LruCache(MOST_REMEMBERED, REMEMBERED_SECONDS, time.monotonic)
        self.sides: frozenset[Side] = frozenset({"dense", "lexical"} if words else {"dense"})

    def _check(self, docstore: BaseDocumentStore | None, similarities: str) -> None:
        own, problem = abilities_of(self._store), None
        if similarities not in {"cosine", "order"}:
            problem = f"similarities must be 'cosine' or 'order', got {similarities!r:.40}"
        elif not self._store.stores_text and docstore is None:
            problem = f"{self._who} keeps no text; give the docstore with its nodes, or the index: from_index(index)"
        elif not self._store.is_embedding_query:
            problem = (
                f"{self._who} embeds questions itself and cannot be searched with a vector; use its retriever: "
                "pipeline_from(retriever=index.as_retriever(similarity_top_k=50))"
            )
        elif self.abilities.words not in {None, VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.TEXT_SEARCH}:
            problem = f"words are searched for in mode SPARSE or TEXT_SEARCH, got {self.abilities.words!r:.60}"
        elif _is_pinecone(self._store) and (self.abilities.words, self.abilities.is_hybrid) not in {
            (None, False),
            (own.words, own.is_hybrid),
        }:
            problem = (
                f"{self._who} sends a vector of zeros in mode TEXT_SEARCH, and in SPARSE without a sparse model; "
                "make it with add_sparse_vector=True, or pass the docstore for keyword search"
            )
        if problem is not None:
            raise InvalidParameterError(problem)

    @property
    def id(self) -> str:
        """Always empty: a vector store reports no version, so results with its nodes are not cached."""
        return ""

    async def _describe(self) -> StoreInfo:
        """Return the store's contents and abilities.

        Documents are those that the docstore's nodes name; without a docstore they are not known, and 0.
        """
        passages = await self._current()
        has_words = self._has_words(passages)
        is_lexical = has_words or self.abilities.words is not None
        return StoreInfo(
            location=self._location,
            manifest=None,
            generation=None,
            documents=len(passages.by_document),
            chunks=len(passages.chunks) if has_words else await self._calls.in_thread(self._count),
            sides=self.sides if is_lexical else self.sides - {"lexical"},
            filter_operators=OPERATORS,
        )

    async def _search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        """Return the best candidates with their chunks, best first; equal scores are ordered by chunk id.

        Raises:
            IncompleteSearchError: There may be others that match, or nodes could not be read, or the similarities are
                no cosines; it carries the results so far.
            DimensionMismatchError: The vectors have another dimension than the question's.
            UnsupportedSearchError: It has no keyword search.
            ServiceError: The store failed.
        """
        passages = await self._current()
        if request.vector is not None:
            return await self._query(request, passages, VectorStoreQueryMode.DEFAULT)
        if self.abilities.words is not None:
            return await self._query(request, passages, self.abilities.words)
        if not self._has_words(passages):
            told = "there is no docstore" if self._passages is None else "the docstore has none of its nodes"
            msg = (
                f"{self._who} has no keyword search, and {told}. Give a docstore with the nodes, or set "
                "search.mode = 'dense' for vector search only"
            )
            raise UnsupportedSearchError(msg)
        found = await self._by_words(passages, request)
        if request.with_vectors:
            vectors = self._vectors_of([item.chunk_id for item in found])
            found = [replace(item, vector=vectors.get(item.chunk_id)) for item in found]
        return self._complete(found, _unread(passages))

    async def _fetch(self, request: FetchRequest) -> Fetched:
        """Return those of the requested chunks that exist; there are no documents and sections.

        They come from the vector store if it keeps text and reads by id. Otherwise they come from the docstore, or from
        the searches of the last minutes. Neighbors come from the docstore only.

        Raises:
            ServiceError: The store failed.
        """
        passages = await self._current()
        chunks: dict[str, Chunk] = {}
        vectors: dict[str, Vector] = {}
        wanted = tuple(dict.fromkeys(request.chunk_ids))
        kept = await self._read(wanted, passages) if wanted and self._keeps_nodes else None
        if kept is not None:
            for name, item in kept.items():
                chunks[name] = item.chunk
                if item.vector is not None:
                    vectors[name] = unit_rows(item.vector)
        else:
            chunks = {name: passages.chunks[name] for name in wanted if name in passages.chunks}
            missing = [name for name in wanted if name not in chunks]
            chunks |= {name: item.chunk for name in missing if (item := self._remembered.get(name)) is not None}
        for part in request.ranges:
            of_document = passages.by_document.get(part.document_id, ())
            chunks |= {chunk.id: chunk for chunk in of_document if part.first <= chunk.chunk_index <= part.last}
        passing = {name: chunk for name, chunk in chunks.items() if matches(request.filter, chunk_fields(chunk))}
        if request.with_vectors:
            vectors |= self._vectors_of([name for name in passing if name not in vectors])
        return Fetched(chunks=passing, vectors={name: vector for name, vector in vectors.items() if name in passing})

    async def _fields(self) -> Mapping[str, FieldInfo]:
        """Return the fields of the docstore's chunks; none without a docstore."""
        return (await self._current()).fields

    async def _close(self) -> None:
        """Stop the threads; vector store and docstore stay open."""
        await self._calls.aclose()

    async def _current(self) -> Passages:
        return self._nothing if self._passages is None else await self._calls.in_thread(self._passages.current)

    @property
    def _keeps_nodes(self) -> bool:
        """Whether the vector store can say which nodes it has, with their text."""
        return self._store.stores_text and self.abilities.reads_by_id and not self._refuses_ids

    async def _read(self, names: Sequence[str], passages: Passages) -> dict[str, _Item] | None:
        """Return those nodes that the vector store has, by id; ``None`` if it can't read by id, which it says once."""
        store = self._store
        try:
            nodes = await self._calls.either_client(store.aget_nodes, store.get_nodes, list(names))
        except ServiceError as error:
            if not isinstance(error.__cause__, NotImplementedError):
                raise
            self._refuses_ids = True
            return None
        items: dict[str, _Item] = {}
        for node in nodes:
            with suppress(InvalidParameterError):  # vector search reports what cannot be read
                items[node.node_id] = _Item(self._chunk(node, None, passages), None, _vector(node.embedding))
        return items

    async def _by_words(self, passages: Passages, request: SearchRequest) -> list[Candidate]:
        """Search the docstore's nodes, without those that the vector store keeps no longer."""
        gone: set[str] = set()
        while True:
            found = await self._calls.in_thread(_by_words, passages, request, gone)
            if not found or not self._keeps_nodes:
                return found
            kept = await self._read([item.chunk_id for item in found], passages)
            if kept is None:
                return found
            if len(kept) == len(found):
                return [replace(item, chunk=kept[item.chunk_id].chunk) for item in found]
            gone.update(item.chunk_id for item in found if item.chunk_id not in kept)

    def _listed(self) -> Collection[str] | None:
        """Return the ids of the index's nodes; ``None`` if neither vector store nor index lists them."""
        if isinstance(self._store, SimpleVectorStore):
            return [self._node_id(name) for name in list(self._store.data.embedding_dict)]
        return list(self._node_ids.values()) if self._node_ids else None

    def _node_id(self, name: str) -> str:
        return name if self._node_ids is None else self._node_ids.get(name, name)

    def _has_words(self, passages: Passages) -> bool:
        """Whether a docstore holds the nodes: LlamaIndex keeps them elsewhere where the vector store keeps text."""
        return self._passages is not None and (passages.is_whole or not self._store.stores_text)

    def _count(self) -> int:
        if isinstance(self._store, SimpleVectorStore):
            return len(self._store.data.embedding_dict)
        if _is_pinecone(self._store):
            counts = self._store.client.describe_index_stats().namespaces
            name = getattr(self._store, "namespace", None) or ""
            summary = counts.get(name) or (counts.get("__default__") if not name else None)
            return 0 if summary is None else summary.vector_count
        msg = f"{self._who} cannot tell how many passages it keeps, and there is no docstore with its nodes"
        raise StoreError(msg)

    async def _query(
        self, request: SearchRequest, passages: Passages, mode: VectorStoreQueryMode
    ) -> tuple[Candidate, ...]:
        """Query the store, and again for more, until enough match or there are no more."""
        vector = None if request.vector is None else self._checked(request.vector)
        query = VectorStoreQuery(
            query_embedding=None if vector is None else vector.tolist(),
            query_str=request.text,
            mode=mode,
            filters=pushed(request.filter, self.abilities.operators),
            node_ids=self._matching(passages, request.filter),
        )
        if query.node_ids is not None and not query.node_ids:
            return ()

        def ask(top_k: int) -> Awaitable[_Found]:
            return self._ask(replace(query, similarity_top_k=top_k), vector, passages, request)

        most = self.abilities.most_results
        asked = min(request.limit + 1, most)
        found = await _unless_refused(ask(asked))
        for _ in range(2):
            if isinstance(found, ServiceError) and asked >= _FEW:
                most = asked = asked // 4
                found = await _unless_refused(ask(asked))
        if isinstance(found, ServiceError):
            raise found
        while asked < most and not _is_enough(found, asked, request.limit):
            more = await _unless_refused(ask(min(4 * asked, most)))
            if isinstance(more, ServiceError):
                break
            found, asked = more, min(4 * asked, most)
        return self._complete(found.candidates[: request.limit], self._missing(found, asked, request))

    def _missing(self, found: _Found, asked: int, request: SearchRequest) -> list[str]:
        """Return what is wrong with what was found, in the end."""
        problems = list(found.problems)
        if found.returned < asked or len(found.candidates) >= request.limit:
            return problems
        if request.filter is None:
            problems.append(f"it refuses to give more than {found.returned} at once, and {request.limit} were wanted")
        else:
            problems.append(
                f"of the {found.returned} best only {len(found.candidates)} match the filter, which it was not asked "
                "to evaluate in full, and there may be others; add a condition that it can evaluate"
            )
        return problems

    def _complete(self, candidates: Sequence[Candidate], problems: Sequence[str]) -> tuple[Candidate, ...]:
        if problems:
            msg = f"{self._who}: {'; '.join(problems)}"
            raise IncompleteSearchError(msg, candidates)
        return tuple(candidates)

    async def _ask(
        self, query: VectorStoreQuery, vector: Vector | None, passages: Passages, request: SearchRequest
    ) -> _Found:
        options: dict[str, Any] = {}
        if _is_pinecone(self._store):
            # Vectors make exact cosines and serve MMR, but not of answers that Pinecone refuses for their size.
            numbers = query.similarity_top_k * len(query.query_embedding or ())
            options["include_values"] = 0 < numbers <= _MOST_NUMBERS
        result = await self._calls.either_client(self._store.aquery, self._sync_query, query, **options)
        items, returned, problems = self._items(result, passages)
        scores, problem = self._scores(items, vector)
        if problem:
            problems = (*problems, problem)
        best: dict[str, Candidate] = {}
        for item, score in zip(items, scores, strict=True):
            self._remembered.set(item.chunk.id, item)
            is_relevant = vector is not None or score > 0  # by words, 0 says that none of them is there
            if is_relevant and item.chunk.id not in best and matches(request.filter, chunk_fields(item.chunk)):
                kept = item.vector if request.with_vectors else None
                best[item.chunk.id] = Candidate(item.chunk.id, score, item.chunk, kept)
        ordered = sorted(best.values(), key=lambda candidate: (-candidate.score, candidate.chunk_id))
        return _Found(ordered, min(scores, default=0.0), returned, problems)

    def _sync_query(self, query: VectorStoreQuery, **options: Any) -> VectorStoreQueryResult:
        # LlamaIndex divides by the length of a vector, which may be 0.
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._store.query(query, **options)

    def _items(self, result: VectorStoreQueryResult, passages: Passages) -> tuple[list[_Item], int, tuple[str, ...]]:
        """Return the results that can be read, how many there were, and why the others cannot."""
        nodes = list(result.nodes or ())
        ids = list(result.ids or ())
        count = len(nodes) or len(ids)
        given = list(result.similarities or ())
        similarities = given if len(given) == count else [None] * count
        items: list[_Item] = []
        problems: list[str] = []
        for place in range(count):
            node = nodes[place] if nodes else None
            try:
                chunk = self._chunk(node, None if node is not None else str(ids[place]), passages)
            except InvalidParameterError as error:
                problems.append(str(error))
                continue
            vector = _vector(node.embedding) if node is not None else self._vector_of_id(ids[place])
            items.append(_Item(chunk, similarities[place], vector))
        told = (f"{len(problems)} of the best could not be read: {problems[0]}",) if problems else ()
        return items, count, told

    def _chunk(self, node: BaseNode | None, name: str | None, passages: Passages) -> Chunk:
        """Return the chunk of a result, with its place in the document if the docstore has its neighbors."""
        if node is not None:
            kept = passages.chunks.get(node.node_id)
            if kept is not None and node.as_related_node_info().node_type != ObjectType.TEXT:
                return kept
            chunk = chunk_with_node(node)
            if kept is None or not isinstance(chunk, NodeChunk):
                return chunk
            return replace(chunk, chunk_index=kept.chunk_index, total_chunks=kept.total_chunks)
        node_id = self._node_id(cast("str", name))
        if (chunk := passages.chunks.get(node_id)) is None:
            raise InvalidParameterError(passages.unreadable.get(node_id, f"the docstore has no node {node_id!r:.80}"))
        return chunk

    def _scores(self, items: Sequence[_Item], vector: Vector | None) -> tuple[list[float], str | None]:
        """Return scores in the store's order, and what is wrong with its own; ``None`` for nothing."""
        if vector is not None and all(item.vector is not None for item in items):
            return [_cosine(vector, cast("Vector", item.vector), self._who) for item in items], None
        own = [item.similarity for item in items]
        numbers = [float(value) for value in own if value is not None and isfinite(value)]
        falls = len(numbers) == len(own) and all(numbers[row] >= numbers[row + 1] for row in range(len(numbers) - 1))
        if falls and vector is None:
            return numbers, None
        if falls and self._similarities == "cosine" and all(abs(number) <= 1 + _TOLERANCE for number in numbers):
            return [min(1.0, max(-1.0, number)) for number in numbers], None
        by_place = [1 / place for place in range(1, len(items) + 1)]
        if self._similarities == "order":
            return by_place, None
        seen = ", ".join("none" if value is None else f"{value:g}" for value in own[:3])
        return by_place, (
            f"its similarities ({seen} …) are not falling cosines, so its order counts and its scores do not; "
            "similarities='order' says that this is known"
        )

    def _vector_of_id(self, name: str) -> Vector | None:
        store = self._store
        return _vector(store.data.embedding_dict.get(name)) if isinstance(store, SimpleVectorStore) else None

    def _vectors_of(self, names: Iterable[str]) -> dict[str, Vector]:
        stored = {node_id: name for name, node_id in (self._node_ids or {}).items()}
        found: dict[str, Vector] = {}
        for name in names:
            vector = self._vector_of_id(stored.get(name, name))
            if vector is None and (item := self._remembered.get(name)) is not None:
                vector = item.vector
            if vector is not None:
                found[name] = unit_rows(vector)
        return found

    def _checked(self, vector: Vector) -> Vector:
        if isinstance(self._store, SimpleVectorStore):  # which would fail with words about shapes
            stored = next(iter(self._store.data.embedding_dict.values()), None)
            if stored is not None and len(stored) != vector.size:
                raise DimensionMismatchError(len(stored), vector.size, self._who)
        return unit_rows(vector)

    def _matching(self, passages: Passages, condition: Filter | None) -> list[str] | None:
        """Return the vector store's ids of the passages that match; ``None`` where a query is not held to ids."""
        if condition is None or not self.abilities.narrows_by_id or not self._has_words(passages):
            return None
        passing = {name for name, chunk in passages.chunks.items() if matches(condition, chunk_fields(chunk))}
        if not self._node_ids:
            return sorted(passing)
        return [name for name, node_id in list(self._node_ids.items()) if node_id in passing]


class LlamaIndexHybridStore(LlamaIndexStore):
    """A :class:`LlamaIndexStore` whose vector store has its own hybrid search; ``search.fusion = "native"`` uses it.

    Raises:
        InvalidParameterError: The vector store has no such mode; or as :class:`LlamaIndexStore`.
    """

    def __init__(self, vector_store: BasePydanticVectorStore, **options: Any) -> None:
        super().__init__(vector_store, **options)
        if not self.abilities.is_hybrid:
            msg = f"{self._who} has no hybrid mode, or abilities do not tell of it (StoreAbilities.is_hybrid)"
            raise InvalidParameterError(msg)

    async def _search_both(self, request: SearchRequest) -> tuple[Candidate, ...]:
        """Return the best candidates of the store's mode ``HYBRID``, best first, with its scores."""
        passages = await self._current()
        return await self._query(request, passages, VectorStoreQueryMode.HYBRID)


def _is_pinecone(vector_store: BasePydanticVectorStore) -> bool:
    return any(kind.__name__ == "PineconeVectorStore" for kind in type(vector_store).__mro__)


def _is_enough(found: _Found, asked: int, limit: int) -> bool:
    """Whether more results would change nothing: there are none, or those that are wanted are better than the last.

    Where the limit cuts through equal scores, the ids decide, and they have to be known.
    """
    best = found.candidates
    return found.returned < asked or (len(best) >= limit and best[limit - 1].score > found.last)


async def _unless_refused(asking: Awaitable[_Found]) -> _Found | ServiceError:
    """Return a query's outcome, or the error with which the service refuses so large an answer."""
    try:
        return await asking
    except ServiceError as error:
        if error.status != _REFUSED:
            raise
        return error


def _by_words(passages: Passages, request: SearchRequest, without: Collection[str]) -> list[Candidate]:
    found: list[Candidate] = []
    for name, score in passages.words.search(request.text or ""):
        chunk = passages.chunks[name]
        if name not in without and matches(request.filter, chunk_fields(chunk)):
            found.append(Candidate(name, score, chunk))
            if len(found) == request.limit:
                break
    return found


def _unread(passages: Passages) -> list[str]:
    if not passages.unreadable:
        return []
    name, reason = next(iter(passages.unreadable.items()))
    return [f"{len(passages.unreadable)} nodes of the docstore could not be read, such as {name!r:.80}: {reason}"]


def _vector(numbers: Any) -> Vector | None:
    return None if numbers is None or len(numbers) == 0 else np.asarray(numbers, dtype=np.float32)


def _cosine(query: Vector, vector: Vector, who: str) -> float:
    if vector.shape != query.shape:
        raise DimensionMismatchError(vector.size, query.size, who)
    return min(1.0, max(-1.0, float(unit_rows(vector) @ query)))
