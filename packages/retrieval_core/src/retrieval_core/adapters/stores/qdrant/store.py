"""The Qdrant store."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import AliasChoices, Field, SecretStr

from retrieval_core.adapters.stores.foreign import ForeignStore
from retrieval_core.adapters.stores.qdrant.collection import (
    QdrantCollection,
    checked_collection,
    connect,
    models,
    state_of,
)
from retrieval_core.adapters.stores.qdrant.filters import as_filter, both, in_range, one_of
from retrieval_core.adapters.stores.qdrant.points import (
    GENERATION,
    MOST_POINTS,
    MOST_REQUEST_BYTES,
    WORDS,
    chunk_points,
    other_points,
    owner_point,
    point_id,
    size_of,
    value_of,
)
from retrieval_core.adapters.stores.qdrant.reading import CollectionReader, of_kind
from retrieval_core.adapters.stores.query_terms import limited, question_weights
from retrieval_core.adapters.stores.rows import SOURCES
from retrieval_core.adapters.stores.services import distinct, split
from retrieval_core.adapters.vendors import LoadsPackage
from retrieval_core.config.base import AdapterSettings, Address, FieldNames
from retrieval_core.errors import IncompleteSearchError, UnsupportedSearchError
from retrieval_core.ports import StoredDamage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Self

    from retrieval_core.adapters.parts import AdapterParts
    from retrieval_core.adapters.stores.qdrant.collection import State
    from retrieval_core.adapters.stores.qdrant.points import Kind
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
        StoreInfo,
    )
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types.filters import Filter


def _size_of_step(step: Any) -> int:
    return sum(map(size_of, step.upsert.points)) if hasattr(step, "upsert") else 0


def _batches(points: Iterable[Any]) -> Iterator[list[Any]]:
    return split(points, size_of, most=MOST_POINTS, most_size=MOST_REQUEST_BYTES)


def _upsert(points: Sequence[Any]) -> Any:
    return models().UpsertOperation(upsert=models().PointsList(points=list(points)))


def _deletion(selector: Any) -> Any:
    return None if selector is None else models().DeleteOperation(delete=selector)


def _ids(kind: Kind, names: Iterable[str]) -> Any:
    found = [point_id(kind, name) for name in sorted(distinct(names))]
    return models().PointIdsList(points=found) if found else None


def _former(document_ids: Iterable[str], state: State) -> Any:
    """Return what selects the chunks and sections of documents that earlier writes left.

    Those of a write at the same time stay: each of two that replaced a document at once would remove what the other
    wrote.
    """
    names = distinct(sorted(document_ids))
    earlier = in_range(GENERATION, lt=state.generation)
    found = as_filter(both(of_kind("chunk", "section"), one_of("document_id", names), earlier)) if names else None
    return None if found is None else models().FilterSelector(filter=models().Filter.model_validate(found))


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


class QdrantStore(LoadsPackage, ForeignStore):
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
    kind = "qdrant"
    fields_by_default = "default"  # without it, the first query tries keyword search
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
        super().__init__(location, fields=fields, embedder_id=embedder_id, dimension=dimension, analyzer=analyzer)
        self._collection = QdrantCollection(
            self._connection,
            collection,
            self._identity,
            mapping=self._mapping,
            is_mapped=bool(fields),
            vector=vector,
            indexed_fields=indexed_fields,
        )
        self._reader = CollectionReader(self._collection, self._mapping, location)

    @classmethod
    def from_settings(cls, settings: QdrantSettings, parts: AdapterParts) -> Self:
        """Make it from its settings, loading nothing."""
        return cls(**dict(settings), **parts.of_store)

    @property
    def sides(self) -> frozenset[Side]:  # pyright: ignore[reportIncompatibleVariableOverride] - known once it is open
        """The kinds of search it does, as far as is known without asking Qdrant."""
        if not self._collection.is_foreign:
            return self._identity.sides(None)
        return frozenset({"dense"} if self._identity.dimension is not None else ())

    async def _describe(self) -> StoreInfo:
        opened = await self._collection.opened()
        if opened.manifest is None:
            state = state_of(await self._collection.call("get_collection"), opened.vector)
            return self._info(None, documents=0, chunks=state.points, sides=self.sides, collection=state)
        state = await self._collection.state()
        return self._info(
            opened.manifest,
            documents=await self._reader.count(of_kind("document")),
            chunks=await self._reader.count(of_kind("chunk")),
            generation=None if state is None else state.generation,
        )

    async def _describe_collection(self) -> CollectionState | None:
        return await self._collection.described()

    async def _upsert(self, change: Change) -> None:
        former = await self._collection.state_or_new()
        self._identity.check_change(change, former.manifest)
        state = former.next()
        chunks, records, sources = await asyncio.to_thread(self._points, change, state)
        await self._collection.prepare(former)
        owners = {chunk.document_id for chunk in change.chunks}
        known = {document.id for document in change.documents}
        removed = set(change.removed_documents) - known
        records += await self._new_owners(owners - known, removed, state)
        steps = [
            _deletion(_ids("source", change.removed_sources)),
            *map(_upsert, _batches([*chunks, *records])),
            _deletion(_former(known | removed, state)),
            _deletion(_ids("document", removed - owners)),
            *map(_upsert, _batches(sources)),
        ]
        await self._apply(state, steps)

    async def _delete(self, document_ids: Sequence[str]) -> int:
        former = await self._collection.state_or_new()
        names = distinct(document_ids)
        if former.generation == 0 or not names:
            return 0
        state = former.next()
        count = await self._reader.count(both(of_kind("chunk"), one_of("document_id", names)))
        documents = await self._reader.retrieved((point_id("document", name) for name in names), ["source"])
        sources = {point.payload["source"] for point in documents if "source" in point.payload}
        steps = [
            _deletion(_ids("source", sources)),
            _deletion(_former(names, state)),
            _deletion(_ids("document", names)),
        ]
        await self._apply(state, steps)
        return count

    def _points(self, change: Change, state: State) -> tuple[list[Any], list[Any], list[Any]]:
        location = self._identity.location
        chunks = chunk_points(change, self._analyzer, state.generation, models(), location)
        return chunks, *other_points(change, state.generation, models(), location)

    async def _new_owners(self, names: set[str], removed: set[str], state: State) -> list[Any]:
        """Return points for the documents whose chunks come without them, save those that are there already."""
        points = await self._reader.retrieved((point_id("document", name) for name in names - removed), ["id"])
        known = {point.payload["id"] for point in points}
        return [owner_point(name, state.generation, models()) for name in sorted(names - known)]

    async def _apply(self, state: State, steps: Iterable[Any]) -> None:
        """Make a change, in as few requests as it fits into.

        The version changes with the first step and with the last: what is read in between is then of a version that
        nobody asks for again, also where the change breaks off.
        """
        begun, done = _upsert([state.point()]), _upsert([state.next().point()])
        made = [begun, *(step for step in steps if step is not None), done]
        for request in split(made, _size_of_step, most=len(made), most_size=MOST_REQUEST_BYTES):
            await self._collection.call("batch_update_points", update_operations=request, wait=True)

    async def _search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        """Search with one request, and more only if the limit cuts through equal scores, or Qdrant lacks the filter.

        Raises:
            IncompleteSearchError: Fewer than the limit match among the best 10,000, or some of these have no text; it
                carries the others.
        """
        opened = await self._collection.opened()
        if opened.is_empty:
            return ()
        query: Any
        if request.vector is not None:
            self._identity.check_query_vector(request.vector, opened.manifest or self._identity.manifest())
            name = opened.vector
            query = request.vector.tolist()
        else:
            if opened.manifest is None:
                msg = (
                    f"{self._identity.location} has no keyword search: another program filled it. Set "
                    'search.mode = "dense", or name its layout: store.qdrant.fields = "default"'
                )
                raise UnsupportedSearchError(msg)
            weights = question_weights(limited(self._analyzer.query_terms(request.text or "")))
            if not weights:
                return ()
            name, query = WORDS, models().SparseVector(indices=[*weights], values=[*weights.values()])
        found, missing = await self._reader.search(opened, request, query, name)
        if missing is not None:
            raise IncompleteSearchError(missing, found)
        return found

    async def _fetch(self, request: FetchRequest) -> Fetched:
        return await self._reader.fetch(await self._collection.opened(), request)

    async def _find_damage(self, document_ids: Collection[str] | None) -> StoredDamage:
        """Compare what is stored with its checksums; a collection that another program filled has none."""
        if (await self._collection.opened()).manifest is None:
            return StoredDamage()
        return await self._reader.find_damage(document_ids)

    async def _version(self) -> str | None:
        """Name the state of the index; ``None`` for a collection that another program filled."""
        state = await self._collection.state()
        return None if state is None else f"{state.token}:{state.generation}"

    async def _fields(self) -> Mapping[str, FieldInfo]:
        return await self._reader.fields(await self._collection.opened())

    async def _sample_fields(self) -> tuple[frozenset[str], int] | None:
        """Return the fields of the first 1,000 points of a collection that another program filled."""
        opened = await self._collection.opened()
        return None if opened.manifest else await self._reader.sample_fields(opened)

    async def _sample_records(self) -> Sequence[Mapping[str, Any]]:
        return [point.payload or {} for point in await self._collection.sample()]

    async def _vector_advice(self) -> tuple[list[str], list[str]]:
        names, sparse = await self._collection.vectors_of_others()
        unread = ", ".join(map(repr, sparse))
        notes = (
            [f"how the sparse vectors {unread} were made, so they are not read: vector search only"] if sparse else []
        )
        return notes, [f"vector = {json.dumps(name)}" for name in names[:1]] + [
            f"# or: vector = {json.dumps(name)}" for name in names[1:]
        ]

    async def _count_chunks(self, condition: Filter) -> int:
        return await self._reader.count_matching(await self._collection.opened(), condition)

    async def _sources(self) -> Mapping[str, SourceState]:
        if (await self._collection.opened()).manifest is None:
            return {}
        points = self._reader.scrolled(of_kind("source"), True)
        states = [value_of(point.payload, SOURCES) async for point in points]
        return {state.source: state for state in states}

    async def _documents_of(self, source: str) -> Mapping[str, str]:
        if (await self._collection.opened()).manifest is None:
            return {}
        wanted = both(of_kind("document"), one_of("source", distinct((source,))))
        points = self._reader.scrolled(wanted, ["id", "content_hash"])
        # One without a hash is damaged, and is read again as one with another hash is.
        return {point.payload["id"]: point.payload.get("content_hash", "") async for point in points}

    async def _document_ids(self) -> Sequence[str]:
        opened = await self._collection.opened()
        if opened.manifest is None and not opened.is_empty:
            return await self._reader.documents_of_others()
        points = self._reader.scrolled(of_kind("document"), ["id"])
        return [point.payload["id"] async for point in points]

    async def _close(self) -> None:
        await self._connection.aclose()
