"""Who is let in, from where, and under which name of the host: the same at every endpoint."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")
pytest.importorskip("tokenizers", reason="contexts are counted in tokens: pip install 'retrieval-core[local]'")


from retrieval_core import Document
from retrieval_core.errors import ConfigurationError
from retrieval_core.testing.fakes import FakeEmbedder
from support.http_service import PLACE, HttpSettings, hashed, opened, serving

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    import httpx2

    from support.http_service import Service

QUERY = {"query_text": "the moon"}
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "search", "arguments": {"query": "the moon"}},
}
ENDPOINTS: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/v1/search"): {"json": QUERY},
    ("POST", "/v1/context"): {"json": QUERY},
    ("POST", "/v1/answer"): {"json": QUERY},
    ("GET", "/v1/chunks/moon.md%230"): {},
    ("POST", "/v1/chunks/moon.md%230/validate"): {},
    ("POST", "/v1/chunks/moon.md%230/quote"): {"json": {"quote": "no air"}},
    ("GET", "/v1/indexes"): {},
    ("GET", "/v1/indexes/index"): {},
    ("POST", "/v1/documents"): {"json": {"documents": [{"id": "a.md", "text": "A text."}]}},
    ("DELETE", "/v1/documents?id=a.md"): {},
    ("POST", "/v1/files?name=a.md"): {"content": b"A text.", "headers": {"content-type": "application/octet-stream"}},
    ("GET", "/metrics"): {},
    ("GET", "/openapi.json"): {},
    ("POST", "/mcp"): {"json": CALL, "headers": {"accept": "application/json, text/event-stream"}},
}
NOWHERE: dict[tuple[str, str], dict[str, Any]] = {
    ("GET", "/mcp"): {},
    ("DELETE", "/mcp"): {},
    ("GET", "/nowhere"): {},
    ("GET", "/v1"): {},
    ("PUT", "/v1/search"): {},
    ("GET", "/.well-known/oauth-protected-resource/mcp"): {},
}
"""What is not there, not by that method, or not worth a success here."""


def served(tmp_path: Path, test: Callable[[Service], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        index = opened(tmp_path / "index.db")
        await index.aadd_documents([Document("moon.md", "The moon has no air.", source="moon.md", content_hash="")])
        async with serving({"index": index}, **settings) as service:
            await test(service)

    asyncio.run(run())


async def asked(service: Service, endpoint: tuple[str, str], token: str | None = None, **more: str) -> httpx2.Response:
    request = {**ENDPOINTS, **NOWHERE}[endpoint]
    headers = {**request.get("headers", {}), **more}
    return await service.ask(*endpoint, token, **{**request, "headers": headers})


def check_refused(answer: httpx2.Response, status: int) -> None:
    """Every error has the form of the contract, and names the request."""
    assert answer.status_code == status, answer.text
    told = answer.json()
    assert told["status"] == "error"
    assert told["results"] == []
    assert told["errors"]
    assert told["execution"]["result_count"] == 0
    assert answer.headers["x-request-id"]
    assert answer.headers["cache-control"] == "no-store"


def test_without_tokens_every_endpoint_answers(tmp_path: Path) -> None:
    """What the other tests refuse is possible; so they refuse for the reason that they name."""

    async def check(service: Service) -> None:
        for endpoint in ENDPOINTS:
            answer = await asked(service, endpoint)
            assert answer.status_code == 200, (endpoint, answer.text)

    served(tmp_path, check, allow_writes=True)


@pytest.mark.parametrize("endpoint", [*ENDPOINTS, *NOWHERE], ids=" ".join)
def test_a_token_is_needed_everywhere(endpoint: tuple[str, str], tmp_path: Path) -> None:
    """None, a wrong one, one of another scheme, and the hash itself are 401; what exists is not told."""

    async def check(service: Service) -> None:
        wrong = [{}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer "}, {"authorization": "secret"}]
        wrong += [{"authorization": "Basic secret"}, {"authorization": f"Bearer {hashed('secret')}"}]
        wrong += [{"authorization": "Bearer Secret"}, {"authorization": "Bearer secret secret"}]
        for headers in wrong:
            answer = await asked(service, endpoint, **headers)
            check_refused(answer, 401)
            assert answer.headers["www-authenticate"] == "Bearer"
        allowed = await asked(service, endpoint, "secret")
        assert allowed.status_code not in {401, 421}, allowed.text
        assert (allowed.status_code == 200) == (endpoint in ENDPOINTS)

    served(tmp_path, check, tokens=(hashed("other"), hashed("secret")), allow_writes=True)


def test_the_page_needs_no_token_and_holds_no_secret(tmp_path: Path) -> None:
    """What it shows it asks for, with the reader's token; its policy lets nothing else in."""

    async def check(service: Service) -> None:
        for path in ("/", "/page/main.js", "/page/page.css", "/page/icon.svg"):
            answer = await service.ask("GET", path)
            assert answer.status_code == 200
            assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
            assert "secret" not in answer.text
            plain = await service.ask("GET", path, headers={"accept-encoding": "identity"})
            assert (plain.content, "content-encoding" in plain.headers) == (answer.content, False)
            check_refused(await service.ask("GET", path, headers={"host": "evil.example"}), 421)
        for path in ("/page/nothing.js", "/page/../gate.py", "/page/%2e%2e%2fgate.py", "/page/pages.py"):
            assert (await service.ask("GET", path, "secret")).status_code == 404

    served(tmp_path, check, tokens=(hashed("secret"),))


