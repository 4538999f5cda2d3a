"""The table of LlamaIndex's stock engines over our retriever, a test for each row: docs/dev/llamaindex-engines.md.

``python tests/llamaindex/test_stock_table.py > docs/dev/llamaindex-engines.md`` writes the page.
"""

# LlamaIndex's own types are unknown in parts, and this file calls all of it.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import ast
import asyncio
import json
import re
import sys
import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast
from unittest.mock import patch

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core import Settings, SQLDatabase, StorageContext, SummaryIndex, TreeIndex, VectorStoreIndex
from llama_index.core.agent.workflow import AgentWorkflow, CodeActAgent, FunctionAgent, ReActAgent
from llama_index.core.base.base_auto_retriever import BaseAutoRetriever
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.bridge.pydantic import BaseModel
from llama_index.core.chat_engine import (
    CondensePlusContextChatEngine,
    CondenseQuestionChatEngine,
    ContextChatEngine,
    MultiModalCondensePlusContextChatEngine,
    MultiModalContextChatEngine,
)
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.evaluation import (
    AnswerRelevancyEvaluator,
    BatchEvalRunner,
    ContextRelevancyEvaluator,
    CorrectnessEvaluator,
    FaithfulnessEvaluator,
    GuidelineEvaluator,
    MultiModalRetrieverEvaluator,
    PairwiseComparisonEvaluator,
    RelevancyEvaluator,
    RetrieverEvaluator,
    SemanticSimilarityEvaluator,
)
from llama_index.core.extractors import KeywordExtractor
from llama_index.core.indices.query.query_transform import HyDEQueryTransform, StepDecomposeQueryTransform
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.objects import ObjectIndex, ObjectRetriever, SimpleToolNodeMapping
from llama_index.core.postprocessor import (
    AutoPrevNextNodePostprocessor,
    EmbeddingRecencyPostprocessor,
    FixedRecencyPostprocessor,
    KeywordNodePostprocessor,
    LLMRerank,
    LongContextReorder,
    MetadataReplacementPostProcessor,
    PIINodePostprocessor,
    PrevNextNodePostprocessor,
    SentenceEmbeddingOptimizer,
    SentenceTransformerRerank,
    StructuredLLMRerank,
    TimeWeightedPostprocessor,
)
from llama_index.core.postprocessor.rankGPT_rerank import RankGPTRerank
from llama_index.core.query_engine import (
    CitationQueryEngine,
    CustomQueryEngine,
    FLAREInstructQueryEngine,
    MultiStepQueryEngine,
    NLSQLTableQueryEngine,
    RetrieverQueryEngine,
    RetrieverRouterQueryEngine,
    RetryGuidelineQueryEngine,
    RetryQueryEngine,
    RetrySourceQueryEngine,
    RouterQueryEngine,
    SimpleMultiModalQueryEngine,
    SQLAutoVectorQueryEngine,
    SQLJoinQueryEngine,
    ToolRetrieverRouterQueryEngine,
    TransformQueryEngine,
)
from llama_index.core.query_engine.flare.answer_inserter import DirectLookaheadAnswerInserter
from llama_index.core.response_synthesizers import ResponseMode
from llama_index.core.retrievers import (
    AutoMergingRetriever,
    QueryFusionRetriever,
    RecursiveRetriever,
    RouterRetriever,
    TransformRetriever,
    VectorIndexAutoRetriever,
)
from llama_index.core.schema import (
    IndexNode,
    NodeRelationship,
    NodeWithScore,
    ObjectType,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.selectors import EmbeddingSingleSelector, LLMMultiSelector, LLMSingleSelector
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.tools import QueryEngineTool, QueryPlanTool, RetrieverTool
from llama_index.core.vector_stores import MetadataFilters, VectorStoreInfo
from llama_index.core.vector_stores.types import VectorStoreQuerySpec
from llama_index.core.workflow import Context, Event, JsonSerializer, StartEvent, StopEvent, Workflow, step
from sqlalchemy import create_engine

from llama_index.retrievers.retrieval_core import (
    PassageNode,
    RetrievalCoreRetriever,
    RetrievalQueryBundle,
    hit_from_node,
    node_from_chunk,
)
from support.llamaindex_engines import Caller, Row, Writer, linked, page, sections
from support.llamaindex_library import CHUNKS, Library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

QUESTION = "how far away is the moon"
ANSWER = "384,400 km"
EXPECTED = "moon.md#1"
CITED = "citation: Doc: moon.md | Section: moon\n\nThe moon is 384,400 km away."

ROWS: list[Row] = []


@dataclass
class Desk:
    """The parts of a test: our retriever, bound to passages about the moon, and a model that answers by a script."""

    library: Library
    retriever: RetrievalCoreRetriever
    llm: Writer
    replies: dict[str, str]
    afterwards: ExitStack

    def engine(self, **settings: Any) -> RetrieverQueryEngine:
        arguments: dict[str, Any] = {"llm": self.llm, **settings}
        return RetrieverQueryEngine.from_args(self.retriever, **arguments)

    def tool(self, **settings: Any) -> QueryEngineTool:
        return QueryEngineTool.from_defaults(self.engine(**settings), name="ours", description="about the moon")

    def saw(self, text: str) -> bool:
        return any(text in prompt for prompt in self.llm.prompts)


def row(
    area: str, name: str, note: str = "", verdict: Literal["works", "refused with words"] = "works"
) -> Callable[[Callable[[Desk], None]], Callable[[Desk], None]]:
    def add(check: Callable[[Desk], None]) -> Callable[[Desk], None]:
        ROWS.append(Row(area, name, verdict, note, check))
        return check

    return add


def elsewhere(area: str, name: str, test: str, note: str = "") -> None:
    """Add a row that a test of another file of this folder shows."""
    ROWS.append(Row(area, name, "works", note, test))


def right(nodes: Sequence[NodeWithScore], *, expected: str = EXPECTED) -> list[tuple[str, float | None, str]]:
    """Check what a user would of the sources, and return what must be the same when asked again."""
    ours = [item for item in nodes if isinstance(item.node, PassageNode)]
    assert expected in [item.node.node_id for item in ours]
    assert {item.node.metadata["kind"] for item in ours} == {"moon"}
    assert not [reason for item in ours for reason in cast("PassageNode", item.node).degraded]
    return [(item.node.node_id, item.score, item.node.get_content()) for item in ours]


def again_and_again(ask: Callable[[], Any], aask: Callable[[], Any], check: Callable[[Any], Any]) -> None:
    """Ask twice, asynchronously, and synchronously where a loop runs: what the check returns is the same each time."""

    async def inside() -> list[Any]:
        return [check(await aask()), check(ask())]

    first = check(ask())
    assert [check(ask()), *asyncio.run(inside())] == [first] * 3


def answers(desk: Desk, engine: Any, *, sees: str | None = CITED, question: str | QueryBundle = QUESTION) -> None:
    """Check an engine: the sources, and that the model sees the passage with its citation."""

    def check(response: Any) -> Any:
        assert sees is None or desk.saw(sees)
        desk.llm.prompts.clear()
        return right(response.source_nodes), str(response)

    again_and_again(lambda: engine.query(question), lambda: engine.aquery(question), check)


def finds(retriever: Any, *, expected: str = EXPECTED) -> None:
    """Check a retriever that is made of ours."""

    def check(nodes: Any) -> Any:
        return right(nodes, expected=expected)

    again_and_again(lambda: retriever.retrieve(QUESTION), lambda: retriever.aretrieve(QUESTION), check)


# --- query engines ---------------------------------------------------------------------------------------------------

QUERY = "Query engines"

for _mode in ("compact", "refine", "tree_summarize", "accumulate", "compact_accumulate"):

    @row(QUERY, f"`RetrieverQueryEngine`, `{_mode}`")
    def _(desk: Desk, mode: str = _mode) -> None:
        answers(desk, desk.engine(response_mode=ResponseMode(mode)))
        answers(desk, desk.engine(response_mode=ResponseMode(mode), use_async=True))


@row(QUERY, "`RetrieverQueryEngine`, `simple_summarize`", "LlamaIndex shows the model the passages as a Python list")
def _(desk: Desk) -> None:
    answers(desk, desk.engine(response_mode=ResponseMode.SIMPLE_SUMMARIZE), sees=repr(CITED)[1:-1])


@row(QUERY, "`RetrieverQueryEngine`, `context_only`", "the answer is the passages, each with its citation")
def _(desk: Desk) -> None:
    answers(desk, desk.engine(response_mode=ResponseMode.CONTEXT_ONLY), sees=None)
    assert CITED in str(desk.engine(response_mode=ResponseMode.CONTEXT_ONLY).query(QUESTION))


@row(QUERY, "`RetrieverQueryEngine`, `no_text`", "LlamaIndex takes a model from `Settings` though none is asked")
def _(desk: Desk) -> None:
    answers(desk, desk.engine(response_mode=ResponseMode.NO_TEXT), sees=None)
    assert not desk.llm.prompts


@row(QUERY, "`RetrieverQueryEngine`, `generation`", "LlamaIndex shows the model the question alone, whatever was found")
def _(desk: Desk) -> None:
    answers(desk, desk.engine(response_mode=ResponseMode.GENERATION), sees=QUESTION)
    desk.engine(response_mode=ResponseMode.GENERATION).query(QUESTION)
    assert not desk.saw(ANSWER)


@row(QUERY, "`RetrieverQueryEngine`, `streaming=True`")
def _(desk: Desk) -> None:
    engine = desk.engine(streaming=True)
    response = engine.query(QUESTION)
    assert isinstance(response, StreamingResponse)
    first = right(response.source_nodes)
    assert "".join(cast("Any", response.response_gen)) == ANSWER
    assert desk.saw(CITED)

    async def stream() -> None:
        response = await engine.aquery(QUESTION)
        assert isinstance(response, AsyncStreamingResponse)
        assert right(response.source_nodes) == first
        assert "".join([piece async for piece in response.async_response_gen()]) == ANSWER

    asyncio.run(stream())


class Distance(BaseModel):
    """A distance in kilometres."""

    km: int


@row(QUERY, "`RetrieverQueryEngine`, `output_cls=…`")
def _(desk: Desk) -> None:
    llm = Caller({"Distance": {"km": 384_400}})
    engine = desk.engine(llm=llm, output_cls=Distance)

    def check(response: Any) -> Any:
        assert any(CITED in prompt for prompt in llm.prompts)
        llm.prompts.clear()
        assert response.response.km == 384_400
        return right(response.source_nodes)

    again_and_again(lambda: engine.query(QUESTION), lambda: engine.aquery(QUESTION), check)


@row(QUERY, "`RetrieverQueryEngine`, `multimodal=True`")
def _(desk: Desk) -> None:
    llm = Caller({}, ANSWER)
    engine = desk.engine(llm=llm, multimodal=True)

    def check(response: Any) -> Any:
        (prompt,) = llm.prompts
        llm.prompts.clear()
        assert "citation: Doc: moon.md | Section: moon" in prompt
        assert "The moon is 384,400 km away." in prompt
        return right(response.source_nodes), str(response)

    again_and_again(lambda: engine.query(QUESTION), lambda: engine.aquery(QUESTION), check)


elsewhere(
    QUERY,
    "`RetrieverQueryEngine` with our postprocessors",
    "test_query_engine.py::test_an_engine_answers_with_the_right_sources",
)


@row(QUERY, "`RetrieverQueryEngine`, after our retriever was asked with a bundle that is kept", "nothing is said of it")
def _(desk: Desk) -> None:
    kept = RetrievalQueryBundle(QUESTION, filters={"year": 1970})
    assert len(desk.retriever.retrieve(kept)) == 1
    answers(desk, desk.engine())


elsewhere(
    QUERY,
    "`RetrieverQueryEngine` asked with a `RetrievalQueryBundle`",
    "test_query_engine.py::test_settings_of_a_query_pass_through_the_engine",
    "filters, `top_k` and `mode` of the question hold",
)


@row(QUERY, "`CitationQueryEngine`", "each source begins with its citation; pieces of passages have no span")
def _(desk: Desk) -> None:
    engine = CitationQueryEngine.from_args(cast("Any", None), llm=desk.llm, retriever=desk.retriever)

    def check(response: Any) -> Any:
        assert {item.node.metadata["kind"] for item in response.source_nodes} == {"moon"}
        assert desk.saw("citation: Doc: moon.md | Section: moon\n\nSource 1:\nThe moon is 384,400 km away.")
        desk.llm.prompts.clear()
        return [(item.score, item.node.get_content()) for item in response.source_nodes]

    again_and_again(lambda: engine.query(QUESTION), lambda: engine.aquery(QUESTION), check)


elsewhere(
    QUERY,
    "`CitationQueryEngine`, small pieces",
    "test_stock_uses.py::test_pieces_of_a_citation_engine_have_no_span_that_is_not_theirs",
)


@row(QUERY, "`TransformQueryEngine` with `HyDEQueryTransform`", "the written passage is searched for by meaning")
def _(desk: Desk) -> None:
    engine = TransformQueryEngine(desk.engine(), HyDEQueryTransform(llm=desk.llm))
    answers(desk, engine)
    kept = RetrievalQueryBundle(QUESTION, top_k=1)
    for _ in range(2):
        says_what_was_left(engine.query(kept).source_nodes)
        right(engine.query(QUESTION).source_nodes)


elsewhere(
    QUERY,
    "the same, asked with a `RetrievalQueryBundle`",
    "test_stock_uses.py::test_an_unbound_retriever_says_that_settings_were_left_behind",
    "HyDE leaves filters behind: each node says so in `degraded`; use `retriever.bound(filters=…)`",
)


@row(QUERY, "`TransformQueryEngine` with `StepDecomposeQueryTransform`")
def _(desk: Desk) -> None:
    desk.replies["New question"] = f"{QUESTION}, in kilometres"
    answers(
        desk, TransformQueryEngine(desk.engine(), StepDecomposeQueryTransform(llm=desk.llm), {"prev_reasoning": ""})
    )


@row(QUERY, "`MultiStepQueryEngine`", "its asynchronous method asks the engine synchronously")
def _(desk: Desk) -> None:
    desk.replies["New question"] = f"{QUESTION}, in kilometres"
    answers(desk, MultiStepQueryEngine(desk.engine(), StepDecomposeQueryTransform(llm=desk.llm), num_steps=2))


elsewhere(
    QUERY, "`SubQuestionQueryEngine`", "test_stock_uses.py::test_a_bound_retriever_keeps_its_settings_in_every_query"
)


@row(QUERY, "`RouterQueryEngine`, one choice")
def _(desk: Desk) -> None:
    desk.replies["choices"] = json.dumps([{"choice": 2, "reason": "the moon"}])
    other = QueryEngineTool.from_defaults(SummaryIndex([]).as_query_engine(), name="other", description="nothing")
    selector = LLMSingleSelector.from_defaults(llm=desk.llm)
    answers(desk, RouterQueryEngine(selector, [other, desk.tool()], llm=desk.llm))


@row(QUERY, "`RouterQueryEngine`, several choices")
def _(desk: Desk) -> None:
    desk.replies["choices"] = json.dumps([{"choice": 1, "reason": "the moon"}, {"choice": 2, "reason": "too"}])
    selector = LLMMultiSelector.from_defaults(llm=desk.llm)
    answers(desk, RouterQueryEngine(selector, [desk.tool(), desk.tool()], llm=desk.llm))


@row(QUERY, "`RouterQueryEngine` with `EmbeddingSingleSelector`")
def _(desk: Desk) -> None:
    selector = EmbeddingSingleSelector.from_defaults(embed_model=MockEmbedding(4))
    answers(desk, RouterQueryEngine(selector, [desk.tool()], llm=desk.llm))


def tools_as_passages() -> Library:
    """An index of tools' descriptions, for those that look for the tool first."""
    from dataclasses import replace

    return Library(chunks=[replace(CHUNKS[0], text="about the moon", metadata={"name": "ours", "tool_name": "ours"})])


@row(QUERY, "`ToolRetrieverRouterQueryEngine`, ours below a tool")
def _(desk: Desk) -> None:
    tools = ObjectIndex.from_objects([desk.tool()], index_cls=VectorStoreIndex, embed_model=MockEmbedding(4))
    answers(desk, ToolRetrieverRouterQueryEngine(tools.as_retriever(), llm=desk.llm))


@row(QUERY, "`ToolRetrieverRouterQueryEngine`, ours finds the tool", "`ObjectRetriever` over our retriever")
def _(desk: Desk) -> None:
    with tools_as_passages() as tools:
        mapping = SimpleToolNodeMapping.from_objects([desk.tool()])
        finder = ObjectRetriever(RetrievalCoreRetriever(tools.pipeline, top_k=1), mapping)
        answers(desk, ToolRetrieverRouterQueryEngine(cast("Any", finder), llm=desk.llm))


@row(QUERY, "`RetrieverRouterQueryEngine`", "takes one node alone, so `top_k=1`; more it refuses")
def _(desk: Desk) -> None:
    with tools_as_passages() as tools:
        finder = RetrievalCoreRetriever(tools.pipeline, top_k=1)
        answers(desk, RetrieverRouterQueryEngine(finder, lambda _: desk.engine()))
    with pytest.raises(ValueError, match="more than one node"):
        RetrieverRouterQueryEngine(desk.retriever, lambda _: desk.engine()).query(QUESTION)


def graded_after(desk: Desk, marker: str, *grades: str) -> None:
    """Have the model answer prompts that hold the marker with one grade after the other, over and over."""
    left = cycle(grades)
    plain = desk.llm.reply

    def reply(prompt: str) -> str:
        return next(left) if marker in prompt else plain(prompt)

    desk.llm.answer_with(reply)


RELEVANT = "evaluate if the response for the query"


@row(
    QUERY,
    "`RetryQueryEngine`",
    "when it asks again, the bad answer is part of what is searched for; the question alone is, by meaning, too; its "
    "asynchronous method asks the engine synchronously",
)
def _(desk: Desk) -> None:
    graded_after(desk, RELEVANT, "NO", "YES")
    engine = RetryQueryEngine(desk.engine(), RelevancyEvaluator(llm=desk.llm))
    answers(desk, engine)
    found_by = [cast("PassageNode", item.node).found_by for item in engine.query(QUESTION).source_nodes]
    assert [{"kind": "passage", "text": QUESTION}] in found_by


@row(QUERY, "`RetryGuidelineQueryEngine`", "as `RetryQueryEngine`")
def _(desk: Desk) -> None:
    bad = json.dumps({"passing": False, "feedback": "give the unit"})
    graded_after(desk, "guidelines", bad, json.dumps({"passing": True, "feedback": "fine"}))
    answers(desk, RetryGuidelineQueryEngine(desk.engine(), GuidelineEvaluator(llm=desk.llm)))


@row(
    QUERY,
    "`RetrySourceQueryEngine`",
    "when it asks again, LlamaIndex makes new documents of the texts, without ids, metadata or citations",
)
def _(desk: Desk) -> None:
    desk.replies[RELEVANT] = "YES"
    answers(desk, RetrySourceQueryEngine(desk.engine(), RelevancyEvaluator(llm=desk.llm), llm=desk.llm))
    graded_after(desk, RELEVANT, "NO", "YES")
    response = RetrySourceQueryEngine(desk.engine(), RelevancyEvaluator(llm=desk.llm), llm=desk.llm).query(QUESTION)
    assert "The moon is 384,400 km away." in [item.node.get_content() for item in response.source_nodes]
    assert not any(item.node.metadata for item in response.source_nodes)


@row(QUERY, "`FLAREInstructQueryEngine`", "its asynchronous method asks the engine synchronously")
def _(desk: Desk) -> None:
    desk.replies[f"Existing Answer: The moon is {ANSWER}"] = "done"
    desk.replies["Skill 1"] = f"The moon is [Search({QUESTION})]."
    inserter = DirectLookaheadAnswerInserter()
    answers(desk, FLAREInstructQueryEngine(desk.engine(), desk.llm, lookahead_answer_inserter=inserter))


class Custom(CustomQueryEngine):
    """As in LlamaIndex's documentation."""

    retriever: BaseRetriever
    engine: RetrieverQueryEngine

    def custom_query(self, query_str: str) -> Any:
        nodes = self.retriever.retrieve(query_str)
        return self.engine.synthesize(QueryBundle(query_str), nodes)


@row(
    QUERY,
    "`CustomQueryEngine`",
    "its methods get the text of a `RetrievalQueryBundle` alone, and each node says so; use `retriever.bound(…)`",
)
def _(desk: Desk) -> None:
    answers(desk, Custom(retriever=desk.retriever, engine=desk.engine()))
    custom, kept = Custom(retriever=desk.retriever, engine=desk.engine()), RetrievalQueryBundle(QUESTION, top_k=1)
    for _ in range(2):
        says_what_was_left(custom.query(kept).source_nodes)
        right(custom.query(QUESTION).source_nodes)


def says_what_was_left(nodes: Sequence[NodeWithScore]) -> None:
    for item in nodes:
        (reason,) = cast("PassageNode", item.node).degraded
        assert reason.startswith("query: it came without the ")


@row(QUERY, "`SimpleMultiModalQueryEngine`", "deprecated by LlamaIndex in favour of `multimodal=True`")
def _(desk: Desk) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        engine = SimpleMultiModalQueryEngine(cast("Any", desk.retriever), desk.llm)
    answers(desk, engine)


def sql_tool(desk: Desk, **settings: Any) -> QueryEngineTool:
    database = create_engine("sqlite:///:memory:")
    desk.afterwards.callback(database.dispose)
    with database.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE moons (name TEXT)")
        connection.exec_driver_sql("INSERT INTO moons VALUES ('moon')")
    desk.replies["syntactically correct"] = "SELECT name FROM moons"
    engine = NLSQLTableQueryEngine(
        SQLDatabase(database), llm=desk.llm, tables=["moons"], embed_model=MockEmbedding(4), **settings
    )
    return QueryEngineTool.from_defaults(engine, name="sql", description="a table of moons")


@row(QUERY, "`SQLJoinQueryEngine`", "ours is the other engine")
def _(desk: Desk) -> None:
    desk.replies["New question"] = f"{QUESTION}, in kilometres"
    for choice in (1, 2):
        desk.replies["choices"] = json.dumps([{"choice": choice, "reason": "it knows"}])
        selector = LLMSingleSelector.from_defaults(llm=desk.llm)
        answers(desk, SQLJoinQueryEngine(sql_tool(desk), desk.tool(), selector, desk.llm, verbose=False))


@row(
    QUERY, "`NLSQLTableQueryEngine`", "with ours in `rows_retrievers`: the passages are examples of rows in the prompt"
)
def _(desk: Desk) -> None:
    engine = sql_tool(desk, rows_retrievers={"moons": desk.retriever}).query_engine

    def check(answer: Any) -> Any:
        assert desk.saw("The moon is 384,400 km away.")
        desk.llm.prompts.clear()
        assert answer.metadata["sql_query"] == "SELECT name FROM moons"
        return str(answer)

    again_and_again(lambda: engine.query(QUESTION), lambda: engine.aquery(QUESTION), check)


@row(
    QUERY,
    "`SQLAutoVectorQueryEngine`",
    "LlamaIndex takes a `VectorIndexAutoRetriever` alone; use `SQLJoinQueryEngine`",
    "refused with words",
)
def _(desk: Desk) -> None:
    with pytest.raises(ValueError, match="VectorIndexAutoRetriever"):
        SQLAutoVectorQueryEngine(sql_tool(desk), desk.tool(), llm=desk.llm)


# --- chat engines ----------------------------------------------------------------------------------------------------

CHAT = "Chat engines"


def memory() -> ChatMemoryBuffer:
    """A memory of a chat that is a list; the default one leaves a database open."""
    return ChatMemoryBuffer.from_defaults(token_limit=10_000)


CHATS: dict[str, Callable[[Desk], Any]] = {
    "ContextChatEngine": lambda desk: ContextChatEngine.from_defaults(desk.retriever, memory=memory(), llm=desk.llm),
    "CondensePlusContextChatEngine": lambda desk: CondensePlusContextChatEngine.from_defaults(
        desk.retriever, memory=memory(), llm=desk.llm
    ),
    "CondenseQuestionChatEngine": lambda desk: CondenseQuestionChatEngine.from_defaults(
        desk.engine(), memory=memory(), llm=desk.llm
    ),
    "MultiModalContextChatEngine": lambda desk: MultiModalContextChatEngine.from_defaults(
        desk.retriever, memory=memory(), multi_modal_llm=desk.llm
    ),
    "MultiModalCondensePlusContextChatEngine": lambda desk: MultiModalCondensePlusContextChatEngine.from_defaults(
        desk.retriever, memory=memory(), multi_modal_llm=desk.llm
    ),
}
for _name in CHATS:

    @row(
        CHAT,
        f"`{_name}`",
        "`chat`, `achat`, `stream_chat` and `astream_chat`"
        + ("; of the last LlamaIndex has the sources in `sources[0].raw_output` alone" if "Question" in _name else ""),
    )
    def _(desk: Desk, name: str = _name) -> None:
        desk.replies["standalone question"] = QUESTION
        make = CHATS[name]

        def check(response: Any) -> Any:
            assert desk.saw(CITED)
            desk.llm.prompts.clear()
            return right(response.source_nodes)

        chat = make(desk)
        again_and_again(lambda: chat.chat(QUESTION), lambda: chat.achat(QUESTION), check)
        first = right(make(desk).chat(QUESTION).source_nodes)
        response = make(desk).stream_chat(QUESTION)
        assert ("".join(response.response_gen), right(response.source_nodes)) == (ANSWER, first)

        async def stream() -> None:
            response = await make(desk).astream_chat(QUESTION)
            assert "".join([piece async for piece in response.async_response_gen()]) == ANSWER
            nodes = response.source_nodes or response.sources[0].raw_output.source_nodes
            assert right(nodes) == first

        asyncio.run(stream())


@row(
    CHAT,
    "a message that is a `RetrievalQueryBundle`",
    "not made for it: of a later message the engine makes a text, and each node says in `degraded` what is left "
    "behind; use `retriever.bound(filters=…)`",
)
def _(desk: Desk) -> None:
    desk.replies["standalone question"] = QUESTION
    for make in (CHATS["CondensePlusContextChatEngine"], CHATS["CondenseQuestionChatEngine"]):
        chat = make(desk)
        for message in range(3):
            asked: Any = RetrievalQueryBundle(f"{QUESTION}, {message}", filters={"year": 1970})
            nodes = chat.chat(asked).source_nodes
            if message:
                says_what_was_left(nodes)
            else:
                assert [item.node.node_id for item in nodes] == [EXPECTED]
        right(chat.chat(QUESTION).source_nodes)


# --- agents ----------------------------------------------------------------------------------------------------------

AGENTS = "Agents and tools"


def told_agent(desk: Desk, agent: Any, prompts: list[str], sees: str) -> None:
    """Ask an agent twice: its tool finds the passage, the model sees it, and the run can be kept as JSON."""

    async def ask() -> Any:
        context = Context(agent)
        output = await agent.run(user_msg=QUESTION, ctx=context, memory=memory())
        kept = json.dumps(context.to_dict(serializer=JsonSerializer()))
        assert ANSWER in str(output)
        raw = [call.tool_output.raw_output for call in output.tool_calls if call.tool_name == "ours"]
        assert raw
        assert kept
        nodes = raw[0] if isinstance(raw[0], list) else raw[0].source_nodes
        return right(cast("list[NodeWithScore]", nodes))

    first = asyncio.run(ask())
    assert any(sees in prompt for prompt in prompts)
    assert asyncio.run(ask()) == first


def retriever_tool(desk: Desk) -> RetrieverTool:
    return RetrieverTool.from_defaults(desk.retriever, name="ours", description="about the moon")


CALL = {"ours": {"input": QUESTION}}


@row(
    AGENTS,
    "`FunctionAgent` with a `RetrieverTool`",
    "LlamaIndex asks `input is …`, the argument's name before the text",
)
def _(desk: Desk) -> None:
    llm = Caller(CALL, ANSWER)
    told_agent(desk, FunctionAgent(tools=[retriever_tool(desk)], llm=llm), llm.prompts, CITED)


@row(AGENTS, "`FunctionAgent` with a `QueryEngineTool`")
def _(desk: Desk) -> None:
    llm = Caller(CALL, ANSWER)
    told_agent(desk, FunctionAgent(tools=[desk.tool()], llm=llm), llm.prompts, ANSWER)
    assert desk.saw(CITED)


@row(AGENTS, "`ReActAgent` with a `RetrieverTool`")
def _(desk: Desk) -> None:
    desk.replies["384,400 km away"] = f"Thought: I can answer.\nAnswer: {ANSWER}"
    desk.replies["Thought:"] = f'Thought: I need a tool.\nAction: ours\nAction Input: {{"input": "{QUESTION}"}}'
    agent = ReActAgent(tools=[retriever_tool(desk)], llm=desk.llm)
    told_agent(desk, agent, desk.llm.prompts, CITED)


@row(AGENTS, "`AgentWorkflow`, one agent hands over to another")
def _(desk: Desk) -> None:
    first = Caller({"handoff": {"to_agent": "finder", "reason": "it can search"}}, ANSWER)
    second = Caller(CALL, ANSWER)
    front = FunctionAgent(name="front", description="talks", llm=first, can_handoff_to=["finder"])
    finder = FunctionAgent(name="finder", description="searches", tools=[retriever_tool(desk)], llm=second)
    told_agent(desk, AgentWorkflow([front, finder], root_agent="front"), second.prompts, CITED)


@row(AGENTS, "`CodeActAgent`", "`retriever.retrieve_with` is a function that its code may call")
def _(desk: Desk) -> None:
    found: list[Any] = []

    def run(code: str) -> str:
        found.append(desk.retriever.retrieve_with(code, top_k=1))
        return found[-1][0].node.get_content()

    def search(query: str) -> str:
        """Search passages about the moon."""
        return str(desk.retriever.retrieve_with(query))

    desk.replies["384,400 km away"] = ANSWER
    desk.replies["<execute>"] = f"<execute>{QUESTION}</execute>"
    agent: Any = CodeActAgent(code_execute_fn=run, tools=[search], llm=desk.llm)

    async def ask() -> str:
        return str(await agent.run(user_msg=QUESTION, memory=memory()))

    for _ in range(2):
        assert ANSWER in asyncio.run(ask())
    assert desk.saw("def search")
    assert right(found[0]) == right(found[1])


elsewhere(
    AGENTS, "`RetrieverTool` alone", "test_stock_uses.py::test_a_tool_gives_an_agent_the_citation_and_nothing_else"
)
elsewhere(AGENTS, "`FunctionTool` of `retriever.retrieve_with`", "test_stock_uses.py::test_methods_can_be_tools")


@row(AGENTS, "`QueryPlanTool`")
def _(desk: Desk) -> None:
    from llama_index.core import get_response_synthesizer

    tool = QueryPlanTool.from_defaults([desk.tool()], get_response_synthesizer(llm=desk.llm))
    plan = [{"id": 1, "query_str": QUESTION, "tool_name": "ours", "dependencies": []}]
    for _ in range(2):
        assert str(tool(nodes=plan).content) == ANSWER
        assert desk.saw(CITED)
        desk.llm.prompts.clear()


# --- retrievers ------------------------------------------------------------------------------------------------------

RETRIEVERS = "Retrievers"

for _mode in ("reciprocal_rerank", "relative_score", "dist_based_score", "simple"):

    @row(
        RETRIEVERS,
        f"`QueryFusionRetriever`, `{_mode}`, ours and another one",
        "the scores are LlamaIndex's, of one query",
    )
    def _(desk: Desk, mode: Any = _mode) -> None:
        desk.replies["search queries"] = "moon air\nold rocks"
        other = desk.retriever.bound(mode="lexical")
        settings: dict[str, Any] = {"llm": desk.llm, "similarity_top_k": 4, "mode": mode, "num_queries": 3}
        for use_async in (False, True):
            finds(QueryFusionRetriever([desk.retriever, other], use_async=use_async, **settings))


elsewhere(
    RETRIEVERS,
    "`QueryFusionRetriever`, several questions",
    "test_stock_uses.py::test_fusion_recognises_passages_that_several_questions_find",
    "each passage comes once, and none is lost",
)


@row(
    RETRIEVERS,
    "`TransformRetriever`",
    "its asynchronous method runs the synchronous one, which blocks that loop's thread",
)
def _(desk: Desk) -> None:
    finds(TransformRetriever(desk.retriever, HyDEQueryTransform(llm=desk.llm)))


@row(RETRIEVERS, "`RouterRetriever`, one choice and several")
def _(desk: Desk) -> None:
    tools = [retriever_tool(desk), retriever_tool(desk)]
    desk.replies["choices"] = json.dumps([{"choice": 1, "reason": "the moon"}, {"choice": 2, "reason": "too"}])
    finds(RouterRetriever(LLMMultiSelector.from_defaults(llm=desk.llm), tools, llm=desk.llm))
    desk.replies["choices"] = json.dumps([{"choice": 1, "reason": "the moon"}])
    finds(RouterRetriever(LLMSingleSelector.from_defaults(llm=desk.llm), tools, llm=desk.llm))


@row(RETRIEVERS, "`RecursiveRetriever`, ours at the root or below an `IndexNode`")
def _(desk: Desk) -> None:
    finds(RecursiveRetriever("root", {"root": desk.retriever}))
    pointer = IndexNode(text="all about the moon", index_id="ours")
    root = VectorStoreIndex([pointer], embed_model=MockEmbedding(4)).as_retriever()
    finds(RecursiveRetriever("root", {"root": root, "ours": desk.retriever}))
    below = RecursiveRetriever("root", {"root": root}, {"ours": desk.engine()})
    nodes, sources = below.retrieve_all(QueryBundle(QUESTION))
    assert ANSWER in nodes[0].node.get_content()
    right(sources)


def stored(*parents: TextNode) -> SimpleDocumentStore:
    """A document store of LlamaIndex with our passages as nodes."""
    store = SimpleDocumentStore()
    store.add_documents([*parents, *(node_from_chunk(chunk) for chunk in CHUNKS)])
    return store


@row(
    RETRIEVERS,
    "`AutoMergingRetriever`",
    "the document store must have the passages and the sections, which are the parents; a missing one raises",
)
def _(desk: Desk) -> None:
    children = [RelatedNodeInfo(node_id=chunk.id, node_type=ObjectType.TEXT) for chunk in CHUNKS[:4]]
    text = " ".join(chunk.text for chunk in CHUNKS[:4])
    section = TextNode(id_="moon.md/section", text=text, relationships={NodeRelationship.CHILD: children})
    store = StorageContext.from_defaults(docstore=stored(section))

    def check(nodes: Any) -> Any:
        return [(item.node.node_id, item.score) for item in nodes]

    merged = AutoMergingRetriever(cast("Any", desk.retriever), store)
    again_and_again(lambda: merged.retrieve(QUESTION), lambda: merged.aretrieve(QUESTION), check)
    assert [item.node.node_id for item in merged.retrieve(QUESTION)] == ["moon.md/section"]
    few = AutoMergingRetriever(cast("Any", desk.retriever.bound(top_k=1)), store)
    finds(few)
    bare = AutoMergingRetriever(cast("Any", desk.retriever), StorageContext.from_defaults())
    with pytest.raises(ValueError, match=r"moon\.md.* not found"):
        bare.retrieve(QUESTION)


@row(
    RETRIEVERS,
    "`VectorIndexAutoRetriever`",
    "LlamaIndex asks a `VectorStoreIndex`, not a retriever; for ours see the next row",
    "refused with words",
)
def _(desk: Desk) -> None:
    info = VectorStoreInfo(content_info="the sky", metadata_info=[])
    with pytest.raises(AttributeError, match="RetrievalCoreRetriever"):
        VectorIndexAutoRetriever(cast("Any", desk.retriever), info, llm=desk.llm)


class Auto(BaseAutoRetriever):
    """Filters that a model writes, for our retriever."""

    def __init__(self, retriever: RetrievalCoreRetriever, llm: Writer) -> None:
        super().__init__()
        self._retriever, self._llm = retriever, llm

    def generate_retrieval_spec(self, query_bundle: QueryBundle, **_: Any) -> BaseModel:
        return VectorStoreQuerySpec.model_validate_json(self._llm.complete(f"as JSON: {query_bundle}").text)

    async def agenerate_retrieval_spec(self, query_bundle: QueryBundle, **_: Any) -> BaseModel:
        return self.generate_retrieval_spec(query_bundle)

    def _build_retriever_from_spec(self, retrieval_spec: BaseModel) -> tuple[BaseRetriever, QueryBundle]:
        spec = cast("VectorStoreQuerySpec", retrieval_spec)
        filters = MetadataFilters(filters=[*spec.filters])
        return self._retriever.bound(filters=filters, top_k=spec.top_k), QueryBundle(spec.query)


@row(RETRIEVERS, "`BaseAutoRetriever`", "`_build_retriever_from_spec` returns `retriever.bound(filters=…, top_k=…)`")
def _(desk: Desk) -> None:
    filters = [{"key": "year", "value": 1971, "operator": "<"}]
    desk.replies["as JSON"] = json.dumps({"query": QUESTION, "filters": filters, "top_k": 1})
    auto = Auto(desk.retriever, desk.llm)
    finds(auto)
    assert len(auto.retrieve(QUESTION)) == 1


for _index in (SummaryIndex, TreeIndex, VectorStoreIndex):

    @row(RETRIEVERS, f"`{_index.__name__}` with ours as an object of an `IndexNode`", "each question follows the node")
    def _(desk: Desk, index: Any = _index) -> None:
        pointer = IndexNode(text="all about the moon", index_id="ours", obj=desk.retriever)
        made = index(objects=[pointer])
        finds(made.as_retriever())
        answers(desk, made.as_query_engine(llm=desk.llm))


elsewhere(RETRIEVERS, "`objects` of our retriever", "test_stock_uses.py::test_index_nodes_among_objects_are_followed")

# --- postprocessors --------------------------------------------------------------------------------------------------

POST = "Postprocessors"


def processes(desk: Desk, *postprocessors: Any, sees: str | None = CITED, **settings: Any) -> list[NodeWithScore]:
    """Check postprocessors in an engine, and return the nodes that they let through."""
    engine = desk.engine(node_postprocessors=[*postprocessors], **settings)
    answers(desk, engine, sees=sees)
    asked = RetrievalQueryBundle(QUESTION, filters={"year": {"$lte": 1972}})
    answers(desk, engine, sees=sees, question=asked)
    return engine.query(QUESTION).source_nodes


elsewhere(
    POST,
    "`SimilarityPostprocessor`",
    "test_stock_uses.py::test_a_relevance_can_be_cut_off",
    'needs `score="relevance"`: raw scores order the nodes of one query, and a cut-off of them says nothing',
)


@row(POST, "`KeywordNodePostprocessor`", "without spaCy, by LlamaIndex; not tried with it", "refused with words")
def _(desk: Desk) -> None:
    engine = desk.engine(node_postprocessors=[KeywordNodePostprocessor(required_keywords=["km"])])
    with patch.dict(sys.modules, {"spacy": None}), pytest.raises(ImportError, match="Spacy is not installed"):
        engine.query(QUESTION)


@row(POST, "`LongContextReorder`")
def _(desk: Desk) -> None:
    assert {item.node.node_id for item in processes(desk, LongContextReorder())} == {f"moon.md#{n}" for n in range(3)}


@row(
    POST,
    "`MetadataReplacementPostProcessor`",
    "with any key of the metadata; the node then has no span, and the next question finds the passage unchanged",
)
def _(desk: Desk) -> None:
    nodes = processes(
        desk, MetadataReplacementPostProcessor("section_path"), sees="citation: Doc: moon.md | Section: moon\n\nmoon"
    )
    assert [item.node.get_content() for item in nodes] == ["moon"] * 3
    assert hit_from_node(nodes[0]).chunk.span is None
    assert desk.retriever.retrieve(QUESTION)[0].node.get_content() == CHUNKS[1].text
    processes(desk, MetadataReplacementPostProcessor("window"))


@row(POST, "`FixedRecencyPostprocessor`", '`date_key="timestamp"`; needs pandas')
def _(desk: Desk) -> None:
    pytest.importorskip("pandas")
    assert len(processes(desk, FixedRecencyPostprocessor(date_key="timestamp", top_k=3))) == 3
    with pytest.raises(KeyError, match="date"):
        desk.engine(node_postprocessors=[FixedRecencyPostprocessor()]).query(QUESTION)


@row(POST, "`EmbeddingRecencyPostprocessor`", '`date_key="timestamp"`; needs pandas; embeds the text alone')
def _(desk: Desk) -> None:
    pytest.importorskip("pandas")
    model = MockEmbedding(4)
    dates: dict[str, Any] = {"date_key": "timestamp", "embed_model": model}
    assert len(processes(desk, EmbeddingRecencyPostprocessor(similarity_cutoff=2, **dates))) == 3
    nodes = desk.retriever.retrieve(QUESTION)
    assert len(EmbeddingRecencyPostprocessor(**dates).postprocess_nodes(nodes, query_str=QUESTION)) == 1


@row(
    POST,
    "`TimeWeightedPostprocessor`",
    "nodes are new for each question, so when one was last read is not remembered, as with a `VectorStoreIndex`; "
    "models see `__last_accessed__` but with `time_access_refresh=False`",
)
def _(desk: Desk) -> None:
    processes(desk, TimeWeightedPostprocessor(top_k=3, now=1.0, time_access_refresh=False))
    shown = CITED.replace("\n\n", "\n__last_accessed__: 1.0\n\n")
    processes(desk, TimeWeightedPostprocessor(top_k=3, now=1.0), sees=shown)
    index = VectorStoreIndex([TextNode(text="one")], embed_model=MockEmbedding(4))
    for retriever in (desk.retriever, index.as_retriever()):
        weighted = TimeWeightedPostprocessor(now=1.0)
        read = weighted.postprocess_nodes(retriever.retrieve(QUESTION))
        assert read[0].node.metadata["__last_accessed__"] == 1.0
        assert not any("__last_accessed__" in item.node.metadata for item in retriever.retrieve(QUESTION))


def by_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


@row(
    POST,
    "`SentenceEmbeddingOptimizer`",
    "cuts what the model would see, so the citation becomes a sentence of the text; `llm_metadata=[]` keeps it out",
)
def _(desk: Desk) -> None:
    optimizer = SentenceEmbeddingOptimizer(
        embed_model=MockEmbedding(4), tokenizer_fn=by_lines, percentile_cutoff=1.0, context_before=0, context_after=0
    )
    nodes = processes(desk, optimizer, sees="384,400 km away.")
    assert hit_from_node(nodes[0]).chunk.span is None
    assert nodes[0].node.get_content().startswith("citation: ")
    bare = RetrievalCoreRetriever(desk.library.pipeline, top_k=1, llm_metadata=[])
    kept = optimizer.postprocess_nodes(bare.retrieve(QUESTION), query_str=QUESTION)
    assert [item.node.get_content() for item in kept] == ["The moon is 384,400 km away."]


@row(POST, "`LLMRerank`", "shows the model the text alone; the score is its grade")
def _(desk: Desk) -> None:
    desk.replies["relevance score"] = "Doc: 2, Relevance: 9\nDoc: 1, Relevance: 4"
    reranker = LLMRerank(llm=desk.llm, top_n=2)
    nodes = processes(desk, reranker)
    assert [(item.node.node_id, item.score) for item in nodes] == [("moon.md#0", 9.0), ("moon.md#1", 4.0)]
    assert cast("PassageNode", nodes[1].node).scores["final"] == desk.retriever.retrieve(QUESTION)[0].score


@row(POST, "`StructuredLLMRerank`", "as `LLMRerank`")
def _(desk: Desk) -> None:
    grades = [{"document_number": 2, "relevance": 9}, {"document_number": 1, "relevance": 4}]
    llm = Caller({"DocumentRelevanceList": {"documents": grades}})
    nodes = processes(desk, StructuredLLMRerank(llm=llm, top_n=2))
    assert [(item.node.node_id, item.score) for item in nodes] == [("moon.md#0", 9), ("moon.md#1", 4)]


@row(POST, "`RankGPTRerank`", "changes the order, and not the scores")
def _(desk: Desk) -> None:
    desk.replies["RankGPT"] = "[3] > [1] > [2]"
    nodes = processes(desk, RankGPTRerank(llm=desk.llm, top_n=2))
    assert [item.node.node_id for item in nodes] == ["moon.md#2", "moon.md#1"]


@row(
    POST,
    "`SentenceTransformerRerank`",
    "without sentence-transformers, by LlamaIndex; not tried with it",
    "refused with words",
)
def _(_: Desk) -> None:
    missing = patch.dict(sys.modules, {"sentence_transformers": None})
    with missing, pytest.raises(ImportError, match="sentence-transformers"):
        SentenceTransformerRerank()


@row(POST, "`PrevNextNodePostprocessor`", "the document store must have the passages; a missing one raises")
def _(desk: Desk) -> None:
    desk.retriever = desk.retriever.bound(top_k=1)
    for mode, expected in (("next", [1, 2]), ("previous", [0, 1]), ("both", [0, 1, 2])):
        nodes = processes(desk, PrevNextNodePostprocessor(docstore=stored(), mode=mode))
        assert [item.node.node_id for item in nodes] == [f"moon.md#{n}" for n in expected]
    with pytest.raises(ValueError, match=r"moon\.md#2 not found"):
        desk.engine(node_postprocessors=[PrevNextNodePostprocessor(docstore=SimpleDocumentStore())]).query(QUESTION)


@row(POST, "`AutoPrevNextNodePostprocessor`", "as `PrevNextNodePostprocessor`")
def _(desk: Desk) -> None:
    desk.retriever = desk.retriever.bound(top_k=1)
    desk.replies["PREVIOUS or NEXT or NONE"] = "NEXT"
    nodes = processes(desk, AutoPrevNextNodePostprocessor(docstore=stored(), llm=desk.llm))
    assert [item.node.node_id for item in nodes] == ["moon.md#1", "moon.md#2"]


@row(POST, "`PIINodePostprocessor`", "the model sees the citation too; the node then has no span")
def _(desk: Desk) -> None:
    desk.replies["PII"] = 'The moon is [NUMBER1] km away.\nOutput Mapping:\n{"NUMBER1": "384,400"}'
    nodes = processes(desk, PIINodePostprocessor(llm=desk.llm), sees="The moon is [NUMBER1] km away.")
    assert hit_from_node(nodes[0]).chunk.span is None


elsewhere(POST, "our own, beside these", "test_query_engine.py::test_an_engine_answers_with_the_right_sources")

# --- evaluators ------------------------------------------------------------------------------------------------------

EVALUATORS = "Evaluators"


@row(
    EVALUATORS,
    "`RetrieverEvaluator`, `MultiModalRetrieverEvaluator`",
    "`hit_rate`, `mrr`, `precision`, `recall`, `ap`, `ndcg`; expected ids are the chunks'",
)
def _(desk: Desk) -> None:
    names = ["hit_rate", "mrr", "precision", "recall", "ap", "ndcg"]
    evaluator: Any = RetrieverEvaluator.from_metric_names(names, retriever=desk.retriever)
    images = MultiModalRetrieverEvaluator.from_metric_names(names, retriever=desk.retriever)

    def check(result: Any) -> Any:
        return {name: round(value, 3) for name, value in result.metric_vals_dict.items()}

    expected = {"hit_rate": 1.0, "mrr": 1.0, "precision": 0.333, "recall": 1.0, "ap": 1.0, "ndcg": 1.0}
    again_and_again(
        lambda: evaluator.evaluate(QUESTION, [EXPECTED]),
        lambda: evaluator.aevaluate(QUESTION, [EXPECTED]),
        check,
    )
    assert check(evaluator.evaluate(QUESTION, [EXPECTED])) == check(images.evaluate(QUESTION, [EXPECTED])) == expected
    assert check(evaluator.evaluate(QUESTION, ["moon.md#0"]))["mrr"] == 0.5


JUDGES: dict[str, tuple[Callable[[Desk], Any], str, str, dict[str, Any]]] = {
    "FaithfulnessEvaluator": (
        lambda desk: FaithfulnessEvaluator(llm=desk.llm),
        "is supported by the context",
        "YES",
        {},
    ),
    "RelevancyEvaluator": (lambda desk: RelevancyEvaluator(llm=desk.llm), RELEVANT, "YES", {}),
    "ContextRelevancyEvaluator": (
        lambda desk: ContextRelevancyEvaluator(llm=desk.llm),
        "retrieved context",
        "Fits.\n[RESULT] 4",
        {},
    ),
    "AnswerRelevancyEvaluator": (
        lambda desk: AnswerRelevancyEvaluator(llm=desk.llm),
        "relevant to the query",
        "Fits.\n[RESULT] 2",
        {},
    ),
    "CorrectnessEvaluator": (
        lambda desk: CorrectnessEvaluator(llm=desk.llm),
        "expert evaluation system",
        "5.0\nRight.",
        {"reference": ANSWER},
    ),
    "GuidelineEvaluator": (
        lambda desk: GuidelineEvaluator(llm=desk.llm),
        "guidelines",
        '{"passing": true, "feedback": "fine"}',
        {},
    ),
    "SemanticSimilarityEvaluator": (
        lambda _: SemanticSimilarityEvaluator(embed_model=MockEmbedding(4)),
        "never asked",
        "",
        {"reference": ANSWER},
    ),
    "PairwiseComparisonEvaluator": (
        lambda desk: PairwiseComparisonEvaluator(llm=desk.llm, enforce_consensus=False),
        "impartial judge",
        "[[A]]",
        {"second_response": "far", "reference": ANSWER},
    ),
}
SHOWN = {"FaithfulnessEvaluator", "RelevancyEvaluator", "ContextRelevancyEvaluator"}
for _name in JUDGES:

    @row(
        EVALUATORS,
        f"`{_name}`",
        "judges the passages' texts, without citations" if _name in SHOWN else "judges the answer",
    )
    def _(desk: Desk, name: str = _name) -> None:
        make, marker, verdict, more = JUDGES[name]
        response: Any = desk.engine().query(QUESTION)
        desk.replies[marker] = verdict
        desk.llm.prompts.clear()
        result = make(desk).evaluate_response(QUESTION, response, **more)
        assert result.passing is not False
        assert not result.invalid_result
        assert name == "GuidelineEvaluator" or result.score
        assert desk.saw("The moon is 384,400 km away.") == (name in SHOWN)
        right(response.source_nodes)


@row(EVALUATORS, "`BatchEvalRunner`", "asks several questions at once")
def _(desk: Desk) -> None:
    desk.replies["is supported by the context"] = "YES"
    desk.replies[RELEVANT] = "YES"
    judges = {"faithful": FaithfulnessEvaluator(llm=desk.llm), "relevant": RelevancyEvaluator(llm=desk.llm)}
    questions = [f"{QUESTION}, {number}" for number in range(3)]

    async def ask() -> Any:
        return await BatchEvalRunner(cast("Any", judges), workers=3).aevaluate_queries(desk.engine(), queries=questions)

    results = asyncio.run(ask())
    assert {name: [result.passing for result in of] for name, of in results.items()} == {
        "faithful": [True] * 3,
        "relevant": [True] * 3,
    }


# --- pipelines -------------------------------------------------------------------------------------------------------

PIPELINES = "Pipelines and workflows"


@row(
    PIPELINES,
    "`QueryPipeline`",
    "LlamaIndex 0.14 has none any more; its `Workflow` is the next row but one",
    "refused with words",
)
def _(desk: Desk) -> None:
    with pytest.raises(ModuleNotFoundError, match="query_pipeline"):
        __import__("llama_index.core.query_pipeline")


@row(
    PIPELINES,
    "`IngestionPipeline` over our nodes",
    "splitters and extractors; pieces of passages have no span, and what is added to the metadata is seen by models",
)
def _(desk: Desk) -> None:
    desk.replies["keywords"] = "moon, distance"
    splitter = SentenceSplitter(chunk_size=60, chunk_overlap=0, include_prev_next_rel=False)
    pipeline = IngestionPipeline(transformations=[splitter, KeywordExtractor(llm=desk.llm), MockEmbedding(4)])
    nodes = [item.node for item in desk.retriever.retrieve(QUESTION)]
    before = [node.model_dump() for node in nodes]
    made = pipeline.run(nodes=nodes)
    assert [node.get_content() for node in made] == [node.get_content() for node in nodes]
    assert {node.metadata["excerpt_keywords"] for node in made} == {"moon, distance"}
    assert all(node.embedding for node in made)
    assert hit_from_node(NodeWithScore(node=made[0])).chunk.document_id == "moon.md"
    assert [node.model_dump() for node in nodes] == before
    assert [node.get_content() for node in pipeline.run(nodes=nodes)] == [node.get_content() for node in made]


class Retrieved(Event):
    nodes: list[NodeWithScore]


class Rag(Workflow):
    """A workflow with a retrieve step, as in LlamaIndex's documentation."""

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self._desk = desk

    @step
    async def retrieve(self, ctx: Context, ev: StartEvent) -> Retrieved:
        nodes = await self._desk.retriever.aretrieve(ev.question)
        await ctx.store.set("passages", [item.node for item in nodes])
        return Retrieved(nodes=nodes)

    @step
    async def write(self, ctx: Context, ev: Retrieved) -> StopEvent:
        response = await self._desk.engine().asynthesize(QueryBundle(QUESTION), ev.nodes)
        return StopEvent(result=response)


@row(
    PIPELINES,
    "`Workflow` with a retrieve step",
    "nodes pass through events; from a context that is kept as JSON LlamaIndex reads nodes back, none with its score",
)
def _(desk: Desk) -> None:
    async def ask() -> Any:
        workflow = Rag(desk)
        context = Context(workflow)
        response = await workflow.run(question=QUESTION, ctx=context)
        assert desk.saw(CITED)
        kept = json.loads(json.dumps(context.to_dict(serializer=JsonSerializer())))
        again = Context.from_dict(workflow, kept, serializer=JsonSerializer())
        assert [node.model_dump() for node in await again.store.get("passages")] == [
            item.node.model_dump() for item in response.source_nodes
        ]
        return right(response.source_nodes)

    assert asyncio.run(ask()) == asyncio.run(ask())


# --- the table itself ------------------------------------------------------------------------------------------------


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    replies: dict[str, str] = {}

    def reply(prompt: str) -> str:
        return next((text for marker, text in replies.items() if marker in prompt), ANSWER)

    llm = Writer(reply)
    # What an engine makes without being given a model asks these.
    monkeypatch.setattr(Settings, "_llm", llm)
    monkeypatch.setattr(Settings, "_embed_model", MockEmbedding(4))
    with Library() as library, ExitStack() as afterwards:
        retriever = RetrievalCoreRetriever(library.pipeline, top_k=3).bound(filters={"kind": "moon"})
        yield Desk(library, retriever, llm, replies, afterwards)


CHECKED = [row for row in ROWS if not isinstance(row.check, str)]


# What LlamaIndex warns of is its own.
@pytest.mark.filterwarnings(
    "ignore::pydantic.warnings.PydanticDeprecationWarning",
    "ignore:asyncio_module",
    "ignore:is_running called",
    "ignore:Skipping serialization",
)
@pytest.mark.parametrize("row", CHECKED, ids=[f"{row.area}: {row.name}".replace("`", "") for row in CHECKED])
def test_row(row: Row, desk: Desk) -> None:
    assert not isinstance(row.check, str)
    row.check(desk)


@pytest.mark.parametrize("row", [row for row in ROWS if isinstance(row.check, str)], ids=lambda row: row.name)
def test_rows_of_other_files_have_their_test(row: Row) -> None:
    file, _, name = str(row.check).partition("::")
    tree = ast.parse((Path(__file__).parent / file).read_text("utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


WITHOUT: dict[str, tuple[str, ...]] = {
    "make their answer or their nodes without a retriever of yours": (
        "SimpleChatEngine", "PandasQueryEngine", "JSONalyzeQueryEngine", "CogniswitchQueryEngine",
        "PGVectorSQLQueryEngine", "DatasetGenerator", "EmptyIndexRetriever", "SQLRetriever",
    ),
    "read an index of LlamaIndex, a graph or a database": (
        "ComposableGraphQueryEngine", "KnowledgeGraphQueryEngine", "VectorIndexRetriever", "SummaryIndexRetriever",
        "SummaryIndexEmbeddingRetriever", "SummaryIndexLLMRetriever", "ListIndexRetriever",
        "ListIndexEmbeddingRetriever", "KGTableRetriever", "KnowledgeGraphRAGRetriever", "TreeAllLeafRetriever",
        "TreeSelectLeafEmbeddingRetriever", "TreeSelectLeafRetriever", "TreeRootRetriever",
        "KeywordTableSimpleRetriever", "BasePGRetriever", "PGRetriever", "CustomPGRetriever", "LLMSynonymRetriever",
        "CypherTemplateRetriever", "TextToCypherRetriever", "VectorContextRetriever",
    ),
    "find images": ("BaseImageRetriever",),
    "are other names of what is in the tables, or are built on it": (
        "NLSQLRetriever", "SQLTableRetrieverQueryEngine", "RelevanceEvaluator", "QueryResponseEvaluator",
        "ResponseEvaluator",
    ),
    "are of another package": ("BM25Retriever",),
    "need a model of transformers on this machine": ("NERPIINodePostprocessor",),
}  # fmt: skip
"""Stock classes without a row, by the reason."""
NO_ENGINES = {
    "BaseEvaluator", "BaseQueryEngine", "BaseRetrievalEvaluator", "BaseRetriever", "BaseWorkflowAgent",
    "AgentContext", "AgentInput", "AgentOutput", "AgentSetup", "AgentStream", "AgentStreamStructuredOutput",
    "DocumentWithRelevance", "EvaluationResult", "HitRate", "MRR", "QueryResponseDataset", "RetrievalEvalResult",
    "RetrievalMetricResult", "SQLParserMode", "SimpleAgentContext", "SubQuestionAnswerPair", "ToolCall",
    "ToolCallResult", "get_retrieval_results_df", "resolve_metrics",
}  # fmt: skip
"""What the same modules export beside engines: base classes, events, values and functions."""
MODULES = ("agent.workflow", "chat_engine", "evaluation", "postprocessor", "query_engine", "retrievers")


def test_every_stock_class_is_in_a_table_or_has_a_reason() -> None:
    """What LlamaIndex adds is noticed."""
    exported = {name for module in MODULES for name in import_module(f"llama_index.core.{module}").__all__}
    told = {name for names in WITHOUT.values() for name in names} | NO_ENGINES
    in_rows = set(re.findall(r"\w+", " ".join(row.name for row in ROWS)))
    assert exported - in_rows == told


def whole_page() -> str:
    where = sections(EXAMPLES)
    reasons = [
        f"- {reason}: {', '.join(linked(f'`{name}`', where) for name in names)}" for reason, names in WITHOUT.items()
    ]
    return page(HEAD, ROWS, where) + "\n## Stock classes without a row\n\nThey\n\n" + "\n".join(reasons) + "\n"


HEAD = """# LlamaIndex's engines over our retriever

Every stock query engine, chat engine, agent, retriever, postprocessor, evaluator and pipeline of LlamaIndex 0.14 with a
`RetrievalCoreRetriever` where it takes a retriever, and with our nodes where it takes nodes. Names of the engines that
people pick lead to [examples](llamaindex-examples.md).

"Refused with words" raises an error that says why. For "works" the retriever is bound to a filter, and:

- **Query engines, chat engines and retrievers** are asked four times: twice synchronously, then asynchronously, then
  synchronously where an event loop runs. Each time, unless the note says otherwise, the expected passage is among the
  sources, none of them is outside the filter or degraded, and the language model, if one is asked to answer, sees the
  passage with its citation. Passages, scores, texts and answer are those of the first time: nothing that the engine
  does to nodes, scores or questions is seen by the next question. Streams are read once synchronously and once
  asynchronously.
- **Postprocessors** go through the same in a query engine, and once more for a question with a filter of its own.
- **Agents and tools** run twice, agents asynchronously, as they do it no other way. The tool finds the passage both
  times, and the model sees it or the answer made of it; what an agent's run leaves can be kept as JSON, of
  `CodeActAgent` not tried.
- **Evaluators** judge one answer, synchronously; `RetrieverEvaluator` asks four times, as above, and `BatchEvalRunner`
  asks three questions at once.
- **Pipelines and workflows** run twice.

The page is made of the table that the tests run through, `tests/llamaindex/test_stock_table.py`. A few rows are shown
by other tests of its folder, which ask in their own way; `elsewhere` names these.

The tables are about an index file. Over [`from_index`](llamaindex-stores.md), 64 uses of these classes are compared
with LlamaIndex's own retriever over the same index: answers, sources, scores, prompts and events are the same. They
are the response modes, streaming, structured answers, routers, sub-questions and retries; chat engines; agents and
workflows; fusion, recursion, auto-merging and routing; LlamaIndex's postprocessors, also after ours; evaluators and
`BatchEvalRunner`; ingestion with workers; and nodes that are pickled, copied or kept as JSON. The order differs in one
of them: with `HyDEQueryTransform`, `from_index` searches for each text, LlamaIndex for the mean of their embeddings.
"""
DOCS = Path(__file__).parents[2] / "docs/dev"
PAGE = DOCS / "llamaindex-engines.md"
EXAMPLES = DOCS / "llamaindex-examples.md"


def test_every_section_of_the_examples_is_linked() -> None:
    targets = {target for target in sections(EXAMPLES).values() if f"]({target})" not in PAGE.read_text("utf-8")}
    assert not targets


def test_the_page_is_this_table() -> None:
    assert PAGE.read_text("utf-8") == whole_page()


if __name__ == "__main__":
    sys.stdout.write(whole_page())
