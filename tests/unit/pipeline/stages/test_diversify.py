from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.pipeline.stages.fuse import Ranked
from retrieval_core.pipeline.stages.select import maximal_marginal_relevance
from retrieval_core.types import Scores
from support.plugins import approx

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.types import Vector


@dataclass(frozen=True)
class Case:
    ranked: tuple[Ranked, ...]
    vectors: Mapping[str, Vector]


def of_both_sides(score: float, name: str) -> Ranked:
    return Ranked(name, Scores(fused=score, final=score))


def of_the_dense_side(cosine: float, name: str) -> Ranked:
    return Ranked(name, Scores(dense=max(cosine, 0.0), dense_rank=1, final=cosine))


def of_the_lexical_side(score: float, name: str) -> Ranked:
    return Ranked(name, Scores(lexical=score, lexical_rank=1, final=score))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from([of_both_sides, of_the_dense_side, of_the_lexical_side]))
    scores = sorted(draw(st.lists(st.integers(-16, 16).map(lambda n: n / 16), min_size=1, max_size=8)), reverse=True)
    ranked = tuple(kind(score, f"c{position}") for position, score in enumerate(scores))
    vectors: dict[str, Vector] = {}
    for item in ranked:
        vector = np.array(draw(st.tuples(*[st.integers(-3, 3)] * 3)), dtype=np.float32)
        if vector.any() and draw(st.integers(0, 5)):
            vectors[item.chunk_id] = (vector / np.linalg.norm(vector)).astype(np.float32)
    return Case(ranked, vectors)


lambdas = st.sampled_from([0.0, 0.3, 0.7, 1.0])
sizes = st.integers(1, 10)


def relevances(ranked: Sequence[Ranked]) -> dict[str, float]:
    if ranked[0].scores.dense_rank is not None:
        return {item.chunk_id: item.scores.dense or 0.0 for item in ranked}
    lowest, highest = ranked[-1].score, ranked[0].score
    return {item.chunk_id: 1.0 if highest == lowest else (item.score - lowest) / (highest - lowest) for item in ranked}


def marginal(name: str, chosen: Sequence[str], case: Case, lambda_mult: float) -> float:
    """The definition, word by word."""
    similarities = [
        float(case.vectors[name] @ case.vectors[other])
        for other in chosen
        if name in case.vectors and other in case.vectors
    ]
    return lambda_mult * relevances(case.ranked)[name] - (1 - lambda_mult) * max([0.0, *similarities])


@given(case=cases(), top_k=sizes, lambda_mult=lambdas)
def test_each_choice_is_the_best_there_is(case: Case, top_k: int, lambda_mult: float) -> None:
    """Each place goes to a chunk that no other open one surpasses, by the definition, and its value is recorded."""
    chosen = maximal_marginal_relevance(case.ranked, case.vectors, top_k=top_k, lambda_mult=lambda_mult)
    before: list[str] = []
    for item in chosen:
        others = {other.chunk_id for other in case.ranked} - set(before)
        values = {name: marginal(name, before, case, lambda_mult) for name in others}
        assert values[item.chunk_id] == approx(max(values.values()), abs=1e-5)
        assert item.scores.mmr == item.scores.final == approx(values[item.chunk_id], abs=1e-5)
        before.append(item.chunk_id)


@given(case=cases(), top_k=sizes, lambda_mult=lambdas)
def test_the_chosen_are_some_of_the_given(case: Case, top_k: int, lambda_mult: float) -> None:
    """No chunk comes twice, none from nowhere, no more than asked for, and values never rise."""
    chosen = maximal_marginal_relevance(case.ranked, case.vectors, top_k=top_k, lambda_mult=lambda_mult)
    names = [item.chunk_id for item in chosen]
    assert len(names) == len(set(names)) == min(top_k, len(case.ranked))
    assert set(names) <= {item.chunk_id for item in case.ranked}
    assert all(left.score >= right.score for left, right in pairwise(chosen))
    assert all(-1 - 1e-5 <= item.score <= 1 for item in chosen)


@given(case=cases(), top_k=sizes)
def test_relevance_alone_keeps_the_order(case: Case, top_k: int) -> None:
    """With a lambda of 1 the order is that of relevance; equal chunks keep their places."""
    chosen = maximal_marginal_relevance(case.ranked, case.vectors, top_k=top_k, lambda_mult=1.0)
    assert [item.chunk_id for item in chosen] == [item.chunk_id for item in case.ranked[:top_k]]


@given(case=cases(), top_k=sizes, lambda_mult=lambdas)
def test_choosing_again_gives_the_same(case: Case, top_k: int, lambda_mult: float) -> None:
    """Ties are no matter of chance."""
    first = maximal_marginal_relevance(case.ranked, case.vectors, top_k=top_k, lambda_mult=lambda_mult)
    assert first == maximal_marginal_relevance(case.ranked, case.vectors, top_k=top_k, lambda_mult=lambda_mult)


def test_a_repetition_gives_way() -> None:
    """The second best passage, a copy of the best, comes after a different one."""
    ranked = (of_both_sides(1.0, "best"), of_both_sides(0.9, "copy"), of_both_sides(0.0, "other"))
    vectors = {"best": np.array([1, 0], np.float32), "copy": np.array([1, 0], np.float32)}
    vectors["other"] = np.array([0, 1], np.float32)
    chosen = maximal_marginal_relevance(ranked, vectors, top_k=3, lambda_mult=0.5)
    assert [item.chunk_id for item in chosen] == ["best", "other", "copy"]
    assert [item.score for item in chosen] == approx([0.5, 0.0, -0.05])


def test_chunks_without_vectors_neither_repel_nor_are_repelled() -> None:
    """Where no vector is known, relevance decides."""
    ranked = (of_both_sides(1.0, "a"), of_both_sides(0.5, "b"), of_both_sides(0.0, "c"))
    chosen = maximal_marginal_relevance(ranked, {}, top_k=2, lambda_mult=0.5)
    assert [item.chunk_id for item in chosen] == ["a", "b"]


def test_nothing_comes_of_nothing() -> None:
    """No candidates, no choice."""
    assert maximal_marginal_relevance((), {}, top_k=3, lambda_mult=0.5) == ()
