"""Signatures of symbols as text, to compare those of a patch with the installed ones."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import Any

from operator_runner.ansible.patches.registry import ABSENT, Symbol

_PLAIN = (str, int, float, bool, tuple, type(None))


def signature_of(found: Any) -> str:
    """Return parameters and defaults of a callable, without types; else the kind of the object.

    Types are left out because their text depends on the version of Python.
    """
    if isinstance(found, ModuleType):
        return "module"
    if not callable(found) or inspect.isbuiltin(found):
        # Which builtin functions have a signature depends on the version of Python too.
        return type(found).__name__
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return type(found).__name__
    bare = [
        each.replace(annotation=each.empty, default=_default(each.default))
        for each in signature.parameters.values()
    ]
    return str(inspect.Signature(bare))


def installed_signature(symbol: Symbol) -> str:
    """Return the signature of the symbol in the installed library; ABSENT without one.

    Raises ImportError if its module cannot be imported.
    """
    if symbol.loaded_by_play:
        return _signature_in_source(symbol.address)
    module, _, path = symbol.address.partition(":")
    importlib.import_module(module)
    try:
        return signature_of(pkgutil.resolve_name(f"{module}:{path}"))
    except AttributeError:
        return ABSENT


def signatures_of(symbol: Symbol) -> tuple[str, ...]:
    """Return the signatures that the patch is written for."""
    return (symbol.signature,) if isinstance(symbol.signature, str) else symbol.signature


def fits(symbol: Symbol, found: str, *, is_called: bool) -> bool:
    """Return whether the patch fits a symbol with this signature.

    A symbol that is called and not replaced may have further parameters with defaults.
    """
    expected = signatures_of(symbol)
    return found in expected or (
        is_called and any(_has_only_defaults(found, each) for each in expected)
    )


def _has_only_defaults(found: str, expected: str) -> bool:
    """Return whether a signature is another one followed by parameters with plain defaults."""
    start = f"{expected.removesuffix(')')}, "
    added = found.removesuffix(")").removeprefix(start).split(", ")
    return found.startswith(start) and all("=" in each for each in added)


def _default(value: Any) -> Any:
    return value if value is inspect.Parameter.empty or isinstance(value, _PLAIN) else ...


def _signature_in_source(address: str) -> str:
    """Return the signature of a function without importing its module."""
    module, _, path = address.partition(":")
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    node: ast.AST | None = ast.parse(Path(spec.origin).read_bytes())
    for name in path.split("."):
        inner = getattr(node, "body", ())
        node = next((each for each in inner if getattr(each, "name", None) == name), None)
    return f"({ast.unparse(_bare(node.args))})" if isinstance(node, ast.FunctionDef) else ABSENT


def _bare(arguments: ast.arguments) -> ast.arguments:
    for each in ast.walk(arguments):
        if isinstance(each, ast.arg):
            each.annotation = None
    return arguments
