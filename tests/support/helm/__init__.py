"""Helm itself, for tests of plays that use it: built from the modules pinned here."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console

from operator_runner.devcluster import binaries
from operator_runner.devcluster.locations import cache_folder
from operator_runner.devcluster.recipes import Recipe

_VERSION = "v3.22.0"
_RECIPE = Recipe(
    what="Helm",
    source=Path(__file__).parent,
    version=_VERSION,
    options=(
        "-trimpath",
        "-ldflags",
        f"-s -w -X helm.sh/helm/v3/internal/version.version={_VERSION}",
    ),
    programs=("helm",),
    environment={"CGO_ENABLED": "0"},
)


def program() -> Path:
    """Return the path of `helm`, built the first time."""
    cached = cache_folder(os.environ) / "helm" / _RECIPE.tag
    return binaries.built(_RECIPE, cached, Console(stderr=True)) / "helm"
