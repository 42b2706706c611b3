"""The tree of what belongs to a resource."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.proxy.ownership import PRIMARY_ANNOTATION, PRIMARY_TYPE_ANNOTATION
from operator_runner.tools.runs.tree import (
    LastWriter,
    RunsOfTree,
    TreeNode,
    last_writer,
    touched_by,
    tree_of,
)

FOO = ObjectRef(GVK("example.com", "v1", "Foo"), "default", "a")


def ref(kind: str, name: str, namespace: str = "default") -> ObjectRef:
    return ObjectRef(GVK("", "v1", kind), namespace, name)


def item(uid: str, *owners: str, **annotations: str) -> Json:
    references = [{"uid": owner} for owner in owners]
    return {"metadata": {"uid": uid, "ownerReferences": references, "annotations": annotations}}


def shape(node: TreeNode) -> dict[str, Any]:
    return {f"{child.ref.gvk.kind}/{child.ref.name}": shape(child) for child in node.children}


def test_objects_are_below_their_owners() -> None:
    """Objects of others are left out; an object with several owners is shown once."""
    objects = {
        ref("Deployment", "d"): item("d", "root"),
        ref("ReplicaSet", "r"): item("r", "d"),
        ref("Pod", "p"): item("p", "r", "d"),
        ref("ConfigMap", "c"): item("c", "root"),
        ref("ConfigMap", "stranger"): item("s", "other"),
    }
    tree = tree_of(item("root"), FOO, objects)
    assert shape(tree) == {"ConfigMap/c": {}, "Deployment/d": {"Pod/p": {}, "ReplicaSet/r": {}}}


def test_objects_of_other_namespaces_belong_by_their_annotations() -> None:
    """Name, namespace and kind are compared."""
    owner = {PRIMARY_ANNOTATION: "default/a", PRIMARY_TYPE_ANNOTATION: "Foo.example.com"}
    objects = {
        ref("ConfigMap", "c", "elsewhere"): item("c", **owner),
        ref("ConfigMap", "d", "elsewhere"): item("d", **owner | {PRIMARY_ANNOTATION: "x/a"}),
        ref("ConfigMap", "e", "elsewhere"): item("e", **owner | {PRIMARY_TYPE_ANNOTATION: "Foo"}),
    }
    assert shape(tree_of(item("root"), FOO, objects)) == {"ConfigMap/c": {}}


def test_owners_in_a_circle_end() -> None:
    """The API server does not forbid them."""
    objects = {ref("ConfigMap", "a"): item("a", "root", "b"), ref("ConfigMap", "b"): item("b", "a")}
    assert shape(tree_of(item("root", "b"), FOO, objects)) == {"ConfigMap/a": {"ConfigMap/b": {}}}


def test_the_last_writer_is_not_that_of_the_status() -> None:
    """Readiness has its own column."""
    fields = [
        {"manager": "role", "time": "2026-01-01T12:00:00Z"},
        {"manager": "kubectl-edit", "time": "2026-01-01T13:00:00Z"},
        {
            "manager": "kube-controller-manager",
            "time": "2026-01-01T14:00:00Z",
            "subresource": "status",
        },
    ]
    assert last_writer({"managedFields": fields}).manager == "kubectl-edit"
    assert last_writer({}).manager == ""
    assert last_writer({"managedFields": [{"manager": "x", "time": "odd"}]}).at is None


def test_an_object_was_last_written_by_a_run_of_the_resource() -> None:
    """Field managers of roles alone; without a run at that time the manager is shown."""
    run: Json = {"id": "4f0c", "started": "2026-01-01T12:00:05.300Z"}
    run["finished"] = "2026-01-01T12:00:09.000Z"
    runs = RunsOfTree([run])

    def shown(manager: str, second: int) -> str:
        at = datetime(2026, 1, 1, 12, 0, second, tzinfo=UTC)
        return runs.writer(FOO, LastWriter(manager, at))

    assert shown("OpenAPI-Generator", 5) == "operator-runner, run 4f0c"
    assert shown("foo.example.com", 9) == "operator-runner, run 4f0c"
    assert shown("OpenAPI-Generator", 10) == "OpenAPI-Generator"
    assert shown("foo.example.com", 10) == "operator-runner, earlier run"
    assert shown("kubectl-edit", 6) == "kubectl-edit"


def test_objects_that_the_last_run_did_not_touch_are_known_after_a_complete_success() -> None:
    """Created objects have their kind, and those that were read or patched their plural."""
    path = "/api/v1/namespaces/default/secrets/s"
    created = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "c"}
    run: Json = {
        "outcome": "succeeded",
        "writes": [{"object": created, "verb": "create"}],
        "requests": [{"method": "GET", "path": path}, {"method": "GET", "path": "/version"}],
    }
    runs = RunsOfTree([run], touched_by(run))
    assert runs.has(ref("ConfigMap", "c"), "configmaps")
    assert runs.has(ref("Secret", "s"), "secrets")
    assert not runs.has(ref("Secret", "old"), "secrets")
    for unknown in ({"outcome": "failed"}, {"dropped": {"requests": 1}}):
        assert touched_by({**run, **unknown}) is None
