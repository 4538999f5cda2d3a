"""The port for stores, which keep an index, and its requests and results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

from retrieval_core.errors import InvalidParameterError
from retrieval_core.types.documents import as_vectors, is_zero
from retrieval_core.types.escapes import valid_unicode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from retrieval_core.types import Chunk, Document, Matrix, Section, Vector
    from retrieval_core.types.filters import Filter

Side: TypeAlias = Literal["dense", "lexical"]
"""The two kinds of search: ``dense`` is vector search, ``lexical`` is keyword search."""
_NO_DIRECTION = "{} is all zeros, which is equally far from every other vector; check the embedding model that made it"


@dataclass(frozen=True, slots=True)
class Manifest:
    """An index's description of itself; it never changes after the first write.

    Attributes:
        embedder_id: ``None`` for an index without vectors.
        dimension: Components of each vector, ``None`` without vectors.
        analyzer: Id of the lexical analysis of the words.
        vectors: Names of further vectors of the chunks that an older version of this library wrote. They are not used.
    """

    embedder_id: str | None
    dimension: int | None
    analyzer: str
    metric: Literal["cosine"] = "cosine"
    vectors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CollectionState:
    """A vector collection as its service describes it.

    Attributes:
        vector_size: Components of the vectors that are searched; 0 if the collection has none.
        distance: The service's name for it: ``Cosine``, ``Euclidean``, ``Dot`` or another one.
        points: How many points the collection has.
        indexed_vectors: How many vectors the service reports as indexed; small collections need no index.
        status: ``green`` is ready, ``yellow`` is being optimized, ``red`` has failed.
    """

    vector_size: int
    distance: str
    points: int
    indexed_vectors: int
    status: Literal["green", "yellow", "red"]


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """A store's contents and abilities.

    Attributes:
        location: Readable location, for messages.
        manifest: ``None`` before the first write, and for indexes that another program wrote.
        generation: Grows with each write; ``None`` if the store has none.
        sides: The kinds of search that the store does itself.
        filter_operators: Those that it evaluates exactly as :func:`retrieval_core.types.filters.matches`.
        unembedded: Number of chunks without a vector so far, see :class:`AddsVectors`.
        collection: The service's report on a collection that another program filled; ``None`` for other indexes.
    """

    location: str
    manifest: Manifest | None
    generation: int | None
    documents: int
    chunks: int
    sides: frozenset[Side]
    filter_operators: frozenset[str]
    unembedded: int = 0
    collection: CollectionState | None = None


@dataclass(frozen=True, slots=True)
class SourceState:
    """The state of a file when it was last indexed, which decides whether it is read again.

    Attributes:
        source: The file, as in :attr:`Document.source`.
        content_hash: SHA-256 of its bytes.
        recipe: Names the reader, the splitting and the embedder; another recipe makes other chunks.
        documents: How many documents it held.
        location: Path of the file, relative to the folder of the index; the source if it is not given. The two differ
            for files outside of that folder.
    """

    source: str
    content_hash: str
    recipe: str
    documents: int
    location: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", valid_unicode(self.source))
        object.__setattr__(self, "location", valid_unicode(self.location or self.source))


@dataclass(frozen=True, slots=True)
class Change:
    """One write, applied as a whole or not at all.

    The former chunks and sections of every document in ``documents`` go, and the new ones come. A chunk whose document
    is not among them is added, or replaces the chunk with its id.

    Attributes:
        vectors: Array of finite numbers with the shape ``(n, dimension)``: a row for each chunk that is not
            ``unembedded``. ``None`` if there are none.
        removed_documents: Ids of documents to remove, with all that belongs to them.
        unembedded: Ids of chunks whose vectors come later; only stores that follow :class:`AddsVectors` take such.
    """

    chunks: tuple[Chunk, ...] = ()
    vectors: Matrix | None = None
    documents: tuple[Document, ...] = ()
    sections: tuple[Section, ...] = ()
    removed_documents: tuple[str, ...] = ()
    sources: tuple[SourceState, ...] = ()
    removed_sources: tuple[str, ...] = ()
    unembedded: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Convert vectors that came as lists.

        Raises:
            InvalidParameterError: Some are no vectors, or consist of zeros.
        """
        if self.vectors is not None:
            object.__setattr__(self, "vectors", as_vectors(self.vectors))
        self._refuse_zeros()

    def _refuse_zeros(self) -> None:
        vectors = self.vectors
        if vectors is not None and vectors.ndim == 2 and vectors.size and (zero := is_zero(vectors)).any():
            embedded = [chunk.id for chunk in self.chunks if chunk.id not in self.unembedded]
            row = int(zero.argmax())
            who = f"of chunk {embedded[row]!r:.80}" if len(embedded) == len(vectors) else f"in row {row}"
            raise InvalidParameterError(_NO_DIRECTION.format(f"the vector {who}"))


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search of one side: exactly one of ``vector`` and ``text`` is given.

    Attributes:
        vector: Shape ``(dimension,)``: search by cosine similarity.
        text: Search by BM25; plain text, never a query language.
        limit: The most candidates to return, at least 1.
        filter: Applies before the limit.
        with_vectors: Whether each candidate carries its passage's vector.
    """

    limit: int
    vector: Vector | None = None
    text: str | None = None
    filter: Filter | None = None
    with_vectors: bool = False

    def __post_init__(self) -> None:
        """Convert a vector that came as a list.

        Raises:
            InvalidParameterError: It is no vector, or consists of zeros.
        """
        if self.vector is not None:
            vector = as_vectors(self.vector)
            if vector.ndim == 1 and vector.size and is_zero(vector):
                raise InvalidParameterError(_NO_DIRECTION.format("the vector of the query"))
            object.__setattr__(self, "vector", vector)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk that one side found.

    Attributes:
        score: Cosine in [-1, 1] or BM25 above 0; higher is better.
        chunk: ``None`` from stores that read chunks in one later fetch.
    """

    chunk_id: str
    score: float
    chunk: Chunk | None = None
    vector: Vector | None = None


