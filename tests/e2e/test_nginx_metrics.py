"""Metrics of nginx: Debian's exporter, a Prometheus with the rule and dashboard of config."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from operator_runner.devcluster import Cluster, pack
from tests.support.dashboard import expressions
from tests.support.kubectl import Kubectl
from tests.support.nginx import World, nginx
from tests.support.operator import REPOSITORY, Operator
from tests.support.prometheus import Prometheus
from tests.support.waiting import eventually

CONFIG = REPOSITORY / "config"
# Process 1 ignores signals from its own container.
STOP_WORKER = "cd /proc; for p in [0-9]*; do [ $p = 1 ] || [ $p = $$ ] || kill -STOP $p; done"
_, RULES = yaml.safe_load_all((CONFIG / "prometheus" / "operand.yaml").read_text())


@pytest.fixture
def exporter_image(cluster: Cluster, tmp_path: Path) -> str:
    """Pack Debian's exporter into an image and give it to the node; return its name."""
    archive = tmp_path / "exporter.tar"
    pack(REPOSITORY / "demo" / "nginx-exporter-image.yaml", archive)
    return cluster.load(archive)[0]


def hasty_rules() -> str:
    """Return the rule without its two minutes; promtool tests the time."""
    spec = RULES["spec"]
    for rule in (rule for group in spec["groups"] for rule in group["rules"]):
        del rule["for"]
    return yaml.safe_dump(spec)


def test_prometheus_sees_nginx_and_when_it_hangs(
    kubectl: Kubectl, operator: Operator, exporter_image: str, tmp_path: Path
) -> None:
    """Each panel has data; the alert fires while nginx hangs, and clears when it was restarted."""
    operator.environment["RELATED_IMAGE_NGINX_EXPORTER"] = exporter_image
    world = World(kubectl, operator.start())
    world.kubectl.apply(nginx(replicas=1))
    world.wait_available(1)
    world.kubectl.apply(nginx(replicas=1, metrics=True))
    world.until(lambda: len(containers(world)), (2).__eq__)
    world.wait_available(1)
    world.wait_reported_available()
    (pod,) = [
        each
        for each in world.kubectl.list("pods", "app.kubernetes.io/instance=web")
        if "deletionTimestamp" not in each["metadata"]
    ]
    assert {each["image"] for each in pod["spec"]["containers"]} >= {exporter_image}
    labels = {"namespace": world.kubectl.namespace, "name": "web", "pod": pod["metadata"]["name"]}
    target = f"{pod['status']['podIP']}:9113"
    prometheus = Prometheus(tmp_path / "prometheus", target, hasty_rules(), job="nginx", **labels)
    try:
        prometheus.start()
        queries = [each for _, each in expressions("5s", CONFIG / "grafana" / "nginx.json")]
        eventually(
            lambda: [each for each in queries if not prometheus.query(each)],
            lambda empty: empty == [],
            details=prometheus.log,
        )
        assert prometheus.alerts() == {}
        world.kubectl("exec", pod["metadata"]["name"], "-c", "nginx", "--", "sh", "-c", STOP_WORKER)
        eventually(
            prometheus.alerts,
            lambda alerts: alerts.get("NginxDown") == "firing",
            details=prometheus.log,
        )
        eventually(prometheus.alerts, lambda alerts: not alerts, details=prometheus.log)
    finally:
        prometheus.stop()


def containers(world: World) -> list[object]:
    """Return the containers of the Deployment."""
    found = world.kubectl.get("deployment", "web") or {}
    return list(found["spec"]["template"]["spec"]["containers"])
