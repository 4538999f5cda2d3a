"""How much the service takes on: at a time, for how long, and from whom that takes nothing."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")
pytest.importorskip("tokenizers", reason="contexts are counted in tokens: pip install 'retrieval-core[local]'")

from retrieval_core import Chunk
from retrieval_core.testing.fakes import FakeEmbedder
from support.http_service import opened, serving

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core import Index
    from support.http_service import Service

pytestmark = pytest.mark.slow

QUERY = {"query_text": "the moon"}


async def moon(tmp_path: Path, embedder: FakeEmbedder) -> Index:
    index = opened(tmp_path / "index.db", parts={"embedder": embedder})
    await index.aadd([Chunk(f"c{row}", "d", f"The moon has no air, says {row}.", row) for row in range(3)])
    return index


def test_more_requests_than_places_are_told_to_come_again(tmp_path: Path) -> None:
    """None waits for a place; when one is free again, the next request has it. Health is told all the time."""

    async def run() -> None:
        embedder = FakeEmbedder()
        index = await moon(tmp_path, embedder)
        async with serving({"index": index}, max_requests=3) as service:
            assert (await service.ask("GET", "/readyz")).status_code == 200
            embedder.gate = asyncio.Event()
            waiting = [
                asyncio.create_task(service.ask("POST", "/v1/search", json={"query_text": f"moon {row}"}))
                for row in range(3)
            ]
            while embedder.running < 3:  # noqa: ASYNC110 - what is waited for tells nobody
                await asyncio.sleep(0)
            for path, method in (("/v1/search", "POST"), ("/v1/indexes", "GET"), ("/mcp", "POST")):
                request: dict[str, Any] = {"json": QUERY} if method == "POST" else {}
                refused = await service.ask(method, path, **request)
                assert refused.status_code == 503
                assert refused.headers["retry-after"] == "1"
                assert refused.json()["errors"] == ["the service is busy; ask again in a moment"]
            for path in ("/healthz", "/metrics", "/openapi.json"):
                assert (await service.ask("GET", path)).status_code == 200
            embedder.gate.set()
            assert [answer.status_code for answer in await asyncio.gather(*waiting)] == [200, 200, 200]
            assert service.admission.in_progress == 0
            assert (await service.ask("POST", "/v1/search", json=QUERY)).status_code == 200

    asyncio.run(run())


def test_a_stream_that_nobody_reads_gives_its_place_back(tmp_path: Path) -> None:
    """The client neither leaves nor reads: after the time of a request nobody works for it any more."""

    async def run() -> None:
        index = await moon(tmp_path, FakeEmbedder())
        async with serving({"index": index}, request_seconds=0.5) as service:
            await loaded(service)
            sent: list[str] = []

            async def send(message: Any) -> None:
                sent.append(message["type"])
                if message["type"] == "http.response.body":
                    await asyncio.Event().wait()

            await asyncio.wait_for(service.app(scope("/v1/answer"), body(QUERY), send), 30)
            assert sent == ["http.response.start", "http.response.body"]
            assert service.admission.in_progress == 0

    asyncio.run(run())


def test_the_end_does_not_wait_for_a_stream_that_nobody_reads(tmp_path: Path) -> None:
    """Its last event cannot be sent either."""

    async def run() -> None:
        index = await moon(tmp_path, FakeEmbedder())
        async with serving({"index": index}, request_seconds=0.5) as service:
            await loaded(service)
            stuck = asyncio.Event()

            async def send(message: Any) -> None:
                if message["type"] == "http.response.body":
                    stuck.set()
                    await asyncio.Event().wait()

            answering = asyncio.create_task(as_task(service, send))
            await stuck.wait()
            service.admission.interrupt()
            await asyncio.wait_for(answering, 30)
            assert service.admission.in_progress == 0

    asyncio.run(run())


@pytest.mark.parametrize("path", ["/v1/search", "/v1/answer", "/mcp"])
def test_who_comes_after_the_signal_is_told(path: str, tmp_path: Path) -> None:
    """On a connection that was open already, for instance."""

    async def run() -> None:
        index = await moon(tmp_path, FakeEmbedder())
        async with serving({"index": index}) as service:
            service.admission.end()
            refused = await service.ask("POST", path, json=QUERY)
            assert refused.status_code == 503
            assert refused.json()["errors"] == ["the service is shutting down"]
            assert refused.headers["retry-after"] == "5"

    asyncio.run(run())


@pytest.mark.parametrize("path", ["/v1/search", "/v1/context", "/v1/answer", "/mcp"])
def test_a_body_beyond_the_limit_is_not_read_to_its_end(path: str, tmp_path: Path) -> None:
    """413, also where the client does not say how long it is."""

    async def run() -> None:
        index = await moon(tmp_path, FakeEmbedder())
        async with serving({"index": index}, max_body_bytes=16_384) as service:
            read = 0

            async def endless() -> Any:
                nonlocal read
                for _ in range(1000):
                    read += 1024
                    yield b" " * 1024

            headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
            refused = await service.ask("POST", path, content=endless(), headers=headers)
            assert refused.status_code == 413
            assert read <= 20_000

    asyncio.run(run())


async def loaded(service: Service) -> None:
    """Ask until what the first answer imports is there, and the answer in the cache."""
    told = ""
    for _ in range(100):
        answer = await service.ask("POST", "/v1/answer", json=QUERY)
        if answer.status_code == 200:
            return
        told = answer.text
    pytest.fail(f"there is no answer: {told}")


def scope(path: str) -> dict[str, Any]:
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    return {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": headers, "scheme": "http",
        "query_string": b"", "http_version": "1.1", "server": ("localhost", 80), "root_path": "",
    }  # fmt: skip


def body(content: Any) -> Any:
    """Return a client that sends a body, and stays."""
    messages = [{"type": "http.request", "body": json.dumps(content).encode(), "more_body": False}]

    async def receive() -> Any:
        if messages:
            return messages.pop()
        return await asyncio.Event().wait()

    return receive


async def as_task(service: Service, send: Any) -> None:
    await service.app(scope("/v1/answer"), body(QUERY), send)
