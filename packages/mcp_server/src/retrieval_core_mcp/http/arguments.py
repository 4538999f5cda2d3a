"""Requests as models: from the path, the query string and the JSON body, with one message per wrong field."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import BaseModel, Field, ValidationError

from retrieval_core.compat.service import SearchQuery
from retrieval_core.service.service_context import WHOLE
from retrieval_core.types.escapes import valid_unicode
from retrieval_core_mcp.fitting import in_one_line
from retrieval_core_mcp.http.envelope import RequestError
from retrieval_core_mcp.wording import requirement

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeVar

    from pydantic_core import ErrorDetails

    from retrieval_core_mcp.http.envelope import Call

    M = TypeVar("M", bound=BaseModel)

MOST_MESSAGES = 20
_CONTRACT = {
    "top_k": "top_k must be between 1 and 1000",
    "similarity_threshold": "similarity_threshold must be at least 0.0 and below 1.0",
}
_EMPTY = "query_text cannot be empty"
_WHOLE = re.compile(r"-?[0-9]{1,20}")


class ContextQuery(SearchQuery):
    """A query whose results are packed for a language model."""

    max_tokens: Annotated[
        int | None, Field(strict=True, ge=1, le=1_000_000, description="Token budget. Default: as configured"), WHOLE
    ] = None


class AnswerQuery(ContextQuery):
    """A question to answer from the documents."""

    verify: Annotated[
        bool | None,
        Field(strict=True, description="Whether to check each sentence against its sources. Default: as configured"),
    ] = None


class ExplainQuery(SearchQuery):
    """A query whose search is explained."""

    chunk_id: Annotated[
        str | None,
        Field(
            strict=True, min_length=1, max_length=2_000, description="ID of a chunk that you expected among the results"
        ),
    ] = None


def note_query(call: Call, content: Mapping[str, Any]) -> None:
    """Record in the call what every answer repeats of a body: the query, and the threshold if it is valid."""
    given, threshold = content.get("query_text"), content.get("similarity_threshold")
    if isinstance(given, str):
        call.query = given
    is_number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
    call.threshold = float(cast("float", threshold)) if is_number and 0.0 <= cast("float", threshold) < 1.0 else 0.0


def number_or_text(given: str) -> int | str:
    """Return a parameter as the whole number that it is, if it is one."""
    return int(given) if _WHOLE.fullmatch(given) else given


def read_arguments(content: Mapping[str, Any], kind: type[M], parameters: Mapping[str, str]) -> M:
    """Return arguments as a model; half of a surrogate pair, which is no character, becomes U+FFFD.

    Args:
        parameters: Names in the address of those fields that are from there.

    Raises:
        RequestError: Something in them is wrong; there is one message for each field.
    """
    try:
        return kind.model_validate(_clean(content))
    except ValidationError as error:
        messages: dict[str, str] = {}
        for detail in error.errors(include_url=False):
            name = str(detail["loc"][0]) if detail["loc"] else ""
            if name in parameters:
                messages.setdefault(name, _describe_parameter(parameters[name], name, detail, kind))
            else:
                messages.setdefault(name, _describe(name, detail, kind))
        raise RequestError(400, *list(messages.values())[:MOST_MESSAGES]) from None


def unknown_field(name: str, known: list[str], kind: str = "field") -> str:
    """Return the message on a field or parameter that a request must not have."""
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"the {kind}s are {', '.join(known) or 'none'}"
    return f"unknown {kind} {in_one_line(name, 60)}; {hint}"


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return valid_unicode(value)
    if isinstance(value, list):
        return [_clean(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {valid_unicode(key): _clean(item) for key, item in cast("dict[str, Any]", value).items()}
    return value


def _describe_parameter(shown: str, name: str, detail: ErrorDetails, kind: type[BaseModel]) -> str:
    bounds = {
        bound: getattr(each, bound)
        for each in kind.model_fields[name].metadata
        for bound in ("ge", "le")
        if hasattr(each, bound)
    }
    if detail["type"] != "missing" and bounds.keys() == {"ge", "le"}:
        given = in_one_line(str(detail["input"]), 40)
        return f"{shown} must be a whole number from {bounds['ge']:,} to {bounds['le']:,}, got {given}"
    return _describe(shown, {**detail, "loc": (shown, *detail["loc"][1:])}, kind)


def _describe(name: str, detail: ErrorDetails, kind: type[BaseModel]) -> str:
    is_empty = detail["type"] in {"missing", "value_error"} or detail["input"] in ("", None)
    if name in _CONTRACT or (name == "query_text" and is_empty):
        return _CONTRACT.get(name, _EMPTY)
    where = ".".join(in_one_line(str(part), 60) for part in (name, *detail["loc"][1:]))
    match detail["type"]:
        case "extra_forbidden" if len(detail["loc"]) == 1:
            return unknown_field(name, list(kind.model_fields))
        case "extra_forbidden":
            return f"unknown field {where}"
        case "missing":
            return f"{where} is missing"
        case "value_error":
            return f"{where} {detail.get('ctx', {}).get('error', detail['msg'])}"
        case _:
            return f"{where} {requirement(detail)}"
