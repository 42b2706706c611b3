"""Sources of the Kubernetes programs."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from operator_runner.devcluster import binaries, recipes
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


def test_missing_programs_are_named(tmp_path: Path) -> None:
    """An incomplete folder is refused, not silently replaced by a long build."""
    _programs(tmp_path, "etcd", "kube-apiserver", "kubectl")
    environment = {"KUBEBUILDER_ASSETS": str(tmp_path)}
    with pytest.raises(BinariesMissing, match="lacks kube-controller-manager"):
        binaries.find(binaries.CONTROL_PLANE, environment, _SILENT)


def test_a_file_that_cannot_be_run_is_missing(tmp_path: Path) -> None:
    """A program without the executable bit does not count."""
    (tmp_path / "etcd").touch(mode=0o644)
    assert binaries.missing_in(tmp_path, ["etcd"]) == ["etcd"]


def test_built_programs_are_cached(tmp_path: Path) -> None:
    """With programs of this very pin in the cache nothing is built."""
    folder = tmp_path / "operator-runner" / "kubernetes" / recipes.kubernetes().tag
    _programs(folder, *binaries.CONTROL_PLANE, *binaries.NODE)
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    assert binaries.find(binaries.CONTROL_PLANE, environment, _SILENT) == folder


def test_addons_are_given_or_cached(tmp_path: Path) -> None:
    """They are taken from the given folder, else from the cache; a missing one is an error."""
    folder = tmp_path / "operator-runner" / "addons" / recipes.addons().tag
    _programs(folder, *recipes.addons().programs)
    assert binaries.find_addons({"XDG_CACHE_HOME": str(tmp_path)}, _SILENT) == folder
    given = {"KUBEBUILDER_ASSETS": str(folder)}
    assert binaries.find_addons(given, _SILENT) == folder
    (folder / "coredns").unlink()
    with pytest.raises(BinariesMissing, match="lacks coredns"):
        binaries.find_addons(given, _SILENT)


def test_the_cache_serves_olm(tmp_path: Path) -> None:
    """The Operator Lifecycle Manager has a pin and a folder of its own."""
    folder = tmp_path / "operator-runner" / "olm" / recipes.olm().tag
    _programs(folder, *recipes.olm().programs)
    assert binaries.find_olm({"XDG_CACHE_HOME": str(tmp_path)}, _SILENT) == folder


def test_the_recipe_builds_all_programs() -> None:
    """All parts of the cluster are built."""
    assert set(recipes.addons().programs) == set(binaries.ADDONS)
    assert set(recipes.kubernetes().programs) == {*binaries.CONTROL_PLANE, *binaries.NODE}


def test_a_changed_pin_gets_a_cache_folder_of_its_own(tmp_path: Path) -> None:
    """Another version of any module leads to another build, and so does a changed program."""
    recipe = replace(recipes.kubernetes(), source=tmp_path)
    (tmp_path / "go.mod").write_text("require k8s.io/kubernetes v1.36.3\n")
    (tmp_path / "go.sum").write_text("one\n")
    tags = [recipe.tag]
    (tmp_path / "go.sum").write_text("two\n")
    tags.append(recipe.tag)
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "main.go").write_text("package main\n")
    tags.append(recipe.tag)
    assert len(set(tags)) == 3
    assert all(tag.startswith(f"{recipe.version}-") for tag in tags)


def test_programs_print_their_version() -> None:
    """Programs have their version, which clients and the API server compare."""
    recipe = recipes.kubernetes()
    trimmed, _, linker = recipe.options
    assert trimmed == "-trimpath"
    major, minor, _ = recipe.version.removeprefix("v").split(".")
    for stamp in (f"gitVersion={recipe.version}", f"gitMajor={major}", f"gitMinor={minor}"):
        assert f"-X k8s.io/component-base/version.{stamp}" in linker


@pytest.mark.parametrize("what", ["Kubernetes", "OLM"])
def test_a_go_mod_without_its_main_module_is_refused(tmp_path: Path, what: str) -> None:
    """The version cannot be guessed."""
    (tmp_path / "go.mod").write_text("module x\n")
    with pytest.raises(BinariesMissing, match=r"go\.mod requires no"):
        recipes.required_version(tmp_path, what)
