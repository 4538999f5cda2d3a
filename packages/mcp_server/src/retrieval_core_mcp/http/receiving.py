"""Bodies of requests on their way: how large they may be, and how long they may take."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrieval_core_mcp.http.envelope import RequestError

if TYPE_CHECKING:
    from starlette.types import Message, Receive

_CLOSE = {"connection": "close"}


@dataclass(frozen=True, slots=True)
class Pace:
    """The time that a body may take.

    Attributes:
        seconds: How long it may take in any case.
        rate: Bytes for each second that it takes longer.
    """

    seconds: float
    rate: int

    def bound(self, receive: Receive) -> Receive:
        """Return a receive function that raises :class:`RequestError` if the body comes too slowly."""
        begun = asyncio.get_running_loop().time()
        length = 0
        is_whole = False

        async def next_part() -> Message:
            nonlocal length, is_whole
            if is_whole:
                return await receive()
            try:
                async with asyncio.timeout_at(begun + self.seconds + length / self.rate):
                    message = await receive()
            except TimeoutError:
                msg = (
                    f"the body came too slowly: after the first {self.seconds:g} seconds, {self.rate:,} bytes a second "
                    "are the least"
                )
                raise RequestError(408, msg, headers=_CLOSE) from None
            length += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            return message

        return next_part


async def read_body(receive: Receive, declared: str | None, most_bytes: int) -> bytes:
    """Return the body of a request.

    Args:
        declared: The header ``Content-Length``.

    Raises:
        RequestError: It is too large, or ends before its end.
    """
    check_length(declared, most_bytes)
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise RequestError(400, "the connection ended before the body was complete")
        body += message.get("body", b"")
        check_length(len(body), most_bytes)
        if not message.get("more_body", False):
            return body


def check_length(length: int | str | None, most_bytes: int) -> None:
    """Refuse a body that is too long.

    Args:
        length: In bytes, or what the header ``Content-Length`` says.
        most_bytes: The most.

    Raises:
        RequestError: It is.
    """
    if length is None or (isinstance(length, str) and not length.isdecimal()):
        return
    if int(length) > most_bytes:
        raise RequestError(413, f"the body must have at most {most_bytes:,} bytes", headers=_CLOSE)


def received(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that gives a received body first, and later messages after it."""
    is_given = False

    async def again() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
