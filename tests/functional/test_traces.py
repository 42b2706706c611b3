"""Traces of a real operator at a collector, which stops answering."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.functional.test_operator import ROLE, echo, text_of, wait_for_text
from tests.support.kubectl import Kubectl
from tests.support.operator import Operator
from tests.support.otlp import Collector, collector, texts
from tests.support.runner_cli import RunnerCli
from tests.support.waiting import eventually

TASKS = """
- name: Write a Secret
  no_log: true
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: Secret
      metadata:
        name: visible-to-few
        namespace: "{{ ansible_operator_meta.namespace }}"
      stringData:
        password: correct-horse-battery
- name: Continue the trace
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: "{{ ansible_operator_meta.name }}-trace"
        namespace: "{{ ansible_operator_meta.namespace }}"
      data:
        text: "{{ lookup('env', 'TRACEPARENT') }}"
- name: Refuse
  when: refuse | default(false)
  ansible.builtin.fail:
    msg: not today
"""
ROOT = "reconcile Echo"


@pytest.fixture
def receiving() -> Iterator[Collector]:
    """Start a collector."""
    with collector() as found:
        yield found


@pytest.fixture
def traced(
    receiving: Collector,
    project: Path,
    make_operator: Callable[[str], Operator],
    monkeypatch: pytest.MonkeyPatch,
) -> Operator:
    """Return an operator that exports traces; it is not started yet."""
    role = project / ROLE
    role.write_text(role.read_text() + TASKS)
    for name, text in receiving.environment.items():
        monkeypatch.setenv(name, text)
    return make_operator("operator")


def trace_of_run(receiving: Collector, operator: Operator, result: str) -> dict[str, Span]:
    """Wait for the first trace of a run with this result; return its spans by their names."""

    def find() -> Span | None:
        return next((span for span in receiving.spans() if is_root(span)), None)

    def is_root(span: Span) -> bool:
        found = texts(span.attributes)
        has_run = "operator_runner.run.id" in found
        return span.name == ROOT and has_run and found["operator_runner.result"] == result

    root = eventually(find, details=operator.log)
    assert root is not None
    # The root is the last span of its trace that ends.
    return {span.name: span for span in receiving.spans() if span.trace_id == root.trace_id}


def test_a_reconcile_is_one_trace_to_which_logs_metrics_run_and_role_refer(
    kubectl: Kubectl, traced: Operator, receiving: Collector, cli: RunnerCli
) -> None:
    """Queue, run, tasks and requests; no name or content of a Secret.

    Runs and the end of the operator do not wait for a collector that no longer answers.
    """
    traced.start()
    kubectl.apply(echo(say_this="world", refuse=True))
    spans = trace_of_run(receiving, traced, "failed")
    root, run = spans[ROOT], spans["run"]
    trace_id = root.trace_id.hex()

    assert {spans[name].parent_span_id for name in ("queue", "run")} == {root.span_id}
    tasks = ("Say what the resource says", "Write a Secret", "Continue the trace", "Refuse")
    assert {spans[name].parent_span_id for name in tasks} == {run.span_id}
    assert spans["Refuse"].status.code == Status.STATUS_CODE_ERROR
    assert "not today" in root.status.message
    created = spans["POST /api/v1/namespaces/{namespace}/secrets"]
    assert created.parent_span_id == spans["Write a Secret"].span_id
    sent = "".join(map(str, receiving.requests))
    assert "correct-horse-battery" not in sent
    assert "visible-to-few" not in sent

    [line, *_] = [each for each in traced.lines("Reconciling") if each["trace_id"] == trace_id]
    assert line["span_id"] == root.span_id.hex()
    run_id = texts(root.attributes)["operator_runner.run.id"]
    shown = cli("runs", "show", run_id, f"--work-dir={traced.scratch / 'work'}")
    assert re.search(rf"^Trace: +{trace_id}$", shown, re.MULTILINE)
    # Meanwhile a retry may have replaced what the first run left here.
    parent = text_of(kubectl, "a-trace")
    assert parent is not None
    _, *ids, _ = parent.split("-")
    eventually(lambda: ids in ids_of(receiving, "run"), details=traced.log)
    [exemplar, *_] = re.findall(r'trace_id="(\w+)"', open_metrics(traced))
    eventually(lambda: exemplar in {trace for trace, _ in ids_of(receiving, ROOT)})

    receiving.held.clear()
    receiving.answering.clear()
    kubectl.apply(echo(say_this="again"))
    wait_for_text(kubectl, traced, "hello again")
    eventually(receiving.held.is_set, details=traced.log)
    kubectl.apply(echo(say_this="once more"))
    wait_for_text(kubectl, traced, "hello once more")
    assert traced.terminate() == 0


def ids_of(receiving: Collector, name: str) -> list[list[str]]:
    """Return the ids of trace and span of all spans with a name."""
    spans = [span for span in receiving.spans() if span.name == name]
    return [[span.trace_id.hex(), span.span_id.hex()] for span in spans]


def open_metrics(operator: Operator) -> str:
    """Return the metrics in the format that has exemplars."""
    request = urllib.request.Request(
        f"http://{operator.metrics_address}/metrics",
        headers={"Accept": "application/openmetrics-text;version=1.0.0"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        text: str = answer.read().decode()
        return text
