"""Compare the runs of one replica with those of three in the same time; the role waits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.environment import wait_until
from bench.scale.chaos import echo
from bench.scale.replicas import FLAGS, Replica, running
from tests.support.kubectl import Kubectl

REPLICAS = 3
RUNS = 4
"""Runs of a replica at once."""
_RESOURCES = 300
"""More than all runs in the time."""
_SECONDS = 60.0
_START_SECONDS = 180.0
_MIN_RATIO = 2.7


@dataclass(frozen=True, slots=True)
class Throughput:
    """Runs that ended in the same time."""

    one: int
    several: int

    @property
    def ratio(self) -> float:
        """How many times the resources of one replica the others have done."""
        return self.several / self.one

    @property
    def is_good(self) -> bool:
        """Whether the replicas did enough more."""
        return self.ratio >= _MIN_RATIO

    def rows(self) -> list[tuple[str, str]]:
        """Return all numbers with their names."""
        return [
            (f"runs of one replica in {_SECONDS:.0f} s", str(self.one)),
            (f"runs of {REPLICAS} replicas", str(self.several)),
            ("ratio", f"{self.ratio:.2f}"),
        ]


def measure(kubectl: Kubectl, project: Path, scratch: Path) -> Throughput:
    """Return the runs of one and of several replicas. `scratch` is a folder for files."""
    return Throughput(
        *(_runs(kubectl, project, scratch / f"{count}", count) for count in (1, REPLICAS))
    )


def _runs(kubectl: Kubectl, project: Path, scratch: Path, count: int) -> int:
    scratch.mkdir()
    own = Kubectl(kubectl.program, f"{kubectl.namespace}-{count}")
    kubectl("create", "namespace", own.namespace)
    own.apply(*(echo(f"echo-{number}", "a") for number in range(_RESOURCES)))
    flags = (*FLAGS, f"--max-runs={RUNS}", f"--max-concurrent-reconciles={RUNS}")
    with running(own, project, scratch, count, flags) as replicas:
        wait_until(
            lambda: all(_active(each) == RUNS for each in replicas),
            f"{count} replicas have {RUNS} runs each",
            _START_SECONDS,
            every=0.5,
        )
        before = _ended(replicas)
        time.sleep(_SECONDS)
        return _ended(replicas) - before


def _active(replica: Replica) -> float:
    return replica.operator.metric("controller_runtime_active_workers")


def _ended(replicas: Sequence[Replica]) -> int:
    return sum(len(replica.operator.lines("Reconciled")) for replica in replicas)
