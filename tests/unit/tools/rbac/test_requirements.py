"""Which rights follow from watches, flags and recorded requests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import (
    GVK,
    Conversion,
    Deselection,
    Finalizer,
    JobTemplate,
    ObjectTrigger,
    Ownership,
    Prune,
    Reference,
    RunContent,
    WakeOn,
    Watch,
)
from operator_runner.proxy.request_info import ANY, OWN, Permission
from operator_runner.tools.rbac.access_rules import OWN_NAMESPACE, KindTable
from operator_runner.tools.rbac.requirements import (
    EnabledFeatures,
    RequirementSources,
    requirements_of,
    warnings_of,
)

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "spec": {
        "group": "shop.io",
        "names": {"kind": "Web", "plural": "webs"},
        "scope": "Namespaced",
    },
}
WEB = Watch(GVK("shop.io", "v1", "Web"), RunContent(role=Path("/roles/web")), manage_status=False)
EVENTS = ["create events.events.k8s.io", "patch events.events.k8s.io"]
WATCHED = ["get webs.shop.io", "list webs.shop.io", "patch webs.shop.io", "watch webs.shop.io"]
BY = "Web.shop.io"


def requirements(
    watch: Watch = WEB,
    *recorded: Permission,
    crd: Any = CRD,
    names: bool = False,
    **features: Any,
) -> list[str]:
    """Return the permissions other than watching the kind and writing Events everywhere."""
    project = RequirementSources((watch,), recorded, KindTable([crd]), EnabledFeatures(**features))
    found = [str(requirement.rule) for requirement in requirements_of(project, names=names)]
    return [rule for rule in found if rule not in {*EVENTS, *WATCHED}]


def test_the_least_that_a_watch_needs() -> None:
    """Reading, watching, answering requests, and Events; nothing of an unmanaged status."""
    project = RequirementSources((WEB,), (), KindTable([CRD]), EnabledFeatures())
    assert [str(n.rule) for n in requirements_of(project, names=False)] == [*EVENTS, *WATCHED]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"manage_status": True}, ["patch webs.shop.io/status"]),
        (
            {"references": (Reference(GVK("", "v1", "Secret"), "spec.secret"),)},
            ["list secrets", "watch secrets"],
        ),
        (
            {"references": (Reference(GVK("", "v1", "Pod"), selector="spec.selector"),)},
            ["list pods", "watch pods"],
        ),
        (
            {"triggers": (ObjectTrigger(GVK("", "v1", "Namespace")),)},
            ["list namespaces", "watch namespaces"],
        ),
        (
            {"wake_on": (WakeOn(GVK("apps", "v1", "Deployment"), ("status.replicas",)),)},
            ["list deployments.apps", "watch deployments.apps"],
        ),
        ({"conversions": (Conversion("v1alpha1", {}, {}),)}, []),
    ],
)
def test_permissions_follow_from_the_keys_of_a_watch(
    changed: dict[str, Any], expected: list[str]
) -> None:
    """Status, references and triggers have rights of their own."""
    assert requirements(replace(WEB, **changed)) == expected


@pytest.mark.parametrize(
    ("keys", "is_patched"),
    [
        ({}, False),
        ({"finalizer": Finalizer("shop.io/web", None)}, True),
        ({"deselection": Deselection("shop.io/chosen", None)}, True),
    ],
)
def test_metadata_of_a_built_in_kind_is_patched_for_keys_only(
    keys: dict[str, Any], *, is_patched: bool
) -> None:
    """To answer requests for all ConfigMaps is for its users to grant."""
    watch = replace(WEB, gvk=GVK("", "v1", "ConfigMap"), **keys)
    assert ("patch configmaps" in requirements(watch)) is is_patched


def test_permissions_follow_from_flags() -> None:
    """A Lease by its name, reviews for protected metrics, the object of OLM."""
    where = "in the operator's namespace"
    assert requirements(lease="web", reviews=True, operator_condition="web.v1") == [
        "create tokenreviews.authentication.k8s.io",
        "create subjectaccessreviews.authorization.k8s.io",
        f"create leases.coordination.k8s.io {where}",
        f"get leases.coordination.k8s.io named web {where}",
        f"update leases.coordination.k8s.io named web {where}",
        f"get operatorconditions.operators.coreos.com named web.v1 {where}",
        f"patch operatorconditions.operators.coreos.com named web.v1 {where}",
    ]


def test_permissions_follow_from_conversions() -> None:
    """The CRD by its name, and the Secret that the replicas share; nothing with own files."""
    watch = replace(WEB, conversions=(Conversion("v1alpha1", {}, {}),))
    where = "in the operator's namespace"
    crd = "customresourcedefinitions.apiextensions.k8s.io named webs.shop.io"
    assert requirements(watch, webhook=True) == [f"get {crd}", f"patch {crd}"]
    assert requirements(watch, webhook_secret=(OWN_NAMESPACE, "hook-certificate")) == [
        f"create secrets {where}",
        f"get secrets named hook-certificate {where}",
        f"update secrets named hook-certificate {where}",
    ]
    assert requirements(webhook=True, webhook_secret=(OWN_NAMESPACE, "hook-certificate")) == []


def test_jobs_require_jobs_pods_and_secrets_in_their_namespace() -> None:
    """Jobs, their Pods and Secrets in their namespace, and the Secret with the certificates."""
    watch = replace(WEB, job=JobTemplate("ee", "work"))
    where, own = "in namespace work", "in the operator's namespace"
    assert set(requirements(watch, job_secret=(OWN_NAMESPACE, "jobs-certificate"))) == {
        f"create secrets {own}",
        f"get secrets named jobs-certificate {own}",
        f"update secrets named jobs-certificate {own}",
        f"list pods {where}",
        *(f"{verb} secrets {where}" for verb in ("create", "delete", "get")),
        *(f"{verb} jobs.batch {where}" for verb in ("create", "delete", "get", "list")),
    }
    assert requirements(job_secret=(OWN_NAMESPACE, "jobs-certificate")) == []


def test_watched_namespaces_are_the_only_ones_with_permissions() -> None:
    """Watched namespaces, the operator's own among them, are the only ones with rights."""
    secrets = Permission(BY, "", "secrets", OWN, "get")
    found = requirements(replace(WEB), secrets, scopes=("shop", OWN_NAMESPACE))
    assert len(found) == 2 * (len(EVENTS) + len(WATCHED) + 1)
    assert {rule.partition(" in ")[2] for rule in found} == {
        "namespace shop",
        "the operator's namespace",
    }
    assert "get secrets in namespace shop" in found


