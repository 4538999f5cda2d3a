from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.config import load_config
from retrieval_core.errors import EmbeddingError, MissingExtraError, ServiceConnectionError, ServiceError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.run.observe import OpenTelemetryObserver, SeveralObservers
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Degradation, RetrievalResult, StageRecord, Usage
from support.pipelines import TroubledStore, filled

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import ReadableSpan

pytest.importorskip("opentelemetry.sdk", reason="the tests need opentelemetry-sdk")

QUERY = "history of an application"


class Watched:
    """An observer whose spans and measurements stay in memory."""

    def __init__(self, **options: Any) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader: InMemoryMetricReader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.observer = OpenTelemetryObserver(tracer_provider=self.tracers, meter_provider=self.meters, **options)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def span(self, name: str) -> ReadableSpan:
        (found,) = (span for span in self.spans if span.name == name)
        return found

    def points(self, name: str) -> list[Any]:
        data: Any = self.reader.get_metrics_data()
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def everything_recorded(self) -> str:
        data: Any = self.reader.get_metrics_data()
        return "".join(span.to_json() for span in self.spans) + (data.to_json() if data is not None else "")


def a_pipeline(observer: Any, store: Any = None, **settings: Any) -> RetrievalPipeline:
    if store is None:
        store = TroubledStore()
        filled(store)
    config = load_config(overrides={key.replace("__", "."): value for key, value in settings.items()})
    return RetrievalPipeline(store, FakeEmbedder(), observer=observer, config=config, clock=FakeClock())


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent is not None else None


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def test_a_query_is_a_span_with_its_calls_below() -> None:
    """And it stands below the caller's current span, through the synchronous call too."""
    watched = Watched()
    with watched.tracers.get_tracer("app").start_as_current_span("request"):
        a_pipeline(watched.observer).retrieve(QUERY)
    query = watched.span("retrieval.query")
    assert parent_of(query) == id_of(watched.span("request"))
    below = {span.name for span in watched.spans if parent_of(span) == id_of(query)}
    assert below == {"retrieval.embed", "retrieval.dense", "retrieval.lexical", "retrieval.fetch"}
    assert attributes_of(query)["gen_ai.operation.name"] == "retrieval"
    assert attributes_of(query)["retrieval.mode"] == "hybrid"
    assert attributes_of(watched.span("retrieval.embed"))["gen_ai.operation.name"] == "embeddings"
    assert attributes_of(watched.span("retrieval.dense"))["db.operation.name"] == "search"
    assert attributes_of(watched.span("retrieval.dense"))["retrieval.attempts"] == 1


def test_fifty_queries_at_a_time_keep_their_own_calls() -> None:
    """Every call's span stands below its own query, and every query's below its own caller's."""
    watched = Watched()
    pipeline = a_pipeline(watched.observer, cache__kind="none")

    async def ask(number: int) -> None:
        with watched.tracers.get_tracer("app").start_as_current_span(f"request {number}"):
            await pipeline.aretrieve(f"history {number}")

    async def run() -> None:
        async with pipeline:
            await asyncio.gather(*(ask(number) for number in range(50)))

    asyncio.run(run())
    queries = [span for span in watched.spans if span.name == "retrieval.query"]
    requests = {id_of(span) for span in watched.spans if span.name.startswith("request")}
    assert {parent_of(span) for span in queries} == requests
    assert len(queries) == len(requests) == 50
    for query in queries:
        below = Counter(span.name for span in watched.spans if parent_of(span) == id_of(query))
        assert below == dict.fromkeys(("retrieval.embed", "retrieval.dense", "retrieval.lexical", "retrieval.fetch"), 1)
        traces = {span.context.trace_id for span in watched.spans if span.context and parent_of(span) == id_of(query)}
        assert query.context is not None
        assert traces == {query.context.trace_id}
    (point,) = watched.points("retrieval.query.duration")
    assert point.count == 50


def test_a_span_of_a_plug_in_stands_below_its_call() -> None:
    """So a vendor's own instrumentation finds its place."""
    watched = Watched()

    class Instrumented(FakeEmbedder):
        async def embed_query(self, text: str) -> Any:
            with watched.tracers.get_tracer("vendor").start_as_current_span("POST"):
                return await super().embed_query(text)

    store = TroubledStore()
    filled(store)
    RetrievalPipeline(store, Instrumented(), observer=watched.observer).retrieve(QUERY)
    assert parent_of(watched.span("POST")) == id_of(watched.span("retrieval.embed"))


def test_a_call_that_failed_is_an_error_and_the_query_a_degraded_one() -> None:
    """The query went on without it, so it is no error itself."""
    from opentelemetry.trace import StatusCode

    watched = Watched()
    store = TroubledStore()
    filled(store)
    store.failures["lexical"] = ServiceConnectionError("down", "fake")
    a_pipeline(watched.observer, store, retry__max_retries=2).retrieve(QUERY)
    failed, query = watched.span("retrieval.lexical"), watched.span("retrieval.query")
    assert failed.status.status_code is StatusCode.ERROR
    assert attributes_of(failed)["retrieval.attempts"] == 3
    assert query.status.status_code is StatusCode.UNSET
    assert [(event.name, dict(event.attributes or {})) for event in query.events] == [
        ("retrieval.degraded", {"retrieval.stage": "lexical"})
    ]
    (point,) = watched.points("retrieval.degraded")
    assert (point.value, dict(point.attributes)) == (1, {"retrieval.stage": "lexical"})


