"""Questions about a local cluster: its parts, its traces on the machine, its commands."""

from __future__ import annotations

import subprocess
import sys

from operator_runner.devcluster import Cluster
from tests.support.machine import Traces, traces

NOTHING = Traces(*(frozenset[str]() for _ in range(6)))
CONTROL_PLANE = {"etcd", "kube-apiserver", "kube-controller-manager"}
NODE = {"kube-scheduler", "containerd", "kubelet", "kube-proxy", "coredns", "local-provisioner"}


def traces_of(cluster: Cluster) -> Traces:
    """Return what of the cluster is on the machine."""
    return traces(cluster.home.path, cluster.home.token)


def cluster_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `operator-runner cluster` with these arguments."""
    return subprocess.run(
        [sys.executable, "-m", "operator_runner.devcluster", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def pids_of(cluster: Cluster) -> dict[str, int]:
    """Return the pids of the parts that run."""
    return {part.name: part.pid for part in cluster.status() if part.pid is not None}
