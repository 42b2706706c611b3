"""Patch ansible-core: a map of data with its type key `__ansible_type` stays a map of data.

ansible-core writes values with tags as such maps, in JSON of three kinds: cached facts, arguments
and results of modules. It does not distinguish them from a map of a resource, of an object in the
cluster or of a text: `{"__ansible_type": "_AnsibleTaggedStr", "tags": [...]}` came back from cached
facts as a trusted template, and in arguments and results such a map failed the task.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from operator_runner.ansible.patches.replacing import replace

_TYPE_KEY = "__ansible_type"
_PAIRS_KEY = "__ansible_pairs"
"""The only key of a map that holds keys and values of a map of data with one of both keys."""
_CACHE = "ansible._internal._json._profiles._cache_persistence"
_MODULES = "ansible.module_utils._internal._json._profiles._module"
_NAMES = ("legacy", "modern")


class _Encoded(dict[str, Any]):
    """A map whose keys are final; the encoder still encodes its values."""


def install() -> None:
    """Change ansible-core in this process and its forks."""
    _encode_data(_CACHE)
    _decode_data(_CACHE)
    for name in _NAMES:
        _decode_data(f"{_MODULES}_{name}_c2m")
        _decode_data(f"{_MODULES}_{name}_m2c", _or_data)
        _encode_data(f"{_MODULES}_{name}_m2c")  # in forks that are modules


def module_arguments(arguments: Mapping[str, Any], encoder: type[json.JSONEncoder]) -> str:
    """Return the JSON of a module's arguments, for a process with the patch."""
    text = json.dumps(arguments, cls=encoder)
    if _TYPE_KEY not in text and _PAIRS_KEY not in text:
        return text
    return json.dumps(_as_data(arguments), cls=encoder)


def _encode_data(module: str) -> None:
    profile = importlib.import_module(module)._Profile
    serialize = profile.serialize_serializable_object
    encoded = {
        kind: (lambda value: _Encoded(serialize(value))) if function == serialize else function
        for kind, function in profile.serialize_map.items()
    }
    replace(f"{module}:_Profile.serialize_map", {**encoded, dict: _encoded})


def _decode_data(
    module: str, decode: Callable[[Callable[..., Any], dict[str, Any]], Any] | None = None
) -> None:
    profile = importlib.import_module(module)._Profile
    functions = {_PAIRS_KEY: _decoded, **profile.deserialize_map}
    if decode is not None:
        original = functions[_TYPE_KEY]
        functions[_TYPE_KEY] = lambda value: decode(original, value)
    replace(f"{module}:_Profile.deserialize_map", functions)


def _or_data(original: Callable[..., Any], value: dict[str, Any]) -> Any:
    """Return the value that a map represents, else the map: a module's own process has no patch."""
    try:
        return original(dict(value))
    except (AttributeError, KeyError, TypeError, ValueError):
        return value


def _encoded(value: Mapping[str, Any]) -> _Encoded:
    if _TYPE_KEY in value or _PAIRS_KEY in value:
        return _Encoded({_PAIRS_KEY: [[key, item] for key, item in value.items()]})
    return _Encoded(value)


def _decoded(value: dict[str, Any]) -> dict[str, Any]:
    return dict(value[_PAIRS_KEY])


def _as_data(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(_encoded({key: _as_data(item) for key, item in value.items()}))
    if isinstance(value, list | tuple):
        return [_as_data(item) for item in value]
    return value
