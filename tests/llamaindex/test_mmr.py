"""Maximal marginal relevance on the nodes of any retriever."""

from __future__ import annotations

import asyncio
import pickle
import sys
from itertools import pairwise
from math import nan
from typing import Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index.postprocessor.retrieval_core import MMRPostprocessor
from retrieval_core.errors import ConfigurationError, EmbeddingError, InvalidParameterError, ServiceError
from retrieval_core.testing.fakes import FakeEmbedder
from support.examples import times


def node(text: str, score: float | None = None, embedding: list[float] | None = None) -> NodeWithScore:
    return NodeWithScore(node=TextNode(text=text, embedding=embedding), score=score)


def both(postprocessor: MMRPostprocessor, nodes: list[NodeWithScore]) -> list[str]:
    """Return the chosen texts, the same from the sync and the async method, also inside a running loop."""

    async def inside() -> list[NodeWithScore]:
        return [*await postprocessor.apostprocess_nodes(nodes), *postprocessor.postprocess_nodes(nodes)]

    texts = [item.node.get_content() for item in postprocessor.postprocess_nodes(nodes)]
    assert [item.node.get_content() for item in asyncio.run(inside())] == texts * 2
    return texts


ALIKE = [
    node("moon far", 0.9, [1.0, 0.0]),
    node("moon far away", 0.8, [2.0, 0.1]),
    node("sun", 0.5, [0.0, 3.0]),
]
WITHOUT = [node(item.node.get_content(), item.score) for item in ALIKE]


def test_nodes_embeddings_are_used_where_all_have_one() -> None:
    """Whatever their length is; the embedder is not asked."""
    embedder = FakeEmbedder()
    assert both(MMRPostprocessor(embedder, top_n=2, lambda_mult=0.3), ALIKE) == ["moon far", "sun"]
    assert embedder.batches == []


def test_relevance_alone_keeps_the_order() -> None:
    """``lambda_mult=1``; ``top_n`` may be more than there are."""
    assert both(MMRPostprocessor(top_n=9, lambda_mult=1), ALIKE) == ["moon far", "moon far away", "sun"]


class Blocking(BaseEmbedding):
    """A model of LlamaIndex with nothing asynchronous of its own, as many are."""

    def _get_text_embedding(self, text: str) -> list[float]:
        import threading

        assert threading.current_thread() is not threading.main_thread() or not _loop_runs()
        return [float("moon" in text), float("sun" in text)]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Asynchronous(Blocking):
    def _get_text_embedding(self, text: str) -> list[float]:
        return [float("moon" in text), float("sun" in text)]

    async def _aget_text_embedding(self, text: str) -> list[float]:
        await asyncio.sleep(0)
        return [float("moon" in text), float("sun" in text)]


class Synchronous(FakeEmbedder):
    def embed_texts(self, texts: Any) -> Any:
        assert not _loop_runs()
        return np.array([[float("moon" in text), float("sun" in text)] for text in texts], np.float32)


@pytest.mark.parametrize("embedder", [FakeEmbedder(), Synchronous(), Asynchronous()])
@pytest.mark.parametrize("nodes", [WITHOUT, [*ALIKE[:2], WITHOUT[2]], [*ALIKE[:2], node("sun", 0.5, [1.0])]])
def test_texts_are_embedded_where_nodes_cannot_be_compared(embedder: Any, nodes: list[NodeWithScore]) -> None:
    """All of them, because vectors of different models cannot be compared."""
    postprocessor = MMRPostprocessor(embedder, top_n=2, lambda_mult=0.3)
    assert both(postprocessor, nodes) == ["moon far", "sun"]
    postprocessor.close()
    postprocessor.close()


def test_a_model_that_can_only_block_runs_in_a_thread() -> None:
    """LlamaIndex's default would call it on the event loop."""
    postprocessor = MMRPostprocessor(Blocking(), top_n=2, lambda_mult=0.3)
    chosen = asyncio.run(postprocessor.apostprocess_nodes(WITHOUT))
    assert [item.node.get_content() for item in chosen] == ["moon far", "sun"]
    assert len(postprocessor.postprocess_nodes(WITHOUT)) == 2
    assert len(MMRPostprocessor(MockEmbedding(embed_dim=4)).postprocess_nodes(WITHOUT)) == 3


def test_without_embeddings_and_embedder_the_error_says_what_to_do() -> None:
    """Silence would leave the order as it was."""
    advice = r"such as MMRPostprocessor\(embed_model=retriever\.pipeline\.embedder\).* search__search_type=\"mmr\""
    with pytest.raises(ConfigurationError, match=advice):
        MMRPostprocessor().postprocess_nodes(WITHOUT)
    assert MMRPostprocessor().postprocess_nodes([]) == []


class Broken(Asynchronous):
    answer: Any

    def _get_text_embedding(self, text: str) -> list[float]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def _aget_text_embedding(self, text: str) -> list[float]:
        await asyncio.sleep(0)
        return self._get_text_embedding(text)


@pytest.mark.parametrize("answer", [OSError("no net"), [nan, 1.0], "text", 1.0])
def test_an_embedding_that_fails_is_an_error_of_ours(answer: Any) -> None:
    """With the vendor's error as its cause."""
    postprocessor = MMRPostprocessor(Broken(answer=answer))
    with pytest.raises(EmbeddingError):
        postprocessor.postprocess_nodes(WITHOUT)
    with pytest.raises(EmbeddingError):
        asyncio.run(postprocessor.apostprocess_nodes(WITHOUT))


