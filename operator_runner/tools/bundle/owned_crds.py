"""Return the owned CRDs of a ClusterServiceVersion. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from operator_runner.core.model import GVK, Json
from operator_runner.tools.bundle.descriptors import descriptors, display_name, merge_descriptors
from operator_runner.tools.bundle.manifests import Manifests, crd_versions, name_of, nested, serves

# Kinds by group and plural. A bundle is made without an API server, so only common ones are known.
_KINDS = {
    "": {
        "configmaps": "ConfigMap", "endpoints": "Endpoints",
        "events": "Event", "namespaces": "Namespace",
        "persistentvolumeclaims": "PersistentVolumeClaim", "pods": "Pod", "secrets": "Secret",
        "serviceaccounts": "ServiceAccount", "services": "Service",
    },
    "apps": {
        "daemonsets": "DaemonSet", "deployments": "Deployment", "replicasets": "ReplicaSet",
        "statefulsets": "StatefulSet",
    },
    "autoscaling": {"horizontalpodautoscalers": "HorizontalPodAutoscaler"},
    "batch": {"cronjobs": "CronJob", "jobs": "Job"},
    "monitoring.coreos.com": {
        "podmonitors": "PodMonitor", "prometheusrules": "PrometheusRule",
        "servicemonitors": "ServiceMonitor",
    },
    "networking.k8s.io": {"ingresses": "Ingress", "networkpolicies": "NetworkPolicy"},
    "policy": {"poddisruptionbudgets": "PodDisruptionBudget"},
    "rbac.authorization.k8s.io": {
        "clusterrolebindings": "ClusterRoleBinding", "clusterroles": "ClusterRole",
        "rolebindings": "RoleBinding", "roles": "Role",
    },
}  # fmt: skip
_VERSIONS = {"autoscaling": "v2"}
_CREATE_VERBS = {"create", "*"}


def owned_crds(
    manifests: Manifests, base: Json, examples: Sequence[Json], rules: Iterable[Json]
) -> list[Json]:
    """Return the entries of `customresourcedefinitions.owned`, one for each served version.

    Fields that `base`, the author's ClusterServiceVersion, has for a kind take precedence. The
    others are derived: names and descriptions from the schema, `resources` from the kinds that
    `rules` allow the operator to create.
    """
    given = nested(base, "spec", "customresourcedefinitions", "owned") or []
    resources = creatable_kinds(rules)
    entries = []
    for crd, version in crd_versions(manifests):
        schema = nested(version, "schema", "openAPIV3Schema") or {}
        own_examples = [item for item in examples if _is(item, crd, version)]
        author = _author(given, name_of(crd), version["name"])
        derived: Json = {
            "displayName": display_name(str(nested(crd, "spec", "names", "kind"))),
            "description": schema.get("description", ""),
            "resources": resources,
        }
        for part in ("spec", "status"):
            key = f"{part}Descriptors"
            author[key] = merge_descriptors(
                descriptors(schema, part, own_examples), author.get(key) or []
            )
        identity = {
            "name": name_of(crd),
            "kind": nested(crd, "spec", "names", "kind"),
            "version": version["name"],
        }
        entries.append(derived | author | identity)
    return entries


def creatable_kinds(rules: Iterable[Json]) -> list[Json]:
    """Return the kinds that RBAC rules allow to create, in the format of `resources`."""
    found = {
        (kind, _VERSIONS.get(group, "v1"))
        for rule in rules
        if _CREATE_VERBS & set(rule.get("verbs") or ())
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
        if (kind := _KINDS.get(group, {}).get(resource))
    }
    return [{"kind": kind, "name": "", "version": version} for kind, version in sorted(found)]


def sample_resources(manifests: Manifests) -> list[Json]:
    """Return the custom resources of the operator's own kinds among the manifests."""
    found = {
        (str(item["kind"]), str(version["name"]), name_of(item)): item
        for crd, version in crd_versions(manifests)
        for item in manifests.of(str(nested(crd, "spec", "names", "kind")))
        if _is(item, crd, version)
    }
    return [found[key] for key in sorted(found)]


def _is(obj: Json, crd: Json, version: Json) -> bool:
    gvk = GVK.of(str(obj.get("apiVersion")), str(obj.get("kind")))
    return serves(crd, gvk.group, gvk.kind) and gvk.version == version["name"]


def _author(given: Sequence[Json], name: str, version: str) -> Json:
    """Return the author's fields of a kind; an entry without a version applies to all versions."""
    fields: Json = {}
    for entry in given:
        if entry.get("name") == name and entry.get("version", version) == version:
            fields |= entry
    return fields
