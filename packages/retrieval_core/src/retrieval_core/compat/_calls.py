"""Calls of parts that are used alone: timed, bounded and repeated as in a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.pipeline.lifecycle import Lifecycle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.run.clock import Clock


class Calls(Lifecycle):
    """Begins runs, whose deadline, retries and time-outs are those of the settings; closing it closes what it owns."""

    def __init__(self, config: RetrievalConfig, clock: Clock | None = None, owned: Sequence[object] = ()) -> None:
        super().__init__(config, None, clock, threads="retrieval-parts")
        self.begin = self._run
        self._owned = owned

    @property
    def _held(self) -> Sequence[object]:
        return self._owned
