"""The common base of our stores: the identity of an index, its manifest and its description."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from retrieval_core.errors import (
    DimensionMismatchError,
    EmbedderMismatchError,
    IndexFormatError,
    InvalidParameterError,
    StoreError,
    checked_count,
)
from retrieval_core.ports import Manifest, Store, StoreInfo
from retrieval_core.text.analysis import Analyzer, without_character_ngrams

if TYPE_CHECKING:
    from retrieval_core.ports import Change, Side
    from retrieval_core.types import Vector


@dataclass(frozen=True, slots=True)
class Identity:
    """What a store was opened with, to be compared with what the index was built with.

    Attributes:
        location: Where the index is, for people.
        analyzer: Id of the lexical analysis.
        embedder_id: ``None`` to leave vectors alone: no dense search, and no writing to an index with vectors.
        dimension: Components of each vector; given exactly when the embedder is.
        adds_vectors: Whether the store takes chunks whose vectors come later.
    """

    location: str
    analyzer: str
    embedder_id: str | None
    dimension: int | None
    adds_vectors: bool = False

    def __post_init__(self) -> None:
        if (self.embedder_id is None) != (self.dimension is None):
            msg = f"embedder_id and dimension come together, got {self.embedder_id!r} and {self.dimension!r}"
            raise InvalidParameterError(msg)
        if self.dimension is not None:
            checked_count(self.dimension, "dimension")

    def manifest(self) -> Manifest:
        """Return the manifest of a new index."""
        return Manifest(self.embedder_id, self.dimension, self.analyzer)

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
            IndexFormatError: Its words went through another analysis.
        """
        if not self._finds_words_of(manifest):
            msg = (
                f"{self.location}: its words were analysed by {manifest.analyzer!r} and questions would be by "
                f"{self.analyzer!r}, so they would not meet. Set analysis.language, analysis.stop_words and "
                "analysis.word_ngrams as it was built, or build it anew."
            )
            raise IndexFormatError(msg)
        if self.embedder_id is None or self.dimension is None or manifest.dimension is None:
            return
        if manifest.embedder_id != self.embedder_id:
            raise EmbedderMismatchError(manifest.embedder_id, self.embedder_id, self.location)
        if manifest.dimension != self.dimension:
            raise DimensionMismatchError(manifest.dimension, self.dimension, self.location)

    def _finds_words_of(self, manifest: Manifest) -> bool:
        if manifest.analyzer == self.analyzer:
            return True
        return without_character_ngrams(manifest.analyzer) == self.analyzer

    def check_change(self, change: Change, manifest: Manifest) -> None:
        """Refuse a change that does not fit the index.

        Raises:
            IndexFormatError: The index has character n-grams, which new chunks would lack.
            EmbedderMismatchError: The index has vectors and the store was opened without an embedder.
            DimensionMismatchError: The vectors have another dimension than the index.
            InvalidParameterError: Vectors are missing, superfluous or not one for each chunk.
        """
        if change.chunks and manifest.analyzer != self.analyzer:
            msg = (
                f"{self.location} was built with character n-grams, which retrieval-core no longer makes. "
                "You can search it as it is. To add to it, build it anew without analysis.character_ngrams."
            )
            raise IndexFormatError(msg)
        self._check_vectors(change, manifest)

    def _check_vectors(self, change: Change, manifest: Manifest) -> None:
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

    def check_query_vector(self, vector: Vector, manifest: Manifest) -> None:
        """Refuse a dense search that would mean nothing.

        Raises:
            EmbedderMismatchError: The store was opened with another embedder, or without one.
            DimensionMismatchError: The vector has another dimension than the index.
            StoreError: The index contains no vectors.
        """
        if manifest.dimension is None:
            msg = f"{self.location} contains no vectors; use mode 'lexical' (keyword), or build an index with vectors"
            raise StoreError(msg)
        if manifest.embedder_id != self.embedder_id:
            raise EmbedderMismatchError(manifest.embedder_id, self.embedder_id, self.location)
        if vector.shape != (manifest.dimension,):
            raise DimensionMismatchError(manifest.dimension, vector.size, self.location)


class StoreBase(Store):
    """The base of stores that name their embedder in a manifest, and analyze words by themselves.

    Args:
        location: Where the index is, for people.
        embedder_id: Names the embedder of the vectors; without it there is keyword search only.
        dimension: Components of each vector, given exactly when the embedder is.
        analyzer: Turns text into terms.

    Raises:
        InvalidParameterError: Only one of embedder and dimension was given, or a name is invalid.
    """

    def __init__(
        self,
        location: str,
        *,
        embedder_id: str | None = None,
        dimension: int | None = None,
        analyzer: Analyzer | None = None,
    ) -> None:
        self._analyzer = analyzer or Analyzer()
        adds_vectors = "add_vectors" in self.capabilities
        self._identity = Identity(location, self._analyzer.id, embedder_id, dimension, adds_vectors=adds_vectors)

    @property
    def location(self) -> str:
        """Readable location, for messages."""
        return self._identity.location

    def _manifest_for(self, change: Change, manifest: Manifest | None) -> Manifest:
        """Return the manifest of the index, a new one for the first write; refuse a change that does not fit it."""
        manifest = manifest or self._identity.manifest()
        self._identity.check_manifest(manifest)
        self._identity.check_change(change, manifest)
        return manifest

    def _info(self, manifest: Manifest | None, *, documents: int, chunks: int, **rest: Any) -> StoreInfo:
        """Return the description of the store.

        Args:
            rest: Further fields of :class:`StoreInfo`.
        """
        known: dict[str, Any] = {"generation": None, "sides": self._identity.sides(manifest) & self.sides, **rest}
        return StoreInfo(
            location=self.location,
            manifest=manifest,
            documents=documents,
            chunks=chunks,
            filter_operators=self.filter_operators,
            **known,
        )
