"""Two replicas behind a Service: each serves conversions, with the certificates of one Secret."""

from __future__ import annotations

import base64
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.kubectl import Json, Kubectl
from tests.support.operator import REPOSITORY, Operator, copy_project, free_port
from tests.support.waiting import eventually

CRD = "nginxoperators.operator.example.com"
V1 = "nginxoperators.v1alpha1.operator.example.com"


@pytest.fixture
def replica(
    control_plane: Path, kubectl: Kubectl, tmp_path: Path
) -> Iterator[Callable[[int, int], Operator]]:
    """Give a maker of replicas by webhook port; the second port is the Service's."""
    kubectl("apply", f"--filename={REPOSITORY / 'crds'}")
    kubectl.wait_for_kinds(CRD)
    project = copy_project(tmp_path / "project")
    made: list[Operator] = []

    def make(port: int, service: int) -> Operator:
        scratch = tmp_path / str(port)
        scratch.mkdir()
        made.append(Operator(project, control_plane, kubectl.namespace, scratch, {}))
        return made[-1].start(
            "--leader-elect",
            "--leader-election-id=nginx",
            f"--leader-election-namespace={kubectl.namespace}",
            "--leader-elect-lease-duration=8s",
            "--leader-elect-renew-deadline=6s",
            f"--webhook-port={port}",
            f"--webhook-service={kubectl.namespace}/webhook:{service}",
        )

    yield make
    kubectl("delete", "crd", CRD)
    for operator in made:
        operator.kill()


def certificate_of(port: int, authorities: str, name: str) -> bytes:
    """Return the certificate of a server, for a client that trusts only these authorities."""
    context = ssl.create_default_context(cadata=authorities)
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname=name) as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""


def test_the_waiting_replica_serves_as_the_leader_does(
    replica: Callable[[int, int], Operator], kubectl: Kubectl
) -> None:
    """One Secret, one CA in the CRD; the leader goes and the other one is already trusted."""
    # A Service that leads to this machine, where there is no node to run a Pod on.
    spec = {"type": "ExternalName", "externalName": "localhost"}
    service: Json = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "webhook"}}
    kubectl.apply({**service, "spec": spec})
    first, second = free_port(), free_port()
    leader = replica(first, second)
    replica(second, second)

    secret, crd = kubectl.get("secret", "webhook-certificate"), kubectl.get("crd", CRD)
    assert secret is not None
    assert crd is not None
    bundle = crd["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"]
    assert bundle == secret["data"]["ca.crt"]
    authorities = base64.b64decode(bundle).decode()
    name = f"webhook.{kubectl.namespace}.svc"
    shown = {certificate_of(port, authorities, name) for port in (first, second)}
    assert len(shown) == 1

    leader.kill()
    body = {"apiVersion": "operator.example.com/v1alpha1", "kind": "NginxOperator"}
    kubectl.apply({**body, "metadata": {"name": "web"}, "spec": {"port": 8080}})
    lower, higher = kubectl.get(V1, "web"), kubectl.get(CRD, "web")
    assert lower is not None
    assert lower["spec"] == {"port": 8080}
    assert higher is not None
    assert higher["spec"] == {"ports": [{"containerPort": 8080, "protocol": "TCP"}]}
    eventually(lambda: kubectl.get("deployment", "web"))
