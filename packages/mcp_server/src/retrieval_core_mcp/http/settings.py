"""The settings of the service over HTTP."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path  # noqa: TC003 - pydantic reads it
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from retrieval_core.errors import ConfigurationError
from retrieval_core_mcp.http.tokens import Token, read_tokens


def listed(value: Any) -> Any:
    """Return what a comma-separated text lists."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Listed = Annotated[tuple[str, ...], BeforeValidator(listed)]


class HttpSettings(BaseModel):
    """Where the service listens, whom it lets in, and how much it takes on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    """The address it listens at; another than of this machine alone needs a token."""
    port: int = Field(default=8000, ge=0, le=65535)
    """0 for any that is free."""
    tokens: Listed = ()
    """Hashed bearer tokens, ``sha256:HASH`` or ``sha256:HASH:TENANT``."""
    tokens_file: Path | None = None
    """A file with further ones, one a line."""
    tenant_field: str = Field(default="tenant", min_length=1)
    """The field of a passage that names whose it is."""
    allowed_hosts: Listed = ()
    """Names, beside those of this machine, by which clients may call the service."""
    allowed_origins: Listed = ()
    """Web pages, as ``https://example.com``, whose scripts may call it (CORS)."""
    base_url: str | None = None
    """What the addresses of documents without one of their own begin with."""
    max_body_bytes: int = Field(default=1_048_576, ge=16_384)
    """The largest body of a request."""
    max_requests: int = Field(default=64, ge=1)
    """The most requests that are worked on at a time; more are told to come again."""
    max_sessions: int = Field(default=1_000, ge=1)
    """The most sessions of MCP at a time, each with at most one open stream; idle ones end after half an hour."""
    request_seconds: float = Field(default=35.0, gt=0)
    """How long a request may take; a search ends earlier, by ``deadline_seconds`` of the configuration."""
    shutdown_seconds: float = Field(default=10.0, ge=0)
    """How long requests under way may go on after the signal to end."""

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is not None and (not (parts := urlsplit(value)).scheme or not parts.netloc or " " in value):
            msg = "write an address such as https://docs.example.com/"
            raise ValueError(msg)
        return value

    @property
    def is_local(self) -> bool:
        """Whether only programs of this machine reach the service."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    def known_tokens(self) -> tuple[Token, ...]:
        """Read all tokens.

        Raises:
            ConfigurationError: One is not hashed, the file cannot be read, or there is none where one is needed.
        """
        found = read_tokens(self.tokens)
        if self.tokens_file is not None:
            try:
                found += read_tokens(self.tokens_file.read_text("utf-8").splitlines())
            except (OSError, UnicodeDecodeError) as error:
                msg = f"the file of tokens cannot be read: {type(error).__name__}"
                raise ConfigurationError(msg) from error
        if not found and not self.is_local:
            msg = (
                f"to listen at {self.host}, where other machines reach it, the service needs a token: set "
                "RETRIEVAL_MCP__HTTP__TOKENS to sha256:HASH, or listen at 127.0.0.1"
            )
            raise ConfigurationError(msg, missing_keys=["RETRIEVAL_MCP__HTTP__TOKENS"])
        return found
