"""Select the patches that fit the installed libraries, and apply them."""

from __future__ import annotations

import importlib.metadata
import pkgutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from operator_runner.ansible.patches import registry
from operator_runner.ansible.patches.registry import Patch
from operator_runner.ansible.patches.signatures import fits, installed_signature, signatures_of


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

    def as_json(self) -> dict[str, Any]:
        """Return it as a process sends it to another one."""
        return asdict(self)


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
    for symbol in (*patch.replaces, *patch.uses):
        try:
            found = installed_signature(symbol)
        except ImportError as error:
            return _mismatch(patch, symbol.address, f"cannot be imported: {error}")
        if not fits(symbol, found, is_called=symbol in patch.uses):
            expected = " or ".join(signatures_of(symbol))
            return _mismatch(patch, symbol.address, f"expected {expected}, found {found}")
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
    address = symbol if symbol != patch.install else patch.replaces[0].address
    top = address.partition(":")[0].partition(".")[0]
    distribution = {"ansible": "ansible-core", "ansible_runner": "ansible-runner"}.get(top, top)
    try:
        return f"{distribution} {importlib.metadata.version(distribution)}"
    except importlib.metadata.PackageNotFoundError:
        return distribution