@dataclass(frozen=True, slots=True)
class ChunkRange:
    """Chunks of one document by position, first and last included."""

    document_id: str
    first: int
    last: int

    @classmethod
    def whole(cls, document_id: str) -> ChunkRange:
        """Return all chunks of a document; none has more than these."""
        return cls(document_id, 0, 2**31 - 1)


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Records to read by id; one request serves all hits of a query.

    Attributes:
        filter: Chunks that do not match are treated as absent, and so are documents and sections none of whose chunks
            match.
    """

    chunk_ids: tuple[str, ...] = ()
    ranges: tuple[ChunkRange, ...] = ()
    section_ids: tuple[str, ...] = ()
    document_ids: tuple[str, ...] = ()
    filter: Filter | None = None
    with_vectors: bool = False


@dataclass(frozen=True, slots=True)
class Fetched:
    """The records of a :class:`FetchRequest` that exist, by id; chunks of ranges are among the chunks."""

    chunks: Mapping[str, Chunk] = field(default_factory=dict[str, "Chunk"])
    vectors: Mapping[str, Vector] = field(default_factory=dict[str, "Vector"])
    sections: Mapping[str, Section] = field(default_factory=dict[str, "Section"])
    documents: Mapping[str, Document] = field(default_factory=dict[str, "Document"])


LIST_TYPES: Mapping[str, str] = {"text": "list of text", "number": "list of numbers", "boolean": "list of booleans"}
"""Names of list types in :class:`FieldInfo`, by the type of the items."""


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """Statistics of one field that filters can name.

    Attributes:
        passages: How many have the field; null counts as absent.
        types: How many of them hold each type: ``text``, ``number``, ``boolean``, ``object``, or one of
            :data:`LIST_TYPES`. A list with items of several types counts for each of them, and one without text,
            numbers and booleans as ``list``.
    """

    passages: int
    types: Mapping[str, int]


class Store(Protocol):
    """Keeps chunks, their vectors and their words; ``retrieval_core.testing`` has the kit that each one must pass."""

    async def describe(self) -> StoreInfo:
        """Return the store's contents and abilities.

        Raises:
            IndexNotFoundError: Nothing was written yet, to a store on a disk.
            StoreError: The index cannot be opened.
        """
        ...

    async def upsert(self, change: Change) -> None:
        """Apply a change durably.

        Raises:
            InvalidParameterError: The change cannot be stored; the message has the reason.
            DimensionMismatchError: The vectors have another dimension than the index.
            EmbedderMismatchError: The index was built with another embedder than the store was opened with.
            IndexBusyError: Another process wrote for longer than the store waits.
            StoreError: The index cannot be written.
        """
        ...

    async def delete(self, document_ids: Sequence[str]) -> int:
        """Remove documents with all that belongs to them, and return how many chunks were removed.

        The catalog's states of their sources are removed too, so that indexing these again brings the documents back.

        Raises:
            IndexBusyError: Another process wrote for longer than the store waits.
            StoreError: The index cannot be written.
        """
        ...

    async def search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        """Return the best candidates, best first; equal scores are ordered by chunk id.

        Raises:
            IncompleteSearchError: Some of the index could not be searched; carries the candidates found.
            InvalidParameterError: The request is not well formed.
            UnsupportedFilterError: The filter has an operator that the store does not declare.
            DimensionMismatchError: The vector has another dimension than the index.
            EmbedderMismatchError: The index was built with another embedder than the store was opened with.
            IndexNotFoundError: Nothing was written yet, to a store on a disk.
            StoreError: The index cannot be read.
        """
        ...

    async def fetch(self, request: FetchRequest) -> Fetched:
        """Return those of the requested records that exist.

        Raises:
            IndexNotFoundError: Nothing was written yet, to a store on a disk.
            StoreError: The index cannot be read.
        """
        ...

    async def aclose(self) -> None:
        """Close files and threads; further calls are errors. Closing twice is fine."""
        ...


@runtime_checkable
class Catalog(Protocol):
    """A store's record of the files it was filled from, so that only changed files are indexed again."""

    async def sources(self) -> Mapping[str, SourceState]:
        """Return the state of every source, by its name."""
        ...

    async def documents_of(self, source: str) -> Mapping[str, str]:
        """Return the content hashes of a source's documents, by document id."""
        ...


