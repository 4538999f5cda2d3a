"""Each use of a retriever in LlamaIndex over ``from_index`` gives what it gives over LlamaIndex's own retriever.

Both search the same ``VectorStoreIndex`` by vectors. Everything that a user sees is compared: answers, sources with
their scores, prompts, events and errors. ``test_stock_table.py`` has its page, and the same classes over an index file.
"""

# LlamaIndex's own types are unknown in parts, and this file calls all of it.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core import Document, Settings, StorageContext, SummaryIndex, VectorStoreIndex
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.bridge.pydantic import BaseModel
from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler
from llama_index.core.chat_engine import (
    CondensePlusContextChatEngine,
    CondenseQuestionChatEngine,
    ContextChatEngine,
)
from llama_index.core.evaluation import (
    BatchEvalRunner,
    ContextRelevancyEvaluator,
    FaithfulnessEvaluator,
    RelevancyEvaluator,
    RetrieverEvaluator,
)
from llama_index.core.indices.query.query_transform import HyDEQueryTransform, StepDecomposeQueryTransform
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.node_parser import HierarchicalNodeParser, SentenceSplitter, get_leaf_nodes
from llama_index.core.postprocessor import (
    LLMRerank,
    LongContextReorder,
    MetadataReplacementPostProcessor,
    PrevNextNodePostprocessor,
    SentenceEmbeddingOptimizer,
    SimilarityPostprocessor,
    TimeWeightedPostprocessor,
)
from llama_index.core.query_engine import (
    CitationQueryEngine,
    FLAREInstructQueryEngine,
    MultiStepQueryEngine,
    RetrieverQueryEngine,
    RetryQueryEngine,
    RouterQueryEngine,
    SubQuestionQueryEngine,
    TransformQueryEngine,
)
from llama_index.core.query_engine.flare.answer_inserter import DirectLookaheadAnswerInserter
from llama_index.core.question_gen import LLMQuestionGenerator
from llama_index.core.response_synthesizers import ResponseMode, get_response_synthesizer
from llama_index.core.retrievers import (
    AutoMergingRetriever,
    QueryFusionRetriever,
    RecursiveRetriever,
    RouterRetriever,
    TransformRetriever,
    VectorIndexRetriever,
)
from llama_index.core.schema import IndexNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.selectors import EmbeddingSingleSelector, LLMMultiSelector, LLMSingleSelector
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.tools import QueryEngineTool, RetrieverTool
from llama_index.core.vector_stores import FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.workflow import Context, Event, JsonSerializer, StartEvent, StopEvent, Workflow, step

from llama_index.postprocessor.retrieval_core import MMRPostprocessor, TokenBudgetPostprocessor
from llama_index.retrievers.retrieval_core import RetrievalCoreRetriever
from llama_index.retrievers.retrieval_core.adapters import from_index
from support.llamaindex_engines import Caller, Writer
from support.llamaindex_models import listening
from support.stock_stores import Hashed, Limits, Splits, documents, nodes, sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

QUESTION = "how far away is the moon"
ANSWER = "384,400 km"


@dataclass
class Desk:
    """The parts of a use: a retriever, either LlamaIndex's or ours, and a model that answers by a script."""

    index: VectorStoreIndex
    make: Callable[..., Any]
    llm: Writer
    replies: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def retriever(self) -> Any:
        return self.make()

    def engine(self, **settings: Any) -> RetrieverQueryEngine:
        arguments: dict[str, Any] = {"llm": self.llm, **settings}
        return RetrieverQueryEngine.from_args(self.make(), **arguments)

    def tool(self, name: str = "search", **settings: Any) -> QueryEngineTool:
        return QueryEngineTool.from_defaults(self.engine(**settings), name=name, description=f"{name} notes")


USES: dict[str, Callable[[Desk], Any]] = {}


