"""The bases of the fakes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.errors import checked_count

if TYPE_CHECKING:
    import asyncio


class Fake:
    """A fake whose calls can be made to fail or to wait.

    Attributes:
        failure: Set it, and calls raise it.
        gate: Set it to an :class:`asyncio.Event`, and calls wait for that event before anything else; an event that is
            never set makes them hang.
        running: Calls that wait at the gate.
        most_running: The most calls that waited there at the same time.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.failure: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.running = 0
        self.most_running = 0

    @property
    def id(self) -> str:
        """Names this fake."""
        return self._name

    async def _obey(self) -> None:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if self.gate is not None:
                await self.gate.wait()
        finally:
            self.running -= 1
        if self.failure is not None:
            raise self.failure


class BatchFake(Fake):
    """A fake that takes several items in a call.

    Raises:
        InvalidParameterError: ``batch_size`` is less than 1.
    """

    def __init__(self, name: str, batch_size: int) -> None:
        super().__init__(name)
        self._batch_size = checked_count(batch_size, "batch_size")

    @property
    def batch_size(self) -> int:
        """The most items of one call."""
        return self._batch_size
