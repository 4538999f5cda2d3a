"""The ingester, which keeps an index in step with files: new, changed and removed ones."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain, islice
from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar

from retrieval_core.adapters.stores.first_run import read_progress, remove_progress, write_progress
from retrieval_core.errors import (
    ConfigurationError,
    IndexBusyError,
    IndexNotFoundError,
    RetrievalError,
    ServiceError,
    StoreError,
    UnreadableFileError,
)
from retrieval_core.ingest.comparison import restore_chunk
from retrieval_core.ingest.copy_marker import refuse_marker_id, refuse_unfinished_copy
from retrieval_core.ingest.files import Discovery, FileNames, FoundFile, discover, hash_file
from retrieval_core.ingest.readers import is_supported
from retrieval_core.ingest.readers.base import ParsedDocument
from retrieval_core.ingest.reading import DOCUMENTS_PER_READ, DocumentReader, blamed_on, chunking_of, recipe_of
from retrieval_core.ingest.report import (
    CHUNKS_PER_WRITE,
    Batch,
    ChunkVectors,
    FailedFile,
    Finished,
    IndexReport,
    Prepared,
    Tally,
    batches,
    chunks_in,
    equal_together,
)
from retrieval_core.ingest.skipping import skip_by_content
from retrieval_core.ingest.split import ChunkSizes, split_document
from retrieval_core.ports import (
    Change,
    ChunkRange,
    Embedder,
    FetchRequest,
    SourceState,
    as_plugin,
    as_store,
    check_change,
)
from retrieval_core.run.clock import SystemClock
from retrieval_core.run.retry import NO_RETRIES, can_help, retry
from retrieval_core.run.threads import ThreadPool
from retrieval_core.types.documents import is_zero

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )
    from pathlib import Path

    from retrieval_core.config import ChunkingConfig
    from retrieval_core.ingest.report import Note, OnProgress
    from retrieval_core.ports import Store, StoredDamage
    from retrieval_core.run.clock import Clock
    from retrieval_core.run.retry import RetryPolicy
    from retrieval_core.types import Chunk, Document, Section, Vector

_SKIPPED = "skipped: "
EMPTY = sha256(b"").hexdigest()
"""The hash of an empty file."""


logger = logging.getLogger("retrieval_core")
P = ParamSpec("P")
T = TypeVar("T")
LONGEST_WAIT = 120.0
"""Seconds; a service that asks for a longer wait ends the run, and the next run goes on from there."""

SHARES = 8
"""Parts of the chunks without vectors, of which each is embedded by one process at a time."""
_WRITING, _EMBEDDING = "writing files", "embedding"
"""Work that one process at a time does."""


def approximate_tokens(text: str) -> int:
    """Estimate the tokens of a text as a quarter of its code points, rounded up: OpenAI's figure for English text."""
    return (len(text) + 3) // 4


