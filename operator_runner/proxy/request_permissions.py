"""Permissions that a request needs: those that the API server's authorizer checks. Pure.

The verbs are those of the API server. Permissions that every authenticated account has
(discovery, reviews of itself) are left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from operator_runner.core.model import GVK, Json
from operator_runner.proxy.request_info import RequestInfo

OWN, ANY = "own", "*"
"""Values in place of a namespace: that of the run's owner, and any."""

RBAC = "rbac.authorization.k8s.io"
_FREE_PATHS = ("api", "apis", "healthz", "livez", "openapi", "readyz", "version")
"""First parts of the paths that `system:discovery` allows every account to read."""
_FREE = frozenset(
    {
        ("authentication.k8s.io", "selfsubjectreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
    }
)
"""Group and resource of what `system:basic-user` allows every account to create."""
_METHODS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_STREAMING = frozenset({"pods/exec", "pods/attach", "pods/portforward"})
_CREATED = 201
_RULE = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
"""Fields of a PolicyRule."""
_EVERYTHING = {key: ["*"] for key in ("verbs", "apiGroups", "resources", "nonResourceURLs")}
"""What the author of an aggregated ClusterRole must hold."""


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """One permission that a request of a role needed.

    `by` is the kind of the run's owner, `Web.shop.example.com`; empty for programs beside the
    runs. `resource` includes the subresource, `pods/exec`; if it is empty, `path` is a
    non-resource URL. `namespace` is a name, OWN, ANY, or empty: cluster-scoped, or all
    namespaces at once. An empty `name` means any. `role` is set for a rule of a role that the
    request writes: `roles/NAME` or `clusterroles/NAME`. In it, and in the name of a role that is
    bound, ANY stands for the name of the owner.
    """

    by: str
    group: str
    resource: str
    namespace: str
    verb: str
    name: str = ""
    path: str = ""
    role: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """The sender of a request: `by` as in Permission, namespace and name of the owner."""

    by: str = ""
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class RequestAttributes:
    """A request: `watch` is that of the query, `status` that of the response."""

    method: str
    path: str
    info: RequestInfo | None
    watch: bool
    status: int


def permissions_for_request(
    attributes: RequestAttributes, subject: Subject
) -> Iterator[Permission]:
    """Yield the permissions that the request itself needs, without those every account has."""
    info = attributes.info
    if info is None:
        if attributes.path.strip("/").split("/")[0] not in _FREE_PATHS:
            yield Permission(
                subject.by, "", "", "", attributes.method.lower(), path=attributes.path
            )
        return
    if (info.group, info.resource) in _FREE:
        return
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    verb = _verb(attributes, info)
    permission = Permission(
        subject.by,
        info.group,
        resource,
        _namespace(info.namespace, subject),
        verb,
        _name(info.name, subject),
    )
    yield permission
    if verb == "get" and resource in _STREAMING:
        # Over a websocket these start with a GET; newer API servers require create as well.
        yield replace(permission, verb="create")
    if attributes.status == _CREATED and verb in {"update", "patch"}:
        yield replace(permission, verb="create", name="")


def permissions_in_body(info: RequestInfo, body: Json, subject: Subject) -> Iterator[Permission]:
    """Yield the permissions that the content of a write needs (privilege escalation prevention).

    Writing a Role needs all permissions that it grants or `escalate`, a binding needs those of
    its role or `bind`.
    """
    if info.group != RBAC or info.subresource:
        return
    namespace = _namespace(info.namespace, subject)
    if info.resource in {"roles", "clusterroles"}:
        name = info.name or str(_dict(body.get("metadata")).get("name") or "")
        written = Permission(
            subject.by, "", "", namespace, "", role=f"{info.resource}/{_pattern(name, subject)}"
        )
        aggregated = [_EVERYTHING] if body.get("aggregationRule") else []
        for rule in (*_list(body.get("rules")), *aggregated):
            yield from _held(_dict(rule), written, subject)
    elif info.resource in {"rolebindings", "clusterrolebindings"}:
        role = _dict(body.get("roleRef"))
        if not role:
            # A deletion, or a patch that keeps the role: the creation has recorded it.
            return
        resource = "roles" if role.get("kind") == "Role" else "clusterroles"
        name = _pattern(str(role.get("name") or ""), subject)
        yield Permission(subject.by, RBAC, resource, namespace, "bind", name)


def owners_with_blocked_deletion(body: Json) -> Iterator[GVK]:
    """Yield the kinds of the owners whose deletion the object blocks.

    The admission plugin OwnerReferencesPermissionEnforcement requires `update` of their
    `finalizers`.
    """
    for each in _list(_dict(body.get("metadata")).get("ownerReferences")):
        reference = _dict(each)
        named = reference.get("apiVersion"), reference.get("kind")
        if reference.get("blockOwnerDeletion") and all(isinstance(text, str) for text in named):
            yield GVK.of(str(named[0]), str(named[1]))


def impersonation_permissions(headers: Mapping[str, str], by: str) -> Iterator[Permission]:
    """Yield the permission to impersonate that the headers of a request need."""
    user = headers.get("Impersonate-User", "")
    if not user:
        return
    account = user.split(":")
    if user.startswith("system:serviceaccount:") and len(account) == 4:  # noqa: PLR2004
        yield Permission(by, "", "serviceaccounts", account[2], "impersonate", account[3])
    else:
        yield Permission(by, "", "users", "", "impersonate", user)


def _verb(attributes: RequestAttributes, info: RequestInfo) -> str:
    if info.watch:
        return "watch"
    if attributes.method == "DELETE":
        return "delete" if info.name else "deletecollection"
    if attributes.method in _METHODS:
        return _METHODS[attributes.method]
    if info.name:
        return "get"
    return "watch" if attributes.watch else "list"


def _namespace(namespace: str, subject: Subject) -> str:
    """Return OWN, the name, or ANY if the owner's is a word of it: it differs for each resource.

    A word, since ANY grants all namespaces: `default` is not the namespace of a resource `e`.
    """
    if namespace and namespace == subject.namespace:
        return OWN
    is_named_after_owner = subject.name and f"-{subject.name}-" in f"-{namespace}-"
    return ANY if is_named_after_owner else namespace


def _name(name: str, subject: Subject) -> str:
    """Return the name, empty if it contains the owner's and so differs for each resource."""
    return "" if subject.name and subject.name in name else name


def _pattern(name: str, subject: Subject) -> str:
    """Return the name of a role, with ANY in place of the owner's name."""
    return name.replace(subject.name, ANY) if subject.name else name


def _held(rule: Mapping[str, Any], role: Permission, subject: Subject) -> Iterator[Permission]:
    verbs, groups, resources, names, paths = (_texts(rule.get(key)) for key in _RULE)
    for verb in verbs:
        for path in paths:
            yield replace(role, namespace="", verb=verb, path=path)
        for group, resource, name in itertools.product(groups, resources, names or [""]):
            named = _name(name, subject)
            yield replace(role, group=group, resource=resource, verb=verb, name=named)


def _dict(value: Any) -> Mapping[str, Any]:
    """Return an empty mapping for anything else: clients may send invalid bodies."""
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(value: Any) -> list[str]:
    return [each for each in _list(value) if isinstance(each, str)]
