from __future__ import annotations

from itertools import pairwise
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.pipeline.stages.fuse import Ranked, cosine_to_score, fuse, merge
from retrieval_core.ports import Candidate
from support.plugins import approx

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrieval_core.pipeline.stages.fuse import FusionMethod

METHODS: tuple[FusionMethod, ...] = ("adaptive", "zscore", "rrf", "minmax", "dbsf")
AFFINE_METHODS: tuple[FusionMethod, ...] = ("adaptive", "zscore", "minmax", "dbsf")
IDS = "abcdefgh"


def side(**scores: float) -> tuple[Candidate, ...]:
    """A side with these scores, best first."""
    return tuple(Candidate(name, score) for name, score in sorted(scores.items(), key=lambda item: (-item[1], item[0])))


def mapped(candidates: Sequence[Candidate], change: Callable[[float], float]) -> tuple[Candidate, ...]:
    return tuple(Candidate(candidate.chunk_id, change(candidate.score)) for candidate in candidates)


def sides(numbers: st.SearchStrategy[float], min_size: int = 0) -> st.SearchStrategy[tuple[Candidate, ...]]:
    scores = st.dictionaries(st.sampled_from(IDS), numbers, min_size=min_size)
    return scores.map(lambda by_id: side(**by_id))


def ids(ranked: Sequence[Ranked]) -> list[str]:
    return [item.chunk_id for item in ranked]


def fused(ranked: Sequence[Ranked]) -> dict[str, float]:
    return {item.chunk_id: item.score for item in ranked}


methods = st.sampled_from(METHODS)
affine_methods = st.sampled_from(AFFINE_METHODS)
weights = st.sampled_from([0.0, 0.25, 0.5, 0.6, 1.0])
small_numbers = st.integers(-64, 64).map(lambda number: number / 16)
"""Few different values, exact in binary: many ties, and no rounding where numbers are moved or stretched."""
any_numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(dense=sides(small_numbers), lexical=sides(small_numbers), method=methods, weight=weights)
def test_each_chunk_once_in_order(
    dense: tuple[Candidate, ...], lexical: tuple[Candidate, ...], method: FusionMethod, weight: float
) -> None:
    """The result holds every id of either side once, the highest value first, equal values by id."""
    ranked = fuse(dense, lexical, method=method, dense_weight=weight)
    assert sorted(ids(ranked)) == sorted({candidate.chunk_id for candidate in (*dense, *lexical)})
    keys = [(-item.score, item.chunk_id) for item in ranked]
    assert keys == sorted(keys)
    assert all(item.scores.fused == item.scores.final == item.score for item in ranked)


@given(dense=sides(small_numbers), lexical=sides(small_numbers), method=methods)
def test_every_chunk_knows_its_places(
    dense: tuple[Candidate, ...], lexical: tuple[Candidate, ...], method: FusionMethod
) -> None:
    """Score and rank on each side are kept, and are ``None`` where that side did not find the chunk."""
    places = {c.chunk_id: (rank, c.score) for rank, c in enumerate(dense, start=1)}
    words = {c.chunk_id: (rank, c.score) for rank, c in enumerate(lexical, start=1)}
    for item in fuse(dense, lexical, method=method):
        rank, cosine = places.get(item.chunk_id, (None, None))
        assert item.scores.dense_rank == rank
        assert item.scores.dense == (None if cosine is None else cosine_to_score(cosine))
        assert (item.scores.lexical_rank, item.scores.lexical) == words.get(item.chunk_id, (None, None))
        assert item.scores.mmr is None
        assert item.scores.rerank is None


@given(
    dense=sides(small_numbers),
    lexical=sides(small_numbers),
    method=affine_methods,
    change=st.tuples(st.sampled_from([0.125, 0.5, 4.0, 1024.0]), st.sampled_from([-8.0, 0.0, 0.5, 32.0])),
    of_dense=st.booleans(),
)
def test_a_sides_unit_does_not_matter(
    dense: tuple[Candidate, ...],
    lexical: tuple[Candidate, ...],
    method: FusionMethod,
    change: tuple[float, float],
    of_dense: bool,
) -> None:
    """Stretching and moving all scores of a side changes no fused value of the methods that look at scores."""
    before = fused(fuse(dense, lexical, method=method))
    factor, shift = change
    if of_dense:
        dense = mapped(dense, lambda score: score * factor + shift)
    else:
        lexical = mapped(lexical, lambda score: score * factor + shift)
    assert fused(fuse(dense, lexical, method=method)) == approx(before, abs=1e-9)


@given(dense=sides(small_numbers), lexical=sides(small_numbers), weight=weights)
def test_reciprocal_ranks_see_ranks_only(
    dense: tuple[Candidate, ...], lexical: tuple[Candidate, ...], weight: float
) -> None:
    """Any change of a side's scores that keeps their order leaves reciprocal rank fusion as it is."""
    before = fused(fuse(dense, lexical, method="rrf", dense_weight=weight))
    after = fuse(
        mapped(dense, lambda score: score**3),
        mapped(lexical, lambda score: 2**score),
        method="rrf",
        dense_weight=weight,
    )
    assert fused(after) == before


