"""The collection of an index: how it is connected to, with mapped errors, whose it is, and how it is made."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from secrets import token_hex
from time import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from retrieval_core.adapters.stores.qdrant.filters import HAS, IS, NUMBERS, OWN, digest
from retrieval_core.adapters.stores.qdrant.points import DENSE, GENERATION, KIND, WORDS, point_id
from retrieval_core.adapters.vendors import NO_KEY, VendorConnection
from retrieval_core.config import host_of
from retrieval_core.errors import (
    ConfigurationError,
    DimensionMismatchError,
    IndexFormatError,
    IndexNotFoundError,
    MalformedAnswerError,
    MissingExtraError,
    RetrievalError,
    ServiceError,
    StoreError,
)
from retrieval_core.ports import CollectionState, Manifest
from retrieval_core.run.threads import PoolClosedError, ThreadPool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import SecretStr
    from qdrant_client import AsyncQdrantClient

    from retrieval_core.adapters.stores.base import Identity
    from retrieval_core.adapters.stores.foreign import FieldMapping

SERVICE = "qdrant"
IN_MEMORY = ":memory:"

# The deadline of a query bounds its calls. This only keeps work without a deadline from hanging for ever.
_SILENCE_SECONDS = 300
_NEEDED_FOR = "The Qdrant store"
# Qdrant refuses most of these in a name; the others would change the address of a request.
_COLLECTION = re.compile(r'(?!\.{1,2}\Z)[^<>:"/\\|?*#%\x00-\x1f\x7f\ud800-\udfff]{1,255}')


def models() -> Any:
    """Return the classes of Qdrant's requests; whoever needs them has connected, which needs the client, too."""
    from qdrant_client import models  # noqa: PLC0415 - an extra

    return models


def connect(url: str | None, api_key: SecretStr | None, path: str | None) -> QdrantConnection:
    """Return a connection, not yet opened: to the local mode where a path is given, and else to a server.

    Raises:
        ConfigurationError: There is neither, or the address or the key cannot be used.
    """
    if path:
        return LocalQdrant(path)
    if url:
        return QdrantServer(url, api_key)
    msg = (
        "Qdrant needs the address of a server: set QDRANT_URL in the environment, or store.qdrant.url. "
        "For a trial on this machine set store.qdrant.path to a folder."
    )
    raise ConfigurationError(msg, missing_keys=("QDRANT_URL",))


def checked_collection(name: str) -> str:
    """Return the name of a collection.

    Raises:
        ConfigurationError: Qdrant allows no such name.
    """
    if _COLLECTION.fullmatch(name) is None:
        msg = f'{name!r:.120} cannot name a collection: at most 255 characters, none of < > : " / \\ | ? * # %'
        raise ConfigurationError(msg)
    return name


class QdrantServer(VendorConnection["AsyncQdrantClient"]):
    """A :class:`VendorConnection` to a server or cluster, over HTTP; where the address has no port, that is 6333."""

    service: ClassVar[str] = SERVICE
    own_url: ClassVar[str] = ""
    key_name: ClassVar[str] = "QDRANT_API_KEY"
    advice: ClassVar[Mapping[int, str]] = MappingProxyType(
        {
            401: "Check the API key.",
            403: "Check what the API key may be used for.",
            404: "Check the address of the server and the name of the collection.",
        }
    )

    def __init__(self, url: str, api_key: SecretStr | None) -> None:
        try:
            host_of(url)
        except ValueError as error:
            msg = f"the address of the Qdrant server {error}"
            raise ConfigurationError(msg) from None
        super().__init__(_NEEDED_FOR, api_key, url)

    @property
    def place(self) -> str:
        """The host of the server."""
        return f"at {self._host}"

    @property
    def has_indexes(self) -> bool:
        """A server uses them."""
        return True

    async def call(self, method: str, **arguments: Any) -> Any:
        """Call a method of the running event loop's client once.

        Raises:
            ServiceError: Qdrant refused, failed or could not be reached.
            MissingExtraError: The client is not installed.
        """
        client = await self.client()
        with self.mapped_errors():
            return await getattr(client, method)(**arguments)

    def _make(self, key: str) -> AsyncQdrantClient:
        from qdrant_client import AsyncQdrantClient  # noqa: PLC0415 - an extra

        # Checking versions would send one more request, in a thread that nobody waits for.
        return AsyncQdrantClient(
            url=self._base_url,
            api_key=None if key == NO_KEY else key,
            timeout=_SILENCE_SECONDS,
            check_compatibility=False,
        )

    async def _close(self, client: AsyncQdrantClient) -> None:
        await client.close()

    def _mapped(self, error: Exception) -> ServiceError | None:
        import httpx  # noqa: PLC0415 - loaded with the client
        from qdrant_client.common.client_exceptions import (  # noqa: PLC0415 - loaded with the client
            QdrantException,
            ResourceExhaustedResponse,
        )
        from qdrant_client.http.exceptions import (  # noqa: PLC0415 - loaded with the client
            ResponseHandlingException,
            UnexpectedResponse,
        )

        match error:
            case QdrantException():  # the other one is of a header Retry-After that holds no number
                is_told = isinstance(error, ResourceExhaustedResponse)
                return self._of_status(429, str(error), {"retry-after": str(error.retry_after_s)} if is_told else {})
            case UnexpectedResponse() if error.status_code is not None and not 200 <= error.status_code < 300:
                return self._of_status(error.status_code, _said_in(error), error.headers)
            case ResponseHandlingException(source=httpx.TimeoutException()):
                return self._silent()
            case ResponseHandlingException(source=httpx.TransportError() as cause):
                return self._unreachable(cause)
            # The client looks at what it reads only in part: an answer of another shape fails wherever it is used.
            case (
                ResponseHandlingException()
                | UnexpectedResponse()
                | AssertionError()
                | AttributeError()
                | TypeError()
                | ValueError()
            ):
                msg = f"{self._host} answered with something that is not JSON, or not what Qdrant's protocol says"
                return MalformedAnswerError(msg, SERVICE)
            case _:
                return None