def use(name: str) -> Callable[[Callable[[Desk], Any]], Callable[[Desk], Any]]:
    def add(check: Callable[[Desk], Any]) -> Callable[[Desk], Any]:
        assert name not in USES
        USES[name] = check
        return check

    return add


def seen(found: Sequence[NodeWithScore]) -> list[Any]:
    """Return what a user sees of nodes; a relevance is at least 0."""
    return [
        (
            item.node.node_id,
            item.node.hash,
            type(item.node).__name__,
            None if item.score is None else round(max(0.0, item.score), 3),
            item.node.get_content(metadata_mode=MetadataMode.LLM),
            item.node.metadata,
            {kind.name: str(info) for kind, info in item.node.relationships.items()},
        )
        for item in found
    ]


def answered(response: Any) -> Any:
    return str(response), seen(response.source_nodes), response.metadata


def asked(engine: Any, question: Any = QUESTION) -> Any:
    """Ask synchronously and asynchronously."""
    return answered(engine.query(question)), answered(asyncio.run(engine.aquery(question)))


def found(retriever: Any, question: Any = QUESTION) -> Any:
    return seen(retriever.retrieve(question)), seen(asyncio.run(retriever.aretrieve(question)))


# --- query engines and response synthesizers

for _mode in ResponseMode:

    @use(f"RetrieverQueryEngine, {_mode.value}")
    def _(desk: Desk, mode: ResponseMode = _mode) -> Any:
        return asked(desk.engine(response_mode=mode)), asked(desk.engine(response_mode=mode, use_async=True))


@use("RetrieverQueryEngine, streaming")
def _(desk: Desk) -> Any:
    engine = desk.engine(streaming=True)
    response: Any = engine.query(QUESTION)
    pieces = list(response.response_gen), seen(response.source_nodes)

    async def stream() -> Any:
        answer: Any = await engine.aquery(QUESTION)
        return [piece async for piece in answer.async_response_gen()], seen(answer.source_nodes)

    return pieces, asyncio.run(stream())


class Distance(BaseModel):
    """A distance in kilometres."""

    km: int


@use("RetrieverQueryEngine, output_cls")
def _(desk: Desk) -> Any:
    llm = Caller({"Distance": {"km": 384_400}})
    response: Any = desk.engine(llm=llm, output_cls=Distance).query(QUESTION)
    return response.response.km, seen(response.source_nodes), llm.prompts


@use("RetrieverQueryEngine, filters")
def _(desk: Desk) -> Any:
    filters = MetadataFilters(filters=[MetadataFilter(key="year", value=1969, operator=FilterOperator.GTE)])
    return asked(RetrieverQueryEngine.from_args(desk.make(filters=filters), llm=desk.llm))


@use("get_response_synthesizer over the nodes")
def _(desk: Desk) -> Any:
    synthesizer = get_response_synthesizer(llm=desk.llm, response_mode=ResponseMode.TREE_SUMMARIZE)
    return answered(synthesizer.synthesize(QUESTION, nodes=desk.retriever.retrieve(QUESTION)))


@use("CitationQueryEngine")
def _(desk: Desk) -> Any:
    engine = CitationQueryEngine.from_args(
        cast("Any", None), llm=desk.llm, retriever=desk.retriever, citation_chunk_size=64, citation_chunk_overlap=0
    )
    return [
        (
            str(response),
            [(item.score and round(item.score, 3), item.node.get_content()) for item in response.source_nodes],
        )
        for response in (engine.query(QUESTION), asyncio.run(engine.aquery(QUESTION)))
    ]


@use("TransformQueryEngine, StepDecomposeQueryTransform")
def _(desk: Desk) -> Any:
    desk.replies["New question"] = f"{QUESTION}, in kilometres"
    transform = StepDecomposeQueryTransform(llm=desk.llm)
    return asked(TransformQueryEngine(desk.engine(), transform, {"prev_reasoning": ""}))


