"""The manifests of a project, as kustomize renders them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from operator_runner.core.errors import ConfigError
from operator_runner.devcluster import binaries, recipes
from operator_runner.devcluster.errors import BinariesMissing
from operator_runner.devcluster.locations import cache_folder
from operator_runner.tools.bundle.project import Rendered
from operator_runner.tools.yaml_io import parse


def render(folder: Path, kustomize: str, environment: Mapping[str, str]) -> Rendered:
    """Return the objects that `kustomize` makes of a folder.

    `kustomize` is a command line such as `kubectl kustomize`; empty: kubectl of the PATH, or the
    one of the local cluster. Raises ConfigError with what kustomize says.
    """
    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: there is no such folder; a bundle is made of what its kustomization"
            " renders: the operator, samples, and a ClusterServiceVersion to begin with"
        )
    command = [*_command(kustomize, environment), str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigError(f"--kustomize: {command[0]}: {error.strerror}") from error
    if done.returncode:
        # Where it crashes, a page of addresses follows.
        reason = "\n".join(done.stderr.strip().splitlines()[:5])
        raise ConfigError(f"{folder}: {shlex.join(command)} failed: {reason}")
    return Rendered(parse(done.stdout, str(folder)), str(folder))


def _command(given: str, environment: Mapping[str, str]) -> list[str]:
    if given:
        return shlex.split(given)
    kubectl = shutil.which("kubectl", path=environment.get("PATH", os.defpath)) or _cached(
        environment
    )
    if not kubectl:
        raise ConfigError(
            "kustomize is needed, and neither given by --kustomize nor in a kubectl on the PATH;"
            " `operator-runner cluster up --control-plane-only` builds kubectl once"
        )
    return [kubectl, "kustomize"]


def _cached(environment: Mapping[str, str]) -> str | None:
    """Return the kubectl of the local cluster, if it has been built."""
    given = environment.get("KUBEBUILDER_ASSETS")
    try:
        folder = (
            Path(given)
            if given
            else cache_folder(environment) / "kubernetes" / recipes.kubernetes().tag
        )
    except BinariesMissing:
        return None
    return None if binaries.missing_in(folder, ["kubectl"]) else str(folder / "kubectl")
