"""Reading a store's chunks beyond its own searches: all of them, and the best of those that pass a test."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from retrieval_core.errors import DimensionMismatchError, NotYetEmbeddedError
from retrieval_core.ports import Candidate, ChunkRange, Fetched, FetchRequest, SearchRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from retrieval_core.ports import Store
    from retrieval_core.types import Chunk
    from retrieval_core.types.filters import Filter

logger = logging.getLogger(__name__)

GROWTH = 4
"""How many times more candidates are asked for where too few of them pass."""


def whole(document_ids: Iterable[str]) -> tuple[ChunkRange, ...]:
    """Return the ranges of all chunks of documents."""
    return tuple(map(ChunkRange.whole, dict.fromkeys(document_ids)))


async def chunks_of_documents(
    store: Store, document_ids: Iterable[str], condition: Filter | None = None
) -> list[Chunk]:
    """Return all chunks of documents that match, in their order."""
    fetched = await store.fetch(FetchRequest(ranges=whole(document_ids), filter=condition))
    return in_order(fetched.chunks.values())


def in_order(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Return chunks by document and position."""
    return sorted(chunks, key=lambda chunk: (chunk.document_id, chunk.chunk_index, chunk.id))


async def all_chunks(store: Store, condition: Filter | None = None) -> list[Chunk]:
    """Return all chunks that match, by document and position.

    The documents of a collection that another program filled can't be listed. Its chunks are found by their vectors.

    Raises:
        StoreError: The store cannot be read.
        IncompleteSearchError: Another program filled it, and the store can't return so many chunks.
    """
    info = await store.describe()
    if not info.chunks or info.manifest is not None:
        return await chunks_of_documents(store, await store.document_ids(), condition)
    try:
        await store.search(SearchRequest(limit=1, vector=np.ones(1, dtype=np.float32)))
        dimension = 1
    except DimensionMismatchError as error:
        dimension = error.expected
    request = SearchRequest(limit=info.chunks, vector=np.ones(dimension, dtype=np.float32), filter=condition)
    return in_order((await chunks_by_id(store, await store.search(request), {})).values())


async def chunks_by_id(store: Store, candidates: Sequence[Candidate], known: Mapping[str, Chunk]) -> dict[str, Chunk]:
    """Return the chunks of candidates that are there still, read in one call where the search did not bring them."""
    chunks = {item.chunk_id: item.chunk or known.get(item.chunk_id) for item in candidates}
    missing = tuple(name for name, chunk in chunks.items() if chunk is None)
    fetched = (await store.fetch(FetchRequest(chunk_ids=missing)) if missing else Fetched()).chunks
    read = {name: chunk or fetched.get(name) for name, chunk in chunks.items()}
    return {name: chunk for name, chunk in read.items() if chunk is not None}


async def search(store: Store, request: SearchRequest) -> tuple[Candidate, ...]:
    """Return the best candidates; of an index whose passages are still being embedded, of those that are.

    Raises:
        RetrievalError: As :meth:`Store.search`.
    """
    try:
        return await store.search(request)
    except NotYetEmbeddedError as error:
        logger.warning("%s", error)
        return error.found


async def best_passing(store: Store, request: SearchRequest, passes: Callable[[Chunk], bool]) -> tuple[Candidate, ...]:
    """Return the best candidates whose chunks pass a test, with their chunks, at most as many as the limit.

    While too few pass, more candidates are asked for, up to all that the store finds.
    """
    limit, wanted = request.limit, request.limit
    known: dict[str, Chunk] = {}
    tested: dict[str, bool] = {}
    while True:
        found = await search(store, replace(request, limit=wanted))
        known = await chunks_by_id(store, found, known)
        for name, chunk in known.items():
            if name not in tested:
                tested[name] = passes(chunk)
        passing = [replace(item, chunk=known[item.chunk_id]) for item in found if tested.get(item.chunk_id)]
        if len(passing) >= limit or len(found) < wanted:
            return tuple(passing[:limit])
        wanted *= GROWTH


def nearest(fetched: Fetched, query: np.ndarray, passes: Callable[[Chunk], bool]) -> tuple[Candidate, ...]:
    """Return the chunks that were read with their vectors and pass a test by cosine, best first."""
    length = float(np.linalg.norm(query)) or 1.0
    scored = [
        Candidate(name, float(np.clip(vector @ query / length, -1.0, 1.0)), fetched.chunks[name], vector)
        for name, vector in fetched.vectors.items()
        if name in fetched.chunks and passes(fetched.chunks[name])
    ]
    return tuple(sorted(scored, key=lambda item: (-item.score, item.chunk_id)))
