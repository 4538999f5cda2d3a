"""The port for stores, which keep an index."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import asynccontextmanager, suppress
from itertools import islice
from math import fsum, isfinite
from operator import attrgetter
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NoReturn,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    runtime_checkable,
)

from retrieval_core.errors import (
    IncompleteSearchError,
    IndexNotFoundError,
    InvalidParameterError,
    NotYetEmbeddedError,
    SearchError,
    StoreError,
    UnsupportedError,
    UnsupportedFilterError,
    checked_count,
)
from retrieval_core.ports.index_values import Candidate, Fetched, SearchRequest, TermCounts
from retrieval_core.ports.plugin import Wrapper, are, call_plugin, calls_plugin, check_members
from retrieval_core.ports.transformers import are_candidates
from retrieval_core.types.filters import OPERATORS, operators_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from retrieval_core.ports.index_values import (
        Change,
        CollectionState,
        FetchRequest,
        FieldInfo,
        Side,
        SourceState,
        StoredDamage,
        StoreInfo,
    )
    from retrieval_core.types import JSON, Chunk
    from retrieval_core.types.filters import Filter

T = TypeVar("T")
COPY_MARKER = ".retrieval/unfinished-copy"
"""ID and source of the document that marks an index as a copy in the making; no list of documents has it."""

Capability: TypeAlias = Literal[
    "add_vectors",
    "count_chunks",
    "count_terms",
    "describe_collection",
    "document_ids",
    "documents_of",
    "documents_with",
    "fields",
    "find_damage",
    "optimize",
    "remember",
    "repair",
    "sample_fields",
    "sample_records",
    "search_both",
    "sources",
    "unembedded",
    "version",
]
"""Names of the optional methods of a store."""
_OPTIONAL: tuple[Capability, ...] = get_args(Capability)
_CHECKED = ("search", "search_both", "fetch", "count_terms", "document_ids", "documents_with")
"""The methods whose answers are checked, for objects without the base class too."""
_REQUIRED = ("describe", "upsert", "delete", "search", "fetch")
_READING = frozenset({"search", "fetch", "count_terms", "version", "_search", "_fetch", "_count_terms", "_version"})
_CHUNK_ID, _SCORE = attrgetter("chunk_id"), attrgetter("score")


@runtime_checkable
class Versioned(Protocol):
    """An optional protocol of plug-ins, such as a transformer over a graph: a version of what they know."""

    async def version(self) -> str | None:
        """Name the state of what the plug-in knows; ``None`` if it has none yet."""
        ...


class HeldIndex(Protocol):
    """One version of a small index in memory: the same results and errors as the store's methods, without waiting.

    The methods compute only: no files, no network, no threads. Several threads may call them.
    """

    @property
    def version(self) -> str:
        """The version of the index, as :meth:`Store.version` returns it."""
        ...

    def preparation(self, condition: Filter | None) -> Callable[[], object] | None:
        """Return work of many milliseconds that must be done before a filter is used, in a thread.

        Returns:
            ``None`` if the filter can be used at once, as nearly always.
        """
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

    def find_terms(
        self, terms: Iterable[str], chunks: Sequence[Chunk], analyzer_id: str
    ) -> Sequence[frozenset[str]] | None:
        """Return which of some terms each chunk contains.

        Args:
            analyzer_id: Names the analyzer that made the terms.

        Returns:
            ``None`` if the terms of the index come from another analyzer, or a chunk is not exactly one of the index.
        """
        ...


class Store(ABC):
    """Keeps chunks, their vectors and their words.

    A subclass defines a coroutine method with an underscore for each method here: ``_describe``, ``_upsert``,
    ``_delete``, ``_search``, ``_fetch``, and ``_close`` if it has something to close. The public methods check their
    arguments, that the store is open, and what comes back. Optional methods, such as :meth:`version`, work the same
    way; :attr:`capabilities` has those that the subclass defines, and the others raise :class:`UnsupportedError`.

    Optional methods that read return nothing if there is no index yet. ``retrieval_core.testing.store_kit`` has the
    tests that each store must pass.

    Attributes:
        capabilities: Names of the optional methods that the store has.
        sides: The kinds of search that it does, as far as is known without reading the index.
        filter_operators: Those that it evaluates exactly as :func:`retrieval_core.types.filters.matches`.
        is_costly: Whether each candidate costs time or money. A search of one side then requests no more candidates
            than can become results.
        keeps_documents: Whether it keeps texts of whole documents and sections, and not only chunks.
        has_claims: Whether :meth:`claimed` keeps other processes away.
    """

    capabilities: frozenset[Capability] = frozenset()
    sides: frozenset[Side] = frozenset({"dense", "lexical"})
    filter_operators: frozenset[str] = OPERATORS
    is_costly: bool = False
    keeps_documents: bool = True
    has_claims: bool = False
    _closed = False
    _can_hold = False
    _vector_size: int | None = None
    """Components of the vectors in an index without a manifest."""
    _known_fields: tuple[str, Mapping[str, FieldInfo]] | None = None

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        for name in _REQUIRED:
            if _is_defined(cls, name) and getattr(getattr(cls, f"_{name}"), "__isabstractmethod__", False):
                setattr(cls, f"_{name}", None)  # what is defined by its public name needs no other one
        if "capabilities" not in vars(cls):
            cls.capabilities = frozenset(name for name in _OPTIONAL if _is_defined(cls, name, f"_{name}"))
        # A subclass that searches in its own way must not be bypassed.
        order = [vars(kind).keys() for kind in cls.__mro__]
        holder = next(place for place, names in enumerate(order) if "_held" in names)
        cls._can_hold = cls._held is not Store._held and not any(names & _READING for names in order[:holder])

    @property
    def location(self) -> str:
        """Readable location, for messages."""
        return type(self).__name__

    async def describe(self) -> StoreInfo:
        """Return the store's contents and abilities.

        Raises:
            IndexNotFoundError: Nothing was written yet, to a store on a disk.
            StoreError: The index cannot be opened.
        """
        self._check_open()
        return await self._describe()

    async def upsert(self, change: Change) -> None:
        """Apply a change durably.

        Raises:
            InvalidParameterError: The change cannot be stored; the message has the reason.
            DimensionMismatchError: The vectors have another dimension than the index.
            EmbedderMismatchError: The index was built with another embedder than the store was opened with.
            IndexBusyError: Another process wrote for longer than the store waits.
            StoreError: The index cannot be written.
        """
        self._check_open()
        check_change(change)
        await self._upsert(change)

    async def delete(self, document_ids: Sequence[str]) -> int:
        """Remove documents with all that belongs to them, and return how many chunks were removed.

        The catalog's states of their sources are removed too, so that indexing these again brings the documents back.

        Raises:
            IndexBusyError: Another process wrote for longer than the store waits.
            StoreError: The index cannot be written.
        """
        return await self._read_or(0, self._delete, document_ids)

    @calls_plugin
    async def search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        """Return the best candidates, best first; equal scores are ordered by chunk id.

        Raises:
            IncompleteSearchError: Some of the index could not be searched; carries the candidates found.
            InvalidParameterError: The request is not well formed.
            UnsupportedFilterError: The filter has an operator that the store does not declare.
            DimensionMismatchError: The vector has another dimension than the index.
            EmbedderMismatchError: The index was built with another embedder than the store was opened with.
            IndexNotFoundError: Nothing was written yet, to a store on a disk.
            SearchError: The store returned something that is no result of a search.
            StoreError: The index cannot be read.
        """
        self._check_open()
        check_search(request, self.filter_operators)
        return await _candidates(self._search, request)

    @calls_plugin
    async def fetch(self, request: FetchRequest) -> Fetched:
        """Return those of the requested records that exist.

        Raises:
            UnsupportedFilterError: The filter has an operator that the store does not declare.
            IndexNotFoundError: Nothing was written yet, to a store on a disk.
            StoreError: The index cannot be read.
        """
        self._check_open()
        check_filter(request.filter, self.filter_operators)
        return _expect(await call_plugin(self._fetch, request), Fetched)

    async def probe(self) -> str:
        """Describe the index and search each side of it once, as either may be damaged; return a sentence about it.

        ``retrieval doctor`` calls it.

        Raises:
            IndexNotFoundError: Nothing was written yet, to a store on a disk.
            StoreError: The index cannot be read.
        """
        info = await self.describe()
        manifest = info.manifest
        if manifest is not None and "lexical" in info.sides:
            await self.search(SearchRequest(1, text="word"))
        dimension = self._vector_size if manifest is None else manifest.dimension
        if dimension is not None:
            import numpy as np  # noqa: PLC0415 - slow to load

            with suppress(NotYetEmbeddedError):  # an index of another dimension refuses any vector
                await self.search(SearchRequest(1, vector=np.full(dimension, dimension**-0.5, dtype=np.float32)))
        waiting = f", {info.unembedded:,} not embedded yet" if info.unembedded else ""
        unused = f", unused vectors: {', '.join(manifest.vectors)}" if manifest is not None and manifest.vectors else ""
        count = info.counted_documents
        documents = "" if count is None else f"{count:,} document{'s' * (count != 1)}, "
        chunks = f"{info.chunks:,} chunk{'s' * (info.chunks != 1)}"
        return f"{info.location}: {documents}{chunks}{waiting}{unused}"

    async def aclose(self) -> None:
        """Close files, connections and threads; further calls are errors. Closing twice is fine."""
        self._closed = True
        await self._close()

    def held(self) -> HeldIndex | None:
        """Return the current version of a small index in memory, within microseconds.

        Returns:
            ``None`` if the index is too large, not loaded yet, or was written to since.
        """
        return self._held() if self._is_as_built else None

    async def hold(self) -> None:
        """Load the index into memory, if it is small and the store can do so, so that :meth:`held` returns it.

        Raises:
            StoreError: The index can't be read.
        """
        if self._is_as_built:
            await self._read_or(None, self._hold)

    async def version(self) -> str | None:
        """Name the state of the index: every write, by whatever process, changes it, and another index has another.

        Returns:
            ``None`` before the first write.

        Raises:
            StoreError: The index cannot be read.
        """
        return await self._read_or(None, self._version)

    @calls_plugin
    async def document_ids(self) -> Sequence[str]:
        """Return the id of each document, once, in any order; documents that have chunks only are included.

        Raises:
            IndexNotFoundError: Nothing was written yet, to a store on a disk.
            StoreError: The index cannot be read, or another program filled it.
        """
        self._check_open()
        ids = await call_plugin(self._document_ids)
        if not are(ids, lambda name: isinstance(name, str)):
            raise _refused(f"expected a list of ids, got {ids!r:.80}")
        return [name for name in ids if name != COPY_MARKER] if COPY_MARKER in ids else ids

    @calls_plugin
    async def documents_with(self, texts: Sequence[Collection[str]], condition: Filter | None = None) -> Sequence[str]:
        """Return the ids of documents that may contain at least one text of each group, in any order.

        A document that contains them is never missing. Others may be there: they are read to find out.

        Args:
            texts: Groups of texts with at least three characters each, whose case is ignored. With no group, all
                documents may contain them.
            condition: Documents of which no chunk passes this filter are treated as absent.

        Raises:
            UnsupportedFilterError: The filter has an operator that the store does not declare.
            IndexNotFoundError: Nothing was written yet, to a store on a disk.
            StoreError: The index cannot be read.
        """
        self._check_open()
        check_filter(condition, self.filter_operators)
        ids = await call_plugin(self._documents_with, texts, condition)
        if not are(ids, lambda name: isinstance(name, str)):
            raise _refused(f"expected a list of ids, got {ids!r:.80}")
        return ids

    async def sources(self, names: Collection[str] | None = None) -> Mapping[str, SourceState]:
        """Return the states of sources by their names, so that only changed files are indexed again.

        Args:
            names: Names of sources, which only stores with claims take: a write doesn't read all. Default: all.
        """
        return await self._read_or({}, self._sources, *(() if names is None else (names,)))

    async def documents_of(self, source: str) -> Mapping[str, str]:
        """Return the content hashes of a source's documents, by document id."""
        return await self._read_or({}, self._documents_of, source)

    async def unembedded(self) -> Mapping[str, str]:
        """Return the content hash of each chunk that has no vector yet, by its id, in the order they were written.

        Raises:
            EmbedderMismatchError: The index was built with another embedder than the store was opened with.
            StoreError: The index cannot be read.
        """
        return await self._read_or({}, self._unembedded)

    async def add_vectors(self, change: Change) -> int:
        """Add the vectors of chunks that were written without, all of them or none, and return how many got theirs.

        Chunks are skipped if they already have a vector, no longer exist, or have a new indexed text. Keyword search
        finds chunks without vectors. A search by vector raises :class:`NotYetEmbeddedError`, with the candidates found,
        while chunks that pass the filter have none.

        Args:
            change: Has chunks, and their ``vectors``, and nothing else.

        Raises:
            RetrievalError: As :meth:`upsert`.
        """
        self._check_open()
        check_change(change)
        return await self._read_or(0, self._add_vectors, change)

    async def count_chunks(self, condition: Filter) -> int:
        """Return how many chunks pass a filter; 0 before the first write.

        Raises:
            UnsupportedFilterError: The filter has an operator that the store does not declare.
            StoreError: The index cannot be read.
        """
        check_filter(condition, self.filter_operators)
        return await self._read_or(0, self._count_chunks, condition)

    @calls_plugin
    async def count_terms(self, terms: Sequence[str], condition: Filter | None = None) -> TermCounts:
        """Return how many chunks pass a filter, and how many of these contain each term; 0 before the first write.

        Args:
            terms: As the store's analyzer makes them.
            condition: Chunks that do not pass are treated as absent.

        Raises:
            UnsupportedFilterError: The filter has an operator that the store does not declare.
            StoreError: The index cannot be read.
        """
        check_filter(condition, self.filter_operators)
        nothing = TermCounts(0, dict.fromkeys(terms, 0))
        return _expect(await self._read_or(nothing, call_plugin, self._count_terms, terms, condition), TermCounts)

    async def fields(self, limit: int) -> Mapping[str, FieldInfo]:
        """Return the fields of all chunks by their paths, as :func:`retrieval_core.types.filters.lookup` finds them.

        Nested fields have dotted paths; those that every chunk has, such as ``source``, are included. All chunks are
        read, once for each version.

        Args:
            limit: The most fields to return, at least 1.

        Returns:
            The fields that most chunks have first, and then by name; nothing before the first write.

        Raises:
            InvalidParameterError: The limit is less than 1.
            StoreError: The index cannot be read.
        """
        checked_count(limit, "limit")
        self._check_open()
        version = await self.version() if "version" in self.capabilities else None
        known = self._known_fields
        if known is None or version is None or known[0] != version:
            known = self._known_fields = version or "", await self._read_or({}, self._fields)
        return dict(islice(known[1].items(), limit))

    async def sample_fields(self) -> tuple[frozenset[str], int] | None:
        """Return the paths of the fields of some chunks, and how many chunks were looked at.

        Returns:
            ``None`` for an index of which :meth:`fields` returns all.

        Raises:
            StoreError: The index cannot be read.
            ServiceError: The service failed.
        """
        self._check_open()
        return await self._sample_fields()

    async def sample_records(self) -> Sequence[Mapping[str, JSON]]:
        """Return some records of an index that another program filled, so that a mapping can be proposed."""
        self._check_open()
        return await self._sample_records()

    @calls_plugin
    async def search_both(self, request: SearchRequest) -> tuple[Candidate, ...]:
        """Return the best candidates of native hybrid search, best first, with the store's own score.

        Args:
            request: Has both ``vector`` and ``text``.

        Raises:
            InvalidParameterError: One of them is missing, or the request is not well formed otherwise.
            RetrievalError: As :meth:`search`.
        """
        self._check_open()
        if request.vector is None or request.text is None:
            msg = "hybrid search needs a vector and a text"
            raise InvalidParameterError(msg)
        checked_count(request.limit, "limit")
        check_filter(request.filter, self.filter_operators)
        return await _candidates(self._search_both, request)

    async def describe_collection(self) -> CollectionState | None:
        """Return the service's report on the collection, even if it can't be searched.

        Returns:
            ``None`` for an index of this library.

        Raises:
            IndexNotFoundError: There is no such collection.
            ServiceError: The service failed.
        """
        self._check_open()
        return await self._describe_collection()

    async def optimize(self) -> None:
        """Arrange what many writes have left for faster searches; what is found stays the same.

        Raises:
            IndexBusyError: Another process wrote for longer than the store waits.
            StoreError: The index cannot be written.
        """
        await self._read_or(None, self._optimize)

    async def remember(self, settings: str) -> None:
        """Keep the settings of the index in it; nothing happens if there is none yet.

        Raises:
            IndexBusyError: Another process wrote for longer than the store waits.
            StoreError: The index cannot be written.
            OSError: The folder of the index cannot be written.
        """
        await self._read_or(None, self._remember, settings)

    @asynccontextmanager
    async def claimed(self, work: str, *, is_patient: bool = True) -> AsyncGenerator[bool]:  # noqa: ARG002
        """Keep other processes from the same work on this index while the context lasts; it ends with the process.

        A store without claims keeps nobody away.

        Args:
            work: Names the work.
            is_patient: Whether to wait while another process does it.

        Yields:
            Whether the work is this process's; false only if another one does it, and this one doesn't wait.

        Raises:
            IndexBusyError: Another process does it for longer than the store waits.
            RetrievalError: The store can't be reached.
        """
        self._check_open()
        yield True

    async def find_damage(self, document_ids: Collection[str] | None = None) -> StoredDamage:
        """Compare what is stored with the checksums that were written with it. Nothing is written.

        Args:
            document_ids: Ids of the documents to check. Default: all.

        Raises:
            IndexNotFoundError: Nothing was written yet, to a store on a disk.
            StoreError: The index cannot be read.
        """
        self._check_open()
        return await self._find_damage(document_ids)

    async def repair(self) -> None:
        """Build what the index derives from its chunks again; damaged records are for the caller to write again.

        Raises:
            IndexBusyError: Another process wrote for longer than the store waits.
            StoreError: The index cannot be written.
        """
        await self._read_or(None, self._repair)

    @abstractmethod
    async def _describe(self) -> StoreInfo: ...

    @abstractmethod
    async def _upsert(self, change: Change) -> None: ...

    @abstractmethod
    async def _delete(self, document_ids: Sequence[str]) -> int: ...

    @abstractmethod
    async def _search(self, request: SearchRequest) -> tuple[Candidate, ...]: ...

    @abstractmethod
    async def _fetch(self, request: FetchRequest) -> Fetched: ...

    async def _close(self) -> None:  # noqa: B027 - a store in memory has nothing to close
        """Close files, connections and threads; may be called again."""

    def _held(self) -> HeldIndex | None:
        return None

    async def _hold(self) -> None:  # noqa: B027 - most stores have nothing to load
        pass

    async def _version(self) -> str | None:
        self._lacks("version")

    async def _document_ids(self) -> Sequence[str]:
        self._lacks("document_ids")

    async def _documents_with(self, texts: Sequence[Collection[str]], condition: Filter | None) -> Sequence[str]:
        self._lacks("documents_with", texts, condition)

    async def _sources(self) -> Mapping[str, SourceState]:
        self._lacks("sources")

    async def _documents_of(self, source: str) -> Mapping[str, str]:
        self._lacks("documents_of", source)

    async def _unembedded(self) -> Mapping[str, str]:
        self._lacks("unembedded")

    async def _add_vectors(self, change: Change) -> int:
        self._lacks("add_vectors", change)

    async def _count_chunks(self, condition: Filter) -> int:
        self._lacks("count_chunks", condition)

    async def _count_terms(self, terms: Sequence[str], condition: Filter | None) -> TermCounts:
        self._lacks("count_terms", terms, condition)

    async def _fields(self) -> Mapping[str, FieldInfo]:
        """Return the fields of all chunks by their paths, those of most chunks first."""
        self._lacks("fields")

    async def _sample_fields(self) -> tuple[frozenset[str], int] | None:
        self._lacks("sample_fields")

    async def _sample_records(self) -> Sequence[Mapping[str, JSON]]:
        self._lacks("sample_records")

    async def _search_both(self, request: SearchRequest) -> tuple[Candidate, ...]:
        self._lacks("search_both", request)

    async def _describe_collection(self) -> CollectionState | None:
        self._lacks("describe_collection")

    async def _optimize(self) -> None:
        self._lacks("optimize")

    async def _remember(self, settings: str) -> None:
        self._lacks("remember", settings)

    async def _find_damage(self, document_ids: Collection[str] | None) -> StoredDamage:
        self._lacks("find_damage", document_ids)

    async def _repair(self) -> None:
        self._lacks("repair")

    @property
    def _is_as_built(self) -> bool:
        """Whether what the class holds in memory is what its methods read."""
        return self._can_hold and not self._closed and not vars(self).keys() & _READING

    def _check_open(self) -> None:
        if self._closed:
            msg = f"{self.location}: the index is closed; open it again"
            raise StoreError(msg)

    def _lacks(self, capability: Capability, *_: object) -> NoReturn:
        msg = f"{type(self).__name__} has no {capability}(), see Store.capabilities"
        raise UnsupportedError(msg)

    async def _read_or(self, nothing: T, function: Callable[..., Awaitable[T]], *arguments: object) -> T:
        """Return what a function returns; ``nothing`` before the first write."""
        self._check_open()
        try:
            return await function(*arguments)
        except IndexNotFoundError:
            return nothing


