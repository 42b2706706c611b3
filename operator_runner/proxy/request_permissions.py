"""Which rights a request needs: what the API server will ask its authorizer. Pure.

The verbs are those of the API server's own rules. What every authenticated account may do
anyway (discovery, questions about itself) is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from operator_runner.core.model import GVK, Json
from operator_runner.proxy.request_info import RequestInfo

OWN, ANY = "own", "*"
"""Namespaces that are no names: that of the resource that a run works for, and whichever."""

_RBAC = "rbac.authorization.k8s.io"
_FREE_PATHS = ("api", "apis", "healthz", "livez", "openapi", "readyz", "version")
"""First parts of the paths that `system:discovery` lets every account read."""
_FREE = frozenset(
    {
        ("authentication.k8s.io", "selfsubjectreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
    }
)
"""Group and resource of what `system:basic-user` lets every account create."""
_METHODS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_SESSIONS = frozenset({"pods/exec", "pods/attach", "pods/portforward"})
_CREATED = 201
_RULE = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
"""Fields of a rule of a Role."""


@dataclass(frozen=True, slots=True, order=True)
class Asked:
    """One right that a request of a role needed.

    `by` is the kind that the run worked for, `Web.shop.example.com`; empty for programs beside
    the runs. `resource` has its subresource, `pods/exec`; where it is empty, `path` is a path
    that is no resource. `namespace` is a name, OWN, ANY, or empty: cluster-scoped, or all of
    them at once. An empty `name` stands for any.
    """

    by: str
    group: str
    resource: str
    namespace: str
    verb: str
    name: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Sender:
    """Whose request it is: `by` as in Asked, and namespace and name of the owner."""

    by: str = ""
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as far as it matters: `watch` is that of the query, `status` the answer's."""

    method: str
    path: str
    info: RequestInfo | None
    watch: bool
    status: int


def rights_for(sent: Sent, sender: Sender) -> Iterator[Asked]:
    """Yield the rights that the request itself needs; none for what everybody may do."""
    info = sent.info
    if info is None:
        if sent.path.strip("/").split("/")[0] not in _FREE_PATHS:
            yield Asked(sender.by, "", "", "", sent.method.lower(), path=sent.path)
        return
    if (info.group, info.resource) in _FREE:
        return
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    verb = _verb(sent, info)
    asked = Asked(
        sender.by,
        info.group,
        resource,
        _namespace(info.namespace, sender),
        verb,
        _name(info.name, sender),
    )
    yield asked
    if verb == "get" and resource in _SESSIONS:
        # Over a websocket these begin with a GET; newer API servers ask for create as well.
        yield replace(asked, verb="create")
    if sent.status == _CREATED and verb in {"update", "patch"}:
        yield replace(asked, verb="create", name="")


def rights_in(info: RequestInfo, body: Json, sender: Sender) -> Iterator[Asked]:
    """Yield the rights that the content of a write needs: nobody may grant what he has not got.

    A Role may be written by whoever has all of its rights, a binding by whoever may `bind` the
    role. Where a Role has wildcards, it is `escalate` that is asked for.
    """
    if info.group != _RBAC or info.subresource:
        return
    namespace = _namespace(info.namespace, sender)
    if info.resource in {"roles", "clusterroles"}:
        rules = [rule for rule in _list(body.get("rules")) if isinstance(rule, dict)]
        if any("*" in _list(rule.get(key)) for rule in rules for key in _RULE):
            yield Asked(sender.by, _RBAC, info.resource, namespace, "escalate")
            return
        for rule in rules:
            yield from _held(rule, sender.by, namespace)
    elif info.resource in {"rolebindings", "clusterrolebindings"}:
        role = _dict(body.get("roleRef"))
        resource = "roles" if role.get("kind") == "Role" else "clusterroles"
        where = namespace if resource == "roles" else ""
        name = _name(str(role.get("name") or ""), sender)
        yield Asked(sender.by, _RBAC, resource, where, "bind", name)


def blocked_owners(body: Json) -> Iterator[GVK]:
    """Yield the kinds of the owners whose deletion the object blocks.

    The admission plugin OwnerReferencesPermissionEnforcement asks for `update` of their
    `finalizers` then.
    """
    for each in _list(_dict(body.get("metadata")).get("ownerReferences")):
        reference = _dict(each)
        named = reference.get("apiVersion"), reference.get("kind")
        if reference.get("blockOwnerDeletion") and all(isinstance(text, str) for text in named):
            yield GVK.of(str(named[0]), str(named[1]))


def impersonation(headers: Mapping[str, str], by: str) -> Iterator[Asked]:
    """Yield the right to act as somebody else, as the headers of a request ask for it."""
    user = headers.get("Impersonate-User", "")
    if not user:
        return
    account = user.split(":")
    if user.startswith("system:serviceaccount:") and len(account) == 4:  # noqa: PLR2004
        yield Asked(by, "", "serviceaccounts", account[2], "impersonate", account[3])
    else:
        yield Asked(by, "", "users", "", "impersonate", user)


def _verb(sent: Sent, info: RequestInfo) -> str:
    if info.watch:
        return "watch"
    if sent.method == "DELETE":
        return "delete" if info.name else "deletecollection"
    if sent.method in _METHODS:
        return _METHODS[sent.method]
    if info.name:
        return "get"
    return "watch" if sent.watch else "list"


def _namespace(namespace: str, sender: Sender) -> str:
    return OWN if namespace and namespace == sender.namespace else namespace


def _name(name: str, sender: Sender) -> str:
    """Return a name that is the same for every resource, empty for one made of the owner's."""
    return "" if sender.name and sender.name in name else name


def _held(rule: Mapping[str, Any], by: str, namespace: str) -> Iterator[Asked]:
    verbs, groups, resources, names, paths = (_texts(rule.get(key)) for key in _RULE)
    for verb in verbs:
        for path in paths:
            yield Asked(by, "", "", "", verb, path=path)
        for group in groups:
            for resource in resources:
                for name in names or [""]:
                    yield Asked(by, group, resource, namespace, verb, name)


def _dict(value: Any) -> Mapping[str, Any]:
    """Clients send what they like; what has another shape says nothing here."""
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(value: Any) -> list[str]:
    return [each for each in _list(value) if isinstance(each, str)]
