"""Compare passes that change nothing: those of the example etcd and of the nginx operator."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.environment import wait_until
from operator_runner.devcluster import Cluster, pack
from operator_runner.devcluster.supervision import ESTABLISHED
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


@dataclass(frozen=True, slots=True)
class Subject:
    """A resource that has settled, and its running operator."""

    operator: Operator
    kubectl: Kubectl
    kind: str
    name: str


def idle_passes(*subjects: Subject) -> list[IdlePass]:
    """Measure periodic runs of each, all at the same time: on a busy machine times vary."""
    before = [len(_periodic(each)) for each in subjects]

    def ended() -> bool:
        counts = zip(subjects, before, strict=True)
        return all(len(_periodic(each)) >= count + _RUNS for each, count in counts)

    for each in subjects:
        each.kubectl("annotate", each.kind, each.name, "--overwrite", f"{_PERIOD}=1s")
    try:
        wait_until(ended, f"{_RUNS} periodic runs of each resource", _SECONDS, every=0.2)
    finally:
        for each in subjects:
            each.kubectl("annotate", each.kind, each.name, f"{_PERIOD}-")
    return [
        _medians(each.operator, _periodic(each)[count : count + _RUNS])
        for each, count in zip(subjects, before, strict=True)
    ]


@contextmanager
def nginx_operator(cluster: Cluster, scratch: Path) -> Iterator[Subject]:
    """Run the nginx operator on the cluster, with a resource that has settled."""
    kubectl = Kubectl(cluster.bin / "kubectl", "default")
    archive = scratch / "nginx.tar"
    pack(REPOSITORY / "demo" / "nginx-image.yaml", archive)
    (image,) = cluster.load(archive)
    kubectl("apply", f"--filename={REPOSITORY / 'crds'}")
    kubectl("wait", f"--filename={REPOSITORY / 'crds'}", ESTABLISHED)
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
        yield Subject(operator, kubectl, "nginxoperators.operator.example.com", "idle")
    finally:
        operator.kill()


def _periodic(subject: Subject) -> list[Json]:
    """Return the log lines of the ends of periodic runs."""
    return [
        line
        for line in subject.operator.lines("Reconciled")
        if line["name"] == subject.name and str(line["cause"]).startswith("period")
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
