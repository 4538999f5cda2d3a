"""What LlamaIndex makes of the retriever's nodes and of its queries, in its own engines and retrievers."""

# LlamaIndex's own types are unknown in parts.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import asyncio
import gc
import pickle
import threading
from typing import TYPE_CHECKING, Any
from weakref import ref

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core.indices.query.query_transform import HyDEQueryTransform
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata, MockLLM
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.query_engine import (
    CitationQueryEngine,
    RetrieverQueryEngine,
    SubQuestionQueryEngine,
    TransformQueryEngine,
)
from llama_index.core.question_gen.types import SubQuestion
from llama_index.core.retrievers import QueryFusionRetriever, TransformRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import IndexNode, MetadataMode, QueryBundle, TextNode
from llama_index.core.tools import FunctionTool, QueryEngineTool, RetrieverTool, ToolMetadata

from llama_index.retrievers.retrieval_core import (
    RetrievalCoreRetriever,
    RetrievalQueryBundle,
    chunk_from_node,
    hit_from_node,
)
from retrieval_core import open_index
from retrieval_core.errors import InvalidParameterError
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types.filters import Eq
from support.llamaindex_library import CHUNKS, Library, passage
from support.threads import left_running

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from llama_index.core.schema import NodeWithScore

QUESTION = "how far away is the moon"
LLM = MockLLM()


class Writes(CustomLLM):
    """Answers everything with one text."""

    reply: str

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata()

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=self.reply)

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        yield self.complete(prompt)


@pytest.fixture
def retriever(library: Library) -> RetrievalCoreRetriever:
    return RetrievalCoreRetriever(library.pipeline, top_k=6)


def fusion(retriever: RetrievalCoreRetriever, *, use_async: bool = False, mode: str = "reciprocal_rerank") -> Any:
    llm = Writes(reply="moon air\nold rocks\nbright light")
    return QueryFusionRetriever(
        [retriever],
        llm=llm,
        num_queries=4,
        similarity_top_k=6,
        use_async=use_async,
        mode=FUSION_MODES(mode),
        verbose=False,
    )


@pytest.mark.parametrize("mode", ["reciprocal_rerank", "relative_score", "dist_based_score", "simple"])
def test_fusion_recognises_passages_that_several_questions_find(retriever: RetrievalCoreRetriever, mode: str) -> None:
    """It tells nodes apart by their hash: each passage comes once, and none is lost."""
    nodes = fusion(retriever, mode=mode).retrieve(QUESTION)
    assert sorted(item.node.node_id for item in nodes) == sorted(chunk.id for chunk in CHUNKS)
    assert [chunk_from_node(item.node) for item in nodes] == [
        next(chunk for chunk in CHUNKS if chunk.id == item.node.node_id) for item in nodes
    ]


def hyde(engine: RetrieverQueryEngine) -> Any:
    return TransformQueryEngine(engine, HyDEQueryTransform(llm=Writes(reply="Moon rocks are old.")))


class _Generator:
    """Makes the same two sub-questions of every question."""

    def generate(self, tools: Any, query: Any) -> list[SubQuestion]:
        return [SubQuestion(sub_question=text, tool_name="ours") for text in ("the moon", "the sun")]

    async def agenerate(self, tools: Any, query: Any) -> list[SubQuestion]:
        return self.generate(tools, query)


def sub_questions(engine: RetrieverQueryEngine, *, use_async: bool = False) -> Any:
    from llama_index.core.question_gen.types import BaseQuestionGenerator

    class Generator(_Generator, BaseQuestionGenerator):
        def _get_prompts(self) -> Any:
            return {}

        def _update_prompts(self, prompts_dict: Any) -> None: ...

    tool = QueryEngineTool(engine, ToolMetadata("about the sky", name="ours"))
    from llama_index.core import get_response_synthesizer

    synthesizer = get_response_synthesizer(llm=LLM, use_async=use_async)
    return SubQuestionQueryEngine(Generator(), synthesizer, [tool], verbose=False, use_async=use_async)


def fused(engine: RetrieverQueryEngine, *, use_async: bool = False) -> Any:
    retriever: Any = engine.retriever
    return RetrieverQueryEngine.from_args(fusion(retriever, use_async=use_async), llm=LLM)


MAKERS: dict[str, Callable[[RetrieverQueryEngine], Any]] = {
    "HyDE": hyde,
    "sub-questions": sub_questions,
    "sub-questions, async": lambda engine: sub_questions(engine, use_async=True),
    "fusion": fused,
    "fusion, async": lambda engine: fused(engine, use_async=True),
}