def test_a_cluster_scoped_kind_needs_the_cluster() -> None:
    """Its Events are in the namespace `default`, for which there is no Role without need."""
    crd = CRD | {"spec": CRD["spec"] | {"scope": "Cluster"}}  # type: ignore[operator]
    assert requirements(crd=crd, scopes=("shop",)) == [
        f"{event} in namespace default" for event in EVENTS
    ]
    project = RequirementSources((WEB,), (), KindTable([crd]), EnabledFeatures())
    found = [str(each.rule) for each in requirements_of(project, names=False)]
    assert set(EVENTS) <= set(found)


def test_created_kinds_are_watched() -> None:
    """Unless it cannot be owned, is in the blacklist, or ownership is disabled."""
    made = Permission(BY, "apps", "deployments", OWN, "create")
    watched = ["create deployments.apps", "list deployments.apps", "watch deployments.apps"]
    assert requirements(WEB, made) == watched
    assert requirements(WEB, made, inject_owner_ref=False) == watched[:1]
    assert requirements(replace(WEB, watch_dependent_resources=False), made) == watched[:1]
    ignoring = replace(WEB, blacklist=frozenset({GVK("apps", "v1", "Deployment")}))
    assert requirements(ignoring, made) == watched[:1]
    assert requirements(WEB, Permission(BY, "", "pods/exec", OWN, "create")) == ["create pods/exec"]
    assert requirements(WEB, Permission(BY, "", "events", OWN, "create")) == ["create events"]
    cluster = Permission(BY, "rbac.authorization.k8s.io", "clusterroles", "", "create")
    assert len(requirements(WEB, cluster, scopes=("shop",))) == 1 + len(EVENTS) + len(WATCHED)
    asking = replace(WEB, watch_cluster_scoped_resources=True)
    assert len(requirements(asking, cluster, scopes=("shop",))) == 3 + len(EVENTS) + len(WATCHED)


def test_pruned_kinds_are_listed_and_deleted() -> None:
    """Those that a role creates, also if they are not watched; not those that have no owner."""
    pruned = replace(WEB, prune=Prune(), watch_dependent_resources=False)
    made = Permission(BY, "apps", "deployments", OWN, "create")
    verbs = ("create", "delete", "get", "list")
    assert set(requirements(pruned, made)) == {f"{verb} deployments.apps" for verb in verbs}
    assert requirements(pruned, made, inject_owner_ref=False) == ["create deployments.apps"]
    assert requirements(pruned, Permission(BY, "", "events", OWN, "create")) == ["create events"]


