"""Reports of the proxy about the objects of a run, on a real API server."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from operator_runner.core.model import GVK, DeclaredStatus, ObjectRef
from operator_runner.devcluster import Cluster
from operator_runner.kube.object_readiness import Health, Readiness
from operator_runner.kube.session import Connection
from tests.support.kubectl import Json, Kubectl

from .conftest import OWNER_GVK, WATCH, Recorder, Run, Start, config_map, proxied

DEPLOYMENT = GVK("apps", "v1", "Deployment")


async def test_every_write_is_reported_with_its_version(
    run: Run, recorder: Recorder, namespace: str
) -> None:
    """Create, update, patch and delete are reported by kind and name, with the new version."""
    ref = ObjectRef(OWNER_GVK, namespace, "w")
    versions = []
    for command in (
        ("create", "configmap", "w"),
        ("replace", "--filename=-"),
        ("patch", "configmap", "w", '--patch={"data": {"a": "2"}}'),
    ):
        await run.kubectl(*command, input_=json.dumps(config_map("w", a="1")))
        versions.append((await run.get("configmap", "w"))["metadata"]["resourceVersion"])
    await run.kubectl("delete", "configmap", "w", "--wait=false")
    assert recorder.written == [
        (ref, versions[0], "create"),
        (ref, versions[1], "update"),
        (ref, versions[2], "patch"),
        (ref, "", "delete"),
    ]


async def test_a_resource_that_is_not_served_is_reported(
    connection: Connection,
    owner: Json,
    tmp_path: Path,
    control_plane_cluster: Cluster,
    namespace: str,
) -> None:
    """The client's discovery is outdated then; objects and group versions may be missing."""
    reports: list[None] = []
    async with proxied(connection, Recorder(), on_unserved=lambda: reports.append(None)) as proxy:
        with proxy.grant(owner, WATCH, "run-1") as text:
            kubeconfig = tmp_path / "kubeconfig"
            kubeconfig.write_text(text)
            run = Run(kubeconfig, control_plane_cluster.bin)
            for path, count in (
                (f"/api/v1/namespaces/{namespace}/configmaps/none", 0),
                ("/apis/none.example.com/v1", 0),
                ("/apis/none.example.com/v1/none", 1),
                (f"/apis/none.example.com/v1/namespaces/{namespace}/none/a", 2),
            ):
                status, _, _ = await run.done(*run.command("get", "--raw", path))
                assert (status, len(reports)) == (1, count), path


async def test_server_side_apply_creates_objects(
    run: Run, recorder: Recorder, namespace: str
) -> None:
    """A PATCH of an object that does not exist is reported as its creation."""
    ref = ObjectRef(OWNER_GVK, namespace, "applied")
    for value in ("1", "2"):
        manifest = json.dumps(config_map("applied", a=value))
        await run.kubectl("apply", "--server-side", "--filename=-", input_=manifest)
    assert [(written, verb) for written, _, verb in recorder.written] == [
        (ref, "create"),
        (ref, "patch"),
    ]


async def test_subresources_are_writes_of_their_object(
    run: Run, recorder: Recorder, namespace: str
) -> None:
    """Scaling is a write of the Deployment, although a Scale is answered; so is its status."""
    ref = ObjectRef(DEPLOYMENT, namespace, "d")
    await run.kubectl("create", "deployment", "d", "--image=nginx", "--replicas=0")
    await run.kubectl("scale", "deployment", "d", "--replicas=1")
    patch = '--patch={"status": {"collisionCount": 0}}'
    await run.kubectl("patch", "deployment", "d", "--subresource=status", patch)
    assert [(written, verb) for written, _, verb in recorder.written] == [
        (ref, "create"),
        (ref, "patch"),
        (ref, "patch"),
    ]
    assert len({version for _, version, _ in recorder.written}) == 3


async def test_owned_objects_are_seen_again(
    run: Run, recorder: Recorder, namespace: str, kubectl: Kubectl
) -> None:
    """Reading an owned object by name reports it, so that a new operator process watches it."""
    owner = ObjectRef(OWNER_GVK, namespace, "owner")
    await run.kubectl("create", "configmap", "mine")
    kubectl("create", "configmap", "foreign")
    recorder.seen.clear()
    await run.get("configmap", "foreign")
    assert recorder.seen == []
    await run.get("configmap", "mine")
    assert recorder.seen == [(owner, ObjectRef(OWNER_GVK, namespace, "mine"))]


async def test_owned_objects_in_lists_are_seen_again(
    run: Run, recorder: Recorder, namespace: str, kubectl: Kubectl
) -> None:
    """So does a list, for each object in it that belongs to the owner; a table has no objects."""
    owner = ObjectRef(OWNER_GVK, namespace, "owner")
    for name in ("a", "b"):
        await run.kubectl("create", "deployment", name, "--image=nginx", "--replicas=0")
    kubectl("create", "deployment", "foreign", "--image=nginx", "--replicas=0")
    recorder.seen.clear()
    recorder.health.clear()
    await run.kubectl("get", "deployments")
    assert recorder.seen == []
    await run.kubectl("get", "deployments", "--output=json")
    assert recorder.seen == [
        (owner, ObjectRef(DEPLOYMENT, namespace, "a")),
        (owner, ObjectRef(DEPLOYMENT, namespace, "b")),
    ]
    assert recorder.read[-2:] == [True, True]


