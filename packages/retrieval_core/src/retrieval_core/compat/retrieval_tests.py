"""The test-suite file's names: queries, results and test cases of similarity search, and a tester that runs them.

::

    from retrieval_core.compat.retrieval_tests import RetrievalTester, TestCase

    with RetrievalTester.at_qdrant("http://localhost:6333", "textbook_embeddings") as tester:
        result = tester.run([TestCase(name="basics", query_text="What is ROS 2?", …)])
    print(result.pass_rate)

All values are dataclasses that :func:`dataclasses.asdict` and :func:`json.dumps` take. Cases run as those of
:mod:`retrieval_core.evaluate.suite`, which also reads suites from files and writes reports.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from retrieval_core.config import load_config
from retrieval_core.config.base import problems_of
from retrieval_core.errors import (
    DimensionMismatchError,
    EmbeddingError,
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
from retrieval_core.evaluate.suite.cases import Case, Expected, FilterObject, Share, Text
from retrieval_core.evaluate.suite.results import CaseStatus, advance_status, build_point, measure_performance
from retrieval_core.evaluate.suite.running import run_case
from retrieval_core.evaluate.suite.targets import IndexTarget
from retrieval_core.index.open import open_index
from retrieval_core.pipeline.lifecycle import Closing
from retrieval_core.pipeline.stages.embed import QueryEmbedder
from retrieval_core.pipeline.stages.judge import find_unknown_fields
from retrieval_core.pipeline.stages.search import fetch
from retrieval_core.ports import Fetched, FetchRequest, SearchRequest
from retrieval_core.run.outcomes import Failed, value_of
from retrieval_core.run.twins import sync_twin
from retrieval_core.types import Degradation, Hit, Query, Scores
from retrieval_core.types import RetrievalResult as SearchedHits
from retrieval_core.types.documents import as_vectors
from retrieval_core.types.filters import And, Filter, Not, Or, all_of, chunk_fields, matches, paths_of
from retrieval_core.types.filters.syntax import parse_filter

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from typing import Self

    from retrieval_core.index.index import Index
    from retrieval_core.ports import Candidate, Embedder
    from retrieval_core.types import JSON, Vector

__all__ = [
    "CollectionInfo", "CollectionNotFoundError", "ConnectionError", "DimensionMismatchError", "EmbeddingError",
    "InvalidParameterError", "MissingDocumentError", "PerformanceError", "RelevanceError", "RetrievalQuery",
    "RetrievalResult", "RetrievalTester", "TestCase", "TestStatus", "TestSuiteResult", "TimeoutError",
]  # fmt: skip

PAYLOAD = ("content", "source_url", "chunk_id", "chunk_index", "total_chunks", "timestamp", "embedding_model")
"""The fields of a payload; one that a collection lacks is absent."""
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
_PASS_WITHOUT_FIELD = frozenset({"$ne", "$nin", "$exists"})
MOST_RESULTS = 100
MOST_TESTED = 10_000
"""Maximum number of results of one search in every store."""
EMBEDDING_MODEL = "embed-multilingual-v3.0"
TestStatus = CaseStatus

logger = logging.getLogger(__name__)


class CollectionNotFoundError(IndexNotFoundError):
    """The collection of a query or of a test case does not exist."""


class ConnectionError(ServiceConnectionError):  # noqa: A001 - the file's name
    """The collection's service cannot be reached, after all attempts."""


class TimeoutError(ServiceTimeoutError):  # noqa: A001 - the file's name
    """The collection's service timed out, or the query exceeded its deadline."""


@contextmanager
def _rename_errors() -> Generator[None]:
    """Raise errors by the file's names."""
    try:
        yield
    except IndexNotFoundError as error:
        raise CollectionNotFoundError(str(error)) from error
    except ServiceTimeoutError as error:
        raise TimeoutError(str(error), error.service, status=error.status) from error
    except ServiceConnectionError as error:
        raise ConnectionError(str(error), error.service, status=error.status) from error


