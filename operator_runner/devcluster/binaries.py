"""Find the programs of Kubernetes, its addons and OLM: given, cached, or built now."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from operator_runner.devcluster import building, recipes
from operator_runner.devcluster.errors import BinariesMissing
from operator_runner.devcluster.locations import cache_folder
from operator_runner.devcluster.recipes import Recipe

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
NODE = ("kube-scheduler", "kubelet", "kube-proxy")
ADDONS = ("coredns", "local-provisioner")


def find(wanted: Sequence[str], environment: Mapping[str, str], console: Console) -> Path:
    """Return a folder with the programs `wanted`.

    The folder is KUBEBUILDER_ASSETS if that is set, otherwise the cache, into which the first call
    builds the programs; this takes minutes and is shown on `console`. Raises ClusterError.
    """
    given = environment.get("KUBEBUILDER_ASSETS")
    if given:
        return _checked(Path(given).absolute(), wanted)
    recipe = recipes.kubernetes()
    return built(recipe, cache_folder(environment) / "kubernetes" / recipe.tag, console)


def find_addons(environment: Mapping[str, str], console: Console) -> Path:
    """Return a folder with the addons of a cluster with a node, from the places of `find`."""
    given = environment.get("KUBEBUILDER_ASSETS")
    if given:
        return _checked(Path(given).absolute(), ADDONS)
    recipe = recipes.addons()
    return built(recipe, cache_folder(environment) / "addons" / recipe.tag, console)


def find_olm(environment: Mapping[str, str], console: Console) -> Path:
    """Return a folder with the programs of the Operator Lifecycle Manager, built the first time.

    `olm` and `catalog` are its controllers, `opm` validates and serves catalogs; `operator-verify`,
    `bundle-validate` and `scorecard-test` examine bundles; the folder `crds` has what `olm` needs.
    """
    recipe = recipes.olm()
    return built(recipe, cache_folder(environment) / "olm" / recipe.tag, console)


def built(recipe: Recipe, cached: Path, console: Console) -> Path:
    """Return the folder `cached` with the programs of a recipe, built the first time."""
    if missing_in(cached, recipe.programs):
        building.build(recipe, cached, console)
    return cached


def missing_in(folder: Path, wanted: Sequence[str]) -> list[str]:
    """Return which of the programs `wanted` are not executable files in `folder`."""
    return [name for name in wanted if not os.access(folder / name, os.X_OK)]


def _checked(folder: Path, wanted: Sequence[str]) -> Path:
    missing = missing_in(folder, wanted)
    if missing:
        raise BinariesMissing(
            f"KUBEBUILDER_ASSETS={folder} lacks {', '.join(missing)}",
            hint="Put them there, or unset KUBEBUILDER_ASSETS to have all of them built.",
        )
    return folder
