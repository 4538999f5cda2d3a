"""Run a suite: search for each case, judge the results; then judge the whole suite."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from retrieval_core import errors
from retrieval_core.errors import ExpectationError, InvalidParameterError, RetrievalError, SearchError, checked_count
from retrieval_core.evaluate.suite.judging import Texts, judged, measures_of, ranks_of
from retrieval_core.evaluate.suite.results import (
    SPECIFICATION_NAMES,
    CaseResult,
    CaseStatus,
    Criterion,
    Problem,
    Subject,
    SuiteResult,
    advanced,
    percentile,
    performance_of,
    point_of,
    specification_name,
    without_times,
)
from retrieval_core.evaluate.suite.targets import confidence_of, is_unlikely, question_of, versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from retrieval_core.evaluate.suite.cases import Case, Criteria, Suite
    from retrieval_core.evaluate.suite.targets import Lacking, Target
    from retrieval_core.types import RetrievalResult

logger = logging.getLogger(__name__)

OnProgress: TypeAlias = "Callable[[str, CaseStatus, int, int], None]"
"""Takes a case's name and its new status, how many cases are done, and how many there are."""

CONCURRENCY = 4
FETCHES = 20
"""Passages that are read by their ids to measure how long that takes."""


async def run_suite(
    target: Target,
    suite: Suite,
    *,
    concurrency: int = CONCURRENCY,
    twice: bool = False,
    on_progress: OnProgress | None = None,
) -> SuiteResult:
    """Run every case of a suite.

    Failures become the status of a case: ``failed`` if the results are wrong or late, ``error`` if the case could not
    be judged.

    Args:
        concurrency: Number of concurrent queries, at least 1. With 1, latencies are those of a single user.
        twice: Whether to run it twice and compare, which is necessary to check that runs repeat (SC-006).

    Raises:
        InvalidParameterError: ``concurrency`` is less than 1.
        RetrievalError: All cases are skipped, and the index cannot be read.
    """
    checked_count(concurrency, "concurrency")
    first = await _Run(target, suite, concurrency, on_progress or _ignore).result()
    if not twice:
        return first
    second = await _Run(target, suite, concurrency, on_progress or _ignore).result()
    are_equal = without_times(first) == without_times(second)
    told = replace(_REPEATABLE, verdict="met" if are_equal else "missed")
    return replace(first, criteria=tuple(told if c.code == told.code else c for c in first.criteria))


async def run_case(target: Target, case: Case) -> CaseResult:
    """Run a single case.

    Raises:
        RetrievalError: An expected document or chunk cannot be looked up.
    """
    lacking = await target.lacking(tuple(case.expect.documents), tuple(case.expect.chunks))
    return await _judge(target, case, lacking)


async def load_models(target: Target, case: Case) -> None:
    """Ask a first question, whose time would be no question's; where it fails, its case will tell."""
    with suppress(Exception):
        await target.retrieve(question_of(case, case.query))


def _ignore(_name: str, _status: CaseStatus, _done: int, _total: int) -> None: ...


@dataclass(slots=True)
class _Run:
    target: Target
    suite: Suite
    concurrency: int
    report: OnProgress

    async def result(self) -> SuiteResult:
        began = datetime.now(UTC)
        started = time.perf_counter()
        problem: RetrievalError | None = None
        lacking: Lacking = {}
        subject = Subject(self.target.location, 0, versions=await asyncio.to_thread(versions))
        cases = [case for case in self.suite.cases if case.skip is None]
        try:
            subject = await self.target.describe()
            documents = {document: None for case in cases for document in case.expect.documents}
            chunks = {chunk: None for case in cases for chunk in case.expect.chunks}
            lacking = await self.target.lacking(tuple(documents), tuple(chunks))
            if cases:
                await load_models(self.target, cases[0])
        except RetrievalError as error:
            if not cases:
                raise  # there is no case that could tell
            problem = error
        results = [_skipped(case) for case in self.suite.cases if case.skip is not None]
        waiting = iter(cases)

        async def work() -> None:
            for case in waiting:
                self.report(case.name, CaseStatus.RUNNING, len(results), len(self.suite.cases))
                if problem is None:
                    result = await _judge(self.target, case, lacking)
                else:
                    result = _with_error(case, problem)
                results.append(result)
                self.report(case.name, result.status, len(results), len(self.suite.cases))

        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(self.concurrency, len(cases))):
                tasks.create_task(work())
        if problem is None and await self._has_changed(subject):
            results = [_unjudged(result) if result.status is CaseStatus.FAILED else result for result in results]
        results.sort(key=lambda result: result.name)
        performance = performance_of([r.retrieval_time_ms for r in results if r.retrieval_time_ms is not None])
        made = SuiteResult(
            suite=self.suite.name,
            subject=subject,
            results=tuple(results),
            criteria=(),
            performance_metrics=performance,
            execution_time_ms=(time.perf_counter() - started) * 1000,
            timestamp=began.isoformat(),
        )
        fetched = None if problem else await _time_fetches(self.target, results)
        return replace(made, criteria=tuple(_criteria(self.suite.criteria, self.suite.cases, made, fetched)))

    async def _has_changed(self, subject: Subject) -> bool:
        try:
            has_changed = await self.target.describe() != subject
        except RetrievalError:
            has_changed = True
        if has_changed:
            logger.warning("the index %s changed while the suite ran; run it again", self.target.location)
        return has_changed


