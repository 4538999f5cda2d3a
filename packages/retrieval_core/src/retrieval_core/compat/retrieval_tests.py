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
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from retrieval_core.errors import (
    DimensionMismatchError,
    EmbeddingError,
    ExpectationError,
    IndexNotFoundError,
    InvalidParameterError,
    MissingDocumentError,
    NotYetEmbeddedError,
    PerformanceError,
    RelevanceError,
    RetrievalError,
    SearchError,
    ServiceConnectionError,
    ServiceTimeoutError,
    as_embedding_error,
)
from retrieval_core.evaluate.suite.cases import Case, Expected
from retrieval_core.evaluate.suite.judging import Texts, judged
from retrieval_core.evaluate.suite.results import CaseStatus, advanced, performance_of, point_of
from retrieval_core.evaluate.suite.targets import documents_lacking
from retrieval_core.ports import FetchRequest, SearchRequest
from retrieval_core.types import Hit, Scores
from retrieval_core.types.filters.syntax import parse_filter
from retrieval_core.types.vectors import as_vectors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.index.index import Index
    from retrieval_core.types import Vector

__all__ = [
    "CollectionInfo", "CollectionNotFoundError", "ConnectionError", "DimensionMismatchError", "EmbeddingError",
    "InvalidParameterError", "MissingDocumentError", "PerformanceError", "RelevanceError", "RetrievalQuery",
    "RetrievalResult", "RetrievalTester", "TestCase", "TestStatus", "TestSuiteResult", "TimeoutError",
]  # fmt: skip

TestStatus = CaseStatus
CollectionNotFoundError = IndexNotFoundError
ConnectionError = ServiceConnectionError  # noqa: A001 - the file's name
TimeoutError = ServiceTimeoutError  # noqa: A001 - likewise

PAYLOAD = ("content", "source_url", "chunk_id", "chunk_index", "total_chunks", "timestamp", "embedding_model")
"""What every payload has."""
MOST_RESULTS = 100
MOST_COUNTED = 10_000
"""What one search can return in every store."""

