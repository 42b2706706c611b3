"""Cores and memory of the machine or the container: limits and free memory.

Read from /proc and /sys, of both versions of cgroups. A container's limits count where they are
less than the machine has; so do those of the cgroups above it, such as its Pod's.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Iterator
from pathlib import Path

_MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Limit, usage and the key in memory.stat of what can be taken back; of cgroup v2 and v1."""


class HostResources:
    """Reads limits and usage at each call, in some 0.3 ms.

    The cgroups of this process are looked up once.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        """`root` is the root of the file system, where /proc and /sys are."""
        self._root = root

    def cores(self) -> int:
        """Return the number of cores that may be used: a started core's worth of quota counts."""
        own = len(os.sched_getaffinity(0))
        quota = self._cpu_quota()
        return own if quota is None else max(1, min(own, math.ceil(quota)))

    def memory(self) -> int:
        """Return the bytes of memory that may be used at most."""
        return min([_physical(), *(limit for limit, _ in self._limits())])

    def free_memory(self) -> int:
        """Return the bytes that are available now, without swapping or the OOM killer.

        Files that are cached but were not used lately are free, as the kubelet counts them.
        """
        available = _table(self._root / "proc/meminfo").get("MemAvailable:")
        machine = self.memory() if available is None else available * 1024
        return max(0, min([machine, *(limit - used for limit, used in self._limits())]))

    def _limits(self) -> Iterator[tuple[int, int]]:
        """Yield limit and use, in bytes, of each cgroup that limits anything."""
        each = itertools.product(self._memory_cgroups, _MEMORY_FILES)
        for directory, (limit_file, usage_file, reclaimable) in each:
            limit = _read(directory / limit_file)
            # Version 1 has a number for "no limit", larger than any memory.
            if limit.isdigit() and int(limit) < _physical():
                usage = _read(directory / usage_file)
                used = int(usage) if usage.isdigit() else 0
                spare = _table(directory / "memory.stat").get(reclaimable, 0)
                yield int(limit), max(0, used - spare)

    @functools.cached_property
    def _memory_cgroups(self) -> list[Path]:
        """The directories of the cgroups that may limit memory."""
        return list(self._cgroups("memory"))

    def _cpu_quota(self) -> float | None:
        """Return the cores' worth of time that the cgroups allow; None without a limit."""
        quotas = []
        for directory in self._cgroups("cpu"):
            quota, _, period = _read(directory / "cpu.max").partition(" ")
            if not quota:
                quota = _read(directory / "cpu.cfs_quota_us")
                period = _read(directory / "cpu.cfs_period_us")
            if quota.isdigit() and period.isdigit():
                quotas.append(int(quota) / int(period))
        return min(quotas, default=None)

    def _cgroups(self, controller: str) -> Iterator[Path]:
        """Yield the directories of this process' cgroup and all above it, of both versions.

        In a container the listed path may be that of the host, which is not to be seen; the
        root of the mount is then the container's own cgroup.
        """
        mount = self._root / "sys/fs/cgroup"
        for line in _read(self._root / "proc/self/cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                top = mount
            elif controller in controllers.split(","):
                top = mount / controllers if (mount / controllers).is_dir() else mount / controller
            else:
                continue
            inner = top / path.lstrip("/")
            yield from (inner, *(parent for parent in inner.parents if parent.is_relative_to(top)))


def _physical() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _table(path: Path) -> dict[str, int]:
    """Read lines of a name and a number; text after the number is ignored."""
    words = (line.split() for line in _read(path).splitlines())
    return {row[0]: int(row[1]) for row in words if len(row) > 1 and row[1].isdigit()}


def _read(path: Path) -> str:
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123 (half the time)
            return file.read().strip()
    except OSError:
        # No such controller, or no cgroups at all: then they limit nothing.
        return ""
