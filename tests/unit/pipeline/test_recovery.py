"""An embedder that fails is opened anew, once for a while; until it works, words answer alone."""

from __future__ import annotations

import asyncio

import pytest

from retrieval_core.config import load_config
from retrieval_core.errors import EmbeddingError, ServiceError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from support.pipelines import TroubledStore, filled

QUESTION = "rings of Saturn"


class Reopened(FakeEmbedder):
    """Fails until it was opened anew often enough."""

    def __init__(self, mended_by: int = 1) -> None:
        super().__init__()
        self.opened = 0
        self.mended_by = mended_by
        self.failure = EmbeddingError("the model is gone")

    async def reopen(self) -> None:
        self.opened += 1
        if self.opened >= self.mended_by:
            self.failure = None


def a_pipeline(embedder: FakeEmbedder, clock: FakeClock | None = None) -> RetrievalPipeline:
    store = TroubledStore()
    filled(store)
    settings = {"cache.kind": "none", "retry.max_retries": 0, "breaker.failures": 3}
    return RetrievalPipeline(store, embedder, config=load_config(overrides=settings), clock=clock or FakeClock())


def test_it_is_opened_anew_and_asked_again() -> None:
    """The same question is answered as if nothing had happened, and the trace tells."""
    embedder = Reopened()
    result = a_pipeline(embedder).retrieve(QUESTION)
    assert embedder.opened == 1
    assert not result.degraded
    assert result.hits[0].scores.dense_rank == 1
    assert [record.stage for record in result.trace][:3].count("reopen") <= 1
    assert "reopen" in [record.stage for record in result.trace]


def test_it_is_opened_anew_once_for_a_while() -> None:
    """Where that does not help, words answer alone; after the pause it is tried again, and works."""
    clock = FakeClock()
    embedder = Reopened(mended_by=2)
    pipeline = a_pipeline(embedder, clock)
    for _ in range(5):
        result = pipeline.retrieve(QUESTION)
        assert result.hits[0].id == "p3"
        assert [entry.stage for entry in result.degraded] == ["embed"]
    assert embedder.opened == 1
    clock.advance(31)
    assert not pipeline.retrieve(QUESTION).degraded
    assert embedder.opened == 2


def test_many_questions_at_once_open_it_once() -> None:
    """The others go on without it, and do not wait."""
    embedder = Reopened(mended_by=9)
    pipeline = a_pipeline(embedder)

    async def ask() -> None:
        results = await asyncio.gather(*(pipeline.aretrieve(f"{QUESTION} {number}") for number in range(20)))
        assert all(result.hits for result in results)

    asyncio.run(ask())
    assert embedder.opened == 1


def test_what_is_set_up_wrongly_is_not_opened_anew() -> None:
    """A refused key is raised, as ever."""
    embedder = Reopened()
    embedder.failure = ServiceError("wrong key", status=401)
    with pytest.raises(EmbeddingError, match="wrong key"):
        a_pipeline(embedder).retrieve(QUESTION)
    assert embedder.opened == 0


def test_one_that_cannot_be_opened_anew() -> None:
    """It fails as before."""
    embedder = FakeEmbedder()
    embedder.failure = EmbeddingError("the model is gone")
    result = a_pipeline(embedder).retrieve(QUESTION)
    assert [entry.stage for entry in result.degraded] == ["embed"]
    assert a_pipeline(embedder).recover_from_embedding_failure() is False


def test_by_hand() -> None:
    """The specification's method opens it, tries it and says whether it works."""
    assert a_pipeline(Reopened()).recover_from_embedding_failure() is True
    assert a_pipeline(Reopened(mended_by=2)).recover_from_embedding_failure() is False
    embedder = FakeEmbedder()
    store = TroubledStore()
    filled(store)
    words = RetrievalPipeline(store, config=load_config("lexical"))
    assert words.recover_from_embedding_failure() is False
    assert embedder.batches == []
