"""Bodies of requests on their way: how large they may be, and how long they may take."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrieval_core_mcp.http.envelope import RequestError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

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


async def read_parts(receive: Receive, declared: str | None, most_bytes: int) -> AsyncGenerator[bytes]:
    """Yield the body of a request as it comes.

    Args:
        declared: The header ``Content-Length``.

    Raises:
        RequestError: It is too long, or ends before its end.
    """
    length, is_whole = 0, False
    _check_length(int(declared) if declared is not None and declared.isdecimal() else 0, most_bytes)
    while not is_whole:
        message = await receive()
        if message["type"] != "http.request":
            raise RequestError(400, "the connection ended before the body was complete")
        part, is_whole = message.get("body", b""), not message.get("more_body", False)
        length += len(part)
        _check_length(length, most_bytes)
        yield part


def _check_length(length: int, most_bytes: int) -> None:
    if length > most_bytes:
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
