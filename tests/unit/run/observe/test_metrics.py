from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.adapters.caches.memory import MemoryCache
from retrieval_core.config import load_config
from retrieval_core.errors import EmbeddingError, ServiceConnectionError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.run.observe import Histogram, Metrics, MetricsSnapshot
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Degradation, RetrievalResult, StageRecord, Usage
from support.examples import times
from support.pipelines import TroubledStore, filled
from support.plugins import approx

if TYPE_CHECKING:
    from retrieval_core.run.observe import Observer

QUERY = "history of an application"


class NamedStore(TroubledStore):
    """A store that reports a version, so that results from it may be kept."""

    async def version(self) -> str:
        return "phones"


def a_pipeline(observer: Observer, store: Any = None, **settings: Any) -> RetrievalPipeline:
    if store is None:
        store = TroubledStore()
        filled(store)
    config = load_config(overrides={key.replace("__", "."): value for key, value in settings.items()})
    cache = MemoryCache(100, 60) if config.cache.is_on else None
    return RetrievalPipeline(store, FakeEmbedder(), cache=cache, observer=observer, config=config, clock=FakeClock())


def result(**given: Any) -> RetrievalResult:
    options: dict[str, Any] = {"latency_ms": 3.0, **given}
    return RetrievalResult("q", (), "", {}, **options)


def families(metrics: Metrics) -> dict[str, Any]:
    parser = pytest.importorskip("prometheus_client.parser")
    return {family.name: family for family in parser.text_string_to_metric_families(metrics.prometheus())}


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families(metrics).values()
        for sample in family.samples
    }


def test_a_query_is_counted_with_its_calls() -> None:
    """Each call that leaves the pipeline is one of its stage."""
    metrics = Metrics()
    a_pipeline(metrics, cache__kind="none").retrieve(QUERY)
    seen = metrics.snapshot()
    assert (seen.queries, seen.answered, seen.failed, seen.in_progress) == (1, 1, 0, 0)
    assert {stage: one.calls for stage, one in seen.stages.items()} == {
        "embed": 1,
        "dense": 1,
        "lexical": 1,
        "fetch": 1,
    }
    assert seen.seconds.count == 1


def test_fifty_queries_at_a_time_are_counted_exactly() -> None:
    """Nothing is lost or counted twice where queries overlap."""
    metrics = Metrics()
    pipeline = a_pipeline(metrics, cache__kind="none")

    async def run() -> None:
        async with pipeline:
            await asyncio.gather(*(pipeline.aretrieve(f"history {number}") for number in range(50)))

    asyncio.run(run())
    seen = metrics.snapshot()
    assert (seen.queries, seen.answered, seen.in_progress) == (50, 50, 0)
    assert {one.calls for one in seen.stages.values()} == {50}


def test_callers_that_share_a_search_count_each_and_its_calls_once() -> None:
    """The calls were made once."""
    metrics = Metrics()
    store = NamedStore()
    filled(store)
    pipeline = a_pipeline(metrics, store)

    async def run() -> None:
        async with pipeline:
            await asyncio.gather(*(pipeline.aretrieve(QUERY) for _ in range(5)))
            await pipeline.aretrieve(QUERY)

    asyncio.run(run())
    seen = metrics.snapshot()
    assert seen.answered == 6
    assert seen.stages["dense"].calls == 1
    assert seen.cache_hits == 1


def test_threads_lose_no_count() -> None:
    """Several event loops, each in its thread, may share one."""
    metrics = Metrics()

    def work(_: int) -> None:
        for _ in range(500):
            with metrics.query(), metrics.span("embed") as span:
                span.end(StageRecord("embed", 1.0, attempts=2))
                metrics.answered(result())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    seen = metrics.snapshot()
    assert (seen.queries, seen.answered, seen.stages["embed"].calls, seen.stages["embed"].attempts) == (
        4000,
        4000,
        4000,
        8000,
    )


def test_attempts_and_failures_are_counted() -> None:
    """A call with its retries is one; what was done without is counted by its stage."""
    metrics = Metrics()
    store = TroubledStore()
    filled(store)
    store.failures["lexical"] = ServiceConnectionError("down", "fake")
    a_pipeline(metrics, store, cache__kind="none", retry__max_retries=2).retrieve(QUERY)
    seen = metrics.snapshot()
    assert (seen.stages["lexical"].calls, seen.stages["lexical"].attempts, seen.stages["lexical"].failures) == (1, 3, 1)
    assert (seen.degraded_queries, dict(seen.degraded)) == (1, {"lexical": 1})


def test_a_query_that_raises_has_failed() -> None:
    """It is neither answered nor in progress."""
    metrics = Metrics()
    store = TroubledStore()
    filled(store)
    store.failures["dense"] = store.failures["lexical"] = ServiceConnectionError("down", "fake")
    with pytest.raises(ServiceConnectionError):
        a_pipeline(metrics, store, raise_on_error=True, retry__max_retries=0).retrieve(QUERY)
    seen = metrics.snapshot()
    assert (seen.failed, seen.answered, seen.in_progress) == (1, 0, 0)


def test_a_cancelled_query_is_counted_as_such() -> None:
    """Its caller went away, and so did its calls."""
    metrics = Metrics()
    store = TroubledStore()
    filled(store)
    store.hanging = {"dense", "lexical"}

    async def run() -> None:
        async with a_pipeline(metrics, store, cache__kind="none") as pipeline:
            task = asyncio.create_task(pipeline.aretrieve(QUERY))
            for _ in range(100):
                await asyncio.sleep(0)
            assert store.calls == {"dense": 1, "lexical": 1}
            assert metrics.snapshot().in_progress == 1
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    asyncio.run(run())
    seen = metrics.snapshot()
    assert (seen.cancelled, seen.failed, seen.in_progress) == (1, 0, 0)
    assert (seen.stages["dense"].cancellations, seen.stages["dense"].calls) == (1, 0)


