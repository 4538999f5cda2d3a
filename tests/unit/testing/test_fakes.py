from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import numpy as np
import pytest

from retrieval_core.errors import EmbeddingError, InvalidParameterError
from retrieval_core.testing.fakes import CountingFakeEmbedder, FakeEmbedder


def test_shared_words_make_texts_similar() -> None:
    """Inflected words count as the same, no common word means no similarity, and all common words mean the same."""
    embedder = FakeEmbedder(dimension=4096)
    query = asyncio.run(embedder.embed_query("Indexing documents"))
    vectors = asyncio.run(embedder.embed_texts(["it indexes a document", "cats sleep", "DOCUMENT index!"]))
    same, other, equal = vectors @ query
    assert same > 0.5
    assert other == 0
    assert equal == pytest.approx(1)


def test_the_same_in_every_process() -> None:
    """Vectors depend on nothing but text and dimension, whatever seed Python hashes strings with."""
    program = (
        "import asyncio; from retrieval_core.testing.fakes import FakeEmbedder;"
        "print(asyncio.run(FakeEmbedder(8).embed_query('the quick brown fox jumps')).tolist())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    command = [sys.executable, "-c", program]
    elsewhere = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    here = asyncio.run(FakeEmbedder(8).embed_query("the quick brown fox jumps")).tolist()
    assert elsewhere == f"{here}\n"
    assert [round(value, 4) for value in here] == [0.0, 0.378, 0.0, 0.0, 0.0, 0.7559, 0.378, 0.378]


def test_calls_are_recorded() -> None:
    """What was asked can be looked up afterwards."""
    embedder = FakeEmbedder()
    asyncio.run(embedder.embed_query("one"))
    asyncio.run(embedder.embed_texts(["two", "three"]))
    asyncio.run(embedder.embed_texts([]))
    assert embedder.queries == ["one"]
    assert embedder.batches == [("two", "three"), ()]


def test_it_fails_when_told_to() -> None:
    """A failure is raised by both calls as long as it is set; an embedding error carries the query."""
    embedder = FakeEmbedder()
    embedder.failure = EmbeddingError("broken")
    with pytest.raises(EmbeddingError, match="broken") as caught:
        asyncio.run(embedder.embed_query("question"))
    assert caught.value.query == "question"
    embedder.failure = OSError("gone")
    with pytest.raises(OSError, match="gone"):
        asyncio.run(embedder.embed_texts(["text"]))
    embedder.failure = None
    assert asyncio.run(embedder.embed_texts(["text"])).shape == (1, 256)


def test_it_waits_when_told_to() -> None:
    """With a gate set, calls wait until it opens."""

    async def main() -> None:
        embedder = FakeEmbedder()
        embedder.gate = asyncio.Event()
        task = asyncio.create_task(embedder.embed_query("question"))
        await asyncio.sleep(0)
        assert embedder.queries == ["question"]
        assert not task.done()
        embedder.gate.set()
        assert (await task).shape == (256,)

    asyncio.run(main())


def test_counting_is_an_ability_of_its_own() -> None:
    """Only the counting fake counts tokens, and it reads no more of them than it says."""
    assert "count_tokens" not in FakeEmbedder().capabilities
    embedder = CountingFakeEmbedder(dimension=16, max_tokens=2)
    assert "count_tokens" in embedder.capabilities
    assert embedder.count_tokens(" three short words ") == 3
    long, short = asyncio.run(embedder.embed_texts(["one two three", "one two"]))
    np.testing.assert_array_equal(long, short)
    assert embedder.id != CountingFakeEmbedder(dimension=16, max_tokens=3).id != FakeEmbedder(16).id


@pytest.mark.parametrize(("dimension", "max_tokens"), [(0, 1), (1, 0)])
def test_sizes_below_one_are_refused(dimension: int, max_tokens: int) -> None:
    """A vector has at least one component, and a text at least one word."""
    with pytest.raises(InvalidParameterError, match="must be a whole number of at least 1, got 0"):
        CountingFakeEmbedder(dimension, max_tokens)
