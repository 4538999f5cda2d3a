"""The index behind the tools, opened, and its model loaded, in the background."""

from __future__ import annotations

import asyncio
import inspect
import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from retrieval_core.errors import InvalidParameterError, RetrievalError, StoreError
from retrieval_core.run.clock import SystemClock
from retrieval_core.types import Degradation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.index.index import Index
    from retrieval_core.pipeline import RetrievalPipeline
    from retrieval_core.ports import Embedder
    from retrieval_core.run.clock import Clock
    from retrieval_core.types import JSON, RetrievalResult, SearchMode
    from retrieval_core.types.filters import Filter
    from retrieval_core_mcp.settings import ServerSettings

logger = logging.getLogger(__name__)

STILL_LOADING = (
    "the embedding model is still loading, so this was searched by words alone; the same search a few seconds later "
    "is by meaning too"
)
NO_VECTORS = (
    "The index was made for searching by words, so it cannot be searched by meaning. Call search again with mode "
    "lexical; to make that the normal way, start the server with --config lexical."
)
WARM_UP = "warm up"


@dataclass(frozen=True, slots=True)
class Entry:
    """A passage or a whole document.

    Attributes:
        fields: Those that filters see, without the text.
    """

    id: str
    title: str | None
    source: str | None
    text: str
    fields: Mapping[str, JSON]


@dataclass(frozen=True, slots=True)
class _Opened:
    """An index, and a pipeline for lexical search of it that touches no model."""

    index: Index
    words: RetrievalPipeline


class Library:
    """Searches and reads one index, which need not exist yet.

    Args:
        open_index: Opens the index, in a thread; by default :func:`retrieval_core.open_index`.
        clock: Measures the wait for the model; by default the system's.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        open_index: Callable[[RetrievalConfig], Index] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._open_index = open_index or _open_index
        self._clock = clock or SystemClock()
        self._opening: asyncio.Task[_Opened] | None = None
        self._warming: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to open the index and to load the model, in the background. Starting twice is fine.

        All methods are called from one running event loop.
        """
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._warming = asyncio.create_task(self._warm_up(self._opening))
            self._opening.add_done_callback(_note_failure)
            self._warming.add_done_callback(_note_failure)

    async def search(
        self,
        query: str,
        filters: Mapping[str, Any] | None = None,
        *,
        top_k: int | None = None,
        mode: SearchMode | None = None,
        condition: Filter | None = None,
    ) -> RetrievalResult:
        """Find passages, as :meth:`retrieval_core.Index.aretrieve` does.

        While the model is loading, it waits at most ``wait_seconds``, and then searches by words alone, with an entry
        in ``degraded``.

        Args:
            filters: The caller's.
            condition: What every passage must pass besides, which no filter of the caller widens. The result then has
                no note on why nothing was found: that tells of the fields of other passages too.

        Raises:
            InvalidParameterError: The index holds no vectors, and the search is by meaning.
            RetrievalError: As there.
        """
        if condition is None:
            return await self._search(query, filters, top_k=top_k, mode=mode)
        found = await self._search(query, _narrowed(filters, condition), top_k=top_k, mode=mode)
        return replace(found, metadata={name: value for name, value in found.metadata.items() if name != "note"})

    async def _search(
        self,
        query: str,
        filters: Mapping[str, Any] | Filter | None,
        *,
        top_k: int | None,
        mode: SearchMode | None,
    ) -> RetrievalResult:
        arrived = self._clock.now()
        opened = await self._opened()
        if self._needs_model(opened, mode) and not await self._is_ready(opened, arrived):
            result = await opened.words.aretrieve(query, filters, top_k=top_k, mode="lexical")
            return replace(result, degraded=(Degradation("embed", STILL_LOADING), *result.degraded))
        try:
            return await opened.index.aretrieve(query, filters, top_k=top_k, mode=mode)
        except StoreError as error:
            if await _holds_no_vectors(opened.index):
                raise InvalidParameterError(NO_VECTORS) from error
            raise

    async def fetch(self, entry_id: str, condition: Filter | None = None) -> Entry | None:
        """Return the passage or the document with an id, ``None`` where there is neither.

        A document without its text is joined from its passages.

        Args:
            condition: What a passage must pass. A document that does not pass it itself consists of its passages that
                do.

        Raises:
            StoreError: The index cannot be read.
        """
        from retrieval_core.ports import ChunkRange, FetchRequest  # noqa: PLC0415 - likewise
        from retrieval_core.types.filters import chunk_fields, matches  # noqa: PLC0415 - the handshake does not wait

        store = (await self._opened()).index.store
        found = await store.fetch(FetchRequest(chunk_ids=(entry_id,), document_ids=(entry_id,), filter=condition))
        if (chunk := found.chunks.get(entry_id)) is not None:
            return Entry(chunk.id, chunk.title, chunk.source, chunk.text, chunk_fields(chunk))
        if (document := found.documents.get(entry_id)) is not None:
            moment = document.timestamp.isoformat() if document.timestamp else None
            fields = {"source": document.source, "timestamp": moment, **document.metadata}
            if condition is None or matches(condition, fields):
                return Entry(document.id, document.title, document.source, document.text, fields)
        found = await store.fetch(FetchRequest(ranges=(ChunkRange(entry_id, 0, 2**31),), filter=condition))
        chunks = sorted(found.chunks.values(), key=lambda chunk: chunk.chunk_index)
        if not chunks:
            return None
        text = "\n\n".join(chunk.text for chunk in chunks)
        return Entry(entry_id, chunks[0].title, chunks[0].source, text, {"source": chunks[0].source})

    async def aclose(self) -> None:
        """Stop loading, and close the index; waits for threads that cannot be stopped."""
        if self._opening is None or self._warming is None:
            return
        self._warming.cancel()
        await asyncio.wait([self._warming, self._opening])  # a thread that opens an index cannot be stopped
        if self._opening.exception() is None:
            await self._opening.result().index.aclose()

    async def _opened(self) -> _Opened:
        self.start()
        assert self._opening is not None  # noqa: S101 - start() made it
        return await asyncio.shield(self._opening)

    def _needs_model(self, opened: _Opened, mode: SearchMode | None) -> bool:
        search = self._settings.retrieval.search
        by_meaning = (mode or search.mode) != "lexical" or search.score_threshold is not None
        return by_meaning and opened.index.embedder is not None

    async def _is_ready(self, opened: _Opened, arrived: float) -> bool:
        """Whether the model is loaded before the time is up.

        Raises:
            StoreError: There is no index, so that waiting is of no use.
        """
        assert self._warming is not None  # noqa: S101 - start() made it
        if self._warming.done():
            return True
        await opened.index.adescribe()
        with suppress(TimeoutError):
            async with self._clock.timeout(max(0.0, self._settings.wait_seconds - (self._clock.now() - arrived))):
                await asyncio.wait([self._warming])
        return self._warming.done()

    async def _open(self) -> _Opened:
        return await asyncio.to_thread(self._open_now)

    def _open_now(self) -> _Opened:
        from retrieval_core.pipeline import RetrievalPipeline  # noqa: PLC0415 - slow to import

        index = self._open_index(self._settings.retrieval)
        return _Opened(index, RetrievalPipeline(index.store, config=index.config))

    async def _warm_up(self, opening: asyncio.Task[_Opened]) -> None:
        """Load the model, however long it takes, and then what the first dense search would load."""
        index = (await asyncio.shield(opening)).index
        if index.embedder is None:
            return
        await asyncio.gather(_embed(index.embedder), _load_tokenizer(index.embedder))
        await index.aretrieve(WARM_UP, top_k=1, mode="dense")


