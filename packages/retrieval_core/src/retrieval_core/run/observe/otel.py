"""Spans and measurements for OpenTelemetry.

Names follow its semantic conventions where they exist: ``gen_ai.*`` (of the generative AI conventions, in development),
``db.operation.name`` and ``error.type``. All other names begin with ``retrieval.``.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, cast

from retrieval_core.errors import MissingExtraError, ServiceError
from retrieval_core.run.observe.metrics import SECONDS

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from contextlib import AbstractContextManager

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from retrieval_core.types import RetrievalResult, StageRecord

_OPERATIONS: dict[str, dict[str, str]] = {
    "embed": {"gen_ai.operation.name": "embeddings"},
    "answer": {"gen_ai.operation.name": "chat"},
    "relevance": {"gen_ai.operation.name": "chat"},
    "rewrite": {"gen_ai.operation.name": "chat"},
    "dense": {"db.operation.name": "search"},
    "lexical": {"db.operation.name": "search"},
    "fetch": {"db.operation.name": "fetch"},
}
"""Attributes by stage, as the semantic conventions name the operations."""
_TOKENS = tuple(4**power for power in range(14))
"""Bucket boundaries that the conventions give for numbers of tokens: 1, 4, 16 … 67108864."""


class OpenTelemetryObserver:
    """Report spans and metrics to OpenTelemetry; an :class:`~retrieval_core.run.observe.Observer`.

    A query is a span ``retrieval.query``, a child of the caller's current span. Each call of a stage, with all retries,
    is a child of that, such as ``retrieval.embed``. Callers that share one search share its spans, which belong to the
    first query. A failed call has the status error, and ``error.type``. Each degradation is an event
    ``retrieval.degraded`` of the query's span.

    The question is not recorded, nor are reasons and messages of errors, which may quote it.

    Args:
        record_content: Record these all the same: ``gen_ai.retrieval.query.text``, the messages of errors, decisions
            and reasons.
        attributes: More attributes for the spans and measurements of a stage, by stage, such as ``{"embed":
            {"gen_ai.provider.name": "openai", "gen_ai.request.model": "..."}, "dense": {"db.system.name": "sqlite"}}``.
            Keep their values few: each makes a time series.
        tracer_provider: By default the global one.
        meter_provider: By default the global one.

    Raises:
        MissingExtraError: OpenTelemetry's API is not installed.
    """

    def __init__(
        self,
        *,
        record_content: bool = False,
        attributes: Mapping[str, Mapping[str, str]] | None = None,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        try:
            from opentelemetry import context, metrics, trace  # noqa: PLC0415
        except ImportError as error:
            raise MissingExtraError("otel", "OpenTelemetryObserver") from error
        self._record_content = record_content
        self._attributes = {stage: dict(more) for stage, more in (attributes or {}).items()}
        self._error = trace.StatusCode.ERROR
        self._context = context
        # The query's span is not simply the current one: another observer may have put its own below it.
        self._key = context.create_key("retrieval.query")
        self._tracer = trace.get_tracer("retrieval_core", _version(), tracer_provider)
        meter = metrics.get_meter("retrieval_core", _version(), meter_provider)
        self._queries = meter.create_histogram(
            "retrieval.query.duration",
            "s",
            "Duration of answered queries.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._calls = meter.create_histogram(
            "retrieval.stage.duration",
            "s",
            "Duration of calls of stages, with all retries.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._failures = meter.create_counter("retrieval.query.failures", "{query}", "Queries that raised an error.")
        self._attempts = meter.create_counter("retrieval.stage.attempts", "{attempt}", "Attempts of calls to backends.")
        self._degraded = meter.create_counter(
            "retrieval.degraded", "{event}", "Degradations: stages that used a fallback."
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens that models read and wrote.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )

    @contextmanager
    def query(self) -> Generator[None]:
        """Make a span for a query."""
        started: dict[str, str] = {"gen_ai.operation.name": "retrieval"}
        with self._span("query", started) as span:
            token = self._context.attach(self._context.set_value(self._key, span))
            try:
                yield
            except BaseException as error:
                self._raised(span, error)
                if isinstance(error, Exception):
                    self._failures.add(1, {"error.type": type(error).__qualname__})
                raise
            finally:
                self._context.detach(token)

    @contextmanager
    def span(self, stage: str) -> Generator[_CallSpan]:
        """Make a span for a call."""
        described = {**_OPERATIONS.get(stage, {}), **self._attributes.get(stage, {})}
        with self._span(stage, described) as span:
            try:
                yield _CallSpan(self, span, described)
            except BaseException as error:
                self._raised(span, error)
                raise

    def answered(self, result: RetrievalResult) -> None:
        """Describe a result in the span of its query, and measure it."""
        span = cast("Span", self._context.get_value(self._key))
        span.set_attribute("retrieval.hits", len(result.hits))
        span.set_attribute("retrieval.from_cache", result.from_cache)
        span.set_attribute("retrieval.rewrites", len(result.rewrites))
        if isinstance(mode := result.metadata.get("mode"), str):
            span.set_attribute("retrieval.mode", mode)
        if self._record_content:
            span.set_attribute("gen_ai.retrieval.query.text", result.query)
        for entry in result.degraded:
            more = {"retrieval.reason": entry.reason} if self._record_content else {}
            span.add_event("retrieval.degraded", {"retrieval.stage": entry.stage, **more})
            self._degraded.add(1, {"retrieval.stage": entry.stage})
        measured = {"retrieval.from_cache": result.from_cache, "retrieval.degraded": bool(result.degraded)}
        self._queries.record(result.latency_ms / 1000, measured)

    def ended(self, span: Span, described: Mapping[str, str], record: StageRecord, error: Exception | None) -> None:
        """Describe a call's outcome in its span, and measure it."""
        span.set_attribute("retrieval.attempts", record.attempts)
        for name, count in (("retrieval.count_in", record.count_in), ("retrieval.count_out", record.count_out)):
            if count is not None:
                span.set_attribute(name, count)
        if self._record_content and record.decision is not None:
            span.set_attribute("retrieval.decision", record.decision)
        measured: dict[str, str] = {"retrieval.stage": record.stage, **described}
        self._attempts.add(record.attempts, measured)
        if record.error is not None:
            measured["error.type"] = type(error).__qualname__ if error is not None else "_OTHER"
            self._failed(span, measured["error.type"], record.error)
            if isinstance(error, ServiceError) and error.status is not None:
                span.set_attribute("http.response.status_code", error.status)
        self._calls.record(record.milliseconds / 1000, measured)
        if record.usage is not None:
            for kind, count in (("input", record.usage.input_tokens), ("output", record.usage.output_tokens)):
                span.set_attribute(f"gen_ai.usage.{kind}_tokens", count)
                self._tokens.record(count, {**described, "retrieval.stage": record.stage, "gen_ai.token.type": kind})

    def _span(self, name: str, attributes: Mapping[str, str]) -> AbstractContextManager[Span]:
        return self._tracer.start_as_current_span(
            f"retrieval.{name}", attributes=attributes, record_exception=False, set_status_on_exception=False
        )

    def _raised(self, span: Span, error: BaseException) -> None:
        if isinstance(error, Exception):
            self._failed(span, type(error).__qualname__, str(error))
        else:  # the caller went away: no fault of what was called
            span.set_attribute("retrieval.cancelled", value=True)

    def _failed(self, span: Span, kind: str, message: str) -> None:
        span.set_attribute("error.type", kind)
        span.set_status(self._error, message if self._record_content else None)


class _CallSpan:
    __slots__ = ("_described", "_observer", "_span")

    def __init__(self, observer: OpenTelemetryObserver, span: Span, described: Mapping[str, str]) -> None:
        self._observer = observer
        self._span = span
        self._described = described

    def end(self, record: StageRecord, error: Exception | None = None) -> None:
        self._observer.ended(self._span, self._described, record, error)


def _version() -> str:
    try:
        return version("retrieval-core")
    except PackageNotFoundError:  # run from a folder of sources
        return ""
