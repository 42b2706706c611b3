"""The example Prometheus operator with real servers: scraping, rules and notifications.

The tests share a Prometheus `main` of the team a, one called `other` of the team b, and an
Alertmanager. Each test removes what it has added.
"""

from __future__ import annotations

import json
import os
import secrets
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from operator_runner.devcluster import Cluster
from tests.support.examples import FOLDER, Example, running
from tests.support.kubectl import Json, Kubectl
from tests.support.prometheus import Client, programs
from tests.support.prometheus_operator import (
    GROUP,
    KIND,
    condition,
    configuration,
    monitoring,
    rules,
    service_monitor,
)
from tests.support.waiting import eventually

IMAGES = ("prometheus", "alertmanager", "app")


@pytest.fixture(scope="module")
def example(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    """Run the operator with promtool on its PATH, and the images on the node."""
    path = {"PATH": f"{programs()}:{os.environ['PATH']}"}
    scratch = tmp_path_factory.mktemp("prometheus")
    with running("prometheus", cluster, scratch, environment=path) as example:
        for image in IMAGES:
            example.load_image(f"images/{image}.yaml")
        yield example


def prometheus(name: str, team: str, **spec: Any) -> Json:
    """Return a Prometheus that scrapes and evaluates for a team every second."""
    selector = {"matchLabels": {"team": team}}
    kinds = ("serviceMonitor", "podMonitor", "probe", "rule")
    times = {"scrapeInterval": "1s", "evaluationInterval": "1s", "terminationGracePeriodSeconds": 1}
    body = monitoring("Prometheus", name, **spec)
    body["spec"] |= {f"{kind}Selector": selector for kind in kinds} | times
    return body


class World:
    """A namespace with the application, and what its Prometheuses show."""

    def __init__(self, kubectl: Kubectl, example: Example) -> None:
        self.kubectl, self._operator = kubectl, example.operator

    def until(self, look: Callable[[], Any], expected: Any = True) -> None:
        eventually(look, lambda seen: seen == expected, seconds=180, details=self._operator.log)

    def until_ready(self, kind: str, *names: str) -> None:
        """Wait until resources are available."""
        for name in names:
            self.kubectl("wait", "--for=condition=Available", f"{kind}/{name}", "--timeout=180s")

    def pod(self, name: str) -> Json:
        """Return a Pod, empty if it does not exist."""
        return self.kubectl.get("pod", name) or {}

    def life(self, name: str = "prometheus-main-0") -> tuple[str, list[int]]:
        """Return what changes with a restart: the uid of a Pod, and restarts of containers."""
        pod = self.pod(name)
        restarts = [each["restartCount"] for each in pod["status"]["containerStatuses"]]
        return pod["metadata"]["uid"], restarts

    def client(self, name: str = "main") -> Client:
        return Client(f"{self.pod(f'prometheus-{name}-0')['status']['podIP']}:9090")

    def jobs(self, name: str = "main") -> dict[str, str]:
        """Return the health of the jobs with targets by their name."""
        return {each["scrapePool"]: each["health"] for each in self.client(name).targets()}

    def loaded(self) -> dict[str, str]:
        """Return the expressions of the loaded alerts by their name."""
        return {rule["name"]: rule["query"] for rule in self.client().rules()}

    def delete(self, *objects: Json) -> None:
        for each in objects:
            self.kubectl("delete", each["kind"], each["metadata"]["name"])


@pytest.fixture(scope="module")
def world(example: Example, cluster: Cluster) -> World:
    """Start both Prometheuses, the Alertmanager and the application; wait until all are ready."""
    kubectl = Kubectl(cluster.bin / "kubectl", f"prometheus-{secrets.token_hex(4)}")
    kubectl("create", "namespace", kubectl.namespace)
    samples = FOLDER / "prometheus/config/samples/example-app.yaml"
    deployment, service = yaml.safe_load_all(samples.read_text())
    deployment["spec"]["replicas"] = 1
    found_by_name = {"name": "alertmanager-main", "port": "web"}
    kubectl.apply(
        deployment,
        service,
        prometheus("main", "a", alerting={"alertmanagers": [found_by_name]}),
        prometheus(
            "other", "b", serviceMonitorNamespaceSelector={"matchLabels": {"monitored": "yes"}}
        ),
        monitoring("Alertmanager", "main", terminationGracePeriodSeconds=1),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "alertmanager-main"},
            "spec": {
                "selector": {"alertmanager": "main"},
                "ports": [{"name": "web", "port": 9093, "targetPort": "web"}],
            },
        },
    )
    world = World(kubectl, example)
    world.until_ready(KIND, "main", "other")
    world.until_ready(f"alertmanagers.{GROUP}", "main")
    kubectl("rollout", "status", "deployment/example-app", "--timeout=180s")
    return world


