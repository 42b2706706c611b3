"""The example Prometheus operator without Pods: selection, writes, rejections and reports."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import yaml

from operator_runner.devcluster import Cluster
from tests.support.examples import Example, running
from tests.support.kubectl import Json, Kubectl
from tests.support.prometheus import programs
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

MANY = 2000
TEAM = {"matchLabels": {"team": "a"}}


@pytest.fixture(scope="module")
def example(
    control_plane_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Example]:
    """Run the operator with exactly the permissions of its config/, and promtool on its PATH."""
    path = {"PATH": f"{programs()}:{os.environ['PATH']}"}
    scratch = tmp_path_factory.mktemp("prometheus")
    with running("prometheus", control_plane_cluster, scratch, environment=path) as example:
        yield example


def prometheus(**spec: Any) -> Json:
    """Return a Prometheus without Pods."""
    return monitoring("Prometheus", "main", **({"replicas": 0} | spec))


class World:
    """Reads the namespace of a test and waits for states."""

    def __init__(self, kubectl: Kubectl, example: Example) -> None:
        self.kubectl, self._operator = kubectl, example.operator

    def until(self, look: Callable[[], Any], expected: Any = True) -> None:
        eventually(look, lambda seen: seen == expected, seconds=180, details=self._operator.log)

    def jobs(self) -> dict[str, Json]:
        """Return the jobs of the configuration by their names."""
        loaded = yaml.load(configuration(self.kubectl) or "{}", yaml.CSafeLoader)
        return {each["job_name"]: each for each in loaded.get("scrape_configs") or ()}

    def names(self) -> set[str]:
        """Return the names of the jobs without the namespace of the test."""
        return {name.replace(f"/{self.kubectl.namespace}/", "/") for name in self.jobs()}

    def message(self, type_: str = "ConfigurationValid") -> str:
        return str(condition(self.kubectl, type_).get("message", ""))

    def runs(self) -> list[str]:
        """Return the causes of the runs for Prometheuses of the namespace."""
        return [
            line["cause"]
            for line in self._operator.lines("Reconciled", "Failed")
            if (line["kind"], line["namespace"]) == ("Prometheus", self.kubectl.namespace)
        ]

    def writes(self) -> int:
        """Return how many runs have changed the configuration."""
        return len(
            [
                line
                for line in self._operator.lines("[playbook task]")
                if line["namespace"] == self.kubectl.namespace
                and line["task"].endswith("Write the configuration")
                and line["result"] == "changed"
            ]
        )

    def reason(self, kind: str, type_: str) -> str:
        """Return the reason of a condition of the resource `main` of a kind."""
        return str(condition(self.kubectl, type_, kind=f"{kind}.{GROUP}").get("reason", ""))


@pytest.fixture
def world(kubectl: Kubectl, example: Example) -> World:
    return World(kubectl, example)


def test_selectors_choose_monitors_and_namespaces(world: World) -> None:
    """None selects nothing, an empty one everything; namespaces by labels, or the own one."""
    there = Kubectl(world.kubectl.program, f"{world.kubectl.namespace}-there")
    there("create", "namespace", there.namespace)
    there("label", "namespace", there.namespace, "kubernetes.io/team=a")
    world.kubectl.apply(
        service_monitor("ours"),
        service_monitor("theirs", "b"),
        monitoring("PodMonitor", "pods", selector={}, podMetricsEndpoints=[{"port": "web"}]),
    )
    there.apply(service_monitor("there"))
    world.kubectl.apply(prometheus())
    world.until(lambda: "scrape_configs" in configuration(world.kubectl))
    assert world.jobs() == {}
    expression = {"key": "team", "operator": "In", "values": ["a", "c"]}
    world.kubectl.merge(
        KIND, "main", {"spec": {"serviceMonitorSelector": {"matchExpressions": [expression]}}}
    )
    world.until(world.names, {"serviceMonitor/ours/0"})
    empty = {"serviceMonitorSelector": {"matchExpressions": None}, "podMonitorSelector": {}}
    world.kubectl.merge(KIND, "main", {"spec": empty})
    ours = {"serviceMonitor/ours/0", "serviceMonitor/theirs/0", "podMonitor/pods/0"}
    world.until(world.names, ours)
    of_the_team = {"matchLabels": {"kubernetes.io/team": "a"}}
    world.kubectl.merge(KIND, "main", {"spec": {"serviceMonitorNamespaceSelector": of_the_team}})
    elsewhere = {f"serviceMonitor/{there.namespace}/there/0"}
    world.until(world.names, elsewhere | {"podMonitor/pods/0"})
    world.kubectl("label", "namespace", world.kubectl.namespace, "kubernetes.io/team=a")
    world.until(world.names, ours | elsewhere)
    there("delete", "namespace", there.namespace, "--wait=false")
    world.until(world.names, ours)


def test_the_configuration_has_the_fields_of_resources(world: World) -> None:
    """Intervals, external labels, Alertmanagers, and discovery with the labels of the API."""
    namespace = world.kubectl.namespace
    monitor = service_monitor(
        namespaceSelector={"matchNames": [namespace, "shop"]},
        jobLabel="app.kubernetes.io/name",
        targetLabels=["tier"],
        sampleLimit=9,
        endpoints=[
            {"port": "web"},
            {
                "targetPort": 9100,
                "interval": "5s",
                "path": "/m",
                "params": {"a": ["b"]},
                "tlsConfig": {"insecureSkipVerify": True},
                "relabelings": [{"action": "LabelDrop", "regex": "x|y"}],
                "metricRelabelings": [
                    {"sourceLabels": ["a"], "targetLabel": "b", "replacement": "{{ 1 }}: $1"}
                ],
            },
        ],
    )
    expression = {"key": "tier", "operator": "NotIn", "values": ["a.b", "c"]}
    monitor["spec"]["selector"]["matchExpressions"] = [expression]
    alertmanager = {"name": "alertmanager-main", "port": "web", "namespace": "shop"}
    world.kubectl.apply(
        monitor,
        prometheus(
            serviceMonitorSelector=TEAM,
            externalLabels={"region": "eu"},
            alerting={"alertmanagers": [alertmanager]},
        ),
    )
    world.until(world.names, {"serviceMonitor/web/0", "serviceMonitor/web/1"})
    loaded = yaml.safe_load(configuration(world.kubectl))
    assert loaded["global"] == {
        "scrape_interval": "30s",
        "evaluation_interval": "30s",
        "external_labels": {
            "prometheus": f"{namespace}/main",
            "prometheus_replica": "$(POD_NAME)",
            "region": "eu",
        },
    }
    (notified,) = loaded["alerting"]["alertmanagers"]
    assert notified["kubernetes_sd_configs"] == [
        {"role": "endpoints", "namespaces": {"names": ["shop"]}}
    ]
    first, second = world.jobs().values()
    assert first["sample_limit"] == 9
    assert first["kubernetes_sd_configs"] == [
        {"role": "endpoints", "namespaces": {"names": [namespace, "shop"]}}
    ]
    service = "__meta_kubernetes_service"
    steps = first["relabel_configs"]
    for step in (
        {
            "action": "keep",
            "source_labels": [f"{service}_label_app", f"{service}_labelpresent_app"],
            "regex": "(example\\-app);true",
        },
        {
            "action": "drop",
            "source_labels": [f"{service}_label_tier", f"{service}_labelpresent_tier"],
            "regex": "(a\\.b|c);true",
        },
        {
            "action": "keep",
            "source_labels": ["__meta_kubernetes_endpoint_port_name"],
            "regex": "web",
        },
        {
            "source_labels": [f"{service}_label_app_kubernetes_io_name"],
            "regex": "(.+)",
            "target_label": "job",
        },
        {"source_labels": [f"{service}_label_tier"], "regex": "(.+)", "target_label": "tier"},
        {"target_label": "endpoint", "replacement": "web"},
        {
            "action": "hashmod",
            "source_labels": ["__address__"],
            "target_label": "__tmp_hash",
            "modulus": 1,
        },
    ):
        assert step in steps
    assert {step.get("target_label") for step in steps} >= {
        "node", "pod", "namespace", "service", "container", "job", "endpoint",
    }  # fmt: skip
    assert {key: second[key] for key in ("scrape_interval", "metrics_path", "params")} == {
        "scrape_interval": "5s",
        "metrics_path": "/m",
        "params": {"a": ["b"]},
    }
    assert second["tls_config"] == {"insecure_skip_verify": True}
    assert {"action": "labeldrop", "regex": "x|y"} in second["relabel_configs"]
    assert second["metric_relabel_configs"] == [
        {
            "action": "replace",
            "source_labels": ["a"],
            "target_label": "b",
            "replacement": "{{ 1 }}: $1",
        }
    ]


@pytest.mark.slow
def test_thousands_of_monitors_are_one_write_of_the_configuration(world: World) -> None:
    """And not a run for each: all events during a run lead to one more run."""
    world.kubectl.apply(prometheus(serviceMonitorSelector=TEAM, paused=True))
    world.until(lambda: len(world.runs()) >= 1)
    monitors = [service_monitor(f"web-{number}") for number in range(MANY)]
    # As many at once as kubectl sends without a pause.
    parts = [monitors[start : start + 250] for start in range(0, MANY, 250)]

    def create(part: list[Json]) -> None:
        body = {"apiVersion": "v1", "kind": "List", "items": part}
        world.kubectl("create", "--filename=-", input_=json.dumps(body))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(create, parts))
    world.kubectl.merge(KIND, "main", {"spec": {"paused": False}})
    world.until(lambda: configuration(world.kubectl).count("job_name:"), MANY)
    causes = world.runs()
    assert len(causes) < MANY / 50
    assert any("created; trigger: " in cause for cause in causes)
    # The log is written beside the run.
    world.until(world.writes, 1)


def test_invalid_monitors_and_rules_do_not_affect_others(world: World) -> None:
    """Odd ones, invalid ones, and those that would send Secrets or files somewhere."""
    endpoint = {"port": "web"}
    selector: Json = {"matchExpressions": [{"key": "a", "operator": "In"}]}
    refused: dict[str, Json] = {
        "basic-auth": {"basicAuth": {"username": {"name": "a", "key": "b"}}},
        "ca": {"tlsConfig": {"ca": {"secret": {"name": "a", "key": "b"}}}},
        "token": {"bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token"},
        "regex": {"metricRelabelings": [{"action": "keep", "regex": "("}]},
        "timeout": {"interval": "1s", "scrapeTimeout": "2s"},
        "text": {"path": 'a"\n---\n- job_name: b', "proxyUrl": "%"},
    }
    world.kubectl.apply(
        *(service_monitor(name, endpoints=[endpoint | more]) for name, more in refused.items()),
        service_monitor("odd", selector=selector, endpoints=[{}], namespaceSelector={}),
        service_monitor("none", endpoints=[]),
        service_monitor(
            "fine",
            endpoints=[
                endpoint
                | {"bearerTokenSecret": {"key": ""}, "tlsConfig": {"ca": {}}, "unknown": {"a": 1}}
            ],
        ),
        monitoring("PodMonitor", "odd", selector={}),
        monitoring("Probe", "odd"),
        monitoring("Probe", "ingress", targets={"ingress": {}}),
        rules("good", "vector(1)"),
        rules("bad", "vector("),
        monitoring("PrometheusRule", "odd"),
        prometheus(**{f"{kind}Selector": {} for kind in ("serviceMonitor", "podMonitor", "rule")}),
    )
    world.kubectl.merge(KIND, "main", {"spec": {"probeSelector": {}}})
    world.until(world.names, {"serviceMonitor/fine/0", "serviceMonitor/odd/0", "probe/odd"})
    world.until(lambda: "targets.ingress is not supported" in world.message())
    for name in (*refused, "bad"):
        assert f"{world.kubectl.namespace}/{name}: " in world.message()
    assert "secret" not in json.dumps(list(world.jobs().values()))
    found = world.kubectl.get("configmap", "prometheus-main-rulefiles-0")
    assert found is not None
    assert sorted(found["data"]) == [
        f"{world.kubectl.namespace}.{name}.yaml" for name in ("good", "odd")
    ]
    allowed = {"arbitraryFSAccessThroughSMs": {"deny": False}}
    world.kubectl.merge(KIND, "main", {"spec": allowed})
    world.until(lambda: "serviceMonitor/token/0" in world.names())


@pytest.mark.slow
def test_an_invalid_spec_changes_nothing(world: World) -> None:
    """The message of promtool is in the status, and the Secret stays as it is."""
    world.kubectl.apply(service_monitor(), prometheus(serviceMonitorSelector=TEAM))
    world.until(world.names, {"serviceMonitor/web/0"})
    before = configuration(world.kubectl)
    world.kubectl.merge(KIND, "main", {"spec": {"scrapeTimeout": "40s"}})
    world.until(lambda: condition(world.kubectl, "Reconciled")["status"], "False")
    assert "scrape timeout greater than scrape interval" in world.message("Reconciled")
    assert configuration(world.kubectl) == before
    world.kubectl.merge(KIND, "main", {"spec": {"scrapeInterval": "50s"}})
    world.until(lambda: condition(world.kubectl, "Reconciled")["status"], "True")


@pytest.mark.slow
def test_prometheus_may_discover_in_its_namespace_alone(world: World) -> None:
    """Discovery in its own namespace, by an account of its own or one that the user names."""
    world.kubectl.apply(prometheus())
    world.until(lambda: bool(world.kubectl.get("statefulset", "prometheus-main")))
    account = f"system:serviceaccount:{world.kubectl.namespace}:prometheus-main"

    def may(verb: str, resource: str, namespace: str) -> str:
        question = ("auth", "can-i", verb, resource, f"--as={account}", f"--namespace={namespace}")
        return world.kubectl.run(*question).stdout.strip()

    for kind in ("serviceaccount", "role", "rolebinding"):
        label = "app.kubernetes.io/name"
        world.kubectl("label", kind, "prometheus-main", "--overwrite", f"{label}=edited")

        def labelled(kind: str = kind, label: str = label) -> str:
            found = world.kubectl.get(kind, "prometheus-main") or {}
            return str(found["metadata"]["labels"][label])

        world.until(labelled, "prometheus")
    assert may("watch", "endpoints", world.kubectl.namespace) == "yes"
    assert may("watch", "endpoints", "default") == "no"
    assert may("get", "secrets", world.kubectl.namespace) == "no"
    world.kubectl.merge(KIND, "main", {"spec": {"serviceAccountName": "own"}})

    def used() -> str:
        found = world.kubectl.get("statefulset", "prometheus-main") or {}
        return str(found["spec"]["template"]["spec"]["serviceAccountName"])

    world.until(used, "own")


def test_foreign_objects_are_not_changed(world: World) -> None:
    """A Secret of that name without an owner is not overwritten."""
    world.kubectl("create", "secret", "generic", "prometheus-main", "--from-literal=a=b")
    before = world.kubectl.get("secret", "prometheus-main")
    world.kubectl.apply(prometheus())
    world.until(lambda: condition(world.kubectl, "Failure")["status"], "True")
    assert "does not belong to Prometheus" in world.message("Reconciled") or world.message(
        "Failure"
    )
    assert world.kubectl.get("secret", "prometheus-main") == before


def test_kinds_that_are_not_supported(world: World) -> None:
    """Their resources are stored, and their status reports that they are unsupported."""
    config = monitoring("AlertmanagerConfig", "main", receivers=[{"name": "a"}])
    config["apiVersion"] = f"{GROUP}/v1alpha1"
    world.kubectl.apply(config, monitoring("ThanosRuler", "main", queryEndpoints=["a"]))
    for kind in ("alertmanagerconfigs", "thanosrulers"):
        world.until(partial(world.reason, kind, "Reconciled"), "NotSupported")
        assert world.reason(kind, "Failure") == "Failed"


def test_resources_of_upstream_apply_and_ignored_fields_are_listed(world: World) -> None:
    """Resources of upstream apply unchanged, and the status lists the fields that are ignored."""
    world.kubectl.apply(
        prometheus(
            version="v2.42.0",
            replicas=0,
            shards=1,
            enableAdminAPI=False,
            retention="10d",
            retentionSize="10GB",
            walCompression=True,
            logLevel="debug",
            externalUrl="http://example.com/prometheus",
            routePrefix="/prometheus",
            enableFeatures=["exemplar-storage"],
            query={"maxConcurrency": 5, "lookbackDelta": "5m"},
            nodeSelector={"kubernetes.io/os": "linux"},
            tolerations=[{"operator": "Exists"}],
            resources={"requests": {"memory": "400Mi"}},
            securityContext={"fsGroup": 2000, "runAsNonRoot": True, "runAsUser": 1000},
            podMetadata={"labels": {"a": "b"}, "annotations": {"c": "d"}},
            storage={
                "volumeClaimTemplate": {
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1Gi"}},
                    }
                }
            },
            thanos={"image": "example.com/thanos:v1"},
            remoteWrite=[{"url": "http://example.com"}],
        ),
        monitoring(
            "Alertmanager", "main", replicas=0, retention="24h",
            alertmanagerConfigSelector={"matchLabels": {"team": "a"}},
        ),
    )  # fmt: skip
    ignored = "not supported by this operator, and ignored: spec."
    world.until(
        lambda: world.message("AllFieldsSupported"),
        f"{ignored}remoteWrite, spec.shards, spec.thanos",
    )
    found = world.kubectl.get("statefulset", "prometheus-main") or {}
    pod = found["spec"]["template"]
    container = pod["spec"]["containers"][0]
    assert container["image"] == "operator-runner.local/prometheus:v2.42.0"
    assert set(container["args"]) >= {
        "--storage.tsdb.retention.time=10d", "--storage.tsdb.retention.size=10GB",
        "--storage.tsdb.wal-compression", "--no-web.enable-admin-api", "--log.level=debug",
        "--web.route-prefix=/prometheus/", "--query.max-concurrency=5",
        "--web.external-url=http://example.com/prometheus", "--enable-feature=exemplar-storage",
    }  # fmt: skip
    assert container["resources"] == {"requests": {"memory": "400Mi"}}
    assert pod["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert pod["metadata"]["labels"]["a"] == "b"
    (claim,) = found["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"] == {"requests": {"storage": "1Gi"}}
    alertmanagers = f"alertmanagers.{GROUP}"
    world.until(
        lambda: condition(world.kubectl, "AllFieldsSupported", kind=alertmanagers).get("message"),
        f"{ignored}alertmanagerConfigSelector",
    )
    edited = {"data": {"alertmanager.yaml": "damaged"}}
    world.kubectl.merge("configmap", "alertmanager-main-default", edited)

    def default() -> bool:
        found = world.kubectl.get("configmap", "alertmanager-main-default") or {}
        return bool(found["data"] != edited["data"])

    world.until(default)
    refused = world.kubectl.run("create", "--filename=-", input_=json.dumps(prometheus(typo=1)))
    assert 'unknown field "spec.typo"' in refused.stderr
