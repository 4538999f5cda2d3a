"""Properties of putting several indexes' hits into one order."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.pipeline.stages.fuse import (
    RRF_RANK_CONSTANT,
    IndexResult,
    candidates_first,
    merge_indexes,
    weighted,
    without_copies,
)
from retrieval_core.ports import Side
from retrieval_core.types import Chunk, Hit, Scores

BOTH = frozenset[Side](("dense", "lexical"))
WEIGHTS = st.floats(0.01, 10)


def a_hit(
    name: str, dense: float | None = None, lexical: float | None = None, *, document: str = "", text: str = ""
) -> Hit:
    return Hit(Chunk(name, document or name, text or name), 0.0, Scores(dense=dense, lexical=lexical))


@st.composite
def answers(draw: st.DrawFn) -> list[IndexResult]:
    """Draw what some indexes found; their ids clash."""
    found: list[IndexResult] = []
    for name in draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True)):
        ids = draw(st.lists(st.sampled_from("uvwxyz"), max_size=6, unique=True))
        hits = tuple(
            a_hit(hit, draw(st.floats(0, 1)), draw(st.none() | st.floats(0.001, 40)), text=draw(st.sampled_from("pq")))
            for hit in ids
        )
        embedder = draw(st.sampled_from(("one", "one", "one", "other")))
        found.append(IndexResult(name, hits, BOTH, embedder))
    return found


def places(hits: tuple[Hit, ...]) -> list[tuple[str | None, str]]:
    return [(hit.source_index, hit.id) for hit in hits]


@given(answers())
def test_nothing_comes_or_goes_and_each_index_keeps_its_order(found: list[IndexResult]) -> None:
    """A merge is a permutation of all hits, falls in score, and keeps every index's own order; twice it is the same."""
    merged = merge_indexes(found)
    assert merged == merge_indexes(found)
    assert sorted(places(merged.hits)) == sorted((answer.name, hit.id) for answer in found for hit in answer.hits)
    scores = [hit.score for hit in merged.hits]
    assert scores == sorted(scores, reverse=True)
    assert scores == [hit.scores.final for hit in merged.hits]
    for answer in found:
        own = [hit.id for hit in merged.hits if hit.source_index == answer.name]
        assert own == [hit.id for hit in answer.hits]


@given(answers(), st.data())
def test_a_higher_weight_never_puts_a_hit_further_down(found: list[IndexResult], data: st.DataObject) -> None:
    """Weights permute; and when an index's grows, each of its hits stays where it is or moves up."""
    hits = merge_indexes(found).hits
    weights = {answer.name: data.draw(WEIGHTS) for answer in found}
    name = data.draw(st.sampled_from(found)).name
    before = weighted(hits, weights)
    after = weighted(hits, {**weights, name: weights[name] * data.draw(st.floats(1, 100))})
    assert sorted(places(before)) == sorted(places(hits))
    for place, hit in enumerate(before):
        if hit.source_index == name:
            # Equal scores of other indexes stand in the order of the merge, on which no weight has a say.
            moved = places(after).index((name, hit.id))
            assert moved <= place or before[moved].score == hit.score


@given(answers(), WEIGHTS)
def test_equal_weights_change_nothing(found: list[IndexResult], weight: float) -> None:
    """Whatever it is, one weight for all is none."""
    hits = merge_indexes(found).hits
    assert weighted(hits, {answer.name: weight for answer in found}) == hits


@given(answers())
def test_copies_are_left_out_of_other_indexes_alone(found: list[IndexResult]) -> None:
    """What is left keeps its order; what went has a better place in another index; nothing goes a second time."""
    hits = merge_indexes(found).hits
    kept = without_copies(hits)
    assert [place for place in places(hits) if place in places(kept)] == places(kept)
    assert without_copies(kept) == kept
    for number, hit in enumerate(hits):
        if hit not in kept:
            passage = hit.chunk.document_id, hit.chunk.text
            first = next(other for other in hits[:number] if (other.chunk.document_id, other.chunk.text) == passage)
            assert first.source_index != hit.source_index


