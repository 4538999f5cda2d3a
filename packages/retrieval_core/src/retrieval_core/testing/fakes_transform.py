"""A stand-in for a transformer of questions, for tests of this library and of those who use it."""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - type aliases are public
from typing import TYPE_CHECKING, TypeAlias

from retrieval_core.ports import QueryContext, Transformed

if TYPE_CHECKING:
    import asyncio

Made: TypeAlias = "Transformed | str"


class FakeTransformer:
    """A :class:`~retrieval_core.ports.QueryTransformer` that gives what it is told to.

    Args:
        made: What it makes of any question, or a function of question and context; nothing where it is not given.
        name: For its id.

    Attributes:
        asked: Questions with their contexts, in order.
        failure: Set it, and calls raise it.
        gate: Set it to an :class:`asyncio.Event`, and calls wait for that event before anything else; an event that is
            never set makes them hang.
    """

    def __init__(
        self, made: Made | Callable[[str, QueryContext], Made] | None = None, *, name: str = "fake-transformer"
    ) -> None:
        self._made = Transformed() if made is None else made
        self._name = name
        self.asked: list[tuple[str, QueryContext]] = []
        self.failure: Exception | None = None
        self.gate: asyncio.Event | None = None

    @property
    def id(self) -> str:
        """Names this fake."""
        return self._name

    async def transform(self, query: str, context: QueryContext) -> Made:
        """Make what was told."""
        self.asked.append((query, context))
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return self._made(query, context) if callable(self._made) else self._made
