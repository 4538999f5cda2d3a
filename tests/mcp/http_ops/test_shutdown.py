"""What happens to requests under way when the process has to end, and to work whose caller has left."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")
pytest.importorskip("tokenizers", reason="contexts are counted in tokens: pip install 'retrieval-core[local]'")
pytest.importorskip("openai", reason="the slow models are served as OpenAI's: pip install 'retrieval-core[openai]'")

import httpx2

from retrieval_core import Chunk, load_config, open_index
from support.http_process import http_process
from support.openai_service import OpenAIService
from support.wire_server import Hang, PausedMidBody, WireServer

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from support.http_process import HttpProcess

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM"), pytest.mark.slow]

EMBEDDINGS, COMPLETIONS = "/v1/embeddings", "/v1/chat/completions"
ANSWER = "The moon has no air [1]. " * 20
SEARCHES, BODIES, STREAMS = 30, 10, 10


@contextmanager
def service_with_slow_models(tmp_path: Path, **environment: str) -> Generator[tuple[HttpProcess, WireServer]]:
    """Run the service with an index, an embedder and a language model that a test can hold back."""
    with WireServer(OpenAIService(answer=lambda _request: ANSWER, key=None)) as models:
        config = tmp_path / "config.toml"
        config.write_text(f"""
deadline_seconds = 600

[embedder]
kind = "openai"
[embedder.openai]
model = "text-embedding-3-small"
base_url = "{models.url}/v1"
[llm]
kind = "openai"
[llm.openai]
base_url = "{models.url}/v1"
""")
        with open_index(config=load_config(config, {"index": str(tmp_path / "index.db")}, {})) as index:
            index.add([Chunk(f"c{row}", f"d{row}", f"The moon has no air, says {row}.") for row in range(5)])
        patient = {f"RETRIEVAL_MCP__HTTP__{name}_SECONDS": "900" for name in ("REQUEST", "SHUTDOWN")}
        given = patient | environment
        with http_process("--index", str(tmp_path / "index.db"), "--config", str(config), environment=given) as service:
            yield service, models


def client_of(service: HttpProcess) -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=None)
    return httpx2.AsyncClient(base_url=service.url, timeout=60, limits=limits)


def events_of(text: str) -> list[dict[str, Any]]:
    """Return the events of a stream, of which each says its type twice."""
    events: list[dict[str, Any]] = []
    for part in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in part.splitlines() if not line.startswith(":"))
        if lines:
            events.append(json.loads(lines["data"]))
            assert lines["event"] == events[-1]["type"]
    return events


class Stream:
    """A request for an answer, read as far as a test wants."""

    def __init__(self, response: httpx2.Response) -> None:
        self.text = ""
        self._parts = response.aiter_text()

    async def until(self, words: str) -> None:
        while words not in self.text:
            self.text += await anext(self._parts)

    async def rest(self) -> list[dict[str, Any]]:
        async for part in self._parts:
            self.text += part
        return events_of(self.text)


async def half_a_body(service: HttpProcess) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    head = (
        "POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n"
    )
    writer.write(head.encode() + b'{"query_text": "the')
    await writer.drain()
    return reader, writer


async def answer_to_half_a_body(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.split("content-length: ")[1].split("\r\n")[0])
    return int(head.split()[1]), json.loads(await reader.readexactly(length))


def check_ended(status: int, told: dict[str, Any]) -> None:
    assert status == 503
    assert told["status"] == "error"
    assert told["errors"] == ["the service is shutting down"]
    assert told["execution"]["result_count"] == 0


@pytest.mark.parametrize("finish", [True, False], ids=["in time", "interrupted"])
def test_requests_under_way_finish_or_are_told(tmp_path: Path, finish: bool) -> None:
    """On SIGTERM nobody is let in any more; what can finish does, the rest gets 503 or, in a stream, an error event."""

    async def run(service: HttpProcess, models: WireServer) -> None:
        async with client_of(service) as client:
            assert (await client.get("/readyz")).status_code == 200
            models.fail_always(PausedMidBody(), path=COMPLETIONS)
            responses = [
                await client.send(
                    client.build_request("POST", "/v1/answer", json={"query_text": f"has the moon air, asks {row}"}),
                    stream=True,
                )
                for row in range(STREAMS)
            ]
            streams = [Stream(response) for response in responses]
            await asyncio.gather(*(stream.until("answer_chunk") for stream in streams))
            models.fail_always(Hang(), path=EMBEDDINGS)
            before = models.count(EMBEDDINGS)
            asked = [{"query_text": f"is there air on the moon, asks {row}"} for row in range(SEARCHES)]
            searches = [asyncio.create_task(client.post("/v1/search", json=query)) for query in asked]
            bodies = [await half_a_body(service) for _ in range(BODIES)]
            await models.until(lambda: models.count(EMBEDDINGS) == before + SEARCHES)
            counted = (await client.get("/metrics")).text
            assert f"retrieval_http_requests_in_progress {SEARCHES + BODIES + STREAMS + 1}" in counted

            service.signal(signal.SIGTERM)
            await until_closed(service)
            if finish:
                models.heal()
                models.fail_always(PausedMidBody(), path=COMPLETIONS)
                gone = models.disconnected
                await asyncio.to_thread(models.release)
                for answer in await asyncio.gather(*searches):
                    assert answer.status_code == 200
                    assert len(answer.json()["results"]) == 5
                assert models.disconnected == gone
            service.signal(signal.SIGTERM)  # what is left may not take longer
            if not finish:
                for answer in await asyncio.gather(*searches):
                    check_ended(answer.status_code, answer.json())
                    assert answer.headers["retry-after"]
            for reader, writer in bodies:
                check_ended(*await answer_to_half_a_body(reader))
                writer.close()
            for stream in streams:
                events = await stream.rest()
                if finish and events[-1]["type"] == "done":
                    continue
                assert events[-1]["type"] == "error"
                assert events[-1]["reason"] == "the service is shutting down"
                assert [event["type"] for event in events].count("error") == 1

    with service_with_slow_models(tmp_path) as (service, models):
        asyncio.run(run(service, models))
        code, said = service.end()
    assert code == 0
    assert "Traceback" not in said, said


async def until_closed(service: HttpProcess) -> None:
    """Wait until nobody is let in: the port is closed."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", service.port)
        except ConnectionRefusedError:
            return
        except ConnectionResetError:  # it waited to be let in when the port was closed
            continue
        writer.close()


