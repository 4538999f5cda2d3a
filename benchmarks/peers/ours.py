"""This library, with its defaults; the result cache is off, since no question is asked twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.collection import TOP_K, metadata
from retrieval_core import Chunk, load_config, open_index
from retrieval_core.pipeline.stages.transform import normalize
from retrieval_core.ports import Embedder
from retrieval_core.types.filters import Eq, Lt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.collection import Collection, Question
    from benchmarks.peers.postgres_server import PostgresServer
    from retrieval_core.index.index import Index
    from retrieval_core.types import Matrix, Vector

BATCH = 10_000
"""Passages of one write."""
STORES = {"retrieval-core-lancedb": "lancedb", "retrieval-core-postgres": "postgres"}


def vectors_of_questions(collection: Collection) -> dict[str, Vector]:
    """Return the vectors of the questions by their normal form, in which they are embedded."""
    settings = load_config().query
    texts = (normalize(text, settings).text for text in collection.question_texts)
    return dict(zip(texts, collection.question_vectors, strict=True))


class KnownVectors(Embedder):
    """An embedder for texts whose vectors are there already."""

    id = "known"
    dimension = 0

    def __init__(self, collection: Collection) -> None:
        self.dimension = collection.dimension
        self._questions = vectors_of_questions(collection)
        self.passages: dict[str, Vector] = {}

    async def _embed_query(self, text: str) -> Vector:
        """Return a question's vector."""
        return self._questions[text]

    async def _embed_texts(self, texts: Sequence[str]) -> Matrix:
        """Return passages' vectors."""
        return np.stack([self.passages[text] for text in texts])


class System:
    """An index: a file, or another store.

    Attributes:
        server: Of a store that has one.
    """

    def __init__(self, collection: Collection, place: Path, settings: Mapping[str, str]) -> None:
        self._collection = collection
        self._place = place
        self._settings = dict(settings)
        self._store = STORES.get(self._settings.pop("system"), "sqlite")
        self._index: Index | None = None
        self.server: PostgresServer | None = None
        if self._store == "postgres":
            from benchmarks.peers.postgres_server import PostgresServer

            self.server = PostgresServer(place / "server")
            self._settings["store.postgres.url"] = self.server.url

    def load(self) -> None:
        """Add all passages."""
        asyncio.run(self._load())
        if self.server is not None:
            self.server.checkpoint()

    async def _load(self) -> None:
        index, embedder = self._opened()
        for start in range(0, len(self._collection), BATCH):
            texts = self._collection.texts(start, start + BATCH)
            vectors = self._collection.vectors[start : start + BATCH]
            embedder.passages = dict(zip(texts, vectors, strict=True))
            await index.aadd(
                [Chunk(f"{row}#0", f"{row}", text, metadata=metadata(row)) for row, text in enumerate(texts, start)]
            )
        await index.store.optimize()
        await index.aclose()

    def open(self) -> None:
        """Open what was loaded, as another process would, and read it into memory if it is small."""
        self._index, _ = self._opened()
        self._index.load()

    def search(self, question: Question) -> list[int]:
        """Search."""
        assert self._index is not None
        return self._rows(
            self._index.retrieve(question.text, _filter(question), top_k=TOP_K, mode=question.mode, syntax=False)
        )

    async def asearch(self, question: Question) -> list[int]:
        """Search on an event loop."""
        assert self._index is not None
        found = await self._index.aretrieve(
            question.text, _filter(question), top_k=TOP_K, mode=question.mode, syntax=False
        )
        return self._rows(found)

    def close(self) -> None:
        """Close the index."""
        if self._index is not None:
            self._index.close()
        if self.server is not None:
            self.server.close()

    def _opened(self) -> tuple[Index, KnownVectors]:
        overrides: dict[str, Any] = {
            "cache.kind": "none",
            "search.candidates": self._collection.candidates,
            "store.kind": self._store,
            **self._settings,
        }
        embedder = KnownVectors(self._collection)
        index = open_index(self._place / "index", config=load_config(overrides=overrides), embedder=embedder)
        return index, embedder

    def _rows(self, found: Any) -> list[int]:
        if found.degraded:
            msg = f"an answer is not complete: {found.degraded}"
            raise RuntimeError(msg)
        return [int(hit.chunk.document_id) for hit in found.hits if hit.chunk.text]


def _filter(question: Question) -> Eq | Lt | None:
    condition = question.condition
    if condition is None:
        return None
    return (Eq if condition.operator == "==" else Lt)(condition.field, condition.value)
