"""How many runs the machine, or the container on it, can carry at once."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

_RUN_MEMORY = 100 * 1024**2
"""Bytes for one run: its ansible-playbook, its worker and a module in it."""
_OWN_MEMORY = 150 * 1024**2
"""Bytes for the operator itself."""
_MIN_RUNS = 2
"""So that one slow run does not stop all others, even on one core."""


def cores() -> int:
    """Return the number of cores that this process may use, as Go's runtime.NumCPU does."""
    return len(os.sched_getaffinity(0))


def sustainable_runs(root: Path, wanted: int) -> int:
    """Return a number of runs that fits: one for each core, fewer where memory is short.

    `wanted` is what the user asks for of one kind; it may exceed the cores, never the memory.
    `root` is the root of the file system, where /proc and /sys are. At least 1.
    """
    quota = _cpu_quota(root)
    available = cores() if quota is None else min(cores(), math.ceil(quota))
    by_memory = (_memory(root) - _OWN_MEMORY) // _RUN_MEMORY
    return max(1, min(max(_MIN_RUNS, available, wanted), by_memory))


def _memory(root: Path) -> int:
    """Return the bytes of memory: the machine's, or the least limit of the cgroups."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [
        int(text)
        for directory in _cgroups(root, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
        if (text := _read(directory / name)).isdigit()
    ]
    return min(machine, *limits) if limits else machine


def _cpu_quota(root: Path) -> float | None:
    """Return the cores' worth of time that the cgroups allow; None without a limit."""
    quotas = []
    for directory in _cgroups(root, "cpu"):
        quota, _, period = _read(directory / "cpu.max").partition(" ")
        if not quota:
            quota = _read(directory / "cpu.cfs_quota_us")
            period = _read(directory / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit():
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def _cgroups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the directories of this process' cgroup and all above it, of both versions.

    In a container the listed path may be that of the host, which is not to be seen; the root
    of the mount is then the container's own cgroup.
    """
    mount = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top = mount
        elif controller in controllers.split(","):
            top = mount / controllers if (mount / controllers).is_dir() else mount / controller
        else:
            continue
        inner = top / path.lstrip("/")
        yield from (inner, *(parent for parent in inner.parents if parent.is_relative_to(top)))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        # No such controller, or no cgroups at all: then they limit nothing.
        return ""
