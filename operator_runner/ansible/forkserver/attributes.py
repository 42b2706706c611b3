"""Read the keywords of plays, blocks and tasks in less time than ansible-core.

A task has 40 keywords, and for each task ansible-core reads, copies, evaluates and compares all of
them several times, 400 reads. Each read builds two names and looks for methods that no class has
any more. Here the names are built once, and the methods looked for once in each class.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleError
from ansible.playbook.role_include import IncludeRole
from ansible.utils.sentinel import Sentinel

from operator_runner.ansible.patches.replacing import replace, wrap

_PLAYBOOK = "ansible.playbook"
_PLAIN = {"bool": bool, "int": int}
"""Types of values that neither a template nor a conversion changes, by that of the keyword."""
_EMPTY = {"list": list, "dict": dict}
_COPIED = ("_loader", "_variable_manager", "_origin", "_validated", "_finalized", "_uuid")
_ATOMS = {str, int, bool, type(None), type}
"""Types of values of which a copy is the value itself; `Sentinel` is a class."""


class _AttributeNames(dict[str, str]):
    """The attribute with the value of a keyword."""

    def __missing__(self, name: str) -> str:
        self[name] = f"_{name}"
        return self[name]


class _Methods(dict[tuple[type, str], bool]):
    """Whether a class has a method for a keyword."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def __missing__(self, key: tuple[type, str]) -> bool:
        self[key] = hasattr(key[0], f"{self._prefix}{key[1]}")
        return self[key]


_names = _AttributeNames()
_getters = _Methods("_get_attr_")
_validators = _Methods("_post_validate_")
_inheriting = _Methods("_get_parent_attribute")


def install() -> None:
    """Replace the functions in this process and its forks."""
    replace(f"{_PLAYBOOK}.attribute:Attribute.__get__", _get)
    replace(f"{_PLAYBOOK}.attribute:Attribute.__set__", _set)
    replace(f"{_PLAYBOOK}.attribute:FieldAttribute.__get__", _get_inherited)
    replace(f"{_PLAYBOOK}.base:_ClassProperty.__get__", _get_of_class)
    replace(f"{_PLAYBOOK}.base:FieldAttributeBase.copy", _copy)
    wrap(f"{_PLAYBOOK}.base:FieldAttributeBase.post_validate_attribute", _post_validate)


def _own_value(attribute: Any, obj: Any) -> Any:
    name = attribute.name
    if not _getters[type(obj), name] or getattr(obj, "_squashed", False):
        return getattr(obj, _names[name], Sentinel)
    return getattr(obj, f"_get_attr_{name}")()


def _get(attribute: Any, obj: Any, obj_type: type | None = None) -> Any:
    """Return the value of a keyword that is not inherited."""
    del obj_type
    value = _own_value(attribute, obj)
    if value is Sentinel:
        value = attribute.default
        if callable(value):
            value = value()
            setattr(obj, _names[attribute.name], value)
    return value


def _set(attribute: Any, obj: Any, value: Any) -> None:
    setattr(obj, _names[attribute.name], value)
    if attribute.alias is not None:
        setattr(obj, _names[attribute.alias], value)


def _get_inherited(attribute: Any, obj: Any, obj_type: type | None = None) -> Any:
    """Return the value of a keyword, which may be that of a block, role or play around it."""
    del obj_type
    if getattr(obj, "_squashed", False) or getattr(obj, "_finalized", False):
        value = getattr(obj, _names[attribute.name], Sentinel)
    elif _inheriting[type(obj), ""]:
        try:
            value = obj._get_parent_attribute(attribute.name)
        except AttributeError:
            value = _own_value(attribute, obj)
    else:
        value = _own_value(attribute, obj)
    if value is Sentinel:
        value = attribute.default
        if callable(value):
            value = value()
    return value


def _get_of_class(prop: Any, obj: Any, obj_type: Any = None) -> Any:
    del obj
    return getattr(obj_type, _names[prop.name])()


def _copy(obj: Any) -> Any:
    """Return a shallow copy."""
    try:
        copied = obj.__class__()
    except RecursionError as error:
        raise AnsibleError(
            "Exceeded maximum object depth. This may have been caused by excessive role recursion."
        ) from error
    for name in obj.fattributes:
        value = getattr(obj, _names[name], Sentinel)
        setattr(copied, name, value if type(value) in _ATOMS else copy.copy(value))
    for name in _COPIED:
        setattr(copied, name, getattr(obj, name))
    if hasattr(obj, "_ds"):
        copied._ds = obj._ds
    return copied


def _post_validate(original: Callable[..., Any], obj: Any, name: str, *, templar: Any) -> Any:
    """Return what the method returns at once where there is nothing to evaluate or to convert."""
    attribute = obj.fattributes[name]
    if attribute.static or _validators[type(obj), name] or isinstance(obj, IncludeRole):
        return original(obj, name, templar=templar)
    value = getattr(obj, name)
    if value is None:
        return original(obj, name, templar=templar) if attribute.required else Sentinel
    if not attribute.always_post_validate and not obj._post_validate_object:
        return Sentinel
    if type(value) is _PLAIN.get(attribute.isa):
        return value
    empty = _EMPTY.get(attribute.isa)
    if type(value) is empty and not value and not attribute.required:
        return empty()
    return original(obj, name, templar=templar)
