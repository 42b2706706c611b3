"""The kinds that an operator owns, as a catalog shows them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from operator_runner.core.model import GVK, Json
from operator_runner.tools.bundle.descriptors import descriptors, merged, words
from operator_runner.tools.bundle.project import Rendered, crd_versions, dig, name_of, serves

# What roles make most. The API server could tell all of it, but a bundle is made without one.
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
_MAKING = {"create", "*"}


def owned(
    rendered: Rendered, base: Json, samples: Sequence[Json], rules: Iterable[Json]
) -> list[Json]:
    """Return the entries of `customresourcedefinitions.owned`, one for each served version.

    What `base`, the author's ClusterServiceVersion, says about a kind counts; the rest is derived:
    the words from the schema, the `resources` from what `rules` let the operator make.
    """
    given = dig(base, "spec", "customresourcedefinitions", "owned") or []
    resources = made_by(rules)
    entries = []
    for crd, version in crd_versions(rendered):
        schema = dig(version, "schema", "openAPIV3Schema") or {}
        examples = [each for each in samples if _is(each, crd, version)]
        author = _author(given, name_of(crd), version["name"])
        derived: Json = {
            "displayName": words(str(dig(crd, "spec", "names", "kind"))),
            "description": schema.get("description", ""),
            "resources": resources,
        }
        for part in ("spec", "status"):
            key = f"{part}Descriptors"
            author[key] = merged(descriptors(schema, part, examples), author.get(key) or [])
        identity = {
            "name": name_of(crd),
            "kind": dig(crd, "spec", "names", "kind"),
            "version": version["name"],
        }
        entries.append(derived | author | identity)
    return entries


def made_by(rules: Iterable[Json]) -> list[Json]:
    """Return the kinds that rules let somebody make, as `resources` lists them."""
    found = {
        (kind, _VERSIONS.get(group, "v1"))
        for rule in rules
        if _MAKING & set(rule.get("verbs") or ())
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
        if (kind := _KINDS.get(group, {}).get(resource))
    }
    return [{"kind": kind, "name": "", "version": version} for kind, version in sorted(found)]


def samples(rendered: Rendered) -> list[Json]:
    """Return the resources of the operator's own kinds among the manifests."""
    found = {
        (str(each["kind"]), str(version["name"]), name_of(each)): each
        for crd, version in crd_versions(rendered)
        for each in rendered.of(str(dig(crd, "spec", "names", "kind")))
        if _is(each, crd, version)
    }
    return [found[key] for key in sorted(found)]


def _is(thing: Json, crd: Json, version: Json) -> bool:
    gvk = GVK.of(str(thing.get("apiVersion")), str(thing.get("kind")))
    return serves(crd, gvk.group, gvk.kind) and gvk.version == version["name"]


def _author(given: Sequence[Json], name: str, version: str) -> Json:
    """Return what the author says about a kind; an entry without a version is for all of them."""
    said: Json = {}
    for entry in given:
        if entry.get("name") == name and entry.get("version", version) == version:
            said |= entry
    return said
