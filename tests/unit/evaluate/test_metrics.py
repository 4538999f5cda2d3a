"""The measures, against values worked out by hand and against their definitions."""

from __future__ import annotations

import sys
from math import log2
from typing import TYPE_CHECKING

import pytest

from retrieval_core.errors import MissingExtraError
from retrieval_core.evaluate.run import Measures, ScoredDocument, measure, rank_documents
from retrieval_core.types import Chunk, Hit, Scores

if TYPE_CHECKING:
    from collections.abc import Mapping

ir_measures = pytest.importorskip("ir_measures")

GRADES = {"a": 3, "b": 2, "c": 0, "d": 1}


def ranked(*ids: str) -> tuple[ScoredDocument, ...]:
    return tuple(ScoredDocument(document_id, -float(rank)) for rank, document_id in enumerate(ids))


def measured(*ids: str, grades: Mapping[str, int] = GRADES) -> Measures:
    return measure({"q": grades}, {"q": ranked(*ids)})


def test_ndcg_takes_the_grade_itself_as_the_gain() -> None:
    """DCG is 2/log2(2) + 3/log2(4), and the ideal order is a, b, d."""
    ideal = 3 + 2 / log2(3) + 1 / log2(4)
    assert measured("b", "x", "a", "c").ndcg_at_10 == pytest.approx((2 + 3 / 2) / ideal)
    assert measured("a", "b", "d").ndcg_at_10 == pytest.approx(1)


def test_ndcg_and_mrr_end_at_rank_ten() -> None:
    """The tenth document still counts and the eleventh does not."""
    others = [f"x{number}" for number in range(9)]
    grades = {"a": 1}
    assert measured(*others, "a", grades=grades).ndcg_at_10 == pytest.approx(1 / log2(11))
    assert measured(*others, "a", grades=grades).mrr_at_10 == pytest.approx(1 / 10)
    assert measured(*others, "x", "a", grades=grades) == Measures(0, 0, 1, 0, {"q": 0})


def test_recall_ends_at_rank_one_hundred() -> None:
    """It is the share of the relevant documents, whatever their grades."""
    others = [f"x{number}" for number in range(98)]
    assert measured(*others, "a", "b", "d").recall_at_100 == pytest.approx(2 / 3)


def test_mrr_is_that_of_the_first_relevant_document() -> None:
    """A document judged irrelevant is none, and neither is one that nobody judged."""
    assert measured("c", "x", "d", "a").mrr_at_10 == pytest.approx(1 / 3)


def test_grades_below_zero_count_as_zero() -> None:
    """Some collections mark spam so."""
    grades = {"a": 1, "spam": -2}
    assert measured("spam", "a", grades=grades) == measured("x", "a", grades=grades)


def test_the_mean_is_over_all_judged_queries() -> None:
    """One that found nothing, one that was not asked and one without relevant documents count as 0."""
    judgements = {"q1": {"a": 1}, "q2": {"a": 1}, "q3": {"a": 1}, "q4": {"a": 0}}
    assert measure(judgements, {"q1": ranked("a"), "q2": (), "q4": ranked("a")}) == Measures(
        0.25, 0.25, 0.25, 0.25, {"q1": 1, "q2": 0, "q3": 0, "q4": 0}
    )


def test_a_document_stands_where_its_best_chunk_does() -> None:
    """Further chunks of it neither move it nor take places from others."""

    def hit(document_id: str, index: int, score: float) -> Hit:
        chunk = Chunk(f"{document_id}#{index}", document_id, "text", chunk_index=index)
        return Hit(chunk, score, Scores(final=score))

    hits = (hit("a", 1, 0.9), hit("a", 0, 0.8), hit("b", 3, 0.7), hit("a", 2, 0.7), hit("c", 0, 0.7))
    best = (ScoredDocument("a", 0.9), ScoredDocument("b", 0.7), ScoredDocument("c", 0.7))
    assert rank_documents(hits) == best


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message contains the command that installs it."""
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[evaluate\]"):
        measured("a")