@use("MultiStepQueryEngine")
def _(desk: Desk) -> Any:
    desk.replies["New question"] = f"{QUESTION}, in kilometres"
    engine = MultiStepQueryEngine(desk.engine(), StepDecomposeQueryTransform(llm=desk.llm), num_steps=2)
    response = engine.query(QUESTION)
    # LlamaIndex makes a node of each step's answer, with an id by chance.
    steps = [item.node.get_content() for item in response.source_nodes if item.score is None]
    return str(response), steps, seen([item for item in response.source_nodes if item.score is not None])


@use("SubQuestionQueryEngine")
def _(desk: Desk) -> Any:
    questions = [{"sub_question": text, "tool_name": "search"} for text in (QUESTION, "what did Apollo bring")]
    desk.replies["relevant sub-questions"] = json.dumps({"items": questions})
    engine = SubQuestionQueryEngine.from_defaults(
        [desk.tool()],
        llm=desk.llm,
        question_gen=LLMQuestionGenerator.from_defaults(llm=desk.llm),
        use_async=False,
        verbose=False,
    )
    response = engine.query(QUESTION)
    assert len(response.source_nodes) > 2
    return str(response), [
        (item.node.get_content(), item.score) for item in response.source_nodes if item.score is None
    ]


@use("RouterQueryEngine, one choice")
def _(desk: Desk) -> Any:
    desk.replies["choices"] = json.dumps([{"choice": 2, "reason": "the moon"}])
    other = QueryEngineTool.from_defaults(SummaryIndex([]).as_query_engine(), name="other", description="nothing")
    engine = RouterQueryEngine(LLMSingleSelector.from_defaults(llm=desk.llm), [other, desk.tool()], llm=desk.llm)
    return [(str(response), seen(response.source_nodes)) for response in (engine.query(QUESTION),)]


@use("RouterQueryEngine, several choices")
def _(desk: Desk) -> Any:
    desk.replies["choices"] = json.dumps([{"choice": 1, "reason": "a"}, {"choice": 2, "reason": "b"}])
    selector = LLMMultiSelector.from_defaults(llm=desk.llm)
    response = RouterQueryEngine(selector, [desk.tool("a"), desk.tool("b")], llm=desk.llm).query(QUESTION)
    return str(response), seen(response.source_nodes)


@use("RouterQueryEngine, EmbeddingSingleSelector")
def _(desk: Desk) -> Any:
    selector = EmbeddingSingleSelector.from_defaults(embed_model=Hashed())
    response = RouterQueryEngine(selector, [desk.tool("a"), desk.tool("moon")], llm=desk.llm).query(QUESTION)
    return str(response), seen(response.source_nodes)


@use("RetryQueryEngine")
def _(desk: Desk) -> Any:
    desk.replies["evaluate if the response for the query"] = "YES"
    return answered(RetryQueryEngine(desk.engine(), RelevancyEvaluator(llm=desk.llm)).query(QUESTION))


@use("FLAREInstructQueryEngine")
def _(desk: Desk) -> Any:
    desk.replies[f"Existing Answer: The moon is {ANSWER}"] = "done"
    desk.replies["Skill 1"] = f"The moon is [Search({QUESTION})]."
    inserter = DirectLookaheadAnswerInserter()
    response = FLAREInstructQueryEngine(desk.engine(), desk.llm, lookahead_answer_inserter=inserter).query(QUESTION)
    return str(response), seen(response.source_nodes)


@use("SummaryIndex with the retriever as an object of an IndexNode")
def _(desk: Desk) -> Any:
    index = SummaryIndex(objects=[IndexNode(text="the notes", index_id="notes", obj=desk.retriever)])
    return asked(index.as_query_engine(llm=desk.llm)), found(index.as_retriever())


# --- chat engines


def memory() -> ChatMemoryBuffer:
    return ChatMemoryBuffer.from_defaults(token_limit=10_000)


