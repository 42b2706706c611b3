"""Failures are reported to the user, and the report is removed with the cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.devcluster import Cluster
from tests.support.faults import api_outage
from tests.support.kubectl import Kubectl
from tests.support.nginx import KIND, World, nginx
from tests.support.operator import Operator
from tests.support.processes import new_nap, sleepers

MAIN = "roles/nginx/tasks/main.yml"

pytestmark = pytest.mark.xdist_group("faults")


def test_a_syntax_error_is_reported_and_its_repair_reconciled(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """Condition, Event, metric and log name the file; the repaired role is run by itself."""
    world = World(kubectl, operator)
    good = (project / MAIN).read_text()
    (project / MAIN).write_text(good + "\n- name: [broken\n")
    operator.start("--reload")
    kubectl.apply(nginx())
    failure = world.until(
        lambda: world.condition("Failure"), lambda condition: condition.get("status") == "True"
    )
    assert MAIN in failure["message"]
    events = world.until(lambda: [e for e in kubectl.list("events") if e["type"] == "Warning"])
    assert MAIN in events[0]["message"]
    # Counted once all of that is written.
    world.until(lambda: operator.metric("controller_runtime_reconcile_errors_total") >= 1)
    assert MAIN in operator.lines("Reconciliation failed")[0]["error"]
    (project / MAIN).write_text(good)
    world.wait_reconciled()
    # The role writes its own conditions before its run ends.
    world.until(lambda: world.condition("Failure")["status"], "False".__eq__)


def test_a_failing_task_is_named(kubectl: Kubectl, operator: Operator, project: Path) -> None:
    """The condition has the failed task and the reason; rescued and ignored ones do not count."""
    world = World(kubectl, operator)
    (project / MAIN).write_text(
        """
- name: Ignored
  ansible.builtin.fail: {msg: ignored}
  ignore_errors: true
- name: Rescued
  block:
    - ansible.builtin.fail: {msg: rescued}
  rescue:
    - ansible.builtin.debug: {msg: saved}
- name: Refuse to go on
  ansible.builtin.fail: {msg: the reason}
  when: ports is defined
"""
    )
    operator.start()
    kubectl.apply(nginx("fine"), nginx("bad", ports=[{"containerPort": 1}]))
    failure = world.until(
        lambda: world.condition("Failure", "bad"), lambda found: found.get("status") == "True"
    )
    assert "the reason" in failure["message"]
    assert "Refuse to go on" in failure["message"]
    assert world.until(lambda: world.condition("Successful", "fine").get("status") == "True")


def test_a_missing_module_is_reported(kubectl: Kubectl, operator: Operator, project: Path) -> None:
    """The error of a play that cannot start names the missing file."""
    world = World(kubectl, operator)
    (project / MAIN).write_text("- name: Use it\n  no_such.collection.module: {}\n")
    operator.start()
    kubectl.apply(nginx())
    failure = world.until(
        lambda: world.condition("Failure"), lambda found: found.get("status") == "True"
    )
    assert "no_such.collection.module" in failure["message"]


def test_a_run_past_its_deadline_is_ended(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """The whole process tree ends, a daemon of the role included, with a condition."""
    world = World(kubectl, operator)
    watches = project / "watches.yaml"
    watches.write_text(watches.read_text() + "  timeout: 20s\n")
    daemon, task = new_nap(), new_nap()
    (project / MAIN).write_text(
        "- name: Start a daemon\n"
        f"  ansible.builtin.shell: setsid sleep {daemon} </dev/null >/dev/null 2>&1 &\n"
        "- name: Hang\n"
        f"  ansible.builtin.command: sleep {task}\n"
    )
    operator.start("--graceful-shutdown-timeout=1s")
    kubectl.apply(nginx())
    failure = world.until(
        lambda: world.condition("Failure"), lambda found: found.get("status") == "True"
    )
    assert "timeout: the run was ended after 20 s" in failure["message"]
    assert "Hang" in failure["message"]
    assert operator.lines("Reconciliation failed")
    operator.terminate()
    world.until(lambda: not sleepers(daemon, task))


def test_a_killed_operator_takes_its_run_with_it(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """The run dies with its operator; the next operator completes the reconcile."""
    world = World(kubectl, operator)
    main = project / MAIN
    good = main.read_text()
    task = new_nap()
    main.write_text(good + f"\n- name: Take long\n  ansible.builtin.command: sleep {task}\n")
    operator.start()
    kubectl.apply(nginx())
    world.until(lambda: sleepers(task))
    operator.kill()
    world.until(lambda: not sleepers(task))
    main.write_text(good)
    operator.start()
    world.wait_reconciled()
    world.wait_available(1)


def test_sigterm_ends_runs_after_their_time(
    kubectl: Kubectl, operator: Operator, project: Path
) -> None:
    """A run that takes too long is ended, the exit is clean, and the lease is released at once."""
    task = new_nap()
    (project / MAIN).write_text(f"- ansible.builtin.command: sleep {task}\n")
    world = World(kubectl, operator)
    flags = (
        "--graceful-shutdown-timeout=2s",
        "--leader-elect",
        "--leader-election-id=shutdown",
        f"--leader-election-namespace={kubectl.namespace}",
    )
    operator.start(*flags, wait=False)
    kubectl.apply(nginx())
    world.until(lambda: sleepers(task))
    assert operator.terminate() == 0
    world.until(lambda: not sleepers(task))
    lease = kubectl.get("lease", "shutdown")
    assert lease is not None
    assert not lease["spec"].get("holderIdentity")


def test_the_operator_continues_after_an_outage_of_the_api_server(
    cluster: Cluster, kubectl: Kubectl, operator: Operator
) -> None:
    """After 20 s without API server the operator continues by itself, and misses no change."""
    world = World(kubectl, operator)
    operator.start()
    pid = operator.pid
    kubectl.apply(nginx(replicas=1))
    world.wait_reconciled()
    world.wait_available(1)
    api_outage(cluster, operator, seconds=20)
    kubectl.merge(KIND, "web", {"spec": {"replicas": 2}})
    world.wait_available(2)
    world.wait_reconciled()
    kubectl("delete", "deployment", "web")
    world.wait_available(2)
    assert operator.pid == pid
