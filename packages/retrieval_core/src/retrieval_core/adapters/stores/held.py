"""A small index in memory: exact keyword and vector search over arrays, and its records by id."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from zlib import crc32

import numpy as np

from retrieval_core.adapters.stores.columns import KEPT_COLUMNS, Column, evaluate
from retrieval_core.adapters.stores.query_terms import query_terms
from retrieval_core.adapters.stores.scoring import best_rows, cosines, length_norms, saturated
from retrieval_core.errors import NotYetEmbeddedError
from retrieval_core.ports import Candidate, Fetched, TermCounts, check_search
from retrieval_core.types import Chunk
from retrieval_core.types.filters import chunk_fields, lookup, matches, paths_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from retrieval_core.adapters.stores.base import Identity
    from retrieval_core.adapters.stores.columns import Mask
    from retrieval_core.ports import FetchRequest, Manifest, SearchRequest
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import JSON, Document, Matrix, Section, Vector
    from retrieval_core.types.filters import Filter

    _Rows: TypeAlias = NDArray[Any]
    """Whole numbers."""

MOST_ON_LOOP = 2_000
"""Chunks whose values of a field are encoded at once, in 1 to 3 ms; those of more chunks are encoded in a thread."""
RECORD_BYTES = 1_000
"""Bytes of a chunk beside its text, its vector and its postings: 620 without metadata, 1,050 with three fields."""

_OWN_FIELDS = chunk_fields(Chunk("", "", "")).keys()
"""Fields that all chunks have; metadata wins over them."""
_METADATA: Callable[[Chunk], Mapping[str, JSON]] = attrgetter("metadata")


class Postings(NamedTuple):
    """Postings of several terms, one term after the other.

    Attributes:
        terms: In order.
        counts: How many postings each term has.
        positions: Rows of the chunks, ascending for each term.
        frequencies: How often the chunk has the term.
    """

    terms: Sequence[str]
    counts: NDArray[np.int64]
    positions: _Rows
    frequencies: _Rows


class Vocabulary(defaultdict[str, int]):
    """Numbers terms from 0 on, in the order in which they are first asked for."""

    def __init__(self) -> None:
        super().__init__(self.__len__)

    def ids(self, terms: Iterable[str], count: int) -> NDArray[np.int64]:
        """Return the numbers of so many terms."""
        return np.fromiter(map(self.__getitem__, terms), np.int64, count)


def sort_postings(vocabulary: Vocabulary, ids: NDArray[np.int64], positions: _Rows, frequencies: _Rows) -> Postings:
    """Sort postings by term, and leave out terms without any.

    Args:
        ids: The term of each posting; those of one term are in the order of their positions.
    """
    terms = sorted(vocabulary)
    ranks = np.empty(len(terms), np.int64)
    ranks[vocabulary.ids(terms, len(terms))] = np.arange(len(terms))
    by_rank = ranks[ids]
    order = np.argsort(by_rank, kind="stable")
    counts = np.bincount(by_rank, minlength=len(terms))
    if not counts.all():
        terms = [term for term, count in zip(terms, counts.tolist(), strict=True) if count]
        counts = counts[counts > 0]
    return Postings(terms, counts, positions[order], frequencies[order])


def count_terms_of(chunks: Sequence[Sequence[str]]) -> Postings:
    """Return the postings of chunks, given the terms of each."""
    lengths = np.array([len(terms) for terms in chunks], np.int64)
    vocabulary = Vocabulary()
    ids = vocabulary.ids(chain.from_iterable(chunks), int(lengths.sum()))
    # A chunk and a term as one number, of which those that are equal are counted.
    pairs, frequencies = np.unique(
        np.repeat(np.arange(len(chunks)), lengths) * len(vocabulary) + ids, return_counts=True
    )
    positions, ids = np.divmod(pairs, max(1, len(vocabulary)))
    return sort_postings(vocabulary, ids, positions, frequencies)


def checksums_of(postings: Postings) -> NDArray[np.uint32]:
    """Return the part of each posting in the checksum of its chunk: their sum, modulo 2 to the 32."""
    terms = np.fromiter(map(crc32, map(str.encode, postings.terms)), np.uint32, len(postings.terms))
    return np.repeat(terms, postings.counts) * postings.frequencies.astype(np.uint32)


class Records:
    """The records of an index by their ids; a chunk's row is its position.

    Attributes:
        chunks: All chunks.
        row_of: The row of each chunk, by its id.
    """

    def __init__(self, chunks: Sequence[Chunk], sections: Iterable[Section], documents: Iterable[Document]) -> None:
        self.chunks = chunks
        self.row_of = {chunk.id: row for row, chunk in enumerate(chunks)}
        self._of_document: defaultdict[str, list[int]] = defaultdict(list)
        self._of_section: defaultdict[str, list[int]] = defaultdict(list)
        for row, chunk in enumerate(chunks):
            self._of_document[chunk.document_id].append(row)
            if chunk.parent_id is not None:
                self._of_section[chunk.parent_id].append(row)
        for rows in self._of_document.values():
            rows.sort(key=self._index_of)
        self._sections = {section.id: section for section in sections}
        self._documents = {document.id: document for document in documents}

    def count_bytes(self) -> int:
        """Return about how many bytes the records take; this looks at each of them."""
        return RECORD_BYTES * len(self.chunks) + sum(
            len(record.text) for record in (*self.chunks, *self._documents.values())
        )

    def fetch(self, request: FetchRequest, vector_of: Callable[[int], Vector | None]) -> Fetched:
        """Return those of the requested records that exist.

        Args:
            vector_of: Returns the vector of a row.
        """
        wanted = {row: None for name in request.chunk_ids if (row := self.row_of.get(name)) is not None}
        for part in request.ranges:
            rows = self._of_document.get(part.document_id, ())
            first = bisect_left(rows, part.first, key=self._index_of)
            wanted |= dict.fromkeys(rows[first : bisect_right(rows, part.last, first, key=self._index_of)])
        rows = [row for row in wanted if self._is_visible((row,), request.filter)]
        chunks = {self.chunks[row].id: self.chunks[row] for row in rows}
        vectors = dict(zip(chunks, map(vector_of, rows), strict=True)) if request.with_vectors else {}
        return Fetched(
            chunks=chunks,
            vectors={name: vector for name, vector in vectors.items() if vector is not None},
            sections={
                name: self._sections[name]
                for name in request.section_ids
                if name in self._sections and self._is_visible(self._of_section.get(name, ()), request.filter)
            },
            documents={
                name: self._documents[name]
                for name in request.document_ids
                if name in self._documents and self._is_visible(self._of_document.get(name, ()), request.filter)
            },
        )

    def _index_of(self, row: int) -> int:
        return self.chunks[row].chunk_index

    def _is_visible(self, rows: Iterable[int], condition: Filter | None) -> bool:
        return condition is None or any(matches(condition, chunk_fields(self.chunks[row])) for row in rows)


class _NewCandidate:
    """A candidate that is being made, with the attributes of :class:`Candidate`.

    Setting the attributes of a frozen object takes four times as long, and a hybrid query makes 200 candidates: of a
    query of a millisecond, that is a tenth.
    """

    __slots__ = ("chunk", "chunk_id", "score", "vector")


class IndexInMemory:
    """One version of an index in memory; nothing of it changes. Several threads may use it.

    The results and errors are those of the store that it was built from.

    Args:
        version: Names the version.
        identity: Describes how the store was opened.
        manifest: Describes the index.
        analyzer: Turns queries into terms.
        weigh: Returns BM25's weight of a term, given the number of all chunks and of those that have it.
        records: All records.
        postings: The postings of all chunks, by their rows.
        matrix: The chunks' vectors, of unit length.
        embedded: Which chunks have a vector; ``None`` if all have.
        paths: Names of the fields that filters are likely to name.

    Attributes:
        loaded_bytes: About how many bytes the index takes, without a matrix that it shares.
    """

    def __init__(
        self,
        version: str,
        *,
        identity: Identity,
        manifest: Manifest,
        analyzer: Analyzer,
        weigh: Callable[[int, int], float],
        records: Records,
        postings: Postings,
        matrix: Matrix,
        embedded: Mask | None = None,
        paths: Iterable[str] = (),
    ) -> None:
        self.version = version
        self._identity = identity
        self._manifest = manifest
        self._analyzer = analyzer
        self._weigh = weigh
        self._records = records
        self._chunks = chunks = records.chunks
        self._ranks = np.empty(len(chunks), np.int32)
        self._ranks[[records.row_of[name] for name in sorted(records.row_of)]] = np.arange(len(chunks), dtype=np.int32)
        self._matrix = matrix
        self._embedded = None if embedded is None or embedded.all() else embedded
        ends = np.cumsum(postings.counts).tolist()
        self._slices = dict(zip(postings.terms, map(slice, [0, *ends], ends), strict=True))
        self._rows = postings.positions.astype(np.int32, copy=False)
        lengths = np.bincount(self._rows, postings.frequencies, minlength=len(chunks))
        norms = length_norms(lengths, float(lengths.mean()) if len(chunks) else 0.0)
        self._weights = saturated(postings.frequencies, norms[self._rows])
        arrays = (self._rows, self._weights, self._ranks)
        vectors = matrix.nbytes if matrix.flags.owndata else 0
        self.loaded_bytes = vectors + records.count_bytes() + sum(array.nbytes for array in arrays)
        self._columns: dict[str, tuple[Column, NDArray[np.int32]]] = {}
        self._encode(paths)

    def preparation(self, condition: Filter | None) -> Callable[[], object] | None:
        """Return work for a thread that has to be done before a filter is used; ``None`` if there is none."""
        if condition is None or len(self._chunks) <= MOST_ON_LOOP:
            return None
        fields = paths_of(condition) - self._columns.keys()
        return partial(self._encode, fields) if fields else None

    def search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        """Return the best candidates, best first; equal scores are ordered by chunk id."""
        check_search(request)
        allowed = None if request.filter is None else self._passing(request.filter)
        vector, has_vector = request.vector, self._embedded
        if vector is None:
            return self._search_terms(request, allowed)
        self._identity.check_query_vector(vector, self._manifest)
        searched = has_vector if allowed is None else allowed if has_vector is None else allowed & has_vector
        if searched is None:
            scores = cosines(self._matrix, None, vector)
            found = best_rows(scores, request.limit)
            return self._candidates(found, scores[found], request)
        rows = np.flatnonzero(searched)
        scores = cosines(self._matrix, rows, vector)
        found = best_rows(scores, request.limit)
        best = self._candidates(rows[found], scores[found], request)
        chunks = len(self._chunks) if allowed is None else int(np.count_nonzero(allowed))
        if len(rows) < chunks:
            raise NotYetEmbeddedError(chunks, len(rows), best)
        return best

    def fetch(self, request: FetchRequest) -> Fetched:
        """Return those of the requested records that exist."""
        return self._records.fetch(request, self._vector)

    def count_terms(self, terms: Sequence[str], condition: Filter | None = None) -> TermCounts:
        """Return how many chunks pass a filter, and how many of these contain each term."""
        if condition is None:
            return TermCounts(len(self._chunks), {term: self._count(term) for term in terms})
        passing = self._passing(condition)
        having = {term: int(np.count_nonzero(passing[self._rows[self._slices.get(term, slice(0))]])) for term in terms}
        return TermCounts(int(np.count_nonzero(passing)), having)

    def find_terms(
        self, terms: Iterable[str], chunks: Sequence[Chunk], analyzer_id: str
    ) -> Sequence[frozenset[str]] | None:
        """Return which of some terms each chunk contains; ``None`` if the postings can't tell."""
        rows = [self._records.row_of.get(chunk.id, -1) for chunk in chunks]
        is_same = all(row >= 0 and self._chunks[row] is chunk for row, chunk in zip(rows, chunks, strict=True))
        if not is_same or self._manifest.analyzer != analyzer_id:
            return None
        wanted = np.array(rows, np.int32)
        found: list[set[str]] = [set() for _ in rows]
        for term in terms:
            having = self._rows[self._slices.get(term, slice(0))]
            places = np.searchsorted(having, wanted)
            for place, row, each in zip(places.tolist(), rows, found, strict=True):
                if place < len(having) and having[place] == row:
                    each.add(term)
        return list(map(frozenset, found))

    def _search_terms(self, request: SearchRequest, allowed: Mask | None) -> tuple[Candidate, ...]:
        terms = query_terms(self._analyzer, request.text or "", self._count)
        rows: list[_Rows] = []
        weights: list[NDArray[np.float64]] = []
        for term, repeats in Counter(terms).items():
            if (found := self._slices.get(term)) is not None:
                rows.append(self._rows[found])
                weights.append(repeats * self._weigh(len(self._chunks), self._count(term)) * self._weights[found])
        if not rows:
            return ()
        sums: NDArray[Any] = np.bincount(np.concatenate(rows), np.concatenate(weights), len(self._chunks))
        scores = sums if allowed is None else sums * allowed
        best = best_rows(scores, request.limit)
        best = best[scores[best] > 0]
        return self._candidates(best, scores[best], request)

    def _candidates(
        self, rows: NDArray[np.intp], scores: NDArray[np.floating], request: SearchRequest
    ) -> tuple[Candidate, ...]:
        order = np.lexsort((self._ranks[rows], -scores))[: request.limit]
        best: Iterable[tuple[int, float]] = zip(rows[order].tolist(), scores[order].tolist(), strict=True)
        chunks, has_vectors = self._chunks, request.with_vectors
        made: list[Any] = []
        for row, score in best:
            each: Any = _NewCandidate()
            each.chunk = chunk = chunks[row]
            each.chunk_id = chunk.id
            each.score = score
            each.vector = self._vector(row) if has_vectors else None
            each.__class__ = Candidate
            made.append(each)
        return tuple(made)

    def _count(self, term: str) -> int:
        found = self._slices.get(term)
        return 0 if found is None else found.stop - found.start

    def _vector(self, row: int) -> Vector | None:
        return self._matrix[row] if self._embedded is None or self._embedded[row] else None

    def _passing(self, condition: Filter) -> Mask:
        columns = {path: self._columns.get(path) or self._column(path) for path in paths_of(condition)}
        return evaluate(condition, columns, len(self._chunks))

    def _encode(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._column(path)

    def _column(self, path: str) -> tuple[Column, NDArray[np.int32]]:
        """Return the values of a field, encoded when a filter first names it; two threads may both do so."""
        column, count = Column(), len(self._chunks)
        fields_of = chunk_fields if path in _OWN_FIELDS else _METADATA
        column.extend(count, np.arange(count), [lookup(fields_of(chunk), path) for chunk in self._chunks])
        if len(self._columns) >= KEPT_COLUMNS:
            self._columns.clear()
        self._columns[path] = column, column.codes
        return column, column.codes
