"""The values that pass between an index and those who use it: requests, results and reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from retrieval_core.errors import InvalidParameterError
from retrieval_core.types.documents import as_vectors, is_zero, unit_rows
from retrieval_core.types.escapes import valid_unicode

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        unembedded: Number of chunks without a vector so far, see :meth:`Store.add_vectors`.
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

    @property
    def counted_documents(self) -> int | None:
        """Number of documents; ``None`` if they are not counted, as in a collection that another program filled."""
        return self.documents if self.documents or not self.chunks else None


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
            ``unembedded``. ``None`` if there are none. They become float32 and get the length 1.
        removed_documents: Ids of documents to remove, with all that belongs to them.
        unembedded: Ids of chunks whose vectors come later; only stores with :meth:`Store.add_vectors` take such.
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
        """Give the vectors the length 1.

        Raises:
            InvalidParameterError: Some are no vectors, or consist of zeros.
        """
        if self.vectors is None:
            return
        vectors = as_vectors(self.vectors)
        if vectors.ndim == 2 and vectors.size:
            self._refuse_zeros(vectors)
            vectors = unit_rows(vectors)
        object.__setattr__(self, "vectors", vectors)

    def _refuse_zeros(self, vectors: Matrix) -> None:
        zero = is_zero(vectors)
        if zero.any():
            embedded = [chunk.id for chunk in self.chunks if chunk.id not in self.unembedded]
            row = int(zero.argmax())
            who = f"of chunk {embedded[row]!r:.80}" if len(embedded) == len(vectors) else f"in row {row}"
            raise InvalidParameterError(_NO_DIRECTION.format(f"the vector {who}"))


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search of one side: exactly one of ``vector`` and ``text`` is given.

    Attributes:
        vector: Shape ``(dimension,)``: search by cosine similarity. It becomes float32 and gets the length 1.
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
        """Give the vector the length 1.

        Raises:
            InvalidParameterError: It is no vector, or consists of zeros.
        """
        if self.vector is not None:
            vector = as_vectors(self.vector)
            if vector.ndim == 1 and vector.size:
                if is_zero(vector):
                    raise InvalidParameterError(_NO_DIRECTION.format("the vector of the query"))
                vector = unit_rows(vector)
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


@dataclass(frozen=True, slots=True)
class TermCounts:
    """How rare terms are.

    Attributes:
        chunks: How many chunks pass the filter.
        having: How many of these contain a term, by the term.
    """

    chunks: int
    having: Mapping[str, int]
