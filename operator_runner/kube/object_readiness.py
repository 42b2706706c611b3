"""The readiness of an object by its status: ready, not ready, failed. Pure.

Roles set conditions by the status of their objects, so a change of readiness triggers a reconcile
of the owner, and other changes of the status do not. Objects are not trusted: no function here
raises, for any content.

Source: kstatus (sigs.k8s.io/cli-utils, pkg/kstatus/status). A Job is ready once it is complete,
a Service of type LoadBalancer once it has an address; kstatus calls both current before that. A
workload with zero replicas is ready before its controller has observed it; kstatus waits for that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from operator_runner.core.model import GVK, Json, ObjectRef
from operator_runner.core.texts import truncated


class Readiness(StrEnum):
    """The readiness of an object; UNKNOWN without any of the known conditions."""

    UNKNOWN = "unknown"
    NOT_READY = "not ready"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Health:
    """A summary of an object's status.

    `behind` is whether the status is older than the spec; None if not evaluated. `reason` and
    `message` are why it is not ready, empty if the status does not have it.
    """

    readiness: Readiness = Readiness.UNKNOWN
    behind: bool | None = None
    reason: str = field(default="", compare=False)
    message: str = field(default="", compare=False)

    @property
    def is_waited_for(self) -> bool:
        """Whether the object, or its controller, has not reached what its spec asks for."""
        return self.readiness in {Readiness.NOT_READY, Readiness.FAILED} or self.behind is True


@dataclass(frozen=True, slots=True)
class DependentsReadiness:
    """Whether all objects of a resource are ready, with reason and message of the first if not.

    `failed` is whether waiting does not help. `ready` is None if no object is known.
    """

    ready: bool | None = None
    failed: bool = False
    reason: str = "DependentsReady"
    message: str = "all dependents are ready"


def readiness_of(waited_for: Mapping[ObjectRef, Health], named: str = "") -> DependentsReadiness:
    """Return the readiness of a resource whose objects are ready but for these.

    The first is the one `named` by kind and name, else one that has failed, then by kind and name.
    """
    if not waited_for:
        return DependentsReadiness(ready=True)
    states = {ref: health.readiness is not Readiness.FAILED for ref, health in waited_for.items()}
    texts = {ref: f"{ref.gvk.kind} {ref.name}" for ref in states}
    ref = min(states, key=lambda ref: (texts[ref] != named, states[ref], texts[ref], ref.namespace))
    health, failed = waited_for[ref], not states[ref]
    default = "DependentFailed" if failed else "DependentNotReady"
    text = f"{texts[ref]} {'has failed' if failed else 'is not ready'}"
    message = f"{text}: {health.message}" if health.message else text
    return DependentsReadiness(False, failed, health.reason or default, message)


_Object: TypeAlias = Mapping[str, Any]
_TRUE, _FALSE = "True", "False"
_FAILED = ("Stalled", "Failed")
"""Conditions of any kind that exist only while they are true."""
_READY = ("Ready", "Available", "Established")
"""Conditions of any kind; the first that exists is used. CRDs have Established."""
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
"""Source: the pattern of `reason` in metav1.Condition."""
_MESSAGE_BYTES = 1024
_POD_NAME = re.compile(r'\bpods "[^"]*"(?: is\b)?')
"""Name of a Pod that was refused; each attempt has another one."""
_REFUSED = re.compile(
    r"\A(?:\(combined from similar events\): )?"
    r"(?:Error creating: |[Cc]reate Pod \S+ in \S+ \S+ failed error: )?"
)
"""What the controllers of workloads write before the answer of the API server."""
_CAUSES = (("ReplicaFailure", _TRUE), ("Failed", _TRUE), ("Progressing", _FALSE))
"""Conditions of workloads that have a cause, with their status."""
_CAUSES_OF_OTHERS = (("Stalled", _TRUE), *((type_, _FALSE) for type_ in _READY))
_UNPULLED = frozenset({"ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff", "InvalidImageName"})
_UNCREATED = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_STUCK = _UNPULLED | _UNCREATED | {"CrashLoopBackOff"}
"""Reasons of waiting containers that do not resolve by themselves. Source: kubelet's events."""


POD_CAUSES = (
    "ImagePullFailed",
    "ContainerNotCreated",
    "ContainerCrashes",
    "ClaimPending",
    "Unschedulable",
)
"""Reasons of Pods, in the order in which people look for them."""
POD_REFUSED = "FailedCreate"
"""Reason of a workload for which a quota or a policy refuses Pods."""


