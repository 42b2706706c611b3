"""The `dependents` of a status expression: the newest objects, ordered and bounded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import structlog.testing

from operator_runner.controller.sources import dependent_objects
from operator_runner.controller.sources.dependent_objects import DependentObjects, ObjectExtract
from operator_runner.core.model import DeclaredStatus, Json, ObjectRef, Watch
from operator_runner.core.resource_states import ResourceStates
from operator_runner.kube.watch import EventType, MetadataEvent
from tests.unit.controller.test_dependents import OWNER, WATCH

DECLARING = replace(WATCH, status=DeclaredStatus({"x": "dependents"}, uses_dependents=True))
OTHER = replace(OWNER, name="other")


def body(kind: str = "Deployment", name: str = "web", version: int = 10, **more: Any) -> Json:
    owner = {"apiVersion": WATCH.gvk.api_version, "kind": WATCH.gvk.kind, "name": "owner"}
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"uid of {name}",
        "resourceVersion": str(version),
        "ownerReferences": [owner],
    }
    found = {"apiVersion": "v1", "kind": kind, "metadata": metadata} | more
    found["metadata"] = metadata | more.get("metadata", {})
    return found


class Keeping(DependentObjects):
    """With the states of the owners."""

    def __init__(self, watches: Sequence[Watch]) -> None:
        self.states = ResourceStates()
        super().__init__(watches, self.states)


def seen(objects: DependentObjects, *bodies: Json, owner: ObjectRef = OWNER) -> None:
    """Report objects in responses to a run."""
    for each in bodies:
        objects.on_response(owner, ObjectRef.of(each), each)


def event(objects: DependentObjects, type_: str, new: Json, *, whole: bool = True) -> None:
    """Report an object by an event, whole or only its metadata."""
    extracted = ObjectExtract({}, objects.content(new)) if whole else None
    metadata = {"metadata": new["metadata"]}
    objects.on_event(ObjectRef.of(new), MetadataEvent(EventType(type_), metadata, None, extracted))


def status(objects: DependentObjects) -> list[Any]:
    return [each.get("status") for each in objects.of(OWNER)]


def test_objects_are_ordered_and_have_no_data() -> None:
    """Kind, namespace, name; managed fields, the last applied manifest and data are left out."""
    objects = Keeping([DECLARING])
    assert objects.is_used
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "x"}
    secret = body("Secret", "a", data={"password": "eA=="}, stringData={"password": "x"})
    secret["metadata"] |= {"managedFields": [{}], "annotations": annotations}
    seen(
        objects, body("Service", "b"), body(name="b", spec={"replicas": 2}), body(name="a"), secret
    )
    found = objects.of(OWNER)
    assert [(each["kind"], each["metadata"]["name"]) for each in found] == [
        ("Deployment", "a"),
        ("Deployment", "b"),
        ("Secret", "a"),
        ("Service", "b"),
    ]
    assert found[1]["spec"] == {"replicas": 2}
    assert found[2].keys() == {"apiVersion", "kind", "metadata"}
    assert found[2]["metadata"]["annotations"] == {"mine": "x"}
    assert "managedFields" not in found[2]["metadata"]
    assert objects.of(OTHER) == []


def test_the_newest_version_is_seen() -> None:
    """Events and responses replace older versions, and never newer ones."""
    objects = Keeping([DECLARING])
    seen(objects, body(version=10, status=1))
    event(objects, "MODIFIED", body(version=12, status=3))
    seen(objects, body(version=11, status=2))
    assert status(objects) == [3]
    event(objects, "MODIFIED", body(version=11, status=2))
    assert status(objects) == [3]
    seen(objects, body(version=13, status=4))
    assert status(objects) == [4]
    event(objects, "MODIFIED", body(name="unknown"))
    assert len(objects.of(OWNER)) == 1


def test_deleted_objects_leave() -> None:
    """By an event, or by the run itself; a successor of the name is another object."""
    objects = Keeping([DECLARING])
    seen(objects, body(version=10, status=1))
    event(objects, "DELETED", body(version=11, metadata={"uid": "of its predecessor"}))
    assert status(objects) == [1]
    event(objects, "DELETED", body(version=11))
    assert objects.of(OWNER) == []
    seen(objects, body(version=12, status=2))
    objects.deleted_by_run(ObjectRef.of(body()))
    assert objects.of(OWNER) == []
    event(objects, "MODIFIED", body(version=13, status=3))
    assert objects.of(OWNER) == []
    held = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    event(objects, "MODIFIED", body(version=14, status=4, metadata=held))
    assert status(objects) == [4]
    seen(objects, body(version=15, status=5, metadata={"uid": "new"}))
    assert status(objects) == [5]


def test_metadata_of_kinds_without_a_status_is_updated() -> None:
    """Their watch has nothing else; a spec is kept as long as its generation is the same."""
    objects = Keeping([DECLARING])
    seen(objects, body("NetworkPolicy", spec={"x": 1}, metadata={"generation": 1}))
    labelled = {"generation": 1, "labels": {"a": "b"}}
    event(objects, "MODIFIED", body("NetworkPolicy", version=11, metadata=labelled), whole=False)
    (found,) = objects.of(OWNER)
    assert (found["metadata"]["labels"], found["spec"]) == ({"a": "b"}, {"x": 1})
    event(
        objects,
        "MODIFIED",
        body("NetworkPolicy", version=12, metadata={"generation": 2}),
        whole=False,
    )
    (found,) = objects.of(OWNER)
    assert "spec" not in found


def test_only_objects_of_declaring_kinds_are_kept() -> None:
    """Neither those of watches without such a status, nor those of other owners."""
    objects = Keeping([WATCH, replace(WATCH, status=DeclaredStatus({"x": "result.ok"}))])
    assert not objects.is_used
    seen(objects, body())
    assert objects.of(OWNER) == []
    assert objects.content(body()) is None
    objects = Keeping([DECLARING])
    foreign = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x"}]
    assert objects.content(body(metadata={"ownerReferences": foreign})) is None
    assert objects.content(body(metadata={"ownerReferences": []}))


def test_the_objects_of_a_deleted_owner_are_dropped() -> None:
    """An object of two owners stays for the other one."""
    objects = Keeping([DECLARING])
    seen(objects, body(name="a"), body(name="b"))
    seen(objects, body(name="b"), owner=OTHER)
    objects.states.pop(OWNER)
    assert objects.of(OWNER) == []
    assert [each["metadata"]["name"] for each in objects.of(OTHER)] == ["b"]
    event(objects, "DELETED", body(name="b", version=11))
    assert objects.of(OTHER) == []


APPLYING = replace(WATCH, field_manager="operator.example.com")


def test_all_of_an_object_is_kept_for_an_apply() -> None:
    """For runs of its owner, as long as events show what has become of it; no data of Secrets."""
    objects = Keeping([APPLYING])

    def newest(kind: str, owner: ObjectRef = OWNER) -> Json | None:
        found = objects.newest(owner, ObjectRef.of(body(kind)))
        return None if found is None else dict(json.loads(found))

    plain = body("ConfigMap", data={"a": "b"}, metadata={"managedFields": [{"manager": "x"}]})
    secret = body("Secret", data={"password": "eA=="})
    deployment, deep = body(spec={"x": 1}), body("Service", spec={})
    seen(objects, plain, secret, deployment, deep)
    assert newest("ConfigMap") == plain
    assert newest("Deployment") == deployment
    assert newest("ConfigMap", OTHER) is None
    assert newest("Secret") is newest("Service") is newest("Pod") is None
    event(objects, "MODIFIED", plain, whole=False)  # that of the run's own write
    assert newest("ConfigMap") == plain
    event(objects, "MODIFIED", body("ConfigMap", version=11), whole=False)
    assert newest("ConfigMap") is None
    rolled_out = body(version=12, spec={"x": 1}, status={"replicas": 1})
    event(objects, "MODIFIED", rolled_out)
    seen(objects, deployment)  # a response that is older than the event
    assert newest("Deployment") == rolled_out
    objects.deleted_by_run(ObjectRef.of(body()))
    assert newest("Deployment") is None


@pytest.mark.parametrize("limit", [{"_MAX_OBJECTS": 3}, {"_MAX_BYTES": 1000}])
def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch, limit: dict[str, int]) -> None:
    """Objects beyond the limit are left out, with one warning that contains the fix."""
    for name, value in limit.items():
        monkeypatch.setattr(dependent_objects, name, value)
    objects = Keeping([DECLARING])
    with structlog.testing.capture_logs() as logs:
        for number in range(20):
            seen(objects, body(name=f"web-{number}", spec={"text": f"{number:050d}"}))
    assert 2 < len(objects.of(OWNER)) < 10
    (line,) = logs
    assert "k8s_status" in line["hint"]
    objects.states.pop(OWNER)
    seen(objects, body())
    assert len(objects.of(OWNER)) == 1
