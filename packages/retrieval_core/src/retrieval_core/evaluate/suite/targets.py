"""Targets of a suite: an index in this process, or your own."""

from __future__ import annotations

import asyncio
import json
import platform
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import version
from typing import TYPE_CHECKING, Protocol

from retrieval_core.errors import EmbeddingError, SearchError
from retrieval_core.evaluate.suite.results import Subject
from retrieval_core.pipeline.lifecycle import Calls
from retrieval_core.pipeline.stages.search import fetch
from retrieval_core.ports import ChunkRange, FetchRequest
from retrieval_core.run.outcomes import value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.evaluate.suite.cases import Case
    from retrieval_core.index.index import Index
    from retrieval_core.ports import Fetched
    from retrieval_core.types import Chunk, RetrievalResult

LAST = 10**6
"""A number of a chunk that is higher than any in a document."""


class Target(Protocol):
    """The searched side of a suite: :class:`IndexTarget`, or your own class, for instance for a service."""

    async def describe(self) -> Subject:
        """Return a description of the index or service.

        Raises:
            RetrievalError: It cannot be read.
        """
        ...

    async def retrieve(self, case: Case) -> RetrievalResult:
        """Run the query of a case with the case's options.

        If the case has a ``relevance_threshold``, the hits of expected documents need their similarities.

        Raises:
            RetrievalError: The query failed, or its result is degraded.
        """
        ...

    async def fetch(self, chunk_id: str) -> Chunk | None:
        """Return a chunk; ``None`` if there is none with that ID.

        Raises:
            RetrievalError: It cannot be read.
        """
        ...

    async def find_missing(self, documents: Sequence[str], chunks: Sequence[str]) -> list[str]:
        """Return which of these documents and chunks are not there, as ``the document 'ID'``.

        Raises:
            RetrievalError: It cannot be read.
        """
        ...


class IndexTarget:
    """An index in this process; the caller closes it. Its cache of results is not used."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.calls = Calls(index.config)

    async def describe(self) -> Subject:
        """Return a description of the index."""
        info = await self.index.adescribe()
        store, config = self.index.store, self.index.config
        corpus = None
        if "sources" in store.capabilities:
            sources = value_of(await self.calls.begin().on("store").call("sources", store.sources))
            states = sorted((state.source, state.content_hash, state.recipe) for state in sources.values())
            corpus = sha256(json.dumps([info.chunks, states]).encode()).hexdigest() if states else None
        return Subject(
            location=info.location,
            chunks=info.chunks,
            documents=info.documents,
            embedder=None if info.manifest is None else info.manifest.embedder_id,
            corpus=corpus,
            configuration=json.loads(config.model_dump_json(exclude_defaults=True, exclude={"index"})),
            versions={
                "python": platform.python_version(),
                "retrieval-core": await asyncio.to_thread(version, "retrieval-core"),
            },
        )

    async def retrieve(self, case: Case) -> RetrievalResult:
        """Run the query of a case."""
        result = await self._retrieve(case, case.score_threshold)
        if case.relevance_threshold is None or self.index.embedder is None:
            return result
        known = {hit.chunk.document_id for hit in result.hits if hit.scores.dense is not None}
        found = {hit.chunk.document_id for hit in result.hits}
        if known and found & case.expect.documents.keys() <= known:
            return result
        # Only a threshold gives similarities to hits of keyword search. It makes a query slower, so it is a second one.
        similarities = {hit.id: hit.scores.dense for hit in (await self._retrieve(case, 0.0)).hits}
        hits = [
            replace(hit, scores=replace(hit.scores, dense=similarities.get(hit.id)))
            if hit.scores.dense is None
            else hit
            for hit in result.hits
        ]
        return replace(result, hits=tuple(hits))

    async def _retrieve(self, case: Case, score_threshold: float | None) -> RetrievalResult:
        result = await self.index.aretrieve(
            case.query,
            case.filter,
            top_k=case.top_k,
            mode=case.mode,
            score_threshold=score_threshold,
            history=[turn.model_dump() for turn in case.history] or None,
            use_cache=False,
        )
        for entry in result.degraded:
            msg = f"the result is degraded ({entry.stage}: {entry.reason})"
            if entry.stage == "embed":
                raise EmbeddingError(msg, case.query)
            raise SearchError(msg, {"stage": entry.stage})
        return result

    async def fetch(self, chunk_id: str) -> Chunk | None:
        """Return a chunk."""
        return (await self.read(FetchRequest(chunk_ids=(chunk_id,)))).chunks.get(chunk_id)

    async def read(self, request: FetchRequest) -> Fetched:
        """Return what the store has of a request."""
        return value_of(await fetch(self.calls.begin(), self.index.store, request))

    async def find_missing(self, documents: Sequence[str], chunks: Sequence[str]) -> list[str]:
        """Return which of these are not there. A document may also be named by the ID of a chunk."""
        if not documents and not chunks:
            return []
        held = (await self.read(FetchRequest(chunk_ids=(*documents, *chunks)))).chunks
        absent: list[str] = [document for document in documents if document not in held]
        for last in (0, LAST):  # the first chunk only, which has the number 0 in indexes of this library
            if absent:
                ranges = tuple(ChunkRange(document, 0, last) for document in absent)
                read = await self.read(FetchRequest(ranges=ranges))
                found = {chunk.document_id for chunk in read.chunks.values()}
                absent = [document for document in absent if document not in found]
        named = [f"the document {document!r}" for document in absent]
        return named + [f"the chunk {chunk!r}" for chunk in chunks if chunk not in held]
