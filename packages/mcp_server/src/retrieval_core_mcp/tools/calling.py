"""The list of the tools, and calls of them; a failure is an answer too, with advice."""

from __future__ import annotations

import asyncio
import json
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast

from mcp.types import CallToolResult, TextContent, Tool, ToolAnnotations

from retrieval_core.errors import NotFoundError, RetrievalError
from retrieval_core_mcp.advice import advice_on
from retrieval_core_mcp.fitting import bounded
from retrieval_core_mcp.settings import default_top_k
from retrieval_core_mcp.tools.arguments import INDEX, index_named, read_arguments, shown
from retrieval_core_mcp.tools.fit import Written, fit
from retrieval_core_mcp.tools.registry import ALL, TOOLS, choose_tools
from retrieval_core_mcp.tools.tool import LONGEST_ID, ToolAnswer, ToolCall, ToolFailure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from retrieval_core.service.served import ServedIndexes
    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core_mcp.settings import ServerSettings
    from retrieval_core_mcp.tools.tool import DeclaredTool, Form

READS = ToolAnnotations(read_only_hint=True)
"""Lets clients call a tool without asking. The list of tools costs every conversation, so it has no other hints."""
WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)
_BOUNDS = frozenset({"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "additionalProperties"})


class Tools:
    """The tools of a server.

    Args:
        indexes: If there are several, each call names one.
    """

    def __init__(self, settings: ServerSettings, indexes: ServedIndexes) -> None:
        self._settings = settings
        self._names = tuple(served.name for served in indexes)
        self._tools = {tool.name: tool for tool in choose_tools(settings.tools, allow_writes=settings.allow_writes)}

    def list(self, *, structured: bool = False) -> list[Tool]:
        """Return the tools as clients see them.

        A list with output schemas, and one of all tools, is complete. Others leave out titles and the arguments that
        assistants rarely need.

        Args:
            structured: Whether the tools have output schemas: a result must then have structured content.
        """
        return [_listed(tool, self._settings, self._names, structured=structured) for tool in self._tools.values()]

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: ServiceContext, *, form: Form = ""
    ) -> CallToolResult:
        """Call a tool."""
        limit = self._settings.max_characters
        if (tool := self._tools.get(name)) is None:
            return _failed(_unknown(name, self._tools), limit)
        request: Any = None
        try:
            given, several = dict(arguments), len(self._names) > 1
            has_index = INDEX in tool.request.model_fields
            index = self._names[0]
            if several and has_index and (tool.needs_index or given.get(INDEX) is not None):
                index = index_named(given.pop(INDEX, None), self._names)
            elif several and has_index:
                index = given.pop(INDEX, None)
            served = context.index(index)
            names = (*tool.arguments, *tool.more_arguments, *[INDEX] * (several and has_index))
            request = read_arguments(tool, given, names)
            changed: dict[str, Any] = {INDEX: index} if has_index else {}
            if getattr(request, "top_k", 0) is None:
                changed["top_k"] = default_top_k(served.config)
            request = request.model_copy(update=changed)
            response = await tool.serve(context, request)
            call = ToolCall(context, request, served, getattr(request, "max_characters", None) or limit, form)
            # Many chunks take some milliseconds.
            written = await asyncio.to_thread(_written, tool, response, call)
        except ToolFailure as failure:
            return _failed(str(failure), limit)
        except NotFoundError as error:
            return _failed(await _right_id(tool.name, request, context) or advice_on(error, context), limit)
        except Exception as error:  # noqa: BLE001 - every request gets an answer
            return _failed(advice_on(error, context), limit)
        if form == "json":
            written = Written(written.structured, json.dumps(written.structured, ensure_ascii=False))
        structured = written.structured if form else None
        return CallToolResult(content=[TextContent(type="text", text=written.text)], structured_content=structured)


def _written(tool: DeclaredTool, response: Any, call: ToolCall) -> Written:
    if issubclass(tool.answer, ToolAnswer):
        return fit(tool.answer.of(response, call), call.limit, text_only=not call.form)
    structured: dict[str, Any] = response.model_dump(mode="json", exclude_none=True)
    lines = [
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in structured.items()
    ]
    return Written(structured, bounded("\n".join(lines), call.limit))


def _failed(text: str, limit: int) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=bounded(text, limit))], is_error=True)


