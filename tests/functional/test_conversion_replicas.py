"""Replicas behind a Service: each serves conversions, with the certificates of one Secret."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest

from operator_runner.core.slot_assignment import SLOTS
from tests.support.kubectl import Json, Kubectl
from tests.support.nginx import nginx
from tests.support.operator import REPOSITORY, Operator, copy_project, free_port
from tests.support.waiting import eventually

CRD = "nginxoperators.operator.example.com"
V1 = "nginxoperators.v1alpha1.operator.example.com"
SECONDS = 180.0


class MakeReplica(Protocol):
    """Starts a replica by its webhook port and that of the Service, with further flags."""

    def __call__(self, port: int, service: int, *flags: str, wait: bool = True) -> Operator:
        """Return the replica, which is ready unless `wait` is False."""


@pytest.fixture
def replica(control_plane: Path, kubectl: Kubectl, tmp_path: Path) -> Iterator[MakeReplica]:
    """Give a maker of replicas behind a Service."""
    # A Service that leads to this machine, where there is no node to run a Pod on.
    spec = {"type": "ExternalName", "externalName": "localhost"}
    service: Json = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "webhook"}}
    kubectl.apply({**service, "spec": spec})
    kubectl("apply", f"--filename={REPOSITORY / 'crds'}")
    kubectl.wait_for_kinds(CRD)
    project = copy_project(tmp_path / "project")
    made: list[Operator] = []

    def make(port: int, service: int, *flags: str, wait: bool = True) -> Operator:
        scratch = tmp_path / str(port)
        scratch.mkdir()
        made.append(Operator(project, control_plane, kubectl.namespace, scratch, {}))
        return made[-1].start(
            "--leader-elect",
            "--leader-election-id=nginx",
            f"--leader-election-namespace={kubectl.namespace}",
            # A leader that cannot renew for as long ends, on a busy machine too.
            "--leader-elect-lease-duration=20s",
            "--leader-elect-renew-deadline=15s",
            f"--webhook-port={port}",
            f"--webhook-service={kubectl.namespace}/webhook:{service}",
            *flags,
            wait=wait,
        )

    yield make
    kubectl("delete", "crd", CRD)
    for operator in made:
        operator.kill()
        print(f"Log of {operator.scratch.name}:\n{operator.log()}")  # noqa: T201 of a failed test


@contextmanager
def connected(port: int, authorities: str, name: str) -> Iterator[ssl.SSLSocket]:
    """Connect to a server as a client that trusts only these authorities."""
    context = ssl.create_default_context(cadata=authorities)
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname=name) as secured,
    ):
        yield secured


def certificate_of(port: int, authorities: str, name: str) -> bytes:
    """Return the certificate of a server."""
    with connected(port, authorities, name) as secured:
        return secured.getpeercert(binary_form=True) or b""


def converted(port: int, authorities: str, name: str) -> Json:
    """Return the spec of a resource of v1alpha1 that a server has converted to v1alpha2."""
    request = {
        "uid": "review",
        "desiredAPIVersion": "operator.example.com/v1alpha2",
        "objects": [nginx(version="v1alpha1", port=8080)],
    }
    review = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": request,
    }
    with connected(port, authorities, name) as secured:
        connection = http.client.HTTPConnection(name)
        connection.sock = secured
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/convert", json.dumps(review), headers)
        response = json.load(connection.getresponse())["response"]
    assert response["result"]["status"] == "Success", response
    (resource,) = response["convertedObjects"]
    spec: Json = resource["spec"]
    return spec


def registered_authorities(kubectl: Kubectl) -> str:
    """Return the CAs that the API server trusts."""
    crd = kubectl.get("crd", CRD)
    assert crd is not None
    bundle = crd["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"]
    return base64.b64decode(bundle).decode()


@pytest.mark.slow
def test_the_waiting_replica_serves_as_the_leader_does(
    replica: MakeReplica, kubectl: Kubectl
) -> None:
    """One Secret, one CA in the CRD; the leader goes and the other one is already trusted."""
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


@pytest.mark.slow
def test_all_replicas_of_shards_convert_and_their_metrics_are_summed(
    replica: MakeReplica, kubectl: Kubectl
) -> None:
    """They start at once, and one is a standby without slots; later they renew at once."""
    ports = [free_port() for _ in range(3)]
    operators = [replica(port, ports[0], "--shards=2", wait=False) for port in ports]
    for operator in operators:
        ready = partial(operator.probe, "readyz")
        eventually(ready, lambda code: code == 200, seconds=SECONDS, details=operator.log)
    wait_for_slots(operators, [0, SLOTS // 2, SLOTS // 2])
    name = f"webhook.{kubectl.namespace}.svc"

    def certificates() -> set[bytes]:
        """Return the certificates of all replicas; none if the API server does not trust one."""
        authorities = registered_authorities(kubectl)
        try:
            return {certificate_of(port, authorities, name) for port in ports}
        except ssl.SSLError:
            return set()

    first = eventually(certificates, lambda found: len(found) == 1, seconds=SECONDS)
    expected = {"ports": [{"containerPort": 8080, "protocol": "TCP"}]}
    authorities = registered_authorities(kubectl)
    assert [converted(port, authorities, name) for port in ports] == [expected] * 3

    names: list[str] = []
    while not all(each.metric("resource_created_at_seconds") for each in working(operators)):
        names.append(f"web-{len(names)}")
        kubectl.apply(nginx(names[-1], version="v1alpha1", port=8080))
        wait_for_series(operators, kubectl, names)

    kubectl("delete", "secret", "webhook-certificate")
    eventually(
        certificates, lambda found: len(found) == 1 and found != first, seconds=SECONDS,
        details=operators[0].log,
    )  # fmt: skip
    authorities = registered_authorities(kubectl)
    assert [converted(port, authorities, name) for port in ports] == [expected] * 3

    # The Service leads to the first one.
    ended = next(operator for operator in working(operators) if operator is not operators[0])
    assert ended.terminate() == 0
    operators.remove(ended)
    wait_for_slots(operators, [SLOTS // 2, SLOTS // 2])
    kubectl("delete", CRD, names[0])
    wait_for_series(operators, kubectl, names[1:])
    eventually(partial(series, operators, names[0]), (0).__eq__, seconds=SECONDS)


def working(operators: Sequence[Operator]) -> list[Operator]:
    """Return the replicas that have slots."""
    return [each for each in operators if each.metric("operator_runner_shard_slots")]


def wait_for_slots(operators: Sequence[Operator], expected: list[int]) -> None:
    """Wait until the replicas have these numbers of slots, in any order."""
    eventually(
        lambda: sorted(
            each.metric("operator_runner_shard_slots", state="active") for each in operators
        ),
        lambda found: found == expected,
        seconds=SECONDS,
        details=operators[0].log,
    )


def wait_for_series(operators: Sequence[Operator], kubectl: Kubectl, names: list[str]) -> None:
    """Wait until the sum over all replicas has each resource once."""
    for name in names:
        resource = kubectl.get(CRD, name)
        assert resource is not None
        created = datetime.fromisoformat(resource["metadata"]["creationTimestamp"]).timestamp()
        eventually(
            partial(series, operators, name),
            created.__eq__,
            seconds=SECONDS,
            details=operators[0].log,
        )


def series(operators: Sequence[Operator], name: str) -> float:
    """Return the sum of the series of a resource."""
    return sum(each.metric("resource_created_at_seconds", name=name) for each in operators)
