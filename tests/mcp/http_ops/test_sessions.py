"""Sessions and streams of MCP over HTTP: who has one, what it is told, and how it ends."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import TYPE_CHECKING, Any, Literal

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

import httpx2
from mcp.client.streamable_http import streamable_http_client

from mcp import Client
from retrieval_core import Document, load_config, open_index
from support.http_process import http_process
from support.http_service import bearer, hashed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from support.http_process import HttpProcess

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM"), pytest.mark.slow]

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
SUBSCRIBE = {
    "jsonrpc": "2.0", "id": 5, "method": "resources/subscribe", "params": {"uri": "document://notes/a.md"},
}  # fmt: skip
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory, config_file: Path) -> Callable[[str, str], Path]:
    """Return a function that writes a document, and returns the index."""
    path = tmp_path_factory.mktemp("sessions") / "notes.db"

    def write(name: str, text: str) -> Path:
        with open_index(config=load_config(config_file, {"index": str(path)}, {})) as index:
            index.add_documents(
                [Document(name, text, source=name, content_hash="", metadata={"tenant": text.split(maxsplit=1)[0]})]
            )
        return path

    write("a.md", "acme first")
    return write


@pytest.fixture
def service(notes: Any, config_file: Path) -> Generator[HttpProcess]:
    """A service with two tokens, one of them a tenant's, and few sessions: each may have half of them."""
    environment = {
        "RETRIEVAL_MCP__HTTP__TOKENS": ",".join((hashed("all"), hashed("own", "acme"))),
        "RETRIEVAL_MCP__HTTP__MAX_SESSIONS": "6",
        "RETRIEVAL_MCP__HTTP__MAX_REQUESTS": "4",
    }
    path = notes("b.md", "other one")
    with http_process("--index", str(path), "--config", str(config_file), environment=environment) as running:
        yield running


def client_of(service: HttpProcess, token: str = "all") -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=service.url, headers={**ACCEPT, **bearer(token)}, timeout=60)


async def opened(client: httpx2.AsyncClient) -> dict[str, str]:
    """Open a session, and return the headers of its requests."""
    answer = await client.post("/mcp", json=HELLO)
    assert answer.status_code == 200
    headers = {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await client.post("/mcp", json=ready, headers=headers)).status_code == 202
    return headers


