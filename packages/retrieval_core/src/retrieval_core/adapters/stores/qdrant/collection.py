"""The collection of an index: whether it is there, whose it is, and how it is made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from secrets import token_hex
from time import time
from typing import TYPE_CHECKING, Any

from retrieval_core.adapters.stores.qdrant.connection import models
from retrieval_core.adapters.stores.qdrant.filters import HAS, IS, NUMBERS, OWN, digest
from retrieval_core.adapters.stores.qdrant.points import DENSE, GENERATION, KIND, WORDS, point_id
from retrieval_core.errors import (
    DimensionMismatchError,
    IndexFormatError,
    IndexNotFoundError,
    RetrievalError,
    ServiceError,
    StoreError,
)
from retrieval_core.ports import CollectionState, Manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.adapters.stores.base import Identity
    from retrieval_core.adapters.stores.foreign import FieldMapping
    from retrieval_core.adapters.stores.qdrant.connection import QdrantConnection

_FORMAT = 1
_STATE = point_id("state", "")
_NOT_FOUND = 404
_SAMPLE = 10
"""Points that show whether a collection of another program can be read."""
_KEYWORDS = (KIND, HAS, "document_id", "parent_id", "source")
_INTEGERS = ("chunk_index", GENERATION)


@dataclass(frozen=True, slots=True)
class State:
    """What an index says of itself, in a point of its own.

    Attributes:
        generation: Grows with each write.
        token: A random one of the last write: two processes that write at once may count to the same number.
    """

    manifest: Manifest
    generation: int
    token: str

    def next(self) -> State:
        """Return the state of a write: of microseconds, so that none counts on from a number that was overtaken."""
        return replace(self, generation=max(self.generation + 1, int(time() * 1e6)), token=token_hex(16))

    def point(self) -> Any:
        """Return the point that keeps it."""
        kept = {
            "format": _FORMAT,
            "embedder_id": self.manifest.embedder_id,
            "dimension": self.manifest.dimension,
            "analyzer": self.manifest.analyzer,
            "vectors": list(self.manifest.vectors),
            "token": self.token,
            OWN: {"kind": "state", "generation": self.generation},
        }
        return models().PointStruct(id=_STATE, vector={}, payload=kept)


@dataclass(frozen=True, slots=True)
class Opened:
    """A collection that can be searched.

    Attributes:
        manifest: ``None`` for a collection that another program filled.
        vector: The vector that is searched; blank for the one without a name.
        is_empty: Whether nothing was in it yet, so that it is looked at again with the next call.
    """

    manifest: Manifest | None
    vector: str
    is_empty: bool = False


class QdrantCollection:
    """One collection of a server.

    Args:
        identity: What the store was opened with.
        mapping: How points that another program wrote are read.
        is_mapped: Whether the settings say so, which an index of this library does not need.
        vector: The vector of such a collection; needed where it has several.
        indexed_fields: Those that get an index for comparisons.
    """

    def __init__(
        self,
        connection: QdrantConnection,
        name: str,
        identity: Identity,
        *,
        mapping: FieldMapping,
        is_mapped: bool,
        vector: str | None,
        indexed_fields: Sequence[str],
    ) -> None:
        self._connection = connection
        self._name = name
        self._identity = identity
        self._mapping = mapping
        self._is_mapped = is_mapped
        self._vector = vector
        self._indexed_fields = indexed_fields
        self._opened: Opened | None = None
        self._is_there = False
        self._is_indexed = False

    async def call(self, method: str, **arguments: Any) -> Any:
        """Call a method of the client on this collection; see :meth:`QdrantConnection.call`."""
        return await self._connection.call(method, collection_name=self._name, **arguments)

    async def opened(self) -> Opened:
        """Return what the collection is; looked at once, for later calls to save the requests.

        Raises:
            IndexNotFoundError: There is no such collection.
            IndexFormatError: Another program filled it, and the mapped fields hold no text, or its vector is not
                named; or fields are mapped of an index of this library.
            EmbedderMismatchError: It was built with another embedder.
            DimensionMismatchError: Its vectors have another length.
        """
        if self._opened is not None:
            return self._opened
        state = await self.state()
        if state is not None and self._is_mapped:
            msg = (
                f"{self._identity.location} is an index of this library; leave {self._mapping.section} out, "
                "which is for collections that other programs filled"
            )
            raise IndexFormatError(msg)
        opened = await self._foreign() if state is None else Opened(state.manifest, DENSE)
        self._opened = None if opened.is_empty else opened
        return opened

    @property
    def is_foreign(self) -> bool:
        """Whether another program filled it, as far as is known before it is opened."""
        return self._is_mapped if self._opened is None else self._opened.manifest is None

    async def sample(self) -> list[Any]:
        """Return some points of a collection that another program filled; none of an index of this library."""
        return [] if await self._state_points() else await self._some_points()

    async def described(self) -> CollectionState | None:
        """Return Qdrant's report on a collection that another program filled; ``None`` for an index of this library.

        Raises:
            IndexNotFoundError: There is no such collection.
            IndexFormatError: It has several vectors, and the settings name none of them.
        """
        if await self._state_points():
            return None
        info = await self.call("get_collection")
        vectors = _by_name(info.config.params.vectors)
        return state_of(info, self._searched(vectors) if vectors else "")

    async def state(self) -> State | None:
        """Return what the index says of itself now; ``None`` for a collection that another program filled.

        Raises:
            IndexNotFoundError: There is no such collection.
            IndexFormatError: It is of another version of this library, or its words were analysed otherwise.
            EmbedderMismatchError: It was built with another embedder.
        """
        found = await self._state_points()
        if not found:
            return None
        state = self._read(found[0].payload)
        self._identity.check_manifest(state.manifest)
        return state

    async def _state_points(self) -> list[Any]:
        """Return the point of the state, with one request where the collection was there the last time."""
        if self._is_there:
            try:
                return await self.call("retrieve", ids=[_STATE], with_payload=True)
            except ServiceError as error:
                if error.status != _NOT_FOUND:
                    raise
        self._is_there = await self.call("collection_exists")
        if not self._is_there:
            self._opened = None
            raise self._not_found()
        return await self.call("retrieve", ids=[_STATE], with_payload=True)

    async def state_or_new(self) -> State:
        """Return what the index says of itself, before a write; a collection is not yet made.

        Raises:
            StoreError: Another program filled it.
        """
        try:
            state = await self.state()
        except IndexNotFoundError:
            state = None
        else:
            if state is None and (await self.call("get_collection")).points_count:
                msg = (
                    f"{self._identity.location} was filled by another program and is only read; "
                    "name another collection (store.qdrant.collection) to index files"
                )
                raise StoreError(msg)
        return state or State(self._identity.manifest(), 0, "")

    async def prepare(self, state: State) -> None:
        """Make the collection and its indexes, where they are not there yet.

        Raises:
            IndexFormatError: An empty collection of the name keeps other vectors.
        """
        if state.generation == 0:
            await self._make(state.manifest)
            self._is_there = True
        if self._connection.has_indexes and not self._is_indexed:
            schemas = self._schemas()
            there: dict[str, Any] = (await self.call("get_collection")).payload_schema or {}
            for key in schemas.keys() - there.keys():
                await self.call("create_payload_index", field_name=key, field_schema=schemas[key], wait=True)
            self._is_indexed = True

    def _schemas(self) -> dict[str, Any]:
        """Return the payload indexes, by key.

        Qdrant links the vectors of points with the same value in its graph, so that a search with a filter finds its
        way; that takes time, and is done for what filters of users ask for.
        """
        keyword = models().KeywordIndexParams(type="keyword", enable_hnsw=False)
        integer = models().IntegerIndexParams(type="integer", range=True, lookup=False, enable_hnsw=False)
        number = models().FloatIndexParams(type="float")
        return {
            **dict.fromkeys(_KEYWORDS, keyword),
            **dict.fromkeys(_INTEGERS, integer),
            IS: models().KeywordIndexParams(type="keyword"),
            **{f"{NUMBERS}.{digest(path)}": number for path in self._indexed_fields},
        }

    async def _make(self, manifest: Manifest) -> None:
        if not await self.call("collection_exists"):
            try:
                await self.call("create_collection", **self._parameters(manifest))
            except RetrievalError:
                if not await self.call("collection_exists"):  # another process may have made it meanwhile
                    raise
        there = (await self.call("get_collection")).config.params
        wanted = self._parameters(manifest)
        are_same = _sizes(there.vectors) == _sizes(wanted["vectors_config"]) and WORDS in (there.sparse_vectors or {})
        if not are_same:
            msg = (
                f"{self._identity.location} is empty, and made for other vectors than this index has; "
                "delete it, or name another collection (store.qdrant.collection)"
            )
            raise IndexFormatError(msg)

    def _parameters(self, manifest: Manifest) -> dict[str, Any]:
        dense = [] if manifest.dimension is None else [DENSE]
        cosine = models().Distance.COSINE
        return {
            "vectors_config": {name: models().VectorParams(size=manifest.dimension, distance=cosine) for name in dense},
            "sparse_vectors_config": {WORDS: models().SparseVectorParams(modifier=models().Modifier.IDF)},
        }

    async def _foreign(self) -> Opened:
        info = await self.call("get_collection")
        vectors = _by_name(info.config.params.vectors)
        if not info.points_count:
            is_clear = self._vector in vectors or (self._vector is None and len(vectors) == 1)
            return Opened(None, self._checked_vector(vectors) if is_clear else "", is_empty=True)
        name = self._checked_vector(vectors)
        points = await self._some_points()
        if any(OWN in (point.payload or {}) for point in points):
            msg = (
                f"{self._identity.location} is an index of this library, but says nothing of itself. If another "
                "process is creating it, try again. Otherwise build the index anew, in another collection"
            )
            raise IndexFormatError(msg)
        self._mapping.check((str(point.id), point.payload or {}) for point in points)
        return Opened(None, name)

    async def _some_points(self) -> list[Any]:
        points, _ = await self.call("scroll", limit=_SAMPLE, with_payload=True)
        return points

    def _searched(self, vectors: Mapping[str, Any]) -> str:
        name = next(iter(vectors), "") if self._vector is None and len(vectors) == 1 else self._vector
        if name is None or name not in vectors:
            there = ", ".join(f"{one!r}" for one in vectors) or "none"
            given = "" if self._vector is None else f", and store.qdrant.vector is {self._vector!r}"
            msg = f"{self._identity.location} has the vectors {there}{given}; set store.qdrant.vector to one of them"
            raise IndexFormatError(msg)
        return name

    def _checked_vector(self, vectors: Mapping[str, Any]) -> str:
        name = self._searched(vectors)
        parameters = vectors[name]
        if parameters.distance != models().Distance.COSINE:
            msg = (
                f"{self._identity.location} compares its vectors by {parameters.distance.value}, which gives no "
                "cosines; this library reads collections with the distance Cosine"
            )
            raise IndexFormatError(msg)
        if self._identity.dimension is not None and parameters.size != self._identity.dimension:
            raise DimensionMismatchError(parameters.size, self._identity.dimension, self._identity.location)
        return name

    def _read(self, payload: Mapping[str, Any]) -> State:
        try:
            if payload["format"] != _FORMAT:
                msg = (
                    f"{self._identity.location} has format {payload['format']!r}, and this version reads {_FORMAT}; "
                    "index the documents anew, in another collection"
                )
                raise IndexFormatError(msg)
            manifest = Manifest(
                payload["embedder_id"],
                payload["dimension"],
                payload["analyzer"],
                vectors=tuple(payload["vectors"]),
            )
            return State(manifest, int(payload[OWN]["generation"]), payload["token"])
        except (KeyError, TypeError, ValueError) as error:
            msg = f"{self._identity.location}: what it says of itself is damaged ({error!r:.80}); build the index anew"
            raise IndexFormatError(msg) from error

    def _not_found(self) -> IndexNotFoundError:
        return IndexNotFoundError(f"{self._identity.location}: there is no index; make one with: retrieval index PATH…")


def state_of(info: Any, vector: str) -> CollectionState:
    """Return Qdrant's report on a collection, with the size and distance of one of its vectors."""
    parameters = _by_name(info.config.params.vectors).get(vector)
    distance = "Cosine" if parameters is None else str(parameters.distance.value)
    status = str(info.status.value)
    return CollectionState(
        vector_size=0 if parameters is None else parameters.size,
        distance="Euclidean" if distance == "Euclid" else distance,
        points=info.points_count or 0,
        indexed_vectors=info.indexed_vectors_count or 0,
        status="green" if status == "green" else "red" if status == "red" else "yellow",
    )


def _by_name(vectors: Any) -> dict[str, Any]:
    """Return the parameters of a collection's vectors; the one without a name has a blank one."""
    if vectors is None:
        return {}
    return dict(vectors) if hasattr(vectors, "keys") else {"": vectors}


def _sizes(vectors: Any) -> dict[str, tuple[int, Any]]:
    return {name: (one.size, one.distance) for name, one in _by_name(vectors).items()}
