"""Query embedding: each question once, and again by an embedder that was opened anew where that can help."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from retrieval_core.errors import (
    EmbeddingError,
    ModelLoadingError,
    ServiceError,
    as_embedding_error,
)
from retrieval_core.ports.models import checked_vector
from retrieval_core.ports.plugin import given_as
from retrieval_core.run.caching import LruCache
from retrieval_core.run.outcomes import Failed, Ok, is_callers_fault
from retrieval_core.run.retry import can_help
from retrieval_core.run.sync import SingleFlight

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from retrieval_core.ports import Embedder
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Query, Vector


_NOT_MENDED = (ServiceError, ModelLoadingError)
"""Failures that opening the embedder anew doesn't mend."""


class Recovery:
    """Decides when an embedder that failed is opened anew: once, and not again before some time has passed.

    Args:
        now: Tells the time in seconds.
        pause: Seconds until it may be opened anew once more.
    """

    def __init__(self, now: Callable[[], float], pause: float) -> None:
        self._now = now
        self._pause = pause
        self._lock = Lock()
        self._last: float | None = None

    def may_begin(self) -> bool:
        """Whether the caller is the one to open it now."""
        with self._lock:
            if self._last is not None and self._now() - self._last < self._pause:
                return False
            self._last = self._now()
            return True


class SharedVectors:
    """The vectors of one query: several indexes with the same embedder have it called once for each text."""

    def __init__(self) -> None:
        self._flights: SingleFlight[Ok[Vector] | Failed] = SingleFlight()
        self._known: dict[str, Ok[Vector] | Failed] = {}

    async def once(
        self, embedder: Embedder, text: str, kind: str, embed: Callable[[], Coroutine[Any, Any, Ok[Vector] | Failed]]
    ) -> Ok[Vector] | Failed:
        """Return what embedding a text came to: now, or before for another index."""
        key = f"{id(given_as(embedder))} {kind} {text}"
        return self._known.get(key) or await self._flights.run(key, partial(self._embed, key, embed))

    async def _embed(
        self, key: str, embed: Callable[[], Coroutine[Any, Any, Ok[Vector] | Failed]]
    ) -> Ok[Vector] | Failed:
        outcome = self._known[key] = await embed()
        return outcome


@dataclass(frozen=True, slots=True)
class QueryEmbedder:
    """Embeds queries.

    Attributes:
        embedder: Makes the vectors.
        remembered: Queries that were embedded before.
        recovery: When a failed embedder is opened anew; ``None`` for never.
        shared: Vectors that other indexes use too, in a query to several.
    """

    embedder: Embedder
    remembered: EmbeddingCache | None = None
    recovery: Recovery | None = None
    shared: SharedVectors | None = None

    def at_hand(self, query: Query) -> Vector | None:
        """Return a question's vector if it needs no call: it was given, or is remembered."""
        if query.embedding is not None or self.remembered is None:
            return query.embedding
        return self.remembered.get(query.text)

    async def embed(self, run: Run, query: Query) -> Ok[Vector] | Failed:
        """Return a question's vector: shape ``(dimension,)``, float32.

        An embedder whose model failed is opened anew, and asked once more. A service that failed is not: it was asked
        again already, as often as is configured.
        """
        if query.embedding is not None:
            run.note("embed", run.elapsed_ms, None, None, "embedded before")
            return Ok(query.embedding)
        vector = None if self.remembered is None else self.remembered.get(query.text)
        if vector is not None:
            run.note("embed", run.elapsed_ms, None, None, "embedded before")
            return Ok(vector)
        embed = partial(self._embed_or_reopen, run, query)
        outcome = await (
            embed() if self.shared is None else self.shared.once(self.embedder, query.text, "query", embed)
        )
        if isinstance(outcome, Failed):
            return replace(outcome, error=as_embedding_error(outcome.error, "the query", query.original))
        return outcome if self.remembered is None else Ok(self.remembered.set(query.text, outcome.value))

    async def _embed_or_reopen(self, run: Run, query: Query) -> Ok[Vector] | Failed:
        outcome = await run.call("embed", self.embedder.embed_query, query.text)
        if isinstance(outcome, Failed) and self._may_reopen(run, outcome):
            if isinstance(await reopen(run, self.embedder), Failed):
                return outcome
            return await run.call("embed", self.embedder.embed_query, query.text)
        return outcome

    async def embed_passage(self, run: Run, text: str) -> Ok[Vector] | Failed:
        """Return the vector of a text as passages are embedded."""
        embed = partial(self._embed_passage, run, text)
        return await (embed() if self.shared is None else self.shared.once(self.embedder, text, "passage", embed))

    async def _embed_passage(self, run: Run, text: str) -> Ok[Vector] | Failed:
        outcome = await run.on("embed").call("embed", self.embedder.embed_texts, [text])
        if isinstance(outcome, Failed):
            return replace(outcome, error=as_embedding_error(outcome.error, "the text"))
        try:
            return Ok(checked_vector(outcome.value[0], self.embedder.dimension, text))
        except EmbeddingError as error:
            return Failed("embed", error)

    def _may_reopen(self, run: Run, failed: Failed) -> bool:
        """Whether opening the embedder anew may help: not where attempts were to mend it, and not what none can."""
        if run.is_over or "reopen" not in self.embedder.capabilities or self.recovery is None:
            return False
        error = failed.error
        is_of_another_kind = can_help(error) or is_callers_fault(error) or isinstance(error, _NOT_MENDED)
        return not is_of_another_kind and self.recovery.may_begin()


async def reopen(run: Run, embedder: Embedder) -> Ok[None] | Failed:
    """Open an embedder anew, if it can be."""
    if "reopen" not in embedder.capabilities:
        return Failed("reopen", EmbeddingError("the embedder cannot be opened anew: it has no method reopen"))
    return await run.without_retries().on("opening the embedder").call("reopen", embedder.reopen)


async def recover(run: Run, embedder: Embedder) -> bool:
    """Open an embedder anew and try it with one word, and return whether it works."""
    if isinstance(await reopen(run, embedder), Failed):
        return False
    tried = await run.without_retries().on("opening the embedder").call("embed", embedder.embed_texts, ["test"])
    return isinstance(tried, Ok)


class EmbeddingCache:
    """Keeps the vectors of questions of one embedder in memory. A vector that comes out cannot be changed.

    They are kept as long as there is room: the same text of the same embedder has the same vector for ever.

    Args:
        max_size: The most vectors; at least 1.
        now: Tells the time in seconds; it never goes back.

    Raises:
        InvalidParameterError: ``max_size`` is less.
    """

    def __init__(self, max_size: int, now: Callable[[], float]) -> None:
        self._vectors: LruCache[str, Vector] = LruCache(max_size, None, now)

    def get(self, text: str) -> Vector | None:
        """Return the vector of a question, shape ``(dimension,)``, read only; ``None`` where there is none."""
        return self._vectors.get(text)

    def set(self, text: str, vector: Vector) -> Vector:
        """Keep a copy of a question's vector, and return that copy, which is read only."""
        import numpy as np  # noqa: PLC0415 - whoever has a vector has loaded it

        # An array over bytes cannot be made writable again, as one that owns its memory can.
        copy = np.frombuffer(vector.tobytes(), dtype=vector.dtype).reshape(vector.shape)
        self._vectors.set(text, copy)
        return copy
