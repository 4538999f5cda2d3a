"""Shared models: an embedder or a transformer that is called once for a question, however many indexes search."""

from __future__ import annotations

import inspect
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, cast

from retrieval_core.pipeline.stages.embed import EmbeddingCache
from retrieval_core.ports import CountsTokens, Transformed, Versioned
from retrieval_core.run.caching import LruCache
from retrieval_core.run.clock import SystemClock
from retrieval_core.run.sync import SingleFlight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ports import Embedder, QueryContext, QueryTransformer
    from retrieval_core.types import Matrix, Vector

REMEMBERED = 1000
"""Questions: more than are under way at a time."""


class SharedEmbedder:
    """An embedder that is called once for the same question.

    Callers at the same time share one call, and those who come a little later find its vector. A passage alone, as a
    made-up answer that each index searches for, is embedded once for callers at the same time.

    Args:
        embedder: Embeds.
        kept: The most vectors of questions that are kept; 0 for none.

    Attributes:
        remembered: These vectors; one that is put in is found too.
    """

    def __init__(self, embedder: Embedder, kept: int) -> None:
        self._embedder = embedder
        self._flights: SingleFlight[Vector] = SingleFlight()
        self.remembered = EmbeddingCache(kept, SystemClock().now) if kept else None
        self._passages: SingleFlight[Matrix] = SingleFlight()
        # Protocols are looked up in what an object has itself, so handing on what is asked for would not do.
        for ability in ("reopen", "embed_queries", "aclose", "load"):
            if (method := getattr(embedder, ability, None)) is not None:
                setattr(self, ability, method)

    @property
    def id(self) -> str:
        """The embedder's."""
        return self._embedder.id

    @property
    def dimension(self) -> int:
        """The embedder's."""
        return self._embedder.dimension

    @property
    def is_loaded(self) -> bool:
        """Whether the embedder has loaded its model; ``True`` for one without."""
        return getattr(self._embedder, "is_loaded", True)

    async def embed_query(self, text: str) -> Vector:
        """Embed one question, or wait for the vector that is on its way."""
        vector = None if self.remembered is None else self.remembered.get(text)
        return await self._flights.run(text, lambda: self._embed(text)) if vector is None else vector

    async def _embed(self, text: str) -> Vector:
        vector = await self._embedder.embed_query(text)
        if self.remembered is None or not hasattr(vector, "tobytes"):  # no vector: for whoever asked to find out
            return vector
        return self.remembered.set(text, vector)

    async def embed_texts(self, texts: Sequence[str]) -> Matrix:
        """Embed passages."""
        if len(texts) != 1:
            return await self._embedder.embed_texts(texts)

        async def embed() -> Matrix:
            return await self._embedder.embed_texts(texts)

        # Not remembered: an embedder that failed is tried with a word, and is to show that it works again.
        return await self._passages.run(texts[0], embed)


class SharedCountingEmbedder(SharedEmbedder):
    """A :class:`SharedEmbedder` that counts tokens too."""

    def __init__(self, embedder: Embedder, kept: int) -> None:
        super().__init__(embedder, kept)
        self._counts = cast("CountsTokens", embedder)

    @property
    def max_tokens(self) -> int:
        """The embedder's."""
        return self._counts.max_tokens

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of the text, as the embedder counts."""
        return self._counts.count_tokens(text)


def shared(embedder: Embedder, kept: int) -> Embedder:
    """Return an embedder that several indexes share, with all abilities that it has; it keeps so many vectors.

    One that is no coroutine function runs in each index's threads, and is returned as it is.
    """
    if not inspect.iscoroutinefunction(embedder.embed_query):
        return embedder
    return (SharedCountingEmbedder if isinstance(embedder, CountsTokens) else SharedEmbedder)(embedder, kept)


class SharedTransformer:
    """A transformer that is called once about the same question after the same conversation.

    Callers at the same time share one call, and those who come a little later find what came of it. What a model took
    is told once: who did not begin the call gets no ``usage``. Closing is for whoever made the transformer.

    Args:
        transformer: Transforms; with a coroutine function.
        seconds: How long its answers are kept, more than 0.
    """

    def __init__(self, transformer: QueryTransformer, seconds: float) -> None:
        self._transformer = transformer
        self._flights: SingleFlight[Transformed | str] = SingleFlight()
        self._answers: LruCache[str, Transformed | str] = LruCache(REMEMBERED, seconds, SystemClock().now)

    @property
    def id(self) -> str:
        """The transformer's."""
        return self._transformer.id

    async def transform(self, query: str, context: QueryContext) -> Transformed | str:
        """Transform a question, or wait for the answer that is on its way."""
        text = repr((query, [(turn.role, turn.content) for turn in context.history]))
        key = sha256(text.encode()).hexdigest()  # a conversation may be long, and many keys are kept
        began = False

        async def ask() -> Transformed | str:
            nonlocal began
            began = True
            answer = await self._transformer.transform(query, context)
            if isinstance(answer, (Transformed, str)):  # pyright: ignore[reportUnnecessaryIsInstance] - a plug-in's
                self._answers.set(key, replace(answer, usage=None) if isinstance(answer, Transformed) else answer)
            return answer

        if (known := self._answers.get(key)) is not None:
            return known
        answer = await self._flights.run(key, ask)
        return answer if began or not isinstance(answer, Transformed) else replace(answer, usage=None)


def shared_transformer(transformer: QueryTransformer, seconds: float) -> QueryTransformer:
    """Return a transformer that several indexes share, or itself where its answers cannot be kept.

    One whose knowledge changes is asked each time, and one that is no coroutine function runs in each index's threads.
    """
    if isinstance(transformer, Versioned) or not inspect.iscoroutinefunction(transformer.transform):
        return transformer
    return SharedTransformer(transformer, seconds)
