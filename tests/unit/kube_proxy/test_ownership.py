"""Who becomes the owner of what a run writes, and how."""

from __future__ import annotations

from typing import Any

import pytest

from operator_runner.kube.ownership import Claim, Owner, can_be_owned, claim, is_owned
from operator_runner.kube.requestinfo import RequestInfo
from operator_runner.model import GVK, ObjectRef

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


def test_same_namespace(owner: Owner) -> None:
    """An object beside its owner gets an owner reference and nothing else."""
    assert claim(owner, SECRETS, secret()) == Claim(reference=REFERENCE)


@pytest.mark.parametrize("body", [{}, {"metadata": None}, {"metadata": {"ownerReferences": None}}])
def test_little_metadata(owner: Owner, body: dict[str, Any]) -> None:
    """Typed clients leave out what the path says; such objects are owned too."""
    assert claim(owner, SECRETS, body) == Claim(reference=REFERENCE)


def test_no_second_reference(owner: Owner) -> None:
    """An object that has the reference, in whatever form, gets no second one."""
    assert not claim(owner, SECRETS, secret(ownerReferences=[{"uid": "uid-1", "controller": True}]))


def test_beside_other_owners(owner: Owner) -> None:
    """References to others, controllers included, are no reason to do without."""
    others = [{"uid": "uid-9", "controller": True}]
    assert claim(owner, SECRETS, secret(ownerReferences=others)) == Claim(reference=REFERENCE)


@pytest.mark.parametrize(
    "info", [NAMESPACES, RequestInfo("", "v1", "elsewhere", "secrets")], ids=["cluster", "other"]
)
def test_out_of_reach(owner: Owner, info: RequestInfo) -> None:
    """Cluster-scoped objects and those of other namespaces get annotations."""
    assert claim(owner, info, {"metadata": {"name": "x"}}) == Claim(annotations=ANNOTATIONS)


def test_annotation_of_another_owner(owner: Owner) -> None:
    """Two owners do not take an object from each other in turns."""
    taken = {"operator-sdk/primary-resource": "other/one"}
    assert not claim(owner, NAMESPACES, {"metadata": {"annotations": taken}})


@pytest.mark.parametrize("info", [NAMESPACES, SECRETS], ids=["cluster", "namespace"])
def test_cluster_scoped_owner(global_owner: Owner, info: RequestInfo) -> None:
    """A cluster-scoped owner can own everything."""
    assert claim(global_owner, info, {}) == Claim(reference=global_owner.reference)


def test_type_of_a_core_kind() -> None:
    """The type of an owner of the core group is its kind alone, without a dot."""
    owner = Owner(ObjectRef(GVK("", "v1", "Secret"), "team", "s"), "uid-3")
    assert owner.annotations["operator-sdk/primary-resource-type"] == "Secret"


def test_the_owner_itself(owner: Owner) -> None:
    """The owner is never made its own owner, in whichever version it is written."""
    info = RequestInfo("cache.example.com", "v1", "team", "memcacheds", "sample")
    body = {"apiVersion": "cache.example.com/v1", "kind": "Memcached", "metadata": {}}
    assert not claim(owner, info, body)
    assert not claim(owner, info, {"metadata": {"uid": "uid-1"}})
    assert claim(owner, info, {**body, "kind": "MemcachedBackup"})


def test_lists(owner: Owner) -> None:
    """A posted list is no object; the API server refuses it anyway."""
    assert not claim(owner, SECRETS, {"kind": "SecretList", "items": []})


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
def test_what_can_be_owned(info: RequestInfo, expected: bool) -> None:
    """Questions, Events and subresources have no owner; groups with similar names have."""
    assert can_be_owned(info) is expected


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"ownerReferences": [{"uid": "uid-9"}, {"uid": "uid-1"}]}, True),
        ({"annotations": {**ANNOTATIONS, "more": "x"}}, True),
        ({"annotations": {"operator-sdk/primary-resource": "team/sample"}}, False),
        ({"ownerReferences": [{"uid": "uid-9"}]}, False),
        ({}, False),
    ],
)
def test_recognition(owner: Owner, metadata: dict[str, Any], expected: bool) -> None:
    """An object is known as owned by the uid, or by both annotations."""
    assert is_owned(owner, metadata) is expected
