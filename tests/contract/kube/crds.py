"""CustomResourceDefinitions for the tests of kube/."""

from __future__ import annotations

from operator_runner.core.model import GVK, Json


def crd(gvk: GVK, *, scope: str = "Namespaced", status: bool = True) -> Json:
    """Return a CRD whose spec takes anything and whose status has an integer `count`."""
    plural = f"{gvk.kind.lower()}s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    counted = {
        "type": "object",
        "properties": {"count": {"type": "integer"}, "word": {"type": "string"}},
    }
    schema = {"type": "object", "properties": {"spec": anything, "status": counted}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{gvk.group}"},
        "spec": {
            "group": gvk.group,
            "scope": scope,
            "names": {"kind": gvk.kind, "plural": plural},
            "versions": [
                {
                    "name": gvk.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}} if status else {},
                }
            ],
        },
    }
