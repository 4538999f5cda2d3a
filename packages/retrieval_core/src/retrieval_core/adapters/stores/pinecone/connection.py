"""Connections to Pinecone: a client for each event loop, one attempt a call, mapped errors."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from retrieval_core.adapters.stores.pinecone.records import MOST_RECORDS
from retrieval_core.adapters.stores.services import together
from retrieval_core.adapters.vendors import with_advice
from retrieval_core.config import checked_host
from retrieval_core.errors import (
    ConfigurationError,
    MalformedAnswerError,
    MissingExtraError,
    ServiceConnectionError,
    ServiceError,
    ServiceTimeoutError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from pydantic import SecretStr

SERVICE = "pinecone"
logger = logging.getLogger("retrieval_core")

PAGE = 100
"""Records of one page when reading by metadata: Pinecone's default. It documents no larger number as allowed."""

# The client insists on a time-out; the caller's deadline is the one that counts.
_A_DAY = 86_400.0


@dataclass(slots=True)
class _LoopState:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    index: Any = None


class PineconeConnection:
    """Calls Pinecone's data plane.

    The first call of an event loop imports and builds the client, in a thread.

    Args:
        api_key: Required; the environment is not looked at.
        index_name: Looked up at Pinecone by the first call, where no host is given.
        host: Address of the index; ``http://`` is kept, for servers on this machine.

    Raises:
        ConfigurationError: There is no key, or neither a name nor a host; or the host holds a password.
    """

    def __init__(self, api_key: SecretStr | None, index_name: str | None, host: str | None) -> None:
        if api_key is None or not api_key.get_secret_value():
            msg = "Pinecone needs an API key: set PINECONE_API_KEY in the environment, or store.pinecone.api_key"
            raise ConfigurationError(msg, missing_keys=("PINECONE_API_KEY",))
        if not index_name and not host:
            msg = "Pinecone needs an index: set PINECONE_INDEX_NAME in the environment, or store.pinecone.host"
            raise ConfigurationError(msg, missing_keys=("PINECONE_INDEX_NAME",))
        try:
            checked_host(host or "")
        except ValueError as error:
            msg = f"the host of the Pinecone index {error}"
            raise ConfigurationError(msg) from None
        self._key = api_key
        self._name = index_name or ""
        self._host = host or ""
        self._loops: dict[asyncio.AbstractEventLoop, _LoopState] = {}
        self._closed = False

    @property
    def location(self) -> str:
        """Where the index is, for people."""
        return f"Pinecone index {self._name or self._host}"

    async def call(self, method: str, **arguments: Any) -> Any:
        """Call a method of the client once.

        Raises:
            ServiceError: Pinecone refused, failed or could not be reached.
            StoreError: The connection was closed.
        """
        if self._closed:
            msg = "the store is closed"
            raise StoreError(msg)
        try:
            index = await self._index()
            return await getattr(index, method)(**arguments)
        except Exception as error:
            if type(error).__module__.startswith("pinecone"):
                raise _translated(error, self._key.get_secret_value()) from error
            raise

    async def matching(self, namespace: str, condition: Mapping[str, Any]) -> AsyncIterator[tuple[str, Any]]:
        """Yield the ids and records of a namespace that match, page after page."""
        token: str | None = None
        while True:
            page = await self.call(
                "fetch_by_metadata", filter=condition, namespace=namespace, limit=PAGE, pagination_token=token
            )
            for item in page.vectors.items():
                yield item
            token = page.pagination.next if page.pagination else None
            if not token:
                return

    async def upsert(self, namespace: str, batches: Iterable[Sequence[Mapping[str, Any]]]) -> None:
        """Write records, each batch with one request."""
        await together(partial(self.call, "upsert", vectors=batch, namespace=namespace) for batch in batches)

    async def delete(self, namespace: str, ids: Iterable[str]) -> None:
        """Remove records."""
        ordered = sorted(ids)
        await together(
            partial(self.call, "delete", ids=ordered[start : start + MOST_RECORDS], namespace=namespace)
            for start in range(0, len(ordered), MOST_RECORDS)
        )

    async def aclose(self) -> None:
        """Close all clients. Closing twice is fine.

        Those of other event loops are closed there, without waiting for it: such a loop may itself wait for this call.
        """
        self._closed = True
        loops, self._loops = self._loops, {}
        for loop, state in loops.items():
            if state.index is None or loop.is_closed():
                continue
            if loop is asyncio.get_running_loop():
                await state.index.close()
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(state.index.close(), loop).add_done_callback(_tell_failure)

    async def _index(self) -> Any:
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            for other in [other for other in self._loops if other.is_closed()]:
                self._loops.pop(other, None)
        state = self._loops.setdefault(loop, _LoopState())
        if state.index is None:
            async with state.lock:
                if state.index is None:
                    state.index = await self._connect()
        return state.index

    async def _connect(self) -> Any:
        client = await asyncio.to_thread(self._client)
        try:
            index = await client.index(name="" if self._host else self._name, host=self._host)
        finally:
            await client.close()
        await asyncio.to_thread(_without_retries, index)
        return index

    def _client(self) -> Any:
        try:
            from pinecone import AsyncPinecone, RetryConfig  # noqa: PLC0415
        except ImportError as error:
            raise MissingExtraError("pinecone", "The Pinecone store") from error
        client = AsyncPinecone(
            api_key=self._key.get_secret_value(), timeout=_A_DAY, retry_config=RetryConfig(max_retries=0)
        )
        _build_http(client)
        return client


