"""A group of indexes whose parts can be made to fail."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from retrieval_core import FederatedIndex
from retrieval_core.config import load_config
from retrieval_core.errors import ServiceConnectionError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk
from support.pipelines import TEXTS, TroubledStore, filled, word_counter

if TYPE_CHECKING:
    from retrieval_core.config import RetrievalConfig
    from retrieval_core.ports import Embedder
    from retrieval_core.types import RetrievalResult

QUESTION = "roll back an application to an earlier revision"
NAMES = ("docs", "tickets", "wiki")


def settings_with(**settings: Any) -> RetrievalConfig:
    return load_config(overrides={key.replace("__", "."): value for key, value in settings.items()})


class Group:
    """Three indexes whose chunks have the same ids, over stores that can be made to fail."""

    def __init__(self, embedder: Embedder | None = None, clock: FakeClock | None = None, **settings: Any) -> None:
        self.stores = {name: TroubledStore() for name in NAMES}
        self.clock = clock or FakeClock()
        self.config = settings_with(**settings)
        for name, store in self.stores.items():
            filled(
                store,
                [Chunk(f"c{n}", "guide", f"{text} {name}", n, 4, metadata={"n": n}) for n, text in enumerate(TEXTS)],
            )
        self.embedder = embedder or FakeEmbedder()
        own = self.config.model_copy(update={"strict": False, "raise_on_error": True})
        self.pipelines = {
            name: RetrievalPipeline(
                store,
                self.embedder,
                config=own,
                clock=self.clock,
                token_counter=word_counter(),
            )
            for name, store in self.stores.items()
        }

    def indexes(self, **parts: Any) -> FederatedIndex:
        return FederatedIndex(self.pipelines, config=self.config, clock=self.clock, **parts)

    def ask(self, query: str = QUESTION, *arguments: Any, **options: Any) -> RetrievalResult:
        return asyncio.run(self.indexes().aretrieve(query, *arguments, **options))

    def kill(self, *names: str) -> None:
        for name in names:
            self.stores[name].failures |= dict.fromkeys(("dense", "lexical"), ServiceConnectionError("gone"))


def sources(result: RetrievalResult) -> list[str | None]:
    return [hit.source_index for hit in result.hits]


def stages(result: RetrievalResult) -> list[str]:
    return [item.stage for item in result.degraded]
