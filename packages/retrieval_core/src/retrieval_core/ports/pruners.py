"""The port for pruners, which choose the sentences of a passage that bear on a question."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.ports.plugin import BatchPlugin, call_plugin, calls_plugin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.types import Usage


@dataclass(frozen=True, slots=True)
class Kept:
    """Which sentences a pruner keeps.

    Attributes:
        kept: For each passage, for each of its sentences in order, whether it is kept.
        scores: The relevance of each sentence, in the same shape, higher is better, on the pruner's scale; empty if
            there are none. If no sentence of a passage is kept, its best one stays (without scores its first one).
    """

    kept: tuple[tuple[bool, ...], ...]
    scores: tuple[tuple[float, ...], ...] = ()
    usage: Usage | None = None


class Pruner(BatchPlugin):
    """Chooses the sentences of chunks that bear on a query; the others are not shown.

    Its :attr:`batch_size` counts sentences; a chunk that has more comes by itself, whole.
    """

    port_role = "the pruner"
    port_calls = ("keep",)

    @calls_plugin
    async def keep(self, query: str, passages: Sequence[Sequence[str]]) -> Kept:
        """Judge the sentences of chunks.

        Args:
            query: The normalized query.
            passages: The sentences of each, in the order of its text; together they are the text, but for white space.

        Raises:
            ServiceError: The model failed, or gave no answer that could be used.
            EmbeddingError: A text could not be embedded.
        """
        sizes = [len(sentences) for sentences in passages]
        answer = self._expect(await call_plugin(self._keep, query, passages), Kept)
        fit = f"the {sizes} sentences of {len(sizes)} passages"
        if not _fits(answer.kept, sizes, bool):
            raise self._refuse(f"what is kept does not fit {fit}: {answer.kept!r:.200}")
        if answer.scores and not _fits(answer.scores, sizes, (int, float)):
            raise self._refuse(f"the scores do not fit {fit}: {answer.scores!r:.200}")
        return answer

    @abstractmethod
    async def _keep(self, query: str, passages: Sequence[Sequence[str]]) -> Kept: ...


def _fits(answer: object, sizes: Sequence[int], kind: type | tuple[type, ...]) -> bool:
    rows = cast("Sequence[Sequence[Any]]", answer)
    try:
        return [len(row) for row in rows] == list(sizes) and all(
            isinstance(value, kind) and isfinite(value) for row in rows for value in row
        )
    except (OverflowError, TypeError):
        return False
