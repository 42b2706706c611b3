"""Parse request paths of the Kubernetes API, without discovery. Pure.

The grammar is that of the API server: `/api/v1/...` or `/apis/GROUP/VERSION/...`, an optional
`namespaces/NAMESPACE`, then `RESOURCE[/NAME[/SUBRESOURCE...]]`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote

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
