"""Tests write over one connection what kubectl would write."""

from __future__ import annotations

import json

import pytest

from tests.support.kubectl import Json, Kubectl

_OF_ONE_OBJECT = {"name", "uid", "resourceVersion", "creationTimestamp", "time"}


def _config_map(name: str, value: str = "1") -> Json:
    metadata = {"name": name, "labels": {"app": "tried"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": value}}


def _stored(kubectl: Kubectl, name: str) -> list[str]:
    """Return the object with its managers, without what differs between any two objects."""
    shown = kubectl("get", "configmap", name, "--show-managed-fields", "--output=yaml")
    lines = shown.replace(f'"name":"{name}"', "").splitlines()
    return [line for line in lines if line.strip(" -").partition(":")[0] not in _OF_ONE_OBJECT]


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
