"""Compare passes that change nothing: those of the example etcd and of the nginx operator."""

from __future__ import annotations

import statistics
from pathlib import Path

from bench.environment import wait_until
from operator_runner.devcluster import Cluster, pack
from tests.support.kubectl import Kubectl
from tests.support.operator import REPOSITORY, Operator, copy_project

_PERIOD = "ansible.sdk.operatorframework.io/reconcile-period"
_RUNS = 5
"""The operator does as many runs before it makes a short period longer."""
_SECONDS = 120.0


def idle_seconds(operator: Operator, kubectl: Kubectl, kind: str, name: str) -> float:
    """Return the median duration of periodic runs of a resource that has settled."""
    before = len(_periodic(operator, name))
    kubectl("annotate", kind, name, "--overwrite", f"{_PERIOD}=1s")
    try:
        wait_until(
            lambda: len(_periodic(operator, name)) >= before + _RUNS,
            f"{_RUNS} periodic runs of {name}",
            _SECONDS,
            every=0.2,
        )
    finally:
        kubectl("annotate", kind, name, f"{_PERIOD}-")
    return statistics.median(_periodic(operator, name)[before:])


def nginx_idle_seconds(cluster: Cluster, scratch: Path) -> float:
    """Return the same of a NginxOperator on the same cluster."""
    kubectl = Kubectl(cluster.bin / "kubectl", "default")
    archive = scratch / "nginx.tar"
    pack(REPOSITORY / "demo" / "nginx-image.yaml", archive)
    (image,) = cluster.load(archive)
    kubectl("apply", f"--filename={REPOSITORY / 'crds'}")
    kubectl("wait", f"--filename={REPOSITORY / 'crds'}", "--for=condition=Established")
    folder = scratch / "nginx"
    folder.mkdir()
    operator = Operator(
        copy_project(folder / "project"),
        cluster.kubeconfig,
        kubectl.namespace,
        folder,
        {"RELATED_IMAGE_NGINX": image},
    )
    operator.start()
    try:
        kubectl.apply(
            {
                "apiVersion": "operator.example.com/v1alpha2",
                "kind": "NginxOperator",
                "metadata": {"name": "idle"},
                "spec": {"replicas": 1, "ports": [{"containerPort": 8080}]},
            }
        )
        kubectl("wait", "--for=create", "deployment/idle", "--timeout=90s")
        kubectl("rollout", "status", "deployment/idle", "--timeout=90s")
        return idle_seconds(operator, kubectl, "nginxoperators.operator.example.com", "idle")
    finally:
        operator.kill()


def _periodic(operator: Operator, name: str) -> list[float]:
    return [
        float(line["seconds"])
        for line in operator.lines("Reconciled")
        if line["name"] == name and str(line["cause"]).startswith("period")
    ]
