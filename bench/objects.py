"""Compare the objects that two operators have written into their namespaces. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from bench.api import Json

OF_CONTROLLERS = {
    "Pod",
    "ReplicaSet",
    "ControllerRevision",
    "Endpoints",
    "EndpointSlice",
    "Event",
    "Lease",
    "PodMetrics",
}
"""Kinds whose objects are written by controllers of Kubernetes."""
_METADATA = {
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "namespace",
    "selfLink",
}
_ASSIGNED = {"clusterIP", "clusterIPs", "nodePort", "healthCheckNodePort", "volumeName"}
"""Fields that the API server or a controller fills in."""
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?")

Objects = dict[tuple[str, str], Json]


def comparable(bodies: Sequence[Json], namespace: str) -> Objects:
    """Return the objects of a namespace by kind and name, without what differs between any two.

    Without uids, versions, times, the name of the namespace, assigned addresses, values of Secrets,
    because roles generate passwords, and the status, which controllers write.
    """
    found: Objects = {}
    for body in bodies:
        text = json.dumps(_without_values(body))
        text = _TIME.sub("TIME", _UID.sub("UID", text.replace(namespace, "NAMESPACE")))
        plain = json.loads(text)
        found[plain["kind"], plain["metadata"]["name"]] = _without_assigned(plain)
    return found


def differences(ours: Objects, other: Objects) -> list[str]:
    """Return a line for each object that differs, with the fields that do."""
    lines = []
    for key in sorted({*ours, *other}):
        name = " ".join(key)
        if key not in other:
            lines.append(f"{name}: only of operator-runner")
        elif key not in ours:
            lines.append(f"{name}: only of ansible-operator")
        elif fields := sorted(set(_differing(ours[key], other[key], ""))):
            lines.append(f"{name}: {', '.join(fields)}")
    return lines


def _without_values(body: Json) -> Json:
    plain = {key: value for key, value in body.items() if key != "status"}
    metadata = {k: v for k, v in body["metadata"].items() if k not in _METADATA}
    if body["kind"] == "Secret":
        plain["data"] = dict.fromkeys(body.get("data") or {}, "VALUE")
    return {**plain, "metadata": metadata}


def _without_assigned(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_assigned(v) for k, v in value.items() if k not in _ASSIGNED}
    if isinstance(value, list):
        return [_without_assigned(each) for each in value]
    return value


def _differing(ours: Any, other: Any, path: str) -> Iterator[str]:
    """Yield the paths of the fields whose values differ."""
    if isinstance(ours, dict) and isinstance(other, dict):
        for key in {*ours, *other}:
            yield from _differing(ours.get(key), other.get(key), f"{path}.{key}".lstrip("."))
    elif isinstance(ours, list) and isinstance(other, list) and len(ours) == len(other):
        for place, pair in enumerate(zip(ours, other, strict=True)):
            yield from _differing(*pair, f"{path}[{place}]")
    elif ours != other:
        yield path
