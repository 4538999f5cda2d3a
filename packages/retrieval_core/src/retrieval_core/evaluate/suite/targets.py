"""Targets of a suite: an index in this process, or your own."""

from __future__ import annotations

import asyncio
import json
import platform
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from retrieval_core.errors import EmbeddingError, InvalidParameterError, SearchError
from retrieval_core.evaluate.suite.results import Subject
from retrieval_core.index.settings import place_of
from retrieval_core.pipeline.lifecycle import Calls
from retrieval_core.pipeline.stages.embed import QueryEmbedder
from retrieval_core.pipeline.stages.search import fetch
from retrieval_core.ports import ChunkRange, Fetched, FetchRequest, SearchRequest
from retrieval_core.run.outcomes import value_of
from retrieval_core.types import Query

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.evaluate.suite.cases import Case
    from retrieval_core.index.index import Index
    from retrieval_core.ports import SourceState, Store
    from retrieval_core.types import Chunk, RetrievalResult, SearchMode

LAST = 10**6
"""A number that no passage of a document has, or one that comes later."""
Lacking: TypeAlias = "frozenset[tuple[str, str]]"
"""A document or chunk that an index lacks: ``document`` or ``chunk``, and its ID."""


@dataclass(frozen=True, slots=True)
class SuiteQuestion:
    """A question with the options of its case.

    Attributes:
        similarities: Whether every passage found needs its similarity with the question, which by words alone it lacks.
    """

    text: str
    top_k: int
    mode: SearchMode | None = None
    score_threshold: float | None = None
    filter: Mapping[str, Any] | None = None
    history: Sequence[Mapping[str, str]] = field(default_factory=tuple[Any])
    similarities: bool = False


def question_of(case: Case, text: str) -> SuiteQuestion:
    """Return a wording of a case's question with the case's options."""
    return SuiteQuestion(
        text,
        case.top_k,
        case.mode,
        case.score_threshold,
        case.filter,
        tuple(turn.model_dump() for turn in case.history),
    )


class Target(Protocol):
    """The searched side of a suite: :class:`IndexTarget`, or your own class, for instance for a service."""

    @property
    def location(self) -> str:
        """Readable location, for messages."""
        ...

    async def describe(self) -> Subject:
        """Return a description of the index or service.

        Raises:
            RetrievalError: It cannot be read.
        """
        ...

    async def retrieve(self, question: SuiteQuestion) -> RetrievalResult:
        """Return what is found, with everything working as configured.

        Raises:
            RetrievalError: The query failed, or its result is degraded.
        """
        ...

    async def fetch(self, chunk_id: str) -> Chunk | None:
        """Return a chunk; ``None`` if there is none with that id.

        Raises:
            RetrievalError: It cannot be read.
        """
        ...

    async def lacking(self, documents: Sequence[str], chunks: Sequence[str]) -> Lacking:
        """Return which of these are not there.

        Raises:
            RetrievalError: It cannot be read.
        """
        ...

    async def nearest(self, text: str) -> float | None:
        """Return the highest cosine similarity of any passage with a text, in [0, 1].

        It is 0 if there is no chunk, and ``None`` if there are no vectors.

        Raises:
            RetrievalError: It cannot be searched.
        """
        ...


