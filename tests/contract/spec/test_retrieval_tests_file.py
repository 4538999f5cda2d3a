"""The test-suite file: its examples and declarations hold, and both of its flows do what it says, step by step."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, asdict, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from retrieval_core import open_index
from retrieval_core.compat import retrieval_tests as module
from retrieval_core.compat.retrieval_tests import (
    CollectionInfo,
    CollectionNotFoundError,
    ConnectionError,  # noqa: A004 - the file's name
    DimensionMismatchError,
    EmbeddingError,
    InvalidParameterError,
    MissingDocumentError,
    PerformanceError,
    RelevanceError,
    RetrievalQuery,
    RetrievalResult,
    RetrievalTester,
    TestCase,
    TestStatus,
    TestSuiteResult,
    TimeoutError,  # noqa: A004 - the file's name
)
from retrieval_core.config import load_config
from retrieval_core.errors import IndexFormatError, ServiceConnectionError, ServiceTimeoutError
from retrieval_core.ports import Change
from retrieval_core.testing.fakes import FakeEmbedder
from support.declarations import declared, differences
from support.suites import chunks, small_index

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core import Index

DECLARED = declared("""
from dataclasses import dataclass
from enum import Enum

@dataclass
class RetrievalQuery:
    collection_name: str
    query_vector: List[float]
    top_k: int = 10
    score_threshold: Optional[float] = None
    filters: Optional[Dict] = None
    with_vectors: bool = False
    with_payload: bool = True

@dataclass
class RetrievalResult:
    id: Union[str, int]
    score: float
    payload: Dict[str, Any]
    vector: Optional[List[float]] = None
    retrieval_time_ms: float = 0.0

@dataclass
class TestCase:
    name: str
    query_text: str
    collection_name: str
    expected_doc_ids: List[str]
    expected_keywords: List[str]
    relevance_threshold: float
    top_k: int = 10
    status: object = "pending"
    actual_results: Optional[List[RetrievalResult]] = None
    error_message: Optional[str] = None
