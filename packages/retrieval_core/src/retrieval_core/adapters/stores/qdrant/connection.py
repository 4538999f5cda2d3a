"""Connections to Qdrant: to a server, and to its client's local mode, with mapped errors."""

from __future__ import annotations

import asyncio
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from retrieval_core.adapters.vendors.connection import NO_KEY, VendorConnection
from retrieval_core.config import host_of
from retrieval_core.errors import (
    ConfigurationError,
    MalformedAnswerError,
    MissingExtraError,
    ServiceError,
    StoreError,
)
from retrieval_core.run.threads import PoolClosedError, ThreadPool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import SecretStr
    from qdrant_client import AsyncQdrantClient

SERVICE = "qdrant"
IN_MEMORY = ":memory:"

# The deadline of a query bounds its calls. This only keeps work without a deadline from hanging for ever.
_SILENCE_SECONDS = 300
_NEEDED_FOR = "The Qdrant store"
# Qdrant refuses most of these in a name; the others would change the address of a request.
_COLLECTION = re.compile(r'(?!\.{1,2}\Z)[^<>:"/\\|?*#%\x00-\x1f\x7f\ud800-\udfff]{1,255}')


def models() -> Any:
    """Return the classes of Qdrant's requests.

    Raises:
        MissingExtraError: The client is not installed.
    """
    try:
        from qdrant_client import models  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtraError(SERVICE, _NEEDED_FOR) from error
    return models


class QdrantConnection(Protocol):
    """Calls the methods of a Qdrant client."""

    @property
    def place(self) -> str:
        """Where the collections are, for people."""
        ...

    @property
    def has_indexes(self) -> bool:
        """Whether payload indexes have an effect."""
        ...

    async def call(self, method: str, **arguments: Any) -> Any:
        """Call a method of the client once.

        Raises:
            ServiceError: Qdrant refused, failed or could not be reached.
            StoreError: The local mode refused, or its folder cannot be opened.
            MissingExtraError: The client is not installed.
        """
        ...

    async def aclose(self) -> None:
        """Close what is open. Closing twice is fine."""
        ...


def connect(url: str | None, api_key: SecretStr | None, path: str | None) -> QdrantConnection:
    """Return a connection, not yet opened: to the local mode where a path is given, and else to a server.

    Raises:
        ConfigurationError: There is neither, or the address or the key cannot be used.
    """
    if path:
        return LocalQdrant(path)
    if url:
        return QdrantServer(url, api_key)
    msg = (
        "Qdrant needs the address of a server: set QDRANT_URL in the environment, or store.qdrant.url. "
        "For a trial on this machine set store.qdrant.path to a folder."
    )
    raise ConfigurationError(msg, missing_keys=("QDRANT_URL",))


def checked_collection(name: str) -> str:
    """Return the name of a collection.

    Raises:
        ConfigurationError: Qdrant allows no such name.
    """
    if _COLLECTION.fullmatch(name) is None:
        msg = f'{name!r:.120} cannot name a collection: at most 255 characters, none of < > : " / \\ | ? * # %'
        raise ConfigurationError(msg)
    return name


