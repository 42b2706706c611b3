"""Whose an object is, and what a write gets added so that it stays so. Pure.

An owner comes with the creation of an object; one that exists keeps the owners that it has.

An owner reference lets the garbage collector clean up, but works only from a cluster-scoped
owner or within one namespace. Elsewhere two annotations name the owner, as ansible-operator
has them: the object is known as a dependent then, and removing it is the role's task.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.proxy.request_info import RequestInfo

PRIMARY = "operator-sdk/primary-resource"
PRIMARY_TYPE = "operator-sdk/primary-resource-type"
_ANNOTATIONS = (PRIMARY, PRIMARY_TYPE)
ABSENT = "1"
"""A resourceVersion that no object has: a write with it creates an object or is a conflict."""

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

    def is_named_by(self, reference: Mapping[str, Any]) -> bool:
        """Whether an owner reference names this owner, in whichever version of its kind.

        The uid alone is not enough: the garbage collector looks for kind and name as well.
        """
        gvk = GVK.of(str(reference.get("apiVersion", "")), str(reference.get("kind", "")))
        own = self.ref.gvk
        return (gvk.group, gvk.kind, reference.get("name"), reference.get("uid")) == (
            own.group,
            own.kind,
            self.ref.name,
            self.uid,
        )

    def reaches(self, info: RequestInfo) -> bool:
        """Whether an object there can have an owner reference to this owner."""
        return self.ref.namespace in {"", info.namespace}


@dataclass(frozen=True, slots=True)
class Claim:
    """What the metadata of a body gets before it is sent; empty if nothing.

    `references` are all owner references that it is to have; None leaves those that it has.
    `uid` and `resource_version` are preconditions; those that the body has itself stay.
    """

    references: tuple[Mapping[str, Any], ...] | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    uid: str = ""
    resource_version: str = ""

    def __bool__(self) -> bool:
        """Whether there is anything to change."""
        return bool(
            self.references is not None or self.annotations or self.uid or self.resource_version
        )


def can_be_owned(info: RequestInfo) -> bool:
    """Whether writing this resource makes an object that can have an owner."""
    return (
        not info.subresource
        and info.group not in _NEVER_STORED
        and (info.group, info.resource) not in _NOT_OWNED
    )


def claim(owner: Owner, info: RequestInfo, body: Json) -> Claim:
    """Return what to add to an object that is created at `info`.

    `body` is the object as sent; kind and names may be missing. References to others stay. What
    the body says of the owner itself is corrected: content of a resource may have led to it.
    """
    metadata = _mapping(body.get("metadata"))
    if _is_owner(owner, info, body, metadata):
        return Claim()
    reaches = owner.reaches(info)
    return Claim(
        _corrected(owner, metadata, append=reaches, allow=reaches),
        _own_annotations(owner, metadata, needed=not reaches),
    )


def mark(owner: Owner, info: RequestInfo, body: Json) -> Claim:
    """Return what to add to an object that is created for the owner and is to outlive it."""
    metadata = _mapping(body.get("metadata"))
    allow = owner.reaches(info)
    return Claim(
        _corrected(owner, metadata, append=False, allow=allow),
        _own_annotations(owner, metadata, needed=True),
    )


def keep(
    owner: Owner, info: RequestInfo, body: Json, live: Json, manager: str | None = None
) -> Claim:
    """Return what to add to a body that says all of an existing object, so that its owners stay.

    `live` is the metadata of the object. `manager` is the field manager of a server-side apply,
    None for a PUT. A list of owners in the body is the author's, but the owner stays in it.
    """
    if live.get("uid") == owner.uid:
        return Claim()
    metadata = _mapping(body.get("metadata"))
    ours, reaches = is_owned(owner, live), owner.reaches(info)
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
        references = _corrected(owner, metadata, append=append, allow=reaches)
    given, stored = (_mapping(one.get("annotations")) for one in (metadata, live))
    annotations: dict[str, str] = {}
    for key in _ANNOTATIONS:
        if key in given:
            if ours and given[key] != owner.annotations[key]:
                annotations[key] = owner.annotations[key]
        elif key in stored and (applied is None or ours or key in applied):
            annotations[key] = stored[key]
    added = Claim(references, annotations)
    # Of the object that was seen alone: one of the same name may be made meanwhile.
    return Claim(references, annotations, uid=str(live.get("uid", ""))) if added else added


def is_owned(owner: Owner, metadata: Json) -> bool:
    """Whether an object's metadata names `owner`, by reference or by annotations."""
    if any(map(owner.is_named_by, _references(metadata))):
        return True
    annotations = _mapping(metadata.get("annotations"))
    return all(annotations.get(key) == value for key, value in owner.annotations.items())


def has_owner(metadata: Json) -> bool:
    """Whether an object's metadata names any owner."""
    return bool(_references(metadata)) or PRIMARY in _mapping(metadata.get("annotations"))


def controller_of(metadata: Json) -> Mapping[str, Any] | None:
    """Return the reference to the controller of an object, None without."""
    return next((one for one in _references(metadata) if one.get("controller") is True), None)


def describe_owner(metadata: Json) -> str:
    """Return for people to whom an object belongs: `owned by StatefulSet db`, or without owner."""
    references = _references(metadata)
    if references:
        first = controller_of(metadata) or references[0]
        return f"owned by {first.get('kind')} {first.get('name')}"
    annotations = _mapping(metadata.get("annotations"))
    if PRIMARY in annotations:
        kind, name = (_quoted(annotations.get(key)) for key in (PRIMARY_TYPE, PRIMARY))
        return f"owned by {kind} {name} (annotation {PRIMARY})"
    return "without an owner"


def _quoted(text: Any) -> str:
    return json.dumps(str(text)[:100])


def _corrected(
    owner: Owner, metadata: Mapping[str, Any], *, append: bool, allow: bool
) -> tuple[Mapping[str, Any], ...] | None:
    """Return the owner references of a body as they should be, None if they are so.

    What has the owner's uid but another kind or name goes, and what has it where it is not
    allowed; `append` adds the owner where it is missing.
    """
    given = metadata.get("ownerReferences")
    if given is None:
        given = []
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        return None  # the API server refuses it
    right = [
        one for one in given if one.get("uid") != owner.uid or (allow and owner.is_named_by(one))
    ]
    if append and not any(map(owner.is_named_by, right)):
        right.append(owner.reference)
    return None if right == given else tuple(right)


def _own_annotations(
    owner: Owner, metadata: Mapping[str, Any], *, needed: bool
) -> Mapping[str, str]:
    """Return the annotations of the owner that a body lacks, or has with other values."""
    given = _mapping(metadata.get("annotations"))
    if not needed and not any(key in given for key in _ANNOTATIONS):
        return {}
    return {key: value for key, value in owner.annotations.items() if given.get(key) != value}


def _applied(live: Json, manager: str) -> frozenset[str]:
    """Return uids of owners and keys of annotations that a manager's last apply has set."""
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
    # Not by metadata.uid: the API server takes any uid that the body of a POST has for no more
    # than noise, so it would be a way to make objects that belong to nobody.
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
    """Clients send what they like; what is no object says nothing here."""
    return value if isinstance(value, dict) else {}
