"""Bodies of requests on their way: how long they may take, how large they may be, and whose have to make room."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrieval_core_mcp.http.envelope import RequestError

if TYPE_CHECKING:
    from collections.abc import Container, Generator

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

    def seconds_for(self, received: int) -> float:
        """Return the time for so many bytes, in seconds."""
        return self.seconds + received / self.rate

    def too_slow(self) -> RequestError:
        """Return the error for a body that takes longer."""
        msg = (
            f"the body came too slowly: after the first {self.seconds:g} seconds, {self.rate:,} bytes a second are the "
            "least"
        )
        return RequestError(408, msg, headers=_CLOSE)


class Bodies:
    """Receives bodies before their requests are worked on, so that slow bodies take no place.

    Args:
        most: The most at a time. For one more, the caller with the most of them loses its oldest.
    """

    def __init__(self, most: int, most_bytes: int, pace: Pace) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._pace = pace
        self._under_way: dict[str, dict[asyncio.Timeout, None]] = {}
        self._count = 0

    async def receive(self, receive: Receive, declared: str | None, caller: str) -> bytes:
        """Return the body of a request.

        Args:
            declared: The header ``Content-Length``.
            caller: Whose request it is.

        Raises:
            RequestError: It is too large or too slow, ends before its end, or had to make room.
        """
        check_length(declared, self._most_bytes)
        try:
            async with asyncio.timeout(self._pace.seconds) as limit:
                with self._among(limit, caller) as own:
                    return await self._read(receive, limit, own)
        except TimeoutError:
            raise self._pace.too_slow() from None

    async def _read(self, receive: Receive, limit: asyncio.Timeout, own: Container[asyncio.Timeout]) -> bytes:
        begun = asyncio.get_running_loop().time()
        parts: list[bytes] = []
        length = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise RequestError(400, "the connection ended before the body was complete")
            if limit not in own:
                raise TimeoutError
            parts.append(message.get("body", b""))
            length += len(parts[-1])
            check_length(length, self._most_bytes)
            if not message.get("more_body", False):
                return b"".join(parts)
            limit.reschedule(begun + self._pace.seconds_for(length))

    @contextmanager
    def _among(self, limit: asyncio.Timeout, caller: str) -> Generator[dict[asyncio.Timeout, None]]:
        """Count a body among those of its caller, which are yielded; without it, it had to make room."""
        if self._count >= self._most:
            most = max(self._under_way.values(), key=len)
            oldest = next(iter(most))
            oldest.reschedule(0)
            self._forget(oldest, most)
        own = self._under_way.setdefault(caller, {})
        own[limit] = None
        self._count += 1
        try:
            yield own
        finally:
            self._forget(limit, own)
            if not own and self._under_way.get(caller) is own:
                del self._under_way[caller]

    def _forget(self, limit: asyncio.Timeout, own: dict[asyncio.Timeout, None]) -> None:
        if limit in own:
            del own[limit]
            self._count -= 1


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


def paced(receive: Receive, pace: Pace) -> Receive:
    """Return a receive function that raises :class:`RequestError` if the body comes too slowly."""
    begun = asyncio.get_running_loop().time()
    length = 0
    is_whole = False

    async def next_part() -> Message:
        nonlocal length, is_whole
        if is_whole:
            return await receive()
        try:
            async with asyncio.timeout_at(begun + pace.seconds_for(length)):
                message = await receive()
        except TimeoutError:
            raise pace.too_slow() from None
        length += len(message.get("body", b""))
        is_whole = not message.get("more_body", False)
        return message

    return next_part
