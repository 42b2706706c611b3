"""Members of the ApplySet of a resource, and which of them a run no longer wants. Pure.

Each object that a run creates gets the label `applyset.kubernetes.io/part-of`, and the resource has
the kinds and namespaces of its members in annotations, see KEP-3659. The label alone never leads to
a deletion: see docs/adr/0064-prune.md.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from operator_runner.core.model import PART_OF, Json, ObjectRef, Prune
from operator_runner.proxy.dry_run.overlay import ObjectKey
from operator_runner.proxy.ownership import MetadataPatch, Owner, can_be_owned, uid_in
from operator_runner.proxy.request_info import RequestInfo
from operator_runner.reconcile.annotations import (
    APPLYSET_ID,
    APPLYSET_KINDS,
    APPLYSET_NAMESPACES,
    APPLYSET_TOOLING,
    PRUNE_ANNOTATION,
)

_PROTECTED = {
    ("apiextensions.k8s.io", "customresourcedefinitions"): "CustomResourceDefinition",
    ("", "namespaces"): "Namespace",
    ("", "persistentvolumeclaims"): "PersistentVolumeClaim",
    # Its deletion deletes the namespace of its name, on OpenShift.
    ("project.openshift.io", "projects"): "Namespace",
}
"""Kinds of `prune.kinds`, by group and resource."""
_SUFFIX = "-uid"
"""End of the ids of this runner; those of kubectl end with the version of their formula, `-v1`."""
_SHARED = f"applyset-shared{_SUFFIX}"
"""Label of an object of one resource that another one has written last."""
_HELM_ANNOTATIONS = ("meta.helm.sh/", "helm.sh/hook")
_HELM_RELEASE = "sh.helm.release."
"""Objects of Helm releases: Helm deletes those that a chart no longer has."""
_MAX_RECORDED = 200
"""Kinds, and namespaces, that are read from the annotations, which users can write."""
_MAX_LISTS = 20
"""Namespaces that are listed one by one; of more, all are listed at once."""
_APPLY_ORDER = (
    *("Namespace", "ResourceQuota", "StorageClass", "CustomResourceDefinition", "ServiceAccount"),
    *("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "ConfigMap", "Secret"),
    *("Endpoints", "Service", "LimitRange", "PriorityClass", "PersistentVolume"),
    *("PersistentVolumeClaim", "Deployment", "StatefulSet", "CronJob", "PodDisruptionBudget"),
    "",  # all other kinds
    *("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"),
)
"""The order in which kubectl applies the objects of a kustomization."""


def id_of(owner: Owner) -> str:
    """Return the id of the ApplySet of a resource; a later resource of its name has another one."""
    ref = owner.ref
    text = f"{owner.uid}.{ref.name}.{ref.namespace}.{ref.gvk.kind}.{ref.gvk.group}"
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
    return f"applyset-{digest.decode().rstrip('=')}{_SUFFIX}"


@dataclass(slots=True)
class Members:
    """The members of one resource, as far as this process knows them.

    `objects` has the version of the API by which each was written. `kinds`, such as
    `Deployment.apps`, and `namespaces` are where members may be; those in `recorded` are in the
    annotations of the resource. `is_listed` is whether all members are known: none of an earlier
    process, or of a run that was ended, whose last responses were not seen. `is_running` is whether
    the last run has not reached its end. `lock` is held while the annotations are written.
    """

    owner: Owner
    objects: dict[ObjectKey, str] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)
    namespaces: set[str] = field(default_factory=set)
    recorded: frozenset[str] = frozenset()
    is_listed: bool = False
    is_running: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False, compare=False)

    @property
    def id(self) -> str:
        """The value of the label."""
        return id_of(self.owner)

    def read(self, resource: Json) -> None:
        """Take kinds and namespaces from the annotations of the resource."""
        annotations = resource["metadata"].get("annotations") or {}
        kinds, namespaces = (
            _split(annotations.get(key)) for key in (APPLYSET_KINDS, APPLYSET_NAMESPACES)
        )
        self.kinds |= kinds
        self.namespaces |= namespaces
        self.recorded = kinds | {f"{each}/" for each in namespaces}

    def add(self, kind: str, namespace: str) -> bool:
        """Add where a member will be; return whether the annotations lack it."""
        self.kinds.add(kind)
        is_far = namespace not in {"", self.owner.ref.namespace}
        if is_far and len(self.namespaces) < _MAX_RECORDED:
            self.namespaces.add(namespace)
        is_new = namespace in self.namespaces and f"{namespace}/" not in self.recorded
        return is_new or kind not in self.recorded

    @property
    def is_recorded(self) -> bool:
        """Return whether the annotations say where members are, and nothing else."""
        places = self.kinds | {f"{each}/" for each in self.namespaces}
        # Of more, not all are read.
        return places == self.recorded or len(self.kinds) > _MAX_RECORDED

    @property
    def places(self) -> list[str]:
        """The namespaces in which members are listed; an empty one is all of them."""
        places = {self.owner.ref.namespace, *self.namespaces} - {""}
        return sorted(places) if len(places) <= _MAX_LISTS else [""]

    def annotations(self, tooling: str) -> dict[str, str]:
        """Return the annotations that the resource is to have, and count them as recorded."""
        self.recorded = frozenset(self.kinds | {f"{each}/" for each in self.namespaces})
        found = {
            APPLYSET_ID: self.id,
            APPLYSET_TOOLING: tooling,
            APPLYSET_KINDS: ",".join(sorted(self.kinds)),
        }
        if self.namespaces:
            found[APPLYSET_NAMESPACES] = ",".join(sorted(self.namespaces))
        return found


@dataclass(slots=True)
class RunMembers:
    """What one run wants of the members of its resource.

    `generation` is that of the resource at its start. `wanted` are the objects that it wrote or
    read by name, `uids` those that it saw: two groups of the API may have the same one. `seen` has,
    of each object in a response, its label and whether it is owned by reference.
    """

    members: Members
    is_dry_run: bool = False
    generation: int = 0
    wanted: set[ObjectKey] = field(default_factory=set)
    uids: set[str] = field(default_factory=set)
    seen: dict[ObjectKey, tuple[str | None, bool]] = field(default_factory=dict)

    def on_request(self, method: str, info: RequestInfo, field_selector: str = "") -> None:
        """Note a request of the run, whatever its result will be."""
        name = info.name or _selected_name(field_selector)
        if not name:
            return
        key = ObjectKey.of(info, name)
        if method == "DELETE" and not info.subresource:
            self.wanted.discard(key)
        else:
            self.wanted.add(key)

    def on_response(self, method: str, info: RequestInfo, metadata: Json) -> None:
        """Note the object of a successful response; that of a deletion may have no metadata."""
        name = str(metadata.get("name") or info.name)
        if not name or info.subresource:
            return
        key = ObjectKey.of(info, name)
        label = label_of(metadata)
        if method != "DELETE":
            self.wanted.add(key)
            self.uids.add(uid_in(metadata))
            self.seen[key] = label, _is_referenced(self.members.owner, metadata)
        if method != "DELETE" and label == self.members.id:
            self.members.objects[key] = info.version
        else:
            self.members.objects.pop(key, None)

    def may_join(self, info: RequestInfo, live: Json | None, *, is_whole: bool) -> bool:
        """Return whether a write of an object may make it a member; see `patch`."""
        label, is_referenced = self._known(info, live)
        if live is not None:
            return not live or is_referenced
        return is_whole or (is_referenced and label != self.members.id)

    def patch(
        self, info: RequestInfo, body: Json, *, live: Json | None, is_whole: bool
    ) -> MetadataPatch:
        """Return the change of a body's label: nobody but the runner sets those of its own ids.

        `live` is the metadata of the object, empty if it is created, None if it was not read.
        `is_whole` is whether the body describes the whole object.
        """
        found = body.get("metadata")
        metadata = found if isinstance(found, dict) else {}
        if not info.name and metadata.get("name"):
            self.wanted.add(ObjectKey.of(info, str(metadata["name"])))
        given, label = label_of(metadata), self._label(info, metadata, live)
        is_named = is_whole or PART_OF in (metadata.get("labels") or ())
        before = given if is_named else self._known(info, None)[0]
        return MetadataPatch() if label == before else MetadataPatch(labels={PART_OF: label})

    def _label(self, info: RequestInfo, metadata: Json, live: Json | None) -> str | None:
        """Return the label that an object is to have after a write; None for none."""
        given = label_of(metadata)
        is_other = given is not None and not given.endswith(_SUFFIX)
        if live is not None and not live:
            if is_other or self.is_dry_run or not _is_member(info, metadata):
                return given if is_other else None
            return self.members.id
        current, is_referenced = self._known(info, live)
        if self.is_dry_run or info.subresource or current == self.members.id:
            return current
        if current is not None and not current.endswith(_SUFFIX):
            return current
        if is_referenced:
            return self.members.id
        return current if current is None else _SHARED

    def mark(self, info: RequestInfo, live: Json | None) -> str:
        """Return the label to set before a write that cannot set it, empty for none.

        Such are JSON patches and writes of `scale` and `status`: they too make the run the last
        writer of an object that another resource has written.
        """
        current = self._known(info, live)[0]
        if current is None or not current.endswith(_SUFFIX):
            return ""
        label = self._label(info, {}, live)
        return label if label and label != current else ""

    def _known(self, info: RequestInfo, live: Json | None) -> tuple[str | None, bool]:
        """Return label, and whether it is owned by reference, of an object that exists."""
        if live is None:
            return self.seen.get(ObjectKey.of(info), (None, False))
        return label_of(live), _is_referenced(self.members.owner, live)


def forges_label(operations: Any) -> bool:
    """Return whether a JSON patch may set the label of a member."""
    places = {"", "/metadata", "/metadata/labels"}
    for each in operations if isinstance(operations, list) else ():
        text = json.dumps(each).replace("~1", "/")
        moves = isinstance(each, dict) and each.get("op") in {"copy", "move"}
        if PART_OF in text or (moves and each.get("path") in places):
            return True
    return False


def label_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the id of the ApplySet that an object is part of, None for none."""
    labels = metadata.get("labels")
    label = labels.get(PART_OF) if isinstance(labels, dict) else None
    return None if label is None else str(label)