CHATS: dict[str, Callable[[Desk], Any]] = {
    "ContextChatEngine": lambda desk: ContextChatEngine.from_defaults(desk.retriever, memory=memory(), llm=desk.llm),
    "CondensePlusContextChatEngine": lambda desk: CondensePlusContextChatEngine.from_defaults(
        desk.retriever, memory=memory(), llm=desk.llm
    ),
    "CondenseQuestionChatEngine": lambda desk: CondenseQuestionChatEngine.from_defaults(
        desk.engine(), memory=memory(), llm=desk.llm
    ),
}
for _name in CHATS:

    @use(_name)
    def _(desk: Desk, name: str = _name) -> Any:
        desk.replies["standalone question"] = QUESTION
        chat = CHATS[name](desk)
        responses = [chat.chat(QUESTION), chat.chat("and in miles"), asyncio.run(chat.achat(QUESTION))]
        return [(str(response), seen(response.source_nodes)) for response in responses], str(chat.chat_history)

    @use(f"{_name}, streaming")
    def _(desk: Desk, name: str = _name) -> Any:
        desk.replies["standalone question"] = QUESTION
        response = CHATS[name](desk).stream_chat(QUESTION)
        pieces = list(response.response_gen), seen(response.source_nodes)

        async def stream() -> Any:
            answer = await CHATS[name](desk).astream_chat(QUESTION)
            return [piece async for piece in answer.async_response_gen()]

        return pieces, asyncio.run(stream())


# --- agents and workflows


def ran(agent: Any) -> Any:
    async def ask() -> Any:
        context = Context(agent)
        output = await agent.run(user_msg=QUESTION, ctx=context, memory=memory())
        calls = [(call.tool_name, str(call.tool_kwargs), str(call.tool_output.content)) for call in output.tool_calls]
        assert json.dumps(context.to_dict(serializer=JsonSerializer()))
        return str(output), calls

    return asyncio.run(ask())


CALL = {"search": {"input": QUESTION}}


def retriever_tool(desk: Desk) -> RetrieverTool:
    return RetrieverTool.from_defaults(desk.retriever, name="search", description="notes")


@use("FunctionAgent, RetrieverTool")
def _(desk: Desk) -> Any:
    llm = Caller(CALL, ANSWER)
    return ran(FunctionAgent(tools=[retriever_tool(desk)], llm=llm)), llm.prompts


@use("FunctionAgent, QueryEngineTool")
def _(desk: Desk) -> Any:
    llm = Caller(CALL, ANSWER)
    return ran(FunctionAgent(tools=[desk.tool()], llm=llm)), llm.prompts


@use("ReActAgent, RetrieverTool")
def _(desk: Desk) -> Any:
    desk.replies["384,400 km"] = f"Thought: I can answer.\nAnswer: {ANSWER}"
    desk.replies["Thought:"] = f'Thought: I need a tool.\nAction: search\nAction Input: {{"input": "{QUESTION}"}}'
    return ran(ReActAgent(tools=[retriever_tool(desk)], llm=desk.llm))


@use("AgentWorkflow, one agent hands over to another")
def _(desk: Desk) -> Any:
    first = Caller({"handoff": {"to_agent": "finder", "reason": "it can search"}}, ANSWER)
    second = Caller(CALL, ANSWER)
    front = FunctionAgent(name="front", description="talks", llm=first, can_handoff_to=["finder"])
    finder = FunctionAgent(name="finder", description="searches", tools=[retriever_tool(desk)], llm=second)
    return ran(AgentWorkflow([front, finder], root_agent="front")), second.prompts


class Retrieved(Event):
    nodes: list[NodeWithScore]


class Rag(Workflow):
    """A workflow with a retrieve step, as in LlamaIndex's documentation."""

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self._retriever, self._engine = desk.retriever, desk.engine()

    @step
    async def retrieve(self, ctx: Context, ev: StartEvent) -> Retrieved:
        nodes = await self._retriever.aretrieve(ev.question)
        await ctx.store.set("nodes", [item.node for item in nodes])
        return Retrieved(nodes=nodes)

    @step
    async def write(self, ctx: Context, ev: Retrieved) -> StopEvent:
        response = await self._engine.asynthesize(QueryBundle(QUESTION), ev.nodes)
        return StopEvent(result=response)


