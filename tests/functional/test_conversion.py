"""Two versions of the nginx operator's API, by kubectl, converted by the operator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from operator_runner.devcluster import Cluster
from tests.support.kubectl import Json, Kubectl
from tests.support.nginx import nginx
from tests.support.operator import REPOSITORY, Operator, copy_project
from tests.support.waiting import eventually

CRD = "nginxoperators.operator.example.com"
V1, V2 = "nginxoperators.v1alpha1.operator.example.com", CRD
NAMESPACE = "conversion"
MARK = "conversion.operator-runner.dev/v1alpha2"


@pytest.fixture(scope="module")
def kubectl(control_plane_cluster: Cluster) -> Kubectl:
    """Give a kubectl where the resource is known."""
    kubectl = Kubectl(control_plane_cluster.bin / "kubectl", NAMESPACE)
    kubectl("create", "namespace", NAMESPACE)
    kubectl("apply", f"--filename={REPOSITORY / 'crds'}")
    kubectl.wait_for_kinds(CRD)
    return kubectl


@pytest.fixture(scope="module", autouse=True)
def operator(
    kubectl: Kubectl, control_plane: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    """Run the nginx operator for all of these tests."""
    scratch = tmp_path_factory.mktemp("conversion")
    project = copy_project(scratch / "project")
    operator = Operator(project, control_plane, kubectl.namespace, scratch, {})
    operator.start()
    yield operator
    # While a webhook converts: clients that list the kind must not wait for a response.
    kubectl("delete", "crd", CRD)
    assert operator.terminate() == 0


def spec(kubectl: Kubectl, kind: str, name: str) -> Json:
    found = kubectl.get(kind, name)
    assert found is not None
    body: Json = found["spec"]
    return body


PORTS = [
    {"name": "http", "containerPort": 8080, "protocol": "TCP"},
    {"name": "metrics", "containerPort": 9090, "protocol": "TCP"},
]


def test_each_version_returns_resources_of_the_other(kubectl: Kubectl) -> None:
    """A port of v1alpha1 is a list in v1alpha2, `kubectl get` shows either, status included."""
    kubectl.apply(nginx("old", version="v1alpha1", port=8080, replicas=2))

    shown = kubectl("get", "--output=yaml", f"{V1}/old")
    assert "  port: 8080\n" in shown
    assert "apiVersion: operator.example.com/v1alpha1\n" in shown
    assert spec(kubectl, V2, "old") == {
        "replicas": 2,
        "ports": [{"containerPort": 8080, "protocol": "TCP"}],
    }

    def degraded() -> list[str]:
        bodies = [kubectl.get(kind, "old") or {} for kind in (V1, V2)]
        conditions = [c for body in bodies for c in body.get("status", {}).get("conditions", [])]
        return [c["status"] for c in conditions if c["type"] == "OperatorDegraded"]

    eventually(degraded, lambda found: found == ["False", "False"])
    deployment = kubectl.get("deployment", "old")
    assert deployment is not None
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["ports"] == [{"name": "nginx", "containerPort": 8080, "protocol": "TCP"}]
    (owner,) = deployment["metadata"]["ownerReferences"]
    assert owner["apiVersion"] == "operator.example.com/v1alpha2"


def test_a_client_of_v1alpha1_loses_nothing(kubectl: Kubectl) -> None:
    """Apply, patch and replace of v1alpha1 keep the ports that it does not have."""
    kubectl.apply(nginx("rich", version="v1alpha2", ports=PORTS))
    assert spec(kubectl, V1, "rich") == {"port": 8080, "replicas": 1}

    kubectl.merge(V1, "rich", {"spec": {"replicas": 3}})
    assert spec(kubectl, V2, "rich") == {"ports": PORTS, "replicas": 3}

    kubectl.merge(V1, "rich", {"spec": {"port": 8081}})
    ports = [PORTS[0] | {"containerPort": 8081}, PORTS[1]]
    assert spec(kubectl, V2, "rich") == {"ports": ports, "replicas": 3}

    whole = kubectl.get(V1, "rich")
    assert whole is not None
    # The operator may have written meanwhile.
    del whole["metadata"]["resourceVersion"]
    whole["spec"]["replicas"] = 1
    replace = ("replace", "--filename=-")
    # kubectl reads the version itself; the operator may write between its two requests.
    eventually(lambda: kubectl.run(*replace, input_=json.dumps(whole)).returncode, (0).__eq__)
    assert spec(kubectl, V2, "rich") == {"ports": ports, "replicas": 1}

    lower, higher = kubectl.get(V1, "rich"), kubectl.get(V2, "rich")
    assert lower is not None
    assert higher is not None
    assert MARK in lower["metadata"]["annotations"]
    assert MARK not in higher["metadata"]["annotations"]


def test_managers_of_both_versions_share_a_resource(kubectl: Kubectl) -> None:
    """Managers of different versions share a resource: each field has its owner."""

    def apply(manager: str, body: Json, *more: str) -> None:
        kubectl(
            "apply", "--server-side", f"--field-manager={manager}", "--filename=-", *more,
            input_=json.dumps(body),
        )  # fmt: skip

    apply("new", nginx("ssa", version="v1alpha2", ports=PORTS))
    apply("old", nginx("ssa", version="v1alpha1", replicas=2))
    assert spec(kubectl, V2, "ssa") == {"ports": PORTS, "replicas": 2}
    apply("old", nginx("ssa", version="v1alpha1", replicas=2, port=8081), "--force-conflicts")
    ports = [PORTS[0] | {"containerPort": 8081}, PORTS[1]]
    assert spec(kubectl, V2, "ssa") == {"ports": ports, "replicas": 2}
    assert spec(kubectl, V1, "ssa") == {"port": 8081, "replicas": 2}


def test_each_version_is_listed_and_watched(kubectl: Kubectl) -> None:
    """All objects of both versions are returned in the requested version."""
    kubectl.apply(
        nginx("list-1", version="v1alpha1", port=1),
        nginx("list-2", version="v1alpha2", ports=PORTS),
    )
    for kind, version in ((V1, "v1alpha1"), (V2, "v1alpha2")):
        items = kubectl.list(kind)
        assert {item["apiVersion"] for item in items} == {f"operator.example.com/{version}"}
        assert {"list-1", "list-2"} <= {item["metadata"]["name"] for item in items}


def test_invalid_ports_are_rejected_with_their_field(kubectl: Kubectl) -> None:
    """v1alpha2 accepts the ports of a container, and names invalid fields."""
    wrong: list[tuple[Json, str]] = [
        ({"name": "http"}, "spec.ports[0].containerPort: Required value"),
        ({"containerPort": 0}, "spec.ports[0].containerPort in body should be greater"),
        ({"containerPort": 65536}, "should be less than or equal to 65535"),
        ({"containerPort": 1, "name": "a--b"}, "spec.ports[0].name in body should match"),
        ({"containerPort": 1, "name": "1-2"}, "spec.ports[0].name in body should match"),
        ({"containerPort": 1, "name": "x" * 16}, "spec.ports[0].name"),
        ({"containerPort": 1, "protocol": "HTTP"}, 'Unsupported value: "HTTP"'),
        ({"containerPort": 1, "hostPort": 65536}, "spec.ports[0].hostPort"),
    ]
    for port, complaint in wrong:
        body = nginx("bad", version="v1alpha2", ports=[port])
        done = kubectl.run("create", "--filename=-", input_=json.dumps(body))
        assert done.returncode != 0, port
        assert complaint in done.stderr, done.stderr
    twice = nginx("bad", version="v1alpha2", ports=[{"containerPort": 1}, {"containerPort": 1}])
    done = kubectl.run("create", "--filename=-", input_=json.dumps(twice))
    assert "spec.ports[1]: Duplicate value" in done.stderr


def test_a_port_that_no_pod_can_have(kubectl: Kubectl, operator: Operator) -> None:
    """v1alpha1 accepts any number, as before; the condition has the error."""
    kubectl.apply(nginx("wild", version="v1alpha1", port=70000))

    def message() -> str:
        found = kubectl.get(V1, "wild") or {}
        conditions = found.get("status", {}).get("conditions", [])
        return next((c["message"] for c in conditions if c["type"] == "OperatorDegraded"), "")

    eventually(message, lambda text: "Invalid value: 70000" in text, details=operator.log)
    kubectl.merge(V1, "wild", {"spec": {"port": 8080}})
    eventually(message, lambda text: "successfully" in text, details=operator.log)


def test_an_unreadable_annotation_is_ignored(kubectl: Kubectl, operator: Operator) -> None:
    """After an edit that breaks the annotation, the write succeeds and a warning is logged."""
    kubectl.apply(nginx("broken", version="v1alpha2", ports=PORTS))
    kubectl("annotate", f"{V1}/broken", f"{MARK}={{", "--overwrite")
    ports = [{"containerPort": 8080, "protocol": "TCP"}]
    assert spec(kubectl, V2, "broken") == {"ports": ports, "replicas": 1}
    # The log is written beside the conversion.
    lines = eventually(lambda: operator.lines("Ignoring an invalid conversion annotation"))
    assert {line["resource"] for line in lines} == {f"NginxOperator {NAMESPACE}/broken"}


def test_conversions_are_counted(kubectl: Kubectl, operator: Operator) -> None:
    """The metrics have the number of converted objects, and no failures."""
    kubectl.apply(nginx("counted", version="v1alpha1", port=1))
    kubectl("get", V1)
    assert operator.metric("operator_runner_converted_objects_total") > 0
    assert operator.metric("operator_runner_conversion_reviews_total", result="failure") == 0
