"""Results of test suites: their values, comparisons and reports."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence  # noqa: TC003 - reports are read by the annotations
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from html import escape
from math import ceil
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError

from retrieval_core.config.base import problems_of
from retrieval_core.errors import (
    IndexNotFoundError,
    InvalidParameterError,
    ServiceConnectionError,
    ServiceTimeoutError,
    UnreadableFileError,
)
from retrieval_core.types import Degradation  # noqa: TC001 - as above
from retrieval_core.types.escapes import CONTROLS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from retrieval_core.types import Hit

    Floats: TypeAlias = NDArray[np.float64]


Verdict: TypeAlias = Literal["met", "missed", "not measured"]
SHOWN = 3
"""Number of results that are shown for a case that did not pass; a report has all."""
MEASURES = ("recall@5", "recall@k", "ndcg@10", "mrr")
DRAWS = 10_000
"""Draws of the bootstrap: the bounds of an interval then move by about 1 % of its width."""
LEVEL = 0.05
"""Probability of taking noise for a difference."""
FEWEST = 5
"""Minimum number of cases in common for a comparison."""

Change: TypeAlias = Literal["regression", "improvement", "no more than noise"]


class CaseStatus(StrEnum):
    """Status of a case: pending, then running, then passed, failed or error."""

    __test__ = False  # pytest would collect it by the specification's name

    PENDING = "pending"
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"


_NEXT: Mapping[CaseStatus, frozenset[CaseStatus]] = {
    CaseStatus.PENDING: frozenset({CaseStatus.RUNNING}),
    CaseStatus.RUNNING: frozenset({CaseStatus.PASSED, CaseStatus.FAILED, CaseStatus.ERROR}),
}


def advance_status(status: CaseStatus, to: CaseStatus) -> CaseStatus:
    """Return the next status of a case.

    Raises:
        InvalidParameterError: A case in this status cannot get that one.
    """
    allowed = _NEXT.get(status, frozenset())
    if to not in allowed:
        after = ", ".join(sorted(allowed)) or "nothing"
        msg = f"a case that is {status} cannot become {to}; after {status} comes {after}"
        raise InvalidParameterError(msg)
    return to


@dataclass(frozen=True, slots=True)
class RetrievedPoint:
    """A result, with the payload of the specification.

    Attributes:
        score: Cosine similarity with the query in [0, 1]; ``None`` if there is none.
        payload: ``content``, ``source_url``, ``chunk_id``, ``chunk_index``, ``total_chunks``, ``timestamp`` (in ISO
            format) and ``embedding_model``, the document's ID and the chunk's metadata. Unknown fields are absent.
    """

    id: str
    score: float | None
    payload: Mapping[str, Any]


def build_point(hit: Hit) -> RetrievedPoint:
    """Return a hit as a point; its payload lacks the fields that a record of another program lacks."""
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
    return RetrievedPoint(chunk.id, hit.scores.dense, told)


SPECIFICATION_NAMES: Mapping[type[Exception], str] = {
    IndexNotFoundError: "CollectionNotFoundError",
    ServiceTimeoutError: "TimeoutError",
    ServiceConnectionError: "ConnectionError",
}
"""The specification's names of errors that have another name in this library."""


