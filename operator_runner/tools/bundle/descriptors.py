"""Derive the descriptors of a kind's fields, which consoles display, from its schema. Pure.

The identifiers under `x-descriptors` are those of the OLM descriptor reference of the OpenShift
console, which OLM's own CSVs use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from operator_runner.core.model import Json

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
