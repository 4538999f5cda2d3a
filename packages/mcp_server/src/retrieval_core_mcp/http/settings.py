"""The settings of the service over HTTP."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - pydantic reads it
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from retrieval_core.errors import ConfigurationError
from retrieval_core_mcp.http.addresses import is_safe_address, is_this_machine
from retrieval_core_mcp.http.tokens import BearerToken, read_tokens


def listed(value: Any) -> Any:
    """Return what a comma-separated text lists."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Listed = Annotated[tuple[str, ...], BeforeValidator(listed)]


class HttpSettings(BaseModel):
    """Settings of the HTTP service: its address, the callers that it accepts, and its limits."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    """The address to listen at; one that other machines reach needs a token."""
    port: int = Field(default=8000, ge=0, le=65535)
    """The port; 0 for any free one."""
    tokens: Listed = ()
    """Hashed bearer tokens, ``sha256:HASH`` or ``sha256:HASH:TENANT``."""
    tokens_file: Path | None = None
    """A file with further ones, one a line."""
    oauth_issuer: str | None = None
    """The address of an OAuth issuer whose access tokens are accepted too, as its tokens have it."""
    oauth_audience: str | None = None
    """The address of this service, such as ``https://docs.example.com/mcp``, for which these tokens must be made."""
    oauth_jwks_url: str | None = None
    """The address of the issuer's keys; by default its metadata has it."""
    oauth_tenant_claim: str | None = None
    """The claim that names the tenant of a token; a token without it is refused."""
    audit_log: str | None = None
    """A file with a line for each request, without contents; ``-`` for standard error."""
    suite_report: Path | None = None
    """A report of ``retrieval suite run --report FILE.json`` that callers may read."""
    tenant_field: str = Field(default="tenant", min_length=1)
    """The metadata field that names the tenant of a chunk."""
    allowed_hosts: Listed = ()
    """Further host names by which clients may call the service."""
    allowed_origins: Listed = ()
    """Web pages, as ``https://example.com``, whose scripts may call it (CORS)."""
    base_url: str | None = None
    """Prefix of the addresses of documents that have no address."""
    max_body_bytes: int = Field(default=1_048_576, ge=16_384)
    """The largest body of a request in bytes, except for files."""
    max_file_bytes: int = Field(default=67_108_864, ge=1)
    """The largest file that may be sent, in bytes."""
    workers: int = Field(default=1, ge=1, le=64)
    """The number of processes that answer at the port. Several answer MCP without sessions."""
    stateless: bool = False
    """Whether MCP is answered without sessions, so that any of several processes behind a proxy can answer."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    """The most requests in a minute of a token, or of all tokens of a tenant. Several processes count them together in
    the Redis server of the result cache, if there is one."""
    max_requests: int = Field(default=64, ge=1)
    """The most requests in progress at a time; one more is answered with 503. Tokens, or tenants, share them."""
    max_sessions: int = Field(default=1_000, ge=1)
    """The most sessions of MCP at a time, and the most open streams; they are shared as requests are. A session that is
    idle for half an hour ends."""
    receive_seconds: float = Field(default=10.0, gt=0)
    """Seconds that the headers of a request may take; and its body, before ``min_bytes_per_second`` counts."""
    min_bytes_per_second: int = Field(default=16_384, ge=1)
    """The least rate of a body that takes longer."""
    max_waiting: int = Field(default=500, ge=1)
    """The most connections without a request in progress; one more closes the one that has waited longest."""
    request_seconds: float = Field(default=35.0, gt=0)
    """Seconds that a request may take after its body has arrived, and that a client may take to read each part of an
    answer. A search ends earlier, by ``deadline_seconds`` of the configuration."""
    shutdown_seconds: float = Field(default=10.0, ge=0)
    """Seconds that requests in progress may go on after the signal to end."""
    drain_seconds: float = Field(default=0.0, ge=0)
    """Seconds after the signal to end in which requests are still answered, while ``/readyz`` answers 503: a proxy that
    asks for it sends no more of them."""

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is not None and (not (parts := urlsplit(value)).scheme or not parts.netloc or " " in value):
            msg = "write an address such as https://docs.example.com/"
            raise ValueError(msg)
        return value

    @model_validator(mode="after")
    def _oauth_is_whole(self) -> Self:
        given = (self.oauth_issuer, self.oauth_audience)
        if any(given) and not all(given):
            msg = "set both oauth_issuer and oauth_audience, or neither"
            raise ValueError(msg)
        for url in filter(None, (self.oauth_issuer, self.oauth_jwks_url)):
            if not is_safe_address(url):
                msg = (
                    f"write an address with https for {url}: otherwise, an attacker on the network can replace the keys"
                )
                raise ValueError(msg)
        return self

    def known_tokens(self) -> tuple[BearerToken, ...]:
        """Read all tokens.

        Raises:
            ConfigurationError: A token is not hashed or has two tenants, the file cannot be read, or a token is needed
                and missing.
        """
        found = read_tokens(self.tokens)
        if self.tokens_file is not None:
            try:
                found += read_tokens(self.tokens_file.read_text("utf-8").splitlines())
            except (OSError, UnicodeDecodeError) as error:
                msg = f"tokens_file can't be read: {type(error).__name__}"
                raise ConfigurationError(msg) from error
        tenants = {token.digest: token.tenant for token in found}
        if any(tenants[token.digest] != token.tenant for token in found):
            msg = "a token is given twice, for different tenants; it can be of one tenant, or of none and see all"
            raise ConfigurationError(msg)
        if not found and not is_this_machine(self.host) and self.oauth_issuer is None:
            msg = (
                f"a server at {self.host}, which other machines reach, needs a token. "
                "Set RETRIEVAL_MCP__HTTP__TOKENS to sha256:HASH, name an OAuth issuer, or listen at 127.0.0.1"
            )
            raise ConfigurationError(msg, missing_keys=["RETRIEVAL_MCP__HTTP__TOKENS"])
        return found
