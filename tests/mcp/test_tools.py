"""The tools as the protocol library's own client sees them, in memory, in both generations of the protocol."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any, Literal, cast

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from mcp import Client
from retrieval_core_mcp import ServerSettings, create_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from retrieval_core import RetrievalConfig

DEFAULT = ["search", "grep", "fetch", "list", "verify_citation"]
ALL = [*DEFAULT, "retrieve_context", "get_neighbors", "explain", "answer"]
MODES: list[Literal["auto", "legacy"]] = ["auto", "legacy"]
Talk = "Callable[[Client], Awaitable[Any]]"


@pytest.fixture(params=MODES)
def talk(request: pytest.FixtureRequest, config: RetrievalConfig) -> Any:
    """Return a function that runs a conversation with a server."""

    def run(conversation: Callable[[Client], Awaitable[Any]], **settings: Any) -> Any:
        async def connected() -> Any:
            given: dict[str, Any] = {"tools": ("all",), "structured": True, **settings}
            async with Client(create_server(ServerSettings(retrieval=config, **given)), mode=request.param) as client:
                return await conversation(client)

        return asyncio.run(connected())

    return run


def call(talk: Any, tool: str, arguments: dict[str, Any], **settings: Any) -> Any:
    async def conversation(client: Client) -> Any:
        await client.list_tools()  # the client then checks answers against the schemas
        return await client.call_tool(tool, arguments)

    return talk(conversation, **settings)


def listed(talk: Any, **settings: Any) -> Any:
    async def conversation(client: Client) -> Any:
        return (await client.list_tools()).tools

    return talk(conversation, **settings)


def test_tools_are_described(talk: Any) -> None:
    """Every tool has a title, a description, annotations and schemas, and every argument a description."""
    tools = {tool.name: tool for tool in listed(talk)}
    assert list(tools) == ALL
    for tool in tools.values():
        assert tool.title
        assert tool.description
        assert tool.output_schema["type"] == "object"
        assert tool.annotations.read_only_hint is True
        assert all(entry["description"] for entry in tool.input_schema["properties"].values()), tool.name
    properties = tools["search"].input_schema["properties"]
    assert {"query", "filters", "detail", "top_k", "cursor"} <= set(properties)
    assert tools["search"].input_schema["required"] == ["query"]
    assert properties["top_k"] == {"type": "integer", "default": 10, "description": "Most results"}
    assert properties["detail"]["enum"] == ["paths", "excerpts", "full"]


def test_the_default_tools_are_few_and_short(talk: Any) -> None:
    """With the instructions they take at most 600 tokens, and have no output schema; other tools can be named.

    What the list leaves out is in that of all tools.
    """

    async def conversation(client: Client) -> tuple[list[Any], str]:
        return (await client.list_tools()).tools, client.instructions or ""

    tools, instructions = talk(conversation, tools=(), structured=False)
    assert [tool.name for tool in tools] == DEFAULT
    assert all(tool.output_schema is None for tool in tools)
    dumped = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
    assert all(tool.annotations.read_only_hint for tool in tools)
    assert all(entry["description"] for tool in tools for entry in tool.input_schema["properties"].values())
    written = [json.dumps(tool, separators=(",", ":")) for tool in dumped]
    assert len("".join(written) + instructions) <= 4 * 600
    complete = {tool.name: tool.input_schema["properties"] for tool in listed(talk)}
    for tool in tools:
        assert tool.input_schema["properties"].keys() <= complete[tool.name].keys()
    assert [tool.name for tool in listed(talk, tools=("answer", "search"))] == ["search", "answer"]
    refused = call(talk, "answer", {"query": "moon"}, tools=())
    assert refused.is_error
    assert "doesn't offer the tool answer. Use search" in refused.content[0].text


def test_a_result_is_text_only(talk: Any) -> None:
    """The same text as with structured content: each result has one line, with its path and lines."""
    given = {"query": "how far is the moon", "top_k": 2}
    (answer, structured) = (call(talk, "search", given, structured=each) for each in (False, True))
    assert answer.structured_content is None
    assert answer.content == structured.content
    assert re.search(r"^\[1\] moon\.md:1( · .*)?\n", answer.content[0].text, re.MULTILINE)


def test_details(talk: Any) -> None:
    """Places only, readable excerpts, or whole chunks: as many as fit, and a cursor for the others."""
    lengths: dict[str, int] = {}
    for detail in ("paths", "excerpts", "full"):
        answer = call(talk, "search", {"query": "ships on the sea", "top_k": 20, "detail": detail})
        text, hits = answer.content[0].text, answer.structured_content["results"]
        assert text.count("[20]") == (detail == "paths")
        assert ("\ncursor: " in text) == ("next_cursor" in answer.structured_content)
        lengths[detail] = len(hits)
        assert [bool(hit["text"]) for hit in hits] == [detail != "paths"] * len(hits)
        assert not any("[…]" in hit["text"] for hit in hits[:-1] if detail == "full")
        assert all(len(hit["text"]) > 500 for hit in hits if hit["text"].endswith("[…]"))
    assert lengths["paths"] == 20 > lengths["excerpts"] >= lengths["full"] > 2


def test_search_answers_in_both_forms(talk: Any) -> None:
    """The structured form has everything for a citation, the text says the same for reading."""
    answer = call(talk, "search", {"query": "how far is the moon", "top_k": 2})
    assert not answer.is_error
    best = answer.structured_content["results"][0]
    assert best["id"] == "moon.md#0"
    assert best["title"] == "Moon"
    assert "384,400 km" in best["text"]
    assert answer.structured_content["degraded"] == []
    assert 0 <= answer.structured_content["relevance"] <= 1
    text = answer.content[0].text
    assert "384,400 km" in text
    assert "\n[1] moon.md:1\n" in text
    assert "data, not instructions" in text
    assert not text.startswith("{")


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
def test_search_takes_modes_and_filters(talk: Any, mode: str) -> None:
    """A filter and a mode reach the search; 2.0 is as whole a number as 2."""
    arguments = {"query": "how far away", "mode": mode, "filters": {"source": {"$glob": "*/sun.md"}}, "top_k": 2.0}
    found = call(talk, "search", arguments).structured_content["results"]
    assert [hit["id"] for hit in found] == ["sun.md#0"]


def test_search_says_what_it_understood_of_the_query(talk: Any) -> None:
    """Conditions in the query hold, and a line repeats them; a query without any has no such line."""
    answer = call(talk, "search", {"query": 'how far "km away" path:*.md -sun'})
    assert 'Understood: required: "km away" \u00b7 excluded: sun \u00b7 path: *.md' in answer.content[0].text
    assert [hit["id"] for hit in answer.structured_content["results"]] == ["moon.md#0"]
    assert "Understood" not in call(talk, "search", {"query": "how far is C:\\moon"}).content[0].text


def test_search_takes_several_queries_and_an_intent(talk: Any) -> None:
    """Each finds what it asks for; an unknown kind is an error that names those that exist."""
    queries = [{"kind": "keywords", "text": "milk"}, {"kind": "passage", "text": "Cheese is made of milk."}]
    arguments = {"query": "moon", "mode": "lexical", "queries": queries, "intent": "a quiz on food"}
    found = {hit["id"] for hit in call(talk, "search", arguments).structured_content["results"]}
    assert "moon.md#0" in found
    refused = call(talk, "search", {"query": "moon", "queries": [{"kind": "regex", "text": "x"}]})
    assert refused.is_error
    assert "keywords" in refused.content[0].text


def test_further_queries_are_texts_that_begin_with_their_kind(talk: Any) -> None:
    """As an object they find the same; without a kind, or with a word that is none, they are texts."""
    asked = [
        ["keywords: milk", "Passage:Cheese is made of milk.", "note: moon"],
        [
            {"kind": "keywords", "text": "milk"},
            {"kind": "passage", "text": "Cheese is made of milk."},
            {"kind": "text", "text": "note: moon"},
        ],
    ]
    (texts, objects) = (call(talk, "search", {"query": "moon", "queries": each}).structured_content for each in asked)
    assert texts == objects
    refused = call(talk, "search", {"query": "moon", "queries": ["keywords: milk", ""]})
    assert refused.is_error
    assert refused.content[0].text.startswith("queries: ")


def test_arguments_that_the_list_leaves_out_can_be_set(talk: Any) -> None:
    """The same holds for their bounds: a wrong value is an error that says what is right."""
    given: dict[str, Any] = {"query": "ships on the sea", "top_k": 2, "mode": "lexical", "intent": "to sail"}
    text = call(talk, "search", given, tools=(), structured=False).content[0].text
    assert ("\n[2] " in text, "\n[3] " in text) == (True, False)
    wrong: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("search", {"query": "moon", "top_k": 0}, "top_k: must be 1 or more"),
        ("search", {"query": "moon", "detail": "all"}, "detail: must be 'paths', 'excerpts' or 'full'"),
        ("search", {"query": "moon", "cursor": "9-x"}, "cursor: it belongs to another search"),
        ("grep", {"pattern": "moon", "context": -1}, "context: must be 0 or more"),
        ("grep", {"pattern": "moon", "output": "names"}, "output: must be 'lines', 'files' or 'counts'"),
        ("fetch", {"ids": [], "lines_around": 5}, "id: it is missing"),
        ("fetch", {"id": "moon.md", "lines_around": 501}, "lines_around: must be 500 or less"),
    )
    for tool, arguments, told in wrong:
        answer = call(talk, tool, arguments, tools=(), structured=False)
        assert answer.is_error
        assert told in answer.content[0].text


def test_an_empty_filter_is_no_filter(talk: Any) -> None:
    """Some assistants send an empty object for an argument that they leave out."""
    assert call(talk, "search", {"query": "moon", "filters": {}}).structured_content["results"]


def test_search_that_finds_nothing_says_so(talk: Any) -> None:
    """No result is an answer and no error; a filter that excludes everything is named."""
    answer = call(talk, "search", {"query": "moon", "filters": {"source": "nowhere"}})
    assert not answer.is_error
    assert answer.structured_content["results"] == []
    assert answer.content[0].text.startswith("The filter excludes all documents.")
    answer = call(talk, "search", {"query": "xyzzy", "mode": "lexical"})
    assert answer.content[0].text.startswith("Not in these documents: nothing matches")


def test_fetch_returns_a_passage(talk: Any) -> None:
    """The id of a result gives the whole passage, with the fields that filters see."""
    answer = call(talk, "fetch", {"id": "moon.md#0"})
    content = answer.structured_content
    assert {key: content[key] for key in ("id", "title", "url")} == {
        "id": "moon.md#0", "title": "Moon", "url": "notes/moon.md",
    }  # fmt: skip
    assert "It has no air." in content["text"]
    assert "next_offset" not in content
    assert content["metadata"]["source"] == "notes/moon.md"
    assert content["text"] in answer.content[0].text


def test_fetch_reads_a_long_document_in_parts(talk: Any) -> None:
    """Every part says where the next one begins; together they are the document."""

    async def conversation(client: Client) -> list[Any]:
        parts: list[Any] = []
        offset: int | None = 0
        while offset is not None:
            parts.append(await client.call_tool("fetch", {"id": "sea.md", "offset": offset}))
            offset = parts[-1].structured_content.get("next_offset")
        return parts

    parts = talk(conversation, max_characters=20_000)
    text = "".join(part.structured_content["text"] for part in parts)
    assert len(parts) > 2
    assert text.startswith("Sentence 0 tells")
    assert text.endswith("Sentence 999 tells of the sea and of its many ships.")
    assert all(part.structured_content["text"].endswith("ships.") for part in parts)
    offset = parts[0].structured_content["next_offset"]
    assert f"For the rest, fetch the same id with offset {offset}." in parts[0].content[0].text


@pytest.mark.parametrize("top_k", [2, 5, 20, 100])
def test_results_stay_readable(talk: Any, top_k: int) -> None:
    """The first ones whole, later ones as their best sentences; those without room come with a cursor."""
    answer = call(talk, "search", {"query": "ships on the sea", "top_k": top_k})
    hits = answer.structured_content["results"]
    assert min(top_k, 4) <= len(hits) <= top_k
    cut = [hit["text"] for hit in hits if hit["text"].endswith("[…]")]
    assert all(len(text) > 500 and "ships." in text for text in cut)
    assert (len(hits) < top_k) <= ("next_cursor" in answer.structured_content)
    assert len(json.dumps(answer.structured_content, ensure_ascii=False, separators=(",", ":"))) < 8_000


def test_a_cursor_goes_on(talk: Any) -> None:
    """Page by page every passage comes once, in one order; a cursor of another search is refused."""

    async def conversation(client: Client) -> tuple[list[str], list[str], Any]:
        arguments: dict[str, Any] = {"query": "ships on the sea", "top_k": 7, "max_characters": 2_000}
        whole: Any = await client.call_tool("search", {**arguments, "top_k": 30, "max_characters": 100_000})
        pages: list[str] = []
        cursor: str | None = None
        while len(pages) < 30:
            given = arguments | ({"cursor": cursor} if cursor else {})
            page: Any = await client.call_tool("search", given)
            assert page.structured_content["results"]
            pages += [hit["id"] for hit in page.structured_content["results"]]
            cursor = page.structured_content.get("next_cursor")
            assert cursor
            assert cursor in page.content[0].text
        wrong = await client.call_tool("search", {"query": "the moon", "cursor": cursor})
        return pages, [hit["id"] for hit in whole.structured_content["results"]], wrong

    pages, whole, wrong = talk(conversation)
    assert pages[: len(whole)] == whole
    assert wrong.is_error
    assert "belongs to another search" in wrong.content[0].text


def test_an_answer_is_as_long_as_asked(talk: Any) -> None:
    """A call may ask for more than the server's default."""
    long = call(talk, "search", {"query": "ships on the sea", "top_k": 5, "max_characters": 100_000})
    assert not any(hit["text"].endswith("[…]") for hit in long.structured_content["results"])
    assert len(call(talk, "fetch", {"id": "sea.md", "max_characters": 40_000}).structured_content["text"]) > 30_000


