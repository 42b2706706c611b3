"""Patch ansible-core: a map of data with its type key `__ansible_type` stays a map of data.

ansible-core writes values with tags as such maps, in JSON of three kinds: cached facts, arguments
and results of modules. It does not distinguish them from a map of a resource, of an object in the
cluster or of a text: `{"__ansible_type": "_AnsibleTaggedStr", "tags": [...]}` came back from cached
facts as a trusted template, and in arguments and results such a map failed the task.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from operator_runner.ansible.patches.replacing import replace, wrap

_TYPE_KEY = "__ansible_type"
_PAIRS_KEY = "__ansible_pairs"
"""The only key of a map that holds keys and values of a map of data with one of both keys."""
_JSON = "ansible.module_utils._internal._json._profiles"
_RESULTS = {"module_legacy_m2c", "module_modern_m2c"}
_WRITTEN = {"cache_persistence", *_RESULTS}
"""Names of the kinds of JSON in which maps of data are written as pairs."""
_READ = {*_WRITTEN, "module_legacy_c2m", "module_modern_c2m"}


class _TypeKey(str):
    """The type key where ansible-core writes it; in a map of data it is another text."""

    __slots__ = ()


def install() -> None:
    """Change ansible-core in this process and its forks, some of which are modules."""
    type_key = "ansible.module_utils._internal._datatag:AnsibleSerializable._TYPE_KEY"
    replace(type_key, _TypeKey(_TYPE_KEY))
    wrap(f"{_JSON}:AnsibleProfileJSONEncoder.default", _encode)
    wrap(f"{_JSON}:AnsibleProfileJSONDecoder.object_hook", _decode)


def module_arguments(arguments: Mapping[str, Any], encoder: type[json.JSONEncoder]) -> str:
    """Return the JSON of a module's arguments, for a process with the patch."""
    arguments_encoder: Any = encoder()
    arguments_encoder.writes_pairs = True
    return str(arguments_encoder.encode(arguments))


def _encode(original: Callable[..., Any], encoder: Any, value: Any) -> Any:
    encoded = original(encoder, value)
    if type(encoded) is not dict or not (_TYPE_KEY in encoded or _PAIRS_KEY in encoded):
        return encoded
    writes_pairs = encoder.profile_name in _WRITTEN or hasattr(encoder, "writes_pairs")
    if not writes_pairs or any(type(key) is _TypeKey for key in encoded):
        return encoded
    return {_PAIRS_KEY: [[key, item] for key, item in encoded.items()]}


def _decode(original: Callable[..., Any], decoder: Any, value: dict[str, Any]) -> Any:
    if decoder.profile_name not in _READ:
        return original(decoder, value)
    if _PAIRS_KEY in value:
        checked = original(decoder, {_PAIRS_KEY: value[_PAIRS_KEY]})
        return dict(checked[_PAIRS_KEY])
    if _TYPE_KEY not in value or decoder.profile_name not in _RESULTS:
        return original(decoder, value)
    try:
        return original(decoder, dict(value))
    except (AttributeError, KeyError, TypeError, ValueError):
        return value  # data: a module's own process has no patch