def _narrowed(filters: Mapping[str, Any] | None, condition: Filter) -> Filter:
    from retrieval_core.types.filters import And  # noqa: PLC0415 - the handshake does not wait for it
    from retrieval_core.types.filters.syntax import parse_filter  # noqa: PLC0415 - likewise

    return And((condition, parse_filter(filters))) if filters else condition


def _open_index(config: RetrievalConfig) -> Index:
    from retrieval_core.index.builders.backends import build_usage  # noqa: PLC0415 - imported by then
    from retrieval_core.index.open import open_index  # noqa: PLC0415 - slow to import

    return open_index(config=config, observer=build_usage(config))


async def _holds_no_vectors(index: Index) -> bool:
    """Whether an index was made without an embedder; false where it cannot be read."""
    with suppress(RetrievalError):
        manifest = (await index.adescribe()).manifest
        return manifest is not None and manifest.dimension is None
    return False


async def _embed(embedder: Embedder) -> None:
    if inspect.iscoroutinefunction(embedder.embed_query):
        await embedder.embed_query(WARM_UP)
    else:  # an embedder may be synchronous, whatever its port says
        await asyncio.to_thread(embedder.embed_query, WARM_UP)


async def _load_tokenizer(embedder: Embedder) -> None:
    """Load a local model's tokenizer; a failure is reported by embedding, which meets it too."""
    from retrieval_core.ports import CountsTokens  # noqa: PLC0415 - the handshake does not wait for it

    if isinstance(embedder, CountsTokens):
        with suppress(RetrievalError):
            await asyncio.to_thread(embedder.count_tokens, WARM_UP)


def _note_failure(task: asyncio.Task[Any]) -> None:
    """Log why loading failed; the next call meets the same failure and answers with it."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.info("%s: %s", type(error).__name__, error)
