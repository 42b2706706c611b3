"""Find what Ansible does not take literally in a path. Pure."""

from __future__ import annotations

import re
from collections.abc import Container
from pathlib import Path

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
