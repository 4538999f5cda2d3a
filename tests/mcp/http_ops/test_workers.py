"""Several processes that answer from one index: what they share, and how one of them ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")
pytest.importorskip("openai", reason="the slow models are served as OpenAI's: pip install 'retrieval-core[openai]'")

import httpx2

from support.http_process import refused
from support.http_service import bearer, hashed
from support.redis_server import RedisServer, needs_server
from support.replicas import EMBEDDINGS, replicas
from support.wire_server import Hang

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from support.http_process import HttpProcess
    from support.wire_server import WireServer

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM"), pytest.mark.slow]

PATIENCE = 200
"""Seconds after which something that does not happen fails a test; a worker takes long to start on a busy machine."""
HELLO = {
    "jsonrpc": "2.0", "id": 0, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a test", "version": "1"}},
}  # fmt: skip
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ACCEPT = {"accept": "application/json, text/event-stream"}


@pytest.fixture
def redis(tmp_path: Path) -> Generator[RedisServer]:
    server = RedisServer(tmp_path)
    yield server
    server.kill()


def shared(redis: RedisServer) -> str:
    return f'[cache]\nkind = "redis"\n[cache.redis]\nurl = "{redis.url.get_secret_value()}"'


def client_of(service: HttpProcess, token: str | None = None) -> httpx2.Client:
    return httpx2.Client(base_url=service.url, timeout=PATIENCE, headers=bearer(token))


@pytest.fixture
def connect() -> Generator[Callable[..., httpx2.Client]]:
    """Return a function that makes clients, which are closed at the end."""
    with ExitStack() as clients:
        yield lambda *given: clients.enter_context(client_of(*given))


def search(client: httpx2.Client, query: str) -> list[str]:
    answer = client.post("/v1/search", json={"query_text": query, "top_k": 10})
    assert answer.status_code == 200, answer.text
    return [each["text"] for each in answer.json()["results"]]


async def eventually(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if await asyncio.to_thread(is_so):
                return


def workers_of(service: HttpProcess) -> set[int]:
    """Return the processes that answer, without the one that looks after them and that which multiprocessing starts."""
    parent = service.process.pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    found: set[int] = set()
    for child in children:
        with suppress(OSError):  # it has just ended
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.add(int(child))
    return found


on_linux = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="processes are listed by /proc")


@needs_server
def test_processes_share_answers_and_see_each_others_writes(
    tmp_path: Path, redis: RedisServer, connect: Callable[..., httpx2.Client]
) -> None:
    """An answer that one has cached is not computed by the other, until any of them writes."""
    with replicas(tmp_path, (), (), more=shared(redis)) as (models, services):
        clients = [connect(service) for service in services]
        for at in range(4):
            one, other = clients if at % 2 else reversed(clients)
            query = f"is there air on the moon, asks {at}"
            before = search(one, query)
            assert search(other, query) == before
            assert models.embedded(query) == 1
            new = f"The moon has dust, in text {at}."
            written = one.post("/v1/documents", json={"documents": [{"id": f"new {at}", "text": new}]})
            assert written.status_code == 200, written.text
            assert set(search(other, query)) == {*before, new}
            assert other.request("DELETE", "/v1/documents", params={"id": f"new {at}"}).status_code == 200
            assert search(one, query) == before


@needs_server
def test_processes_count_a_tokens_requests_together(
    tmp_path: Path, redis: RedisServer, connect: Callable[..., httpx2.Client]
) -> None:
    """Each tenant has its own limit. Without the server, each process counts, and nobody is refused for that."""
    tokens = ",".join((hashed("one", "acme"), hashed("two", "acme"), hashed("three", "globex")))
    given = replicas(tmp_path, (), (), more=shared(redis), TOKENS=tokens, REQUESTS_PER_MINUTE="6")
    with given as (_models, services):
        acme = [connect(service, token) for service, token in zip(services, ("one", "two"), strict=True)]
        globex = [connect(service, "three") for service in services]
        for _ in range(3):
            for client in acme:
                search(client, "air")
        for client in acme:
            answer = client.post("/v1/search", json={"query_text": "air"})
            assert answer.status_code == 429
            assert 1 <= int(answer.headers["retry-after"]) <= 60
        for client in globex:
            assert client.post("/v1/search", json={"query_text": "air"}).status_code == 200
        redis.kill()
        for client in acme:
            assert client.post("/v1/search", json={"query_text": "air"}).status_code == 200


@on_linux
def test_workers_answer_together_and_are_replaced(tmp_path: Path) -> None:
    """Any worker answers any request of MCP. One that is killed gets a successor, and the others go on."""
    with replicas(tmp_path, ("--workers", "2")) as (_models, (service,)):
        assert "Each of the 2 processes caches results for itself" in "".join(service.said)
        with client_of(service) as client:
            hello = client.post("/mcp", json=HELLO, headers=ACCEPT)
            assert hello.status_code == 200
            assert "mcp-session-id" not in hello.headers
            assert client.get("/mcp", headers=ACCEPT).status_code == 405
        for _ in range(10):
            with client_of(service) as client:
                assert '"name":"search"' in client.post("/mcp", json=LIST, headers=ACCEPT).text
                assert len(search(client, "air")) == 5
        first = workers_of(service)
        assert len(first) == 2
        os.kill(min(first), signal.SIGKILL)
        asyncio.run(eventually(lambda: len(workers_of(service) - first) == 1))
        with client_of(service) as client:
            assert len(search(client, "air")) == 5
        service.signal(signal.SIGTERM)
        code, said = service.end()
    assert code == 0
    assert f"worker {min(first)} ended with code -9; worker " in said.removeprefix("".join(service.said))


@on_linux
def test_workers_are_replaced_by_ones_that_are_ready(tmp_path: Path) -> None:
    """However long a model takes to load. On SIGTERM meanwhile, all end at once."""

    async def run(service: HttpProcess, models: WireServer) -> None:
        first = workers_of(service)
        service.signal(signal.SIGHUP)
        await eventually(lambda: len(workers_of(service)) == 2 and not workers_of(service) & first)
        second = workers_of(service)
        models.fail_always(Hang(), path=EMBEDDINGS)
        before = models.count(EMBEDDINGS)
        service.signal(signal.SIGHUP)
        await eventually(lambda: models.count(EMBEDDINGS) > before)
        assert workers_of(service) > second
        service.signal(signal.SIGTERM)
        code, said = await asyncio.to_thread(service.end)
        assert (code, said) == (0, "".join(service.said))

    with replicas(tmp_path, ("--workers", "2")) as (models, (service,)):
        asyncio.run(run(service, models))


@on_linux
def test_a_worker_that_hangs_does_not_keep_the_others_from_ending(tmp_path: Path) -> None:
    with replicas(tmp_path, ("--workers", "2"), fill=False, SHUTDOWN_SECONDS="0") as (_models, (service,)):
        os.kill(max(workers_of(service)), signal.SIGSTOP)
        service.signal(signal.SIGTERM)
        assert service.end()[0] == 0


def test_workers_end_after_their_requests(tmp_path: Path) -> None:
    """On SIGTERM what is asked is still answered, and then all processes end."""

    async def run(service: HttpProcess, models: WireServer) -> None:
        async with httpx2.AsyncClient(base_url=service.url, timeout=PATIENCE) as client:
            models.fail_always(Hang(), path=EMBEDDINGS)
            before = models.count(EMBEDDINGS)
            asking = [
                asyncio.create_task(client.post("/v1/search", json={"query_text": f"has it air, asks {row}"}))
                for row in range(6)
            ]
            await models.until(lambda: models.count(EMBEDDINGS) >= before + 6)
            service.signal(signal.SIGTERM)
            await eventually(partial(is_closed, service))
            models.heal()
            await asyncio.to_thread(models.release)
            for answer in await asyncio.gather(*asking):
                assert answer.status_code == 200
                assert len(answer.json()["results"]) == 5

    with replicas(tmp_path, ("--workers", "2"), SHUTDOWN_SECONDS="900", REQUEST_SECONDS="900") as (models, (service,)):
        asyncio.run(run(service, models))
        assert service.end()[0] == 0


def is_closed(service: HttpProcess) -> bool:
    try:
        httpx2.get(f"{service.url}/healthz")
    except httpx2.TransportError:
        return True
    return False


@on_linux
def test_workers_end_with_their_supervisor(tmp_path: Path) -> None:
    """Also where it is killed, and Ctrl-C has the exit code that a shell knows."""
    with replicas(tmp_path, ("--workers", "2")) as (_models, (service,)):
        service.process.kill()
        asyncio.run(eventually(partial(is_closed, service)))
    with replicas(tmp_path, ("--workers", "2"), fill=False) as (_models, (service,)):
        service.signal(signal.SIGINT)
        assert service.end()[0] == 130


@on_linux
def test_a_second_ctrl_c_ends_all_workers_at_once(tmp_path: Path) -> None:
    """Also while they still answer a proxy that has to learn that they end."""
    with replicas(tmp_path, ("--workers", "2"), DRAIN_SECONDS="900") as (_models, (service,)):
        service.signal(signal.SIGINT)
        with client_of(service) as client:
            asyncio.run(eventually(lambda: "ShuttingDown" in client.get("/readyz").text))
        service.signal(signal.SIGINT)
        assert service.end()[0] == 130


def test_a_process_that_ends_says_so_before_it_refuses_requests(tmp_path: Path) -> None:
    """With DRAIN_SECONDS, a proxy learns from /readyz that it should ask another one."""
    with replicas(tmp_path, (), DRAIN_SECONDS="900") as (_models, (service,)), client_of(service) as client:
        assert client.get("/readyz").json() == {"status": "ready", "waiting": {}}
        service.signal(signal.SIGTERM)
        asyncio.run(eventually(lambda: client.get("/readyz").status_code == 503))
        assert client.get("/readyz").json() == {"status": "waiting", "waiting": {"index": "ShuttingDown"}}
        with client_of(service) as another:
            assert len(search(another, "air")) == 5
        service.signal(signal.SIGTERM)
        assert service.end()[0] == 0


def test_a_worker_answers_only_when_its_model_is_loaded(tmp_path: Path) -> None:
    """The service says where it listens after the first worker has loaded its model; searches are whole then."""
    with replicas(tmp_path, ("--workers", "2")) as (models, (service,)), client_of(service) as client:
        assert models.embedded("warmup") >= 1
        answer = client.post("/v1/search", json={"query_text": "has the moon air"}).json()
        assert answer["results"]
        assert not answer["execution"].get("degraded")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"RETRIEVAL_STORE__KIND": "memory"}, "each worker would have its own index"),
        ({"RETRIEVAL_MCP__HTTP__TOKENS": "secret"}, "token 1 has the wrong form"),
        ({"RETRIEVAL_MCP__HTTP__WORKERS": "0"}, "WORKERS"),
        ({"RETRIEVAL_EMBEDDER__KIND": "openai", "OPENAI_API_KEY": ""}, "key"),
    ],
)
def test_wrong_settings_are_reported_once(settings: dict[str, Any], reason: str, tmp_path: Path) -> None:
    """And end the service, in place of workers that are started again and again."""
    environment = {"RETRIEVAL_INDEX": str(tmp_path / "index.db"), **settings}
    workers = () if "RETRIEVAL_MCP__HTTP__WORKERS" in settings else ("--workers", "2")
    code, said = refused("--http", "127.0.0.1:0", *workers, environment=environment)
    assert code in {1, 2}
    assert said.count("Error:") == 1
    assert reason in said


def test_workers_are_for_http() -> None:
    assert refused("--workers", "2")[1].endswith("--workers is for --http\n")