class Ingester:
    """Fills an index from files, and from documents and chunks that were made elsewhere.

    Args:
        embedder: ``None`` for an index without vectors.
        base: The folder that locations of files are relative to, and names of those in it.
        place: The file or folder of an index on this machine; the progress of its first run is recorded beside it.
        settings_file: The file that the settings were read from. It may contain keys, so it is skipped in folders.
        retries: How often embedding and writing are tried again if a service is busy or the connection is lost.
        clock: Waits between attempts.
        on_written: Is given each change that was written, and awaited before the next one.
        now: The time stamped on documents and chunks.
    """

    def __init__(
        self,
        store: Store,
        embedder: Embedder | None,
        *,
        chunking: ChunkingConfig,
        base: Path,
        place: Path | None = None,
        settings_file: Path | None = None,
        retries: RetryPolicy = NO_RETRIES,
        clock: Clock | None = None,
        on_written: Callable[[Change], Awaitable[object]] | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store = as_store(store)
        self._embedder = embedder = None if embedder is None else as_plugin(embedder, Embedder)
        self._chunking = chunking
        self._base = base
        self._now = now
        self._on_written = on_written
        self._place = place
        self._settings_file = settings_file
        self._late = store if embedder is not None and "add_vectors" in store.capabilities else None
        self._pool = ThreadPool("retrieval-ingest", threads=2, patience=5.0)
        self._is_checked = False
        self._elsewhere: Mapping[str, str] = {}
        self._located_at: str | None = None
        self._retries = retries
        self._clock = clock or SystemClock()
        self._vectors = ChunkVectors(embedder, self._pool, self._call)
        self._recipe = recipe_of(chunking, self._vectors.recipe)
        self._reader = DocumentReader(chunking, self._recipe, self._pool, now)

    @property
    def store(self) -> Store:
        """The store that is filled."""
        return self._store

    async def index(
        self,
        paths: Sequence[Path],
        on_progress: OnProgress | None = None,
        *,
        follow_links: bool = False,
        gitignore: bool = True,
        again: Collection[str] | None = None,
        isolated: bool = False,
    ) -> IndexReport:
        """Bring the index in step with files and folders.

        Each document is replaced in one write: a run that is killed leaves every document either old or new, and the
        next run completes it. Passages that the index has vectors of are not embedded again. Where there are more new
        ones than fit into a write, all are written without their vectors, so that they are found by their words, and
        embedded afterwards; the next run embeds what a run left without.

        Args:
            paths: Files and folders. The documents of a file that is not there any more are removed. Those of a folder
                that is not there stay, and the folder is among the failures: it may be back in a moment.
            on_progress: Called after each write.
            follow_links: Whether links out of folders are followed.
            gitignore: Whether what a ``.gitignore`` excludes is passed over, and code that is vendored, generated or
                minified.
            again: Ids of documents that are written anew though nothing of them has changed. With these, even if there
                are none, files are read whose bytes have not changed.
            isolated: Whether each file is read in a process of its own.

        Raises:
            UnreadableFileError: There is nothing to do: no path is there, and the index has no document of any.
            EmbeddingError: A text could not be embedded; everything written until then stays.
            StoreError: The index cannot be written.
        """
        started = time.perf_counter()
        await self._call(refuse_unfinished_copy, self._store)
        known = await self._store.sources()

        def find() -> tuple[Discovery, Sequence[FoundFile], Mapping[str, bool]]:
            names = FileNames(self._base.resolve(), known)
            where = names.resolve(paths)
            found = discover(
                where,
                self._base,
                is_supported,
                follow_links=follow_links,
                gitignore=gitignore,
                settings_file=self._settings_file,
            )
            return found, names.apply(found), names.vanished(found)

        discovery, files, vanished = await self._pool.run(find)
        damaged = await self._repair(known, files, is_asked=again is not None)
        tally = Tally(len(files), sum(file.size for file in files))
        refused = (*discovery.refused, *_missing(discovery, known))
        for path, reason in refused:  # its name may not be valid Unicode
            tally.failed.append(FailedFile(os.fsencode(path).decode("utf-8", "replace"), reason))
        writes = 0
        words_first = False  # so a few changed passages are never without their vectors
        async with self._recorded(tally) as record:
            async for batch in batches(
                self._read_all(files, known, damaged, again, isolated=isolated, skipping=gitignore)
            ):
                async with self._claimed(_WRITING):
                    if self._store.has_claims and again is None:
                        batch = await self._without_written(batch, damaged)  # noqa: PLW2901 - the rest of it
                    former = await self._former_vectors(batch, {*(again or ()), *chain.from_iterable(damaged.values())})
                    words_first = words_first or (self._late is not None and chunks_in(batch) >= CHUNKS_PER_WRITE)
                    writes += await self._write(batch, former, words_first=words_first)
                tally.count(batch)
                await record()
                if on_progress is not None:
                    on_progress(tally.progress)
        removed, ignored = await self._forget(vanished)
        tally.removed += removed
        self._located_at = None
        await self._optimize(writes)
        await self._embed_the_rest(tally, on_progress)
        documents, chunks = await self._held()
        return IndexReport(
            documents=documents,
            chunks=chunks,
            added=tally.added,
            updated=tally.updated,
            unchanged=tally.unchanged,
            removed=tally.removed,
            failed=tuple(tally.failed),
            seconds=time.perf_counter() - started,
            notes=tuple(tally.notes),
            skipped_links=discovery.skipped_links,
            ignored=len(discovery.ignored),
            removed_as_ignored=ignored,
            empty=sum(not file.size for file in files),
            skipped_types=discovery.skipped_types,
            skipped=dict(sorted((tally.skipped + Counter(discovery.skipped)).items())),
        )

    async def add(self, chunks: Sequence[Chunk]) -> None:
        """Embed and add chunks that were made elsewhere, all of them or none; a chunk replaces the one with its id.

        Raises:
            EmbeddingError: A text could not be embedded.
            StoreError: The index cannot be written.
        """
        await self._pool.run(lambda: self._warn_of_long_texts(chunks))
        model = self._embedder.id if self._embedder else None
        now = self._now()
        stamped = tuple(replace(each, embedding_model=model, timestamp=each.timestamp or now) for each in chunks)
        await self._upsert(Change(chunks=stamped, vectors=await self._vectors.passages(stamped)))

    def _warn_of_long_texts(self, chunks: Sequence[Chunk]) -> None:
        embedder = self._embedder
        if embedder is None or "count_tokens" not in embedder.capabilities:
            return
        limit = embedder.max_tokens  # a token has a character or more
        long = sum(len(each.text) > limit and embedder.count_tokens(each.text) > limit for each in chunks)
        if long:
            msg = (
                "%d of %d chunks are longer than %d tokens: vector search sees only their beginnings. Split them first"
            )
            logger.warning(msg, long, len(chunks), limit)

    async def add_documents(
        self, documents: Iterable[Document], on_progress: Callable[[int], None] | None = None
    ) -> None:
        """Split, embed and add documents that were made elsewhere; a document replaces the one with its id.

        Args:
            documents: Their texts are plain, not Markdown. Iterated in a thread, as far as needed.
            on_progress: Called after each write with the number of documents written so far.

        Raises:
            EmbeddingError: A text could not be embedded; everything written until then stays.
            StoreError: The index cannot be written.
        """
        written = writes = 0
        async for batch in batches(self._prepare(iter(documents))):
            writes += await self._write(batch)
            written += len(batch)
            if on_progress is not None:
                on_progress(written)
        await self._optimize(writes)

    async def delete(self, document_ids: Sequence[str]) -> int:
        """Remove documents with all their chunks, and return how many chunks these were."""
        await self._call(refuse_unfinished_copy, self._store)
        gone = await self._store.delete(document_ids)
        if self._on_written is not None:
            await self._on_written(Change(removed_documents=tuple(document_ids)))
        return gone

    async def path_of(self, name: str) -> Path:
        """Return the path of a file or folder by its name in the index; nothing need be there."""
        known = await self._store.sources()

        def find() -> Path:
            base = self._base.resolve()
            return base / FileNames(base, known).locate(name)

        return await self._pool.run(find)

    async def find_file(self, name: str) -> Path | None:
        """Return the path of a file by its name in the index; ``None`` if there is no file."""
        path = await self.path_of(name)
        return path if await self._pool.run(path.is_file) else None

    async def names_at(self, path: Path, *, is_folder: bool) -> Sequence[str]:
        """Return the name of the file at a path, or of all files in the folder at it, that the index has."""
        known = await self._store.sources()
        return await self._pool.run(lambda: FileNames(self._base.resolve(), known).names_at(path, is_folder=is_folder))

    async def file_of(self, state: SourceState) -> FoundFile:
        """Return a file of the index; it need not be there any more."""
        return await self._pool.run(
            lambda: FoundFile(self._base.resolve() / state.location, state.source, 0, state.location)
        )

    async def hash_of(self, state: SourceState) -> str | None:
        """Return the SHA-256 of a file's bytes as they are now; ``None`` if it cannot be read, or is none."""
        try:
            file = await self.file_of(state)
            return await self._pool.run(hash_file, file.path)
        except (OSError, ValueError):  # ValueError: no system has such names
            return None

    async def read_unchanged(self, state: SourceState) -> bytes:
        """Return the bytes of a file, which are those that were indexed.

        Raises:
            UnreadableFileError: It is gone, or was changed since.
        """
        if (now := await self.hash_of(state)) is None:
            told = "the file is gone, or cannot be read; put it back, or index it again"
            raise UnreadableFileError(state.source, told)
        if now == state.content_hash:
            file = await self.file_of(state)
            with suppress(OSError):
                content = await self._pool.run(file.path.read_bytes)
                if sha256(content).hexdigest() == state.content_hash:  # of these very bytes: they may change meanwhile
                    return content
        raise UnreadableFileError(state.source, "the file was changed after it was indexed; index it again")

    async def newer_files(self, written: Mapping[str, datetime]) -> frozenset[str]:
        """Return those of some files that were written to after a moment.

        Args:
            written: The moment by the file's name in the index; a name that is no file's is never among them.

        Raises:
            StoreError: The index cannot be read.
        """
        if not written:
            return frozenset()
        await self.read_locations()
        return await self._pool.run(self._newer_files, written)

    def _newer_files(self, written: Mapping[str, datetime]) -> frozenset[str]:
        base, elsewhere = self._base.resolve(), self._elsewhere
        return frozenset(
            source for source, moment in written.items() if _is_newer(base / elsewhere.get(source, source), moment)
        )

    async def read_locations(self) -> None:
        """Read which files are not where their names say, if that may have changed."""
        version = await self._store.version() if "version" in self._store.capabilities else ""
        if version != self._located_at:
            states = (await self._store.sources()).values()
            self._elsewhere = {state.source: state.location for state in states if state.location != state.source}
            self._located_at = version

    async def read_again(self, state: SourceState) -> dict[str, Document] | None:
        """Return the documents that a file has now, by their ids, read as they were then; nothing is written.

        Returns:
            ``None`` where readers of that time would have read something else.

        Raises:
            UnreadableFileError: The file cannot be read.
        """
        if (chunking := chunking_of(state.recipe)) is None:
            return None
        reader = DocumentReader(chunking, state.recipe, self._pool, self._now)
        return {document.id: document async for document, _ in reader.read(await self.file_of(state), [])}

    def close(self) -> None:
        """End the threads. Closing twice is fine."""
        self._pool.close()

    async def _repair(
        self, known: Mapping[str, SourceState], files: Sequence[FoundFile], *, is_asked: bool
    ) -> Mapping[str, frozenset[str]]:
        """Repair what is damaged from what is intact in the index, and return the documents to read again.

        Unless it is asked for, this is done once in a process, and only for an index on this machine's disk.

        Returns:
            Ids of damaged documents, by their source.
        """
        store = self._store
        repair = store.repair if "repair" in store.capabilities else None
        is_due = is_asked or (repair is not None and not self._is_checked)
        if not is_due or "find_damage" not in store.capabilities:
            return {}
        self._is_checked = True
        try:
            damage = await store.find_damage()
        except IndexNotFoundError:
            return {}
        if damage.is_none and not damage.unsealed:
            return {}
        if not damage.is_none:
            logger.warning("the index is damaged, and is repaired: %s", damage.summary)
        if repair is not None:
            await repair()
            damage = await store.find_damage()
        held = {source: await store.documents_of(source) for source in known}
        readable = {file.source for file in files}
        names = damage.document_ids
        damaged = {
            source: names & documents.keys()
            for source, documents in held.items()
            if source in readable and (names & documents.keys() or len(documents) != known[source].documents)
        }
        await self._rebuild(damage, names - {name for found in damaged.values() for name in found})
        return damaged

    async def _rebuild(self, damage: StoredDamage, names: Collection[str]) -> None:
        """Write those chunks of some documents again whose damage the index itself can undo."""
        for name in sorted(names):
            ids = tuple(key for key, found in damage.chunks.items() if found.document_id == name)
            try:
                fetched = await self._store.fetch(FetchRequest(chunk_ids=ids, document_ids=(name,)))
                parents = tuple({chunk.parent_id for chunk in fetched.chunks.values() if chunk.parent_id is not None})
                sections = (await self._store.fetch(FetchRequest(section_ids=parents))).sections
            except StoreError:  # some of it cannot be read, and so not be built again
                continue
            document = None if name in damage.documents else fetched.documents.get(name)
            built = (
                restore_chunk(chunk, damage.chunks[key], document, sections.get(chunk.parent_id or ""))
                for key, chunk in fetched.chunks.items()
            )
            chunks = tuple(chunk for chunk in built if chunk is not None)
            if chunks:
                await self._upsert(Change(chunks=chunks, vectors=await self._vectors.passages(chunks)))

    async def _read_all(
        self,
        files: Sequence[FoundFile],
        known: Mapping[str, SourceState],
        damaged: Mapping[str, frozenset[str]],
        again: Collection[str] | None,
        *,
        isolated: bool,
        skipping: bool,
    ) -> AsyncIterator[Prepared | Finished]:
        owners: dict[str, str] = {}
        for file in files:
            anew = damaged.get(file.source) if again is None else {*again, *damaged.get(file.source, ())}
            async for item in self._read(
                file, known.get(file.source), owners, anew, isolated=isolated, skipping=skipping
            ):
                yield item

    async def _read(
        self,
        file: FoundFile,
        state: SourceState | None,
        owners: dict[str, str],
        again: Collection[str] | None,
        *,
        isolated: bool,
        skipping: bool,
    ) -> AsyncIterator[Prepared | Finished]:
        """Yield a file's new and changed documents, and then its :class:`Finished`.

        The ``state`` is that of the last run; ``owners`` has the source of each document read in this run, by its id,
        and is added to.
        """
        has_begun = False
        try:
            digest = await self._pool.run(hash_file, file.path)
            if again is None and state is not None and (state.content_hash, state.recipe) == (digest, self._recipe):
                yield Finished(file, unchanged=state.documents)
                return
            if skipping and not file.is_named and (skipped := await self._skipped(file, state, digest)) is not None:
                yield skipped
                return
            existing = await self._store.documents_of(file.source)
            if digest == EMPTY:
                state = SourceState(file.source, digest, self._recipe, 0, file.location)
                yield Finished(file, state, removed=tuple(sorted(existing)))
                return
            seen: set[str] = set()
            unchanged = 0
            notes: list[Note] = []
            async for document, parsed in self._reader.read(file, notes, isolated=isolated):
                if (owner := owners.setdefault(document.id, file.source)) != file.source or document.id in seen:
                    _refuse_id(file, document.id, owner)
                seen.add(document.id)
                if existing.get(document.id) == document.content_hash and document.id not in (again or ()):
                    unchanged += 1
                    continue
                chunks, sections = await self._pool.run(self._split_file, file, parsed, document)
                has_begun = True
                yield Prepared(document, chunks, sections, is_new=document.id not in existing)
        except ServiceError:  # of the embedder: some are an OSError, and none is about the file
            raise
        except (UnreadableFileError, OSError) as error:
            reason = error.reason if isinstance(error, UnreadableFileError) else error.strerror or type(error).__name__
            # A part of it replaced what the state is of: the former file, put back, is to be read again.
            stale = replace(state, content_hash="") if state is not None and has_begun else None
            yield Finished(file, stale, failure=FailedFile(str(file.path), reason))
            return
        now_known = SourceState(file.source, digest, self._recipe, len(seen), file.location)
        removed = tuple(sorted(existing.keys() - seen))
        yield Finished(file, now_known, removed=removed, unchanged=unchanged, notes=tuple(notes))

    @asynccontextmanager
    async def _claimed(self, work: str, *, is_patient: bool = True) -> AsyncGenerator[bool]:
        """Claim a piece of work, and again if that can help; see :meth:`Store.claimed`."""
        async with AsyncExitStack() as stack:

            async def claim() -> bool:
                return await stack.enter_async_context(self._store.claimed(work, is_patient=is_patient))

            yield await self._call(claim)

    async def _without_written(self, batch: Batch, damaged: Mapping[str, frozenset[str]]) -> Batch:
        """Return what of a batch no other process has written since it was read."""
        rest: Batch = []
        finished = {item.file.source for item in batch if isinstance(item, Finished)}
        states = await self._store.sources(finished)
        held: dict[str, Mapping[str, str]] = {}
        for item in batch:
            source = item.document.source if isinstance(item, Prepared) else item.file.source
            if source in damaged:
                rest.append(item)
            elif isinstance(item, Prepared):
                if source not in held:
                    held[source] = await self._store.documents_of(source)
                if held[source].get(item.document.id) != item.document.content_hash:
                    rest.append(item)
            elif item.state is not None and states.get(source) == item.state:
                rest.append(Finished(item.file, unchanged=item.state.documents))
            else:
                rest.append(item)
        return rest

    async def _skipped(self, file: FoundFile, state: SourceState | None, digest: str) -> Finished | None:
        """Return the end of a file whose content is not to be searched; ``None`` for other files.

        The reason is recorded in place of the recipe, so that such a file is looked at once.
        """
        if state is not None and state.content_hash == digest and state.recipe.startswith(_SKIPPED):
            return Finished(file, skipped=state.recipe.removeprefix(_SKIPPED))
        reason = await self._pool.run(skip_by_content, file.path)
        if reason is None:
            return None
        removed = tuple(sorted(await self._store.documents_of(file.source)))
        recorded = SourceState(file.source, digest, _SKIPPED + reason, 0, file.location)
        return Finished(file, recorded, removed=removed, skipped=reason)

    async def _prepare(self, documents: Iterator[Document]) -> AsyncIterator[Prepared | Finished]:
        def next_prepared() -> list[Prepared]:
            return [self._prepared(document) for document in islice(documents, DOCUMENTS_PER_READ)]

        while prepared := await self._pool.run(next_prepared):
            for item in prepared:
                yield item

    def _prepared(self, document: Document) -> Prepared:
        stamped = replace(document, timestamp=document.timestamp or self._now())
        parsed = ParsedDocument(document.text, "plain", title=document.title, metadata=document.metadata)
        return Prepared(stamped, *self._split(parsed, stamped), is_new=True)

    def _split_file(
        self, file: FoundFile, parsed: ParsedDocument, document: Document
    ) -> tuple[tuple[Chunk, ...], tuple[Section, ...]]:
        # Such as a tokenizer that is not installed, or that can't be downloaded.
        with blamed_on(file, passing=(ConfigurationError, ServiceError)):
            chunks, sections = self._split(parsed, document)
            check_change(Change(chunks=chunks, documents=(document,), sections=sections))
            return chunks, sections

    def _split(self, parsed: ParsedDocument, document: Document) -> tuple[tuple[Chunk, ...], tuple[Section, ...]]:
        """Split a document into chunks that the embedder reads whole, headings included."""
        counts = self._embedder if self._embedder and "count_tokens" in self._embedder.capabilities else None
        sizes = ChunkSizes(
            self._chunking.max_tokens, self._chunking.min_tokens, window=counts.max_tokens if counts else None
        )
        count_tokens = counts.count_tokens if counts else approximate_tokens
        model = self._embedder.id if self._embedder else None
        return split_document(parsed, document, sizes, count_tokens, embedding_model=model)

    async def _optimize(self, writes: int) -> None:
        """Have the store arrange what a run has left; one write is not worth it."""
        if writes > 1 and "optimize" in self._store.capabilities:
            await self._store.optimize()

    async def _former_vectors(self, batch: Batch, damaged: Collection[str]) -> dict[str, Vector]:
        """Return the vectors that the index has of the former passages of a batch's documents, by their text.

        Those of damaged documents are not used.
        """
        former = (item.document.id for item in batch if isinstance(item, Prepared) and not item.is_new)
        names = [name for name in former if name not in damaged]
        if self._embedder is None or not names:
            return {}
        ranges = tuple(map(ChunkRange.whole, names))
        try:
            fetched = await self._store.fetch(FetchRequest(ranges=ranges, with_vectors=True))
        except RetrievalError:  # what cannot be read is replaced, and embedded anew
            return {}
        model = self._embedder.id
        chunks = (chunk for chunk in fetched.chunks.values() if chunk.embedding_model == model)
        vectors = {chunk.indexed_text: fetched.vectors[chunk.id] for chunk in chunks if chunk.id in fetched.vectors}
        return {text: vector for text, vector in vectors.items() if not is_zero(vector)}  # of an earlier version

    async def _embed_the_rest(self, tally: Tally, on_progress: OnProgress | None) -> None:
        """Embed all passages that have no vector yet, of this run and of those before."""
        if self._late is None:
            return
        waiting = await self._late.unembedded()
        tally.to_embed = len(waiting)
        if not self._store.has_claims:
            await self._embed(waiting, tally, on_progress)
            return
        shares = sorted({_share_of(content_hash) for content_hash in waiting.values()})
        for is_patient in (False, True):  # those that another process embeds are awaited at last: it may be killed
            for share in tuple(shares):
                async with self._claimed(f"{_EMBEDDING} {share}", is_patient=is_patient) as is_ours:
                    if is_ours:
                        left = await self._late.unembedded()
                        own = {chunk_id: text for chunk_id, text in left.items() if _share_of(text) == share}
                        await self._embed(own, tally, on_progress)
                        shares.remove(share)

    async def _embed(self, waiting: Mapping[str, str], tally: Tally, on_progress: OnProgress | None) -> None:
        """Embed passages by their ids, with the hashes of their texts."""
        assert self._late is not None  # noqa: S101 - the caller has looked
        known: dict[str, Vector] = {}
        for ids in equal_together(waiting):
            chunks = tuple((await self._store.fetch(FetchRequest(chunk_ids=ids))).chunks.values())
            vectors = await self._vectors.passages(chunks, known)
            if vectors is not None:
                await self._call(self._late.add_vectors, Change(chunks=chunks, vectors=vectors))
                known = {chunk.indexed_text: vector for chunk, vector in zip(chunks, vectors, strict=True)}
            tally.embedded += len(ids)
            if on_progress is not None:
                on_progress(tally.progress)

    async def _write(
        self, batch: Batch, former: Mapping[str, Vector] | None = None, *, words_first: bool = False
    ) -> bool:
        """Write a batch, unless nothing of it has changed, and return whether it was written.

        Args:
            batch: What was read.
            former: Vectors of this embedder by their text.
            words_first: Whether only chunks whose vectors are among these get them now.
        """
        known = former or {}
        prepared = [item for item in batch if isinstance(item, Prepared)]
        finished = [item for item in batch if isinstance(item, Finished)]
        chunks = tuple(chunk for item in prepared for chunk in item.chunks)
        embedded = tuple(chunk for chunk in chunks if not words_first or chunk.indexed_text in known)
        change = Change(
            chunks=chunks,
            vectors=await self._vectors.passages(embedded, known),
            unembedded=frozenset(chunk.id for chunk in chunks) - {chunk.id for chunk in embedded},
            documents=tuple(item.document for item in prepared),
            sections=tuple(section for item in prepared for section in item.sections),
            removed_documents=tuple(document_id for item in finished for document_id in item.removed),
            sources=tuple(item.state for item in finished if item.state is not None),
        )
        is_changed = bool(change.documents or change.sources)
        if is_changed:
            await self._upsert(change)
        return is_changed

    async def _call(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call an embedder or the store, and again if that can help: a run of hours must not end with one busy moment.

        Writing the same change twice changes nothing. A store that says that another process writes has waited already.
        """

        async def attempt() -> T:
            return await function(*args, **kwargs)

        try:
            return await attempt()
        except IndexBusyError:
            raise
        except Exception as error:  # noqa: BLE001 - raised again if another attempt can't help
            if self._retries.max_retries and can_help(error, self._retries.retryable_exceptions):
                logger.warning("A call failed and is retried: %s", error)
            return await retry(error, attempt, self._retries, self._clock, lambda: LONGEST_WAIT)

    async def _upsert(self, change: Change) -> None:
        refuse_marker_id({each.document_id for each in change.chunks}.union(each.id for each in change.documents))
        await self._call(refuse_unfinished_copy, self._store)
        await self._call(self._store.upsert, change)
        if self._on_written is not None:
            await self._on_written(change)

    @asynccontextmanager
    async def _recorded(self, tally: Tally) -> AsyncGenerator[Callable[[], Awaitable[None]]]:
        """Yield a coroutine function that records the progress of the run that fills a new index.

        A run after one that was killed fills it too.
        """
        place = self._place
        if place is not None and await self._pool.run(read_progress, place) is None and any(await self._held()):
            place = None

        async def record() -> None:
            if place is not None:
                await self._pool.run(write_progress, place, tally.files, tally.files_total)

        try:
            await record()
            yield record
        finally:
            if place is not None:
                await self._pool.run(remove_progress, place)

    async def _held(self) -> tuple[int, int]:
        """Return how many documents and chunks the index has."""
        try:
            info = await self._store.describe()
        except IndexNotFoundError:
            return 0, 0
        return info.documents, info.chunks

    async def _forget(self, vanished: Mapping[str, bool]) -> tuple[int, int]:
        """Remove the documents of files that vanished; the value is whether a file is ignored now.

        Return how many documents that were, and how many of ignored files.
        """
        documents = {source: tuple(await self._store.documents_of(source)) for source in vanished}
        if vanished:
            removed = tuple(document_id for held in documents.values() for document_id in held)
            await self._upsert(Change(removed_documents=removed, removed_sources=tuple(vanished)))
        ignored = sum(len(documents[source]) for source, is_ignored in vanished.items() if is_ignored)
        return sum(map(len, documents.values())), ignored


def _missing(discovery: Discovery, known: Mapping[str, SourceState]) -> list[tuple[Path, str]]:
    """Return paths that are not there and are no file of the index either, each with the reason it is refused.

    Raises:
        UnreadableFileError: There is nothing else to do, and the index has no documents from any of them.
    """
    missing: list[tuple[Path, str]] = []
    is_known = False
    locations = {state.location for state in known.values()}
    for name, path in discovery.gone.items():
        files = sum(location == name or location.startswith(f"{name}/") for location in locations)
        is_known |= files > 0
        if not files:
            missing.append((path, "there is no such file or folder, and the index has no documents from it"))
        elif name not in locations:
            kept = f"the documents of {files:,} file{'s' * (files != 1)} in it stay in the index"
            missing.append((path, f"this folder is not there; {kept}. To remove them, index the folder above it"))
    if missing and not (is_known or discovery.files or discovery.folders or discovery.refused):
        path, reason = missing[0]
        raise UnreadableFileError(str(path), reason)
    return missing


def _share_of(content_hash: str) -> int:
    """Return the share of the work that the chunks of a text are in; equal texts are embedded together."""
    return int(sha256(content_hash.encode()).hexdigest(), 16) % SHARES


def _refuse_id(file: FoundFile, document_id: str, owner: str) -> NoReturn:
    where = "two of its rows" if owner == file.source else f"one of its rows and {owner!r}"
    raise UnreadableFileError(str(file.path), f"{where} have the same document id {document_id!r}")


def _is_newer(path: Path, moment: datetime) -> bool:
    try:
        return path.stat().st_mtime > moment.timestamp()
    except (OSError, ValueError):  # ValueError: no system has such names
        return False