class _Fields(BaseModel):
    """The ranges of all fields, by name."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    name: Text = "-"
    query_text: Text = "-"
    collection_name: Text = "-"
    expected_doc_ids: list[Text] = []
    expected_keywords: list[Text] = []
    relevance_threshold: Share = 0.0
    top_k: Annotated[int, Field(ge=1, le=MOST_RESULTS)] = 10
    score_threshold: Share | None = None
    filters: FilterObject | None = None
    id: Text | int = 0
    score: Share = 0.0
    vector_size: NonNegativeInt = 0
    points_count: NonNegativeInt = 0
    indexed_vectors_count: NonNegativeInt = 0

    @classmethod
    def check(cls, values: object) -> None:
        """Check the fields of a value, such as a query.

        Raises:
            InvalidParameterError: A field is outside of its range.
        """
        try:
            cls.model_validate(vars(values))
        except ValidationError as error:
            raise InvalidParameterError("; ".join(problems_of(error))) from error


@dataclass(frozen=True)
class RetrievalQuery:
    """A query by vector. The collection checks the vector when it is searched.

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
        _Fields.check(self)


@dataclass
class RetrievalResult:
    """A point that was found.

    Raises:
        InvalidParameterError: The ID is empty, or the score is not in [0, 1].
    """

    id: str | int
    score: float
    payload: dict[str, Any]
    vector: list[float] | None = None
    retrieval_time_ms: float = 0.0
    degraded: tuple[Degradation, ...] = ()
    """Degraded stages, with their fallbacks, and warnings about the filter."""

    def __post_init__(self) -> None:
        _Fields.check(self)


