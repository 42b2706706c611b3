"""Causes of runs in the log, in Events, in metrics and in `operator-runner why`."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.functional.test_operator import wait_for_text
from tests.support.command import run_command
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.runner_cli import RunnerCli
from tests.support.waiting import eventually

KIND = "echoes.test.example.com"
ROLE = "roles/echo/tasks/main.yml"


def echo(**spec: Any) -> Json:
    metadata = {"name": "a", "annotations": {"note": "1"}}
    return {
        "apiVersion": "test.example.com/v1",
        "kind": "Echo",
        "metadata": metadata,
        "spec": spec,
    }


def wait_for_cause(operator: Operator, *texts: str) -> dict[str, Any]:
    """Wait for the end of a run that has all of these among its causes; return its line."""
    lines = eventually(
        lambda: [
            line
            for line in operator.lines("Reconciled", "Reconciliation failed")
            if all(text in line["cause"] for text in texts)
        ],
        details=operator.log,
    )
    return dict(lines[-1])


def wait_until_idle(operator: Operator) -> None:
    """Wait until every run that was begun has ended, and nothing waits."""
    # In one scrape: between two, a run may leave the queue and begin.
    busy = partial(operator.metric, "controller_runtime_active_workers", "workqueue_depth")
    eventually(busy, lambda number: number == 0, details=operator.log)


def notes(kubectl: Kubectl, reason: str) -> list[str]:
    listed = kubectl.list("events.v1.events.k8s.io")
    return [event["note"] for event in listed if event["reason"] == reason]


def why(*args: str | Path) -> str:
    done = run_command(["why", *args])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_runs_of_a_deleted_resource_are_not_those_of_its_namesake(
    kubectl: Kubectl, operator: Operator, cli: RunnerCli
) -> None:
    """`why` of a recreated resource begins with its own first run."""
    operator.start()
    kubectl.apply(echo(sayThis="1"))
    wait_for_cause(operator, "spec: created")
    kubectl.merge(KIND, "a", {"spec": {"sayThis": "2"}})
    wait_for_text(kubectl, operator, "hello 2")
    why = partial(cli, "why", f"{KIND}/a")
    eventually(why, lambda text: "spec: spec.sayThis" in text, details=operator.log)
    kubectl("delete", KIND, "a")
    kubectl.apply(echo(sayThis="3"))
    wait_for_text(kubectl, operator, "hello 3")
    # The event of its creation may start it, or that of a deleted object of the former one.
    lines = eventually(why, lambda text: "succeeded" in text, details=operator.log)
    assert "spec.sayThis" not in lines


def test_each_kind_of_cause_is_reported_everywhere(
    kubectl: Kubectl, operator: Operator, project: Path, control_plane: Path
) -> None:
    """Spec with paths, annotation, owned object with its writer, role, retry, period, start."""
    with (project / "watches.yaml").open("a") as watches:
        watches.write("  watchAnnotationsChanges: true\n")
    operator.start("--reload")
    kubectl.apply(echo(sayThis="1", list=[1, 2]))
    wait_for_cause(operator, "spec: created")
    kubectl.merge(KIND, "a", {"spec": {"sayThis": "2", "list": [1, 3]}})
    wait_for_cause(operator, "spec: spec.list[1], spec.sayThis")
    kubectl("annotate", KIND, "a", "note=2", "--overwrite")
    wait_for_cause(operator, "annotation: note")
    wait_until_idle(operator)

    owned = f"dependent: ConfigMap {kubectl.namespace}/a"
    kubectl.merge("configmap", "a", {"data": {"text": "changed"}})
    wait_for_cause(operator, f"{owned} changed by kubectl-patch (data.text)")
    kubectl("delete", "configmap", "a")
    wait_for_cause(operator, f"{owned} deleted")
    wait_until_idle(operator)
    role = project / ROLE
    works = role.read_text()
    role.write_text(works + "- ansible.builtin.fail: {msg: not today}\n")
    wait_for_cause(operator, "project: main.yml edited")
    wait_for_cause(operator, "retry: attempt 3")
    period = {"ansible.sdk.operatorframework.io/reconcile-period": "1s"}
    role.write_text(works)
    kubectl.merge(KIND, "a", {"metadata": {"annotations": period}})
    wait_for_cause(operator, "period: 1s")
    begun = {line["run_id"]: line for line in operator.lines("Reconciled")}
    assert all("seconds" in line for line in begun.values())
    assert operator.lines("Reconciling")[0]["cause"] == "spec: created"

    messages = "\n".join(notes(kubectl, "Successful"))
    for text in ("spec: created", "spec: spec.list[1], spec.sayThis", f"{owned} deleted"):
        assert f"(why: {text})" in messages
    assert any("not today" in n and "(why: retry)" in n for n in notes(kubectl, "Failed"))
    for trigger in ("spec", "annotation", "dependent", "project", "retry", "period"):
        for name in ("run_causes_total", "run_duration_seconds_count"):
            # Counted after the line of the log.
            look = partial(operator.metric, f"operator_runner_{name}", kind="Echo", trigger=trigger)
            eventually(look, details=operator.log)
    task = "Say what the resource says"
    assert operator.metric("operator_runner_task_duration_seconds_count", task=task) > 5

    kubectl.merge(KIND, "a", {"metadata": {"annotations": dict.fromkeys(period)}})
    wait_until_idle(operator)
    ours = ("-n", kubectl.namespace)
    by_events = why("echo/a", *ours, f"--kubeconfig={control_plane}")
    assert f"{owned} changed by kubectl-patch (data.text)" in by_events
    assert "not today" in by_events
    work_dir = f"--work-dir={operator.scratch / 'work'}"
    assert "period: 1s" in why("echo/a", *ours, f"--kubeconfig={control_plane}", work_dir)
    operator.terminate()
    operator.start()
    wait_for_cause(operator, "start")


def test_why_takes_the_spellings_of_kubectl(
    kubectl: Kubectl, operator: Operator, control_plane: Path
) -> None:
    """Runs have their ids; a kind that is unknown is an error, a resource without runs is not."""
    ours = ("-n", kubectl.namespace, f"--kubeconfig={control_plane}")
    kubectl.apply(echo())
    assert why("echo/a", *ours).startswith(f"No runs of Echo {kubectl.namespace}/a yet")
    operator.start()
    line = wait_for_cause(operator, "start")
    wait_until_idle(operator)
    for spelling in ("echoes", "Echo", "ECHO.test.example.com", "echoes.v1.test.example.com"):
        assert line["run_id"] in why(f"{spelling}/a", *ours)
    assert line["run_id"] in why("echoes/a", *ours, f"--work-dir={operator.scratch / 'work'}")
    for name, problem in (
        ("ecko/a", 'the resource type "ecko" is unknown; did you mean echo.v1.test.example.com?'),
        ("echo/b", 'echoes.test.example.com "b" not found'),
    ):
        done = run_command(["why", name, *ours])
        assert done.returncode == 1
        assert problem in done.stderr


@pytest.mark.parametrize(
    ("native", "type_"), [pytest.param("true", "int", marks=pytest.mark.slow), ("false", "str")]
)
def test_a_failed_run_can_be_repeated_by_hand(
    kubectl: Kubectl, operator: Operator, control_plane: Path, native: str, type_: str
) -> None:
    """The command of `why` runs the play in its private data dir to the same failure."""
    with (operator.project / "watches.yaml").open("a") as watches:
        watches.write(f"  nativeTypes: {native}\n")
    role = operator.project / ROLE
    works = role.read_text()
    role.write_text(
        works
        + "- ansible.builtin.set_fact: {size: '{{ 1 + 1 }}'}\n"
        + "- ansible.builtin.fail: {msg: 'size of {{ say_this }} is {{ size | type_debug }}'}\n"
    )
    operator.start("--reload")
    kubectl.apply(echo(sayThis="hello"))
    line = wait_for_cause(operator, "spec: created")
    failure = f"size of hello is {type_}"
    assert line["error"] == failure
    work_dir = f"--work-dir={operator.scratch / 'work'}"
    files = ("echo/a", "-n", kubectl.namespace, f"--kubeconfig={control_plane}", work_dir)
    # A retry may be active.
    messages = eventually(
        partial(why, *files), lambda messages: "with your kubeconfig:\n" in messages
    )
    command = messages.rstrip().splitlines()[-1]
    # A retry at the same time would write the same files.
    operator.terminate()
    # Without the environment of the operator, from anywhere.
    environment = {"HOME": str(operator.scratch)}
    done = subprocess.run(
        command, shell=True, cwd="/", env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert failure in done.stdout, done.stdout + done.stderr
    assert "ok=2 " in done.stdout
    role.write_text(works)
    operator.start("--reload")
    eventually(lambda: operator.lines("Reconciled"), details=operator.log)
    wait_until_idle(operator)
    assert "with your kubeconfig:" not in why(*files)


def test_status_and_metadata_updates_start_no_run(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """Statuses, managers and times of fields change all the time; no run comes of it."""
    role = project / ROLE
    deployment = """
