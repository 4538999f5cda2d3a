"""An index as a function, which agents of each framework call as it is; their models follow a script."""

from __future__ import annotations

import asyncio
import inspect
import json
from typing import TYPE_CHECKING, Any, get_type_hints

import pytest

from retrieval_core import open_index, open_indexes
from retrieval_core.errors import FilterError, IndexNotFoundError, InvalidParameterError
from retrieval_core.integrations import as_tool
from support.extras import needs_tokenizer
from support.frameworks import ANSWER, QUERY, index_of_notes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from retrieval_core import Index

NAME = "search_documents"
CITED = f"[1] Doc: notes/moon.md:1\n{ANSWER}"
pytestmark = needs_tokenizer


class TestFunction:
    """The function by itself."""

    def test_frameworks_can_read_it(self, index: Index) -> None:
        """Its name is one that every provider allows; its docstring is Google's, and explains the one argument."""
        tool = as_tool(index, name="search_notes", description="Search the notes about the sky.")
        assert str(inspect.signature(tool)) == "(query: str) -> str"
        assert get_type_hints(tool) == {"query": str, "return": str}
        assert (tool.__name__, tool.__qualname__) == ("search_notes", "search_notes")
        described = inspect.getdoc(tool) or ""
        assert described.startswith("Search the notes about the sky. ")
        assert "\n\nArgs:\n    query: " in described

    def test_both_forms_return_the_passages_with_their_lines(self, index: Index) -> None:
        tool, atool = as_tool(index, top_k=1), as_tool(index, top_k=1, is_async=True)
        assert inspect.iscoroutinefunction(atool)
        text = tool(QUERY)
        assert text.endswith(CITED)
        assert asyncio.run(atool(QUERY)) == text

    def test_the_budget_holds(self, index: Index) -> None:
        """The passages are those of a context with this budget."""
        pack = index.context(QUERY, max_tokens=25)
        assert pack.token_count <= 25
        assert as_tool(index, max_tokens=25)(QUERY).endswith(pack.context_pack)
        assert len(pack.passages) < len(index.context(QUERY).passages)

    def test_a_model_cannot_leave_the_filter(self, index: Index) -> None:
        """Conditions that it writes into the query narrow the results further."""
        tool = as_tool(index, filters={"team": "day"})
        for query in (QUERY, "team:night moon", "path:notes/moon.md moon", '"384,400 km" moon', "moon -sun"):
            assert ANSWER not in tool(query)
        assert "150 million" in tool("how far away is the sun")

    @pytest.mark.parametrize("query", ["", "  \n", "\ud800"])
    def test_a_model_learns_what_is_wrong_with_its_query(self, index: Index, query: str) -> None:
        """An error would end the whole run of an agent."""
        expected = "Error: the query is empty" if not query.strip() else ""
        assert as_tool(index)(query).startswith(expected)
        assert asyncio.run(as_tool(index, is_async=True)(query)).startswith(expected)

    def test_a_model_learns_that_there_is_nothing(self, index: Index) -> None:
        assert as_tool(index, filters={"team": "none"})(QUERY) == "nothing was found"

    def test_it_takes_a_path_and_several_indexes(self, tmp_path: Path) -> None:
        index_of_notes(tmp_path).close()
        path = tmp_path / "notes.db"
        assert CITED in as_tool(path)(QUERY)
        assert CITED in as_tool(str(path))(QUERY)
        with open_indexes({"sky": open_index(path)}) as several:
            assert "Doc: sky:notes/moon.md:1" in as_tool(several)(QUERY)
        with pytest.raises(IndexNotFoundError):
            as_tool(tmp_path / "other.db")(QUERY)

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({"index": 3}, InvalidParameterError),
            ({"name": "search notes"}, InvalidParameterError),
            ({"filters": {"year": {"$near": 3}}}, FilterError),
            ({"max_tokens": 0}, InvalidParameterError),
            ({"top_k": 0}, InvalidParameterError),
            ({"mode": "mmr"}, InvalidParameterError),
            ({"mod": "keyword"}, TypeError),
        ],
    )
    def test_wrong_arguments_are_refused_at_once(
        self, index: Index, arguments: dict[str, Any], error: type[Exception]
    ) -> None:
        given: dict[str, Any] = {"index": index, **arguments}
        with pytest.raises(error):
            as_tool(**given)


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def tool(index: Index, request: pytest.FixtureRequest) -> Callable[..., Any]:
    """The function in both forms."""
    return as_tool(index, is_async=True) if request.param else as_tool(index)


def test_pydantic_ai(tool: Callable[..., Any]) -> None:
    """The docstring describes the tool and its argument; the model gets the text."""
    agents = pytest.importorskip("pydantic_ai")
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        (offered,) = info.function_tools
        assert (offered.name, offered.parameters_json_schema["required"]) == (NAME, ["query"])
        assert offered.parameters_json_schema["properties"]["query"]["description"].startswith("A question")
        assert (offered.description or "").startswith("Search the documents")
        last = messages[-1].parts[-1]
        if last.part_kind == "tool-return":
            return ModelResponse(parts=[TextPart(str(last.content))])
        return ModelResponse(parts=[ToolCallPart(NAME, {"query": QUERY})])

    agent = agents.Agent(FunctionModel(script), tools=[tool])
    assert CITED in asyncio.run(agent.run(QUERY)).output


