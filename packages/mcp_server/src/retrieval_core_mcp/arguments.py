"""The tools' arguments, their validation and its messages."""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from retrieval_core_mcp.fitting import has_lone_surrogate, in_one_line
from retrieval_core_mcp.settings import MOST_RESULTS
from retrieval_core_mcp.wording import requirement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

LONGEST_QUERY = 10_000
LONGEST_ID = 2_000

_NUMBER = re.compile(r"\s*\d{1,18}\s*", re.ASCII)


def whole(value: object) -> object:
    """JSON knows one kind of number: 5.0 is as whole as 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class _Arguments(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class SearchArguments(_Arguments):
    """Arguments of the tool search."""

    query: Annotated[str, Field(min_length=1, max_length=LONGEST_QUERY, description="The question, in plain language")]
    top_k: Annotated[
        Annotated[int, Field(ge=1, le=MOST_RESULTS), BeforeValidator(whole)] | None,
        Field(description="The most results. Leave out normally; fewer results give longer passages"),
    ] = None
    mode: Annotated[
        Literal["hybrid", "dense", "lexical"] | None,
        Field(
            description="Leave out normally; lexical (by words) for exact names, codes and error texts, dense for "
            "meaning alone"
        ),
    ] = None
    filters: Annotated[
        dict[str, Any] | None,
        Field(
            description='What every passage must pass, such as {"source": {"$glob": "guides/*"}, "year": {"$gte": '
            "2020}}. Fields: source, document_id, title (of the document), section (one heading, not the joined "
            "path), page (a number), timestamp (ISO 8601) and the documents' own metadata, which fetch shows; not url, "
            "citation or score. Operators: $eq $ne $in $nin $gt $gte $lt $lte $contains $text $glob $exists $and $or "
            "$not"
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
        BeforeValidator(whole),
    ] = 0


ARGUMENTS: Mapping[str, type[_Arguments]] = {"search": SearchArguments, "fetch": FetchArguments}
"""What each tool takes, by its name."""


def read_strings(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with objects and numbers parsed that assistants sent as strings."""
    return {key: _READ[key](value) if key in _READ else value for key, value in arguments.items()}


def _object(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        decoded: object = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return cast("object", decoded) if isinstance(decoded, dict) else value


def _number(value: object) -> object:
    return int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value


_READ = {"filters": _object, "top_k": _number, "offset": _number}


def check_arguments(name: str, arguments: Mapping[str, Any]) -> str | None:
    """Return the problems with a call, one a line; ``None`` where there are none.

    Args:
        name: The tool's.
        arguments: As :func:`read_strings` returns them.
    """
    if name not in ARGUMENTS:
        near = get_close_matches(name[:LONGEST_ID], ARGUMENTS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        return f"There is no tool {shown(name)}.{hint} The tools are {' and '.join(ARGUMENTS)}."
    broken = [key for key, value in arguments.items() if has_lone_surrogate(key) or has_lone_surrogate(value)]
    if broken:
        names = ", ".join(in_one_line(key, 60) for key in broken[:10])
        return f"{names}: the text holds half of a surrogate pair, which is no character. Send it without that half."
    try:
        ARGUMENTS[name].model_validate(dict(arguments))
    except ValidationError as error:
        return "\n".join(dict.fromkeys(_describe(name, detail) for detail in error.errors(include_url=False)[:10]))
    query = arguments.get("query")
    if isinstance(query, str) and not query.strip():
        return "query: it is empty. Ask for something, in plain language."
    return None


def shown(value: object) -> str:
    """Return a value as one short line, for an answer."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return "a number with very many digits"  # some have more than can be written
    return in_one_line(value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)[:200], 80)


def _describe(tool: str, detail: ErrorDetails) -> str:
    name = in_one_line(str(detail["loc"][0]), 60)
    valid = list(ARGUMENTS[tool].model_fields)
    if detail["type"] == "extra_forbidden":
        near = get_close_matches(name.lower(), valid, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]}?" if near else ""
        return f"{name}: the tool {tool} has no such argument.{hint} It takes {', '.join(valid)}."
    value: object = detail["input"]
    came = f"the string {json.dumps(shown(value), ensure_ascii=False)}" if isinstance(value, str) else shown(value)
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
            return f'{name}: give a JSON object, for instance {{"year": {{"$gte": 2020}}}}; {came} was given.'
        case _:
            return f"{name}: {requirement(detail)}; {came} was given."
