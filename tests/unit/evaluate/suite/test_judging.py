"""What a case expects against what was found."""

from __future__ import annotations

from itertools import pairwise
from math import log2
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.evaluate.suite import Case, Expected
from retrieval_core.evaluate.suite.running import Texts, folded, has_keyword, judged, measures_of, ranks_of
from retrieval_core.types import Hit, Scores
from support.suites import chunks


def hits(*scores: float | None) -> list[Hit]:
    return [
        Hit(chunk, 1.0, Scores(dense=score))
        for chunk, score in zip(chunks(), scores or [None] * len(chunks()), strict=False)
    ]


def problems(found: list[Hit], milliseconds: float = 1.0, **case: Any) -> list[str]:
    asked = Case.model_validate({"name": "a", "query": "q", **case})
    return [f"{type(error).__name__}: {error}" for error in judged(asked, Texts(found), milliseconds)]


@pytest.mark.parametrize(
    ("text", "keyword", "expected"),
    [
        ("ROS 2 is a framework", "ros 2", True),
        ("ROS 22", "ROS 2", False),
        ("a tapir", "TAPIR", True),
        ("tapirs", "tapir", False),
        ("C++, and Go", "C++", True),
        ("the café", "cafe\u0301", True),
        ("STRASSE", "Straße", True),
        ("sync\n  wave", "sync wave", True),
        ("snake_case", "snake", False),
        ("机器人学", "机器", True),
        ("e\u0308x", "e", False),
        ("re-sync", "sync", True),
        ("a+ b a", "a", True),
    ],
)
def test_keywords_are_whole_words_whatever_their_case(text: str, keyword: str, expected: bool) -> None:
    assert has_keyword(folded(text), folded(keyword)) is expected


@given(st.text(), st.text(min_size=1).filter(lambda text: bool(folded(text))))
def test_a_keyword_between_spaces_is_always_found(text: str, keyword: str) -> None:
    assert has_keyword(folded(f"{text} {keyword} {text}"), folded(keyword))


def test_each_thing_has_its_first_rank() -> None:
    expected = Expected.model_validate(
        {
            "documents": ["trains.md", "absent.md"],
            "chunks": ["tapirs.md#1"],
            "phrases": ["crust  IS brown"],
        }
    )
    assert ranks_of(expected, Texts(hits())) == {
        "document:trains.md": 3,
        "document:absent.md": None,
        "chunk:tapirs.md#1": 2,
        "phrase:crust  IS brown": 5,
    }


def test_measures_are_as_they_are_defined() -> None:
    expected = Expected.model_validate({"documents": {"a": 3, "b": 1}})
    measures = measures_of(expected, {"document:a": 2, "document:b": 7}, 10)
    assert measures["recall@5"] == 0.5
    assert measures["recall@k"] == 1.0
    assert measures["mrr"] == 0.5
    assert measures["ndcg@10"] == pytest.approx((3 / log2(3) + 1 / log2(8)) / (3 + 1 / log2(3)))


def test_of_any_one_is_enough() -> None:
    expected = Expected.model_validate({"documents": ["a", "b"], "matches": "any"})
    assert measures_of(expected, {"document:a": None, "document:b": 1}, 10)["recall@5"] == 1.0
    assert problems(hits(), expect={"documents": ["absent", "bread.md"], "matches": "any"}) == []
    assert len(problems(hits(), expect={"documents": ["absent", "gone"], "matches": "any"})) == 2


def test_what_expects_nothing_has_no_measures() -> None:
    assert measures_of(Expected(keywords=["x"]), {}, 10) == {}


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 10), min_size=1),
    st.lists(st.none() | st.integers(1, 100), min_size=8, max_size=8),
    st.sampled_from(["all", "any"]),
)
def test_measures_are_shares_and_do_not_fall_with_depth(
    grades: dict[str, int], ranks: list[int | None], matches: str
) -> None:
    expected = Expected.model_validate({"documents": grades, "matches": matches})
    found = {f"document:{name}": rank for name, rank in zip(grades, ranks, strict=False)}
    by_depth = [measures_of(expected, found, depth) for depth in (1, 5, 20, 100)]
    assert all(0 <= value <= 1 for measures in by_depth for value in measures.values())
    assert all(one["recall@k"] <= other["recall@k"] for one, other in pairwise(by_depth))


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ({"expect": {"documents": ["bread.md"]}}, []),
        (
            {"expect": {"documents": ["x.md"]}},
            ["MissingDocumentError: the document 'x.md' is not among the first 10 passages"],
        ),
        ({"expect": {"keywords": ["vienna"]}}, []),
        ({"expect": {"keywords": ["vien"]}}, ["ExpectationError: no passage has the keyword 'vien'"]),
        (
            {"forbid": {"documents": ["owls.md"]}},
            ["ExpectationError: the document 'owls.md' must not be found, and is number 6"],
        ),
        ({"forbid": {"phrases": ["zebra"]}}, []),
        ({"latency_ms": 0.5}, ["PerformanceError: it took longer than the 0.5 ms that it may take"]),
        ({"relevance_threshold": 0.6}, []),
        (
            {"relevance_threshold": 0.95},
            ["RelevanceError: the best passage has the similarity 0.900, below the threshold 0.95"],
        ),
        (
            {"relevance_threshold": 0.6, "expect": {"documents": ["bread.md"]}},
            ["RelevanceError: the best passage of 'bread.md' has the similarity 0.500, below the threshold 0.6"],
        ),
        ({"relevance_threshold": 0.6, "expect": {"documents": ["bread.md", "tapirs.md"], "matches": "any"}}, []),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(case: dict[str, Any], expected: list[str]) -> None:
    assert problems(hits(0.9, 0.8, 0.7, 0.6, 0.5, 0.4), **case) == expected


def test_nothing_found_reaches_no_threshold() -> None:
    assert problems([], relevance_threshold=0.1)[0].startswith("RelevanceError: nothing was found")


def test_a_threshold_needs_similarities() -> None:
    told = problems(hits(), relevance_threshold=0.1)
    assert told == ["SearchError: relevance_threshold needs similarities, and this index has no vectors"]
