"""Suites that are run on the service over HTTP, as a process of its own."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from retrieval_core import open_index
from retrieval_core.config import load_config
from retrieval_core.errors import (
    EmbeddingError,
    IndexNotFoundError,
    InvalidParameterError,
    MalformedAnswerError,
    ServiceConnectionError,
    ServiceError,
    ServiceTimeoutError,
)
from retrieval_core.evaluate.suite import CaseResult, CaseStatus, IndexTarget, ServiceTarget, Suite, run_suite
from retrieval_core.testing.fakes import FakeEmbedder
from support.command_line import main
from support.http_process import http_process
from support.suites import SuiteQuestion, chunks
from support.wire_server import Hang, Response, WireServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core.evaluate.suite import SuiteResult

SETTINGS = {
    "RETRIEVAL_EMBEDDER__KIND": "retrieval_core.testing.fakes:FakeEmbedder",
    "RETRIEVAL_CACHE__ENABLED": "false",
}
CASES: list[dict[str, Any]] = [
    {
        "name": "calves",
        "query": "stripes of a tapir calf",
        "expect": {"documents": ["tapirs.md"], "keywords": ["calf"]},
    },
    {"name": "instead", "query": "brown crust", "expect": {"documents": ["owls.md"]}, "top_k": 1},
    {"name": "absent", "query": "brown crust", "expect": {"documents": ["absent.md"], "chunks": ["owls.md#7"]}},
    {"name": "above", "query": "brown crust", "relevance_threshold": 1.0},
    {"name": "below", "query": "brown crust", "relevance_threshold": 0.2},
    {"name": "filtered", "query": "night", "filter": {"kind": "owls"}, "expect": {"chunks": ["owls.md#0"]}},
    {"name": "nothing", "query": "Kafka brokers", "finds_nothing": True, "mode": "dense"},
    {"name": "slow", "query": "night owls", "latency_ms": 1e-9},
    {"name": "forbidden", "query": "night owls", "forbid": {"documents": ["owls.md"]}},
]
SUITE = Suite.model_validate({"name": "zoo", "cases": CASES})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("service")
    with open_index(folder / "zoo.db", embedder=FakeEmbedder()) as index:
        index.add(chunks())
    with open_index(folder / "empty.db", embedder=FakeEmbedder()) as index:
        index.add(chunks({"gone.md": ["This page is not there any more."]}))
        index.delete("gone.md")
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    indexes = [option for name in ("zoo=zoo.db", "also=zoo.db", "empty=empty.db") for option in ("--index", name)]
    with http_process(*indexes, folder=folder, environment=SETTINGS) as service:
        yield service.url


def on_service(url: str) -> SuiteResult:
    return asyncio.run(run_suite(ServiceTarget(url, index="zoo"), SUITE))


def test_a_service_is_judged_as_its_index_is(url: str, folder: Path) -> None:
    """In the order of the index, with the same ranks, measures and ends of every case."""
    config = load_config(overrides={"cache.kind": "none"})
    with open_index(folder / "zoo.db", config=config, embedder=FakeEmbedder()) as index:
        local = asyncio.run(run_suite(IndexTarget(index), SUITE))
    served = on_service(url)

    def told(case: CaseResult) -> tuple[Any, ...]:
        kinds = [problem.error for problem in case.problems]
        return case.name, case.status, kinds, case.documents, case.ranks, case.measures

    assert [told(case) for case in served.results] == [told(case) for case in local.results]
    ends = {case.name: case.status.value for case in served.results}
    assert ends == {
        "calves": "passed", "instead": "failed", "absent": "error", "above": "failed", "below": "passed",
        "filtered": "passed", "nothing": "passed", "forbidden": "failed", "slow": "failed",
    }  # fmt: skip
    assert {c.code: c.verdict for c in served.criteria}["SC-001"] == "met"
    assert served.subject.chunks == 6


def test_a_failure_shows_what_was_found(url: str) -> None:
    instead = next(case for case in on_service(url).results if case.name == "instead")
    assert instead.failure_lines()[-1].startswith("found: 1. bread.md#0 (")


def test_the_command_asks_a_service(url: str, folder: Path) -> None:
    file = folder / "zoo.retrieval.json"
    file.write_text(json.dumps({"name": "zoo", "index": url, "cases": CASES[:1]}))
    result = CliRunner().invoke(main, ["suite", "run", str(file), "--name", "also", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["subject"]["location"] == f"{url} (also)"
    by_words = CliRunner().invoke(main, ["suite", "run", str(file), "--mode", "lexical", "--json"])
    assert json.loads(by_words.stdout)["results"][0]["status"] == "passed"
    refused = CliRunner().invoke(main, ["suite", "run", str(file), "--set", "search.top_k=3"])
    assert (refused.exit_code, "don't apply to a server" in refused.output) == (2, True)


def test_an_empty_collection_of_a_service_has_nothing_to_find(url: str) -> None:
    result = asyncio.run(run_suite(ServiceTarget(url, index="empty"), SUITE))
    ends = {case.name: case.status.value for case in result.results}
    assert (ends["nothing"], ends["calves"], ends["forbidden"]) == ("passed", "error", "passed")


def test_a_service_without_that_index(url: str) -> None:
    result = asyncio.run(run_suite(ServiceTarget(url, index="none"), SUITE))
    assert {problem.error for case in result.results for problem in case.problems} == {"CollectionNotFoundError"}
    assert "it has zoo, also, empty" in result.results[0].problems[0].message


FAULTS: dict[str, tuple[int, dict[str, Any] | str, type[Exception]]] = {
    "not found": (404, {"errors": ["Index x not found"]}, IndexNotFoundError),
    "wrong": (400, {"errors": ["top_k must be between 1 and 1000"]}, InvalidParameterError),
    "no embedding": (503, {"errors": ["Failed to embed query: down"]}, EmbeddingError),
    "no store": (503, {"errors": ["Qdrant service unavailable at x"]}, ServiceConnectionError),
    "too slow": (503, {"errors": ["the request took longer than the service allows"]}, ServiceTimeoutError),
    "no token": (401, {"errors": ["no token"]}, ServiceError),
    "a proxy": (502, "<html>bad gateway</html>", ServiceConnectionError),
    "not this service": (200, "<html>hello</html>", MalformedAnswerError),
    "another version": (200, {"results": [], "trace": {"stages": []}}, MalformedAnswerError),
    "no object": (200, "[]", MalformedAnswerError),
}


def answered(status: int, body: dict[str, Any] | str) -> Response:
    return Response(status, body.encode() if isinstance(body, str) else body)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_of_a_service_has_its_error(fault: str) -> None:
    status, body, kind = FAULTS[fault]
    with WireServer(lambda _request: answered(status, body)) as server:
        target = ServiceTarget(server.url, seconds=5)
        with pytest.raises(kind):
            asyncio.run(target.retrieve(SuiteQuestion("x", 5)))


def test_a_service_that_does_not_answer_is_too_slow() -> None:
    with WireServer(lambda _request: answered(200, {})) as server:
        server.fail(Hang())
        with pytest.raises(ServiceTimeoutError):
            asyncio.run(ServiceTarget(server.url, seconds=0.2).retrieve(SuiteQuestion("x", 5)))


def test_an_answer_without_an_end_is_too_slow() -> None:
    """However much of it comes in time."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
                while True:
                    connection.sendall(b" ")

        dripping = threading.Thread(target=drip)
        dripping.start()
        with pytest.raises(ServiceTimeoutError):
            asyncio.run(
                ServiceTarget(f"http://127.0.0.1:{server.getsockname()[1]}", seconds=0.2).retrieve(
                    SuiteQuestion("x", 5)
                )
            )
        dripping.join()