def test_namespaced_requests_keep_their_scope() -> None:
    """A namespace of its own stays one; any is the whole cluster, and covers single ones."""
    there = Permission(BY, "", "secrets", "kube-system", "get")
    assert requirements(WEB, there) == ["get secrets in namespace kube-system"]
    assert requirements(WEB, there, replace(there, namespace=ANY)) == ["get secrets"]


def test_the_namespace_of_the_operator_is_one_scope() -> None:
    """Its name in a recording and in the Deployment are the same scope."""
    here = Permission(BY, "", "secrets", "web-system", "get")
    assert requirements(WEB, here, own_namespace="web-system") == [
        "get secrets in the operator's namespace"
    ]
    assert requirements(WEB, here, own_namespace="shop") == ["get secrets in namespace web-system"]


def test_rules_have_names_only_on_demand() -> None:
    """A rule is for any name unless names are requested; several names are separate."""
    a, b = (Permission(BY, "", "secrets", OWN, "get", name) for name in "ab")
    assert {*requirements(WEB, a, b)} == {"get secrets"}
    assert requirements(WEB, a, b, names=True) == ["get secrets named a", "get secrets named b"]


def test_non_resource_paths_are_required_as_recorded() -> None:
    """They are needed as they are."""
    assert requirements(WEB, Permission(BY, "", "", "", "get", path="/metrics")) == ["get /metrics"]


def test_requests_of_former_kinds_are_left_out() -> None:
    """With a warning; those of programs beside the runs stay."""
    old, beside = (
        Permission("Old.shop.io", "", "pods", OWN, "get"),
        Permission("", "", "pods", "x", "list"),
    )
    assert requirements(WEB, old, beside) == ["list pods in namespace x"]
    project = RequirementSources((WEB,), (old, beside), KindTable([CRD]), EnabledFeatures())
    assert "Old.shop.io" in " ".join(warnings_of(project))
    assert "--record-requests" in " ".join(warnings_of(replace(project, recorded=())))


@pytest.mark.parametrize(
    ("kind", "group", "plural", "namespaced"),
    [
        ("Deployment", "apps", "deployments", True),
        ("Ingress", "networking.k8s.io", "ingresses", True),
        ("NetworkPolicy", "networking.k8s.io", "networkpolicies", True),
        ("Endpoints", "", "endpoints", True),
        ("Namespace", "", "namespaces", False),
    ],
)
def test_plurals_of_builtin_kinds_follow_a_rule(
    kind: str, group: str, plural: str, namespaced: bool
) -> None:
    """Their plurals follow a rule."""
    found = KindTable([]).plural(GVK(group, "v1", kind))
    assert (found.name, found.namespaced) == (plural, namespaced)


def test_a_kind_without_its_crd_is_an_error() -> None:
    """The error names it, and the flag that helps."""
    with pytest.raises(ConfigError, match=r"Web of shop.io/v1: .* --crds"):
        KindTable([]).plural(WEB.gvk)


@pytest.mark.parametrize(
    ("ownership", "verb", "resource", "expected"),
    [
        (Ownership.IGNORE, "update", "secrets", ["get"]),
        (Ownership.IGNORE, "patch", "secrets", []),
        (Ownership.IGNORE, "update", "secrets/status", []),
        (Ownership.REFUSE, "patch", "secrets", ["get"]),
        (Ownership.REFUSE, "delete", "secrets", ["get"]),
        (Ownership.REFUSE, "create", "secrets", []),
        (Ownership.REFUSE, "create", "secrets/eviction", ["get"]),
        (Ownership.REFUSE, "deletecollection", "secrets", ["list"]),
        (Ownership.ADOPT, "update", "secrets/scale", ["get", "patch"]),
        (Ownership.REFUSE, "patch", "events", []),
    ],
)
def test_written_kinds_need_get(
    ownership: Ownership, verb: str, resource: str, expected: list[str]
) -> None:
    """The proxy gets the metadata of an object before such a write."""
    watch = replace(WEB, ownership=ownership, watch_dependent_resources=False)
    found = requirements(watch, Permission(BY, "", resource, "", verb))
    base = resource.partition("/")[0]
    written = f"{verb} {resource}"
    assert sorted(set(found) - {written}) == [f"{more} {base}" for more in expected]
