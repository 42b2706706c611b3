"""cert-manager itself on a control plane: its controllers, built from the modules pinned here."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from operator_runner.devcluster import binaries
from operator_runner.devcluster.locations import cache_folder
from operator_runner.devcluster.recipes import Recipe
from tests.support.kubectl import Kubectl

_MODULE = "github.com/cert-manager/cert-manager"
_VERSION = "v1.21.2"
_RECIPE = Recipe(
    what="cert-manager",
    source=Path(__file__).parent,
    version=_VERSION,
    options=("-trimpath", "-ldflags", "-s -w"),
    programs=("certmanager",),
    environment={"CGO_ENABLED": "0"},
    folders={"crds": (_MODULE, "deploy/crds")},
)


@contextmanager
def installed(kubectl: Kubectl, kubeconfig: Path, log: Path) -> Iterator[None]:
    """Have cert-manager run for a cluster; its output goes to `log`."""
    programs = _programs()
    crds = str(programs / "crds")
    kubectl("apply", "--server-side", f"--filename={crds}")
    names = kubectl("get", f"--filename={crds}", "--output=name").split()
    kubectl.wait_for_kinds(*(name.rpartition("/")[2] for name in names))
    environment = {"KUBECONFIG": str(kubeconfig), "PATH": os.environ["PATH"]}
    with (
        log.open("w") as output,
        subprocess.Popen(
            [programs / "certmanager"], env=environment, stdout=output, stderr=output
        ) as process,
    ):
        try:
            yield
        finally:
            process.kill()
            kubectl("delete", f"--filename={crds}")


def _programs() -> Path:
    """Return the folder of the program and the CRDs, built the first time."""
    cached = cache_folder(os.environ) / "cert-manager" / _RECIPE.tag
    return binaries.built(_RECIPE, cached, Console(stderr=True))