@dataclass
class TestCase:
    """A query with its expected results. Its ``status`` goes from pending to running, then to the outcome.

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
        _Fields.check(self)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "status":
            if value not in list(TestStatus):
                msg = f"status must be one of {', '.join(TestStatus)}, got {value!r:.80}"
                raise InvalidParameterError(msg)
            value = advance_status(self.status, TestStatus(value)) if "status" in self.__dict__ else TestStatus(value)
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
        counts = (self.passed, self.failed, self.errors)
        if self.total_tests != sum(counts) or min(counts) < 0:
            msg = f"total_tests must be the sum of passed, failed and errors {counts}, got {self.total_tests}"
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
        _Fields.check(self)


class RetrievalTester(Closing):
    """Searches collections by vector, and runs test cases on them.

    Each method has an asynchronous twin whose name begins with ``a``, such as :meth:`asearch`. Searches have the
    deadline and the retries of their collection's settings.

    Args:
        collections: Indexes with an embedder, by the names that queries and cases use. The caller closes them.
        latency_ms: Maximum latency of a search. A slower case fails with a :class:`PerformanceError`.

    Raises:
        InvalidParameterError: There is no collection.
    """

    def __init__(self, collections: Mapping[str, Index], *, latency_ms: float | None = None) -> None:
        if not collections:
            msg = "there must be one collection at least, as {'name': index}"
            raise InvalidParameterError(msg)
        self._collections = {name: _Collection(index) for name, index in collections.items()}
        self._latency_ms = latency_ms
        self._owned: tuple[Index, ...] = ()
        self.sync = next(iter(collections.values())).sync

    @classmethod
    def at_qdrant(
        cls,
        url: str,
        collection_name: str,
        *,
        api_key: str | None = None,
        embedding_model: str = EMBEDDING_MODEL,
        embedder: Embedder | None = None,
        latency_ms: float | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Self:
        """Open a Qdrant collection with the payload of the specification; close the tester to disconnect.

        Args:
            url: Address of the server, such as ``http://localhost:6333``.
            collection_name: Name of the collection, such as ``textbook_embeddings``.
            api_key: API key of the server. Default: the environment variable ``QDRANT_API_KEY``.
            embedding_model: The model of Cohere that embedded the collection. Its API key is the environment
                variable ``CO_API_KEY``.
            embedder: Your own embedder instead of Cohere's.
            latency_ms: Maximum latency of a search. A slower case fails with a :class:`PerformanceError`.
            settings: Further settings by their keys, such as ``{"deadline_seconds": 5}``.

        Raises:
            ConnectionError: The server cannot be reached.
            TimeoutError: The server did not answer in time.
            CollectionNotFoundError: The server has no such collection.
            DimensionMismatchError: The vectors of the collection have another dimension than those of the embedder.
            ConfigurationError: A setting is invalid, or an API key is missing.

        Example::

            with RetrievalTester.at_qdrant("http://localhost:6333", "textbook_embeddings") as tester:
                print(tester.info("textbook_embeddings").points_count)
        """
        given = {
            "cache.kind": "none",
            "embedder.kind": "cohere",
            "embedder.cohere.model": embedding_model,
            "store.kind": "qdrant",
            "store.qdrant.url": url,
            "store.qdrant.collection": collection_name,
            "store.qdrant.fields": "default",
            **({} if api_key is None else {"store.qdrant.api_key": api_key}),
            **(settings or {}),
        }
        index = open_index(config=load_config(overrides=given, environment=os.environ), embedder=embedder)
        tester = cls({collection_name: index}, latency_ms=latency_ms)
        tester._owned = (index,)
        with ExitStack() as stack:  # closes it if it is of no use
            stack.callback(tester.close)
            with _rename_errors():
                size = index.sync.run(tester._collection(collection_name).info(collection_name)).vector_size
            dimension = cast("Embedder", index.embedder).dimension
            if size != dimension:
                raise DimensionMismatchError(size, dimension, f"the collection {collection_name!r}")
            stack.pop_all()
        return tester

    async def aclose(self) -> None:
        """Close the collections that :meth:`at_qdrant` opened."""
        for index in self._owned:
            await index.aclose()

    def close(self) -> None:
        """Close the collections that :meth:`at_qdrant` opened."""
        for index in self._owned:
            index.close()

    async def aembed(self, collection_name: str, query_text: str) -> list[float]:
        """Return the vector of a query, from the collection's own embedder.

        Raises:
            CollectionNotFoundError: There is no such collection.
            EmbeddingError: The query could not be embedded.
        """
        return (await self._collection(collection_name).embed(query_text)).tolist()

    embed = sync_twin(aembed)

    async def asearch(self, query: RetrievalQuery) -> list[RetrievalResult]:
        """Return the points nearest to a vector, the most similar first.

        Raises:
            CollectionNotFoundError: There is no such collection.
            DimensionMismatchError: Its vectors have another dimension.
            InvalidParameterError: The vector has a component that is not a finite number.
            ConnectionError: The collection's service cannot be reached.
            TimeoutError: It did not answer in time.
        """
        collection = self._collection(query.collection_name)
        with _rename_errors():
            return await collection.search(query)

    search = sync_twin(asearch)

    async def arun(self, cases: Sequence[TestCase]) -> TestSuiteResult:
        """Run test cases one after the other, and return them with their outcomes, in their order.

        The given cases stay as they are. A case that expects a document which its collection does not contain ends as
        an error.

        Raises:
            InvalidParameterError: Two cases have one name, or one was run already.
        """
        names = [case.name for case in cases]
        if twice := [name for number, name in enumerate(names) if name in names[:number]]:
            msg = f"two test cases have the name {twice[0]!r}; names are unique in a suite"
            raise InvalidParameterError(msg)
        began, started = datetime.now(UTC), time.perf_counter()
        ended = [await self._run(replace(case)) for case in cases]
        counts = Counter(case.status for case in ended)
        times = [case.actual_results[0].retrieval_time_ms for case in ended if case.actual_results]
        return TestSuiteResult(
            total_tests=len(ended),
            passed=counts[TestStatus.PASSED],
            failed=counts[TestStatus.FAILED],
            errors=counts[TestStatus.ERROR],
            execution_time_ms=(time.perf_counter() - started) * 1000,
            test_results=ended,
            performance_metrics=asdict(measure_performance(times)),
            timestamp=began.isoformat(),
            degraded=tuple(dict.fromkeys(entry for case in ended for entry in case.degraded)),
        )

    run = sync_twin(arun, seconds=None)

    async def _run(self, case: TestCase) -> TestCase:
        case.status = TestStatus.RUNNING
        try:
            collection = self._collection(case.collection_name)
        except CollectionNotFoundError as error:
            case.status, case.error_message = TestStatus.ERROR, f"CollectionNotFoundError: {error}"
            return case
        asked = Case(
            name="case",
            query=case.query_text,
            top_k=case.top_k,
            expect=Expected(documents=dict.fromkeys(case.expected_doc_ids, 1), keywords=case.expected_keywords),
            relevance_threshold=case.relevance_threshold,
            latency_ms=self._latency_ms,
        )
        ended = await run_case(collection, asked)
        if (took := ended.retrieval_time_ms) is not None:
            case.actual_results = [
                RetrievalResult(each.id, each.score or 0.0, dict(each.payload), None, took, ended.degraded)
                for each in ended.points
            ]
        case.error_message = "; ".join(f"{each.error}: {each.message}" for each in ended.problems) or None
        case.status, case.degraded = ended.status, ended.degraded
        logger.info("%s: %s: %s", case.name, case.status, case.error_message)
        return case

    async def ainfo(self, collection_name: str) -> CollectionInfo:
        """Return size, distance, status and counts of a collection.

        Raises:
            CollectionNotFoundError: There is no such collection.
        """
        collection = self._collection(collection_name)
        try:
            with _rename_errors():
                return await collection.info(collection_name)
        except CollectionNotFoundError:
            raise
        except RetrievalError as error:
            logger.warning("the collection %s cannot be read: %s", collection_name, error)
            return CollectionInfo(collection_name, 0, "Cosine", 0, 0, "red")

    info = sync_twin(ainfo)

    def _collection(self, name: str) -> _Collection:
        if name not in self._collections:
            msg = f"there is no collection {name!r:.80}; there are {', '.join(sorted(self._collections))}"
            raise CollectionNotFoundError(msg)
        return self._collections[name]


class _Collection(IndexTarget):
    """An index that is searched by vector only."""

    async def embed(self, text: str) -> Vector:
        if self.index.embedder is None:
            msg = "the collection has no embedder, and a similarity search needs the query's vector"
            raise EmbeddingError(msg, text)
        return value_of(await QueryEmbedder(self.index.embedder).embed(self.calls.begin(), Query(text, text)))

    async def retrieve(self, case: Case) -> SearchedHits:
        return await self._find(await self.embed(case.query), case.top_k)

    async def search(self, query: RetrievalQuery) -> list[RetrievalResult]:
        vector = as_vectors(query.query_vector)
        logger.debug("query: %s", {**asdict(query), "query_vector": f"{vector.size} components"})
        found = await self._find(vector, query.top_k, parse_filter(query.filters) if query.filters else None)
        hits = [hit for hit in found.hits if hit.score >= (query.score_threshold or 0.0)]
        ids = tuple(hit.id for hit in hits) if query.with_vectors else ()
        fetched = await self.read(FetchRequest(chunk_ids=ids, with_vectors=True)) if ids else Fetched()
        vectors = {name: vector.tolist() for name, vector in fetched.vectors.items()}
        payloads = {hit.id: dict(build_point(hit).payload) for hit in hits} if query.with_payload else {}
        results = [
            RetrievalResult(
                hit.id, hit.score, payloads.get(hit.id, {}), vectors.get(hit.id), found.latency_ms, found.degraded
            )
            for hit in hits
        ]
        logger.debug("results: %s", results)
        return results

    async def _find(self, vector: Vector, top_k: int, condition: Filter | None = None) -> SearchedHits:
        """Return the best hits that pass a filter, which may have the specification's names for fields."""
        started = time.perf_counter()
        run, store = self.calls.begin().on("store"), self.index.store
        is_renamed = condition is not None and not paths_of(condition).isdisjoint(OTHER_NAMES)
        limit = top_k
        while True:
            request = SearchRequest(limit=limit, vector=vector, filter=condition and widen_filter(condition))
            outcome = await run.call("dense", store.search, request)
            degraded = (Degradation("dense", outcome.reason),) if isinstance(outcome, Failed) else ()
            error = outcome.error if isinstance(outcome, Failed) else None
            found: Sequence[Candidate] = error.found if isinstance(error, IncompleteSearchError) else value_of(outcome)
            fetched = await fetch(run, store, FetchRequest(chunk_ids=tuple(one.chunk_id for one in found)))
            chunks = value_of(fetched).chunks
            scores = {one.chunk_id: max(0.0, min(1.0, one.score)) for one in found if one.chunk_id in chunks}
            hits = [Hit(chunks[name], score, Scores(dense=score, final=score)) for name, score in scores.items()]
            if is_renamed:
                hits = [hit for hit in hits if matches(condition, list_fields(hit))]
            if len(hits) >= top_k or len(found) < limit:
                break
            if limit == MOST_TESTED:
                degraded = (*degraded, Degradation("filter", f"only the {limit:,} nearest chunks were tested"))
                break
            limit = min(10 * limit, MOST_TESTED)
        if condition is not None:
            seen, known = map(list_fields, hits), (*OTHER_NAMES, *PAYLOAD)
            if unknown := await find_unknown_fields(run, store, condition, seen, known=known):
                degraded = (*degraded, Degradation("filter", unknown))
        for entry in degraded:  # without results, nothing else reports it
            logger.warning("%s: %s", entry.stage, entry.reason)
        took = (time.perf_counter() - started) * 1000
        return SearchedHits("", tuple(hits[:top_k]), "", {}, took, degraded=degraded)

    async def info(self, name: str) -> CollectionInfo:
        store, run = self.index.store, self.calls.begin().on("store")
        if "describe_collection" in store.capabilities:
            state = value_of(await run.call("describe", store.describe_collection))
            if state is not None:
                counts = (state.points, state.indexed_vectors)
                return CollectionInfo(name, state.vector_size, cast("Any", state.distance), *counts, state.status)
        told = value_of(await run.call("describe", store.describe))
        size = 0 if told.manifest is None else told.manifest.dimension or 0
        vectors = told.chunks - told.unembedded if size else 0
        return CollectionInfo(name, size, "Cosine", told.chunks, vectors, "yellow" if told.unembedded else "green")


def widen_filter(condition: Filter) -> Filter | None:
    """Return a filter in a store's names that passes every chunk which the given one passes; ``None`` for no filter.

    Results still have to be tested with the given filter, see :func:`list_fields`.
    """
    if paths_of(condition).isdisjoint(OTHER_NAMES):
        return condition
    if isinstance(condition, And):
        return all_of(*map(widen_filter, condition.filters))
    if isinstance(condition, (Or, Not)) or condition.operator in _PASS_WITHOUT_FIELD:
        return None
    names = OTHER_NAMES[condition.field]
    return Or((condition, *(replace(condition, field=name) for name in names))) if names else None


def list_fields(hit: Hit) -> dict[str, JSON]:
    """Return the fields of a hit under the names of stores and of the specification."""
    fields: dict[str, Any] = {**chunk_fields(hit.chunk), **build_point(hit).payload}
    for name, places in OTHER_NAMES.items():
        if name not in fields:
            fields[name] = next((fields[place] for place in places if fields.get(place) is not None), None)
    return fields
