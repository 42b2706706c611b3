"""Granted permissions compared with needed ones."""

from __future__ import annotations

from typing import Any

import pytest

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import Json
from operator_runner.tools.rbac.access_rules import (
    CLUSTER_WIDE,
    OWN_NAMESPACE,
    AccessRule,
    KindTable,
    Requirement,
    minimal,
    without_names,
)
from operator_runner.tools.rbac.grants import (
    as_olm_grants,
    differences,
    grants_in,
    missing_rules,
)
from operator_runner.tools.rbac.manager_deployment import Manager, features_of, find_manager
from operator_runner.tools.rbac.requirements import EnabledFeatures, requirements_of_runner

GET = AccessRule("apps", "deployments", "get")


def role(name: str, *rules: Json, kind: str = "ClusterRole", **metadata: str) -> Json:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, **metadata},
        "rules": list(rules),
    }


def rule(verbs: str, resources: str, group: str = "", **more: Any) -> Json:
    return {
        "apiGroups": [group],
        "resources": resources.split(),
        "verbs": verbs.split(),
        **more,
    }


def binding(name: str, namespace: str = "", account: str = "controller-manager") -> Json:
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name} | ({"namespace": namespace} if namespace else {}),
        "roleRef": {"kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "system"}],
    }


def deployment(*args: str, env: tuple[Json, ...] = (), container: str = "manager") -> Json:
    containers = [{"name": container, "args": list(args), "env": list(env)}]
    spec = {"serviceAccountName": "controller-manager", "containers": containers}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "m", "namespace": "system"},
        "spec": {"template": {"spec": spec}},
    }


def compare(needed: AccessRule, *documents: Json) -> list[str]:
    return differences([Requirement(needed, "because")], grants_in(documents, None))


def test_exact_permissions_pass() -> None:
    """Nothing is reported."""
    assert compare(GET, role("a", rule("get", "deployments", "apps"))) == []


def test_missing_permissions_have_a_reason() -> None:
    """Verbs of a resource with one reason are one line."""
    requirements = [
        Requirement(GET, "the role web requests it"),
        Requirement(AccessRule("apps", "deployments", "create"), "the role web requests it"),
    ]
    assert differences(requirements, []) == [
        "missing: create, get deployments.apps: the role web requests it"
    ]


@pytest.mark.parametrize(
    ("needed", "given", "enough"),
    [
        (GET, role("a", rule("*", "deployments", "apps")), "get deployments.apps"),
        (GET, role("a", rule("get", "*", "apps")), "get deployments.apps"),
        (GET, role("a", rule("get", "deployments", "*")), "get deployments.apps"),
        (
            AccessRule("", "pods", "get", "x"),
            role("a", rule("get", "pods")),
            "get pods in namespace x",
        ),
        (
            AccessRule("", "pods", "get", name="n"),
            role("a", rule("get", "pods")),
            "get pods named n",
        ),
        (AccessRule("", "pods/log", "get"), role("a", rule("get", "*/log")), "get pods/log"),
        (
            AccessRule("", "", "get", path="/metrics"),
            role("a", {"nonResourceURLs": ["/*"], "verbs": ["get"]}),
            "get /metrics",
        ),
    ],
)
def test_wider_permissions_are_superfluous(needed: AccessRule, given: Json, enough: str) -> None:
    """Nothing is missing then, and the line has the sufficient rule."""
    (line,) = compare(needed, given)
    assert line.startswith("superfluous: ")
    assert line.endswith(f"granted by ClusterRole a; sufficient: {enough}")


def test_rules_that_the_api_server_accepts_instead_are_not_missing() -> None:
    """The operator may hold the rules of a role that it binds; if it may bind any, that is wide."""
    bind = AccessRule("rbac.authorization.k8s.io", "roles", "bind", name="reader")
    requirement = Requirement(bind, "because", instead=(GET,))
    assert minimal([requirement, Requirement(GET, "because")]) == [Requirement(GET, "because")]
    (missing,) = differences([requirement], [])
    assert missing.startswith("missing: bind roles.rbac.authorization.k8s.io named reader")
    (wide,) = differences([requirement], grants_in([role("a", rule("get", "*", "apps"))], None))
    assert wide.endswith("sufficient: bind roles.rbac.authorization.k8s.io named reader")


def test_rules_of_the_names_of_a_recording_suffice() -> None:
    """Whether the check has `--names` or not, the API server allows the recorded requests."""
    named = [
        Requirement(AccessRule("", "secrets", "get", name=name), "because")
        for name in ("ca", "key")
    ]
    requirements = minimal(without_names(named))
    assert [requirement.rule.name for requirement in requirements] == ["", ""]
    given = role("a", rule("get", "secrets", resourceNames=["ca", "key"]))
    assert differences(requirements, grants_in([given], None)) == []
    given["rules"][0]["resourceNames"] = ["ca"]
    assert missing_rules(requirements, grants_in([given], None)) == [
        "missing: get secrets: because"
    ]


