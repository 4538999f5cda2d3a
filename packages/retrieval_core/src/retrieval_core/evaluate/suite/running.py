"""Run a suite: search for each case, judge its results, then judge the whole suite."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from math import log2
from typing import TYPE_CHECKING, TypeAlias
from unicodedata import category, east_asian_width, normalize

from retrieval_core import errors
from retrieval_core.errors import (
    ExpectationError,
    InvalidParameterError,
    MissingDocumentError,
    PerformanceError,
    RelevanceError,
    RetrievalError,
    SearchError,
    checked_count,
)
from retrieval_core.evaluate.suite.results import (
    SPECIFICATION_NAMES,
    CaseResult,
    CaseStatus,
    Criterion,
    Problem,
    Subject,
    SuiteResult,
    advance_status,
    build_point,
    measure_performance,
    name_error,
    percentile,
    remove_times,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from retrieval_core.evaluate.suite.cases import Case, Expected, Suite
    from retrieval_core.evaluate.suite.targets import Target
    from retrieval_core.types import Chunk, Hit, RetrievalResult

FIRST = 5
"""Depth of the first recall, from the specification's success criterion."""
logger = logging.getLogger(__name__)

OnProgress: TypeAlias = "Callable[[int, int], None]"
"""Takes the number of cases that are done, and of all."""

CONCURRENCY = 4
FETCHES = 20
"""Number of chunks that are read by their IDs to measure how long that takes."""


def fold_text(text: str) -> str:
    """Return text as it is compared: in composed Unicode, without case, and with single spaces."""
    return " ".join(normalize("NFC", normalize("NFC", text).casefold()).split())


def has_keyword(text: str, keyword: str) -> bool:
    """Return whether a text contains a keyword as whole words; both :func:`folded`.

    A keyword that begins or ends with a wide letter, as in Chinese and Japanese, may be a part of a longer run of
    letters, as there is no space between words.
    """
    begin = text.find(keyword)
    while begin >= 0:
        end = begin + len(keyword)
        before, after = text[begin - 1 : begin], text[end : end + 1]
        if not (_is_one_word(before, keyword[0]) or _is_one_word(keyword[-1], after)):
            return True
        begin = text.find(keyword, begin + 1)
    return False


def _is_one_word(left: str, right: str) -> bool:
    are_letters = all(one and (one.isalnum() or one == "_" or category(one)[0] == "M") for one in (left, right))
    return are_letters and "W" not in {east_asian_width(left), east_asian_width(right)}


class ResultTexts:
    """The chunks of a result, each folded once."""

    def __init__(self, hits: Sequence[Hit]) -> None:
        self.hits = hits
        self._folded = [fold_text(hit.chunk.text) for hit in hits]

    def find_rank(self, kind: str, wanted: str) -> int | None:
        """Return the first rank of a document, chunk or phrase, from 1; a document may be named by a chunk's ID."""
        phrase = fold_text(wanted) if kind == "phrase" else ""
        for rank, (hit, text) in enumerate(zip(self.hits, self._folded, strict=True), 1):
            if phrase in text if kind == "phrase" else wanted in _list_ids(hit.chunk, kind):
                return rank
        return None

    def has_keyword(self, keyword: str) -> bool:
        """Return whether any chunk contains a keyword."""
        wanted = fold_text(keyword)
        return any(has_keyword(text, wanted) for text in self._folded)

    def find_ranks(self, expected: Expected) -> dict[str, int | None]:
        """Return the first rank of each expected item, as ``kind:text``."""
        return {f"{kind}:{text}": self.find_rank(kind, text) for kind, text, _ in expected.items()}


def _list_ids(chunk: Chunk, kind: str) -> tuple[str, ...]:
    return (chunk.id,) if kind == "chunk" else (chunk.document_id, chunk.id)


