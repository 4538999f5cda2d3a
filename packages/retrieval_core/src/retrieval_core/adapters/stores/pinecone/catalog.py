"""The catalog of sources and documents, in two namespaces beside the one with the chunks.

``<namespace>__sources`` has a record for each source and ``<namespace>__documents`` one for each document, with
placeholder vectors, which Pinecone requires. It has no transactions, so a source is written after its documents and
removed before them: an interrupted write is made again by the next run.
"""

from __future__ import annotations

from dataclasses import asdict
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from retrieval_core.adapters.stores.paths import is_text
from retrieval_core.adapters.stores.pinecone.records import PineconeRecord, batches, check_size
from retrieval_core.errors import ServiceError
from retrieval_core.ports import SourceState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence

    from retrieval_core.adapters.stores.pinecone.connection import PineconeConnection
    from retrieval_core.ports import Change

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