""")
EXAMPLES = """
query = RetrievalQuery(
    collection_name="textbook_embeddings",
    query_vector=[0.1, 0.2, ..., 0.5],  # 1024 dimensions
    top_k=10,
    score_threshold=0.7,
    filters={"source_url": "https://example.com/chapter1"},
    with_vectors=False,
    with_payload=True
)
result = RetrievalResult(
    id="uuid-1234-5678",
    score=0.92,
    vector=None,  # Not included in this example
    payload={
        "content": "ROS 2 is a robot operating system framework...",
        "source_url": "https://example.com/ros2-intro",
        "chunk_id": 3,
        "chunk_index": 2,
        "total_chunks": 10,
        "timestamp": "2025-12-10T15:30:00",
        "embedding_model": "embed-multilingual-v3.0"
    },
    retrieval_time_ms=45.2
)
test_case = TestCase(
    name="test_ros2_basics_query",
    query_text="What is ROS 2 and how does it work?",
    collection_name="textbook_embeddings",
    expected_doc_ids=["doc_ros2_intro", "doc_ros2_architecture"],
    expected_keywords=["ROS 2", "robot", "operating system", "framework"],
    relevance_threshold=0.7,
    top_k=5,
    status="pending",
    actual_results=None,
    error_message=None
)
test_case1 = test_case2 = test_case
suite_result = TestSuiteResult(
    total_tests=10,
    passed=9,
    failed=1,
    errors=0,
    execution_time_ms=5432.1,
    test_results=[test_case1, test_case2, ...],
    performance_metrics={
        "avg_retrieval_time_ms": 234.5,
        "p95_retrieval_time_ms": 450.2,
        "max_retrieval_time_ms": 502.8
    },
    timestamp="2025-12-12T14:30:00"
)
collection_info = CollectionInfo(
    name="textbook_embeddings",
    vector_size=1024,
    distance_metric="Cosine",
    points_count=5432,
    indexed_vectors_count=5432,
    status="green"
)
"""
CALVES = "stripes and spots of a tapir calf"
STORES = {
    "memory": {},
    "sqlite": {"store__kind": "sqlite"},
    "lancedb": {"store__kind": "lancedb"},
    "qdrant": {"store__kind": "qdrant"},
}


@pytest.fixture(params=STORES)
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Index]:
    settings = STORES[request.param]
    if request.param == "lancedb":
        pytest.importorskip("lancedb")
    if request.param == "qdrant":
        pytest.importorskip("qdrant_client")
        settings = {**settings, "store__qdrant__path": str(tmp_path / "qdrant")}
    with small_index(tmp_path, **settings) as opened:
        yield opened


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Index]:
    with small_index(tmp_path) as opened:
        yield opened


def case(**changes: Any) -> TestCase:
    given: dict[str, Any] = {
        "name": "calves",
        "query_text": CALVES,
        "collection_name": "pages",
        "expected_doc_ids": ["tapirs.md"],
        "expected_keywords": ["calf"],
        "relevance_threshold": 0.3,
    }
    return TestCase(**{**given, **changes})


@pytest.mark.parametrize("name", DECLARED)
def test_every_declaration_of_the_file_holds(name: str) -> None:
    assert differences(DECLARED[name], module) == []


def test_the_examples_run_as_they_stand_and_are_json() -> None:
    names: dict[str, Any] = {name: getattr(module, name) for name in module.__all__}
    exec(EXAMPLES, names)
    assert names["test_case"].status is TestStatus.PENDING
    assert (names["suite_result"].pass_rate, names["suite_result"].failure_rate) == (90.0, 10.0)
    for name in ("result", "test_case", "collection_info"):
        assert json.loads(json.dumps(asdict(names[name])))
    assert json.dumps(asdict(replace(names["query"], query_vector=[0.1])))


def test_pytest_leaves_the_files_names_alone() -> None:
    assert not any(kind.__test__ for kind in (TestCase, TestStatus, TestSuiteResult))
    assert [status.value for status in TestStatus] == ["pending", "running", "passed", "failed", "error"]


def test_a_query_cannot_be_changed() -> None:
    query = RetrievalQuery("pages", [1.0])
    with pytest.raises(FrozenInstanceError):
        query.top_k = 5  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "wrong",
    [
        {"top_k": 0}, {"top_k": 101}, {"top_k": True}, {"top_k": 1.5}, {"score_threshold": -0.1},
        {"score_threshold": 1.1}, {"score_threshold": float("nan")}, {"filters": {"x": {"$no": 1}}},
        {"collection_name": " "},
    ],
)  # fmt: skip
def test_a_query_has_bounds(wrong: dict[str, Any]) -> None:
    given: dict[str, Any] = {"collection_name": "pages", "query_vector": [1.0], **wrong}
    with pytest.raises(InvalidParameterError):
        RetrievalQuery(**given)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""}, {"query_text": "  "}, {"collection_name": ""}, {"relevance_threshold": 1.01},
        {"relevance_threshold": -1}, {"top_k": 0}, {"top_k": 101}, {"status": "done"},
    ],
)  # fmt: skip
def test_a_case_has_bounds(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError):
        case(**wrong)


@pytest.mark.parametrize("wrong", [{"id": ""}, {"id": True}, {"id": 1.5}, {"score": 1.1}, {"score": -0.1}])
def test_a_result_has_bounds(wrong: dict[str, Any]) -> None:
    given: dict[str, Any] = {"id": "a", "score": 0.5, "payload": {}, **wrong}
    with pytest.raises(InvalidParameterError):
        RetrievalResult(**given)


@pytest.mark.parametrize("counts", [(3, 1, 1, 0), (1, 2, -1, 0), (0, 0, 0, 1)])
def test_counts_of_a_suite_add_up(counts: tuple[int, int, int, int]) -> None:
    with pytest.raises(InvalidParameterError):
        TestSuiteResult(*counts, 1.0, [])


def test_rates_of_no_test_are_0() -> None:
    none = TestSuiteResult(0, 0, 0, 0, 0.0, [])
    assert (none.pass_rate, none.failure_rate) == (0.0, 0.0)


@pytest.mark.parametrize("field", ["vector_size", "points_count", "indexed_vectors_count"])
def test_a_collection_counts_from_0(field: str) -> None:
    given = {"vector_size": 1, "points_count": 1, "indexed_vectors_count": 1, field: -1}
    with pytest.raises(InvalidParameterError):
        CollectionInfo("a", distance_metric="Cosine", status="green", **given)


@pytest.mark.parametrize(("status", "to"), list(product(TestStatus, TestStatus)))
def test_the_status_of_a_case_goes_one_way(status: TestStatus, to: TestStatus) -> None:
    tested = case(status=status.value)
    legal = (status, to) == ("pending", "running") or (status == "running" and to in {"passed", "failed", "error"})
    if legal:
        tested.status = to
        assert tested.status is to
    else:
        with pytest.raises(InvalidParameterError, match="cannot become"):
            tested.status = to


def test_similarity_search_step_by_step(index: Index) -> None:
    """From the question's text to results with scores and payload."""
    tester = RetrievalTester({"pages": index})
    vector = tester.embed("pages", CALVES)
    assert len(vector) == 256
    query = RetrievalQuery("pages", vector, top_k=3, with_vectors=True)
    results = tester.search(query)
    assert results[0].id == "tapirs.md#1"
    scores = [result.score for result in results]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    payload = results[0].payload
    assert payload["content"] == "A tapir calf has stripes and spots."
    assert set(module.PAYLOAD) <= set(payload)
    assert (payload["chunk_index"], payload["total_chunks"], payload["embedding_model"]) == (1, 2, "fake-words-256")
    assert payload["timestamp"] == "2026-01-02T00:00:00+00:00"
    assert results[0].vector is not None
    assert np.dot(results[0].vector, vector) == pytest.approx(results[0].score, abs=1e-5)
    assert results[0].retrieval_time_ms > 0
    json.dumps([asdict(result) for result in results])


