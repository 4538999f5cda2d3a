"""A vector store of LlamaIndex as a store."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import numpy as np
from llama_index.core.schema import ObjectType
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.vector_stores import FilterOperator, SimpleVectorStore
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

from llama_index.retrievers.retrieval_core.adapters._calls import PartCalls
from llama_index.retrievers.retrieval_core.adapters._nodes import DocstoreNodes
from llama_index.retrievers.retrieval_core.adapters._pushdown import pushed
from llama_index.retrievers.retrieval_core.adapters.retriever import MOST_REMEMBERED, REMEMBERED_SECONDS, falling
from llama_index.retrievers.retrieval_core.checks import check_kind
from llama_index.retrievers.retrieval_core.convert import NodeChunk, chunk_with_node
from retrieval_core.adapters.stores.fields import FieldCounter
from retrieval_core.errors import (
    DimensionMismatchError,
    IncompleteSearchError,
    InvalidParameterError,
    ServiceError,
    StoreError,
    UnsupportedSearchError,
)
from retrieval_core.ports import Candidate, Fetched, Store, StoreInfo
from retrieval_core.run.caching import LruCache
from retrieval_core.text.analysis import Analyzer
from retrieval_core.types.documents import unit_rows
from retrieval_core.types.filters import OPERATORS, chunk_fields, matches

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from llama_index.core.schema import BaseNode

    from retrieval_core.ports import Change, FetchRequest, FieldInfo, SearchRequest
    from retrieval_core.types import Chunk, Vector
    from retrieval_core.types.filters import Filter

_MOST_NUMBERS = 100_000
"""Numbers of the vectors in one answer of Pinecone, of about 20 characters each: it refuses more than 4 MB."""


@dataclass(frozen=True, slots=True)
class StoreAbilities:
    """Abilities of a vector store of LlamaIndex besides vector search; :func:`abilities_of` returns them.

    Attributes:
        operators: Operators of ``MetadataFilters`` that the store evaluates. Each must accept every node that this
            library accepts, and may accept more: results are tested again. Other operators are tested only on results,
            of which more are then requested.
        numbers: Whether ``==`` and ``in`` take 1 and 1.0 as equal.
        words: The mode for keyword search, ``SPARSE`` or ``TEXT_SEARCH``; ``None`` without keyword search.
        is_hybrid: Whether mode ``HYBRID`` includes keyword search.
    """

    operators: frozenset[FilterOperator] = frozenset()
    words: VectorStoreQueryMode | None = None
    is_hybrid: bool = False
    numbers: bool = True


EQUALITY = frozenset({FilterOperator.EQ, FilterOperator.IN})
COMPARISON = EQUALITY | {FilterOperator.GT, FilterOperator.GTE, FilterOperator.LT, FilterOperator.LTE}
"""Filters that stores are asked to evaluate. For ``!=`` and ``nin`` they differ in nodes without the field. Some raise
errors for ``any``, ``all``, ``contains``, ``text_match``, ``is_empty`` and ``NOT``."""


def abilities_of(vector_store: BasePydanticVectorStore) -> StoreAbilities:
    """Return the abilities of a vector store.

    A store with an attribute ``abilities``, such as ``RetrievalCoreVectorStore``, reports its own. Pinecone, Qdrant and
    Chroma are known to evaluate some operators. ``PineconeVectorStore`` has keyword search if it was made with
    ``add_sparse_vector``. LanceDB's store would write the values of a filter into SQL, so it gets none.
    """
    told = getattr(vector_store, "abilities", None)
    if isinstance(told, StoreAbilities):
        return told
    if _is(vector_store, "QdrantVectorStore"):
        return StoreAbilities(COMPARISON, numbers=False)
    if _is(vector_store, "ChromaVectorStore"):  # it never compares whole numbers with fractions
        return StoreAbilities(EQUALITY, numbers=False)
    if not _is(vector_store, "PineconeVectorStore"):
        return StoreAbilities()
    is_sparse = getattr(vector_store, "add_sparse_vector", False) is True
    return StoreAbilities(COMPARISON, VectorStoreQueryMode.SPARSE if is_sparse else None, is_hybrid=is_sparse)


@dataclass(frozen=True, slots=True)
class _Item:
    """A chunk that was read from the vector store."""

    chunk: Chunk
    vector: Vector | None = None


class LlamaIndexStore(Store):
    """Search a vector store of LlamaIndex, as a read-only :class:`~retrieval_core.ports.Store`.

    *Vector search* queries the store in its default mode, for as many results as are needed, and keeps their order.
    Scores are the store's similarities if they fall in this order, and otherwise 1, 1/2, 1/3 ….

    *Keyword search* queries the store in its mode for it. Without one, it searches the nodes of the docstore by BM25 in
    memory. Without a docstore, a hybrid search uses vectors only, and every result reports that under ``degraded``.
    The first query reads all nodes of the docstore, later ones those that changed. Nodes that the vector store deleted
    are not found, if it keeps text and reads by id.

    Chunks have the node that they were read from. The vector store's own text counts; images and references are the
    docstore's, as for LlamaIndex's retrievers.

    Results are not cached, since a vector store of LlamaIndex reports no version.

    *Filters* are those of :func:`retrieval_core.types.filters.matches`. The store evaluates what it can evaluate
    safely, and every result is tested. More results are requested until enough match or there are no more. If
    :attr:`most_results` don't suffice for that, the result is reported as incomplete.

    Args:
        vector_store: You write to it with LlamaIndex, and close it.
        docstore: The nodes; needed for a store that keeps no text.
        node_ids: Maps each id in the vector store to the id of its node, like ``index_struct.nodes_dict``; it may
            change. Only these nodes of the docstore are used. If it is missing or empty, both ids are the same, and all
            nodes are used except documents and nodes with children. With a ``SimpleVectorStore``, only nodes with
            vectors are used. If the store keeps text, a mapping of only images and references counts as empty.
        analyzer: Turns text into terms for BM25.
        abilities: The abilities of the store. Default: those that :func:`abilities_of` returns.
        words: False to switch keyword search off. The docstore is then read for results only, and chunks don't know
            their neighbors.
        vectors: Whether to request the vectors of results from Pinecone too, for diverse results.
        refresh_seconds: Seconds until the docstore is read again for changes. Default: 0 if it is in this process
            (``SimpleDocumentStore``), otherwise 60.
        name: The name of the index in reports.
        length_of: Returns the length that the embedding model gave a query's vector, for stores that compare by
            distance; :meth:`LlamaIndexEmbedder.length_of`. Default: 1.

    Raises:
        InvalidParameterError: One of the arguments is of another kind; the store keeps no text and there is no
            docstore; it embeds questions itself; or ``abilities`` name another mode.

    Attributes:
        most_results: The most results of one query; Pinecone's limit.
    """

    is_costly = True
    most_results = 10_000

    def __init__(
        self,
        vector_store: BasePydanticVectorStore,
        *,
        docstore: BaseDocumentStore | None = None,
        node_ids: Mapping[str, str] | None = None,
        analyzer: Analyzer | None = None,
        abilities: StoreAbilities | None = None,
        words: bool = True,
        vectors: bool = False,
        refresh_seconds: float | None = None,
        name: str | None = None,
        length_of: Callable[[Vector], float] | None = None,
    ) -> None:
        check_kind(vector_store, "vector_store", BasePydanticVectorStore, "a vector store of LlamaIndex")
        if docstore is not None:
            check_kind(docstore, "docstore", BaseDocumentStore, "a document store of LlamaIndex, as in index.docstore")
        self._store = vector_store
        self._who = type(vector_store).__name__
        self._location = name or f"llama-index/{self._who}/{token_hex(8)}"
        self.abilities = abilities_of(vector_store) if abilities is None else abilities
        self._check(docstore)
        if not self.abilities.is_hybrid:
            self.capabilities = self.capabilities - {"search_both"}
        self._node_ids = node_ids
        self._vectors = vectors
        self._length_of = length_of
        self._simple = vector_store if isinstance(vector_store, SimpleVectorStore) else None
        base = BasePydanticVectorStore
        self._reads_by_id = vector_store.stores_text and type(vector_store).get_nodes is not base.get_nodes
        self._has_read = False
        self._calls = PartCalls(vector_store, is_async=type(vector_store).aquery is not base.aquery)
        self._nodes: DocstoreNodes | None = None
        if docstore is not None:
            self._nodes = DocstoreNodes(
                docstore,
                analyzer or Analyzer(),
                self._listed,
                keeps_text=vector_store.stores_text,
                refresh_seconds=refresh_seconds,
            )
        self._remembered: LruCache[str, _Item] = LruCache(MOST_REMEMBERED, REMEMBERED_SECONDS, time.monotonic)
        self._asked_documents: set[str] = set()
        self._latest: list[Chunk] = []
        self.sides = frozenset({"dense", "lexical"} if words else {"dense"})

    def _check(self, docstore: BaseDocumentStore | None) -> None:
        problem = None
        if not self._store.stores_text and docstore is None:
            problem = f"{self._who} keeps no text; give the docstore with its nodes, or the index: from_index(index)"
        elif not self._store.is_embedding_query:
            problem = (
                f"{self._who} embeds questions itself and cannot be searched with a vector; use its retriever: "
                "pipeline_from(retriever=index.as_retriever(similarity_top_k=50))"
            )
        elif self.abilities.words not in {None, VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.TEXT_SEARCH}:
            problem = f"words are searched for in mode SPARSE or TEXT_SEARCH, got {self.abilities.words!r:.60}"
        if problem is not None:
            raise InvalidParameterError(problem)

    @property
    def id(self) -> str:
        """Always empty: a vector store reports no version, so results with its nodes are not cached."""
        return ""

    @property
    def location(self) -> str:
        """Readable location, for messages."""
        return self._location

    async def _upsert(self, change: Change) -> None:  # noqa: ARG002 - as the port has it
        raise self._read_only()

    async def _delete(self, document_ids: Sequence[str]) -> int:  # noqa: ARG002 - as the port has it
        raise self._read_only()

    def _read_only(self) -> StoreError:
        return StoreError(f"{self._who} is only read here; write with LlamaIndex, for instance index.insert_nodes(…)")

    async def _describe(self) -> StoreInfo:
        """Return the store's contents and abilities, as far as the docstore knows them."""
        chunks = await self._chunks()
        if not self._has_words:
            msg = f"{self._who} cannot tell how many chunks it keeps, and there is no docstore with its nodes"
            raise StoreError(msg)
        documents = len({chunk.document_id for chunk in chunks.values()})
        return StoreInfo(self._location, None, None, documents, len(chunks), self.sides, OPERATORS)

    async def _fields(self) -> Mapping[str, FieldInfo]:
        """Return the fields of the docstore's chunks; none without a docstore."""
        return _fields_of((await self._chunks()).values())

    async def _sample_fields(self) -> tuple[frozenset[str], int] | None:
        """Return the fields of the latest results without a docstore, ``None`` with one."""
        if self._has_words:
            return None
        return frozenset(_fields_of(self._latest)), len(self._latest)

    async def _search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        """Return the best candidates with their chunks, best first.

        Raises:
            IncompleteSearchError: There may be others that match, or nodes could not be read; it carries the others.
            DimensionMismatchError: The vectors have another dimension than the question's.
            UnsupportedSearchError: It has no keyword search.
            ServiceError: The store failed.
        """
        if request.vector is not None:
            return await self._query(request, VectorStoreQueryMode.DEFAULT)
        if self.abilities.words is not None:
            return await self._query(request, self.abilities.words)
        return await self._search_words(request)

    async def _search_both(self, request: SearchRequest) -> tuple[Candidate, ...]:
        """Return the best candidates of the store's mode ``HYBRID``, best first, with its scores."""
        return await self._query(request, VectorStoreQueryMode.HYBRID)

    async def _fetch(self, request: FetchRequest) -> Fetched:
        """Return those of the requested chunks that exist; there are no documents and sections.

        They come from the vector store if it keeps text and reads by id. Otherwise they come from the docstore, or from
        the searches of the last minutes. Neighbors come from the docstore only.

        Raises:
            ServiceError: The store failed.
        """
        kept, names = await self._chunks(), list(dict.fromkeys(request.chunk_ids))
        items = await self._read(names, kept) if names and self._reads_by_id else None
        if items is None:
            items = {name: item for name in names if (item := self._remembered.get(name)) is not None}
            # The vectors of results may have come along; the docstore has none.
            items |= {
                name: replace(items.get(name, _Item(kept[name])), chunk=kept[name]) for name in names if name in kept
            }
        if self._nodes is not None:
            for part in request.ranges:
                chunks = self._nodes.of_document(part.document_id).values()
                items |= {each.id: _Item(each) for each in chunks if part.first <= each.chunk_index <= part.last}
        passing = {name: item for name, item in items.items() if matches(request.filter, chunk_fields(item.chunk))}
        vectors = self._vectors_of(passing) if request.with_vectors else {}
        if self._vectors and len(vectors) < len(passing) and _is(self._store, "ChromaVectorStore"):
            vectors |= await self._calls.in_thread(_vectors_of_chroma, self._store, [*passing.keys() - vectors.keys()])
        return Fetched({name: item.chunk for name, item in passing.items()}, vectors)

    async def _close(self) -> None:
        """Stop the threads; vector store and docstore stay open."""
        await self._calls.aclose()

    async def _chunks(self) -> Mapping[str, Chunk]:
        """Return the docstore's chunks as they are now."""
        if self._nodes is None:
            return {}
        nodes = self._nodes
        await self._calls.in_thread(nodes.refresh)
        if self._reads_by_id and (documents := nodes.documents - self._asked_documents):
            self._asked_documents |= documents
            with suppress(ServiceError):  # such as an id that no node of this store can have; results will show them
                if embedded := {*(await self._read([*documents], {}) or ())}:
                    await self._calls.in_thread(nodes.unskip, embedded)
                    await self._calls.in_thread(nodes.refresh)
        return nodes.chunks

    def _listed(self) -> list[str] | None:
        """Return the ids of the index's nodes; ``None`` if neither vector store nor index lists them."""
        if self._simple is not None:
            return [self._node_id(name) for name in list(self._simple.data.embedding_dict)]
        return list(self._node_ids.values()) if self._node_ids else None

    def _node_id(self, name: str) -> str:
        return name if self._node_ids is None else self._node_ids.get(name, name)

    @property
    def _has_words(self) -> bool:
        """Whether a docstore has the nodes: LlamaIndex keeps them elsewhere where the vector store keeps text."""
        return self._nodes is not None and (self._nodes.has_text or not self._store.stores_text)

    async def _search_words(self, request: SearchRequest) -> tuple[Candidate, ...]:
        """Search the docstore's nodes, without those that the vector store keeps no longer."""
        kept, nodes = await self._chunks(), self._nodes
        if nodes is None or not self._has_words:
            told = "there is no docstore" if nodes is None else "the docstore has none of its nodes"
            msg = (
                f"{self._who} has no keyword search, and {told}. Give a docstore with the nodes, or set "
                "search.mode = 'dense' for vector search only"
            )
            raise UnsupportedSearchError(msg)
        gone: set[str] = set()
        while True:
            found = await self._calls.in_thread(_best, nodes, request, gone)
            read = await self._read(names, kept) if self._reads_by_id and (names := [*found]) else None
            if read is None or len(read) == len(found):
                break
            gone.update(found.keys() - read.keys())
        items = read or {name: _Item(nodes.chunks[name]) for name in found if name in nodes.chunks}
        vectors = self._vectors_of(items) if request.with_vectors else {}
        candidates = [Candidate(name, found[name], item.chunk, vectors.get(name)) for name, item in items.items()]
        unreadable = nodes.unreadable
        problems = [
            f"{len(unreadable)} nodes of the docstore could not be read, such as {name!r:.80}: {reason}"
            for name, reason in islice(unreadable.items(), 1)
        ]
        return self._complete(candidates, problems)

    async def _read(self, names: Sequence[str], kept: Mapping[str, Chunk]) -> dict[str, _Item] | None:
        """Return those nodes that the vector store has, by id; ``None`` if it can't read by id.

        LanceDB's store always raises a ``ValueError``. From a store that has read nodes, it is a failure.
        """
        store, items = self._store, dict[str, _Item]()
        try:
            nodes = await self._calls.either_client(store.aget_nodes, store.get_nodes, list(names))
        except ServiceError as error:
            if isinstance(error.__cause__, NotImplementedError):
                self._reads_by_id = False
            elif self._has_read or not isinstance(error.__cause__, ValueError):
                raise
            return None
        self._has_read = True
        for node in nodes:
            item = self._item(node, kept.get(node.node_id))
            if isinstance(item, _Item):  # vector search reports what cannot be read
                items[node.node_id] = item
        return items

    def _item(self, node: BaseNode, kept: Chunk | None) -> _Item | str:
        """Return what a node says, with its place in its document if the docstore knows it; or why it can't be read."""
        vector = _vector(node.embedding)
        if kept is not None and node.as_related_node_info().node_type != ObjectType.TEXT:
            return _Item(kept, vector)
        try:
            chunk = chunk_with_node(node)
        except InvalidParameterError as error:
            return str(error)
        if kept is not None and isinstance(chunk, NodeChunk):
            chunk = replace(chunk, chunk_index=kept.chunk_index, total_chunks=kept.total_chunks)
        return _Item(chunk, vector)

    async def _query(self, request: SearchRequest, mode: VectorStoreQueryMode) -> tuple[Candidate, ...]:
        """Query the store, and again for more, until enough match or there are no more."""
        narrows = request.filter is not None and self._simple is not None
        kept = await self._chunks() if narrows or "lexical" in self.sides else dict[str, "Chunk"]()
        query = VectorStoreQuery(
            query_embedding=None if request.vector is None else self._checked(request.vector),
            query_str=request.text,
            mode=mode,
            filters=pushed(request.filter, self.abilities.operators, numbers=self.abilities.numbers),
            node_ids=self._matching(kept, request.filter) if narrows and request.filter is not None else None,
        )
        if query.node_ids is not None and not query.node_ids:
            return ()
        asked, found, problems = min(request.limit, self.most_results), list[Candidate](), list[str]()
        while True:
            try:
                found, returned, problems = await self._ask(replace(query, similarity_top_k=asked), kept, request)
            except ServiceError as error:
                if query.filters is not None and error.status == 400:  # it may filter by indexed fields only
                    query.filters = None
                    continue
                if asked <= request.limit:
                    raise
                problems.append(f"asked for {asked} results, since too few of the best pass the filter: {error}")
                break
            if query.filters is not None and not returned:  # so that a field that no node has can be named
                await self._ask(replace(query, filters=None, similarity_top_k=asked), kept, request)
            if len(found) >= request.limit or returned < asked:
                break
            if asked == self.most_results:
                problems.append(
                    f"of the {asked} best only {len(found)} match the filter, which it was not asked to evaluate in "
                    "full, and there may be others; add a condition that it can evaluate"
                )
                break
            asked = min(4 * asked, self.most_results)
        return self._complete(found[: request.limit], problems)

    def _complete(self, candidates: Sequence[Candidate], problems: Sequence[str]) -> tuple[Candidate, ...]:
        if problems:
            msg = f"{self._who}: {'; '.join(problems)}"
            raise IncompleteSearchError(msg, candidates)
        return tuple(candidates)

    async def _ask(
        self, query: VectorStoreQuery, kept: Mapping[str, Chunk], request: SearchRequest
    ) -> tuple[list[Candidate], int, list[str]]:
        """Return the results that match, best first; how many there were; and what is wrong with them."""
        result = await self._results(query)
        nodes = list(result.nodes or ())
        names = [node.node_id for node in nodes] or [self._node_id(str(name)) for name in result.ids or ()]
        of_docstore = [
            name
            for name, node in zip_longest(names, nodes)
            if name not in kept and (node is None or node.as_related_node_info().node_type != ObjectType.TEXT)
        ]
        if of_docstore and self._nodes is not None:
            kept = {**kept, **await self._calls.in_thread(self._nodes.read, of_docstore)}
        given = list(result.similarities or ())
        scores = falling(given if len(given) == len(names) else [None] * len(names))
        found: dict[str, Candidate] = {}
        latest: list[Chunk] = []
        problems: list[str] = []
        for name, node, score in zip_longest(names, nodes, scores):
            item = self._of_docstore(name, kept) if node is None else self._item(node, kept.get(name))
            if isinstance(item, str):
                problems.append(item)
                continue
            chunk = item.chunk
            self._remembered.set(chunk.id, item)
            latest.append(chunk)
            is_relevant = request.vector is not None or score > 0  # keyword search: 0 without any word of the query
            if is_relevant and chunk.id not in found and matches(request.filter, chunk_fields(chunk)):
                vectors = self._vectors_of({chunk.id: item}) if request.with_vectors else {}
                found[chunk.id] = Candidate(chunk.id, score, chunk, vectors.get(chunk.id))
        self._latest = latest
        if problems:
            problems = [f"{len(problems)} of the best could not be read: {problems[0]}"]
        if self._nodes is not None and (embedded := self._nodes.documents.intersection(names)):
            await self._calls.in_thread(self._nodes.unskip, embedded)
        if self._nodes is not None and self._has_words and "lexical" in self.sides and self.abilities.words is None:
            unknown = self._nodes.without(node.node_id for node in nodes)
            if unknown:
                problems.append(
                    f"keyword search can't find {len(unknown)} of the best, such as {unknown[0]!r:.80}, since the "
                    "docstore lacks them. Add vector_store.get_nodes(None) to it. Create an index with "
                    "store_nodes_override=True, so that inserts reach its docstore"
                )
        return list(found.values()), len(names), problems

    async def _results(self, query: VectorStoreQuery) -> VectorStoreQueryResult:
        options: dict[str, Any] = {}
        if _is(self._store, "PineconeVectorStore"):
            numbers = query.similarity_top_k * len(query.query_embedding or ())
            options["include_values"] = self._vectors and numbers <= _MOST_NUMBERS
        try:
            return await self._calls.either_client(self._store.aquery, self._sync_query, query, **options)
        except ServiceError as error:
            if type(error.__cause__) is Warning:  # LanceDB's store raises it if there are no results
                return VectorStoreQueryResult()
            raise

    def _of_docstore(self, name: str, kept: Mapping[str, Chunk]) -> _Item | str:
        if (chunk := kept.get(name)) is not None:
            return _Item(chunk)
        unreadable = {} if self._nodes is None else self._nodes.unreadable
        return unreadable.get(name, f"the docstore has no node {name!r:.80}")

    def _sync_query(self, query: VectorStoreQuery, **options: Any) -> VectorStoreQueryResult:
        # LlamaIndex divides by the length of a vector, which may be 0.
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._store.query(query, **options)

    def _vectors_of(self, items: Mapping[str, _Item]) -> dict[str, Vector]:
        """Return the vectors of nodes, of length 1, as far as they can be had without asking a service again."""
        found = {name: item.vector for name, item in items.items()}
        if self._simple is not None:
            stored = {node_id: name for name, node_id in (self._node_ids or {}).items()}
            kept = self._simple.data.embedding_dict
            found = {name: _vector(kept.get(stored.get(name, name))) for name in items}
        return {name: unit_rows(vector) for name, vector in found.items() if vector is not None}

    def _checked(self, vector: Vector) -> list[float]:
        """Return a vector as the model made it."""
        if self._simple is not None:  # which would fail with words about shapes
            stored = next(iter(self._simple.data.embedding_dict.values()), None)
            if stored is not None and len(stored) != vector.size:
                raise DimensionMismatchError(len(stored), vector.size, self._who)
        return (vector * self._length_of(vector) if self._length_of is not None else vector).tolist()

    def _matching(self, kept: Mapping[str, Chunk], condition: Filter) -> list[str]:
        """Return the vector store's ids of the nodes that match."""
        passing = {name for name, chunk in kept.items() if matches(condition, chunk_fields(chunk))}
        if not self._node_ids:
            return sorted(passing)
        return [name for name, node_id in list(self._node_ids.items()) if node_id in passing]


def _is(vector_store: BasePydanticVectorStore, name: str) -> bool:
    return any(kind.__name__ == name for kind in type(vector_store).__mro__)


def _fields_of(chunks: Iterable[Chunk]) -> Mapping[str, FieldInfo]:
    counter = FieldCounter()
    for chunk in chunks:
        counter.add(chunk_fields(chunk))
    return counter.catalogue()


def _best(nodes: DocstoreNodes, request: SearchRequest, without: Collection[str]) -> dict[str, float]:
    chunks = nodes.chunks
    passing = (
        (name, score)
        for name, score in nodes.words.search(request.text or "")
        if name not in without and name in chunks and matches(request.filter, chunk_fields(chunks[name]))
    )
    return dict(islice(passing, request.limit))


def _vectors_of_chroma(vector_store: Any, names: list[str]) -> dict[str, Vector]:
    """Return vectors that LlamaIndex's store leaves out of its nodes."""
    found = vector_store.client.get(ids=names, include=["embeddings"])
    return {name: unit_rows(vector) for name, vector in zip(found["ids"], found["embeddings"], strict=True)}


def _vector(numbers: Any) -> Vector | None:
    return None if numbers is None or len(numbers) == 0 else np.asarray(numbers, dtype=np.float32)
