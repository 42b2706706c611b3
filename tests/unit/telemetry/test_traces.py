"""Traces of reconciles: their spans, what they hide, and when they are on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import (
    GVK,
    Cause,
    ObjectRef,
    RunApiRequest,
    RunEvent,
    RunOutcome,
    Stats,
    TaskFailure,
    Trigger,
)
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.telemetry import tracing
from operator_runner.telemetry.metrics import Metrics, RunTimes
from operator_runner.telemetry.runs.records import RunStore
from operator_runner.telemetry.tracing.opening import exporters_of, open_traces
from operator_runner.telemetry.tracing.provider import OpenTelemetryTraces

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
REF = ObjectRef(GVK("example.com", "v1", "Page"), "default", "home")
CAUSES = (Cause(Trigger.SPEC, "spec.text"),)
CONFIG_MAP = "/api/v1/namespaces/default/configmaps/home"
SAMPLED = 1
"""Flag of TRACEPARENT."""
DONE = RunOutcome(Stats(ok=2, changed=1))


class Recorded:
    """Traces of runs that a store records; spans are kept in memory."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        provider = provider or TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        server: dict[str, str | int] = {"server.address": "api.example.com", "server.port": 6443}
        self.traces = OpenTelemetryTraces(provider, RequestInfo.parse, server)
        self.store = RunStore(lambda: NOON)
        self.store.on_record(self.traces.run_ended)

    def run(
        self,
        *reports: RunEvent | RunApiRequest,
        outcome: RunOutcome | None = DONE,
        result: tuple[str, str | None] = ("succeeded", None),
    ) -> Mapping[str, str]:
        """Trace a reconcile with a run; return the variables of the run."""
        with self.traces.reconcile(REF, CAUSES, 0.5) as trace:
            variables = self.traces.run_environment("1")
            self.store.started(REF, "uid", "1", CAUSES)
            for report in reports:
                if isinstance(report, RunEvent):
                    self.store.on_event("1", report)
                else:
                    self.store.on_request("1", report)
            self.store.ended("1", outcome)
            trace.end(*result)
        return variables

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def parents(self) -> dict[str, str]:
        """Return the name of the parent of each span, empty for the root."""
        names = {id_of(span): name for name, span in self.spans.items()}
        return {
            name: names[f"{span.parent.span_id:016x}"] if span.parent else ""
            for name, span in self.spans.items()
        }

    def attributes(self, name: str) -> Mapping[str, Any]:
        return dict(self.spans[name].attributes or {})


def id_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.span_id:016x}"


@pytest.fixture
def recorded() -> Recorded:
    """Return traces that export everything."""
    return Recorded()


@pytest.fixture(autouse=True)
def _without_bound_keys() -> Iterator[None]:
    """Begin without keys of other tests."""
    with structlog.contextvars.bound_contextvars():
        yield


def task(
    name: str,
    start: float,
    end: float,
    kind: str = "runner_on_ok",
    *,
    host: str = "localhost",
    **res: Any,
) -> RunEvent:
    data = {
        "task": name,
        "task_action": "kubernetes.core.k8s",
        "task_path": "/opt/ansible/roles/page/tasks/main.yml:7",
        "host": host,
        "start": (NOON + timedelta(seconds=start)).isoformat(),
        "end": (NOON + timedelta(seconds=end)).isoformat(),
        "duration": end - start,
    }
    return RunEvent(kind, {**data, "res": res})


def request(
    at: float, method: str = "GET", path: str = CONFIG_MAP, status: int = 200
) -> RunApiRequest:
    return RunApiRequest(method, path, status, NOON.timestamp() + at, 0.25)


def test_a_reconcile_has_spans_of_queue_run_tasks_and_requests(recorded: Recorded) -> None:
    """Requests are below the task that was in progress; the others are below the run."""
    recorded.run(
        task("Write", 1, 2, changed=True),
        request(1.5, "PATCH"),
        task("Wait", 3, 4),
        request(2.5),
    )
    template = "/api/v1/namespaces/{namespace}/configmaps/{name}"
    assert recorded.parents() == {
        "reconcile Page": "",
        "queue": "reconcile Page",
        "run": "reconcile Page",
        "Write": "run",
        f"PATCH {template}": "Write",
        "Wait": "run",
        f"GET {template}": "run",
    }