@use("Workflow with a retrieve step, whose context is kept as JSON")
def _(desk: Desk) -> Any:
    async def ask() -> Any:
        workflow = Rag(desk)
        context = Context(workflow)
        response = await workflow.run(question=QUESTION, ctx=context)
        kept = json.loads(json.dumps(context.to_dict(serializer=JsonSerializer())))
        again = Context.from_dict(workflow, kept, serializer=JsonSerializer())
        return answered(response), [node.model_dump() for node in await again.store.get("nodes")]

    return asyncio.run(ask())


# --- retrievers

for _mode in ("reciprocal_rerank", "relative_score", "dist_based_score", "simple"):

    @use(f"QueryFusionRetriever, {_mode}")
    def _(desk: Desk, mode: Any = _mode) -> Any:
        desk.replies["search queries"] = "moon rocks\nApollo"
        other = VectorIndexRetriever(desk.index, similarity_top_k=2)
        settings: dict[str, Any] = {"llm": desk.llm, "similarity_top_k": 4, "mode": mode, "num_queries": 3}
        fused = [
            QueryFusionRetriever([desk.retriever, other], use_async=use_async, **settings)
            for use_async in (False, True)
        ]
        return [found(each) for each in fused]


@use("TransformRetriever, StepDecomposeQueryTransform")
def _(desk: Desk) -> Any:
    desk.replies["New question"] = "what did Apollo bring"
    return found(TransformRetriever(desk.retriever, StepDecomposeQueryTransform(llm=desk.llm)))


@use("TransformRetriever, HyDEQueryTransform")
def _(desk: Desk) -> Any:
    # Ours searches for each text, so the order is another one.
    retriever = TransformRetriever(desk.make(top_k=40), HyDEQueryTransform(llm=desk.llm))
    return sorted(item.node.hash for item in retriever.retrieve(QUESTION))


@use("RouterRetriever, one choice and several")
def _(desk: Desk) -> Any:
    tools = [retriever_tool(desk), retriever_tool(desk)]
    desk.replies["choices"] = json.dumps([{"choice": 1, "reason": "a"}, {"choice": 2, "reason": "b"}])
    several = found(RouterRetriever(LLMMultiSelector.from_defaults(llm=desk.llm), tools, llm=desk.llm))
    desk.replies["choices"] = json.dumps([{"choice": 1, "reason": "a"}])
    return several, found(RouterRetriever(LLMSingleSelector.from_defaults(llm=desk.llm), tools, llm=desk.llm))


@use("RecursiveRetriever, below an IndexNode and at the root")
def _(desk: Desk) -> Any:
    root = VectorStoreIndex([IndexNode(text="notes", index_id="notes")], embed_model=Hashed()).as_retriever()
    below = RecursiveRetriever("root", {"root": root, "notes": desk.retriever})
    top = desk.make(top_k=30)
    volcanoes = VectorStoreIndex([TextNode(id_="v", text="Volcanoes spit fire.")], embed_model=Hashed()).as_retriever()
    return found(below), found(RecursiveRetriever("root", {"root": top, "volcanoes": volcanoes}))


def splitter(size: int, **options: Any) -> SentenceSplitter:
    return SentenceSplitter(chunk_size=size, chunk_overlap=0, chunking_tokenizer_fn=sentences, **options)


@cache
def levels() -> tuple[StorageContext, VectorStoreIndex]:
    """Return a document store with nodes and their parents, and an index over the nodes."""
    parser = HierarchicalNodeParser.from_defaults(
        node_parser_ids=["large", "small"],
        node_parser_map={
            "large": splitter(400),
            "small": splitter(60),
        },
    )
    made = parser.get_nodes_from_documents(documents()[:1])
    store = SimpleDocumentStore()
    store.add_documents(made)
    context = StorageContext.from_defaults(docstore=store)
    return context, VectorStoreIndex(get_leaf_nodes(made), storage_context=context, embed_model=Hashed())


