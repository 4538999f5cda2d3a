"""Results of test suites: each case, how well everything was found and how long it took, comparisons and reports."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence  # noqa: TC003 - reports are read by the annotations
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from html import escape
from math import ceil, isfinite
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from pydantic import TypeAdapter, ValidationError

from retrieval_core.errors import (
    IndexNotFoundError,
    InvalidParameterError,
    ServiceConnectionError,
    ServiceTimeoutError,
    UnreadableFileError,
)
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
        configuration: The settings of the pipeline.
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
        """Return the report as JSON; :func:`read_report` reads it back."""
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


FORMAT = 1
LONGEST_DETAILS = 400_000
"""Bytes for all that is known of the cases that went wrong; behind that, cases are shown with a line."""
_LONGEST = 160
_BYTES = 2.5
"""For a character that is shown, on average: of texts that take more, less is shown."""
_CONTROL = re.compile(f"(?![\t\n])[{CONTROLS}]")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--dim:#5b6570;--line:#d5dae0;--good:#1a7f4b;--bad:#b42318;
--warn:#8a5a00;--mark:#2f6fdf;--soft:#f4f6f8}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ed;--paper:#14171b;--dim:#9aa5b1;--line:#333a42;--good:#4cc38a;
--bad:#ff8f85;--warn:#e5b567;--mark:#7aa9ff;--soft:#1c2126}}
body{margin:0 auto;max-width:70rem;padding:1rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:.5rem 0}h2{font-size:1.1rem;margin:2rem 0 .5rem}p{margin:.3rem 0}
.dim{color:var(--dim)}.passed,.met{color:var(--good)}.failed,.missed{color:var(--bad)}.error{color:var(--warn)}
.figures{display:flex;flex-wrap:wrap;gap:.5rem 2rem;padding:0;margin:.5rem 0;list-style:none}
.figures b{display:block;font-size:1.4rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.3rem .6rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n,td.c{white-space:nowrap}td.n,th.n{text-align:right}td.t{min-width:9rem}
td.t,summary,li,p{overflow-wrap:anywhere}
details{border-bottom:1px solid var(--line);padding:.4rem 0}summary{cursor:pointer}
ol,ul{margin:.3rem 0;padding-left:1.4rem}pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.3rem 0}
"""


def to_json(result: SuiteResult) -> str:
    """Return a report as JSON; :func:`read_report` reads it."""
    return json.dumps(result.to_json(), ensure_ascii=False, indent=2) + "\n"


