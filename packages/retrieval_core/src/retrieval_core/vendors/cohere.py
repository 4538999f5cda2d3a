"""Connections to Cohere, or to another server that speaks its protocol, and what their errors mean here."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pydantic import SecretStr

from retrieval_core.config import host_of
from retrieval_core.errors import (
    ConfigurationError,
    MalformedAnswerError,
    MissingExtraError,
    ServiceConnectionError,
    ServiceError,
    ServiceTimeoutError,
)
from retrieval_core.vendors.http import retry_after, what_was_said, with_advice

if TYPE_CHECKING:
    from collections.abc import Generator

    import httpx
    from cohere import AsyncClientV2
    from cohere.core.api_error import ApiError

SERVICE = "cohere"
COHERE_URL = "https://api.cohere.com"

# The deadline of a query bounds its calls. This only keeps work without a deadline from hanging for ever; it is the
# SDK's own default for an answer.
_SILENCE_SECONDS = 300.0
_MOST_CONNECTIONS = 1000
_MOST_IDLE_CONNECTIONS = 100
# Without a key the SDK looks for one in the environment, and a server of one's own often wants none.
_NO_KEY = "none"
_ADVICE = {
    401: "Check the API key.",
    403: "Check what the API key may be used for.",
    404: "Check the model's name and the base URL.",
}


class CohereConnection:
    """A client for each event loop, made with the first call there; its sockets belong to that loop.

    The client makes one attempt a call. Cancelling a call closes its connection.

    Args:
        needed_for: What the connection is for, for the error when the SDK is missing.
        api_key: Without one, a server of one's own is asked without.
        base_url: Where the paths of the protocol, which begin with ``/v2``, begin; Cohere's by default.

    Raises:
        ConfigurationError: There is neither a key nor a base URL, or one of them cannot be used.
    """

    def __init__(self, needed_for: str, api_key: SecretStr | str | None, base_url: str | None) -> None:
        self._needed_for = needed_for
        self._key = _checked_key(api_key)
        if self._key is None and not base_url:
            msg = (
                f"{needed_for} needs an API key: set CO_API_KEY, or api_key in the configuration. "
                "A server of your own may need none: set base_url to its address."
            )
            raise ConfigurationError(msg, missing_keys=("CO_API_KEY",))
        self._base_url = base_url or COHERE_URL
        self._host = _checked_host(self._base_url)
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[AsyncClientV2, httpx.AsyncClient]] = (
            WeakKeyDictionary()
        )
        self._lock = Lock()

    @property
    def suffix(self) -> str:
        """What tells models of this place from Cohere's own: empty there, else ``@`` and the host."""
        return "" if self._host == _checked_host(COHERE_URL) else f"@{self._host}"

    async def client(self) -> AsyncClientV2:
        """Return the client of the running event loop.

        Raises:
            MissingExtraError: ``cohere`` is not installed.
        """
        loop = asyncio.get_running_loop()
        made = self._clients.get(loop)
        # Loading the SDK and the certificates reads files.
        return (made or await asyncio.to_thread(self._make_client, loop))[0]

    async def aclose(self) -> None:
        """Close the running event loop's connections; a later call opens new ones. Closing twice is fine."""
        made = self._clients.pop(asyncio.get_running_loop(), None)
        if made is not None:
            await made[1].aclose()

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

    def _make_client(self, loop: asyncio.AbstractEventLoop) -> tuple[AsyncClientV2, httpx.AsyncClient]:
        with self._lock:
            if (made := self._clients.get(loop)) is not None:
                return made
            # Open connections keep the loop alive that they belong to, so a weak reference is not enough.
            for other in [other for other in self._clients if other.is_closed()]:
                del self._clients[other]
            try:
                import httpx  # noqa: PLC0415 - comes with the extra
                from cohere import AsyncClientV2  # noqa: PLC0415 - an extra
            except ImportError as error:
                raise MissingExtraError("cohere", self._needed_for) from error
            # The SDK has no public way to close the connections that it opens itself.
            connections = httpx.AsyncClient(
                timeout=_SILENCE_SECONDS,
                limits=httpx.Limits(
                    max_connections=_MOST_CONNECTIONS, max_keepalive_connections=_MOST_IDLE_CONNECTIONS
                ),
                follow_redirects=True,
            )
            client = AsyncClientV2(
                _NO_KEY if self._key is None else self._key.get_secret_value(),
                base_url=self._base_url,
                max_retries=0,
                httpx_client=connections,
            )
            made = self._clients[loop] = client, connections
            return made

    def _mapped(self, error: Exception) -> ServiceError | None:
        import httpx  # noqa: PLC0415 - loaded with the client
        from cohere.core.api_error import ApiError  # noqa: PLC0415 - loaded with the client
        from cohere.core.parse_error import ParsingError  # noqa: PLC0415 - loaded with the client

        match error:
            case httpx.TimeoutException():
                msg = f"{self._host} did not answer in time; it may be overloaded"
                return ServiceTimeoutError(msg, SERVICE)
            case httpx.TransportError():
                reason = self.said(str(error)) or type(error).__name__
                reason = with_advice(reason, "Check that the address is right and reachable.")
                msg = f"the connection to {self._host} failed: {reason}"
                return ServiceConnectionError(msg, SERVICE)
            case ApiError() if error.status_code is not None and not 200 <= error.status_code < 300:
                return self._of_status(error, error.status_code)
            # The SDK does not check what it reads: an answer of another shape fails wherever it is used first.
            case ApiError() | ParsingError() | AttributeError() | TypeError() | ValueError():
                msg = f"{self._host} answered with something that is not JSON, or not what the protocol says"
                return MalformedAnswerError(msg, SERVICE)
            case _:
                return None

    def _of_status(self, error: ApiError, status: int) -> ServiceError:
        reason = with_advice(self.said(error.body) or "no reason given", _ADVICE.get(status, ""))
        msg = f"{self._host} answered with status {status}: {reason}"
        kind = ServiceTimeoutError if status == 408 else ServiceError
        return kind(msg, SERVICE, status=status, retry_after=retry_after(error.headers or {}))

    def said(self, body: object) -> str:
        """Return what the server said, as one line of bounded length and without the key."""
        return what_was_said(body, "" if self._key is None else self._key.get_secret_value())


def _checked_key(api_key: SecretStr | str | None) -> SecretStr | None:
    key = (api_key.get_secret_value() if isinstance(api_key, SecretStr) else api_key or "").strip()
    # Such a key would come back in the error about the header that it makes.
    if not all("!" <= character <= "~" for character in key):
        msg = "the API key for cohere holds white space or characters outside ASCII; it is not a key"
        raise ConfigurationError(msg)
    return SecretStr(key) if key else None


def _checked_host(url: str) -> str:
    try:
        return host_of(url)
    except ValueError as error:
        msg = f"base_url {error}"
    raise ConfigurationError(msg)