- name: Deploy
  kubernetes.core.k8s:
    definition:
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: a, namespace: "{{ ansible_operator_meta.namespace }}"}
      spec:
        replicas: 0
        selector: {matchLabels: {app: a}}
        template:
          metadata: {labels: {app: a}}
          spec: {containers: [{name: a, image: none}]}
"""
    role.write_text(role.read_text() + deployment)
    operator.start()
    kubectl.apply(echo())
    wait_for_cause(operator, "spec: created")
    kubectl("rollout", "status", "deployment/a", "--timeout=180s")
    # A label that is set while a run applies the Deployment counts as seen by this run.
    wait_until_idle(operator)
    # Events are ordered: those of the Deployment's own controller are over after this one.
    kubectl("label", "deployment", "a", "first=hand")
    wait_for_cause(operator, "metadata.labels.first")
    wait_until_idle(operator)
    before = operator.metric("reconciles_total")
    found = kubectl.get("deployment", "a")
    assert found is not None
    replicas = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}}
    status = "--subresource=status"
    for number in range(5):
        condition = {"type": "Odd", "status": "True", "reason": f"R{number}"}
        patch = str({"status": {"conditions": [condition]}}).replace("'", '"')
        kubectl("patch", "deployment", "a", status, "--type=merge", f"--patch={patch}")
        same = str(replicas | {"spec": {"replicas": 0}}).replace("'", '"')
        manager = f"--field-manager=m{number}"
        kubectl("apply", "--server-side", "--force-conflicts", manager, "--filename=-", input_=same)
        condition_of_owner = str({"status": {"seen": number}}).replace("'", '"')
        kubectl("patch", KIND, "a", status, "--type=merge", f"--patch={condition_of_owner}")
    after = kubectl.get("deployment", "a")
    assert after is not None
    assert after["metadata"]["generation"] == found["metadata"]["generation"]
    assert after["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]
    # Only later events are seen.
    kubectl("label", "deployment", "a", "by=hand")
    line = wait_for_cause(operator, "metadata.labels.by")
    owned = f"Deployment {kubectl.namespace}/a"
    assert line["cause"] == f"dependent: {owned} changed by kubectl-label (metadata.labels.by)"
    eventually(lambda: operator.metric("reconciles_total"), (before + 1).__eq__)


@contextmanager
def opponent(kubectl: Kubectl) -> Iterator[None]:
    """Rewrite the role's ConfigMap after each write of the role."""
    over = threading.Event()

    def fight() -> None:
        while not over.wait(0.05):
            found = kubectl.get("configmap", "a")
            if found is not None and found["data"]["text"] != "mine":
                kubectl.merge("configmap", "a", {"data": {"text": "mine"}})

    thread = threading.Thread(target=fight)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