@given(
    dense=sides(small_numbers, 1), lexical=sides(small_numbers, 1), method=methods, weight=st.sampled_from([0.0, 1.0])
)
def test_a_weight_of_one_keeps_that_sides_order(
    dense: tuple[Candidate, ...], lexical: tuple[Candidate, ...], method: FusionMethod, weight: float
) -> None:
    """With all the weight on one side, its chunks stand in its order, none of the others' before its best."""
    leading = dense if weight else lexical
    ranked = fuse(dense, lexical, method=method, dense_weight=weight)
    values = fused(ranked)
    in_its_order = [values[candidate.chunk_id] for candidate in leading]
    assert in_its_order == sorted(in_its_order, reverse=True)
    assert max(values.values()) == in_its_order[0]
    for better, worse in pairwise(leading):
        if better.score > worse.score:
            assert values[better.chunk_id] > values[worse.chunk_id]


@given(found=sides(small_numbers, 1), method=methods, on_the_left=st.booleans(), weight=st.sampled_from([0.25, 0.6]))
def test_a_side_that_found_nothing_changes_no_order(
    found: tuple[Candidate, ...], method: FusionMethod, on_the_left: bool, weight: float
) -> None:
    """Beside an empty side the other one's order stands."""
    ranked = fuse(found if on_the_left else (), () if on_the_left else found, method=method, dense_weight=weight)
    assert ids(ranked) == ids([Ranked(candidate.chunk_id, ranked[0].scores) for candidate in found])


@given(found=sides(any_numbers), method=methods)
def test_a_side_that_was_not_asked_leaves_the_others_scores(found: tuple[Candidate, ...], method: FusionMethod) -> None:
    """Where one side is ``None`` the other one's order and scores are final, and there is no fused value."""
    for ranked in (fuse(found, None, method=method), fuse(None, found, method=method)):
        assert ids(ranked) == [candidate.chunk_id for candidate in found]
        assert [item.score for item in ranked] == [candidate.score for candidate in found]
        assert all(item.scores.fused is None for item in ranked)
    assert fuse(None, None, method=method) == fuse((), (), method=method) == ()


@given(dense=sides(any_numbers), lexical=sides(any_numbers), method=methods, weight=weights)
def test_no_score_is_too_large_or_too_small(
    dense: tuple[Candidate, ...], lexical: tuple[Candidate, ...], method: FusionMethod, weight: float
) -> None:
    """From the greatest numbers to denormal ones every fused value is finite."""
    assert all(isfinite(item.score) for item in fuse(dense, lexical, method=method, dense_weight=weight))


@pytest.mark.parametrize("method", AFFINE_METHODS)
@pytest.mark.parametrize("unit", [1e300, 1e-300])
def test_extreme_scores_fuse_like_ordinary_ones(method: FusionMethod, unit: float) -> None:
    """The scale of a side changes nothing even where the squares of its scores leave the range of floats."""
    usual = fuse(side(a=3.0, b=-2.0, c=1.0), side(b=1.0), method=method)
    extreme = fuse(side(a=3 * unit, b=-2 * unit, c=unit), side(b=1.0), method=method)
    assert fused(extreme) == approx(fused(usual))


@given(number=any_numbers, count=st.integers(1, 100))
def test_equal_scores_are_exactly_equal(number: float, count: int) -> None:
    """A side whose scores are all the same says nothing, however its mean is rounded."""
    same = tuple(Candidate(f"{position:03}", number) for position in range(count))
    for method, value in zip(AFFINE_METHODS, (1.0, 1.0, 1.0, 0.5), strict=True):
        assert {item.score for item in fuse(same, (), method=method, dense_weight=1.0)} == {value}


DENSE = side(a=0.9, b=0.6, c=0.3)
LEXICAL = side(c=8.0, d=4.0)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        # Dense: mean 0.6, deviation sqrt(0.06); lexical: mean 6, deviation 2; both sides' lowest is a missing chunk's.
        ("zscore", {"a": 0.6 * 1.5**0.5 - 0.4, "b": -0.4, "c": -0.6 * 1.5**0.5 + 0.4, "d": -0.6 * 1.5**0.5 - 0.4}),
        # Leads: 2 * sqrt(1.5) and 2, so that 0.6 to 0.4 becomes 0.6 * sqrt(1.5) to 0.4.
        (
            "adaptive",
            {
                "a": (0.9 - 0.4) / (0.6 * 1.5**0.5 + 0.4),
                "b": -0.4 / (0.6 * 1.5**0.5 + 0.4),
                "c": (0.4 - 0.9) / (0.6 * 1.5**0.5 + 0.4),
                "d": (-0.9 - 0.4) / (0.6 * 1.5**0.5 + 0.4),
            },
        ),
        ("rrf", {"a": 0.6 / 61, "b": 0.6 / 62, "c": 0.6 / 63 + 0.4 / 61, "d": 0.4 / 62}),
        ("minmax", {"a": 0.6, "b": 0.3, "c": 0.4, "d": 0.0}),
        # Deviations of the samples: 0.3 and sqrt(8).
        (
            "dbsf",
            {"a": 0.6 * 4 / 6, "b": 0.3, "c": 0.6 * 2 / 6 + 0.4 * (3 + 0.5**0.5) / 6, "d": 0.4 * (3 - 0.5**0.5) / 6},
        ),
    ],
)
def test_values_reckoned_by_hand(method: FusionMethod, expected: dict[str, float]) -> None:
    """Each method gives what its formula says."""
    ranked = fuse(DENSE, LEXICAL, method=method, dense_weight=0.6)
    assert fused(ranked) == approx(expected)


