"""The indexes that a process serves: opened, and their models loaded, in the background."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from retrieval_core.errors import EmbeddingError, InvalidParameterError, NotFoundError, RetrievalError
from retrieval_core.run.clock import SystemClock
from retrieval_core.run.sync import SingleFlight
from retrieval_core.service.redaction import redactor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.index.federated import FederatedIndex
    from retrieval_core.index.index import Index
    from retrieval_core.ports import Embedder, Store
    from retrieval_core.run.clock import Clock
    from retrieval_core.run.observe import Observer
    from retrieval_core.service.loading import LoadingEmbedder
    from retrieval_core.service.redaction import Redact
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import RetrievalResult, StageRecord
    from retrieval_core.types.filters import Filter

T = TypeVar("T")
logger = logging.getLogger(__name__)

WARM_UP = "warmup"
"""One word, which is in no language: asking for the language of *up* loads a detector that takes 37 MB."""
WARM_UP_AFTER = 0.2
"""Seconds that the first search has the processors for itself, if it comes as soon as the model is loaded."""
MOST_TENANTS = 64
"""Filters of callers for which it is cached what an index contains: reading that takes a while."""
_UNFIT = re.compile(r"[\s:]")
"""What the name of an index must not contain to be searched with others: the name and a colon then precede IDs."""
_LISTENER: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


class ServedIndex:
    """One index of a service. It need not exist yet.

    Args:
        name: Its name in requests.
        config: Its settings. A service raises errors, and keeps hits without a score.
        description: What its documents are about, in one sentence.
        base_url: Prefix of the addresses of documents that have no address.
        roots: Folders whose files may be indexed. Default: the folder that names of documents are relative to.
        wait_seconds: Seconds that a search waits for a loading model before it falls back to keyword search.
        embedder: Your own embedder. Default: the configured one.
        open_index: Function that opens the index. Default: :func:`retrieval_core.open_index`, whose arguments it takes.
        observer: Receives the events of each query.
        clock: Measures the wait for the model. Default: the system's clock.
    """

    def __init__(
        self,
        name: str,
        config: RetrievalConfig,
        *,
        description: str = "",
        base_url: str | None = None,
        roots: Sequence[Path] = (),
        wait_seconds: float = 1.0,
        embedder: Embedder | None = None,
        open_index: Callable[..., Index] | None = None,
        observer: Observer | None = None,
        clock: Clock | None = None,
    ) -> None:
        search = config.search.model_copy(update={"on_unscored": "keep"})
        self.name = name
        self.config = config.model_copy(update={"raise_on_error": True, "search": search})
        self.description = description
        self.base_url = base_url
        self._roots = tuple(roots)
        self._wait_seconds = wait_seconds
        self._embedder = embedder
        self._open_index = open_index
        self._observer = observer
        self._clock = clock or SystemClock()
        self._opened: Index | None = None
        self._analyzer: Analyzer | None = None
        self._loading: LoadingEmbedder | None = None
        self._like: ServedIndex | None = None
        self._lock = Lock()
        self._opening: asyncio.Task[None] | None = None
        self._warming: asyncio.Task[None] | None = None
        self._kept: dict[tuple[object, Filter | None], tuple[str, Any]] = {}
        self._has_waited = False
        self._problem: tuple[float, str | None] | None = None
        self._logged_problem: str | None = None
        self._problems: SingleFlight[str | None] = SingleFlight()

    def open(self) -> Index:
        """Open the index now. Opening twice is fine.

        Raises:
            ConfigurationError: As of :func:`retrieval_core.open_index`.
        """
        if self._opened is None:
            embedder = self._model()
            from retrieval_core.index.open import open_index  # noqa: PLC0415 - slow to import, while the model loads
            from retrieval_core.run.observe import SeveralObservers  # noqa: PLC0415 - likewise

            observers = [StageListener()] if self._observer is None else [StageListener(), self._observer]
            made = self._open_index or open_index
            self._opened = made(config=self.config, embedder=embedder, observer=SeveralObservers(*observers))
        return self._opened

    def share_model(self, other: ServedIndex) -> None:
        """Use the embedder of another index, if this one has none of its own and theirs have equal settings."""
        if self._embedder is None and self.config.embedder == other.config.embedder:
            self._like = other

    def _model(self) -> LoadingEmbedder | None:
        """Return the embedder, which begins to load. Several threads may open indexes that share it."""
        with self._lock:
            if self._loading is None and self._like is not None:
                self._loading = self._like._model()  # noqa: SLF001 - of the same class
            elif self._loading is None:
                from retrieval_core.adapters.registry import preloaded_embedder  # noqa: PLC0415 - slow to import

                embedder = self._embedder or preloaded_embedder(self.config)
                from retrieval_core.service.loading import LoadingEmbedder  # noqa: PLC0415 - while the model loads

                if embedder is not None:
                    self._loading = LoadingEmbedder(embedder, self._wait_seconds, self._clock)
            return self._loading

    def start(self) -> None:
        """Begin to open the index and to load its model, in the background. Starting twice is fine.

        This and all that is asynchronous is called from one running event loop.
        """
        if self._opening is None:
            self._opening = asyncio.create_task(self._start())
            self._warming = asyncio.create_task(self._warm_up(self._opening))
            for task in (self._opening, self._warming):
                task.add_done_callback(_log_failure)

    async def index(self) -> Index:
        """Return the index, once it is open.

        Raises:
            RetrievalError: It can't be opened.
        """
        if self._opened is None or self._opening is None:
            self.start()
            assert self._opening is not None  # noqa: S101 - start() made it
            await asyncio.shield(self._opening)
        assert self._opened is not None  # noqa: S101 - it was opened
        return self._opened

    async def store(self) -> Store:
        """Return the store of the index, once it is open.

        Raises:
            RetrievalError: The index can't be opened.
        """
        return (await self.index()).store

    async def analyzer(self) -> Analyzer:
        """Return the analyzer that turns the texts of the index into terms."""
        index = await self.index()
        if self._analyzer is None:
            from retrieval_core.adapters.registry import build_word_analyzer  # noqa: PLC0415 - imported by now

            self._analyzer = build_word_analyzer(index.config.analysis)
        return self._analyzer

    async def has_no_vectors(self) -> bool:
        """Whether the index was made without an embedder; false if it can't be read."""
        with suppress(RetrievalError):
            manifest = (await (await self.index()).adescribe()).manifest
            return manifest is not None and manifest.dimension is None
        return False

    async def loaded(self) -> None:
        """Wait until the embedding model is loaded. If loading fails, the next query raises the error."""
        await self.index()
        self._has_waited = True
        if self._loading is not None and not (loading := self._loading.begin()).done():
            await asyncio.wait([loading])

    async def warmed_up(self) -> None:
        """Wait until the index is open and its model loaded, or until that failed."""
        if self._warming is not None:
            await asyncio.wait([self._warming])

    async def problem(self, *, max_age: float = 0.0) -> str | None:
        """Return the name of the error that prevents searching the index; ``None`` if it can be searched.

        Args:
            max_age: Age in seconds below which an earlier answer is returned, so that strangers can't load the store.
        """
        known = self._problem
        if known is None or self._clock.now() - known[0] >= max_age:
            problem = await self._problems.run("", self._find_problem)
            known = self._problem = self._clock.now(), problem
        return known[1]

    def _log_problem(self, problem: str | None, reason: object = None) -> None:
        """Log that the index can't be searched, or can again: once for each change."""
        if problem == self._logged_problem:
            return
        if problem is not None:
            logger.warning("the index %s can't be searched: %s: %s", self.name, problem, reason)
        else:
            logger.warning("the index %s can be searched again", self.name)
        self._logged_problem = problem

    async def _find_problem(self) -> str | None:
        try:
            index = await self.index()
            if index.embedder is not None:
                await self.loaded()
            await index.adescribe()
            if index.embedder is not None:
                result = await index.aretrieve(WARM_UP, top_k=1, mode="dense")
                if (failed := next((each for each in result.degraded if each.stage == "embed"), None)) is not None:
                    self._log_problem(EmbeddingError.__name__, failed.reason)
                    return EmbeddingError.__name__
        except RetrievalError as error:
            self._log_problem(type(error).__name__, error)
            return type(error).__name__
        self._log_problem(None)
        return None

    async def version(self) -> str | None:
        """Return the version of the contents; ``None`` if its store has none, or it can't be read."""
        with suppress(RetrievalError):
            store = await self.store()
            return await store.version() if "version" in store.capabilities else None
        return None

    async def cached(self, filter: Filter | None, read: Callable[[Index, Filter | None], Awaitable[T]]) -> T:  # noqa: A002 - as everywhere
        """Return what a function reads from the index for callers with a filter, cached until the index changes.

        Raises:
            RetrievalError: The index can't be read.
        """
        index, version, key = await self.index(), await self.version(), (read, filter)
        if (known := self._kept.get(key)) is not None and version == known[0]:
            return known[1]
        value = await read(index, filter)
        if version is not None:
            self._kept[key] = version, value
        while len(self._kept) > MOST_TENANTS:
            del self._kept[next(iter(self._kept))]
        return value

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders whose files may be indexed, with the links in their paths.

        So the documents of a linked folder keep their names if the link is switched.
        """
        from retrieval_core.index.settings import base_folder  # noqa: PLC0415 - the handshake does not wait for it

        base = base_folder(Path(self.config.index)).absolute()
        real = base.resolve()  # names are relative to it
        roots = [root.absolute() for root in self._roots or (base,)]
        return tuple(real / root.relative_to(base) if root.is_relative_to(base) else root for root in roots)

    async def aclose(self) -> None:
        """Stop loading, and close the index. Threads that can't be stopped are awaited."""
        tasks = [task for task in (self._warming, self._opening) if task is not None]
        if self._warming is not None:
            self._warming.cancel()
        if self._loading is not None:
            self._loading.stop()
        if tasks:  # a thread that opens an index can't be stopped
            await asyncio.wait(tasks)
        if self._opened is not None:
            await self._opened.aclose()

    async def _start(self) -> None:
        await asyncio.to_thread(self.open)
        if self._loading is not None:
            self._loading.begin().add_done_callback(_log_failure)

    async def _warm_up(self, opening: asyncio.Task[None]) -> None:
        """Load what the first vector search loads, after the model, unless a search did so in the meantime."""
        await asyncio.wait([opening])
        if opening.cancelled() or opening.exception() is not None or (index := self._opened) is None:
            return
        if self._loading is not None:
            loading = self._loading.begin()
            await asyncio.wait([loading])
            if loading.cancelled() or loading.exception() is not None:
                return
        await self._clock.sleep(WARM_UP_AFTER)
        if not self._has_waited and self._loading is not None and not self._loading.is_used:
            await index.adescribe()  # fails if there is none, before anything is embedded
            await index.aretrieve(WARM_UP, top_k=1, mode="dense")
        await index.aload()


