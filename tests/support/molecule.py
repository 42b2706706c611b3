"""`molecule` as a user calls it, and resources of others on the same cluster."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

from tests.support.kubectl import Json, Kubectl

_DECORATION = re.compile(r"\x1b\[[0-9;]*m|│")
_PROGRAMS = Path(sys.executable).parent


class Molecule:
    """Runs molecule in a project, for one cluster and test namespace."""

    def __init__(self, project: Path, kubectl: Kubectl, kubeconfig: Path, scratch: Path) -> None:
        """`kubectl` is that of the test's namespace; `scratch` is molecule's directory."""
        self.project, self.scratch = project, scratch
        self.path = os.pathsep.join(
            [str(kubectl.program.parent), str(_PROGRAMS), os.environ["PATH"]]
        )
        self._environment = {
            name: value for name, value in os.environ.items() if name != "OPERATOR_IMAGE"
        } | {
            "KUBECONFIG": str(kubeconfig),
            "TEST_OPERATOR_NAMESPACE": kubectl.namespace,
            "MOLECULE_EPHEMERAL_DIRECTORY": str(scratch),
            "PATH": self.path,
            "NO_COLOR": "1",
        }

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the project; the exit status is the caller's business.

        `stdout` of the result has both outputs.
        """
        return subprocess.run(
            command,
            cwd=self.project,
            env=self._environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def passes(self, *steps: str, **environment: str) -> None:
        """Run these steps of the scenario `default`; fail the test if one of them fails."""
        for step in steps:
            done = self.run("molecule", step, **environment)
            assert done.returncode == 0, f"{step}: {done.stdout}"

    def refuses(self, step: str, *messages: str, **environment: str) -> None:
        """Run a step of the scenario `default` that must fail with these messages."""
        assert_fails_with(self.run("molecule", step, **environment), *messages)


def assert_fails_with(done: subprocess.CompletedProcess[str], *messages: str) -> None:
    """Assert that a command failed with these messages, however the output is folded."""
    assert done.returncode != 0, done.stdout
    output = " ".join(_DECORATION.sub(" ", done.stdout).split())
    for message in messages:
        assert message in output, output


class ForeignResources:
    """Resources of a kind in a namespace that is not the test's, each with a dependent."""

    def __init__(self, kubectl: Kubectl, crd: str) -> None:
        """`crd` is the name of the CRD, which must be served."""
        self._crd = crd
        self._kubectl = Kubectl(kubectl.program, f"foreign-{secrets.token_hex(4)}")
        self._kubectl("create", "namespace", self.namespace)
        # A controller creates it; `state` has all ConfigMaps.
        self._kubectl("wait", "--for=create", "configmap/kube-root-ca.crt", "--timeout=180s")

    @property
    def namespace(self) -> str:
        """Their namespace."""
        return self._kubectl.namespace

    def create(self, api_version: str, kind: str, name: str) -> None:
        """Create a resource, and a ConfigMap that it owns."""
        body: Json = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}
        self._kubectl("create", "--filename=-", input_=json.dumps(body | {"spec": {}}))
        created = self._kubectl.get(self._crd, name)
        assert created is not None
        reference = {"apiVersion": api_version, "kind": kind, "name": name}
        owner = reference | {"uid": created["metadata"]["uid"]}
        dependent = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{name}-data", "ownerReferences": [owner]},
        }
        self._kubectl.apply(dependent)

    def state(self) -> Json:
        """Return uid and resourceVersion of the CRD and of every object in the namespace."""
        crd = self._kubectl.get("crd", self._crd)
        assert crd is not None
        found = [crd, *self._kubectl.list(f"{self._crd},configmaps")]
        return {
            f"{one['kind']} {one['metadata']['name']}": (
                one["metadata"]["uid"],
                one["metadata"]["resourceVersion"],
            )
            for one in found
        }
