"""Nodes that do not bear on the question are left out, and so are sentences."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
from typing import Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.instrumentation.events.exception import ExceptionEvent
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import MediaResource, NodeWithScore
from llama_index.core.schema import Node as MediaNode

from llama_index.postprocessor.retrieval_core import RelevanceFilterPostprocessor, SentencePruningPostprocessor
from llama_index.retrievers.retrieval_core import RetrievalDegradedEvent, chunk_from_node, node_from_chunk
from retrieval_core.adapters.pruners.threshold import EmbedderPruner
from retrieval_core.adapters.relevance_filters.cross_encoder import CrossEncoderRelevanceFilter
from retrieval_core.adapters.relevance_filters.llm import DEFAULT_PROMPT
from retrieval_core.errors import InvalidParameterError, ServiceError
from retrieval_core.ports import Judgements, Kept
from retrieval_core.testing.fakes import FakeEmbedder, FakePruner, FakeRelevanceFilter, FakeReranker
from retrieval_core.testing.fakes_llm import FakeLLM
from support.examples import times
from support.llamaindex_library import chunk
from support.llamaindex_models import AsyncScriptedLLM, ScriptedLLM, both, listening, node, passages_in, texts

FOUND = [node("where is the moon", 0.2), node("the sun", None), node("where is it", 0.9)]
MODELS = pytest.mark.parametrize("kind", [ScriptedLLM, AsyncScriptedLLM])


def judging(prompt: str) -> str:
    """Answer as a model for which a passage helps that names the moon."""
    shown = passages_in(prompt)
    return json.dumps(
        {str(number): {"reason": "r", "relevant": "moon" in text, "score": 0.5} for number, text in shown.items()}
    )


def test_what_bears_on_the_question_stays_as_it_is() -> None:
    """The same nodes with their scores, in their order; an empty list stays empty."""
    postprocessor = RelevanceFilterPostprocessor(FakeRelevanceFilter())
    result = both(postprocessor, FOUND)
    assert [id(item) for item in result] == [id(FOUND[0]), id(FOUND[2])]
    assert both(postprocessor, FOUND, "bread") == []
    assert both(postprocessor, []) == []


def test_a_cutoff_of_similarity_cannot_tell_that() -> None:
    """LlamaIndex's own keeps what has a high score, and drops what has none, whatever the question."""
    kept = SimilarityPostprocessor(similarity_cutoff=0.5).postprocess_nodes(FOUND, query_str="where is the moon")
    assert texts(kept) == ["where is it"]
    assert texts(
        RelevanceFilterPostprocessor(CrossEncoderRelevanceFilter(FakeReranker(), threshold=0.9)).postprocess_nodes(
            FOUND, query_str="where is the moon"
        )
    ) == ["where is the moon"]


@MODELS
def test_a_model_of_llamaindex_is_asked_about_each_node(kind: type[ScriptedLLM]) -> None:
    """And one of ours too."""
    llm = kind(judging)
    assert texts(both(RelevanceFilterPostprocessor(llm), FOUND)) == ["where is the moon"]
    assert len(llm.prompts) == 3 * len(FOUND)
    ours = FakeLLM(lambda request: judging(request.messages[-1].content))
    assert texts(both(RelevanceFilterPostprocessor(ours), FOUND)) == ["where is the moon"]


