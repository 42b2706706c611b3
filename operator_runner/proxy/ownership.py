"""Ownership of objects, and the metadata that a write needs to set or keep it. Pure.

The owner is set when an object is created; an object that exists keeps its owners.

With an owner reference the garbage collector deletes the object, but the owner must be
cluster-scoped or in the same namespace. Otherwise two annotations name the owner, those of
ansible-operator: the object is a dependent, and the role has to delete it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.proxy.request_info import RequestInfo

PRIMARY_ANNOTATION = "operator-sdk/primary-resource"
PRIMARY_TYPE_ANNOTATION = "operator-sdk/primary-resource-type"
_ANNOTATIONS = (PRIMARY_ANNOTATION, PRIMARY_TYPE_ANNOTATION)
ABSENT_RESOURCE_VERSION = "1"
"""A resourceVersion that no object has: a write with it creates an object or gets a conflict."""

_NEVER_STORED = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
"""Groups of reviews (TokenReview, SubjectAccessReview): invalid with owner metadata."""

_NOT_OWNED = frozenset(
    {
        ("", "bindings"),
        # Events expire by themselves. With an owner, each one would trigger a reconcile, and
        # they would be deleted with the owner.
        ("", "events"),
        ("events.k8s.io", "events"),
        # OpenShift: virtual resources, which are never stored.
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
"""Groups and resources of objects that get no owner when they are created."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The resource that a run reconciles."""

    ref: ObjectRef
    uid: str

    @classmethod
    def of(cls, body: Json) -> Owner:
        """Return the owner for an object of the API."""
        return cls(ObjectRef.of(body), body["metadata"]["uid"])

    @property
    def reference(self) -> dict[str, str]:
        """Return the owner reference, without `controller` and `blockOwnerDeletion`."""
        ref = self.ref
        return {
            "apiVersion": ref.gvk.api_version,
            "kind": ref.gvk.kind,
            "name": ref.name,
            "uid": self.uid,
        }

    @property
    def annotations(self) -> dict[str, str]:
        """Return the two annotations for objects that cannot have an owner reference."""
        return {
            PRIMARY_ANNOTATION: f"{self.ref.namespace}/{self.ref.name}",
            PRIMARY_TYPE_ANNOTATION: self.ref.gvk.kind_and_group,
        }

    def is_named_by(self, reference: Mapping[str, Any]) -> bool:
        """Return whether an owner reference names this owner, in any version of its kind.

        The uid alone is not enough: the garbage collector compares kind and name as well.
        """
        return reference.get("uid") == self.uid and self.has_name_in(reference)

    def has_name_in(self, reference: Mapping[str, Any]) -> bool:
        """Return whether an owner reference has this owner's kind and name, with any uid."""
        gvk = GVK.of(str(reference.get("apiVersion", "")), str(reference.get("kind", "")))
        own = self.ref.gvk
        return (gvk.group, gvk.kind, reference.get("name")) == (own.group, own.kind, self.ref.name)

    def can_be_referenced_from(self, info: RequestInfo) -> bool:
        """Return whether the object at `info` can have an owner reference to this owner."""
        return self.ref.namespace in {"", info.namespace}


