"""What requests ask for, checked, with one message for each field that is wrong."""

from __future__ import annotations

from datetime import UTC
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictStr,
    ValidationError,
)

from retrieval_core.compat.service import SearchQuery
from retrieval_core.types.escapes import valid_unicode
from retrieval_core_mcp.fitting import in_one_line
from retrieval_core_mcp.http.envelope import RequestError
from retrieval_core_mcp.tools.tool import LONGEST_QUOTE, whole
from retrieval_core_mcp.wording import requirement

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from pydantic_core import ErrorDetails

    from retrieval_core_mcp.http.envelope import Call

M = TypeVar("M", bound=BaseModel)

_CONTRACT = {
    "top_k": "top_k must be between 1 and 1000",
    "similarity_threshold": "similarity_threshold must be at least 0.0 and below 1.0",
}
_EMPTY = "query_text cannot be empty"
_Id = Annotated[str, Field(strict=True, min_length=1, max_length=2_000)]
_Budget = Annotated[int, Field(strict=True, ge=1, le=1_000_000), BeforeValidator(whole)]


class ContextQuery(SearchQuery):
    """A question for whose answer a language model is to be shown passages."""

    max_tokens: _Budget | None = None
    """The budget of all passages together; ``None`` for what is configured."""


class AnswerQuery(ContextQuery):
    """A question to be answered."""

    verify: bool | None = Field(default=None, strict=True)
    """Whether each sentence is held against the passages; ``None`` for what is configured."""


class ExplainQuery(SearchQuery):
    """A question whose search is to be explained."""

    chunk_id: _Id | None = None
    """A passage that was expected among the results."""


def _plain(metadata: dict[str, Any]) -> dict[str, Any]:
    if len(metadata) > 100:
        msg = f"metadata has {len(metadata)} fields; a document may have at most 100"
        raise ValueError(msg)
    return metadata


def _written(moment: object) -> object:
    if not isinstance(moment, str):
        msg = "it is text such as 2026-01-31T12:00:00Z"
        raise ValueError(msg)  # noqa: TRY004 - pydantic makes a message of it
    return moment


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        msg = "it is before the year 1 or after the year 9999 in UTC"
        raise ValueError(msg) from error


class NewDocument(BaseModel):
    """A document to be split, embedded and kept; it replaces the one with its id."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: _Id
    text: Annotated[StrictStr, Field(min_length=1)]
    title: Annotated[str, Field(strict=True, max_length=500)] | None = None
    source: Annotated[str, Field(strict=True, max_length=2_000)] | None = None
    timestamp: Annotated[AwareDatetime, BeforeValidator(_written), AfterValidator(_in_utc)] | None = None
    metadata: Annotated[dict[str, Any], AfterValidator(_plain)] = Field(default_factory=dict[str, Any])


class NewDocuments(BaseModel):
    """Documents for an index."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    index: _Id | None = None
    documents: Annotated[tuple[NewDocument, ...], Field(min_length=1, max_length=1_000)]


class QuoteToCheck(BaseModel):
    """A quote to look for in a passage, and then in its document."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    quote: Annotated[str, Field(strict=True, min_length=1, max_length=LONGEST_QUOTE)]


def read_query(call: Call, content: Mapping[str, Any], kind: type[M]) -> M:
    """Return what a body asks, and note in the call what every answer repeats of it.

    Raises:
        RequestError: Something in it is wrong; there is one message for each field.
    """
    given = content.get("query_text")
    if isinstance(given, str):
        call.query = given
    try:
        read = read_arguments(content, kind)
    except RequestError:
        call.threshold = _valid_threshold(content.get("similarity_threshold"))
        raise
    call.threshold = getattr(read, "similarity_threshold", 0.0)
    return read


def read_arguments(content: Mapping[str, Any], kind: type[M]) -> M:
    """Return arguments as a model; half of a surrogate pair, which is no character, becomes U+FFFD.

    Raises:
        RequestError: Something in them is wrong; there is one message for each field.
    """
    try:
        return kind.model_validate(_clean(content))
    except ValidationError as error:
        messages: dict[str, str] = {}
        for detail in error.errors(include_url=False):
            name = str(detail["loc"][0]) if detail["loc"] else ""
            messages.setdefault(name, _describe(name, detail, kind))
        raise RequestError(400, *list(messages.values())[:20]) from None


def _valid_threshold(value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0.0 <= value < 1.0:
        return float(value)
    return 0.0


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return valid_unicode(value)
    if isinstance(value, list):
        return [_clean(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {valid_unicode(key): _clean(item) for key, item in cast("dict[str, Any]", value).items()}
    return value


def _describe(name: str, detail: ErrorDetails, kind: type[BaseModel]) -> str:
    if name in _CONTRACT:
        return _CONTRACT[name]
    shown = in_one_line(name, 60)
    where = ".".join([shown, *(in_one_line(str(part), 60) for part in detail["loc"][1:])])
    match detail["type"]:
        case "extra_forbidden" if len(detail["loc"]) == 1:
            near = get_close_matches(name, kind.model_fields, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the fields are {', '.join(kind.model_fields)}"
            return f"unknown field {shown}; {hint}"
        case "extra_forbidden":
            return f"unknown field {where}"
        case _ if name == "query_text" and (
            detail["type"] in {"missing", "value_error"} or detail["input"] in ("", None)
        ):
            return _EMPTY
        case "missing":
            return f"{where} is missing"
        case _:
            return f"{where} {requirement(detail)}"
