"""What watches the pipeline while it answers: spans, counts and times, also of streams that are left."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.compat.tracker import PerformanceTracker
from retrieval_core.config import load_config
from retrieval_core.errors import ServiceConnectionError, ServiceError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.pipeline.answer.answer_writer import AnswerWriter
from retrieval_core.run.observe import Metrics, OpenTelemetryObserver
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.testing.fakes_llm import FakeLLM
from support.answers import QUESTION, ROLLED_BACK, check_stream
from support.pipelines import TroubledStore, filled, word_counter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from retrieval_core.ports import LLM, CompletionRequest
    from retrieval_core.run.observe import Observer
    from retrieval_core.types import RetrievalResult


class Slow(FakeLLM):
    """A model that takes seconds for a word, and then says nothing for ever unless it is told to end."""

    def __init__(self, clock: FakeClock, seconds: float = 2.0, *, ends: bool) -> None:
        super().__init__("")
        self._clock = clock
        self._seconds = seconds
        self._ends = ends

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[str]:
        """Say a sentence."""
        self.requests.append(request)
        self._clock.advance(self._seconds)
        yield ROLLED_BACK
        if not self._ends:
            await asyncio.Event().wait()


def watched(
    observer: Observer, llm: LLM | None, clock: FakeClock, store: TroubledStore | None = None, **settings: Any
) -> RetrievalPipeline:
    """Return a pipeline that answers while it is watched."""
    if store is None:
        store = TroubledStore()
        filled(store)
    overrides: dict[str, Any] = {"answer.abstain_below": 0, "retry.max_retries": 0, **settings}
    config = load_config(overrides=overrides)
    answer_writer = AnswerWriter(llm, config=config.answer)
    return RetrievalPipeline(
        store,
        FakeEmbedder(),
        answer_writer=answer_writer,
        config=config,
        clock=clock,
        token_counter=word_counter(),
        observer=observer,
    )


async def left(pipeline: RetrievalPipeline) -> None:
    """Read a stream up to its first piece, and leave it."""
    stream = pipeline.aanswer_stream(QUESTION)
    async for event in stream:
        if event.type == "answer_chunk":
            break
    await stream.aclose()


def test_writing_an_answer_is_the_time_of_synthesis() -> None:
    """The tracker's time is that of the model, and the answer is one query however it is asked for."""
    clock = FakeClock()
    tracker = PerformanceTracker(now=clock.now)
    with watched(tracker, Slow(clock, ends=True), clock) as pipeline:
        pipeline.answer(QUESTION)
        assert tracker.metrics["query_count"] == 1
        assert tracker.metrics["synthesis_time"] == 2.0
        check_stream(list(pipeline.answer_stream(QUESTION)))
        assert tracker.metrics["query_count"] == 2
        with tracker.track_query(QUESTION):
            check_stream(list(pipeline.answer_stream(QUESTION)))
    assert tracker.metrics["query_count"] == 3
    assert tracker.snapshot().in_progress == 0
    assert tracker.snapshot().stages["answer"].calls == 3


def test_an_answer_takes_as_long_as_its_writing() -> None:
    """What is counted is the time until the answer is there, not until its passages are."""
    clock = FakeClock()
    metrics = Metrics()
    with watched(metrics, Slow(clock, ends=True), clock) as pipeline:
        pipeline.answer(QUESTION)
    assert metrics.snapshot().seconds.mean == 2.0


def test_a_stream_that_is_left_is_one_query_that_was_cancelled() -> None:
    """It is counted once, so that nothing seems to be under way afterwards, or less than nothing."""
    clock = FakeClock()
    metrics = Metrics()
    asyncio.run(left(watched(metrics, Slow(clock, ends=False), clock)))
    seen = metrics.snapshot()
    assert (seen.queries, seen.answered, seen.cancelled, seen.in_progress) == (1, 0, 1, 0)
    assert seen.stages["answer"].cancellations == 1


def test_an_answer_that_is_raised_is_one_query_that_failed() -> None:
    """A wrong key is an error of the query, as it is for whoever asked."""
    clock = FakeClock()
    metrics = Metrics()
    llm = FakeLLM("")
    llm.failure = ServiceError("who are you?", "openai", status=401)
    with watched(metrics, llm, clock) as pipeline, pytest.raises(ServiceError):
        pipeline.answer(QUESTION)
    seen = metrics.snapshot()
    assert (seen.queries, seen.answered, seen.failed, seen.in_progress) == (1, 0, 1, 0)


@pytest.mark.parametrize("trouble", [pytest.param("model"), "store"])
def test_an_answer_that_something_stood_in_for_is_one_degraded_query(trouble: str) -> None:
    """Whichever rung of the ladder it comes from."""
    clock = FakeClock()
    metrics = Metrics()
    store, llm = TroubledStore(), FakeLLM(lambda _: "Usually there is a command for that.")
    filled(store)
    if trouble == "model":
        llm.failure = ServiceConnectionError("refused")
    else:
        store.failures = {name: ServiceConnectionError("store is down") for name in ("dense", "lexical")}
    asyncio.run(watched(metrics, llm, clock, store).aanswer(QUESTION))
    seen = metrics.snapshot()
    assert (seen.queries, seen.answered, seen.degraded_queries, seen.in_progress) == (1, 1, 1, 0)


def test_the_spans_of_a_stream_are_nested_and_end() -> None:
    """They are below the reader's span, whatever the reader does meanwhile and whenever it leaves."""
    pytest.importorskip("opentelemetry.sdk", reason="the test needs opentelemetry-sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = tracers.get_tracer("reader")
    clock = FakeClock()

    async def read(pipeline: RetrievalPipeline) -> None:
        with tracer.start_as_current_span("reader"):
            async for _ in pipeline.aanswer_stream(QUESTION):
                with tracer.start_as_current_span("reads"):
                    await asyncio.sleep(0)

    for ends in (True, False):
        exporter.clear()
        pipeline = watched(OpenTelemetryObserver(tracer_provider=tracers), Slow(clock, ends=ends), clock)
        asyncio.run(read(pipeline) if ends else left(pipeline))
        spans = {span.name: span for span in exporter.get_finished_spans()}
        parents = {span.context.span_id: span.name for span in spans.values() if span.context is not None}
        below = {name: span.parent and parents[span.parent.span_id] for name, span in spans.items()}
        assert below["retrieval.answer"] == below["retrieval.dense"] == "retrieval.query"
        assert below["retrieval.query"] == ("reader" if ends else None)
        for name in ("retrieval.query", "retrieval.answer"):
            assert ("retrieval.cancelled" in (spans[name].attributes or {})) is not ends
        if ends:
            assert below["reads"] == "reader"


def test_an_observer_that_fails_does_no_harm_to_a_stream() -> None:
    """The answer is the same."""

    class Fails:
        def query(self) -> Any:
            raise RuntimeError

        def span(self, stage: str) -> Any:
            raise RuntimeError(stage)

        def answered(self, result: RetrievalResult) -> None:
            raise RuntimeError(result)

    clock = FakeClock()
    with watched(Fails(), Slow(clock, ends=True), clock) as pipeline:
        assert check_stream(list(pipeline.answer_stream(QUESTION))).text == ROLLED_BACK