def test_the_side_whose_best_stands_out_decides() -> None:
    """Equal weights go to the side that sets its first passage apart from the others, whichever that is."""
    steps = {name: 1 - position / 100 for position, name in enumerate("abcdefghijklmn")}
    peak = {name: 0.9 if name == "n" else 0.1 + position / 1000 for position, name in enumerate("abcdefghijklmn")}
    assert ids(fuse(side(**steps), side(**peak), method="adaptive"))[0] == "n"
    assert ids(fuse(side(**peak), side(**steps), method="adaptive"))[0] == "n"


@given(dense=sides(small_numbers), lexical=sides(small_numbers), weight=weights)
def test_adapted_weights_stay_between_both_sides(
    dense: tuple[Candidate, ...], lexical: tuple[Candidate, ...], weight: float
) -> None:
    """Whatever the sides' leads, no value is above or below those of both sides."""
    adapted = fused(fuse(dense, lexical, method="adaptive", dense_weight=weight))
    by_words = fused(fuse(dense, lexical, dense_weight=0.0))
    by_meaning = fused(fuse(dense, lexical, dense_weight=1.0))
    for name, value in adapted.items():
        low, high = sorted((by_words[name], by_meaning[name]))
        assert low - 1e-9 <= value <= high + 1e-9


def test_scores_become_plain_floats() -> None:
    """A store may give numpy's numbers; what comes out can be written as JSON."""
    found = (Candidate("a", np.float32(0.5)), Candidate("b", np.float32(0.25)))  # pyright: ignore[reportArgumentType]
    for ranked in (fuse(found, None), fuse(found, found)):
        assert {type(item.score) for item in ranked} == {type(item.scores.dense) for item in ranked} == {float}


def test_a_chunk_that_a_side_found_twice_counts_once() -> None:
    """A store that repeats itself does not make a chunk come twice."""
    twice = (Candidate("a", 0.9), Candidate("a", 0.5), Candidate("b", 0.1))
    assert ids(fuse(twice, None)) == ids(fuse(twice, ())) == ["a", "b"]
    assert fuse(twice, None)[1].scores.dense_rank == 2


def test_a_chunk_without_any_score_is_last() -> None:
    """A place without a final value counts as 0."""
    assert Ranked("a", fuse(DENSE, None)[0].scores).score == 0.9
    assert cosine_to_score(-0.2) == 0.0
    assert cosine_to_score(1.0000001) == 1.0


@given(
    lists=st.lists(sides(small_numbers), min_size=1, max_size=4),
    method=methods,
    weight=st.sampled_from([0.5, 1.0, 2.0]),
)
def test_merging_has_each_chunk_once(lists: list[tuple[Candidate, ...]], method: FusionMethod, weight: float) -> None:
    """Every chunk of any list is there once, in order; the scores of the first list's sides are kept."""
    ranked = [fuse(found, None) for found in lists]
    merged = merge(ranked[0], [(other, weight) for other in ranked[1:]], method=method)
    assert sorted(ids(merged)) == sorted({name for found in ranked for name in ids(found)})
    assert list(merged) == sorted(merged, key=lambda item: (-item.score, item.chunk_id))
    own = {item.chunk_id: item.scores for item in ranked[0]}
    for item in merged:
        assert item.scores.dense == (own[item.chunk_id].dense if item.chunk_id in own else None)
    assert merge(ranked[0], [(other, weight) for other in ranked[1:]], method=method, limit=2) == merged[:2]


@given(found=sides(small_numbers), method=methods)
def test_merging_with_nothing_keeps_the_order(found: tuple[Candidate, ...], method: FusionMethod) -> None:
    """A list alone, or beside empty ones, stays as it is."""
    ranked = fuse(found, None)
    assert ids(merge(ranked, [((), 1.0)], method=method)) == ids(ranked)


@given(found=sides(small_numbers, min_size=2), method=methods)
def test_a_heavier_list_decides(found: tuple[Candidate, ...], method: FusionMethod) -> None:
    """With a weight beyond all others, the order is that of its list."""
    ranked = fuse(found, None)
    merged = merge(ranked[::-1], [(ranked, 1000.0)], method=method)
    assert [item.chunk_id for item in merged if item.score > merged[-1].score][:1] in ([ranked[0].chunk_id], [])
