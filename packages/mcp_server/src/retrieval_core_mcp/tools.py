"""The tools ``search`` and ``fetch``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from mcp.types import CallToolResult, TextContent, Tool, ToolAnnotations

from retrieval_core.types import Degradation
from retrieval_core_mcp.answers import FetchAnswer, SearchAnswer, fetch_answer, search_answer
from retrieval_core_mcp.arguments import FetchArguments, SearchArguments, check_arguments, read_strings, shown
from retrieval_core_mcp.explain import explain, scrub
from retrieval_core_mcp.fitting import bounded, in_one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from retrieval_core.types.filters import Filter
    from retrieval_core_mcp.answers import ToolAnswer
    from retrieval_core_mcp.library import Library
    from retrieval_core_mcp.settings import ServerSettings

SEARCH = """\
Search the indexed documents for passages that answer a question, {how}. Returns passages with their sources, best \
first. {when} Ask in plain language; to read a whole passage or document, give its id to the tool fetch."""
FETCH = """\
Read one passage or one whole document by its id, as it stands in the results of the tool search. Of a long text the \
first part is returned, with next_offset, from which the next call reads on."""
ABOUT_ANYTHING = "Use this when the user asks about something that their own documents may hold."


def list_tools(settings: ServerSettings) -> tuple[Tool, ...]:
    """Return the tools as clients see them."""
    reads_only = {"read_only_hint": True, "destructive_hint": False, "idempotent_hint": True, "open_world_hint": False}
    about = settings.about
    when = f"{about} Use this when the user asks about that." if about else ABOUT_ANYTHING
    return (
        Tool(
            name="search",
            title="Search the documents",
            description=SEARCH.format(how="by words" if settings.words_only else "by meaning and by words", when=when),
            input_schema=_search_schema(settings),
            output_schema=_output_schema(SearchAnswer),
            annotations=ToolAnnotations(title="Search the documents", **reads_only),
        ),
        Tool(
            name="fetch",
            title="Read a passage or document",
            description=FETCH,
            input_schema=_input_schema(FetchArguments),
            output_schema=_output_schema(FetchAnswer),
            annotations=ToolAnnotations(title="Read a passage or document", **reads_only),
        ),
    )


async def call_tool(
    name: str,
    arguments: Mapping[str, Any],
    library: Library,
    settings: ServerSettings,
    condition: Filter | None = None,
) -> CallToolResult:
    """Call a tool; a failure is an answer too, with advice.

    Args:
        condition: What every passage must pass, whatever the arguments say.
    """
    limit = settings.max_characters
    given = read_strings(arguments)
    problem = check_arguments(name, given)
    if problem is not None:
        return _failure(problem, limit)
    try:
        answer = await (_search if name == "search" else _fetch)(given, library, settings, condition)
    except Exception as error:  # noqa: BLE001 - every request gets an answer
        return _failure(explain(error, settings.retrieval), limit)
    if isinstance(answer, str):
        return _failure(answer, limit)
    return CallToolResult(content=[TextContent(type="text", text=answer.text)], structured_content=answer.structured)


async def _search(
    arguments: Mapping[str, Any], library: Library, settings: ServerSettings, condition: Filter | None
) -> ToolAnswer | str:
    given = SearchArguments.model_validate(dict(arguments))
    mode = given.mode or ("lexical" if settings.words_only else None)
    # An empty object is how some assistants leave an argument out.
    filters = given.filters or None
    top_k = given.top_k or settings.top_k
    result = await library.search(given.query, filters, top_k=top_k, mode=mode, condition=condition)
    if not result.hits and (error := result.metadata.get("error")) is not None:
        return f"The search failed: {in_one_line(scrub(str(error), settings.retrieval), 500)}"
    if result.metadata.get("query_truncated"):
        cut = f"only its first {settings.retrieval.query.max_length:,} characters were searched for; ask shorter"
        result = replace(result, degraded=(Degradation("query", cut), *result.degraded))
    return search_answer(result, lambda text: scrub(text, settings.retrieval), settings.max_characters, filters)


async def _fetch(
    arguments: Mapping[str, Any], library: Library, settings: ServerSettings, condition: Filter | None
) -> ToolAnswer | str:
    given = FetchArguments.model_validate(dict(arguments))
    entry = await library.fetch(given.id, condition)
    if entry is None:
        return f"There is nothing with the id {shown(given.id)}. Take ids from results of the tool search, unchanged."
    if given.offset and given.offset >= len(entry.text):
        return f"offset: {shown(given.offset)} is behind the end of the text, which has {len(entry.text)} characters."
    return fetch_answer(entry, given.offset, settings.max_characters)


def _search_schema(settings: ServerSettings) -> dict[str, Any]:
    """Return the schema of a search with the configured defaults."""
    schema = _input_schema(SearchArguments)
    properties = schema["properties"]
    properties["top_k"]["default"] = settings.top_k
    if settings.words_only:  # there is nothing to choose
        del properties["mode"]
    else:
        properties["mode"]["default"] = settings.retrieval.search.mode
    return schema


def _input_schema(arguments: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of arguments, without ``null`` as a value of optional ones."""
    schema = _without_titles(arguments.model_json_schema())
    for entry in schema["properties"].values():
        if "anyOf" in entry:
            entry.update(next(kind for kind in entry.pop("anyOf") if kind != {"type": "null"}))
            entry.pop("default", None)
    schema.pop("description", None)
    return schema


def _output_schema(answer: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of an answer, without descriptions of models and defaults."""
    schema = _without_titles(answer.model_json_schema(mode="serialization"))
    for part in (schema, *schema.get("$defs", {}).values()):
        part.pop("description", None)
        for entry in part["properties"].values():
            entry.pop("default", None)
    return schema


def _without_titles(schema: Any) -> Any:
    """Return a schema without the titles that repeat the name of each field; a field named title stays."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in cast("list[Any]", schema)]
    if isinstance(schema, dict):
        entries = cast("dict[str, Any]", schema).items()
        return {key: _without_titles(item) for key, item in entries if key != "title" or not isinstance(item, str)}
    return schema


def _failure(text: str, limit: int) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=bounded(text, limit))], is_error=True)
