"""Render manifests with kustomize."""

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

_SHOWN_LINES = 5
"""Lines of an error that are shown: a crash of kustomize is followed by a page of addresses."""


def render(folder: Path, command: str, environment: Mapping[str, str]) -> str:
    """Return the manifests that `command` renders from the kustomization in `folder`.

    `command` is a command line such as `kubectl kustomize`; if it is empty, kubectl is taken from
    the PATH, or else from the cache of the local cluster. Raises ConfigError with the error output
    of kustomize.
    """
    argv = [*_command(command, environment), str(folder)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigError(
            f"--kustomize: {argv[0]}: {error.strerror}; install it, or name another program"
        ) from error
    if done.returncode:
        reason = "\n".join(done.stderr.strip().splitlines()[:_SHOWN_LINES])
        raise ConfigError(f"{folder}: {shlex.join(argv)} failed: {reason}")
    return done.stdout


def _command(given: str, environment: Mapping[str, str]) -> list[str]:
    if given:
        return shlex.split(given)
    path = environment.get("PATH", os.defpath)
    kubectl = shutil.which("kubectl", path=path) or _cached_kubectl(environment)
    if not kubectl:
        raise ConfigError(
            "kubectl not found on the PATH: install it, name another kustomize with --kustomize, or"
            " build kubectl once with `operator-runner cluster up --control-plane-only`"
        )
    return [kubectl, "kustomize"]


def _cached_kubectl(environment: Mapping[str, str]) -> str | None:
    """Return the kubectl of the local cluster, or None if it has not been built."""
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