def measure_ranks(expected: Expected, ranks: Mapping[str, int | None], top_k: int) -> dict[str, float]:
    """Return the measures of a result; empty if no document, chunk or phrase is expected.

    ``recall`` is the share of the expected items that were found. With ``matches: any`` it is 1 if one was found.
    ``ndcg@10`` has linear gain.
    """
    grades = [grade for _, _, grade in expected.items()]
    if not grades:
        return {}
    found = [ranks[f"{kind}:{text}"] for kind, text, _ in expected.items()]

    def recall(depth: int) -> float:
        shares = [rank is not None and rank <= depth for rank in found]
        return float(any(shares)) if expected.matches == "any" else sum(shares) / len(shares)

    gained = sum(grade / log2(rank + 1) for grade, rank in zip(grades, found, strict=True) if rank and rank <= 10)
    best = sum(grade / log2(rank + 1) for rank, grade in enumerate(sorted(grades, reverse=True)[:10], 1))
    first = min((rank for rank in found if rank), default=None)
    return {
        f"recall@{FIRST}": recall(FIRST),
        "recall@k": recall(top_k),
        "ndcg@10": min(1.0, gained / best),  # several items may have one chunk, and so one rank
        "mrr": 0.0 if first is None else 1 / first,
    }


def _judge(case: Case, texts: ResultTexts, result: RetrievalResult) -> Iterator[RetrievalError]:
    """Yield how a result differs from what a case expects."""
    yield from _find_missing(case, texts.find_ranks(case.expect))
    for keyword in case.expect.keywords:
        if not texts.has_keyword(keyword):
            yield ExpectationError(f"no result has the keyword {keyword!r}")
    for kind, text in case.forbid.items():
        if rank := texts.find_rank(kind, text):
            yield ExpectationError(f"the {kind} {text!r} is forbidden, and is result number {rank}")
    if case.finds_nothing and result.hits and not (result.relevance is not None and result.relevance.is_unlikely):
        value = None if result.relevance is None else result.relevance.value
        likely = "" if value is None else f", with a confidence of {value:.2f}"
        yield ExpectationError(f"nothing should be found, and {result.hits[0].id!r} comes first{likely}")
    if case.relevance_threshold is not None:
        yield from _find_irrelevant(case, case.relevance_threshold, result.hits)
    if case.latency_ms is not None and result.latency_ms > case.latency_ms:
        # The duration is a field of the result, so that the messages of two runs are equal.
        yield PerformanceError(f"it took longer than {case.latency_ms:g} ms")


def _find_missing(case: Case, ranks: Mapping[str, int | None]) -> Iterator[MissingDocumentError]:
    absent = [name for name, rank in ranks.items() if rank is None]
    if case.expect.matches == "any" and len(absent) < len(ranks):
        return
    for name in absent:
        kind, _, text = name.partition(":")
        yield MissingDocumentError(f"the {kind} {text!r} is not among the first {case.top_k} results")


def _find_irrelevant(case: Case, threshold: float, hits: Sequence[Hit]) -> Iterator[RetrievalError]:
    """Yield documents whose best chunk is below the threshold: the expected ones, or that of the best chunk."""
    if not hits:
        if not case.expect.documents:  # a missing document is a problem already
            yield RelevanceError(f"nothing was found, and a similarity of {threshold:g} is required")
        return
    best: dict[str, float] = {}
    for hit in hits:
        if hit.scores.dense is not None:
            for name in _list_ids(hit.chunk, "document"):
                best[name] = max(best.get(name, 0.0), hit.scores.dense)
    if not best:
        yield SearchError("relevance_threshold needs similarities, and this index has no vectors")
        return
    scores = {f"the best chunk of {name!r}": best[name] for name in case.expect.documents if name in best}
    scores = scores or {"the best chunk": max(best.values())}
    if case.expect.matches == "any" and any(score >= threshold for score in scores.values()):
        return
    for what, score in scores.items():
        if score < threshold:
            yield RelevanceError(f"{what} has the similarity {score:.3f}, below the threshold {threshold:g}")