def test_spans_have_the_times_of_the_record(recorded: Recorded) -> None:
    """Tasks and requests have their own times, though they are exported after the run."""
    recorded.run(task("Write", 1, 2), request(1.5))
    noon = int(NOON.timestamp()) * 10**9
    write, get = recorded.spans["Write"], recorded.exporter.get_finished_spans()[1]
    assert (write.start_time, write.end_time) == (noon + 10**9, noon + 2 * 10**9)
    assert (get.start_time, get.end_time) == (noon + 15 * 10**8, noon + 175 * 10**7)


def test_the_queue_span_ends_when_the_reconcile_starts(recorded: Recorded) -> None:
    """It begins with the root: when the resource became due."""
    recorded.run()
    root, queue = recorded.spans["reconcile Page"], recorded.spans["queue"]
    assert root.start_time == queue.start_time
    assert queue.start_time is not None
    assert queue.end_time == queue.start_time + 5 * 10**8


def test_the_root_span_names_resource_causes_run_and_result(recorded: Recorded) -> None:
    """By them a trace of a resource is found."""
    recorded.run()
    assert recorded.attributes("reconcile Page") == {
        "k8s.object.api_version": "example.com/v1",
        "k8s.object.kind": "Page",
        "k8s.namespace.name": "default",
        "k8s.object.name": "home",
        "k8s.object.uid": "uid",
        "operator_runner.causes": ("spec: spec.text",),
        "operator_runner.run.id": "1",
        "operator_runner.result": "succeeded",
    }


def test_a_task_span_names_module_host_result_and_line(recorded: Recorded) -> None:
    """As the callback plugin `opentelemetry` does."""
    recorded.run(task("Write", 1, 2, changed=True))
    assert recorded.attributes("Write") == {
        "ansible.task.name": "Write",
        "ansible.task.module": "kubernetes.core.k8s",
        "ansible.task.host.name": "localhost",
        "ansible.task.host.status": "changed",
        "code.file.path": "/opt/ansible/roles/page/tasks/main.yml",
        "code.line.number": 7,
    }


def test_a_failed_run_is_an_error_of_task_run_and_reconcile(recorded: Recorded) -> None:
    """All three have the message; credentials in it are replaced."""
    message = "no answer from https://me:hunter2@example.com"
    path = "/opt/ansible/roles/page/tasks/main.yml:7"
    recorded.run(
        task("Write", 1, 2, "runner_on_failed", msg=message),
        outcome=RunOutcome(Stats(failures=1), (TaskFailure("Write", message, path),)),
        result=("failed", message),
    )
    for name in ("Write", "run", "reconcile Page"):
        status = recorded.spans[name].status
        assert status.status_code is StatusCode.ERROR
        assert status.description == "no answer from https://me:[redacted]@example.com"


def test_a_refused_request_is_an_error_and_an_absent_object_is_not(recorded: Recorded) -> None:
    """Roles ask whether an object exists."""
    recorded.run(request(1, "PATCH", status=403), request(2, status=404))
    found = {span.name.partition(" ")[0]: span for span in recorded.spans.values()}
    assert found["PATCH"].status.status_code is StatusCode.ERROR
    assert (found["PATCH"].attributes or {})["error.type"] == "403"
    assert found["GET"].status.status_code is StatusCode.UNSET