class LocalQdrant:
    """The client's local mode: collections in memory, or in a folder that one process has open at a time.

    It computes in Python and blocks, so all of it runs in one thread, call after call.

    Args:
        path: A folder, or ``":memory:"``.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._client: Any = None
        self._thread = ThreadPool("qdrant-local", 1)

    @property
    def place(self) -> str:
        """The folder."""
        return "in memory" if self._path == IN_MEMORY else f"in {self._path}"

    @property
    def has_indexes(self) -> bool:
        """The local mode looks at every point."""
        return False

    async def call(self, method: str, **arguments: Any) -> Any:
        """Call a method of the client once, in its thread.

        Raises:
            StoreError: The local mode refused, or its folder cannot be opened.
            MissingExtraError: The client is not installed.
        """
        return await self._thread.run(self._call, method, arguments)

    def _call(self, method: str, arguments: Mapping[str, Any]) -> Any:
        self._client = self._client or self._opened()
        try:
            return getattr(self._client, method)(**arguments)
        except ValueError as error:
            msg = f"Qdrant's local mode {self.place} refused a request: {error}"
            raise StoreError(msg) from error

    def _opened(self) -> Any:
        try:
            from qdrant_client import QdrantClient  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise MissingExtraError(SERVICE, _NEEDED_FOR) from error
        try:
            if self._path == IN_MEMORY:
                return QdrantClient(IN_MEMORY)
            # One thread makes all calls, so nothing has to be found out of SQLite, by a connection that stays open.
            return QdrantClient(path=self._path, force_disable_check_same_thread=True)
        except (OSError, RuntimeError, ValueError) as error:
            msg = (
                f"Qdrant's local mode cannot open {self._path}: {error}. Only one process, and one store in it, can "
                "have the folder open; for more use a server (store.qdrant.url)"
            )
            raise StoreError(msg) from error

    async def aclose(self) -> None:
        """Close the client and its thread. Closing twice is fine."""
        try:
            await self._thread.run(self._close)
        except PoolClosedError:
            return
        await asyncio.to_thread(self._thread.close)

    def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


QdrantConnection: TypeAlias = QdrantServer | LocalQdrant


def _said_in(error: Any) -> object:
    """Return the message of an error response; Qdrant's has it in ``{"status": {"error": …}}``."""
    try:
        return error.structured()["status"]["error"]
    except (ValueError, KeyError, TypeError):
        return error.content.decode(errors="replace")


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
        return replace(self, generation=max(self.generation + 1, int(time() * 1e6)), token=token_hex())

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
        """Call a method of the client on this collection; see :meth:`QdrantServer.call`."""
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

    async def vectors_of_others(self) -> tuple[list[str], list[str]]:
        """Return the vectors of a collection of which the settings have to name one, and its sparse vectors."""
        parameters = (await self.call("get_collection")).config.params
        vectors = _by_name(parameters.vectors)
        is_clear = self._vector in vectors or (self._vector is None and len(vectors) == 1)
        fitting = sorted(vectors, key=lambda name: vectors[name].size != self._identity.dimension)
        return [] if is_clear else fitting, sorted(parameters.sparse_vectors or {})

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
