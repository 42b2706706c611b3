"""Leaders that freeze or lose the API server: no write beside the new leader, and none is lost."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import yaml

from operator_runner.core.slot_assignment import SLOTS
from operator_runner.devcluster import Cluster
from operator_runner.kube.api import Api
from operator_runner.kube.session import connect
from tests.support.audit_log import AuditLog, make_replica
from tests.support.balancer import balancer
from tests.support.kubectl import Json, Kubectl
from tests.support.kubelet import kubelet
from tests.support.operator import Operator, free_port
from tests.support.processes import pids_of, send
from tests.support.waiting import eventually

KIND = "echoes.test.example.com"
LEASE = "echo"
SECONDS = 180.0
"""A takeover takes the lease duration, and longer on a busy machine."""
FLAGS = (
    "--leader-elect",
    f"--leader-election-id={LEASE}",
    "--leader-elect-lease-duration=20s",
    "--leader-elect-renew-deadline=15s",
)
COUNT = '''
"""Write numbers to a ConfigMap until a file exists."""
import itertools, os, sys, time
from kubernetes import client, config
namespace, end = sys.argv[1:]
config.load_kube_config()
api = client.CoreV1Api()
for number in itertools.count():
    if os.path.exists(end):
        break
    api.patch_namespaced_config_map("counter", namespace, {"data": {"number": str(number)}})
    time.sleep(0.1)  # else one of hundreds of freezes is between the check of a write and its bytes
'''


@pytest.fixture
def kubectl(audited_kubectl: Kubectl) -> Kubectl:
    """Kubectl for the control plane with an audit log."""
    return audited_kubectl


@pytest.fixture
def replica(kubectl: Kubectl, project: Path, tmp_path: Path) -> Iterator[Callable[[str], Operator]]:
    """Give a maker of replicas, each with a service account of its name."""
    made: list[Operator] = []

    def make(name: str) -> Operator:
        made.append(make_replica(kubectl, project, tmp_path, name))
        return made[-1]

    yield make
    for operator in made:
        operator.kill()
        print(f"Log of {operator.scratch.name}:\n{operator.log()}")  # noqa: T201 of a failed test


@pytest.fixture
def counting(project: Path, kubectl: Kubectl, tmp_path: Path) -> Path:
    """Let runs of resources with `count` write to a ConfigMap first; a file ends that."""
    end, program = tmp_path / "end", tmp_path / "count.py"
    program.write_text(COUNT)
    command = f"{{{{ ansible_playbook_python }}}} {program} {kubectl.namespace} {end}"
    role = project / "roles" / "echo" / "tasks" / "main.yml"
    task = {"name": "Count", "ansible.builtin.command": command, "when": "count is defined"}
    role.write_text(json.dumps([task, *yaml.safe_load(role.read_text())]))
    kubectl("create", "configmap", "counter")
    return end


def echo(name: str, **spec: str) -> Json:
    return {
        "apiVersion": "test.example.com/v1",
        "kind": "Echo",
        "metadata": {"name": name},
        "spec": spec,
    }


def leads(operator: Operator) -> bool:
    return operator.metric("leader_election_master_status", name=LEASE) == 1


def wait_for_text(kubectl: Kubectl, operator: Operator, name: str, text: str) -> None:
    """Wait until a resource has been reconciled with this text, and reports it."""

    def is_reconciled() -> bool:
        resource, written = kubectl.get(KIND, name), kubectl.get("configmap", name)
        conditions = (resource or {}).get("status", {}).get("conditions", [])
        successful = {"type": "Successful", "status": "True"}.items()
        return (written or {}).get("data") == {"text": text} and any(
            successful <= condition.items() for condition in conditions
        )

    eventually(is_reconciled, seconds=SECONDS, details=operator.log)


@pytest.mark.parametrize(
    "with_runs",
    [
        pytest.param(False, id="operator"),
        pytest.param(True, id="operator and runs", marks=pytest.mark.slow),
    ],
)
def test_a_frozen_leader_writes_nothing_after_a_takeover(
    replica: Callable[[str], Operator],
    kubectl: Kubectl,
    audit_log: AuditLog,
    counting: Path,
    with_runs: bool,
) -> None:
    """SIGSTOP during a run, takeover, SIGCONT: the run continues, and no write is sent.

    A run that is not frozen itself sends its next write to the frozen proxy.
    """
    first, second = replica("first").start(*FLAGS), replica("second")
    eventually(lambda: leads(first), seconds=SECONDS, details=first.log)
    second.start(*FLAGS, wait=False)
    kubectl.apply(echo("a", count="yes"))
    eventually(lambda: audit_log.writes("first", "counter"), seconds=SECONDS, details=first.log)

    frozen = pids_of(first.pid, with_children=with_runs)
    send(signal.SIGSTOP, frozen)
    eventually(lambda: audit_log.writes("second", "counter"), seconds=SECONDS, details=second.log)
    send(signal.SIGCONT, frozen)
    status = first.wait(SECONDS)
    counting.touch()
    wait_for_text(kubectl, second, "a", "hello nothing")

    takeover = next(w for w in audit_log.writes("second") if w.resource == "leases")
    late = [w for w in audit_log.writes("first") if w.completed > takeover.received]
    # Of a freeze between the check of a write and its bytes, which ADR 34 does not cover.
    is_unlucky = len(late) == 1 and "write refused by leader election" in first.log()
    assert is_unlucky or late == []
    assert status == 1
    assert first.lines("Reconciliation failed") == []


@pytest.fixture
async def pods(audited_cluster: Cluster, kubectl: Kubectl, tmp_path: Path) -> AsyncIterator[None]:
    """Run the Pods of Jobs."""
    connection = await connect(audited_cluster.kubeconfig, user_agent="operator-runner/test")
    try:
        async with kubelet(Api(connection), kubectl.namespace, tmp_path):
            yield
    finally:
        await connection.close()


@pytest.fixture
def begun(project: Path, counting: Path, kubectl: Kubectl, tmp_path: Path) -> Path:
    """Make the runs Jobs, whose count is repeated after an error; return a file of their starts."""
    begun = tmp_path / "begun"
    role = project / "roles" / "echo" / "tasks" / "main.yml"
    tasks = json.loads(role.read_text())
    repeated = {"register": "count", "until": "count is success", "retries": 600, "delay": 1}
    begin = {"name": "Begin", "ansible.builtin.shell": f"echo run >> {begun}"}
    role.write_text(json.dumps([begin, tasks[0] | repeated, *tasks[1:]]))
    file = project / "watches.yaml"
    job = {"image": "example.com/ee:1", "namespace": kubectl.namespace}
    watches = [watch | {"execution": {"job": job}} for watch in yaml.safe_load(file.read_text())]
    file.write_text(json.dumps(watches))
    assert not counting.exists()
    return begun


@pytest.mark.usefixtures("pods")
async def test_a_frozen_owner_of_a_job_writes_nothing_after_a_takeover(
    replica: Callable[[str], Operator],
    kubectl: Kubectl,
    audit_log: AuditLog,
    counting: Path,
    begun: Path,
) -> None:
    """SIGSTOP during a Job, takeover, SIGCONT: the Job continues at the next owner, once."""
    replicas = {name: replica(name) for name in ("first", "second")}
    ports, service = [free_port(), free_port()], free_port()
    flags = (*FLAGS, "--shards=auto", f"--jobs-service={kubectl.namespace}/echo-jobs:{service}")
    for operator, port in zip(replicas.values(), ports, strict=True):
        operator.start(*flags, f"--jobs-port={port}", wait=False)
    # The kubelet and the Service are tasks of the event loop.
    async with balancer(service, ports):
        await asyncio.to_thread(_freeze_owner, replicas, kubectl, audit_log, counting, begun)


def _freeze_owner(
    replicas: dict[str, Operator], kubectl: Kubectl, audit_log: AuditLog, end: Path, begun: Path
) -> None:
    def details() -> str:
        return "".join(operator.log() for operator in replicas.values())

    def jobs(message: str) -> dict[str, list[str]]:
        return {
            name: [line["job"] for line in operator.lines(message)]
            for name, operator in replicas.items()
        }

    def slots() -> list[float]:
        name = "operator_runner_shard_slots"
        return [operator.metric(name, state="active") for operator in replicas.values()]

    eventually(slots, lambda counts: counts == [SLOTS / 2] * 2, seconds=SECONDS, details=details)
    kubectl.apply(echo("a", count="yes"))
    created = eventually(
        lambda: jobs("Created Job"), lambda made: any(made.values()), details=details
    )
    owner, other = sorted(replicas, key=lambda name: not created[name])
    eventually(lambda: audit_log.writes(owner, "counter"), seconds=SECONDS, details=details)

    frozen = pids_of(replicas[owner].pid)
    send(signal.SIGSTOP, frozen)
    eventually(lambda: audit_log.writes(other, "counter"), seconds=SECONDS, details=details)
    send(signal.SIGCONT, frozen)
    assert replicas[owner].wait(SECONDS) == 1
    assert begun.read_text() == "run\n"
    assert jobs("Adopted the Job of an earlier run") == {owner: [], other: created[owner]}
    end.touch()
    kubectl("wait", "--for=condition=Successful", f"{KIND}/a", f"--timeout={SECONDS:g}s")

    takeover = next(w for w in audit_log.writes(other) if w.name in {"a", "counter"})
    late = [w for w in audit_log.writes(owner) if w.completed > takeover.received]
    assert late == []


def test_an_outage_longer_than_the_lease_loses_nothing(
    replica: Callable[[str], Operator], kubectl: Kubectl, audited_cluster: Cluster, counting: Path
) -> None:
    """The process ends as ansible-operator does; started again, it repeats the run.

    That is a run that the outage has cut off, an edit, a deletion, and a deleted object. On SIGTERM
    it releases the Lease.
    """
    operator = replica("first").start(*FLAGS)
    eventually(lambda: leads(operator), seconds=SECONDS, details=operator.log)
    kubectl.apply(echo("edited"), echo("deleted"), echo("repaired"))
    for name in ("edited", "deleted", "repaired"):
        wait_for_text(kubectl, operator, name, "hello nothing")
    kubectl.apply(echo("running", count="yes"))
    eventually(lambda: kubectl.get("configmap", "counter"), lambda found: "data" in (found or {}))

    audited_cluster.stop_part("kube-apiserver")
    try:
        status = operator.wait(SECONDS)
    finally:
        audited_cluster.start_part("kube-apiserver")
    counting.touch()
    kubectl.merge(KIND, "edited", {"spec": {"sayThis": "again"}})
    kubectl("delete", KIND, "deleted", "--wait=false")
    kubectl("delete", "configmap", "repaired")
    operator.start(*FLAGS)

    assert status == 1
    wait_for_text(kubectl, operator, "running", "hello nothing")
    wait_for_text(kubectl, operator, "edited", "hello again")
    wait_for_text(kubectl, operator, "repaired", "hello nothing")
    eventually(lambda: kubectl.get(KIND, "deleted") is None, seconds=SECONDS, details=operator.log)

    assert operator.terminate() == 0
    lease = kubectl.get("lease", LEASE)
    assert lease is not None
    assert lease["spec"]["holderIdentity"] == ""
