"""The fake query transformer."""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - type aliases are public
from typing import TypeAlias

from retrieval_core.ports import QueryContext, QueryTransformer, Transformed
from retrieval_core.testing.fakes_base import Fake

Made: TypeAlias = "Transformed | str"


class FakeTransformer(Fake, QueryTransformer):
    """A :class:`~retrieval_core.ports.QueryTransformer` that returns what it was made with.

    Args:
        made: The result for any question, or a function of question and context; by default nothing.
        name: For its id.

    Attributes:
        asked: Questions with their contexts, in order.
    """

    def __init__(
        self, made: Made | Callable[[str, QueryContext], Made] | None = None, *, name: str = "fake-transformer"
    ) -> None:
        self._made = Transformed() if made is None else made
        super().__init__(name)
        self.asked: list[tuple[str, QueryContext]] = []

    async def _transform(self, query: str, context: QueryContext) -> Made:
        """Return what it was made with."""
        self.asked.append((query, context))
        await self._obey()
        return self._made(query, context) if callable(self._made) else self._made