def test_a_token_goes_nowhere_else() -> None:
    """Neither where an answer redirects to, nor where a file says."""
    with WireServer(lambda _request: answered(200, {"indexes": []})) as other:
        moved = Response(302, b"", {"location": f"{other.url}/v1/search"})
        with WireServer(lambda _request: moved) as server:
            target = ServiceTarget(server.url, token="secret")
            with pytest.raises(ServiceError):
                asyncio.run(target.retrieve(SuiteQuestion("x", 5)))
            assert server.requests[0].headers["authorization"] == "Bearer secret"
        assert other.requests == []


def test_a_token_is_for_the_address_of_the_command_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETRIEVAL_SUITE_TOKEN", "secret")
    with WireServer(lambda _request: answered(401, {"errors": ["who are you?"]})) as server:
        file = folder / "named.retrieval.json"
        file.write_text(json.dumps({"name": "zoo", "index": server.url, "cases": CASES[:1]}))
        assert CliRunner().invoke(main, ["suite", "run", str(file)]).exit_code == 2
        assert {request.headers.get("authorization") for request in server.requests} == {None}
        count = len(server.requests)
        CliRunner().invoke(main, ["suite", "run", str(file), "--url", server.url])
        assert {request.headers.get("authorization") for request in server.requests[count:]} == {"Bearer secret"}


def test_an_unreachable_service_is_an_error_of_each_case() -> None:
    result = asyncio.run(run_suite(ServiceTarget("http://127.0.0.1:9"), SUITE))
    assert {case.status for case in result.results} == {CaseStatus.ERROR}
    assert {problem.error for case in result.results for problem in case.problems} == {"ConnectionError"}


@pytest.mark.parametrize(
    "url",
    [
        "", "127.0.0.1:8000", "file:///etc/passwd", "ftp://x", "http://", "http://[::1", "http://x:99999", "http://x:y",
        "http://127.0.0.1:9/a b", "http://127.0.0.1:9/\n",
    ],
)  # fmt: skip
def test_an_address_has_to_be_one_of_the_web(url: str) -> None:
    with pytest.raises(InvalidParameterError, match="http://"):
        ServiceTarget(url)


def test_an_address_with_a_password_is_refused_without_telling_it() -> None:
    """It would be in every report."""
    with pytest.raises(InvalidParameterError, match="no user and password") as raised:
        ServiceTarget("http://me:secret@127.0.0.1:9")
    assert "secret" not in str(raised.value)
