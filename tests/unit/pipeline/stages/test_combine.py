from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.pipeline.stages.combine import VectorRule, combine_vectors
from retrieval_core.ports import Candidate
from retrieval_core.types import Chunk
from support.plugins import approx

RULES: tuple[VectorRule, ...] = ("mean", "max")
cosines = st.floats(-1, 1, allow_nan=False)
weights = st.sampled_from([0.1, 0.5, 1.0, 2.0])


def side(scores: dict[str, float]) -> tuple[Candidate, ...]:
    ordered = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Candidate(name, score) for name, score in ordered)


sides = st.lists(st.tuples(st.dictionaries(st.sampled_from("abcdef"), cosines), weights), min_size=1, max_size=4)


@given(given=sides, rule=st.sampled_from(RULES))
def test_each_chunk_once_in_order(given: list[tuple[dict[str, float], float]], rule: VectorRule) -> None:
    """Every chunk of any side is there once, the highest score first, equal ones by id."""
    combined = combine_vectors([(side(scores), weight) for scores, weight in given], rule)
    assert {item.chunk_id for item in combined} == {name for scores, _ in given for name in scores}
    assert list(combined) == sorted(combined, key=lambda item: (-item.score, item.chunk_id))


@given(given=sides)
def test_the_mean_is_weighted(given: list[tuple[dict[str, float], float]]) -> None:
    """A chunk that a side did not find counts there as that side's lowest score."""
    combined = combine_vectors([(side(scores), weight) for scores, weight in given], "mean")
    for item in combined:
        parts = [weight * scores.get(item.chunk_id, min(scores.values(), default=0.0)) for scores, weight in given]
        assert item.score == approx(sum(parts) / sum(weight for _, weight in given))


@given(given=sides)
def test_the_highest_counts(given: list[tuple[dict[str, float], float]]) -> None:
    """With the rule max, one vector that fits is enough."""
    combined = combine_vectors([(side(scores), weight) for scores, weight in given], "max")
    for item in combined:
        assert item.score == max(weight * scores[item.chunk_id] for scores, weight in given if item.chunk_id in scores)


def test_one_side_alone_keeps_its_order_and_its_chunks() -> None:
    """With one vector, combining changes nothing; a limit cuts the end off."""
    chunk = Chunk("a", "d", "text")
    found = (Candidate("a", 0.9, chunk), Candidate("b", 0.5))
    assert combine_vectors([(found, 1.0)], "mean") == found
    assert combine_vectors([(found, 1.0), ((), 3.0)], "max", limit=1) == found[:1]


def test_a_chunk_is_taken_from_whichever_side_brought_it() -> None:
    """A candidate without its chunk does not hide the one that has it."""
    chunk = Chunk("a", "d", "text")
    combined = combine_vectors([((Candidate("a", 0.2),), 1.0), ((Candidate("a", 0.4, chunk),), 1.0)], "max")
    assert combined == (Candidate("a", 0.4, chunk),)
