"""The command ``retrieval-mcp --http`` as a real process."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any, Literal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")
pytest.importorskip("tokenizers", reason="contexts are counted in tokens: pip install 'retrieval-core[local]'")

import httpx2
from mcp.client.streamable_http import streamable_http_client

from mcp import Client
from retrieval_core import Chunk
from retrieval_core.errors import ConfigurationError
from retrieval_core_mcp import read_settings
from support.http_process import http_process, refused
from support.http_service import HttpSettings, hashed, opened
from support.mcp_command import read_options

if TYPE_CHECKING:
    from pathlib import Path

    from support.http_process import HttpProcess

MODES: list[Literal["auto", "legacy"]] = ["auto", "legacy"]
pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM"), pytest.mark.slow]


def ask(service: HttpProcess, path: str, content: Any = None, token: str = "") -> Any:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    body = None if content is None else json.dumps(content).encode()
    request = Request(service.url + path, body, {**headers, "content-type": "application/json"})
    with urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.fixture
def index_of(tmp_path: Path) -> Any:
    """Return a function that makes an index whose one passage says what it is called."""

    def make(place: str, tenant: str = "acme") -> Path:
        path = tmp_path / place
        with opened(path) as index:
            index.add([Chunk(f"{path.stem}-1", "d", f"All about {path.stem}.", metadata={"tenant": tenant})])
        return path

    return make


def test_several_indexes_under_their_names(index_of: Any, config_file: Path, tmp_path: Path) -> None:
    """A given name, that of the file, and that of the folder of .retrieval; the first one is asked by default."""
    places = (f"wiki={index_of('a.db')}", str(index_of("notes.db")), str(index_of("handbook/.retrieval/index.db")))
    options = [option for place in places for option in ("--index", place)]
    with http_process(*options, "--config", str(config_file), folder=tmp_path) as service:
        names = [info["name"] for info in ask(service, "/v1/indexes")["indexes"]]
        assert names == ["wiki", "notes", "handbook"]
        assert ask(service, "/readyz") == {"status": "ready", "waiting": {}}
        for name, found in ((None, "a-1"), ("wiki", "a-1"), ("notes", "notes-1"), ("handbook", "index-1")):
            asked = {"query_text": "all about it"} | ({} if name is None else {"index": name})
            (result,) = ask(service, "/v1/search", asked)["results"]
            assert result["metadata"]["chunk_id"] == found
            assert result["metadata"]["url"] == f"urn:retrieval:{name or 'wiki'}:d"
        with pytest.raises(HTTPError, match="404"):
            ask(service, "/v1/indexes/other")
        service.signal(signal.SIGTERM)
        assert service.end() == (0, "")


def test_the_default_index_may_come_later(config_file: Path, tmp_path: Path, index_of: Any) -> None:
    """It is named after the folder; until it is there the service waits, and says so to probes."""
    with http_process("--config", str(config_file), folder=tmp_path) as service:
        with pytest.raises(HTTPError, match="503") as caught:
            ask(service, "/readyz")
        assert json.load(caught.value) == {"status": "waiting", "waiting": {tmp_path.name: "IndexNotFoundError"}}
        assert ask(service, "/healthz") == {"status": "ok"}
        index_of(".retrieval/index.db")
        assert ask(service, "/readyz") == {"status": "ready", "waiting": {}}
        service.signal(signal.SIGTERM)
        assert service.end()[0] == 0


def test_an_index_that_clients_make_is_ready_for_the_first_document(config_file: Path, tmp_path: Path) -> None:
    """Otherwise no proxy that asks for it would ever send one."""
    with http_process("--config", str(config_file), "--allow-writes", folder=tmp_path) as service:
        assert ask(service, "/readyz") == {"status": "ready", "waiting": {}}
        ask(service, "/v1/documents", {"documents": [{"id": "d", "text": "all about it"}]})
        assert ask(service, "/readyz") == {"status": "ready", "waiting": {}}
        assert ask(service, "/v1/search", {"query_text": "all about it"})["results"]
        service.signal(signal.SIGTERM)
        code, said = service.end()
    assert code == 0
    assert "can't be searched: IndexNotFoundError" in said


@pytest.mark.parametrize("mode", MODES)
def test_the_librarys_client_speaks_to_mcp(
    index_of: Any, config_file: Path, mode: Literal["auto", "legacy"], tmp_path: Path
) -> None:
    """In both eras of the protocol, with a token; a tenant's token finds the tenant's passages alone."""
    with opened(tmp_path / "two.db") as index:
        index.add([Chunk(f"c-{name}", "d", f"All about {name}.", metadata={"tenant": name}) for name in ("acme", "b")])
    tokens = ",".join((hashed("all"), hashed("own", "acme")))
    environment = {"RETRIEVAL_MCP__HTTP__TOKENS": tokens}

    async def ids(url: str, token: str) -> set[str]:
        async with httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=60) as http:
            streams = streamable_http_client(f"{url}/mcp", http_client=http)
            async with Client(streams, mode=mode) as client:
                assert [tool.name for tool in (await client.list_tools()).tools][:2] == ["search", "grep"]
                found: Any = await client.call_tool("search", {"query": "all about it"})
                theirs: Any = await client.call_tool("fetch", {"id": "c-b"})
                assert theirs.is_error == (token == "own")
                return {hit["id"] for hit in found.structured_content["results"]}

    options = ("--index", str(tmp_path / "two.db"), "--config", str(config_file), "--structured")
    with http_process(*options, environment=environment) as service:
        assert asyncio.run(ids(service.url, "all")) == {"c-acme", "c-b"}
        assert asyncio.run(ids(service.url, "own")) == {"c-acme"}
        service.signal(signal.SIGTERM)
        code, said = service.end()
        assert (code, said) == (0, "")


def test_writing_needs_to_be_allowed(index_of: Any, config_file: Path) -> None:
    """With the option, what is written is found by the next search."""
    index = str(index_of("a.db"))
    document = {"documents": [{"id": "new.md", "text": "Something new under the sun."}]}
    with http_process("--index", index, "--config", str(config_file)) as service:
        assert ask(service, "/healthz") == {"status": "ok"}
        with pytest.raises(HTTPError, match="403"):
            ask(service, "/v1/documents", document)
    with http_process("--index", index, "--config", str(config_file), "--allow-writes") as service:
        assert ask(service, "/v1/documents", document) == {"written": ["new.md"]}
        found = ask(service, "/v1/search", {"query_text": "something new under the sun"})
        assert found["results"][0]["metadata"]["chunk_id"] == "new.md#0"


def test_a_wider_address_without_a_token_is_refused() -> None:
    """Exit code 2, and how to make one; nothing listens."""
    for place in ("0.0.0.0:0", "[::]:0", "0.0.0.0"):
        code, said = refused("--http", place)
        assert code == 2
        assert said.startswith("Error: a server at ")
        assert "needs a token" in said
        assert "RETRIEVAL_MCP__HTTP__TOKENS" in said
    code, said = refused("--http", "127.0.0.1:0", environment={"RETRIEVAL_MCP__HTTP__TOKENS": "my-secret"})
    assert code == 2
    assert "sha256sum" in said
    assert "my-secret" not in said


def test_a_busy_port_is_told() -> None:
    """In one line; as is an address that is none, or not of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        code, said = refused("--http", place)
    assert (code, said) == (1, f"Error: cannot listen at {place} (Address already in use)\n")
    for place in ("no such host:0", "192.0.2.1:0"):
        code, said = refused("--http", place, environment={"RETRIEVAL_MCP__HTTP__TOKENS": hashed("a")})
        assert code == 1
        assert said.startswith(f"Error: cannot listen at {place} (")
        assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--http", "127.0.0.1:http"), "RETRIEVAL_MCP__HTTP__PORT: must be a whole number"),
        (("--http", "127.0.0.1:99999"), "RETRIEVAL_MCP__HTTP__PORT: must be 65,535 or less"),
        (("--http", "127.0.0.1:0", "--index", "a=1.db", "--index", "a=2.db"), "two indexes are called a"),
        (("--http", "127.0.0.1:0", "--index", "1/a.db", "--index", "2/a.db"), "two indexes are called a"),
        (("--index", "a=1.db", "--index", "a=2.db"), "two indexes are called a"),
    ],
)
def test_wrong_use_is_told(options: tuple[str, ...], message: str) -> None:
    """Exit code 2, and what to write instead."""
    code, said = refused(*options)
    assert code == 2
    assert message in said
    assert "Traceback" not in said


