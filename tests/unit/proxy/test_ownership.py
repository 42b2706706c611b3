"""Owners of the objects that a run writes."""

from __future__ import annotations

from typing import Any

import pytest

from operator_runner.core.model import GVK, ObjectRef
from operator_runner.proxy.ownership import (
    PRIMARY_ANNOTATION,
    MetadataPatch,
    Owner,
    can_be_owned,
    describe_ownership,
    is_owned,
    is_tracked,
    patch_for_create,
    patch_for_update,
)
from operator_runner.proxy.request_info import RequestInfo

SECRETS = RequestInfo("", "v1", "team", "secrets")
NAMESPACES = RequestInfo("", "v1", "", "namespaces")
REFERENCE = {
    "apiVersion": "cache.example.com/v1alpha1",
    "kind": "Memcached",
    "name": "sample",
    "uid": "uid-1",
}
ANNOTATIONS = {
    "operator-sdk/primary-resource": "team/sample",
    "operator-sdk/primary-resource-type": "Memcached.cache.example.com",
}


def secret(**metadata: Any) -> dict[str, Any]:
    """Return a Secret with this metadata."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", **metadata}}


def test_objects_of_the_same_namespace_get_an_owner_reference(owner: Owner) -> None:
    """An object beside its owner gets an owner reference and nothing else."""
    assert patch_for_create(owner, SECRETS, secret()) == MetadataPatch((REFERENCE,))


@pytest.mark.parametrize("body", [{}, {"metadata": None}, {"metadata": {"ownerReferences": None}}])
def test_objects_with_little_metadata_are_owned(owner: Owner, body: dict[str, Any]) -> None:
    """Typed clients omit fields that the path has; such objects are owned too."""
    assert patch_for_create(owner, SECRETS, body) == MetadataPatch((REFERENCE,))


def test_an_owner_reference_is_not_repeated(owner: Owner) -> None:
    """An object that has the reference, with flags or in another version, gets no second one."""
    for more in ({}, {"controller": True}, {"apiVersion": "cache.example.com/v1"}):
        assert not patch_for_create(owner, SECRETS, secret(ownerReferences=[{**REFERENCE, **more}]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"uid": "uid-1"},
        {**REFERENCE, "name": "other"},
        {**REFERENCE, "kind": "Pod"},
        {**REFERENCE, "apiVersion": "v1", "controller": True},
    ],
    ids=["nothing else", "name", "kind", "group"],
)
def test_a_wrong_reference_with_the_uid_of_the_owner_is_corrected(
    owner: Owner, wrong: dict[str, Any]
) -> None:
    """Kubernetes' garbage collector does not take it for one, so it is replaced."""
    other = {"uid": "uid-9"}
    body = secret(ownerReferences=[wrong, other])
    assert patch_for_create(owner, SECRETS, body) == MetadataPatch((other, REFERENCE))


def test_the_uid_of_a_body_means_nothing(owner: Owner) -> None:
    """An object that is created with the uid of the owner is not the owner."""
    assert patch_for_create(owner, SECRETS, secret(uid="uid-1")) == MetadataPatch((REFERENCE,))


def test_a_reference_across_namespaces_is_dropped(owner: Owner) -> None:
    """Kubernetes would delete the object, as its owner is not in its namespace."""
    body = {"metadata": {"ownerReferences": [REFERENCE]}}
    expected = MetadataPatch((), annotations=ANNOTATIONS)
    assert patch_for_create(owner, RequestInfo("", "v1", "elsewhere", "secrets"), body) == expected


def test_owner_references_of_others_are_kept(owner: Owner) -> None:
    """The reference is added beside those to others, controllers included."""
    others = [{"uid": "uid-9", "controller": True}]
    expected = MetadataPatch((*others, REFERENCE))
    assert patch_for_create(owner, SECRETS, secret(ownerReferences=others)) == expected


@pytest.mark.parametrize(
    "info", [NAMESPACES, RequestInfo("", "v1", "elsewhere", "secrets")], ids=["cluster", "other"]
)
def test_objects_out_of_reach_get_annotations(owner: Owner, info: RequestInfo) -> None:
    """Cluster-scoped objects and those of other namespaces get annotations."""
    assert patch_for_create(owner, info, {"metadata": {"name": "x"}}) == MetadataPatch(
        annotations=ANNOTATIONS
    )