async def _right_id(tool: str, request: Any, context: ServiceContext) -> str:
    """Return that an ID is of a document in place of a chunk, or the other way round; empty if it is of neither."""
    given = getattr(request, "id", None)
    if not isinstance(given, str):
        return ""
    from retrieval_core.service.outline import OutlineRequest, outline  # noqa: PLC0415 - few calls fail

    try:
        found = await outline(context, OutlineRequest(id=given, index=getattr(request, INDEX, None)))
    except RetrievalError:
        return ""
    if found.id == given:
        first = found.sections[0].chunk_id
        return f"id: {shown(given)} is a document, and {tool} takes the id of a chunk, such as {shown(first)}."
    return f"id: {shown(given)} is a chunk, and {tool} takes the id of a document. That is {shown(found.id)}."


def _unknown(name: str, tools: Mapping[str, DeclaredTool]) -> str:
    if any(tool.name == name for tool in TOOLS):
        return f"This server doesn't offer the tool {name}. Use {', '.join(tools)}."
    near = get_close_matches(name[:LONGEST_ID], tools, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"There is no tool {shown(name)}.{hint} The tools are {', '.join(tools)}."


def _listed(tool: DeclaredTool, settings: ServerSettings, names: tuple[str, ...], *, structured: bool) -> Tool:
    is_complete = structured or ALL in settings.tools
    schema = _input_schema(tool, is_complete=is_complete)
    properties = schema["properties"]
    if "top_k" in properties:
        properties["top_k"]["default"] = settings.top_k
    if settings.words_only:  # there is nothing to choose
        properties.pop("mode", None)
    if len(names) > 1 and INDEX in tool.request.model_fields:
        schema["properties"] = {
            INDEX: {"type": "string", "enum": list(names), "description": "Which index"},
            **properties,
        }
        if tool.needs_index:
            schema["required"] = [INDEX, *schema.get("required", [])]
    return Tool(
        name=tool.name,
        title=tool.title if is_complete else None,
        description=tool.description.replace("{about}", settings.about).rstrip(),
        input_schema=schema,
        output_schema=_output_schema(tool.answer) if structured else None,
        annotations=WRITES if tool.writes else READS,
    )


def _input_schema(tool: DeclaredTool, *, is_complete: bool) -> dict[str, Any]:
    """Return the schema of a tool's arguments, without ``null`` as a value of optional ones, and without bounds.

    The server checks the bounds, and refuses other arguments, with messages that say what is wrong.
    """
    schema = _terse(tool.request.model_json_schema())
    arguments = (*tool.arguments, *tool.more_arguments) if is_complete else tool.arguments
    properties: dict[str, Any] = {name: schema["properties"][name] for name in arguments}
    for entry in properties.values():
        if not is_complete:
            entry.pop("default", None)
        if "anyOf" in entry:
            entry.update(next(kind for kind in entry.pop("anyOf") if kind != {"type": "null"}))
            entry.pop("default", None)
        if not entry.get("default", True):  # 0 and false are no news
            del entry["default"]
        for part in (entry, entry.get("items", {})):
            for bound in _BOUNDS & part.keys():
                del part[bound]
    required = [name for name in schema.get("required", ()) if name in properties]
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


def _output_schema(answer: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of an answer, without what its names say already: it goes into every conversation."""
    schema = _terse(answer.model_json_schema(mode="serialization"))
    for part in (schema, *schema.get("$defs", {}).values()):
        part.pop("description", None)
        part.pop("additionalProperties", None)
        for name, entry in part["properties"].items():
            entry.pop("default", None)
            if entry.pop("readOnly", False):
                entry.pop("description", None)
            if {"type": "null"} in entry.get("anyOf", ()):  # answers leave out fields without a value
                kinds = [kind for kind in entry.pop("anyOf") if kind != {"type": "null"}]
                entry.update(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})
                part["required"] = [each for each in part["required"] if each != name]
    return schema


def _terse(schema: Any) -> Any:
    """Return a schema without the titles that repeat the name of each field; a field named title stays."""
    if isinstance(schema, list):
        return [_terse(item) for item in cast("list[Any]", schema)]
    if isinstance(schema, dict):
        entries = cast("dict[str, Any]", schema).items()
        return {key: _terse(item) for key, item in entries if key != "title" or not isinstance(item, str)}
    return schema
