"""Access tokens of an OAuth issuer, by a fake one that shares no code with what checks them."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from cryptography.hazmat.primitives import hashes, hmac, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils
from pydantic import ValidationError

from retrieval_core import Document
from retrieval_core.testing.clock import FakeClock
from support.http_service import HttpSettings, hashed, opened, serving

if TYPE_CHECKING:
    from pathlib import Path

    import httpx2

    from support.http_service import Service

AGAIN_AFTER, KEYS_FOR = 30.0, 3600.0
"""Seconds between two requests for keys at least, and after which keys are fetched again."""
pytestmark = pytest.mark.slow

AUDIENCE = "https://docs.example/mcp"
MCP = {"accept": "application/json, text/event-stream"}


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    return encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


class Key:
    """A signing key, with what of it is public."""

    def __init__(self, name: str, algorithm: str = "RS256") -> None:
        self.name = name
        self.algorithm = algorithm
        self.own: Any
        if algorithm == "ES256":
            self.own = ec.generate_private_key(ec.SECP256R1())
        elif algorithm == "EdDSA":
            self.own = ed25519.Ed25519PrivateKey.generate()
        else:
            self.own = rsa.generate_private_key(65537, 2048)

    def public(self) -> dict[str, Any]:
        told: dict[str, Any] = {"kid": self.name, "use": "sig", "alg": self.algorithm}
        if self.algorithm == "ES256":
            point = self.own.public_key().public_numbers()
            # A coordinate has its full length, leading zeros included (RFC 7518, 6.2.1.2).
            x, y = (encoded(value.to_bytes(32, "big")) for value in (point.x, point.y))
            return {**told, "kty": "EC", "crv": "P-256", "x": x, "y": y}
        if self.algorithm == "EdDSA":
            raw = self.own.public_key().public_bytes_raw()
            return {**told, "kty": "OKP", "crv": "Ed25519", "x": encoded(raw)}
        numbers = self.own.public_key().public_numbers()
        return {**told, "kty": "RSA", "n": number(numbers.n), "e": number(numbers.e)}

    def sign(self, text: bytes) -> bytes:
        if self.algorithm == "ES256":
            r, s = utils.decode_dss_signature(self.own.sign(text, ec.ECDSA(hashes.SHA256())))
            return r.to_bytes(32, "big") + s.to_bytes(32, "big")
        if self.algorithm == "EdDSA":
            return self.own.sign(text)
        if self.algorithm == "PS256":
            return self.own.sign(text, padding.PSS(padding.MGF1(hashes.SHA256()), 32), hashes.SHA256())
        return self.own.sign(text, padding.PKCS1v15(), hashes.SHA256())


KEY, OTHER = Key("first"), Key("second")


class Issuer:
    """An issuer on this machine.

    Attributes:
        keys: Those that it shows.
        asked: The paths that it was asked for.
        broken: What it answers with in place of its keys.
    """

    def __init__(self) -> None:
        self.keys = [KEY]
        self.asked: list[str] = []
        self.broken: bytes | None = None
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                body = issuer.answer(self.path)
                self.send_response(404 if body is None else 200)
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as its base has it
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, path: str) -> bytes | None:
        if path == "/.well-known/openid-configuration":
            return json.dumps({"issuer": self.url, "jwks_uri": f"{self.url}/keys"}).encode()
        if path == "/keys":
            return self.broken or json.dumps({"keys": [key.public() for key in self.keys]}).encode()
        return None

    def token(self, key: Key = KEY, head: dict[str, Any] | None = None, **claims: Any) -> str:
        """Return a token; a claim that is given as None is left out."""
        now = int(time.time())
        said = {
            "iss": self.url, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + 600, "scope": "read", **claims,
        }  # fmt: skip
        header = {"alg": key.algorithm, "typ": "at+jwt", "kid": key.name, **(head or {})}
        parts = (header, {name: value for name, value in said.items() if value is not None})
        text = ".".join(encoded(json.dumps(part).encode()) for part in parts)
        return f"{text}.{encoded(key.sign(text.encode()))}"


@contextmanager
def issuing() -> Generator[Issuer]:
    issuer = Issuer()
    thread = threading.Thread(target=issuer.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield issuer
    finally:
        issuer.server.shutdown()
        thread.join()
        issuer.server.server_close()


@pytest.fixture
def issuer() -> Generator[Issuer]:
    with issuing() as running:
        yield running


def served(tmp_path: Path, issuer: Issuer, test: Callable[[Service], Any], **settings: Any) -> None:
    """Serve a document of each of two tenants."""

    async def run() -> None:
        index = opened(tmp_path / "index.db")
        await index.aadd_documents(
            [
                Document(f"{name}.md", f"All of {name}.", source=name, content_hash="", metadata={"tenant": name})
                for name in ("acme", "globex")
            ]
        )
        oauth = {"oauth_issuer": issuer.url, "oauth_audience": AUDIENCE}
        async with serving({"index": index}, **{**oauth, **settings}) as service:
            await test(service)

    asyncio.run(run())


async def searched(service: Service, token: str | None) -> httpx2.Response:
    return await service.ask("POST", "/v1/search", token, json={"query_text": "all of it"})


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
def test_a_token_of_the_issuer_is_let_in(tmp_path: Path, issuer: Issuer, algorithm: str) -> None:
    """Signed in any of the usual ways; the keys are found by the issuer's metadata, and fetched once."""
    key = Key("own", algorithm)
    issuer.keys = [OTHER, key]

    async def check(service: Service) -> None:
        for _ in range(3):
            answer = await searched(service, issuer.token(key))
            assert answer.status_code == 200
            assert len(answer.json()["results"]) == 2
        listed = await searched(
            service, issuer.token(key, aud=["https://other.example", AUDIENCE], scope=None, scp=["read"])
        )
        assert listed.status_code == 200

    served(tmp_path, issuer, check)
    assert issuer.asked.count("/keys") == 1


