"""The reader of one namespace, which tests each record against the filter, and the catalog of sources.

The catalog has two namespaces beside the one with the chunks:
``<namespace>__sources`` has a record for each source and ``<namespace>__documents`` one for each document, with
placeholder vectors, which Pinecone requires. It has no transactions, so a source is written after its documents and
removed before them: an interrupted write is made again by the next run.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from hashlib import sha256
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from retrieval_core.adapters.stores.fields import FieldCounter
from retrieval_core.adapters.stores.foreign import positions_as_text
from retrieval_core.adapters.stores.pinecone.records import (
    DOCUMENT,
    MOST_RECORDS,
    POSITION,
    RECORD,
    PineconeRecord,
    batches,
    both,
    can_be_name,
    check_size,
    chunk_of,
    either,
)
from retrieval_core.adapters.stores.services import MOST_RESULTS, exact_float, find_best, is_text, split, together
from retrieval_core.errors import DimensionMismatchError, IndexFormatError, ServiceError
from retrieval_core.ports import Candidate, SourceState
from retrieval_core.types.filters import chunk_fields, matches

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence

    from retrieval_core.adapters.stores.foreign import FieldMapping
    from retrieval_core.adapters.stores.pinecone.connection import PineconeConnection
    from retrieval_core.adapters.stores.services import Expression
    from retrieval_core.ports import Change, ChunkRange, SearchRequest
    from retrieval_core.types import Chunk
    from retrieval_core.types.filters import Filter

_KIND = {"kind": {"$eq": "source"}}
_NAMES = 1_000
_NOT_FOUND = 404


class SourceCatalog:
    """Reads and writes the states of sources and documents.

    Args:
        namespace: The namespace of the chunks.
    """

    def __init__(self, connection: PineconeConnection, namespace: str) -> None:
        self._connection = connection
        base = namespace or "__default__"
        self.sources_namespace = f"{base}__sources"
        self.documents_namespace = f"{base}__documents"

    async def sources(self) -> dict[str, SourceState]:
        """Return the state of every source, by its name."""
        found: dict[str, SourceState] = {}
        async for item in self._records(self.sources_namespace, _KIND):
            name = item["source"]
            documents, location = int(item["documents"]), item.get("location", "")
            found[name] = SourceState(name, item["content_hash"], item["recipe"], documents, location)
        return found

    async def documents_of(self, source: str) -> dict[str, str]:
        """Return the content hashes of a source's documents, by document id."""
        if not is_text(source):
            return {}
        wanted = {"source": {"$eq": source}}
        return {item["id"]: item["content_hash"] async for item in self._records(self.documents_namespace, wanted)}

    async def document_ids(self) -> list[str]:
        """Return the id of each document."""
        everything = {"id": {"$exists": True}}
        return [item["id"] async for item in self._records(self.documents_namespace, everything)]

    def check(self, change: Change, location: str) -> None:
        """Raise :class:`InvalidParameterError` for names that are too long to be kept."""
        for record in (*_documents(change, 1), *_sources(change, 1)):
            check_size(
                f"the entry of {record.metadata.get('id', record.metadata['source'])!r:.80}", record.metadata, location
            )

    async def write(self, change: Change, dimension: int) -> None:
        """Write a change's sources and documents, after its chunks were written."""
        known = {document.id for document in change.documents}
        removed = set(change.removed_documents) - known
        added = {chunk.document_id for chunk in change.chunks} - known
        missing = added - removed - set(await self._known(added - removed)) | (added & removed)
        await self._delete(self.documents_namespace, removed - added)
        await self._upsert(self.documents_namespace, _documents(change, dimension))
        await self._upsert(self.documents_namespace, [_document(name, "", "", dimension) for name in sorted(missing)])
        await self._delete(self.sources_namespace, change.removed_sources)
        await self._upsert(self.sources_namespace, _sources(change, dimension))

    async def forget_sources_of(self, document_ids: Iterable[str]) -> None:
        """Remove the sources of documents, so that these are read again."""
        known = await self._known({name for name in document_ids if is_text(name)})
        sources = {metadata["source"] for metadata in known.values()} - {""}
        await self._delete(self.sources_namespace, sources)

    async def forget_documents(self, document_ids: Iterable[str]) -> None:
        """Remove documents, after their chunks were removed."""
        await self._delete(self.documents_namespace, set(document_ids))

    async def _known(self, names: Collection[str]) -> dict[str, Mapping[str, Any]]:
        ordered = sorted(names)
        found: dict[str, Mapping[str, Any]] = {}
        for start in range(0, len(ordered), _NAMES):
            wanted = {"id": {"$in": ordered[start : start + _NAMES]}}
            async for metadata in self._records(self.documents_namespace, wanted):
                found[metadata["id"]] = metadata
        return found

    async def _records(self, namespace: str, condition: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        async for _, record in self._connection.matching(namespace, condition):
            yield record.metadata or {}

    async def _upsert(self, namespace: str, records: Sequence[PineconeRecord]) -> None:
        await self._connection.upsert(namespace, batches(records))

    async def _delete(self, namespace: str, names: Iterable[str]) -> None:
        try:
            await self._connection.delete(namespace, map(_key, names))
        except ServiceError as error:
            if error.status != _NOT_FOUND:  # Pinecone's answer where the namespace was never written to
                raise


def _documents(change: Change, dimension: int) -> list[PineconeRecord]:
    return [_document(item.id, item.source, item.content_hash, dimension) for item in change.documents]


def _document(name: str, source: str, content_hash: str, dimension: int) -> PineconeRecord:
    metadata = {"id": name, "source": source, "content_hash": content_hash}
    return PineconeRecord(_key(name), _placeholder(dimension), metadata)


def _sources(change: Change, dimension: int) -> list[PineconeRecord]:
    return [
        PineconeRecord(_key(state.source), _placeholder(dimension), {"kind": "source", **asdict(state)})
        for state in change.sources
    ]


def _key(name: str) -> str:
    return sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def _placeholder(dimension: int) -> list[float]:
    return [1.0, *[0.0] * (dimension - 1)]


# Records that are looked at for the names of their fields.
_SAMPLE = 100
# Documents asked for at once.
_DOCUMENTS = 1_000
# Servers and proxies take addresses of about 8 KB; the ids of a fetch stand in the address.
_MOST_ADDRESS_CHARACTERS = 6_000
# Whole numbers beyond this are not told apart by 64-bit floats; positions are far below.
_LAST_POSITION = 2**53
# Of a whole number that may also be stored as one.
_DIGITS = 15


class NamespaceReader:
    """Reads one namespace.

    Args:
        mapping: How records that another program wrote are read.
        document_field: The field with a record's document, if the settings name it; such records can be removed.
        dimension: Of the caller's vectors; ``None`` without vectors.
        sparse: Whether the index must keep sparse vectors too.
    """

    def __init__(
        self,
        connection: PineconeConnection,
        namespace: str,
        mapping: FieldMapping,
        *,
        document_field: str | None,
        dimension: int | None,
        sparse: bool,
        location: str,
    ) -> None:
        self._connection = connection
        self._namespace = namespace
        self._mapping = mapping
        self._document_field = document_field
        self._dimension = dimension
        self._sparse = sparse
        self._location = location
        self._index_dimension: int | None = None

    async def stats(self) -> Any:
        """Return Pinecone's statistics of the whole index."""
        return await self._connection.call("describe_index_stats")

    async def dimension(self) -> int:
        """Return the components of the index's vectors; the first call asks Pinecone, and checks the metric too.

        Raises:
            DimensionMismatchError: It holds vectors of another length than the caller's.
            IndexFormatError: Its metric gives no cosine, or does not allow sparse vectors though these are wanted.
        """
        if self._index_dimension is None:
            stats = await self.stats()
            self._index_dimension = self._checked(stats.dimension, stats.metric)
        return self._index_dimension

    def _checked(self, dimension: int | None, metric: str | None) -> int:
        if dimension is None:
            msg = f"{self._location} does not keep dense vectors; use an index with the metric cosine or dotproduct"
            raise IndexFormatError(msg)
        if self._dimension is not None and dimension != self._dimension:
            raise DimensionMismatchError(dimension, self._dimension, self._location)
        if metric not in {None, "cosine", "dotproduct"}:  # Pinecone need not report it
            msg = (
                f"{self._location} has the metric {metric}, whose scores are no cosines; use an index with the metric "
                "cosine or dotproduct"
            )
            raise IndexFormatError(msg)
        if self._sparse and metric == "cosine":
            msg = f"{self._location} has the metric cosine; words beside vectors need an index with dotproduct"
            raise IndexFormatError(msg)
        return dimension

    async def query(
        self, request: SearchRequest, query: Mapping[str, Any], expression: Expression
    ) -> tuple[tuple[Candidate, ...], str | None]:
        """Return the best candidates, and a message on what is missing from them; see :func:`find_best`."""
        arguments: dict[str, Any] = {**query, "include_values": request.with_vectors}
        if isinstance(expression, dict):
            arguments["filter"] = expression
        lowest, highest = (-1.0, 1.0) if request.vector is not None else (0.0, inf)

        async def ask(count: int) -> Sequence[Any]:
            found = (await self._ask(count, arguments)).matches
            # A record without any of the words has no score above 0.
            return found if request.text is None else [match for match in found if match.score > 0]

        def read(match: Any) -> Candidate | None:
            chunk = self.chunk(match.id, match.metadata or {}, request.filter)
            if chunk is None:
                return None
            vector = np.asarray(match.values, dtype=np.float32) if request.with_vectors else None
            return Candidate(chunk.id, min(highest, max(lowest, match.score)), chunk, vector)

        return await find_best(ask, read, request.limit, service="Pinecone", location=self._location)

    async def _ask(self, top_k: int, arguments: Mapping[str, Any]) -> Any:
        return await self._connection.call(
            "query", top_k=top_k, namespace=self._namespace, include_metadata=True, **arguments
        )

    async def fetch(self, ids: Sequence[str]) -> dict[str, Any]:
        """Return records by id, in as few requests as their ids' length allows."""
        parts = [
            partial(self._connection.call, "fetch", ids=part, namespace=self._namespace)
            for part in split(ids, _address_length, most=MOST_RECORDS, most_size=_MOST_ADDRESS_CHARACTERS)
        ]
        return {name: record for answer in await together(parts) for name, record in answer.vectors.items()}

    async def matching(self, expression: Mapping[str, Any]) -> dict[str, Any]:
        """Return all records that match, by id."""
        return {name: record async for name, record in self._connection.matching(self._namespace, expression)}

    async def sample_fields(self) -> tuple[frozenset[str], int]:
        """Return the paths of the fields of some records, and how many records these are."""
        sample = await self.sample()
        counter = FieldCounter()
        for name, metadata in sample:
            is_own = RECORD in metadata
            counter.add(chunk_fields(chunk_of(metadata)) if is_own else self._mapping.visible(name, metadata))
        return frozenset(counter.catalogue()), len(sample)

    async def sample(self, count: int = _SAMPLE) -> list[tuple[str, dict[str, Any]]]:
        """Return the ids and metadata of some records."""
        answer = await self._ask(count, {"vector": [1.0, *[0.0] * (await self.dimension() - 1)]})
        return [(match.id, match.metadata or {}) for match in answer.matches]

    def range_expression(self, part: ChunkRange) -> Expression:
        """Return an expression for a range of a document's chunks, and for those whose position is unknown."""
        first, last = max(part.first, -_LAST_POSITION), min(part.last, _LAST_POSITION)
        if first > last:
            return False
        own = {"$and": [{DOCUMENT: {"$eq": part.document_id}}, *_bounds(POSITION, first, last)]}
        return either(own, self._range_of_others(part.document_id, first, last))

    def _range_of_others(self, document_id: str, first: int, last: int) -> Expression:
        documents, positions = self._names("document_id"), self._names("chunk_index")
        number = exact_float(int(document_id)) if document_id.isdecimal() and len(document_id) <= _DIGITS else None
        values = [document_id] if number is None else [document_id, number]
        of_document = either(*({name: {"$eq": value}} for name in documents for value in values))
        texts = positions_as_text(first, last)
        if texts is None:  # each record is tested again
            return of_document
        in_place = either(*(either(both(*_bounds(name, first, last)), {name: {"$in": texts}}) for name in positions))
        is_unknown = both(*({name: {"$exists": False}} for name in positions)) if first <= 0 <= last else False
        return both(of_document, either(in_place, is_unknown))

    def _names(self, field: str) -> list[str]:
        """Return the names that a field of ours may have in the metadata."""
        return [path[0] for path in self._mapping.places(field) if len(path) == 1 and can_be_name(path[0])]

    async def ids_of(self, document_ids: Collection[str]) -> set[str]:
        """Return the ids of all records of documents."""
        ordered = sorted(document_ids)
        found: set[str] = set()
        for start in range(0, len(ordered), _DOCUMENTS):
            found |= await self._ids_of_some(ordered[start : start + _DOCUMENTS])
        return found

    async def _ids_of_some(self, document_ids: Sequence[str]) -> set[str]:
        mapped = self._document_field
        wanted = {"$in": [*document_ids]}
        expression = {"$or": [{DOCUMENT: wanted}, {mapped: wanted}]} if mapped else {DOCUMENT: wanted}
        # A query answers with ids alone; reading by metadata would bring all vectors along.
        vector = [1.0, *[0.0] * (await self.dimension() - 1)]
        answer = await self._connection.call(
            "query", top_k=MOST_RESULTS, namespace=self._namespace, vector=vector, filter=expression
        )
        if len(answer.matches) < MOST_RESULTS:
            return {match.id for match in answer.matches}
        if len(document_ids) == 1:
            return {*await self.matching(expression)}
        half = len(document_ids) // 2
        return await self._ids_of_some(document_ids[:half]) | await self._ids_of_some(document_ids[half:])

    def chunk(self, record_id: str, metadata: Mapping[str, Any], condition: Filter | None) -> Chunk | None:
        """Return the chunk of a record, ``None`` where it does not match.

        Raises:
            IndexFormatError: The record cannot be read as a chunk.
        """
        if RECORD in metadata:
            chunk = chunk_of(metadata)
            return chunk if matches(condition, chunk_fields(chunk)) else None
        if not matches(condition, self._mapping.visible(record_id, metadata)):
            return None
        return self._mapping.chunk(record_id, metadata)


def _bounds(name: str, first: int, last: int) -> list[dict[str, Any]]:
    return [{name: {"$gte": first}}, {name: {"$lte": last}}]


def _address_length(name: str) -> int:
    """Return the length of an id in an address, if every character had to be escaped."""
    return 3 * len(name) + len("&ids=")