def test_the_help_names_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    """The options of the service, and where its settings are."""
    with pytest.raises(SystemExit):
        read_options(["--help"])
    shown = capsys.readouterr().out
    for words in ("--http [HOST:PORT]", "--allow-writes", "NAME=FILE", "RETRIEVAL_MCP__HTTP__TOKENS", "127.0.0.1:8000"):
        assert words in shown


def test_every_setting_can_be_set_by_the_environment() -> None:
    """A list is written with commas; what the command line says counts more."""
    values = {
        "host": "::1",
        "port": "1",
        "tokens": f"{hashed('a')}, {hashed('b', 'c')}",
        "tokens_file": "tokens",
        "oauth_issuer": "https://id.example",
        "oauth_audience": "https://docs.example/mcp",
        "oauth_jwks_url": "https://id.example/keys",
        "oauth_tenant_claim": "team",
        "audit_log": "-",
        "tenant_field": "team",
        "allowed_hosts": "a.example,b.example",
        "allowed_origins": "https://a.example",
        "base_url": "https://docs.example/",
        "max_body_bytes": "20000",
        "max_file_bytes": "30000",
        "suite_report": "report.json",
        "max_requests": "3",
        "max_sessions": "2",
        "receive_seconds": "2",
        "min_bytes_per_second": "1000",
        "max_waiting": "20",
        "request_seconds": "1.5",
        "shutdown_seconds": "0",
        "workers": "2",
        "stateless": "true",
        "requests_per_minute": "60",
        "drain_seconds": "3",
    }
    assert values.keys() == HttpSettings.model_fields.keys()
    environment = {f"RETRIEVAL_MCP__HTTP__{name.upper()}": value for name, value in values.items()}
    settings = read_settings(environment=environment).http
    assert settings.tokens == (hashed("a"), hashed("b", "c"))
    assert settings.allowed_hosts == ("a.example", "b.example")
    assert (settings.port, settings.request_seconds) == (1, 1.5)
    assert all(getattr(settings, name) != field.default for name, field in HttpSettings.model_fields.items())
    assert read_settings(environment=environment, http={"port": 7}).http.port == 7


def test_a_misspelt_setting_is_told_with_the_right_name() -> None:
    """Without its value, which may be a token."""
    environment = {"RETRIEVAL_MCP__HTTP__TOKEN": "my-secret", "RETRIEVAL_MCP__HTTP__BASE_URL": "docs"}
    with pytest.raises(ConfigurationError) as caught:
        read_settings(environment=environment)
    assert [problem.partition(":")[0] for problem in caught.value.problems] == sorted(environment)
    assert "RETRIEVAL_MCP__HTTP__TOKENS" in str(caught.value)
    assert "https://docs.example.com/" in str(caught.value)
    assert "my-secret" not in str(caught.value)


def test_a_limit_of_no_requests_is_refused() -> None:
    """Without the setting, there is no limit."""
    assert read_settings(environment={"RETRIEVAL_MCP__HTTP__REQUESTS_PER_MINUTE": "60"}).http.requests_per_minute == 60
    with pytest.raises(ConfigurationError) as caught:
        read_settings(environment={"RETRIEVAL_MCP__HTTP__REQUESTS_PER_MINUTE": "0"})
    assert "RETRIEVAL_MCP__HTTP__REQUESTS_PER_MINUTE" in str(caught.value)
