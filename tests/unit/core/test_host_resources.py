"""Cores and memory of a machine, from file trees like /proc and /sys."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from operator_runner.core.host_resources import HostResources

MB = 1024**2
TOTAL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def machine(root: Path, files: dict[str, str]) -> HostResources:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return HostResources(root)


def v2(path: str, memory: str) -> dict[str, str]:
    return {"proc/self/cgroup": f"0::{path}", f"sys/fs/cgroup{path}/memory.max": memory}


def test_without_limits_the_machine_counts(tmp_path: Path) -> None:
    """Without cgroups, and for `max` and -1, there is no limit."""
    files = {
        **v2("/", "max"),
        "sys/fs/cgroup/cpu.max": "max 100000",
    }
    for seen in (machine(tmp_path / "none", {}), machine(tmp_path / "unlimited", files)):
        assert seen.memory() == TOTAL
        assert seen.cores() == len(os.sched_getaffinity(0))


def test_the_least_limit_of_all_parents_counts(tmp_path: Path) -> None:
    """A process may be deep below the cgroup that limits it."""
    files = {
        **v2("/pod/container", "max"),
        "sys/fs/cgroup/pod/memory.max": str(450 * MB),
        "sys/fs/cgroup/memory.max": str(768 * MB),
    }
    assert machine(tmp_path, files).memory() == 450 * MB


def test_limits_of_cgroup_v1_are_found_at_the_mount(tmp_path: Path) -> None:
    """In a container the path listed is that of the host and cannot be seen."""
    files = {
        "proc/self/cgroup": "4:memory:/kubepods/pod1/abc\n3:cpu,cpuacct:/kubepods/pod1/abc",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": str(550 * MB),
    }
    assert machine(tmp_path, files).memory() == 550 * MB


@pytest.mark.parametrize(
    "quota",
    [
        {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "50000 100000"},
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
        },
    ],
)
def test_a_share_of_a_core_is_one_core(tmp_path: Path, quota: dict[str, str]) -> None:
    """A share of a big machine does not count all of its cores."""
    assert machine(tmp_path, quota).cores() == 1


@pytest.mark.parametrize(
    "files",
    [
        {
            "proc/self/cgroup": "0::/",
            "sys/fs/cgroup/memory.max": str(500 * MB),
            "sys/fs/cgroup/memory.current": str(400 * MB),
            "sys/fs/cgroup/memory.stat": f"anon {250 * MB}\ninactive_file {100 * MB}",
        },
        {
            "proc/self/cgroup": "4:memory:/kubepods/pod1/abc",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": str(500 * MB),
            "sys/fs/cgroup/memory/memory.usage_in_bytes": str(400 * MB),
            "sys/fs/cgroup/memory/memory.stat": f"total_inactive_file {100 * MB}",
        },
    ],
)
def test_available_memory_of_a_container_excludes_its_cache(
    tmp_path: Path, files: dict[str, str]
) -> None:
    """Its limit minus its usage without reclaimable cached files."""
    assert machine(tmp_path, files).free_memory() == 200 * MB


def test_available_memory_is_limited_by_the_machine(tmp_path: Path) -> None:
    """A container whose limit is far away still shares its machine with others."""
    files = {
        **v2("/", str(500 * MB)),
        "proc/meminfo": f"MemTotal: 9 kB\nMemAvailable: {90 * 1024} kB",
    }
    assert machine(tmp_path, files).free_memory() == 90 * MB


def test_memory_is_never_negative(tmp_path: Path) -> None:
    """A container may use more than its limit for a moment."""
    files = {**v2("/", str(MB)), "sys/fs/cgroup/memory.current": str(2 * MB)}
    assert machine(tmp_path, files).free_memory() == 0
