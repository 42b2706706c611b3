"""Serialize variables to env/extravars, which Ansible reads as `-e @FILE`. Pure.

The format is the JSON of Ansible's own decoder, in which `{"__ansible_unsafe": TEXT}` is text that
is never evaluated as a template. Users of resources must not control two cases of that decoder:

- It cannot encode a map with a key `__ansible_unsafe`, `__ansible_vault` or `__ansible_type`.
  Variables with such a map (`PlainMap`) are written as YAML, which can.
- A file that it rejects is read as YAML, where `__ansible_unsafe` has no meaning, so that all text
  is evaluated. The leading tab is valid in JSON but not in YAML.
"""

from __future__ import annotations

import json
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.resolver import Resolver

from operator_runner.core.model import TYPE_TAG_PREFIX, Json, PlainMap

_UNSAFE, _VAULT = f"{TYPE_TAG_PREFIX}unsafe", f"{TYPE_TAG_PREFIX}vault"
_TAG = "tag:yaml.org,2002:"
_WIDTH = 2**30
_RESOLVER: Any = Resolver()
_Dumper: Any = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper


def serialize(variables: Json) -> str:
    """Return the content of the file for these variables."""
    if not variables:
        return "{}"
    if _fits_json(variables):
        return "\t" + json.dumps(variables)
    return str(yaml.serialize(_node(variables), Dumper=_Dumper, width=_WIDTH))


def _fits_json(value: Any) -> bool:
    match value:
        case PlainMap():
            return False
        case dict():
            has_tags = any(key.startswith(TYPE_TAG_PREFIX) for key in value)
            fits = not has_tags or _is_tagged(value)
            return fits and all(map(_fits_json, value.values()))
        case list():
            return all(map(_fits_json, value))
        case _:
            return True


def _is_tagged(value: Json) -> bool:
    """Return whether this map encodes an unsafe or an encrypted text in Ansible's JSON."""
    return len(value) == 1 and any(isinstance(value.get(tag), str) for tag in (_UNSAFE, _VAULT))


def _node(value: Any) -> Node:
    match value:
        case dict() if not isinstance(value, PlainMap) and _is_tagged(value):
            ((tag, text),) = value.items()
            return ScalarNode("!vault", text, style='"') if tag == _VAULT else _data(text)
        case dict():
            # Keys are data in JSON as well: only values are evaluated.
            pairs = [(_data(key), _node(item)) for key, item in value.items()]
            return MappingNode(f"{_TAG}map", pairs, flow_style=False)
        case list():
            return SequenceNode(f"{_TAG}seq", [_node(item) for item in value], flow_style=False)
        case str():
            return ScalarNode(f"{_TAG}str", value, style='"')
        case None | bool():
            return ScalarNode(f"{_TAG}{'null' if value is None else 'bool'}", json.dumps(value))
        case _:
            kind = "int" if isinstance(value, int) else "float"
            return ScalarNode(f"{_TAG}{kind}", json.dumps(value))


def _data(text: str) -> Node:
    """Return a node of text that is never evaluated as a template.

    Ansible gives an `!unsafe` value the type that its text would have without quotes. Text that
    would be a number, a boolean or a time cannot be a template and needs no tag.
    """
    resolved_tag = _RESOLVER.resolve(ScalarNode, text, (True, False))
    return ScalarNode("!unsafe" if resolved_tag == f"{_TAG}str" else f"{_TAG}str", text, style='"')
