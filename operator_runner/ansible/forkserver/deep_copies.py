"""Copy tagged values in less time than `copy.deepcopy` does by itself.

ansible-core tags each text of a role with its origin. `copy.deepcopy` does not know these types, so
it takes a text apart, with all its tags, to build an equal one. Each include of a role copies the
files of the role; each lookup of a template and each task of kubernetes.core copies all variables.
Tagged scalars and tags are immutable, as are the scalars of Python, which are not copied either.
"""

from __future__ import annotations

import copy
from typing import Any

from operator_runner.ansible.patches.replacing import replace

_DATATAG = "ansible.module_utils._internal._datatag"


def install() -> None:
    """Have tagged values copied by these functions, in this process and its forks."""
    for name in ("Str", "Int", "Float"):
        replace(f"{_DATATAG}:_AnsibleTagged{name}.__deepcopy__", lambda self, _memo: self)
    replace(f"{_DATATAG}:_AnsibleTaggedDict.__deepcopy__", _copy_dict)
    replace(f"{_DATATAG}:_AnsibleTaggedList.__deepcopy__", _copy_list)


def _copy_dict(self: Any, memo: dict[int, Any]) -> Any:
    copied = memo[id(self)] = type(self)()
    for key, value in self.items():
        copied[copy.deepcopy(key, memo)] = copy.deepcopy(value, memo)
    copied._ansible_tags_mapping = self._ansible_tags_mapping
    return copied


def _copy_list(self: Any, memo: dict[int, Any]) -> Any:
    copied = memo[id(self)] = type(self)()
    copied.extend(copy.deepcopy(value, memo) for value in self)
    copied._ansible_tags_mapping = self._ansible_tags_mapping
    return copied