class CataloguedStore(Store, Catalog, Protocol):
    """A store that also remembers its sources, as indexing needs it."""


@runtime_checkable
class ListsDocuments(Protocol):
    """An optional protocol of stores: the ids of all documents can be listed."""

    async def document_ids(self) -> Sequence[str]:
        """Return the id of each document, once, in any order; documents that have chunks only are included.

        Raises:
            IndexNotFoundError: Nothing was written yet, to a store on a disk.
            StoreError: The index cannot be read, or another program filled it.
        """
        ...


@runtime_checkable
class DescribesCollection(Protocol):
    """A store that can describe a collection without being able to search it."""

    async def describe_collection(self) -> CollectionState | None:
        """Return the service's report on the collection; ``None`` for an index of this library.

        Raises:
            IndexNotFoundError: There is no such collection.
            ServiceError: The service failed.
        """
        ...


@runtime_checkable
class SearchesBoth(Protocol):
    """An optional protocol of stores: native hybrid search, fused by the store itself."""

    async def search_both(self, request: SearchRequest) -> tuple[Candidate, ...]:
        """Return the best candidates of hybrid search, best first, with the store's own score, higher is better.

        Args:
            request: Has both ``vector`` and ``text``.

        Raises:
            RetrievalError: As :meth:`Store.search`.
        """
        ...


@runtime_checkable
class Optimizes(Protocol):
    """An optional protocol of stores: what many writes have left is arranged for faster searches."""

    async def optimize(self) -> None:
        """Arrange what was written, after a run of writes; what is found stays the same.

        Raises:
            IndexBusyError: Another process wrote for longer than the store waits.
            StoreError: The index cannot be written.
        """
        ...