def health_of(gvk: GVK, body: Json) -> Health:
    """Return the summary of an object's status.

    `body` may lack apiVersion and kind, like the items of lists.
    """
    metadata, spec, status = (_map(body.get(key)) for key in ("metadata", "spec", "status"))
    judge = _KINDS.get((gvk.group, gvk.kind))
    behind = _is_behind(metadata, status)
    if judge is None:
        readiness = _by_conditions(status)
    else:
        readiness = judge(spec, status)
        # With zero replicas, nothing but this shows that the status is still that of the creation.
        behind |= _count(spec, "replicas", 1) == 0 and "observedGeneration" not in status
    if readiness in {Readiness.READY, Readiness.UNKNOWN}:
        return Health(readiness, behind)
    why = _pod_cause(status) if judge is _pod else _why(status, is_known=judge is not None)
    return Health(readiness, behind, *why)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An Event about a Pod of a workload that was refused, with its time to the second."""

    workload: ObjectRef
    time: str
    health: Health


def refusal_of(event: Json) -> Refusal | None:
    """Return the refusal that an Event with the reason `POD_REFUSED` (events.k8s.io) is about."""
    regarding, series = _map(event.get("regarding")), _map(event.get("series"))
    gvk = GVK.of(str(regarding.get("apiVersion")), str(regarding.get("kind")))
    times = (series.get("lastObservedTime"), event.get("deprecatedLastTimestamp"))
    time = str(next(filter(None, times), event.get("eventTime")))[:19] + "Z"
    text = _refusal_text(_REFUSED.sub("", str(event.get("note") or ""), count=1))
    health = Health(Readiness.NOT_READY, None, POD_REFUSED, text)
    workload = ObjectRef(gvk, str(regarding.get("namespace")), str(regarding.get("name")))
    return Refusal(workload, time, health) if event.get("reason") == POD_REFUSED else None


def _pod_cause(status: _Object) -> tuple[str, str]:
    """Return reason and message of a Pod that is not ready, as long as the cause is the same."""
    found: dict[str, str] = {}
    for each in (*_maps(status, "initContainerStatuses"), *_maps(status, "containerStatuses")):
        reason, message = _container_cause(each)
        found.setdefault(reason, f"container {each.get('name')} {message}")
    for each in _maps(status, "conditions"):
        if each.get("type") == "PodScheduled" and each.get("status") == _FALSE:
            message = str(each.get("message") or "")
            is_claim = "persistentvolumeclaim" in message.lower()
            found.setdefault("ClaimPending" if is_claim else "Unschedulable", message)
    cause = next((each for each in POD_CAUSES if each in found), "")
    return cause, truncated(found.get(cause, ""), _MESSAGE_BYTES) if cause else ""


def _container_cause(container: _Object) -> tuple[str, str]:
    state, last = _map(container.get("state")), _map(container.get("lastState"))
    waiting = _map(state.get("waiting"))
    reason = str(waiting.get("reason"))
    if reason in _UNPULLED:
        # Without the message, which differs between ErrImagePull and ImagePullBackOff.
        return "ImagePullFailed", f"cannot pull image {container.get('image')}"
    if reason in _UNCREATED:
        return "ContainerNotCreated", f"cannot be created: {waiting.get('message')}"
    # A container that crashes is running, terminated and waiting in turn.
    ended = _map(state.get("terminated")) or _map(last.get("terminated"))
    if container.get("ready") is True or ended.get("exitCode") in (None, 0):
        return "", ""
    last_line = str(ended.get("message") or "").strip().rpartition("\n")[2]
    return "ContainerCrashes", (
        f"crashes with exit code {ended.get('exitCode')}: {last_line or ended.get('reason')}"
    )


def _why(status: _Object, *, is_known: bool) -> tuple[str, str]:
    """Return reason and message of a status that is not ready, empty texts without them."""
    conditions = {str(each.get("type")): each for each in _maps(status, "conditions")}
    for type_, value in (*_CAUSES, *(() if is_known else _CAUSES_OF_OTHERS)):
        condition = conditions.get(type_, {})
        reason = condition.get("reason")
        if condition.get("status") == value and isinstance(reason, str) and reason:
            message = condition.get("message")
            text = _refusal_text(message) if isinstance(message, str) else ""
            return (reason if _REASON.fullmatch(reason) else ""), text
    return "", ""


def _refusal_text(message: str) -> str:
    """Return a message without the names of Pods."""
    text = _POD_NAME.sub(lambda match: "Pods are" if match[0].endswith("is") else "Pods", message)
    return truncated(text, _MESSAGE_BYTES)


def change(old: Readiness, new: Readiness) -> str:
    """Return a change of readiness as text for messages; empty if it is not relevant.

    The first status of an object is not a change to not ready.
    """
    if old is new or (old is Readiness.UNKNOWN and new is Readiness.NOT_READY):
        return ""
    return _CHANGES[new]


def is_change(text: str) -> bool:
    """Return whether a text ends with one that `change` returns."""
    return text.endswith(tuple(_CHANGES.values()))


_CHANGES = {
    Readiness.UNKNOWN: "has no readiness condition any more",
    Readiness.NOT_READY: "became not ready",
    Readiness.READY: "became ready",
    Readiness.FAILED: "failed",
}


def _by_conditions(status: _Object) -> Readiness:
    conditions = _conditions(status)
    if any(conditions.get(type_) == _TRUE for type_ in _FAILED):
        return Readiness.FAILED
    if conditions.get("Reconciling") == _TRUE:
        return Readiness.NOT_READY
    for type_ in _READY:
        if type_ in conditions:
            return _ready(conditions[type_] == _TRUE)
    return Readiness.UNKNOWN


def _deployment(spec: _Object, status: _Object) -> Readiness:
    conditions = _conditions(status)
    if conditions.get("Progressing") == _FALSE:
        return Readiness.FAILED
    desired, updated = _count(spec, "replicas", 1), _count(status, "updatedReplicas")
    return _ready(
        _is_counted(status, desired)
        and desired <= updated <= _count(status, "availableReplicas")
        and conditions.get("Available") != _FALSE
    )


def _stateful_set(spec: _Object, status: _Object) -> Readiness:
    desired = _count(spec, "replicas", 1)
    strategy = _map(spec.get("updateStrategy"))
    partition = _count(_map(strategy.get("rollingUpdate")), "partition")
    if strategy.get("type") == "OnDelete":
        rolled_out = True
    elif partition:
        rolled_out = _count(status, "updatedReplicas") >= desired - partition
    else:
        rolled_out = status.get("currentRevision") == status.get("updateRevision")
    return _ready(_is_counted(status, desired) and rolled_out)


def _daemon_set(spec: _Object, status: _Object) -> Readiness:
    # All counts of a new one are 0 until its controller has observed it.
    is_observed = _count(status, "observedGeneration") > 0
    desired = _count(status, "desiredNumberScheduled")
    counts = ["currentNumberScheduled", "numberAvailable", "numberReady"]
    if _map(spec.get("updateStrategy")).get("type") != "OnDelete":
        counts.append("updatedNumberScheduled")
    return _ready(is_observed and all(_count(status, name) >= desired for name in counts))


def _replica_set(spec: _Object, status: _Object) -> Readiness:
    desired = _count(spec, "replicas", 1)
    return _ready(
        _is_counted(status, desired)
        and _count(status, "availableReplicas") >= desired
        and _conditions(status).get("ReplicaFailure") != _TRUE
    )


def _job(_: _Object, status: _Object) -> Readiness:
    conditions = _conditions(status)
    if conditions.get("Failed") == _TRUE:
        return Readiness.FAILED
    return _ready(conditions.get("Complete") == _TRUE)


def _pod(_: _Object, status: _Object) -> Readiness:
    phase = status.get("phase")
    if phase == "Succeeded" or _conditions(status).get("Ready") == _TRUE:
        return Readiness.READY
    containers = [*_maps(status, "initContainerStatuses"), *_maps(status, "containerStatuses")]
    waiting = (_map(_map(each.get("state")).get("waiting")).get("reason") for each in containers)
    is_stuck = any(isinstance(reason, str) and reason in _STUCK for reason in waiting)
    return Readiness.FAILED if phase == "Failed" or is_stuck else Readiness.NOT_READY


def _volume_claim(_: _Object, status: _Object) -> Readiness:
    phase = status.get("phase")
    return Readiness.FAILED if phase == "Lost" else _ready(phase == "Bound")


def _service(spec: _Object, status: _Object) -> Readiness:
    if spec.get("type") != "LoadBalancer":
        return Readiness.READY
    return _ready(bool(_maps(_map(status.get("loadBalancer")), "ingress")))


_KINDS: Mapping[tuple[str, str], Callable[[_Object, _Object], Readiness]] = {
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("batch", "Job"): _job,
    ("", "PersistentVolumeClaim"): _volume_claim,
    ("", "Pod"): _pod,
    ("", "ReplicationController"): _replica_set,
    ("", "Service"): _service,
}
"""Kinds whose readiness is in more than one condition, by group and kind."""


def _is_counted(status: _Object, desired: int) -> bool:
    """Return whether all desired Pods exist and are ready."""
    return _count(status, "replicas") == desired <= _count(status, "readyReplicas")


def _is_behind(metadata: _Object, status: _Object) -> bool:
    generation = metadata.get("generation")
    conditions = [each for each in _maps(status, "conditions") if each.get("type") in _READY]
    observed = [each.get("observedGeneration") for each in (status, *conditions[:1])]
    seen = [number for number in observed if type(number) is int]
    return type(generation) is int and any(number < generation for number in seen)


def _ready(is_ready: bool) -> Readiness:
    return Readiness.READY if is_ready else Readiness.NOT_READY


def _conditions(status: _Object) -> dict[str, Any]:
    """Return the status of each condition by its type."""
    found = _maps(status, "conditions")
    return {each["type"]: each.get("status") for each in found if isinstance(each.get("type"), str)}


def _count(values: _Object, key: str, otherwise: int = 0) -> int:
    found = values.get(key)
    return found if type(found) is int else otherwise


def _maps(values: _Object, key: str) -> list[_Object]:
    found = values.get(key)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _map(value: Any) -> _Object:
    return value if isinstance(value, dict) else {}