def messages(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the events of a stream that say something, with their ids."""
    found: list[tuple[str, dict[str, Any]]] = []
    for part in text.replace("\r\n", "\n").split("\n\n"):
        lines = dict(line.split(": ", 1) for line in part.splitlines() if ": " in line)
        if lines.get("data"):
            found.append((lines.get("id", ""), json.loads(lines["data"])))
    return found


def test_a_session_lives_until_it_is_ended(service: HttpProcess) -> None:
    """Its id is needed and enough; afterwards there is none. Without one, single requests are answered as ever."""

    async def conversation() -> None:
        async with client_of(service) as client:
            headers = await opened(client)
            listed = await client.post("/mcp", json=LIST, headers=headers)
            assert messages(listed.text)[-1][1]["result"]["tools"][0]["name"] == "search"
            assert (await client.delete("/mcp", headers=headers)).status_code == 200
            assert (await client.post("/mcp", json=LIST, headers=headers)).status_code == 404
            single = await client.post("/mcp", json=LIST)
            assert messages(single.text)[-1][1]["result"]["tools"][0]["name"] == "search"
            assert "mcp-session-id" not in single.headers

    asyncio.run(conversation())


def test_an_address_asks_for_texts_that_are_json(service: HttpProcess) -> None:
    """With and without a session."""
    call = {
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "search", "arguments": {"query": "one"}},
    }  # fmt: skip

    async def conversation() -> None:
        async with client_of(service) as client:
            for headers in ({}, await opened(client)):
                plain = await client.post("/mcp", json=call, headers=headers)
                told = await client.post("/mcp?text=json", json=call, headers=headers)
                result = messages(told.text)[-1][1]["result"]
                assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
                assert all(hit["title"] and hit["url"] for hit in result["structuredContent"]["results"])
                assert not messages(plain.text)[-1][1]["result"]["content"][0]["text"].startswith("{")

    asyncio.run(conversation())


def test_a_session_is_its_callers_alone(service: HttpProcess) -> None:
    """With another token it is as if there were none, for every method."""

    async def conversation() -> None:
        async with client_of(service) as client, client_of(service, "own") as other:
            headers = await opened(client)
            for method, body in (("POST", LIST), ("GET", None), ("DELETE", None)):
                answer = await other.request(method, "/mcp", json=body, headers=headers)
                assert answer.status_code == 404
            assert (await client.post("/mcp", json=LIST, headers=headers)).status_code == 200

    asyncio.run(conversation())


def test_sessions_are_bounded(service: HttpProcess) -> None:
    """A new one takes the place of that which was not used for longest; one that listens is never ended for another."""

    async def conversation() -> None:
        async with client_of(service) as client:

            async def status(session: dict[str, str]) -> int:
                return (await client.post("/mcp", json=LIST, headers=session)).status_code

            sessions = [await opened(client) for _ in range(3)]
            assert await status(sessions[0]) == 200
            sessions.append(await opened(client))
            assert [await status(session) for session in sessions] == [200, 404, 200, 200]
            for _ in range(20):  # somebody begins and goes, also in a wrong way
                await client.post("/mcp", json={**HELLO, "params": {}})
            sessions = [await opened(client) for _ in range(3)]
            async with (
                client.stream("GET", "/mcp", headers=sessions[0]),
                client.stream("GET", "/mcp", headers=sessions[1]),
                client.stream("GET", "/mcp", headers=sessions[2]),
            ):
                assert (await client.post("/mcp", json=HELLO)).status_code == 503
                await client.delete("/mcp", headers=sessions[1])
                another = await opened(client)
                assert await status(another) == 200
                assert await status(sessions[0]) == 200

    asyncio.run(conversation())


async def updates(client: httpx2.AsyncClient, headers: dict[str, str], write: Callable[[], Any], **more: str) -> Any:
    """Listen to a session's stream until it says something, and return that; ``write`` is called once it is open."""
    async with client.stream("GET", "/mcp", headers={**headers, **more}) as stream:
        assert stream.status_code == 200
        text = ""
        await asyncio.to_thread(write)
        async for part in stream.aiter_text():
            text += part
            if found := messages(text):
                return found
    return []


def test_a_stream_is_told_of_changes_and_what_it_missed(service: HttpProcess, notes: Any) -> None:
    """Without holding one of the two places; who comes back with the last event hears what followed it."""

    async def conversation() -> None:
        async with client_of(service) as client:
            headers = await opened(client)
            await client.post("/mcp", json=SUBSCRIBE, headers=headers)
            first = await updates(client, headers, lambda: notes("a.md", "acme second"))
            assert first[0][1]["params"]["uri"] == "document://notes/a.md"
            await asyncio.to_thread(notes, "a.md", "acme third")
            again: list[Any] = []
            while not again:  # it is looked for changes every two seconds, whether anybody listens or not
                await asyncio.sleep(0.5)
                last = {"last-event-id": first[0][0]}
                with_last = {**headers, **last}
                try:
                    async with asyncio.timeout(1), client.stream("GET", "/mcp", headers=with_last) as stream:
                        text = ""
                        async for part in stream.aiter_text():
                            text += part
                            again = messages(text)
                            if again:
                                break
                except TimeoutError:
                    pass
            assert again[0][1]["method"] == "notifications/resources/updated"
            listening = [asyncio.create_task(updates(client, await opened(client), lambda: None)) for _ in range(2)]
            await asyncio.sleep(0.2)
            assert (await client.post("/mcp", json=LIST, headers=headers)).status_code == 200
            for task in listening:
                task.cancel()

    asyncio.run(conversation())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_librarys_client_hears_of_what_it_may_see(
    service: HttpProcess, notes: Any, mode: Literal["auto", "legacy"]
) -> None:
    """A tenant's client is told of its own document, and never of another's that it names."""
    told: list[str] = []

    async def note(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/updated":
            told.append(str(message.params.uri))

    async def conversation() -> None:
        async with client_of(service, "own") as http:
            http.headers.pop("accept")
            streams = streamable_http_client(f"{service.url}/mcp", http_client=http)
            async with Client(streams, mode=mode, message_handler=note) as client, asyncio.timeout(60):
                uris = ["document://notes/a.md", "document://notes/b.md"]
                if mode == "legacy":
                    for uri in uris:
                        with pytest.warns(match="resources/subscribe"):
                            await client.subscribe_resource(uri)  # pyright: ignore[reportDeprecated]
                    await asyncio.to_thread(notes, "b.md", f"other {mode}")
                    await asyncio.to_thread(notes, "a.md", f"acme {mode}")
                    while not told:  # noqa: ASYNC110 - what is waited for is another task's
                        await asyncio.sleep(0.05)
                else:
                    async with client.listen(resource_subscriptions=uris) as stream:
                        await asyncio.to_thread(notes, "b.md", f"other {mode}")
                        await asyncio.to_thread(notes, "a.md", f"acme {mode}")
                        told.append((await anext(aiter(stream))).uri)  # type: ignore[union-attr]
                assert told == ["document://notes/a.md"]

    asyncio.run(conversation())


def test_open_streams_do_not_hold_up_the_end(service: HttpProcess) -> None:
    """They end as soon as the process is to end, in both generations, with exit code 0."""

    async def conversation() -> None:
        async with client_of(service) as client:
            headers = await opened(client)
            async with client.stream("GET", "/mcp", headers=headers) as stream:
                assert stream.status_code == 200
                service.signal(signal.SIGTERM)
                async for _ in stream.aiter_bytes():
                    pass

    asyncio.run(conversation())
    code, said = service.end()
    assert (code, said) == (0, "")
