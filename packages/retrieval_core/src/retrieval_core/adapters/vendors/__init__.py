"""Parts of adapters of a vendor's API: loading its package, its connections, and errors in its servers' words."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib import import_module
from math import isfinite
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast
from weakref import WeakKeyDictionary

from pydantic import SecretStr

from retrieval_core.config import host_of, without_credentials
from retrieval_core.errors import (
    ConfigurationError,
    MissingExtraError,
    ServiceConnectionError,
    ServiceError,
    ServiceTimeoutError,
)

if TYPE_CHECKING:
    from collections.abc import Generator

_LONGEST = 300
_ENDS = frozenset(
    ".!?\N{HORIZONTAL ELLIPSIS}\N{IDEOGRAPHIC FULL STOP}\N{FULLWIDTH EXCLAMATION MARK}\N{FULLWIDTH QUESTION MARK}"
)
_CLOSING = "\"')`\N{RIGHT DOUBLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}"
"""Closing marks behind the end of a sentence."""
_DANGLING = ":;,- \N{EN DASH}\N{EM DASH}"
C = TypeVar("C")

NO_KEY = "none"
"""The placeholder for a missing key, without which an SDK raises or looks for one in the environment."""
_ADVICE = {
    401: "Check the API key.",
    403: "Check what the API key may be used for.",
    404: "Check the model's name and the base URL.",
}


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return how many seconds a service asks to wait, ``None`` without a valid header.

    ``Retry-After`` holds seconds or a date (RFC 9110, 10.2.3); ``retry-after-ms`` is finer and goes first. A date in
    the past is 0.

    Args:
        headers: With names in lower case, or of any mapping that ignores case.
        now: With a time zone; the present by default.
    """
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) / unit
        except ValueError:
            seconds = _seconds_until(value, now or datetime.now(UTC))
        if seconds is not None and isfinite(seconds) and seconds >= 0:
            return seconds
    return None