def test_probes_need_no_token_and_learn_nothing_but_the_status(tmp_path: Path) -> None:
    """Kubernetes calls by IP address; nobody can load the index through them, and other methods are refused."""
    probes: tuple[tuple[dict[str, str], bool], ...] = (
        ({}, False),
        ({"authorization": "Bearer wrong"}, False),
        ({"host": "10.0.0.7:8000"}, False),
        ({"host": "evil.example", "authorization": "Bearer secret"}, False),
        ({"origin": "https://evil.example", "authorization": "Bearer secret"}, False),
        ({"authorization": "Bearer secret"}, True),
    )

    async def check(service: Service) -> None:
        for headers, _ in probes:
            assert (await service.ask("GET", "/healthz", headers=headers)).json() == {"status": "ok"}
            answer = await service.ask("GET", "/readyz", headers=headers)
            assert (answer.status_code, answer.json()) == (200, {"status": "ready", "waiting": {}})
            assert "access-control-allow-origin" not in answer.headers
            for method in ("HEAD", "POST", "OPTIONS"):
                if "10.0.0.7:8000" in headers.values():
                    assert (await service.ask(method, "/readyz", headers=headers)).status_code == 421

    async def run() -> None:
        index = opened(tmp_path / "b.db")
        await index.aadd_documents([Document("moon.md", "The moon has no air.", source="moon.md", content_hash="")])
        async with serving({"index": index}, tokens=(hashed("secret"),)) as service:
            await index.store.aclose()
            for headers, is_known in probes:
                answer = await service.ask("GET", "/readyz", headers=headers)
                waiting = {"index": "StoreError"} if is_known else {}
                assert (answer.status_code, answer.json()) == (503, {"status": "waiting", "waiting": waiting})

    served(tmp_path, check, tokens=(hashed("secret"),))
    asyncio.run(run())


def test_a_database_that_is_down_is_named_without_its_address(tmp_path: Path) -> None:
    """Its address may have a password."""
    pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")

    async def run() -> None:
        store = {"kind": "postgres", "postgres": {"url": "postgresql://user:s3cret@127.0.0.1:1/docs"}}
        async with serving({"docs": opened(tmp_path / "a.db", store=store, retry={"max_retries": 0})}) as service:
            answer = await service.ask("POST", "/v1/search", json=QUERY)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.json()["errors"][0] == "PostgreSQL service unavailable at urn:retrieval:docs"
            assert "s3cret" not in answer.text

    asyncio.run(run())


