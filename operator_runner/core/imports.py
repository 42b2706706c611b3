"""Cheaper imports: without submodules, optional packages and garbage collection."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import Any


def import_lazily(*names: str) -> None:
    """Import packages and modules without running their code; outer packages come first.

    The first use of an attribute imports the submodule of that name, or runs the code if there is
    none. What is imported already stays as it is. `importlib.util.LazyLoader` does not fit: it
    runs the code when a submodule is imported, or when `__file__` is read. Raises
    ModuleNotFoundError.
    """
    for name in names:
        if name not in sys.modules:
            _import_lazily(name)


def _import_lazily(name: str) -> None:
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    package = module_from_spec(spec)
    loader = spec.loader

    def attribute(wanted: str) -> Any:
        if "__path__" in vars(package) and find_spec(f"{name}.{wanted}") is not None:
            return import_module(f"{name}.{wanted}")
        del vars(package)["__getattr__"]
        loader.exec_module(package)
        return getattr(package, wanted)

    vars(package)["__getattr__"] = attribute
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)


@contextmanager
def without_package(name: str) -> Iterator[None]:
    """Import modules in this block as if a package were not installed, which they do not require.

    If it is imported already, nothing changes.
    """
    is_new = name not in sys.modules
    if is_new:
        sys.modules[name] = None  # type: ignore[assignment]  # the import system allows it
    try:
        yield
    finally:
        if is_new:
            del sys.modules[name]


@contextmanager
def environment_variable(name: str, value: str) -> Iterator[None]:
    """Set a variable within the block, such as one that modules read when they are imported."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Import modules in this block; afterwards the garbage collector ignores all existing objects.

    Imports create hundreds of thousands of objects that stay. The collector would examine them
    again and again: a tenth of the time of the imports.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