def what_was_said(body: object, secret: str = "") -> str:
    """Return the message of an error's body, as one line of bounded length; empty where there is none.

    Args:
        body: JSON, or text.
        secret: Left out of the message where the service repeats it.
    """
    while isinstance(body, Mapping):
        fields = cast("Mapping[str, Any]", body)
        body = next((fields[name] for name in ("message", "error", "detail") if fields.get(name)), "")
    text = " ".join(str(body or "").split())
    text = without_credentials(text.replace(secret, "[secret]") if secret else text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def with_advice(said: str, advice: str) -> str:
    """Return a service's message, ended as a sentence, with our own advice after it."""
    said = said.rstrip().rstrip(_DANGLING)
    if not advice or not said:
        return said or advice
    last = said.rstrip(_CLOSING)[-1:]
    return f"{said} {advice}" if last in _ENDS else f"{said}. {advice}"


def _seconds_until(date: str, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())


class VendorConnection(ABC, Generic[C]):
    """A client for each event loop, made with the first call there; its sockets belong to that loop.

    The client makes one attempt a call. Cancelling a call closes its connection.

    Args:
        needed_for: The connection's purpose, for the error when the SDK is missing.
        api_key: Not needed for a server that wants none.
        base_url: By default the vendor's own.

    Raises:
        ConfigurationError: There is neither a key nor a base URL, or one of them cannot be used.
    """

    service: ClassVar[str]
    """Names the vendor in errors; also the extra with its SDK."""
    own_url: ClassVar[str]
    key_name: ClassVar[str]
    """Of the vendor's key in the environment."""
    advice: ClassVar[Mapping[int, str]] = _ADVICE
    """Advice for error messages, by HTTP status."""

    def __init__(self, needed_for: str, api_key: SecretStr | str | None, base_url: str | None) -> None:
        self._needed_for = needed_for
        self._key = self._checked_key(api_key)
        if self._key is None and not base_url:
            msg = (
                f"{needed_for} needs an API key: set {self.key_name}, or api_key in the configuration. "
                "For your own server, set base_url to its address; it may need no key."
            )
            raise ConfigurationError(msg, missing_keys=(self.key_name,))
        self._base_url = base_url or self.own_url
        self._host = _checked_host(self._base_url)
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, C] = WeakKeyDictionary()
        self._lock = Lock()

    @property
    def is_vendors_own(self) -> bool:
        """Whether this leads to the vendor itself."""
        return self._host == _checked_host(self.own_url)

    @property
    def suffix(self) -> str:
        """``@`` and the host, for ids; empty for the vendor's own server."""
        return "" if self.is_vendors_own else f"@{self._host}"

    async def aclose(self) -> None:
        """Close the running event loop's connections; a later call opens new ones. Closing twice is fine."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await self._close(client)

    @contextmanager
    def mapped_errors(self) -> Generator[None]:
        """Turn what the client raises into errors of this library, without the key.

        Raises:
            ServiceConnectionError: The server could not be reached, or the connection broke off.
            ServiceTimeoutError: The server was silent for too long.
            MalformedAnswerError: The answer is not what the protocol says.
            ServiceError: The server answered with an error.
        """
        try:
            yield
        except Exception as error:
            mapped = self._mapped(error)
            if mapped is None:
                raise
            # A server may repeat the key that it did not like.
            raise mapped from (None if self._key and self._key.get_secret_value() in str(error) else error)

    def said(self, body: object) -> str:
        """Return the server's message, as one line of bounded length and without the key."""
        return what_was_said(body, "" if self._key is None else self._key.get_secret_value())

    async def client(self) -> C:
        """Return the client of the running event loop.

        Raises:
            MissingExtraError: The vendor's SDK is not installed.
        """
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        # Loading the SDK and the certificates reads files.
        return client or await asyncio.to_thread(self._client_for, loop)

    def _client_for(self, loop: asyncio.AbstractEventLoop) -> C:
        with self._lock:
            if (client := self._clients.get(loop)) is not None:
                return client
            # Open connections keep the loop alive that they belong to, so a weak reference is not enough.
            for other in [other for other in self._clients if other.is_closed()]:
                del self._clients[other]
            try:
                client = self._clients[loop] = self._make(NO_KEY if self._key is None else self._key.get_secret_value())
            except ImportError as error:
                raise MissingExtraError(self.service, self._needed_for) from error
            return client

    @abstractmethod
    def _make(self, key: str) -> C:
        """Return a new client for the base URL; it loads the SDK, in a thread."""

    @abstractmethod
    async def _close(self, client: C) -> None:
        """Close a client's connections."""

    @abstractmethod
    def _mapped(self, error: Exception) -> ServiceError | None:
        """Return an error of the SDK as one of this library's; ``None`` for other errors."""

    def _silent(self) -> ServiceTimeoutError:
        return ServiceTimeoutError(f"{self._host} did not answer in time; it may be overloaded", self.service)

    def _unreachable(self, cause: BaseException) -> ServiceConnectionError:
        reason = self.said(str(cause)) or type(cause).__name__
        reason = with_advice(reason, "Check that the address is right and reachable.")
        return ServiceConnectionError(f"the connection to {self._host} failed: {reason}", self.service)

    def _of_status(self, status: int, body: object, headers: Mapping[str, str]) -> ServiceError:
        advice = self.advice.get(status, "")
        if status == 401 and self._key is None:
            advice = f"Set api_key. The environment variable {self.key_name} isn't read if base_url is set."
        reason = with_advice(self.said(body) or "no reason given", advice)
        msg = f"{self._host} answered with status {status}: {reason}"
        kind = ServiceTimeoutError if status == 408 else ServiceError
        return kind(msg, self.service, status=status, retry_after=retry_after(headers))

    def _checked_key(self, api_key: SecretStr | str | None) -> SecretStr | None:
        key = (api_key.get_secret_value() if isinstance(api_key, SecretStr) else api_key or "").strip()
        # Such a key would come back in the error about the header that it makes.
        if not all("!" <= character <= "~" for character in key):
            msg = f"the API key for {self.service} holds white space or characters outside ASCII; it is not a key"
            raise ConfigurationError(msg)
        return SecretStr(key) if key else None


def _checked_host(url: str) -> str:
    try:
        return host_of(url)
    except ValueError as error:
        msg = f"base_url {error}"
    raise ConfigurationError(msg)


class LoadsPackage:
    """A plug-in whose first call imports a vendor's package, which takes seconds on a busy machine."""

    package: ClassVar[str]

    @property
    def is_loaded(self) -> bool:
        """Whether the package is imported."""
        return self.package in sys.modules

    async def load(self) -> None:
        """Import the package; if it is missing, the first call says so."""
        with suppress(ImportError):
            await asyncio.to_thread(import_module, self.package)
