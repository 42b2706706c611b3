"""Take over fields of an object from managers that a role overrules, before it applies. Pure.

Server-side apply removes a field only if the manager that applies has set it before. So what
earlier versions of a role have written without apply, and what somebody has changed with kubectl,
becomes the manager's own: fields that the role does not set are then removed. Client-go does so
for fields of client-side apply (csaupgrade), Flux also for those of kubectl. Metadata that kubectl
has set stays: labels, annotations and finalizers are shared.
See docs/apply.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from operator_runner.core.model import Json

_MODULES = "OpenAPI-Generator"
"""The Python client of modules, with which roles write without apply."""
_OVERRULED = re.compile(rf"kubectl(?!-rollout$)(-.*)?|before-first-apply|{_MODULES}")
"""Managers: commands of kubectl but `rollout restart`, whose annotation starts new Pods."""


def taken_over(entries: Sequence[Json], manager: str, api_version: str) -> list[Json] | None:
    """Return managedFields in which `manager` has the fields of the overruled managers.

    `api_version` is that of the request; entries of other versions, and of subresources, stay.
    Return None if there are none to take over.
    """
    kept: list[Json] = []
    own: Json = {}
    taken: list[Json] = []
    for entry in entries:
        names_fields = entry.get("apiVersion") == api_version and not entry.get("subresource")
        if names_fields and entry.get("manager") == manager and entry.get("operation") == "Apply":
            own = entry
        elif names_fields and _OVERRULED.fullmatch(str(entry.get("manager"))):
            owned = dict(entry.get("fieldsV1") or {})
            shared = {} if entry["manager"] == _MODULES else owned.pop("f:metadata", {})
            if owned:
                taken.append(owned)
            if shared:
                rest = {"f:metadata": shared}
                kept.append(entry | {"fieldsV1": rest} if owned else entry)
        else:
            kept.append(entry)
    if not taken:
        return None
    fields = own.get("fieldsV1") or {}
    for owned in taken:
        fields = _union(fields, owned)
    # Without a time: the API server sets it.
    applied = {"manager": manager, "operation": "Apply", "apiVersion": api_version}
    return [*kept, applied | {"fieldsType": "FieldsV1", "fieldsV1": fields}]


def _union(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return one | {key: _union(one.get(key) or {}, value) for key, value in other.items()}
