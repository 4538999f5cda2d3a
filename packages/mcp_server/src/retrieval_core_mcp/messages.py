"""Decoding of protocol messages, leniently, and the error lines for what is not a message."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from contextlib import suppress
from typing import Any, cast

from mcp.types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from retrieval_core_mcp.fitting import bounded, clean, has_lone_surrogate, json_length, shorten

LONGEST_REFUSAL = 1_000
"""The most characters of an error about an invalid request."""
LARGEST_ID = 2**53
"""Whole numbers below this are exact as floats."""

_KEPT = ("params", "arguments")
_BEGIN = re.compile(rb"\s*\{")
# Keys with plain values only, so that nothing inside of an inner object is taken for the message's own.
_MEMBER = re.compile(rb'\s*"((?:[^"\\]|\\.)*)"\s*:\s*("(?:[^"\\]|\\.)*"|[^\s"{}\[\],]+)\s*[,}]')


def read_message(line: bytes) -> JSONRPCMessage | str:
    """Decode a line.

    Lone surrogates are left in the arguments of a tool, whose check names the argument, and replaced elsewhere. A byte
    order mark, which some programs on Windows write first, is ignored.

    Returns:
        The message, or the error line to answer with.
    """
    line = line.removeprefix(BOM_UTF8)
    with suppress(ValidationError):
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        # A request whose id is of no kind that the protocol knows passes for a notification, which nobody answers.
        if not isinstance(message, JSONRPCNotification):
            return message
    try:
        decoded: Any = json.loads(line.decode("utf-8", "replace"))
    except RecursionError:
        return _refusal(_own_id(line), PARSE_ERROR, "The message is nested too deeply.")
    except ValueError as error:
        return _refusal(_own_id(line), PARSE_ERROR, f"The line is not valid JSON: {error}.")
    if not isinstance(decoded, dict):
        return _refusal(None, INVALID_REQUEST, "A message is a JSON object; send one a line, and no batches.")
    return _read_leniently(cast("dict[str, Any]", decoded))


def short_error(message: JSONRPCError) -> JSONRPCError:
    """Return an error with its message and data cut to a bounded length."""
    error = message.error
    changed: dict[str, Any] = {"message": bounded(error.message, LONGEST_REFUSAL)}
    if error.data is not None and json_length(error.data) >= LONGEST_REFUSAL:
        changed["data"] = shorten(error.data, 200) if isinstance(error.data, str) else None
    return message.model_copy(update={"error": error.model_copy(update=changed)})


def _read_leniently(content: dict[str, Any]) -> JSONRPCMessage | str:
    request_id = _as_id(content.get("id"))
    advice = 'The message is not JSON-RPC 2.0: it needs "jsonrpc": "2.0", a method, and for an answer an id.'
    if isinstance(request_id, str) and has_lone_surrogate(request_id):
        advice = "The request's id holds half of a surrogate pair, which is no character."
    elif "id" in content and request_id is None:
        advice = "The request's id must be text or a whole number."
    else:
        mended = _mended(content if request_id is None else {**content, "id": request_id})
        with suppress(ValidationError, RecursionError):
            return jsonrpc_message_adapter.validate_python(mended, by_name=False)
    return _refusal(request_id, INVALID_REQUEST, advice)


def _as_id(value: object) -> str | int | None:
    """Return a value as an id, ``None`` where it is none; 1.0 is as whole as 1, as JSON has one kind of number."""
    if isinstance(value, float) and value.is_integer() and abs(value) < LARGEST_ID:
        return int(value)
    return value if isinstance(value, (str, int)) and not isinstance(value, bool) else None


def _own_id(line: bytes) -> str | int | None:
    """Return the id of a message that cannot be parsed, if it precedes every inner object and list."""
    begin = _BEGIN.match(line)
    position = len(line) if begin is None else begin.end()
    while (member := _MEMBER.match(line, position)) is not None:
        if member[1] == b"id":
            with suppress(ValueError):
                return _as_id(json.loads(member[2]))
            return None
        position = member.end()
    return None


def _mended(value: Any, path: tuple[str, ...] = ()) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_mended(item, (*path, "")) for item in cast("list[Any]", value)]
    if isinstance(value, dict) and path != _KEPT:
        return {clean(key): _mended(item, (*path, key)) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, dict):
        return {clean(key): item for key, item in cast("dict[str, Any]", value).items()}
    return value


def _refusal(request_id: str | int | None, code: int, message: str) -> str:
    """Return an error as a line, with the request's id unchanged."""
    error = {"code": code, "message": bounded(message, LONGEST_REFUSAL)}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error})
