"""Calls of parts of LlamaIndex, which block no event loop and raise errors of this library."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar, cast
from weakref import ref

from retrieval_core.adapters.vendors import retry_after, what_was_said
from retrieval_core.errors import RetrievalError, ServiceConnectionError, ServiceError, ServiceTimeoutError
from retrieval_core.run.sync import is_sync_call
from retrieval_core.run.threads import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 8
"""Calls of one part that run at the same time; others wait."""
PATIENCE = 5.0
"""Seconds that closing waits for a call, which cannot be interrupted."""


class PartCalls:
    """Calls one part of LlamaIndex.

    Args:
        part: Its class names it in errors, and a key that it holds is kept out of them.
        is_async: Whether its asynchronous methods wait without blocking.
        retries: Whether the part makes its own further attempts, so that its errors are final.
    """

    def __init__(self, part: object, *, is_async: bool, retries: bool = True) -> None:
        self._who = type(part).__name__
        key = getattr(part, "api_key", None)
        self._key = key if isinstance(key, str) else ""
        self._is_async = is_async
        self._is_blocking = False
        self._has_client = False
        self._retries = retries
        self._loop: ref[asyncio.AbstractEventLoop] | None = None
        self._pool = ThreadPool(f"retrieval-{self._who}", threads=THREADS, patience=PATIENCE)

    def __getstate__(self) -> NoReturn:
        msg = f"an adapter of {self._who} cannot be pickled, since it has threads; make a new one in the other process"
        raise TypeError(msg)

    async def either(
        self, waits: Callable[P, Awaitable[T]], blocks: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call the synchronous method in a thread or, for an asynchronous caller, the asynchronous one if it waits.

        Clients of services belong to the event loop of their first use, and parts of LlamaIndex keep theirs. On any
        other loop the synchronous method is called.

        Raises:
            ServiceError: The part failed, see :meth:`in_thread`.
        """
        if not self._is_async or is_sync_call() or not self.is_first_loop():
            return await self.in_thread(blocks, *args, **kwargs)
        with self._mapped_errors():
            return await waits(*args, **kwargs)

    async def either_client(
        self, waits: Callable[P, Awaitable[T]], blocks: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call as :meth:`either` does, and the other method if the part lacks the client of the first one.

        Vector stores of LlamaIndex have a synchronous client, an asynchronous one, or both. A missing one shows in an
        error before anything is sent. An asynchronous method that never waits blocks the loop, and is not called again.

        Raises:
            ServiceError: The part failed, see :meth:`in_thread`.
        """
        if self._is_async and not self._is_blocking and not is_sync_call() and self.is_first_loop():
            waited: list[bool] = []
            asyncio.get_running_loop().call_soon(waited.append, True)  # it runs once the method waits for something
            try:
                with self._mapped_errors():
                    return await waits(*args, **kwargs)
            except ServiceError:
                if waited:
                    raise
            finally:
                self._is_blocking = not waited
        try:
            result = await self.in_thread(blocks, *args, **kwargs)
        except ServiceError as error:
            if self._has_client or not self._is_async or not _may_lack_client(error):
                raise
            try:
                with self._mapped_errors():
                    return await waits(*args, **kwargs)
            except ServiceError as other:
                if not _may_lack_client(other) or str(other) == str(error):
                    raise
                told = str(other).removeprefix(f"{self._who} failed: ")
                both = ServiceError(f"{error}. With its asynchronous client: {told}", self._who)
                both.was_retried = self._retries
                raise both from error.__cause__
        self._has_client = True
        return result

    async def in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that blocks.

        Raises:
            ServiceConnectionError: The part raised that something cannot be reached.
            ServiceTimeoutError: It raised that something did not answer in time.
            ServiceError: It raised anything else; with the status, where it tells one.
            RetrievalError: It raised an error of this library, which is passed on.
        """
        with self._mapped_errors():
            return await self._pool.run(function, *args, **kwargs)

    async def aclose(self) -> None:
        """Stop the threads, and leave the part to its owner. Closing twice is fine."""
        await asyncio.to_thread(self._pool.close)

    def is_first_loop(self) -> bool:
        """Whether the running loop is the one that asynchronous methods are called on; the first one becomes it."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = ref(loop)
        return self._loop() is loop

    @contextmanager
    def _mapped_errors(self) -> Generator[None]:
        try:
            yield
        except RetrievalError:
            raise
        except Exception as error:  # noqa: BLE001 - raised again as an error of this library
            mapped = self._mapped(error)
            mapped.was_retried = self._retries
            raise mapped from (None if self._key and self._key in str(error) else error)

    def _mapped(self, error: Exception) -> ServiceError:
        said = what_was_said(str(error), self._key)
        message = f"{self._who} failed: {type(error).__name__}{f': {said}' if said else ''}"
        # SDKs have classes of their own for what Python has names for.
        kinds = [kind.__name__ for kind in type(error).__mro__]
        if any("Timeout" in kind for kind in kinds):
            return ServiceTimeoutError(message, self._who)
        status = getattr(error, "status_code", None)
        if type(status) is int:
            headers = getattr(getattr(error, "response", None), "headers", None)
            seconds = retry_after(cast("Mapping[str, str]", headers)) if isinstance(headers, Mapping) else None
            return ServiceError(message, self._who, status=status, retry_after=seconds)
        if any("Connect" in kind for kind in kinds):
            return ServiceConnectionError(message, self._who)
        return ServiceError(message, self._who)


def _may_lack_client(error: ServiceError) -> bool:
    """Return whether an error can mean that there is no client of this kind, or no event loop in this thread."""
    cause = error.__cause__
    return isinstance(cause, (AttributeError, RuntimeError)) or type(cause) is ValueError


def has_async_client(model: object) -> bool:
    """Return whether a model of LlamaIndex is one of the OpenAI family, which wait for an asynchronous client."""
    return callable(getattr(model, "_get_aclient", None))
