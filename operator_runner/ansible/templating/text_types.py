"""Convert the parts of a rendered template as ansible-core 2.18 did without native types.

Pure. Source: ansible-core 2.18, `ansible_eval_concat` and `ansible_concat` in
`template/native_helpers.py`, `_ansible_finalize` in `template/__init__.py`.
"""

from __future__ import annotations

import ast
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from math import isfinite
from typing import Any

from ansible._internal._templating._jinja_common import Marker
from ansible._internal._templating._utils import Omit
from ansible.module_utils._internal import _datatag
from ansible.module_utils.common.text.converters import to_text

_WORDS = {"true": True, "false": False, "null": None}
"""Literals of JSON that Python does not have."""
_TEXTS = {str, _datatag._AnsibleTaggedStr}
_SCALARS = {*_TEXTS, int, _datatag._AnsibleTaggedInt, bool, type(None)}
_FLOATS = {float, _datatag._AnsibleTaggedFloat}
_UNROLLED = (Iterator, ItemsView, KeysView, ValuesView, range)
_OPAQUE = Mapping | Marker | type(Omit)
"""Mappings such as `hostvars`, which ansible-core copies, and values that it handles itself."""


class _NotStorableError(Exception):
    """A literal has a part of a type that variables cannot have."""


def unrolled(value: Any) -> Any:
    """Return a list for a generator, a view or a range, and an empty string for None."""
    if value is None:
        return ""
    return list(value) if isinstance(value, _UNROLLED) else value


def keeps_type(value: Any) -> bool:
    """Return whether a template with a single expression returns this value unchanged."""
    if isinstance(value, list | dict):
        return _is_literal(value) or _has_marker(value)
    return isinstance(value, bool | _OPAQUE)


def text_of(value: Any) -> str:
    """Return the text of a value within a longer text, as Python's `str` formats it."""
    return str(to_text(_native(value)))


def literal(text: str) -> Any:
    """Return the list, map or boolean that a text is a literal of; else the text."""
    if not (text.startswith(("{", "[")) or text in {"True", "False"}):
        return text
    try:
        return ast.literal_eval(_Words().visit(ast.parse(text, mode="eval")))
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return text


def storable(value: Any, text: str) -> Any:
    """Return a literal with types that variables can have, sets as lists; else its text.

    ansible-core 2.18 kept sets, and then failed to display the result of the task.
    """
    try:
        return _storable(value)
    except _NotStorableError:
        return text


def _is_literal(value: Any) -> bool:
    """Return whether a list or a map is equal after formatting and parsing it."""
    rest = [value]
    while rest:
        each = rest.pop()
        kind = type(each)
        if kind in _SCALARS or each is Omit:
            continue
        if isinstance(each, dict):
            rest.extend(each.keys())
            rest.extend(each.values())
        elif isinstance(each, list | tuple):
            rest.extend(each)
        elif kind not in _FLOATS or not isfinite(each):
            return False
    return True


def _has_marker(value: Any) -> bool:
    """Return whether a value contains something that ansible-core reports as undefined."""
    if isinstance(value, dict):
        return any(_has_marker(each) for each in value.values())
    if isinstance(value, list | tuple):
        return any(_has_marker(each) for each in value)
    return isinstance(value, Marker)


def _native(value: Any) -> Any:
    """Return a copy with Python's own types, whose text is that of the value."""
    if isinstance(value, dict):
        return {_native(key): _native(each) for key, each in value.items() if each is not Omit}
    if isinstance(value, list):
        return [_native(each) for each in value if each is not Omit]
    if isinstance(value, tuple):
        return tuple(_native(each) for each in value if each is not Omit)
    if isinstance(value, _datatag.AnsibleTaggedObject):
        return value._native_copy()
    return value


def _storable(value: Any) -> Any:
    """Return a literal with lists instead of sets. Raises _NotStorableError."""
    if isinstance(value, dict):
        return {_storable(key): _storable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_storable(each) for each in value]
    if isinstance(value, tuple):
        return tuple(_storable(each) for each in value)
    if isinstance(value, set):
        return sorted(map(_storable, value), key=repr)
    if isinstance(value, bytes):
        return to_text(value)
    if value is None or isinstance(value, str | int | float):
        return value
    raise _NotStorableError


class _Words(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_WORDS[node.id]) if node.id in _WORDS else node
