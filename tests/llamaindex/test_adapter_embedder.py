"""Embedding models of LlamaIndex as embedders."""

from __future__ import annotations

import asyncio
from threading import current_thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core.embeddings import MockEmbedding

from llama_index.retrievers.retrieval_core.adapters import LlamaIndexEmbedder
from retrieval_core.errors import (
    DimensionMismatchError,
    EmbeddingError,
    InvalidParameterError,
    MalformedAnswerError,
    ServiceConnectionError,
    ServiceError,
    ServiceTimeoutError,
)
from retrieval_core.testing.embedder_kit import EmbedderConformance
from support.llamaindex_parts import DIMENSION, WordEmbedding

if TYPE_CHECKING:
    from retrieval_core.types import Matrix, Vector


class AsyncEmbedding(WordEmbedding):
    """Waits for nothing, but in the way of one that does; remembers where it was called."""

    async def _aget_query_embedding(self, query: str) -> list[float]:
        await asyncio.sleep(0)
        self.calls.append(("loop", [current_thread().name]))
        return self.vector(query)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        await asyncio.sleep(0)
        return [self.vector(text) for text in texts]


class TestInThreads(EmbedderConformance):
    @pytest.fixture
    def embedder(self) -> LlamaIndexEmbedder:
        return LlamaIndexEmbedder(WordEmbedding(size=256))


class TestOnTheLoop(EmbedderConformance):
    @pytest.fixture
    def embedder(self) -> LlamaIndexEmbedder:
        return LlamaIndexEmbedder(AsyncEmbedding(size=256))


def query(embedder: LlamaIndexEmbedder, text: str = "moon") -> Vector:
    return asyncio.run(embedder.embed_query(text))


def texts(embedder: LlamaIndexEmbedder, *given: str) -> Matrix:
    return asyncio.run(embedder.embed_texts(given))


def test_questions_and_passages_go_their_own_ways_and_in_batches() -> None:
    """Each kind has the prompt that the model gives it, and ``embed_batch_size`` is kept."""
    model = WordEmbedding(embed_batch_size=2)
    embedder = LlamaIndexEmbedder(model)
    query(embedder, "a question")
    texts(embedder, "a", "b", "")
    assert model.calls == [("query", ["a question"]), ("texts", ["a", "b"]), ("texts", [" "])]


def test_vectors_have_unit_length_whatever_the_model_gives() -> None:
    assert np.linalg.norm(WordEmbedding().vector("moon")) == pytest.approx(3)
    embedder = LlamaIndexEmbedder(WordEmbedding())
    vector = query(embedder)
    assert np.linalg.norm(vector) == pytest.approx(1)
    assert embedder.length_of(vector) == pytest.approx(3)
    assert embedder.length_of(-vector) == 1


def test_the_dimension_is_told_learned_or_asked_for() -> None:
    told = WordEmbedding(embed_dim=DIMENSION)
    assert LlamaIndexEmbedder(told).dimension == DIMENSION
    assert told.calls == []
    learned = WordEmbedding()
    embedder = LlamaIndexEmbedder(learned)
    texts(embedder, "moon")
    assert (embedder.dimension, len(learned.calls)) == (DIMENSION, 1)
    asked = WordEmbedding()
    assert LlamaIndexEmbedder(asked).dimension == DIMENSION
    assert len(asked.calls) == 1
    assert LlamaIndexEmbedder(WordEmbedding(), dimension=5).dimension == 5
    assert LlamaIndexEmbedder(MockEmbedding(embed_dim=7)).dimension == 7