def test_two_writers_that_revert_each_other_are_throttled(
    kubectl: Kubectl, operator: Operator, control_plane: Path
) -> None:
    """Log, Event and metric name object and field; an edit of the spec runs at once."""
    operator.start()
    kubectl.apply(echo())
    wait_for_cause(operator, "spec: created")
    with opponent(kubectl):
        slowed = eventually(
            lambda: operator.lines("Reconcile loop: throttling"),
            lambda lines: len(lines) >= 3,
            details=operator.log,
        )
        field = f"ConfigMap {kubectl.namespace}/a changed by kubectl-patch (data.text)"
        assert field in slowed[0]["cause"]
        # `seconds` is what is left of a delay, which began with the end of the run.
        streaks = [line["streak"] for line in slowed]
        assert streaks == sorted(set(streaks))
        assert slowed[-1]["seconds"] > 0
        assert operator.metric("operator_runner_reconcile_loops_throttled_total", kind="Echo") >= 3
        (note,) = eventually(lambda: notes(kubectl, "ReconcileLoop"), details=operator.log)
        assert field in note
        assert "looping" in why("Echo/a", "-n", kubectl.namespace, f"--kubeconfig={control_plane}")
        count = len(operator.lines("Reconcile loop: throttling"))
        eventually(lambda: len(operator.lines("Reconcile loop: throttling")) > count)
        # The next run is to wait for 16 s or longer.
        kubectl.merge(KIND, "a", {"spec": {"sayThis": "peace"}})
        line = wait_for_cause(operator, "spec: spec.sayThis")
        assert "dependent" in line["cause"]