@dataclass(frozen=True, slots=True)
class MetadataPatch:
    """Changes to the metadata of a body before it is sent; false if it is unchanged.

    `references` replaces the owner references; None keeps those of the body. `uid` and
    `resource_version` are preconditions; those of the body take precedence. `labels` are set, or
    removed where the value is None.
    """

    references: tuple[Mapping[str, Any], ...] | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether there is anything to change."""
        changes = self.annotations, self.uid, self.resource_version, self.labels
        return self.references is not None or any(changes)


def can_be_owned(info: RequestInfo) -> bool:
    """Return whether writing this resource creates an object that can have an owner."""
    return not info.subresource and is_stored(info)


def is_stored(info: RequestInfo) -> bool:
    """Return whether objects of a resource are stored and can have owners, unlike reviews."""
    return info.group not in _NEVER_STORED and (info.group, info.resource) not in _NOT_OWNED


def patch_for_create(owner: Owner, info: RequestInfo, body: Json) -> MetadataPatch:
    """Return the patch for an object that is created at `info`.

    `body` is the object as sent; kind and names may be missing. References to other owners are
    kept. References to the owner itself are corrected: the spec of a resource may have set them.
    """
    metadata = _mapping(body.get("metadata"))
    if _is_owner(owner, info, body, metadata):
        return MetadataPatch()
    can_reference = owner.can_be_referenced_from(info)
    return MetadataPatch(
        _corrected(owner, metadata, append=can_reference, allow=can_reference),
        _own_annotations(owner, metadata, needed=not can_reference),
    )


def patch_for_record(owner: Owner, info: RequestInfo, body: Json) -> MetadataPatch:
    """Return the patch for a new object that belongs to the owner and outlives it."""
    metadata = _mapping(body.get("metadata"))
    allow = owner.can_be_referenced_from(info)
    return MetadataPatch(
        _corrected(owner, metadata, append=False, allow=allow),
        _own_annotations(owner, metadata, needed=True),
    )


def patch_for_update(
    owner: Owner, info: RequestInfo, body: Json, live: Json, manager: str | None = None
) -> MetadataPatch:
    """Return the patch for a body that replaces an existing object, so that its owners are kept.

    `live` is the metadata of the object. `manager` is the field manager of a server-side apply,
    None for a PUT. Owner references in the body are used as sent, except that the owner is kept.
    """
    if live.get("uid") == owner.uid:
        return MetadataPatch()
    metadata = _mapping(body.get("metadata"))
    ours, can_reference = is_owned(owner, live), owner.can_be_referenced_from(info)
    applied = None if manager is None else _applied(live, manager)
    if metadata.get("ownerReferences") is None:
        stay = tuple(
            one
            for one in _references(live)
            if applied is None or one.get("uid") in applied or (ours and owner.is_named_by(one))
        )
        references = stay or None
    else:
        append = ours and any(map(owner.is_named_by, _references(live)))
        references = _corrected(owner, metadata, append=append, allow=can_reference)
    given, stored = (_mapping(one.get("annotations")) for one in (metadata, live))
    annotations: dict[str, str] = {}
    for key in _ANNOTATIONS:
        if key in given:
            if ours and given[key] != owner.annotations[key]:
                annotations[key] = owner.annotations[key]
        elif key in stored and (applied is None or ours or key in applied):
            annotations[key] = stored[key]
    added = MetadataPatch(references, annotations)
    # With the uid as a precondition: an object of the same name may be created meanwhile.
    return MetadataPatch(references, annotations, uid=str(live.get("uid", ""))) if added else added


def is_owned(owner: Owner, metadata: Json) -> bool:
    """Return whether an object's metadata names `owner`, by reference or by annotations."""
    if any(map(owner.is_named_by, _references(metadata))):
        return True
    annotations = _mapping(metadata.get("annotations"))
    return all(annotations.get(key) == value for key, value in owner.annotations.items())


def is_tracked(owner: Owner, metadata: Json) -> bool:
    """Return whether a change of an object concerns `owner`: it owns it, or its predecessor did.

    A predecessor is a deleted resource of the same kind and name. The garbage collector will
    delete its objects, also those that a run of `owner` has found and kept (`ownership: ignore`).
    """
    if is_owned(owner, metadata):
        return True
    return has_former_owner(owner, metadata)


def has_former_owner(owner: Owner, metadata: Json) -> bool:
    """Return whether an object that `owner` does not own belonged to its predecessor."""
    is_in_reach = owner.ref.namespace in {"", metadata.get("namespace") or ""}
    return is_in_reach and any(map(owner.has_name_in, _references(metadata)))


