"""Memory of replicas that watch many resources, and the time until others take them over.

The role waits, so that nearly all resources stay in the queues: a replica has read each of them,
and holds its key and its cause.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.accounting import memory
from bench.environment import wait_until
from bench.figures import mebibytes
from bench.scale.chaos import KIND, TAKEOVER_SECONDS, echo
from bench.scale.replicas import FLAGS, LEASE_SECONDS, Replica, running
from operator_runner.core.slot_assignment import SLOTS
from operator_runner.devcluster import Cluster
from operator_runner.kube.api import Api
from operator_runner.kube.session import connect
from tests.support.kubectl import Kubectl

REPLICAS = 4
_LARGE = 100_000
_WRITERS = 16
_TIMEOUT_SECONDS = 900.0
_ONE_RUN = ("--max-runs=1", "--max-concurrent-reconciles=1")


@dataclass(frozen=True, slots=True)
class Many:
    """Memory in bytes of the operator process of a replica, and durations in seconds."""

    count: int
    empty: int
    """Memory without resources."""
    one: int
    """Memory of the only replica."""
    each: int
    """Highest memory of several replicas."""
    listed: float
    """Time from the start of the only replica until all resources are in its queue."""
    takeover: float
    """Time from SIGKILL of a replica until the others have all slots and their resources."""

    @property
    def is_good(self) -> bool:
        """Whether the takeover was in time."""
        return self.takeover <= TAKEOVER_SECONDS

    def at(self, count: int) -> int:
        """Return the memory of one replica with another number of resources, by proportion."""
        return self.empty + (self.one - self.empty) * count // self.count

    def rows(self) -> list[tuple[str, str]]:
        """Return all numbers with their names."""
        bytes_each = (self.one - self.empty) / self.count
        several = f"highest memory of {REPLICAS} replicas, {self.count} resources"
        return [
            ("memory of a replica without resources", mebibytes(self.empty)),
            (f"memory of one replica, {self.count} resources", mebibytes(self.one)),
            (several, mebibytes(self.each)),
            ("memory for each resource", f"{bytes_each / 1024:.1f} KiB"),
            (f"estimate for {_LARGE} resources", mebibytes(self.at(_LARGE))),
            (f"start until all {self.count} resources are queued", f"{self.listed:.1f} s"),
            (
                f"SIGKILL until takeover (lease duration {LEASE_SECONDS} s)",
                f"{self.takeover:.1f} s",
            ),
        ]


def measure_many(
    cluster: Cluster, kubectl: Kubectl, project: Path, scratch: Path, count: int
) -> Many:
    """Return the figures for `count` resources in a namespace of their own.

    The role of `project` waits longer than this takes. `scratch` is a folder for files. Raises
    BenchError if the replicas do not get ready.
    """
    own = Kubectl(kubectl.program, f"{kubectl.namespace}-many")
    kubectl("create", "namespace", own.namespace)
    scratch.mkdir()
    empty, _ = _one(own, project, scratch, "empty", 0)
    asyncio.run(_create(cluster.kubeconfig, own.namespace, count))
    one, listed = _one(own, project, scratch, "one", count)
    each, takeover = _several(own, project, scratch, count)
    return Many(count, empty, one, each, listed, takeover)


def _one(
    kubectl: Kubectl, project: Path, scratch: Path, name: str, count: int
) -> tuple[int, float]:
    """Return the memory of one replica, and the time until all resources are in its queue."""
    begin = time.monotonic()
    with running(kubectl, project, scratch, 1, (*FLAGS, *_ONE_RUN), prefix=name) as replicas:
        _wait_queued(replicas, count)
        return _highest_memory(replicas), time.monotonic() - begin


def _several(kubectl: Kubectl, project: Path, scratch: Path, count: int) -> tuple[int, float]:
    """Return the highest memory of several replicas, and the time of a takeover."""
    with running(
        kubectl, project, scratch, REPLICAS, (*FLAGS, *_ONE_RUN), prefix="several"
    ) as replicas:
        _wait_queued(replicas, count)
        highest = _highest_memory(replicas)
        killed, *others = replicas
        begin = time.monotonic()
        killed.operator.kill()
        _wait_queued(others, count)
        return highest, time.monotonic() - begin


def _wait_queued(replicas: Sequence[Replica], count: int) -> None:
    """Wait until the replicas have all slots and resources. Raises BenchError."""

    def are_queued() -> bool:
        slots = [each.operator.metric("operator_runner_shard_slots") for each in replicas]
        return min(slots) > 0 and sum(slots) == SLOTS and sum(map(_resources, replicas)) >= count

    what = f"{len(replicas)} replicas have {count} resources"
    wait_until(are_queued, what, _TIMEOUT_SECONDS, every=0.5)


def _resources(replica: Replica) -> float:
    """Return how many resources a replica runs or has in its queue."""
    names = ("workqueue_depth", "controller_runtime_active_workers")
    return sum(replica.operator.metric(name) for name in names)


def _highest_memory(replicas: Sequence[Replica]) -> int:
    """Return the memory of the largest operator process, without its runs."""
    return max(memory([psutil.Process(each.operator.pid)]) for each in replicas)


async def _create(kubeconfig: Path, namespace: str, count: int) -> None:
    """Create resources, some at a time."""
    connection = await connect(kubeconfig, user_agent="operator-runner/bench")
    api, numbers = Api(connection), iter(range(count))
    plural, _, group = KIND.partition(".")

    async def write() -> None:
        for number in numbers:
            path = f"/apis/{group}/v1/namespaces/{namespace}/{plural}"
            await api.request("POST", path, body=echo(f"echo-{number}", "a"))

    try:
        await asyncio.gather(*(write() for _ in range(_WRITERS)))
    finally:
        await connection.close()