@pytest.mark.parametrize("endpoint", [*ENDPOINTS, *NOWHERE], ids=" ".join)
def test_a_foreign_name_of_the_host_is_refused(endpoint: tuple[str, str], tmp_path: Path) -> None:
    """A page whose name was pointed at this machine (DNS rebinding) does not reach it, even with the token."""

    async def check(service: Service) -> None:
        for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost@evil.example", "", "["):
            check_refused(await asked(service, endpoint, "secret", host=host), 421)
        for host in ("127.0.0.1:8000", "LOCALHOST", "localhost:1", "[::1]:8000", "docs.example"):
            assert (await asked(service, endpoint, "secret", host=host)).status_code != 421, host

    served(tmp_path, check, tokens=(hashed("secret"),), allowed_hosts=("docs.example",))


@pytest.mark.parametrize("endpoint", [*ENDPOINTS, *NOWHERE], ids=" ".join)
def test_a_foreign_page_is_refused(endpoint: tuple[str, str], tmp_path: Path) -> None:
    """Its scripts get 403 and no header that lets them read that; the service's own pages and those listed pass."""

    async def check(service: Service) -> None:
        for origin in ("https://evil.example", "null", "", "http://127.0.0.1:9", "https://app.example.evil.example"):
            answer = await asked(service, endpoint, "secret", origin=origin)
            check_refused(answer, 403)
            assert "access-control-allow-origin" not in answer.headers
        for origin in (PLACE, "https://app.example"):
            answer = await asked(service, endpoint, "secret", origin=origin)
            assert (answer.status_code == 200) == (endpoint in ENDPOINTS), answer.text

    served(tmp_path, check, tokens=(hashed("secret"),), allowed_origins=("https://app.example/",), allow_writes=True)


def test_listed_pages_may_read_answers_and_errors(tmp_path: Path) -> None:
    """CORS: a preflight needs no token; answers, and the refusal of a wrong token, may be read by the page."""

    async def check(service: Service) -> None:
        page = {"origin": "https://app.example", "access-control-request-method": "POST"}
        before = await service.ask("OPTIONS", "/v1/search", headers=page)
        assert before.status_code == 204
        assert before.headers["access-control-allow-origin"] == "https://app.example"
        assert "authorization" in before.headers["access-control-allow-headers"]
        assert "POST" in before.headers["access-control-allow-methods"]
        for token, status in (("secret", 200), ("wrong", 401)):
            answer = await asked(service, ("POST", "/v1/search"), token, origin="https://app.example")
            assert answer.status_code == status
            assert answer.headers["access-control-allow-origin"] == "https://app.example"
            assert "origin" in answer.headers["vary"].lower()
        own = await asked(service, ("POST", "/v1/search"), "secret", origin=PLACE)
        assert "access-control-allow-origin" not in own.headers

    served(tmp_path, check, tokens=(hashed("secret"),), allowed_origins=("https://app.example",))


def test_by_default_no_page_is_listed(tmp_path: Path) -> None:
    """There is no CORS unless somebody sets it."""

    async def check(service: Service) -> None:
        page = {"origin": "https://app.example", "access-control-request-method": "POST"}
        check_refused(await service.ask("OPTIONS", "/v1/search", headers=page), 403)
        assert not [name for name in (await service.ask("GET", "/healthz")).headers if name.startswith("access-")]

    served(tmp_path, check)


def test_a_token_in_the_address_lets_nobody_in(tmp_path: Path) -> None:
    """Addresses end up in logs."""

    async def check(service: Service) -> None:
        for name in ("token", "access_token", "authorization"):
            check_refused(await service.ask("GET", f"/v1/indexes?{name}=secret"), 401)

    served(tmp_path, check, tokens=(hashed("secret"),))


def test_a_wider_address_needs_a_token(tmp_path: Path) -> None:
    """Of this machine alone, none is needed; a file of tokens does as well."""
    empty = tmp_path / "empty"
    empty.write_text("# nobody yet\n")
    for host in ("127.0.0.1", "localhost", "::1", "[::1]", "127.8.8.8"):
        assert HttpSettings(host=host).known_tokens() == ()
    for host in ("0.0.0.0", "::", "[::]", "192.0.2.1", "example.com", ""):
        with pytest.raises(ConfigurationError, match=r"needs a token.*RETRIEVAL_MCP__HTTP__TOKENS"):
            HttpSettings(host=host).known_tokens()
        with pytest.raises(ConfigurationError, match="needs a token"):
            HttpSettings(host=host, tokens_file=empty).known_tokens()
        assert HttpSettings(host=host, tokens=(hashed("a"),)).known_tokens()
    listed = tmp_path / "tokens"
    listed.write_text(f"# ours\n\n{hashed('a')}\n  {hashed('b', 'two words')}  \n")
    assert [token.tenant for token in HttpSettings(host="0.0.0.0", tokens_file=listed).known_tokens()] == [
        None,
        "two words",
    ]


def test_a_token_is_of_one_tenant(tmp_path: Path) -> None:
    """Else it would depend on the order of lines what it sees, to the point of everything; the same twice is fine."""
    listed = tmp_path / "tokens"
    listed.write_text(hashed("a", "acme"))
    same = HttpSettings(tokens=(hashed("a", "acme"), hashed("b")), tokens_file=listed)
    assert {token.tenant for token in same.known_tokens()} == {"acme", None}
    for other in (hashed("a"), hashed("a", "globex")):
        with pytest.raises(ConfigurationError, match="given twice, for different tenants"):
            HttpSettings(tokens=(other,), tokens_file=listed).known_tokens()


@pytest.mark.parametrize(
    "line", ["secret", "sha256:secret", f"sha256:{'0' * 63}", f"{hashed('a')}:", "md5:" + "0" * 32]
)
def test_a_token_that_is_not_hashed_is_refused_and_not_repeated(line: str) -> None:
    """It may be the token itself, which no log should have."""
    with pytest.raises(ConfigurationError) as caught:
        HttpSettings(tokens=(line,)).known_tokens()
    assert "token 1 has the wrong form" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_what_is_refused_is_not_worked_on(tmp_path: Path) -> None:
    """Refusals take no place from those who may ask, and are counted under no path of the caller."""

    async def check(service: Service) -> None:
        with service.admission.admitted():
            check_refused(await asked(service, ("POST", "/v1/search"), "secret"), 503)
            check_refused(await asked(service, ("POST", "/v1/search"), "wrong"), 401)
            check_refused(await service.ask("GET", "/v1/secret-path", "secret"), 503)
            assert (await service.ask("GET", "/healthz", "secret")).status_code == 200
        await service.ask("GET", "/secret-path", "secret")
        counted = (await service.ask("GET", "/metrics", "secret")).text
        assert "secret-path" not in counted
        assert 'retrieval_http_requests_total{method="POST",route="other",status="401"} 1' in counted
        assert 'retrieval_http_requests_total{method="GET",route="/healthz",status="200"} 1' in counted

    served(tmp_path, check, tokens=(hashed("secret"),), max_requests=1)


def test_requests_have_ids(tmp_path: Path) -> None:
    """A client's own id comes back where it can stand in a header; any other one is replaced."""

    async def check(service: Service) -> None:
        own = await service.ask("GET", "/healthz", headers={"x-request-id": "Abc-1._"})
        assert own.headers["x-request-id"] == "Abc-1._"
        for odd in ("a b", "x" * 129, "a;b", json.dumps("a")):
            answer = await service.ask("GET", "/healthz", headers={"x-request-id": odd})
            assert answer.headers["x-request-id"] != odd
            assert len(answer.headers["x-request-id"]) == 32

    served(tmp_path, check)


def test_a_callers_trace_goes_on(tmp_path: Path) -> None:
    """The span that a request names is the parent of what is done for it, and of nothing else."""
    trace = pytest.importorskip("opentelemetry.trace")
    seen: dict[str, str] = {}

    class Traced(FakeEmbedder):
        async def _embed_query(self, text: str) -> Any:
            seen.setdefault(text, f"{trace.get_current_span().get_span_context().trace_id:032x}")
            return await super()._embed_query(text)

    async def run() -> None:
        index = opened(tmp_path / "index.db", parts={"embedder": Traced()})
        await index.aadd_documents([Document("moon.md", "The moon has no air.", source="moon.md", content_hash="")])
        async with serving({"index": index}) as service:
            for name in ("a" * 32, "b" * 32, None):
                headers = {} if name is None else {"traceparent": f"00-{name}-{'c' * 16}-01"}
                query = {"query_text": f"moon {name}"}
                assert (await service.ask("POST", "/v1/search", json=query, headers=headers)).status_code == 200

    asyncio.run(run())
    assert [seen[f"moon {name}"] for name in ("a" * 32, "b" * 32, None)] == ["a" * 32, "b" * 32, "0" * 32]