@pytest.mark.parametrize("info", [NAMESPACES, SECRETS], ids=["cluster", "namespace"])
def test_forged_annotations_are_corrected(owner: Owner, info: RequestInfo) -> None:
    """A new object cannot be ascribed to another resource, as content of a spec might try."""
    taken = {"operator-sdk/primary-resource": "other/one", "theirs": "kept"}
    assert (
        patch_for_create(owner, info, {"metadata": {"annotations": taken}}).annotations
        == ANNOTATIONS
    )


@pytest.mark.parametrize("info", [NAMESPACES, SECRETS], ids=["cluster", "namespace"])
def test_a_cluster_scoped_owner_owns_every_object(global_owner: Owner, info: RequestInfo) -> None:
    """A cluster-scoped owner can own everything."""
    assert patch_for_create(global_owner, info, {}) == MetadataPatch((global_owner.reference,))


def test_the_type_of_a_core_kind_has_no_dot() -> None:
    """The type of an owner of the core group is its kind alone, without a dot."""
    owner = Owner(ObjectRef(GVK("", "v1", "Secret"), "team", "s"), "uid-3")
    assert owner.annotations["operator-sdk/primary-resource-type"] == "Secret"


def test_the_owner_does_not_own_itself(owner: Owner) -> None:
    """The owner is never made its own owner, in any version."""
    info = RequestInfo("cache.example.com", "v1", "team", "memcacheds", "sample")
    body = {"apiVersion": "cache.example.com/v1", "kind": "Memcached", "metadata": {}}
    assert not patch_for_create(owner, info, body)
    assert patch_for_create(owner, info, {**body, "kind": "MemcachedBackup"})


def test_a_kind_may_be_called_a_list(owner: Owner) -> None:
    """Objects of kinds with any name and fields are owned."""
    body = {"kind": "AllowList", "items": [], "metadata": {"name": "s"}}
    assert patch_for_create(owner, SECRETS, body) == MetadataPatch((REFERENCE,))


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (SECRETS, True),
        (RequestInfo("rbac.authorization.k8s.io", "v1", "", "clusterroles"), True),
        (RequestInfo("authorization.k8s.io", "v1", "", "subjectaccessreviews"), False),
        (RequestInfo("authentication.k8s.io", "v1", "", "tokenreviews"), False),
        (RequestInfo("project.openshift.io", "v1", "", "projectrequests"), False),
        (RequestInfo("", "v1", "team", "events"), False),
        (RequestInfo("events.k8s.io", "v1", "team", "events"), False),
        (RequestInfo("", "v1", "team", "pods", "p", "eviction"), False),
    ],
)
def test_kinds_that_can_be_owned(info: RequestInfo, expected: bool) -> None:
    """Questions, Events and subresources have no owner; groups with similar names have."""
    assert can_be_owned(info) is expected


@pytest.mark.parametrize(
    ("namespace", "change", "expected"),
    [
        ("team", {"uid": "of-the-predecessor"}, True),
        ("team", {"uid": "of-the-predecessor", "name": "another"}, False),
        ("other", {"uid": "of-the-predecessor"}, False),
        ("other", {}, True),
    ],
    ids=["predecessor", "other name", "other namespace", "owner"],
)
def test_objects_of_a_predecessor_are_tracked(
    owner: Owner, namespace: str, change: dict[str, str], expected: bool
) -> None:
    """A deleted resource of the same kind, namespace and name is a predecessor."""
    metadata = {"namespace": namespace, "ownerReferences": [owner.reference | change]}
    assert is_tracked(owner, metadata) is expected


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"ownerReferences": [{"uid": "uid-9"}, REFERENCE]}, True),
        ({"ownerReferences": [{**REFERENCE, "apiVersion": "cache.example.com/v9"}]}, True),
        ({"ownerReferences": [{**REFERENCE, "kind": "Pod"}]}, False),
        ({"annotations": {**ANNOTATIONS, "more": "x"}}, True),
        ({"annotations": {"operator-sdk/primary-resource": "team/sample"}}, False),
        ({"ownerReferences": [{"uid": "uid-9"}]}, False),
        ({}, False),
    ],
)
def test_owned_objects_are_recognized(
    owner: Owner, metadata: dict[str, Any], expected: bool
) -> None:
    """An object is known as owned by the whole reference, or by both annotations."""
    assert is_owned(owner, metadata) is expected


