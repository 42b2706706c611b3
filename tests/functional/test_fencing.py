"""Leader election and writes: after a takeover none of the former leader reaches the API server."""

from __future__ import annotations

import json
import os
import secrets
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from operator_runner.devcluster import Cluster
from tests.support.clusters import cluster_command
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

PROJECT = Path(__file__).parent / "project"
KIND = "echoes.test.example.com"
LEASE = "echo"
SECONDS = 180.0
"""A takeover takes the lease duration, and longer on a busy machine."""
FLAGS = (
    "--leader-elect",
    f"--leader-election-id={LEASE}",
    "--leader-elect-lease-duration=12s",
    "--leader-elect-renew-deadline=8s",
)
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "None", "verbs": ["get", "list", "watch"]}, {"level": "Metadata"}],
}
COUNT = '''
"""Write numbers to a ConfigMap until a file exists."""
import itertools, os, sys
from kubernetes import client, config
namespace, end = sys.argv[1:]
config.load_kube_config()
api = client.CoreV1Api()
for number in itertools.count():
    if os.path.exists(end):
        break
    api.patch_namespaced_config_map("counter", namespace, {"data": {"number": str(number)}})
'''


@dataclass(frozen=True)
class Write:
    """A request of the audit log that has changed something; times are RFC 3339 in UTC."""

    verb: str
    resource: str
    name: str
    received: str
    completed: str


@dataclass(frozen=True)
class AuditLog:
    """The audit log of an API server, as to the service accounts of a namespace."""

    file: Path
    namespace: str

    def writes(self, account: str, name: str = "") -> list[Write]:
        """Return the successful writes of an account, to objects of a name if there is one."""
        lines = self.file.read_text().splitlines(keepends=True)
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        user = f"system:serviceaccount:{self.namespace}:{account}"
        writes = [
            _write(event)
            for event in events
            if event["user"]["username"] == user and event["responseStatus"]["code"] < 300
        ]
        return [write for write in writes if name in {"", write.name}]


def _write(event: dict[str, Any]) -> Write:
    where = event["objectRef"]
    return Write(
        event["verb"],
        where["resource"],
        where.get("name", ""),
        event["requestReceivedTimestamp"],
        event["stageTimestamp"],
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start a control plane with an audit log of all writes."""
    policy = tmp_path_factory.mktemp("audit") / "policy.yaml"
    policy.write_text(json.dumps(POLICY))
    cluster = Cluster(f"test-audit-{secrets.token_hex(3)}")
    up = ("up", "--name", cluster.name, "--control-plane-only", "--audit-policy", str(policy))
    try:
        started = cluster_command(*up)
        assert started.returncode == 0, started.stderr
        cluster.exec(["kubectl", "apply", f"--filename={PROJECT / 'crd.yaml'}"])
        cluster.exec(["kubectl", "wait", f"crd/{KIND}", "--for=condition=Established"])
        yield cluster
    finally:
        cluster.down()


@pytest.fixture
def audit_log(cluster: Cluster, kubectl: Kubectl) -> AuditLog:
    """Return the audit log of the control plane."""
    return AuditLog(cluster.home.log_of("audit"), kubectl.namespace)


@pytest.fixture
def kubectl(cluster: Cluster) -> Kubectl:
    """Kubectl for a namespace of the test."""
    name = f"test-{secrets.token_hex(4)}"
    cluster.exec(["kubectl", "create", "namespace", name])
    return Kubectl(cluster.bin / "kubectl", name)


@pytest.fixture
def replica(kubectl: Kubectl, project: Path, tmp_path: Path) -> Iterator[Callable[[str], Operator]]:
    """Give a maker of replicas, each with a service account of its name."""
    made: list[Operator] = []

    def make(name: str) -> Operator:
        kubectl("create", "serviceaccount", name)
        account = f"--serviceaccount={kubectl.namespace}:{name}"
        binding = f"{kubectl.namespace}-{name}"
        kubectl("create", "clusterrolebinding", binding, "--clusterrole=cluster-admin", account)
        scratch = tmp_path / name
        scratch.mkdir()
        kubeconfig = kubectl.kubeconfig(name, tmp_path)
        made.append(Operator(project, kubeconfig, kubectl.namespace, scratch, {}))
        return made[-1]

    yield make
    for operator in made:
        operator.kill()
        print(f"Log of {operator.scratch.name}:\n{operator.log()}")  # noqa: T201 of a failed test


@pytest.fixture
def counting(project: Path, kubectl: Kubectl, tmp_path: Path) -> Path:
    """Let the role write to a ConfigMap until a file exists; return the file."""
    end, program = tmp_path / "end", tmp_path / "count.py"
    program.write_text(COUNT)
    command = f"{{{{ ansible_playbook_python }}}} {program} {kubectl.namespace} {end}"
    role = project / "roles" / "echo" / "tasks" / "main.yml"
    role.write_text(json.dumps([{"name": "Count", "ansible.builtin.command": command}]))
    kubectl("create", "configmap", "counter")
    return end


def echo(**spec: str) -> Json:
    return {
        "apiVersion": "test.example.com/v1",
        "kind": "Echo",
        "metadata": {"name": "a"},
        "spec": spec,
    }


def leads(operator: Operator) -> bool:
    return operator.metric("leader_election_master_status", name=LEASE) == 1


def successful(kubectl: Kubectl) -> bool:
    found = kubectl.get(KIND, "a")
    conditions = (found or {}).get("status", {}).get("conditions", [])
    return any(each["type"] == "Successful" and each["status"] == "True" for each in conditions)


def pids_of(operator: Operator, *, with_runs: bool) -> list[int]:
    """Return the pid of the operator, and those of its runs."""
    children = psutil.Process(operator.pid).children(recursive=True) if with_runs else []
    return [operator.pid, *(child.pid for child in children)]


@pytest.mark.parametrize("with_runs", [False, True], ids=["operator", "operator and runs"])
def test_a_frozen_leader_writes_nothing_after_a_takeover(
    replica: Callable[[str], Operator],
    kubectl: Kubectl,
    audit_log: AuditLog,
    counting: Path,
    with_runs: bool,
) -> None:
    """SIGSTOP during a run, takeover, SIGCONT: the run goes on, and the API server sees nothing.

    A run that is not frozen itself has a write on its way to the proxy all the time.
    """
    first = replica("first").start(*FLAGS)
    eventually(lambda: leads(first), seconds=SECONDS, told=first.log)
    kubectl.apply(echo())
    eventually(lambda: audit_log.writes("first", "counter"), seconds=SECONDS, told=first.log)
    second = replica("second").start(*FLAGS)

    frozen = pids_of(first, with_runs=with_runs)
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    eventually(lambda: audit_log.writes("second", "counter"), seconds=SECONDS, told=second.log)
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    status = first.wait(SECONDS)
    counting.touch()
    eventually(lambda: successful(kubectl), seconds=SECONDS, told=second.log)

    takeover = next(w for w in audit_log.writes("second") if w.resource == "leases")
    late = [w for w in audit_log.writes("first") if w.completed > takeover.received]
    assert late == []
    assert status == 1
    assert first.lines("Reconciliation failed") == []
    if not with_runs:
        refused = first.lines("Proxy request failed")
        assert [line["code"] for line in refused] == [403]
        assert f"Lease {kubectl.namespace}/{LEASE}" in refused[0]["error"]
