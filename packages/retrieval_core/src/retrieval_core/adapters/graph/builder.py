"""The builder of the knowledge graph, which extracts facts as chunks are indexed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from retrieval_core.adapters.graph.ledger import Ledger
from retrieval_core.errors import InvalidParameterError, RetrievalError, checked_count
from retrieval_core.ports import Change, ChunkRange, FetchRequest
from retrieval_core.run.outcomes import Failed, is_callers_fault
from retrieval_core.run.runner import Guard, Run
from retrieval_core.run.threads import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.adapters.graph.extract import ExtractedFacts, TripleExtractor
    from retrieval_core.adapters.graph.triples import Triple
    from retrieval_core.ports import CataloguedStore
    from retrieval_core.run.clock import Clock
    from retrieval_core.types import Chunk

DOCUMENTS_PER_FETCH = 16
"""Documents that are read at a time to catch up."""
DOCUMENTS_PER_CHECK = 500
"""Documents whose existence is checked at a time."""
_LAST = 1_000_000
"""A position behind the last chunk of any document."""


@dataclass(frozen=True, slots=True)
class GraphReport:
    """Counts of an extraction.

    Attributes:
        chunks: Read by a model.
        reused: Not read again, as their text has not changed.
        triples: Facts of all these chunks.
        dropped: Facts of the model's that their chunks do not state.
        failed: One line for each failed request, whose chunks :meth:`GraphBuilder.catch_up` tries again.
    """

    chunks: int = 0
    reused: int = 0
    triples: int = 0
    dropped: int = 0
    failed: tuple[str, ...] = ()

    def __add__(self, other: GraphReport) -> GraphReport:
        return GraphReport(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


class GraphBuilder:
    """Keeps the file of extracted facts in step with an index; failures are reported, and never stop the indexing.

    The file is replaced as a whole at the end of each call; :meth:`catch_up` makes up for facts lost by a crash. Facts
    of another builder stay, unless both write at the same moment.

    Args:
        path: The file; :class:`~retrieval_core.adapters.graph.GraphFiles` reads it.
        extractor: Its model stays the caller's to close.
        guard: Retries and circuit breakers of the requests.
        seconds: The time budget of a request for one batch, retries included.
        batch_size: Chunks in one request, at least 1.
        concurrency: Requests at a time, at least 1.

    Raises:
        InvalidParameterError: A number is outside its range.
    """

    def __init__(
        self,
        path: str | Path,
        extractor: TripleExtractor,
        *,
        guard: Guard | None = None,
        seconds: float = 120.0,
        batch_size: int = 4,
        concurrency: int = 4,
        clock: Clock | None = None,
    ) -> None:
        if not seconds > 0:
            msg = f"seconds must be more than 0, got {seconds}"
            raise InvalidParameterError(msg)
        self._path = Path(path)
        self._extractor = extractor
        self._guard = guard or Guard()
        self._seconds = seconds
        self._batch_size = checked_count(batch_size, "batch_size")
        self._concurrency = checked_count(concurrency, "concurrency")
        self._clock = clock
        self._ledger: Ledger | None = None
        self._lock = Lock()
        self._pool = ThreadPool("retrieval-graph-builder", threads=1)
        self.report = GraphReport()
        """The counts since this was made."""

    async def update(self, change: Change) -> GraphReport:
        """Follow a change that was written to the store: read its new chunks, and drop the facts of removed ones."""
        report = await self._following(change)
        self.report += report
        return report

    async def catch_up(self, store: CataloguedStore) -> GraphReport:
        """Read the indexed documents that were not completely read, and drop the facts of removed ones.

        For the end of an indexing run: after failures, a crash, and for an index that is older than its graph. Chunks
        that were added without a document or a file are not read.
        """
        report = GraphReport()
        try:
            missing, gone = await self._difference(store)
            if gone:
                report += await self._following(Change(removed_documents=gone))
            for start in range(0, len(missing), DOCUMENTS_PER_FETCH):
                ids = missing[start : start + DOCUMENTS_PER_FETCH]
                ranges = tuple(ChunkRange(document_id, 0, _LAST) for document_id in ids)
                fetched = await store.fetch(FetchRequest(ranges=ranges, document_ids=ids))
                chunks, documents = tuple(fetched.chunks.values()), tuple(fetched.documents.values())
                report += await self._following(Change(chunks=chunks, documents=documents))
        except (RetrievalError, OSError) as error:
            report += _failure(error)
        self.report += report
        return report

    async def aclose(self) -> None:
        """End the threads. Closing twice is fine."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Do what :meth:`aclose` does, blocking."""
        self._pool.close()

    async def _difference(self, store: CataloguedStore) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the ids of documents to read, and of those that no longer exist."""
        recorded = await self._pool.run(self._recorded)
        indexed: dict[str, str] = {}
        for source in await store.sources():
            indexed.update(await store.documents_of(source))
        unread = (None, None)
        missing = tuple(name for name, digest in indexed.items() if recorded.get(name, unread)[0] != digest)
        # Documents that came from no file are in no catalogue, and yet are there.
        unlisted = sorted(recorded.keys() - indexed.keys())
        gone: list[str] = []
        for start in range(0, len(unlisted), DOCUMENTS_PER_CHECK):
            ids = unlisted[start : start + DOCUMENTS_PER_CHECK]
            chunk_ids = tuple(chunk_id for name in ids if (chunk_id := recorded[name][1]) is not None)
            fetched = await store.fetch(FetchRequest(chunk_ids=chunk_ids, document_ids=tuple(ids)))
            there = {*fetched.documents, *(chunk.document_id for chunk in fetched.chunks.values())}
            gone += [name for name in ids if name not in there]
        return missing, tuple(gone)

    async def _following(self, change: Change) -> GraphReport:
        try:
            known, new, is_full = await self._pool.run(self._divided, change.chunks)
            made, failed = (
                ([], (f"{self._path} has as many triples as a graph may have",)) if is_full else (await self._read(new))
            )
            dropped = sum(extracted.dropped for _, extracted in made)
            triples = {
                chunk.id: facts
                for chunks, extracted in made
                for chunk, facts in zip(chunks, extracted.triples, strict=True)
            }
            count = await self._pool.run(self._keep, change, known | triples)
        except (RetrievalError, OSError) as error:
            return _failure(error)
        return GraphReport(len(triples), len(known), count, dropped, failed)

    async def _read(
        self, chunks: Sequence[Chunk]
    ) -> tuple[list[tuple[Sequence[Chunk], ExtractedFacts]], tuple[str, ...]]:
        """Have chunks read in batches, and return their facts, with the reasons of failures."""
        turns = asyncio.Semaphore(self._concurrency)
        made: list[tuple[Sequence[Chunk], ExtractedFacts]] = []
        failures: list[Failed] = []

        async def read(batch: Sequence[Chunk]) -> None:
            async with turns:
                if any(is_callers_fault(failure.error) for failure in failures):
                    return  # such as a wrong key, with which no other request will do better
                run = Run(self._pool, seconds=self._seconds, clock=self._clock, guard=self._guard)
                outcome = await run.on("graph.extract").call("extract", self._extractor.extract, batch)
            if isinstance(outcome, Failed):
                failures.append(outcome)
            else:
                made.append((batch, outcome.value))

        size = self._batch_size
        async with asyncio.TaskGroup() as group:
            for start in range(0, len(chunks), size):
                group.create_task(read(chunks[start : start + size]))
        return made, tuple(dict.fromkeys(failure.reason for failure in failures))

    def _loaded(self) -> Ledger:
        if self._ledger is None or not self._ledger.is_current:  # another writer's facts are to stay
            self._ledger = Ledger(self._path)
        return self._ledger

    def _recorded(self) -> Mapping[str, tuple[str | None, str | None]]:
        with self._lock:
            return self._loaded().documents()

    def _divided(self, chunks: Sequence[Chunk]) -> tuple[dict[str, Sequence[Triple]], list[Chunk], bool]:
        """Return the facts of chunks read before, by chunk id; the other chunks; and whether the graph is full."""
        known: dict[str, Sequence[Triple]] = {}
        new: list[Chunk] = []
        with self._lock:
            ledger = self._loaded()
            for chunk in chunks:
                triples = ledger.known(chunk)
                if triples is not None:
                    known[chunk.id] = tuple(triples)
                else:
                    new.append(chunk)
            return known, new, bool(new) and ledger.is_full

    def _keep(self, change: Change, facts: Mapping[str, Sequence[Triple]]) -> int:
        """Write the facts after a change, and return how many its chunks have."""
        with self._lock:
            ledger = self._loaded()
            ledger.forget((*change.removed_documents, *(document.id for document in change.documents)))
            unread: set[str] = set()
            for chunk in change.chunks:
                if chunk.id in facts:
                    ledger.put(chunk, facts[chunk.id])
                else:
                    ledger.drop(chunk)
                    unread.add(chunk.document_id)
            ledger.finish(
                {document.id: document.content_hash for document in change.documents if document.id not in unread}
            )
            try:
                ledger.write()
            except BaseException:
                self._ledger = None  # as the file has it, and not as it was to become
                raise
        return sum(map(len, facts.values()))


def _failure(error: Exception) -> GraphReport:
    return GraphReport(failed=(" ".join(str(error).split()) or type(error).__name__,))