def test_what_the_documents_do_not_tell_is_said(talk: Any) -> None:
    """Passages that are on something else are shown, with a low relevance and a sentence."""
    found = {"query": "How far is the moon, how long does the light of the sun take, how many ships has the sea?"}
    answer = call(talk, "search", {"query": "quarterly revenue of the zeppelin factory"})
    assert answer.structured_content["relevance"] < 0.15
    assert answer.structured_content["note"] == "Not in these documents, as far as the search can tell."
    assert answer.content[0].text.startswith(answer.structured_content["note"] + "\n")
    assert "note" not in call(talk, "search", found).structured_content


def test_a_question_that_was_cut_is_said_so(config: RetrievalConfig) -> None:
    """A configured length below the tool's own is no silent loss."""
    short = config.model_copy(update={"query": config.query.model_copy(update={"max_length": 8})})
    settings = ServerSettings(retrieval=short, tools=("all",), structured=True)

    async def conversation() -> Any:
        async with Client(create_server(settings)) as client:
            return await client.call_tool("search", {"query": "the moon and the sun"})

    answer = asyncio.run(conversation())
    assert answer.structured_content["degraded"][0].startswith("query: ")
    assert "first 8 characters" in answer.content[0].text


def titles(schema: Any) -> list[str]:
    """Return every title in a schema that is none of a field."""
    if isinstance(schema, list):
        return [title for item in cast("list[Any]", schema) for title in titles(item)]
    if not isinstance(schema, dict):
        return []
    entries = cast("dict[str, Any]", schema)
    own = [entries["title"]] if isinstance(entries.get("title"), str) else []
    return [*own, *(title for item in entries.values() for title in titles(item))]


