"""A control plane with an audit log, and replicas with different service accounts."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from operator_runner.devcluster import Cluster
from tests.support.clusters import cluster_command
from tests.support.kubectl import Kubectl
from tests.support.operator import Operator

POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "None", "verbs": ["get", "list", "watch"]}, {"level": "Metadata"}],
}


@dataclass(frozen=True)
class Write:
    """A request of the audit log that has changed something; times are RFC 3339 in UTC."""

    account: str
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

    def writes(self, account: str = "", name: str = "") -> list[Write]:
        """Return the successful writes of an account, to objects of a name if there is one.

        Without an account those of all of them, in the order in which they were received.
        """
        lines = self.file.read_text().splitlines(keepends=True)
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        prefix = f"system:serviceaccount:{self.namespace}:"
        writes = [
            _write(event, event["user"]["username"].removeprefix(prefix))
            for event in events
            if event["user"]["username"].startswith(prefix)
            and event["responseStatus"]["code"] < 300
        ]
        found = [
            write for write in writes if account in {"", write.account} and name in {"", write.name}
        ]
        return sorted(found, key=lambda write: write.received)


def _write(event: dict[str, Any], account: str) -> Write:
    where = event["objectRef"]
    return Write(
        account,
        event["verb"],
        where["resource"],
        where.get("name", ""),
        event["requestReceivedTimestamp"],
        event["stageTimestamp"],
    )


@contextmanager
def audited_cluster(policy: Path, crd: Path, kind: str) -> Iterator[Cluster]:
    """Run a control plane with an audit log of all writes, and a CRD."""
    policy.write_text(json.dumps(POLICY))
    cluster = Cluster(f"test-audit-{secrets.token_hex(3)}")
    up = ("up", "--name", cluster.name, "--control-plane-only", "--audit-policy", str(policy))
    try:
        started = cluster_command(*up)
        assert started.returncode == 0, started.stderr
        cluster.exec(["kubectl", "apply", f"--filename={crd}"])
        Kubectl(cluster.bin / "kubectl", "default").wait_for_kinds(kind)
        yield cluster
    finally:
        cluster.down()


def make_replica(kubectl: Kubectl, project: Path, scratch: Path, name: str) -> Operator:
    """Return an operator with a service account of its name; nothing is started."""
    kubectl("create", "serviceaccount", name)
    account = f"--serviceaccount={kubectl.namespace}:{name}"
    binding = f"{kubectl.namespace}-{name}"
    kubectl("create", "clusterrolebinding", binding, "--clusterrole=cluster-admin", account)
    kubeconfig = kubectl.kubeconfig(name, scratch)
    work = scratch / name
    work.mkdir()
    return Operator(project, kubeconfig, kubectl.namespace, work, {})
