"""Reranking postprocessors of LlamaIndex as rerankers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.postprocessor import LLMRerank
from llama_index.core.postprocessor.rankGPT_rerank import RankGPTRerank
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_index.retrievers.retrieval_core.adapters import LlamaIndexReranker
from retrieval_core.errors import InvalidParameterError, MalformedAnswerError, ServiceError
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.testing.reranker_kit import RerankerConformance

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

PASSAGES = ("The moon is bright.", "The sun is a star.", "The sea is deep.")


class Cosine(BaseNodePostprocessor):
    """Scores by words in common, and keeps ``top_n`` as rerankers of LlamaIndex do."""

    top_n: int = 2
    model: str = "cosine"
    stretch: float = 1.0
    shift: float = 0.0

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        assert query_bundle is not None
        fake = FakeEmbedder(256)
        for item in nodes:
            cosine = float(fake.vector(query_bundle.query_str) @ fake.vector(item.node.get_content()))
            item.score = min(1.0, max(0.0, cosine)) * self.stretch + self.shift
        return sorted(nodes, key=lambda item: item.score or 0, reverse=True)[: self.top_n]


class Awaiting(Cosine):
    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        await asyncio.sleep(0)
        return self._postprocess_nodes(nodes, query_bundle)


class Answers(BaseNodePostprocessor):
    """Gives back what it is told."""

    answer: Any = None

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return self.answer(nodes)


class Says(CustomLLM):
    text: str = ""

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="says")

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=self.text)

    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> Generator[CompletionResponse, None, None]:
        yield self.complete(prompt)


class TestInThreads(RerankerConformance):
    @pytest.fixture
    def reranker(self) -> LlamaIndexReranker:
        return LlamaIndexReranker(Cosine())


class TestOnTheLoop(RerankerConformance):
    @pytest.fixture
    def reranker(self) -> LlamaIndexReranker:
        return LlamaIndexReranker(Awaiting())


def scores(
    reranker: BaseNodePostprocessor | LlamaIndexReranker, query: str = "sun", passages: tuple[str, ...] = PASSAGES
) -> tuple[float, ...]:
    own = reranker if isinstance(reranker, LlamaIndexReranker) else LlamaIndexReranker(reranker)
    return asyncio.run(own.score(query, passages)).scores


def answering(answer: Callable[[list[NodeWithScore]], list[NodeWithScore]]) -> Answers:
    return Answers(answer=answer)


def test_its_own_limit_takes_no_passage_away() -> None:
    """``top_n`` is set in a copy, so every passage is scored, and the user's object stays as it was."""
    own = Cosine(top_n=1)
    sun_twice = ("sun sun", "sun moon", "sun moon sea")
    assert all(score > 0 for score in scores(own, "sun", sun_twice))
    assert own.top_n == 1


def test_scores_of_another_range_are_squashed_and_keep_their_order() -> None:
    plain, logits = scores(Cosine(), "moon star"), scores(Cosine(stretch=20, shift=-10), "moon star")
    assert sorted(range(3), key=plain.__getitem__) == sorted(range(3), key=logits.__getitem__)
    assert all(0 <= score <= 1 for score in logits)
    far = scores(Cosine(stretch=1e6, shift=-5e6), "moon star bright")  # so far that nothing would be left of them
    assert far == pytest.approx((1, 2 / 3, 1 / 3))


def test_what_is_dropped_scores_nothing_and_what_comes_twice_counts_once() -> None:
    def answer(nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        return [
            NodeWithScore(node=nodes[2].node, score=0.9),
            NodeWithScore(node=nodes[0].node, score=0.5),
            NodeWithScore(node=nodes[2].node, score=0.1),
        ]

    assert scores(answering(answer)) == (0.5, 0.0, 0.9)
    assert scores(answering(lambda _: [])) == (0.0, 0.0, 0.0)


def test_scores_that_contradict_the_order_do_not_count() -> None:
    def answer(nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        return [NodeWithScore(node=item.node, score=place) for place, item in enumerate(reversed(nodes))]

    assert scores(answering(answer)) == pytest.approx((1 / 3, 2 / 3, 1))


def test_a_model_that_sorts_gives_scores_by_place() -> None:
    """LlamaIndex's ``RankGPTRerank`` changes no score, so its order is what there is."""
    assert scores(RankGPTRerank(top_n=1, llm=Says(text="[2] > [3] > [1]"))) == pytest.approx((1 / 3, 1, 2 / 3))


def test_choices_that_a_model_made_up_choose_nothing() -> None:
    """``LLMRerank`` takes "Doc: 0" for the last passage, which nobody chose, and may name one twice."""
    said = "Doc: 0, Relevance: 9\nDoc: 2, Relevance: 8\nDoc: 2, Relevance: 3\nDoc: 77, Relevance: 10"
    found = scores(LLMRerank(llm=Says(text=said), top_n=1))
    assert found[0] == found[2] == 0 < found[1]
    assert scores(LLMRerank(llm=Says(text="I am sorry, none of these."))) == (0.0, 0.0, 0.0)


def test_relevances_that_belong_to_nobody_are_malformed() -> None:
    """Where one is missing, LlamaIndex gives each passage the relevance of the next one."""
    said = "Doc: 1, Relevance: high\nDoc: 2, Relevance: 8"
    with pytest.raises(MalformedAnswerError, match="named 2 passages and gave 1"):
        scores(LLMRerank(llm=Says(text=said)))


def test_a_node_from_elsewhere_is_malformed() -> None:
    with pytest.raises(MalformedAnswerError, match="does more than to rerank"):
        scores(answering(lambda nodes: [*nodes, NodeWithScore(node=TextNode(text="new"))]))


def test_a_failure_is_an_error_of_this_library() -> None:
    with pytest.raises(ServiceError, match="Answers failed: ZeroDivisionError"):
        scores(answering(lambda nodes: [nodes[1 // 0]]))


def test_the_id_names_class_and_model() -> None:
    assert LlamaIndexReranker(Cosine()).id == "llama-index/Cosine/cosine"
    assert LlamaIndexReranker(LLMRerank(llm=Says())).id == "llama-index/LLMRerank/says"
    assert LlamaIndexReranker(answering(list)).id == "llama-index/Answers"
    assert LlamaIndexReranker(Cosine(), name="mine").id == "mine"


def test_arguments_are_checked_when_they_are_given() -> None:
    wrong: Any = Cosine
    with pytest.raises(InvalidParameterError, match="a reranking postprocessor of LlamaIndex, got the class Cosine"):
        LlamaIndexReranker(wrong)
    former: Any = {"batch_size": 8}
    with pytest.raises(TypeError, match="batch_size"):
        LlamaIndexReranker(Cosine(), **former)
