"""Comparing runs of a suite: which cases changed, whether that is more than noise, and which setting is best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from retrieval_core.errors import InvalidParameterError
from retrieval_core.evaluate.suite.results import CaseStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from retrieval_core.evaluate.suite.results import CaseResult, SuiteResult

    Floats: TypeAlias = NDArray[np.float64]

MEASURES = ("recall@5", "recall@k", "ndcg@10", "mrr")
DRAWS = 10_000
"""Of the bootstrap and of the permutations: the bounds of an interval then move by about 1 % of its width."""
LEVEL = 0.05
"""Chance of taking noise for a difference."""
FEWEST = 5
"""Cases that both runs need, for there to be anything to draw from."""

Change: TypeAlias = Literal["regression", "improvement", "no more than noise"]


@dataclass(frozen=True, slots=True)
class ChangedCase:
    """A case that ends in another way, or whose measure is another one; ``None`` where a run does not have it."""

    name: str
    status_before: CaseStatus | None
    status_after: CaseStatus | None
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What changed from one run to another.

    Attributes:
        cases: How many both have a measure of.
        before: The measure's mean over these, and ``after`` likewise.
        low: Bounds of the difference of the means, a paired bootstrap interval of 95 %, with ``high``.
        unjudged: Cases with a measure before that ended in an error after, and are not among those compared.
        is_same_corpus: Whether both were run on the same documents; ``None`` where that is not known.
    """

    measure: str
    cases: int
    before: float
    after: float
    low: float
    high: float
    change: Change
    changed: tuple[ChangedCase, ...]
    unjudged: tuple[str, ...]
    is_same_corpus: bool | None

    @property
    def difference(self) -> float:
        """Mean after less mean before."""
        return self.after - self.before


def compare(before: SuiteResult, after: SuiteResult, *, measure: str = "recall@5", seed: int = 0) -> Comparison:
    """Compare two runs case by case.

    A measure is a regression only if the interval of its difference is below 0. The interval is a bootstrap: cases are
    drawn repeatedly, with replacement, and the difference of the means is computed for each draw.

    Args:
        measure: One of :data:`MEASURES`.
        seed: Of the draws.

    Raises:
        InvalidParameterError: There is no such measure, or the runs have fewer than :data:`FEWEST` cases in common.
    """
    _check_measure(measure)
    earlier, later = ({case.name: case for case in run.results} for run in (before, after))
    both = [name for name in earlier if name in later and _has(earlier[name], measure) and _has(later[name], measure)]
    if len(both) < FEWEST:
        msg = (
            f"the runs have {len(both)} cases with {measure} in common, and {FEWEST} are the least to compare by; were "
            "they made of the same suite?"
        )
        raise InvalidParameterError(msg)
    import numpy as np  # noqa: PLC0415 - not needed to import this module

    first = np.array([earlier[name].measures[measure] for name in both])
    second = np.array([later[name].measures[measure] for name in both])
    low, high = paired_interval(second - first, seed)
    change: Change = "no more than noise"
    if high < 0:
        change = "regression"
    elif low > 0:
        change = "improvement"
    corpora = (before.subject.corpus, after.subject.corpus)
    return Comparison(
        measure=measure,
        cases=len(both),
        before=float(first.mean()),
        after=float(second.mean()),
        low=low,
        high=high,
        change=change,
        changed=_changed(earlier, later, measure),
        unjudged=tuple(
            name
            for name, case in earlier.items()
            if _has(case, measure) and name in later and later[name].status is CaseStatus.ERROR
        ),
        is_same_corpus=None if None in corpora else corpora[0] == corpora[1],
    )


def _check_measure(measure: str) -> None:
    if measure not in MEASURES:
        msg = f"there is no measure {measure!r:.80}; there are {', '.join(MEASURES)}"
        raise InvalidParameterError(msg)


def _has(case: CaseResult, measure: str) -> bool:
    return measure in case.measures