def test_vectors_and_payload_come_as_asked(memory: Index) -> None:
    tester = RetrievalTester({"pages": memory})
    vector = tester.embed("pages", CALVES)
    plain = tester.search(RetrievalQuery("pages", vector, with_payload=False))
    assert {(result.vector, len(result.payload)) for result in plain} == {(None, 0)}
    near = tester.search(RetrievalQuery("pages", vector, score_threshold=0.5))
    assert near
    assert all(result.score >= 0.5 for result in near)
    owls = tester.search(RetrievalQuery("pages", vector, filters={"kind": "owls"}))
    assert [result.id for result in owls] == ["owls.md#0"]


def test_test_execution_step_by_step(index: Index) -> None:
    """Each case is asked, judged and counted; what was given stays as it was."""
    tester = RetrievalTester({"pages": index})
    cases = [
        case(),
        case(name="keyword", expected_keywords=["zebra"]),
        case(name="missing", expected_doc_ids=["bread.md"], top_k=1),
        case(name="absent", expected_doc_ids=["absent.md"]),
        case(name="too high", relevance_threshold=1.0),
        case(name="below", expected_doc_ids=["owls.md"], relevance_threshold=0.5),
        case(name="nowhere", collection_name="none"),
    ]
    result = tester.run(cases)
    ended = {
        tested.name: (tested.status.value, (tested.error_message or "").split(":")[0]) for tested in result.test_results
    }
    assert ended == {
        "calves": ("passed", ""),
        "keyword": ("failed", "ExpectationError"),
        "missing": ("failed", "MissingDocumentError"),
        "absent": ("error", "InvalidParameterError"),
        "too high": ("failed", "RelevanceError"),
        "below": ("failed", "RelevanceError"),
        "nowhere": ("error", "CollectionNotFoundError"),
    }
    assert (result.total_tests, result.passed, result.failed, result.errors) == (7, 1, 4, 2)
    assert result.pass_rate == pytest.approx(100 / 7)
    assert {tested.status for tested in cases} == {TestStatus.PENDING}
    metrics = result.performance_metrics
    assert 0 < metrics["avg_retrieval_time_ms"] <= metrics["p95_retrieval_time_ms"] <= metrics["max_retrieval_time_ms"]  # type: ignore[operator]
    json.dumps(asdict(result))


def test_a_slow_search_fails(memory: Index) -> None:
    result = RetrievalTester({"pages": memory}, latency_ms=1e-9).run([case()])
    assert (result.test_results[0].error_message or "").startswith("PerformanceError: it took")


def test_names_are_unique_and_a_case_runs_once(memory: Index) -> None:
    tester = RetrievalTester({"pages": memory})
    with pytest.raises(InvalidParameterError, match="two test cases have the name 'calves'"):
        tester.run([case(), case()])
    with pytest.raises(InvalidParameterError, match="passed cannot become running"):
        tester.run([case(status="passed")])


def test_two_runs_are_equal(memory: Index) -> None:
    tester = RetrievalTester({"pages": memory})

    def without_times() -> list[tuple[str, str, list[tuple[Any, float]]]]:
        ended = tester.run([case(), case(name="b", expected_doc_ids=["owls.md"])]).test_results
        return [(each.name, each.status, [(r.id, r.score) for r in each.actual_results or ()]) for each in ended]

    assert without_times() == without_times()


class Failing(FakeEmbedder):
    """Fails to embed questions."""

    async def embed_query(self, text: str) -> Any:
        raise ServiceConnectionError(f"the model is gone: {text}", "model")