def test_new_monitors_are_scraped_without_a_restart(world: World) -> None:
    """Services, Pods and probes, with the labels of discovery; others are not scraped."""
    before, namespace = world.life(), world.kubectl.namespace
    pods = monitoring(
        "PodMonitor", "pods", selector={"matchLabels": {"app": "example-app"}},
        podMetricsEndpoints=[{"port": "web"}],
    )  # fmt: skip
    probe = monitoring(
        "Probe", "site", prober={"url": "example-app:8080"}, module="http_2xx",
        targets={"staticConfig": {"static": ["http://example-app:8080/metrics"]}},
    )  # fmt: skip
    ours = (service_monitor(), pods, probe)
    strangers = (service_monitor("foreign", "c"), service_monitor("unlabelled", ""))
    world.kubectl.apply(*strangers, *ours)
    expected = {
        f"serviceMonitor/{namespace}/web/0": "up",
        f"podMonitor/{namespace}/pods/0": "up",
        f"probe/{namespace}/site": "up",
    }
    world.until(world.jobs, expected)
    world.until(lambda: [each["value"][1] for each in world.client().query("probe_success")], ["1"])
    # The health of a target is known a moment before its samples.
    (series,) = eventually(lambda: world.client().query('up{job="example-app"}'))
    (pod,) = world.kubectl.list("pods", "app=example-app")
    assert series["metric"] | {"__name__": "", "instance": ""} == {
        "__name__": "", "instance": "", "container": "example-app", "endpoint": "web",
        "job": "example-app", "namespace": namespace, "pod": pod["metadata"]["name"],
        "service": "example-app",
    }  # fmt: skip
    world.delete(*ours)
    world.until(world.jobs, {})
    assert world.life() == before
    world.delete(*strangers)


def test_two_prometheuses_are_apart(world: World) -> None:
    """Each has its own monitors, and one those of namespaces as long as they have a label."""
    here = world.kubectl.namespace
    there = Kubectl(world.kubectl.program, f"{here}-there")
    there("create", "namespace", there.namespace)
    targets = {"matchNames": [here]}
    monitors = [service_monitor(f"web-{team}", team, namespaceSelector=targets) for team in "ab"]
    there.apply(*monitors)
    world.kubectl.apply(*monitors)
    there("label", "namespace", there.namespace, "monitored=yes")
    world.until(lambda: world.jobs("other"), {f"serviceMonitor/{there.namespace}/web-b/0": "up"})
    world.until(world.jobs, {f"serviceMonitor/{here}/web-a/0": "up"})
    there("label", "namespace", there.namespace, "monitored-")
    world.until(lambda: world.jobs("other"), {})
    world.delete(*monitors)
    there("delete", "namespace", there.namespace, "--wait=false")


