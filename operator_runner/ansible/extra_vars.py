"""The text of env/extravars, which Ansible reads as `-e @FILE`. Pure.

It is JSON as Ansible's own decoder has it, in which `{"__ansible_unsafe": TEXT}` is text that is
never a template. Two things of that decoder must not be in the hands of who writes a resource:

- It has no way to write a map that has `__ansible_unsafe`, `__ansible_vault` or `__ansible_type`
  as a key of its own. Variables with such a map (`PlainMap`) are written as YAML, where it is one.
- What it refuses is read as YAML, where `__ansible_unsafe` means nothing, so that all text is a
  template. The tab in front is JSON, and nothing that YAML can begin with.
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
    """Whether this map is a text that Ansible's JSON marks as unsafe or as encrypted."""
    return len(value) == 1 and any(isinstance(value.get(tag), str) for tag in (_UNSAFE, _VAULT))


def _node(value: Any) -> Node:
    match value:
        case dict() if not isinstance(value, PlainMap) and _is_tagged(value):
            ((tag, text),) = value.items()
            return ScalarNode("!vault", text, style='"') if tag == _VAULT else _data(text)
        case dict():
            # Keys are data in JSON as well, where only values are templates.
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
    """Return text that is no template.

    Ansible gives what is `!unsafe` the type that its text would have without quotes. Text that
    would be a number, a boolean or a time has nothing in it to be evaluated.
    """
    would_be = _RESOLVER.resolve(ScalarNode, text, (True, False))
    return ScalarNode("!unsafe" if would_be == f"{_TAG}str" else f"{_TAG}str", text, style='"')