def name_error(error: Exception) -> str:
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
        documents: IDs of the documents found, each once, best first. If the case has paraphrases, for the query
            itself.
        points: The results of the same query, best first.
        ranks: The first rank of each expected item, from 1, as ``document:ID``, ``chunk:ID`` or ``phrase:TEXT``;
            ``None`` if it was not found.
        measures: ``recall@5``, ``recall@k``, ``ndcg@10`` and ``mrr`` of a case that expects documents, chunks or
            phrases, each in [0, 1]; empty for others. With paraphrases it is the mean over all of them.
        retrieval_time_ms: Time of the slowest of its queries; ``None`` if there was no search.
        degraded: Degraded stages, if the target accepts such results.
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
    degraded: tuple[Degradation, ...] = ()
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
    """The index that a suite was run on.

    Attributes:
        corpus: Digest of the indexed documents and of how they were read and split; ``None`` if the index has none.
        configuration: The settings of the pipeline.
        versions: Versions of Python and of this library.
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
    """Durations of the queries in milliseconds; ``None`` if there was no query."""

    avg_retrieval_time_ms: float | None = None
    p95_retrieval_time_ms: float | None = None
    max_retrieval_time_ms: float | None = None


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """The outcome of a suite.

    Attributes:
        results: By the names of the cases, in alphabetical order.
        timestamp: When it began, in UTC and ISO format.
        format: Version of the report's fields.
    """

    suite: str
    subject: Subject
    results: tuple[CaseResult, ...]
    criteria: tuple[Criterion, ...]
    performance_metrics: PerformanceMetrics
    execution_time_ms: float
    timestamp: str
    format: Literal[1] = 1

    def count(self, status: CaseStatus) -> int:
        """Return how many cases have a status."""
        return sum(result.status is status for result in self.results)

    @property
    def total_tests(self) -> int:
        """Number of cases that were run; a skipped case stays pending and is not counted."""
        return sum(map(self.count, (CaseStatus.PASSED, CaseStatus.FAILED, CaseStatus.ERROR)))

    @property
    def skipped(self) -> int:
        """Number of cases that were not run."""
        return len(self.results) - self.total_tests

    @property
    def counts(self) -> dict[str, int]:
        """Number of cases by outcome: ``passed``, ``failed``, ``errors`` and ``skipped``."""
        ends = {"passed": CaseStatus.PASSED, "failed": CaseStatus.FAILED, "errors": CaseStatus.ERROR}
        return {**{name: self.count(status) for name, status in ends.items()}, "skipped": self.skipped}

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
        """Return the report as JSON; :func:`read_report` reads it back."""
        return {
            **asdict(self),
            "total_tests": self.total_tests,
            **self.counts,
            "pass_rate": self.pass_rate,
            "failure_rate": self.failure_rate,
            "means": {name: self.mean(name) for name in MEASURES},
        }


def remove_times(result: SuiteResult) -> SuiteResult:
    """Return a result without its times: nothing else differs between two runs of a suite on the same index."""
    return replace(
        result,
        timestamp="",
        execution_time_ms=0.0,
        performance_metrics=PerformanceMetrics(),
        criteria=tuple(replace(c, value=None) if c.code in {"SC-001", "SC-002"} else c for c in result.criteria),
        results=tuple(replace(case, retrieval_time_ms=None) for case in result.results),
    )


def percentile(values: Iterable[float], percent: float) -> float:
    """Return a percentile by the nearest rank: the smallest value with at least so many percent of all below or equal.

    Args:
        percent: 0 to 100.
    """
    ordered = sorted(values)
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


def measure_performance(milliseconds: Sequence[float]) -> PerformanceMetrics:
    """Return mean, 95th percentile by the nearest rank, and maximum."""
    if not milliseconds:
        return PerformanceMetrics()
    return PerformanceMetrics(sum(milliseconds) / len(milliseconds), percentile(milliseconds, 95), max(milliseconds))


@dataclass(frozen=True, slots=True)
class ChangedCase:
    """A case with another status or measure; ``None`` if a run does not have the case, or no measure of it."""

    name: str
    status_before: CaseStatus | None
    status_after: CaseStatus | None
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The difference of two runs.

    Attributes:
        cases: Number of cases with the measure in both runs.
        before: Mean of the measure over these cases; ``after`` likewise.
        low: Lower bound of the difference of the means, a paired bootstrap interval of 95 %; ``high`` is the upper one.
        unjudged: Cases with a measure before that ended in an error after. They are not compared.
        is_same_corpus: Whether both runs searched the same documents; ``None`` if that is unknown.
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
        seed: Seed of the draws.

    Raises:
        InvalidParameterError: There is no such measure, or the runs have fewer than :data:`FEWEST` cases in common.
    """
    if measure not in MEASURES:
        msg = f"there is no measure {measure!r:.80}; there are {', '.join(MEASURES)}"
        raise InvalidParameterError(msg)
    earlier, later = ({case.name: case for case in run.results} for run in (before, after))
    measured = {name for name, case in earlier.items() if measure in case.measures}
    both = [name for name, case in later.items() if name in measured and measure in case.measures]
    if len(both) < FEWEST:
        msg = (
            f"the runs have {len(both)} cases with {measure} in common: {FEWEST} are needed. Compare runs of one suite"
        )
        raise InvalidParameterError(msg)
    import numpy as np  # noqa: PLC0415 - not needed to import this module

    first = np.array([earlier[name].measures[measure] for name in both])
    second = np.array([later[name].measures[measure] for name in both])
    low, high = paired_interval(second - first, seed)
    corpora = (before.subject.corpus, after.subject.corpus)
    return Comparison(
        measure=measure,
        cases=len(both),
        before=float(first.mean()),
        after=float(second.mean()),
        low=low,
        high=high,
        change="regression" if high < 0 else "improvement" if low > 0 else "no more than noise",
        changed=_find_changes(earlier, later, measure),
        unjudged=tuple(name for name, case in later.items() if name in measured and case.status is CaseStatus.ERROR),
        is_same_corpus=None if None in corpora else corpora[0] == corpora[1],
    )