def test_the_id_names_class_model_and_what_changes_the_vectors() -> None:
    def name(**fields: Any) -> str:
        return LlamaIndexEmbedder(WordEmbedding(**fields)).id

    assert name() == "llama-index/WordEmbedding/words" == name(embed_batch_size=3, num_workers=2)
    assert name(model_name="other") == "llama-index/WordEmbedding/other"
    assert name(embed_dim=DIMENSION) == f"llama-index/WordEmbedding/words/{DIMENSION}"
    prompted = name(query_instruction="Find: ")
    assert prompted.startswith("llama-index/WordEmbedding/words+")
    assert prompted not in {name(), name(query_instruction="Look for: ")}
    assert LlamaIndexEmbedder(WordEmbedding(), name="mine").id == "mine"

    class Pooled(WordEmbedding):
        pooling: str = "cls"

    ids = [LlamaIndexEmbedder(Pooled(pooling=pooling)).id for pooling in ("cls", "mean")]
    assert ids == ["llama-index/Pooled/words", "llama-index/Pooled/words;pooling=mean"]


def test_another_event_loop_gets_a_thread() -> None:
    """Clients that models keep belong to the loop of their first use."""
    model = AsyncEmbedding()
    embedder = LlamaIndexEmbedder(model, is_async=True)
    first = query(embedder)
    assert model.calls == [("loop", [current_thread().name])]
    np.testing.assert_allclose(query(embedder), first)
    assert model.calls[1:] == [("query", ["moon"])]


class _StatusError(Exception):
    status_code = 429

    class response:  # noqa: N801 - as SDKs have it
        headers = {"retry-after": "7"}  # noqa: RUF012


class _APITimeoutError(Exception): ...


class _ConnectError(Exception): ...


class FailingEmbedding(WordEmbedding):
    error: Any = None
    api_key: str = "key-12345678"

    def _get_query_embedding(self, query: str) -> list[float]:
        raise self.error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (_StatusError("too many"), ServiceError),
        (_APITimeoutError("slow"), ServiceTimeoutError),
        (TimeoutError(), ServiceTimeoutError),
        (_ConnectError("gone"), ServiceConnectionError),
        (KeyError("data"), ServiceError),
        (EmbeddingError("our own"), EmbeddingError),
    ],
)
def test_errors_are_of_this_library(error: Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind) as raised:
        query(LlamaIndexEmbedder(FailingEmbedding(error=error)))
    assert type(raised.value) is kind
    if isinstance(error, _StatusError):
        assert isinstance(raised.value, ServiceError)
        assert (raised.value.status, raised.value.retry_after, raised.value.can_be_retried) == (429, 7.0, False)


def test_a_key_stays_out_of_errors() -> None:
    with pytest.raises(ServiceError, match=r"\[secret\] is wrong") as raised:
        query(LlamaIndexEmbedder(FailingEmbedding(error=ValueError("key-12345678 is wrong"))))
    assert raised.value.__cause__ is None


def test_vectors_that_cannot_be_used_are_refused() -> None:
    class Odd(WordEmbedding):
        answer: list[list[float]]

        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            return self.answer

    def refused(*answer: list[float]) -> LlamaIndexEmbedder:
        return LlamaIndexEmbedder(Odd(answer=list(answer)))

    with pytest.raises(MalformedAnswerError, match="1 vectors for 2 texts"):
        texts(refused([1.0]), "a", "b")
    with pytest.raises(DimensionMismatchError):
        texts(refused([1.0], [1.0, 2.0]), "a", "b")
    with pytest.raises(EmbeddingError, match="no direction"):
        texts(refused([0.0, 0.0]), "a")
    with pytest.raises(EmbeddingError, match="no direction"):
        texts(refused([float("nan"), 1.0]), "a")


def test_the_dimension_of_a_model_that_fails_is_an_error() -> None:
    with pytest.raises(EmbeddingError, match="to learn it failed: down"):
        _ = LlamaIndexEmbedder(FailingEmbedding(error=ValueError("down"))).dimension


def test_arguments_are_checked_when_they_are_given() -> None:
    wrong: Any = "text-embedding-3-small"
    with pytest.raises(InvalidParameterError, match=r"an embedding model of LlamaIndex.*got a value of type str"):
        LlamaIndexEmbedder(wrong)
    with pytest.raises(InvalidParameterError, match="dimension must be a whole number"):
        LlamaIndexEmbedder(WordEmbedding(), dimension=0)
