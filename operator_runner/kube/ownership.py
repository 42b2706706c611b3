"""Whose an object is: what a write gets added so that it belongs to the run's owner. Pure.

An owner reference lets the garbage collector clean up, but works only from a cluster-scoped
owner or within one namespace. Elsewhere two annotations name the owner, as ansible-operator
has them: the object is known as a dependent then, and removing it is the role's task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from operator_runner.kube.requestinfo import RequestInfo
from operator_runner.model import GVK, Json, ObjectRef

PRIMARY = "operator-sdk/primary-resource"
PRIMARY_TYPE = "operator-sdk/primary-resource-type"

_NEVER_STORED = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
"""Groups of questions (TokenReview, SubjectAccessReview): refused if they carry metadata."""

_NOT_OWNED = frozenset(
    {
        ("", "bindings"),
        # Events expire by themselves: as dependents they would wake their owner for nothing,
        # and as children they would vanish with it, the last words included.
        ("", "events"),
        ("events.k8s.io", "events"),
        # OpenShift: answered, or turned into other objects, but never stored.
        ("authorization.openshift.io", "localresourceaccessreviews"),
        ("authorization.openshift.io", "localsubjectaccessreviews"),
        ("authorization.openshift.io", "resourceaccessreviews"),
        ("authorization.openshift.io", "selfsubjectrulesreviews"),
        ("authorization.openshift.io", "subjectaccessreviews"),
        ("authorization.openshift.io", "subjectrulesreviews"),
        ("image.openshift.io", "imagestreamimports"),
        ("image.openshift.io", "imagestreammappings"),
        ("project.openshift.io", "projectrequests"),
        ("security.openshift.io", "podsecuritypolicyreviews"),
        ("security.openshift.io", "podsecuritypolicyselfsubjectreviews"),
        ("security.openshift.io", "podsecuritypolicysubjectreviews"),
        ("template.openshift.io", "processedtemplates"),
    }
)
"""Group and resource of what is created but owned by nobody."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The resource that a run works for."""

    ref: ObjectRef
    uid: str

    @classmethod
    def of(cls, body: Json) -> Owner:
        """Take an object as the API gives it."""
        return cls(ObjectRef.of(body), body["metadata"]["uid"])

    @property
    def reference(self) -> dict[str, str]:
        """The owner reference, neither controller nor blocking the owner's deletion."""
        ref = self.ref
        return {
            "apiVersion": ref.gvk.api_version,
            "kind": ref.gvk.kind,
            "name": ref.name,
            "uid": self.uid,
        }

    @property
    def annotations(self) -> dict[str, str]:
        """The two annotations for objects that an owner reference cannot reach."""
        gvk = self.ref.gvk
        return {
            PRIMARY: f"{self.ref.namespace}/{self.ref.name}",
            PRIMARY_TYPE: f"{gvk.kind}.{gvk.group}" if gvk.group else gvk.kind,
        }


@dataclass(frozen=True, slots=True)
class Claim:
    """What an object's metadata lacks to be the owner's; empty if it lacks nothing."""

    reference: dict[str, str] | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there is anything to add."""
        return bool(self.reference or self.annotations)


def can_be_owned(info: RequestInfo) -> bool:
    """Whether writing this resource makes an object that can have an owner."""
    return (
        not info.subresource
        and info.group not in _NEVER_STORED
        and (info.group, info.resource) not in _NOT_OWNED
    )


def claim(owner: Owner, info: RequestInfo, body: Json) -> Claim:
    """Return what to add to an object that is created, replaced or applied at `info`.

    `body` is the object as sent; kind and names may be missing. What it says itself stays:
    other owners' references, and annotations that name another owner.
    """
    metadata = _mapping(body.get("metadata"))
    if _is_list(body) or _is_owner(owner, info, body, metadata):
        return Claim()
    if owner.ref.namespace in {"", info.namespace}:
        owned = any(uid == owner.uid for uid in _owner_uids(metadata))
        return Claim() if owned else Claim(reference=owner.reference)
    if PRIMARY in _mapping(metadata.get("annotations")):
        return Claim()
    return Claim(annotations=owner.annotations)


def is_owned(owner: Owner, metadata: Json) -> bool:
    """Whether an object's metadata names `owner`, by uid or by annotations."""
    if any(uid == owner.uid for uid in _owner_uids(metadata)):
        return True
    annotations = _mapping(metadata.get("annotations"))
    return all(annotations.get(key) == value for key, value in owner.annotations.items())


def _is_list(body: Json) -> bool:
    return str(body.get("kind", "")).endswith("List") and "items" in body


def _is_owner(owner: Owner, info: RequestInfo, body: Json, metadata: Mapping[str, Any]) -> bool:
    if metadata.get("uid") == owner.uid:
        return True
    ref = owner.ref
    kind = GVK.of(str(body.get("apiVersion", "")), str(body.get("kind", "")))
    where = (info.group, kind.kind, info.namespace, info.name or metadata.get("name"))
    return where == (ref.gvk.group, ref.gvk.kind, ref.namespace, ref.name)


def _owner_uids(metadata: Mapping[str, Any]) -> list[Any]:
    references = metadata.get("ownerReferences")
    if not isinstance(references, list):
        return []
    return [_mapping(reference).get("uid") for reference in references]


def _mapping(value: Any) -> Mapping[str, Any]:
    """Clients send what they like; what is no object says nothing here."""
    return value if isinstance(value, dict) else {}
