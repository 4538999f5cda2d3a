"""A question's own threshold, in place of the configured one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core import RetrievalConfig, open_index, open_indexes
from retrieval_core.config import SearchConfig
from retrieval_core.errors import InvalidParameterError
from retrieval_core.index.index import Index
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk, SearchMode

CHUNKS = [
    Chunk("moon", "moon.md", "The moon is 384,400 km away."),
    Chunk("sun", "sun.md", "The sun is eight light minutes away."),
    Chunk("cheese", "cheese.md", "Cheese is made of milk and rennet."),
]
QUESTION = "how far away is the moon?"


@pytest.fixture(scope="module")
def index(tmp_path_factory: Any) -> Any:
    with open_index(tmp_path_factory.mktemp("index") / "index.db", embedder=FakeEmbedder()) as index:
        index.add(CHUNKS)
        yield index


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
def test_no_hit_is_less_similar_and_none_that_is_similar_enough_is_left_out(index: Index, mode: SearchMode) -> None:
    everything = index.retrieve(QUESTION, top_k=9, mode=mode, score_threshold=0)
    assert all(score is not None for score in everything.scores)

    @settings(max_examples=100, deadline=None)
    @given(st.floats(0, 1))
    def check(threshold: float) -> None:
        found = {hit.id for hit in index.retrieve(QUESTION, top_k=9, mode=mode, score_threshold=threshold).hits}
        assert found == {hit.id for hit in everything.hits if (hit.scores.dense or 0) >= threshold}

    check()


def test_what_words_alone_found_has_its_similarity_where_a_threshold_asks_for_it(index: Index) -> None:
    assert index.retrieve(QUESTION, mode="lexical").scores[0] is None
    assert index.retrieve(QUESTION, mode="lexical", score_threshold=0).scores[0] is not None


def test_it_goes_before_the_configured_one(tmp_path: Any) -> None:
    config = RetrievalConfig(search=SearchConfig(score_threshold=1.0))
    with open_index(tmp_path / "index.db", embedder=FakeEmbedder(), config=config) as index:
        index.add(CHUNKS)
        assert not index.retrieve(QUESTION).hits
        assert index.retrieve(QUESTION, score_threshold=0.0).hits
        assert not index.retrieve(QUESTION, score_threshold=None).hits


def test_it_holds_for_several_indexes(tmp_path: Any) -> None:
    for name, chunks in (("sky", CHUNKS[:2]), ("kitchen", CHUNKS[2:])):
        with open_index(tmp_path / f"{name}.db", embedder=FakeEmbedder()) as index:
            index.add(chunks)
    paths = {name: tmp_path / f"{name}.db" for name in ("sky", "kitchen")}
    with open_indexes(paths, embedder=FakeEmbedder()) as both:
        everything = both.retrieve(QUESTION, mode="dense")
        best = max(score or 0.0 for score in everything.scores)
        assert len(everything.hits) == 3
        assert [hit.id for hit in both.retrieve(QUESTION, mode="dense", score_threshold=best).hits] == ["moon"]


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan"), "0.5", True])
def test_what_is_no_similarity_is_refused(index: Index, threshold: Any) -> None:
    with pytest.raises(InvalidParameterError, match="score_threshold must be a number between 0 and 1"):
        index.retrieve(QUESTION, score_threshold=threshold)
