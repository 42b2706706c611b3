"""Tests write over one connection what kubectl would write."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.kubectl import Json, Kubectl

_OF_ONE_OBJECT = {"name", "uid", "resourceVersion", "creationTimestamp", "time"}
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def _config_map(name: str, value: str = "1") -> Json:
    metadata = {"name": name, "labels": {"app": "tried"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": value}}


def _stored(kubectl: Kubectl, name: str) -> Json:
    """Return the object with its managers, without what differs between any two objects.

    The API server orders managers by time, in whole seconds, and then by name.
    """
    shown = kubectl("get", "configmap", name, "--show-managed-fields", "--output=json")
    found: Json = _common(json.loads(shown))
    metadata = found["metadata"]
    metadata["managedFields"].sort(key=lambda each: (each["manager"], each["operation"]))
    if _APPLIED in metadata.get("annotations", {}):
        applied = json.loads(metadata["annotations"][_APPLIED])
        metadata["annotations"][_APPLIED] = _common(applied)
    return found


def _common(value: Any) -> Any:
    if isinstance(value, list):
        return [_common(each) for each in value]
    if isinstance(value, dict):
        return {key: _common(each) for key, each in value.items() if key not in _OF_ONE_OBJECT}
    return value


def test_objects_are_those_of_kubectl(kubectl: Kubectl) -> None:
    """Created, applied and patched, they have the same annotations and managers of fields."""
    kubectl.create(_config_map("created"))
    kubectl("create", "--filename=-", input_=json.dumps(_config_map("created-theirs")))
    assert _stored(kubectl, "created") == _stored(kubectl, "created-theirs")

    kubectl.apply(_config_map("applied"))
    kubectl("apply", "--filename=-", input_=json.dumps(_config_map("applied-theirs")))
    assert _stored(kubectl, "applied") == _stored(kubectl, "applied-theirs")

    kubectl.merge("cm", "applied", {"data": {"b": "2"}})
    patch = json.dumps({"data": {"b": "2"}})
    kubectl("patch", "cm", "applied-theirs", "--type=merge", f"--patch={patch}")
    assert _stored(kubectl, "applied") == _stored(kubectl, "applied-theirs")

    kubectl.apply(_config_map("applied", "3"))
    kubectl("apply", "--filename=-", input_=json.dumps(_config_map("applied-theirs", "3")))
    assert _stored(kubectl, "applied") == _stored(kubectl, "applied-theirs")
    found = kubectl.get("configmap", "applied")
    assert found is not None
    assert found["data"] == {"a": "3", "b": "2"}


def test_what_kubectl_refuses_fails_with_its_reason(kubectl: Kubectl) -> None:
    """An object of an unknown kind, an unknown field, and a patch of a missing object."""
    unknown = {**_config_map("a"), "kind": "Nothing"}
    with pytest.raises(AssertionError, match="no matches for kind"):
        kubectl.apply(unknown)
    with pytest.raises(AssertionError, match="unknown field"):
        kubectl.create({**_config_map("a"), "date": {}})
    with pytest.raises(AssertionError, match="not found"):
        kubectl.merge("configmap", "a", {"data": {}})
    assert kubectl.get("configmap", "a") is None
