"""Requests, responses and faults of the server that wire tests talk to, and how they look in HTTP/1.1."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it arrived.

    Attributes:
        path: Without the query, percent-decoded.
        query: All values of each parameter.
        headers: With names in lower case.
    """

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body, read as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Response:
    """What a service answers.

    Attributes:
        body: Bytes, or a value to be written as JSON.
        chunks: In place of a body: its pieces, each sent by itself, as in a stream of events.
    """

    status: int = 200
    body: Any = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    chunks: Sequence[bytes] | None = None

    @property
    def content(self) -> bytes:
        """The whole body as bytes."""
        if self.chunks is not None:
            return b"".join(self.chunks)
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()

    @property
    def content_type(self) -> str:
        """What the headers say, or what fits the body."""
        default = "text/event-stream" if self.chunks is not None else "application/json"
        return next((value for name, value in self.headers.items() if name.lower() == "content-type"), default)


@dataclass(frozen=True, slots=True)
class Hang:
    """The request is taken and nothing comes back, until the server is released or the client leaves."""


@dataclass(frozen=True, slots=True)
class PausedMidBody:
    """The first half is sent; the second comes when the server is released."""


@dataclass(frozen=True, slots=True)
class ResetMidBody:
    """The headers and the first half of the body are sent, then the connection is reset."""


@dataclass(frozen=True, slots=True)
class ClosedMidBody:
    """The headers and the first half of the body are sent, then the connection is closed in good order."""


@dataclass(frozen=True, slots=True)
class Status:
    """Another status, and an error in place of the answer.

    Attributes:
        retry_after: Value of the header ``Retry-After``: seconds, or a date as text.
        body: Bytes, or a value to be written as JSON.
    """

    code: int
    retry_after: float | str | None = None
    body: Any = field(default_factory=lambda: {"message": "a fault that was asked for"})


@dataclass(frozen=True, slots=True)
class BrokenJSON:
    """The answer's text ends in its middle, though the connection is in good order."""


@dataclass(frozen=True, slots=True)
class EmptyBody:
    """Nothing follows the headers."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The service's own answer, with something about it that is wrong."""

    change: Callable[[Response], Response]


Fault: TypeAlias = Hang | PausedMidBody | ResetMidBody | ClosedMidBody | Status | BrokenJSON | EmptyBody | Changed


async def read(reader: asyncio.StreamReader) -> Request:
    """Read one request of HTTP/1.1."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = b""
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readuntil(b"\r\n")
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    url = urlsplit(target)
    return Request(method, unquote(url.path), parse_qs(url.query, keep_blank_values=True), headers, body)


def spoilt(response: Response, fault: Fault | None) -> Response:
    """Return what is sent in place of a response where a fault changes it."""
    match fault:
        case Status(code, retry_after, body):
            return Response(code, body, {} if retry_after is None else {"Retry-After": str(retry_after)})
        case BrokenJSON():
            text = response.content
            return replace(response, body=text[: len(text) // 2], chunks=None)
        case EmptyBody():
            return replace(response, body=b"", chunks=None)
        case Changed(change):
            return change(response)
        case _:
            return response


def encoded(response: Response) -> tuple[bytes, list[bytes]]:
    """Return the head, and the body in the pieces that are sent one by one: at least two of them if there is any."""
    content = response.content
    headers = {name: value for name, value in response.headers.items() if name.lower() != "content-type"}
    headers["Content-Type"] = response.content_type
    if response.chunks is not None:
        headers["Transfer-Encoding"] = "chunked"
        pieces = [b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in response.chunks if chunk] + [b"0\r\n\r\n"]
    else:
        headers["Content-Length"] = str(len(content))
        pieces = [content[: len(content) // 2], content[len(content) // 2 :]]
    lines = [f"HTTP/1.1 {response.status} -", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1"), pieces