def test_a_request_span_has_no_name_of_a_secret(recorded: Recorded) -> None:
    """The path has placeholders; other objects are named by an attribute."""
    recorded.run(
        request(1, "PUT", "/api/v1/namespaces/default/secrets/visible-to-few"),
        request(2, "GET", "/apis/apps/v1/namespaces/default/deployments/home/scale"),
    )
    secret = "PUT /api/v1/namespaces/{namespace}/secrets/{name}"
    scale = "GET /apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"
    assert recorded.attributes(secret) == {
        "server.address": "api.example.com",
        "server.port": 6443,
        "http.request.method": "PUT",
        "http.response.status_code": 200,
        "url.template": "/api/v1/namespaces/{namespace}/secrets/{name}",
        "k8s.namespace.name": "default",
    }
    assert recorded.attributes(scale)["k8s.object.name"] == "home"
    assert recorded.spans[scale].kind is SpanKind.CLIENT
    assert "visible-to-few" not in "".join(map(str, recorded.spans.values()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Secret default/db changed (data.password)", "Secret changed (data.password)"),
        ('secrets "db" is forbidden', "secrets is forbidden"),
        ("ConfigMap default/db deleted", "ConfigMap default/db deleted"),
    ],
)
def test_causes_and_messages_have_no_names_of_secrets(text: str, expected: str) -> None:
    """Whether an event of the Secret or an answer of the API server has it."""
    recorded = Recorded()
    with recorded.traces.reconcile(REF, (Cause(Trigger.DEPENDENT, text),), 0) as trace:
        trace.end("failed", text)
    root = recorded.spans["reconcile Page"]
    assert root.status.description == expected
    assert (root.attributes or {})["operator_runner.causes"] == (f"dependent: {expected}",)


def test_a_request_during_tasks_of_two_hosts_is_below_the_run(recorded: Recorded) -> None:
    """Nothing shows which of them made it."""
    recorded.run(task("Here", 1, 3), task("There", 1, 3, host="db"), request(1.5, path="/version"))
    assert recorded.parents()["GET /version"] == "run"
    assert recorded.attributes("There")["ansible.task.host.name"] == "db"


def test_a_task_starts_when_the_one_before_has_ended(recorded: Recorded) -> None:
    """Events of `meta` tasks have the start of the task before."""
    recorded.run(task("Read", 1, 2), task("End the play", 1, 3), request(1.5, path="/apis/apps/v1"))
    assert recorded.parents()["GET /apis/apps/v1"] == "Read"
    assert recorded.spans["End the play"].start_time == recorded.spans["Read"].end_time


def test_a_path_that_is_not_of_the_kubernetes_api_is_in_no_span(recorded: Recorded) -> None:
    """Nothing is known of what it has."""
    recorded.run(request(1, path="/hooks/hunter2"))
    assert recorded.parents()["GET"] == "run"
    assert "url.template" not in recorded.attributes("GET")


def test_results_of_hidden_tasks_are_in_no_span(recorded: Recorded) -> None:
    """`no_log` hides them from traces as from logs."""
    recorded.run(task("Write", 1, 2, censored="hidden by no_log", password="hunter2"))
    assert "hunter2" not in "".join(span.to_json() for span in recorded.spans.values())


def test_a_cancelled_reconcile_ends_its_spans(recorded: Recorded) -> None:
    """An operator that ends exports what it has."""

    def cancelled() -> None:
        with recorded.traces.reconcile(REF, CAUSES, 0):
            recorded.traces.run_environment("1")
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        cancelled()
    assert recorded.attributes("reconcile Page")["operator_runner.result"] == "cancelled"
    assert recorded.parents()["run"] == "reconcile Page"


def test_a_run_continues_its_trace_in_the_environment(recorded: Recorded) -> None:
    """TRACEPARENT has the span of the run."""
    variables = recorded.run()
    run = recorded.spans["run"]
    assert run.context is not None
    version, trace, parent, flags = variables["TRACEPARENT"].split("-")
    assert (version, trace, parent) == ("00", f"{run.context.trace_id:032x}", id_of(run))
    assert int(flags, 16) & SAMPLED


def test_log_lines_of_a_reconcile_have_its_ids(recorded: Recorded) -> None:
    """They are gone after it."""
    with recorded.traces.reconcile(REF, CAUSES, 0) as trace:
        bound = structlog.contextvars.get_contextvars()
        assert trace.exemplar == bound
    root = recorded.spans["reconcile Page"]
    assert root.context is not None
    assert bound == {"trace_id": f"{root.context.trace_id:032x}", "span_id": id_of(root)}
    assert structlog.contextvars.get_contextvars() == {}