def test_errors_of_our_embedders() -> None:
    """A service's failure is the cause of an error of embedding; the wrong number of vectors is noticed."""
    embedder = FakeEmbedder()
    embedder.failure = ServiceError("quota used up", status=429)
    with pytest.raises(EmbeddingError, match="quota") as caught:
        MMRPostprocessor(embedder).postprocess_nodes(WITHOUT)
    assert caught.value.kind == "rate limit"
    embedder.failure = ConfigurationError("no key")
    with pytest.raises(ConfigurationError, match="no key"):
        MMRPostprocessor(embedder).postprocess_nodes(WITHOUT)

    class Forgetful(Synchronous):
        def embed_texts(self, texts: Any) -> Any:
            return super().embed_texts(texts[1:])

    with pytest.raises(EmbeddingError, match="for 3 texts"):
        MMRPostprocessor(Forgetful()).postprocess_nodes(WITHOUT)


@pytest.mark.parametrize(
    "wrong",
    [{"top_n": 0}, {"top_n": True}, {"top_n": 1.5}, {"lambda_mult": -0.1}, {"lambda_mult": nan}, {"lambda_mult": "x"}],
)
def test_settings_outside_their_range_are_refused(wrong: dict[str, Any]) -> None:
    """By name."""
    with pytest.raises(InvalidParameterError, match=next(iter(wrong))):
        MMRPostprocessor(**wrong)


@pytest.mark.parametrize("wrong", ["sk-secret", FakeEmbedder, object()])
def test_what_is_no_embedder_is_refused_at_once(wrong: Any) -> None:
    """With its type alone, because it may be a key."""
    with pytest.raises(InvalidParameterError, match="embed_model must be") as caught:
        MMRPostprocessor(wrong)
    assert "sk-secret" not in str(caught.value)


def test_the_former_name_of_embed_model_is_known() -> None:
    (first, *_) = MMRPostprocessor(embedder=FakeEmbedder()).postprocess_nodes(WITHOUT)
    (same, *_) = MMRPostprocessor(embed_model=FakeEmbedder()).postprocess_nodes(WITHOUT)
    assert (first.node.node_id, first.score) == (same.node.node_id, same.score)
    with pytest.raises(InvalidParameterError, match="former name of embed_model"):
        MMRPostprocessor(FakeEmbedder(), embedder=FakeEmbedder())


@pytest.mark.parametrize("embedder", [FakeEmbedder(), MockEmbedding(embed_dim=4)])
def test_with_an_embedder_it_cannot_be_pickled(embedder: Any) -> None:
    """LlamaIndex would leave the embedder out, also where it could be pickled itself."""
    with pytest.raises(TypeError, match="MMRPostprocessor with an embedder cannot be pickled"):
        pickle.dumps(MMRPostprocessor(embedder))
    copied = pickle.loads(pickle.dumps(MMRPostprocessor(top_n=2, lambda_mult=0.3)))
    assert both(copied, ALIKE) == ["moon far", "sun"]
    again = MMRPostprocessor.from_dict(copied.to_dict())
    assert (again.top_n, again.lambda_mult) == (2, 0.3)


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=6),
    st.sampled_from([(1e308, -1e308), (sys.float_info.max, -sys.float_info.max)]),
)
@settings(max_examples=times(100))
def test_scores_may_be_any_finite_numbers(scores: list[float], extremes: tuple[float, float]) -> None:
    """Their range may be more than the largest number; relevance alone still orders them as before."""
    nodes = [node(str(place), score, [1.0, 0.0]) for place, score in enumerate([*scores, *extremes])]
    chosen = MMRPostprocessor(top_n=len(nodes), lambda_mult=1).postprocess_nodes(nodes)
    new = [item.get_score() for item in chosen]
    assert all(0 <= score <= 1 for score in new)
    assert (new[0], new[-1]) == (1, 0)
    old = {item.node.node_id: item.get_score() for item in nodes}
    halves = [old[item.node.node_id] / 2 for item in chosen]
    # What a hundred-millionth of the range does not tell apart may come in any order.
    assert all(after <= before + 1e300 for before, after in pairwise(halves))


def test_nodes_without_scores_are_equally_relevant_and_one_without_counts_as_lowest() -> None:
    """So the first comes first, and then what differs from it."""
    bare = [node("a", None, [1.0, 0.0]), node("b", None, [1.0, 0.0]), node("c", nan, [0.0, 1.0])]
    assert both(MMRPostprocessor(top_n=2, lambda_mult=0.5), bare) == ["a", "c"]
    mixed = [node("a", None, [1.0, 0.0]), node("b", 2.0, [0.0, 1.0]), node("c", -1.0, [0.0, 1.0])]
    assert both(MMRPostprocessor(top_n=1), mixed) == ["b"]


def test_given_nodes_are_not_changed_and_the_new_score_orders() -> None:
    """The nodes themselves are the same."""
    chosen = MMRPostprocessor(top_n=3, lambda_mult=0.5).postprocess_nodes(ALIKE)
    assert [item.score for item in ALIKE] == [0.9, 0.8, 0.5]
    assert [id(item.node) for item in chosen] == [id(ALIKE[place].node) for place in (0, 2, 1)]
    assert not {id(item) for item in chosen} & {id(item) for item in ALIKE}
    scores = [item.get_score() for item in chosen]
    assert scores == sorted(scores, reverse=True)
    assert scores[1:] != [0.5, 0.8]
    assert MMRPostprocessor.class_name() == "MMRPostprocessor"
