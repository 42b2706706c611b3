"""Single RBAC permissions, which can be compared with each other. Pure.

Kinds are mapped to resources without a cluster: by the project's CRDs, or by Kubernetes' defaults.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from operator_runner.core.errors import ConfigError
from operator_runner.core.model import GVK, Json
from operator_runner.core.object_names import plural_of

CLUSTER_WIDE, OWN_NAMESPACE = "", "@operator"
"""Special scopes: the whole cluster, and the operator's own namespace."""
MANAGER = "manager-role"
"""Name of the operator's role."""


@dataclass(frozen=True, slots=True, order=True)
class AccessRule:
    """One verb on one resource, or on one non-resource `path`.

    `resource` includes the subresource: `pods/exec`. `scope` is CLUSTER_WIDE, OWN_NAMESPACE or the
    name of a namespace. An empty `name` matches all names.
    """

    group: str
    resource: str
    verb: str
    scope: str = CLUSTER_WIDE
    name: str = ""
    path: str = ""

    def covers(self, other: AccessRule) -> bool:
        """Return whether this rule includes `other`; both may have wildcards."""
        if self.path or other.path:
            return _fits(self.verb, other.verb) and _fits_path(self.path, other.path)
        return (
            _fits(self.verb, other.verb)
            and _fits(self.group, other.group)
            and _fits_resource(self.resource, other.resource)
            and self.scope in {CLUSTER_WIDE, other.scope}
            and self.name in {"", other.name}
        )

    def __str__(self) -> str:
        """Return a text such as `create deployments.apps in namespace shop`."""
        if self.path:
            return f"{self.verb} {self.path}"
        plural, slash, subresource = self.resource.partition("/")
        what = f"{plural}.{self.group}" if self.group else plural
        named = f" named {self.name}" if self.name else ""
        return f"{self.verb} {what}{slash}{subresource}{named}{_where(self.scope)}"


@dataclass(frozen=True, slots=True)
class Requirement:
    """A required rule, its reason, and the name of the role that grants it.

    The rules of `instead`, if any, suffice together in its place.
    """

    rule: AccessRule
    reason: str
    role: str = MANAGER
    instead: tuple[AccessRule, ...] = ()

    def is_met(self, granted: Collection[AccessRule]) -> bool:
        """Return whether these rules suffice."""
        return any(one.covers(self.rule) for one in granted) or self.has_substitute(granted)

    def has_substitute(self, granted: Collection[AccessRule]) -> bool:
        """Return whether these rules include those of `instead`."""
        return bool(self.instead) and all(
            any(one.covers(rule) for one in granted if one != self.rule) for rule in self.instead
        )


def minimal(requirements: Iterable[Requirement]) -> list[Requirement]:
    """Return the requirements, sorted, without those that others make superfluous.

    Requirements of equal rules are all kept, each with its reason.
    """
    kept = sorted(
        set(requirements),
        key=lambda requirement: (requirement.rule, requirement.role, requirement.reason),
    )
    # With `escalate`, which some rules need, others need not be held; `bind` is judged by the rest.
    for binds in (False, True):
        granted = {one.rule for one in kept if not (one.instead and one.rule.verb == "bind")}
        kept = [
            one
            for one in kept
            if (one.rule.verb == "bind") is not binds or not one.has_substitute(granted)
        ]
    rights = {requirement.rule for requirement in kept}
    return [
        requirement
        for requirement in kept
        if not any(one != requirement.rule and one.covers(requirement.rule) for one in rights)
    ]


def without_names(requirements: Sequence[Requirement]) -> list[Requirement]:
    """Return the requirements with rules for all names of resources, but of roles that are bound.

    The rule of the name suffices too. Who may bind any role is an administrator.
    """
    return [
        requirement
        if requirement.rule.verb == "bind" or not requirement.rule.name
        else replace(
            requirement, rule=replace(requirement.rule, name=""), instead=(requirement.rule,)
        )
        for requirement in requirements
    ]


def _fits(granted: str, required: str) -> bool:
    return granted in {"*", required}


def _fits_resource(granted: str, required: str) -> bool:
    parent, slash, _ = granted.partition("/")
    if slash and parent == "*":
        return granted.partition("/")[2] == required.partition("/")[2]
    return _fits(granted, required)


def _fits_path(granted: str, required: str) -> bool:
    if granted.endswith("*"):
        return required != "" and required.startswith(granted[:-1])
    return granted == required


def _where(scope: str) -> str:
    if scope == CLUSTER_WIDE:
        return ""
    return " in the operator's namespace" if scope == OWN_NAMESPACE else f" in namespace {scope}"


_CLUSTER_SCOPED = frozenset(
    {
        *("APIService", "CSIDriver", "CSINode", "CertificateSigningRequest", "ClusterRole"),
        *("ClusterRoleBinding", "ComponentStatus", "CustomResourceDefinition", "FlowSchema"),
        *("IngressClass", "MutatingWebhookConfiguration", "Namespace", "Node", "PersistentVolume"),
        *("PriorityClass", "PriorityLevelConfiguration", "RuntimeClass", "StorageClass"),
        *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
        *("ValidatingWebhookConfiguration", "VolumeAttachment"),
    }
)
"""Cluster-scoped kinds that are built into Kubernetes; the other built-in kinds are namespaced."""


@dataclass(frozen=True, slots=True)
class PluralName:
    """The plural of a kind in paths and rules, and whether it is namespaced."""

    name: str
    namespaced: bool


class KindTable:
    """Resources of kinds that CRDs define, and of built-in kinds."""

    def __init__(self, documents: Iterable[Json]) -> None:
        """Read the CRDs among manifests."""
        self._known: Mapping[tuple[str, str], PluralName] = dict(_defined(documents))

    def plural(self, gvk: GVK) -> PluralName:
        """Return the resource of a kind. Raises ConfigError if its CRD is missing."""
        known = self._known.get((gvk.group, gvk.kind))
        if known is not None:
            return known
        if "." in gvk.group and not gvk.group.endswith(".k8s.io"):
            raise ConfigError(
                f"{gvk.kind} of {gvk.api_version}: no CRD found, so its plural is unknown; name the"
                " CRD's file with --crds"
            )
        return PluralName(plural_of(gvk.kind), gvk.kind not in _CLUSTER_SCOPED)


def _defined(documents: Iterable[Json]) -> Iterable[tuple[tuple[str, str], PluralName]]:
    for body in documents:
        spec: Any = body.get("spec") or {}
        # A patch of a CRD, which kustomize merges into it, has no names.
        if body.get("kind") == "CustomResourceDefinition" and "names" in spec:
            plural = PluralName(spec["names"]["plural"], spec["scope"] == "Namespaced")
            yield (spec["group"], spec["names"]["kind"]), plural
