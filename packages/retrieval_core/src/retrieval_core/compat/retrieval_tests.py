"""The test-suite file's names: queries, results and test cases of one similarity search each, and how they are run.

::

    from retrieval_core.compat.retrieval_tests import RetrievalTester, TestCase

    tester = RetrievalTester({"textbook_embeddings": index})
    result = tester.run([TestCase(name="basics", query_text="What is ROS 2?", …)])
    print(result.pass_rate)

All values are dataclasses that :func:`dataclasses.asdict` and :func:`json.dumps` take. Suites of files, with negative
cases and reports, are in :mod:`retrieval_core.evaluate.suite`.
"""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast

from retrieval_core.errors import (
    DimensionMismatchError,
    EmbeddingError,
    ExpectationError,
    IncompleteSearchError,
    IndexNotFoundError,
    InvalidParameterError,
    MissingDocumentError,
    PerformanceError,
    RelevanceError,
    RetrievalError,
    ServiceConnectionError,
    ServiceTimeoutError,
)
from retrieval_core.evaluate.suite.cases import Case, Expected
from retrieval_core.evaluate.suite.results import CaseStatus, advanced, performance_of, point_of
from retrieval_core.evaluate.suite.running import Texts, judged
from retrieval_core.evaluate.suite.targets import documents_lacking
from retrieval_core.pipeline.lifecycle import Calls
from retrieval_core.pipeline.stages.embed import QueryEmbedder
from retrieval_core.pipeline.stages.judge import find_unknown_fields
from retrieval_core.pipeline.stages.search import fetch
from retrieval_core.ports import FetchRequest, SearchRequest
from retrieval_core.run.outcomes import Failed, Ok, value_of
from retrieval_core.types import Degradation, Hit, Query, Scores
from retrieval_core.types.documents import as_vectors
from retrieval_core.types.filters import And, Exists, Filter, Ne, Not, NotIn, Or, chunk_fields, matches, paths_of
from retrieval_core.types.filters.syntax import parse_filter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.index.index import Index
    from retrieval_core.ports import Candidate, Fetched
    from retrieval_core.run.clock import Clock
    from retrieval_core.run.runner import Run
    from retrieval_core.types import JSON, Vector

__all__ = [
    "CollectionInfo",
    "CollectionNotFoundError",
    "ConnectionError",
    "DimensionMismatchError",
    "EmbeddingError",
    "InvalidParameterError",
    "MissingDocumentError",
    "PerformanceError",
    "RelevanceError",
    "RetrievalQuery",
    "RetrievalResult",
    "RetrievalTester",
    "TestCase",
    "TestStatus",
    "TestSuiteResult",
    "TimeoutError",
]

OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "source_url": ("source", "document_id"),
    "url": ("source", "document_id"),
    "chunk_id": ("id",),
    "document_title": ("title",),
    "position": ("chunk_index",),
    "doc_id": ("document_id",),
    "content": (),
    "total_chunks": (),
    "embedding_model": (),
}
"""The stores' names of the specification's fields; empty for fields that a store can't filter by."""
TestStatus = CaseStatus


def uses_other_names(condition: Filter) -> bool:
    """Return whether a filter has a name of the specification that a store may not know."""
    return not paths_of(condition).isdisjoint(OTHER_NAMES)


def widen(condition: Filter) -> Filter | None:
    """Return a filter in a store's names that passes every chunk which the given one passes; ``None`` for no filter.

    Results still have to be tested with the given filter, see :func:`specification_fields`.
    """
    if not uses_other_names(condition):
        return condition
    match condition:
        case And(filters):
            parts = tuple(part for each in filters if (part := widen(each)) is not None)
            return And(parts) if parts else None
        case Or(filters):
            some = [part for each in filters if (part := widen(each)) is not None]
            return Or(tuple(some)) if len(some) == len(filters) else None
        case Not() | Ne() | NotIn() | Exists(value=False):
            return None
        case _:
            names = OTHER_NAMES[condition.field]
            if not names:
                return Or((condition, Exists(condition.field, False)))
            return Or((condition, *(replace(condition, field=name) for name in names)))