def test_rules_that_replace_others_are_not_superfluous() -> None:
    """An operator that may not bind a role holds its rules, and needs them."""
    bind = AccessRule("rbac.authorization.k8s.io", "roles", "bind", name="reader")
    requirement = Requirement(bind, "because", instead=(GET,))
    assert (
        differences([requirement], grants_in([role("a", rule("get", "deployments", "apps"))], None))
        == []
    )


@pytest.mark.parametrize(
    ("supported", "scopes"),
    [
        ({"OwnNamespace", "SingleNamespace"}, (OWN_NAMESPACE,)),
        ({"OwnNamespace", "AllNamespaces"}, (CLUSTER_WIDE,)),
        (set(), (CLUSTER_WIDE,)),
    ],
)
def test_install_modes_determine_the_namespaces_of_the_olm(
    supported: set[str], scopes: tuple[str, ...]
) -> None:
    """Without AllNamespaces the OLM grants Roles in the namespaces that it chooses."""
    field = {"fieldPath": "metadata.annotations['olm.targetNamespaces']"}
    env = {"name": "WATCH_NAMESPACE", "valueFrom": {"fieldRef": field}}
    every = ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
    modes = [{"type": mode, "supported": mode in supported} for mode in every]
    version = {"kind": "ClusterServiceVersion", "spec": {"installModes": modes}}
    manager = find_manager([deployment(env=(env,)), version])
    assert manager is not None
    assert features_of(manager, ()).scopes == scopes


def test_the_olm_grants_roles_in_all_namespaces() -> None:
    """It makes ClusterRoles of Roles if it chooses all namespaces; others stay as they are."""
    lease = AccessRule("coordination.k8s.io", "leases", "get", OWN_NAMESPACE)
    requirements = [Requirement(GET, "because"), Requirement(lease, "because")]
    rules = rule("get", "deployments", "apps"), rule("get", "leases", "coordination.k8s.io")
    granted = grants_in([role("a", *rules, kind="Role")], None)
    assert missing_rules(requirements, granted) == ["missing: get deployments.apps: because"]
    assert differences(requirements, as_olm_grants(granted, requirements)) == []


def test_unneeded_permissions_are_superfluous() -> None:
    """The role that grants it is named."""
    (line,) = compare(GET, role("a", rule("get", "deployments", "apps"), rule("list", "pods")))
    assert line == (
        "superfluous: list pods: granted by ClusterRole a;"
        " required by neither the runner nor a recorded request"
    )


def test_the_role_of_administrators_is_known() -> None:
    """It is in each cluster and in no manifests; what suffices in its place is listed."""
    path = AccessRule("", "", "get", path="/metrics")
    requirements = [Requirement(GET, "because"), Requirement(path, "because")]
    found = differences(requirements, grants_in([binding("cluster-admin")], None))
    assert {line.partition("cluster-admin; ")[2] for line in found} == {
        "sufficient: get /metrics",
        "sufficient: get deployments.apps",
    }


def test_only_bound_roles_count() -> None:
    """Roles for users are ignored; a RoleBinding grants in its namespace."""
    documents = [
        role("own", rule("get", "pods")),
        role("users", rule("delete", "pods")),
        binding("own", "shop"),
        binding("users", account="somebody"),
        deployment(),
    ]
    granted = grants_in(documents, find_manager(documents))
    assert [one.rule for one in granted] == [AccessRule("", "pods", "get", "shop")]


def test_the_namespace_is_that_of_the_service_account() -> None:
    """It is identified by the ServiceAccount, under any name that kustomize sets."""
    documents = [role("own", rule("get", "pods")), binding("own", "system")]
    (granted,) = grants_in(documents, None)
    assert granted.rule.scope == OWN_NAMESPACE


@pytest.mark.parametrize(
    ("documents", "problem"),
    [
        ([binding("gone")], "ClusterRole gone is not in the checked files"),
        ([binding("a"), binding("b", account="other")], "roles bound to one ServiceAccount"),
        ([role("a") | {"aggregationRule": {"x": 1}}], "aggregationRule"),
    ],
)
def test_unreadable_manifests_are_an_error(documents: list[Json], problem: str) -> None:
    """Otherwise the check would pass without manifests."""
    with pytest.raises(ConfigError, match=problem):
        grants_in(documents, None)