def test_a_client_that_leaves_ends_the_work_of_the_model(tmp_path: Path) -> None:
    """At the first words of an answer the model's server sees its connection closed, before it has sent more."""

    async def run(service: HttpProcess, models: WireServer) -> None:
        models.fail_always(PausedMidBody(), path=COMPLETIONS)
        async with client_of(service) as client:
            async with client.stream("POST", "/v1/answer", json={"query_text": "has the moon air"}) as response:
                assert response.status_code == 200
                await Stream(response).until("answer_chunk")
                assert models.disconnected == 0
            await models.until(lambda: models.disconnected == 1)
            # Its place is free, and the service has not suffered.
            models.heal()
            whole = await client.post("/v1/answer", json={"query_text": "is there air on the moon"})
            assert events_of(whole.text)[-1]["type"] == "done"

    with service_with_slow_models(tmp_path, RETRIEVAL_MCP__HTTP__MAX_REQUESTS="1") as (service, models):
        asyncio.run(run(service, models))
        service.signal(signal.SIGTERM)
        code, said = service.end()
    assert code == 0
    assert "Traceback" not in said, said


@pytest.mark.parametrize("path", ["/v1/search", "/v1/context", "/v1/answer"])
def test_a_client_that_leaves_before_its_answer_ends_the_work_for_it(tmp_path: Path, path: str) -> None:
    """The embedder's server sees its connection closed, and the place of the request is free again."""

    async def run(service: HttpProcess, models: WireServer) -> None:
        async with client_of(service) as client:
            assert (await client.get("/readyz")).status_code == 200
            models.fail_always(Hang(), path=EMBEDDINGS)
            before = models.count(EMBEDDINGS)
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            body = b'{"query_text": "has the moon air"}'
            writer.write(
                f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            await models.until(lambda: models.count(EMBEDDINGS) == before + 1)
            assert models.disconnected == 0
            writer.close()
            await models.until(lambda: models.disconnected == 1)
            assert reader.at_eof() or await reader.read() == b""
            models.heal()
            again = await client.post("/v1/search", json={"query_text": "is there air on the moon"})
            assert again.status_code == 200
            counted = (await client.get("/metrics")).text
            assert re.search(r'retrieval_http_requests_total\{[^}]*status="499"[^}]*\} 1', counted), counted

    with service_with_slow_models(tmp_path, RETRIEVAL_MCP__HTTP__MAX_REQUESTS="1") as (service, models):
        asyncio.run(run(service, models))
        service.signal(signal.SIGTERM)
        code, said = service.end()
    assert (code, said) == (0, "")


def test_ctrl_c_ends_an_idle_service(tmp_path: Path) -> None:
    """With the exit code that a shell knows, and nothing to read."""
    with service_with_slow_models(tmp_path) as (service, _models):
        service.signal(signal.SIGINT)
        assert service.end() == (130, "")


def test_what_lasts_too_long_at_the_end_is_interrupted(tmp_path: Path) -> None:
    """Without a second signal, after the configured time."""

    async def run(service: HttpProcess, models: WireServer) -> None:
        async with client_of(service) as client:
            assert (await client.get("/readyz")).status_code == 200
            models.fail_always(Hang(), path=EMBEDDINGS)
            before = models.count(EMBEDDINGS)
            search = asyncio.create_task(client.post("/v1/search", json={"query_text": "air"}))
            await models.until(lambda: models.count(EMBEDDINGS) == before + 1)
            service.signal(signal.SIGTERM)
            answer = await search
            check_ended(answer.status_code, answer.json())
        await models.until(lambda: models.disconnected == 1)

    with service_with_slow_models(tmp_path, RETRIEVAL_MCP__HTTP__SHUTDOWN_SECONDS="0") as (service, models):
        asyncio.run(run(service, models))
        assert service.end()[0] == 0


def test_a_request_that_lasts_too_long_is_ended(tmp_path: Path) -> None:
    """503 with the time to come again; half a body is ended too, and the work behind it."""

    async def run(service: HttpProcess, models: WireServer) -> None:
        async with client_of(service) as client:
            assert (await client.get("/readyz")).status_code == 200
            models.fail_always(Hang(), path=EMBEDDINGS)
            reader, writer = await half_a_body(service)
            answer = await client.post("/v1/search", json={"query_text": "air"})
            assert answer.status_code == 503
            assert answer.headers["retry-after"]
            assert answer.json()["errors"] == ["the request took longer than 0.2 seconds"]
            await models.until(lambda: models.disconnected >= 1)
            status, told = await answer_to_half_a_body(reader)
            assert status == 408
            assert told["errors"][0].startswith("the body came too slowly: after the first 0.2 seconds")
            assert await reader.read() == b""
            writer.close()

    settings = {"RETRIEVAL_MCP__HTTP__REQUEST_SECONDS": "0.2", "RETRIEVAL_MCP__HTTP__RECEIVE_SECONDS": "0.2"}
    with service_with_slow_models(tmp_path, **settings) as (service, models):
        asyncio.run(run(service, models))
        service.signal(signal.SIGTERM)
        assert service.end()[0] == 0
