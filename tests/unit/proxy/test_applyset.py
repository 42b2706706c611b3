"""Members of the ApplySet of a resource."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operator_runner.core.model import GVK, PART_OF, Json, ObjectRef, Prune
from operator_runner.proxy.applyset import (
    Members,
    RunMembers,
    candidates,
    forges_label,
    id_of,
    in_deletion_order,
    refusal,
)
from operator_runner.proxy.dry_run.overlay import ObjectKey
from operator_runner.proxy.ownership import Owner
from operator_runner.proxy.request_info import RequestInfo

KEY = ObjectKey("", "configmaps", "team", "web")
ESCAPED = "/metadata/labels/applyset.kubernetes.io~1part-of"


def parsed(path: str) -> RequestInfo:
    """Return the parts of a path."""
    info = RequestInfo.parse(path)
    assert info is not None
    return info


WEB = parsed("/api/v1/namespaces/team/configmaps/web")


def test_the_id_is_that_of_one_resource(owner: Owner) -> None:
    """A valid label value, and another one for a later resource of the same name."""
    assert id_of(owner) == id_of(Owner(owner.ref, owner.uid))
    assert id_of(owner) != id_of(Owner(owner.ref, "uid-9"))
    assert len(id_of(owner)) <= 63


def member(owner: Owner, **changes: Any) -> Json:
    """Return the metadata of a member."""
    return {
        "name": "web",
        "uid": "uid-7",
        "labels": {PART_OF: id_of(owner)},
        "ownerReferences": [owner.reference],
        **changes,
    }


def test_only_what_belongs_to_the_resource_alone_is_deleted(owner: Owner) -> None:
    """By the label, and by owner references with its uid, or annotations where there are none."""
    other = {**owner.reference, "uid": "uid-9"}
    namesake = replace(owner, uid="uid-9")
    away: Json = {"ownerReferences": [], "annotations": owner.annotations}
    disabled = {"operator-runner.dev/prune": "disabled"}
    assert refusal(owner, member(owner)) == ""
    assert refusal(owner, member(owner, **away)) == ""
    for metadata in (
        member(owner, labels={}),
        member(namesake, ownerReferences=[owner.reference]),
        member(owner, ownerReferences=[other]),
        member(owner, ownerReferences=[owner.reference, other]),
        member(owner, ownerReferences=[]),
        member(owner, ownerReferences=[other], annotations=owner.annotations),
        member(owner, deletionTimestamp="2026-01-01T00:00:00Z"),
        member(owner, annotations=disabled),
        member(owner, uid=owner.uid),
        member(owner, uid=""),
        member(owner, generateName="web-"),
        member(owner, annotations={"meta.helm.sh/release-name": "web"}),
    ):
        assert refusal(owner, metadata), metadata


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"op": "add", "path": ESCAPED, "value": "x"}, True),
        ({"op": "add", "path": "/metadata/labels", "value": {PART_OF: "x"}}, True),
        ({"op": "copy", "from": "/metadata/annotations", "path": "/metadata/labels"}, True),
        ({"op": "move", "from": "/metadata/annotations/x", "path": ESCAPED}, True),
        ({"op": "add", "path": "/metadata/labels/app", "value": "x"}, False),
        ({"op": "copy", "from": "/data/a", "path": "/data/b"}, False),
    ],
)
def test_json_patches_that_set_the_label_are_recognized(operation: Json, expected: bool) -> None:
    """Directly, within all labels, and by a copy of other maps."""
    assert forges_label([operation]) is expected


def test_a_run_wants_what_it_writes_or_reads_by_name(owner: Owner) -> None:
    """Not what it deletes, and not what only a list has."""
    run = RunMembers(Members(owner, {KEY: "v1"}))
    assert candidates(run, Prune()) == [KEY]
    run.on_request("GET", parsed("/api/v1/namespaces/team/configmaps"))
    assert candidates(run, Prune()) == [KEY]
    run.on_request("GET", parsed("/api/v1/namespaces/team/configmaps"), "metadata.name=web")
    assert candidates(run, Prune()) == []
    run.on_request("DELETE", WEB)
    assert candidates(run, Prune()) == [KEY]
    body = {"metadata": {"name": "web"}}
    run.patch(parsed("/api/v1/namespaces/team/configmaps"), body, live={}, is_whole=True)
    assert candidates(run, Prune()) == []


def test_objects_with_data_are_deleted_if_they_are_named(owner: Owner) -> None:
    """Claims, namespaces and CRDs."""
    claim = ObjectKey("", "persistentvolumeclaims", "team", "data")
    run = RunMembers(Members(owner, {claim: "v1"}))
    assert candidates(run, Prune()) == []
    assert candidates(run, Prune(frozenset({"Namespace"}))) == []
    assert candidates(run, Prune(frozenset({"PersistentVolumeClaim"}))) == [claim]


@pytest.mark.parametrize(
    ("metadata", "is_member"),
    [
        ({"name": "web"}, True),
        ({"name": "web", "labels": {PART_OF: "applyset-forged-uid"}}, True),
        ({"generateName": "web-"}, False),
        ({"name": "web", "annotations": {"meta.helm.sh/release-name": "web"}}, False),
        ({"name": "web", "annotations": {"helm.sh/hook": "pre-install"}}, False),
        ({"name": "sh.helm.release.v1.web.v1"}, False),
        ({"name": "web", "labels": {PART_OF: "applyset-of-kubectl-v1"}}, False),
    ],
)
def test_created_objects_become_members(owner: Owner, metadata: Json, is_member: bool) -> None:
    """With a name that is the same in each run, unless they are those of another tool."""
    run = RunMembers(Members(owner))
    info = parsed("/api/v1/namespaces/team/configmaps")
    patch = run.patch(info, {"metadata": metadata}, live={}, is_whole=True)
    assert (patch.labels.get(PART_OF) == id_of(owner)) is is_member


def test_a_write_labels_only_objects_that_the_resource_owns_by_reference(owner: Owner) -> None:
    """An object of another resource gets a label of nobody; one without an owner gets none."""

    def label(live: Json, body: Json | None = None) -> Any:
        run = RunMembers(Members(owner))
        found = run.patch(WEB, {"metadata": body or {}}, live=live, is_whole=True)
        return found.labels.get(PART_OF)

    forged = {"labels": {PART_OF: id_of(owner)}, "annotations": owner.annotations}
    assert label({"ownerReferences": [owner.reference]}) == id_of(owner)
    assert label({"labels": {PART_OF: "applyset-x-uid"}}) == "applyset-shared-uid"
    assert label({"labels": {PART_OF: "applyset-x-v1"}}) == "applyset-x-v1"
    assert label({"labels": {"app": "web"}}, forged) is None
    assert label({"annotations": owner.annotations}, forged) is None
    # Helm creates its objects through the proxy too, which gives them the owner.
    for others in ({"annotations": {"meta.helm.sh/release-name": "a"}}, {"generateName": "web-"}):
        assert label({"ownerReferences": [owner.reference], **others}) is None


def test_only_kinds_of_objects_that_may_join_are_recorded(owner: Owner) -> None:
    """Not that of an object of others, which no write makes a member."""
    run = RunMembers(Members(owner))
    assert run.may_join(WEB, {}, is_whole=True)
    assert run.may_join(WEB, {"ownerReferences": [owner.reference]}, is_whole=True)
    assert not run.may_join(WEB, {"name": "web"}, is_whole=True)
    assert run.may_join(WEB, None, is_whole=True)
    assert not run.may_join(WEB, None, is_whole=False)
    run.on_response("GET", WEB, member(owner, labels={}))
    assert run.may_join(WEB, None, is_whole=False)


def test_a_patch_of_a_member_is_not_changed(owner: Owner) -> None:
    """It keeps the label; one that removes or replaces it is corrected."""
    run = RunMembers(Members(owner))
    run.on_response("GET", WEB, member(owner))
    assert run.members.objects == {KEY: "v1"}
    for labels, changed in (
        ({"app": "web"}, False),
        ({PART_OF: None}, True),
        ({PART_OF: "x"}, True),
    ):
        body = {"metadata": {"labels": labels}}
        patch = run.patch(WEB, body, live=None, is_whole=False)
        assert dict(patch.labels) == ({PART_OF: id_of(owner)} if changed else {})


def test_the_annotations_name_kinds_and_far_namespaces(owner: Owner) -> None:
    """They are written when one is new, and a user who writes them adds a bounded number."""
    members = Members(owner)
    assert members.add("ConfigMap", "team")
    assert members.add("Role.rbac.authorization.k8s.io", "far")
    annotations = members.annotations("test")
    kinds = "applyset.kubernetes.io/contains-group-kinds"
    assert annotations[kinds] == "ConfigMap,Role.rbac.authorization.k8s.io"
    assert annotations["applyset.kubernetes.io/additional-namespaces"] == "far"
    again = Members(owner)
    again.read({"metadata": {"annotations": annotations}})
    assert not again.add("ConfigMap", "far")
    assert again.add("Secret", "team")
    again.read({"metadata": {"annotations": {kinds: ",".join(f"K{n}" for n in range(999))}}})
    assert len(again.kinds) < 210
    assert members.places == ["far", "team"]
    for number in range(999):
        members.add("ConfigMap", f"far-{number}")
    assert (members.places, len(members.namespaces)) == ([""], 200)
    members.annotations("test")
    assert not members.add("ConfigMap", "far-998")


def test_the_order_is_the_reverse_of_kubectl() -> None:
    """Webhooks first, then unknown kinds and workloads, and what they need last."""
    kinds = (
        ("v1", "Namespace"),
        ("v1", "ServiceAccount"),
        ("v1", "ConfigMap"),
        ("apps/v1", "Deployment"),
        ("example.com/v1", "Namespace"),
        ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
    )
    refs = [ObjectRef(GVK.of(*kind), "", "web") for kind in kinds]
    assert in_deletion_order(refs) == refs[::-1]
