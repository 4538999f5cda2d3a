"""The contract as an OpenAPI document, from the table of routes and its models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic.json_schema import models_json_schema

from retrieval_core_mcp.http.answers import ErrorAnswer
from retrieval_core_mcp.http.filters_schema import FILTER
from retrieval_core_mcp.http.handling import EVENTS, JSON_TYPE
from retrieval_core_mcp.http.routes import ROWS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import BaseModel
    from pydantic.json_schema import JsonSchemaMode

    from retrieval_core_mcp.http.handling import Row

VERSION = "1.0"
"""Version of the contract: a field that is removed, retyped, made required or narrowed needs a new one."""
_SCHEMAS = "#/components/schemas/"
_ERRORS = {
    "400": "Something in the request is wrong; there is a message for each field.",
    "401": "The token is missing or wrong.",
    "403": "The page, or the token, may not do this.",
    "404": "There is no such index, chunk, document or path.",
    "413": "The body is too long.",
    "415": "The body is not of the type that is wanted.",
    "421": "The service is not called by this host name.",
    "500": "Something that nobody expected; the log has the request's id.",
    "501": "The service was not set up for this; see the message for what to install or set.",
    "503": "The store or the embedder is not available, the service is busy, or it ends; see Retry-After.",
}
_UNREADY = "Not yet, or the service ends."
_EVENT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"type": "string", "description": "The type of the event."},
        "data": {"type": "string", "description": "The event as JSON."},
    },
}
_CONTENTS: dict[str, dict[str, Any]] = {
    EVENTS: _EVENT,
    JSON_TYPE: {"type": "object"},
    "image/png": {"type": "string", "format": "binary"},
    "text/plain": {"type": "string"},
}
"""Schemas of answers that have no model."""


def document() -> dict[str, Any]:
    """Return the document; the caller's own."""
    paths: dict[str, dict[str, Any]] = {}
    for row in ROWS:
        paths.setdefault(row.path.replace(":path}", "}"), {})[row.method.lower()] = _operation(row)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "retrieval-core",
            "version": VERSION,
            "description": "Search and question answering with sources; every error has the same form.",
        },
        "paths": paths,
        "components": {
            "schemas": _components(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _components() -> dict[str, Any]:
    bodies = [row.request for row in ROWS if row.body == "all"]
    given = [model for row in ROWS for model in (row.response, row.unready) if model is not None]
    responses = _schemas((*given, ErrorAnswer), "serialization")
    for schema in responses.values():
        if schema.get("additionalProperties") is False:  # later versions may add fields
            del schema["additionalProperties"]
    requests = _schemas(bodies, "validation")
    for model in bodies:
        if "filters" in model.model_fields:
            requests[model.__name__]["properties"]["filters"]["anyOf"] = [
                {"$ref": f"{_SCHEMAS}Filter"},
                {"type": "object", "maxProperties": 0, "description": "None, as programs build it."},
                {"type": "null"},
            ]
    return {**requests, **responses, "Filter": FILTER}


def _schemas(models: Iterable[type[BaseModel]], mode: JsonSchemaMode) -> dict[str, Any]:
    _, schemas = models_json_schema([(model, mode) for model in models], ref_template=f"{_SCHEMAS}{{model}}")
    return schemas["$defs"]


def _operation(row: Row) -> dict[str, Any]:
    told: dict[str, Any] = {"operationId": row.name, "summary": row.summary}
    if row.parameters:
        told["parameters"] = [_parameter(row, name, shown) for name, shown in row.parameters.items()]
    if row.takes is not None:
        schema = {"type": "string", "format": "binary", "minLength": 1}
        told["requestBody"] = {"required": True, "content": {row.takes: {"schema": schema}}}
    elif row.body:
        example = {"example": row.examples["body"]} if "body" in row.examples else {}
        told["requestBody"] = {"required": True, "content": {JSON_TYPE: {"schema": _body(row), **example}}}
    schema = _CONTENTS[row.media] if row.response is None else _reference(row.response)
    responses = {
        "200": {"description": row.done, "content": {row.media: {"schema": schema}}},
        **{
            status: {"description": meaning, "content": {JSON_TYPE: {"schema": _reference(ErrorAnswer)}}}
            for status, meaning in _ERRORS.items()
        },
    }
    if row.unready is not None:
        responses["503"] = {"description": _UNREADY, "content": {JSON_TYPE: {"schema": _reference(row.unready)}}}
    return {**told, "responses": responses}


def _reference(model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": f"{_SCHEMAS}{model.__name__}"}


def _body(row: Row) -> dict[str, Any]:
    if row.body == "all":
        return _reference(row.request)
    properties = {name: row.schemas[name] for name in row.body}
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in row.body if row.request.model_fields[name].is_required()],
        "additionalProperties": False,
    }


def _parameter(row: Row, name: str, shown: str) -> dict[str, Any]:
    whole = row.schemas[name]
    # A parameter that is not sent is absent, and not null.
    kept = {key: value for key, value in whole.items() if key not in {"anyOf", "title", "description"}}
    schema = next(({**kept, **each} for each in whole.get("anyOf", ()) if each != {"type": "null"}), kept)
    if schema.get("default", "") is None:
        del schema["default"]
    is_path = f"{{{shown}" in row.path
    told: dict[str, Any] = {"name": shown, "in": "path" if is_path else "query", "schema": schema}
    if is_path or row.request.model_fields[name].is_required():
        told["required"] = True
    if is_path:
        schema["minLength"] = 1
    if description := whole.get("description"):
        told["description"] = f"{description}{', percent-encoded' if is_path else ''}."
    if shown in row.examples:
        told["example"] = row.examples[shown]
    return told