def paired_interval(differences: Floats, seed: int) -> tuple[float, float]:
    """Return the bounds of the bootstrap interval of a mean of paired differences, by its percentiles."""
    import numpy as np  # noqa: PLC0415 - as above

    drawn = np.random.default_rng(seed)
    shape = (len(differences), DRAWS // 10)  # a tenth at a time, for the sake of memory
    means = [differences[drawn.integers(0, len(differences), shape)].mean(axis=0) for _ in range(10)]
    low, high = np.quantile(np.concatenate(means), (LEVEL / 2, 1 - LEVEL / 2))
    return float(low), float(high)


def _changed(
    earlier: Mapping[str, CaseResult], later: Mapping[str, CaseResult], measure: str
) -> tuple[ChangedCase, ...]:
    def side(case: CaseResult | None) -> tuple[CaseStatus | None, float | None]:
        return (None, None) if case is None else (case.status, case.measures.get(measure))

    changed: list[ChangedCase] = []
    for name in sorted({*earlier, *later}):
        (status_before, value_before), (status_after, value_after) = side(earlier.get(name)), side(later.get(name))
        if (status_before, value_before) != (status_after, value_after):
            changed.append(ChangedCase(name, status_before, status_after, value_before, value_after))
    return tuple(changed)


@dataclass(frozen=True, slots=True)
class Tried:
    """How well a setting did.

    Attributes:
        mean: Of the measure over all cases.
        gain: Over the first setting, which the others are compared with.
        p: The chance of a gain like this, or of a larger one of any setting, if all were equally good; 1 of the first.
    """

    name: str
    mean: float
    gain: float
    p: float


@dataclass(frozen=True, slots=True)
class Tuning:
    """Which of several settings is best.

    Attributes:
        winner: ``None`` where no setting is better than the first by more than chance.
        held_out: The measure's mean over cases that the choice of the best setting had not seen.
        held_out_first: That of the first setting on the same cases, which is its mean.
        chosen: How often each setting was the best on the cases it was chosen by.
    """

    measure: str
    cases: int
    tried: tuple[Tried, ...]
    winner: str | None
    held_out: float
    held_out_first: float
    chosen: Mapping[str, int]


def tune(runs: Mapping[str, SuiteResult], *, measure: str = "ndcg@10", folds: int = 5, seed: int = 0) -> Tuning:
    """Choose among settings by their runs of one suite.

    A setting wins whose gain over the first one is more than the largest of all settings' gains would be by chance
    (differences change their signs at random, the same for all settings, 10,000 times; 5 %), and if choosing by some
    cases also gains on the others.

    Args:
        runs: By name; the first is what the others are compared with.
        measure: One of :data:`MEASURES`.
        folds: Parts that the cases are split into, each held out once, at least 2.

    Raises:
        InvalidParameterError: There is no such measure, there are fewer than two settings, or fewer cases in common
            than folds.
    """
    _check_measure(measure)
    if len(runs) < 2:
        msg = f"tuning takes two settings at least, got {len(runs)}"
        raise InvalidParameterError(msg)
    by_name = [{case.name: case for case in run.results if _has(case, measure)} for run in runs.values()]
    both = sorted(name for name in by_name[0] if all(name in run for run in by_name))
    if folds < 2 or len(both) < max(folds, FEWEST):
        msg = f"{folds} folds of {len(both)} cases cannot be made; there must be 2 folds, and {FEWEST} cases, at least"
        raise InvalidParameterError(msg)
    import numpy as np  # noqa: PLC0415 - as above

    values = np.array([[run[name].measures[measure] for name in both] for run in by_name])
    chances = _chances(values, seed)
    held_out, chosen = _cross_validated(values, folds, seed)
    names = list(runs)
    tried = tuple(
        Tried(name, float(row.mean()), float((row - values[0]).mean()), p)
        for name, row, p in zip(names, values, chances, strict=True)
    )
    best = max(tried, key=lambda each: (each.gain, -each.p))
    first = float(values[0].mean())
    return Tuning(
        measure=measure,
        cases=len(both),
        tried=tried,
        winner=best.name if best.p < LEVEL and held_out > first else None,
        held_out=held_out,
        held_out_first=first,
        chosen={names[number]: count for number, count in enumerate(chosen) if count},
    )


def _chances(values: Floats, seed: int) -> list[float]:
    """Return each setting's chance, corrected for the number of settings by the distribution of the largest gain."""
    import numpy as np  # noqa: PLC0415 - as above

    gains = values[1:] - values[0]
    scale = np.sqrt((gains**2).sum(axis=1))
    scaled = np.divide(gains, scale[:, None], out=np.zeros_like(gains), where=scale[:, None] > 0)
    drawn = np.random.default_rng(seed)
    largest = np.concatenate(
        [(scaled @ drawn.choice((-1.0, 1.0), (gains.shape[1], DRAWS // 10))).max(axis=0) for _ in range(10)]
    )
    seen = scaled.sum(axis=1)
    reached = (largest[None, :] >= seen[:, None] - 1e-12).sum(axis=1)
    return [1.0, *((1 + reached) / (1 + len(largest))).tolist()]


def _cross_validated(values: Floats, folds: int, seed: int) -> tuple[float, Sequence[int]]:
    """Return the mean over held-out cases of whatever was best on the others, and how often each setting was that."""
    import numpy as np  # noqa: PLC0415 - as above

    order = np.random.default_rng(seed).permutation(values.shape[1])
    chosen = [0] * len(values)
    total = 0.0
    for part in np.array_split(order, folds):
        rest = np.setdiff1d(order, part)
        best = int(values[:, rest].mean(axis=1).argmax())  # of equals the first, which is what is there already
        chosen[best] += 1
        total += float(values[best, part].sum())
    return total / values.shape[1], chosen