def test_an_error_is_named_by_its_class_and_status() -> None:
    """``error.type`` is low in cardinality; the HTTP status stands beside it."""
    watched = Watched()
    with watched.observer.span("embed") as span:
        span.end(StageRecord("embed", 1.0, error="no", attempts=1), ServiceError("no", "fake", status=503))
    with watched.observer.span("rewrite") as span:
        span.end(StageRecord("rewrite", 1.0, error="no", attempts=1))
    embed = attributes_of(watched.span("retrieval.embed"))
    assert (embed["error.type"], embed["http.response.status_code"]) == ("ServiceError", 503)
    assert attributes_of(watched.span("retrieval.rewrite"))["error.type"] == "_OTHER"


def test_a_query_that_raises_is_an_error() -> None:
    """And counted with its class."""
    from opentelemetry.trace import StatusCode

    watched = Watched()
    store = TroubledStore()
    filled(store)
    store.failures["dense"] = store.failures["lexical"] = ServiceConnectionError("down", "fake")
    with pytest.raises(ServiceConnectionError):
        a_pipeline(watched.observer, store, raise_on_error=True, retry__max_retries=0).retrieve(QUERY)
    query = watched.span("retrieval.query")
    assert query.status.status_code is StatusCode.ERROR
    assert attributes_of(query)["error.type"] == "ServiceConnectionError"
    (point,) = watched.points("retrieval.query.failures")
    assert (point.value, dict(point.attributes)) == (1, {"error.type": "ServiceConnectionError"})


def test_a_cancelled_query_is_no_error() -> None:
    """Its spans end, and say so."""
    from opentelemetry.trace import StatusCode

    watched = Watched()
    store = TroubledStore()
    filled(store)
    store.hanging = {"dense", "lexical"}
    pipeline = a_pipeline(watched.observer, store, cache__kind="none")

    async def run() -> None:
        async with pipeline:
            task = asyncio.create_task(pipeline.aretrieve(QUERY))
            for _ in range(100):
                await asyncio.sleep(0)
            assert store.calls == {"dense": 1, "lexical": 1}
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    asyncio.run(run())
    for name in ("retrieval.query", "retrieval.dense"):
        span = watched.span(name)
        assert attributes_of(span)["retrieval.cancelled"] is True
        assert span.status.status_code is StatusCode.UNSET
    assert watched.points("retrieval.query.failures") == []


def tell_secrets(watched: Watched) -> None:
    """Let everything that may quote a person's words come by."""
    result = RetrievalResult(
        "my secret", (), "secret", {"mode": "dense"}, 1.0, degraded=(Degradation("rewrite", "secret reason"),)
    )
    with watched.observer.query():
        with watched.observer.span("rewrite") as span:
            record = StageRecord("rewrite", 1.0, error="secret error", decision="secret decision")
            span.end(record, ServiceError("secret error"))
        watched.observer.answered(result)
    with suppress(EmbeddingError), watched.observer.query():
        raise EmbeddingError("secret cause", "my secret")


def test_nothing_that_a_person_wrote_is_recorded() -> None:
    """Neither the question nor what may quote it, in any span or measurement."""
    watched = Watched()
    tell_secrets(watched)
    assert len(watched.spans) == 3
    assert "secret" not in watched.everything_recorded()


def test_it_is_recorded_where_that_is_asked_for() -> None:
    """The question, reasons, decisions and messages are in the spans, and in no measurement."""
    watched = Watched(record_content=True)
    tell_secrets(watched)
    answered, raised = (span for span in watched.spans if span.name == "retrieval.query")
    assert attributes_of(answered)["gen_ai.retrieval.query.text"] == "my secret"
    assert dict(answered.events[0].attributes or {})["retrieval.reason"] == "secret reason"
    assert raised.status.description == "secret cause"
    call = watched.span("retrieval.rewrite")
    assert attributes_of(call)["retrieval.decision"] == "secret decision"
    assert call.status.description == "secret error"
    data: Any = watched.reader.get_metrics_data()
    assert "secret" not in data.to_json()


def test_tokens_are_in_the_span_and_measured() -> None:
    """By the names of the conventions, with what the program knows about the model."""
    watched = Watched(attributes={"relevance": {"gen_ai.request.model": "small"}})
    with watched.observer.span("relevance") as span:
        span.end(StageRecord("relevance", 1.0, 5, 2, attempts=1, usage=Usage(30, 7)))
    found = attributes_of(watched.span("retrieval.relevance"))
    assert (found["gen_ai.usage.input_tokens"], found["gen_ai.usage.output_tokens"]) == (30, 7)
    assert (found["retrieval.count_in"], found["retrieval.count_out"]) == (5, 2)
    assert (found["gen_ai.request.model"], found["gen_ai.operation.name"]) == ("small", "chat")
    measured = {
        point.attributes["gen_ai.token.type"]: (point.sum, point.attributes["gen_ai.request.model"])
        for point in watched.points("gen_ai.client.token.usage")
    }
    assert measured == {"input": (30, "small"), "output": (7, "small")}


def test_two_observers_each_describe_their_own_query() -> None:
    """The result belongs to an observer's own span, whatever another one made current."""
    first, second = Watched(), Watched()
    a_pipeline(SeveralObservers(first.observer, second.observer)).retrieve(QUERY)
    for watched in (first, second):
        assert "retrieval.hits" in attributes_of(watched.span("retrieval.query"))


def test_without_an_sdk_nothing_is_recorded_and_nothing_fails() -> None:
    """The API alone does nothing."""
    result = a_pipeline(OpenTelemetryObserver()).retrieve(QUERY)
    assert result.hits


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is raised where the observer is made."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[otel\]"):
        OpenTelemetryObserver()


def test_importing_the_observers_loads_no_vendor() -> None:
    """Neither OpenTelemetry nor a Prometheus client."""
    code = (
        "import sys, retrieval_core.run.observe;"
        "print([name for name in ('opentelemetry', 'prometheus_client') if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert printed.stdout.strip() == "[]"
