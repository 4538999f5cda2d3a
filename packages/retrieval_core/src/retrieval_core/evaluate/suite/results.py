"""Results of test suites: what became of each case, how well everything was found, and how long it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence  # noqa: TC003 - reports are read by the annotations
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from math import ceil
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from retrieval_core.errors import (
    IndexNotFoundError,
    InvalidParameterError,
    ServiceConnectionError,
    ServiceTimeoutError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from retrieval_core.types import Hit

    Floats: TypeAlias = NDArray[np.float64]

Verdict: TypeAlias = Literal["met", "missed", "not measured"]
SHOWN = 3
"""Results that are shown for a case that did not pass; a report has all."""
MEASURES = ("recall@5", "recall@k", "ndcg@10", "mrr")
DRAWS = 10_000
"""Of the bootstrap and of the permutations: the bounds of an interval then move by about 1 % of its width."""
LEVEL = 0.05
"""Chance of taking noise for a difference."""
FEWEST = 5
"""Cases that both runs need, for there to be anything to draw from."""

Change: TypeAlias = Literal["regression", "improvement", "no more than noise"]


class CaseStatus(StrEnum):
    """How far a case has come: pending, then running, then passed, failed or error."""

    __test__ = False  # the specification's name for it is one that pytest would collect

    PENDING = "pending"
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"


_NEXT: Mapping[CaseStatus, frozenset[CaseStatus]] = {
    CaseStatus.PENDING: frozenset({CaseStatus.RUNNING}),
    CaseStatus.RUNNING: frozenset({CaseStatus.PASSED, CaseStatus.FAILED, CaseStatus.ERROR}),
}


def advanced(status: CaseStatus, to: CaseStatus) -> CaseStatus:
    """Return the next status of a case.

    Raises:
        InvalidParameterError: A case in this status cannot come into that one.
    """
    allowed = _NEXT.get(status, frozenset())
    if to not in allowed:
        after = ", ".join(sorted(allowed)) or "nothing"
        msg = f"a case that is {status} cannot become {to}; after {status} comes {after}"
        raise InvalidParameterError(msg)
    return to


@dataclass(frozen=True, slots=True)
class RetrievedPoint:
    """A result, as in the specification's file.

    Attributes:
        score: Cosine similarity with the query in [0, 1]; ``None`` if there is none.
        payload: ``content``, ``source_url``, ``chunk_id``, ``chunk_index``, ``total_chunks``, ``timestamp`` (in ISO
            format) and ``embedding_model``, beside the document's id and the chunk's metadata. A field that is not
            known is absent.
        retrieval_time_ms: Time of the search that found it, in milliseconds.
    """

    id: str
    score: float | None
    payload: Mapping[str, Any]
    vector: Sequence[float] | None = None
    retrieval_time_ms: float = 0.0


def point_of(hit: Hit, milliseconds: float = 0.0) -> RetrievedPoint:
    """Return a hit as a point; a field that a record of another program lacks is absent from its payload."""
    chunk = hit.chunk
    own = chunk.metadata
    payload = {
        **own,
        "content": chunk.text,
        "source_url": own.get("source_url") or chunk.source or chunk.document_id,
        "chunk_id": own.get("chunk_id", chunk.id),
        "chunk_index": chunk.chunk_index,
        "total_chunks": chunk.total_chunks,
        "timestamp": None if chunk.timestamp is None else own.get("timestamp", chunk.timestamp.isoformat()),
        "embedding_model": chunk.embedding_model,
        "document_id": chunk.document_id,
    }
    told = {name: value for name, value in payload.items() if name not in chunk.missing_fields and value is not None}
    return RetrievedPoint(chunk.id, hit.scores.dense, told, retrieval_time_ms=milliseconds)


SPECIFICATION_NAMES: Mapping[type[Exception], str] = {
    IndexNotFoundError: "CollectionNotFoundError",
    ServiceTimeoutError: "TimeoutError",
    ServiceConnectionError: "ConnectionError",
}
"""The specification's names of errors that have another name in this library."""


