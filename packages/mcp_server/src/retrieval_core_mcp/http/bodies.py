"""Bodies of requests, decoded strictly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn, cast

from retrieval_core_mcp.http.envelope import RequestError

if TYPE_CHECKING:
    from starlette.requests import Request


async def read_object(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request, whose body was received.

    Raises:
        RequestError: The body is no JSON object, or is not sent as ``application/json``.
    """
    check_kind(request, "application/json")
    return _decoded(await request.body())


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


def _decoded(body: bytes) -> dict[str, Any]:
    """Return a JSON object; duplicate keys, ``NaN`` and ``Infinity`` are errors, as in the standard."""
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


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in content if names.count(name) > 1)
        raise RequestError(400, f"the body has the key {json.dumps(twice)[:80]} more than once")
    return content


def _no_number(name: str) -> NoReturn:
    raise RequestError(400, f"the body contains {name}, which is not JSON")
