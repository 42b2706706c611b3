"""Apply a patch to an object that exists in a dry run only. Pure.

The API server applies all other patches. Strategic merge patches and server-side apply merge lists
by the keys of the built-in kinds; fields that an apply no longer has are kept.
"""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import jsonpointer

from operator_runner.core.model import Json
from operator_runner.core.object_diff import apply_merge_patch
from operator_runner.proxy.bodies import APPLY, JSON_PATCH, decode_json, decode_yaml

_STRATEGIC = "application/strategic-merge-patch+json"
_MERGE_KEYS = {
    "ports": ("containerPort", "port"),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "hostAliases": ("ip",),
    "ownerReferences": ("uid",),
    "conditions": ("type",),
    "topologySpreadConstraints": ("topologyKey",),
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "secrets": ("name",),
}
"""Keys that identify the items of lists, by the field; other lists are replaced.

Source: `x-kubernetes-patch-merge-key` in the OpenAPI document of Kubernetes.
"""
_SETS = frozenset({"finalizers"})


def patched(body: Json, kind: str, patch: bytes) -> Json:
    """Return an object with a patch of this media type applied.

    Raises ValueError for a patch that is invalid or does not apply.
    """
    try:
        result = _patched(body, kind, patch)
    except (AttributeError, KeyError, RecursionError, TypeError) as error:
        # Of other types than the patch expects; the message may quote the object.
        raise ValueError("the patch does not apply to the object") from error
    if not isinstance(result.get("metadata") or {}, dict):
        raise ValueError("invalid patch: metadata has to be an object")  # noqa: TRY004 (of the client)
    return result


def _patched(body: Json, kind: str, patch: bytes) -> Json:
    if kind == JSON_PATCH:
        try:
            result = jsonpatch.apply_patch(body, decode_json(patch))
        except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
            # The message of the library quotes the object, which may be a Secret.
            raise ValueError("the JSON patch does not apply to the object") from error
        return dict(result)
    content = decode_yaml(patch) if kind in APPLY else decode_json(patch)
    if not isinstance(content, dict):
        raise ValueError("invalid patch: expected an object")  # noqa: TRY004 (of the client)
    if kind == _STRATEGIC or kind in APPLY:
        return dict(_strategic(body, content))
    return dict(apply_merge_patch(body, content))


def _strategic(current: Any, patch: Any, field: str = "") -> Any:
    if isinstance(current, dict) and isinstance(patch, dict):
        if patch.get("$patch") == "replace":
            return {key: value for key, value in patch.items() if key != "$patch"}
        return _strategic_map(current, patch)
    if isinstance(current, list) and isinstance(patch, list):
        if field in _SETS:
            return [*current, *(item for item in patch if item not in current)]
        key = _merge_key(field, current, patch)
        return patch if key is None else _strategic_list(current, patch, key)
    return copy.deepcopy(patch)


def _strategic_map(current: Json, patch: Json) -> Json:
    result = dict(current)
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [item for item in result.get(name) or () if item not in value]
        elif key.startswith("$"):
            continue  # $setElementOrder and $retainKeys: the order does not matter here
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = _strategic(result.get(key, {}), value, key)
    return result


def _merge_key(field: str, *lists: list[Any]) -> str | None:
    items = [item for each in lists for item in each]
    if not all(isinstance(item, dict) for item in items):
        return None
    return next(
        (key for key in _MERGE_KEYS.get(field, ()) if all(key in item for item in items)), None
    )


def _strategic_list(current: list[Json], patch: list[Json], key: str) -> list[Json]:
    items = {item[key]: item for item in current}
    for item in patch:
        if item.get("$patch") == "delete":
            items.pop(item[key], None)
        else:
            items[item[key]] = _strategic(items.get(item[key], {}), item)
    return list(items.values())
