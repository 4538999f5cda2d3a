"""What all stores check alike, before anything is written or searched."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrieval_core.errors import (
    DimensionMismatchError,
    EmbedderMismatchError,
    IndexFormatError,
    InvalidParameterError,
    StoreError,
    UnsupportedFilterError,
    checked_count,
)
from retrieval_core.ports import Manifest
from retrieval_core.types.filters import OPERATORS, operators_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from retrieval_core.ports import Change, SearchRequest, Side
    from retrieval_core.types import Matrix, Vector

MOST_VECTORS = 8
"""Further vectors that a chunk may have; each costs as much room as the one of the passage."""
_VECTOR_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


@dataclass(frozen=True, slots=True)
class Identity:
    """What a store was opened with, to be compared with what the index was built with.

    Attributes:
        location: Where the index is, for people.
        analyzer: Id of the lexical analysis.
        embedder_id: ``None`` to leave vectors alone: no dense search, and no writing to an index with vectors.
        dimension: Components of each vector; given exactly when the embedder is.
        vectors: Names of the further vectors that chunks may have; kept in alphabetical order. They need an embedder.
        adds_vectors: Whether the store takes chunks whose vectors come later.
    """

    location: str
    analyzer: str
    embedder_id: str | None
    dimension: int | None
    vectors: tuple[str, ...] = ()
    adds_vectors: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "vectors", tuple(sorted(self.vectors)))
        if (self.embedder_id is None) != (self.dimension is None):
            msg = f"embedder_id and dimension come together, got {self.embedder_id!r} and {self.dimension!r}"
            raise InvalidParameterError(msg)
        if self.dimension is not None:
            checked_count(self.dimension, "dimension")
        _check_vector_names(self.vectors)
        if self.vectors and self.embedder_id is None:
            msg = f"the named vectors {_listed(self.vectors)} need an embedder, and none was given"
            raise InvalidParameterError(msg)

    def manifest(self) -> Manifest:
        """Return the manifest of a new index."""
        return Manifest(self.embedder_id, self.dimension, self.analyzer, vectors=self.vectors)

    def sides(self, manifest: Manifest | None) -> frozenset[Side]:
        """Return the kinds of search that this index, opened in this way, can do."""
        embedder = manifest.embedder_id if manifest else self.embedder_id
        return frozenset({"dense", "lexical"} if embedder is not None and self.embedder_id is not None else {"lexical"})

    def check_manifest(self, manifest: Manifest) -> None:
        """Refuse an index that was built with another embedder or analysis.

        One without vectors may be opened with any embedder: searching by words and reading need none. One with
        character n-grams, which older versions of this library made on request, may be read: it has all words too.

        Raises:
            EmbedderMismatchError: The index was built with another embedder.
            DimensionMismatchError: Its vectors have another dimension.
            IndexFormatError: Its words went through another analysis, or it has other named vectors.
        """
        if not self._finds_words_of(manifest):
            from retrieval_core.text.analysis import settings_to_change  # noqa: PLC0415 - the stemmer takes a moment

            lines = settings_to_change(self.analyzer, manifest.analyzer)
            remedy = f"Set {', '.join(lines)}, as it was built, or build it anew" if lines else "Build the index anew"
            msg = (
                f"{self.location}: its words were analysed by {manifest.analyzer!r} and questions would be by "
                f"{self.analyzer!r}, so they would not meet. {remedy}."
            )
            raise IndexFormatError(msg)
        if self.embedder_id is None or self.dimension is None or manifest.dimension is None:
            return
        if manifest.embedder_id != self.embedder_id:
            raise EmbedderMismatchError(manifest.embedder_id, self.embedder_id, self.location)
        if manifest.dimension != self.dimension:
            raise DimensionMismatchError(manifest.dimension, self.dimension, self.location)
        if manifest.vectors != self.vectors:
            msg = (
                f"{self.location}: its named vectors are {_listed(manifest.vectors)}, and it was opened with "
                f"{_listed(self.vectors)}. Name the same ones (setting vectors.fields), or build the index anew."
            )
            raise IndexFormatError(msg)

    def _finds_words_of(self, manifest: Manifest) -> bool:
        if manifest.analyzer == self.analyzer:
            return True
        from retrieval_core.text.analysis import without_character_ngrams  # noqa: PLC0415 - the stemmer takes a moment

        return without_character_ngrams(manifest.analyzer) == self.analyzer

    def check_change(self, change: Change, manifest: Manifest) -> None:
        """Refuse a change that does not fit the index.

        Raises:
            IndexFormatError: The index has character n-grams, which new chunks would lack.
            EmbedderMismatchError: The index has vectors and the store was opened without an embedder.
            DimensionMismatchError: The vectors have another dimension than the index.
            InvalidParameterError: Vectors are missing, superfluous or not one for each chunk; or the index
                does not know the name of a named one, or it belongs to no chunk of the change.
        """
        if change.chunks and manifest.analyzer != self.analyzer:
            msg = (
                f"{self.location} was built with character n-grams, which retrieval-core no longer makes. "
                "You can search it as it is. To add to it, build it anew without analysis.character_ngrams."
            )
            raise IndexFormatError(msg)
        self._check_passage_vectors(change, manifest)
        self._check_named_vectors(change, manifest)

    def _check_passage_vectors(self, change: Change, manifest: Manifest) -> None:
        vectors = change.vectors
        if change.unembedded and not self.adds_vectors:
            msg = f"{self.location}: this store takes no chunks without their vectors; got {len(change.unembedded)}"
            raise InvalidParameterError(msg)
        if not change.chunks and (vectors is None or len(vectors) == 0):
            return
        if manifest.dimension is not None and self.embedder_id is None:
            raise EmbedderMismatchError(manifest.embedder_id, None, self.location)
        if manifest.dimension is None:
            if vectors is not None or change.unembedded:
                raise EmbedderMismatchError(None, self.embedder_id or "an embedder", self.location)
            return
        embedded = sum(chunk.id not in change.unembedded for chunk in change.chunks)
        if vectors is None:
            if embedded:
                msg = f"{self.location}: {embedded} chunks came without vectors, and the index needs them"
                raise InvalidParameterError(msg)
            return
        if vectors.ndim != 2 or len(vectors) != embedded:
            msg = f"vectors must have the shape ({embedded}, {manifest.dimension}), got {vectors.shape}"
            raise InvalidParameterError(msg)
        if vectors.shape[1] != manifest.dimension:
            raise DimensionMismatchError(manifest.dimension, vectors.shape[1], self.location)

    def _check_named_vectors(self, change: Change, manifest: Manifest) -> None:
        chunk_ids = {chunk.id for chunk in change.chunks} if change.named_vectors else set[str]()
        for name, vectors in change.named_vectors.items():
            self._check_name(name, manifest)
            for chunk_id, vector in vectors.items():
                if chunk_id not in chunk_ids:
                    msg = f"the vector {name!r} is for {chunk_id!r:.80}, which is no chunk of the change"
                    raise InvalidParameterError(msg)
                if vector.shape != (manifest.dimension,):
                    raise DimensionMismatchError(manifest.dimension or 0, vector.size, self.location)

    def _check_name(self, name: str, manifest: Manifest) -> None:
        if name not in manifest.vectors:
            msg = f"{self.location} has no vectors named {name!r:.80}; there are {_listed(manifest.vectors)}"
            raise InvalidParameterError(msg)

    def check_query_vector(self, vector: Vector, manifest: Manifest, name: str | None = None) -> None:
        """Refuse a dense search that would mean nothing.

        Args:
            name: Which of the chunks' vectors is searched; ``None`` for the one of the passage.

        Raises:
            EmbedderMismatchError: The store was opened without an embedder.
            DimensionMismatchError: The vector has another dimension than the index.
            StoreError: The index contains no vectors.
            InvalidParameterError: It has none of this name.
        """
        if manifest.dimension is None:
            msg = f"{self.location} contains no vectors; use mode 'lexical' (keyword), or build an index with vectors"
            raise StoreError(msg)
        if self.embedder_id is None:
            raise EmbedderMismatchError(manifest.embedder_id, None, self.location)
        if vector.shape != (manifest.dimension,):
            raise DimensionMismatchError(manifest.dimension, vector.size, self.location)
        if name is not None:
            self._check_name(name, manifest)


def check_change(change: Change) -> None:
    """Refuse a change that no store can keep.

    Raises:
        InvalidParameterError: An id occurs twice, or vectors are to come for what is no chunk of the change.
    """
    _check_ids("chunk", (chunk.id for chunk in change.chunks))
    if unknown := change.unembedded - {chunk.id for chunk in change.chunks}:
        msg = f"{min(unknown)!r:.80} is to be embedded later, and is no chunk of the change"
        raise InvalidParameterError(msg)
    _check_ids("document", (document.id for document in change.documents))
    _check_ids("section", (section.id for section in change.sections))


def check_search(request: SearchRequest) -> None:
    """Refuse a search that is not well formed.

    Raises:
        InvalidParameterError: Not exactly one of vector and text was given, a vector is named where none is given, or
            the limit is below 1.
        UnsupportedFilterError: The filter has an operator that nothing defines.
    """
    if (request.vector is None) == (request.text is None):
        msg = "a search takes either a vector or a text"
        raise InvalidParameterError(msg)
    if request.vector_name is not None and request.vector is None:
        msg = f"keyword search takes no vector name, got {request.vector_name!r:.80}"
        raise InvalidParameterError(msg)
    checked_count(request.limit, "limit")
    unknown = operators_of(request.filter) - OPERATORS if request.filter is not None else frozenset[str]()
    if unknown:
        msg = f"the store has no operator {', '.join(sorted(unknown))}"
        raise UnsupportedFilterError(msg)


def unit_rows(vectors: Matrix) -> Matrix:
    """Return float32 vectors of length 1, so that a product of two is their cosine; zero vectors stay as they are."""
    import numpy as np  # noqa: PLC0415 - only those who have vectors pay for numpy

    wide = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(wide, axis=-1, keepdims=True)
    lengths[(lengths == 0) | (abs(lengths - 1) < 1e-6)] = 1  # what has unit length already is kept bit by bit
    return np.ascontiguousarray(wide / lengths, dtype=np.float32)


def _check_vector_names(names: tuple[str, ...]) -> None:
    if len(names) > MOST_VECTORS:
        msg = f"a chunk has at most {MOST_VECTORS} named vectors, got {len(names)}"
        raise InvalidParameterError(msg)
    for name in names:
        if _VECTOR_NAME.fullmatch(name) is None:
            msg = f"{name!r:.80} cannot name vectors: small letters, digits and underscores, a letter first, at most 32"
            raise InvalidParameterError(msg)
        if names.count(name) > 1:
            msg = f"{name!r} names two vectors"
            raise InvalidParameterError(msg)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names)) or "none"


def _check_ids(kind: str, ids: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in ids:
        if name in seen:
            msg = f"the {kind} id {name!r:.80} occurs twice in one change"
            raise InvalidParameterError(msg)
        seen.add(name)