LIVE = {"name": "s", "uid": "uid-s", "ownerReferences": [REFERENCE]}
FOREIGN = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "uid-9"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (FOREIGN, REFERENCE)),
        ({"ownerReferences": None}, (FOREIGN, REFERENCE)),
        ({"ownerReferences": []}, (REFERENCE,)),
        ({"ownerReferences": [FOREIGN]}, (FOREIGN, REFERENCE)),
        ({"ownerReferences": [{**REFERENCE, "kind": "Pod"}]}, (REFERENCE,)),
    ],
)
def test_a_replaced_object_keeps_its_owners(
    owner: Owner, given: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    """A body without owners leaves all of them; one with a list cannot leave out the owner."""
    live = {**LIVE, "ownerReferences": [FOREIGN, REFERENCE]}
    assert patch_for_update(owner, SECRETS, secret(**given), live) == MetadataPatch(
        expected, uid="uid-s"
    )


def test_a_body_with_owners_is_unchanged(owner: Owner) -> None:
    """A client that read the object first sends its owners."""
    assert not patch_for_update(owner, SECRETS, secret(ownerReferences=[REFERENCE]), LIVE)


@pytest.mark.parametrize("references", [[], [FOREIGN]])
def test_an_object_of_others_is_not_adopted(owner: Owner, references: list[Any]) -> None:
    """A PUT or an apply neither adds nor removes owners of an existing object."""
    live = {**LIVE, "ownerReferences": references}
    expected = MetadataPatch((FOREIGN,), uid="uid-s") if references else MetadataPatch()
    assert patch_for_update(owner, SECRETS, secret(), live) == expected
    assert not patch_for_update(owner, SECRETS, secret(), live, "manager")


def test_an_apply_keeps_what_its_manager_applied(owner: Owner) -> None:
    """Owners that only others manage stay by themselves; taking part in them would pin them."""
    fields = {
        "f:metadata": {
            "f:ownerReferences": {'k:{"uid":"uid-9"}': {".": {}}},
            "f:annotations": {"f:operator-sdk/primary-resource": {}},
        }
    }
    live = {
        "uid": "uid-s",
        "ownerReferences": [FOREIGN, {"uid": "uid-7"}],
        "annotations": {"operator-sdk/primary-resource": "other/one"},
        "managedFields": [{"operation": "Apply", "manager": "play", "fieldsV1": fields}],
    }
    kept = {"operator-sdk/primary-resource": "other/one"}
    assert patch_for_update(owner, SECRETS, secret(), live, "play") == MetadataPatch(
        (FOREIGN,), kept, uid="uid-s"
    )
    assert not patch_for_update(owner, SECRETS, secret(), live, "another")


def test_annotations_of_an_owned_object_are_kept(owner: Owner) -> None:
    """A PUT without them keeps them, and one with forged ones does not get through."""
    live = {"uid": "uid-n", "annotations": {**ANNOTATIONS, "theirs": "x"}}
    forged = {"annotations": {"operator-sdk/primary-resource": "other/one"}}
    assert patch_for_update(owner, NAMESPACES, {}, live) == MetadataPatch(
        annotations=ANNOTATIONS, uid="uid-n"
    )
    kept = patch_for_update(owner, NAMESPACES, {"metadata": forged}, live)
    assert kept == MetadataPatch(annotations=ANNOTATIONS, uid="uid-n")


def test_the_owner_itself_is_written_unchanged(owner: Owner) -> None:
    """The resource itself is recognized by the uid that the API server has."""
    info = RequestInfo("cache.example.com", "v1", "team", "memcacheds", "sample")
    assert not patch_for_update(owner, info, {}, {"uid": "uid-1", "ownerReferences": [FOREIGN]})


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, "has no owner"),
        ({"ownerReferences": [FOREIGN]}, "is owned by StatefulSet db"),
        (
            {"ownerReferences": [FOREIGN, {"kind": "Job", "name": "j", "controller": True}]},
            "is owned by Job j",
        ),
        (
            {"annotations": {**ANNOTATIONS, "operator-sdk/primary-resource": "a?b"}},
            f'is owned by "Memcached.cache.example.com" "a?b" (annotation {PRIMARY_ANNOTATION})',
        ),
    ],
)
def test_owners_are_described_in_messages(metadata: dict[str, Any], expected: str) -> None:
    """The controller is first; text of annotations cannot control a terminal."""
    assert describe_ownership(metadata) == expected
