"""Copy an index to another store: its chunks, vectors, documents and the states of its files. Nothing is embedded."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack, closing
from dataclasses import astuple, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeAlias, TypeVar

from retrieval_core.adapters.registry import build_analyzer, build_store
from retrieval_core.config import RetrievalConfig, check_complete
from retrieval_core.config.remembered import by_key, remember
from retrieval_core.errors import IndexNotFoundError, InvalidParameterError, StoreError
from retrieval_core.index.comparing import Comparison, add_to_checksum, compare_documents
from retrieval_core.index.settings import (
    ON_DISK,
    base_folder,
    config_for,
    load_settings_of,
    place_of,
    remembered_settings,
)
from retrieval_core.ingest.copy_marker import CopyMarker, read_marker
from retrieval_core.ports import Change, ChunkRange, Embedder, FetchRequest, Manifest, Store, as_store
from retrieval_core.ports.stores import COPY_MARKER
from retrieval_core.run.clock import SystemClock
from retrieval_core.run.retry import NO_RETRIES, RetryPolicy, retry
from retrieval_core.run.sync import SyncBridge
from retrieval_core.types import CopyProgress, CopyReport
from retrieval_core.types.documents import is_zero

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from retrieval_core.ports import Fetched, StoreInfo
    from retrieval_core.types import Chunk

P = ParamSpec("P")
T = TypeVar("T")
CHUNKS_AT_ONCE = 2_000
"""About how many chunks are read and written at a time, always with whole documents."""
MOST_DOCUMENTS = 2_000
"""How many documents are read at a time, at most; the first time it is fewer, as their size is unknown."""
FIRST_DOCUMENTS = 32
SOURCES_AT_ONCE = 1_000
MOST_ROUNDS = 3
"""How often the indexes are compared while the source is being changed."""
SAME_FOR = ("embedder", "chunking", "analysis")
"""Sections of the settings that decide whether indexing the same files again changes anything."""
_NO_SOURCES = b"[]"
"""The part of the checksum for an index without files, whether or not its store could keep their states."""
_LONGEST_WAIT = 120.0
_NAMED = 5
_Place: TypeAlias = "tuple[object, RetrievalConfig | None]"
"""An index as the caller gave it, and its settings. A store has none."""


def copy_index(
    source: str | Path | RetrievalConfig | Store,
    target: str | Path | RetrievalConfig | Store,
    on_progress: Callable[[CopyProgress], object] | None = None,
) -> CopyReport:
    """Copy an index to another store, without embedding anything again.

    Everything that belongs to the index is copied and then compared: chunks, vectors, documents, the states of files,
    and settings. If the copy is interrupted, call it again with the same arguments to continue. Until it is complete,
    searches of the copy say so, and it can't be written to.

    Args:
        source: The index to copy: an index file such as ``"notes.db"``, a ``.toml`` file with settings, settings from
            :func:`retrieval_core.load_config`, or a store. It may be searched meanwhile.
        target: The place of the copy, in the same forms. It must be empty, or the same copy, interrupted.
        on_progress: Called after each write and comparison, in a thread. Default: none.

    Returns:
        The numbers of documents and chunks, a checksum, and notes about what the target can't keep.

    Raises:
        ConfigurationError: A setting is wrong.
        InvalidParameterError: The target is the source, or can't keep a chunk.
        IndexNotFoundError: The source does not exist.
        StoreError: The target is not empty, the source is damaged or changes all the time, or one of them can't be read
            or written.
        ServiceError: A service failed, or did not respond in time.

    Example::

        report = copy_index("notes.db", "copy.db")
        print(report.documents, "documents copied")
    """
    started = time.perf_counter()
    origin, destination = _settings(source), _settings(target)
    _refuse_same_place(source, target, origin, destination)
    with closing(SyncBridge()) as bridge:
        copying = _copied((source, origin), (target, destination), _remembered(origin), on_progress)
        report, has_files = bridge.run(copying, None)
    notes = (*report.notes, *_notes_of_settings(origin, destination, has_files=has_files))
    return replace(report, notes=notes, seconds=time.perf_counter() - started)


async def _copied(
    source: _Place, target: _Place, settings: str | None, on_progress: Callable[[CopyProgress], object] | None
) -> tuple[CopyReport, bool]:
    """Open both indexes, copy, and return the report, and whether the index has files.

    Args:
        settings: For the target to remember.
    """
    origin, destination = source[1], target[1]
    async with AsyncExitStack() as stack:
        first = await _opened(stack, source)
        info = await first.describe()
        manifest = info.manifest or await _manifest_of_records(first, info)
        second = await _opened(stack, target, manifest, origin)
        if not await stack.enter_async_context(second.claimed("copying", is_patient=False)):
            msg = f"another process is copying an index to {second.location}. Wait until it is done"
            raise StoreError(msg)
        policies = {id(first): _policy(origin), id(second): _policy(destination)}
        copy = _Copy(first, second, info, manifest, policies=policies, on_progress=on_progress)
        return await copy.run(settings), copy.has_files


class _Model(Embedder):
    """Names the embedder of an index; it embeds nothing."""

    def __init__(self, id_: str, dimension: int) -> None:
        self.id = id_
        self.dimension = dimension

    async def _embed_query(self, text: str) -> NoReturn:
        raise NotImplementedError

    async def _embed_texts(self, texts: Sequence[str]) -> NoReturn:
        raise NotImplementedError


def _settings(given: str | Path | RetrievalConfig | Store) -> RetrievalConfig | None:
    """Return the settings of a place; ``None`` for a store that was given."""
    if isinstance(given, (str, Path)):
        return load_settings_of(given)
    return given if isinstance(given, RetrievalConfig) else None


def _refuse_same_place(
    source: object, target: object, origin: RetrievalConfig | None, destination: RetrievalConfig | None
) -> None:
    if origin is None or destination is None:
        is_same = source is target
    elif origin.store.kind != destination.store.kind:
        is_same = False
    elif origin.store.kind in ON_DISK:
        is_same = (place_of(origin).absolute(), origin.store) == (place_of(destination).absolute(), destination.store)
    else:
        is_same = origin.store == destination.store
    if is_same:
        msg = "an index can't be copied to itself: name another place as the target"
        raise InvalidParameterError(msg)


async def _opened(
    stack: AsyncExitStack, place: _Place, manifest: Manifest | None = None, origin: RetrievalConfig | None = None
) -> Store:
    """Return a store that was given, or open the one of settings, which is closed with the stack.

    Args:
        manifest: Of the index that is copied, for its target.
        origin: Settings of the index that is copied, for its target: words are analyzed in the same way.
    """
    given, config = place
    if config is None:
        return as_store(given)

    def build() -> Store:
        check_complete(config, with_embedder=False, with_llm=False)
        model = None
        if manifest is not None and manifest.embedder_id is not None and manifest.dimension is not None:
            model = _Model(manifest.embedder_id, manifest.dimension)
        analyzer = build_analyzer((config if origin is None else origin).analysis)
        return as_store(build_store(config.store, Path(config.index), model, analyzer=analyzer))

    store = await asyncio.to_thread(build)
    stack.push_async_callback(store.aclose)
    return store


async def _manifest_of_records(store: Store, info: StoreInfo) -> Manifest:
    """Return the manifest of an index whose store keeps none: each chunk has the name of its embedder."""
    if "sample_records" in store.capabilities and await store.sample_records():
        msg = f"{info.location} can't be copied: another program filled it, so the embedder of its vectors is unknown"
        raise StoreError(msg)
    names = await store.document_ids()
    fetched = await store.fetch(FetchRequest(ranges=tuple(map(ChunkRange.whole, names[:1])), with_vectors=True))
    for chunk in fetched.chunks.values():
        if chunk.embedding_model is not None and chunk.id in fetched.vectors:
            return Manifest(chunk.embedding_model, len(fetched.vectors[chunk.id]), "")
    msg = f"{info.location}: the embedding model of its vectors is unknown, so they can't be searched in another store"
    raise StoreError(msg)


def _policy(config: RetrievalConfig | None) -> RetryPolicy:
    return NO_RETRIES if config is None else RetryPolicy(**dict(config.retry))


def _remembered(config: RetrievalConfig | None) -> str | None:
    """Return the settings that an index remembers, or would remember, as a store keeps them."""
    if config is None:
        return None
    known = remember(config, remembered_settings(config))
    return json.dumps(known, ensure_ascii=False, sort_keys=True) if known else None


def _notes_of_settings(
    origin: RetrievalConfig | None, destination: RetrievalConfig | None, *, has_files: bool
) -> tuple[str, ...]:
    """Return what has to be set so that the copy is used as the index was."""
    if origin is None or destination is None:
        return ()
    notes: list[str] = []
    now = by_key(config_for(destination, destination.index))
    differing = [
        f"{key} = {json.dumps(value, ensure_ascii=False)}"
        for key, value in by_key(origin).items()
        if key.partition(".")[0] in SAME_FOR and now.get(key) != value
    ]
    if differing:
        notes.append(
            f"set for the copy, as for the source: {', '.join(differing)}. Otherwise texts are embedded again."
        )
    folders = [base_folder(Path(config.index)).resolve() for config in (origin, destination)]
    if has_files and folders[0] != folders[1]:
        notes.append(
            f"files are found relative to {folders[0]}, but for the copy relative to {folders[1]}. Before you index "
            "them for the copy, set index to a path in the first folder."
        )
    return tuple(notes)


class _Copy:
    """One run of a copy.

    Args:
        source: The index that is copied.
        target: Where to.
        info: Description of the source.
        manifest: Of the source.
        policies: How often a failed call is tried again, by the ``id()`` of the store.
        on_progress: Called after each step.
    """

    def __init__(
        self,
        source: Store,
        target: Store,
        info: StoreInfo,
        manifest: Manifest,
        *,
        policies: Mapping[int, RetryPolicy],
        on_progress: Callable[[CopyProgress], object] | None,
    ) -> None:
        self._source = source
        self._target = target
        self._info = info
        self._manifest = manifest
        self._policies = policies
        self._on_progress = on_progress
        self._notes: list[str] = []
        self._written = 0
        self._version_before: str | None = None
        self.has_files = False

    async def run(self, settings: str | None) -> CopyReport:
        """Copy, compare and complete.

        Args:
            settings: For the target to remember.
        """
        source, target = self._source, self._target
        marker = await self._begin()
        self._note_what_is_not_kept()
        await self._call(target, target.upsert, Change(documents=(marker.document(),)))  # fails early if it can't
        await self._copy(marker)
        documents, chunks, digest, compared = await self._verify()
        if "optimize" in target.capabilities:
            await self._call(target, target.optimize)
        await self._refuse_damage(target, "delete it and copy again")
        if settings is not None and "remember" in target.capabilities:
            await self._call(target, target.remember, settings)
        await self._call(target, target.upsert, Change(removed_documents=(COPY_MARKER,)))
        return CopyReport(
            source=source.location,
            target=target.location,
            documents=documents,
            chunks=chunks,
            copied=self._written,
            checksum=digest,
            rounded=compared.rounded,
            largest_difference=compared.largest,
            notes=tuple(self._notes),
            seconds=0.0,
        )

    async def _begin(self) -> CopyMarker:
        """Return the state of the copy, a new one for an empty target.

        Raises:
            StoreError: The target is not empty, or the source can't be copied.
        """
        source, target = self._source, self._target
        if "documents_of" not in target.capabilities:
            msg = f"{target.location} has no documents_of(), by which an interrupted copy is continued"
            raise StoreError(msg)
        if (unfinished := await read_marker(source)) is not None:
            msg = f"{source.location} is itself a copy that is not complete ({unfinished.note}). Complete it first."
            raise StoreError(msg)
        if self._info.unembedded and "add_vectors" not in target.capabilities:
            msg = (
                f"{source.location}: {self._info.unembedded:,} chunks have no vectors yet, and {target.location} takes "
                "none without. Complete the index first: retrieval index PATH…"
            )
            raise StoreError(msg)
        version = await self._version()
        fresh = CopyMarker(source.location, version)
        marker = await self._call(target, read_marker, target)
        if marker is None:
            documents, chunks = await self._size(target)
            if documents or chunks:
                msg = (
                    f"{target.location} is not empty: it has {documents:,} documents and {chunks:,} chunks. If you "
                    "copied this index to it before, the copy is complete, and you can use it. Otherwise name an "
                    "empty target, or delete this index first."
                )
                raise StoreError(msg)
            marker = fresh
        elif marker.source != source.location and (version is None or marker.version != version):
            msg = (
                f"{target.location} is an incomplete copy of another index: {marker.source}. Copy that one to complete "
                "it, or delete this index first."
            )
            raise StoreError(msg)
        await self._refuse_damage(source, "repair it first: retrieval verify --repair")
        self._version_before = marker.version
        return replace(marker, source=source.location, version=version)

    def _note_what_is_not_kept(self) -> None:
        if self._manifest.vectors:
            self._notes.append(f"not copied: vectors that are no longer used ({', '.join(self._manifest.vectors)})")
        if not self._target.keeps_documents:
            self._notes.append(
                f"not copied: texts of whole documents and sections, which {self._target.location} can't keep"
            )

    async def _copy(self, marker: CopyMarker) -> None:
        """Copy all documents that are not copied yet.

        Each write says which documents were copied before it. So it is true of stores without transactions as well, and
        at most one write is repeated after an interruption.
        """
        names = await self._names(self._source)
        waiting = [name for name in names if not marker.after or name > marker.after]
        done, chunks, size = len(names) - len(waiting), 0, FIRST_DOCUMENTS
        marker = replace(marker, total=len(names))
        while waiting:
            batch, waiting = waiting[:size], waiting[size:]
            found = await self._read(self._source, batch)
            await self._write(found, marker=replace(marker, done=done))
            done, chunks = done + len(batch), chunks + len(found.chunks)
            marker = replace(marker, after=batch[-1])
            self._written += len(batch)
            size = _next_size(len(batch), len(found.chunks))
            await self._tell(CopyProgress("copy", done, len(names), chunks))

    async def _verify(self) -> tuple[int, int, str, Comparison]:
        """Compare all documents, and return the numbers of documents and chunks, their checksum and the comparison.

        Raises:
            StoreError: The target doesn't keep what is written to it, or the source changes all the time.
        """
        for _ in range(MOST_ROUNDS):
            version = await self._version()
            documents, chunks, digest, compared = await self._compare_all()
            digest.update(await self._copy_sources())
            info = await self._call(self._source, self._source.describe)
            if version != await self._version():
                continue
            if info.chunks != chunks:
                msg = (
                    f"{info.location} has {info.chunks:,} chunks, and {chunks:,} of them are found by their documents. "
                    "Check the index: retrieval verify"
                )
                raise StoreError(msg)
            if version != self._version_before:
                self._notes.append("the source was changed while it was copied, and the changes were copied, too")
            return documents, chunks, digest.hexdigest(), compared
        msg = (
            f"{self._source.location} is written to all the time, so the copy can't be completed. Stop the writing "
            "and run the same copy again: only what has changed is copied."
        )
        raise StoreError(msg)

    async def _compare_all(self) -> tuple[int, int, Any, Comparison]:
        """Compare both indexes, and copy again what differs: the source was changed, or a write was interrupted."""
        source, target = self._source, self._target
        names = await self._names(source)
        extra = sorted({*await self._names(target)} - {*names})
        for start in range(0, len(extra), MOST_DOCUMENTS):
            removed = tuple(extra[start : start + MOST_DOCUMENTS])
            await self._call(target, target.upsert, Change(removed_documents=removed))
        digest, chunks, size, start = sha256(), 0, FIRST_DOCUMENTS, 0
        total = Comparison({})
        while start < len(names):
            batch = names[start : start + size]
            here, there = await self._read(source, batch), await self._read(target, batch)
            compared = await asyncio.to_thread(compare_documents, batch, here, there, with_texts=target.keeps_documents)
            if compared.differing:
                again = tuple(compared.differing)
                await self._write(_only(here, again), removed=again)
                self._written += len(again)
                there = await self._read(target, batch)
                compared = await asyncio.to_thread(
                    compare_documents, batch, here, there, with_texts=target.keeps_documents
                )
            if compared.differing:
                told = "; ".join(list(compared.differing.values())[:_NAMED])
                msg = f"{target.location} doesn't return what was written to it: {told}"
                raise StoreError(msg)
            await asyncio.to_thread(add_to_checksum, digest, there, batch, with_texts=target.keeps_documents)
            total = total.with_more(compared)
            start, chunks = start + len(batch), chunks + len(there.chunks)
            size = _next_size(len(batch), len(there.chunks))
            await self._tell(CopyProgress("verify", start, len(names), chunks))
        return len(names), chunks, digest, total

    async def _copy_sources(self) -> bytes:
        """Copy the states of files, so that indexing them again embeds nothing; return them for the checksum.

        Raises:
            StoreError: The target doesn't return what was written to it.
        """
        source, target = self._source, self._target
        if "sources" not in source.capabilities:
            return _NO_SOURCES
        here = await self._call(source, source.sources)
        self.has_files = bool(here)
        if "sources" not in target.capabilities:
            if here:
                self._notes.append(f"not copied: the states of files, which {target.location} can't keep")
            return _NO_SOURCES
        there = await self._call(target, target.sources)
        changed = [state for name, state in here.items() if there.get(name) != state]
        gone = tuple(there.keys() - here.keys())
        for start in range(0, len(changed), SOURCES_AT_ONCE):
            change = Change(sources=tuple(changed[start : start + SOURCES_AT_ONCE]))
            await self._call(target, target.upsert, change)
        if gone:
            await self._call(target, target.upsert, Change(removed_sources=gone))
        if (changed or gone) and await self._call(target, target.sources) != here:
            msg = f"{target.location} doesn't return the states of files that were written to it"
            raise StoreError(msg)
        return json.dumps([astuple(here[name]) for name in sorted(here)]).encode()

    async def _write(self, found: Fetched, *, marker: CopyMarker | None = None, removed: tuple[str, ...] = ()) -> None:
        """Write documents with all that belongs to them."""
        target = self._target
        change = await asyncio.to_thread(self._change, found, marker, removed)
        await self._call(target, target.upsert, change)

    def _change(self, found: Fetched, marker: CopyMarker | None, removed: tuple[str, ...]) -> Change:
        import numpy as np  # noqa: PLC0415 - slow to load

        chunks = sorted(found.chunks.values(), key=_place_of_chunk)
        rows = [found.vectors[chunk.id] for chunk in chunks if chunk.id in found.vectors]
        has_vectors = self._manifest.embedder_id is not None
        return Change(
            chunks=tuple(chunks),
            vectors=np.stack(rows) if rows else None,
            documents=(*found.documents.values(), *(() if marker is None else (marker.document(),))),
            sections=tuple(found.sections.values()),
            removed_documents=removed,
            unembedded=frozenset(found.chunks.keys() - found.vectors.keys()) if has_vectors else frozenset(),
        )

    async def _read(self, store: Store, names: Sequence[str]) -> Fetched:
        """Return documents with all that belongs to them; a vector of zeros, of an old version, counts as none."""
        ranges = tuple(map(ChunkRange.whole, names))
        request = FetchRequest(ranges=ranges, document_ids=tuple(names), with_vectors=True)
        found = await self._call(store, store.fetch, request)
        parents = {chunk.parent_id: None for chunk in found.chunks.values() if chunk.parent_id is not None}
        sections = found.sections
        if parents and self._target.keeps_documents:
            sections = (await self._call(store, store.fetch, FetchRequest(section_ids=tuple(parents)))).sections
        vectors = {name: vector for name, vector in found.vectors.items() if not is_zero(vector)}
        return replace(found, sections=sections, vectors=vectors)

    async def _names(self, store: Store) -> list[str]:
        """Return the IDs of all documents, in order."""
        try:
            return sorted({*await self._call(store, store.document_ids)})
        except IndexNotFoundError:
            return []

    async def _version(self) -> str | None:
        source = self._source
        return await self._call(source, source.version) if "version" in source.capabilities else None

    async def _size(self, store: Store) -> tuple[int, int]:
        try:
            info = await self._call(store, store.describe)
        except IndexNotFoundError:
            return 0, 0
        return info.documents, info.chunks

    async def _refuse_damage(self, store: Store, advice: str) -> None:
        """Raise :class:`StoreError` if records are not what their checksums say."""
        if "find_damage" not in store.capabilities:
            return
        damage = replace(await self._call(store, store.find_damage), unlisted=())
        if not damage.is_none:
            msg = f"{store.location} is damaged ({damage.summary}): {advice}"
            raise StoreError(msg)

    async def _tell(self, progress: CopyProgress) -> None:
        if self._on_progress is not None:
            await asyncio.to_thread(self._on_progress, progress)

    async def _call(self, store: Store, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method of a store, and again if that can help; writing the same change twice changes nothing."""

        async def attempt() -> T:
            return await function(*args, **kwargs)

        try:
            return await attempt()
        except Exception as error:  # noqa: BLE001 - raised again if another attempt can't help; a busy index is waited for
            return await retry(error, attempt, self._policies[id(store)], SystemClock(), lambda: _LONGEST_WAIT)


def _next_size(documents: int, chunks: int) -> int:
    """Return how many documents to read next, given how many chunks some documents had."""
    return max(1, min(MOST_DOCUMENTS, 2 * documents * CHUNKS_AT_ONCE // max(1, chunks + CHUNKS_AT_ONCE)))


def _place_of_chunk(chunk: Chunk) -> tuple[str, int, str]:
    return chunk.document_id, chunk.chunk_index, chunk.id


def _only(found: Fetched, names: Iterable[str]) -> Fetched:
    """Return what belongs to some documents."""
    some = {*names}
    chunks = {name: chunk for name, chunk in found.chunks.items() if chunk.document_id in some}
    return replace(
        found,
        chunks=chunks,
        vectors={name: vector for name, vector in found.vectors.items() if name in chunks},
        sections={name: section for name, section in found.sections.items() if section.document_id in some},
        documents={name: document for name, document in found.documents.items() if name in some},
    )
