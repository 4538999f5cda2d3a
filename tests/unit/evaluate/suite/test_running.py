"""Running suites: what passes, fails and is an error, criteria, and that runs repeat."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import log2
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.config import load_config
from retrieval_core.errors import (
    EmbeddingError,
    IndexNotFoundError,
    InvalidParameterError,
    ServiceConnectionError,
    ServiceTimeoutError,
)
from retrieval_core.evaluate.suite import CaseStatus, Expected, IndexTarget, Suite, run_case, run_suite
from retrieval_core.evaluate.suite.results import remove_times
from retrieval_core.evaluate.suite.running import fold_text, has_keyword, measure_ranks
from retrieval_core.index.open import open_index
from retrieval_core.testing.fakes import FakeEmbedder
from support.suites import chunks, made_up, one, run, small_index

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core.evaluate.suite import SuiteResult
    from retrieval_core.index.index import Index

CALVES = {"query": "stripes and spots of a tapir calf", "expect": {"documents": ["tapirs.md"]}}
STORES: dict[str, dict[str, Any]] = {
    "memory": {},
    "sqlite": {"store__kind": "sqlite"},
    "lancedb": {"store__kind": "lancedb"},
    "qdrant": {"store__kind": "qdrant"},
}


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with small_index(tmp_path) as opened:
        yield opened


def kinds(result: Any) -> list[str]:
    return [problem.error for problem in result.problems]


def settings_of(store: str, folder: Path) -> dict[str, Any]:
    """Return the settings of a store; skips the test where it is not installed."""
    if store in {"lancedb", "qdrant"}:
        pytest.importorskip({"qdrant": "qdrant_client"}.get(store, store))
    own = {"store__qdrant__path": str(folder / "qdrant")} if store == "qdrant" else {}
    return {**STORES[store], **own}


@pytest.mark.parametrize("store", STORES)
def test_cases_of_every_kind_end_alike_in_every_store(tmp_path: Path, store: str) -> None:
    with small_index(tmp_path, **settings_of(store, tmp_path)) as index:
        result = run(
            index,
            {**CALVES, "name": "passes"},
            {**CALVES, "name": "skipped", "skip": "not yet"},
            {**CALVES, "name": "slow", "latency_ms": 1e-9},
            {"name": "instead", "query": "brown crust", "expect": {"documents": ["owls.md"]}, "top_k": 1},
            {"name": "absent", "query": "brown crust", "expect": {"documents": ["absent.md"]}},
            {"name": "above", "query": "brown crust", "relevance_threshold": 1.0},
            {"name": "none", "query": "Kafka brokers", "finds_nothing": True, "mode": "dense"},
            {"name": "only owls", "query": "night", "filter": {"kind": "owls"}, "expect": {"chunks": ["owls.md#0"]}},
        )
    ends = {case.name: (case.status.value, *kinds(case)) for case in result.results}
    assert ends == {
        "passes": ("passed",),
        "skipped": ("pending",),
        "slow": ("failed", "PerformanceError"),
        "instead": ("failed", "MissingDocumentError"),
        "absent": ("error", "InvalidParameterError"),
        "above": ("failed", "RelevanceError"),
        "none": ("passed",),
        "only owls": ("passed",),
    }
    assert (result.total_tests, result.skipped) == (7, 1)


@pytest.mark.parametrize("store", STORES)
def test_an_empty_collection_has_nothing_to_find(tmp_path: Path, store: str) -> None:
    with small_index(tmp_path, **settings_of(store, tmp_path)) as index:
        for document in ("tapirs.md", "trains.md", "bread.md", "owls.md"):
            index.delete(document)
        result = run(index, {"query": "x", "finds_nothing": True}, CALVES, {"query": "x", "relevance_threshold": 0.1})
    assert [case.status.value for case in result.results] == ["passed", "error", "failed"]


@pytest.mark.parametrize("store", STORES)
def test_a_case_passes_where_everything_is_found(tmp_path: Path, store: str) -> None:
    with small_index(tmp_path, **settings_of(store, tmp_path)) as index:
        result = one(index, **CALVES, relevance_threshold=0.2, latency_ms=60_000)
    assert result.status is CaseStatus.PASSED
    assert result.ranks == {"document:tapirs.md": 1}
    assert result.documents[0] == "tapirs.md"
    assert result.measures["recall@5"] == 1.0
    point = result.points[0]
    assert point.payload["content"] == "A tapir calf has stripes and spots."
    assert point.payload["kind"] == "tapirs"
    assert point.score is not None


def test_a_case_fails_that_finds_something_else(index: Index) -> None:
    """It says what was found instead."""
    result = one(index, query="night train to Vienna", expect={"documents": ["bread.md"]}, top_k=1)
    assert result.status is CaseStatus.FAILED
    assert kinds(result) == ["MissingDocumentError"]
    assert result.failure_lines()[-1].startswith("found: 1. trains.md#0 (")


@pytest.mark.parametrize(
    ("case", "status", "error"),
    [
        ({"expect": {"keywords": ["zebra"]}}, "failed", "ExpectationError"),
        ({"forbid": {"documents": ["tapirs.md"]}}, "failed", "ExpectationError"),
        ({"latency_ms": 1e-9}, "failed", "PerformanceError"),
        ({"expect": {"documents": ["absent.md"]}}, "error", "InvalidParameterError"),
        ({"expect": {"chunks": ["tapirs.md#9"]}}, "error", "InvalidParameterError"),
        ({"relevance_threshold": 1.0}, "failed", "RelevanceError"),
        ({"relevance_threshold": 0.5, "expect": {"documents": ["bread.md"]}}, "failed", "RelevanceError"),
        ({"finds_nothing": True}, "failed", "ExpectationError"),
        (
            {"filter": {"kind": {"$eq": "owls"}}, "expect": {"documents": ["tapirs.md"]}},
            "failed",
            "MissingDocumentError",
        ),
        ({"filter": {"kind": {"$eq": "zebra"}}, "relevance_threshold": 0.1}, "failed", "RelevanceError"),
        ({"score_threshold": 0.99, "expect": {"keywords": ["calf"]}}, "failed", "ExpectationError"),
        ({"score_threshold": 0.8, "expect": {"keywords": ["bread"]}}, "failed", "ExpectationError"),
        (
            {"relevance_threshold": 0.99, "top_k": 1, "expect": {"documents": ["owls.md"]}},
            "failed",
            "MissingDocumentError",
        ),
        (
            {"relevance_threshold": 0.2, "top_k": 1, "expect": {"documents": ["owls.md"]}},
            "failed",
            "MissingDocumentError",
        ),
    ],
)
def test_how_a_case_ends(index: Index, case: dict[str, Any], status: str, error: str) -> None:
    result = one(index, query="stripes and spots of a tapir calf", **case)
    assert (result.status.value, kinds(result)[0]) == (status, error), result.problems


@pytest.mark.parametrize("query", ["zebras?", "Kafka log rotation"])
def test_nothing_is_found_where_nothing_is_likely(index: Index, query: str) -> None:
    assert one(index, query=query, finds_nothing=True, mode="dense").status is CaseStatus.PASSED


def test_a_document_whose_passages_begin_later_is_there(tmp_path: Path) -> None:
    """As where somebody else numbered them."""
    with small_index(tmp_path) as index:
        index.add([replace(chunks()[0], id="zoo#7", document_id="zoo", chunk_index=7, total_chunks=9)])
        assert one(index, query="tapirs swim", expect={"documents": ["zoo"]}).status is CaseStatus.PASSED


def test_every_paraphrase_has_to_meet_the_expectations(index: Index) -> None:
    result = one(index, **CALVES, paraphrases=["striped calf of tapirs", "bread crust"], top_k=1)
    assert result.status is CaseStatus.FAILED
    assert [problem.message.split(":")[0] for problem in result.problems] == ["query 'bread crust'"]
    assert result.measures["recall@5"] == pytest.approx(2 / 3)


def test_a_conversation_comes_before_the_question(index: Index) -> None:
    history = [{"role": "user", "content": "Tell me of tapirs"}, {"role": "assistant", "content": "They swim."}]
    assert one(index, query="and their calf?", history=history, expect={"documents": ["tapirs.md"]}).status == "passed"


def test_a_skipped_case_stays_pending_and_does_not_count(index: Index) -> None:
    result = run(index, CALVES, {**CALVES, "skip": "not yet"})
    assert [(case.status.value, case.skipped) for case in result.results] == [("passed", None), ("pending", "not yet")]
    assert (result.total_tests, result.skipped, result.pass_rate) == (1, 1, 100.0)


class Failing(FakeEmbedder):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error: Exception | None = error

    async def embed_query(self, text: str) -> Any:
        if self.error is not None and "fail" in text:
            raise self.error
        return await super().embed_query(text)


@pytest.mark.parametrize(
    "error",
    [EmbeddingError("no"), ServiceConnectionError("gone", "x"), ServiceTimeoutError("slow", "x"), RuntimeError("?")],
)
def test_a_question_that_cannot_be_embedded_is_an_error(tmp_path: Path, error: Exception) -> None:
    """And not a result by words alone, which would be another configuration's."""
    config = load_config(overrides={"cache.kind": "none", "store.kind": "memory", "retry.max_retries": 0})
    with open_index(tmp_path / "i.db", config=config, embedder=Failing(error)) as index:
        index.add(chunks())
        result = run(index, {"query": "this will fail", "expect": {"documents": ["bread.md"]}}, CALVES)
    assert [case.status.value for case in result.results] == ["error", "passed"]
    assert kinds(result.results[0]) == ["EmbeddingError"]