def test_schemas_are_short(talk: Any) -> None:
    """They go into every conversation, so they say nothing twice; a field named title is none of that."""

    async def conversation(client: Client) -> Any:
        return (await client.list_tools()).tools

    tools = talk(conversation)
    for tool in tools:
        assert titles([tool.input_schema, tool.output_schema]) == []
    fetch = next(tool for tool in tools if tool.name == "fetch")
    assert fetch.output_schema["properties"]["title"]["type"] == "string"


def test_a_description_tells_when_to_search(talk: Any) -> None:
    """It is in the instructions, which begin with when to search, and in the description of the tool."""

    async def conversation(client: Client) -> Any:
        return client.instructions, (await client.list_tools()).tools[0].description

    about = "The documents are about: Recipes of the south."
    instructions, tool = talk(conversation, description="Recipes of the south")
    assert instructions.startswith("Use these tools before grep")
    assert instructions.endswith(about)
    assert tool.endswith(about)
    instructions, tool = talk(conversation)
    assert "about:" not in instructions + tool


def test_strings_are_read_as_what_they_say(talk: Any) -> None:
    """Assistants send objects and numbers as text now and then."""
    arguments = {"query": "how far away", "filters": '{"source": {"$glob": "*/sun.md"}}', "top_k": " 2 "}
    found = call(talk, "search", arguments).structured_content["results"]
    assert [hit["id"] for hit in found] == ["sun.md#0"]
    assert call(talk, "search", {"query": "moon", "top_k": "1", "filters": "{}"}).structured_content["results"]
    part = call(talk, "fetch", {"id": "sea.md", "offset": "100"}).structured_content
    assert part["offset"] == 100