def _unjudged(result: CaseResult) -> CaseResult:
    """Return a failed case of an index that changed: it may have failed for that alone, and has no measures."""
    problem = _problem(SearchError("the index changed while the suite ran; run it again"), None)
    return replace(result, status=CaseStatus.ERROR, problems=(problem, *result.problems), measures={})


def _skipped(case: Case) -> CaseResult:
    return CaseResult(case.name, case.query, CaseStatus.PENDING, tuple(case.tags), skipped=case.skip)


async def _judge(target: Target, case: Case, lacking: Lacking) -> CaseResult:
    """Return what becomes of a case, whatever happens in it."""
    wanted = [("document", document) for document in case.expect.documents]
    wanted += [("chunk", chunk) for chunk in case.expect.chunks]
    absent = [item for item in wanted if item in lacking]
    if absent:
        told = ", ".join(
            f"the {kind} {text!r}" + (f" (did you mean {lacking[kind, text]!r}?)" if lacking[kind, text] else "")
            for kind, text in absent
        )
        msg = f"the index does not contain {told}; fix the case, or index the missing documents"
        return _with_error(case, InvalidParameterError(msg))
    try:
        return await _asked(target, case)
    except RetrievalError as error:
        return _with_error(case, error)
    except Exception as error:
        logger.exception("the case %r could not be run", case.name)
        return _with_error(case, error)


async def _asked(target: Target, case: Case) -> CaseResult:
    wordings = (case.query, *case.paraphrases)
    found = [await _retrieve(target, case, text) for text in wordings]
    texts = [Texts(result.hits) for result in found]
    problems: list[tuple[str, RetrievalError]] = []
    for wording, result, held in zip(wordings, found, texts, strict=True):
        problems += [(wording, error) for error in judged(case, held, result.latency_ms)]
        if case.finds_nothing and (error := _found_something(result)):
            problems.append((wording, error))
    problems += _disagreements(case, wordings, found)
    if problems and (unreachable := await _beyond_reach(target, case, wordings, found)):
        problems = [unreachable]
    raised = [error for _, error in problems]
    measures = [measures_of(case.expect, ranks_of(case.expect, held), case.top_k) for held in texts]
    result = found[0]
    return CaseResult(
        case.name,
        case.query,
        _ending(raised),
        tuple(case.tags),
        tuple(_problem(error, wording if len(wordings) > 1 else None) for wording, error in problems),
        documents=tuple(dict.fromkeys(hit.chunk.document_id for hit in result.hits)),
        points=tuple(point_of(hit, result.latency_ms) for hit in result.hits),
        ranks=ranks_of(case.expect, texts[0]),
        measures={name: sum(each[name] for each in measures) / len(measures) for name in measures[0]},
        retrieval_time_ms=max(each.latency_ms for each in found),
        confidence=confidence_of(result) if case.finds_nothing else None,
    )


async def _retrieve(target: Target, case: Case, text: str) -> RetrievalResult:
    """Return what a wording finds, with the similarities that its case's threshold is compared with.

    What words alone found has none; asking for them makes every search dearer, so that is done where they are needed.
    """
    question = question_of(case, text)
    result = await target.retrieve(question)
    if case.relevance_threshold is None:
        return result
    known = {hit.chunk.document_id for hit in result.hits if hit.scores.dense is not None}
    needed = {hit.chunk.document_id for hit in result.hits if hit.chunk.document_id in case.expect.documents}
    if known and needed <= known:
        return result
    again = await target.retrieve(replace(question, similarities=True))
    similarities = {hit.id: hit.scores.dense for hit in again.hits}
    hits = [
        hit
        if hit.scores.dense is not None
        else replace(hit, scores=replace(hit.scores, dense=similarities.get(hit.id)))
        for hit in result.hits
    ]
    return replace(result, hits=tuple(hits))