def test_a_trace_that_is_not_sampled_has_no_ids() -> None:
    """A log line must not name a trace that does not exist; TRACEPARENT has no such flag."""
    recorded = Recorded(TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False))
    with recorded.traces.reconcile(REF, CAUSES, 0) as trace:
        assert trace.exemplar is None
        assert structlog.contextvars.get_contextvars() == {}
    flags = recorded.run(task("Write", 1, 2))["TRACEPARENT"].rpartition("-")[2]
    assert not int(flags, 16) & SAMPLED
    assert recorded.spans == {}


def test_openmetrics_has_exemplars_of_the_traces() -> None:
    """The histograms of durations refer to a trace in each bucket that had one."""
    metrics, ids = Metrics("1"), {"trace_id": "ab" * 16, "span_id": "cd" * 8}
    metrics.watching(REF.gvk, 1)
    metrics.reconcile_started(REF.gvk)
    metrics.reconcile_finished(REF.gvk, "success", 2, ids)
    metrics.run_finished(REF.gvk, CAUSES, "succeeded", RunTimes(1, 2, ids))
    text, _ = metrics.render("application/openmetrics-text;version=1.0.0")
    families = text_string_to_metric_families(text.decode())  # type: ignore[no-untyped-call]
    found = {
        family.name
        for family in families
        for sample in family.samples
        if sample.exemplar and sample.exemplar.labels == ids
    }
    assert found == {
        "ansible_operator_reconciles",
        "controller_runtime_reconcile_time_seconds",
        "operator_runner_run_duration_seconds",
        "operator_runner_queue_duration_seconds",
    }
    assert b"trace_id" not in metrics.render()[0]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ()),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, ("otlp",)),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, ("otlp",)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, ()),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://collector:4318/v1/metrics"}, ()),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, ("otlp",)),
        ({"OTEL_TRACES_EXPORTER": "otlp, console"}, ("otlp", "console")),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, ()),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "True"}, ()),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": ""}, ("otlp",)),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ()),
    ],
)
def test_the_standard_variables_select_exporters(
    environ: dict[str, str], expected: tuple[str, ...]
) -> None:
    """Traces are off without them."""
    assert exporters_of(environ) == expected


@pytest.mark.parametrize(
    "environ",
    [
        {"OTEL_TRACES_EXPORTER": "zipkin"},
        {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
    ],
)
async def test_what_is_not_supported_turns_traces_off(environ: dict[str, str]) -> None:
    """A warning names the variable; the operator starts."""
    with pytest.raises(ConfigError, match=next(reversed(environ))):
        exporters_of(environ)
    with structlog.testing.capture_logs() as lines:
        async with open_traces(environ, {}, RequestInfo.parse, {}) as traces:
            assert traces is None
    assert [line["event"] for line in lines] == ["Traces are disabled"]


async def test_missing_packages_turn_traces_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning has a hint; the operator starts."""
    monkeypatch.delattr(tracing, "provider")
    monkeypatch.setitem(sys.modules, f"{tracing.__name__}.provider", None)
    with structlog.testing.capture_logs() as lines:
        async with open_traces(
            {"OTEL_TRACES_EXPORTER": "otlp"}, {}, RequestInfo.parse, {}
        ) as traces:
            assert traces is None
    [line] = lines
    assert "pip install '.[otel]' in the repository of operator-runner" in line["hint"]


def test_a_record_that_cannot_be_traced_does_not_fail_the_run(recorded: Recorded) -> None:
    """Whatever is in it: the run has ended, and its result must be reported."""
    broken: Callable[..., None] = recorded.traces.run_ended
    with (
        recorded.traces.reconcile(REF, CAUSES, 0) as trace,
        structlog.testing.capture_logs() as log,
    ):
        recorded.traces.run_environment("1")
        broken({"tasks": [{"started": "never", "ended": "never"}]})
        trace.end("succeeded")
    assert [line["event"] for line in log] == ["Cannot trace the run: internal error"]
    assert recorded.parents()["run"] == "reconcile Page"