def test_the_manager_determines_the_permissions() -> None:
    """Arguments and environment of its container decide, as they do when it runs."""
    own = {
        "name": "WATCH_NAMESPACE",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
    }
    condition = {"name": "OPERATOR_CONDITION_NAME", "value": "web.v1"}
    flags = (
        "--leader-elect",
        "--leader-election-id=web",
        "--metrics-secure",
        "--metrics-require-rbac",
    )
    manager = find_manager([deployment(*flags, env=(own, condition))])
    assert manager is not None
    assert features_of(manager, ()) == EnabledFeatures(
        scopes=(OWN_NAMESPACE,), lease="web", reviews=True, operator_condition="web.v1"
    )
    elsewhere = find_manager(
        [deployment(*flags, "--leader-election-namespace=x", "--metrics-bind-address=0")]
    )
    assert elsewhere is not None
    assert features_of(elsewhere, ()) == EnabledFeatures(lease="web", lease_scope="x")
    sharing = find_manager([deployment(*flags[:2], "--shards=auto")])
    assert sharing is not None
    assert features_of(sharing, ()) == EnabledFeatures(lease="web", shards=True)


def test_shards_need_leases_of_any_name() -> None:
    """Those of replicas are random; other verbs than these are not granted."""
    shared = requirements_of_runner((), KindTable([]), EnabledFeatures(lease="web", shards=True))
    verbs = {each.rule.verb for each in shared if each.reason.startswith("--shards")}

    assert verbs == {"create", "get", "list", "watch", "update", "delete"}


def test_the_namespace_of_the_manager_may_have_its_name() -> None:
    """A watched namespace of that name is its own one."""
    body = deployment(env=({"name": "WATCH_NAMESPACE", "value": "web-system"},))
    body["metadata"]["namespace"] = "web-system"
    manager = find_manager([body])
    assert manager is not None
    expected = EnabledFeatures(own_namespace="web-system", scopes=(OWN_NAMESPACE,))
    assert features_of(manager, ()) == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            ["--webhook-service=hook"],
            EnabledFeatures(webhook=True, webhook_secret=(OWN_NAMESPACE, "hook-certificate")),
        ),
        (
            ["--webhook-service=x/hook:8443"],
            EnabledFeatures(webhook=True, webhook_secret=("x", "hook-certificate")),
        ),
        (["--webhook-host=10.0.0.1"], EnabledFeatures(webhook=True)),
        (["--webhook-service=hook", "--webhook-cert-dir=/certs"], EnabledFeatures()),
    ],
)
def test_where_conversions_are_served(flags: list[str], expected: EnabledFeatures) -> None:
    """By a Service, by an address, or with certificates that another program manages."""
    manager = find_manager([deployment(*flags)])
    assert manager is not None
    assert features_of(manager, ()) == expected


def test_mistakes_of_the_manager_are_errors() -> None:
    """Unknown and missing arguments and two managers are errors; other Deployments are ignored."""
    manager = find_manager([deployment("--no-such-flag"), deployment(container="other")])
    assert manager is not None
    with pytest.raises(ConfigError, match="--no-such-flag"):
        features_of(manager, ())
    unnamed = find_manager([deployment("--leader-elect")])
    assert unnamed is not None
    with pytest.raises(ConfigError, match="args of the manager: --leader-elect requires"):
        features_of(unnamed, ())
    with pytest.raises(ConfigError, match="several Deployments"):
        find_manager([deployment(), deployment()])
    assert find_manager([deployment(container="other")]) is None
    assert Manager().namespace == "system"


@pytest.mark.parametrize(
    ("container", "found"),
    [
        (
            {
                "name": "web-operator",
                "image": "example.com/web",
                "args": ["--leader-election-id=web"],
            },
            True,
        ),
        ({"name": "web", "image": "example.com/web", "env": [{"name": "WATCH_NAMESPACE"}]}, True),
        ({"name": "web", "image": "quay.io/operator-framework/ansible-operator:v1"}, True),
        ({"name": "web", "image": "nginx", "args": ["--port=1"]}, False),
    ],
)
def test_the_operator_is_found_by_what_its_container_runs(container: Json, found: bool) -> None:
    """Beside kube-rbac-proxy, whose reviews of tokens are required then."""
    body = deployment()
    proxy = {"name": "proxy", "image": "example.com/kube-rbac-proxy:v1", "args": ["--v=0"]}
    body["spec"]["template"]["spec"]["containers"] = [proxy, container]
    manager = find_manager([body])
    if manager is None:
        assert not found
        return
    assert manager.container == f"m/{container['name']}"
    features = features_of(manager, [])
    assert (features.reviews, features.reviewer) == (True, "the sidecar kube-rbac-proxy")