def test_an_index_that_is_not_there_is_an_error_of_every_case(tmp_path: Path) -> None:
    config = load_config(overrides={"cache.kind": "none"})
    with open_index(tmp_path / "absent.db", config=config, embedder=FakeEmbedder()) as index:
        result = run(index, CALVES, CALVES)
    assert [kinds(case) for case in result.results] == [["CollectionNotFoundError"]] * 2
    assert result.performance_metrics.avg_retrieval_time_ms is None
    assert criteria(result)["SC-001"] == criteria(result)["SC-002"] == "not measured"
    with (
        open_index(tmp_path / "absent.db", config=config, embedder=FakeEmbedder()) as index,
        pytest.raises(IndexNotFoundError),
    ):
        run(index, {**CALVES, "skip": "so that no case can tell"})


def test_an_error_that_nobody_expected_is_the_cases_own(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_self: object, case: Any) -> Any:
        raise ZeroDivisionError(case.query)

    monkeypatch.setattr(IndexTarget, "retrieve", broken)
    suite = Suite.model_validate({"name": "x", "cases": [{"name": "a", **CALVES}]})
    result = asyncio.run(run_case(IndexTarget(index), suite.cases[0]))
    assert (result.status.value, kinds(result)) == ("error", ["ZeroDivisionError"])
    whole = asyncio.run(run_suite(IndexTarget(index), suite))
    assert kinds(whole.results[0]) == ["ZeroDivisionError"]
    assert criteria(whole)["SC-005"] == "missed"


