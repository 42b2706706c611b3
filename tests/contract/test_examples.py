"""Each project of examples/: what its tools and a real API server report about its files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import examples
from tests.support.kubectl import Kubectl

RUNNER = Path(sys.executable).parent / "operator-runner"

pytestmark = pytest.mark.parametrize("name", examples.NAMES)


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `operator-runner` in a project."""
    return subprocess.run(
        [RUNNER, *arguments],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def installed(name: str, kubectl: Kubectl) -> Iterator[Kubectl]:
    """Install the CRDs of config/default; give kubectl for the namespace of the operator."""
    objects = examples.rendered(kubectl, examples.FOLDER / name)
    (manifest,) = (o for o in objects if o["kind"] == "Namespace")
    crds = [o for o in objects if o["kind"] == "CustomResourceDefinition"]
    for crd in crds:
        # No operator runs here that would convert the samples.
        crd["spec"]["conversion"] = {"strategy": "None"}
    system = replace(kubectl, namespace=manifest["metadata"]["name"])
    system.apply(manifest, *crds)
    names = [crd["metadata"]["name"] for crd in crds]
    system.wait_for_kinds(*names)
    yield system
    # Nothing waits for the end: each example has its own kinds and namespace.
    if names:
        system("delete", "crd", *names, "--wait=false")
    system("delete", "namespace", system.namespace, "--wait=false")


def test_validate_has_no_finding(name: str) -> None:
    """`operator-runner validate` reports neither errors nor warnings."""
    done = run(examples.FOLDER / name, "validate")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "valid, kinds:" in done.stdout
    assert "warning" not in done.stdout.lower()


def test_the_permissions_are_the_derived_ones(name: str) -> None:
    """config/ grants what `operator-runner rbac` derives, nothing less and nothing more."""
    project = examples.FOLDER / name
    assert (project / "config" / "rbac" / "requests.yaml").exists()
    folders = (project / "config" / folder for folder in ("rbac", "manager", "webhook"))
    checked = [f"--check={folder.relative_to(project)}" for folder in folders if folder.exists()]
    names = ["--names"] if name in examples.WITH_NAMES else []
    done = run(project, "rbac", *names, *checked)
    assert done.stdout == "The granted rules are the required ones.\n", done.stderr


def test_the_api_server_accepts_the_manifests(name: str, installed: Kubectl) -> None:
    """All of config/default and config/samples passes strict validation; schemas are structural."""
    crds = installed.list("crd")
    assert "NonStructuralSchema" not in {
        c["type"] for crd in crds for c in crd["status"]["conditions"]
    }
    project = examples.FOLDER / name
    for folder in ("default", "samples"):
        # Some permissions are in other namespaces than the operator.
        replace(installed, namespace="")(
            "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict",
            f"--kustomize={project / 'config' / folder}",
        )  # fmt: skip