def _tell_failure(closing: Future[None]) -> None:
    """Log a failure to close a client that nobody waits for."""
    if not closing.cancelled() and (error := closing.exception()) is not None:
        logger.warning("a client of Pinecone could not be closed: %s", error)


def _without_retries(index: Any) -> None:
    """Turn the client's own retries off, for which version 9.1 has no setting on the data plane.

    A later version may keep the setting elsewhere; a test on the wire then sees more than one request.
    """
    from pinecone import RetryConfig  # noqa: PLC0415

    with suppress(AttributeError, TypeError):
        http = index._http  # noqa: SLF001
        http._config = replace(http._config, retry_config=RetryConfig(max_retries=0))  # noqa: SLF001
    _build_http(index)


def _build_http(client: Any) -> None:
    """Let the client read its certificates in this thread, and not with the first request on the event loop."""
    with suppress(AttributeError):
        client._http._ensure_client()  # noqa: SLF001


def _translated(error: Exception, key: str) -> ServiceError:
    from pinecone.errors import (  # noqa: PLC0415
        ApiError,
        PineconeConnectionError,
        PineconeTimeoutError,
        ResponseParsingError,
    )

    text = (str(error) or type(error).__name__).replace(key, "***")
    if isinstance(error, PineconeTimeoutError):
        return ServiceTimeoutError(f"Pinecone did not answer in time: {text}", SERVICE)
    if isinstance(error, PineconeConnectionError):
        return ServiceConnectionError(f"Pinecone cannot be reached: {text}", SERVICE)
    if isinstance(error, ResponseParsingError):
        return MalformedAnswerError(f"Pinecone's answer cannot be read: {text}", SERVICE)
    if isinstance(error, ApiError):
        status = error.status_code
        msg = f"Pinecone answered with status {status}: {with_advice(text, _ADVICE.get(status, ''))}"
        return ServiceError(msg, SERVICE, status=status, retry_after=_retry_after(error.headers or {}))
    return ServiceError(f"Pinecone's client refused the request: {text}", SERVICE)


_ADVICE = {
    401: "Check the API key.",
    403: "Check that the API key belongs to the index's project and may do this.",
    404: "Check the name or the host of the index.",
}


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of the header ``Retry-After``; a date in it is compared with the answer's own date."""
    given = {name.lower(): value for name, value in headers.items()}
    value = given.get("retry-after")
    if value is None:
        return None
    with suppress(ValueError):
        seconds = float(value)
        return seconds if 0 <= seconds < float("inf") else None
    with suppress(ValueError, TypeError, KeyError):
        return max(0.0, (parsedate_to_datetime(value) - parsedate_to_datetime(given["date"])).total_seconds())
    return None