async def test_objects_of_a_predecessor_are_seen(
    run: Run, recorder: Recorder, namespace: str, kubectl: Kubectl
) -> None:
    """They belonged to a deleted resource of this name; the garbage collector will delete them."""
    predecessor = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": "00000000-0000-4000-8000-000000000000",
    }
    for name, owner in (("old", predecessor), ("foreign", predecessor | {"name": "another"})):
        metadata = {"name": name, "ownerReferences": [owner], "finalizers": ["example.com/hold"]}
        kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        await run.get("configmap", name)
    seen = (ObjectRef(OWNER_GVK, namespace, "owner"), ObjectRef(OWNER_GVK, namespace, "old"))
    assert recorder.seen == [seen]
    await run.kubectl("get", "configmaps", "--output=json")
    assert recorder.seen == [seen, seen]
    kubectl("patch", "configmap", "old", "foreign", '--patch={"metadata": {"finalizers": null}}')


async def test_health_is_reported_with_an_object(run: Run, recorder: Recorder) -> None:
    """The status in the response to a write has not been read: it is always behind its spec."""
    await run.kubectl("create", "deployment", "d", "--image=nginx", "--replicas=0")
    patch = '--patch={"spec": {"replicas": 1}}'
    await run.kubectl("patch", "deployment", "d", patch)
    assert recorder.health[0] == Health(Readiness.READY, behind=True)
    assert True not in recorder.read[-1:]
    await run.get("deployment", "d")
    assert recorder.read[-1]
    assert recorder.health[-1].readiness is Readiness.NOT_READY


async def test_a_declared_status_reads_what_its_run_creates(
    start: Start, recorder: Recorder
) -> None:
    """Its expressions have the status of a new object, which is behind until it is observed."""
    watch = replace(WATCH, status=DeclaredStatus(uses_dependents=True))
    run = start(watch)
    await run.kubectl("create", "deployment", "d", "--image=nginx", "--replicas=0")
    await run.kubectl("label", "deployment", "d", "a=b")
    assert recorder.health[0] == Health(Readiness.READY, behind=True)
    assert (recorder.read[0], recorder.read[-1]) == (True, False)


async def test_annotated_objects_are_seen_again(
    run: Run, recorder: Recorder, namespace: str
) -> None:
    """So does reading one that is annotated with its owner, whose kind is of the core group."""
    name = f"{namespace}-far"
    await run.kubectl("create", "namespace", name)
    recorder.seen.clear()
    await run.get("namespace", name)
    owner = ObjectRef(OWNER_GVK, namespace, "owner")
    assert recorder.seen == [(owner, ObjectRef(GVK("", "v1", "Namespace"), "", name))]
    await run.kubectl("delete", "namespace", name, "--wait=false")


async def test_blacklisted_kinds_are_owned_but_not_watched(run: Run, recorder: Recorder) -> None:
    """Kinds of the watch's blacklist get an owner but are not reported."""
    await run.kubectl("create", "secret", "generic", "s")
    body = await run.get("secret", "s")
    assert body["metadata"]["ownerReferences"][0]["name"] == "owner"
    assert (recorder.seen, recorder.written) == ([], [])


async def test_failed_writes_are_not_reported(run: Run, recorder: Recorder) -> None:
    """A rejected write is not reported."""
    await run.kubectl("create", "configmap", "once")
    recorder.written.clear()
    status, _, err = await run.done(*run.command("create", "configmap", "once"))
    assert status == 1
    assert 'configmaps "once" already exists' in err
    assert recorder.written == []


async def test_edits_of_the_own_resource_are_reported(
    run: Run, recorder: Recorder, namespace: str
) -> None:
    """An edit is reported with the resulting version; reads and edits of others are not."""
    owner = ObjectRef(OWNER_GVK, namespace, "owner")
    await run.kubectl("create", "configmap", "another")
    await run.get("configmap", "owner")
    assert recorder.edited == []
    await run.kubectl("patch", "configmap", "owner", '--patch={"data": {"a": "own"}}')
    version = (await run.get("configmap", "owner"))["metadata"]["resourceVersion"]
    assert recorder.edited == [(owner, version)]


async def test_fields_that_a_write_changes(run: Run, recorder: Recorder, namespace: str) -> None:
    """After a read, by path; a write that changes nothing and a blind one are not reported."""
    ref = ObjectRef(OWNER_GVK, namespace, "f")
    await run.kubectl("create", "--filename=-", input_=json.dumps(config_map("f", a="1", b="1")))
    patch = ("patch", "configmap", "f", '--patch={"data": {"a": "2"}}')
    await run.kubectl(*patch)
    await run.kubectl(*patch)
    changed = json.dumps(config_map("f", a="3", c="xyzzy"))
    await run.kubectl("replace", "--filename=-", input_=changed)
    await run.kubectl("annotate", "configmap", "f", "note=1")
    assert [(change.ref, change.path) for change in recorder.changes] == [
        (ref, "data.a"),
        (ref, "data.a"),
        (ref, "data.b"),
        (ref, "data.c"),
        (ref, "metadata.annotations"),
    ]
    first, second = recorder.changes[:2]
    assert first.after == second.before
    assert "xyzzy" not in str(recorder.changes)
    assert first.at <= second.at


async def test_statuses_and_scales_are_not_changed_fields(run: Run, recorder: Recorder) -> None:
    """A status is a report, and a Scale is another object."""
    await run.kubectl("create", "deployment", "d", "--image=nginx", "--replicas=0")
    await run.kubectl("get", "deployment", "d")
    await run.kubectl("scale", "deployment", "d", "--replicas=1")
    patch = '--patch={"status": {"collisionCount": 0}}'
    await run.kubectl("patch", "deployment", "d", "--subresource=status", patch)
    assert not recorder.changes
