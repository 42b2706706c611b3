"""Export of traces to a collector, and to one that fails or does not answer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from operator_runner.core.model import GVK, Cause, ObjectRef, Trigger
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.telemetry.tracing import provider
from operator_runner.telemetry.tracing.opening import open_traces
from operator_runner.telemetry.tracing.run_spans import Traces
from tests.support.otlp import Collector, collector
from tests.support.waiting import eventually

REF = ObjectRef(GVK("example.com", "v1", "Page"), "default", "home")
DEFAULTS = {"service.name": "operator-runner", "k8s.namespace.name": "pages-system"}


@pytest.fixture
def receiving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """Start a collector, and have the environment name it."""
    with collector() as found:
        for name, text in found.environment.items():
            monkeypatch.setenv(name, text)
        yield found


def reconcile(traces: Traces | None) -> None:
    assert traces is not None
    with traces.reconcile(REF, (Cause(Trigger.SPEC),), 0.1) as trace:
        trace.end("succeeded")


async def test_spans_reach_the_collector_before_the_end(
    receiving: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Name, attributes of the resource and headers are those of the standard variables."""
    monkeypatch.setattr(provider, "_SHUTDOWN_SECONDS", 180.0)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "pages")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=pages-0")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
    async with open_traces(os.environ, DEFAULTS, RequestInfo.parse, {}) as traces:
        reconcile(traces)
    assert [span.name for span in receiving.spans()] == ["queue", "reconcile Page"]
    expected = {
        "service.name": "pages",
        "k8s.namespace.name": "pages-system",
        "k8s.pod.name": "pages-0",
    }
    assert expected.items() <= receiving.resource.items()
    assert receiving.headers[0]["x-tenant"] == "blue"


async def test_a_collector_that_does_not_answer_does_not_delay_the_end(
    receiving: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last spans are given up."""
    monkeypatch.setattr(provider, "_SHUTDOWN_SECONDS", 0.1)
    receiving.answering.clear()
    with structlog.testing.capture_logs() as lines:
        async with open_traces(os.environ, DEFAULTS, RequestInfo.parse, {}) as traces:
            reconcile(traces)
            eventually(receiving.held.is_set)
    assert [line["event"] for line in lines][-1] == "Last traces were not exported"
    assert receiving.requests == []


async def test_a_collector_that_fails_is_logged_once_until_it_answers_again(
    receiving: Collector,
) -> None:
    """The line has the reason; reconciles go on."""
    receiving.status = 400

    def logged(event: str) -> list[Any]:
        return [line for line in lines if line["event"] == event]

    with structlog.testing.capture_logs() as lines:
        async with open_traces(os.environ, DEFAULTS, RequestInfo.parse, {}) as traces:
            reconcile(traces)
            eventually(lambda: logged("Cannot export traces"))
            answers = len(receiving.headers)
            reconcile(traces)
            eventually(lambda: len(receiving.headers) > answers)
            receiving.status = 200
            reconcile(traces)
            eventually(lambda: logged("Traces are exported again"))
    [failure] = logged("Cannot export traces")
    assert "400" in failure["error"]
