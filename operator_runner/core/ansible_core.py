"""The installed ansible-core, the newest one that has warm runs, and the paths that it takes."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Container
from pathlib import Path

from operator_runner.core.errors import RunError

NEWEST_CORE = (2, 21)
"""The newest ansible-core that the patches are tested with; plays run cold with later ones."""


def is_newer_core() -> bool:
    """Return whether the installed ansible-core is newer than those that patches are for."""
    return tuple(map(int, _installed().split(".")[:2])) > NEWEST_CORE


def check_core() -> None:
    """Raise RunError if the installed ansible-core is newer than those that patches are for.

    A function may have the same signature there and do something else.
    """
    if is_newer_core():
        newest = ".".join(map(str, NEWEST_CORE))
        raise RunError(
            f"ansible-core {_installed()} is newer than {newest}, the newest version with warm"
            f" runs: update operator-runner, or install ansible-core {newest}"
        )


def _installed() -> str:
    return importlib.metadata.version("ansible-core")


_VARIABLE = re.compile(r"\$(?:(\w+)|\{([^}]*)\})", re.ASCII)
"""As in os.path.expandvars, which Ansible applies to each path; unset variables are kept."""
_TEMPLATE = re.compile(r"\{[{%#]")
_CURE = "move the directory, or rename it"


def variable_problem(path: Path, variables: Container[str]) -> str:
    """Return the error of a path with the name of an environment variable; empty for none."""
    for found in _VARIABLE.finditer(str(path)):
        if (found[1] or found[2]) in variables:
            return f"{path}: Ansible puts the value of the variable in place of {found[0]}; {_CURE}"
    return ""


def path_problem(path: Path, variables: Container[str]) -> str:
    """Return the error of a path that Ansible has in search paths and templates; empty for none."""
    if ":" in str(path):
        return f"{path}: Ansible splits search paths at ':'; {_CURE}"
    if template := _TEMPLATE.search(str(path)):
        return f"{path}: Ansible evaluates '{template[0]}' as the start of a template; {_CURE}"
    return variable_problem(path, variables)