def paired_interval(differences: Floats, seed: int) -> tuple[float, float]:
    """Return the bounds of the bootstrap interval of a mean of paired differences, by its percentiles."""
    import numpy as np  # noqa: PLC0415 - see compare()

    drawn = np.random.default_rng(seed)
    shape = (len(differences), DRAWS // 10)  # a tenth at a time, for the sake of memory
    means = [differences[drawn.integers(0, len(differences), shape)].mean(axis=0) for _ in range(10)]
    low, high = np.quantile(np.concatenate(means), (LEVEL / 2, 1 - LEVEL / 2))
    return float(low), float(high)


def _find_changes(
    earlier: Mapping[str, CaseResult], later: Mapping[str, CaseResult], measure: str
) -> tuple[ChangedCase, ...]:
    changed: list[ChangedCase] = []
    for name in sorted({*earlier, *later}):
        cases = (earlier.get(name), later.get(name))
        old, new = [(None, None) if case is None else (case.status, case.measures.get(measure)) for case in cases]
        if old != new:
            changed.append(ChangedCase(name, old[0], new[0], old[1], new[1]))
    return tuple(changed)


LONGEST_DETAILS = 400_000
"""Maximum bytes of details about cases that did not pass; the others have a row only."""
_LONGEST = 160
_BYTES = 2.5
"""Maximum average of bytes for each character shown: a text with more is cut."""
_CONTROL = re.compile(f"(?![\t\n])[{CONTROLS}]")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--dim:#5b6570;--line:#d5dae0;--good:#1a7f4b;--bad:#b42318;
--warn:#8a5a00}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ed;--paper:#14171b;--dim:#9aa5b1;--line:#333a42;--good:#4cc38a;
--bad:#ff8f85;--warn:#e5b567}}
body{margin:0 auto;max-width:70rem;padding:1rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:.5rem 0}h2{font-size:1.1rem;margin:2rem 0 .5rem}p{margin:.3rem 0}
.dim{color:var(--dim)}.passed,.met{color:var(--good)}.failed,.missed{color:var(--bad)}.error,.errors{color:var(--warn)}
.figures{display:flex;flex-wrap:wrap;gap:.5rem 2rem;padding:0;margin:.5rem 0;list-style:none}
.figures b{display:block;font-size:1.4rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.3rem .6rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:top}
td{white-space:nowrap}td.t{min-width:9rem;white-space:normal}
td.t,summary,li,p{overflow-wrap:anywhere}
details{border-bottom:1px solid var(--line);padding:.4rem 0}summary{cursor:pointer}
ol,ul{margin:.3rem 0;padding-left:1.4rem}
"""


def to_json(result: SuiteResult) -> str:
    """Return a report as JSON; :func:`read_report` reads it."""
    return json.dumps(result.to_json(), ensure_ascii=False, indent=2) + "\n"


def read_report(path: Path) -> SuiteResult:
    """Read a report that was written as JSON.

    Raises:
        UnreadableFileError: The file cannot be read.
        InvalidParameterError: It is not a report of this version.
    """
    try:
        result = TypeAdapter(SuiteResult).validate_json(path.read_bytes())  # counts and means follow from the rest
        json.dumps(result.to_json(), allow_nan=False)  # JSON that is sent on has finite numbers only
    except OSError as error:
        raise UnreadableFileError(str(path), f"it cannot be opened: {error.strerror or error}") from error
    except ValueError as error:
        writer = "'retrieval suite run --report FILE.json' of this version"
        reason = problems_of(error)[0] if isinstance(error, ValidationError) else str(error)
        msg = f"{path} is not a report that {writer} wrote: {reason}"
        raise InvalidParameterError(msg) from error
    return result


def to_html(result: SuiteResult) -> str:
    """Return a report as one page of HTML."""
    return "\n".join(_render_page(result))


def _render_page(result: SuiteResult) -> Iterator[str]:
    subject = result.subject
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield '<meta name="viewport" content="width=device-width,initial-scale=1">'
    yield f"<title>{_show(result.suite)}</title><style>{_STYLE}</style></head><body><main>"
    yield f"<h1>{_show(result.suite)}</h1>"
    documents = "" if subject.documents is None else f"{subject.documents:,} documents, "
    embedder = f", {_show(subject.embedder)}" if subject.embedder else ""
    yield f'<p class="dim">{_show(subject.location)}: {documents}{subject.chunks:,} chunks{embedder}.</p>'
    yield f'<p class="dim">{_show(result.timestamp)}</p><ul class="figures">'
    yield from (f'<li class="{name}"><b>{number}</b>{name}</li>' for name, number in result.counts.items())
    yield from (f"<li><b>{_render_number(result.mean(name))}</b>{name}</li>" for name in MEASURES)
    yield "</ul><h2>Criteria</h2>"
    yield from _render_table(
        ("Code", "Verdict", "Criterion", "Measured", "Target"),
        (
            (each.code, _mark(each.verdict, each.verdict.split()[0]), _show(each.text), each.value, each.target)
            for each in result.criteria
        ),
    )
    yield from _render_failures(result)
    yield "<h2>All cases</h2>"
    yield from _render_table(
        ("Case", "Status", "Rank", "Recall@5", "ms"),
        (
            (
                _show(case.name),
                "skipped" if case.skipped is not None else _mark(case.status, case.status),
                str(min((rank for rank in case.ranks.values() if rank is not None), default="-")),
                case.measures.get("recall@5"),
                case.retrieval_time_ms,
            )
            for case in result.results
        ),
    )
    facts = {"corpus": subject.corpus or "unknown", **subject.versions}
    facts |= {name: repr(value) for name, value in sorted(subject.configuration.items())}
    yield '<h2>Configuration</h2><ul class="dim">'
    yield from (f"<li>{_show(name)}: {_show(value, 1_000)}" for name, value in facts.items())
    yield "</ul></main></body></html>\n"


def _render_table(names: Iterable[str], rows: Iterable[Sequence[str | float | None]]) -> Iterator[str]:
    """Yield a table; its texts are HTML already."""
    yield f'<div class="scroll"><table><thead><tr>{"".join(f"<th>{name}" for name in names)}</thead><tbody>'
    for row in rows:
        cells = (f'<td class="t">{each}' if isinstance(each, str) else f"<td>{_render_number(each)}" for each in row)
        yield f"<tr>{''.join(cells)}"
    yield "</tbody></table></div>"


def _render_failures(result: SuiteResult) -> Iterator[str]:
    wrong = [case for case in result.results if case.status in {CaseStatus.FAILED, CaseStatus.ERROR}]
    if wrong:
        yield f"<h2>Failures ({len(wrong)})</h2>"
    room = LONGEST_DETAILS
    for number, case in enumerate(wrong):
        details = "".join(_render_details(case))
        room -= len(details.encode())
        if room < 0:
            yield f'<p class="dim">{len(wrong) - number} more are in the table below.</p>'
            return
        yield details


def _render_details(case: CaseResult) -> Iterator[str]:
    yield f"<details><summary>{_mark(case.status, case.status)} {_show(case.name)}</summary>"
    yield f"<p>Query: {_show(case.query, 2 * _LONGEST)}</p><ul>"
    for problem in case.problems[:10]:
        yield f"<li>{_show(problem.error)}: {_show(problem.message, 2 * _LONGEST)}"
    yield "</ul><ol>"
    for point in case.points[:5]:
        score = "" if point.score is None else f" ({point.score:.3f})"
        yield f"<li>{_show(point.id)}{score}: <q>{_show(str(point.payload['content']))}</q>"
    yield "</ol></details>"


def _mark(text: str, kind: str) -> str:
    return f'<span class="{kind}">{text}</span>'


def _render_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def _show(text: str, longest: int = _LONGEST) -> str:
    """Return text for the page: cut, with control characters escaped, in a direction of its own."""
    cut = text if len(text) <= longest else f"{text[: longest - 1]}…"
    while True:
        shown = escape(_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", cut))
        if len(shown.encode()) <= _BYTES * longest:
            return f"<bdi>{shown}</bdi>"
        cut = f"{cut[: len(cut) * 4 // 5]}…"
