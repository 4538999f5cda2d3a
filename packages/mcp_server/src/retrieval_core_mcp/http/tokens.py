"""Bearer tokens, of which only hashes are known here."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from retrieval_core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

_LINE = re.compile(r"sha256:([0-9a-fA-F]{64})(?::(\S(?:.*\S)?))?")
FORM = "sha256:HASH, or sha256:HASH:TENANT; make the hash with: printf %s TOKEN | sha256sum"


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token that is accepted.

    Attributes:
        digest: The SHA-256 of its bytes, or of its issuer, subject and tenant.
        tenant: The tenant whose chunks are all that it may see; ``None`` to see every chunk.
        subject: Its owner; empty if unknown.
        may_write: Whether it may write, if the service allows it and it has no tenant.
    """

    digest: bytes
    tenant: str | None = None
    subject: str = ""
    may_write: bool = True

    @property
    def name(self) -> str:
        """The caller's name in logs: the subject, or the beginning of the digest."""
        return self.subject or self.digest.hex()[:12]


def read_tokens(lines: Iterable[str]) -> tuple[BearerToken, ...]:
    """Read hashed tokens, one a line; blank lines, and lines that begin with ``#``, are skipped.

    Raises:
        ConfigurationError: A line is not such a token. The message does not repeat it, as it may be a token.
    """
    found: list[BearerToken] = []
    for number, line in enumerate(lines, 1):
        written = line.strip()
        if not written or written.startswith("#"):
            continue
        if (match := _LINE.fullmatch(written)) is None:
            msg = f"token {number} has the wrong form. Write {FORM}"
            raise ConfigurationError(msg)
        found.append(BearerToken(bytes.fromhex(match[1]), match[2]))
    return tuple(found)


def hashed(token: str) -> str:
    """Return the hash of a token, as settings have it."""
    return f"sha256:{sha256(token.encode()).hexdigest()}"


def find_token(tokens: Iterable[BearerToken], authorization: str | None) -> BearerToken | None:
    """Return the token that a header ``Authorization`` carries; ``None`` for one that is not accepted.

    It takes the same time for every wrong token.

    Args:
        authorization: Its bytes as Latin-1, which is how headers are read.
    """
    scheme, _, given = (authorization or "").partition(" ")
    if scheme.lower() != "bearer":
        return None
    digest = sha256(given.encode("latin-1").strip(b" \t")).digest()
    matching = [token for token in tokens if hmac.compare_digest(token.digest, digest)]
    return matching[0] if matching else None