def candidates(run: RunMembers, prune: Prune) -> list[ObjectKey]:
    """Return the members that a complete run did not want and whose kinds may be deleted."""
    return [
        key
        for key in run.members.objects
        if key not in run.wanted and is_prunable(key.group, key.resource, prune)
    ]


def is_prunable(group: str, resource: str, prune: Prune) -> bool:
    """Return whether members of a resource of the API may be deleted."""
    return _PROTECTED.get((group, resource), "") in {"", *prune.kinds}


def refusal(owner: Owner, metadata: Json) -> str:
    """Return why a live object is not deleted, empty if it is."""
    if label_of(metadata) != id_of(owner):
        return "it is no longer a member"
    if metadata.get("deletionTimestamp"):
        return "it is being deleted"
    if uid_in(metadata) in {"", owner.uid} or not _is_only_owner(owner, metadata):
        return "it has another owner"
    if _is_left_out(metadata):
        return "its name was generated, or Helm deletes it"
    return f"annotation {PRUNE_ANNOTATION}" if is_disabled(metadata) else ""


def is_disabled(metadata: Json) -> bool:
    """Return whether a user wants an object to stay."""
    return (metadata.get("annotations") or {}).get(PRUNE_ANNOTATION) == "disabled"


def in_deletion_order(refs: Iterable[ObjectRef]) -> list[ObjectRef]:
    """Return objects in the reverse of the order in which kubectl applies them."""
    others = _APPLY_ORDER.index("")

    def rank(ref: ObjectRef) -> tuple[int, ObjectRef]:
        known = ref.gvk.is_built_in and ref.gvk.kind in _APPLY_ORDER
        return -(_APPLY_ORDER.index(ref.gvk.kind) if known else others), ref

    return sorted(refs, key=rank)


