"""An embedder over HTTP for the kit, which runs many event loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retrieval_core.ports import Embedder

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from retrieval_core.types import Matrix, Vector


class ClosesConnections(Embedder):
    """Put before an embedder, it closes its connections after the last call of each event loop."""

    _running = 0

    async def embed_query(self, text: str) -> Vector:
        return await self._closing(super().embed_query(text))

    async def embed_queries(self, texts: Sequence[str]) -> Matrix:
        return await self._closing(super().embed_queries(texts))

    async def embed_texts(self, texts: Sequence[str]) -> Matrix:
        return await self._closing(super().embed_texts(texts))

    async def _closing(self, work: Coroutine[Any, Any, Any]) -> Any:
        self._running += 1
        try:
            return await work
        finally:
            self._running -= 1
            if not self._running:
                await getattr(self, "aclose")()  # noqa: B009 - the port has none
