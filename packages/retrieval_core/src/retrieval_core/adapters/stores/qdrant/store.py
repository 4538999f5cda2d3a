"""The Qdrant store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import AliasChoices, Field, SecretStr

from retrieval_core.adapters.stores.checks import Identity, check_change, check_search, unit_rows
from retrieval_core.adapters.stores.fields import first_fields
from retrieval_core.adapters.stores.foreign import FieldMapping
from retrieval_core.adapters.stores.qdrant.collection import QdrantCollection, state_of
from retrieval_core.adapters.stores.qdrant.connection import checked_collection, connect, models
from retrieval_core.adapters.stores.qdrant.filters import both, one_of
from retrieval_core.adapters.stores.qdrant.points import WORDS, distinct, value_of
from retrieval_core.adapters.stores.qdrant.reading import CollectionReader, of_kind
from retrieval_core.adapters.stores.qdrant.writing import CollectionWriter
from retrieval_core.adapters.stores.query_terms import limited, question_weights
from retrieval_core.adapters.stores.rows import SOURCES
from retrieval_core.adapters.vendors.package import LoadsPackage
from retrieval_core.config.base import AdapterSettings, Address, FieldNames
from retrieval_core.errors import IncompleteSearchError, IndexNotFoundError, StoreError
from retrieval_core.ports import StoredDamage, StoreInfo
from retrieval_core.text.analysis import Analyzer
from retrieval_core.types.filters import OPERATORS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Self

    from retrieval_core.adapters.parts import AdapterParts
    from retrieval_core.ports import (
        Candidate,
        Change,
        CollectionState,
        Fetched,
        FetchRequest,
        FieldInfo,
        SearchRequest,
        Side,
        SourceState,
    )
    from retrieval_core.types.filters import Filter

COLLECTION = "retrieval"


class QdrantSettings(AdapterSettings):
    """A collection of a Qdrant server, or of its client's local mode."""

    required: ClassVar[dict[str, str]] = {"url": "path"}

    url: Address = Field(default=None, validation_alias=AliasChoices("url", "QDRANT_URL"))
    """Address of the server. Default: the environment variable ``QDRANT_URL``."""
    api_key: SecretStr | None = Field(default=None, validation_alias=AliasChoices("api_key", "QDRANT_API_KEY"))
    """API key. Default: the environment variable ``QDRANT_API_KEY``. Local servers may not need one."""
    path: str | None = None
    """Folder of the client's local mode, or ``:memory:``, instead of a server. For trials."""
    collection: str = Field(default=COLLECTION, min_length=1, max_length=255)
    """Name of the collection. The first write creates it."""
    indexed_fields: tuple[str, ...] = ()
    """Metadata fields that get an index for range operators such as ``$gt``. All have one for equality."""
    fields: FieldNames = Field(default_factory=dict)
    """For a collection that another program filled: the payload field for each field of a chunk, such as ``text``. Or a
    preset: ``langchain``, ``llamaindex`` or ``haystack``. Default: the preset ``default``."""
    vector: str | None = None
    """Name of the vector to search, if a collection that another program filled has several."""