class OpenedIndex(ServedIndex):
    """An index that its caller opened, and closes."""

    def __init__(self, index: Index, name: str = "index") -> None:
        super().__init__(name, index.config)
        self._own = index

    async def index(self) -> Index:
        """Return the index."""
        return self._own


class ServedIndexes:
    """All indexes of a service, by name. Requests that name none are for the first one.

    Those with equal settings of the embedder share the one of the first of them, so that a model is loaded once.

    Args:
        observer: Receives the events of each query to several indexes.
        joined: One index that searches all of them, which its caller opened. Default: made when it is needed.
    """

    def __init__(
        self, *indexes: ServedIndex, observer: Observer | None = None, joined: FederatedIndex | None = None
    ) -> None:
        self._by_name = {served.name: served for served in indexes}
        self._first = indexes[0]
        self._observer = observer
        self._joined = joined
        self._turns: dict[Path, asyncio.Lock] = {}
        for at, served in enumerate(indexes):
            for other in reversed(indexes[:at]):
                served.share_model(other)

    def __iter__(self) -> Iterator[ServedIndex]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @cached_property
    def redact(self) -> Redact:
        """The function that removes paths and credentials from a message."""
        return redactor([served.config for served in self])

    def named(self, name: str | None) -> ServedIndex:
        """Return an index by its name; ``None`` for the first.

        Raises:
            NotFoundError: There is none of that name.
        """
        served = self._first if name is None else self._by_name.get(name)
        if served is None:
            raise NotFoundError("Index", str(name))
        return served

    def open(self) -> None:
        """Open all indexes now.

        Raises:
            ConfigurationError: As of :func:`retrieval_core.open_index`.
        """
        for served in self:
            served.open()

    async def join(self, names: Iterable[str]) -> FederatedIndex:
        """Return one index that searches several. Pass their names to each query.

        Raises:
            NotFoundError: There is no index of a name.
            InvalidParameterError: The name of an index has white space or a colon.
            RetrievalError: An index can't be opened.
        """
        wanted = {name: self.named(name) for name in names}
        if unfit := [name for name in wanted if _UNFIT.search(name)]:
            msg = f"the index {unfit[0]} can't be searched with others: its name has white space or a colon"
            raise InvalidParameterError(msg)
        if self._joined is None or not wanted.keys() <= self._joined.indexes.keys():
            from retrieval_core.index.open import join_indexes  # noqa: PLC0415 - for who searches several

            opened: dict[str, Index] = {}
            for served in self:
                try:
                    if not _UNFIT.search(served.name):
                        opened[served.name] = await served.index()
                except RetrievalError:
                    if served.name in wanted:
                        raise
            self._joined = join_indexes(opened, observer=self._observer)
        return self._joined

    def turn(self, folder: Path) -> asyncio.Lock:
        """Return the lock of a folder that files are moved to. Several indexes may share the folder."""
        return self._turns.setdefault(folder, asyncio.Lock())

    async def aclose(self) -> None:
        """Close all indexes."""
        if self._joined is not None:
            await self._joined.aclose()
        for served in self:
            await served.aclose()


class StageListener:
    """An observer that reports each completed stage of a query to the listener."""

    def span(self, stage: str) -> AbstractContextManager[_Span]:
        """Return a context that is open while a call of a stage runs."""
        return nullcontext(_Span(stage, _LISTENER.get()))

    def query(self) -> AbstractContextManager[None]:
        """Return a context that is open while a query is answered."""
        return nullcontext()

    def answered(self, result: RetrievalResult) -> None:
        """Take the result of a query."""


class _Span:
    def __init__(self, stage: str, listener: Callable[[str], None] | None) -> None:
        self._stage = stage
        self._listener = listener

    def end(self, record: StageRecord, error: Exception | None = None) -> None:  # noqa: ARG002 - as observers have it
        if self._listener is not None:
            self._listener(self._stage)


@contextmanager
def listening(listener: Callable[[str], None] | None) -> Generator[None]:
    """Call a function with each completed stage of the queries in this context, from any thread."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def _log_failure(task: asyncio.Task[Any]) -> None:
    """Log why loading failed. The next query raises the same error."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.info("%s: %s", type(error).__name__, error)
