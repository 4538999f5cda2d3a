"""An index with everything around it: put files in, ask questions, take files out."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retrieval_core.pipeline.lifecycle import Closing
from retrieval_core.ports import FetchRequest, Versioned

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
    from typing import Unpack

    from retrieval_core.adapters.graph.builder import GraphBuilder
    from retrieval_core.ingest.ingester import Ingester
    from retrieval_core.ingest.report import IndexReport, OnProgress
    from retrieval_core.pipeline import RetrievalPipeline
    from retrieval_core.pipeline.answer.asking import AnswerOptions, History
    from retrieval_core.pipeline.many import QueryOutcome
    from retrieval_core.pipeline.options import QueryOptions
    from retrieval_core.ports import StoreInfo
    from retrieval_core.types import (
        Answer,
        AnswerEvent,
        Chunk,
        Citation,
        CitationCheck,
        ContextPack,
        Document,
        RetrievalResult,
    )
    from retrieval_core.types.filters import Filter, MetadataFilter

    Filters = Filter | MetadataFilter | Mapping[str, Any] | None


class Index(Closing):
    """A collection of documents that can be filled and searched; made by :func:`retrieval_core.open_index`.

    Every method exists twice: as it is, and with an ``a`` before its name as a coroutine function. The former may be
    called where an event loop is running, and then blocks that loop's thread.
    """

    def __init__(self, pipeline: RetrievalPipeline, ingester: Ingester, graph: GraphBuilder | None = None) -> None:
        self.pipeline = pipeline
        self._ingester = ingester
        self._graph = graph

    def retrieve(self, query: str, filters: Filters = None, **options: Unpack[QueryOptions]) -> RetrievalResult:
        """Find the passages that answer a question; see :meth:`RetrievalPipeline.aretrieve`."""
        return self.pipeline.retrieve(query, filters, **options)

    async def aretrieve(self, query: str, filters: Filters = None, **options: Unpack[QueryOptions]) -> RetrievalResult:
        """Find the passages that answer a question; see :meth:`RetrievalPipeline.aretrieve`."""
        return await self.pipeline.aretrieve(query, filters, **options)

    def retrieve_many(
        self, queries: Sequence[str], filters: Filters = None, **options: Unpack[QueryOptions]
    ) -> tuple[QueryOutcome, ...]:
        """Answer several questions; see :meth:`RetrievalPipeline.aretrieve_many`."""
        return self.pipeline.retrieve_many(queries, filters, **options)

    async def aretrieve_many(
        self, queries: Sequence[str], filters: Filters = None, **options: Unpack[QueryOptions]
    ) -> tuple[QueryOutcome, ...]:
        """Answer several questions; see :meth:`RetrievalPipeline.aretrieve_many`."""
        return await self.pipeline.aretrieve_many(queries, filters, **options)

    def context(
        self, query: str, filters: Filters = None, *, max_tokens: int | None = None, **options: Unpack[QueryOptions]
    ) -> ContextPack:
        """Return what a model should be shown to answer a question; see :meth:`RetrievalPipeline.acontext`."""
        return self.pipeline.context(query, filters, max_tokens=max_tokens, **options)

    async def acontext(
        self, query: str, filters: Filters = None, *, max_tokens: int | None = None, **options: Unpack[QueryOptions]
    ) -> ContextPack:
        """Return what a model should be shown to answer a question; see :meth:`RetrievalPipeline.acontext`."""
        return await self.pipeline.acontext(query, filters, max_tokens=max_tokens, **options)

    def answer(self, query: str, filters: Filters = None, **options: Unpack[AnswerOptions]) -> Answer:
        """Answer a question from its passages; see :meth:`RetrievalPipeline.aanswer`."""
        return self.pipeline.answer(query, filters, **options)

    async def aanswer(self, query: str, filters: Filters = None, **options: Unpack[AnswerOptions]) -> Answer:
        """Answer a question from its passages; see :meth:`RetrievalPipeline.aanswer`."""
        return await self.pipeline.aanswer(query, filters, **options)

    def answer_stream(
        self, query: str, filters: Filters = None, **options: Unpack[AnswerOptions]
    ) -> Generator[AnswerEvent]:
        """Answer a question, and yield what happens as it happens; see :meth:`RetrievalPipeline.aanswer_stream`."""
        return self.pipeline.answer_stream(query, filters, **options)

    def aanswer_stream(
        self, query: str, filters: Filters = None, **options: Unpack[AnswerOptions]
    ) -> AsyncGenerator[AnswerEvent]:
        """Answer a question, and yield what happens as it happens; see :meth:`RetrievalPipeline.aanswer_stream`."""
        return self.pipeline.aanswer_stream(query, filters, **options)

    def answer_with_history(
        self, query: str, conversation_history: History, filters: Filters = None, **options: Unpack[AnswerOptions]
    ) -> Generator[AnswerEvent]:
        """Answer a question of a conversation; see :meth:`RetrievalPipeline.answer_with_history`."""
        return self.pipeline.answer_with_history(query, conversation_history, filters, **options)

    def aanswer_with_history(
        self, query: str, conversation_history: History, filters: Filters = None, **options: Unpack[AnswerOptions]
    ) -> AsyncGenerator[AnswerEvent]:
        """Answer a question of a conversation; see :meth:`RetrievalPipeline.aanswer_with_history`."""
        return self.pipeline.aanswer_with_history(query, conversation_history, filters, **options)

    def verify(self, citations: Sequence[Citation]) -> tuple[CitationCheck, ...]:
        """Compare citations with what the index says now; see :meth:`RetrievalPipeline.averify`."""
        return self.pipeline.verify(citations)

    async def averify(self, citations: Sequence[Citation]) -> tuple[CitationCheck, ...]:
        """Compare citations with what the index says now; see :meth:`RetrievalPipeline.averify`."""
        return await self.pipeline.averify(citations)

    def index(
        self,
        paths: str | Path | Iterable[str | Path],
        on_progress: OnProgress | None = None,
        *,
        follow_links: bool = False,
        gitignore: bool = True,
    ) -> IndexReport:
        """Bring the index in step with files and folders; see :meth:`aindex`."""
        indexing = self.aindex(paths, on_progress, follow_links=follow_links, gitignore=gitignore)
        return self.pipeline.sync.run(indexing, seconds=None)

    async def aindex(
        self,
        paths: str | Path | Iterable[str | Path],
        on_progress: OnProgress | None = None,
        *,
        follow_links: bool = False,
        gitignore: bool = True,
    ) -> IndexReport:
        """Bring the index in step with files and folders: read what is new or changed, remove what is gone.

        Args:
            paths: Files and folders; folders are walked.
            on_progress: Called after each write, from the event loop's thread.
            follow_links: Whether symbolic links are followed out of the folders that they are in; otherwise these are
                passed over, and counted in the report.
            gitignore: Whether files and folders that a ``.gitignore`` excludes are passed over, and counted in the
                report; what is named in ``paths`` itself never is.

        Raises:
            EmbeddingError: A text could not be embedded; everything written until then stays.
            StoreError: The index cannot be written.
        """
        several = (paths,) if isinstance(paths, (str, Path)) else paths
        try:
            report = await self._ingester.index(
                [Path(path) for path in several], on_progress, follow_links=follow_links, gitignore=gitignore
            )
            if self._graph is None:
                return report
            caught_up = await self._graph.catch_up(self._ingester.store)
            return replace(report, graph_failures=caught_up.failed)
        finally:
            await self._after_writing()

    def add(self, chunks: Sequence[Chunk]) -> None:
        """Add chunks that were made elsewhere; see :meth:`aadd`."""
        self.pipeline.sync.run(self.aadd(chunks), seconds=None)

    async def aadd(self, chunks: Sequence[Chunk]) -> None:
        """Add chunks that were made elsewhere, all of them or none; a chunk replaces the one with its id.

        Raises:
            EmbeddingError: A text could not be embedded.
            StoreError: The index cannot be written.
        """
        await self._ingester.add(chunks)
        await self._after_writing()

    def add_documents(self, documents: Iterable[Document], on_progress: Callable[[int], None] | None = None) -> None:
        """Split, embed and add documents that were made elsewhere; see :meth:`aadd_documents`."""
        self.pipeline.sync.run(self.aadd_documents(documents, on_progress), seconds=None)

    async def aadd_documents(
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
        try:
            await self._ingester.add_documents(documents, on_progress)
        finally:
            await self._after_writing()

    def delete(self, document_id: str) -> int:
        """Remove a document with all its chunks, and return how many chunks went."""
        return self.pipeline.sync.run(self.adelete(document_id), seconds=None)

    async def adelete(self, document_id: str) -> int:
        """Remove a document with all its chunks, and return how many chunks went."""
        gone = await self._ingester.delete(document_id)
        await self._after_writing()
        return gone

    async def _after_writing(self) -> None:
        """Forget results of an index that does not tell that it was written to."""
        if not isinstance(self.pipeline.store, Versioned):
            await self.pipeline.ainvalidate()

    def document(self, document_id: str) -> Document | None:
        """Return a whole document, whose text the spans of its chunks point into; ``None`` if it is not there."""
        return self.pipeline.sync.run(self.adocument(document_id), seconds=None)

    async def adocument(self, document_id: str) -> Document | None:
        """Return a whole document, whose text the spans of its chunks point into; ``None`` if it is not there."""
        fetched = await self.pipeline.store.fetch(FetchRequest(document_ids=(document_id,)))
        return fetched.documents.get(document_id)

    def describe(self) -> StoreInfo:
        """Say what the index holds and can do."""
        return self.pipeline.sync.run(self.adescribe(), seconds=None)

    async def adescribe(self) -> StoreInfo:
        """Say what the index holds and can do."""
        return await self.pipeline.store.describe()

    def close(self) -> None:
        """Let go of files, threads and models. Closing twice is fine."""
        try:
            self._ingester.close()
        finally:
            self.pipeline.close()

    async def aclose(self) -> None:
        """Let go of files, threads and models. Closing twice is fine."""
        try:
            await asyncio.to_thread(self._ingester.close)
        finally:
            await self.pipeline.aclose()