@dataclass(frozen=True, slots=True)
class RecordDamage:
    """A record that is no longer what was written.

    Attributes:
        document_id: Of its document.
        changed: Names of what was changed, such as ``title`` or ``vector``.
        missing: Names of what is missing, such as ``vector`` or ``postings``.
        is_stray: Whether this library did not write it.
    """

    document_id: str
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    is_stray: bool = False

    @property
    def problems(self) -> tuple[str, ...]:
        """One sentence for each, for people."""
        told = [f"its {name} {'are' if name == 'postings' else 'is'} missing" for name in self.missing]
        told += [f"its {name} {'were' if name == 'postings' else 'was'} changed after writing" for name in self.changed]
        return (*told, "it was not written by retrieval-core") if self.is_stray else tuple(told)


@dataclass(frozen=True, slots=True)
class StoredDamage:
    """Records of a store that are not what their checksums say.

    Attributes:
        chunks: By chunk id.
        documents: Records of documents and of their sections, by the document's id.
        incomplete: Ids of documents that have fewer chunks than were written.
        problems: Problems of the index as a whole, one sentence each.
        unsealed: How many chunks have no checksums, since an older version of this library wrote them.
        unlisted: Sources of documents that are files, and are missing from the index's list of files.
    """

    chunks: Mapping[str, RecordDamage] = field(default_factory=dict[str, RecordDamage])
    documents: Mapping[str, RecordDamage] = field(default_factory=dict[str, RecordDamage])
    incomplete: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()
    unsealed: int = 0
    unlisted: tuple[str, ...] = ()

    @property
    def is_none(self) -> bool:
        """Whether nothing is damaged."""
        return not (self.chunks or self.documents or self.incomplete or self.problems or self.unlisted)

    @property
    def document_ids(self) -> frozenset[str]:
        """Ids of all documents of which something is damaged."""
        return self.incomplete | self.documents.keys() | {found.document_id for found in self.chunks.values()}

    @property
    def summary(self) -> str:
        """One line for people."""
        counts = [f"chunks: {len(self.chunks)}", f"documents: {len(self.document_ids)}"]
        if self.unlisted:
            counts.append(f"files missing from the list: {len(self.unlisted)}")
        return "; ".join((", ".join(counts), *self.problems))


@runtime_checkable
class SelfChecking(Protocol):
    """An optional protocol of stores: checksums are written with each record, and compared when asked."""

    async def find_damage(self, document_ids: Collection[str] | None = None) -> StoredDamage:
        """Compare what is stored with the checksums that were written with it. Nothing is written.

        Args:
            document_ids: Ids of the documents to check. Default: all.

        Raises:
            IndexNotFoundError: Nothing was written yet, to a store on a disk.
            StoreError: The index cannot be read.
        """
        ...


@runtime_checkable
class SelfRepairing(SelfChecking, Protocol):
    """An optional protocol of stores on a disk: what the index derives from its chunks can be built again."""

    async def repair(self) -> None:
        """Build damaged postings again, remove strays, and have damaged vectors wait for being embedded.

        Raises:
            IndexBusyError: Another process wrote for longer than the store waits.
            StoreError: The index cannot be written.
        """
        ...


@runtime_checkable
class Versioned(Protocol):
    """An optional protocol of stores: a version that changes with each write, read quickly."""

    async def version(self) -> str | None:
        """Name the state of the index: every write, by whatever process, changes it, and another index has another.

        Returns:
            ``None`` before the first write.

        Raises:
            StoreError: The index cannot be read.
        """
        ...


@runtime_checkable
class AddsVectors(Protocol):
    """An optional protocol of stores: write chunks before their vectors. Until then keyword search finds them.

    As long as chunks that pass the filter lack theirs, a search by the vectors of passages raises
    :class:`NotYetEmbeddedError` with the candidates found.
    """

    async def unembedded(self) -> Mapping[str, str]:
        """Return the content hash of each chunk that has no vector yet, by its id, in the order they were written.

        Returns:
            Nothing before the first write.

        Raises:
            EmbedderMismatchError: The index was built with another embedder than the store was opened with.
            StoreError: The index cannot be read.
        """
        ...

    async def add_vectors(self, change: Change) -> int:
        """Add the vectors of chunks that were written without, all of them or none, and return how many got theirs.

        Chunks are skipped if they already have a vector, no longer exist, or have a new indexed text.

        Args:
            change: Has chunks, and their ``vectors``, and nothing else.

        Raises:
            RetrievalError: As :meth:`Store.upsert`.
        """
        ...


