"""The tracker's numbers against an oracle, and nothing counted twice."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.compat.tracker import PerformanceTracker
from retrieval_core.config import load_config
from retrieval_core.errors import EmbeddingError, InvalidParameterError, ServiceConnectionError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.run.observe import Histogram, Latency, Metrics, Summary
from retrieval_core.run.observe.metrics import SECONDS
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Degradation, RetrievalResult, StageRecord
from support.examples import times
from support.pipelines import TroubledStore, filled
from support.plugins import approx

QUERY = "history of an application"


def result(milliseconds: float = 3.0, **given: Any) -> RetrievalResult:
    return RetrievalResult("q", (), "", {}, latency_ms=milliseconds, **given)


def a_pipeline(tracker: PerformanceTracker, store: TroubledStore | None = None, **overrides: Any) -> RetrievalPipeline:
    if store is None:
        store = TroubledStore()
        filled(store)
    config = load_config(overrides={key.replace("__", "."): value for key, value in overrides.items()})
    return RetrievalPipeline(store, FakeEmbedder(), observer=tracker, config=config, clock=FakeClock())


def test_a_pipeline_is_tracked() -> None:
    """Each query counts once, and each stage has its own mean."""
    tracker = PerformanceTracker()
    with a_pipeline(tracker) as pipeline:
        pipeline.retrieve(QUERY)
        pipeline.retrieve("bread is baked")
    assert tracker.metrics["query_count"] == 2
    assert tracker.snapshot().stages["embed"].calls == 2


def test_the_stages_times_are_means_of_their_calls() -> None:
    """Calls that failed took time too; a stage that was never called took none."""
    tracker = PerformanceTracker()
    for stage, milliseconds in (("embed", 100), ("embed", 300), ("dense", 10), ("lexical", 20), ("fetch", 60)):
        with tracker.span(stage) as span:
            span.end(StageRecord(stage, milliseconds, error="down" if milliseconds == 300 else None))
    metrics = tracker.metrics
    assert metrics["embedding_time"] == approx(0.2)
    assert metrics["retrieval_time"] == approx(0.03)
    assert (metrics["reranking_time"], metrics["synthesis_time"]) == (0, 0)
    assert tracker.summary.stages["embed"].mean == approx(0.2)


def test_code_outside_a_pipeline_counts_once_however_it_ends() -> None:
    """With an error too, whose time is not among those of answers; a caller who went away is no error."""
    clock = FakeClock()
    tracker = PerformanceTracker(now=clock.now)
    with tracker.track_query("one"):
        clock.advance(2)
    with suppress(EmbeddingError), tracker.track_query("two"):
        clock.advance(50)
        raise EmbeddingError("no")
    with suppress(asyncio.CancelledError), tracker.track_query("three"):
        raise asyncio.CancelledError
    metrics = tracker.metrics
    assert (metrics["query_count"], metrics["error_rate"], metrics["avg_response_time"]) == (2, 0.5, 2)
    assert tracker.snapshot().cancelled == 1


def test_a_pipeline_inside_a_tracked_block_is_part_of_it() -> None:
    """One query, with the pipeline's cache hits and degradations, from synchronous code and from a coroutine."""
    tracker = PerformanceTracker()
    store = TroubledStore()
    filled(store)
    store.failures["lexical"] = ServiceConnectionError("down", "fake")
    with a_pipeline(tracker, store, retry__max_retries=0) as pipeline:
        with tracker.track_query(QUERY):
            pipeline.retrieve(QUERY)
            pipeline.retrieve("bread is baked")

        async def run() -> None:
            with tracker.track_query(QUERY):
                await asyncio.gather(pipeline.aretrieve("telescope"), pipeline.aretrieve("saturn"))

        asyncio.run(run())
    seen = tracker.snapshot()
    assert (seen.queries, seen.answered, seen.degraded_queries, dict(seen.degraded)) == (2, 2, 2, {"lexical": 2})
    assert seen.stages["dense"].calls == 4


def test_blocks_within_blocks_are_one_query() -> None:
    """And an error on the way out counts once."""
    tracker = PerformanceTracker()
    with suppress(EmbeddingError), tracker.track_query("outer"), tracker.track_query("inner"), tracker.query():
        raise EmbeddingError("no")
    assert tracker.metrics["query_count"] == 1
    assert tracker.metrics["error_rate"] == 1


def test_a_block_is_from_the_cache_where_all_its_results_are() -> None:
    """One that asked no pipeline is not."""
    tracker = PerformanceTracker()
    for cached in ((True, True), (True, False), ()):
        with tracker.track_query("q"):
            for each in cached:
                tracker.answered(result(from_cache=each))
    assert tracker.metrics["cache_hit_rate"] == approx(1 / 3)


def test_two_trackers_do_not_mix() -> None:
    """A block of one does not hide the queries that another one watches."""
    ours, theirs = PerformanceTracker(), PerformanceTracker()
    with ours.track_query("q"), theirs.query():
        theirs.answered(result())
    assert (ours.metrics["query_count"], theirs.metrics["query_count"]) == (1, 1)


def test_what_a_block_leaves_running_counts_for_itself() -> None:
    """The block is over, and so is its query."""
    tracker = PerformanceTracker()

    async def run() -> None:
        begun = asyncio.Event()

        async def later() -> None:
            await begun.wait()
            with tracker.query():
                tracker.answered(result())

        with tracker.track_query("q"):
            task = asyncio.create_task(later())
        begun.set()
        await task

    asyncio.run(run())
    assert tracker.metrics["query_count"] == 2