@use("AutoMergingRetriever over HierarchicalNodeParser")
def _(desk: Desk) -> Any:
    context, index = levels()
    return found(AutoMergingRetriever(desk.make(index=index, top_k=6), context, simple_ratio_thresh=0.3))


@use("a QueryBundle with texts to embed")
def _(desk: Desk) -> Any:
    return found(desk.retriever, QueryBundle("Apollo rocks", custom_embedding_strs=["Apollo rocks"]))


@use("empty, blank and odd questions")
def _(desk: Desk) -> Any:
    return [
        sorted(item.node.hash for item in desk.make(top_k=40).retrieve(text))
        for text in ("?", "🚀", "moon " * 300, 'a "b" OR (c', "%_\\'; DROP TABLE nodes; --")
    ]


# --- postprocessors of LlamaIndex, alone and after ours

POSTPROCESSORS: dict[str, Callable[[Desk], list[Any]]] = {
    "SimilarityPostprocessor": lambda desk: [SimilarityPostprocessor(similarity_cutoff=0.3)],
    "LongContextReorder": lambda desk: [LongContextReorder()],
    "MetadataReplacementPostProcessor": lambda desk: [MetadataReplacementPostProcessor("kind")],
    "PrevNextNodePostprocessor": lambda desk: [
        PrevNextNodePostprocessor(docstore=desk.index.docstore, num_nodes=2, mode="both")
    ],
    "LLMRerank": lambda desk: [LLMRerank(llm=desk.llm, top_n=2)],
    "SentenceEmbeddingOptimizer": lambda desk: [
        SentenceEmbeddingOptimizer(
            embed_model=Hashed(), tokenizer_fn=lambda text: text.split(". "), percentile_cutoff=0.5
        )
    ],
    "TimeWeightedPostprocessor": lambda desk: [TimeWeightedPostprocessor(now=1.0, top_k=2)],
    "our TokenBudgetPostprocessor, then SimilarityPostprocessor": lambda desk: [
        TokenBudgetPostprocessor(60, token_counter=lambda text: len(text.split())),
        SimilarityPostprocessor(similarity_cutoff=0.2),
    ],
    "our MMRPostprocessor, then LongContextReorder and LLMRerank": lambda desk: [
        MMRPostprocessor(Hashed(), top_n=3),
        LongContextReorder(),
        LLMRerank(llm=desk.llm, top_n=2),
    ],
}
for _name in POSTPROCESSORS:

    @use(_name)
    def _(desk: Desk, name: str = _name) -> Any:
        desk.replies["relevance score"] = "Doc: 2, Relevance: 9\nDoc: 1, Relevance: 4"
        made = POSTPROCESSORS[name](desk)
        response = desk.engine(node_postprocessors=made).query(QUESTION)
        for each in made:
            getattr(each, "close", lambda: None)()
        return str(response), seen(response.source_nodes)


# --- evaluation


@use("RetrieverEvaluator")
def _(desk: Desk) -> Any:
    names = ["hit_rate", "mrr", "precision", "recall", "ap", "ndcg"]
    evaluator: Any = RetrieverEvaluator.from_metric_names(names, retriever=desk.retriever)
    expected = [item.node.node_id for item in VectorIndexRetriever(desk.index, similarity_top_k=5).retrieve(QUESTION)][
        1:
    ]
    results = [evaluator.evaluate(QUESTION, expected), asyncio.run(evaluator.aevaluate(QUESTION, expected))]
    return [(result.retrieved_ids, result.retrieved_texts, result.metric_vals_dict) for result in results]