def specification_name(error: Exception) -> str:
    """Return the specification's name of an error; the name of its class if it has none there."""
    names = (name for kind, name in SPECIFICATION_NAMES.items() if isinstance(error, kind))
    return next(names, type(error).__name__)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a case did not pass: the error by the specification's name, and a sentence for people."""

    error: str
    message: str


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The outcome of one case.

    Attributes:
        documents: Ids of the documents found, each once, best first; if the case has paraphrases, for the query
            itself.
        points: The results, best first, of the same query.
        ranks: The first rank of each expected item, from 1, as ``document:ID``, ``chunk:ID`` or ``phrase:TEXT``;
            ``None`` if it was not found.
        measures: ``recall@5``, ``recall@k``, ``ndcg@10`` and ``mrr`` of a case that expects documents, chunks or
            phrases, each in [0, 1]; empty for others. With paraphrases it is the mean over all of them.
        retrieval_time_ms: Time of the slowest of its queries; ``None`` if there was no search.
        confidence: Probability that the results are relevant, in [0, 1]; ``None`` if it was not computed.
        skipped: The reason why it was not run; ``None`` if it was.
    """

    name: str
    query: str
    status: CaseStatus
    tags: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    documents: tuple[str, ...] = ()
    points: tuple[RetrievedPoint, ...] = ()
    ranks: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])
    measures: Mapping[str, float] = field(default_factory=dict[str, float])
    retrieval_time_ms: float | None = None
    confidence: float | None = None
    skipped: str | None = None

    def failure_lines(self) -> list[str]:
        """Return the problems as lines for people, then the first results if there was a search."""
        lines = [f"{problem.error}: {problem.message}" for problem in self.problems]
        if self.retrieval_time_ms is None:
            return lines
        names = [p.id if p.score is None else f"{p.id} ({p.score:.3f})" for p in self.points]
        firsts = "; ".join(f"{rank}. {name}" for rank, name in enumerate(names[:SHOWN], 1))
        return [*lines, f"found: {firsts or 'nothing'}" + ("; …" if len(names) > SHOWN else "")]


@dataclass(frozen=True, slots=True)
class Criterion:
    """A criterion for a whole suite.

    Attributes:
        code: The specification's code, such as ``SC-001``.
        value: The measured value; ``None`` if it was not measured.
        target: The minimum; ``None`` if the suite has none.
    """

    code: str
    text: str
    verdict: Verdict
    value: float | None = None
    target: float | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """What a suite was run on.

    Attributes:
        corpus: Digest of what is indexed: another one means other documents, or the same read or split in another way;
            ``None`` where the index cannot tell.
        configuration: The settings of the pipeline; empty for a service.
        versions: Of Python and of this library.
    """

    location: str
    chunks: int
    documents: int | None = None
    embedder: str | None = None
    corpus: str | None = None
    configuration: Mapping[str, Any] = field(default_factory=dict[str, Any])
    versions: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class PerformanceMetrics:
    """Milliseconds that the questions took; ``None`` where there was none."""

    avg_retrieval_time_ms: float | None = None
    p95_retrieval_time_ms: float | None = None
    max_retrieval_time_ms: float | None = None


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """The outcome of a suite.

    Attributes:
        results: By the names of the cases, in alphabetical order.
        timestamp: When it began, in UTC and ISO format.
    """

    suite: str
    subject: Subject
    results: tuple[CaseResult, ...]
    criteria: tuple[Criterion, ...]
    performance_metrics: PerformanceMetrics
    execution_time_ms: float
    timestamp: str

    def count(self, status: CaseStatus) -> int:
        """Return how many cases have a status."""
        return sum(result.status is status for result in self.results)

    @property
    def total_tests(self) -> int:
        """Cases that were run; a skipped one stays pending and is not among them."""
        return sum(map(self.count, (CaseStatus.PASSED, CaseStatus.FAILED, CaseStatus.ERROR)))

    @property
    def skipped(self) -> int:
        """Cases that were not run."""
        return len(self.results) - self.total_tests

    @property
    def pass_rate(self) -> float:
        """Percentage of the cases run that passed; 0 if none was run."""
        return 100 * self.count(CaseStatus.PASSED) / self.total_tests if self.total_tests else 0.0

    @property
    def failure_rate(self) -> float:
        """Percentage of the cases run that failed; 0 if none was run."""
        return 100 * self.count(CaseStatus.FAILED) / self.total_tests if self.total_tests else 0.0

    def mean(self, measure: str) -> float | None:
        """Return the mean of a measure over the cases that have it; ``None`` if no case has it."""
        values = [result.measures[measure] for result in self.results if measure in result.measures]
        return sum(values) / len(values) if values else None

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON; :func:`~retrieval_core.evaluate.suite.reports.report_from_json` reads it back."""
        counts = {
            "total_tests": self.total_tests,
            "passed": self.count(CaseStatus.PASSED),
            "failed": self.count(CaseStatus.FAILED),
            "errors": self.count(CaseStatus.ERROR),
            "skipped": self.skipped,
            "pass_rate": self.pass_rate,
            "failure_rate": self.failure_rate,
        }
        means = {name: self.mean(name) for name in ("recall@5", "recall@k", "ndcg@10", "mrr")}
        return {"format": 1, **_plain(asdict(self)), **counts, "means": means}


def without_times(result: SuiteResult) -> SuiteResult:
    """Return a result with its times blanked: nothing else differs between two runs of a suite on the same index."""
    return replace(
        result,
        timestamp="",
        execution_time_ms=0.0,
        performance_metrics=PerformanceMetrics(),
        criteria=tuple(replace(c, value=None) if c.code in {"SC-001", "SC-002"} else c for c in result.criteria),
        results=tuple(
            replace(
                case,
                retrieval_time_ms=None,
                points=tuple(replace(point, retrieval_time_ms=0.0) for point in case.points),
            )
            for case in result.results
        ),
    )


def percentile(values: Iterable[float], percent: float) -> float:
    """Return the smallest value that so many percent of all are not above: the nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


def performance_of(milliseconds: Sequence[float]) -> PerformanceMetrics:
    """Return mean, 95th percentile by the nearest rank, and maximum."""
    if not milliseconds:
        return PerformanceMetrics()
    return PerformanceMetrics(sum(milliseconds) / len(milliseconds), percentile(milliseconds, 95), max(milliseconds))


def _plain(value: Any) -> Any:
    """Return tuples as lists, and mappings of any kind as dictionaries."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in cast("dict[str, Any]", value).items()}
    return [_plain(item) for item in cast("list[Any]", value)] if isinstance(value, (list, tuple)) else value


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
