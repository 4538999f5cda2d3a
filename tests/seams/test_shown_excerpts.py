"""Contexts with a pruner show only some sentences, and a mark where others are left out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from retrieval_core import Chunk, load_config
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import Change, Kept, Pruner
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST = "No. It depends on the moon. No."
SECOND = "That is all."


class KeepsOne(Pruner):
    """Keeps only the first sentence of each chunk, or only the last one."""

    id = "one"
    batch_size = 100

    def __init__(self, place: int) -> None:
        self._place = place

    async def _keep(self, query: str, passages: Sequence[Sequence[str]]) -> Kept:
        kept = [[False] * len(sentences) for sentences in passages]
        for row in kept:
            row[self._place] = True
        return Kept(tuple(map(tuple, kept)))


@pytest.mark.parametrize(("place", "shown"), [(0, "No.\n[…]\nThat is all."), (-1, "No.\n\nThat is all.")])
def test_a_repeated_sentence_is_shown_where_it_is(place: int, shown: str) -> None:
    """If a chunk ends as it begins, only the place of what is kept says whether something is left out after it."""
    chunks = (
        Chunk("d#0", "d", FIRST, 0, 2, span=Span(0, len(FIRST))),
        Chunk("d#1", "d", SECOND, 1, 2, span=Span(len(FIRST) + 1, len(FIRST) + 1 + len(SECOND))),
    )
    config = load_config("lexical", {"context.window": 1, "context.min_primaries": 1, "cache.kind": "none"})

    async def context() -> str:
        store = MemoryStore()
        await store.upsert(Change(chunks))
        async with RetrievalPipeline(store, pruner=KeepsOne(place), config=config, token_counter=len) as pipeline:
            return (await pipeline.acontext("moon", top_k=1)).passages[0].text

    assert asyncio.run(context()) == shown
