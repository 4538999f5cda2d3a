"""The benchmarks' passages are the same for everybody, and what an exact search finds in them is right."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from benchmarks.collection import (
    CANDIDATES,
    FILTERS,
    LENGTHS,
    STOP_WORDS,
    TOP_K,
    MadeUp,
    make,
    metadata,
    vocabulary,
)
from benchmarks.reference import K1, B, Exact, exact, fuse

from retrieval_core.config import SearchConfig
from retrieval_core.pipeline.stages.fuse import fuse as pipeline_fuse
from retrieval_core.ports import Candidate

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.reference import Fusion

PASSAGES, QUESTIONS = 400, 12


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> MadeUp:
    return make(tmp_path_factory.mktemp("collection"), PASSAGES, QUESTIONS)


def test_it_is_made_the_same_again(collection: MadeUp, tmp_path: Path) -> None:
    """Figures of two machines are about the same passages."""
    again = make(tmp_path, PASSAGES, QUESTIONS)
    assert again.texts() == collection.texts()
    assert again.question_texts == collection.question_texts
    np.testing.assert_array_equal(again.vectors, collection.vectors)
    np.testing.assert_array_equal(again.question_vectors, collection.question_vectors)


def test_texts_of_a_range_are_those_of_all(collection: MadeUp) -> None:
    """Wherever the range begins and ends, beyond the last one too."""
    texts = collection.texts()
    assert len(texts) == len(collection) == PASSAGES
    assert collection.texts(0, 7) + collection.texts(7, 399) + collection.texts(399, 1000) == texts
    assert {LENGTHS[0] <= len(text.split()) <= LENGTHS[1] for text in texts} == {True}


def test_words_follow_zipfs_law(collection: MadeUp) -> None:
    """A common word is several times as frequent as one ten ranks below, and every word is another one."""
    words = vocabulary()
    assert len(set(words)) == len(words)
    counts = Counter(word for text in collection.texts() for word in text.split())
    assert counts[STOP_WORDS[0]] > 3 * counts[STOP_WORDS[10]] > 0


def test_a_question_is_about_one_passage(collection: MadeUp) -> None:
    """Its words are in the passage whose vector is nearest."""
    np.testing.assert_allclose(np.linalg.norm(collection.question_vectors, axis=1), 1, rtol=1e-5)
    for number in range(QUESTIONS):
        question = collection.question(number)
        nearest = int(np.argmax(collection.vectors @ question.vector))
        assert set(question.text.split()) <= set(collection.texts(nearest, nearest + 1)[0].split())
    assert collection.question(QUESTIONS).text == collection.question(0).text


@pytest.mark.parametrize(("share", "part"), [("1 %", 0.01), ("50 %", 0.5)])
def test_a_filter_passes_its_share(share: str, part: float) -> None:
    """As counted from each passage's metadata."""
    condition = FILTERS[share]
    holds = condition.value.__eq__ if condition.operator == "==" else condition.value.__gt__
    expected = [holds(metadata(row)[condition.field]) for row in range(PASSAGES)]
    assert condition.passes(np.arange(PASSAGES)).tolist() == expected
    assert sum(expected) == part * PASSAGES


def _bm25(texts: list[str], question: str) -> dict[int, float]:
    """Score every passage from the formula alone."""
    passages = [text.split() for text in texts]
    mean = sum(map(len, passages)) / len(passages)
    scores: dict[int, float] = {}
    for word in {word for word in question.split() if word not in STOP_WORDS}:
        having = [row for row, words in enumerate(passages) if word in words]
        frequency = math.log(1 + (len(passages) - len(having) + 0.5) / (len(having) + 0.5))
        for row in having:
            count = passages[row].count(word)
            score = frequency * count / (count + K1 * (1 - B + B * len(passages[row]) / mean))
            scores[row] = scores.get(row, 0) + score
    return scores


@pytest.mark.parametrize("share", [None, *FILTERS])
def test_the_exact_search_finds_the_best(collection: MadeUp, share: str | None) -> None:
    """Compared with every passage scored one by one, and a filter applied before the limit."""
    condition = None if share is None else FILTERS[share]
    passing = np.flatnonzero(np.ones(PASSAGES) if condition is None else condition.passes(np.arange(PASSAGES))).tolist()
    texts = collection.texts()
    for number, found in enumerate(exact(collection, 4, condition)):
        question = collection.question(number)
        cosines = collection.vectors @ question.vector
        assert list(found.dense) == sorted(passing, key=lambda row: -cosines[row])[:CANDIDATES]
        words = _bm25(texts, question.text)
        best = sorted((words[row] for row in passing if row in words), reverse=True)[:CANDIDATES]
        np.testing.assert_allclose(list(found.lexical.values()), best, rtol=1e-5)
        np.testing.assert_allclose([words[row] for row in found.lexical], best, rtol=1e-5)


@pytest.mark.parametrize("fusion", ["adaptive", "zscore", "rrf", "minmax"])
def test_sides_are_fused_as_the_pipeline_does(collection: MadeUp, fusion: Fusion) -> None:
    """With the default's weight, or equal ones; the pipeline orders equal scores by id."""
    for found in exact(collection, QUESTIONS):
        sides = [
            [Candidate(f"{row:04}", score) for row, score in side.items()] for side in (found.dense, found.lexical)
        ]
        weight = SearchConfig(fusion=fusion).dense_weight
        ranking = pipeline_fuse(*sides, method=fusion, dense_weight=weight, limit=TOP_K)
        expected = [int(ranked.chunk_id) for ranked in ranking]
        assert fuse(found.dense, found.lexical, fusion) == expected


def test_recall_is_the_share_of_the_best_that_was_found() -> None:
    """Ten are the best, whatever else is found."""
    dense = {row: 1 - row / 100 for row in range(CANDIDATES)}
    found = Exact(dense, {})
    assert found.recall(range(TOP_K)) == 1
    assert found.recall([0, 1, 77], "rrf") == 0.2
    assert found.recall([]) == 0
