"""The reference store in memory, whose behaviour the other stores have to match.

It is meant for tests and small collections: the first search after a write reads every chunk.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import log
from secrets import token_hex
from threading import Lock
from typing import TYPE_CHECKING

from retrieval_core.adapters.stores.checks import Identity, check_change, is_searched_by, unit_rows
from retrieval_core.adapters.stores.fields import FieldCounter, first_fields
from retrieval_core.errors import StoreError
from retrieval_core.ports import StoreInfo
from retrieval_core.text.analysis import Analyzer
from retrieval_core.types.filters import OPERATORS, chunk_fields

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Self

    from retrieval_core.adapters.parts import AdapterParts
    from retrieval_core.adapters.stores.held import HeldIndex, Records
    from retrieval_core.ports import (
        Candidate,
        Change,
        Fetched,
        FetchRequest,
        FieldInfo,
        Manifest,
        SearchRequest,
        SourceState,
        TermCounts,
    )
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
    held: HeldIndex | None = None

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
        self.token = token_hex(16)
        self.records = self.held = None


class MemoryStore:
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
        self._analyzer = analyzer or Analyzer()
        self._identity = Identity("memory", self._analyzer.id, embedder_id, dimension, adds_vectors=True)
        self._contents = _Contents()
        self._lock = Lock()  # calls may come from the loops of several threads
        self._closed = False

    @classmethod
    def from_settings(cls, settings: None, parts: AdapterParts) -> Self:  # noqa: ARG003 - it has none
        """Make it from its settings, loading nothing."""
        return cls(**parts.of_store)

    async def describe(self) -> StoreInfo:
        """Return the store's contents and abilities."""
        contents = self._open()
        return StoreInfo(
            location=self._identity.location,
            manifest=contents.manifest,
            generation=contents.generation,
            documents=len(contents.document_ids()),
            chunks=len(contents.chunks),
            sides=self._identity.sides(contents.manifest),
            filter_operators=OPERATORS,
            unembedded=len(contents.unembedded()),
        )

    async def version(self) -> str | None:
        """Name the state of the index: every write changes it, and another store has another."""
        contents = self._open()
        return contents.token if contents.manifest else None

    async def upsert(self, change: Change) -> None:
        """Apply a change."""
        check_change(change)
        with self._lock:
            contents = self._open()
            manifest = contents.manifest or self._identity.manifest()
            self._identity.check_change(change, manifest)
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

    async def unembedded(self) -> Mapping[str, str]:
        """Return the content hash of each chunk that has no vector yet, by its id, in the order they were written."""
        return {entry.chunk.id: entry.chunk.content_hash for entry in self._open().unembedded()}

    async def add_vectors(self, change: Change) -> int:
        """Add the vectors of chunks that were written without, and return how many got theirs."""
        check_change(change)
        with self._lock:
            contents = self._open()
            self._identity.check_change(change, contents.manifest or self._identity.manifest())
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

    async def delete(self, document_ids: Sequence[str]) -> int:
        """Remove documents with all that belongs to them, and return how many chunks were removed."""
        with self._lock:
            contents = self._open()
            before = len(contents.chunks)
            for document in filter(None, map(contents.documents.get, document_ids)):
                contents.sources.pop(document.source, None)
            _remove_documents(contents, document_ids)
            contents.note_write()
            return before - len(contents.chunks)

    async def search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        """Return the best candidates, best first; equal scores are ordered by chunk id."""
        return self._index().search(request)

    async def fetch(self, request: FetchRequest) -> Fetched:
        """Return those of the requested records that exist."""
        with self._lock:
            contents = self._open()
            entries = list(contents.chunks.values())
            records = _records(contents)
        return records.fetch(request, lambda row: entries[row].vector)

    async def count_chunks(self, condition: Filter) -> int:
        """Return how many chunks pass a filter."""
        return self._index().count_terms((), condition).chunks

    async def count_terms(self, terms: Sequence[str], condition: Filter | None = None) -> TermCounts:
        """Return how many chunks pass a filter, and how many of these contain each term."""
        return self._index().count_terms(terms, condition)

    def held(self) -> HeldIndex | None:
        """Return the index in memory; after a write it is first built, which takes .1 s for 10,000 chunks."""
        if self._closed or self._contents.manifest is None or not is_searched_by(self, MemoryStore):
            return None
        return self._index()

    def _index(self) -> HeldIndex:
        with self._lock:
            contents = self._open()
            if contents.held is None:
                contents.held = self._built(contents)
            return contents.held

    def _built(self, contents: _Contents) -> HeldIndex:
        import numpy as np  # noqa: PLC0415 - slow to import

        from retrieval_core.adapters.stores.held import HeldIndex, count_terms_of  # noqa: PLC0415 - it imports numpy

        manifest = contents.manifest or self._identity.manifest()
        entries = list(contents.chunks.values())
        embedded = np.array([entry.vector is not None for entry in entries], np.bool_)
        matrix = np.zeros((len(entries), manifest.dimension or 0), np.float32)
        if vectors := [entry.vector for entry in entries if entry.vector is not None]:
            matrix[embedded] = vectors
        return HeldIndex(
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

    async def fields(self, limit: int) -> Mapping[str, FieldInfo]:
        """Return the fields of all passages by their paths, those of most passages first."""
        counter = FieldCounter()
        with self._lock:
            for entry in self._open().chunks.values():
                counter.add(chunk_fields(entry.chunk))
        return first_fields(counter.catalogue(), limit)

    async def sources(self) -> Mapping[str, SourceState]:
        """Return the state of every source, by its name."""
        return dict(self._open().sources)

    async def documents_of(self, source: str) -> Mapping[str, str]:
        """Return the content hashes of a source's documents, by document id."""
        documents = self._open().documents.values()
        return {document.id: document.content_hash for document in documents if document.source == source}

    async def document_ids(self) -> Sequence[str]:
        """Return the id of each document."""
        with self._lock:
            return list(self._open().document_ids())

    async def aclose(self) -> None:
        """Drop everything; further calls are errors. Closing twice is fine."""
        self._closed = True
        self._contents = _Contents()

    def _open(self) -> _Contents:
        if self._closed:
            msg = "the store is closed"
            raise StoreError(msg)
        return self._contents

    def _entries(self, change: Change) -> Iterator[_Entry]:
        vectors = iter(() if change.vectors is None else unit_rows(change.vectors))
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
