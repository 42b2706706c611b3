"""kubectl as a user has it, for one kubeconfig and namespace."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

from operator_runner.devcluster import Cluster
from tests.support.api_connection import ApiConnection, CannotRequestError
from tests.support.waiting import eventually

Json = dict[str, Any]


@cache
def _connection(program: Path, _kubeconfig: str | None) -> ApiConnection:
    return ApiConnection(program)


@dataclass(frozen=True)
class Kubectl:
    """Runs the cluster's kubectl."""

    program: Path
    namespace: str

    @classmethod
    def in_new_namespace(cls, cluster: Cluster, prefix: str = "test") -> Self:
        """Create a namespace with a random name, and return kubectl for it."""
        kubectl = cls(cluster.bin / "kubectl", f"{prefix}-{secrets.token_hex(4)}")
        name = {"name": kubectl.namespace}
        kubectl.create({"apiVersion": "v1", "kind": "Namespace", "metadata": name})
        # Pods of the test need it.
        kubectl.wait_for_account()
        return kubectl

    @property
    def _api(self) -> ApiConnection:
        return _connection(self.program, os.environ.get("KUBECONFIG"))

    def run(self, *args: str, input_: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run and return; the exit code is the caller's business."""
        return subprocess.run(
            [self.program, "--namespace", self.namespace, *args],
            input=input_,
            capture_output=True,
            text=True,
            check=False,
        )

    def __call__(self, *args: str, input_: str | None = None) -> str:
        """Run and return the output; fail the test if kubectl fails."""
        done = self.run(*args, input_=input_)
        assert done.returncode == 0, f"kubectl {' '.join(args)}: {done.stderr}"
        return done.stdout

    def get(self, kind: str, name: str) -> Json | None:
        """Return the object, None if it does not exist."""
        with suppress(CannotRequestError):
            return self._api.get(kind, self.namespace, name)
        found = self("get", kind, name, "--ignore-not-found", "--output=json")
        return json.loads(found) if found else None

    def list(self, kind: str, selector: str = "") -> list[Json]:
        """Return the objects of a kind in the namespace."""
        with suppress(CannotRequestError):
            return self._api.list(kind, self.namespace, selector)
        items = json.loads(self("get", kind, f"--selector={selector}", "--output=json"))["items"]
        return list(items)

    def token(self, account: str) -> str:
        """Return a token of a service account, which a controller may not have created yet."""
        self.wait_for_account(account)
        # By default it is valid for an hour, and a long run of faults takes longer.
        return self("create", "token", account, "--duration=24h").strip()

    def kubeconfig(self, account: str, folder: Path) -> Path:
        """Write a kubeconfig of a service account, whose namespace is this one; return the file."""
        config = json.loads(self("config", "view", "--raw", "--minify", "--output=json"))
        config["users"] = [
            {"name": config["users"][0]["name"], "user": {"token": self.token(account)}}
        ]
        config["contexts"][0]["context"]["namespace"] = self.namespace
        kubeconfig = folder / f"{account}.kubeconfig"
        kubeconfig.write_text(json.dumps(config))
        return kubeconfig

    def create(self, body: Json) -> None:
        """Create an object."""
        try:
            self._api.create(self.namespace, body)
        except CannotRequestError:
            self("create", "--filename=-", input_=json.dumps(body))

    def apply(self, *objects: Json) -> None:
        """Apply objects, in their order."""
        for body in objects:
            try:
                self._api.apply(self.namespace, body)
            except CannotRequestError:
                self("apply", "--filename=-", input_=json.dumps(body))

    def wait_for_kinds(self, *crds: str) -> None:
        """Wait until the API server serves the kinds of these CRDs, given by name.

        `kubectl wait` fails while a new CRD has no conditions, and discovery lists the kind some
        time after the condition Established. It may list that of a deleted CRD of the same name.
        """
        api = self._api
        eventually(lambda: [crd for crd in crds if not api.serves(crd)], lambda left: not left)

    def wait_for_account(self, name: str = "default") -> None:
        """Wait for a service account: a controller creates that of a new namespace."""
        eventually(lambda: self.get("serviceaccount", name))

    def wait_not_terminating(self) -> None:
        """Wait while the namespace is being deleted; another test may have had one of its name."""
        eventually(
            lambda: self.get("namespace", self.namespace),
            lambda found: found is None or "deletionTimestamp" not in found["metadata"],
        )

    def wait_for_permission(
        self, user: str, verb: str, resource: str, subresource: str = ""
    ) -> None:
        """Wait until the API server applies the permissions that were granted to a user."""
        command = ("auth", "can-i", verb, resource, f"--subresource={subresource}", f"--as={user}")
        eventually(lambda: self.run(*command).stdout, lambda answer: answer.strip() == "yes")

    def merge(self, kind: str, name: str, patch: Json) -> None:
        """Merge a patch into an object; null removes a field."""
        try:
            self._api.merge(kind, self.namespace, name, patch)
        except CannotRequestError:
            self("patch", kind, name, "--type=merge", f"--patch={json.dumps(patch)}")
