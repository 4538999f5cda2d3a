"""The Pinecone store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import AliasChoices, Field, SecretStr

from retrieval_core.adapters.stores.foreign import ForeignStore, is_in_ranges
from retrieval_core.adapters.stores.pinecone.connection import PineconeConnection
from retrieval_core.adapters.stores.pinecone.reading import NamespaceReader, SourceCatalog
from retrieval_core.adapters.stores.pinecone.records import (
    DOCUMENT,
    POSITION,
    RECORD,
    PineconeRecord,
    batches,
    both,
    damage_of_record,
    either,
    records_of,
    sparse_passage,
    sparse_question,
    translate,
    vector_id,
)
from retrieval_core.adapters.stores.services import MOST_RESULTS, is_text, together
from retrieval_core.adapters.vendors import LoadsPackage
from retrieval_core.config.base import AdapterSettings, FieldNames, Host
from retrieval_core.errors import (
    EmbedderMismatchError,
    IncompleteSearchError,
    IndexFormatError,
    InvalidParameterError,
    ServiceError,
    StoreError,
)
from retrieval_core.ports import Candidate, CollectionState, Fetched, RecordDamage, StoredDamage

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import Self

    from retrieval_core.adapters.parts import AdapterParts
    from retrieval_core.adapters.stores.services import Expression
    from retrieval_core.ports import Change, ChunkRange, FetchRequest, SearchRequest, Side, SourceState, StoreInfo
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import Chunk, Vector

_DISTANCES = {"cosine": "Cosine", "dotproduct": "Dot", "euclidean": "Euclidean"}
# Ranges that are asked for at once: far more than a query has neighbours.
_RANGES = 100
_TOO_MUCH = 400
"""The status with which Pinecone refuses so large an answer."""


class PineconeSettings(AdapterSettings):
    """An index at Pinecone."""

    required: ClassVar[dict[str, str]] = {"api_key": "your key", "index_name": "host"}

    api_key: SecretStr | None = Field(default=None, validation_alias=AliasChoices("api_key", "PINECONE_API_KEY"))
    """API key. Default: the environment variable ``PINECONE_API_KEY``."""
    index_name: str | None = Field(default=None, validation_alias=AliasChoices("index_name", "PINECONE_INDEX_NAME"))
    """Name of the index. Default: the environment variable ``PINECONE_INDEX_NAME``. Not needed with ``host``."""
    host: Host = None
    """Address of the index, instead of ``index_name``. It saves the request that looks up the name."""
    namespace: str = Field(default="", validation_alias=AliasChoices("namespace", "PINECONE_NAMESPACE"))
    """Namespace in the index. Default: the environment variable ``PINECONE_NAMESPACE``."""
    sparse: bool = False
    """Whether sparse vectors are searched too, for hybrid search. The index needs the metric ``dotproduct``."""
    fields: FieldNames = Field(default_factory=dict)
    """For an index that another program filled: the metadata field for each field of a chunk, such as ``text``. Or a
    preset: ``langchain``, ``llamaindex`` or ``haystack``. Default: the preset ``default``."""


class PineconeStore(LoadsPackage, ForeignStore):
    """Keeps chunks in a Pinecone index, or searches one that another program filled.

    Only chunks are kept; fetching documents and sections finds nothing. A change is several requests, each visible
    after a moment, so readers may see a part of it. It is validated before any of it is written. An interrupted change
    is repeated as a whole.

    In an index that another program filled, filters see each record's metadata, and the mapped fields under our names.
    If no fields are mapped, it has those of the preset ``default``.

    Args:
        api_key: Key of the project; required, and sent to the index only.
        index_name: Looked up with the first call. Not needed with a host.
        host: Address of the index; ``http://`` for a server on this machine.
        namespace: The part of the index that is searched and written; two more beside it hold the catalog.
        fields: For an index of another program, a preset: ``default``, ``langchain``, ``llamaindex`` or ``haystack``.
            Or metadata fields by a chunk's field: ``text``, ``document_id``, ``chunk_index``, ``title``, ``source`` and
            so on; the key ``preset`` names the preset that these add to.
        embedder_id: Names the embedder of the vectors; without it there is no dense search and no writing.
        dimension: Components of each vector, given exactly when the embedder is.
        sparse: Whether the index keeps sparse vectors for lexical search, for which its metric must be ``dotproduct``.
            See :mod:`retrieval_core.adapters.stores.pinecone.records`.

    Raises:
        ConfigurationError: The key is missing, or both the index's name and host.
        InvalidParameterError: Only one of embedder and dimension was given, or ``fields`` has an unknown key.
    """

    package: ClassVar[str] = "pinecone"
    kind = "pinecone"
    is_flat = True
    keeps_documents = False
    Settings = PineconeSettings

    def __init__(
        self,
        *,
        api_key: SecretStr | None,
        index_name: str | None = None,
        host: str | None = None,
        namespace: str = "",
        fields: Mapping[str, str] | str | None = None,
        embedder_id: str | None = None,
        dimension: int | None = None,
        sparse: bool = False,
        analyzer: Analyzer | None = None,
    ) -> None:
        self._connection = PineconeConnection(api_key, index_name, host)
        location = f"{self._connection.location}, namespace {namespace or '__default__'}"
        super().__init__(location, fields=fields, embedder_id=embedder_id, dimension=dimension, analyzer=analyzer)
        self._is_mapped = bool(fields)
        self._namespace = namespace
        self._sparse = sparse
        kept: dict[Side, bool] = {"dense": dimension is not None, "lexical": sparse}
        self.sides = frozenset(side for side, is_kept in kept.items() if is_kept)
        self._catalog = SourceCatalog(self._connection, namespace)
        self._reader = NamespaceReader(
            self._connection,
            namespace,
            self._mapping,
            document_field=fields.get("document_id") if isinstance(fields, Mapping) else None,
            dimension=dimension,
            sparse=sparse,
            location=location,
        )

    @classmethod
    def from_settings(cls, settings: PineconeSettings, parts: AdapterParts) -> Self:
        """Make it from its settings, loading nothing."""
        return cls(**dict(settings), **parts.of_store)

    @property
    def id(self) -> str:
        """Names the index, the namespace, and how its records are read."""
        words = f"sparse by {self._analyzer.id}" if self._sparse else "dense"
        return f"{self._identity.location}, {self._mapping.id}, {words}"

    async def _describe(self) -> StoreInfo:
        """Return the store's contents and abilities; documents are those that this library wrote."""
        stats = await self._reader.stats()
        counts = _counts(stats)
        return self._info(
            None,
            documents=counts.get(self._catalog.documents_namespace, 0),
            chunks=self._points(counts),
            sides=self.sides,
            collection=self._state(stats),
        )

    async def _describe_collection(self) -> CollectionState:
        return self._state(await self._reader.stats())

    def _state(self, stats: Any) -> CollectionState:
        points = self._points(_counts(stats))
        return CollectionState(stats.dimension or 0, _DISTANCES.get(stats.metric, "Cosine"), points, points, "green")

    def _points(self, counts: Mapping[str, int]) -> int:
        default = counts.get("", 0) or counts.get("__default__", 0)
        return default if self._namespace in {"", "__default__"} else counts.get(self._namespace, 0)

    async def _upsert(self, change: Change) -> None:
        if self._identity.embedder_id is None:
            raise EmbedderMismatchError("another program", None, self._identity.location)
        self._manifest_for(change, None)
        self._catalog.check(change, self._identity.location)
        records = await asyncio.to_thread(self._records, change)
        dimension = await self._reader.dimension()
        owners = {name for name in change.removed_documents if is_text(name)}
        owners |= {document.id for document in change.documents}
        former = await self._reader.ids_of(owners)
        await self._connection.upsert(self._namespace, await asyncio.to_thread(lambda: list(batches(records))))
        await self._connection.delete(self._namespace, former - {record.id for record in records})
        await self._catalog.write(change, dimension)

    async def _delete(self, document_ids: Sequence[str]) -> int:
        names = {name for name in document_ids if is_text(name)}
        if not names:
            return 0
        await self._catalog.forget_sources_of(names)
        ids = await self._reader.ids_of(names)
        await self._connection.delete(self._namespace, ids)
        await self._catalog.forget_documents(names)
        return len(ids)

    async def _search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        """Search with one request, and more only if the limit cuts through equal scores, or records do not match.

        Raises:
            IncompleteSearchError: Fewer than the limit match among the best that could be read, at most 10,000, or some
                of these have no text; it carries the others.
            UnsupportedFilterError: The filter names more values than Pinecone takes.
            InvalidParameterError: More than 10,000 are asked for.
        """
        if request.limit > MOST_RESULTS:
            msg = f"Pinecone returns at most {MOST_RESULTS} results, got the limit {request.limit}"
            raise InvalidParameterError(msg)
        expression = translate(request.filter, self._mapping if self._is_mapped else None)
        if request.vector is not None:
            self._identity.check_query_vector(request.vector, self._identity.manifest())
            await self._reader.dimension()  # checks the index
            query: dict[str, Any] = {"vector": request.vector.tolist()}
        elif request.text is not None and self._sparse:
            terms = sparse_question(self._analyzer, request.text)
            dimension = await self._reader.dimension()
            if not terms:
                return ()
            # Pinecone wants a dense vector too; all zeros leave the scores to the words, its "alpha = 0".
            sparse = {"indices": list(terms), "values": list(terms.values())}
            query = {"vector": [0.0] * dimension, "sparse_vector": sparse}
        else:
            msg = f"{self._identity.location} has no keyword search; use mode 'dense', or an index with sparse=True"
            raise StoreError(msg)
        if expression is False:
            return ()
        found, missing = await self._reader.query(request, query, expression)
        if missing is not None:
            raise IncompleteSearchError(missing, found)
        return found

    async def _fetch(self, request: FetchRequest) -> Fetched:
        """Return those of the requested chunks that exist; there are no documents and sections."""
        expression = translate(request.filter, self._mapping if self._is_mapped else None)
        if expression is False:
            return Fetched()
        ids = [*dict.fromkeys(vector_id(name) for name in request.chunk_ids)]
        ranges = [found for part in request.ranges if (found := self._range(part)) is not False]
        requests = [partial(self._reader.fetch, ids)]
        for start in range(0, len(ranges), _RANGES):
            wanted = both(either(*ranges[start : start + _RANGES]), expression)
            if isinstance(wanted, dict):
                requests.append(partial(self._reader.matching, wanted))
        chunks: dict[str, Chunk] = {}
        vectors: dict[str, Vector] = {}
        wanted_ids = frozenset(ids)

        def keep(answer: Mapping[str, Any]) -> None:
            for name, record in answer.items():
                chunk = self._reader.chunk(name, record.metadata or {}, request.filter)
                if chunk is not None and (name in wanted_ids or is_in_ranges(chunk, request.ranges)):
                    chunks[chunk.id] = chunk
                    if request.with_vectors:
                        vectors[chunk.id] = np.asarray(record.values, dtype=np.float32)

        for answer in await together(requests):
            keep(answer)
        # Another program's record without a document ID is a document of its own, which no metadata finds.
        found = {chunk.document_id for chunk in chunks.values()}
        own = {part.document_id for part in request.ranges if part.first <= 0 <= part.last} - found
        if names := sorted(name for name in own if vector_id(name) == name):
            keep(await self._reader.fetch(names))
        return Fetched(chunks=chunks, vectors=vectors)

    async def _find_damage(self, document_ids: Collection[str] | None) -> StoredDamage:
        """Compare chunks with the checksums that were written with them; reads all with their vectors."""
        condition: dict[str, Any] = {POSITION: {"$gte": 0}}
        if document_ids is not None:
            condition = {DOCUMENT: {"$in": [name for name in document_ids if is_text(name)]}}
        found: dict[str, RecordDamage] = {}
        unsealed = 0
        async for record_id, record in self._connection.matching(self._namespace, condition):
            metadata: dict[str, Any] = record.metadata or {}
            if RECORD not in metadata:
                continue
            try:
                compared = damage_of_record(record.values or (), metadata)
            except IndexFormatError:
                document_id = str(metadata.get(DOCUMENT, ""))
                found[record_id] = RecordDamage(document_id, ("record",))
                continue
            if compared is None:
                unsealed += 1
            elif compared[1] is not None:
                found[compared[0]] = compared[1]
        return StoredDamage(found, unsealed=unsealed)

    async def _sample_fields(self) -> tuple[frozenset[str], int]:
        """Return the fields of 100 records, as Pinecone has no list of all."""
        return await self._reader.sample_fields()

    async def _sample_records(self) -> Sequence[Mapping[str, Any]]:
        return [metadata for _, metadata in await self._reader.sample() if RECORD not in metadata]

    async def _sources(self) -> Mapping[str, SourceState]:
        return await self._catalog.sources()

    async def _documents_of(self, source: str) -> Mapping[str, str]:
        return await self._catalog.documents_of(source)

    async def _document_ids(self) -> Sequence[str]:
        ids = await self._catalog.document_ids()
        if not ids and (count := (await self._describe()).chunks):
            return await self._documents_of_others(count)
        return ids

    async def _documents_of_others(self, count: int) -> list[str]:
        """Return the documents of records that another program wrote, as far as one answer holds all of them."""
        try:
            records = await self._reader.sample(count) if count <= MOST_RESULTS else []
        except ServiceError as error:
            if error.status != _TOO_MUCH:
                raise
            records = []
        if len(records) == count:
            names = (record.get(DOCUMENT) or self._mapping.document_id(record) or name for name, record in records)
            return list(dict.fromkeys(names))
        msg = f"{self.location}: another program filled it, and its {count:,} records are too many to list documents"
        raise StoreError(msg)

    async def _close(self) -> None:
        await self._connection.aclose()

    def _range(self, part: ChunkRange) -> Expression:
        return self._reader.range_expression(part) if is_text(part.document_id) else False

    def _records(self, change: Change) -> list[PineconeRecord]:
        if change.vectors is None or not change.chunks:
            return []
        sparse = [
            sparse_passage(self._analyzer, chunk.indexed_text, f"chunk {chunk.id!r:.80}") if self._sparse else {}
            for chunk in change.chunks
        ]
        return records_of(change.chunks, change.vectors, sparse, self._identity.location)


def _counts(stats: Any) -> dict[str, int]:
    return {name: summary.vector_count for name, summary in stats.namespaces.items()}