@runtime_checkable
class CountsChunks(Protocol):
    """An optional protocol of stores: how many chunks pass a filter."""

    async def count_chunks(self, condition: Filter) -> int:
        """Return how many chunks pass a filter; 0 before the first write.

        Raises:
            UnsupportedFilterError: The filter has an operator that the store does not declare.
            StoreError: The index cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class TermCounts:
    """How rare terms are.

    Attributes:
        chunks: How many chunks pass the filter.
        having: How many of these contain a term, by the term.
    """

    chunks: int
    having: Mapping[str, int]


@runtime_checkable
class CountsTerms(Protocol):
    """An optional protocol of stores: how many of the chunks that pass a filter contain a term."""

    async def count_terms(self, terms: Sequence[str], condition: Filter | None = None) -> TermCounts:
        """Return how many chunks pass a filter, and how many of these contain each term; 0 before the first write.

        Args:
            terms: As the store's analyzer makes them.
            condition: Chunks that do not pass are treated as absent.

        Raises:
            UnsupportedFilterError: The filter has an operator that the store does not declare.
            StoreError: The index cannot be read.
        """
        ...


class HeldIndex(Protocol):
    """One version of a small index in memory: the same results and errors as the store's methods, without waiting.

    The methods compute only: no files, no network, no threads. Several threads may call them.
    """

    @property
    def version(self) -> str:
        """The version of the index, as :meth:`Versioned.version` returns it."""
        ...

    def search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        """Return the best candidates, best first, each with its chunk; see :meth:`Store.search` for its errors."""
        ...

    def fetch(self, request: FetchRequest) -> Fetched:
        """Return those of the requested records that exist; see :meth:`Store.fetch` for its errors."""
        ...

    def count_terms(self, terms: Sequence[str], condition: Filter | None = None) -> TermCounts:
        """Return how many chunks pass a filter, and how many of these contain each term."""
        ...


def held_index(store: object) -> HeldIndex | None:
    """Return a store's current version in memory, within microseconds; ``None`` if there is none.

    Other stores have none. It is also missing if the index is too large, not loaded yet, or was written to since.
    The function looks for ``held`` in the store's class, so that it doesn't bypass an object that wraps a store.
    """
    held = getattr(type(store), "held", None)
    return None if held is None else held(store)


async def hold_index(store: object) -> None:
    """Load an index into memory, if it is small and its store can do so, so that :func:`held_index` returns it.

    Raises:
        StoreError: The index can't be read.
    """
    hold = getattr(type(store), "hold", None)
    if hold is not None:
        await hold(store)


@runtime_checkable
class SamplesFields(Protocol):
    """A store of which only some chunks can be looked at to find the names of their fields."""

    async def sample_fields(self) -> tuple[frozenset[str], int] | None:
        """Return the paths of the fields of some chunks, and how many chunks were looked at.

        Returns:
            ``None`` for an index that has a complete catalogue, see :class:`FieldCatalogue`.

        Raises:
            StoreError: The index cannot be read.
            ServiceError: The service failed.
        """
        ...


@runtime_checkable
class FieldCatalogue(Protocol):
    """An optional protocol of stores: the fields that its passages have, for naming them in filters."""

    async def fields(self, limit: int) -> Mapping[str, FieldInfo]:
        """Return the fields of all passages by their paths, as :func:`retrieval_core.types.filters.lookup` finds them.

        Nested fields have dotted paths; those that every passage has, such as ``source``, are included.

        Args:
            limit: The most fields to return, at least 1.

        Returns:
            The fields that most passages have first, and then by name; nothing before the first write.

        Raises:
            InvalidParameterError: The limit is less than 1.
            StoreError: The index cannot be read.
        """
        ...