@pytest.mark.slow
def test_edited_objects_are_restored_unless_paused(world: World) -> None:
    """The Secret, the rules, the StatefulSet and the Service; a paused resource has a status."""
    kubectl = world.kubectl
    # Monitors of other tests are deleted.
    world.until(lambda: "job_name" in configuration(kubectl), False)
    text = configuration(kubectl)
    assert f"prometheus: {kubectl.namespace}/main" in text.replace('"', "")

    def edit() -> None:
        kubectl.merge("secret", "prometheus-main", {"data": {"prometheus.yaml.gz": "AAAA"}})
        kubectl.merge("statefulset", "prometheus-main", {"spec": {"replicas": 0}})

    def state() -> tuple[str, int]:
        found = kubectl.get("statefulset", "prometheus-main")
        assert found is not None
        return configuration(world.kubectl), found["spec"]["replicas"]

    kubectl.merge(KIND, "main", {"spec": {"paused": True}})
    world.until(lambda: (kubectl.get(KIND, "main") or {})["status"]["paused"])
    edit()
    world.until(lambda: (kubectl.get(KIND, "main") or {})["status"]["availableReplicas"], 0)
    assert state() == ("damaged", 0)
    kubectl.merge(KIND, "main", {"spec": {"paused": None}})
    world.until(state, (text, 1))
    world.until_ready(KIND, "main")
    kubectl("delete", "service", "prometheus-main-operated")
    kubectl.merge("secret", "prometheus-main", {"data": {"prometheus.yaml.gz": "AAAA"}})
    kubectl.merge("configmap", "prometheus-main-rulefiles-0", {"data": {"evil.yaml": "no rules"}})
    world.until(state, (text, 1))
    world.until(lambda: bool(kubectl.get("service", "prometheus-main-operated")))
    world.until(
        lambda: "data" in (kubectl.get("configmap", "prometheus-main-rulefiles-0") or {}), False
    )

    def counts() -> dict[str, Any]:
        status = (kubectl.get(KIND, "main") or {})["status"]
        return {
            key: value
            for key, value in status.items()
            if key not in {"conditions", "observedGeneration"}
        }

    settled = {
        "paused": False, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1,
        "unavailableReplicas": 0,
    }  # fmt: skip
    world.until(counts, settled)


def test_an_invalid_rule_is_rejected_and_its_old_version_kept(world: World) -> None:
    """The status names it; other rules and monitors go on, and nothing restarts."""
    before, namespace = world.life(), world.kubectl.namespace
    world.kubectl.apply(rules("edited", "vector(1)"))
    world.until(world.loaded, {"edited": "vector(1)"})
    broken = service_monitor("broken")
    broken["spec"]["endpoints"][0]["relabelings"] = [{"action": "drop", "regex": "("}]
    world.kubectl.apply(
        rules("edited", "vector(2"), rules("new", "up["), rules("next", "vector(3)"), broken
    )
    world.until(world.loaded, {"edited": "vector(1)", "next": "vector(3)"})
    place = 'group "edited.rules", rule 1, "edited": could not parse expression'
    parts = (
        f"PrometheusRule {namespace}/edited: 5:11: {place}",
        f"PrometheusRule {namespace}/new: ",
        f"ServiceMonitor {namespace}/broken: ",
        "missing closing )",
    )
    # Objects that are applied together may be seen by several runs.
    found = eventually(
        lambda: condition(world.kubectl, "ConfigurationValid"),
        lambda found: all(part in found.get("message", "") for part in parts),
    )
    assert found["status"] == "False"
    world.kubectl.apply(rules("edited", "vector(2)"), rules("new", "up"))
    world.delete(broken)
    world.until(world.loaded, {"edited": "vector(2)", "new": "up", "next": "vector(3)"})
    world.until(lambda: condition(world.kubectl, "ConfigurationValid")["status"], "True")
    assert world.life() == before
    world.delete(*(rules(name, "") for name in ("edited", "new", "next")))


def test_an_alertmanager_loads_a_changed_configuration_without_a_restart(world: World) -> None:
    """That of its Secret, as soon as there is one; alerts reach its receiver."""
    address = f"http://{world.pod('alertmanager-main-0')['status']['podIP']}:9093/api/v2"
    before = world.life("alertmanager-main-0")

    def receivers() -> list[str]:
        """Return the receivers of the alert of this test; those of others may not be resolved."""
        try:
            with urllib.request.urlopen(f"{address}/alerts", timeout=30) as answer:
                alerts = json.load(answer)
        except OSError:
            # While it loads its configuration.
            return []
        return [
            receiver["name"]
            for alert in alerts
            if alert["labels"]["alertname"] == "always"
            for receiver in alert["receivers"]
        ]

    world.kubectl.apply(rules("always", "vector(1)"))
    world.until(receivers, ["null"])
    configured: Json = {"apiVersion": "v1", "kind": "Secret"}
    configured["metadata"] = {"name": "alertmanager-main"}
    for name in ("team", "night"):
        text = yaml.safe_dump({"route": {"receiver": name}, "receivers": [{"name": name}]})
        world.kubectl.apply(configured | {"stringData": {"alertmanager.yaml": text}})
        world.until(receivers, [name])
    assert world.life("alertmanager-main-0") == before
    world.delete(rules("always", ""), configured)