def read_report(path: Path) -> SuiteResult:
    """Read a report that was written as JSON.

    Raises:
        UnreadableFileError: The file cannot be read.
        InvalidParameterError: It is no report.
    """
    try:
        told = _decoded(path)
        if not isinstance(told, dict) or cast("dict[str, Any]", told).get("format") != FORMAT:
            msg = f"{path} is no report of 'retrieval suite run --report FILE.json'"
            raise InvalidParameterError(msg)
        # Counts and means follow from the rest.
        return TypeAdapter(SuiteResult).validate_python(told)
    except OSError as error:
        raise UnreadableFileError(str(path), f"it cannot be opened: {error.strerror or error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        msg = f"{path} is no report of this version: {place}: {first['msg']}"
        raise InvalidParameterError(msg) from error


def _decoded(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        msg = f"{path} is no JSON: {error}"
        raise InvalidParameterError(msg) from error


def _finite(text: str) -> float:
    if not isfinite(number := float(text)):
        msg = f"{text} is no finite number"
        raise ValueError(msg)
    return number


def to_html(result: SuiteResult, before: SuiteResult | None = None) -> str:
    """Return a report as one page of HTML.

    Args:
        before: An earlier run, whose rank of a case is shown beside the new one if it differs.
    """
    return "\n".join(_page(result, before))


def _page(result: SuiteResult, before: SuiteResult | None) -> Iterator[str]:
    subject = result.subject
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield '<meta name="viewport" content="width=device-width,initial-scale=1">'
    yield f"<title>{_shown(result.suite)}</title><style>{_STYLE}</style></head><body><main>"
    yield f"<h1>{_shown(result.suite)}</h1>"
    documents = "" if subject.documents is None else f"{subject.documents:,} documents, "
    embedder = f", {_shown(subject.embedder)}" if subject.embedder else ""
    yield f'<p class="dim">{_shown(subject.location)}: {documents}{subject.chunks:,} passages{embedder}.</p>'
    yield f'<p class="dim">{_shown(result.timestamp)}</p>'
    yield from _figures(result)
    yield from _criteria(result)
    wrong = [case for case in result.results if case.status in {CaseStatus.FAILED, CaseStatus.ERROR}]
    if wrong:
        yield f"<h2>What went wrong ({len(wrong)})</h2>"
        room = LONGEST_DETAILS
        for number, case in enumerate(wrong):
            details = "".join(_details(case))
            room -= len(details.encode())
            if room < 0:
                yield f'<p class="dim">{len(wrong) - number} more are in the table below.</p>'
                break
            yield details
    yield from _table(result, before)
    yield from _facts(result)
    yield "</main></body></html>\n"


def _figures(result: SuiteResult) -> Iterator[str]:
    counts = {status: result.count(status) for status in (CaseStatus.PASSED, CaseStatus.FAILED, CaseStatus.ERROR)}
    yield '<ul class="figures">'
    for status, count in counts.items():
        yield f'<li class="{status}"><b>{count}</b>{status}</li>'
    yield f"<li><b>{result.skipped}</b>skipped</li>"
    for name in ("recall@5", "ndcg@10", "mrr"):
        mean = result.mean(name)
        yield f"<li><b>{'-' if mean is None else f'{mean:.3f}'}</b>{name}</li>"
    yield "</ul>"


def _criteria(result: SuiteResult) -> Iterator[str]:
    yield '<h2>Criteria</h2><div class="scroll"><table><thead><tr><th>Code<th>Verdict<th>What'
    yield '<th class="n">Measured<th class="n">Wanted</thead><tbody>'
    for criterion in result.criteria:
        values = "".join(f'<td class="n">{_number(value)}' for value in (criterion.value, criterion.target))
        verdict = f'<td class="c {criterion.verdict.split()[0]}">{criterion.verdict}'
        yield f'<tr><td class="c">{criterion.code}{verdict}<td class="t">{escape(criterion.text)}{values}'
    yield "</tbody></table></div>"


def _details(case: CaseResult) -> Iterator[str]:
    yield f'<details><summary><span class="{case.status}">{case.status}</span> {_shown(case.name)}</summary>'
    yield f"<p>Asked: {_shown(case.query, 2 * _LONGEST)}</p><ul>"
    for problem in case.problems[:10]:
        yield f"<li>{_shown(problem.error)}: {_shown(problem.message, 2 * _LONGEST)}"
    yield "</ul>"
    if case.points:
        yield "<p>Found:</p><ol>"
        for point in case.points[:5]:
            score = "" if point.score is None else f" ({point.score:.3f})"
            yield f"<li>{_shown(point.id)}{score}: <q>{_shown(str(point.payload['content']))}</q>"
        yield "</ol>"
    yield "</details>"


def _table(result: SuiteResult, before: SuiteResult | None) -> Iterator[str]:
    earlier = {case.name: _shown_rank(case) for case in before.results} if before is not None else {}
    yield '<h2>All cases</h2><div class="scroll"><table><thead><tr><th>Case<th>Status<th class="n">Rank'
    yield '<th class="n">Recall@5<th class="n">ms</thead><tbody>'
    for case in result.results:
        status = "skipped" if case.skipped is not None else case.status
        shown = _shown_rank(case)
        shown += f" (was {earlier[case.name]})" if earlier.get(case.name, shown) != shown else ""
        recall = case.measures.get("recall@5")
        numbers = [shown, "-" if recall is None else f"{recall:.2f}", _number(case.retrieval_time_ms)]
        cells = "".join(f'<td class="n">{number}' for number in numbers)
        yield f'<tr><td class="t">{_shown(case.name)}<td class="{status}">{status}{cells}'
    yield "</tbody></table></div>"


def _facts(result: SuiteResult) -> Iterator[str]:
    subject = result.subject
    facts = {"corpus": subject.corpus or "not known", **subject.versions}
    yield '<h2>Made with</h2><ul class="dim">'
    for name, value in facts.items():
        yield f"<li>{_shown(name)}: {_shown(value)}"
    for name, value in sorted(subject.configuration.items()):
        yield f"<li>{_shown(name)}: {_shown(repr(value), 1_000)}"
    yield "</ul>"


def _shown_rank(case: CaseResult) -> str:
    """Return the rank of the first thing expected; a dash if none was found, or none is expected."""
    return str(min((rank for rank in case.ranks.values() if rank is not None), default="-"))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def _shown(text: str, longest: int = _LONGEST) -> str:
    """Return text for the page, cut, with what could steer or hide it written out, in a direction of its own."""
    cut = text if len(text) <= longest else f"{text[: longest - 1]}…"
    while True:
        shown = escape(_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", cut))
        if len(shown.encode()) <= _BYTES * longest:
            return f"<bdi>{shown}</bdi>"
        cut = f"{cut[: len(cut) * 4 // 5]}…"
