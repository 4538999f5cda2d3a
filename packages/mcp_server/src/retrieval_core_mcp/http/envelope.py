"""What every answer under ``/v1`` looks like, also when something is wrong."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pydantic_core
from pydantic import BaseModel
from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.service.served import ServedIndex
    from retrieval_core.types.filters import Filter
    from retrieval_core_mcp.http.tokens import BearerToken


@dataclass(slots=True)
class Call:
    """One request on its way: what an answer has to repeat, as far as it is known.

    Attributes:
        is_stranger: Whether the request passed without the checks of the host and the token, as only probes do.
        condition: Filter of the chunks that the caller sees; ``None`` if it sees all of them.
        share: Names who shares places and sessions with others; ``None`` if there is only one caller.
        query: The query as it was sent; ``None`` before the body was read.
        threshold: The valid one, 0 before it is known.
        served: The indexes that are searched, read or changed; none before they are known.
        status: Of the answer; ``None`` before it has begun.
    """

    request_id: str
    token: BearerToken | None = None
    is_stranger: bool = False
    condition: Filter | None = None
    share: str | None = None
    query: str | None = None
    threshold: float = 0.0
    served: tuple[ServedIndex, ...] = ()
    status: int | None = None
    arrived: float = field(default_factory=time.monotonic)

    @property
    def may_write(self) -> bool:
        """Whether the token allows writing, where the service and the tenant do."""
        return self.token is None or self.token.may_write

    @property
    def tenant(self) -> str | None:
        """The tenant whose chunks the caller sees; ``None`` if it sees all of them."""
        return None if self.token is None else self.token.tenant

    def execution(self, count: int = 0, **facts: Any) -> dict[str, Any]:
        """Return the object ``execution`` of an answer."""
        latency = int((time.monotonic() - self.arrived) * 1000)
        return {"latency_ms": latency, "result_count": count, "threshold_applied": self.threshold, **facts}


class RequestError(Exception):
    """A request that is answered with an error.

    Attributes:
        status: Of the answer.
        messages: At least one, for people.
    """

    def __init__(self, status: int, *messages: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(*messages)
        self.status = status
        self.messages = messages
        self.headers = dict(headers or {})


class NobodyReadsError(Exception):
    """The client is there, and reads nothing of its answer."""


def to_json(content: object) -> bytes:
    """Return JSON in UTF-8; of models without fields that are not set.

    Half of a surrogate pair, which UTF-8 cannot express, is escaped as it was in the request. A number that is not
    finite, which JSON does not have, is ``null``.
    """
    try:
        return pydantic_core.to_json(content, exclude_none=isinstance(content, BaseModel), inf_nan_mode="null")
    except pydantic_core.PydanticSerializationError:
        if isinstance(content, BaseModel):
            content = content.model_dump(mode="json", exclude_none=True)
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def json_response(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer of JSON."""
    return Response(to_json(content), status, headers, "application/json")


def error_content(call: Call, messages: Sequence[str]) -> dict[str, Any]:
    """Return the body of an error, with the query if one was sent."""
    query = {} if call.query is None else {"query": call.query}
    return {**query, "status": "error", "results": [], "execution": call.execution(), "errors": list(messages)}


def error_response(call: Call, error: RequestError) -> Response:
    """Return the answer of a request that failed."""
    return json_response(error_content(call, error.messages), error.status, error.headers)
