"""Evaluation of several configurations on one collection, side by side."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retrieval_core.errors import InvalidParameterError, RetrievalError
from retrieval_core.evaluate.run import EvaluationReport, evaluate
from retrieval_core.evaluate.suite.results import FEWEST, paired_interval

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.evaluate.beir import Collection
    from retrieval_core.evaluate.run import OnProgress
    from retrieval_core.types import JSON


@dataclass(frozen=True, slots=True)
class Compared:
    """One configuration beside the first one.

    Attributes:
        difference: nDCG@10 less that of the first configuration; ``None`` for the first itself.
        low: Lower bound of the difference, with ``high``: a paired bootstrap interval of 95 % over the queries.
            ``None`` if there are too few queries.
    """

    name: str
    report: EvaluationReport
    difference: float | None = None
    low: float | None = None
    high: float | None = None

    def to_json(self) -> dict[str, JSON]:
        """Return the measures of :meth:`EvaluationReport.to_json`, with the name and the difference."""
        interval: list[JSON] | None = None if self.low is None else [self.low, self.high]
        return {
            "name": self.name,
            **self.report.to_json(),
            "difference": None if self.difference is None else {"ndcg@10": self.difference, "interval": interval},
        }


@dataclass(frozen=True, slots=True)
class SettingsComparison:
    """Several configurations on one collection, in the order they were given.

    Attributes:
        failed: Why the others could not be evaluated, by name.
    """

    compared: tuple[Compared, ...]
    failed: Mapping[str, str] = field(default_factory=dict[str, str])

    def to_json(self) -> dict[str, JSON]:
        """Return what was measured, a document for each configuration, and what failed."""
        return {"compared": [each.to_json() for each in self.compared], "failed": {**self.failed}}


async def compare_settings(
    collection: Collection,
    configs: Mapping[str, RetrievalConfig],
    *,
    limit: int | None = None,
    on_progress: OnProgress | None = None,
    seed: int = 0,
) -> SettingsComparison:
    """Evaluate configurations one after the other, each on a separate index, and compare them with the first.

    Finished measurements are kept if a later one fails.

    Args:
        configs: By name, at least one.
        limit: As of :func:`evaluate`.
        on_progress: As of :func:`evaluate`; what is done begins with the name.
        seed: Of the bootstrap.

    Raises:
        InvalidParameterError: There are no configurations.
        RetrievalError: As of :func:`evaluate`, for the first one.
    """
    if not configs:
        msg = "there is nothing to compare: no configuration was given"
        raise InvalidParameterError(msg)
    reports: dict[str, EvaluationReport] = {}
    failed: dict[str, str] = {}
    for name, config in configs.items():

        def report(phase: str, done: int, total: int, name: str = name) -> None:
            if on_progress is not None:
                on_progress(f"{name}: {phase}", done, total)

        try:
            reports[name] = await evaluate(collection, config, limit=limit, on_progress=report)
        except RetrievalError as error:
            if not reports:
                raise
            failed[name] = str(error)
    (first_name, first), *others = reports.items()
    compared = (Compared(first_name, first), *(_beside(first, name, other, seed) for name, other in others))
    return SettingsComparison(compared, failed)


def _beside(first: EvaluationReport, name: str, other: EvaluationReport, seed: int) -> Compared:
    import numpy as np  # noqa: PLC0415 - not needed to import this module

    gains = [other.ndcg_by_query[query_id] - before for query_id, before in first.ndcg_by_query.items()]
    low, high = paired_interval(np.array(gains), seed) if len(gains) >= FEWEST else (None, None)
    return Compared(name, other, other.ndcg_at_10 - first.ndcg_at_10, low, high)
