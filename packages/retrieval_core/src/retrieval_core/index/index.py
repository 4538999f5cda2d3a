"""An index: a retrieval pipeline that you can add documents to."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from os import sep
from pathlib import Path, PurePath, PurePosixPath
from reprlib import repr  # noqa: A004 - shortens long values
from typing import TYPE_CHECKING, Any, TypeVar

from retrieval_core.adapters.stores.first_run import read_progress
from retrieval_core.errors import (
    IncompleteSearchError,
    InvalidParameterError,
    StoreError,
    UnreadableFileError,
    checked_count,
    progress_of_first_run,
)
from retrieval_core.index.integrity import IntegrityCheck
from retrieval_core.ingest.copy_marker import read_marker
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.pipeline.grep import (
    MOST_CONTEXT,
    MOST_LINES,
    SECONDS,
    GrepPlan,
    checked_output,
    checked_range,
    grep,
)
from retrieval_core.pipeline.options import condition_of
from retrieval_core.pipeline.stages.search import fetch
from retrieval_core.ports import FetchRequest
from retrieval_core.run.outcomes import value_of
from retrieval_core.run.sync import to_a_loop
from retrieval_core.run.threads import PoolClosedError
from retrieval_core.run.twins import sync_twin
from retrieval_core.text.patterns import compile_pattern
from retrieval_core.types import Chunk, Degradation, Document

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from retrieval_core.index.settings import SettingsMemory
    from retrieval_core.ingest.ingester import Ingester
    from retrieval_core.ingest.readers.pdf_places import PlaceOnPage
    from retrieval_core.ingest.report import IndexReport, OnProgress
    from retrieval_core.pipeline.options import Filters
    from retrieval_core.pipeline.several import Retrieval
    from retrieval_core.pipeline.stages.state import Plan, SearchState
    from retrieval_core.ports import Embedder, Store, StoreInfo
    from retrieval_core.run.runner import Run
    from retrieval_core.types import ChunkValidation, DocumentInfo, IntegrityReport, Query, RetrievalResult
    from retrieval_core.types.grep import GrepOutput, GrepResult

T = TypeVar("T")
Found = TypeVar("Found", "RetrievalResult", "SearchState")
NOTE_SECONDS = 5.0
"""The longest time that a query waits for the store to say whether the index is whole, within its deadline."""
FEWEST_NOTE_SECONDS = 0.5
"""The time for that if the search has used up the deadline: a store that responds does so sooner."""


def each_of(kind: type[T] | tuple[type[T], ...], values: Iterable[T], taker: str) -> Iterator[T]:
    """Yield values after checking their types.

    Args:
        taker: Name of the method, for the message.

    Raises:
        InvalidParameterError: A value has another type, or the values are not a list.
    """
    name = " or ".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"{taker} takes a list with values of the type {name}, got {repr(values)} ({type(values).__name__})"
        raise InvalidParameterError(msg)
    for value in values:
        if not isinstance(value, kind):  # pyright: ignore[reportUnnecessaryIsInstance]
            given = type(value)
            shown = f"{given.__module__}.{given.__qualname__}" if given.__name__ in name.split() else given.__name__
            msg = f"{taker} takes values of the type {name}, and one is {repr(value)} ({shown})"
            raise InvalidParameterError(msg)
        yield value


class Index(RetrievalPipeline):
    """A searchable collection of documents, opened by :func:`retrieval_core.open_index`.

    Add documents with :meth:`ingest`, :meth:`add_documents` or :meth:`add`; search with :meth:`retrieve`,
    :meth:`context` and :meth:`answer`. Each method has an asynchronous twin whose name begins with ``a``, such as
    :meth:`aretrieve`. Synchronous methods also work while an event loop is running, and block its thread.

    Args:
        store: Stores the documents.
        embedder: Embeds queries; ``None`` for keyword search only.
        ingester: Reads files and writes to the store; closed with the index.
        place: File or folder of a local index.
        memory: Stores the settings in the index.
        stages: Further arguments of :class:`~retrieval_core.pipeline.RetrievalPipeline`.

    Example::

        with open_index("notes.db") as index:
            index.ingest("notes")
            print(index.retrieve("how far away is the moon").hits[0].chunk.text)
    """

    def __init__(
        self,
        store: Store,
        embedder: Embedder | None = None,
        *,
        ingester: Ingester,
        place: Path | None = None,
        memory: SettingsMemory | None = None,
        **stages: Any,
    ) -> None:
        super().__init__(store, embedder, **stages)
        self._ingester = ingester
        self._place = place
        self._memory = memory
        self._whole_version: str | None = None
        self._retrieval = _Incomplete(
            self._retrieval, self._first_run_note, self._copy_note, is_strict=self.config.strict
        )
        self._integrity = IntegrityCheck(ingester, self._run)

    async def aingest(
        self,
        paths: str | Path | Iterable[str | Path],
        on_progress: OnProgress | None = None,
        *,
        follow_links: bool = False,
        gitignore: bool = True,
        isolated: bool = False,
    ) -> IndexReport:
        """Index files and folders: read new and changed files, and remove documents whose files are gone.

        Unchanged files are skipped, so you can call it again at any time. Files that can't be read are listed in
        ``report.failed``; the others are indexed.

        Args:
            paths: One or more files and folders, as text or ``Path``; folders include their subfolders. Documents of a
                folder that no longer exists are kept, and the folder is listed in ``report.failed``.
            on_progress: Called after each write with an :class:`~retrieval_core.ingest.report.IndexProgress`, on the
                thread of the event loop. Default: none.
            follow_links: Whether to follow symbolic links that lead out of their folder. Default: ``False``; they are
                skipped and counted in ``report.skipped_links``.
            gitignore: Whether to skip files and folders that a ``.gitignore`` excludes, and code that is vendored,
                generated or minified; ``paths`` themselves are never skipped. Default: ``True``; skipped files are
                counted in ``report.ignored`` and ``report.skipped``.
            isolated: Whether to read each file in a separate process, for files from people you don't trust. A file
                that crashes its reader, or takes more than 5 minutes, is listed in ``report.failed``. Starting a
                process takes some tenths of a second. Default: ``False``.

        Returns:
            The numbers of documents added, updated, unchanged and removed, the files that failed, and warnings.

        Raises:
            InvalidParameterError: A path is neither text nor a ``Path``.
            UnreadableFileError: None of the paths exists, and the index contains no documents of them.
            EmbeddingError: A text could not be embedded; everything written until then stays.
            StoreError: The index can't be written.

        Example::

            async with open_index("notes.db") as index:
                report = await index.aingest("notes")
                print(report.added, "documents added,", report.chunks, "chunks in the index")
        """
        several = [paths] if isinstance(paths, (str, Path)) else each_of((str, Path), paths, "ingest()")
        return await self._ingest(
            [Path(path) for path in several],
            on_progress,
            follow_links=follow_links,
            gitignore=gitignore,
            isolated=isolated,
        )

    ingest = sync_twin(aingest, seconds=None)

    def _facts(self) -> Mapping[str, object]:
        return {"path": self._place, **super()._facts()}

    async def _ingest(self, *files: Any, **options: Any) -> IndexReport:
        try:
            report = await self._ingester.index(*files, **options)
            if self._memory is not None:
                await self._memory.update()
            return report
        finally:
            await self._after_writing()

    async def progress_note(self) -> Degradation | None:
        """Return how much of an index is there while it is filled for the first time; ``None`` if it is whole.

        Any process may be indexing its first documents, or copying another index to it.
        """
        return await self._first_run_note() or await self._copy_note(None)

    async def _first_run_note(self) -> Degradation | None:
        await to_a_loop()
        progress = None if self._place is None else await asyncio.to_thread(read_progress, self._place)
        return None if progress is None else _incomplete(progress_of_first_run(*progress))

    async def _copy_note(self, seconds_left: float | None) -> Degradation | None:
        """Return how much of a copy is there; the store is asked again only if the index was written to since."""
        held = self.store.held()
        if held is not None and held.version == self._whole_version:
            return None
        await to_a_loop()
        try:
            async with asyncio.timeout(seconds_for_note(seconds_left)):
                if "version" in self.store.capabilities:
                    version = await self.store.version()
                else:  # such an index is asked once a minute
                    version = f"minute {self._clock.now() // 60}"
                if version is not None and version == self._whole_version:
                    return None
                marker = await read_marker(self.store)
        except TimeoutError:
            return Degradation("index", "the store did not say whether all documents are there")
        except Exception:  # noqa: BLE001 - whatever a store raises, the next search reports it
            return None
        if marker is None:
            self._whole_version = version
            return None
        return _incomplete(marker.note)

    async def aadd(self, chunks: Sequence[Chunk]) -> None:
        """Add your own chunks: all of them or none. A chunk replaces the chunk with the same ID.

        Args:
            chunks: The chunks; ``Chunk("id", "document id", "text")`` is enough.

        Raises:
            InvalidParameterError: A value is not a :class:`~retrieval_core.Chunk`.
            EmbeddingError: A text could not be embedded.
            StoreError: The index can't be written.

        Example::

            async with open_index("notes.db") as index:
                await index.aadd([Chunk("faq-1", "faq", "Refunds take five days.", metadata={"product": "shop"})])
        """
        await self._ingester.add(list(each_of(Chunk, chunks, "add()")))
        await self._after_writing()

    add = sync_twin(aadd, seconds=None)

    async def aadd_documents(
        self, documents: Iterable[Document], on_progress: Callable[[int], None] | None = None
    ) -> None:
        """Split, embed and add texts that are not in files. A document replaces the document with the same ID.

        Args:
            documents: The documents; ``Document("id", "text")`` is enough. Texts are plain text, not Markdown. A
                generator is read in a thread, one batch at a time.
            on_progress: Called after each write with the number of documents written so far. Default: none.

        Raises:
            InvalidParameterError: A value is not a :class:`~retrieval_core.Document`; everything written until then
                stays.
            EmbeddingError: A text could not be embedded; everything written until then stays.
            StoreError: The index can't be written.

        Example::

            async with open_index("notes.db") as index:
                await index.aadd_documents([Document("faq", "Refunds take five days.")])
        """
        try:
            await self._ingester.add_documents(each_of(Document, documents, "add_documents()"), on_progress)
        except PoolClosedError as error:
            msg = "the index is closed; open it again with open_index()"
            raise StoreError(msg) from error
        finally:
            await self._after_writing()

    add_documents = sync_twin(aadd_documents, seconds=None)

    async def adelete(self, document_id: str | Iterable[str]) -> int:
        """Remove documents with all their chunks.

        Args:
            document_id: ID of the document, as ``hit.chunk.document_id`` or ``index.documents()`` returns it; or
                several IDs, which are removed in one write. Unknown IDs are ignored.

        Returns:
            The number of chunks removed.

        Raises:
            InvalidParameterError: An ID is not text.
            StoreError: The index can't be written.

        Example::

            async with open_index("notes.db") as index:
                print(await index.adelete("faq"), "chunks removed")
        """
        ids = (document_id,) if isinstance(document_id, str) else tuple(each_of(str, document_id, "delete()"))
        gone = await self._ingester.delete(ids)
        await self._after_writing()
        return gone

    delete = sync_twin(adelete, seconds=None)

    async def afind_documents(self, names: Iterable[str]) -> tuple[DocumentInfo, ...]:
        """Find documents by ID, file name, path or folder.

        Args:
            names: IDs of documents, names of files in the index, or paths of files. A name that ends with ``/`` is a
                folder.

        Returns:
            The documents, each once, in the order of the names.

        Raises:
            InvalidParameterError: The index has no document of a name; the message has the closest name.
            StoreError: The index can't be read, or its store can't list documents.

        Example::

            async with open_index("notes.db") as index:
                documents = await index.afind_documents(["notes/moon.md"])
                print(await index.adelete(document.id for document in documents), "chunks removed")
        """
        wanted = tuple(each_of(str, names, "find_documents()"))
        return await _find_documents(wanted, [each async for each in self.adocuments()], self._ingester)

    find_documents = sync_twin(afind_documents, seconds=None)

    async def apath_of(self, name: str) -> Path:
        """Return the path of a file or folder by its name in the index; the file need not exist.

        Args:
            name: The ``source`` of a document, or a folder of such names.

        Raises:
            StoreError: The index can't be read.
        """
        return await self._ingester.path_of(name)

    path_of = sync_twin(apath_of, seconds=None)

    async def _after_writing(self) -> None:
        """Invalidate cached results of a store that has no version."""
        if "version" not in self.store.capabilities:
            await self.ainvalidate()

    async def adocument(self, document_id: str) -> Document | None:
        """Return a whole document with its text; ``chunk.span`` points into this text.

        Args:
            document_id: ID of the document, as ``hit.chunk.document_id`` or ``index.documents()`` returns it.

        Returns:
            The document; ``None`` if there is no such document, or the index contains only chunks of it.

        Raises:
            StoreError: The index can't be read.
            ServiceError: The service failed, or did not respond in time.

        Example::

            async with open_index("notes.db") as index:
                chunk = (await index.aretrieve("how far away is the moon")).hits[0].chunk
                document = await index.adocument(chunk.document_id)
                print(document.text[chunk.span.start : chunk.span.end] == chunk.text)
        """
        request = FetchRequest(document_ids=(document_id,))
        return value_of(await fetch(self._run(), self.store, request)).documents.get(document_id)

    document = sync_twin(adocument, seconds=None)

    async def agrep(
        self,
        pattern: str,
        path: str | None = None,
        filters: Filters = None,
        *,
        literal: bool = False,
        ignore_case: bool | None = None,
        word: bool = False,
        context: int = 0,
        output: GrepOutput = "lines",
        limit: int = 100,
        cursor: str | None = None,
    ) -> GrepResult:
        r"""Search the text of all documents, PDF and Word files too, for a pattern, line by line.

        The search takes at most a second. If it isn't done by then, ``timed_out`` is true, and the cursor continues it.

        Args:
            pattern: Regular expression in the syntax of RE2: as Python's, without lookaround and backreferences.
                ``\d``, ``\w``, ``\s`` and ``\b`` are ASCII. At most 1,000 characters.
            path: Glob such as ``docs/*.md``, or a part of a path, of the documents to search. A glob may begin at any
                folder, and its ``*`` also matches ``/``. Case is ignored. Default: all documents.
            filters: Metadata filter, as for :meth:`aretrieve`. Only the text of chunks that match it is searched.
                Default: no filter.
            literal: Whether the pattern is text without special characters. Default: ``False``.
            ignore_case: Whether case is ignored. Default: if the pattern has no uppercase letter (smart case).
            word: Whether only whole words match. Default: ``False``.
            context: Lines to return before and after each match, from 0 to 20. Default: 0.
            output: ``lines``: the matching lines. ``files``: only the documents that have one. ``counts``: the
                documents with the number of matching lines. Default: ``lines``.
            limit: Most matching lines, or documents for ``files`` and ``counts``, from 1 to 1,000. Default: 100.
            cursor: ``next_cursor`` of the previous page, with all other arguments the same. Default: the first page.

        Returns:
            The documents with their matching lines, ordered by document ID.

        Raises:
            InvalidParameterError: The pattern is invalid or needs what RE2 lacks, or an argument is out of range.
            FilterError: The filter is invalid, or the store doesn't support one of its operators.
            MissingExtraError: The extra ``grep`` is not installed.
            UnsupportedError: The store can't list its documents.
            DeadlineExceededError: The index could not be read within ``deadline_seconds``.
            IndexNotFoundError: There is no index yet.
            StoreError: The index can't be read.

        Example::

            async with open_index("notes.db") as index:
                for document in (await index.agrep(r"moon|lunar")).documents:
                    for line in document.lines:
                        print(f"{document.id}:{line.number}: {line.text}")
        """
        plan = GrepPlan(
            compile_pattern(pattern, literal=literal, ignore_case=ignore_case, word=word),
            path,
            condition_of(filters),
            checked_output(output),
            checked_range(context, "context", 0, MOST_CONTEXT),
            checked_range(limit, "limit", 1, MOST_LINES),
            cursor,
        )
        return await grep(self._run(), partial(self._run, SECONDS), self.store, plan)

    grep = sync_twin(agrep)

    async def avalidate(self, chunk_id: str) -> ChunkValidation | None:
        """Compare a stored chunk with its original, byte by byte.

        The original is the chunk's span in the text of its document. If the index contains no document texts, the file
        is read again. To find files that were edited after indexing, use ``check_integrity()``.

        Args:
            chunk_id: ID of the chunk, as ``hit.id`` returns it; or of a section, as a citation names it, whose chunks
                are all compared.

        Returns:
            The verdict with the differences; ``None`` if there is no such chunk.

        Raises:
            StoreError: The index can't be read.
            ServiceError: The service failed, or did not respond in time.

        Example::

            async with open_index("notes.db") as index:
                result = await index.aretrieve("how far away is the moon")
                print((await index.avalidate(result.hits[0].id)).verdict)
        """
        return await self._integrity.validate(chunk_id)

    validate = sync_twin(avalidate)

    async def aedited_since(self, chunks: Iterable[Chunk]) -> frozenset[str]:
        """Return the IDs of chunks whose files were edited after indexing.

        Only files whose bytes differ count. Deleted files, and chunks that came from no file, don't.

        Args:
            chunks: Chunks of this index.

        Raises:
            StoreError: The index can't be read.
        """
        from_files = [chunk for chunk in chunks if chunk.source is not None and chunk.timestamp is not None]
        newer = await self._ingester.newer_files(_moments(from_files))
        if not newer:
            return frozenset()
        known = await self._ingester.store.sources()
        edited = {
            source
            for source in newer
            if source in known and await self._ingester.hash_of(known[source]) not in (None, known[source].content_hash)
        }
        return frozenset(chunk.id for chunk in from_files if chunk.source in edited)

    async def aplace_on_page(self, chunk: Chunk, page: int | None = None) -> PlaceOnPage:
        """Return the position of a PDF chunk on one of its pages, read from the original file.

        Args:
            chunk: A chunk of this index.
            page: Page number, from 1, one of the pages of the chunk. Default: the chunk's first page.

        Raises:
            InvalidParameterError: The chunk is not on that page.
            UnreadableFileError: The chunk is not from a PDF file, or the file is missing or was changed.
            StoreError: The index can't be read.
        """
        from retrieval_core.ingest.readers.pdf_places import place_on_page  # noqa: PLC0415 - for who asks for pages

        file, number = await self._page_of(chunk, page)
        return await asyncio.to_thread(place_on_page, file, Path(chunk.document_id), number, chunk.text)

    place_on_page = sync_twin(aplace_on_page, seconds=None)

    async def apicture_of_page(self, chunk: Chunk, width: int = 1000, page: int | None = None) -> bytes:
        """Return an image of a page of a PDF chunk, as PNG.

        Args:
            chunk: A chunk of this index.
            width: Width in pixels, at least 1. Very long pages get a smaller image, at most 16 million pixels.
                Default: 1000.
            page: Page number, from 1, one of the pages of the chunk. Default: the chunk's first page.

        Raises:
            InvalidParameterError: The width is less than 1, or the chunk is not on that page.
            UnreadableFileError: The chunk is not from a PDF file, or the file is missing or was changed.
            StoreError: The index can't be read.
        """
        from retrieval_core.ingest.readers.pdf_places import picture_of_page  # noqa: PLC0415 - for who asks for pages

        checked_count(width, "width")
        file, number = await self._page_of(chunk, page)
        return await asyncio.to_thread(picture_of_page, file, Path(chunk.document_id), number, width)

    picture_of_page = sync_twin(apicture_of_page, seconds=None)

    async def _page_of(self, chunk: Chunk, page: int | None) -> tuple[bytes, int]:
        """Return the file of a chunk, and the number of the page that is asked for, or of its first one.

        Raises:
            InvalidParameterError: The chunk is not on that page.
            UnreadableFileError: It is of no PDF, or of one that is gone or was changed.
        """
        source = chunk.source or chunk.document_id
        # A file that is one document gives it its name; what was added without a file may name any source.
        is_of_file = chunk.document_id == source and PurePath(source).suffix.lower() == ".pdf"
        state = (await self._ingester.store.sources()).get(source) if is_of_file and chunk.page_span else None
        if state is None or chunk.page_span is None:
            raise UnreadableFileError(source, "the passage is of no page of a PDF file that was indexed")
        first, last = chunk.page_span.first, chunk.page_span.last
        if page is not None and not first <= page <= last:
            msg = f"page must be one of the passage, from {first} to {last}, got {page}"
            raise InvalidParameterError(msg)
        return await self._ingester.read_unchanged(state), page or first

    async def acheck_integrity(
        self,
        *,
        sample: int | None = None,
        seed: int | None = None,
        document_ids: Iterable[str] = (),
        repair: bool = False,
    ) -> IntegrityReport:
        """Check the whole index for damage, and compare it with the original files.

        Finds changed, missing and stray chunks, damaged vectors and keyword data, and files that were edited after
        indexing. Texts are compared byte by byte. Writes during the check may be reported as mismatches.

        Args:
            sample: Number of documents to compare, drawn at random, at least 1. Default: all.
            seed: Seed of the random choice, to draw the same documents again. Default: a new one each time.
            document_ids: IDs of documents to compare that came from no file. Chunks of other documents without a file
                count as ``unverifiable``. Default: none.
            repair: Whether to repair the differences, from the index itself or by reading files again; the report then
                describes the repaired index. Default: ``False``, which changes nothing.

        Returns:
            The verdict, the differences by document, and the documents that were repaired.

        Raises:
            InvalidParameterError: A document ID is unknown, or the sample is less than 1.
            StoreError: The index can't be read or repaired.
            EmbeddingError: A text could not be embedded.
            ServiceError: The service failed, or did not respond in time.

        Example::

            async with open_index("notes.db") as index:
                report = await index.acheck_integrity()
                print(report.verdict)
        """
        named = tuple(document_ids)
        seed = secrets.randbits(32) if seed is None else seed  # what was repaired is drawn once more
        report = await self._integrity.run(sample=sample, seed=seed, document_ids=named)
        if not repair or (report.verdict != "mismatch" and not report.unsealed):
            return report
        files, again = await self._integrity.repairable(report)
        await self._ingest(files, None, follow_links=True, again=again)
        checked = await self._integrity.run(sample=sample, seed=seed, document_ids=named)
        repaired = report.differing - checked.differing
        return replace(checked, repaired=tuple(sorted(repaired)))

    check_integrity = sync_twin(acheck_integrity, seconds=None)

    async def adescribe(self) -> StoreInfo:
        """Return the size, the embedding model and the search abilities of the index.

        Raises:
            IndexNotFoundError: The index does not exist yet.
            StoreError: The index can't be opened.
            ServiceError: The service failed, or did not respond in time.

        Example::

            async with open_index("notes.db") as index:
                info = await index.adescribe()
                print(info.documents, "documents,", info.chunks, "chunks in", info.location)
        """
        return value_of(await self._run().on("store").call("describe", self.store.describe))

    describe = sync_twin(adescribe, seconds=None)

    async def aclose(self) -> None:
        """Close files, threads and models. Closing twice is fine.

        A synchronous component that has not returned after 5 s is abandoned, with a warning in the log.
        """
        try:
            await asyncio.to_thread(self._ingester.close)
        finally:
            await super().aclose()


def _moments(chunks: Iterable[Chunk]) -> dict[str, datetime]:
    """Return when the files of chunks were indexed, by their names; some are of no file."""
    return {
        chunk.source: chunk.timestamp for chunk in chunks if chunk.source is not None and chunk.timestamp is not None
    }


class _Incomplete:
    """Adds to each result how much of the index is there, while it is filled for the first time or copied to.

    Args:
        first_run: Returns how many files are indexed, asked before searches until one finds all; ``None`` for all.
        copy: Returns how much is copied, given the seconds left, asked after each search; ``None`` for all.
        is_strict: Whether a search of an incomplete index fails.
    """

    def __init__(
        self,
        retrieval: Retrieval,
        first_run: Callable[[], Awaitable[Degradation | None]],
        copy: Callable[[float | None], Awaitable[Degradation | None]],
        *,
        is_strict: bool,
    ) -> None:
        self._retrieval = retrieval
        self._first_run = first_run
        self._copy = copy
        self._is_strict = is_strict
        self._is_filled = False
        self.knowledge = retrieval.knowledge
        self.plan = retrieval.plan
        self.start = retrieval.start

    @property
    def fingerprint(self) -> str | None:
        """A name for the settings of all stages."""
        return self._retrieval.fingerprint

    async def retrieve(self, run: Run, query: Query, plan: Plan) -> RetrievalResult:
        """Return the result of a query.

        Raises:
            IncompleteSearchError: The index is incomplete, and that is an error.
            RetrievalError: As the retrieval.
        """
        result, notes = await self._noted(run, lambda: self._retrieval.retrieve(run, query, plan))
        return replace(result, degraded=(*result.degraded, *notes)) if notes else result

    async def search(self, run: Run, state: SearchState) -> SearchState:
        """Return the last state of a query, as :meth:`retrieve`."""
        last, notes = await self._noted(run, lambda: self._retrieval.search(run, state))
        return last.but(degraded=(*last.degraded, *notes)) if notes else last

    async def _noted(self, run: Run, find: Callable[[], Awaitable[Found]]) -> tuple[Found, tuple[Degradation, ...]]:
        note = None if self._is_filled else await self._first_run()
        found = await find()
        # A copy is verified after its last document was written, so it can't have become whole during the search.
        note = note or await self._copy(run.seconds_left)
        if note is None:
            self._is_filled = self._is_filled or bool(found.hits)
            return found, ()
        if self._is_strict:
            raise IncompleteSearchError(note.reason, found.hits, {"degraded": (note,)})
        return found, (note,)


def seconds_for_note(left: float | None) -> float:
    """Return how long to wait for the store's answer, given the seconds that the query has left."""
    return NOTE_SECONDS if left is None else max(FEWEST_NOTE_SECONDS, min(left, NOTE_SECONDS))


def _incomplete(told: str) -> Degradation:
    return Degradation("index", f"{told}; the others can't be found yet")


async def _find_documents(
    names: Sequence[str], documents: Sequence[DocumentInfo], ingester: Ingester
) -> tuple[DocumentInfo, ...]:
    """Return the documents that names stand for, each once.

    A name in the index comes before a path to a file.

    Args:
        names: As :meth:`retrieval_core.Index.afind_documents` takes them.
        documents: All documents of the index.
        ingester: Knows where files are.

    Raises:
        InvalidParameterError: The index has no document of a name.
    """
    found: dict[str, DocumentInfo] = {}
    for name in names:
        of_name = _named(name, documents)
        if not of_name and name:
            try:
                sources = set(await ingester.names_at(Path(name), is_folder=name.endswith(("/", sep))))
            except (OSError, ValueError):  # no path of this system, or the current folder is gone
                sources = set[str]()
            of_name = [each for each in documents if each.source in sources]
        if not of_name:
            raise InvalidParameterError(_unknown(name, documents))
        found.update((each.id, each) for each in of_name)
    return tuple(found.values())


def _named(name: str, documents: Iterable[DocumentInfo]) -> list[DocumentInfo]:
    """Return the document of an id, else those of a file or folder by its name in the index."""
    if name.endswith("/"):
        return [each for each in documents if each.id.startswith(name)]
    of_file = [each for each in documents if name in (each.id, each.source)]
    return [each for each in of_file if each.id == name] or of_file


def _unknown(name: str, documents: Iterable[DocumentInfo]) -> str:
    known = {text: None for each in documents for text in (each.id, each.source) if text}
    folders = {f"{folder}/": None for text in known for folder in PurePosixPath(text).parents if folder.name}
    candidates = [*known, *folders]
    end = name.replace(sep, "/").rstrip("/").rpartition("/")[2]
    near = (
        [each for each in candidates if each.rstrip("/") == name.rstrip("/")]
        or get_close_matches(name, candidates, n=1)
        or [each for each in candidates if each.rstrip("/").rpartition("/")[2] == end]
    )
    advice = f"Did you mean {near[0]!r}?" if near else "Run 'retrieval list' to see all names."
    return f"the index has no document {name!r:.200}. {advice}"
