"""Where results are kept for the next time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from retrieval_core.types import RetrievalResult


class ResultCache(Protocol):
    """Keeps results for a while, by a key that holds everything they depend on.

    It returns what was put in, as it was: whether a result came from a cache is for the pipeline to say. A cache in the
    memory of this process, which can neither hang nor fail, may say so with an attribute ``in_process = True``; it is
    then asked without any guard, which costs more than such a cache itself. One that has to load something first may
    say so with an attribute ``is_loaded`` and a coroutine method ``load()``; it is then asked only once it is loaded.
    """

    async def get(self, key: str) -> RetrievalResult | None:
        """Return the result of a key, or ``None`` where there is none or its time is over.

        Raises:
            ServiceError: The cache cannot be reached.
        """
        ...

    async def set(self, key: str, result: RetrievalResult) -> None:
        """Keep a result; the one that the key had is replaced.

        Raises:
            ServiceError: The cache cannot be reached.
        """
        ...

    async def clear(self) -> None:
        """Forget all results.

        Raises:
            ServiceError: The cache cannot be reached.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections. Closing twice is fine."""
        ...