def has_any_owner(metadata: Json) -> bool:
    """Return whether an object's metadata names any owner."""
    return bool(_references(metadata)) or PRIMARY_ANNOTATION in _mapping(
        metadata.get("annotations")
    )


def controller_of(metadata: Json) -> Mapping[str, Any] | None:
    """Return the reference to the controller of an object, None if there is no controller."""
    return next((one for one in _references(metadata) if one.get("controller") is True), None)


def uid_in(metadata: Json) -> str:
    """Return the uid in an object's metadata, empty without one, as in some aggregated APIs."""
    uid = metadata.get("uid")
    return uid if isinstance(uid, str) else ""


def describe_ownership(metadata: Json) -> str:
    """Return the owner of an object for messages: `is owned by StatefulSet db`, `has no owner`."""
    references = _references(metadata)
    if references:
        first = controller_of(metadata) or references[0]
        return f"is owned by {first.get('kind')} {first.get('name')}"
    annotations = _mapping(metadata.get("annotations"))
    if PRIMARY_ANNOTATION in annotations:
        kind, name = (
            _quoted(annotations.get(key)) for key in (PRIMARY_TYPE_ANNOTATION, PRIMARY_ANNOTATION)
        )
        return f"is owned by {kind} {name} (annotation {PRIMARY_ANNOTATION})"
    return "has no owner"


def _quoted(text: Any) -> str:
    return json.dumps(str(text)[:100])


def _corrected(
    owner: Owner, metadata: Mapping[str, Any], *, append: bool, allow: bool
) -> tuple[Mapping[str, Any], ...] | None:
    """Return the corrected owner references of a body, None if they are correct.

    References with the owner's uid but another kind or name are removed, and all with its uid
    unless `allow`; `append` adds the owner if it is missing.
    """
    given = metadata.get("ownerReferences")
    if given is None:
        given = []
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        return None  # the API server rejects it
    valid = [
        one for one in given if one.get("uid") != owner.uid or (allow and owner.is_named_by(one))
    ]
    if append and not any(map(owner.is_named_by, valid)):
        valid.append(owner.reference)
    return None if valid == given else tuple(valid)


def _own_annotations(
    owner: Owner, metadata: Mapping[str, Any], *, needed: bool
) -> Mapping[str, str]:
    """Return the annotations of the owner that are missing in a body, or have other values."""
    given = _mapping(metadata.get("annotations"))
    if not needed and not any(key in given for key in _ANNOTATIONS):
        return {}
    return {key: value for key, value in owner.annotations.items() if given.get(key) != value}


def _applied(live: Json, manager: str) -> frozenset[str]:
    """Return uids of owners and keys of annotations that a manager's last apply set."""
    found: set[str] = set()
    for entry in live.get("managedFields") or ():
        if entry.get("operation") == "Apply" and entry.get("manager") == manager:
            fields = _mapping(_mapping(entry.get("fieldsV1")).get("f:metadata"))
            found |= {
                json.loads(key[2:]).get("uid")
                for key in _mapping(fields.get("f:ownerReferences"))
                if key.startswith("k:")
            }
            found |= {key.removeprefix("f:") for key in _mapping(fields.get("f:annotations"))}
    return frozenset(found)


def _is_owner(owner: Owner, info: RequestInfo, body: Json, metadata: Mapping[str, Any]) -> bool:
    # Not by metadata.uid: the API server ignores the uid in the body of a POST, so a role could
    # use it to create objects without an owner.
    ref = owner.ref
    kind = GVK.of(str(body.get("apiVersion", "")), str(body.get("kind", "")))
    where = (info.group, kind.kind, info.namespace, info.name or metadata.get("name"))
    return where == (ref.gvk.group, ref.gvk.kind, ref.namespace, ref.name)


def _references(metadata: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    references = metadata.get("ownerReferences")
    if not isinstance(references, list):
        return []
    return [one for one in references if isinstance(one, dict)]


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return an empty mapping for anything else: clients may send invalid bodies."""
    return value if isinstance(value, dict) else {}