async def _beyond_reach(
    target: Target, case: Case, wordings: Sequence[str], found: Sequence[RetrievalResult]
) -> tuple[str, InvalidParameterError] | None:
    """Return a ``score_threshold`` that no chunk of the index reaches, with the wording it is beyond reach of."""
    threshold = case.score_threshold
    if not threshold:
        return None
    for wording, result in zip(wordings, found, strict=True):
        best = max((hit.scores.dense for hit in result.hits if hit.scores.dense is not None), default=-1.0)
        nearest = await target.nearest(wording) if best < threshold else None
        if nearest is not None and nearest < threshold:
            msg = f"no chunk reaches the score_threshold {threshold:g}: the most similar one has {nearest:.3f}"
            return wording, InvalidParameterError(msg)
    return None


def _found_something(result: RetrievalResult) -> ExpectationError | None:
    if not result.hits or is_unlikely(result):
        return None
    confidence = confidence_of(result)
    likely = "" if confidence is None else f", with a confidence of {confidence:.2f}"
    first = result.hits[0]
    return ExpectationError(f"nothing should be found, and {first.id!r} comes first{likely}")


def _disagreements(
    case: Case, wordings: Sequence[str], found: Sequence[RetrievalResult]
) -> Iterator[tuple[str, RetrievalError]]:
    """Yield the paraphrases that find another document first, where nothing else says what they should find."""
    if case.expect.items() or case.expect.keywords or case.finds_nothing:
        return
    firsts = [result.hits[0].chunk.document_id if result.hits else None for result in found]
    for wording, first in zip(wordings[1:], firsts[1:], strict=True):
        if first != firsts[0]:
            msg = f"it finds {first!r} first, and the question {firsts[0]!r}"
            yield wording, ExpectationError(msg)


def _ending(raised: Sequence[Exception]) -> CaseStatus:
    running = advanced(CaseStatus.PENDING, CaseStatus.RUNNING)
    if not raised:
        return advanced(running, CaseStatus.PASSED)
    have_failed = all(isinstance(error, ExpectationError) for error in raised)
    return advanced(running, CaseStatus.FAILED if have_failed else CaseStatus.ERROR)


def _with_error(case: Case, error: Exception) -> CaseResult:
    return CaseResult(case.name, case.query, _ending([error]), tuple(case.tags), (_problem(error, None),))


def _problem(error: Exception, wording: str | None) -> Problem:
    asked = "" if wording is None else f"asked {wording!r:.200}: "
    return Problem(specification_name(error), f"{asked}{error}")


async def _time_fetches(target: Target, results: Sequence[CaseResult]) -> float | None:
    """Return the 95th percentile of milliseconds that reading a passage by its id takes; ``None`` without passages."""
    ids = dict.fromkeys(result.points[0].id for result in results if result.points)
    times: list[float] = []
    for chunk_id in list(ids)[:FETCHES]:
        started = time.perf_counter()
        try:
            held = await target.fetch(chunk_id)
        except RetrievalError as error:
            logger.warning("the passage %r could not be read by its id: %s", chunk_id, error)
            return None
        if held is None:
            logger.warning("the passage %r was found, and is not there by its id", chunk_id)
            return None
        times.append((time.perf_counter() - started) * 1000)
    return percentile(times, 95) if times else None


_REPEATABLE = Criterion("SC-006", "two runs are equal", "not measured")


def _criteria(
    asked: Criteria, cases: Sequence[Case], result: SuiteResult, fetch_ms: float | None
) -> Iterator[Criterion]:
    """Yield what the whole suite has to reach, as far as it is asked for."""
    yield _limit("SC-001", "milliseconds to read a passage by its id, 95th percentile", fetch_ms, asked.fetch_ms)
    average = result.performance_metrics.avg_retrieval_time_ms
    yield _limit("SC-002", "milliseconds of a question, on average", average, asked.average_ms)
    with_documents = {case.name for case in cases if case.expect.documents}
    shares = [r.measures["recall@5"] == 1 for r in result.results if r.name in with_documents and r.measures]
    found = sum(shares) / len(shares) if shares else None
    yield _least("SC-003", "share of cases with all expected among the first five", found, asked.found_in_first_five)
    rate = result.pass_rate if result.total_tests else None
    yield _least("SC-004", "percentage of cases that pass", rate, asked.pass_rate)
    kinds = [problem.error for case in result.results for problem in case.problems]
    named = [hasattr(errors, kind) or kind in SPECIFICATION_NAMES.values() for kind in kinds]
    share = sum(named) / len(named) if named else None
    yield _least("SC-005", "share of problems that are an error of this library", share, 1.0)
    yield _REPEATABLE


def _limit(code: str, text: str, value: float | None, most: float | None) -> Criterion:
    if value is None or most is None:
        return Criterion(code, text, "not measured", value, most)
    return Criterion(code, text, "met" if value < most else "missed", value, most)


def _least(code: str, text: str, value: float | None, least: float | None) -> Criterion:
    if value is None or least is None:
        return Criterion(code, text, "not measured", value, least)
    return Criterion(code, text, "met" if value >= least else "missed", value, least)
