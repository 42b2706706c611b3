"""Requirements as manifests, which grant exactly the needed permissions."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from operator_runner.tools.rbac.access_rules import (
    CLUSTER_WIDE,
    OWN_NAMESPACE,
    AccessRule,
    Requirement,
    minimal,
)
from operator_runner.tools.rbac.grants import differences, grants_in
from operator_runner.tools.rbac.manager_deployment import Manager
from operator_runner.tools.rbac.render import component, manifest, roles_of
from operator_runner.tools.rbac.requirements import LEADER

_RIGHTS = st.builds(
    AccessRule,
    group=st.sampled_from(["", "apps"]),
    resource=st.sampled_from(["pods", "pods/exec", "deployments"]),
    verb=st.sampled_from(["get", "list", "on"]),
    scope=st.sampled_from([CLUSTER_WIDE, OWN_NAMESPACE, "shop"]),
    name=st.sampled_from(["", "a", "null"]),
) | st.builds(
    AccessRule, st.just(""), st.just(""), st.just("get"), path=st.sampled_from(["/a", "/b"])
)
_NEEDS = st.lists(st.builds(Requirement, _RIGHTS, st.sampled_from(["one", "two"])), min_size=1)
EXEC = Requirement(AccessRule("", "pods/exec", "create"), "the role web requests it")
PODS = Requirement(AccessRule("", "pods", "get"), "the role web requests it")


@given(_NEEDS)
def test_rendered_rules_pass_the_check(requirements: list[Requirement]) -> None:
    """A check of it finds nothing missing and nothing superfluous."""
    found = minimal(requirements)
    documents: list[Any] = list(yaml.safe_load_all(manifest(found)))
    roles = [body for body in documents if not body["kind"].endswith("Binding")]
    assert differences(found, grants_in(roles, Manager(account="controller-manager"))) == []


@given(_NEEDS, st.randoms(use_true_random=False))
def test_the_order_of_requirements_does_not_matter(
    requirements: list[Requirement], random: Any
) -> None:
    """Equal permissions give the same text, so that a diff shows only real changes."""
    shuffled = list(requirements)
    random.shuffle(shuffled)
    assert manifest(minimal(shuffled)) == manifest(minimal(requirements))


def test_verbs_and_resources_are_grouped() -> None:
    """Requirements with the same verbs and reasons are one rule, with the reason as a comment."""
    services = Requirement(AccessRule("", "services", "get"), PODS.reason)
    assert manifest(minimal([services, PODS, EXEC])).splitlines()[4:] == [
        "  name: manager-role",
        "rules:",
        "  # The role web requests it",
        '  - apiGroups: [""]',
        "    resources: [pods, services]",
        "    verbs: [get]",
        "  # The role web requests it",
        '  - apiGroups: [""]',
        "    resources: [pods/exec]",
        "    verbs: [create]",
    ]


def test_a_namespace_has_a_role_and_a_binding() -> None:
    """The binding names the operator's ServiceAccount; the leader's role is bound already."""
    shop = Requirement(AccessRule("", "pods", "get", "shop"), "x")
    lease = Requirement(
        AccessRule("coordination.k8s.io", "leases", "create", OWN_NAMESPACE), "x", LEADER
    )
    role, binding, leader = yaml.safe_load_all(manifest([shop, lease]))
    assert (role["kind"], role["metadata"]["namespace"]) == ("Role", "shop")
    assert (binding["kind"], binding["metadata"]["namespace"]) == ("RoleBinding", "shop")
    assert binding["roleRef"]["name"] == role["metadata"]["name"] == "manager-role"
    assert leader["metadata"] == {"name": LEADER, "namespace": "system"}


def test_the_namespace_of_the_operator_may_have_its_name() -> None:
    """Roles and the subjects of bindings then have it; other namespaces are kept."""
    own = Requirement(AccessRule("", "pods", "get", OWN_NAMESPACE), "x")
    events = Requirement(AccessRule("events.k8s.io", "events", "create", "default"), "x")
    documents = list(yaml.safe_load_all(manifest([own, events], "web-system")))
    places = [(body["kind"], body["metadata"]["namespace"]) for body in documents]
    assert places == [
        ("Role", "web-system"),
        ("RoleBinding", "web-system"),
        ("Role", "default"),
        ("RoleBinding", "default"),
    ]
    bindings = [body for body in documents if body["kind"] == "RoleBinding"]
    assert {body["subjects"][0]["namespace"] for body in bindings} == {"web-system"}


def test_a_component_replaces_the_rules() -> None:
    """It is a kustomize component with a JSON patch for each role."""
    body = yaml.safe_load(component([PODS]))
    assert body["kind"] == "Component"
    (patch,) = body["patches"]
    assert patch["target"] == {"kind": "ClusterRole", "name": "manager-role"}
    (operation,) = yaml.safe_load(patch["patch"])
    assert (operation["op"], operation["path"]) == ("replace", "/rules")
    assert operation["value"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]


def test_the_managers_role_comes_first() -> None:
    """Then the others by name."""
    lease = Requirement(
        AccessRule("coordination.k8s.io", "leases", "create", OWN_NAMESPACE), "x", LEADER
    )
    assert [role for role, _ in roles_of([lease, PODS])] == ["manager-role", LEADER]


def test_names_with_the_same_verbs_are_one_rule() -> None:
    """Objects that differ in their names alone; any name is another rule."""
    named = [
        Requirement(AccessRule("", "configmaps", "get", OWN_NAMESPACE, name), "x", LEADER)
        for name in ("b", "a")
    ]
    anything = Requirement(AccessRule("", "configmaps", "create", OWN_NAMESPACE), "x", LEADER)
    [rules] = roles_of(minimal([*named, anything])).values()
    assert [(rule.names, rule.verbs) for rule in rules] == [
        ((), ("create",)),
        (("a", "b"), ("get",)),
    ]