@use("FaithfulnessEvaluator, RelevancyEvaluator, ContextRelevancyEvaluator")
def _(desk: Desk) -> Any:
    desk.replies |= {"is supported by the context": "YES", "evaluate if the response": "YES", "retrieved context": "4"}
    response: Any = desk.engine().query(QUESTION)
    judges = (FaithfulnessEvaluator, RelevancyEvaluator, ContextRelevancyEvaluator)
    return [judge(llm=desk.llm).evaluate_response(QUESTION, response).model_dump() for judge in judges]


@use("BatchEvalRunner")
def _(desk: Desk) -> Any:
    desk.replies |= {"is supported by the context": "YES", "evaluate if the response": "NO"}
    judges = {"faithful": FaithfulnessEvaluator(llm=desk.llm), "relevant": RelevancyEvaluator(llm=desk.llm)}
    questions = [QUESTION, "what did Apollo bring", "refunds"]

    async def ask() -> Any:
        runner = BatchEvalRunner(cast("Any", judges), workers=3)
        return await runner.aevaluate_queries(desk.engine(), queries=questions)

    results = asyncio.run(ask())
    desk.llm.prompts.sort()  # questions are asked at once, in any order
    return {name: [result.model_dump() for result in each] for name, each in results.items()}


# --- nodes outside a query, events


@use("nodes pickled, copied, and as JSON")
def _(desk: Desk) -> Any:
    items = desk.make(top_k=40).retrieve(QUESTION)
    ways: list[Callable[[NodeWithScore], Any]] = [
        lambda item: pickle.loads(pickle.dumps(item)),
        copy.deepcopy,
        lambda item: NodeWithScore(node=type(item.node).from_json(item.node.to_json()), score=item.score),
    ]
    return [[(seen([way(item)]), item.id_, item.get_text()) for item in items] for way in ways]


@use("IngestionPipeline over the nodes")
def _(desk: Desk) -> Any:
    nodes = [item.node for item in desk.retriever.retrieve(QUESTION)]
    transformations: list[Any] = [splitter(60, include_prev_next_rel=False), Hashed()]
    made = IngestionPipeline(transformations=transformations).run(nodes=nodes)
    return [(node.get_content(), node.metadata, node.embedding, str(node.source_node)) for node in made]


@use("instrumentation: events of retrieval, with the same nodes")
def _(desk: Desk) -> Any:
    with listening() as caught:
        desk.engine().query(QUESTION)
    starts = [event.str_or_query_bundle for event in caught if isinstance(event, RetrievalStartEvent)]
    return [str(start) for start in starts], [
        seen(event.nodes) for event in caught if isinstance(event, RetrievalEndEvent)
    ]


@use("callbacks: a retrieve event, with the same nodes")
def _(desk: Desk) -> Any:
    debug = LlamaDebugHandler(print_trace_on_end=False)
    retriever = desk.make(callback_manager=CallbackManager([debug]))
    retriever.retrieve(QUESTION)
    pairs = debug.get_event_pairs(CBEventType.RETRIEVE)
    return [[sorted(str(key) for key in event.payload or {}) for event in pair] for pair in pairs], [
        seen(pair[-1].payload["nodes"]) for pair in pairs if pair[-1].payload
    ]


@use("the same question twice")
def _(desk: Desk) -> Any:
    retriever = desk.make(index=copied(desk.index))
    first = found(retriever)
    assert first == found(retriever)
    return first


def copied(index: VectorStoreIndex) -> VectorStoreIndex:
    made = [node.model_copy(deep=True) for node in index.docstore.docs.values()]
    return VectorStoreIndex(cast("Any", made), embed_model=Hashed())


@use("an index that grows and shrinks between questions of one engine")
def _(desk: Desk) -> Any:
    index = copied(desk.index)
    engine = RetrieverQueryEngine.from_args(desk.make(index=index), llm=desk.llm)
    results = [answered(engine.query(QUESTION))]
    index.insert_nodes([TextNode(id_="n", text="The moon is so far away that light takes 1.3 seconds.")])
    results.append(answered(engine.query(QUESTION)))
    index.delete_nodes(["n"], delete_from_docstore=True)
    return [*results, answered(engine.query(QUESTION))]


