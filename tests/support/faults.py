"""Faults of the cluster that an operator has to outlive."""

from __future__ import annotations

import time

from operator_runner.devcluster import Cluster
from tests.support.operator import Operator


def api_outage(cluster: Cluster, operator: Operator, seconds: float) -> None:
    """Stop the API server for some time, in which the operator must stay alive."""
    cluster.stop_part("kube-apiserver")
    try:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert operator.probe("healthz") == 200
            time.sleep(0.5)
    finally:
        cluster.start_part("kube-apiserver")