def as_store(given: object) -> Store:
    """Return an object as a store.

    An instance of :class:`Store` is returned as it is, unless it has its own version of a method that checks. Any other
    object with the public methods of a store is wrapped. The wrapper has all attributes of the object, which is its
    attribute ``wrapped``.

    Raises:
        InvalidParameterError: It has no ``describe()``, ``search()`` or ``fetch()``, or is a class.
    """
    if isinstance(given, Store) and not any(
        getattr(type(given), name) is not getattr(Store, name) or name in vars(given) for name in _CHECKED
    ):
        return given
    advice = "see retrieval_core.ports.Store; a built-in store is chosen by store.kind in the configuration"
    check_members(given, ("describe", "search", "fetch"), "store", advice)
    kind = type(given)
    has = {*dir(given)}
    has |= {name for name in {*dir(Store)} - has if hasattr(given, name)}  # what it passes on from another object
    # A store that passes on the methods of another one may find something else than that one's held index.
    not_its_own = {"held", "hold"} - {*dir(kind)}
    own = {
        f"_{name}" if name in _CHECKED else name: property(attrgetter(f"wrapped.{name}"))
        for name in has
        if not name.startswith("_") and name not in {"wrapped", *not_its_own}
    }
    if not isinstance(getattr(given, "capabilities", None), (set, frozenset, list, tuple)):
        own.pop("capabilities", None)  # it means something else; then the methods that it has count
    names: dict[str, Any] = {**own, "__module__": kind.__module__, "__doc__": kind.__doc__}
    for name in {*_REQUIRED} - {*_CHECKED}:
        names.setdefault(name, _missing(name))
    return type(kind.__name__, (_Wrapper,), names)(given)