async def run_suite(
    target: Target,
    suite: Suite,
    *,
    concurrency: int = CONCURRENCY,
    twice: bool = False,
    on_progress: OnProgress | None = None,
) -> SuiteResult:
    """Run every case of a suite.

    A failure is the status of a case: ``failed`` if the results are wrong or late, ``error`` if the case could not be
    judged.

    Args:
        concurrency: Number of concurrent queries, at least 1. With 1, latencies are those of a single user.
        twice: Whether to run it twice and compare, to check that runs are repeatable (SC-006).

    Raises:
        InvalidParameterError: ``concurrency`` is less than 1.
        RetrievalError: All cases are skipped, and the index cannot be read.
    """
    checked_count(concurrency, "concurrency")
    first = await _run_once(target, suite, concurrency, on_progress)
    if not twice:
        return first
    second = await _run_once(target, suite, concurrency, on_progress)
    are_equal = remove_times(first) == remove_times(second)
    told = replace(_REPEATABLE, verdict="met" if are_equal else "missed")
    return replace(first, criteria=tuple(told if c.code == told.code else c for c in first.criteria))


async def run_case(target: Target, case: Case) -> CaseResult:
    """Run a single case; every failure is its status."""
    try:
        absent = await target.find_missing(tuple(case.expect.documents), tuple(case.expect.chunks))
        if absent:
            msg = f"the index does not contain {', '.join(absent)}; fix the case, or index the missing documents"
            return _build_error(case, InvalidParameterError(msg))
        return await _search_and_judge(target, case)
    except RetrievalError as error:
        return _build_error(case, error)
    except Exception as error:
        logger.exception("the case %r could not be run", case.name)
        return _build_error(case, error)


async def load_models(target: Target, case: Case) -> None:
    """Run a first query, so that the time of loading models is not counted; its failure is ignored."""
    with suppress(Exception):
        await target.retrieve(case)


async def _run_once(target: Target, suite: Suite, concurrency: int, report: OnProgress | None) -> SuiteResult:
    began = datetime.now(UTC)
    started = time.perf_counter()
    problem: RetrievalError | None = None
    subject = Subject("unavailable", 0)
    cases = [case for case in suite.cases if case.skip is None]
    try:
        subject = await target.describe()
        if cases:
            await load_models(target, cases[0])
    except RetrievalError as error:
        if not cases:
            raise  # no case can report it
        problem = error
    results = [
        CaseResult(case.name, case.query, CaseStatus.PENDING, tuple(case.tags), skipped=case.skip)
        for case in suite.cases
        if case.skip is not None
    ]
    waiting = iter(cases)

    async def work() -> None:
        for case in waiting:
            results.append(await run_case(target, case) if problem is None else _build_error(case, problem))
            if report is not None:
                report(len(results), len(suite.cases))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(concurrency, len(cases))):
            tasks.create_task(work())
    results.sort(key=lambda result: result.name)
    performance = measure_performance([r.retrieval_time_ms for r in results if r.retrieval_time_ms is not None])
    elapsed = (time.perf_counter() - started) * 1000
    made = SuiteResult(suite.name, subject, tuple(results), (), performance, elapsed, began.isoformat())
    fetch_ms = None if problem else await _time_fetches(target, results)
    return replace(made, criteria=tuple(_check_criteria(suite, made, fetch_ms)))


