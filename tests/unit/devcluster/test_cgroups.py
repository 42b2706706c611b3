"""Control groups, on a tree of files that looks like either version."""

from __future__ import annotations

from pathlib import Path

import pytest

from operator_runner.devcluster import host
from operator_runner.devcluster.errors import CgroupsUnusable

_GROUP = host.cgroup_name("12345678")


@pytest.fixture
def v1(tmp_path: Path) -> Path:
    """Lay out the hierarchies of Debian with cgroup v1, links and unified one included."""
    for name in ("cpu,cpuacct", "cpuset", "memory", "pids", "systemd", "unified"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").touch()
    (tmp_path / "cpu").symlink_to("cpu,cpuacct")
    (tmp_path / "cpuset" / "cpuset.cpus").write_text("0-1\n")
    (tmp_path / "cpuset" / "cpuset.mems").write_text("0\n")
    return tmp_path


@pytest.fixture
def v2(tmp_path: Path) -> Path:
    """Lay out a unified hierarchy; the kernel would make the files of a new group."""
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids rdma\n")
    for folder in (tmp_path, tmp_path / _GROUP):
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.subtree_control").touch()
    return tmp_path


def test_v1_has_a_group_in_every_hierarchy(v1: Path) -> None:
    """Pods can be limited by each controller, and cpuset's group is filled."""
    host.create_cgroup("12345678", root=v1)
    made = {path.parent.name for path in v1.glob(f"*/{_GROUP}") if not path.parent.is_symlink()}
    assert made == {"cpu,cpuacct", "cpuset", "memory", "pids", "systemd", "unified"}
    assert (v1 / "cpuset" / _GROUP / "cpuset.cpus").read_text() == "0-1\n"


def test_v2_hands_controllers_down(v2: Path) -> None:
    """The controllers that Pods need are enabled for the group and below it."""
    host.create_cgroup("12345678", root=v2)
    for folder in (v2, v2 / _GROUP):
        # A file takes the last write; in the kernel's they add up.
        assert (folder / "cgroup.subtree_control").read_text() == "+io"


def test_a_missing_controller_is_named(v2: Path) -> None:
    """Without the memory controller Pods could not be limited; the error has this reason."""
    (v2 / "cgroup.controllers").write_text("cpuset cpu pids\n")
    with pytest.raises(CgroupsUnusable, match="controllers memory"):
        host.create_cgroup("12345678", root=v2)


def test_a_refusing_kernel_is_reported_with_a_hint(v2: Path) -> None:
    """Inside of an unprivileged container the hierarchy cannot be changed."""
    (v2 / "cgroup.subtree_control").unlink()
    (v2 / "cgroup.subtree_control").mkdir()
    with pytest.raises(CgroupsUnusable, match="--control-plane-only"):
        host.create_cgroup("12345678", root=v2)


def test_removing_takes_whole_trees_and_nothing_else(tmp_path: Path) -> None:
    """Groups of Pods are removed with the cluster's; those of another cluster are kept."""
    for top in ("memory", "pids"):
        (tmp_path / top / _GROUP / "kubepods" / "pod1").mkdir(parents=True)
        (tmp_path / top / "operator-runner-ffffffff").mkdir()
        (tmp_path / top / "cgroup.procs").touch()
    host.remove_cgroups("12345678", tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*/operator-runner-*")) == [
        "operator-runner-ffffffff",
        "operator-runner-ffffffff",
    ]