def test_a_passage_that_is_not_there_by_its_id_is_no_figure(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_self: object, _chunk_id: str) -> None: ...

    monkeypatch.setattr(IndexTarget, "fetch", nothing)
    assert criteria(run(index, CALVES))["SC-001"] == "not measured"


def test_runs_that_differ_are_told(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """SC-006 is missed where the second run finds something else."""
    retrieve = IndexTarget.retrieve
    asked: list[str] = []

    async def forgetful(self: IndexTarget, case: Any) -> Any:
        asked.append(case.query)
        result = await retrieve(self, case)
        return result if len(asked) < 4 else replace(result, hits=result.hits[:1])

    monkeypatch.setattr(IndexTarget, "retrieve", forgetful)
    assert criteria(run(index, CALVES, twice=True))["SC-006"] == "missed"


def test_results_are_never_those_of_the_cache(tmp_path: Path) -> None:
    """Times would be the cache's, and not those of searches."""
    with small_index(tmp_path, cache__kind="memory") as index:
        assert [index.retrieve("tapirs").from_cache for _ in range(2)] == [False, True]
        suite = Suite.model_validate({"name": "x", "cases": [{"name": "a", **CALVES, "query": "tapirs"}]})
        assert not index.sync.run(IndexTarget(index).retrieve(suite.cases[0])).from_cache


def criteria(result: SuiteResult) -> dict[str, str]:
    return {criterion.code: criterion.verdict for criterion in result.criteria}


def test_every_criterion_is_met_missed_or_not_measured(index: Index) -> None:
    met = criteria(run(index, CALVES, twice=True))
    assert met == {
        "SC-001": "met", "SC-002": "met", "SC-003": "met", "SC-004": "met", "SC-005": "not measured", "SC-006": "met",
    }  # fmt: skip
    wrong = {"query": "bread", "expect": {"documents": ["owls.md"]}, "top_k": 1}
    strict = {"criteria": {"fetch_ms": 1e-9, "average_ms": 1e-9}}
    missed = criteria(run(index, wrong, suite=strict))
    assert missed == {
        "SC-001": "missed", "SC-002": "missed", "SC-003": "missed", "SC-004": "missed", "SC-005": "met",
        "SC-006": "not measured",
    }  # fmt: skip
    nothing_asked = dict.fromkeys(("fetch_ms", "average_ms", "found_in_first_five", "pass_rate"))
    left_out = criteria(run(index, CALVES, suite={"criteria": nothing_asked}))
    assert [left_out[f"SC-00{number}"] for number in (1, 2, 3, 4)] == ["not measured"] * 4


def test_the_order_of_cases_and_how_many_run_at_once_do_not_matter(index: Index) -> None:
    cases = [
        {**CALVES, "name": "calves"},
        {"name": "bread", "query": "brown crust", "expect": {"documents": ["owls.md"]}, "top_k": 1},
        {"name": "night", "query": "night", "forbid": {"documents": ["trains.md"]}},
    ]
    first = run(index, *cases, concurrency=1)
    second = run(index, *reversed(cases), concurrency=3)
    assert remove_times(first) == remove_times(second)


def test_progress_is_told(index: Index) -> None:
    told: list[tuple[int, int]] = []

    def on_progress(done: int, total: int) -> None:
        told.append((done, total))

    run(index, CALVES, CALVES, on_progress=on_progress)
    assert told == [(1, 2), (2, 2)]


@pytest.mark.parametrize("concurrency", [0, -1, True, 1.5])
def test_concurrency_is_checked(index: Index, concurrency: Any) -> None:
    with pytest.raises(InvalidParameterError, match="concurrency"):
        run(index, CALVES, concurrency=concurrency)


def test_what_was_asked_is_described(index: Index) -> None:
    subject = run(index, CALVES).subject
    assert (subject.chunks, subject.documents, subject.embedder) == (6, 4, "fake-words-256")
    assert subject.configuration["cache"] == {"kind": "none"}
    assert set(subject.versions) == {"python", "retrieval-core"}
    assert made_up({}).subject.location == "somewhere"


def test_the_corpus_has_a_digest_that_changes_with_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    config = load_config(overrides={"cache.kind": "none"})
    digests: list[str | None] = []
    with open_index(tmp_path / "index.db", config=config, embedder=FakeEmbedder()) as index:
        for text in ("Owls hunt.", "Owls hunt.", "Owls sleep."):
            page.write_text(text)
            index.ingest(page)
            digests.append(asyncio.run(IndexTarget(index).describe()).corpus)
    assert digests[0] == digests[1] != digests[2]
    assert None not in digests


@pytest.mark.parametrize(
    ("text", "keyword", "expected"),
    [
        ("ROS 2 is a framework", "ros 2", True),
        ("ROS 22", "ROS 2", False),
        ("a tapir", "TAPIR", True),
        ("tapirs", "tapir", False),
        ("C++, and Go", "C++", True),
        ("the café", "cafe\u0301", True),
        ("STRASSE", "Straße", True),
        ("sync\n  wave", "sync wave", True),
        ("snake_case", "snake", False),
        ("机器人学", "机器", True),
        ("e\u0308x", "e", False),
        ("re-sync", "sync", True),
        ("a+ b a", "a", True),
    ],
)
def test_keywords_are_whole_words_whatever_their_case(text: str, keyword: str, expected: bool) -> None:
    assert has_keyword(fold_text(text), fold_text(keyword)) is expected


def test_measures_are_as_they_are_defined() -> None:
    expected = Expected.model_validate({"documents": {"a": 3, "b": 1}})
    measures = measure_ranks(expected, {"document:a": 2, "document:b": 7}, 10)
    assert measures["recall@5"] == 0.5
    assert measures["recall@k"] == 1.0
    assert measures["mrr"] == 0.5
    assert measures["ndcg@10"] == pytest.approx((3 / log2(3) + 1 / log2(8)) / (3 + 1 / log2(3)))
