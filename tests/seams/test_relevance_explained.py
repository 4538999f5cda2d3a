"""What a result says of why its hits are likely to answer the query, or not, word for word."""

from __future__ import annotations

import asyncio

import pytest

from retrieval_core import Chunk, load_config
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import Change
from support.pipelines import a_pipeline

WORDS_ALONE = "There is no calibrated cosine, so only the words count."
FEW = "The first chunk covers 63% of the query's words, rare ones weighing more. "
MANY = "bright moon harbour ships log berth alarm restore"


@pytest.mark.parametrize(
    ("query", "texts", "explanation"),
    [
        (
            "bright moon",
            ["The moon is bright."],
            f"The first chunk covers 100% of the query's words, rare ones weighing more. {WORDS_ALONE}",
        ),
        (
            "bright moon",
            ["The moon is bright.", "moon", "A harbour."],
            f"The best of the first 2 chunks covers 100% of the query's words, rare ones weighing more. {WORDS_ALONE}",
        ),
        (
            MANY.removesuffix(" restore"),
            ["bright moon"],
            FEW + f"Missing: harbour, ships, log, berth, alarm. {WORDS_ALONE}",
        ),
        (
            MANY,
            ["bright moon"],
            FEW + f"Missing: harbour, ships, log, berth, alarm … {WORDS_ALONE}",
        ),
        ("the of", ["The moon is bright."], "There are neither words nor cosines to judge by."),
        ("harbour", ["The moon is bright."], "Nothing was found."),
    ],
)
def test_a_search_by_words_is_explained(query: str, texts: list[str], explanation: str) -> None:
    """How many chunks were read, how much of the query the best one covers, and up to five words that it lacks."""
    store = MemoryStore()
    chunks = tuple(Chunk(f"c{number}", f"d{number}", text) for number, text in enumerate(texts))
    asyncio.run(store.upsert(Change(chunks)))
    with RetrievalPipeline(store, config=load_config("lexical")) as pipeline:
        relevance = pipeline.retrieve(query).relevance
    assert relevance is not None
    assert relevance.explanation == explanation


def test_passages_with_none_of_a_querys_words_cover_nothing_of_it() -> None:
    """Their coverage is 0, the least that there is; vector search finds some passage for every query."""
    with a_pipeline() as pipeline:
        result = pipeline.retrieve("zebra quagga", mode="dense")
    assert result.hits
    assert result.relevance is not None
    assert result.relevance.coverage == 0
