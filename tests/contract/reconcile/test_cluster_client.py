"""ClusterClient: the same cases on the fake of the unit tests and on a real API server."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from operator_runner.core.errors import Conflict, Invalid, NotFound
from operator_runner.core.model import GVK, EventSpec, Json, ObjectRef
from operator_runner.devcluster import Cluster
from operator_runner.kube.api import Api
from operator_runner.kube.cluster import KubeCluster
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.session import connect
from operator_runner.reconcile.protocols import ClusterClient
from tests.fakes.cluster import FakeCluster
from tests.support.kubectl import Kubectl
from tests.support.operator import REPOSITORY

NGINX = GVK("operator.example.com", "v1alpha2", "NginxOperator")
GOOD = {
    "type": "Running",
    "status": "True",
    "reason": "Running",
    "message": "",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
}


@pytest.fixture(params=["fake", "real"])
async def cluster(
    request: pytest.FixtureRequest, namespace: str, body: Json
) -> AsyncIterator[ClusterClient]:
    """Give a cluster that holds `body`."""
    if request.param == "fake":
        yield FakeCluster(body, strict_reasons=True)
        return
    local: Cluster = request.getfixturevalue("control_plane_cluster")
    kubeconfig: Path = request.getfixturevalue("control_plane")
    kubectl = Kubectl(local.bin / "kubectl", namespace)
    kubectl("apply", f"--filename={REPOSITORY / 'crds'}")
    kubectl.wait_for_kinds("nginxoperators.operator.example.com")
    desired = copy.deepcopy(body)
    del desired["metadata"]["resourceVersion"]
    kubectl.apply(desired)
    connection = await connect(kubeconfig, user_agent="test")
    api = Api(connection)
    yield KubeCluster(api, Discovery(api))
    await connection.close()


@pytest.fixture
def body(namespace: str) -> Json:
    """Give a resource of the nginx operator, whose CRD has a strict schema."""
    return {
        "apiVersion": NGINX.api_version,
        "kind": NGINX.kind,
        "metadata": {"name": "a", "namespace": namespace, "resourceVersion": "1"},
        "spec": {"replicas": 1},
    }


@pytest.fixture
def ref(namespace: str) -> ObjectRef:
    """Give the reference of the resource."""
    return ObjectRef(NGINX, namespace, "a")


async def read(cluster: ClusterClient, ref: ObjectRef) -> Json:
    found = await cluster.get(ref)
    assert found is not None
    return found


async def test_a_missing_object_is_none(cluster: ClusterClient, ref: ObjectRef) -> None:
    """A resource is found, and another name is not."""
    assert (await read(cluster, ref))["spec"] == {"replicas": 1}
    assert await cluster.get(ObjectRef(ref.gvk, ref.namespace, "b")) is None


async def test_finalizers_are_written_from_the_newest_state_only(
    cluster: ClusterClient, ref: ObjectRef
) -> None:
    """A write from an old reading is a Conflict and changes nothing."""
    old = await read(cluster, ref)
    new = await cluster.patch_metadata(old, {"finalizers": ["example.com/a"]})
    assert new["metadata"]["finalizers"] == ["example.com/a"]
    with pytest.raises(Conflict):
        await cluster.patch_metadata(old, {"finalizers": ["example.com/b"]})
    assert (await read(cluster, ref))["metadata"]["finalizers"] == ["example.com/a"]
    await cluster.patch_metadata(new, {"finalizers": []})


async def test_a_status_is_written_from_the_newest_state_only(
    cluster: ClusterClient, ref: ObjectRef
) -> None:
    """The status is written and returned; a write with an old resourceVersion is a Conflict."""
    old = await read(cluster, ref)
    new = await cluster.patch_status(old, {"conditions": [GOOD]})
    assert new["status"]["conditions"] == [GOOD]
    with pytest.raises(Conflict):
        await cluster.patch_status(old, {"conditions": []})
    assert (await read(cluster, ref))["status"]["conditions"] == [GOOD]


async def test_a_status_against_the_schema_is_invalid(
    cluster: ClusterClient, ref: ObjectRef
) -> None:
    """Empty reasons are refused by a CRD with the schema of metav1.Condition."""
    body = await read(cluster, ref)
    with pytest.raises(Invalid, match="reason"):
        await cluster.patch_status(body, {"conditions": [GOOD | {"reason": ""}]})


async def test_the_status_of_a_deleted_resource_is_not_found(
    cluster: ClusterClient, ref: ObjectRef
) -> None:
    """Writing to a deleted resource raises NotFound."""
    body = await read(cluster, ref)
    deleted = body | {"metadata": body["metadata"] | {"name": "b"}}
    with pytest.raises(NotFound):
        await cluster.patch_status(deleted, {"conditions": [GOOD]})


async def test_an_event_does_not_write_the_resource(cluster: ClusterClient, ref: ObjectRef) -> None:
    """An Event leaves the resourceVersion as it was."""
    body = await read(cluster, ref)
    await cluster.emit(body, EventSpec("Tried", "a note"))
    assert (await read(cluster, ref))["metadata"] == body["metadata"]