def test_each_of_the_nine_errors_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SC-005: each by its own cause."""
    with small_index(tmp_path, retry__max_retries=0) as memory:  # a retry would wait
        check_the_nine_errors(memory, tmp_path, monkeypatch)


def check_the_nine_errors(memory: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tester = RetrievalTester({"pages": memory})
    with pytest.raises(DimensionMismatchError, match="256 components and got 3"):
        tester.search(RetrievalQuery("pages", [1.0, 0.0, 0.0]))
    with pytest.raises(CollectionNotFoundError, match="there is no collection 'none'; there are pages"):
        tester.search(RetrievalQuery("none", [1.0]))
    with pytest.raises(InvalidParameterError, match="numbers"):
        tester.search(RetrievalQuery("pages", [0.1, ..., 0.5]))  # type: ignore[list-item]
    config = load_config(overrides={"cache.kind": "none", "store.kind": "memory", "retry.max_retries": 0})
    with open_index(tmp_path / "i.db", config=config, embedder=Failing()) as failing:
        failing.add(chunks())
        broken = RetrievalTester({"pages": failing})
        with pytest.raises(EmbeddingError, match="the model is gone"):
            broken.embed("pages", "x")
        assert (broken.run([case()]).test_results[0].error_message or "").startswith("EmbeddingError")
    for kind, error in ((ConnectionError, ServiceConnectionError), (TimeoutError, ServiceTimeoutError)):

        async def fails(_request: object, error: type[Exception] = error) -> Any:
            raise error("the collection's service does not answer")

        with monkeypatch.context() as patched:
            patched.setattr(memory.store, "search", fails)
            with pytest.raises(kind):
                tester.search(RetrievalQuery("pages", tester.embed("pages", "x")))
            ended = tester.run([case()]).test_results[0]
            assert (ended.status, (ended.error_message or "").split(":")[0]) == ("error", kind.__name__)
    missing = case(name="a", expected_doc_ids=["bread.md"], top_k=1)
    below = case(name="b", expected_doc_ids=["owls.md"], relevance_threshold=0.5)
    found = tester.run([missing, below])
    slow = RetrievalTester({"pages": memory}, latency_ms=1e-9).run([case()])
    kinds = [(each.error_message or "").split(":")[0] for each in (*found.test_results, *slow.test_results)]
    assert kinds == [kind.__name__ for kind in (MissingDocumentError, RelevanceError, PerformanceError)]


@pytest.mark.parametrize("lacks", ["timestamp", "embedding_model"])
def test_a_field_that_a_point_lacks_is_absent(memory: Index, monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    """Another program may not have written it: an index of this library has both."""
    fetch = memory.store.fetch

    async def lacking(request: Any) -> Any:
        fetched = await fetch(request)
        changed = {chunk_id: replace(chunk, **{lacks: None}) for chunk_id, chunk in fetched.chunks.items()}
        return replace(fetched, chunks=changed)

    monkeypatch.setattr(memory.store, "fetch", lacking)
    tester = RetrievalTester({"pages": memory})
    results = tester.search(RetrievalQuery("pages", tester.embed("pages", "tapirs")))
    assert all(set(module.PAYLOAD) - set(result.payload) == {lacks} for result in results)
    assert tester.run([case()]).test_results[0].status is TestStatus.PASSED


def test_a_collection_says_what_it_holds(index: Index) -> None:
    info = RetrievalTester({"pages": index}).info("pages")
    assert info == CollectionInfo("pages", 256, "Cosine", 6, 6, "green")


def test_a_collection_that_lacks_vectors_is_yellow_and_one_that_cannot_be_read_red(
    memory: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    tester = RetrievalTester({"pages": memory})
    late = tuple(replace(each, id=f"late {each.id}", document_id="late") for each in chunks()[:2])
    memory.sync.run(memory.store.upsert(Change(late, unembedded=frozenset(each.id for each in late))))
    assert tester.info("pages") == CollectionInfo("pages", 256, "Cosine", 8, 6, "yellow")

    async def broken(*_: object) -> Any:
        raise IndexFormatError("damaged")

    monkeypatch.setattr(memory.store, "describe", broken)
    assert tester.info("pages").status == "red"
    with pytest.raises(CollectionNotFoundError):
        tester.info("none")


def test_an_empty_collection_is_complete(tmp_path: Path) -> None:
    config = load_config(overrides={"cache.kind": "none", "store.kind": "memory"})
    with open_index(tmp_path / "i.db", config=config, embedder=FakeEmbedder()) as index:
        index.add([])
        assert RetrievalTester({"pages": index}).info("pages").status == "green"
    with pytest.raises(InvalidParameterError, match="one collection"):
        RetrievalTester({})