@pytest.mark.parametrize("answer", ["prose", "", '{"1": {"relevant": false}}', '{"0": {}}', '{"results": []}'])
def test_what_a_model_does_not_judge_stays(answer: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is asked again, and what it says then of other nodes counts."""

    def sometimes(prompt: str) -> str:
        return answer if "sun" in prompt else judging(prompt)

    with listening() as events, caplog.at_level(logging.WARNING):
        result = RelevanceFilterPostprocessor(ScriptedLLM(sometimes)).postprocess_nodes(FOUND, query_str="moon")
    assert texts(result) == ["where is the moon", "the sun"]
    (told,) = (event for event in events if isinstance(event, RetrievalDegradedEvent))
    assert told.degraded[0].startswith("relevance: ")
    assert "RelevanceFilterPostprocessor did not work as asked" in caplog.text


def test_a_filter_that_fails_leaves_everything() -> None:
    """Unless it is to be strict; a wrong key is always raised."""
    judge = FakeRelevanceFilter(batch_size=2)
    judge.failure = ServiceError("it is down", status=400)
    assert RelevanceFilterPostprocessor(judge).postprocess_nodes(FOUND, query_str="moon") == FOUND
    with listening() as events, pytest.raises(ServiceError, match="it is down"):
        RelevanceFilterPostprocessor(judge, strict=True).postprocess_nodes(FOUND, query_str="moon")
    told = [type(event) for event in events if isinstance(event, (ReRankStartEvent, ReRankEndEvent, ExceptionEvent))]
    assert told == [ReRankStartEvent, ExceptionEvent]
    judge.failure = ServiceError("who are you", status=403)
    with pytest.raises(ServiceError, match="who are you"):
        asyncio.run(RelevanceFilterPostprocessor(judge).apostprocess_nodes(FOUND, query_str="moon"))


def test_an_answer_about_other_nodes_counts_for_none() -> None:
    """One judgement too few would shift all others."""

    class Forgetful(FakeRelevanceFilter):
        async def judge(self, query: str, chunks: Any) -> Judgements:
            return await super().judge(query, chunks[1:])

    assert RelevanceFilterPostprocessor(Forgetful()).postprocess_nodes(FOUND, query_str="moon") == FOUND


def test_the_instructions_are_a_prompt() -> None:
    """Where a model is asked, and only there."""
    llm = ScriptedLLM(judging)
    postprocessor = RelevanceFilterPostprocessor(llm)
    assert postprocessor.get_prompts()["relevance_prompt"].format() == DEFAULT_PROMPT
    postprocessor.update_prompts({"relevance_prompt": PromptTemplate("Keep what is about cheese.")})
    postprocessor.postprocess_nodes(FOUND, query_str="q")
    assert all("Keep what is about cheese." in prompt for prompt in llm.prompts)
    assert RelevanceFilterPostprocessor(FakeRelevanceFilter()).get_prompts() == {}
    with pytest.raises(InvalidParameterError, match="prompt is for a language model"):
        RelevanceFilterPostprocessor(FakeRelevanceFilter(), prompt="x")
    with pytest.raises(InvalidParameterError, match="variables of the prompt: context_str"):
        RelevanceFilterPostprocessor(llm, prompt="Judge {context_str}")


@pytest.mark.parametrize("wrong", ["gpt-4o", FakeRelevanceFilter, FakeReranker(), object(), MockLLM])
def test_what_cannot_judge_is_refused_at_once(wrong: Any) -> None:
    """A reranker too: with which threshold is for the caller to say."""
    with pytest.raises(InvalidParameterError, match="must be"):
        RelevanceFilterPostprocessor(wrong)
    with pytest.raises(InvalidParameterError, match="pruner must be"):
        SentencePruningPostprocessor(wrong)


def test_they_cannot_be_pickled() -> None:
    """LlamaIndex would leave the model out."""
    for postprocessor in (RelevanceFilterPostprocessor(MockLLM()), SentencePruningPostprocessor(FakePruner())):
        with pytest.raises(TypeError, match=f"{postprocessor.class_name()} cannot be pickled"):
            pickle.dumps(postprocessor)


# Sentences.

LONG = "Bread is baked. The moon is far. Salt is white. The moon is old."


def test_sentences_that_bear_on_the_question_are_left_word_for_word() -> None:
    """What is left out inside is marked; the score, the id and the metadata stay, the embedding does not."""
    given = [node(LONG, 0.7, id_="a", metadata={"page": 3}, embedding=[1.0, 0.0]), node("Salt.", None)]
    result = both(SentencePruningPostprocessor(FakePruner()), given, "moon")
    assert texts(result) == ["The moon is far.\n[…]\nThe moon is old.", "Salt."]
    assert (result[0].score, result[0].node.node_id, result[0].node.metadata) == (0.7, "a", {"page": 3})
    assert (result[0].node.embedding, given[0].node.embedding) == (None, [1.0, 0.0])
    assert result[1] is given[1]


def test_the_place_of_a_stretch_is_exact_and_of_pieces_there_is_none() -> None:
    """So that nothing is cited from where it does not stand."""
    document = f"# Heading\n\n{LONG}"
    begin = document.index(LONG)
    given = [
        node(LONG, start_char_idx=begin, end_char_idx=begin + len(LONG)),
        node(LONG),
        NodeWithScore(node=MediaNode(text_resource=MediaResource(text=LONG))),
    ]
    postprocessor = SentencePruningPostprocessor(FakePruner())
    whole, without, media = postprocessor.postprocess_nodes(given, query_str="salt")
    place: Any = whole.node
    assert document[place.start_char_idx : place.end_char_idx] == "Salt is white." == place.get_content()
    assert (without.node.start_char_idx, without.node.end_char_idx) == (None, None)  # type: ignore[attr-defined]
    assert media.node.get_content() == "Salt is white."
    pieces: Any = postprocessor.postprocess_nodes(given, query_str="moon")[0].node
    assert (pieces.start_char_idx, pieces.end_char_idx) == (None, None)


def test_a_passage_of_ours_is_known_again_by_its_id() -> None:
    """With fewer sentences it is still cited as what it is a part of."""
    passage = chunk("moon.md", 2, LONG, 9, metadata={"year": 1969})
    given = [NodeWithScore(node=node_from_chunk(passage), score=0.5)]
    (result,) = SentencePruningPostprocessor(FakePruner()).postprocess_nodes(given, query_str="salt")
    again = chunk_from_node(result.node)
    assert (again.id, again.text, again.metadata) == (passage.id, "Salt is white.", passage.metadata)
    assert again.section_path == passage.section_path


def test_no_node_is_left_without_a_sentence() -> None:
    """Of one where none bears on the question the best stays."""
    given = [node(LONG), node("One sentence only."), node(""), node(" \n ")]
    result = both(SentencePruningPostprocessor(FakePruner()), given, "cheese")
    assert texts(result) == ["Bread is baked.", "One sentence only.", "", " \n "]


@given(
    st.lists(
        st.lists(st.sampled_from(["The moon is far.", "Salt is white.", "Bread?", "Dr. Moon said so!"]), max_size=5),
        max_size=5,
    ),
    st.sampled_from(["moon", "salt", "bread", ""]),
)
@settings(max_examples=times(50))
def test_what_is_left_stands_in_the_text(sentences: list[list[str]], question: str) -> None:
    """In its order; never less than one sentence, and never another one."""
    nodes = [node(" ".join(row), number / 10) for number, row in enumerate(sentences)]
    result = SentencePruningPostprocessor(FakePruner()).postprocess_nodes(nodes, query_str=question)
    assert [item.score for item in result] == [item.score for item in nodes]
    for whole, left in zip(texts(nodes), texts(result), strict=True):
        at = 0
        for part in left.split("\n[…]\n"):
            at = whole.index(part, at) + len(part)
        assert bool(left) == bool(whole)
    assert texts(nodes) == [" ".join(row) for row in sentences]


def test_a_pruner_that_fails_leaves_the_nodes_whole() -> None:
    """Unless it is to be strict; so does one whose answer does not fit."""
    pruner = FakePruner()
    pruner.failure = ServiceError("it is down", status=400)
    given = [node(LONG)]
    with listening() as events:
        assert SentencePruningPostprocessor(pruner).postprocess_nodes(given, query_str="moon") == given
    assert [event.degraded for event in events if isinstance(event, RetrievalDegradedEvent)] == [["prune: it is down"]]
    with pytest.raises(ServiceError, match="it is down"):
        asyncio.run(SentencePruningPostprocessor(pruner, strict=True).apostprocess_nodes(given, query_str="moon"))

    class Short(FakePruner):
        async def keep(self, query: str, passages: Any) -> Kept:
            return Kept(((True,),))

    assert SentencePruningPostprocessor(Short()).postprocess_nodes(given, query_str="moon") == given


def test_a_pruner_by_embeddings_will_do() -> None:
    """With the pipeline's embedder, for instance."""
    result = SentencePruningPostprocessor(EmbedderPruner(FakeEmbedder(), threshold=0.5)).postprocess_nodes(
        [node(LONG)], query_str="salt is white"
    )
    assert "Salt is white." in texts(result)[0]
    assert len(texts(result)[0]) < len(LONG)


def test_the_question_is_needed_by_both() -> None:
    """And nothing else is a question."""
    for postprocessor in (
        RelevanceFilterPostprocessor(FakeRelevanceFilter()),
        SentencePruningPostprocessor(FakePruner()),
    ):
        with pytest.raises(InvalidParameterError, match="needs the question"):
            postprocessor.postprocess_nodes(FOUND)