async def _search_and_judge(target: Target, case: Case) -> CaseResult:
    wordings = (case.query, *case.paraphrases)
    found = [await target.retrieve(case.model_copy(update={"query": text})) for text in wordings]
    texts = [ResultTexts(result.hits) for result in found]
    raised: list[RetrievalError] = []
    problems: list[Problem] = []
    for wording, result, each in zip(wordings, found, texts, strict=True):
        for error in _judge(case, each, result):
            raised.append(error)
            query = f"query {wording!r:.200}: " if len(wordings) > 1 else ""
            problems.append(Problem(name_error(error), f"{query}{error}"))
    measures = [measure_ranks(case.expect, each.find_ranks(case.expect), case.top_k) for each in texts]
    first = found[0]
    return CaseResult(
        case.name,
        case.query,
        _find_outcome(raised),
        tuple(case.tags),
        tuple(problems),
        documents=tuple(dict.fromkeys(hit.chunk.document_id for hit in first.hits)),
        points=tuple(build_point(hit) for hit in first.hits),
        ranks=texts[0].find_ranks(case.expect),
        measures={name: sum(each[name] for each in measures) / len(measures) for name in measures[0]},
        retrieval_time_ms=max(each.latency_ms for each in found),
        degraded=first.degraded,
    )


def _find_outcome(raised: Sequence[Exception]) -> CaseStatus:
    running = advance_status(CaseStatus.PENDING, CaseStatus.RUNNING)
    if not raised:
        return advance_status(running, CaseStatus.PASSED)
    have_failed = all(isinstance(error, ExpectationError) for error in raised)
    return advance_status(running, CaseStatus.FAILED if have_failed else CaseStatus.ERROR)


def _build_error(case: Case, error: Exception) -> CaseResult:
    problem = Problem(name_error(error), str(error))
    return CaseResult(case.name, case.query, _find_outcome([error]), tuple(case.tags), (problem,))


async def _time_fetches(target: Target, results: Sequence[CaseResult]) -> float | None:
    """Return the 95th percentile of the milliseconds to read a chunk by its ID; ``None`` if it can't be measured."""
    ids = dict.fromkeys(result.points[0].id for result in results if result.points)
    times: list[float] = []
    for chunk_id in list(ids)[:FETCHES]:
        started = time.perf_counter()
        try:
            is_there = await target.fetch(chunk_id) is not None
        except RetrievalError as error:
            logger.warning("the chunk %r could not be read by its ID: %s", chunk_id, error)
            return None
        if not is_there:
            logger.warning("the chunk %r was found, but not by its ID", chunk_id)
            return None
        times.append((time.perf_counter() - started) * 1000)
    return percentile(times, 95) if times else None


_REPEATABLE = Criterion("SC-006", "two runs are equal", "not measured")


def _check_criteria(suite: Suite, result: SuiteResult, fetch_ms: float | None) -> Iterator[Criterion]:
    """Yield the criteria of a suite."""
    asked = suite.criteria
    yield _criterion("SC-001", "milliseconds to read a chunk by its ID, 95th percentile", fetch_ms, most=asked.fetch_ms)
    average = result.performance_metrics.avg_retrieval_time_ms
    yield _criterion("SC-002", "average milliseconds of a query", average, most=asked.average_ms)
    with_documents = {case.name for case in suite.cases if case.expect.documents}
    shares = [r.measures["recall@5"] == 1 for r in result.results if r.name in with_documents and r.measures]
    found = sum(shares) / len(shares) if shares else None
    yield _criterion(
        "SC-003", "share of cases with all expected among the first five", found, least=asked.found_in_first_five
    )
    rate = result.pass_rate if result.total_tests else None
    yield _criterion("SC-004", "percentage of cases that pass", rate, least=asked.pass_rate)
    kinds = [problem.error for case in result.results for problem in case.problems]
    named = [hasattr(errors, kind) or kind in SPECIFICATION_NAMES.values() for kind in kinds]
    share = sum(named) / len(named) if named else None
    yield _criterion("SC-005", "share of problems that are an error of this library", share, least=1.0)
    yield _REPEATABLE


def _criterion(
    code: str, text: str, value: float | None, *, least: float | None = None, most: float | None = None
) -> Criterion:
    """Return a criterion with its verdict: a value of at least ``least``, or below ``most``."""
    target = least if most is None else most
    if value is None or target is None:
        return Criterion(code, text, "not measured", value, target)
    is_met = value >= target if most is None else value < target
    return Criterion(code, text, "met" if is_met else "missed", value, target)
