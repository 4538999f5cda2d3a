"""A reranker that is shown excerpts in place of whole passages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.adapters.rerankers.local import MAX_CHARACTERS, ExcerptReranker
from retrieval_core.ports import Reranker, RerankScores
from retrieval_core.text.analysis import Analyzer

if TYPE_CHECKING:
    from collections.abc import Sequence


FILLER = "Nothing here says anything of it, and it goes on for a while. " * 30
ANSWER = "The valve of the boiler opens at two bar."


class Noting(Reranker):
    """Notes what it is shown."""

    id = "noting"
    batch_size = 7

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.is_closed = False

    async def _score(self, query: str, passages: Sequence[str]) -> RerankScores:
        assert query == "when does the boiler's valve open?"
        self.shown += passages
        return RerankScores(tuple(float("valve" in text) for text in passages))

    async def aclose(self) -> None:
        self.is_closed = True


def scores_of(*passages: str) -> tuple[Noting, tuple[float, ...]]:
    inner = Noting()
    scored = asyncio.run(ExcerptReranker(inner, Analyzer()).score("when does the boiler's valve open?", passages))
    return inner, scored.scores


def test_the_sentences_that_bear_on_the_question_are_shown_wherever_they_stand() -> None:
    inner, scores = scores_of(f"{FILLER}{ANSWER} {FILLER}", FILLER, ANSWER)
    assert scores == (1, 0, 1)
    assert ANSWER in inner.shown[0]
    assert inner.shown[2] == ANSWER  # what is short is shown whole


def test_a_sentence_that_is_too_long_is_cut() -> None:
    inner, _ = scores_of("valve " * 500)
    assert inner.shown == [("valve " * 500)[:MAX_CHARACTERS]]


@given(st.lists(st.text(max_size=2_000), max_size=5))
def test_each_passage_is_shown_and_none_beyond_the_bound(passages: list[str]) -> None:
    inner, scores = scores_of(*passages)
    assert len(inner.shown) == len(scores) == len(passages)
    assert all(len(text) <= MAX_CHARACTERS for text in inner.shown)
    assert all(shown or not passage.strip() for shown, passage in zip(inner.shown, passages, strict=True))


def test_it_is_a_reranker_of_its_own_name_that_closes_the_other_one() -> None:
    inner = Noting()
    reranker: Reranker = ExcerptReranker(inner, Analyzer())
    assert reranker.id == "noting, excerpts of 600 characters"
    assert reranker.batch_size == 7
    asyncio.run(ExcerptReranker(inner, Analyzer()).aclose())
    assert inner.is_closed
