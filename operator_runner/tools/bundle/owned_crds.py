"""Return the owned CRDs of a ClusterServiceVersion, with descriptors of their fields. Pure.

Consoles display the descriptors, which are derived from the schema. The identifiers under
`x-descriptors` are those of the OLM descriptor reference of the OpenShift console, which OLM's own
CSVs use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from operator_runner.core.model import GVK, Json
from operator_runner.core.object_names import plural_of
from operator_runner.tools.bundle.manifests import Manifests, crd_versions, name_of, nested, serves

_UI = "urn:alm:descriptor:com.tectonic.ui:"
_CONDITIONS = "urn:alm:descriptor:io.kubernetes.conditions"
_PODS = {"replicas", "size", "replicaCount", "podCount"}
_HINTS = {"integer": "number", "number": "number", "boolean": "booleanSwitch", "string": "text"}
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def descriptors(schema: Mapping[str, Any], part: str, examples: Iterable[Json]) -> list[Json]:
    """Return a descriptor for each field of `part` (`spec` or `status`), sorted by path.

    For a schema without declared properties, the fields are those of the examples.
    """
    known = (schema.get("properties") or {}).get(part) or {}
    fields = dict(known.get("properties") or {})
    for example in examples:
        for name in example.get(part) or {}:
            fields.setdefault(name, {})
    return [_descriptor(name, fields[name], part) for name in sorted(fields)]


def merge_descriptors(derived: Iterable[Json], given: Iterable[Json]) -> list[Json]:
    """Return derived descriptors, overridden by the author's descriptors of the same path."""
    paths = {item.get("path"): item for item in derived}
    for item in given:
        paths[item.get("path")] = {**paths.get(item.get("path"), {}), **item}
    return [paths[path] for path in sorted(paths, key=str)]


def display_name(name: str) -> str:
    """Return a camelCase name as title: `forceRedeploy` becomes `Force Redeploy`."""
    return " ".join(part[:1].upper() + part[1:] for part in _WORDS.split(name))


def _descriptor(name: str, schema: Mapping[str, Any], part: str) -> Json:
    made: Json = {"path": name, "displayName": schema.get("title") or display_name(name)}
    if schema.get("description"):
        made["description"] = schema["description"]
    hints = [_CONDITIONS] if (part, name) == ("status", "conditions") else []
    if part == "spec":
        hints = _hints(name, schema)
    if hints:
        made["x-descriptors"] = hints
    return made


def _hints(name: str, schema: Mapping[str, Any]) -> list[str]:
    if name in _PODS and schema.get("type") == "integer":
        return [f"{_UI}podCount"]
    if schema.get("format") == "password":
        return [f"{_UI}password"]
    if schema.get("enum"):
        return [f"{_UI}select:{value}" for value in schema["enum"]]
    hint = _HINTS.get(str(schema.get("type")))
    return [_UI + hint] if hint else []


# A bundle is made without an API server, so only common kinds are known.
_KINDS = {
    "": (
        *("ConfigMap", "Endpoints", "Event", "Namespace", "PersistentVolumeClaim", "Pod"),
        *("Secret", "Service", "ServiceAccount"),
    ),
    "apps": ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"),
    "autoscaling": ("HorizontalPodAutoscaler",),
    "batch": ("CronJob", "Job"),
    "monitoring.coreos.com": ("PodMonitor", "PrometheusRule", "ServiceMonitor"),
    "networking.k8s.io": ("Ingress", "NetworkPolicy"),
    "policy": ("PodDisruptionBudget",),
    "rbac.authorization.k8s.io": ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
}
_BY_PLURAL = {(group, plural_of(kind)): kind for group, kinds in _KINDS.items() for kind in kinds}
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
        if (kind := _BY_PLURAL.get((group, resource)))
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
