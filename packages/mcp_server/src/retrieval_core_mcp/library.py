"""The index behind the tools, opened, and its model loaded, in the background."""

from __future__ import annotations

import asyncio
import inspect
import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from retrieval_core.config.model import named_mode
from retrieval_core.errors import InvalidParameterError, RetrievalError, StoreError
from retrieval_core.run.clock import SystemClock
from retrieval_core_mcp.documents import fields_of, joined, kept, may_see
from retrieval_core_mcp.progress import StageProgress
from retrieval_core_mcp.tenancy import narrowed, own_answer, own_pack, own_result

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.index.index import Index
    from retrieval_core.ingest.report import IndexReport, OnProgress
    from retrieval_core.pipeline import RetrievalPipeline
    from retrieval_core.pipeline.query_engine import QueryEngine
    from retrieval_core.ports import Embedder
    from retrieval_core.run.clock import Clock
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import (
        JSON,
        Answer,
        Chunk,
        ChunkValidation,
        ContextPack,
        Degradation,
        RetrievalResult,
        SearchMode,
    )
    from retrieval_core.types.filters import Filter
    from retrieval_core_mcp.contents import Contents
    from retrieval_core_mcp.documents import WholeDocument
    from retrieval_core_mcp.settings import ServerSettings

T = TypeVar("T")
logger = logging.getLogger(__name__)

STILL_LOADING = (
    "the embedding model is still loading, so this is keyword search only; "
    "search again in a few seconds for hybrid search"
)
NO_VECTORS = (
    "The index has no embeddings, so vector search is not possible. Call search again with mode "
    "lexical. To make that the default, start the server with --config lexical."
)
WARM_UP = "warm up"
WARM_UP_AFTER = 0.2
"""Seconds that the first search has the processors for itself, where it comes as soon as the model is loaded."""
MOST_KEPT = 64
"""Callers who may see different passages for whom it is kept what an index holds: to find that takes a while."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A passage or a whole document.

    Attributes:
        fields: Those that filters see, without the text.
        chunk: The passage; ``None`` for a document.
    """

    id: str
    title: str | None
    source: str | None
    text: str
    fields: Mapping[str, JSON]
    chunk: Chunk | None = None


@dataclass(frozen=True, slots=True)
class _Opened:
    """An index, a pipeline for lexical search of it that touches no model, and what turns its words into terms."""

    index: Index
    words: RetrievalPipeline
    analyzer: Analyzer


