"""How many runs a machine can carry, on file trees like those of /proc and /sys."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from operator_runner.flags.capacity import cores, sustainable_runs

MB = 1024**2


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def v2(path: str, memory: str) -> dict[str, str]:
    return {"proc/self/cgroup": f"0::{path}", f"sys/fs/cgroup{path}/memory.max": memory}


def test_without_cgroups_the_cores_and_the_machine_decide(tmp_path: Path) -> None:
    """One run for each core and at least two, if the machine's memory allows it."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    runs = sustainable_runs(tmp_path, 0)

    assert runs == min(max(2, cores()), (machine - 150 * MB) // (100 * MB))


@pytest.mark.parametrize(("memory", "runs"), [(768, 6), (350, 2), (256, 1), (64, 1)])
def test_memory_limits_the_runs_that_are_wanted(tmp_path: Path, memory: int, runs: int) -> None:
    """A container of 768 MB carries six runs, however many are asked for."""
    root = write(tmp_path, v2("/", str(memory * MB)))

    assert sustainable_runs(root, 1000) == runs


def test_the_least_limit_of_all_parents_counts(tmp_path: Path) -> None:
    """A process may be deep below the cgroup that limits it."""
    files = {
        **v2("/pod/container", "max"),
        "sys/fs/cgroup/pod/memory.max": str(450 * MB),
        "sys/fs/cgroup/memory.max": str(768 * MB),
    }

    assert sustainable_runs(write(tmp_path, files), 1000) == 3


def test_limits_of_cgroup_v1_are_found_at_the_mount(tmp_path: Path) -> None:
    """In a container the path listed is that of the host and cannot be seen."""
    files = {
        "proc/self/cgroup": "4:memory:/kubepods/pod1/abc\n3:cpu,cpuacct:/kubepods/pod1/abc",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": str(550 * MB),
    }

    assert sustainable_runs(write(tmp_path, files), 1000) == 4


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
def test_half_a_core_still_carries_two_runs(tmp_path: Path, quota: dict[str, str]) -> None:
    """A share of a big machine does not count all of its cores."""
    assert sustainable_runs(write(tmp_path, quota), 0) == 2


def test_who_asks_for_more_than_the_cores_gets_it(tmp_path: Path) -> None:
    """A concurrency that was asked for is not cut down to the cores."""
    files = {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "50000 100000"}

    assert sustainable_runs(write(tmp_path, files), 5) == 5


def test_no_quota_is_no_limit(tmp_path: Path) -> None:
    """`max` and -1 are how cgroups say that."""
    files = {
        "proc/self/cgroup": "0::/\n1:cpu:/",
        "sys/fs/cgroup/cpu.max": "max 100000",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    }

    assert sustainable_runs(write(tmp_path, files), 0) == sustainable_runs(tmp_path / "none", 0)