def told(nodes: Sequence[NodeWithScore]) -> list[str]:
    """Return what the nodes say is degraded; what an engine adds of its own says nothing."""
    return [reason for item in nodes for reason in getattr(item.node, "degraded", ())]


@pytest.mark.parametrize("name", list(MAKERS))
@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_unbound_retriever_says_that_settings_were_left_behind(
    retriever: RetrievalCoreRetriever, name: str, asynchronous: bool
) -> None:
    engine = MAKERS[name](RetrieverQueryEngine.from_args(retriever, llm=LLM))

    def ask(query: Any) -> Any:
        return asyncio.run(engine.aquery(query)) if asynchronous else engine.query(query)

    reasons = told(ask(RetrievalQueryBundle(QUESTION, filters={"kind": "star"})).source_nodes)
    assert any("came without the filters of the RetrievalQueryBundle 'how far away" in reason for reason in reasons)
    assert any("retriever.bound(filters=…)" in reason for reason in reasons)
    assert not told(ask(QUESTION).source_nodes)


@pytest.mark.parametrize("name", list(MAKERS))
def test_a_bound_retriever_keeps_its_settings_in_every_query(retriever: RetrievalCoreRetriever, name: str) -> None:
    bound = retriever.bound(filters=Eq("kind", "star"), top_k=1)
    response = MAKERS[name](RetrieverQueryEngine.from_args(bound, llm=LLM)).query(QUESTION)
    ours = [item for item in response.source_nodes if "document_id" in item.node.metadata]
    assert ours
    assert {item.node.metadata["kind"] for item in ours} == {"star"}
    assert not told(ours)


def test_a_bundle_that_is_kept_says_nothing_about_other_calls(retriever: RetrievalCoreRetriever) -> None:
    """Only what belongs to the call it was part of was made of it."""
    engine = RetrieverQueryEngine.from_args(retriever, llm=LLM)
    kept = RetrievalQueryBundle(QUESTION, filters={"kind": "star"})
    assert not told(retriever.retrieve(QUESTION))
    assert {item.node.metadata["kind"] for item in engine.query(kept).source_nodes} == {"star"}
    assert not told(engine.query(QUESTION).source_nodes)
    assert not told(hyde(engine).query(QUESTION).source_nodes)


def test_settings_are_narrowed_by_binding_twice(retriever: RetrievalCoreRetriever) -> None:
    bound = retriever.bound(filters={"kind": "moon"}, mode="lexical").bound(filters={"year": 1970}, top_k=3)
    assert [item.node.node_id for item in bound.retrieve(QUESTION)] == ["moon.md#1"]
    assert bound.similarity_top_k == 3
    assert set(passage(bound.retrieve(QUESTION)[0]).scores) == {"lexical", "lexical_rank", "final"}
    with pytest.raises(InvalidParameterError, match="top_k must be"):
        retriever.bound(top_k=0)


def test_texts_of_hyde_are_embedded_and_say_what_they_found(
    library: Library, retriever: RetrievalCoreRetriever
) -> None:
    """As passages, beside the question."""
    written = "Moon rocks are old."
    transformed = TransformRetriever(retriever.bound(mode="dense"), HyDEQueryTransform(llm=Writes(reply=written)))
    nodes = transformed.retrieve("lunar geology")
    rocks = passage(next(item for item in nodes if item.node.node_id == "moon.md#3"))
    assert rocks.found_by == [{"kind": "passage", "text": written}]
    assert not rocks.degraded


def test_pieces_of_a_citation_engine_have_no_span_that_is_not_theirs(retriever: RetrievalCoreRetriever) -> None:
    """They are made by copying the passage's node and changing its text."""
    engine = CitationQueryEngine(retriever, llm=LLM, citation_chunk_size=12, citation_chunk_overlap=0)
    pieces = engine.query(QUESTION).source_nodes
    assert any(item.node.get_content().startswith("Source 2:") for item in pieces)
    for item in pieces:
        node: Any = item.node
        assert node.start_char_idx is node.end_char_idx is None
        hit = hit_from_node(item)
        assert hit.chunk.span is None
        assert hit.chunk.document_id in {"moon.md", "sun.md"}
        assert not hit.excerpts