@given(answers(), st.integers(1, 10), st.data())
def test_candidates_are_the_best_with_their_weights(found: list[IndexResult], count: int, data: st.DataObject) -> None:
    """The first ones are those that weights put first, and scores stay as they were."""
    hits = merge_indexes(found).hits
    weights = {answer.name: data.draw(WEIGHTS) for answer in found}
    chosen = candidates_first(hits, weights, count)
    assert set(places(chosen[:count])) == set(places(weighted(hits, weights)[:count]))
    assert sorted(chosen, key=lambda hit: (str(hit.source_index), hit.id)) == sorted(
        hits, key=lambda hit: (str(hit.source_index), hit.id)
    )


def test_indexes_are_merged_by_scores_where_these_can_be_compared() -> None:
    """With one embedder the better cosines win, however good the first hit of the other index is among its own."""
    good = IndexResult("good", (a_hit("1", 0.9, 20.0), a_hit("2", 0.8, 15.0)), BOTH, "e")
    poor = IndexResult("poor", (a_hit("1", 0.4, 3.0), a_hit("2", 0.3, None)), BOTH, "e")
    merged = merge_indexes((poor, good))
    assert merged.by == "scores"
    assert places(merged.hits) == [("good", "1"), ("good", "2"), ("poor", "1"), ("poor", "2")]


def test_indexes_are_merged_by_ranks_where_scores_cannot_be_compared() -> None:
    """Another embedder, or another side, or no score at all: then the ranks take turns, in the order of the indexes."""
    first = IndexResult("a", (a_hit("1", 0.9, 20.0), a_hit("2", 0.8, 15.0)), BOTH, "e")
    second = IndexResult("b", (a_hit("1", 0.4, 3.0), a_hit("2", 0.3, None)), BOTH, "e")
    others = (
        replace(second, embedder_id="other"),
        replace(second, sides=frozenset[Side](("dense",))),
        replace(second, hits=(a_hit("1"), a_hit("2"))),
    )
    for other in others:
        merged = merge_indexes((first, other))
        assert merged.by == "ranks"
        assert places(merged.hits) == [("a", "1"), ("b", "1"), ("a", "2"), ("b", "2")]
        assert merged.hits[0].score == 1 / (RRF_RANK_CONSTANT + 1)


def test_an_index_that_found_nothing_does_not_count() -> None:
    """With another embedder it could not be compared, but has nothing that would have to be."""
    full = IndexResult("a", (a_hit("1", 0.9, 2.0),), BOTH, "e")
    assert merge_indexes((full, IndexResult("b", (), BOTH, "other"))).by == "scores"
    assert merge_indexes(()).hits == ()


def test_one_side_alone_orders_by_its_own_scores() -> None:
    """Searched by words alone, BM25 orders the pool and nothing counts as fused."""
    words = frozenset[Side](("lexical",))
    first = IndexResult("a", (a_hit("1", None, 5.0), a_hit("2", None, 1.0)), words)
    second = IndexResult("b", (a_hit("1", None, 3.0),), words)
    hits = merge_indexes((first, second)).hits
    assert places(hits) == [("a", "1"), ("b", "1"), ("a", "2")]
    assert [hit.scores.fused for hit in hits] == [None] * 3


def test_a_weight_of_a_half_counts_the_best_as_halfway_down() -> None:
    """As the documentation says: the best of all, with 0.5, stands between those above and below the middle."""
    hits = tuple(
        replace(a_hit(str(score)), score=score, source_index=name)
        for score, name in ((10.0, "half"), (6.0, "full"), (4.0, "full"), (0.0, "full"))
    )
    assert [hit.id for hit in weighted(hits, {"half": 0.5, "full": 1.0})] == ["6.0", "10.0", "4.0", "0.0"]