logger = logging.getLogger(__name__)


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
    """What became of several test cases.

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

    @property
    def pass_rate(self) -> float:
        """Percentage of the cases that passed; 0 where there is none."""
        return 100 * self.passed / self.total_tests if self.total_tests else 0.0

    @property
    def failure_rate(self) -> float:
        """Percentage of the cases that failed; 0 where there is none."""
        return 100 * self.failed / self.total_tests if self.total_tests else 0.0


@dataclass(frozen=True)
class CollectionInfo:
    """What a collection holds: ``green`` is complete, ``yellow`` lacks vectors, ``red`` cannot be read.

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

    Every method exists twice: as it is, and with an ``a`` before its name as a coroutine function.

    Args:
        collections: Indexes with an embedder by the names that queries and cases have for them; the caller closes them.
        latency_ms: What a search may take; a case that takes longer fails with a :class:`PerformanceError`.

    Raises:
        InvalidParameterError: There is no collection.
    """

    def __init__(self, collections: Mapping[str, Index], *, latency_ms: float | None = None) -> None:
        if not collections:
            msg = "there must be one collection at least, as {'name': index}"
            raise InvalidParameterError(msg)
        self._collections = dict(collections)
        self._latency_ms = latency_ms
        self._sync = next(iter(self._collections.values())).sync

    def embed(self, collection_name: str, query_text: str) -> list[float]:
        """Return the vector of a question; see :meth:`aembed`."""
        return self._sync.run(self.aembed(collection_name, query_text))

    async def aembed(self, collection_name: str, query_text: str) -> list[float]:
        """Return the vector of a question, by the collection's own embedder.

        Raises:
            CollectionNotFoundError: There is no such collection.
            EmbeddingError: The question could not be embedded.
        """
        return (await self._vector(self._collection(collection_name), query_text)).tolist()

    def search(self, query: RetrievalQuery) -> list[RetrievalResult]:
        """Return what is nearest to a vector; see :meth:`asearch`."""
        return self._sync.run(self.asearch(query))

    async def asearch(self, query: RetrievalQuery) -> list[RetrievalResult]:
        """Return what is nearest to a vector, the most similar first.

        Raises:
            CollectionNotFoundError: There is no such collection.
            DimensionMismatchError: Its vectors have another number of components.
            InvalidParameterError: The vector has something that is no finite number.
            SearchError: A point that was found has not what every point has.
            ServiceConnectionError: The collection's service cannot be reached.
            ServiceTimeoutError: It did not answer in time.
        """
        started = time.perf_counter()
        hits, vectors = await self._hits(query, as_vectors(query.query_vector))
        milliseconds = (time.perf_counter() - started) * 1000
        found = [_result(hit, milliseconds, vectors.get(hit.id), query) for hit in hits]
        logger.info("%s: %d points in %.1f ms", query.collection_name, len(found), milliseconds)
        return found

    def run(self, cases: Sequence[TestCase]) -> TestSuiteResult:
        """Run test cases; see :meth:`arun`."""
        return self._sync.run(self.arun(cases), seconds=None)

    async def arun(self, cases: Sequence[TestCase]) -> TestSuiteResult:
        """Run test cases one after the other, and return them as they ended, in their order.

        The cases given stay as they are. One that expects a document which its collection does not hold, or a threshold
        that no passage of it reaches, ends as an error.

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
        )

    def info(self, collection_name: str) -> CollectionInfo:
        """Return what a collection holds; see :meth:`ainfo`."""
        return self._sync.run(self.ainfo(collection_name))

    async def ainfo(self, collection_name: str) -> CollectionInfo:
        """Return what a collection holds.

        Raises:
            CollectionNotFoundError: There is no such collection.
        """
        index = self._collection(collection_name)
        try:
            told = await index.adescribe()
            size = 0 if told.manifest is None else told.manifest.dimension or 0
            vectors = told.chunks - told.unembedded
            if vectors == told.chunks:  # or the store does not tell
                vectors = await _vectors_of(index, told.chunks, size)
        except IndexNotFoundError:
            raise
        except RetrievalError as error:
            logger.warning("the collection %s cannot be read: %s", collection_name, error)
            return CollectionInfo(collection_name, 0, "Cosine", 0, 0, "red")
        is_complete = not size or vectors == told.chunks
        return CollectionInfo(
            collection_name, size, "Cosine", told.chunks, vectors, "green" if is_complete else "yellow"
        )

    async def _run(self, case: TestCase) -> TestCase:
        case.status = TestStatus.RUNNING
        try:
            problems = await self._problems(case)
        except RetrievalError as error:
            problems = [error]
        if not problems:
            case.status = TestStatus.PASSED
            return case
        have_failed = all(isinstance(problem, ExpectationError) for problem in problems)
        case.error_message = "; ".join(f"{type(problem).__name__}: {problem}" for problem in problems)
        case.status = TestStatus.FAILED if have_failed else TestStatus.ERROR
        logger.info("%s: %s: %s", case.name, case.status, case.error_message)
        return case

    async def _problems(self, case: TestCase) -> list[RetrievalError]:
        index = self._collection(case.collection_name)
        if absent := await documents_lacking(index.store, case.expected_doc_ids):
            msg = f"{case.collection_name} does not hold {', '.join(map(repr, absent))}"
            return [InvalidParameterError(msg)]
        vector = await self._vector(index, case.query_text)
        query = RetrievalQuery(case.collection_name, [], case.top_k)
        started = time.perf_counter()
        hits, vectors = await self._hits(query, vector)
        milliseconds = (time.perf_counter() - started) * 1000
        case.actual_results = [_result(hit, milliseconds, vectors.get(hit.id), query) for hit in hits]
        if hits and hits[0].score < case.relevance_threshold:
            msg = (
                f"no passage reaches the relevance_threshold {case.relevance_threshold:g}: the most similar one has "
                f"{hits[0].score:.3f}"
            )
            return [InvalidParameterError(msg)]
        expected = Expected(documents=dict.fromkeys(case.expected_doc_ids, 1), keywords=case.expected_keywords)
        asked = Case(
            name="case",
            query=case.query_text,
            top_k=case.top_k,
            expect=expected,
            relevance_threshold=case.relevance_threshold,
            latency_ms=self._latency_ms,
        )
        return list(judged(asked, Texts(hits), milliseconds))

    def _collection(self, name: str) -> Index:
        index = self._collections.get(name)
        if index is None:
            msg = f"there is no collection {name!r:.80}; there are {', '.join(sorted(self._collections))}"
            raise CollectionNotFoundError(msg)
        return index

    async def _vector(self, index: Index, text: str) -> Vector:
        if index.embedder is None:
            msg = "the collection has no embedder, and a similarity search needs the question's vector"
            raise EmbeddingError(msg, text)
        try:
            return await index.embedder.embed_query(text)
        except Exception as error:
            raise as_embedding_error(error, "the question", text) from error

    async def _hits(self, query: RetrievalQuery, vector: Vector) -> tuple[list[Hit], Mapping[str, Vector]]:
        store = self._collection(query.collection_name).store
        condition = None if query.filters is None else parse_filter(query.filters)
        try:
            found = await store.search(SearchRequest(limit=query.top_k, vector=vector, filter=condition))
        except NotYetEmbeddedError as error:  # the collection is yellow
            found = error.found
        ids = tuple(candidate.chunk_id for candidate in found)
        fetched = await store.fetch(FetchRequest(chunk_ids=ids, with_vectors=query.with_vectors))
        hits: list[Hit] = []
        for rank, candidate in enumerate(found, 1):
            score = max(0.0, min(1.0, candidate.score))
            chunk = fetched.chunks.get(candidate.chunk_id)
            if chunk is not None and score >= (query.score_threshold or 0.0):  # it may be gone since it was found
                hits.append(Hit(chunk, score, Scores(dense=score, dense_rank=rank, final=score)))
        return hits, fetched.vectors


async def _vectors_of(index: Index, chunks: int, size: int) -> int:
    """Return how many of an index's chunks have a vector: a search by vector finds these alone, however far they are.

    Of more than :data:`MOST_COUNTED` chunks, so many are looked at.
    """
    if not size or not chunks:
        return 0
    looked_at = min(chunks, MOST_COUNTED)
    anywhere = as_vectors([1.0, *([0.0] * (size - 1))])
    found = len(await index.store.search(SearchRequest(limit=looked_at, vector=anywhere)))
    return chunks if found == looked_at else found


def _result(hit: Hit, milliseconds: float, vector: Vector | None, query: RetrievalQuery) -> RetrievalResult:
    payload = dict(point_of(hit).payload)
    lacking = [name for name in PAYLOAD if payload.get(name) in (None, "")]
    if lacking:
        msg = f"the point {hit.id!r:.100} lacks {', '.join(lacking)} in its payload"
        raise SearchError(msg, {"id": hit.id})
    return RetrievalResult(
        id=hit.id,
        score=hit.score,
        payload=payload if query.with_payload else {},
        vector=None if vector is None else vector.tolist(),
        retrieval_time_ms=milliseconds,
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
