"""The Cluster port on a real API server: preconditions, schemas, missing parts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from operator_runner.core.errors import Conflict, Forbidden, Invalid, NotFound
from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.devcluster import Cluster
from operator_runner.kube.api import Api
from operator_runner.kube.cluster import KubeCluster
from operator_runner.kube.discovery import Discovery
from operator_runner.kube.session import connect
from tests.contract.kube.crds import crd
from tests.support.kubectl import Kubectl

WIDGET = GVK("cluster.example.com", "v1", "Widget")
WIDGETS = "widgets.cluster.example.com"
"""Other tests of this cluster have Widgets of their own group."""
PLAIN = GVK("cluster.example.com", "v1", "Plain")


@pytest.fixture
def cluster(api: Api, discovery: Discovery) -> KubeCluster:
    """Give the cluster under test."""
    return KubeCluster(api, discovery)


@pytest.fixture(scope="module")
def kinds(control_plane_cluster: Cluster) -> None:
    """Install the CRDs; that of Plain has no status subresource."""
    kubectl = Kubectl(control_plane_cluster.bin / "kubectl", "default")
    kubectl.apply(crd(WIDGET), crd(PLAIN, status=False))
    kubectl.wait_for_kinds(*(f"{gvk.kind.lower()}s.{gvk.group}" for gvk in (WIDGET, PLAIN)))


@pytest.fixture
def widget(kubectl: Kubectl, kinds: None) -> ObjectRef:
    """Make a Widget; the kind Plain is served too."""
    del kinds
    _make(kubectl, WIDGET)
    return ObjectRef(WIDGET, kubectl.namespace, "one")


def _make(kubectl: Kubectl, gvk: GVK) -> None:
    kubectl.apply({"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": {"name": "one"}})


async def _read(cluster: KubeCluster, ref: ObjectRef) -> Json:
    body = await cluster.get(ref)
    assert body is not None
    return body


async def test_an_object_is_read_live(cluster: KubeCluster, widget: ObjectRef) -> None:
    """An existing object is returned whole, a missing one is None."""
    body = await _read(cluster, widget)

    assert ObjectRef.of(body) == widget
    assert await cluster.get(ObjectRef(WIDGET, widget.namespace, "other")) is None


async def test_an_account_that_may_only_list_reads_the_same(
    kubectl: Kubectl, widget: ObjectRef, tmp_path: Path
) -> None:
    """Existing projects grant what the watches of ansible-operator need: `list` and `watch`."""
    kubectl("create", "serviceaccount", "lister")
    kubectl("create", "role", "lister", "--verb=list", f"--resource={WIDGETS},configmaps")
    account = f"--serviceaccount={kubectl.namespace}:lister"
    kubectl("create", "rolebinding", "lister", "--role=lister", account)
    kubectl("create", "configmap", "one")
    connection = await connect(kubectl.kubeconfig("lister", tmp_path), user_agent="tests")
    api = Api(connection)
    cluster = KubeCluster(api, Discovery(api))
    config_map = ObjectRef(GVK("", "v1", "ConfigMap"), widget.namespace, "one")

    for ref in (widget, config_map):
        assert ObjectRef.of(await _read(cluster, ref)) == ref
        assert await cluster.get(replace(ref, name="other")) is None
    with pytest.raises(Forbidden, match="cannot list resource"):
        await cluster.get(replace(config_map, gvk=GVK("", "v1", "Secret")))
    await connection.close()


async def test_an_unknown_kind_is_an_error(cluster: KubeCluster) -> None:
    """A missing CRD is not the same as a missing object."""
    with pytest.raises(NotFound, match="its CRD is missing"):
        await cluster.get(ObjectRef(GVK("no.example.com", "v1", "None"), "default", "a"))


@pytest.mark.parametrize("size", [800_000, 1_400_000])
async def test_an_object_that_etcd_cannot_store_is_invalid(
    cluster: KubeCluster, widget: ObjectRef, kubectl: Kubectl, size: int
) -> None:
    """The API server answers with 500, but a retry cannot succeed: the failure is reported."""
    large = replace(widget, name="large")
    body = {
        "apiVersion": WIDGET.api_version,
        "kind": WIDGET.kind,
        "metadata": {"name": large.name},
        "spec": {"text": "x" * size},
    }
    kubectl("create", "--filename=-", input_=json.dumps(body))

    with pytest.raises(Invalid, match="the object is larger than etcd can store"):
        await cluster.patch_status(await _read(cluster, large), {"word": "x" * 900_000})


async def test_finalizers_are_replaced_as_a_list(cluster: KubeCluster, widget: ObjectRef) -> None:
    """The list is set as given, and can be emptied."""
    body = await cluster.patch_metadata(
        await _read(cluster, widget), {"finalizers": ["example.com/a"]}
    )
    assert (await _read(cluster, widget))["metadata"]["finalizers"] == ["example.com/a"]

    await cluster.patch_metadata(body, {"finalizers": []})
    assert "finalizers" not in (await _read(cluster, widget))["metadata"]


async def test_writes_from_an_old_state_are_refused(
    cluster: KubeCluster, widget: ObjectRef, kubectl: Kubectl
) -> None:
    """A write in between is not overwritten."""
    body = await _read(cluster, widget)
    kubectl("annotate", WIDGETS, widget.name, "a=b")

    with pytest.raises(Conflict):
        await cluster.patch_metadata(body, {"finalizers": ["example.com/a"]})
    with pytest.raises(Conflict):
        await cluster.patch_status(body, {"count": 1})

    now = await _read(cluster, widget)
    assert "finalizers" not in now["metadata"]
    assert "status" not in now


async def test_a_namesake_is_not_written(
    cluster: KubeCluster, widget: ObjectRef, kubectl: Kubectl
) -> None:
    """An object that was deleted and made again is another one."""
    body = await _read(cluster, widget)
    kubectl("delete", WIDGETS, widget.name)
    _make(kubectl, WIDGET)

    with pytest.raises(Conflict):
        await cluster.patch_status(body, {"count": 1})


async def test_status_fields_of_others_are_kept(cluster: KubeCluster, widget: ObjectRef) -> None:
    """Fields of others are kept; the field manager is recorded."""
    body = await cluster.patch_status(await _read(cluster, widget), {"word": "theirs"})

    body = await cluster.patch_status(body, {"count": 1})

    now = await _read(cluster, widget)
    assert now["status"] == {"word": "theirs", "count": 1}
    assert now["metadata"]["resourceVersion"] == body["metadata"]["resourceVersion"]
    assert now["metadata"]["managedFields"][-1]["manager"] == "operator-runner"


async def test_a_status_that_does_not_fit_is_invalid(
    cluster: KubeCluster, widget: ObjectRef
) -> None:
    """The error names the field of the status."""
    with pytest.raises(Invalid, match=r"status\.count"):
        await cluster.patch_status(await _read(cluster, widget), {"count": "many"})


async def test_a_crd_without_status_differs_from_a_missing_object(
    cluster: KubeCluster, widget: ObjectRef, kubectl: Kubectl
) -> None:
    """The API server returns 404 for both; the error distinguishes them."""
    _make(kubectl, PLAIN)
    plain = await _read(cluster, ObjectRef(PLAIN, kubectl.namespace, "one"))
    deleted = await _read(cluster, widget)
    kubectl("delete", WIDGETS, widget.name)

    with pytest.raises(Invalid, match=r"no status subresource.* in its CRD, or set `manageStatus"):
        await cluster.patch_status(plain, {"count": 1})
    with pytest.raises(NotFound):
        await cluster.patch_status(deleted, {"count": 1})


async def test_a_built_in_kind_without_status_names_the_key_of_watches_yaml(
    cluster: KubeCluster, kubectl: Kubectl
) -> None:
    """ConfigMaps have no status."""
    kubectl("create", "configmap", "one")
    ref = ObjectRef(GVK("", "v1", "ConfigMap"), kubectl.namespace, "one")

    with pytest.raises(Invalid, match=r"can be written; set `manageStatus: false`"):
        await cluster.patch_status(await _read(cluster, ref), {"conditions": []})
