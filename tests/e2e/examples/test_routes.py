"""The example Routes: ready addresses of Services, in ConfigMaps of a format that users choose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from operator_runner.devcluster import Cluster
from tests.support.examples import Example, running
from tests.support.faults import api_outage
from tests.support.kubectl import Json, Kubectl
from tests.support.waiting import eventually

IMAGE = "operator-runner.local/routes-web:1"

pytestmark = pytest.mark.xdist_group("routes")


@pytest.fixture(scope="module")
def example(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    """Run the operator, with the image of the Pods on the node."""
    # Without its Lease the process would end in the outage, and the next one would list everything.
    scratch = tmp_path_factory.mktemp("routes")
    with running("routes", cluster, scratch, "--leader-elect=false", outage=True) as example:
        example.load_image()
        yield example


@pytest.fixture
def permitted(example: Example) -> Iterator[None]:
    """Check that the operator has the permissions that the test needs."""
    since = len(example.operator.log())
    yield
    example.assert_permitted(since)


def web(name: str, replicas: int) -> tuple[Json, Json]:
    """Return a Deployment and its Service."""
    labels = {"app": name}
    container = {
        "name": "web",
        "image": IMAGE,
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
    }
    pod = {"automountServiceAccountToken": False, "containers": [container]}
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    metadata = {"name": name}
    ports = [{"port": 80, "targetPort": 8080}]
    service = {"selector": labels, "ports": ports}
    return (
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec},
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
    )


def format_of(name: str, text: str) -> Json:
    metadata = {"name": name, "labels": {"route-config": "lines"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"format": text}}


class Routes:
    """The objects of the cluster, and the expected ones."""

    def __init__(self, kubectl: Kubectl, example: Example) -> None:
        self._kubectl, self._example = kubectl, example

    def written(self, service: str) -> list[str] | None:
        """Return the lines of a Service; None without its ConfigMap."""
        found = self._kubectl.get("configmap", f"routes.{service}")
        return None if found is None else sorted(found["data"]["routes"].splitlines())

    def ready(self, service: str) -> list[str]:
        """Return the IPs of its ready Pods that are not being deleted."""
        return sorted(
            pod["status"]["podIP"]
            for pod in self._kubectl.list("pods", f"app={service}")
            if "deletionTimestamp" not in pod["metadata"]
            and any(
                each["type"] == "Ready" and each["status"] == "True"
                for each in pod["status"].get("conditions", ())
            )
        )

    def wait(
        self, service: str, count: int, line: Callable[[str], str] = "{}:8080".format
    ) -> list[str]:
        """Wait for lines for so many ready Pods, and for no others."""

        def both() -> tuple[list[str] | None, list[str]]:
            return self.written(service), sorted(map(line, self.ready(service)))

        found, _ = self.until(both, lambda now: now[0] == now[1] and len(now[1]) == count)
        return found or []

    def until(self, probe: Callable[[], Any], good: Callable[[Any], bool] = bool) -> Any:
        """Wait for a state of the cluster."""
        return eventually(probe, good, details=self._example.operator.log)


@pytest.fixture
def routes(kubectl: Kubectl, example: Example) -> Routes:
    """Observe the namespace of the test."""
    return Routes(kubectl, example)


@pytest.mark.usefixtures("permitted")
def test_routes_follow_pods_and_formats(kubectl: Kubectl, example: Example, routes: Routes) -> None:
    """Each change of the ready Pods, and of the format of the namespace, until the Service goes.

    A format without an address is reported, and the default is used.
    """
    kubectl.apply(*web("a", 2), *web("empty", 0))
    routes.wait("a", 2)
    routes.wait("empty", 0)
    for replicas in (3, 1):
        kubectl("scale", "deployment", "a", f"--replicas={replicas}")
        routes.wait("a", replicas)
    # Nothing has waited for a timer: events of Endpoints have led to the routes.
    assert example.operator.runs_by_timers(kubectl.namespace) == []
    owner = (kubectl.get("configmap", "routes.a") or {})["metadata"]["ownerReferences"]
    assert [each["kind"] for each in owner] == ["Endpoints"]

    kubectl.apply(format_of("lines", "{service} {address} {port}"))
    routes.wait("a", 1, "a {} 8080".format)
    kubectl.apply(format_of("lines", "{address}"))
    routes.wait("a", 1, "{}".format)
    kubectl.apply(format_of("lines", "{ip}"))
    routes.wait("a", 1)
    events = routes.until(
        lambda: [e for e in kubectl.list("events") if e["reason"] == "InvalidFormat"]
    )
    assert events[0]["involvedObject"]["name"] == "lines"
    kubectl.apply(format_of("lines", "to {address}"))
    routes.wait("a", 1, "to {}".format)
    kubectl("delete", "configmap", "lines")
    routes.wait("a", 1)
    # A run may have other causes as well.
    causes = "; ".join(line["cause"] for line in example.operator.lines("Reconciling"))
    lines = f"trigger: ConfigMap {kubectl.namespace}/lines"
    assert f"{lines} created" in causes
    assert f"{lines} deleted or no longer selected" in causes

    kubectl("delete", "service", "a")
    routes.until(lambda: routes.written("a") is None)
    routes.wait("empty", 0)


@pytest.mark.usefixtures("permitted")
def test_each_kind_has_a_queue_of_its_own(example: Example) -> None:
    """Their depths, and the formats as resources, are in the metrics."""
    operator = example.operator
    for kind in ("endpoints", "configmap"):
        name = f"{kind}-v1-controller"
        assert operator.metric("controller_runtime_max_concurrent_reconciles", controller=name) >= 1
        # Objects of other tests may still be terminating.
        depth = partial(operator.metric, "workqueue_depth", name=name)
        eventually(depth, lambda waiting: waiting == 0)


@pytest.mark.slow
def test_nothing_is_lost_while_the_api_server_is_away(
    cluster: Cluster, kubectl: Kubectl, example: Example, routes: Routes
) -> None:
    """Changes right after half a minute of outage, before the watches are back, are followed."""
    kubectl.apply(*web("kept", 1), *web("gone", 1), format_of("lines", "old {address}"))
    for name in ("kept", "gone"):
        routes.wait(name, 1, "old {}".format)
    pid = example.operator.pid
    api_outage(cluster, example.operator, seconds=30)
    kubectl("delete", "service", "gone")
    kubectl("scale", "deployment", "kept", "--replicas=2")
    kubectl.apply(*web("new", 1))
    kubectl("delete", "configmap", "lines")
    routes.wait("kept", 2)
    routes.wait("new", 1)
    routes.until(lambda: routes.written("gone") is None)
    kubectl.apply(format_of("later", "new {address}"))
    routes.wait("kept", 2, "new {}".format)
    assert example.operator.pid == pid
