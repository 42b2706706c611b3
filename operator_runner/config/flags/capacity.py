"""Compute the number of concurrent runs for the machine, or for the container on it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from operator_runner.core.host_resources import HostResources
from operator_runner.core.settings import ExecutorName

_MB = 1024**2
_MIN_RUNS = 2
"""Two, so that one slow run does not block all runs, even on one core."""


@dataclass(frozen=True, slots=True)
class _MemoryNeed:
    """Memory in bytes: of the operator itself, and of each run."""

    own: int
    run: int


_NEEDS: dict[ExecutorName, _MemoryNeed] = {
    # Operator and fork server; a fork shares most of its memory with the server.
    "warm": _MemoryNeed(own=150 * _MB, run=40 * _MB),
    # Operator; ansible-runner, ansible-playbook, its worker and a module in it.
    "cold": _MemoryNeed(own=150 * _MB, run=100 * _MB),
}


@dataclass(frozen=True, slots=True)
class Capacity:
    """Number of runs that fit, and the memory of each."""

    runs: int
    """One for each core, at least two, fewer where memory is short; at least 1."""
    extra: int
    """Further runs where memory allows them: room for kinds without a run in progress."""
    run_memory: int
    """Bytes of memory for each run."""


def cores() -> int:
    """Return the number of cores that this process may use, as Go's runtime.NumCPU does."""
    return len(os.sched_getaffinity(0))


def capacity(machine: HostResources, executor: ExecutorName, wanted: int) -> Capacity:
    """Return the number of runs for which the machine has cores and memory.

    `wanted` is the user's limit for one kind; it may exceed the cores, never the memory.
    Memory that other processes use now is not subtracted, because the result is used until the
    operator ends. The workqueue checks free memory before each start instead.
    """
    need = _NEEDS[executor]
    by_memory = max(1, (machine.memory() - need.own) // need.run)
    runs = min(max(_MIN_RUNS, machine.cores(), wanted), by_memory)
    return Capacity(runs, min(runs, by_memory - runs), need.run)
