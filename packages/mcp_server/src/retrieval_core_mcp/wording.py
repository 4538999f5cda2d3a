"""Words of the commands and of validation errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

INDEX_HELP = "index file; repeatable with names (.retrieval/index.db)"
DESCRIPTION_HELP = "what the documents are about, for assistants"
CONFIG_HELP = "read settings from a TOML file or preset"
NO_FILE = "There is no index at {index} yet. Make one with: retrieval index FOLDER --index {index}"
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
        case "greater_than_equal" | "less_than_equal":
            bound = f"{_number(context['ge'])} or more" if "ge" in context else f"{_number(context['le'])} or less"
            return f"must be {bound}"
        case "literal_error":
            return f"must be {context['expected']}"
        case "string_too_long" | "too_long" as kind:
            return f"must have at most {context['max_length']:,} {'items' if kind == 'too_long' else 'characters'}"
        case "string_too_short" | "too_short" if context["min_length"] == 1:
            return "cannot be empty"
        case kind if (plain := _KINDS.get(kind.partition("_")[0])) is not None:
            return f"must be {plain}"
        case _:
            return detail["msg"].removeprefix("Value error, ")


def _number(value: float) -> str:
    return f"{int(value) if value == int(value) else value:,}"