def by_secret(issuer: Issuer) -> str:
    """Return a token that is signed with the public key, as a secret."""
    pem = KEY.own.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    head, body, _ = issuer.token(head={"alg": "HS256"}).split(".")
    signer = hmac.HMAC(pem, hashes.SHA256())
    signer.update(f"{head}.{body}".encode())
    return f"{head}.{body}.{encoded(signer.finalize())}"


def changed(issuer: Issuer) -> str:
    """Return a token whose claims were changed after it was signed."""
    head, _, signature = issuer.token().split(".")
    _, body, _ = issuer.token(scope="read write").split(".")
    return f"{head}.{body}.{signature}"


REFUSED: dict[str, Callable[[Issuer], str | None]] = {
    "none": lambda _issuer: None,
    "no token": lambda _issuer: "nonsense",
    "wrong": lambda _issuer: "a.b.c",
    "huge": lambda issuer: issuer.token(sub="x" * 20_000),
    "expired": lambda issuer: issuer.token(exp=int(time.time()) - 120),
    "without an end": lambda issuer: issuer.token(exp=None),
    "not yet valid": lambda issuer: issuer.token(nbf=int(time.time()) + 600),
    "for another host": lambda issuer: issuer.token(aud="https://other.example/mcp"),
    "for nobody": lambda issuer: issuer.token(aud=None),
    "of another issuer": lambda issuer: issuer.token(iss="https://evil.example"),
    "unsigned": lambda issuer: issuer.token(head={"alg": "none"}).rpartition(".")[0] + ".",
    "signed with the public key": by_secret,
    "another algorithm than the key's": lambda issuer: issuer.token(head={"alg": "PS256"}),
    "by a key that is not shown": lambda issuer: issuer.token(OTHER),
    "by another key under a known name": lambda issuer: issuer.token(OTHER, head={"kid": "first"}),
    "changed": changed,
    "with a key of its own": lambda issuer: issuer.token(OTHER, head={"kid": None, "jwk": OTHER.public()}),
    "with an address of keys": lambda issuer: issuer.token(OTHER, head={"jku": f"{issuer.url}/keys", "kid": "second"}),
    "algorithm is a list": lambda issuer: issuer.token(head={"alg": ["RS256"]}),
    "name of the key is a number": lambda issuer: issuer.token(head={"kid": 7}),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_another_token_is_not(tmp_path: Path, issuer: Issuer, kind: str) -> None:
    """With 401 and where to get one, over both interfaces; nothing of the token or of a reason is repeated."""

    async def check(service: Service) -> None:
        token = REFUSED[kind](issuer)
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        for answer in (
            await searched(service, token),
            await service.ask("POST", "/mcp", token, json=call, headers=MCP),
        ):
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == (
                'Bearer resource_metadata="https://docs.example/.well-known/oauth-protected-resource/mcp"'
            )
            assert answer.json()["errors"] == [
                "the token is missing or invalid. Send the header Authorization: Bearer TOKEN"
            ]

    served(tmp_path, issuer, check)


def test_a_token_elsewhere_than_in_the_header_is_none(tmp_path: Path, issuer: Issuer) -> None:
    """In an address it would be written into logs."""

    async def check(service: Service) -> None:
        token = issuer.token()
        answer = await service.ask("GET", f"/v1/indexes?access_token={token}")
        assert answer.status_code == 401

    served(tmp_path, issuer, check)


def test_who_a_token_is_to_be_had_from_is_told_to_everybody(tmp_path: Path, issuer: Issuer) -> None:
    """At both of its addresses, without a token."""

    async def check(service: Service) -> None:
        for path in ("/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"):
            answer = await service.ask("GET", path)
            assert answer.json() == {
                "resource": AUDIENCE,
                "authorization_servers": [issuer.url],
                "scopes_supported": ["read", "write"],
                "bearer_methods_supported": ["header"],
            }

    served(tmp_path, issuer, check)


def test_scopes_are_needed(tmp_path: Path, issuer: Issuer) -> None:
    """To read at all, and to write, also by a tool; the answer names the one that is lacking."""
    document = {"documents": [{"id": "new.md", "text": "New."}]}
    remove = {
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "remove_document", "arguments": {"id": "acme.md"}},
    }  # fmt: skip

    async def check(service: Service) -> None:
        nothing = await searched(service, issuer.token(scope="profile"))
        assert nothing.status_code == 403
        assert 'error="insufficient_scope", scope="read"' in nothing.headers["www-authenticate"]
        refused = await service.ask("POST", "/v1/documents", issuer.token(), json=document)
        assert refused.status_code == 403
        assert 'error="insufficient_scope", scope="write"' in refused.headers["www-authenticate"]
        told = await service.ask("POST", "/mcp", issuer.token(), json=remove, headers=MCP)
        assert "lacks the scope write" in told.text
        both = issuer.token(scope="read write")
        assert (await service.ask("POST", "/v1/documents", both, json=document)).status_code == 200
        told = await service.ask("POST", "/mcp", both, json=remove, headers=MCP)
        assert "Removed acme.md" in told.text

    served(tmp_path, issuer, check, allow_writes=True)


