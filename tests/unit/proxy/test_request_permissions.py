"""Permissions that a request needs, as the API server's authorizer checks them."""

from __future__ import annotations

from typing import Any

import pytest

from operator_runner.core.model import GVK
from operator_runner.proxy.request_info import (
    Permission,
    RequestInfo,
    Subject,
    impersonation_permissions,
    owners_with_blocked_deletion,
    permissions_for_request,
    permissions_in_body,
)

WEB = Subject("Web.shop.example.com", "team", "front")
DEPLOYMENTS = "/apis/apps/v1/namespaces/team/deployments"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def rights(
    method: str, path: str, *, watch: bool = False, status: int = 200, subject: Subject = WEB
) -> list[tuple[str, str, str, str]]:
    """Return verb, group/resource, namespace and name of each."""
    found = permissions_for_request(method, path, subject, watch=watch, status=status)
    return [(r.verb, f"{r.group}/{r.resource}" + r.path, r.namespace, r.name) for r in found]


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", f"{DEPLOYMENTS}/front", ("get", "apps/deployments", "own", "")),
        ("HEAD", f"{DEPLOYMENTS}/fixed", ("get", "apps/deployments", "own", "fixed")),
        ("GET", DEPLOYMENTS, ("list", "apps/deployments", "own", "")),
        ("POST", DEPLOYMENTS, ("create", "apps/deployments", "own", "")),
        ("PUT", f"{DEPLOYMENTS}/front-2", ("update", "apps/deployments", "own", "")),
        ("PATCH", f"{DEPLOYMENTS}/a/scale", ("patch", "apps/deployments/scale", "own", "a")),
        ("DELETE", f"{DEPLOYMENTS}/a", ("delete", "apps/deployments", "own", "a")),
        ("DELETE", DEPLOYMENTS, ("deletecollection", "apps/deployments", "own", "")),
        ("GET", "/apis/apps/v1/deployments", ("list", "apps/deployments", "", "")),
        ("GET", "/api/v1/namespaces/kube-system", ("get", "/namespaces", "", "kube-system")),
        ("GET", "/api/v1/namespaces/x/secrets/s", ("get", "/secrets", "x", "s")),
        ("GET", "/api/v1/namespaces/front-tools/secrets/s", ("get", "/secrets", "*", "s")),
        ("GET", "/api/v1/namespaces/tools-front/secrets/s", ("get", "/secrets", "*", "s")),
        ("GET", "/api/v1/namespaces/fronts/secrets/s", ("get", "/secrets", "fronts", "s")),
        ("GET", "/api/v1/watch/namespaces/x/pods", ("watch", "/pods", "x", "")),
        ("POST", "/api/v1/namespaces/x/pods/p/exec", ("create", "/pods/exec", "x", "p")),
        ("POST", "/api/v1/namespaces/x/pods/p/eviction", ("create", "/pods/eviction", "x", "p")),
        ("GET", "/metrics", ("get", "//metrics", "", "")),
    ],
)
def test_verbs_are_the_api_servers(
    method: str, path: str, expected: tuple[str, str, str, str]
) -> None:
    """The namespace of the run's resource is `own`; names made of the resource's are left out."""
    assert rights(method, path) == [expected]


def test_a_watch_is_one_by_its_query() -> None:
    """With a name it stays a get, as the API server has it."""
    assert rights("GET", DEPLOYMENTS, watch=True)[0][0] == "watch"
    assert rights("GET", f"{DEPLOYMENTS}/a", watch=True)[0][0] == "get"


