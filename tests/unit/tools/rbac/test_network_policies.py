"""NetworkPolicies of Jobs: their Pods and the operator connect to each other, and no others."""

from __future__ import annotations

from pathlib import Path

from operator_runner.core.model import GVK, JobTemplate, Json, RunContent, Watch
from operator_runner.tools.rbac.manager_deployment import PLACEHOLDER, Manager
from operator_runner.tools.rbac.render import network_policies_of

PORT = 8444
OPERATOR = {"podSelector": {"matchLabels": {"control-plane": "controller-manager"}}}
PODS = {"podSelector": {"matchLabels": {"app.kubernetes.io/managed-by": "operator-runner"}}}


def in_namespace(name: str, peer: Json) -> Json:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}, **peer}


def watch(namespace: str) -> Watch:
    content = RunContent(role=Path("/roles/web"))
    return Watch(GVK("shop", "v1", "Web"), content, job=JobTemplate("ee", namespace))


def test_only_pods_of_jobs_reach_the_port_for_jobs() -> None:
    """The policy leaves the other ports of the operator open: probes, metrics, webhooks."""
    manager, *_ = network_policies_of([watch("work"), watch("other")], Manager("web-system"), PORT)
    assert manager["metadata"] == {"name": "operator-jobs", "namespace": "web-system"}
    assert {"podSelector": manager["spec"]["podSelector"]} == OPERATOR
    jobs, others = manager["spec"]["ingress"]
    assert jobs["ports"] == [{"protocol": "TCP", "port": PORT}]
    assert jobs["from"] == [in_namespace("other", PODS), in_namespace("work", PODS)]
    assert "from" not in others
    open_ports = [(port["port"], port["endPort"]) for port in others["ports"]]
    assert open_ports == 2 * [(1, PORT - 1), (PORT + 1, 65535)]


def test_pods_of_jobs_connect_to_the_operator_and_dns_only() -> None:
    """Nothing connects to them."""
    _, jobs = network_policies_of([watch("work"), watch("work")], Manager("web-system"), PORT)
    assert jobs["metadata"] == {"name": "jobs", "namespace": "work"}
    assert {"podSelector": jobs["spec"]["podSelector"]} == PODS
    assert jobs["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in jobs["spec"]
    operator, dns = jobs["spec"]["egress"]
    assert operator == {
        "to": [in_namespace("web-system", OPERATOR)],
        "ports": [{"protocol": "TCP", "port": PORT}],
    }
    assert {port["port"] for port in dns["ports"]} == {53, 5353}


def test_jobs_in_the_namespace_of_the_operator_need_no_selector_of_namespaces() -> None:
    """Then kustomize may set its name."""
    manager, jobs = network_policies_of([watch("")], Manager(), PORT)
    assert manager["spec"]["ingress"][0]["from"] == [PODS]
    assert jobs["spec"]["egress"][0]["to"] == [OPERATOR]
    assert jobs["metadata"]["namespace"] == PLACEHOLDER


def test_a_namespace_that_kustomize_names_is_not_selected_by_name() -> None:
    """Its name is not known, so the labels of Pods decide."""
    _, jobs = network_policies_of([watch("work")], Manager(), PORT)
    assert jobs["spec"]["egress"][0]["to"] == [{"namespaceSelector": {}, **OPERATOR}]


def test_the_labels_of_the_deployment_select_the_operator() -> None:
    """Also in the policy of the Pods of Jobs."""
    labelled = Manager("web-system", labels=(("app", "web"),))
    manager, jobs = network_policies_of([watch("web-system")], labelled, PORT)
    assert manager["spec"]["podSelector"] == {"matchLabels": {"app": "web"}}
    assert jobs["spec"]["egress"][0]["to"] == [{"podSelector": {"matchLabels": {"app": "web"}}}]


def test_without_jobs_or_their_service_there_is_no_policy() -> None:
    """An operator outside the cluster has no Pods that a policy could select."""
    local = Watch(GVK("shop", "v1", "Web"), RunContent(role=Path("/roles/web")))
    assert network_policies_of([local], Manager(), PORT) == []
    assert network_policies_of([watch("work")], Manager(), 0) == []
