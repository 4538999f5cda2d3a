"""Access tokens of an OAuth issuer: signed JSON Web Tokens, checked with its public keys (RFC 9068, RFC 9728)."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from retrieval_core_mcp.http.addresses import is_safe_address
from retrieval_core_mcp.http.envelope import RequestError
from retrieval_core_mcp.http.tokens import BearerToken

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx2
    import jwt

    from retrieval_core.run.clock import Clock
    from retrieval_core_mcp.http.settings import HttpSettings

logger = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
"""Signatures that only the issuer can make: never ``none``, and none with a secret that both sides know."""
READ, WRITE = "read", "write"
KEYS_FOR = 3600.0
"""Seconds after which keys are fetched again; the old ones are used as long as that fails."""
AGAIN_AFTER = 30.0
"""Seconds between two fetches at least, whatever tokens name keys that are not known."""
FETCH_SECONDS = 5.0
LARGEST_DOCUMENT = 262_144
LEEWAY = 30
"""Seconds by which clocks may differ."""
METADATA = "/.well-known/oauth-protected-resource"
LONGEST_TOKEN = 16_384


class InvalidToken(Exception):  # noqa: N818 - it says what a token is
    """A token that is not let in."""


@dataclass(frozen=True, slots=True)
class OAuth:
    """An issuer whose tokens are accepted.

    Attributes:
        audience: The address of this service, for which a token must be.
        jwks_url: Where its keys are; ``None`` to ask the issuer's metadata.
        tenant_claim: The claim that names the tenant, without which a token is refused; ``None`` for none.
    """

    issuer: str
    audience: str
    jwks_url: str | None = None
    tenant_claim: str | None = None

    @classmethod
    def of(cls, settings: HttpSettings) -> OAuth | None:
        """Return the issuer of the settings; ``None`` if there is none."""
        if settings.oauth_issuer is None or settings.oauth_audience is None:
            return None
        return cls(settings.oauth_issuer, settings.oauth_audience, settings.oauth_jwks_url, settings.oauth_tenant_claim)

    @property
    def metadata_url(self) -> str:
        """The address of :meth:`metadata`."""
        parts = urlsplit(self.audience)
        return f"{parts.scheme}://{parts.netloc}{METADATA}{parts.path.rstrip('/')}"

    def metadata(self) -> dict[str, Any]:
        """Return the document from which clients learn how to get a token."""
        return {
            "resource": self.audience,
            "authorization_servers": [self.issuer],
            "scopes_supported": [READ, WRITE],
            "bearer_methods_supported": ["header"],
        }


class JwtVerifier:
    """Checks tokens of an issuer.

    Args:
        clock: Measures the age of its keys.
    """

    def __init__(self, oauth: OAuth, clock: Clock) -> None:
        import_module("jwt")  # before the first request, since it takes a while
        self._oauth = oauth
        self._clock = clock
        self._keys: Mapping[str | None, jwt.PyJWK] = {}
        self._fetched = self._tried = -inf
        self._fetching = asyncio.Lock()

    async def verify(self, token: str) -> tuple[BearerToken, frozenset[str]]:
        """Return the owner of a token, and the scopes that it has.

        Raises:
            InvalidToken: It is none, of another issuer, for another audience, expired or not valid yet, not signed by a
                key of the issuer, or without the claim of the tenant.
        """
        if len(token) > LONGEST_TOKEN:
            raise InvalidToken
        import jwt  # noqa: PLC0415 - only needed with an issuer

        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in ALGORITHMS:
                raise InvalidToken
            claims = jwt.decode(
                token,
                await self._key(header.get("kid")),
                algorithms=[header["alg"]],
                audience=self._oauth.audience,
                issuer=self._oauth.issuer,
                leeway=LEEWAY,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise InvalidToken from error
        return self._owner(claims), _scopes(claims)

    def _owner(self, claims: Mapping[str, Any]) -> BearerToken:
        tenant = None
        if self._oauth.tenant_claim is not None:
            tenant = claims.get(self._oauth.tenant_claim)
            if not isinstance(tenant, str) or not tenant.strip():
                raise InvalidToken
        subject = str(claims.get("sub") or claims.get("client_id") or "")
        own = json.dumps([self._oauth.issuer, subject, tenant])
        digest = sha256(own.encode("utf-8", "surrogatepass")).digest()
        return BearerToken(digest, tenant, subject, WRITE in _scopes(claims))

    async def _key(self, name: Any) -> jwt.PyJWK:
        if self._needs_keys(name):
            async with self._fetching:
                if self._needs_keys(name):  # nobody has fetched them meanwhile
                    await self._fetch()
        if name is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        if name not in self._keys:
            raise InvalidToken
        return self._keys[name]

    def _needs_keys(self, name: object) -> bool:
        now = self._clock.now()
        return now - self._tried >= AGAIN_AFTER and (now - self._fetched > KEYS_FOR or name not in self._keys)

    async def _fetch(self) -> None:
        """Fetch the keys; a failure is logged, and leaves those that are known."""
        try:
            async with self._clock.timeout(FETCH_SECONDS):
                self._keys = await asyncio.to_thread(_fetch_keys, self._oauth)
            self._fetched = self._clock.now()
        except Exception as error:  # noqa: BLE001 - whatever an issuer sends, it lets nobody in
            logger.warning("the keys of %s cannot be fetched: %s", self._oauth.issuer, type(error).__name__)
        finally:
            self._tried = self._clock.now()


def _fetch_keys(oauth: OAuth) -> dict[str | None, jwt.PyJWK]:
    """Return the issuer's keys for signatures, by their names.

    Raises:
        Exception: They cannot be fetched or read.
    """
    import httpx2  # noqa: PLC0415 - only needed with an issuer
    import jwt  # noqa: PLC0415 - likewise

    with httpx2.Client(timeout=FETCH_SECONDS) as client:
        found = jwt.PyJWKSet.from_dict(_document(client, oauth.jwks_url or _announced(client, oauth.issuer)))
    return {key.key_id: key for key in found.keys if key.public_key_use in (None, "sig")}


def _announced(client: httpx2.Client, issuer: str) -> str:
    """Return where the issuer says that its keys are."""
    from mcp.client.auth.utils import (  # noqa: PLC0415 - only needed with an issuer
        build_oauth_authorization_server_metadata_discovery_urls as places_of,
    )

    for place in places_of(issuer, ""):
        with suppress(ValueError):
            metadata = _document(client, place)
            if metadata.get("issuer") == issuer and isinstance(metadata.get("jwks_uri"), str):
                return metadata["jwks_uri"]
    msg = "the issuer does not name the address of its keys"
    raise ValueError(msg)


def _document(client: httpx2.Client, url: str) -> dict[str, Any]:
    """Return a JSON object from an address; redirects are not followed.

    Raises:
        ValueError: There is none, it is too large, or the address is not safe.
        httpx2.HTTPError: The address cannot be reached.
    """
    if not is_safe_address(url):
        msg = "the address is neither HTTPS nor of this machine"
        raise ValueError(msg)
    with client.stream("GET", url) as answer:
        body = b""
        for part in answer.iter_bytes():
            body += part
            if len(body) > LARGEST_DOCUMENT:
                msg = f"more than {LARGEST_DOCUMENT:,} bytes"
                raise ValueError(msg)
    content: Any = json.loads(body) if answer.status_code == 200 else None
    if not isinstance(content, dict):
        msg = f"HTTP {answer.status_code}, and no JSON object"
        raise ValueError(msg)  # noqa: TRY004 - one error for all that cannot be used
    return cast("dict[str, Any]", content)


def insufficient(scope: str, oauth: OAuth | None) -> RequestError:
    """Return the error for a token that lacks a scope."""
    where = "" if oauth is None else f', resource_metadata="{oauth.metadata_url}"'
    challenge = f'Bearer error="insufficient_scope", scope="{scope}"{where}'
    return RequestError(403, f"the token lacks the scope {scope}", headers={"www-authenticate": challenge})


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """Return the scopes of a token: the words of ``scope``, or the list of ``scp``, as some issuers have it."""
    given: Any = claims.get("scope", claims.get("scp", ""))
    return frozenset(given.split() if isinstance(given, str) else map(str, given) if isinstance(given, list) else ())  # pyright: ignore[reportUnknownArgumentType]
