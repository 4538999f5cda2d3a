"""Validation errors in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_KINDS = {
    "bool": "true or false",
    "dict": "a JSON object",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "string": "text",
}


def requirement(detail: ErrorDetails) -> str:
    """Return what a value must be, such as ``must be 1 or more``; pydantic's words for rare problems."""
    context: dict[str, Any] = detail.get("ctx", {})
    match detail["type"]:
        case "greater_than_equal":
            return f"must be {_number(context['ge'])} or more"
        case "less_than_equal":
            return f"must be {_number(context['le'])} or less"
        case "literal_error":
            return f"must be {context['expected']}"
        case "string_too_long":
            return f"must have at most {context['max_length']:,} characters"
        case kind if (plain := _KINDS.get(kind.partition("_")[0])) is not None:
            return f"must be {plain}"
        case _:
            return detail["msg"]


def _number(value: float) -> str:
    return f"{int(value) if value == int(value) else value:,}"
