"""Make what is loaded immortal: forks that use it do not write to its pages.

Python counts references in the objects themselves, so a fork copies nearly every page that it
reads. Since Python 3.12 the count of an immortal object never changes (PEP 683). Only the
interpreter creates such objects; this module changes the counts of existing ones. An immortal
object is never freed, so objects whose end has an effect, such as open files, stay as they are.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from functools import cache
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

_VERSIONS = {(3, 12), (3, 13)}
"""CPython with this layout: an object begins with 32 bits, immortal if the highest one is set."""
_POINTER_BYTES = 8
_COUNT_BYTES = 4
_IS_HEAP_TYPE = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: the type is not defined statically, in C."""
_PLAIN = frozenset(
    {
        *(str, bytes, int, float, complex, tuple, frozenset, list, dict, set, object),
        *(CodeType, FunctionType, MethodType, BuiltinFunctionType, ModuleType, CellType),
        *(GetSetDescriptorType, MemberDescriptorType, MethodDescriptorType),
        *(WrapperDescriptorType, ClassMethodDescriptorType),
        *(property, classmethod, staticmethod),
    }
)
"""Static types whose objects only free other objects when they are freed."""
_BATCH = 1_000


def install() -> None:
    """Make what is loaded immortal; without effect where the interpreter is not supported."""
    if is_supported():
        make_immortal()


def is_supported() -> bool:
    """Return whether this interpreter has immortal objects of the known layout."""
    return (
        sys.implementation.name == "cpython"
        and sys.version_info[:2] in _VERSIONS
        and sys.byteorder == "little"
        and object.__basicsize__ == 2 * _POINTER_BYTES
        and _takes_effect()
    )


def make_immortal() -> int:
    """Make the objects that exist immortal, where nothing depends on their end.

    The garbage collector ignores all of them from now on. Returns their number. Only for a
    supported interpreter.
    """
    gc.unfreeze()  # frozen objects are not listed
    try:
        return _mark(gc.get_objects())
    finally:
        gc.freeze()


def _mark(tracked: list[Any]) -> int:
    """Mark the objects that the collector tracks and those that only they refer to.

    Returns their number. Marked objects are not visited again. Batches keep the lists short.
    """
    marked = 0
    kinds: dict[type, bool] = {type: True}
    for start in range(0, len(tracked), _BATCH):
        found = batch = tracked[start : start + _BATCH]
        while found:
            new = _mark_new(found, kinds)
            marked += len(new)
            found = _untracked_referents(batch if found is batch else new)
    return marked


def _mark_new(found: list[Any], kinds: dict[type, bool]) -> list[Any]:
    """Mark objects; return those that were not marked and may be.

    `kinds` has what `_is_plain` returned. Without calls in its loop: there are half a million.
    """
    counts = _counts()
    count_of = sys.getrefcount
    immortal = counts[id(None) // _COUNT_BYTES]
    threshold = count_of(None)
    new: list[Any] = []
    for value in found:
        if count_of(value) < threshold:
            kind = type(value)
            is_plain = kinds.get(kind)
            if is_plain is None:
                is_plain = kinds[kind] = _is_plain(kind)
            if is_plain and (kind in _PLAIN or not _is_observed(value)):
                counts[id(value) // _COUNT_BYTES] = immortal
                new.append(value)
    return new


def _untracked_referents(values: list[Any]) -> list[Any]:
    found = [each for each in gc.get_referents(*values) if not gc.is_tracked(each)]
    for value in values:
        found += _parts_of_code(value) if type(value) is CodeType else ()
    return found


def _parts_of_code(code: CodeType) -> tuple[object, ...]:
    """Return what the collector does not see; without attributes that create objects."""
    return (
        *(code.co_consts, code.co_names, code.co_linetable, code.co_exceptiontable),
        *(code.co_filename, code.co_name, code.co_qualname),
    )


def _is_plain(kind: type) -> bool:
    """Whether freeing an instance has no effect: neither C code nor `__del__` is involved."""
    if issubclass(kind, type):
        return True
    return all(
        base in _PLAIN
        or (base.__flags__ & _IS_HEAP_TYPE and "__del__" not in vars(base) and _is_python(base))
        for base in kind.__mro__
    )


def _is_python(kind: type) -> bool:
    """Whether a class is defined in Python; other heap types have resources of their own."""
    module = sys.modules.get(kind.__module__)
    return Path(getattr(module, "__file__", None) or "").suffix == ".py"


def _is_observed(value: Any) -> bool:
    """Whether an instance is referred to weakly: something may wait for its end."""
    return not isinstance(value, type) and weakref.getweakrefcount(value) > 0


def _takes_effect() -> bool:
    """Try it with an object of our own."""
    probe: list[Any] = []
    counts = _counts()
    place = id(probe) // _COUNT_BYTES
    before = counts[place]
    immortal = counts[id(None) // _COUNT_BYTES]
    counts[place] = immortal
    references = [probe] * 10
    is_unchanged = counts[place] == immortal
    del references
    counts[place] = before
    return is_unchanged and sys.getrefcount(None) == immortal


@cache
def _counts() -> ctypes.Array[ctypes.c_uint32]:
    """Return all memory, to write the count of an object at its address by `_COUNT_BYTES`."""
    return (ctypes.c_uint32 * (sys.maxsize // _COUNT_BYTES)).from_address(0)