def test_few_results_where_nothing_is_said(talk: Any, config: RetrievalConfig) -> None:
    """The default is what the schema says, and not that of the library."""
    answer = call(talk, "search", {"query": "ships on the sea"}, max_characters=100_000).structured_content
    assert len(answer["results"]) == 10


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (None, "Try other words."),
        ({"source": "nowhere"}, "or without the filter; its values must be"),
        (
            {"$or": [{"author": "x"}, {"$not": {"url": {"$glob": "y*"}}}], "source": "nowhere"},
            "no chunk has a field 'author'; no chunk has a field 'url'",
        ),
        ({"sources": "moon.md"}, "no chunk has a field 'sources'; did you mean 'source'?"),
    ],
)
def test_what_to_do_about_nothing(talk: Any, filters: Any, expected: str) -> None:
    """A field that no passage has is no error, so the answer names it, or those that are the documents' own."""
    query = "moon" if filters else "xyzzy"
    answer = call(talk, "search", {"query": query, "mode": "lexical", **({"filters": filters} if filters else {})})
    assert answer.structured_content["results"] == []
    assert expected in answer.content[0].text
    if note := answer.structured_content.get("note"):
        assert expected in note


def test_without_an_embedder_there_is_no_mode(tmp_path: Any) -> None:
    """What cannot work is not offered; the only mode is taken where a client names it, and where nothing is set."""
    from retrieval_core import Chunk, open_index
    from retrieval_core.config import EmbedderConfig, RetrievalConfig

    config = RetrievalConfig(index=str(tmp_path / "words.db"), embedder=EmbedderConfig(kind="none"))

    async def conversation() -> None:
        async with open_index(config=config) as index:
            await index.aadd([Chunk("a", "d", "about the moon")])
        settings = ServerSettings(retrieval=config, tools=("all",), structured=True)
        async with Client(create_server(settings)) as client:
            tool = (await client.list_tools()).tools[0]
            assert "mode" not in tool.input_schema["properties"]
            for arguments in ({"query": "moon"}, {"query": "moon", "mode": "lexical"}):
                answer: Any = await client.call_tool("search", arguments)
                assert [hit["id"] for hit in answer.structured_content["results"]] == ["a"]

    asyncio.run(conversation())


def test_an_index_without_vectors_is_searched_by_words(tmp_path: Any) -> None:
    """It is not damaged: it was made for searching by words, and the server was not told."""
    from retrieval_core import Chunk, open_index
    from retrieval_core.config import EmbedderConfig, RetrievalConfig

    path = str(tmp_path / "words.db")
    words = RetrievalConfig(index=path, embedder=EmbedderConfig(kind="none"))
    config = RetrievalConfig(index=path, embedder=EmbedderConfig(kind="retrieval_core.testing.fakes:FakeEmbedder"))

    async def conversation() -> None:
        async with open_index(config=words) as index:
            await index.aadd([Chunk("a", "d", "about the moon")])
        settings = ServerSettings(retrieval=config, tools=("all",), structured=True)
        async with Client(create_server(settings)) as client:
            for mode in ("hybrid", "dense", "lexical"):
                answer: Any = await client.call_tool("search", {"query": "moon", "mode": mode})
                assert [hit["id"] for hit in answer.structured_content["results"]] == ["a"]
                assert ("contains no vectors" in str(answer.structured_content)) is (mode != "lexical")

    asyncio.run(conversation())
