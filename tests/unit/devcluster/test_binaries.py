"""Where the Kubernetes programs come from."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from operator_runner.devcluster import binaries, building
from operator_runner.devcluster.errors import BinariesMissing

_SILENT = Console(file=io.StringIO())


def _programs(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch(mode=0o755)
    return folder


def test_given_programs_are_used(tmp_path: Path) -> None:
    """A control plane needs no programs of a node."""
    _programs(tmp_path, *binaries.CONTROL_PLANE)
    environment = {"KUBEBUILDER_ASSETS": str(tmp_path)}
    assert binaries.find(binaries.CONTROL_PLANE, environment, _SILENT) == tmp_path


def test_what_is_missing_among_given_programs_is_named(tmp_path: Path) -> None:
    """An incomplete folder is refused, not silently replaced by a long build."""
    _programs(tmp_path, "etcd", "kube-apiserver", "kubectl")
    environment = {"KUBEBUILDER_ASSETS": str(tmp_path)}
    with pytest.raises(BinariesMissing, match="lacks kube-controller-manager"):
        binaries.find(binaries.CONTROL_PLANE, environment, _SILENT)


def test_a_file_that_cannot_be_run_is_missing(tmp_path: Path) -> None:
    """A program without the executable bit does not count."""
    (tmp_path / "etcd").touch(mode=0o644)
    assert binaries.missing_in(tmp_path, ["etcd"]) == ["etcd"]


def test_the_cache_serves_what_was_built(tmp_path: Path) -> None:
    """With programs of this very pin in the cache nothing is built."""
    tag = building.version_tag(building.source_folder())
    folder = tmp_path / "operator-runner" / "kubernetes" / tag
    _programs(folder, *binaries.CONTROL_PLANE, *binaries.NODE)
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    assert binaries.find(binaries.CONTROL_PLANE, environment, _SILENT) == folder


def test_a_changed_pin_gets_a_cache_folder_of_its_own(tmp_path: Path) -> None:
    """Another version of any module leads to another build."""
    (tmp_path / "go.mod").write_text("require k8s.io/kubernetes v1.36.3\n")
    (tmp_path / "go.sum").write_text("one\n")
    before = building.version_tag(tmp_path)
    (tmp_path / "go.sum").write_text("two\n")
    assert before != building.version_tag(tmp_path)
    assert before.startswith("v1.36.3-")


def test_programs_know_their_version() -> None:
    """Kubernetes is told which version it is; clients and the API server compare them."""
    trimmed, _, linker = building.flags("v1.36.3")
    assert trimmed == "-trimpath"
    for stamp in ("gitVersion=v1.36.3", "gitMajor=1", "gitMinor=36"):
        assert f"-X k8s.io/component-base/version.{stamp}" in linker


def test_a_go_mod_without_kubernetes_is_refused() -> None:
    """The version cannot be guessed."""
    with pytest.raises(BinariesMissing, match=r"k8s\.io/kubernetes"):
        building.kubernetes_version("module x\n")
