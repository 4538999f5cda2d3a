"""An index: a retrieval pipeline that can be filled."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from reprlib import repr  # noqa: A004 - shortens long values
from typing import TYPE_CHECKING, Any, TypeVar

from retrieval_core.errors import InvalidParameterError, checked_count
from retrieval_core.index.incomplete import IncompleteIndex, note_of_progress
from retrieval_core.index.integrity import IntegrityCheck
from retrieval_core.index.pages import Pages
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.pipeline.search_loop import value_of
from retrieval_core.pipeline.stages.sound import fetch
from retrieval_core.ports import FetchRequest, Versioned
from retrieval_core.types import Chunk, Document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from retrieval_core.adapters.graph.builder import GraphBuilder
    from retrieval_core.ingest.ingester import Ingester
    from retrieval_core.ingest.readers.pdf_places import PlaceOnPage
    from retrieval_core.ingest.report import IndexReport, OnProgress
    from retrieval_core.ports import Embedder, Store, StoreInfo
    from retrieval_core.types import ChunkValidation, Degradation, DocumentInfo, IntegrityReport

T = TypeVar("T")


def each_of(kind: type[T] | tuple[type[T], ...], values: Iterable[T], taker: str) -> Iterator[T]:
    """Yield values after their types are checked.

    Args:
        taker: Names the method that takes them.

    Raises:
        InvalidParameterError: One is of another type, or they are no list.
    """
    name = " or ".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"{taker} takes a list with values of the type {name}, got {repr(values)} ({type(values).__name__})"
        raise InvalidParameterError(msg)
    for value in values:
        if not isinstance(value, kind):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"{taker} takes values of the type {name}, and one is {repr(value)} ({type(value).__name__})"
            raise InvalidParameterError(msg)
        yield value


class Index(RetrievalPipeline):
    """A collection of documents that can be filled and searched; made by :func:`retrieval_core.open_index`.

    Every method exists twice: as it is, and with an ``a`` before its name as a coroutine function. The former may be
    called where an event loop is running, and then blocks that loop's thread.

    Args:
        ingester: Writes to the store; closed with the index.
        graph: Kept in step with the documents.
        place: The file or folder of an index on this machine.
        stages: What else a :class:`~retrieval_core.pipeline.RetrievalPipeline` takes.
    """

    def __init__(
        self,
        store: Store,
        embedder: Embedder | None = None,
        *,
        ingester: Ingester,
        graph: GraphBuilder | None = None,
        place: Path | None = None,
        **stages: Any,
    ) -> None:
        super().__init__(store, embedder, **stages)
        self._ingester = ingester
        self._graph = graph
        self._place = place
        if place is not None:
            self._retrieval = IncompleteIndex(self._retrieval, place, is_strict=self.config.strict)
        self._integrity = IntegrityCheck(ingester, self._run)
        self._pages = Pages(ingester)

    def ingest(
        self,
        paths: str | Path | Iterable[str | Path],
        on_progress: OnProgress | None = None,
        *,
        follow_links: bool = False,
        gitignore: bool = True,
        isolated: bool = False,
    ) -> IndexReport:
        """Bring the index in step with files and folders; see :meth:`aingest`."""
        ingesting = self.aingest(paths, on_progress, follow_links=follow_links, gitignore=gitignore, isolated=isolated)
        return self.sync.run(ingesting, seconds=None)

    async def aingest(
        self,
        paths: str | Path | Iterable[str | Path],
        on_progress: OnProgress | None = None,
        *,
        follow_links: bool = False,
        gitignore: bool = True,
        isolated: bool = False,
    ) -> IndexReport:
        """Bring the index in step with files and folders: read what is new or changed, remove what is gone.

        Args:
            paths: Files and folders; folders are walked. The documents of a file that is not there any more are
                removed. Those of a folder that is not there stay, and the folder is among the failures.
            on_progress: Called after each write, from the event loop's thread.
            follow_links: Whether symbolic links are followed out of the folders that they are in; otherwise these are
                passed over, and counted in the report.
            gitignore: Whether files and folders that a ``.gitignore`` excludes are passed over, and counted in the
                report; what is named in ``paths`` itself never is.
            isolated: Whether each file is read in a process of its own, for files of people who are not trusted: one
                that brings its reader down, or is not read within five minutes, is then among the failures, and takes
                nothing else with it. To start it takes some tenths of a second.

        Raises:
            InvalidParameterError: One of the paths is neither text nor a ``Path``.
            UnreadableFileError: There is nothing to do: no path is there, and the index has no document of any.
            EmbeddingError: A text could not be embedded; everything written until then stays.
            StoreError: The index cannot be written.
        """
        several = [paths] if isinstance(paths, (str, Path)) else each_of((str, Path), paths, "ingest()")
        return await self._ingest(
            [Path(path) for path in several],
            on_progress,
            follow_links=follow_links,
            gitignore=gitignore,
            isolated=isolated,
        )

    async def _ingest(self, *files: Any, **options: Any) -> IndexReport:
        try:
            report = await self._ingester.index(*files, **options)
            if self._graph is None:
                return report
            caught_up = await self._graph.catch_up(self._ingester.store)
            return replace(report, graph_failures=caught_up.failed)
        finally:
            await self._after_writing()

    async def progress_note(self) -> Degradation | None:
        """Return how much of a new index is there, while its first documents are being indexed by any process."""
        return None if self._place is None else await note_of_progress(self._place)

    def add(self, chunks: Sequence[Chunk]) -> None:
        """Add chunks that were made elsewhere; see :meth:`aadd`."""
        self.sync.run(self.aadd(chunks), seconds=None)

    async def aadd(self, chunks: Sequence[Chunk]) -> None:
        """Add chunks that were made elsewhere, all of them or none; a chunk replaces the one with its id.

        Raises:
            InvalidParameterError: One of them is no chunk.
            EmbeddingError: A text could not be embedded.
            StoreError: The index cannot be written.
        """
        await self._ingester.add(list(each_of(Chunk, chunks, "add()")))
        await self._after_writing()

    def add_documents(self, documents: Iterable[Document], on_progress: Callable[[int], None] | None = None) -> None:
        """Split, embed and add documents that were made elsewhere; see :meth:`aadd_documents`."""
        self.sync.run(self.aadd_documents(documents, on_progress), seconds=None)

    async def aadd_documents(
        self, documents: Iterable[Document], on_progress: Callable[[int], None] | None = None
    ) -> None:
        """Split, embed and add documents that were made elsewhere; a document replaces the one with its id.

        Args:
            documents: Their texts are plain, not Markdown. Iterated in a thread, as far as needed.
            on_progress: Called after each write with the number of documents written so far.

        Raises:
            InvalidParameterError: One of them is no document; everything written until then stays.
            EmbeddingError: A text could not be embedded; everything written until then stays.
            StoreError: The index cannot be written.
        """
        try:
            await self._ingester.add_documents(each_of(Document, documents, "add_documents()"), on_progress)
        finally:
            await self._after_writing()

    def delete(self, document_id: str | Iterable[str]) -> int:
        """Remove documents with all their chunks; see :meth:`adelete`."""
        return self.sync.run(self.adelete(document_id), seconds=None)

    async def adelete(self, document_id: str | Iterable[str]) -> int:
        """Remove documents with all their chunks, and return the number of chunks removed.

        Args:
            document_id: The id of a document, or several ids, which are removed in one write. Unknown ids are ignored.

        Raises:
            InvalidParameterError: An id is not text.
            StoreError: The index can't be written.

        Example::

            with open_index("notes.db") as index:
                index.delete("moon.md")
        """
        ids = (document_id,) if isinstance(document_id, str) else tuple(each_of(str, document_id, "delete()"))
        gone = await self._ingester.delete(ids)
        await self._after_writing()
        return gone

    def find_documents(self, names: Iterable[str]) -> tuple[DocumentInfo, ...]:
        """Find documents by name, path or folder; see :meth:`afind_documents`."""
        return self.sync.run(self.afind_documents(names), seconds=None)

    async def afind_documents(self, names: Iterable[str]) -> tuple[DocumentInfo, ...]:
        """Find documents by name, path or folder.

        Args:
            names: Ids of documents, names of files in the index, or paths of files. A name that ends with ``/`` is a
                folder.

        Returns:
            The documents, each once, in the order of the names.

        Raises:
            InvalidParameterError: The index has no document of a name; the message has the closest name.
            StoreError: The index can't be read, or its store can't list documents.

        Example::

            with open_index("notes.db") as index:
                old = index.find_documents(["docs/old/"])
                index.delete(document.id for document in old)
        """
        from retrieval_core.index.naming import find_documents  # noqa: PLC0415 - few programs need it

        wanted = tuple(each_of(str, names, "find_documents()"))
        return await find_documents(wanted, [each async for each in self.adocuments()], self._ingester)

    async def apath_of(self, name: str) -> Path:
        """Return the path of a file or folder by its name in the index; nothing needs to be there.

        Args:
            name: The ``source`` of a document, or a folder as such names have it.

        Raises:
            StoreError: The index can't be read.
        """
        return await self._ingester.path_of(name)

    def path_of(self, name: str) -> Path:
        """Return the path of a file or folder by its name in the index; see :meth:`apath_of`."""
        return self.sync.run(self.apath_of(name), seconds=None)

    async def _after_writing(self) -> None:
        """Forget results of an index that does not tell that it was written to."""
        if not isinstance(self.store, Versioned):
            await self.ainvalidate()

    def document(self, document_id: str) -> Document | None:
        """Return a whole document, whose text the spans of its chunks point into; ``None`` if it is not there."""
        return self.sync.run(self.adocument(document_id), seconds=None)

    async def adocument(self, document_id: str) -> Document | None:
        """Return a whole document, whose text the spans of its chunks point into; ``None`` if it is not there.

        Raises:
            StoreError: The index cannot be read.
            ServiceError: It is at a service that did not answer, or not in time.
        """
        request = FetchRequest(document_ids=(document_id,))
        return value_of(await fetch(self._run(), self.store, request)).documents.get(document_id)

    def validate(self, chunk_id: str) -> ChunkValidation | None:
        """Compare a stored chunk with its original; see :meth:`avalidate`."""
        return self.sync.run(self.avalidate(chunk_id))

    async def avalidate(self, chunk_id: str) -> ChunkValidation | None:
        """Compare a stored chunk with its original, byte by byte; ``None`` if there is no such chunk.

        The original is the chunk's range of its document's text; where the index keeps no texts, the file is read
        again. Whether that file was edited since is told by :meth:`acheck_integrity` alone.

        Raises:
            StoreError: The index cannot be read.
            ServiceError: It is at a service that did not answer, or not in time.
        """
        return await self._integrity.validate(chunk_id)

    async def aedited_since(self, chunks: Iterable[Chunk]) -> frozenset[str]:
        """Return the ids of those chunks whose file says something else now than when it was indexed.

        A file counts that was written to since and whose bytes are others; one that is gone, and what came from no
        file, does not.

        Raises:
            StoreError: The index cannot be read.
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

    def may_be_edited(self, chunks: Iterable[Chunk]) -> bool:
        """Return whether the file of any of these chunks was written to since it was indexed, without reading it.

        Only then :meth:`aedited_since` has more to find out. It blocks until the disk has answered.
        """
        return bool(self._ingester.newer_files_now(_moments(chunks)))

    def place_on_page(self, chunk: Chunk, page: int | None = None) -> PlaceOnPage:
        """Return where a passage stands on its page; see :meth:`aplace_on_page`."""
        return self.sync.run(self.aplace_on_page(chunk, page), seconds=None)

    async def aplace_on_page(self, chunk: Chunk, page: int | None = None) -> PlaceOnPage:
        """Return where a passage of a PDF stands on one of its pages, as the file says that it was read from.

        Args:
            chunk: Of this index.
            page: The number of one of the pages that it runs over; the first where it is not given.

        Raises:
            InvalidParameterError: The passage is not on that page.
            UnreadableFileError: It is of no PDF file, or this is gone or was changed; the reason says which.
            StoreError: The index cannot be read.
        """
        return await self._pages.place(chunk, page)

    def picture_of_page(self, chunk: Chunk, width: int = 1000, page: int | None = None) -> bytes:
        """Return the picture of a passage's page; see :meth:`apicture_of_page`."""
        return self.sync.run(self.apicture_of_page(chunk, width, page), seconds=None)

    async def apicture_of_page(self, chunk: Chunk, width: int = 1000, page: int | None = None) -> bytes:
        """Return a picture of the page that :meth:`aplace_on_page` tells of, in PNG.

        Args:
            chunk: Of this index.
            width: In pixels, at least 1; a page that is very long gets fewer, as no picture has more than 16 million.
            page: As there.

        Raises:
            InvalidParameterError: The width is less than 1, or the passage is not on that page.
            UnreadableFileError: As there.
            StoreError: As there.
        """
        return await self._pages.picture(chunk, checked_count(width, "width"), page)

    def check_integrity(
        self,
        *,
        sample: int | None = None,
        seed: int | None = None,
        document_ids: Iterable[str] = (),
        repair: bool = False,
    ) -> IntegrityReport:
        """Compare the index with its originals; see :meth:`acheck_integrity`."""
        checking = self.acheck_integrity(sample=sample, seed=seed, document_ids=document_ids, repair=repair)
        return self.sync.run(checking, seconds=None)

    async def acheck_integrity(
        self,
        *,
        sample: int | None = None,
        seed: int | None = None,
        document_ids: Iterable[str] = (),
        repair: bool = False,
    ) -> IntegrityReport:
        """Check everything that the index stores for damage.

        It finds changed, missing and stray chunks, damaged vectors and postings, and files that were edited since. Text
        is compared byte by byte, with the first byte that differs. Nothing is changed unless ``repair`` is set. What is
        written meanwhile may look like a mismatch.

        Args:
            sample: How many documents to compare, each as a whole, drawn at random; all where it is not given.
            seed: Of the random choice; the same one draws the same documents of the same index.
            document_ids: Documents to compare beside those of files. Stores list none that were added without a file,
                so their chunks count as ``unverifiable`` unless they are named here.
            repair: Whether to repair what differs, and nothing else: from the index itself as far as that goes, and by
                reading files again. The report is of what is there afterwards.

        Raises:
            InvalidParameterError: A named document is not there, or the sample is less than 1.
            StoreError: The index cannot be read, or not be repaired.
            EmbeddingError: A text could not be embedded.
            ServiceError: It is at a service that did not answer, or not in time.
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

    def describe(self) -> StoreInfo:
        """Say what the index holds and can do."""
        return self.sync.run(self.adescribe(), seconds=None)

    async def adescribe(self) -> StoreInfo:
        """Say what the index holds and can do.

        Raises:
            StoreError: The index cannot be opened.
            ServiceError: It is at a service that did not answer, or not in time.
        """
        return value_of(await self._run().on("store").call("describe", self.store.describe))

    async def aclose(self) -> None:
        """Let go of files, threads and models. Closing twice is fine."""
        try:
            await asyncio.to_thread(self._ingester.close)
        finally:
            await super().aclose()


def _moments(chunks: Iterable[Chunk]) -> dict[str, datetime]:
    """Return when the files of chunks were indexed, by their names; some are of no file."""
    return {
        chunk.source: chunk.timestamp for chunk in chunks if chunk.source is not None and chunk.timestamp is not None
    }
