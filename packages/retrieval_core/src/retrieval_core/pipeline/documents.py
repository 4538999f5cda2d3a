"""Listing the documents of indexes, page by page."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from retrieval_core.errors import SearchError, StoreError
from retrieval_core.pipeline.stages.sound import are, fetch, sound
from retrieval_core.ports import ChunkRange, FetchRequest
from retrieval_core.run.outcomes import value_of
from retrieval_core.types import DocumentInfo

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from retrieval_core.ports import Store
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Chunk

PAGE = 200
"""Documents read with one request."""


async def list_documents(begin: Callable[[], Run], stores: Mapping[str, Store]) -> AsyncGenerator[DocumentInfo]:
    """Yield the documents of indexes, by index and id.

    Args:
        begin: Begins a run with a deadline of its own, for one page.
        stores: By the name of the index; the name of a single index is empty.

    Raises:
        StoreError: A store cannot list its documents, or cannot be read.
        ServiceError: A service failed, or did not respond in time.
    """
    for name, store in stores.items():
        ids = await _read_ids(begin(), store)
        for start in range(0, len(ids), PAGE):
            for document in await _read_page(begin(), store, ids[start : start + PAGE]):
                yield replace(document, source_index=name) if name else document


async def _read_ids(run: Run, store: Store) -> Sequence[str]:
    if "document_ids" not in store.capabilities:
        msg = (
            f"{type(store).__name__} cannot list its documents; a custom store needs the method document_ids(), "
            "see retrieval_core.ports.Store"
        )
        raise StoreError(msg)
    outcome = await run.on("store").call("documents", store.document_ids)
    return sorted(value_of(sound(outcome, "documents", "the store", problem=_problem, error=SearchError)))


def _problem(ids: Any) -> str | None:
    return None if are(ids, lambda name: isinstance(name, str)) else f"expected a list of ids, got {ids!r:.80}"


async def _read_page(run: Run, store: Store, ids: Sequence[str]) -> list[DocumentInfo]:
    """Return what the first chunks say of their documents.

    Chunks that were added without a document need not know their number, and a document may have no chunks: these are
    looked up by a second request.
    """
    first = await _read_chunks(run, store, FetchRequest(ranges=tuple(ChunkRange(name, 0, 0) for name in ids)))
    unclear = tuple(name for name in ids if not _knows_total(first.get(name, ())))
    documents: Mapping[str, DocumentInfo] = {}
    if unclear:
        request = FetchRequest(ranges=tuple(map(ChunkRange.whole, unclear)))
        first |= await _read_chunks(run, store, request)
        without = tuple(name for name in unclear if not first.get(name))
        if without:
            found = value_of(await fetch(run, store, FetchRequest(document_ids=without))).documents
            documents = {
                each.id: DocumentInfo(each.id, each.title, each.source, 0, each.metadata, each.timestamp)
                for each in found.values()
            }
    listed = (_describe(first[name]) if first.get(name) else documents.get(name) for name in ids)
    return [each for each in listed if each is not None]  # others were removed meanwhile


async def _read_chunks(run: Run, store: Store, request: FetchRequest) -> dict[str, list[Chunk]]:
    chunks: dict[str, list[Chunk]] = {}
    for chunk in value_of(await fetch(run, store, request)).chunks.values():
        chunks.setdefault(chunk.document_id, []).append(chunk)
    return chunks


def _knows_total(first: Sequence[Chunk]) -> bool:
    return len(first) == 1 and (first[0].span is not None or first[0].total_chunks > 1)


def _describe(chunks: Sequence[Chunk]) -> DocumentInfo:
    first = min(chunks, key=lambda chunk: (chunk.chunk_index, chunk.id))
    total = first.total_chunks if _knows_total(chunks) else len(chunks)
    return DocumentInfo(first.document_id, first.title, first.source, total, first.metadata, first.timestamp)
