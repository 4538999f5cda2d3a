"""The list of the tools, and calls of them; a failure is an answer too, with advice."""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast

from mcp.types import CallToolResult, TextContent, Tool, ToolAnnotations

from retrieval_core_mcp.explain import explain
from retrieval_core_mcp.fitting import bounded
from retrieval_core_mcp.tools import (
    answering,
    citation,
    context,
    explaining,
    fetch,
    indexes,
    neighbors,
    search,
    writing,
)
from retrieval_core_mcp.tools.arguments import INDEX, index_named, read_arguments, shown
from retrieval_core_mcp.tools.tool import LONGEST_ID, ToolCall, ToolFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic import BaseModel

    from retrieval_core.types.filters import Filter
    from retrieval_core_mcp.library import Library
    from retrieval_core_mcp.settings import ServerSettings
    from retrieval_core_mcp.tools.tool import DeclaredTool, ToolAnswer

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
"""What the other hints say is of tools that write."""
WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)
ABOUT_ANYTHING = "Use this when the user asks about something that their own documents may hold."


class Tools:
    """The tools of a server.

    Args:
        libraries: The indexes by name; where there are several, each call names one.
    """

    def __init__(self, settings: ServerSettings, libraries: Mapping[str, Library]) -> None:
        self._settings = settings
        self._libraries = libraries
        self._tools = _declared(settings)

    def list(self) -> list[Tool]:
        """Return the tools as clients see them."""
        return [_listed(tool, self._settings, tuple(self._libraries)) for tool in self._tools.values()]

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        condition: Filter | None = None,
        *,
        as_json: bool = False,
        may_write: bool = True,
        step: Callable[[str], None],
    ) -> CallToolResult:
        """Call a tool.

        Args:
            condition: What every passage must pass, whatever the arguments say.
            as_json: Whether the text of the answer is its structured content as JSON.
            may_write: Whether the caller is allowed to, where the server may.
            step: Is told what has ended of the work, from any thread.
        """
        limit, config = self._settings.max_characters, self._settings.retrieval
        if (tool := self._tools.get(name)) is None:
            return _failed(_unknown(name, self._tools), limit)
        try:
            given = dict(arguments)
            asked = next(iter(self._libraries))
            if len(self._libraries) > 1 and tool is not indexes.LIST:
                asked = index_named(given.pop(INDEX, None), self._libraries)
            library = self._libraries[asked]
            config = library.settings.retrieval
            read = read_arguments(name, tool.arguments, given, self._libraries)
            with library.listening(step):
                call = ToolCall(read, library, self._libraries, asked, condition, as_json, step, may_write)
                answer = await tool.run(call)
        except ToolFailure as failure:
            return _failed(str(failure), limit)
        except Exception as error:  # noqa: BLE001 - every request gets an answer
            return _failed(explain(error, config), limit)
        return _result(answer, as_json=as_json)


def _declared(settings: ServerSettings) -> dict[str, DeclaredTool]:
    about = settings.about
    when = f"{about} Use this when the user asks about that." if about else ABOUT_ANYTHING
    how = "with keyword search" if settings.words_only else "with hybrid search"
    tools = (
        search.declared(when, how),
        fetch.TOOL,
        context.TOOL,
        neighbors.TOOL,
        explaining.TOOL,
        indexes.LIST,
        indexes.DESCRIBE,
        citation.TOOL,
        answering.TOOL,
        *((writing.INDEX, writing.REMOVE) if settings.allow_writes else ()),
    )
    return {tool.name: tool for tool in tools}


def _result(answer: ToolAnswer, *, as_json: bool) -> CallToolResult:
    text = answer.text
    if as_json:
        text = json.dumps(answer.structured, ensure_ascii=False)
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=answer.structured)


def _failed(text: str, limit: int) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=bounded(text, limit))], is_error=True)


def _unknown(name: str, tools: Mapping[str, DeclaredTool]) -> str:
    near = get_close_matches(name[:LONGEST_ID], tools, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"There is no tool {shown(name)}.{hint} The tools are {', '.join(tools)}."


def _listed(tool: DeclaredTool, settings: ServerSettings, names: tuple[str, ...]) -> Tool:
    schema = _input_schema(tool.arguments)
    properties = schema["properties"]
    if "top_k" in properties:
        properties["top_k"]["default"] = settings.top_k
    if "mode" in properties and settings.words_only:  # there is nothing to choose
        del properties["mode"]
    if len(names) > 1 and tool is not indexes.LIST:
        schema["properties"] = {INDEX: {"type": "string", "enum": list(names)}, **properties}
        schema["required"] = [INDEX, *schema.get("required", [])]
    return Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=schema,
        output_schema=_output_schema(tool.answer),
        annotations=WRITES if tool.writes else READS,
    )


def _input_schema(arguments: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of arguments, without ``null`` as a value of optional ones."""
    schema = _terse(arguments.model_json_schema())
    for entry in schema["properties"].values():
        if "anyOf" in entry:
            entry.update(next(kind for kind in entry.pop("anyOf") if kind != {"type": "null"}))
            entry.pop("default", None)
    schema.pop("description", None)
    return schema


def _output_schema(answer: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of an answer, without what its names say already: it goes into every conversation."""
    schema = _terse(answer.model_json_schema(mode="serialization"))
    for part in (schema, *schema.get("$defs", {}).values()):
        part.pop("description", None)
        part.pop("additionalProperties", None)
        for entry in part["properties"].values():
            entry.pop("default", None)
            if {"type": "null"} in entry.get("anyOf", ()):  # answers leave out fields without a value
                kinds = [kind for kind in entry.pop("anyOf") if kind != {"type": "null"}]
                entry.update(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})
    return schema


def _terse(schema: Any) -> Any:
    """Return a schema without the titles that repeat the name of each field; a field named title stays."""
    if isinstance(schema, list):
        return [_terse(item) for item in cast("list[Any]", schema)]
    if isinstance(schema, dict):
        entries = cast("dict[str, Any]", schema).items()
        return {key: _terse(item) for key, item in entries if key != "title" or not isinstance(item, str)}
    return schema
