"""Answer queries while the embedding model is still loading."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from retrieval_core.errors import ModelLoadingError, RetrievalError
from retrieval_core.ports import Embedder, as_plugin
from retrieval_core.ports.plugin import Wrapper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.run.clock import Clock
    from retrieval_core.types import Matrix, Vector

WARM_UP = "warmup"


class LoadingEmbedder(Wrapper, Embedder):
    """An embedder whose model may still be loading. A query waits ``wait_seconds`` for it, and then fails.

    The pipeline handles that failure like any other: it falls back to keyword search, and ``degraded`` says so.

    Args:
        embedder: The embedder. It is loaded by its ``load()``, if it has one, else by embedding a word.
        wait_seconds: Seconds that a query waits for the model.
        clock: Measures the wait.

    Attributes:
        is_used: Whether a query was embedded already, so that no warm-up is needed.
    """

    def __init__(self, embedder: Embedder, wait_seconds: float, clock: Clock) -> None:
        self._embedder = as_plugin(embedder, Embedder)
        super().__init__(self._embedder)
        self._wait_seconds = wait_seconds
        self._clock = clock
        self._loading: asyncio.Task[None] | None = None
        self._is_ready = False
        self.is_used = False

    def begin(self) -> asyncio.Task[None]:
        """Begin to load the model in the background, and return the task. Beginning twice is fine."""
        if self._loading is None:
            self._loading = asyncio.create_task(self._load())
        return self._loading

    def stop(self) -> None:
        """Stop loading; a thread that loads a model ends by itself."""
        if self._loading is not None:
            self._loading.cancel()

    @property
    def is_loaded(self) -> bool:
        """Always true, so that no query waits longer than ``wait_seconds``."""
        return True

    @property
    def capabilities(self) -> frozenset[str]:
        """Those of the embedder."""
        return self._embedder.capabilities

    @property
    def max_tokens(self) -> int:
        """That of the embedder."""
        return self._embedder.max_tokens

    def count_tokens(self, text: str) -> int:
        """Return the embedder's count."""
        return self._embedder.count_tokens(text)

    async def reopen(self) -> None:
        """Open the embedder anew."""
        await self._embedder.reopen()

    async def _embed_query(self, text: str) -> Vector:
        self.is_used = True
        if not self._is_ready:
            await self._wait()
        return await self._embedder.embed_query(text)

    async def _embed_queries(self, texts: Sequence[str]) -> Matrix:
        if not self._is_ready:
            await self._wait()
        return await self._embedder.embed_queries(texts)

    async def _embed_texts(self, texts: Sequence[str]) -> Matrix:
        return await self._embedder.embed_texts(texts)

    async def _wait(self) -> None:
        """Wait for the model.

        Raises:
            ModelLoadingError: Loading takes longer.
        """
        loading = self.begin()
        with suppress(TimeoutError):
            async with self._clock.timeout(self._wait_seconds):
                await asyncio.wait([loading])
        if not loading.done():
            raise ModelLoadingError
        self._is_ready = True  # a failure to load is met again by the query itself

    async def _load(self) -> None:
        embedder: Any = self._embedder
        if getattr(embedder, "is_loaded", None) is not True:  # then a query need not wait for a text that nobody asked
            await (embedder.load() if hasattr(embedder, "load") else embedder.embed_query(WARM_UP))
        if "count_tokens" in embedder.capabilities:
            with suppress(RetrievalError):
                await asyncio.to_thread(embedder.count_tokens, WARM_UP)
