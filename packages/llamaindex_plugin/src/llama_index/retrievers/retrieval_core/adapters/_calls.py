"""How parts of LlamaIndex are called: where they cannot block an event loop, and with errors of this library."""

from __future__ import annotations

import asyncio
import dis
import inspect
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar, cast
from weakref import ref

from retrieval_core.adapters.vendors.http import retry_after, what_was_said
from retrieval_core.errors import RetrievalError, ServiceConnectionError, ServiceError, ServiceTimeoutError
from retrieval_core.run.threads import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 8
"""Calls of one part that run at the same time; others wait."""
PATIENCE = 5.0
"""Seconds that closing waits for a call, which cannot be interrupted."""


class Calls:
    """Calls one part of LlamaIndex.

    Args:
        part: Its class names it in errors, and a key that it holds is kept out of them.
        is_async: Whether its asynchronous methods wait without blocking, see :func:`awaits`.
    """

    def __init__(self, part: object, *, is_async: bool) -> None:
        self._who = type(part).__name__
        key = getattr(part, "api_key", None)
        self._key = key if isinstance(key, str) else ""
        self._is_async = is_async
        self._loop: ref[asyncio.AbstractEventLoop] | None = None
        self._pool = ThreadPool(f"retrieval-{self._who}", threads=THREADS, patience=PATIENCE)

    def __getstate__(self) -> NoReturn:
        msg = f"an adapter of {self._who} cannot be pickled, since it has threads; make a new one in the other process"
        raise TypeError(msg)

    async def either(
        self, waits: Callable[P, Awaitable[T]], blocks: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call the asynchronous method where it is one, and otherwise the synchronous one in a thread.

        Clients of services belong to the event loop of their first use, and parts of LlamaIndex keep theirs. On any
        other loop the synchronous method is called.

        Raises:
            ServiceError: The part failed, see :meth:`in_thread`.
        """
        if not (self._is_async and self.is_first_loop()):
            return await self.in_thread(blocks, *args, **kwargs)
        with self._mapped_errors():
            return await waits(*args, **kwargs)

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
            raise self._mapped(error) from (None if self._key and self._key in str(error) else error)

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


def awaits(part: object, name: str, base: type) -> bool:
    """Whether an asynchronous method waits without blocking the event loop, as far as can be told from outside.

    LlamaIndex's defaults call the synchronous method on the loop, and so do the methods of many classes that override
    them. A method counts if it overrides the default and awaits something.

    Args:
        name: The method.
        base: The class of LlamaIndex with the default.
    """
    method = getattr(type(part), name)
    if method is getattr(base, name):
        return False
    function = inspect.unwrap(method)
    if not inspect.isfunction(function):
        return False
    # A language model's decorator for callbacks awaits the method, which it has in its closure.
    function = inspect.getclosurevars(function).nonlocals.get("f", function)
    return any(step.opname == "GET_AWAITABLE" for step in dis.get_instructions(function))
