"""Process results of tasks that are plain data in less time than ansible-core.

ansible-core makes a result native, copies it, strips internal keys and passes it through the
template engine, three times, because it may contain errors, warnings and encrypted texts. Results
of modules are JSON, and large: this took a fifth of the play's CPU time in a run of the nginx
role. Data of other types is passed to ansible-core's functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible._internal._templating._datatag import _JinjaConstTemplate
from ansible.module_utils._internal import _datatag

from operator_runner.ansible.patches.replacing import wrap

_SCALARS = {str, int, float, bool, type(None)}
_DICTS = {dict, _datatag._AnsibleTaggedDict}
_LISTS = {list, _datatag._AnsibleTaggedList}
_TAGGED = {_datatag._AnsibleTaggedStr, _datatag._AnsibleTaggedInt, _datatag._AnsibleTaggedFloat}


def install() -> None:
    """Replace the functions in this process and its forks."""
    wrap("ansible._internal._templating._engine:TemplateEngine.transform", transform)
    wrap("ansible.utils.vars:transform_to_native_types", to_native_types)


def transform(original: Callable[..., Any], engine: Any, variable: Any) -> Any:
    """Return what `TemplateEngine.transform` does, without a copy where nothing is to be done."""
    return variable if _is_plain(variable) else original(engine, variable)


def _is_plain(value: Any) -> bool:
    """Whether the value consists of nothing but what JSON has."""
    rest = [value]
    while rest:
        each = rest.pop()
        kind = type(each)
        if kind in _DICTS:
            rest.extend(each)
            rest.extend(each.values())
        elif kind in _LISTS:
            rest.extend(each)
        elif kind not in _SCALARS and (
            kind not in _TAGGED or _JinjaConstTemplate.is_tagged_on(each)
        ):
            return False
    return True


class _NotPlainError(Exception):
    """There is something that JSON does not have."""


def to_native_types(original: Callable[..., Any], value: Any, **how: Any) -> Any:
    """Return what `transform_to_native_types` does: a copy of Python's own types."""
    try:
        return _native(value)
    except _NotPlainError:
        return original(value, **how)


def _native(value: Any) -> Any:
    """Return a copy without tags. Raises _NotPlainError."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind in _TAGGED:
        return value._native_copy()
    if kind in _DICTS:
        return {_native(key): _native(each) for key, each in value.items()}
    if kind in _LISTS:
        return [_native(each) for each in value]
    raise _NotPlainError
