"""A small collection in memory, and pipelines over it whose parts can be made to fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.config import load_config
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import Change, Fetched, Store
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from retrieval_core.ports import Candidate, Embedder, FetchRequest, SearchRequest, StoreInfo
    from retrieval_core.run.clock import Clock

TEXTS = (
    "Roll back an application to an earlier revision with the history command.",
    "The history command lists every earlier revision of an application.",
    "Bread is baked for forty minutes until the crust is brown.",
    "A telescope shows the rings of Saturn.",
)
PHONES = tuple(
    Chunk(f"p{number}", "phones", text, number, len(TEXTS), metadata={"price": 100 * number, "brand": brand})
    for number, (text, brand) in enumerate(zip(TEXTS, ("Acme", "Acme", "Zenith", "Zenith"), strict=True))
)


class TroubledStore(Store):
    """A memory store that counts its calls and fails on request.

    Attributes:
        calls: How often each purpose was served: ``dense``, ``lexical`` and ``fetch``.
        failures: What to raise, by purpose.
        hanging: Purposes that wait for ever.
        brings_chunks: Whether searches return chunks, as this store can, or ids alone, as others do.
    """

    def __init__(self, *, brings_chunks: bool = False) -> None:
        embedder = FakeEmbedder()
        self._inner = MemoryStore(embedder_id=embedder.id, dimension=embedder.dimension)
        self.calls: Counter[str] = Counter()
        self.failures: dict[str, BaseException] = {}
        self.hanging: set[str] = set()
        self.brings_chunks = brings_chunks
        self.closed = 0

    async def _describe(self) -> StoreInfo:
        return await self._inner.describe()

    async def _upsert(self, change: Change) -> None:
        await self._inner.upsert(change)

    async def _delete(self, document_ids: Sequence[str]) -> int:
        return await self._inner.delete(document_ids)

    async def _search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        await self._serve("dense" if request.vector is not None else "lexical")
        found = await self._inner.search(request)
        if self.brings_chunks:
            return found
        return tuple(type(candidate)(candidate.chunk_id, candidate.score) for candidate in found)

    async def _fetch(self, request: FetchRequest) -> Fetched:
        await self._serve("fetch")
        return await self._inner.fetch(request)

    async def aclose(self) -> None:
        self.closed += 1
        if "close" in self.failures:
            raise self.failures["close"]

    async def _serve(self, purpose: str) -> None:
        self.calls[purpose] += 1
        if purpose in self.hanging:
            await asyncio.Event().wait()
        if purpose in self.failures:
            raise self.failures[purpose]


def filled(store: Store, chunks: Iterable[Chunk] = PHONES) -> None:
    """Put chunks into a store, with the fake embedder's vectors."""
    given = tuple(chunks)

    async def fill() -> None:
        vectors = await FakeEmbedder().embed_texts([chunk.indexed_text for chunk in given])
        await store.upsert(Change(chunks=given, vectors=vectors))

    asyncio.run(fill())


def a_pipeline(
    store: Store | None = None, embedder: Embedder | None = None, clock: Clock | None = None, **settings: Any
) -> RetrievalPipeline:
    """Return a pipeline over the phones; settings are keys with ``__`` for the dot, as in ``search__top_k=3``.

    Its clock stands still, so that retries need no waiting, unless another one is given.
    """
    if store is None:
        store = TroubledStore()
        filled(store)
    config = load_config(overrides={key.replace("__", "."): value for key, value in settings.items()})
    return RetrievalPipeline(store, embedder or FakeEmbedder(), config=config, clock=clock or FakeClock())


def word_counter() -> Callable[[str], int]:
    """Return what counts words as tokens."""
    return lambda text: len(text.split())