def test_openai_agents(tool: Callable[..., Any]) -> None:
    agents: Any = pytest.importorskip("agents")
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    class Script(agents.Model):
        """A model that searches once, and then repeats what it read."""

        async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:  # noqa: A002
            last = input[-1]
            if last.get("type") == "function_call_output":
                text = ResponseOutputText(text=last["output"], type="output_text", annotations=[])
                output = ResponseOutputMessage(
                    id="1", role="assistant", status="completed", type="message", content=[text]
                )
            else:
                arguments = json.dumps({"query": QUERY})
                output = ResponseFunctionToolCall(call_id="1", name=NAME, arguments=arguments, type="function_call")
            return agents.ModelResponse(output=[output], usage=agents.Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    offered = agents.function_tool(tool)
    assert (offered.name, offered.params_json_schema["required"]) == (NAME, ["query"])
    agent = agents.Agent(name="reader", model=Script(), tools=[offered])
    assert CITED in asyncio.run(agents.Runner.run(agent, QUERY)).final_output


def test_dspy(tool: Callable[..., Any]) -> None:
    """An agent that is called synchronously needs the synchronous form."""
    dspy: Any = pytest.importorskip("dspy")
    steps = [
        {"next_thought": "search", "next_tool_name": NAME, "next_tool_args": json.dumps({"query": QUERY})},
        {"next_thought": "done", "next_tool_name": "finish", "next_tool_args": "{}"},
        {"reasoning": "read", "answer": ANSWER},
    ]
    with dspy.context(lm=dspy.utils.DummyLM(steps)):
        agent = dspy.ReAct("question -> answer", tools=[tool])
        is_async = inspect.iscoroutinefunction(tool)
        answer = asyncio.run(agent.acall(question=QUERY)) if is_async else agent(question=QUERY)
    assert CITED in answer.trajectory["observation_0"]
    assert agent.tools[NAME].args["query"]["type"] == "string"


def test_smolagents(index: Index) -> None:
    """Its tools are synchronous."""
    smolagents: Any = pytest.importorskip("smolagents")
    from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole

    class Script(smolagents.Model):
        """A model that searches once, and then repeats what it read."""

        def generate(self, messages: Any, **_: Any) -> Any:
            read = str(messages[-1].content)
            call = ("final_answer", {"answer": read}) if "Observation:" in read else (NAME, {"query": QUERY})
            function = ChatMessageToolCallFunction(name=call[0], arguments=call[1])
            calls = [ChatMessageToolCall(id="1", type="function", function=function)]
            return smolagents.ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=calls)

    offered = smolagents.tool(as_tool(index))
    assert (offered.name, offered.output_type, list(offered.inputs)) == (NAME, "string", ["query"])
    agent = smolagents.ToolCallingAgent(tools=[offered], model=Script(), verbosity_level=0)
    assert "384,400 km" in agent.run(QUERY)


def test_langchain(tool: Callable[..., Any]) -> None:
    tools: Any = pytest.importorskip("langchain_core.tools")
    offered = tools.tool(tool, parse_docstring=True)
    assert (offered.name, list(offered.args)) == (NAME, ["query"])
    assert CITED in asyncio.run(offered.ainvoke({"query": QUERY}))


def test_langgraph(tool: Callable[..., Any]) -> None:
    """An agent calls both forms on an event loop, and the synchronous one without a loop, too."""
    agents: Any = pytest.importorskip("langchain.agents")
    from langchain_core.language_models import FakeMessagesListChatModel
    from langchain_core.messages import AIMessage, BaseMessage

    class Script(FakeMessagesListChatModel):
        """A model that searches once."""

        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

    call = {"name": NAME, "args": {"query": QUERY}, "id": "1"}
    steps: list[BaseMessage] = [AIMessage("", tool_calls=[call]), AIMessage("done")]
    agent = agents.create_agent(Script(responses=steps), tools=[tool])
    asked = {"messages": [("human", QUERY)]}
    states = [asyncio.run(agent.ainvoke(asked))]
    if not inspect.iscoroutinefunction(tool):
        states.append(agent.invoke(asked))
    for state in states:
        assert CITED in state["messages"][2].content


def test_claude_agent_sdk(index: Index) -> None:
    """It takes functions of one dictionary; the Claude Code that comes with it isn't started."""
    sdk: Any = pytest.importorskip("claude_agent_sdk")
    search: Any = as_tool(index, is_async=True)

    @sdk.tool(search.__name__, search.__doc__, {"query": str})
    async def search_tool(arguments: dict[str, str]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": await search(**arguments)}]}

    assert sdk.create_sdk_mcp_server("notes", tools=[search_tool])["name"] == "notes"
    (content,) = asyncio.run(search_tool.handler({"query": QUERY}))["content"]
    assert CITED in content["text"]
