"""Replicas share the resources: each has one owner at a time, also during failures."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from operator_runner.core.slot_assignment import SLOTS, Assignment, decode_assignment, slot_of
from operator_runner.devcluster import Cluster
from operator_runner.kube.shard_leases import ASSIGNMENT, BACKOFF
from tests.support.audit_log import AuditLog, make_replica
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import REPOSITORY, Operator
from tests.support.processes import pids_of, send
from tests.support.runner_cli import RunnerCli
from tests.support.waiting import eventually

KIND = "echoes.test.example.com"
SECONDS = 180.0
"""A takeover takes the lease duration, and longer on a busy machine."""
RUNS = 2
FLAGS = (
    "--shards=auto",
    "--leader-elect",
    "--leader-election-id=echo",
    "--leader-elect-lease-duration=20s",
    "--leader-elect-renew-deadline=15s",
    f"--max-runs={RUNS}",
    f"--max-concurrent-reconciles={RUNS}",
)
NAMES = ("first", "second", "third")


@pytest.fixture
def kubectl(audited_kubectl: Kubectl) -> Kubectl:
    """Kubectl for the control plane with an audit log."""
    return audited_kubectl


@pytest.fixture
def gate(project: Path, tmp_path: Path) -> Path:
    """Let runs of resources with `count` wait until a file exists."""
    gate = tmp_path / "gate"
    role = project / "roles" / "echo" / "tasks" / "main.yml"
    wait = {
        "name": "Wait for the file",
        "ansible.builtin.wait_for": {"path": str(gate), "timeout": 600},
        "when": "count is defined",
    }
    role.write_text(json.dumps([wait, *yaml.safe_load(role.read_text())]))
    return gate


@pytest.fixture
def replicas(
    kubectl: Kubectl, project: Path, gate: Path, tmp_path: Path
) -> Iterator[dict[str, Operator]]:
    """Give three replicas, each with a service account of its name; none is started."""
    assert not gate.exists()
    made = {name: make_replica(kubectl, project, tmp_path, name) for name in NAMES}
    yield made
    for name, operator in made.items():
        operator.kill()
        print(f"Log of {name}:\n{operator.log()}")  # noqa: T201 of a failed test


def echo(name: str, **spec: str) -> Json:
    return {
        "apiVersion": "test.example.com/v1",
        "kind": "Echo",
        "metadata": {"name": name},
        "spec": spec,
    }


def slots(operator: Operator) -> float:
    return operator.metric("operator_runner_shard_slots", state="active")


def wait_balanced(*operators: Operator) -> None:
    """Wait until the operators share all slots evenly."""

    def is_balanced() -> bool:
        counts = [slots(operator) for operator in operators]
        return sum(counts) == SLOTS and max(counts) - min(counts) <= 1

    eventually(is_balanced, seconds=SECONDS, details=operators[0].log)


def wait_for_text(kubectl: Kubectl, operator: Operator, names: list[str], text: str) -> None:
    """Wait until the resources have been reconciled with this text."""

    def are_reconciled() -> bool:
        found = [kubectl.get("configmap", name) for name in names]
        return all((each or {}).get("data") == {"text": text} for each in found)

    eventually(are_reconciled, seconds=SECONDS, details=operator.log)


def edit(kubectl: Kubectl, names: list[str], text: str) -> None:
    kubectl.apply(*(echo(name, sayThis=text) for name in names))


def apply_waiting(kubectl: Kubectl) -> list[str]:
    """Apply resources whose runs wait, until each owner of slots has enough for all of its runs."""
    names: list[str] = []
    while True:
        new = [f"wait-{len(names) + number}" for number in range(3)]
        kubectl.apply(*(echo(name, count="yes") for name in new))
        names += new
        assignment = current_assignment(kubectl)
        owners = [owner_of(kubectl, assignment, name) for name in names]
        if min(owners.count(owner) for owner in set(assignment.owners.values())) >= RUNS:
            return names


def apply_scheduled(kubectl: Kubectl, operator: Operator, *, owner: str) -> str:
    """Apply resources with a schedule until a replica owns one; return its name."""
    for number in count():
        name = f"scheduled-{number}"
        kubectl.apply(echo(name, sayThis="one", cron=YEARLY))
        if owner_of(kubectl, current_assignment(kubectl), name) == owner:
            wait_for_text(kubectl, operator, [name], "hello one")
            return name
    raise AssertionError("unreachable")


def autoscaled_metric() -> tuple[str, dict[str, str]]:
    """Return the metric by which config/shards scales, with the labels that it selects."""
    manifest = yaml.safe_load((REPOSITORY / "config" / "shards" / "autoscaler.yaml").read_text())
    (metric,) = (each["pods"]["metric"] for each in manifest["spec"]["metrics"])
    return metric["name"], metric.get("selector", {}).get("matchLabels", {})


def current_assignment(kubectl: Kubectl) -> Assignment:
    lease = kubectl.get("lease", "echo-shards")
    assert lease is not None
    return decode_assignment("", lease["metadata"]["annotations"][ASSIGNMENT])


def owner_of(kubectl: Kubectl, assignment: Assignment, name: str) -> str:
    """Return the member that owns a resource."""
    resource = kubectl.get(KIND, name)
    assert resource is not None
    return assignment.owners[slot_of(resource["metadata"]["uid"])]


def runners(audit_log: AuditLog, name: str) -> list[str]:
    """Return the accounts that wrote the ConfigMap of a resource, in order, without repetitions.

    Each has completed its writes before the next one begins, or the test fails.
    """
    writes = [
        write for write in audit_log.writes(name=name) if write.resource in {"configmaps", "echoes"}
    ]
    for old, new in pairwise(writes):
        assert old.account == new.account or old.completed < new.received, (old, new)
    accounts = [write.account for write in writes]
    return [each for number, each in enumerate(accounts) if accounts[number - 1 : number] != [each]]


@pytest.mark.slow
def test_replicas_share_the_resources(
    audited_cluster: Cluster,
    replicas: dict[str, Operator],
    kubectl: Kubectl,
    audit_log: AuditLog,
    gate: Path,
) -> None:
    """Scale 1 to 3 to 1: runs of all replicas are active at once, and nothing is lost.

    `why` shows which replica ran each resource.
    """
    first, second, third = replicas.values()
    names = [f"echo-{number}" for number in range(6)]
    first.start(*FLAGS)
    edit(kubectl, names, "one")
    wait_for_text(kubectl, first, names, "hello one")
    assert {name for each in names for name in runners(audit_log, each)} == {"first"}

    second.start(*FLAGS, wait=False)
    third.start(*FLAGS)
    wait_balanced(first, second, third)
    waiting = [*apply_waiting(kubectl), "queued"]
    kubectl.apply(echo("queued", count="yes"))
    eventually(
        lambda: [one.metric("controller_runtime_active_workers") for one in replicas.values()],
        lambda counts: counts == [RUNS, RUNS, RUNS],
        seconds=SECONDS,
        details=first.log,
    )
    metric, labels = autoscaled_metric()
    eventually(
        lambda: sum(one.metric(metric, **labels) for one in replicas.values()),
        # Runs of gained slots may wait too.
        lambda depth: depth >= len(waiting) - 3 * RUNS,
        seconds=SECONDS,
        details=first.log,
    )
    gate.touch()
    wait_for_text(kubectl, first, waiting, "hello nothing")
    found = [runners(audit_log, name) for name in waiting]
    assert sorted({name for each in found for name in each}) == sorted(NAMES)
    assert all(len(each) == 1 for each in found)
    why = RunnerCli(audited_cluster.kubeconfig, kubectl.namespace)
    eventually(
        lambda: json.loads(why("why", "echoes", "--limit=100", "--output=json"))["items"],
        lambda runs: len({each["replica"] for each in runs}) == len(NAMES),
        details=first.log,
    )

    edit(kubectl, names, "three")
    wait_for_text(kubectl, first, names, "hello three")
    for each in (runners(audit_log, name) for name in names):
        assert len(each) == len(set(each))

    assert [first.terminate(), second.terminate()] == [0, 0]
    edit(kubectl, names, "last")
    wait_for_text(kubectl, third, names, "hello last")
    wait_balanced(third)
    assert {runners(audit_log, name)[-1] for name in names} == {"third"}


def test_the_resources_of_a_failed_replica_are_taken_over(
    replicas: dict[str, Operator], kubectl: Kubectl, audit_log: AuditLog, gate: Path
) -> None:
    """SIGKILL of one, then SIGSTOP of another during its runs: SIGCONT leads to no write."""
    first, second, third = replicas.values()
    for operator in replicas.values():
        operator.start(*FLAGS, wait=False)
    wait_balanced(first, second, third)
    names = [f"echo-{number}" for number in range(4)]
    edit(kubectl, names, "one")
    wait_for_text(kubectl, first, names, "hello one")

    second.kill()
    edit(kubectl, names, "two")
    wait_for_text(kubectl, first, names, "hello two")
    wait_balanced(first, third)

    names += apply_waiting(kubectl)
    eventually(
        lambda: first.metric("controller_runtime_active_workers"),
        lambda count: count == RUNS,
        seconds=SECONDS,
        details=first.log,
    )
    frozen = pids_of(first.pid)
    send(signal.SIGSTOP, frozen)
    wait_balanced(third)
    gate.touch()
    wait_for_text(kubectl, third, names[4:], "hello nothing")
    send(signal.SIGCONT, frozen)
    assert first.wait(SECONDS) == 1
    edit(kubectl, names, "last")
    wait_for_text(kubectl, third, names, "hello last")

    for name in names:
        found = runners(audit_log, name)
        assert len(found) == len(set(found))
        assert found[-1] == "third"


MOVED = """
  schedule: {cron: spec.cron}
  triggers:
    - {version: v1, kind: ConfigMap, when: "data.ready == 'yes'", name: data.for}
