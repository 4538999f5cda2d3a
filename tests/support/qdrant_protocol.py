"""Qdrant's REST protocol, as Qdrant's own OpenAPI document has it: what may be sent, and what may come back."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any, cast

from jsonschema import Draft202012Validator

DOCUMENT = Path(__file__).parent / "qdrant_openapi" / "openapi-1.19.json.gz"


@cache
def protocol() -> dict[str, Any]:
    """Return the document, of OpenAPI 3.0, in the words of JSON Schema."""
    return _converted(json.loads(gzip.decompress(DOCUMENT.read_bytes())))


def problem_of_request(method: str, path: str, body: Any) -> str | None:
    """Return what is wrong with a body for a path as the document names it; ``None`` for a good one."""
    operation = _operation(method, path)
    if "requestBody" not in operation:
        return None if body is None else "a body, where none belongs"
    return _problem(("paths", path, method, "requestBody", "content", "application/json", "schema"), body)


def unknown_parameters(method: str, path: str, names: set[str]) -> set[str]:
    """Return the names of parameters that the document does not know."""
    return names - {one["name"] for one in _operation(method, path).get("parameters", []) if one["in"] == "query"}


def problem_of_response(method: str, path: str, status: int, body: Any) -> str | None:
    """Return what is wrong with an answer; ``None`` for a good one."""
    name = "200" if status == 200 else "4XX"
    return _problem(("paths", path, method, "responses", name, "content", "application/json", "schema"), body)


def _operation(method: str, path: str) -> dict[str, Any]:
    return protocol()["paths"][path][method]


def _problem(place: tuple[str, ...], value: Any) -> str | None:
    error = next(iter(_validator(place).iter_errors(value)), None)
    return None if error is None else f"{error.json_path}: {error.message:.300}"


@cache
def _validator(place: tuple[str, ...]) -> Any:
    pointer = "/".join(part.replace("~", "~0").replace("/", "~1") for part in place)
    return Draft202012Validator({**protocol(), "$ref": f"#/{pointer}"})


def _converted(node: Any) -> Any:
    """Turn ``nullable`` into a type, and close objects: the document names every field that there is."""
    if isinstance(node, list):
        return [_converted(part) for part in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    schema = {name: _converted(part) for name, part in cast("dict[str, Any]", node).items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        schema.setdefault("additionalProperties", False)
    if schema.pop("nullable", None) is True:
        if isinstance(schema.get("type"), str):
            schema["type"] = [schema["type"], "null"]
            if "enum" in schema:
                schema["enum"] = [*schema["enum"], None]
        elif schema.keys() <= {"description"}:
            schema["type"] = "null"
        else:
            return {"anyOf": [schema, {"type": "null"}]}
    return schema
