"""Compare passes that change nothing: those of the example etcd and of the nginx operator."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.environment import wait_until
from operator_runner.devcluster import Cluster, pack
from tests.support.kubectl import Json, Kubectl
from tests.support.operator import REPOSITORY, Operator, copy_project

_PERIOD = "ansible.sdk.operatorframework.io/reconcile-period"
_RUNS = 5
"""The operator does as many runs before it makes a short period longer."""
_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class IdlePass:
    """A pass that changes nothing: medians of several, in seconds."""

    seconds: float
    tasks: dict[str, float]
    """Seconds of the tasks that call a module in the order of the role; others take no time."""

    def rows(self) -> list[tuple[str, str]]:
        """Return the tasks with their seconds, and the rest: facts, set-up of the play, report."""
        rest = self.seconds - sum(self.tasks.values())
        parts = {**self.tasks, "the rest": rest, "the pass": self.seconds}
        return [(name, f"{seconds:.2f}") for name, seconds in parts.items()]


def idle_pass(operator: Operator, kubectl: Kubectl, kind: str, name: str) -> IdlePass:
    """Measure periodic runs of a resource that has settled."""
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
    return _medians(operator, _periodic(operator, name)[before:])


def nginx_idle_pass(cluster: Cluster, scratch: Path) -> IdlePass:
    """Measure the same of a NginxOperator on the same cluster."""
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
        return idle_pass(operator, kubectl, "nginxoperators.operator.example.com", "idle")
    finally:
        operator.kill()


def _periodic(operator: Operator, name: str) -> list[Json]:
    """Return the log lines of the ends of periodic runs."""
    return [
        line
        for line in operator.lines("Reconciled")
        if line["name"] == name and str(line["cause"]).startswith("period")
    ]


def _medians(operator: Operator, ended: Sequence[Json]) -> IdlePass:
    runs = {line["run_id"] for line in ended}
    tasks: dict[str, list[float]] = {}
    for line in operator.lines("[playbook task]"):
        if line["run_id"] in runs and "seconds" in line:
            tasks.setdefault(str(line["task"]), []).append(float(line["seconds"]))
    return IdlePass(
        statistics.median(float(line["seconds"]) for line in ended),
        {task: statistics.median(seconds) for task, seconds in tasks.items()},
    )
