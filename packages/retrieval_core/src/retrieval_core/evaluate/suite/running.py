"""Run a suite: search for each case, judge the results; then judge the whole suite."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass, replace
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
    advanced,
    percentile,
    performance_of,
    point_of,
    specification_name,
    without_times,
)
from retrieval_core.evaluate.suite.targets import confidence_of, is_unlikely, question_of, versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from retrieval_core.evaluate.suite.cases import Case, Criteria, Expected, Suite
    from retrieval_core.evaluate.suite.targets import Lacking, Target
    from retrieval_core.types import Chunk, Hit, RetrievalResult

FIRST = 5
"""How far down recall is looked at first, as the specification's success criterion does."""
logger = logging.getLogger(__name__)

OnProgress: TypeAlias = "Callable[[str, CaseStatus, int, int], None]"
"""Takes a case's name and its new status, how many cases are done, and how many there are."""

CONCURRENCY = 4
FETCHES = 20
"""Passages that are read by their ids to measure how long that takes."""


def folded(text: str) -> str:
    """Return text as it is compared: in composed Unicode, without case, and with single spaces."""
    return " ".join(normalize("NFC", normalize("NFC", text).casefold()).split())


def has_keyword(text: str, keyword: str) -> bool:
    """Whether a text holds a keyword as whole words; both :func:`folded`.

    Where a keyword begins or ends with a wide letter, as Chinese and Japanese have them, it may lie within others:
    there is no space between words.
    """
    begin = text.find(keyword)
    while begin >= 0:
        end = begin + len(keyword)
        before, after = text[begin - 1 : begin], text[end : end + 1]
        if not (_same_word(before, keyword[0]) or _same_word(keyword[-1], after)):
            return True
        begin = text.find(keyword, begin + 1)
    return False


def _same_word(left: str, right: str) -> bool:
    return _in_word(left) and _in_word(right) and "W" not in {east_asian_width(left), east_asian_width(right)}


def _in_word(character: str) -> bool:
    return bool(character) and (character.isalnum() or character == "_" or category(character).startswith("M"))


class Texts:
    """The passages found, each folded once."""

    def __init__(self, hits: Sequence[Hit]) -> None:
        self.hits = hits
        self._folded = [folded(hit.chunk.text) for hit in hits]

    def rank_of(self, kind: str, wanted: str) -> int | None:
        """Return the first rank of a document, chunk or phrase, from 1; a document may be named by a chunk's id."""
        phrase = folded(wanted) if kind == "phrase" else ""
        for rank, (hit, text) in enumerate(zip(self.hits, self._folded, strict=True), 1):
            chunk = hit.chunk
            if phrase in text if kind == "phrase" else wanted in _ids(chunk, kind):
                return rank
        return None

    def has_keyword(self, keyword: str) -> bool:
        """Whether any passage holds a keyword."""
        wanted = folded(keyword)
        return any(has_keyword(text, wanted) for text in self._folded)


def _ids(chunk: Chunk, kind: str) -> tuple[str, ...]:
    return (chunk.id,) if kind == "chunk" else (chunk.document_id, chunk.id)


def ranks_of(expected: Expected, texts: Texts) -> dict[str, int | None]:
    """Return the first rank of each thing expected, as ``kind:text``."""
    return {f"{kind}:{text}": texts.rank_of(kind, text) for kind, text, _ in expected.items()}


def measures_of(expected: Expected, ranks: Mapping[str, int | None], top_k: int) -> dict[str, float]:
    """Return how well the expected was found; empty where no document, chunk or phrase is expected.

    ``recall`` is the share of the expected that was found, and with ``matches: any`` 1 where one of them was.
    ``ndcg@10`` takes the rank of each passage or document as its place, with linear gain.
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
        "ndcg@10": min(1.0, gained / best),  # several things may be expected of one passage, and share its place
        "mrr": 0.0 if first is None else 1 / first,
    }


def judged(case: Case, texts: Texts, milliseconds: float) -> Iterator[RetrievalError]:
    """Yield what is wrong with what a question found, but for what only a look at the whole index can tell."""
    ranks = ranks_of(case.expect, texts)
    yield from _missing(case, ranks)
    for keyword in case.expect.keywords:
        if not texts.has_keyword(keyword):
            yield ExpectationError(f"no passage has the keyword {keyword!r}")
    for kind, text in case.forbid.items():
        if rank := texts.rank_of(kind, text):
            yield ExpectationError(f"the {kind} {text!r} must not be found, and is number {rank}")
    if case.relevance_threshold is not None:
        yield from _irrelevant(case, case.relevance_threshold, texts.hits)
    if case.latency_ms is not None and milliseconds > case.latency_ms:
        # How long is a field of the result, so that two runs say the same.
        yield PerformanceError(f"it took longer than the {case.latency_ms:g} ms that it may take")


def _missing(case: Case, ranks: Mapping[str, int | None]) -> Iterator[MissingDocumentError]:
    absent = [name for name, rank in ranks.items() if rank is None]
    if case.expect.matches == "any" and len(absent) < len(ranks):
        return
    for name in absent:
        kind, _, text = name.partition(":")
        yield MissingDocumentError(f"the {kind} {text!r} is not among the first {case.top_k} passages")


def _best_similarities(hits: Sequence[Hit]) -> dict[str, float]:
    """Return the highest similarity of each document and chunk, by its id."""
    best: dict[str, float] = {}
    for hit in hits:
        if hit.scores.dense is not None:
            for name in _ids(hit.chunk, "document"):
                best[name] = max(best.get(name, 0.0), hit.scores.dense)
    return best


def _irrelevant(case: Case, threshold: float, hits: Sequence[Hit]) -> Iterator[RetrievalError]:
    """Yield documents whose best passage is below the threshold: the expected ones, or that of the best passage."""
    if not hits:
        if not case.expect.documents:  # that these were not found is told already
            yield RelevanceError(f"nothing was found, let alone with a similarity of {threshold:g}")
        return
    best = _best_similarities(hits)
    if not best:
        yield SearchError("relevance_threshold needs similarities, and this index has no vectors")
        return
    expected = [document for document in case.expect.documents if document in best]
    if expected:
        scores = {f"the best passage of {document!r}": best[document] for document in expected}
    else:
        scores = {"the best passage": max(best.values())}
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
        lacking: Lacking = frozenset()
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


def _skipped(case: Case) -> CaseResult:
    return CaseResult(case.name, case.query, CaseStatus.PENDING, tuple(case.tags), skipped=case.skip)


async def _judge(target: Target, case: Case, lacking: Lacking) -> CaseResult:
    """Return what becomes of a case, whatever happens in it."""
    wanted = [("document", document) for document in case.expect.documents]
    wanted += [("chunk", chunk) for chunk in case.expect.chunks]
    absent = [item for item in wanted if item in lacking]
    if absent:
        told = ", ".join(f"the {kind} {text!r}" for kind, text in absent)
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
