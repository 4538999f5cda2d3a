"""Several questions at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from retrieval_core.errors import InvalidParameterError, QueryValidationError
from retrieval_core.testing.fakes import FakeEmbedder
from support.pipelines import TroubledStore, a_pipeline, filled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.types import Matrix

QUESTIONS = ("rings of Saturn", "bake bread", "roll back an application")


class Batching(FakeEmbedder):
    """Takes several questions at once, and notes how many."""

    def __init__(self, wrong: str | None = None) -> None:
        super().__init__()
        self.wrong = wrong
        self.together: list[tuple[str, ...]] = []

    async def embed_queries(self, texts: Sequence[str]) -> Matrix:
        self.together.append(tuple(texts))
        await self._obey()
        if self.wrong == "dimension":
            return np.ones((len(texts), 3), np.float32)
        if self.wrong == "count":
            return np.ones((len(texts) - 1, self.dimension), np.float32)
        if self.wrong == "type":
            return None  # type: ignore[return-value]
        return np.stack([self.vector(text) for text in texts])


def test_questions_are_embedded_together_and_answered_in_order() -> None:
    """One call embeds them all; each outcome is what the question would get alone."""
    embedder = Batching()
    pipeline = a_pipeline(embedder=embedder)
    outcomes = pipeline.retrieve_many(QUESTIONS, top_k=2)
    assert embedder.together == [QUESTIONS]
    assert embedder.queries == []
    assert [outcome.query for outcome in outcomes] == list(QUESTIONS)
    alone = a_pipeline()
    for outcome in outcomes:
        assert outcome.error is None
        assert outcome.result is not None
        assert outcome.result.hits == alone.retrieve(outcome.query, top_k=2).hits


def test_the_specifications_name() -> None:
    """It is the same method."""
    assert [outcome.query for outcome in a_pipeline().process_query_batch(QUESTIONS)] == list(QUESTIONS)


def test_a_question_that_fails_does_not_touch_the_others() -> None:
    """Its outcome has the error; the others have their results."""
    bad: Any = ["  ", 7]
    outcomes = a_pipeline(embedder=Batching()).retrieve_many([QUESTIONS[0], *bad, QUESTIONS[1]])
    assert [type(outcome.error) for outcome in outcomes] == [
        type(None),
        QueryValidationError,
        QueryValidationError,
        type(None),
    ]
    assert [outcome.result is None for outcome in outcomes] == [False, True, True, False]


@pytest.mark.parametrize("wrong", ["dimension", "count", "type"])
def test_a_batch_that_fails_is_embedded_one_by_one(wrong: str) -> None:
    """What comes of the batch cannot be used, so each question is embedded for itself."""
    embedder = Batching(wrong)
    outcomes = a_pipeline(embedder=embedder).retrieve_many(QUESTIONS)
    assert sorted(embedder.queries) == sorted(QUESTIONS)
    assert all(outcome.result is not None and not outcome.result.degraded for outcome in outcomes)


def test_many_questions_are_embedded_in_several_calls() -> None:
    """A call has a bounded number of questions, and the same one is embedded once."""
    embedder = Batching()
    questions = [f"{QUESTIONS[number % 2]} number {number % 150}" for number in range(300)]
    outcomes = a_pipeline(embedder=embedder).retrieve_many(questions, top_k=1)
    assert [len(batch) for batch in embedder.together] == [64, 64, 22]
    assert [outcome.query for outcome in outcomes] == questions


def test_lexical_questions_are_not_embedded() -> None:
    """Where no vector is needed, none is asked for."""
    embedder = Batching()
    outcomes = a_pipeline(embedder=embedder).retrieve_many(QUESTIONS, mode="lexical")
    assert embedder.together == []
    assert all(outcome.result is not None for outcome in outcomes)


def test_one_text_is_no_list() -> None:
    """Its letters are not taken for questions."""
    with pytest.raises(InvalidParameterError, match="list of questions"):
        a_pipeline().retrieve_many("rings of Saturn")
    assert a_pipeline().retrieve_many([]) == ()


def test_a_dead_store_is_told_for_each_question() -> None:
    """Results are empty and say why; with raise_on_error the outcomes have the errors."""
    store = TroubledStore()
    filled(store)
    store.failures |= {side: ConnectionError("gone") for side in ("dense", "lexical")}
    for outcome in a_pipeline(store).retrieve_many(QUESTIONS):
        assert outcome.result is not None
        assert outcome.result.hits == ()
        assert outcome.result.degraded
    outcomes = a_pipeline(store, raise_on_error=True).retrieve_many(QUESTIONS)
    assert all(outcome.error is not None and outcome.result is None for outcome in outcomes)
