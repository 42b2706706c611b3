"""What a request path of the Kubernetes API asks for. Pure; no discovery needed.

The grammar is that of the API server: `/api/v1/...` or `/apis/GROUP/VERSION/...`, an optional
`namespaces/NAMESPACE`, then `RESOURCE[/NAME[/SUBRESOURCE...]]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote

_OF_NAMESPACES = frozenset({"status", "finalize"})
"""Subresources of a Namespace; any other word after its name is a resource in it."""
_GROUPED = 3
"""Parts that name a group version: `apis`, group and version."""


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
        """Take a path (percent-encoded, without query) apart; None if it names no resource."""
        # Decoded first, as Go's path is: an encoded slash separates parts like any other.
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
        """The path of the collection, percent-encoded."""
        parts = [f"/apis/{_quote(self.group)}" if self.group else "/api", _quote(self.version)]
        if self.namespace:
            parts += ["namespaces", _quote(self.namespace)]
        return "/".join([*parts, _quote(self.resource)])

    @property
    def object_path(self) -> str:
        """The path of the object, without a subresource, percent-encoded."""
        return f"{self.collection_path}/{_quote(self.name)}"

    def told(self, path: str, *, watch: bool) -> dict[str, str | bool]:
        """Describe a read of this path in the words and the order of ansible-operator's log."""
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


def _quote(part: str) -> str:
    return quote(part, safe=":")


def _split_namespace(parts: list[str]) -> tuple[str, list[str]]:
    inside = len(parts) > 2 and parts[0] == "namespaces"  # noqa: PLR2004 namespaces, its name, what
    if inside and parts[2] not in _OF_NAMESPACES:
        return parts[1], parts[2:]
    return "", parts
