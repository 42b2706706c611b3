"""Replace what the registry declares, and nothing else."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from operator_runner.ansible.patches.registry import PATCHES

_DECLARED = frozenset(address for patch in PATCHES for address in patch.replaces)


def replace(address: str, value: Any, owner: Any = None) -> None:
    """Replace the symbol with this address, in this process and its forks.

    `owner` has the attribute where the module of the address is loaded under another name.
    Raises ValueError if no patch of the registry declares the symbol.
    """
    if address not in _DECLARED:
        raise ValueError(f"undeclared patch of {address}: add it to patches/registry.py")
    setattr(_owner(address) if owner is None else owner, _name(address), value)


@contextmanager
def replaced(values: Mapping[str, Any]) -> Iterator[None]:
    """Replace the symbols with these addresses within the block; see `replace`."""
    before = {address: getattr(_owner(address), _name(address)) for address in values}
    try:
        for address, value in values.items():
            replace(address, value)
        yield
    finally:
        for address, value in before.items():
            replace(address, value)


def wrap(address: str, wrapper: Callable[..., Any], owner: Any = None) -> None:
    """Replace a function by `wrapper(original, *args, **kwargs)`; see `replace`."""
    original = getattr(_owner(address) if owner is None else owner, _name(address))

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    replace(address, wrapped, owner)


def _owner(address: str) -> Any:
    module, _, path = address.partition(":")
    parent, _, _ = path.rpartition(".")
    return pkgutil.resolve_name(f"{module}:{parent}") if parent else importlib.import_module(module)


def _name(address: str) -> str:
    return address.partition(":")[2].rpartition(".")[2]
