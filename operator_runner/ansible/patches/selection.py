"""Select the patches that fit the installed libraries, by the signatures of their symbols."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
import inspect
import pkgutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from operator_runner.ansible.patches import registry
from operator_runner.ansible.patches.registry import ABSENT, LOADED_BY_PLAY, Patch

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


def installed_signature(address: str) -> str:
    """Return the signature of the symbol in the installed library; ABSENT without one.

    Raises ImportError if its module cannot be imported.
    """
    if address.startswith(LOADED_BY_PLAY):
        return _signature_in_source(address)
    module = address.partition(":")[0]
    try:
        importlib.import_module(module)
        return signature_of(pkgutil.resolve_name(address))
    except AttributeError:
        return ABSENT
    except ModuleNotFoundError:
        if not module.startswith("ansible_collections."):  # projects may have others
            raise
        return ABSENT


def fits(expected: str, found: str, *, is_called: bool) -> bool:
    """Return whether the patch fits a symbol with the signature that was found.

    A symbol that is called and not replaced may have further parameters with defaults.
    """
    signatures = expected.split(" or ")
    return found in signatures or (
        is_called and any(_has_only_defaults(found, each) for each in signatures)
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


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Reason why a patch is not applied, and the patches that are left out with it."""

    patch: str
    symbol: str
    version: str
    """Distribution and version that the symbol is of, such as `ansible-core 2.19.4`."""
    difference: str
    needs_cold_runs: bool
    """Whether warm runs would give other results without the patch, or gain nothing."""
    dependents: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return it as one line."""
        return f"patch {self.patch} does not fit {self.version}: {self.symbol}: {self.difference}"


class PatchSelection:
    """The patches that are applied in this process and its forks."""

    def __init__(self, installers: Mapping[str, Callable[..., None]]) -> None:
        """Take the functions that apply them, by the name of the patch."""
        self._installers = installers

    def __contains__(self, name: str) -> bool:
        """Return whether the patch is applied."""
        return name in self._installers

    def install(self, name: str, *args: Any) -> None:
        """Apply a patch, unless it is left out."""
        if name in self._installers:
            self._installers[name](*args)


def select(
    disabled: Collection[str] = (), patches: Iterable[Patch] | None = None
) -> tuple[PatchSelection, list[Mismatch]]:
    """Return the patches that can be applied, and why others cannot; imports what they patch.

    `disabled` names patches to leave out, without a mismatch; those that require one of them are
    left out as well.
    """
    patches = list(registry.PATCHES if patches is None else patches)
    installers: dict[str, Callable[..., None]] = {}
    mismatches: list[Mismatch] = []
    for patch in patches:
        if patch.name in disabled:
            continue
        found = _check(patch)
        if isinstance(found, Mismatch):
            mismatches.append(found)
        else:
            installers[patch.name] = found
    while unmet := [
        each for each in patches if each.name in installers and _lacks(each, installers)
    ]:
        for patch in unmet:
            del installers[patch.name]
            for mismatch in mismatches:
                if {mismatch.patch, *mismatch.dependents} & set(patch.requires):
                    mismatch.dependents.append(patch.name)
    return PatchSelection(installers), mismatches


def _lacks(patch: Patch, installers: Mapping[str, object]) -> bool:
    return any(name not in installers for name in patch.requires)


def _check(patch: Patch) -> Callable[..., None] | Mismatch:
    """Return the function that applies the patch if all its symbols are as it expects."""
    for address, expected in (*patch.replaces.items(), *patch.uses.items()):
        try:
            found = installed_signature(address)
        except ImportError as error:
            return _mismatch(patch, address, f"cannot be imported: {error}")
        if not fits(expected, found, is_called=address in patch.uses):
            return _mismatch(patch, address, f"expected {expected}, found {found}")
    try:
        install: Callable[..., None] = pkgutil.resolve_name(patch.install)
    except (ImportError, AttributeError) as error:
        return _mismatch(patch, patch.install, f"cannot be imported: {error}")
    return install


def _mismatch(patch: Patch, symbol: str, difference: str) -> Mismatch:
    needs_cold_runs = patch.is_essential or patch.gives_speed
    return Mismatch(patch.name, symbol, _version_of(patch, symbol), difference, needs_cold_runs)


def _version_of(patch: Patch, symbol: str) -> str:
    """Return the distribution that a symbol is of; of the first one where it is one of our own."""
    address = symbol if symbol != patch.install else next(iter(patch.replaces), symbol)
    top = address.partition(":")[0].partition(".")[0]
    distribution = {"ansible": "ansible-core", "ansible_runner": "ansible-runner"}.get(top, top)
    try:
        return f"{distribution} {importlib.metadata.version(distribution)}"
    except importlib.metadata.PackageNotFoundError:
        return distribution