class QdrantStore(LoadsPackage):
    """Keeps an index in a collection of a Qdrant server, or searches a collection that another program filled.

    A change is one request, or several if it is large. New points are written first, then the replaced ones are
    removed, then the states of sources are written. Qdrant has no transactions, so readers may see a part of a change,
    but a replaced document never lacks chunks. The next run repeats an interrupted change, as sources are written
    last. The local mode applies each request as a whole.

    Words are searched by sparse vectors; Qdrant weighs each word by its inverse document frequency, by the formula of
    the other stores. See :mod:`retrieval_core.adapters.stores.query_terms`.

    A collection that another program filled is only read, by its vectors; filters see its metadata and the mapped
    fields under our names. If no fields are mapped, it has those of the preset ``default``.

    Args:
        url: Address of the server. Default port: 6333.
        api_key: Not needed for a server that wants none.
        path: In place of a server, the folder of the client's local mode, or ``":memory:"``: for trials, see the
            documentation of stores.
        collection: Its name.
        indexed_fields: Fields that get an index for ``$gt`` and its like; all are indexed for equality.
        vector: Name of the searched vector, if a collection of another program has several.
        fields: For a collection of another program, a preset: ``default``, ``langchain``, ``llamaindex`` or
            ``haystack``. Or paths in a point's payload by a chunk's field: ``text``, the object with its ``metadata``,
            ``document_id``, ``chunk_index``, ``title``, ``source`` and so on; the key ``preset`` names the preset that
            these add to.
        embedder_id: Name of the embedder. Without it a new index has no vectors, and an index with vectors has only
            keyword search and can't be added to.
        dimension: Components of each vector, given exactly when the embedder is.

    Raises:
        ConfigurationError: There is neither an address nor a path, or one of them, the key or the name cannot be used.
        InvalidParameterError: Only one of embedder and dimension was given, a name is invalid, or ``fields`` has an
            unknown key.
    """

    package: ClassVar[str] = "qdrant_client"
    Settings = QdrantSettings

    def __init__(
        self,
        *,
        url: str | None = None,
        api_key: SecretStr | None = None,
        path: str | None = None,
        collection: str = COLLECTION,
        indexed_fields: Sequence[str] = (),
        vector: str | None = None,
        fields: Mapping[str, str] | str | None = None,
        embedder_id: str | None = None,
        dimension: int | None = None,
        analyzer: Analyzer | None = None,
    ) -> None:
        self._connection = connect(url, api_key, path)
        location = f"Qdrant collection {checked_collection(collection)} {self._connection.place}"
        self._analyzer = analyzer or Analyzer()
        self._identity = Identity(location, self._analyzer.id, embedder_id, dimension)
        mapping = FieldMapping.load(fields, "store.qdrant.fields")
        self._collection = QdrantCollection(
            self._connection,
            collection,
            self._identity,
            mapping=mapping,
            is_mapped=bool(fields),
            vector=vector,
            indexed_fields=indexed_fields,
        )
        self._reader = CollectionReader(self._collection, mapping, location)
        self._writer = CollectionWriter(self._collection, self._reader, self._analyzer, self._identity)
        self._catalogue: tuple[str, Mapping[str, FieldInfo]] | None = None
        self._closed = False

    @classmethod
    def from_settings(cls, settings: QdrantSettings, parts: AdapterParts) -> Self:
        """Make it from its settings, loading nothing."""
        return cls(**dict(settings), **parts.of_store)

    @property
    def sides(self) -> frozenset[Side]:
        """The kinds of search it does, as far as is known without asking Qdrant."""
        if not self._collection.is_foreign:
            return self._identity.sides(None)
        return frozenset({"dense"} if self._identity.dimension is not None else ())

    async def describe(self) -> StoreInfo:
        """Return the store's contents and abilities.

        Raises:
            IndexNotFoundError: There is no such collection.
            StoreError: The index cannot be opened, or the records of another program have no text in the mapped fields.
            ServiceError: Qdrant failed.
        """
        self._check_open()
        opened = await self._collection.opened()
        if opened.manifest is None:
            state = state_of(await self._collection.call("get_collection"), opened.vector)
            return StoreInfo(
                self._identity.location, None, None, 0, state.points, self.sides, OPERATORS, collection=state
            )
        state = await self._collection.state()
        return StoreInfo(
            location=self._identity.location,
            manifest=opened.manifest,
            generation=None if state is None else state.generation,
            documents=await self._reader.count(of_kind("document")),
            chunks=await self._reader.count(of_kind("chunk")),
            sides=self._identity.sides(opened.manifest),
            filter_operators=OPERATORS,
        )

    async def describe_collection(self) -> CollectionState | None:
        """Return Qdrant's report on the collection, even if it can't be searched.

        Raises:
            IndexNotFoundError: There is no such collection.
            ServiceError: Qdrant failed.
        """
        self._check_open()
        return await self._collection.described()

    async def upsert(self, change: Change) -> None:
        """Apply a change.

        Raises:
            DimensionMismatchError: The vectors have another dimension than the index.
            EmbedderMismatchError: The index was built with another embedder than the store was opened with.
            InvalidParameterError: A part of it cannot be kept; nothing was written.
            StoreError: Another program filled the collection.
            ServiceError: Qdrant failed; a part may have been written.
        """
        self._check_open()
        check_change(change)
        await self._writer.write(change)

    async def delete(self, document_ids: Sequence[str]) -> int:
        """Remove documents with all that belongs to them, and return how many chunks were removed.

        Raises:
            StoreError: Another program filled the collection.
            ServiceError: Qdrant failed; a part may be removed.
        """
        self._check_open()
        return await self._writer.remove(document_ids)

    async def search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        """Return the best candidates, best first; equal scores are ordered by chunk id.

        One request, and more only where the limit cuts through equal scores, or for a filter that Qdrant cannot
        evaluate by itself.

        Raises:
            IncompleteSearchError: Fewer than the limit match among the best 10,000, or some of these have no text; it
                carries the others.
            DimensionMismatchError: The vector has another dimension than the index.
            EmbedderMismatchError: The index was built with another embedder than the store was opened with.
            InvalidParameterError: The request is not well formed.
            StoreError: The index cannot be searched in this way.
            ServiceError: Qdrant failed.
        """
        self._check_open()
        check_search(request)
        opened = await self._collection.opened()
        if opened.is_empty:
            return ()
        query: Any
        if request.vector is not None:
            self._identity.check_query_vector(request.vector, opened.manifest or self._identity.manifest())
            name = opened.vector
            query = unit_rows(request.vector).tolist()
        else:
            if opened.manifest is None:
                msg = f"{self._identity.location} has no keyword search: another program filled it; use mode 'dense'"
                raise StoreError(msg)
            weights = question_weights(limited(self._analyzer.query_terms(request.text or "")))
            if not weights:
                return ()
            name, query = WORDS, models().SparseVector(indices=[*weights], values=[*weights.values()])
        found, missing = await self._reader.search(opened, request, query, name)
        if missing is not None:
            raise IncompleteSearchError(missing, found)
        return found

    async def fetch(self, request: FetchRequest) -> Fetched:
        """Return those of the requested records that exist; a collection of another program has chunks only.

        Raises:
            IndexNotFoundError: There is no such collection.
            StoreError: The index cannot be read.
            ServiceError: Qdrant failed.
        """
        self._check_open()
        return await self._reader.fetch(await self._collection.opened(), request)

    async def find_damage(self, document_ids: Collection[str] | None = None) -> StoredDamage:
        """Compare what is stored with the checksums that were written with it. Nothing is written.

        Args:
            document_ids: Ids of the documents to check. Default: all.

        Returns:
            Nothing for a collection that another program filled.

        Raises:
            IndexNotFoundError: There is no such collection, or nothing in it.
            StoreError: The index cannot be read.
            ServiceError: Qdrant failed.
        """
        self._check_open()
        if (await self._collection.opened()).manifest is None:
            return StoredDamage()
        return await self._reader.find_damage(document_ids)

    async def version(self) -> str | None:
        """Name the state of the index, which every write changes.

        Returns:
            ``None`` before the first write, and for a collection that another program filled.
        """
        self._check_open()
        try:
            state = await self._collection.state()
        except IndexNotFoundError:
            return None
        return None if state is None else f"{state.token}:{state.generation}"

    async def fields(self, limit: int) -> Mapping[str, FieldInfo]:
        """Return the fields of all passages by their paths, those of most first; reads all, once for each version."""
        version = await self.version()
        if version is None or self._catalogue is None or self._catalogue[0] != version:
            try:
                found = await self._reader.fields(await self._collection.opened())
            except IndexNotFoundError:
                found = {}
            self._catalogue = version or "", found
        return first_fields(self._catalogue[1], limit)

    async def sample_fields(self) -> tuple[frozenset[str], int] | None:
        """Return the fields of the first 1,000 points of a collection that another program filled."""
        self._check_open()
        opened = await self._collection.opened()
        return None if opened.manifest else await self._reader.sample_fields(opened)

    async def sample_records(self) -> Sequence[Mapping[str, Any]]:
        """Return a few payloads of a collection that another program filled, so that a mapping can be proposed."""
        self._check_open()
        return [point.payload or {} for point in await self._collection.sample()]

    async def count_chunks(self, condition: Filter) -> int:
        """Return how many chunks pass a filter; 0 before the first write.

        Raises:
            StoreError: The index cannot be read.
            ServiceError: Qdrant failed.
        """
        self._check_open()
        try:
            return await self._reader.count_matching(await self._collection.opened(), condition)
        except IndexNotFoundError:
            return 0

    async def sources(self) -> Mapping[str, SourceState]:
        """Return the state of every source, by its name; nothing before the first write."""
        self._check_open()
        if not await self._is_ours():
            return {}
        points = self._reader.scrolled(of_kind("source"), True)
        states = [value_of(point.payload, SOURCES) async for point in points]
        return {state.source: state for state in states}

    async def documents_of(self, source: str) -> Mapping[str, str]:
        """Return the content hashes of a source's documents, by document id; nothing before the first write."""
        self._check_open()
        if not await self._is_ours():
            return {}
        wanted = both(of_kind("document"), one_of("source", distinct((source,))))
        points = self._reader.scrolled(wanted, ["id", "content_hash"])
        # One without a hash is damaged, and is read again as one with another hash is.
        return {point.payload["id"]: point.payload.get("content_hash", "") async for point in points}

    async def document_ids(self) -> Sequence[str]:
        """Return the id of each document.

        Raises:
            IndexNotFoundError: There is no such collection.
            StoreError: Another program filled the collection.
            ServiceError: Qdrant failed.
        """
        self._check_open()
        opened = await self._collection.opened()
        if opened.manifest is None and not opened.is_empty:
            msg = f"{self._identity.location}: another program filled it, and its documents cannot be listed"
            raise StoreError(msg)
        points = self._reader.scrolled(of_kind("document"), ["id"])
        return [point.payload["id"] async for point in points]

    async def aclose(self) -> None:
        """Close connections; further calls are errors. Closing twice is fine."""
        self._closed = True
        await self._connection.aclose()

    async def _is_ours(self) -> bool:
        try:
            return (await self._collection.opened()).manifest is not None
        except IndexNotFoundError:
            return False

    def _check_open(self) -> None:
        if self._closed:
            msg = f"{self._identity.location}: the store is closed"
            raise StoreError(msg)