class Library:
    """Searches and reads one index, which need not exist yet.

    Args:
        open_index: Opens the index, in a thread; by default :func:`retrieval_core.open_index`.
        clock: Measures the wait for the model; by default the system's.
        stages: Reports the stages of each query, if ``open_index`` passed it to the index.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        open_index: Callable[[RetrievalConfig], Index] | None = None,
        clock: Clock | None = None,
        stages: StageProgress | None = None,
    ) -> None:
        self._settings = settings
        self._open_index = open_index or self._open_default
        self._clock = clock or SystemClock()
        self._stages = stages or StageProgress()
        self._described: dict[Filter | None, tuple[str, Contents]] = {}
        self._documents: dict[Filter | None, tuple[str, Sequence[str]]] = {}
        self._opening: asyncio.Task[_Opened] | None = None
        self._loading: asyncio.Task[None] | None = None
        self._warming: asyncio.Task[None] | None = None
        self._is_awaited = False

    def start(self) -> None:
        """Begin to open the index and to load the model, in the background. Starting twice is fine.

        All methods are called from one running event loop.
        """
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._loading = asyncio.create_task(_load(self._opening))
            self._warming = asyncio.create_task(self._warm_up(self._opening, self._loading))
            for task in (self._opening, self._loading, self._warming):
                task.add_done_callback(_note_failure)

    @property
    def settings(self) -> ServerSettings:
        """The server's settings, with those of this index."""
        return self._settings

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders below which files may be indexed, as documents are named: links in them are kept.

        So the documents of a folder behind a link have the same names after the link is switched.
        """
        from retrieval_core.index.settings import base_folder  # noqa: PLC0415 - the handshake does not wait for it

        base = base_folder(Path(self._settings.retrieval.index)).absolute()
        real = base.resolve()  # names are relative to it
        roots = [root.absolute() for root in self._settings.roots or (base,)]
        return tuple(real / root.relative_to(base) if root.is_relative_to(base) else root for root in roots)

    async def search(
        self,
        query: str,
        filters: Mapping[str, Any] | None = None,
        *,
        top_k: int | None = None,
        mode: SearchMode | None = None,
        condition: Filter | None = None,
        use_cache: bool = True,
    ) -> RetrievalResult:
        """Search the index, as :meth:`retrieval_core.Index.aretrieve` does.

        While the model is loading, it waits at most ``wait_seconds``. Then it falls back to keyword search, with an
        entry in ``degraded``.

        Args:
            filters: The caller's.
            condition: A second filter that the caller's filter can't widen. The result then reveals nothing about
                other chunks; see :func:`~retrieval_core_mcp.tenancy.own_result`.
            use_cache: Whether a cached result may be returned.

        Raises:
            InvalidParameterError: The mode is ``dense``, and the index has no embeddings.
            RetrievalError: As there.
        """
        asked = narrowed(filters, condition)
        found, notice = await self._ask(
            mode, lambda engine, by: engine.aretrieve(query, asked, top_k=top_k, mode=by, use_cache=use_cache)
        )
        found = replace(found, degraded=(*notice, *found.degraded))
        return found if condition is None else own_result(found)

    async def context(
        self,
        query: str,
        filters: Mapping[str, Any] | None = None,
        *,
        max_tokens: int | None = None,
        condition: Filter | None = None,
    ) -> ContextPack:
        """Return what a model should be shown, as :meth:`retrieval_core.Index.acontext` does; see :meth:`search`."""
        asked = narrowed(filters, condition)
        pack, notice = await self._ask(
            None, lambda engine, by: engine.acontext(query, asked, max_tokens=max_tokens, mode=by)
        )
        pack = replace(pack, degraded=(*notice, *pack.degraded))
        return pack if condition is None else own_pack(pack)

    async def answer(
        self, query: str, filters: Mapping[str, Any] | None = None, *, condition: Filter | None = None
    ) -> Answer:
        """Answer a question, as :meth:`retrieval_core.Index.aanswer` does; see :meth:`search`."""
        asked = narrowed(filters, condition)
        answer, notice = await self._ask(None, lambda engine, by: engine.aanswer(query, asked, mode=by))
        answer = answer if condition is None else own_answer(answer)
        return replace(answer, degraded=(*notice, *answer.degraded))

    async def analyzer(self) -> Analyzer:
        """Return what turns the words of the index into terms."""
        return (await self._opened()).analyzer

    async def fetch(self, entry_id: str, condition: Filter | None = None) -> Entry | None:
        """Return the chunk or document with an id, or ``None``.

        A document without its text is joined from its chunks.

        Args:
            condition: A filter for chunks. A document that does not match consists of its chunks that match.

        Raises:
            StoreError: The index cannot be read.
        """
        from retrieval_core.ports import ChunkRange, FetchRequest  # noqa: PLC0415 - the handshake does not wait for it
        from retrieval_core.types.filters import chunk_fields  # noqa: PLC0415 - nor for this

        store = (await self._opened()).index.store
        found = await store.fetch(FetchRequest(chunk_ids=(entry_id,), document_ids=(entry_id,), filter=condition))
        if (chunk := found.chunks.get(entry_id)) is not None:
            return Entry(chunk.id, chunk.title, chunk.source, chunk.text, chunk_fields(chunk), chunk)
        document = found.documents.get(entry_id)
        if document is not None and may_see(document, condition):
            return Entry(document.id, document.title, document.source, document.text, fields_of(document))
        found = await store.fetch(FetchRequest(ranges=(ChunkRange.whole(entry_id),), filter=condition))
        whole = joined(entry_id, _in_order(found.chunks.values()))
        if whole is None:
            return None
        return Entry(entry_id, whole.title, whole.source, whole.text, {"source": whole.source})

    async def document(self, document_id: str, condition: Filter | None = None) -> WholeDocument | None:
        """Return a document with its passages as far as a caller may see it, as :meth:`fetch` does.

        Raises:
            StoreError: The index cannot be read.
        """
        from retrieval_core.ports import ChunkRange, FetchRequest  # noqa: PLC0415 - the handshake does not wait for it

        store = (await self._opened()).index.store
        whole = ChunkRange.whole(document_id)
        found = await store.fetch(FetchRequest(document_ids=(document_id,), ranges=(whole,), filter=condition))
        chunks = _in_order(found.chunks.values())
        document = found.documents.get(document_id)
        if document is not None and may_see(document, condition):
            return kept(document, chunks)
        return joined(document_id, chunks)

    async def neighbors(
        self, chunk_id: str, before: int, after: int, condition: Filter | None = None
    ) -> tuple[Chunk, ...]:
        """Return a chunk and its neighbors in the document, in order; none if the id is unknown.

        Args:
            before: The most chunks before it.
            after: The most chunks after it.
            condition: A filter for each of them.

        Raises:
            StoreError: The index cannot be read.
        """
        from retrieval_core.ports import ChunkRange, FetchRequest  # noqa: PLC0415 - the handshake does not wait for it

        store = (await self._opened()).index.store
        found = await store.fetch(FetchRequest(chunk_ids=(chunk_id,), filter=condition))
        if (own := found.chunks.get(chunk_id)) is None:
            return ()
        place = own.chunk_index
        around = ChunkRange(own.document_id, max(0, place - before), place + after)
        found = await store.fetch(FetchRequest(chunk_ids=(chunk_id,), ranges=(around,), filter=condition))
        return tuple(_in_order(found.chunks.values()))

    async def with_surroundings(self, entry: Entry, around: int, condition: Filter | None = None) -> Entry:
        """Return a passage with as many before and after it, joined to one text in which nothing stands twice."""
        chunks = await self.neighbors(entry.id, around, around, condition)
        return replace(entry, text=_joined(chunks)) if chunks else entry

    async def validate(self, chunk_id: str) -> ChunkValidation | None:
        """Compare a stored chunk with its document, as :meth:`retrieval_core.Index.avalidate` does."""
        return await (await self._opened()).index.avalidate(chunk_id)

    async def changed(self, chunks: Iterable[Chunk]) -> frozenset[str]:
        """Return the ids of chunks whose file changed after it was indexed; none if that is unknown."""
        index = (await self._opened()).index
        with suppress(RetrievalError):
            return await index.aedited_since(chunks)
        return frozenset()

    async def may_be_changed(self) -> Callable[[Iterable[Chunk]], bool]:
        """Return a function that reports, in a thread, whether :meth:`changed` is needed for chunks."""
        index = (await self._opened()).index
        with suppress(RetrievalError):
            await index.aedited_since(())  # reads where files are, if that has changed
        return index.may_be_edited

    async def count(self, condition: Filter | None = None) -> Contents:
        """Return how much the index holds, as far as a caller may see it; see :meth:`describe`."""
        from retrieval_core_mcp.contents import count_of  # noqa: PLC0415 - the handshake does not wait for it

        return await count_of((await self._opened()).index, condition)

    async def describe(self, condition: Filter | None = None) -> Contents:
        """Return what the index holds, as far as a caller may see it.

        Args:
            condition: A filter for the chunks that are counted.

        Raises:
            StoreError: The index cannot be read.
        """
        from retrieval_core_mcp.contents import contents_of  # noqa: PLC0415 - the handshake does not wait for it

        return await self._kept(self._described, contents_of, condition)

    async def documents(self, condition: Filter | None = None) -> Sequence[str]:
        """Return the ids of documents in order, as far as a caller may see them."""
        from retrieval_core_mcp.contents import documents_of  # noqa: PLC0415 - the handshake does not wait for it

        return await self._kept(self._documents, documents_of, condition)

    async def _kept(
        self,
        kept: dict[Filter | None, tuple[str, T]],
        read: Callable[[Index, Filter | None], Awaitable[T]],
        condition: Filter | None,
    ) -> T:
        """Return what was read of the index for those who may see the same, anew where it has changed since."""
        index = (await self._opened()).index
        version = await self.version()
        if (known := kept.get(condition)) is not None and version == known[0]:
            return known[1]
        value = await read(index, condition)
        if version is not None:
            kept[condition] = version, value
        while len(kept) > MOST_KEPT:
            del kept[next(iter(kept))]
        return value

    async def ingest(self, paths: Path | Iterable[Path], on_progress: OnProgress | None = None) -> IndexReport:
        """Bring the index in step with files and folders; see :meth:`retrieval_core.Index.aingest`."""
        return await (await self._opened()).index.aingest(paths, on_progress)

    async def path_of(self, name: str) -> Path:
        """Return the path of a file or folder by its name; see :meth:`retrieval_core.Index.apath_of`."""
        return await (await self._opened()).index.apath_of(name)

    async def remove(self, name: str) -> int:
        """Remove a document, or all documents of a file, and return the number of chunks removed.

        Args:
            name: The id of a document, or the name of a file.
        """
        index = (await self._opened()).index
        if (removed := await index.adelete(name)) or name.endswith("/"):
            return removed
        with suppress(InvalidParameterError):
            return await index.adelete(each.id for each in await index.afind_documents((name,)))
        return 0

    async def version(self) -> str | None:
        """Name the state of the index; ``None`` where its store cannot tell, or it cannot be read."""
        with suppress(RetrievalError):
            store = (await self._opened()).index.store
            return await store.version() if "version" in store.capabilities else None
        return None

    def listening(self, listener: Callable[[str], None]) -> AbstractContextManager[None]:
        """Return a context that reports the end of each stage of its queries to a function.

        The function may be called from any thread.
        """
        return self._stages.listening(listener)

    async def aclose(self) -> None:
        """Stop loading, and close the index; waits for threads that cannot be stopped."""
        if self._opening is None or self._loading is None or self._warming is None:
            return
        self._loading.cancel()
        self._warming.cancel()
        # A thread that opens an index cannot be stopped.
        await asyncio.wait([self._loading, self._warming, self._opening])
        if self._opening.exception() is None:
            await self._opening.result().index.aclose()

    async def _opened(self) -> _Opened:
        self.start()
        assert self._opening is not None  # noqa: S101 - start() made it
        return await asyncio.shield(self._opening)

    async def _ask(
        self, mode: SearchMode | None, ask: Callable[[QueryEngine, SearchMode | None], Awaitable[T]]
    ) -> tuple[T, tuple[Degradation, ...]]:
        """Ask the index, or search it by words alone while the model is loading, which the notice then says."""
        arrived = self._clock.now()
        opened = await self._opened()
        if self._needs_model(opened, mode) and not await self._is_ready(opened, arrived):
            from retrieval_core.types import Degradation  # noqa: PLC0415 - the handshake does not wait for it

            note = await opened.index.progress_note()
            loading = Degradation("embed", STILL_LOADING)
            return await ask(opened.words, "lexical"), (loading,) if note is None else (loading, note)
        try:
            return await ask(opened.index, mode), ()
        except StoreError as error:
            if await _holds_no_vectors(opened.index):
                raise InvalidParameterError(NO_VECTORS) from error
            raise

    def _needs_model(self, opened: _Opened, mode: SearchMode | None) -> bool:
        search = self._settings.retrieval.search
        by_meaning = named_mode(mode or search.mode) != "lexical" or search.score_threshold is not None
        return by_meaning and opened.index.embedder is not None

    async def _is_ready(self, opened: _Opened, arrived: float) -> bool:
        """Whether the model is loaded before the time is up.

        Raises:
            StoreError: There is no index, so that waiting is of no use.
        """
        assert self._loading is not None  # noqa: S101 - start() made it
        self._is_awaited = True
        if self._loading.done() or _is_loaded(opened.index.embedder):
            return True
        await opened.index.adescribe()
        with suppress(TimeoutError):
            async with self._clock.timeout(max(0.0, self._settings.wait_seconds - (self._clock.now() - arrived))):
                await asyncio.wait([self._loading])
        return self._loading.done()

    async def _open(self) -> _Opened:
        return await asyncio.to_thread(self._open_now)

    def _open_default(self, config: RetrievalConfig) -> Index:
        from retrieval_core.adapters.registry import preloaded_embedder  # noqa: PLC0415 - slow to import

        embedder = preloaded_embedder(config)
        from retrieval_core.index.open import open_index  # noqa: PLC0415 - likewise, while the model loads

        return open_index(config=config, embedder=embedder, observer=self._stages)

    def _open_now(self) -> _Opened:
        index = self._open_index(self._settings.retrieval)
        from retrieval_core.adapters.registry import build_word_analyzer  # noqa: PLC0415 - likewise
        from retrieval_core.pipeline import RetrievalPipeline  # noqa: PLC0415 - likewise

        words = RetrievalPipeline(index.store, config=index.config)
        return _Opened(index, words, build_word_analyzer(index.config.analysis))

    async def _warm_up(self, opening: asyncio.Task[_Opened], loading: asyncio.Task[None]) -> None:
        """Load what the first dense search loads, behind the model, if none does it itself in a moment."""
        await asyncio.wait([loading])
        if loading.cancelled() or loading.exception() is not None:
            return
        await self._clock.sleep(WARM_UP_AFTER)
        index = opening.result().index
        if not self._is_awaited and index.embedder is not None:
            await index.adescribe()  # fails where there is none, before anything is embedded
            await index.aretrieve(WARM_UP, top_k=1, mode="dense")
        await index.aload()


def _in_order(chunks: Iterable[Chunk]) -> list[Chunk]:
    return sorted(chunks, key=lambda chunk: chunk.chunk_index)


def _joined(chunks: Iterable[Chunk]) -> str:
    """Return passages of one document as one text, without what a passage repeats of the one before it."""
    text, end = "", None
    for chunk in chunks:
        repeated = 0 if end is None or chunk.span is None else max(0, end - chunk.span.start)
        between = "" if not text or repeated else "\n\n"
        text += between + chunk.text[repeated:]
        end = None if chunk.span is None else chunk.span.end
    return text


async def _holds_no_vectors(index: Index) -> bool:
    """Whether an index was made without an embedder; false where it cannot be read."""
    with suppress(RetrievalError):
        manifest = (await index.adescribe()).manifest
        return manifest is not None and manifest.dimension is None
    return False


async def _load(opening: asyncio.Task[_Opened]) -> None:
    """Load the model of an index, however long it takes."""
    embedder = (await asyncio.shield(opening)).index.embedder
    if embedder is None:
        return
    if _is_loaded(embedder):  # the first search need not wait for a text that nobody asks for
        await _load_tokenizer(embedder)
    else:
        await asyncio.gather(_embed(embedder), _load_tokenizer(embedder))


def _is_loaded(embedder: Embedder | None) -> bool:
    """Whether a model is in memory, of an embedder that tells."""
    return getattr(embedder, "is_loaded", False) is True


async def _embed(embedder: Embedder) -> None:
    if inspect.iscoroutinefunction(embedder.embed_query):
        await embedder.embed_query(WARM_UP)
    else:  # an embedder may be synchronous, whatever its port says
        await asyncio.to_thread(embedder.embed_query, WARM_UP)


async def _load_tokenizer(embedder: Embedder) -> None:
    """Load a local model's tokenizer; a failure is reported by embedding, which meets it too."""
    from retrieval_core import ports  # noqa: PLC0415 - the handshake does not wait for it

    if "count_tokens" in ports.as_plugin(embedder, ports.Embedder).capabilities:
        with suppress(RetrievalError):
            await asyncio.to_thread(embedder.count_tokens, WARM_UP)


def _note_failure(task: asyncio.Task[Any]) -> None:
    """Log why loading failed; the next call meets the same failure and answers with it."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.info("%s: %s", type(error).__name__, error)
