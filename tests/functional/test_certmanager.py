"""Certificates of the webhook from cert-manager, by the manifests of the project."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from operator_runner.devcluster import Cluster, network
from tests.support import certmanager
from tests.support.kubectl import Json, Kubectl
from tests.support.nginx import KIND, V1ALPHA1, installed_with, nginx
from tests.support.operator import Operator, copy_project
from tests.support.waiting import eventually

CRD = f"crd/{KIND}"
CERTIFICATE = "nginx-operator-serving-cert"


@dataclass(frozen=True)
class Site:
    """An operator outside of the cluster, with the objects of one inside."""

    system: Kubectl
    """For the namespace of the operator."""
    users: Kubectl
    certificates: Path
    """Where the operator finds its certificate, as in a Pod that mounts the Secret."""

    def secret(self) -> Json:
        found = self.system.get("secret", "webhook-server-cert") or {}
        data: Json = found.get("data", {})
        return data

    def conversion(self) -> Json:
        crd = self.system.get("crd", KIND)
        assert crd is not None
        conversion: Json = crd["spec"]["conversion"]
        return conversion

    def is_trusted(self) -> bool:
        """Return True if the CRD has the CA of the Secret; it may have older ones as well."""
        bundle = self.conversion()["webhook"]["clientConfig"].get("caBundle", "")
        authority = base64.b64decode(self.secret().get("ca.crt", ""))
        return bool(authority) and authority in base64.b64decode(bundle)

    def renew(self) -> None:
        """Do what `cmctl renew` does."""
        certificate = self.system.get("certificate", CERTIFICATE)
        assert certificate is not None
        conditions = [c for c in certificate["status"]["conditions"] if c["type"] != "Issuing"]
        issuing = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered"}
        patch = json.dumps({"status": {"conditions": [*conditions, issuing]}})
        arguments = ("--subresource=status", "--type=merge", f"--patch={patch}")
        self.system("patch", "certificate", CERTIFICATE, *arguments)

    def mount(self) -> None:
        """Wait for the Secret and its CA; write the files as the kubelet does."""
        eventually(self.is_trusted)
        secret = self.secret()
        for name in ("tls.key", "tls.crt"):
            (self.certificates / name).write_bytes(base64.b64decode(secret[name]))


@pytest.fixture
def site(
    control_plane_cluster: Cluster, kubectl: Kubectl, tmp_path: Path
) -> Iterator[Callable[[int], Site]]:
    """Return a factory of sites by the port of the conversion webhook."""
    system = replace(kubectl, namespace="nginx-operator-system")

    def make(port: int) -> Site:
        # One that names a URL cannot become one that names a Service.
        system("delete", CRD, "--ignore-not-found")
        system.wait_not_terminating()
        for body in _manifests(system, tmp_path, port):
            system("apply", "--filename=-", input_=json.dumps(body))
        # A Service that leads to this machine, where there is no node to run a Pod on.
        service: Json = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "nginx-operator-webhook-service"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }
        system.apply(service)
        folder = tmp_path / "certificates"
        folder.mkdir()
        return Site(system, kubectl, folder)

    with certmanager.installed(kubectl, control_plane_cluster.kubeconfig, tmp_path / "log"):
        yield make
        system("delete", "namespace", system.namespace, "--ignore-not-found")


def _manifests(kubectl: Kubectl, scratch: Path, port: int) -> list[Json]:
    """Return the objects that the component config/certmanager adds or changes."""
    rendered = installed_with("certmanager", kubectl, scratch)
    kinds = ("Namespace", "CustomResourceDefinition", "Certificate", "Issuer")
    chosen = [body for body in rendered if body["kind"] in kinds]
    assert [body["kind"] for body in chosen] == list(kinds)
    chosen[1]["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"] = port
    return chosen


@pytest.mark.slow  # cert-manager is built
def test_cert_manager_issues_and_renews_certificates(
    site: Callable[[int], Site], control_plane: Path, tmp_path: Path
) -> None:
    """The API server trusts the operator's certificate by the CRD, after a renewal as well."""
    (port,) = network.free_ports("127.0.0.1", 1)
    at = site(port)
    at.mount()
    conversion = at.conversion()
    project, scratch = copy_project(tmp_path / "project"), tmp_path / "operator"
    scratch.mkdir()
    operator = Operator(project, control_plane, at.users.namespace, scratch, {})
    operator.start(f"--webhook-cert-dir={at.certificates}", f"--webhook-port={port}")
    try:
        at.users.apply(nginx(version="v1alpha1", port=8081))
        _is_converted(at.users)
        assert at.conversion() == conversion

        first = at.secret()
        at.renew()
        eventually(at.secret, lambda now: now != first)
        at.mount()
        eventually(lambda: at.users.run("get", V1ALPHA1).returncode, (0).__eq__)
        _is_converted(at.users)
    finally:
        at.system("delete", CRD)
        operator.kill()


def _is_converted(kubectl: Kubectl) -> None:
    lower, higher = (kubectl.get(kind, "web") for kind in (V1ALPHA1, KIND))
    assert lower is not None
    assert lower["spec"] == {"port": 8081}
    assert higher is not None
    assert higher["spec"] == {"ports": [{"containerPort": 8081, "protocol": "TCP"}]}