records = st.builds(
    StageRecord,
    stage=st.sampled_from(["embed", "dense", 'odd "stage"\\\n']),
    milliseconds=st.floats(0, 100_000),
    error=st.none() | st.just("down"),
    attempts=st.integers(0, 9),
    usage=st.none() | st.builds(Usage, st.integers(0, 10**6), st.integers(0, 10**6)),
)
outcomes = st.lists(
    st.tuples(
        st.sampled_from(["answered", "failed", "cancelled"]),
        st.booleans(),
        st.lists(st.sampled_from(["dense", "relevance"]), max_size=3),
        st.lists(records, max_size=3),
    ),
    max_size=12,
)


def play(metrics: Metrics, story: list[Any]) -> None:
    for outcome, from_cache, degraded, calls in story:
        with suppress(EmbeddingError, asyncio.CancelledError), metrics.query():
            for record in calls:
                with metrics.span(record.stage) as span:
                    span.end(record)
            if outcome == "failed":
                raise EmbeddingError("no")
            if outcome == "cancelled":
                raise asyncio.CancelledError
            entries = tuple(Degradation(stage, "why") for stage in degraded)
            metrics.answered(result(from_cache=from_cache, degraded=entries))


@settings(max_examples=times(150))
@given(outcomes)
def test_whatever_happens_is_counted_exactly(story: list[Any]) -> None:
    """After N queries there are N, and each number is the sum of what was told."""
    metrics = Metrics()
    play(metrics, story)
    seen = metrics.snapshot()
    ended = [outcome for outcome, *_ in story]
    answered = [(cached, degraded) for outcome, cached, degraded, _ in story if outcome == "answered"]
    calls = [record for *_, told in story for record in told]
    assert seen.queries == len(story)
    assert (seen.answered, seen.failed, seen.cancelled) == tuple(map(ended.count, ("answered", "failed", "cancelled")))
    assert seen.cache_hits == sum(cached for cached, _ in answered)
    assert seen.degraded_queries == sum(bool(degraded) for _, degraded in answered)
    for stage in ("dense", "relevance"):
        assert seen.degraded.get(stage, 0) == sum(stage in degraded for _, degraded in answered)
    assert set(seen.stages) == {record.stage for record in calls}
    for stage, one in seen.stages.items():
        mine = [record for record in calls if record.stage == stage]
        assert one.calls == one.seconds.count == len(mine)
        assert one.attempts == sum(record.attempts for record in mine)
        assert one.failures == sum(record.error is not None for record in mine)
        assert one.seconds.total_seconds == approx(sum(record.milliseconds for record in mine) / 1000)
        assert one.input_tokens == sum(record.usage.input_tokens for record in mine if record.usage)
        assert one.output_tokens == sum(record.usage.output_tokens for record in mine if record.usage)


@settings(max_examples=times(100))
@given(outcomes)
def test_prometheus_own_parser_reads_every_number(story: list[Any]) -> None:
    """The text says what the snapshot says, whatever stages are called."""
    metrics = Metrics()
    play(metrics, story)
    seen, read = metrics.snapshot(), samples(metrics)
    assert read["retrieval_queries_total", (("outcome", "failed"),)] == seen.failed
    assert read["retrieval_cache_hits_total", ()] == seen.cache_hits
    assert read["retrieval_query_duration_seconds_count", ()] == seen.answered
    for stage, one in seen.stages.items():
        label = ("stage", stage)
        assert read["retrieval_stage_attempts_total", (label,)] == one.attempts
        assert read["retrieval_stage_duration_seconds_count", (label,)] == one.calls
        assert read["retrieval_stage_duration_seconds_sum", (label,)] == approx(one.seconds.total_seconds)
        assert read.get(("retrieval_tokens_total", (label, ("type", "input"))), 0) == one.input_tokens
        buckets = [
            read["retrieval_stage_duration_seconds_bucket", (("le", str(le)), label)] for le in one.seconds.limits
        ]
        assert buckets == sorted(buckets)
        assert read["retrieval_stage_duration_seconds_bucket", (("le", "+Inf"), label)] == one.calls


def test_families_have_a_type_and_a_help() -> None:
    """Every family is described, even before the first query."""
    found = families(Metrics())
    assert {family.type for family in found.values()} == {"counter", "gauge", "histogram"}
    assert all(name.startswith("retrieval_") and family.documentation for name, family in found.items())


def test_a_duration_at_a_limit_is_below_it() -> None:
    """As Prometheus has it: less or equal."""
    metrics = Metrics()
    with metrics.span("embed") as span:
        span.end(StageRecord("embed", 1.0))
        span.end(StageRecord("embed", 60_000.0))
    histogram = metrics.snapshot().stages["embed"].seconds
    assert (histogram.counts[0], histogram.counts[-1], histogram.count) == (1, 1, 2)


def test_a_snapshot_does_not_change() -> None:
    """It is a value of one moment."""
    metrics = Metrics()
    before = metrics.snapshot()
    metrics.answered(result(degraded=(Degradation("dense", "why"),)))
    assert before == Metrics().snapshot()
    assert isinstance(before, MetricsSnapshot)
    assert before.seconds == Histogram()
