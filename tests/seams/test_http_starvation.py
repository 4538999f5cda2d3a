"""Clients that send slowly, or ask too much, take nothing from the others that ask the service over HTTP."""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

import httpx2

from retrieval_core import Document, load_config, open_index
from support.http_process import PATIENCE, http_process

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from support.http_process import HttpProcess

pytestmark = pytest.mark.slow

GATED = '''
"""An embedder that answers questions about a gate once there is a file ``open``."""
import asyncio
from pathlib import Path
from retrieval_core.testing.fakes import FakeEmbedder

class Gated(FakeEmbedder):
    async def embed_query(self, text):
        while "gate" in text and not Path("open").exists():
            await asyncio.sleep(0.02)
        return await super().embed_query(text)
'''
QUERY = {"query_text": "moon"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ACCEPT = {"accept": "application/json, text/event-stream"}
HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "a test", "version": "1"},
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index that no test writes to."""
    path = tmp_path_factory.mktemp("starvation")
    (path / "gated.py").write_text(GATED)
    (path / "config.toml").write_text('[embedder]\nkind = "gated:Gated"\n')
    fake = path / "fake.toml"
    fake.write_text('[embedder]\nkind = "retrieval_core.testing.fakes:FakeEmbedder"\n')
    with open_index(config=load_config(fake, {"index": str(path / "index.db")}, {})) as index:
        own = {"tenant": "acme"}
        index.add_documents([Document("moon.md", "The moon has no air.", "moon.md", content_hash="", metadata=own)])
    return path


@contextmanager
def serving(folder: Path, *options: str, **settings: str) -> Generator[HttpProcess]:
    """Serve the index to two tokens: ``one``, and ``acme`` of a tenant."""
    tokens = f"sha256:{sha256(b'one').hexdigest()},sha256:{sha256(b'acme').hexdigest()}:acme"
    environment = {f"RETRIEVAL_MCP__HTTP__{name}": value for name, value in {"TOKENS": tokens, **settings}.items()}
    given = ("--index", "index.db", "--config", "config.toml", *options)
    with http_process(*given, folder=folder, environment=environment) as running:
        yield running


@pytest.fixture(scope="module")
def service(folder: Path) -> Generator[HttpProcess]:
    """A service as it is by default."""
    with serving(folder) as running:
        yield running


@pytest.fixture(scope="module")
def impatient(folder: Path) -> Generator[HttpProcess]:
    """A service that waits for nobody, and takes files."""
    with serving(folder, "--allow-writes", RECEIVE_SECONDS="0.3", MIN_BYTES_PER_SECOND="10000") as running:
        yield running


def ask(service: HttpProcess, token: str, path: str = "/v1/search", body: Any = QUERY, **headers: str) -> Any:
    given = {**ACCEPT, "authorization": f"Bearer {token}", **headers}
    return httpx2.post(f"{service.url}{path}", json=body, headers=given, timeout=PATIENCE)


def head(path: str, token: str, *more: str) -> bytes:
    """Return the headers of a request whose body follows."""
    kind = "application/octet-stream" if path.startswith("/v1/files") else "application/json"
    lines = (
        f"POST {path} HTTP/1.1", "host: localhost", f"authorization: Bearer {token}", f"content-type: {kind}",
        f"accept: {ACCEPT['accept']}", *more,
    )  # fmt: skip
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


def connect(service: HttpProcess, sent: bytes) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", service.port), PATIENCE)
    made.sendall(sent)
    return made


def rest_of(connection: socket.socket, drip: bytes = b"") -> bytes:
    """Return all that comes until the service closes a connection, to which single bytes are sent all the time."""
    got = b""
    connection.settimeout(0.05 if drip else PATIENCE)
    for _ in range(PATIENCE * 20):
        try:
            if drip:
                connection.sendall(drip)
            part = connection.recv(65_536)
        except TimeoutError:
            continue
        except (ConnectionResetError, BrokenPipeError):
            return got
        if not part:
            return got
        got += part
    msg = f"the service keeps the connection open, after {got!r}"
    raise AssertionError(msg)


@pytest.mark.parametrize("path", ["/mcp", "/v1/search"])
def test_slow_bodies_hold_up_nobody(service: HttpProcess, path: str) -> None:
    """More of them than there are places, with one token: others are answered, and so is the same token."""
    with ExitStack() as stack:
        for _ in range(70):
            stack.enter_context(connect(service, head(path, "one", "content-length: 100") + b'{"'))
        for token in ("acme", "one"):
            assert ask(service, token).status_code == 200
            assert ask(service, token, "/mcp", LIST).status_code == 200


@pytest.mark.parametrize(
    ("path", "length"),
    [
        ("/mcp", "content-length: 100000"),
        ("/mcp", "transfer-encoding: chunked"),
        ("/v1/search", "content-length: 100000"),
        ("/v1/search", "transfer-encoding: chunked"),
        ("/v1/documents", "content-length: 100000"),
        ("/v1/files?name=a.md", "content-length: 100000"),
    ],
)
def test_a_body_that_does_not_end_is_refused(impatient: HttpProcess, path: str, length: str) -> None:
    """Single bytes do not extend its time; the answer says what was too slow."""
    chunked = "chunked" in length
    with connect(impatient, head(path, "one", length)) as connection:
        got = rest_of(connection, b"1\r\n \r\n" if chunked else b" ")
    assert got.startswith(b"HTTP/1.1 408 ")
    assert b"10,000 bytes a second" in got
    assert b"connection: close" in got.lower()


def test_a_session_waits_no_longer_for_bodies(impatient: HttpProcess) -> None:
    """The requests of a session of MCP have the same limit."""
    session = ask(impatient, "one", "/mcp", HELLO).headers["mcp-session-id"]
    given = head("/mcp", "one", f"mcp-session-id: {session}", "content-length: 100")
    with connect(impatient, given) as connection:
        assert rest_of(connection).startswith(b"HTTP/1.1 408 ")
    assert ask(impatient, "one", "/mcp", LIST, **{"mcp-session-id": session}).status_code == 200


@pytest.mark.parametrize("sent", [b"", b"GET /heal", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: "])
def test_headers_that_do_not_end_are_not_waited_for(impatient: HttpProcess, sent: bytes) -> None:
    """The connection is closed, though bytes keep coming."""
    with connect(impatient, sent) as connection:
        rest_of(connection, b"x" if sent else b"")


def test_a_connection_is_not_kept_by_the_rest_of_a_body(impatient: HttpProcess) -> None:
    """Of a request that was answered before its body had come, such as one without a token."""
    given = head("/v1/search", "wrong", "content-length: 1000000")
    with connect(impatient, given) as connection:
        assert rest_of(connection, b" ").startswith(b"HTTP/1.1 401 ")


def test_connections_that_wait_are_bounded(folder: Path) -> None:
    """Hundreds of clients that begin a request, without a token: the oldest are closed, a new one is answered."""
    with serving(folder, RECEIVE_SECONDS="600", MAX_WAITING="50") as service, ExitStack() as stack:
        opened = [stack.enter_context(connect(service, b"GET /heal")) for _ in range(300)]
        assert ask(service, "one").status_code == 200
        for connection in opened[:200]:
            assert rest_of(connection) == b""


@pytest.mark.parametrize("path", ["/v1/search", "/mcp", "/healthz", "/nothing"])
def test_two_lengths_are_refused(service: HttpProcess, path: str) -> None:
    """What a proxy takes for the end of a request must not be another place than here."""
    given = head(path, "one", "content-length: 4", "transfer-encoding: chunked")
    with connect(service, given + b"0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n") as connection:
        got = rest_of(connection)
    assert got.startswith(b"HTTP/1.1 400 ")
    assert b"Content-Length and Transfer-Encoding" in got
    assert got.count(b"HTTP/1.1 ") == 1


def test_a_file_may_take_longer_than_a_request(folder: Path, tmp_path: Path) -> None:
    """As long as it comes with the least rate, it is indexed; one that stalls gives up its place."""
    for name in ("config.toml", "gated.py"):
        (tmp_path / name).write_text((folder / name).read_text())
    settings = {"REQUEST_SECONDS": "0.5", "RECEIVE_SECONDS": "0.5", "MIN_BYTES_PER_SECOND": "100", "MAX_REQUESTS": "2"}
    with serving(tmp_path, "--allow-writes", **settings) as service:
        for _ in range(3):
            with connect(service, head("/v1/files?name=a.md", "one", "content-length: 100000")) as connection:
                assert rest_of(connection).startswith(b"HTTP/1.1 408 ")
        text = b"The sea is deep. " * 100
        given = head("/v1/files?name=sea.md", "one", f"content-length: {len(text)}", "connection: close")
        with connect(service, given) as connection:
            for at in range(0, len(text), 100):
                connection.sendall(text[at : at + 100])
                time.sleep(0.06)  # the slowness itself is what is tried
            got = rest_of(connection)
        assert b'"type":"done"' in got, got


def test_one_token_leaves_places_to_the_others(folder: Path) -> None:
    """However many requests it has under way; those of it that are too many are told to come again."""
    (folder / "open").unlink(missing_ok=True)
    slow = json.dumps({"query_text": "gate"}).encode()
    with serving(folder, MAX_REQUESTS="4") as service, ExitStack() as stack:
        asked = head("/v1/search", "one", f"content-length: {len(slow)}") + slow
        running = [stack.enter_context(connect(service, asked)) for _ in range(2)]
        while (refused := ask(service, "one")).status_code == 200:  # until both have their places
            pass
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert "token" in refused.json()["errors"][0]
        assert ask(service, "acme").status_code == 200
        assert ask(service, "acme", "/mcp", LIST).status_code == 200
        (folder / "open").touch()
        for connection in running:
            connection.settimeout(PATIENCE)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        assert ask(service, "one").status_code == 200


def test_one_token_ends_no_session_of_another(folder: Path) -> None:
    """However many it opens: those that it used least end."""
    with serving(folder, MAX_SESSIONS="6") as service:

        def opened(token: str) -> dict[str, str]:
            return {"mcp-session-id": ask(service, token, "/mcp", HELLO).headers["mcp-session-id"]}

        def status(token: str, session: dict[str, str]) -> int:
            return ask(service, token, "/mcp", LIST, **session).status_code

        kept = [opened("acme") for _ in range(2)]
        many = [opened("one") for _ in range(20)]
        assert [status("acme", session) for session in kept] == [200, 200]
        assert status("one", many[0]) == 404
        assert status("one", many[-1]) == 200