class QdrantServer(VendorConnection["AsyncQdrantClient"]):
    """A :class:`VendorConnection` to a server or cluster, over HTTP; where the address has no port, that is 6333."""

    service: ClassVar[str] = SERVICE
    own_url: ClassVar[str] = ""
    key_name: ClassVar[str] = "QDRANT_API_KEY"
    advice: ClassVar[Mapping[int, str]] = MappingProxyType(
        {
            401: "Check the API key.",
            403: "Check what the API key may be used for.",
            404: "Check the address of the server and the name of the collection.",
        }
    )

    def __init__(self, url: str, api_key: SecretStr | None) -> None:
        try:
            host_of(url)
        except ValueError as error:
            msg = f"the address of the Qdrant server {error}"
            raise ConfigurationError(msg) from None
        super().__init__(_NEEDED_FOR, api_key, url)

    @property
    def place(self) -> str:
        """The host of the server."""
        return f"at {self._host}"

    @property
    def has_indexes(self) -> bool:
        """A server uses them."""
        return True

    async def call(self, method: str, **arguments: Any) -> Any:
        """Call a method of the running event loop's client once; see :class:`QdrantConnection`."""
        client = await self.client()
        with self.mapped_errors():
            return await getattr(client, method)(**arguments)

    def _make(self, key: str) -> AsyncQdrantClient:
        from qdrant_client import AsyncQdrantClient  # noqa: PLC0415 - an extra

        # The check of versions would be a request of its own, in a thread that nobody waits for.
        return AsyncQdrantClient(
            url=self._base_url,
            api_key=None if key == NO_KEY else key,
            timeout=_SILENCE_SECONDS,
            check_compatibility=False,
        )

    async def _close(self, client: AsyncQdrantClient) -> None:
        await client.close()

    def _mapped(self, error: Exception) -> ServiceError | None:
        import httpx  # noqa: PLC0415 - loaded with the client
        from qdrant_client.common.client_exceptions import (  # noqa: PLC0415 - loaded with the client
            QdrantException,
            ResourceExhaustedResponse,
        )
        from qdrant_client.http.exceptions import (  # noqa: PLC0415 - loaded with the client
            ResponseHandlingException,
            UnexpectedResponse,
        )

        match error:
            case QdrantException():  # the other one is of a header Retry-After that holds no number
                is_told = isinstance(error, ResourceExhaustedResponse)
                return self._of_status(429, str(error), {"retry-after": str(error.retry_after_s)} if is_told else {})
            case UnexpectedResponse() if error.status_code is not None and not 200 <= error.status_code < 300:
                return self._of_status(error.status_code, _said_in(error), error.headers)
            case ResponseHandlingException(source=httpx.TimeoutException()):
                return self._silent()
            case ResponseHandlingException(source=httpx.TransportError() as cause):
                return self._unreachable(cause)
            # The client looks at what it reads only in part: an answer of another shape fails wherever it is used.
            case (
                ResponseHandlingException()
                | UnexpectedResponse()
                | AssertionError()
                | AttributeError()
                | TypeError()
                | ValueError()
            ):
                msg = f"{self._host} answered with something that is not JSON, or not what Qdrant's protocol says"
                return MalformedAnswerError(msg, SERVICE)
            case _:
                return None


class LocalQdrant:
    """The client's local mode: collections in memory, or in a folder that one process has open at a time.

    It computes in Python and blocks, so all of it runs in one thread, call after call.

    Args:
        path: A folder, or ``":memory:"``.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._client: Any = None
        self._thread = ThreadPool("qdrant-local", 1)

    @property
    def place(self) -> str:
        """The folder."""
        return "in memory" if self._path == IN_MEMORY else f"in {self._path}"

    @property
    def has_indexes(self) -> bool:
        """The local mode looks at every point."""
        return False

    async def call(self, method: str, **arguments: Any) -> Any:
        """Call a method of the client once, in its thread; see :class:`QdrantConnection`."""
        return await self._thread.run(self._call, method, arguments)

    def _call(self, method: str, arguments: Mapping[str, Any]) -> Any:
        self._client = self._client or self._opened()
        try:
            return getattr(self._client, method)(**arguments)
        except ValueError as error:
            msg = f"Qdrant's local mode {self.place} refused a request: {error}"
            raise StoreError(msg) from error

    def _opened(self) -> Any:
        try:
            from qdrant_client import QdrantClient  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise MissingExtraError(SERVICE, _NEEDED_FOR) from error
        try:
            if self._path == IN_MEMORY:
                return QdrantClient(IN_MEMORY)
            # One thread makes all calls, so nothing has to be found out of SQLite, by a connection that stays open.
            return QdrantClient(path=self._path, force_disable_check_same_thread=True)
        except (OSError, RuntimeError, ValueError) as error:
            msg = (
                f"Qdrant's local mode cannot open {self._path}: {error}. Only one process, and one store in it, can "
                "have the folder open; for more use a server (store.qdrant.url)"
            )
            raise StoreError(msg) from error

    async def aclose(self) -> None:
        """Close the client and its thread. Closing twice is fine."""
        try:
            await self._thread.run(self._close)
        except PoolClosedError:
            return
        await asyncio.to_thread(self._thread.close)

    def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _said_in(error: Any) -> object:
    """Return the message of an error's answer; Qdrant's stands in ``{"status": {"error": …}}``."""
    try:
        return error.structured()["status"]["error"]
    except (ValueError, KeyError, TypeError):
        return error.content.decode(errors="replace")
