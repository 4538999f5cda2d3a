"""The server that wire tests talk to does what it is told, in good order and in bad."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection, IncompleteRead, RemoteDisconnected
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from support.wire_server import (
    BrokenJSON,
    Changed,
    ClosedMidBody,
    EmptyBody,
    Hang,
    PausedMidBody,
    Request,
    ResetMidBody,
    Response,
    Status,
    WireServer,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPResponse

LONG = {"text": "x" * 1000}


def serve(request: Request) -> Response:
    if request.path == "/echo":
        return Response(body=request.json())
    if request.path == "/stream":
        return Response(chunks=[b"one\n", b"two\n", b"three\n"])
    if request.path == "/broken":
        msg = "no such thing"
        raise LookupError(msg)
    return Response(body=LONG)


@pytest.fixture
def server() -> Iterator[WireServer]:
    with WireServer(serve) as running:
        yield running


def connect(server: WireServer) -> HTTPConnection:
    return HTTPConnection(urlsplit(server.url).netloc)


def get(server: WireServer, path: str = "/") -> tuple[HTTPResponse, bytes]:
    with closing(connect(server)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        return response, response.read()


async def raw_get(server: WireServer, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(server.url).port)
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    return reader, writer


def test_a_request_is_recorded_and_answered(server: WireServer) -> None:
    """What arrives is kept with method, path, query, headers and body."""
    with closing(connect(server)) as connection:
        connection.request("POST", "/echo?a=1&a=2&b=%C3%A9", json.dumps({"k": "ü"}), {"X-Name": "value"})
        assert json.loads(connection.getresponse().read()) == {"k": "ü"}
        connection.request("PUT", "/a%20b", iter([b"one", b"two"]), encode_chunked=True)
        assert json.loads(connection.getresponse().read()) == LONG
    first, second = server.requests
    assert (first.method, first.path, first.query) == ("POST", "/echo", {"a": ["1", "2"], "b": ["é"]})
    assert first.headers["x-name"] == "value"
    assert first.json() == {"k": "ü"}
    assert (second.path, second.body) == ("/a b", b"onetwo")
    assert (server.count(), server.count("/echo"), server.count("/other")) == (2, 1, 0)


def test_a_stream_comes_in_pieces(server: WireServer) -> None:
    """Chunks are sent one by one and make one body."""
    response, body = get(server, "/stream")
    assert response.headers["Content-Type"] == "text/event-stream"
    assert body == b"one\ntwo\nthree\n"


def test_faults_are_used_up_in_order_and_by_path(server: WireServer) -> None:
    """Each fault meets one request; others, and other paths, are answered as ever."""
    server.fail(Status(503), Status(429, retry_after=1.5, body=b"slow down"), path="/a")
    assert get(server, "/b")[0].status == 200
    assert get(server, "/a/x")[0].status == 503
    response, body = get(server, "/a")
    assert (response.status, response.headers["Retry-After"], body) == (429, "1.5", b"slow down")
    assert get(server, "/a")[0].status == 200


def test_a_lasting_fault_stays_until_healed(server: WireServer) -> None:
    """A fault for every request comes after those for one, and goes when the server is healed."""
    server.fail_always(Status(500))
    server.fail(Status(404))
    assert [get(server)[0].status for _ in range(3)] == [404, 500, 500]
    server.heal()
    assert get(server)[0].status == 200


def test_answers_are_spoilt(server: WireServer) -> None:
    """Half a JSON text, nothing at all, and what a test makes of the answer."""
    server.fail(BrokenJSON(), EmptyBody(), Changed(lambda response: replace(response, body={"other": 1})))
    with pytest.raises(json.JSONDecodeError):
        json.loads(get(server)[1])
    assert get(server)[1] == b""
    assert json.loads(get(server)[1]) == {"other": 1}


def test_bodies_end_early(server: WireServer) -> None:
    """A connection that is reset or closed in the middle shows as what it is."""
    server.fail(ResetMidBody(), ClosedMidBody())
    with pytest.raises((ConnectionResetError, IncompleteRead)):
        get(server)
    with pytest.raises(IncompleteRead):
        get(server)
    server.fail(ResetMidBody(), ClosedMidBody())
    with pytest.raises((ConnectionResetError, IncompleteRead)):
        get(server, "/stream")
    with pytest.raises(IncompleteRead):
        get(server, "/stream")


def test_a_port_is_closed_and_opened_again(server: WireServer) -> None:
    """Clients are refused, also on connections that were open, until the server accepts them again."""
    url = server.url
    with closing(connect(server)) as connection:
        connection.request("GET", "/")
        connection.getresponse().read()
        server.refuse()
        assert connection.sock.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        get(server)
    server.accept()
    assert server.url == url
    assert get(server)[0].status == 200


def test_a_held_request_is_answered_when_released(server: WireServer) -> None:
    """Several requests hang at the same time; once released, each has its answer."""
    server.fail_always(Hang())
    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(get, server) for _ in range(3)]
        server.wait_until(lambda: server.count() == 3)
        assert not any(answer.done() for answer in answers)
        server.release()
        assert [answer.result()[0].status for answer in answers] == [200] * 3
    assert server.disconnected == 0


def test_a_client_that_leaves_is_counted() -> None:
    """A test with a loop of its own sees that a client closed its connection while it was held."""

    async def leave(server: WireServer, path: str) -> None:
        _, writer = await raw_get(server, path)
        await server.until(lambda: server.count(path) == 1)
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        with WireServer(serve) as server:
            server.fail(Hang(), PausedMidBody())
            await leave(server, "/")
            await server.until(lambda: server.disconnected == 1)
            await leave(server, "/stream")
            await server.until(lambda: server.disconnected == 2)

    asyncio.run(main())


def test_a_stream_is_paused_and_goes_on(server: WireServer) -> None:
    """The first half is there while the rest is held."""

    async def main() -> None:
        server.fail(PausedMidBody())
        reader, writer = await raw_get(server, "/stream")
        await reader.readuntil(b"two\n")
        server.release()
        assert b"three\n" in await reader.readuntil(b"0\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    asyncio.run(main())


def test_a_server_ends_with_requests_held() -> None:
    """Leaving the block ends what hangs, and its port is free again."""
    with ThreadPoolExecutor(1) as pool:
        with WireServer(serve) as server:
            server.fail(Hang())
            answer = pool.submit(get, server)
            server.wait_until(lambda: server.count() == 1)
        with pytest.raises((RemoteDisconnected, ConnectionError)):
            answer.result()
    with pytest.raises(ConnectionRefusedError):
        get(server)


def test_a_failing_service_fails_the_test() -> None:
    """An exception of a service is answered with 500 and comes out where the server ends."""
    with pytest.raises(AssertionError, match="no such thing"), WireServer(serve) as server:
        assert get(server, "/broken")[0].status == 500


def test_nothing_is_left_of_clients_that_just_connected() -> None:
    """A server that ends while clients connect closes what it accepted; the collector would warn of anything else."""
    for _ in range(20):
        with WireServer(serve) as server:
            client = socket.create_connection(("127.0.0.1", server._port))
        client.close()
    gc.collect()