def group_and_kind(kind: str) -> tuple[str, str]:
    """Return the group and the kind of `Deployment.apps`."""
    name, _, group = kind.partition(".")
    return group, name


def _is_member(info: RequestInfo, metadata: Json) -> bool:
    """Return whether a new object becomes a member."""
    name = str(info.name or metadata.get("name") or "")
    return bool(name) and can_be_owned(info) and not _is_left_out({**metadata, "name": name})


def _is_left_out(metadata: Json) -> bool:
    """Return whether an object is never a member.

    One with a random name is another one in each run, and Helm deletes the objects of releases.
    """
    annotations = metadata.get("annotations")
    keys = annotations if isinstance(annotations, dict) else {}
    return (
        bool(metadata.get("generateName"))
        or str(metadata.get("name")).startswith(_HELM_RELEASE)
        or any(str(key).startswith(_HELM_ANNOTATIONS) for key in keys)
    )


def _is_referenced(owner: Owner, metadata: Json) -> bool:
    """Return whether an object can be a member, with `owner` as its only owner by reference."""
    has_references = bool(metadata.get("ownerReferences"))
    return has_references and _is_only_owner(owner, metadata) and not _is_left_out(metadata)


def _is_only_owner(owner: Owner, metadata: Json) -> bool:
    """Return whether an object belongs to `owner` alone, by references or by annotations."""
    if references := metadata.get("ownerReferences"):
        return all(map(owner.is_named_by, references))
    annotations = metadata.get("annotations") or {}
    return all(annotations.get(key) == value for key, value in owner.annotations.items())


def _selected_name(field_selector: str) -> str:
    """Return the name that a list or a watch selects, empty for none."""
    for term in field_selector.split(","):
        key, _, value = term.replace("==", "=").partition("=")
        if key.strip() == "metadata.name":
            return value.strip()
    return ""


def _split(text: Any) -> frozenset[str]:
    names = sorted(filter(None, str(text or "").split(",")))
    return frozenset(names[:_MAX_RECORDED])
