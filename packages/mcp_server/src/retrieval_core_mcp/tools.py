"""The two tools: what they take, how that is checked, and what they do."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from mcp.types import CallToolResult, TextContent, Tool, ToolAnnotations
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from retrieval_core.types import Degradation
from retrieval_core_mcp.answers import FetchAnswer, SearchAnswer, fetch_answer, search_answer
from retrieval_core_mcp.explain import explain, scrub
from retrieval_core_mcp.fitting import has_lone_surrogate, in_one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

    from retrieval_core_mcp.answers import Answer
    from retrieval_core_mcp.library import Library
    from retrieval_core_mcp.settings import ServerSettings

MOST_RESULTS = 100
LONGEST_QUERY = 10_000
LONGEST_ID = 2_000

SEARCH = """\
Search the indexed documents for passages that answer a question, by meaning and by words. Returns passages with their \
sources, best first. Ask in plain language; to read a whole passage or document, give its id to the tool fetch."""
FETCH = """\
Read one passage or one whole document by its id, as it stands in the results of the tool search. Of a long text the \
first part is returned, with next_offset, from which the next call reads on."""


def _whole(value: object) -> object:
    """JSON knows one kind of number: 5.0 is as whole as 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class _Arguments(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class SearchArguments(_Arguments):
    """Arguments of the tool search."""

    query: Annotated[str, Field(min_length=1, max_length=LONGEST_QUERY, description="The question, in plain language")]
    top_k: Annotated[
        Annotated[int, Field(ge=1, le=MOST_RESULTS), BeforeValidator(_whole)] | None,
        Field(description="The most results"),
    ] = None
    mode: Annotated[
        Literal["hybrid", "dense", "lexical"] | None,
        Field(description="By meaning (dense), by words (lexical), or both (hybrid)"),
    ] = None
    filters: Annotated[
        dict[str, Any] | None,
        Field(
            description="What every passage must pass, by fields of its metadata, such as "
            '{"year": {"$gte": 2020}, "source": {"$glob": "guides/*"}}. Operators: $eq $ne $in $nin $gt $gte $lt $lte '
            "$contains $text $glob $exists $and $or $not"
        ),
    ] = None


class FetchArguments(_Arguments):
    """Arguments of the tool fetch."""

    id: Annotated[
        str, Field(min_length=1, max_length=LONGEST_ID, description="The id of a search result, or of a document")
    ]
    offset: Annotated[
        int,
        Field(ge=0, description="Where to begin, in characters of the text"),
        BeforeValidator(_whole),
    ] = 0


ARGUMENTS: Mapping[str, type[_Arguments]] = {"search": SearchArguments, "fetch": FetchArguments}
"""What each tool takes, by its name."""


@cache
def list_tools() -> tuple[Tool, ...]:
    """Return the tools as clients see them."""
    reads_only = {"read_only_hint": True, "destructive_hint": False, "idempotent_hint": True, "open_world_hint": False}
    return (
        Tool(
            name="search",
            title="Search the documents",
            description=SEARCH,
            input_schema=_input_schema(SearchArguments),
            output_schema=SearchAnswer.model_json_schema(mode="serialization"),
            annotations=ToolAnnotations(title="Search the documents", **reads_only),
        ),
        Tool(
            name="fetch",
            title="Read a passage or document",
            description=FETCH,
            input_schema=_input_schema(FetchArguments),
            output_schema=FetchAnswer.model_json_schema(mode="serialization"),
            annotations=ToolAnnotations(title="Read a passage or document", **reads_only),
        ),
    )


async def call_tool(
    name: str, arguments: Mapping[str, Any], library: Library, settings: ServerSettings
) -> CallToolResult:
    """Call a tool; whatever goes wrong is an answer too, which says what to do."""
    problem = check_arguments(name, arguments)
    if problem is not None:
        return _failure(problem)
    try:
        answer = await (_search if name == "search" else _fetch)(arguments, library, settings)
    except Exception as error:  # noqa: BLE001 - every request gets an answer
        return _failure(explain(error, settings.retrieval))
    if isinstance(answer, str):
        return _failure(answer)
    return CallToolResult(content=[TextContent(type="text", text=answer.text)], structured_content=answer.structured)


def check_arguments(name: str, arguments: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a call, one line for each thing; ``None`` where nothing is."""
    if name not in ARGUMENTS:
        near = get_close_matches(name, ARGUMENTS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        return f"There is no tool {_shown(name)}.{hint} The tools are {' and '.join(ARGUMENTS)}."
    broken = [key for key, value in arguments.items() if has_lone_surrogate(key) or has_lone_surrogate(value)]
    if broken:
        names = ", ".join(in_one_line(key, 60) for key in broken)
        return f"{names}: the text holds half of a surrogate pair, which is no character. Send it without that half."
    try:
        ARGUMENTS[name].model_validate(dict(arguments))
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        return "\n".join(dict.fromkeys(_describe(name, detail) for detail in details[:10]))
    query = arguments.get("query")
    if isinstance(query, str) and not query.strip():
        return "query: it is empty. Ask for something, in plain language."
    return None


async def _search(arguments: Mapping[str, Any], library: Library, settings: ServerSettings) -> Answer | str:
    given = SearchArguments.model_validate(dict(arguments))
    # An empty object is how some assistants leave an argument out.
    result = await library.search(given.query, given.filters or None, top_k=given.top_k, mode=given.mode)
    if not result.hits and (error := result.metadata.get("error")) is not None:
        return f"The search failed: {in_one_line(scrub(str(error), settings.retrieval), 500)}"
    if result.metadata.get("query_truncated"):
        cut = f"only its first {settings.retrieval.query.max_length:,} characters were searched for; ask shorter"
        result = replace(result, degraded=(Degradation("query", cut), *result.degraded))
    return search_answer(result, lambda text: scrub(text, settings.retrieval), settings.max_characters)


async def _fetch(arguments: Mapping[str, Any], library: Library, settings: ServerSettings) -> Answer | str:
    given = FetchArguments.model_validate(dict(arguments))
    entry = await library.fetch(given.id)
    if entry is None:
        return f"There is nothing with the id {_shown(given.id)}. Take ids from results of the tool search, unchanged."
    if given.offset and given.offset >= len(entry.text):
        return f"offset: {given.offset} is behind the end of the text, which has {len(entry.text)} characters."
    return fetch_answer(entry, given.offset, settings.max_characters)


def _input_schema(arguments: type[_Arguments]) -> dict[str, Any]:
    """Return the schema of arguments, where one that may be left out need not be ``null`` instead."""
    schema = arguments.model_json_schema()
    for entry in schema["properties"].values():
        entry.pop("title", None)
        if "anyOf" in entry:
            entry.update(next(kind for kind in entry.pop("anyOf") if kind != {"type": "null"}))
            entry.pop("default", None)
    schema.pop("description", None)
    return schema


def _describe(tool: str, detail: ErrorDetails) -> str:
    name = in_one_line(str(detail["loc"][0]), 60)
    valid = list(ARGUMENTS[tool].model_fields)
    if detail["type"] == "extra_forbidden":
        near = get_close_matches(name.lower(), valid, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]}?" if near else ""
        return f"{name}: the tool {tool} has no such argument.{hint} It takes {', '.join(valid)}."
    value: object = detail["input"]
    match detail["type"]:
        case "missing":
            return f"{name}: it is missing; the tool {tool} needs it."
        case "string_too_long":
            most = LONGEST_QUERY if name == "query" else LONGEST_ID
            given = f"{len(value):,}" if isinstance(value, str) else "too many"
            return f"{name}: it has {given} characters, and at most {most:,} are allowed. Send a shorter one."
        case "string_too_short":
            return f"{name}: it is empty. " + ("Ask for something." if name == "query" else "Give the id of a result.")
        case "dict_type":
            return f'{name}: give a JSON object, for instance {{"year": {{"$gte": 2020}}}}, and not {_shown(value)}.'
        case _:
            return f"{name}: {detail['msg']}; {_shown(value)} was given."


def _shown(value: object) -> str:
    return in_one_line(value if isinstance(value, str) and value else repr(value)[:200], 80)


def _failure(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)