def _is_defined(kind: type[Store], *names: str) -> bool:
    """Return whether a class defines a method of a store in its own way."""
    return any(getattr(kind, name) is not getattr(Store, name) for name in names)


class _Wrapper(Wrapper, Store):
    """The methods of another object, as those of a store."""


def _missing(name: str) -> Callable[..., Awaitable[Any]]:
    async def method(self: _Wrapper, *_: object) -> NoReturn:
        msg = f"{type(self).__name__} has no {name}()"
        raise UnsupportedError(msg)

    return method


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


def _check_ids(kind: str, ids: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in ids:
        if name in seen:
            msg = f"the {kind} id {name!r:.80} occurs twice in one change"
            raise InvalidParameterError(msg)
        seen.add(name)


def check_search(request: SearchRequest, operators: frozenset[str] = OPERATORS) -> None:
    """Refuse a search that is not well formed.

    Raises:
        InvalidParameterError: Not exactly one of vector and text was given, or the limit is below 1.
        UnsupportedFilterError: The filter has an operator that is not among these.
    """
    if (request.vector is None) == (request.text is None):
        msg = "a search takes either a vector or a text"
        raise InvalidParameterError(msg)
    checked_count(request.limit, "limit")
    check_filter(request.filter, operators)


def check_filter(condition: Filter | None, operators: frozenset[str]) -> None:
    """Refuse a filter with operators that a store lacks.

    Raises:
        UnsupportedFilterError: It has one that is not among these.
    """
    if condition is not None and (unknown := operators_of(condition) - operators):
        msg = f"the store has no operator {', '.join(sorted(unknown))}"
        raise UnsupportedFilterError(msg)


async def _candidates(
    search: Callable[[SearchRequest], Awaitable[object]], request: SearchRequest
) -> tuple[Candidate, ...]:
    """Return what a search found; also what an incomplete one found is checked."""
    try:
        return check_candidates(await call_plugin(search, request))
    except IncompleteSearchError as error:
        error.found = check_candidates(error.found)
        raise


def check_candidates(answer: object) -> tuple[Candidate, ...]:
    """Return what a search found.

    Raises:
        SearchError: These are no candidates.
    """
    if isinstance(answer, (tuple, list)):
        found = cast("Sequence[Candidate]", answer)
        try:  # without a call for each of them
            if (
                {Candidate}.issuperset(map(type, found))
                and {str}.issuperset(map(type, map(_CHUNK_ID, found)))
                and {float}.issuperset(map(type, map(_SCORE, found)))
                and isfinite(fsum(map(_SCORE, found)))
                and not [one for one in found if one.chunk is not None and one.chunk.id != one.chunk_id]
            ):
                return tuple(found)
        except (AttributeError, TypeError, ValueError, OverflowError):
            pass
        if are_candidates(found):
            return tuple(found)
    raise _refused(f"it gave {answer!r:.80}, which are no candidates")


def _expect(answer: object, kind: type[T]) -> T:
    if isinstance(answer, kind):
        return answer
    raise _refused(f"it gave {answer!r:.80}, which is no {kind.__name__}")


def _refused(problem: str) -> SearchError:
    return SearchError(f"the answer of the store cannot be used: {problem}")