@pytest.mark.parametrize("subresource", ["exec", "attach", "portforward"])
def test_websockets_need_create_too(subresource: str) -> None:
    """They begin with a GET, and newer API servers also check create."""
    found = rights("GET", f"/api/v1/namespaces/team/pods/p/{subresource}")
    assert [(verb, name) for verb, _, _, name in found] == [("get", "p"), ("create", "p")]


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_write_that_made_the_object_needs_create(method: str) -> None:
    """Server-side apply creates missing objects; a name cannot restrict that."""
    assert [one[0] for one in rights(method, f"{DEPLOYMENTS}/a", status=200)] != ["create"]
    made = rights(method, f"{DEPLOYMENTS}/a", status=201)
    assert made[1] == ("create", "apps/deployments", "own", "")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/apis"),
        ("GET", "/api/v1"),
        ("GET", "/apis/apps/v1"),
        ("GET", "/version/"),
        ("GET", "/openapi/v3"),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    ],
)
def test_public_requests_need_no_permission(method: str, path: str) -> None:
    """Discovery and questions about oneself are granted to every account."""
    assert rights(method, path) == []


def test_granting_permissions_requires_them() -> None:
    """Each rule of a role that is written; an aggregated one may get any."""
    info = RequestInfo.parse(f"{RBAC}/namespaces/team/roles")
    assert info is not None
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
    permission = [
        Permission(WEB.by, "", "pods", "own", verb, role="roles/*-reader")
        for verb in ("get", "list")
    ]
    body = {"metadata": {"name": f"{WEB.name}-reader"}, "rules": [rule]}
    assert list(permissions_in_body(info, body, WEB)) == permission
    every = permissions_in_body(info, {"metadata": {}, "aggregationRule": {"a": 1}}, WEB)
    assert [(one.verb, one.group, one.resource, one.path, one.role) for one in every] == [
        ("*", "", "", "*", "roles/"),
        ("*", "*", "*", "", "roles/"),
    ]


@pytest.mark.parametrize(("kind", "resource"), [("Role", "roles"), ("ClusterRole", "clusterroles")])
def test_binding_a_role_requires_bind(kind: str, resource: str) -> None:
    """Of that one role, by its name, in the namespace of the binding."""
    info = RequestInfo.parse(f"{RBAC}/namespaces/team/rolebindings/b")
    assert info is not None
    for name, recorded in (("view", "view"), (f"{WEB.name}-reader", "*-reader")):
        (bind,) = permissions_in_body(info, {"roleRef": {"kind": kind, "name": name}}, WEB)
        assert bind == Permission(
            WEB.by, "rbac.authorization.k8s.io", resource, "own", "bind", recorded
        )


@pytest.mark.parametrize("body", [{"kind": "DeleteOptions"}, {"subjects": []}])
def test_a_deletion_or_new_subjects_need_bind_of_no_other_role(body: dict[str, Any]) -> None:
    """Permission to bind any role would be that of an administrator."""
    info = RequestInfo.parse(f"{RBAC}/clusterrolebindings/b")
    assert info is not None
    assert list(permissions_in_body(info, body, WEB)) == []


def test_other_writes_grant_nothing() -> None:
    """A ConfigMap may hold rules as it likes."""
    info = RequestInfo.parse("/api/v1/namespaces/team/configmaps")
    assert info is not None
    assert list(permissions_in_body(info, {"rules": [{"verbs": ["*"]}]}, WEB)) == []


@pytest.mark.parametrize(("blocks", "expected"), [(True, [GVK("a.b", "v1", "C")]), (False, [])])
def test_blocking_owner_references_need_permission(blocks: bool, expected: list[GVK]) -> None:
    """Only references that block the owner's deletion count."""
    reference: dict[str, Any] = {"apiVersion": "a.b/v1", "kind": "C", "blockOwnerDeletion": blocks}
    assert (
        list(owners_with_blocked_deletion({"metadata": {"ownerReferences": [reference]}}))
        == expected
    )
    assert list(owners_with_blocked_deletion({"kind": "Status"})) == []


def test_impersonated_subjects_need_permission() -> None:
    """Users are cluster-scoped, ServiceAccounts live in a namespace."""
    (user,) = impersonation_permissions({"Impersonate-User": "ann"}, "K")
    assert (user.verb, user.resource, user.name) == ("impersonate", "users", "ann")
    (account,) = impersonation_permissions({"Impersonate-User": "system:serviceaccount:x:bot"}, "K")
    assert (account.resource, account.namespace, account.name) == ("serviceaccounts", "x", "bot")
    assert list(impersonation_permissions({}, "K")) == []