"""
YEARLY, MISSED = "0 0 1 1 *", "2020-01-01T00:00:00Z"
TICK = f"{datetime.now(UTC).year}-01-01T00:00:00Z"


@pytest.mark.slow
def test_schedules_triggers_finalizers_and_retries_continue_at_the_next_owner(
    replicas: dict[str, Operator], kubectl: Kubectl, project: Path, tmp_path: Path
) -> None:
    """All resources move from the first replica: some when the second one starts, some later."""
    hint = tmp_path / "hint"
    with (project / "watches.yaml").open("a") as watches:
        watches.write(MOVED)
    role = project / "roles" / "echo" / "tasks" / "main.yml"
    fail = {"command": f"test -e {hint}", "when": "broken is defined"}
    role.write_text(json.dumps([*yaml.safe_load(role.read_text()), fail]))
    first, second = replicas["first"], replicas["second"]
    kinds = ("triggered", "deleted", "failing")
    names = {kind: [f"{kind}-{number}" for number in range(3)] for kind in kinds}
    every = [name for kind in kinds for name in names[kind]]
    first.start(*FLAGS)
    edit(kubectl, names["triggered"] + names["deleted"], "one")
    kubectl.apply(*(echo(name, sayThis="one", broken="yes") for name in names["failing"]))
    wait_for_text(kubectl, first, every, "hello one")
    second.start(*FLAGS, wait=False)
    wait_balanced(first, second)
    (joined,) = first.lines("Joined the shards")
    scheduled = apply_scheduled(kubectl, first, owner=joined["identity"])

    status = json.dumps({"status": {"lastScheduleTime": MISSED, "nextScheduleTime": MISSED}})
    kubectl("patch", KIND, scheduled, "--subresource=status", "--type=merge", f"--patch={status}")
    first.kill()
    kubectl("delete", KIND, *names["deleted"], "--wait=false")
    wait_balanced(second)

    def causes(name: str) -> list[str]:
        lines = second.lines("Reconciling")
        return [line["cause"] for line in lines if line["name"] == name]

    def last_tick() -> str:
        found = kubectl.get(KIND, scheduled) or {}
        return str(found.get("status", {}).get("lastScheduleTime", ""))

    for name in names["triggered"]:
        kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"for-{name}"},
                "data": {"ready": "yes", "for": name},
            }
        )
        eventually(
            partial(causes, name),
            lambda found: any("trigger: ConfigMap" in cause for cause in found),
            seconds=SECONDS,
            details=second.log,
        )
    eventually(last_tick, lambda found: found == TICK, seconds=SECONDS, details=second.log)
    for name in names["deleted"]:
        kubectl("wait", "--for=delete", f"{KIND}/{name}", f"--timeout={SECONDS:.0f}s")
    for name in names["failing"]:
        eventually(
            partial(causes, name),
            lambda found: any("retry" in cause for cause in found),
            seconds=SECONDS,
            details=second.log,
        )
    hint.touch()
    for name in names["failing"]:
        condition = "--for=condition=Successful"
        kubectl("wait", condition, f"{KIND}/{name}", f"--timeout={2 * SECONDS:.0f}s")


FAILURES = 8
"""So many lead to a delay of half a second."""
THROTTLINGS = 2
"""A loop that another replica does not continue would begin with a shorter streak."""


def has_at_least(least: int, found: list[Any]) -> bool:
    return len(found) >= least


def values(operator: Operator, message: str, name: str, key: str) -> list[Any]:
    """Return the values of a key of the log lines about a resource."""
    return [line[key] for line in operator.lines(message) if line["name"] == name]


@pytest.mark.slow
def test_backoff_and_throttling_continue_at_the_next_owner(
    replicas: dict[str, Operator], kubectl: Kubectl, project: Path
) -> None:
    """Some resources move when the second replica starts, the others when the first one ends."""
    role = project / "roles" / "echo" / "tasks" / "main.yml"
    fail = {"name": "Fail", "fail": {"msg": "broken"}, "when": "broken is defined"}
    edit_itself = {
        "name": "Edit the resource itself",
        "kubernetes.core.k8s": {
            "state": "patched",
            "api_version": "test.example.com/v1",
            "kind": "Echo",
            "name": "{{ ansible_operator_meta.name }}",
            "namespace": "{{ ansible_operator_meta.namespace }}",
            "definition": {"spec": {"sayThis": "{{ now(utc=true).timestamp() | string }}"}},
        },
        "when": "looping is defined",
    }
    role.write_text(json.dumps([fail, edit_itself]))
    first, second = replicas["first"], replicas["second"]
    failing = [f"failing-{number}" for number in range(4)]
    looping = [f"looping-{number}" for number in range(4)]
    first.start(*FLAGS)
    kubectl.apply(*(echo(name, broken="yes") for name in failing))
    kubectl.apply(*(echo(name, looping="yes", sayThis="") for name in looping))
    for message, field, names, least in (
        ("Will retry", "seconds", failing, FAILURES),
        ("Reconcile loop: throttling", "streak", looping, THROTTLINGS),
    ):
        for name in names:
            eventually(
                partial(values, first, message, name, field),
                partial(has_at_least, least),
                seconds=SECONDS,
                details=first.log,
            )
    second.start(*FLAGS)
    wait_balanced(first, second)
    # What the second one has taken over is not kept.
    eventually(
        lambda: [each for each in kubectl.list("leases") if BACKOFF in str(each["metadata"])],
        lambda found: found == [],
        seconds=SECONDS,
        details=first.log,
    )
    assert first.terminate() == 0
    wait_balanced(second)

    for name in failing:
        (delay, *_) = eventually(
            partial(values, second, "Will retry", name, "seconds"),
            seconds=SECONDS,
            details=second.log,
        )
        # The run of the next owner is the next attempt; others cannot have been cancelled.
        assert delay == 2 * values(first, "Will retry", name, "seconds")[-1]
    for name in looping:
        (streak, *_) = eventually(
            partial(values, second, "Reconcile loop: throttling", name, "streak"),
            seconds=SECONDS,
            details=second.log,
        )
        assert streak >= values(first, "Reconcile loop: throttling", name, "streak")[-1]