events = st.lists(
    st.tuples(
        st.sampled_from(["answered", "failed", "cancelled"]),
        st.sampled_from(["pipeline", "block", "block around two"]),
        st.booleans(),
        st.floats(0, 40_000),
        st.lists(st.tuples(st.sampled_from(["embed", "dense", "fetch", "rerank", "answer"]), st.floats(0, 10_000))),
    ),
    max_size=12,
)


def play(tracker: PerformanceTracker, story: list[Any]) -> None:
    for outcome, kind, cached, milliseconds, calls in story:
        counting = tracker.query() if kind == "pipeline" else tracker.track_query("q")
        with suppress(EmbeddingError, asyncio.CancelledError), counting:
            for stage, took in calls:
                with tracker.span(stage) as span:
                    span.end(StageRecord(stage, took))
            for _ in range(2 if kind == "block around two" else 1):
                if outcome == "answered" and kind != "block":
                    tracker.answered(result(milliseconds, from_cache=cached, degraded=(Degradation("dense", "why"),)))
            if outcome != "answered":
                raise EmbeddingError("no") if outcome == "failed" else asyncio.CancelledError


@settings(max_examples=times(120))
@given(st.lists(events, min_size=1, max_size=4))
def test_the_numbers_are_those_of_an_oracle_whatever_threads_do(stories: list[list[Any]]) -> None:
    """Counts and rates are exact, and means true, with queries, errors and calls from several threads."""
    tracker = PerformanceTracker(now=lambda: 7.0)
    with ThreadPoolExecutor(len(stories)) as pool:
        list(pool.map(partial(play, tracker), stories))
    told = [one for story in stories for one in story]
    ended = [one for one in told if one[0] != "cancelled"]
    answered = [one for one in told if one[0] == "answered"]
    metrics = tracker.metrics
    assert metrics["query_count"] == len(ended)
    assert metrics["error_rate"] == approx((len(ended) - len(answered)) / len(ended) if ended else 0)
    hits = sum(cached and kind != "block" for _, kind, cached, *_ in answered)
    assert metrics["cache_hit_rate"] == approx(hits / len(answered) if answered else 0)
    seconds = [took / 1000 if kind == "pipeline" else 0.0 for _, kind, _, took, _ in answered]
    assert metrics["avg_response_time"] == approx(sum(seconds) / len(seconds) if seconds else 0)
    for name, stages in (
        ("embedding_time", {"embed"}),
        ("retrieval_time", {"dense", "fetch"}),
        ("reranking_time", {"rerank"}),
        ("synthesis_time", {"answer"}),
    ):
        took = [took / 1000 for *_, calls in told for stage, took in calls if stage in stages]
        assert metrics[name] == approx(sum(took) / len(took) if took else 0)
    assert tracker.snapshot().in_progress == 0


@settings(max_examples=times(150))
@given(st.lists(st.floats(0, 60), min_size=1), st.floats(0, 1))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(durations: list[float], share: float) -> None:
    """It is an estimate that is never further off than the limits are apart; above the last limit it is that limit."""
    metrics = Metrics()
    for seconds in durations:
        metrics.finished(seconds)
    histogram = metrics.snapshot().seconds
    estimate = histogram.quantile(share)
    ordered = sorted(durations)
    true = next(one for rank, one in enumerate(ordered, start=1) if rank >= share * len(ordered))
    limit = next((limit for limit in SECONDS if true <= limit), SECONDS[-1])
    below = max((low for low in SECONDS if low < limit), default=0.0)
    assert estimate is not None
    assert below - 1e-9 <= estimate <= limit + 1e-9
    assert estimate <= histogram.total_seconds + 1e-9
    assert histogram.mean == approx(sum(durations) / len(durations))


@given(st.floats(0, 30), st.floats(0, 1))
def test_quantiles_of_one_duration_are_that_duration(seconds: float, share: float) -> None:
    """None of them exceeds the only duration that there is, and none falls below it."""
    metrics = Metrics()
    metrics.finished(seconds)
    assert metrics.snapshot().seconds.quantile(share) == approx(seconds)


def test_quantiles_keep_to_what_the_sum_allows() -> None:
    """Of two durations between .25 and .5 whose sum is .6, the longer one is at most .35."""
    metrics = Metrics()
    metrics.finished(0.28)
    metrics.finished(0.32)
    assert metrics.snapshot().seconds.quantile(1) == approx(0.35)


def test_a_summary_of_nothing() -> None:
    """Without queries there is no rate and no time, and a share outside its range is refused."""
    summary = Summary.of(Metrics().snapshot())
    assert (summary.ended, summary.error_rate, summary.cache_hit_rate, summary.degraded_rate) == (0, None, None, None)
    assert summary.query == Latency(0, None, None, None)
    with pytest.raises(InvalidParameterError, match="from 0 to 1"):
        Histogram().quantile(1.1)


def test_quantiles_of_a_known_distribution() -> None:
    """Ten durations in one bucket are spread evenly over it, as Prometheus assumes."""
    metrics = Metrics()
    for _ in range(10):
        metrics.finished(0.3)
    assert metrics.snapshot().seconds.quantile(0.5) == approx(0.25 + 0.25 / 2)
    assert metrics.snapshot().seconds.quantile(1) == approx(0.5)
