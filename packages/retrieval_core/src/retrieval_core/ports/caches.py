"""The port for result caches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from retrieval_core.types import RetrievalResult


class ResultCache(Protocol):
    """Keeps results for a while, by a key that holds everything they depend on.

    It returns results as they were put in; the pipeline marks them as cached. A cache in the memory of this process,
    which can neither hang nor fail, may have an attribute ``in_process = True``; it is then asked without time limit
    and retries, whose cost would exceed its own. One that has to load something first may have an attribute
    ``is_loaded`` and a coroutine method ``load()``; it is then asked only once it is loaded.
    """

    async def get(self, key: str) -> RetrievalResult | None:
        """Return the result of a key, or ``None`` if it is absent or expired.

        Raises:
            ServiceError: The cache cannot be reached.
        """
        ...

    async def set(self, key: str, result: RetrievalResult) -> None:
        """Store a result, replacing the key's former one.

        Raises:
            ServiceError: The cache cannot be reached.
        """
        ...

    async def clear(self) -> None:
        """Remove all results.

        Raises:
            ServiceError: The cache cannot be reached.
        """
        ...

    async def aclose(self) -> None:
        """Close connections. Closing twice is fine."""
        ...
