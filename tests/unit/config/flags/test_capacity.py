"""How many runs a machine can carry, on file trees like those of /proc and /sys."""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.config.flags.types import capacity
from operator_runner.core.host_resources import HostResources
from operator_runner.core.settings import ExecutorName

MB = 1024**2


def container(root: Path, memory: int, cpu: str = "max 100000") -> HostResources:
    """Return a container with this limit of memory (MB) and this quota of CPU."""
    below = root / "sys/fs/cgroup"
    below.mkdir(parents=True)
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("0::/\n")
    (below / "memory.max").write_text(f"{memory * MB}\n")
    (below / "cpu.max").write_text(cpu + "\n")
    return HostResources(root)


@pytest.mark.parametrize(
    ("executor", "memory", "runs"),
    [
        ("warm", 768, 15),
        ("warm", 350, 5),
        ("warm", 64, 1),
        ("cold", 768, 6),
        ("cold", 350, 2),
        ("cold", 64, 1),
    ],
)
def test_memory_limits_the_requested_runs(
    tmp_path: Path, executor: ExecutorName, memory: int, runs: int
) -> None:
    """A container of 768 MB has memory for 15 warm or 6 cold runs, even if more are requested."""
    assert capacity(container(tmp_path, memory), executor, 1000).runs == runs


def test_without_a_wish_the_cores_decide(tmp_path: Path) -> None:
    """Half a core carries two runs: one slow run must not stop all others."""
    assert capacity(container(tmp_path, 4096, "50000 100000"), "warm", 0).runs == 2


def test_more_runs_than_cores_can_be_requested(tmp_path: Path) -> None:
    """A requested concurrency is not limited to the cores."""
    assert capacity(container(tmp_path, 4096, "50000 100000"), "warm", 5).runs == 5


@pytest.mark.parametrize(("memory", "extra"), [(4096, 2), (280, 1), (230, 0), (64, 0)])
def test_idle_kinds_may_exceed_the_limit_within_memory(
    tmp_path: Path, memory: int, extra: int
) -> None:
    """As many runs again for kinds without one, but never more than memory carries."""
    assert capacity(container(tmp_path, memory, "50000 100000"), "warm", 0).extra == extra
