"""Control groups of versions 1 and 2, in a folder instead of /sys/fs/cgroup."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import cgroup
from bench.cgroup import ControlGroup
from bench.errors import BenchError


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder."""
    monkeypatch.setattr(cgroup, "_ROOT", tmp_path)
    return tmp_path


def test_version_2_has_one_folder_with_both_limits(root: Path) -> None:
    """The controllers are delegated to it."""
    (root / "cgroup.controllers").write_text("cpu memory")
    ControlGroup(2, 1024)
    (folder,) = root.glob("operator-runner-bench-*")
    assert (root / "cgroup.subtree_control").read_text() == "+cpu +memory"
    assert (folder / "cpu.max").read_text() == "200000 100000"
    assert (folder / "memory.max").read_text() == "1024"


def test_version_1_has_a_folder_for_each_controller(root: Path) -> None:
    """The quota is per period."""
    (root / "cpu").mkdir()
    (root / "memory").mkdir()
    group = ControlGroup(2, 1024)
    (cpu,), (memory,) = (list((root / name).iterdir()) for name in ("cpu", "memory"))
    assert (cpu / "cpu.cfs_quota_us").read_text() == "200000"
    assert (memory / "memory.limit_in_bytes").read_text() == "1024"
    script = group.launcher(Path("/bin/true"), root).read_text()
    assert f"{cpu}/cgroup.procs" in script
    assert f"{memory}/cgroup.procs" in script


def test_a_missing_controller_is_reported_with_its_cure(root: Path) -> None:
    """Nothing is measured without the limits."""
    (root / "memory").mkdir()
    with pytest.raises(BenchError, match="run as root where"):
        ControlGroup(2, 1024)
    assert list((root / "memory").iterdir()) == []