def test_a_tool_gives_an_agent_the_citation_and_nothing_else(retriever: RetrievalCoreRetriever) -> None:
    """Nor are the user's fields in it, unless they are named."""
    shown = str(RetrieverTool.from_defaults(retriever.bound(top_k=1)).call(QUESTION))
    assert "citation: Doc: moon.md | Section: moon" in shown
    assert "384,400 km" in shown
    assert "year" not in shown
    assert "score" not in shown
    with_year = RetrievalCoreRetriever(retriever.pipeline, top_k=1, llm_metadata=["year"])
    node = with_year.retrieve(QUESTION)[0].node
    assert node.get_content(MetadataMode.LLM) == f"year: 1970\n\n{CHUNKS[1].text}"


def test_a_relevance_can_be_cut_off(library: Library) -> None:
    """Scores that order hits are of no fixed scale."""
    retriever = RetrievalCoreRetriever(library.pipeline, top_k=6, score="relevance")
    nodes = retriever.retrieve(QUESTION)
    assert all(item.score is not None and 0 <= item.score <= 1 for item in nodes)
    assert [item.score for item in nodes] == [passage(item).scores["dense"] for item in nodes]
    cutoff = sorted(item.get_score() for item in nodes)[3]
    assert len(SimilarityPostprocessor(similarity_cutoff=cutoff).postprocess_nodes(nodes)) == 3
    words = retriever.bound(mode="lexical").retrieve(QUESTION)
    assert {item.score for item in words} == {0.0}
    assert passage(words[0]).degraded == ['score: results of keyword search have no relevance; use score="raw"']


@pytest.mark.parametrize(
    "settings",
    [{"score": "cosine"}, {"llm_metadata": "citation"}, {"llm_metadata": [1]}, {"top_k": 1, "similarity_top_k": 2}],
)
def test_settings_that_cannot_be_are_refused_at_once(library: Library, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError):
        RetrievalCoreRetriever(library.pipeline, **settings)


def test_llamaindex_names_of_arguments_are_known(library: Library) -> None:
    retriever = RetrievalCoreRetriever(library.pipeline, similarity_top_k=2)
    assert len(retriever.retrieve(QUESTION)) == 2
    retriever.similarity_top_k = 1
    assert len(retriever.retrieve(QUESTION)) == 1
    with pytest.raises(InvalidParameterError, match="top_k must be"):
        retriever.similarity_top_k = 0


def test_index_nodes_among_objects_are_followed(library: Library) -> None:
    """As for every retriever of LlamaIndex; passages are no index nodes, so the map alone changes nothing."""
    extra = TextNode(text="more", id_="more")
    objects = [IndexNode(text="pointer", index_id="p", obj=extra)]
    retriever = RetrievalCoreRetriever(library.pipeline, top_k=1, objects=objects)
    assert retriever.object_map == {"p": extra}
    assert [item.node.node_id for item in retriever.retrieve(QUESTION)] == ["moon.md#1"]


def test_a_bundle_survives_json() -> None:
    """Its filters in their JSON form."""
    bundle = RetrievalQueryBundle(QUESTION, filters=Eq("kind", "star"), top_k=3)
    again = RetrievalQueryBundle.from_dict(bundle.to_dict())
    assert (again.query_str, again.top_k, again.mode) == (QUESTION, 3, None)
    assert again.filters == {"kind": {"$eq": "star"}}
    assert again.to_dict() == bundle.to_dict()


def test_methods_can_be_tools(retriever: RetrievalCoreRetriever) -> None:
    """Their annotations are resolved at run time."""
    tool = FunctionTool.from_defaults(fn=retriever.retrieve_with, name="search", description="Searches.")
    assert "384,400" in str(tool.call(query=QUESTION, top_k=1))


def test_a_retriever_cannot_be_pickled(retriever: RetrievalCoreRetriever) -> None:
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        pickle.dumps(retriever)


def test_nothing_is_left_of_a_retriever_that_nobody_closed(tmp_path: Path) -> None:
    """Neither threads nor the index."""
    with open_index(tmp_path / "index.db", embedder=FakeEmbedder()) as index:
        index.add(CHUNKS)
    before = set(threading.enumerate())
    retriever = RetrievalCoreRetriever.from_index_file(tmp_path / "index.db", embedder=FakeEmbedder())
    assert retriever.retrieve(QUESTION)
    gone = ref(retriever.pipeline)
    del retriever
    gc.collect()
    assert gone() is None
    assert not left_running(before)


def test_queries_of_plain_bundles_stay_plain(retriever: RetrievalCoreRetriever) -> None:
    assert not told(retriever.retrieve(QueryBundle(QUESTION)))