def test_a_tenant_is_told_by_a_claim(tmp_path: Path, issuer: Issuer) -> None:
    """And sees its own alone, over both interfaces; a token without the claim is refused."""
    params = {"name": "search", "arguments": {"query": "all of it"}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}

    async def check(service: Service) -> None:
        for tenant, other in (("acme", "globex"), ("globex", "acme")):
            token = issuer.token(org=tenant)
            (hit,) = (await searched(service, token)).json()["results"]
            assert hit["metadata"]["chunk_id"] == f"{tenant}.md#0"
            told = (await service.ask("POST", "/mcp", token, json=call, headers=MCP)).text
            assert f"All of {tenant}." in told
            assert other not in told
        for claim in (None, "", 7, ["acme"]):
            assert (await searched(service, issuer.token(org=claim))).status_code == 401

    served(tmp_path, issuer, check, oauth_tenant_claim="org")


def test_keys_change_and_issuers_fail(tmp_path: Path, issuer: Issuer) -> None:
    """A new key is fetched when a token names it, but not for every such token; while that fails, the old ones hold."""
    clock = FakeClock()

    async def check(service: Service) -> None:
        assert (await searched(service, issuer.token())).status_code == 200
        issuer.keys = [KEY, OTHER]
        for _ in range(20):
            assert (await searched(service, issuer.token(OTHER))).status_code == 401
        assert issuer.asked.count("/keys") == 1
        clock.advance(AGAIN_AFTER)
        answers = await asyncio.gather(*(searched(service, issuer.token(OTHER)) for _ in range(10)))
        assert {answer.status_code for answer in answers} == {200}
        assert issuer.asked.count("/keys") == 2
        clock.advance(KEYS_FOR + 1)
        for broken in (b"nonsense", b"[]", b'{"keys": []}', b" " * 300_000):
            issuer.broken = broken
            assert (await searched(service, issuer.token())).status_code == 200
            clock.advance(AGAIN_AFTER)
        issuer.broken = None
        issuer.keys = [OTHER]
        assert (await searched(service, issuer.token(OTHER))).status_code == 200
        assert (await searched(service, issuer.token())).status_code == 401

    served(tmp_path, issuer, check, clock=clock)


def test_an_issuer_that_is_down_lets_nobody_in_and_hashed_tokens_still(tmp_path: Path) -> None:
    """Both kinds of tokens stand side by side."""
    with issuing() as gone:
        token = gone.token()

    async def check(service: Service) -> None:
        assert (await searched(service, token)).status_code == 401
        assert (await searched(service, "own")).status_code == 200

    served(tmp_path, gone, check, tokens=(hashed("own"),))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"oauth_issuer": "https://id.example"}, "set both oauth_issuer and oauth_audience"),
        ({"oauth_issuer": "http://id.example", "oauth_audience": AUDIENCE}, "with https"),
        (
            {"oauth_issuer": "https://id.example", "oauth_audience": AUDIENCE, "oauth_jwks_url": "ftp://a/b"},
            "with https",
        ),
    ],
)
def test_settings_that_let_others_in_are_refused(settings: dict[str, str], problem: str) -> None:
    """Half of what is needed, and keys that somebody on the way could change."""
    with pytest.raises(ValidationError, match=problem):
        HttpSettings.model_validate(settings)
