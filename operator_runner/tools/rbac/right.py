"""A right as Kubernetes' RBAC has it, taken apart so that rights can be compared. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

EVERYWHERE, OPERATORS = "", "@operator"
"""Scopes that are no namespaces: the whole cluster, and the operator's own namespace."""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource, or on one `path` that is no resource.

    `resource` has its subresource: `pods/exec`. `scope` is EVERYWHERE, OPERATORS or the name of
    a namespace. An empty `name` stands for any.
    """

    group: str
    resource: str
    verb: str
    scope: str = EVERYWHERE
    name: str = ""
    path: str = ""

    def covers(self, other: Right) -> bool:
        """Whether who has this right needs no `other`; both may have wildcards."""
        if self.path or other.path:
            return _fits(self.verb, other.verb) and _fits_path(self.path, other.path)
        return (
            _fits(self.verb, other.verb)
            and _fits(self.group, other.group)
            and _fits_resource(self.resource, other.resource)
            and self.scope in {EVERYWHERE, other.scope}
            and self.name in {"", other.name}
        )

    def __str__(self) -> str:
        """`create deployments.apps in namespace shop`, for people."""
        if self.path:
            return f"{self.verb} {self.path}"
        plural, slash, subresource = self.resource.partition("/")
        what = f"{plural}.{self.group}" if self.group else plural
        called = f" called {self.name}" if self.name else ""
        return f"{self.verb} {what}{slash}{subresource}{called}{_where(self.scope)}"


@dataclass(frozen=True, slots=True)
class Need:
    """A right, why it is needed, and the name of the role that is to have it."""

    right: Right
    reason: str
    role: str = "manager-role"


def smallest(needs: Iterable[Need]) -> list[Need]:
    """Return the needs, sorted, without those that another one covers.

    Needs of the same right stay beside each other, each with its reason.
    """
    distinct = sorted(set(needs), key=lambda need: (need.right, need.role, need.reason))
    rights = {need.right for need in distinct}
    return [
        need
        for need in distinct
        if not any(one != need.right and one.covers(need.right) for one in rights)
    ]


def without_names(needs: Sequence[Need]) -> list[Need]:
    """Return the needs for any name: what resources are called is no matter of the rules."""
    return [replace(need, right=replace(need.right, name="")) for need in needs]


def _fits(granted: str, asked: str) -> bool:
    return granted in {"*", asked}


def _fits_resource(granted: str, asked: str) -> bool:
    parent, slash, _ = granted.partition("/")
    if slash and parent == "*":
        return granted.partition("/")[2] == asked.partition("/")[2]
    return _fits(granted, asked)


def _fits_path(granted: str, asked: str) -> bool:
    if granted.endswith("*"):
        return asked.startswith(granted[:-1])
    return granted == asked


def _where(scope: str) -> str:
    if scope == EVERYWHERE:
        return ""
    return " in the operator's namespace" if scope == OPERATORS else f" in namespace {scope}"