@use("many questions at once, from threads and on a loop")
def _(desk: Desk) -> Any:
    from concurrent.futures import ThreadPoolExecutor

    retriever = desk.retriever
    questions = [QUESTION, "Apollo rocks", "refunds for a lamp"] * 4

    async def ask() -> Any:
        return [seen(nodes) for nodes in await asyncio.gather(*(retriever.aretrieve(text) for text in questions))]

    with ThreadPoolExecutor(4) as pool:
        return asyncio.run(ask()), [seen(nodes) for nodes in pool.map(retriever.retrieve, questions)]


# --- the comparison


@pytest.fixture
def index() -> VectorStoreIndex:
    """An index without equal scores, which come in any order, and without media nodes, which engines refuse."""
    given = [node for node in nodes(Limits(lists=True, nested=True)) if isinstance(node, TextNode)]
    return VectorStoreIndex([node for node in given if not node.id_.startswith("twin b")], embed_model=Hashed())


class Closing:
    """Makes retrievers of ours, and closes their pipelines."""

    def __init__(self, index: VectorStoreIndex) -> None:
        self._index = index
        self._pipelines: list[Any] = []

    def __call__(self, top_k: int = 3, index: VectorStoreIndex | None = None, **options: Any) -> RetrievalCoreRetriever:
        self._pipelines.append(from_index(index or self._index))
        return RetrievalCoreRetriever(self._pipelines[-1], top_k=top_k, mode="dense", score="relevance", **options)

    def close(self) -> None:
        for pipeline in self._pipelines:
            pipeline.close()


@pytest.fixture
def ours(index: VectorStoreIndex) -> Iterator[Closing]:
    made = Closing(index)
    yield made
    made.close()


def desk_of(index: VectorStoreIndex, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Desk:
    replies: dict[str, str] = {}

    def reply(prompt: str) -> str:
        return next((text for marker, text in replies.items() if marker in prompt), ANSWER)

    llm = Writer(reply)
    # What an engine makes without being given a model asks these.
    monkeypatch.setattr(Settings, "_llm", llm)
    monkeypatch.setattr(Settings, "_embed_model", Hashed())
    return Desk(index, make, llm, replies)


# What LlamaIndex warns of is its own.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", USES)
def test_a_use_gives_what_it_gives_with_the_stock_retriever(
    name: str, index: VectorStoreIndex, ours: Closing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stock(top_k: int = 3, index: VectorStoreIndex = index, **options: Any) -> VectorIndexRetriever:
        return VectorIndexRetriever(index, similarity_top_k=top_k, **options)

    results: list[Any] = []
    for make in (stock, ours):
        desk = desk_of(index, make, monkeypatch)
        results.append((USES[name](desk), desk.llm.prompts))
    assert results[1] == results[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_ingestion_pipeline_with_workers_writes_what_is_found(ours: Closing) -> None:
    """Two processes split and embed; the nodes come back pickled, and both retrievers find the same."""
    pipeline = IngestionPipeline(transformations=[Splits(), Hashed()])
    made = pipeline.run(
        documents=[Document(text=item.get_content(), id_=item.id_) for item in documents()], num_workers=2
    )
    index = VectorStoreIndex(made, embed_model=Hashed())
    expected = seen(VectorIndexRetriever(index, similarity_top_k=50).retrieve(QUESTION))
    assert len(expected) == len(made) > 1
    assert seen(ours(top_k=50, index=index).retrieve(QUESTION)) == expected


def test_the_page_says_how_many_uses_there_are() -> None:
    page = Path(__file__).parents[2] / "docs/dev/llamaindex-engines.md"
    assert f"{len(USES)} uses" in page.read_text("utf-8")
