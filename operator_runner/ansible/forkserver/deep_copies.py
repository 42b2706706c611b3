"""Copy tagged values in less time than `copy.deepcopy` does by itself.

ansible-core tags each text of a role with its origin. `copy.deepcopy` does not know these types, so
it takes a text apart, with all its tags, to build an equal one. Each include of a role copies the
files of the role; each lookup of a template and each task of kubernetes.core copies all variables.
Tagged scalars and tags are immutable, as are the scalars of Python, which are not copied either.
"""

from __future__ import annotations

import copy
from typing import Any

from ansible.module_utils._internal._datatag import AnsibleTagHelper

from operator_runner.ansible.patches.replacing import replace


def install() -> None:
    """Have tagged values copied by this function, in this process and its forks."""
    replace("ansible.module_utils._internal._datatag:AnsibleTaggedObject.__deepcopy__", _copy)


def _copy(value: Any, memo: dict[int, Any]) -> Any:
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