def specification_fields(hit: Hit) -> dict[str, JSON]:
    """Return the fields of a hit under the names of stores and of the specification."""
    fields: dict[str, Any] = {**chunk_fields(hit.chunk), **point_of(hit).payload}
    for name, places in OTHER_NAMES.items():
        if name not in fields:
            fields[name] = next((fields[place] for place in places if fields.get(place) is not None), None)
    return fields


class CollectionNotFoundError(IndexNotFoundError):
    """The collection of a query or of a test case does not exist."""


class ConnectionError(ServiceConnectionError):  # noqa: A001 - the file's name
    """The collection's service cannot be reached, after all attempts."""


class TimeoutError(ServiceTimeoutError):  # noqa: A001 - the file's name
    """The collection's service timed out, or the query exceeded its deadline."""


PAYLOAD = ("content", "source_url", "chunk_id", "chunk_index", "total_chunks", "timestamp", "embedding_model")
"""The fields of a payload; one that a collection lacks is absent."""
MOST_RESULTS = 100
MOST_COUNTED = 10_000
"""What one search can return in every store."""

logger = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True)
class RetrievalQuery:
    """A query by vector; its components and their number are checked by the collection that is searched.

    Raises:
        InvalidParameterError: ``top_k`` is not from 1 to 100, ``score_threshold`` not in [0, 1], or the filter is not
            well formed.
    """

    collection_name: str
    query_vector: list[float]
    top_k: int = 10
    score_threshold: float | None = None
    filters: dict[str, Any] | None = None
    with_vectors: bool = False
    with_payload: bool = True

    def __post_init__(self) -> None:
        _check_text(self.collection_name, "collection_name")
        _check_top_k(self.top_k, MOST_RESULTS)
        if self.score_threshold is not None:
            _check_share(self.score_threshold, "score_threshold")
        if self.filters is not None:
            try:
                parse_filter(self.filters)
            except RetrievalError as error:
                raise InvalidParameterError(str(error)) from error


@dataclass
class RetrievalResult:
    """A point that was found.

    Raises:
        InvalidParameterError: The id is empty, or the score is not in [0, 1].
    """

    id: str | int
    score: float
    payload: dict[str, Any]
    vector: list[float] | None = None
    retrieval_time_ms: float = 0.0
    degraded: tuple[Degradation, ...] = ()
    """Degraded stages, with their fallbacks, and warnings about the filter."""

    def __post_init__(self) -> None:
        if isinstance(self.id, bool) or not isinstance(self.id, (str, int)) or self.id == "":  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"the id of a point is text or a whole number, got {self.id!r:.80}"
            raise InvalidParameterError(msg)
        _check_share(self.score, "score")


@dataclass
class TestCase:
    """A question, and what should be found; its ``status`` goes from pending to running, and on to how it ended.

    Raises:
        InvalidParameterError: A field is outside of its range, or the status cannot follow the one before.
    """

    __test__: ClassVar[bool] = False  # nothing that pytest collects

    name: str
    query_text: str
    collection_name: str
    expected_doc_ids: list[str]
    expected_keywords: list[str]
    relevance_threshold: float
    top_k: int = 10
    status: TestStatus = TestStatus.PENDING
    actual_results: list[RetrievalResult] | None = None
    error_message: str | None = None
    degraded: tuple[Degradation, ...] = ()

    def __post_init__(self) -> None:
        for name in ("name", "query_text", "collection_name"):
            _check_text(getattr(self, name), name)
        _check_share(self.relevance_threshold, "relevance_threshold")
        _check_top_k(self.top_k, MOST_RESULTS)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "status":
            try:
                value = TestStatus(value)
            except ValueError:
                msg = f"status must be one of {', '.join(TestStatus)}, got {value!r:.80}"
                raise InvalidParameterError(msg) from None
            if "status" in self.__dict__:
                value = advanced(self.status, value)
        super().__setattr__(name, value)


