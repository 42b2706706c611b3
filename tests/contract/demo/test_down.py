"""`make demo-down` on a cluster of the user: it deletes only what the demo created."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from operator_runner.devcluster import Cluster
from tests.support.kubectl import Kubectl
from tests.support.molecule import ForeignResources
from tests.support.nginx import KIND
from tests.support.operator import REPOSITORY


def test_a_crd_with_other_resources_is_kept(
    control_plane_cluster: Cluster, kubectl: Kubectl, tmp_path: Path
) -> None:
    """The CRD of the demo stays while it has resources of others, and is deleted without them."""
    checkout = tmp_path / "checkout"
    for name in ("demo", "config", "crds"):
        shutil.copytree(REPOSITORY / name, checkout / name)
    known = {"local": False, "crd_is_ours": True, "sample_is_ours": True, "operator": None}

    def down() -> str:
        (checkout / ".demo").mkdir()
        (checkout / ".demo" / "record.json").write_text(json.dumps(known))
        (checkout / "bin").mkdir()
        wrapper = checkout / "bin" / "kubectl"
        kubeconfig = shlex.quote(str(control_plane_cluster.kubeconfig))
        wrapper.write_text(f'#!/bin/sh\nKUBECONFIG={kubeconfig} exec {kubectl.program} "$@"\n')
        wrapper.chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-m", "demo.down"],
            cwd=checkout,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    # Other tests may have left resources of the kind.
    kubectl("delete", "crd", KIND, "--ignore-not-found")
    kubectl("apply", f"--filename={REPOSITORY / 'crds'}")
    kubectl.wait_for_kinds(KIND)
    foreign = ForeignResources(kubectl, KIND)
    foreign.create("operator.example.com/v1alpha2", "NginxOperator", "theirs")
    before = foreign.state()
    output = down()
    assert f"The CRD {KIND} stays" in output
    assert f"{foreign.namespace}/theirs" in output
    assert foreign.state() == before
    kubectl("delete", KIND, "--all", f"--namespace={foreign.namespace}")
    assert "Deleting the CRD" in down()
    assert kubectl.get("crd", KIND) is None