class IndexTarget:
    """An index in this process; whoever made it closes it.

    Raises:
        InvalidParameterError: It keeps results, whose times would be the cache's and not those of searches.
    """

    def __init__(self, index: Index) -> None:
        if index.cache is not None:
            msg = "a suite is run without a cache of results; open the index with the setting cache.kind = none"
            raise InvalidParameterError(msg)
        self._index = index
        self._calls = Calls(index.config)

    @property
    def location(self) -> str:
        """Readable location, for messages."""
        return str(place_of(self._index.config))

    async def describe(self) -> Subject:
        """Return a description of the index or service."""
        info = await self._index.adescribe()
        states = sorted((state.source, state.content_hash, state.recipe) for state in (await self._sources()).values())
        corpus = sha256(json.dumps([info.chunks, states]).encode()).hexdigest() if states else None
        config = self._index.config
        return Subject(
            location=info.location,
            chunks=info.chunks,
            documents=info.documents,
            embedder=None if info.manifest is None else info.manifest.embedder_id,
            corpus=corpus,
            configuration=json.loads(config.model_dump_json(exclude_defaults=True, exclude={"index"})),
            versions=await asyncio.to_thread(versions),
        )

    async def retrieve(self, question: SuiteQuestion) -> RetrievalResult:
        """Return what is found."""
        threshold = question.score_threshold
        if threshold is None and question.similarities and self._index.embedder is not None:
            threshold = 0.0
        result = await self._index.aretrieve(
            question.text,
            question.filter,
            top_k=question.top_k,
            mode=question.mode,
            score_threshold=threshold,
            history=question.history or None,
        )
        check_complete(question, [(entry.stage, entry.reason) for entry in result.degraded])
        return result

    async def fetch(self, chunk_id: str) -> Chunk | None:
        """Return a passage."""
        return (await self._fetch(FetchRequest(chunk_ids=(chunk_id,)))).chunks.get(chunk_id)

    async def _fetch(self, request: FetchRequest) -> Fetched:
        return value_of(await fetch(self._calls.begin(), self._index.store, request))

    async def lacking(self, documents: Sequence[str], chunks: Sequence[str]) -> Lacking:
        """Return which of these are not there."""
        store = self._index.store
        run = self._calls.begin().on("store")
        absent = value_of(await run.call("fetch", documents_lacking, store, documents))
        held = await self._fetch(FetchRequest(chunk_ids=tuple(chunks))) if chunks else Fetched()
        missing = (("chunk", chunk) for chunk in chunks if chunk not in held.chunks)
        return frozenset((*(("document", name) for name in absent), *missing))

    async def _sources(self) -> Mapping[str, SourceState]:
        store = self._index.store
        if "sources" in store.capabilities:
            return value_of(await self._calls.begin().on("store").call("sources", store.sources))
        return {}

    async def nearest(self, text: str) -> float | None:
        """Return the highest similarity of any passage with a text."""
        embedder = self._index.embedder
        if embedder is None:
            return None
        run = self._calls.begin()
        vector = value_of(await QueryEmbedder(embedder).embed(run, Query(text, text)))
        request = SearchRequest(limit=1, vector=vector)
        found = value_of(await run.on("store").call("dense", self._index.store.search, request))
        return max(0.0, min(1.0, found[0].score)) if found else 0.0


async def documents_lacking(store: Store, documents: Sequence[str]) -> list[str]:
    """Return which of these documents have no chunk in a store; a document may also be named by the id of a chunk.

    Raises:
        RetrievalError: It cannot be read.
    """
    if not documents:
        return []
    fetched = await store.fetch(FetchRequest(chunk_ids=tuple(documents)))
    absent: list[str] = [document for document in documents if document not in fetched.chunks]
    for last in (0, LAST):  # the first passage alone, where it has the number 0, as those that this library makes
        if absent:
            ranges = tuple(ChunkRange(document, 0, last) for document in absent)
            fetched = await store.fetch(FetchRequest(ranges=ranges))
            held = {chunk.document_id for chunk in fetched.chunks.values()}
            absent = [document for document in absent if document not in held]
    return absent


def confidence_of(result: RetrievalResult) -> float | None:
    """Return the probability that a result's hits answer its query, in [0, 1]; see docs/confidence.md."""
    return None if result.relevance is None else result.relevance.value


def is_unlikely(result: RetrievalResult) -> bool:
    """Return whether a result's hits probably do not answer its query."""
    return result.relevance is not None and result.relevance.is_unlikely


def check_complete(question: SuiteQuestion, degraded: Sequence[tuple[str, str]]) -> None:
    """Refuse a result that was found without what is configured: its figures would be another configuration's.

    Raises:
        EmbeddingError: The question could not be embedded.
        SearchError: Something else did not work.
    """
    for stage, reason in degraded:
        msg = f"the question was answered without what is configured ({stage}: {reason})"
        if stage == "embed":
            raise EmbeddingError(msg, question.text)
        raise SearchError(msg, {"stage": stage})


def versions() -> dict[str, str]:
    """Return the versions of Python and of this library."""
    return {"python": platform.python_version(), "retrieval-core": version("retrieval-core")}
