"""The definitions of the Prometheus operator's kinds, from its Go module, pinned by go.sum."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from operator_runner.devcluster import building

_MODULE = "github.com/prometheus-operator/prometheus-operator@v0.86.1"


def crds(*plurals: str) -> list[Path]:
    """Return the files with the CustomResourceDefinitions of these resources."""
    go = building.find_go((1, 24), "the Prometheus operator's definitions")
    found = subprocess.run(
        [go, "mod", "download", "-json", _MODULE],
        cwd=Path(__file__).parent,
        env=building.go_environment({}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    folder = Path(json.loads(found.stdout)["Dir"], "example", "prometheus-operator-crd")
    return [folder / f"monitoring.coreos.com_{plural}.yaml" for plural in plurals]
