"""The reference store in memory, whose behaviour the other stores have to match.

It is meant for tests and small collections: the first search after a write reads every chunk.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import log
from secrets import token_hex
from threading import Lock
from typing import TYPE_CHECKING

from retrieval_core.adapters.stores.base import StoreBase
from retrieval_core.adapters.stores.fields import FieldCounter
from retrieval_core.types.filters import chunk_fields

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Self

    from retrieval_core.adapters.parts import AdapterParts
    from retrieval_core.adapters.stores.held import IndexInMemory, Records
    from retrieval_core.ports import (
        Candidate,
        Change,
        Fetched,
        FetchRequest,
        FieldInfo,
        Manifest,
        SearchRequest,
        SourceState,
        StoreInfo,
        TermCounts,
    )
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import Chunk, Document, Section, Vector
    from retrieval_core.types.filters import Filter


@dataclass(frozen=True, slots=True)
class _Entry:
    chunk: Chunk
    terms: Sequence[str]
    vector: Vector | None


@dataclass(slots=True)
class _Contents:
    manifest: Manifest | None = None
    generation: int = 0
    token: str = ""
    chunks: dict[str, _Entry] = field(default_factory=dict[str, _Entry])
    documents: dict[str, Document] = field(default_factory=dict[str, "Document"])
    sections: dict[str, Section] = field(default_factory=dict[str, "Section"])
    sources: dict[str, SourceState] = field(default_factory=dict[str, "SourceState"])
    records: Records | None = None
    held: IndexInMemory | None = None

    def unembedded(self) -> list[_Entry]:
        """Return the chunks that have no vector yet; an index without vectors has none of these."""
        embedder = None if self.manifest is None else self.manifest.embedder_id
        return [] if embedder is None else [entry for entry in self.chunks.values() if entry.vector is None]

    def document_ids(self) -> set[str]:
        """Return the ids of documents; one counts when its text or one of its chunks is here."""
        return {*self.documents, *(entry.chunk.document_id for entry in self.chunks.values())}

    def note_write(self) -> None:
        """Count a write, and name the new state by a random token, as a forked process goes on from a copy."""
        self.generation += 1
        self.token = token_hex()
        self.records = self.held = None


class MemoryStore(StoreBase):
    """Keeps an index in memory; see :class:`~retrieval_core.ports.Store` for what the methods raise.

    Args:
        embedder_id: Names the embedder of the vectors; without it there is lexical search only.
        dimension: Components of each vector, given exactly when the embedder is.

    Raises:
        InvalidParameterError: Only one of embedder and dimension was given, or a name is invalid.
    """

    def __init__(
        self,
        *,
        embedder_id: str | None = None,
        dimension: int | None = None,
        analyzer: Analyzer | None = None,
    ) -> None:
        super().__init__("memory", embedder_id=embedder_id, dimension=dimension, analyzer=analyzer)
        self._contents = _Contents()
        self._lock = Lock()  # calls may come from the loops of several threads

    @classmethod
    def from_settings(cls, settings: None, parts: AdapterParts) -> Self:  # noqa: ARG003 - it has none
        """Make it from its settings, loading nothing."""
        return cls(**parts.of_store)

    async def _describe(self) -> StoreInfo:
        contents = self._contents
        return self._info(
            contents.manifest,
            documents=len(contents.document_ids()),
            chunks=len(contents.chunks),
            generation=contents.generation,
            unembedded=len(contents.unembedded()),
        )

    async def _version(self) -> str | None:
        return self._contents.token if self._contents.manifest else None

    async def _upsert(self, change: Change) -> None:
        with self._lock:
            contents = self._contents
            manifest = self._manifest_for(change, contents.manifest)
            entries = list(self._entries(change))
            contents.manifest = manifest
            contents.note_write()
            _remove_documents(contents, change.removed_documents)
            _remove_documents(contents, {document.id for document in change.documents})
            contents.chunks.update((entry.chunk.id, entry) for entry in entries)
            contents.documents.update((document.id, document) for document in change.documents)
            contents.sections.update((section.id, section) for section in change.sections)
            for source in change.removed_sources:
                contents.sources.pop(source, None)
            contents.sources.update((state.source, state) for state in change.sources)

    async def _unembedded(self) -> Mapping[str, str]:
        return {entry.chunk.id: entry.chunk.content_hash for entry in self._contents.unembedded()}

    async def _add_vectors(self, change: Change) -> int:
        with self._lock:
            contents = self._contents
            self._manifest_for(change, contents.manifest)
            waiting = {entry.chunk.id: entry.chunk.indexed_text for entry in contents.unembedded()}
            entries = [
                entry
                for entry in self._entries(change)
                if waiting.get(entry.chunk.id) == entry.chunk.indexed_text and entry.vector is not None
            ]
            for entry in entries:
                kept = contents.chunks[entry.chunk.id]
                contents.chunks[entry.chunk.id] = replace(kept, vector=entry.vector)
            if entries:
                contents.note_write()
            return len(entries)

    async def _delete(self, document_ids: Sequence[str]) -> int:
        with self._lock:
            contents = self._contents
            before = len(contents.chunks)
            for document in filter(None, map(contents.documents.get, document_ids)):
                contents.sources.pop(document.source, None)
            _remove_documents(contents, document_ids)
            contents.note_write()
            return before - len(contents.chunks)

    async def _search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        return self._index().search(request)

    async def _fetch(self, request: FetchRequest) -> Fetched:
        with self._lock:
            contents = self._contents
            entries = list(contents.chunks.values())
            records = _records(contents)
        return records.fetch(request, lambda row: entries[row].vector)

    async def _count_chunks(self, condition: Filter) -> int:
        return self._index().count_terms((), condition).chunks

    async def _count_terms(self, terms: Sequence[str], condition: Filter | None) -> TermCounts:
        return self._index().count_terms(terms, condition)

    def _held(self) -> IndexInMemory | None:
        """Return the index in memory; after a write it is first built, which takes .1 s for 10,000 chunks."""
        return None if self._contents.manifest is None else self._index()

    def _index(self) -> IndexInMemory:
        with self._lock:
            contents = self._contents
            if contents.held is None:
                contents.held = self._built(contents)
            return contents.held

    def _built(self, contents: _Contents) -> IndexInMemory:
        import numpy as np  # noqa: PLC0415 - slow to import

        from retrieval_core.adapters.stores.held import IndexInMemory, count_terms_of  # noqa: PLC0415 - it imports numpy

        manifest = contents.manifest or self._identity.manifest()
        entries = list(contents.chunks.values())
        embedded = np.array([entry.vector is not None for entry in entries], np.bool_)
        matrix = np.zeros((len(entries), manifest.dimension or 0), np.float32)
        if vectors := [entry.vector for entry in entries if entry.vector is not None]:
            matrix[embedded] = vectors
        return IndexInMemory(
            contents.token,
            identity=self._identity,
            manifest=manifest,
            analyzer=self._analyzer,
            weigh=_weight,
            records=_records(contents),
            postings=count_terms_of([entry.terms for entry in entries]),
            matrix=matrix,
            embedded=embedded,
        )

    async def _fields(self) -> Mapping[str, FieldInfo]:
        counter = FieldCounter()
        with self._lock:
            for entry in self._contents.chunks.values():
                counter.add(chunk_fields(entry.chunk))
        return counter.catalogue()

    async def _sources(self) -> Mapping[str, SourceState]:
        return dict(self._contents.sources)

    async def _documents_of(self, source: str) -> Mapping[str, str]:
        documents = self._contents.documents.values()
        return {document.id: document.content_hash for document in documents if document.source == source}

    async def _document_ids(self) -> Sequence[str]:
        with self._lock:
            return list(self._contents.document_ids())

    async def _close(self) -> None:
        self._contents = _Contents()

    def _entries(self, change: Change) -> Iterator[_Entry]:
        vectors = iter(() if change.vectors is None else change.vectors)
        for chunk in change.chunks:
            terms = tuple(self._analyzer.terms(chunk.indexed_text))
            yield _Entry(chunk, terms, None if chunk.id in change.unembedded else next(vectors, None))


def _remove_documents(contents: _Contents, document_ids: Collection[str]) -> None:
    gone = set(document_ids)
    contents.chunks = {name: entry for name, entry in contents.chunks.items() if entry.chunk.document_id not in gone}
    contents.sections = {
        name: section for name, section in contents.sections.items() if section.document_id not in gone
    }
    for name in gone:
        contents.documents.pop(name, None)


def _records(contents: _Contents) -> Records:
    from retrieval_core.adapters.stores.held import Records  # noqa: PLC0415 - it imports numpy

    if contents.records is None:
        chunks = [entry.chunk for entry in contents.chunks.values()]
        contents.records = Records(chunks, contents.sections.values(), contents.documents.values())
    return contents.records


def _weight(chunks: int, count: int) -> float:
    """Return the weight of a term by Lucene's formula."""
    return log(1 + (chunks - count + 0.5) / (count + 0.5))
