"""Process and copy results and other values of tasks in less time than ansible-core.

ansible-core makes a result native, copies it, strips internal keys and passes it through the
template engine, three times, because it may contain errors, warnings and encrypted texts. Results
of modules are JSON, and large: this took a fifth of the play's CPU time in a run of the nginx
role. Data of other types is passed to ansible-core's functions.

ansible-core tags each text of a role with its origin. `copy.deepcopy` does not know these types, so
it takes a text apart, with all its tags, to build an equal one. Each include of a role copies the
files of the role; each lookup of a template and each task of kubernetes.core copies all variables.
Tagged scalars and tags are immutable, as are the scalars of Python, which are not copied either.
Each task reads the cached facts (`set_fact` with `cacheable`) from JSON; for each tag in it
`typing.get_type_hints` evaluated the types of its fields: a quarter of the play of Galaxy.

ansible-core attributes a deprecation to the calling plugin. It needs one frame, but
`inspect.stack` describes all of them, and searches files and loaded modules for each. The action
plugin of kubernetes.core.k8s reads deprecated attributes a dozen times for each template. Lines of
source code are left out, because ansible-core does not use them.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import typing
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any

from ansible._internal._templating._datatag import _JinjaConstTemplate
from ansible.module_utils._internal import _datatag
from ansible.module_utils._internal._datatag import AnsibleTagHelper

from operator_runner.ansible.patches.replacing import replace, wrap


def install_deep_copies() -> None:
    """Have tagged values copied and read by these functions, in this process and its forks."""
    module = "ansible.module_utils._internal._datatag"
    replace(f"{module}:AnsibleTaggedObject.__deepcopy__", _copy_tagged)
    hints = functools.cache(typing.get_type_hints)
    replace(f"{module}:t", SimpleNamespace(**{**vars(typing), "get_type_hints": hints}))


def _copy_tagged(value: Any, memo: dict[int, Any]) -> Any:
    kind = type(value)
    copied: Any
    if issubclass(kind, dict):
        copied = memo[id(value)] = kind()
        for key, each in value.items():
            copied[copy.deepcopy(key, memo)] = copy.deepcopy(each, memo)
    elif issubclass(kind, list):
        copied = memo[id(value)] = kind()
        copied.extend(copy.deepcopy(each, memo) for each in value)
    elif issubclass(kind, tuple | set):
        return AnsibleTagHelper.tag_copy(value, copy.deepcopy(value._native_copy(), memo))
    else:
        return value
    copied._ansible_tags_mapping = value._ansible_tags_mapping
    return copied


_MARK = "_skip_stackwalk"
"""Local variable of functions that are not callers."""


def install_caller_frames() -> None:
    """Describe one frame instead of all."""
    replace("ansible.module_utils._internal._stack:caller_frame", caller_frame)


def caller_frame() -> inspect.FrameInfo | None:
    """Return the innermost frame without the mark, as `caller_frame` of ansible-core."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _MARK in frame.f_locals:
        frame = frame.f_back
    if frame is None:
        return None
    found = inspect.getframeinfo(frame, context=0)
    return inspect.FrameInfo(frame, *found, positions=found.positions)


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
