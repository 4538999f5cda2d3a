"""Bodies of requests: read up to a limit, decoded strictly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn, cast

from starlette.requests import ClientDisconnect

from retrieval_core_mcp.http.envelope import RequestError
from retrieval_core_mcp.http.receiving import check_length

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request


async def read_object(request: Request, most_bytes: int) -> dict[str, Any]:
    """Return the JSON object of a request.

    Raises:
        RequestError: The body is no JSON object, is too long, or is not sent as ``application/json``.
    """
    check_kind(request, "application/json")
    return decode_object(b"".join([part async for part in read_parts(request, most_bytes)]))


def check_kind(request: Request, wanted: str) -> None:
    """Refuse a body of another media type, or one that is compressed.

    Raises:
        RequestError: It is one.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != wanted:
        raise RequestError(415, f"the body must be {wanted}, got {kind[:80] or 'no content type'}")
    if request.headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
        raise RequestError(415, "the body must not be compressed", headers={"accept-encoding": "identity"})


def decode_object(body: bytes) -> dict[str, Any]:
    """Decode a JSON object; duplicate keys, ``NaN`` and ``Infinity`` are errors, as in the standard.

    Raises:
        RequestError: It is none.
    """
    try:
        content: Any = json.loads(body.decode(), object_pairs_hook=_unique, parse_constant=_no_number)
    except RequestError:
        raise
    except UnicodeDecodeError:
        raise RequestError(400, "the body is not valid UTF-8") from None
    except RecursionError:
        raise RequestError(400, "the body is nested too deeply") from None
    except ValueError as error:
        where = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise RequestError(400, f"the body is not valid JSON{where}") from None
    if not isinstance(content, dict):
        raise RequestError(400, "the body must be a JSON object")
    return cast("dict[str, Any]", content)


async def read_parts(request: Request, most_bytes: int) -> AsyncIterator[bytes]:
    """Yield a body as it comes.

    Raises:
        RequestError: It is too long, or ends before its end.
    """
    check_length(request.headers.get("content-length"), most_bytes)
    length = 0
    try:
        async for part in request.stream():
            length += len(part)
            check_length(length, most_bytes)
            yield part
    except ClientDisconnect:
        raise RequestError(400, "the connection ended before the body was complete") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in content if names.count(name) > 1)
        raise RequestError(400, f"the body has the key {json.dumps(twice)[:80]} more than once")
    return content


def _no_number(name: str) -> NoReturn:
    raise RequestError(400, f"the body holds {name}, which is not JSON")
