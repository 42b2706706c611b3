"""Parse request paths of the Kubernetes API, without discovery, and their permissions. Pure.

The grammar is that of the API server: `/api/v1/...` or `/apis/GROUP/VERSION/...`, an optional
`namespaces/NAMESPACE`, then `RESOURCE[/NAME[/SUBRESOURCE...]]`. The verbs are those that its
authorizer checks. Permissions that every authenticated account has (discovery, reviews of itself)
are left out.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, unquote

from operator_runner.core.model import GVK, Json

_OF_NAMESPACES = frozenset({"status", "finalize"})
"""Subresources of a Namespace; any other part after its name is a resource in it."""
_GROUPED = 3
"""Parts that name a group version: `apis`, group and version."""
_PROXIED = frozenset({"nodes", "pods", "services"})
_SCHEMES = frozenset({"", "http", "https"})
"""Before the name of an object with the subresource `proxy`."""
_INCOMPLETE_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_MAX_PARAMETERS = 1000
"""Go ignores the whole query beyond 10,000."""
READS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods of requests that change nothing, unless they act on a Pod or are upgraded."""


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """The parts of a path; `name` is empty for a collection, `subresource` for the object.

    `namespace` is that of the object: empty for cluster-scoped ones, Namespaces included.
    `watch` is true for the old `/api/v1/watch/...` form alone.
    """

    group: str
    version: str
    namespace: str
    resource: str
    name: str = ""
    subresource: str = ""
    watch: bool = False

    @classmethod
    def parse(cls, path: str) -> RequestInfo | None:
        """Parse a path (percent-encoded, without query); None if it is not of a resource."""
        # Decoded first, as in Go: an encoded slash is a separator.
        parts = unquote(path).strip("/").split("/")
        if parts[0] == "api" and len(parts) > 2:  # noqa: PLR2004 api, version, resource
            group, version, parts = "", parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) > _GROUPED:
            group, version, parts = parts[1], parts[2], parts[3:]
        else:
            return None
        watch = parts[0] == "watch" and len(parts) > 1
        namespace, parts = _split_namespace(parts[1:] if watch else parts)
        resource, name, *rest = [*parts, ""]
        subresource = rest[0] if rest else ""
        return cls(group, version, namespace, resource, name, subresource, watch)

    @property
    def plural(self) -> str:
        """Return the resource with its group, such as `deployments.apps`, for messages."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    @property
    def collection_path(self) -> str:
        """Return the path of the collection, percent-encoded."""
        parts = [f"/apis/{_quote(self.group)}" if self.group else "/api", _quote(self.version)]
        if self.namespace:
            parts += ["namespaces", _quote(self.namespace)]
        return "/".join([*parts, _quote(self.resource)])

    @property
    def object_path(self) -> str:
        """Return the path of the object, without a subresource, percent-encoded."""
        return f"{self.collection_path}/{_quote(self.name)}"

    @property
    def target(self) -> RequestInfo:
        """Return the request with the name of the object, without the port of `proxy`.

        The API server takes NAME, NAME:PORT and SCHEME:NAME:PORT there.
        """
        is_proxied = not self.group and self.resource in _PROXIED and self.subresource == "proxy"
        match self.name.split(":") if is_proxied else ():
            case [name, _] if name:
                return replace(self, name=name)
            case [scheme, name, _] if name and scheme in _SCHEMES:
                return replace(self, name=name)
        return self

    @property
    def template(self) -> str:
        """Return the path with `{namespace}` and `{name}` in place of both, not encoded."""
        parts = [f"/apis/{self.group}" if self.group else "/api", self.version]
        if self.namespace:
            parts += ["namespaces", "{namespace}"]
        parts.append(self.resource)
        if self.name:
            parts.append("{name}")
        return "/".join([*parts, self.subresource] if self.subresource else parts)

    def log_fields(self, path: str, *, watch: bool) -> dict[str, str | bool]:
        """Return the fields of a read of this path as in ansible-operator's log."""
        verb = "watch" if watch or self.watch else "get" if self.name else "list"
        return {
            "IsResourceRequest": True,
            "Path": path,
            "Verb": verb,
            "APIPrefix": "apis" if self.group else "api",
            "APIGroup": self.group,
            "APIVersion": self.version,
            "Namespace": self.namespace,
            "Resource": self.resource,
            "Subresource": self.subresource,
            "Name": self.name,
        }


def ambiguity(target: str) -> str:
    """Return what the API server reads differently in a path with query, empty if nothing is.

    Go drops a parameter that it cannot decode without an error: a deletecollection would lose its
    selector, and a write its time limit. A fragment is not sent at all.
    """
    path, _, query = target.partition("?")
    # The query of `services/NAME/proxy` is one of the application, which may use semicolons.
    info = RequestInfo.parse(path)
    is_read_here = info is None or info.subresource != "proxy"
    if "#" in target:
        return "a fragment: write # as %23"
    if is_read_here and ";" in query:
        return "a semicolon in the query: write ; as %3B, and & between parameters"
    if is_read_here and _INCOMPLETE_ESCAPE.search(query):
        return "an incomplete escape in the query: write % as %25"
    if query.count("&") >= _MAX_PARAMETERS:
        return f"a query of more than {_MAX_PARAMETERS} parameters"
    return ""


def _quote(part: str) -> str:
    return quote(part, safe=":")


def _split_namespace(parts: list[str]) -> tuple[str, list[str]]:
    inside = len(parts) > 2 and parts[0] == "namespaces"  # noqa: PLR2004 namespaces, its name, what
    if inside and parts[2] not in _OF_NAMESPACES:
        return parts[1], parts[2:]
    return "", parts


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


def permissions_for_request(
    method: str, path: str, subject: Subject, *, watch: bool = False, status: int = 200
) -> Iterator[Permission]:
    """Yield the permissions that a request itself needs, without those every account has.

    `path` has no query, `watch` is that of the query, and `status` that of the response.
    """
    info = RequestInfo.parse(path)
    if info is None:
        if path.strip("/").split("/")[0] not in _FREE_PATHS:
            yield Permission(subject.by, "", "", "", method.lower(), path=path)
        return
    if (info.group, info.resource) in _FREE:
        return
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    verb = _verb(method, info, watch=watch)
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
    if status == _CREATED and verb in {"update", "patch"}:
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


def _verb(method: str, info: RequestInfo, *, watch: bool) -> str:
    if info.watch:
        return "watch"
    if method == "DELETE":
        return "delete" if info.name else "deletecollection"
    if method in _METHODS:
        return _METHODS[method]
    if info.name:
        return "get"
    return "watch" if watch else "list"


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
