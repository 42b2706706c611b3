"""Readiness by kind, and robustness against any status."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.kube.object_readiness import (
    DependentsReadiness,
    Health,
    Readiness,
    change,
    health_of,
    is_change,
    readiness_of,
    refusal_of,
)

UNKNOWN, NOT_READY, READY, FAILED = Readiness
KINDS = {
    "Deployment": GVK("apps", "v1", "Deployment"),
    "StatefulSet": GVK("apps", "v1", "StatefulSet"),
    "DaemonSet": GVK("apps", "v1", "DaemonSet"),
    "ReplicaSet": GVK("apps", "v1", "ReplicaSet"),
    "Job": GVK("batch", "v1", "Job"),
    "Pod": GVK("", "v1", "Pod"),
    "PersistentVolumeClaim": GVK("", "v1", "PersistentVolumeClaim"),
    "Service": GVK("", "v1", "Service"),
    "Database": GVK("shop.example.com", "v1", "Database"),
}
TEN = {"replicas": 10}
ON_DELETE = {"updateStrategy": {"type": "OnDelete"}}
ALL = {"replicas": 10, "updatedReplicas": 10, "readyReplicas": 10, "availableReplicas": 10}
NODES = {
    "observedGeneration": 1,
    "desiredNumberScheduled": 3,
    "currentNumberScheduled": 3,
    "numberReady": 3,
}
NO_NODES = dict.fromkeys(
    ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"), 0
)


def conditions(**statuses: str) -> Json:
    return {"conditions": [{"type": type_, "status": status} for type_, status in statuses.items()]}


def waiting(reason: str) -> Json:
    return {"phase": "Running", "containerStatuses": [{"state": {"waiting": {"reason": reason}}}]}


@pytest.mark.parametrize(
    ("kind", "spec", "status", "expected"),
    [
        ("Deployment", TEN, {}, NOT_READY),
        ("Deployment", {"replicas": 0}, {"observedGeneration": 1}, READY),
        ("Deployment", {"replicas": 0}, {"observedGeneration": 1, "replicas": 3}, NOT_READY),
        ("Deployment", TEN, {"replicas": 10, "readyReplicas": 3}, NOT_READY),
        ("Deployment", TEN, ALL | {"readyReplicas": 4}, NOT_READY),
        ("Deployment", TEN, ALL, READY),
        ("Deployment", {}, dict.fromkeys(ALL, 1), READY),
        ("Deployment", TEN, ALL | conditions(Available="True", Progressing="True"), READY),
        ("Deployment", TEN, ALL | conditions(Available="False"), NOT_READY),
        ("Deployment", TEN, ALL | {"updatedReplicas": 4}, NOT_READY),
        ("Deployment", TEN, ALL | {"availableReplicas": 9}, NOT_READY),
        ("Deployment", TEN, ALL | {"replicas": 11}, NOT_READY),
        ("Deployment", TEN, {"readyReplicas": 3} | conditions(Progressing="False"), FAILED),
        ("StatefulSet", TEN, {}, NOT_READY),
        ("StatefulSet", TEN, {"replicas": 10, "readyReplicas": 9}, NOT_READY),
        ("StatefulSet", TEN, {"replicas": 10, "readyReplicas": 10}, READY),
        (
            "StatefulSet",
            TEN,
            {"replicas": 10, "readyReplicas": 10, "currentRevision": "a", "updateRevision": "b"},
            NOT_READY,
        ),
        (
            "StatefulSet",
            TEN | ON_DELETE,
            {"replicas": 10, "readyReplicas": 10, "currentRevision": "a", "updateRevision": "b"},
            READY,
        ),
        (
            "StatefulSet",
            TEN | {"updateStrategy": {"rollingUpdate": {"partition": 8}}},
            {
                "replicas": 10,
                "readyReplicas": 10,
                "updatedReplicas": 2,
                "currentRevision": "a",
                "updateRevision": "b",
            },
            READY,
        ),
        ("DaemonSet", {}, {}, NOT_READY),
        ("DaemonSet", {}, NODES, NOT_READY),
        ("DaemonSet", {}, NODES | {"updatedNumberScheduled": 3, "numberAvailable": 3}, READY),
        ("DaemonSet", {}, NODES | {"numberAvailable": 3}, NOT_READY),
        ("DaemonSet", ON_DELETE, NODES | {"numberAvailable": 3}, READY),
        ("DaemonSet", ON_DELETE, NODES | {"numberAvailable": 2}, NOT_READY),
        # The API server returns this for the creation.
        ("DaemonSet", {}, NO_NODES, NOT_READY),
        ("DaemonSet", {}, NO_NODES | {"observedGeneration": 1}, READY),
        ("ReplicaSet", TEN, ALL, READY),
        ("ReplicaSet", TEN, ALL | conditions(ReplicaFailure="True"), NOT_READY),
        ("Job", {}, {"active": 1, "startTime": "now"}, NOT_READY),
        ("Job", {}, conditions(Complete="True"), READY),
        ("Job", {}, conditions(Failed="True"), FAILED),
        ("Job", {}, conditions(Suspended="True"), NOT_READY),
        ("Pod", {}, {"phase": "Pending"}, NOT_READY),
        ("Pod", {}, {"phase": "Running"} | conditions(Ready="False"), NOT_READY),
        ("Pod", {}, {"phase": "Running"} | conditions(Ready="True"), READY),
        ("Pod", {}, {"phase": "Succeeded"} | conditions(Ready="False"), READY),
        ("Pod", {}, {"phase": "Failed"}, FAILED),
        ("Pod", {}, waiting("CrashLoopBackOff"), FAILED),
        ("Pod", {}, waiting("ContainerCreating"), NOT_READY),
        ("PersistentVolumeClaim", {}, {"phase": "Pending"}, NOT_READY),
        ("PersistentVolumeClaim", {}, {"phase": "Bound"}, READY),
        ("PersistentVolumeClaim", {}, {"phase": "Lost"}, FAILED),
        ("Service", {"type": "ClusterIP"}, {"loadBalancer": {}}, READY),
        ("Service", {"type": "LoadBalancer"}, {"loadBalancer": {}}, NOT_READY),
        ("Service", {"type": "LoadBalancer"}, {"loadBalancer": {"ingress": [{}]}}, READY),
        ("Database", {}, {}, UNKNOWN),
        ("Database", {}, {"phase": "Pending", **conditions(Synced="True")}, UNKNOWN),
        ("Database", {}, conditions(Ready="False"), NOT_READY),
        ("Database", {}, conditions(Ready="Unknown"), NOT_READY),
        ("Database", {}, conditions(Ready="True"), READY),
        ("Database", {}, conditions(Available="True"), READY),
        ("Database", {}, conditions(Available="True", Ready="False"), NOT_READY),
        ("Database", {}, conditions(Ready="True", Reconciling="True"), NOT_READY),
        ("Database", {}, conditions(Ready="True", Reconciling="False", Stalled="False"), READY),
        ("Database", {}, conditions(Ready="False", Stalled="True"), FAILED),
        ("Database", {}, conditions(Failed="True"), FAILED),
    ],
)
def test_readiness_is_that_of_kstatus(
    kind: str, spec: Json, status: Json, expected: Readiness
) -> None:
    """The rules are those of kstatus."""
    body = {"metadata": {}, "spec": spec, "status": status}
    assert health_of(KINDS[kind], body) == Health(expected, behind=False)


@pytest.mark.parametrize(
    ("kind", "created"),
    [
        ("Deployment", {}),
        ("ReplicaSet", {"replicas": 0}),
        ("StatefulSet", {"replicas": 0, "availableReplicas": 0}),
    ],
)
def test_a_workload_without_replicas_has_nothing_to_wait_for(kind: str, created: Json) -> None:
    """It is ready when it is created, with a status that is behind until it is observed."""
    body = {"metadata": {"generation": 1}, "spec": {"replicas": 0}, "status": created}
    assert health_of(KINDS[kind], body) == Health(READY, behind=True)
    body["status"] = created | {"observedGeneration": 1}
    assert health_of(KINDS[kind], body) == Health(READY, behind=False)


@pytest.mark.parametrize(
    ("generation", "status", "behind"),
    [
        (2, {"observedGeneration": 1}, True),
        (2, {"observedGeneration": 2}, False),
        (2, {}, False),
        (None, {"observedGeneration": 1}, False),
        (2, {"conditions": [{"type": "Ready", "observedGeneration": 1}]}, True),
        (2, {"conditions": [{"type": "Synced", "observedGeneration": 1}]}, False),
    ],
)
def test_a_status_may_be_behind_the_spec(generation: Any, status: Json, behind: bool) -> None:
    """The status and its readiness condition have an observedGeneration."""
    body = {"metadata": {"generation": generation}, "status": status}
    assert health_of(KINDS["Database"], body).behind is behind


@pytest.mark.parametrize("old", Readiness)
@pytest.mark.parametrize("new", Readiness)
def test_every_change_but_the_first_status_has_a_text(old: Readiness, new: Readiness) -> None:
    """Counters do not change the readiness."""
    silent = old is new or (old, new) == (UNKNOWN, NOT_READY)
    assert bool(change(old, new)) is not silent


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["conditions", "replicas", "phase", "loadBalancer", "containerStatuses", "observedGeneration"]
)
ODD = st.dictionaries(
    NAMES, JSON | st.lists(st.dictionaries(st.sampled_from(["type", "state"]), JSON))
)


@given(st.sampled_from(list(KINDS.values())), ODD | JSON, ODD | JSON, JSON)
def test_no_shape_of_an_object_raises(gvk: GVK, spec: Any, status: Any, generation: Any) -> None:
    """Users with write access to a status control its content."""
    body = {"metadata": {"generation": generation}, "spec": spec, "status": status}
    assert isinstance(health_of(gvk, body), Health)


def test_texts_of_a_change_are_recognised() -> None:
    """The message for a loop of readiness differs from that for two writers."""
    assert is_change(f"Deployment default/web {change(READY, NOT_READY)}")
    assert not is_change("Deployment default/web changed by kubectl (spec.replicas)")


def container(name: str, ready: bool = False, image: str = "web:1", **states: Any) -> Json:
    return {"name": name, "ready": ready, "image": image, **states}


CRASHED = {"terminated": {"exitCode": 3, "reason": "Error", "message": "one\nno database\n"}}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
PULLING = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
NO_SECRET = {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "a" not found'}}
UNSCHEDULED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available: 1 Insufficient cpu.",
}
UNBOUND = UNSCHEDULED | {"message": "pod has unbound immediate PersistentVolumeClaims."}


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        ([container("a", state=PULLING)], "ImagePullFailed", "container a cannot pull image web:1"),
        (
            [container("a", state={"waiting": {"reason": "ImagePullBackOff", "message": "x"}})],
            "ImagePullFailed",
            "container a cannot pull image web:1",
        ),
        (
            [container("a", state=NO_SECRET)],
            "ContainerNotCreated",
            'container a cannot be created: secret "a" not found',
        ),
        *(
            (
                [container("ok", ready=True), container("a", state=state, lastState=last)],
                "ContainerCrashes",
                "container a crashes with exit code 3: no database",
            )
            for state, last in ((BACK_OFF, CRASHED), ({"running": {}}, CRASHED), (CRASHED, {}))
        ),
        ([container("a", state=CRASHED), container("b", state=PULLING)], "ImagePullFailed", "b"),
        ([container("a", ready=True, lastState=CRASHED)], "", ""),
        ([container("a", state={"waiting": {"reason": "ContainerCreating"}})], "", ""),
        ([UNSCHEDULED], "Unschedulable", "0/1 nodes are available"),
        ([UNBOUND], "ClaimPending", "pod has unbound"),
    ],
)
def test_a_pod_has_the_cause_that_people_look_for(
    status: list[Json], reason: str, message: str
) -> None:
    """The same in all states through which it goes while the cause is the same."""
    key = "conditions" if "type" in status[0] else "containerStatuses"
    health = health_of(KINDS["Pod"], {"metadata": {}, "status": {"phase": "Pending", key: status}})
    assert health.reason == reason
    assert message in health.message


REFUSED = {
    "type": "ReplicaFailure",
    "status": "True",
    "reason": "FailedCreate",
    "message": 'pods "web-5-x7k2p" is forbidden: exceeded quota: q',
}


@pytest.mark.parametrize(
    ("kind", "condition", "reason", "message"),
    [
        ("Deployment", REFUSED, "FailedCreate", "Pods are forbidden: exceeded quota: q"),
        ("Job", REFUSED | {"type": "Failed", "reason": "BackoffLimitExceeded"}, None, None),
        ("Deployment", REFUSED | {"type": "Available", "status": "False"}, "", ""),
        ("Database", REFUSED | {"type": "Ready", "status": "False", "reason": "no"}, "no", None),
        (
            "Database",
            REFUSED | {"type": "Ready", "status": "False", "reason": "not a word"},
            "",
            None,
        ),
        ("Database", {"type": "Ready", "status": "False", "reason": 3, "message": 4}, "", ""),
    ],
)
def test_a_status_may_have_the_cause(
    kind: str, condition: Json, reason: str | None, message: str | None
) -> None:
    """Reason and message of the condition, without the name of a Pod, which each attempt has."""
    status = {"conditions": [condition]}
    health = health_of(KINDS[kind], {"metadata": {}, "spec": {}, "status": status})
    assert health.reason == (condition["reason"] if reason is None else reason)
    assert message is None or health.message == message


def test_the_first_object_that_is_not_ready_is_named() -> None:
    """What has failed comes first, then by kind and name; what is behind its spec is not ready."""
    web, db = (ObjectRef(KINDS[kind], "a", "x") for kind in ("Deployment", "StatefulSet"))
    waiting_for = Health(NOT_READY, False, "Starting", "two Pods are missing")
    assert readiness_of({}).ready is True
    assert readiness_of({db: Health(NOT_READY), web: waiting_for}) == DependentsReadiness(
        False, False, "Starting", "Deployment x is not ready: two Pods are missing"
    )
    assert readiness_of({web: waiting_for, db: Health(FAILED)}) == DependentsReadiness(
        False, True, "DependentFailed", "StatefulSet x has failed"
    )
    assert readiness_of({db: Health(READY, behind=True)}).reason == "DependentNotReady"
    assert [Health(READY, behind=True).is_waited_for, Health().is_waited_for] == [True, False]


@pytest.mark.parametrize(
    ("note", "message"),
    [
        (
            'create Pod web-0 in StatefulSet web failed error: pods "web-0" is forbidden: no room',
            "Pods are forbidden: no room",
        ),
        (
            '(combined from similar events): Error creating: pods "web-" is forbidden: no account',
            "Pods are forbidden: no account",
        ),
        (
            'Error creating: admission webhook "policy.io" denied the request: no',
            'admission webhook "policy.io" denied the request: no',
        ),
    ],
)
def test_an_event_about_a_refused_pod_has_the_cause(note: str, message: str) -> None:
    """As controllers of StatefulSets, DaemonSets and Jobs write it; in each retry the same."""
    regarding = {"apiVersion": "apps/v1", "kind": "StatefulSet", "namespace": "ns", "name": "web"}
    event = {"reason": "FailedCreate", "note": note, "regarding": regarding, "eventTime": None}
    found = refusal_of(event | {"deprecatedLastTimestamp": "2026-01-05T12:00:00Z"})

    assert found is not None
    assert str(found.workload) == "StatefulSet ns/web"
    assert (found.health.reason, found.health.message) == ("FailedCreate", message)
    assert found.time == "2026-01-05T12:00:00Z"
    series = {"series": {"lastObservedTime": "2026-01-05T12:00:07.123456Z", "count": 2}}
    again = refusal_of(event | series)
    assert again is not None
    assert again.time == "2026-01-05T12:00:07Z"
    assert refusal_of(event | {"reason": "Pulled"}) is None
    assert refusal_of({"reason": "FailedCreate", "regarding": 3, "series": "x"}) is not None
