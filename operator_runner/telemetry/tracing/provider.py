"""Traces by the SDK of OpenTelemetry: the only module that imports it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import structlog
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from operator_runner import __version__
from operator_runner.core.model import Cause, Json, ObjectRef
from operator_runner.telemetry.tracing.run_spans import (
    RESULT,
    RUN_ID,
    Attributes,
    PathParser,
    ReconcileTrace,
    SpanData,
    public_text,
    run_attributes,
    run_error,
    spans_of_run,
)

_log = structlog.get_logger(__name__)
_SHUTDOWN_SECONDS = 3.0
"""Time for the last spans; the operator ends then, whatever the collector does."""
_MAX_CAUSES = 20


def open_provider(exporters: Sequence[str], defaults: Mapping[str, str]) -> TracerProvider:
    """Return a provider that exports in a thread. Raises ValueError for invalid variables.

    `defaults` are attributes of the resource that OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME
    replace.
    """
    given = OTELResourceDetector().detect().attributes
    resource = Resource.create({**defaults, **given})
    # At the end of the process, a shutdown would have no limit; see `close`.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for name in exporters:
        exporter = ConsoleSpanExporter() if name == "console" else _ReportingExporter()
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


class OpenTelemetryTraces:
    """Traces of reconciles; see `run_spans.Traces`."""

    def __init__(self, provider: TracerProvider, parse: PathParser, server: Attributes) -> None:
        """Record with `provider`; `parse` and `server` are those of `spans_of_run`."""
        self._provider = provider
        self._tracer = provider.get_tracer("operator_runner", __version__)
        self._parse = parse
        self._server = server
        self._current: ContextVar[_Reconcile | None] = ContextVar("reconcile", default=None)

    @contextmanager
    def reconcile(
        self, ref: ObjectRef, causes: Sequence[Cause], waited: float
    ) -> Iterator[ReconcileTrace]:
        """See `run_spans.Traces`."""
        now = time.time_ns()
        due = now - round(waited * 1e9)
        root = self._tracer.start_span(
            f"reconcile {ref.gvk.kind}",
            # A trace of its own, whatever context the process has.
            Context(),
            attributes=_resource_attributes(ref, causes),
            start_time=due,
        )
        trace = _Reconcile(self._tracer, root)
        trace.add(SpanData("queue", due, now, {}))
        token = self._current.set(trace)
        try:
            with structlog.contextvars.bound_contextvars(**(trace.exemplar or {})):
                yield trace
        finally:
            self._current.reset(token)
            trace.close()

    def run_environment(self, run_id: str) -> Mapping[str, str]:
        """See `run_spans.Traces`."""
        trace = self._current.get()
        return {} if trace is None else trace.start_run(run_id)

    def run_ended(self, document: Json) -> None:
        """See `run_spans.Traces`."""
        trace = self._current.get()
        if trace is None:
            return
        try:
            trace.end_run(document, spans_of_run(document, self._parse, self._server))
        except Exception:  # noqa: BLE001 (a trace that fails must not fail its reconcile)
            _log.exception("Cannot trace the run: internal error")

    async def close(self) -> None:
        """Send the last spans, and give up after `_SHUTDOWN_SECONDS`."""
        # A daemon: a request to a collector that does not answer must not delay the end.
        thread = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        thread.start()
        await asyncio.to_thread(thread.join, _SHUTDOWN_SECONDS)
        if thread.is_alive():
            _log.warning("Last traces were not exported", seconds=_SHUTDOWN_SECONDS)


class _Reconcile:
    """The open spans of a reconcile; see `run_spans.ReconcileTrace`."""

    def __init__(self, tracer: Tracer, root: Span) -> None:
        self._tracer = tracer
        self._root = root
        self._run: Span | None = None
        self._has_result = False

    @property
    def exemplar(self) -> Mapping[str, str] | None:
        """See `run_spans.ReconcileTrace`."""
        context = self._root.get_span_context()
        if not context.trace_flags.sampled:
            return None
        return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}

    def end(self, result: str, error: str | None = None) -> None:
        """See `run_spans.ReconcileTrace`."""
        self._has_result = True
        self._root.set_attribute(RESULT, result)
        _set_error(self._root, None if error is None else public_text(error))

    def start_run(self, run_id: str) -> Mapping[str, str]:
        """Begin the span of a run; return TRACEPARENT, and TRACESTATE where there is one."""
        self._run = self._tracer.start_span("run", set_span_in_context(self._root, Context()))
        self._root.set_attribute(RUN_ID, run_id)
        carrier: dict[str, str] = {}
        context = set_span_in_context(self._run, Context())
        TraceContextTextMapPropagator().inject(carrier, context)
        return {name.upper(): text for name, text in carrier.items()}

    def end_run(self, document: Json, spans: Sequence[SpanData]) -> None:
        """Add the spans of a run, and end its own."""
        if self._run is None:
            return
        self._root.set_attribute("k8s.object.uid", document["resource"].get("uid", ""))
        self._run.set_attributes(run_attributes(document))
        _set_error(self._run, run_error(document))
        for span in spans:
            self._add(span, self._run)
        self._run.end()
        self._run = None

    def add(self, span: SpanData) -> None:
        """Add a finished span below the root."""
        self._add(span, self._root)

    def close(self) -> None:
        """End what is open."""
        if not self._has_result:
            self._root.set_attribute(RESULT, "cancelled")
        if self._run is not None:
            self._run.end()
        self._root.end()

    def _add(self, data: SpanData, parent: Span) -> None:
        span = self._tracer.start_span(
            data.name,
            set_span_in_context(parent, Context()),
            SpanKind.CLIENT if data.is_request else SpanKind.INTERNAL,
            attributes=data.attributes,
            start_time=data.start,
        )
        _set_error(span, data.error)
        for child in data.children:
            self._add(child, span)
        span.end(max(data.end, data.start))


class _ReportingExporter(SpanExporter):
    """OTLP over HTTP; logs once that exports fail, and once that they succeed again."""

    def __init__(self) -> None:
        """Read endpoint, headers and timeout from the standard variables."""
        self._exporter: SpanExporter = trace_exporter.OTLPSpanExporter()
        self._messages = _LastMessages()
        logging.getLogger(trace_exporter.__name__).addFilter(self._messages)
        self._is_failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans; retries and their limit are the SDK's."""
        result = self._exporter.export(spans)
        is_failing = result is not SpanExportResult.SUCCESS
        if is_failing and not self._is_failing:
            _log.warning("Cannot export traces", error=str(self._messages))
        elif self._is_failing and not is_failing:
            _log.info("Traces are exported again")
        self._is_failing = is_failing
        return result

    def shutdown(self) -> None:
        """End retries."""
        logging.getLogger(trace_exporter.__name__).removeFilter(self._messages)
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Nothing is buffered here."""
        return self._exporter.force_flush(timeout_millis)


class _LastMessages(logging.Filter):
    """Drops the exporter's log lines, which it writes for each attempt; keeps the last texts."""

    def __init__(self) -> None:
        super().__init__()
        # After retries, the last line has no reason, but the one before it has.
        self._texts: deque[str] = deque(maxlen=2)

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the text of a record, and drop the record."""
        self._texts.append(record.getMessage())
        return False

    def __str__(self) -> str:
        """Return the last texts, oldest first."""
        return " ".join(self._texts)


def _resource_attributes(ref: ObjectRef, causes: Sequence[Cause]) -> Attributes:
    attributes: dict[str, str | Sequence[str]] = {
        "k8s.object.api_version": ref.gvk.api_version,
        "k8s.object.kind": ref.gvk.kind,
        "k8s.object.name": ref.name,
        "operator_runner.causes": [public_text(str(cause)) for cause in causes[:_MAX_CAUSES]],
    }
    return attributes | ({"k8s.namespace.name": ref.namespace} if ref.namespace else {})


def _set_error(span: Span, error: str | None) -> None:
    if error is not None:
        span.set_status(StatusCode.ERROR, error or None)
