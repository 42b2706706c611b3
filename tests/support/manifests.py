"""Manifests of a small operator, to be changed by tests of its bundle."""

from __future__ import annotations

import copy
from typing import Any

from operator_runner.tools.bundle.manifests import Manifests

Json = dict[str, Any]

_METADATA = {"name": "web-operator-manager", "namespace": "web-system"}
_ACCOUNT = {"kind": "ServiceAccount", "name": "web-operator-manager", "namespace": "web-system"}

BASE: Json = {
    "apiVersion": "operators.coreos.com/v1alpha1",
    "kind": "ClusterServiceVersion",
    "metadata": {"name": "web-operator.v0.0.0", "annotations": {"capabilities": "Basic Install"}},
    "spec": {
        "displayName": "Web",
        "icon": [{"base64data": "", "mediatype": ""}],
        "installModes": [
            {"type": "OwnNamespace", "supported": False},
            {"type": "AllNamespaces", "supported": True},
        ],
    },
}
CRD: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "webs.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"kind": "Web", "plural": "webs"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "schema": {
                    "openAPIV3Schema": {
                        "description": "A web server",
                        "properties": {
                            "spec": {
                                "properties": {
                                    "replicas": {"type": "integer", "description": "How many"},
                                    "logLevel": {"type": "string", "enum": ["debug", "info"]},
                                }
                            },
                            "status": {"properties": {"conditions": {"type": "array"}}},
                        },
                    }
                },
            },
            {"name": "v1alpha1", "served": False, "schema": {}},
        ],
    },
}
SAMPLE: Json = {
    "apiVersion": "example.com/v1",
    "kind": "Web",
    "metadata": {"name": "sample", "namespace": "web-system"},
    "spec": {"replicas": 2, "extra": True},
}
DEPLOYMENT: Json = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": _METADATA | {"labels": {"app": "web-operator"}},
    "spec": {
        "template": {
            "spec": {
                "serviceAccountName": "web-operator-manager",
                "containers": [
                    {
                        "name": "manager",
                        "image": "controller:latest",
                        "env": [{"name": "RELATED_IMAGE_WEB_SERVER", "value": "nginx:1.28.0"}],
                    }
                ],
            }
        }
    },
}
RULE: Json = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["create", "get"]}
LEASES: Json = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}


def role(kind: str, name: str, *rules: Json) -> Json:
    """Return a Role or ClusterRole."""
    api = "rbac.authorization.k8s.io/v1"
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "rules": list(rules)}


def binding(kind: str, name: str, target: Json, *others: str) -> Json:
    """Return a binding of the operator's account, and of others, to a role."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "roleRef": {"kind": target["kind"], "name": target["metadata"]["name"]},
        "subjects": [_ACCOUNT, *({"kind": "ServiceAccount", "name": other} for other in others)],
    }


MANAGER_ROLE = role("ClusterRole", "manager-role", RULE)
LEADER_ROLE = role("Role", "leader-role", LEASES)
READER_ROLE = role("ClusterRole", "metrics-reader")
OBJECTS: tuple[Json, ...] = (
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "web-system"}},
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _METADATA},
    {"apiVersion": "v1", "kind": "Service", "metadata": _METADATA, "spec": {}},
    BASE, CRD, SAMPLE, DEPLOYMENT, MANAGER_ROLE, LEADER_ROLE, READER_ROLE,
    binding("ClusterRoleBinding", "manager-binding", MANAGER_ROLE),
    binding("RoleBinding", "leader-binding", LEADER_ROLE),
)  # fmt: skip


def rendered(*more: Json, without: str = "") -> Manifests:
    """Return the operator's objects: all but those of a kind, and more."""
    kept = (item for item in OBJECTS if item["kind"] != without)
    return Manifests(tuple(copy.deepcopy([*kept, *more])), "config/manifests")
