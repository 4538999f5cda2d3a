"""Parts that break, for services whose page is looked at; a configuration names them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from retrieval_core.errors import EmbeddingError, ServiceError
from retrieval_core.ports import Completion
from retrieval_core.testing.fakes import Fake, FakeEmbedder, FakeReranker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from retrieval_core.ports import CompletionRequest

BEGUN = "The mean distance is 384,400 kilometres [1]."
ABANDONED = "abandoned"


def dead_embedder() -> FakeEmbedder:
    """Return an embedder that fails, of the same name as the one that the index was made with."""
    made = FakeEmbedder()
    made.failure = EmbeddingError("the model is not there")
    return made


def hanging_embedder() -> FakeEmbedder:
    """Return an embedder that never answers."""
    made = FakeEmbedder()
    made.gate = asyncio.Event()
    return made


def dead_reranker() -> FakeReranker:
    """Return a reranker that fails."""
    made = FakeReranker()
    made.failure = ServiceError("the reranker has no such model")
    return made


class EndlessLLM(Fake):
    """A language model that says one sentence and then nothing more, until nobody wants to hear it.

    It then says so in the pipe :data:`ABANDONED` of the working directory.
    """

    def __init__(self) -> None:
        super().__init__("endless-llm")

    async def complete(self, _request: CompletionRequest) -> Completion:
        return Completion(BEGUN)

    async def stream(self, _request: CompletionRequest) -> AsyncGenerator[str]:
        try:
            yield f"{BEGUN} "
            yield "The moon is "
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(Path(ABANDONED).write_text, "abandoned")