@dataclass
class TestSuiteResult:
    """The outcome of several test cases.

    Raises:
        InvalidParameterError: The counts do not add up.
    """

    __test__: ClassVar[bool] = False  # nothing that pytest collects

    total_tests: int
    passed: int
    failed: int
    errors: int
    execution_time_ms: float
    test_results: list[TestCase]
    performance_metrics: dict[str, float | None] = field(default_factory=dict[str, "float | None"])
    timestamp: str = ""
    degraded: tuple[Degradation, ...] = ()
    pass_rate: float = field(init=False, default=0.0)
    """Percentage of the cases that passed; 0 if there is none."""
    failure_rate: float = field(init=False, default=0.0)
    """Percentage of the cases that failed; 0 if there is none."""

    def __post_init__(self) -> None:
        if (
            self.total_tests != self.passed + self.failed + self.errors
            or min(self.passed, self.failed, self.errors) < 0
        ):
            msg = (
                f"total_tests is the sum of passed, failed and errors; got {self.total_tests} and {self.passed} + "
                f"{self.failed} + {self.errors}"
            )
            raise InvalidParameterError(msg)
        if self.total_tests:
            self.pass_rate = 100 * self.passed / self.total_tests
            self.failure_rate = 100 * self.failed / self.total_tests


@dataclass(frozen=True)
class CollectionInfo:
    """The contents of a collection: ``green`` is complete, ``yellow`` lacks vectors, ``red`` cannot be read.

    A collection that another program filled has the status, size and distance that its service reports.

    Raises:
        InvalidParameterError: A count is below 0.
    """

    name: str
    vector_size: int
    distance_metric: Literal["Cosine", "Euclidean", "Dot"]
    points_count: int
    indexed_vectors_count: int
    status: Literal["green", "yellow", "red"]

    def __post_init__(self) -> None:
        for name in ("vector_size", "points_count", "indexed_vectors_count"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                msg = f"{name} must be a whole number of at least 0, got {value!r:.80}"
                raise InvalidParameterError(msg)


class RetrievalTester:
    """Searches collections by vector, and runs test cases on them.

    Every method exists twice: as it is, and with an ``a`` before its name as a coroutine function. Each search, and
    each case as a whole, has the deadline and the retries of its collection's settings.

    Args:
        collections: Indexes with an embedder by the names that queries and cases have for them; the caller closes them.
        latency_ms: Maximum latency of a search. A slower case fails with a :class:`PerformanceError`.
        clock: Measures deadlines and waits; the system's if it is not given.

    Raises:
        InvalidParameterError: There is no collection.
    """

    def __init__(
        self, collections: Mapping[str, Index], *, latency_ms: float | None = None, clock: Clock | None = None
    ) -> None:
        if not collections:
            msg = "there must be one collection at least, as {'name': index}"
            raise InvalidParameterError(msg)
        self._collections = {
            name: _Collection(name, index, Calls(index.config, clock)) for name, index in collections.items()
        }
        self._latency_ms = latency_ms
        self._sync = next(iter(collections.values())).sync

    def embed(self, collection_name: str, query_text: str) -> list[float]:
        """Return the vector of a query; see :meth:`aembed`."""
        return self._sync.run(self.aembed(collection_name, query_text))

    async def aembed(self, collection_name: str, query_text: str) -> list[float]:
        """Return the vector of a query, by the collection's own embedder.

        Raises:
            CollectionNotFoundError: There is no such collection.
            EmbeddingError: The query could not be embedded.
        """
        collection = self._collection(collection_name)
        return (await collection.embed(collection.calls.begin(), query_text)).tolist()

    def search(self, query: RetrievalQuery) -> list[RetrievalResult]:
        """Return what is nearest to a vector; see :meth:`asearch`."""
        return self._sync.run(self.asearch(query))

    async def asearch(self, query: RetrievalQuery) -> list[RetrievalResult]:
        """Return what is nearest to a vector, the most similar first.

        Raises:
            CollectionNotFoundError: There is no such collection.
            DimensionMismatchError: Its vectors have another number of components.
            InvalidParameterError: The vector has something that is no finite number.
            ConnectionError: The collection's service cannot be reached.
            TimeoutError: It did not answer in time.
        """
        collection = self._collection(query.collection_name)
        vector = as_vectors(query.query_vector)
        return list((await collection.search(collection.calls.begin(), query, vector)).results)

    def run(self, cases: Sequence[TestCase]) -> TestSuiteResult:
        """Run test cases; see :meth:`arun`."""
        return self._sync.run(self.arun(cases), seconds=None)

    async def arun(self, cases: Sequence[TestCase]) -> TestSuiteResult:
        """Run test cases one after the other, and return them as they ended, in their order.

        The cases given stay as they are. A case that expects a document which its collection does not contain ends as
        an error.

        Raises:
            InvalidParameterError: Two cases have one name, or one was run already.
        """
        names = [case.name for case in cases]
        if len(set(names)) < len(names):
            twice = next(name for number, name in enumerate(names) if name in names[:number])
            msg = f"two test cases have the name {twice!r}; names are unique in a suite"
            raise InvalidParameterError(msg)
        began = datetime.now(UTC)
        started = time.perf_counter()
        ended = [await self._run(replace(case)) for case in cases]
        times = [case.actual_results[0].retrieval_time_ms for case in ended if case.actual_results]
        counts = {status: sum(case.status is status for case in ended) for status in TestStatus}
        return TestSuiteResult(
            total_tests=len(ended),
            passed=counts[TestStatus.PASSED],
            failed=counts[TestStatus.FAILED],
            errors=counts[TestStatus.ERROR],
            execution_time_ms=(time.perf_counter() - started) * 1000,
            test_results=ended,
            performance_metrics=asdict(performance_of(times)),
            timestamp=began.isoformat(),
            degraded=tuple(dict.fromkeys(entry for case in ended for entry in case.degraded)),
        )

    def info(self, collection_name: str) -> CollectionInfo:
        """Return size, distance, status and counts of a collection, synchronously."""
        return self._sync.run(self.ainfo(collection_name))

    async def ainfo(self, collection_name: str) -> CollectionInfo:
        """Return size, distance, status and counts of a collection.

        Raises:
            CollectionNotFoundError: There is no such collection.
        """
        collection = self._collection(collection_name)
        try:
            return await collection.info(collection.calls.begin())
        except CollectionNotFoundError:
            raise
        except RetrievalError as error:
            logger.warning("the collection %s cannot be read: %s", collection_name, error)
            return CollectionInfo(collection_name, 0, "Cosine", 0, 0, "red")

    async def _run(self, case: TestCase) -> TestCase:
        case.status = TestStatus.RUNNING
        try:
            problems = await self._problems(case)
        except RetrievalError as error:
            problems = [error]
        if not problems:
            case.status = TestStatus.PASSED
            logger.info("%s: %s", case.name, case.status)
            return case
        have_failed = all(isinstance(problem, ExpectationError) for problem in problems)
        case.error_message = "; ".join(f"{type(problem).__name__}: {problem}" for problem in problems)
        case.status = TestStatus.FAILED if have_failed else TestStatus.ERROR
        logger.info("%s: %s: %s", case.name, case.status, case.error_message)
        return case

    async def _problems(self, case: TestCase) -> list[RetrievalError]:
        collection = self._collection(case.collection_name)
        run = collection.calls.begin()
        if absent := await collection.lacking(run, case.expected_doc_ids):
            msg = f"{case.collection_name} does not contain {', '.join(map(repr, absent))}"
            return [InvalidParameterError(msg)]
        vector = await collection.embed(run, case.query_text)
        found = await collection.search(run, RetrievalQuery(case.collection_name, [], case.top_k), vector)
        case.actual_results, case.degraded = list(found.results), found.degraded
        expected = Expected(documents=dict.fromkeys(case.expected_doc_ids, 1), keywords=case.expected_keywords)
        asked = Case(
            name="case",
            query=case.query_text,
            top_k=case.top_k,
            expect=expected,
            relevance_threshold=case.relevance_threshold,
            latency_ms=self._latency_ms,
        )
        problems = list(judged(asked, Texts(found.hits), found.milliseconds))
        if found.hits and found.hits[0].score < case.relevance_threshold:
            msg = (
                f"no chunk reaches the relevance_threshold {case.relevance_threshold:g}: the most similar one has "
                f"{found.hits[0].score:.3f}"
            )
            problems = [RelevanceError(msg), *(one for one in problems if not isinstance(one, RelevanceError))]
        return problems

    def _collection(self, name: str) -> _Collection:
        collection = self._collections.get(name)
        if collection is None:
            msg = f"there is no collection {name!r:.80}; there are {', '.join(sorted(self._collections))}"
            raise CollectionNotFoundError(msg)
        return collection


@dataclass(frozen=True, slots=True)
class _Found:
    """The hits of one search, and the same as results."""

    hits: tuple[Hit, ...]
    results: tuple[RetrievalResult, ...]
    degraded: tuple[Degradation, ...]
    milliseconds: float


@dataclass(frozen=True, slots=True)
class _Collection:
    """An index under the name that queries have for it, and what bounds and repeats its calls."""

    name: str
    index: Index
    calls: Calls

    async def embed(self, run: Run, text: str) -> Vector:
        if self.index.embedder is None:
            msg = "the collection has no embedder, and a similarity search needs the query's vector"
            raise EmbeddingError(msg, text)
        return _value(await QueryEmbedder(self.index.embedder).embed(run, Query(text, text)))

    async def lacking(self, run: Run, documents: Sequence[str]) -> list[str]:
        if not documents:
            return []
        return _value(await run.on("store").call("fetch", documents_lacking, self.index.store, documents))

    async def search(self, run: Run, query: RetrievalQuery, vector: Vector) -> _Found:
        started = time.perf_counter()
        shown = {**asdict(query), "query_vector": f"{vector.size} components"}
        logger.debug("query of %s: %s", self.name, shown)
        condition = None if not query.filters else parse_filter(query.filters)
        candidates, degraded = await self._candidates(run, query.top_k, vector, condition)
        hits, vectors = await self._hits(run, query, candidates)
        if condition is not None:
            seen = map(specification_fields, hits)
            names = (*OTHER_NAMES, *PAYLOAD)
            unknown = await find_unknown_fields(run, self.index.store, condition, seen, known=names)
            if unknown is not None:
                degraded = (*degraded, Degradation("filter", unknown))
                logger.warning("%s: %s", self.name, unknown)
        milliseconds = (time.perf_counter() - started) * 1000
        results = tuple(_result(hit, milliseconds, vectors.get(hit.id), query, degraded) for hit in hits)
        logger.info("%s: %d points in %.1f ms", self.name, len(results), milliseconds)
        for result in results:
            logger.debug("result of %s: %s %.4f %s", self.name, result.id, result.score, dict(result.payload))
        return _Found(hits, results, degraded, milliseconds)

    async def _candidates(
        self, run: Run, top_k: int, vector: Vector, condition: Filter | None
    ) -> tuple[tuple[Candidate, ...], tuple[Degradation, ...]]:
        """Return the best candidates that pass a filter, which may have the specification's names for fields."""
        if condition is None or not uses_other_names(condition):
            return await self._ask(run, SearchRequest(limit=top_k, vector=vector, filter=condition))
        asked = 4 * top_k
        while True:
            request = SearchRequest(limit=asked, vector=vector, filter=widen(condition))
            found, degraded = await self._ask(run, request)
            chunks = (await self._fetch(run, found, with_vectors=False)).chunks
            passing = tuple(
                one
                for one in found
                if one.chunk_id in chunks
                and matches(condition, specification_fields(Hit(chunks[one.chunk_id], 0.0, Scores())))
            )
            if len(passing) >= top_k or len(found) < asked or asked == MOST_COUNTED:
                return passing[:top_k], degraded
            asked = min(4 * asked, MOST_COUNTED)

    async def _ask(self, run: Run, request: SearchRequest) -> tuple[tuple[Candidate, ...], tuple[Degradation, ...]]:
        outcome = await run.on("store").call("dense", self.index.store.search, request)
        if isinstance(outcome, Failed) and isinstance(outcome.error, IncompleteSearchError):
            return outcome.error.found, (Degradation("dense", outcome.reason),)
        return _value(outcome), ()

    async def _fetch(self, run: Run, found: Sequence[Candidate], *, with_vectors: bool) -> Fetched:
        request = FetchRequest(chunk_ids=tuple(one.chunk_id for one in found), with_vectors=with_vectors)
        return _value(await fetch(run, self.index.store, request))

    async def _hits(
        self, run: Run, query: RetrievalQuery, found: Sequence[Candidate]
    ) -> tuple[tuple[Hit, ...], Mapping[str, Vector]]:
        if not found:
            return (), {}
        fetched = await self._fetch(run, found, with_vectors=query.with_vectors)
        hits: list[Hit] = []
        for rank, candidate in enumerate(found, 1):
            score = max(0.0, min(1.0, candidate.score))
            chunk = fetched.chunks.get(candidate.chunk_id)
            if chunk is not None and score >= (query.score_threshold or 0.0):  # it may be gone since it was found
                hits.append(Hit(chunk, score, Scores(dense=score, dense_rank=rank, final=score)))
        return tuple(hits), fetched.vectors

    async def info(self, run: Run) -> CollectionInfo:
        store = self.index.store
        if "describe_collection" in store.capabilities:
            state = _value(await run.on("store").call("describe", store.describe_collection))
            if state is not None:
                distance = cast("Any", state.distance)
                return CollectionInfo(
                    self.name, state.vector_size, distance, state.points, state.indexed_vectors, state.status
                )
        told = _value(await run.on("store").call("describe", store.describe))
        size = 0 if told.manifest is None else told.manifest.dimension or 0
        vectors = told.chunks - told.unembedded
        if vectors == told.chunks:  # or the store does not tell
            vectors = await self._count_vectors(run, told.chunks, size)
        is_complete = not size or vectors == told.chunks
        return CollectionInfo(self.name, size, "Cosine", told.chunks, vectors, "green" if is_complete else "yellow")

    async def _count_vectors(self, run: Run, chunks: int, size: int) -> int:
        """Return how many chunks have a vector: a search by vector finds only these, however far they are.

        Of more than :data:`MOST_COUNTED` chunks, so many are looked at.
        """
        if not size or not chunks:
            return 0
        looked_at = min(chunks, MOST_COUNTED)
        anywhere = as_vectors([1.0, *([0.0] * (size - 1))])
        found, _ = await self._ask(run, SearchRequest(limit=looked_at, vector=anywhere))
        return chunks if len(found) == looked_at else len(found)


def _value(outcome: Ok[T] | Failed) -> T:
    """Return the value of a call, or raise its error by the file's name."""
    try:
        return value_of(outcome)
    except IndexNotFoundError as error:
        raise CollectionNotFoundError(str(error)) from error
    except ServiceTimeoutError as error:
        raise TimeoutError(str(error), error.service, status=error.status) from error
    except ServiceConnectionError as error:
        raise ConnectionError(str(error), error.service, status=error.status) from error


def _result(
    hit: Hit, milliseconds: float, vector: Vector | None, query: RetrievalQuery, degraded: tuple[Degradation, ...]
) -> RetrievalResult:
    return RetrievalResult(
        id=hit.id,
        score=hit.score,
        payload=dict(point_of(hit).payload) if query.with_payload else {},
        vector=None if vector is None else vector.tolist(),
        retrieval_time_ms=milliseconds,
        degraded=degraded,
    )


def _check_text(value: object, name: str) -> None:
    if not isinstance(value, str) or not value.strip():
        msg = f"{name} must be text that is not empty, got {value!r:.80}"
        raise InvalidParameterError(msg)


def _check_share(value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value) or not 0 <= value <= 1:
        msg = f"{name} must be a number from 0.0 to 1.0, got {value!r:.80}"
        raise InvalidParameterError(msg)


def _check_top_k(value: object, most: int) -> None:
    if type(value) is not int or not 1 <= value <= most:
        msg = f"top_k must be a whole number from 1 to {most}, got {value!r:.80}"
        raise InvalidParameterError(msg)
