"""The port for result caches."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from retrieval_core.ports.plugin import Plugin, call_plugin, calls_plugin, given_as
from retrieval_core.types import RetrievalResult


class ResultCache(Plugin):
    """Keeps results for a while, by a key that contains everything they depend on.

    It returns results as they were put in; the pipeline marks them as cached.

    Attributes:
        in_process: Whether it keeps results in the memory of this process, and so can neither hang nor fail. Its
            methods are then called without a thread, a timeout and retries, which would take longer than the cache
            itself.
    """

    in_process: Any = False  # bool
    port_role = "the cache"
    port_calls = ("get", "set", "clear")

    @calls_plugin
    async def get(self, key: str) -> RetrievalResult | None:
        """Return the result of a key, or ``None`` if it is absent or expired.

        Raises:
            ServiceError: The cache cannot be reached, or gave something that is no result.
        """
        getting: Any = self._get(key) if self.in_process else call_plugin(self._get, key)
        kept: object = await getting if hasattr(getting, "__await__") else getting
        if kept is None or isinstance(kept, RetrievalResult):  # pyright: ignore[reportUnnecessaryIsInstance]
            return kept
        raise self._refuse(f"{kept!r:.80} is no RetrievalResult")

    @calls_plugin
    async def set(self, key: str, result: RetrievalResult) -> None:
        """Store a result, replacing the key's former one.

        Raises:
            ServiceError: The cache cannot be reached.
        """
        setting: Any = self._set(key, result) if self.in_process else call_plugin(self._set, key, result)
        if hasattr(setting, "__await__"):
            await setting

    @calls_plugin
    async def clear(self) -> None:
        """Remove all results.

        Raises:
            ServiceError: The cache cannot be reached.
        """
        await call_plugin(self._clear)

    async def probe(self) -> str:
        """Look up a key that is not there: this takes a connection, the password and the right to read."""
        await self.get("retrieval doctor")
        return f"{type(given_as(self)).__name__} answers"

    async def aclose(self) -> None:
        """Close connections. Closing twice is fine."""

    @abstractmethod
    async def _get(self, key: str) -> RetrievalResult | None: ...

    @abstractmethod
    async def _set(self, key: str, result: RetrievalResult) -> None: ...

    @abstractmethod
    async def _clear(self) -> None: ...
