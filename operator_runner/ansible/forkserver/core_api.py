"""The client of the core API: 250 models, loaded if a role uses a module that needs them.

Of `kubernetes.core` these are k8s_cp, k8s_drain, k8s_exec and k8s_taint; the others use the dynamic
client. A run whose use was not noticed loads them itself.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path

from operator_runner.core.imports import import_lazily

_NAME = "kubernetes.client.api.core_v1_api"
_CLASS = "CoreV1Api"
_USERS = re.compile(r"\bk8s_(cp|drain|exec|taint)\b")
_YAML, _ROLES = "*.y*ml", "roles"
_MAX_FILES = 5_000


def import_core_api_lazily() -> None:
    """Make the modules import the API without its models; the first use loads them.

    k8s_exec imports it by the package's former name, which would import all 67 APIs.
    """
    sys.modules.setdefault("kubernetes.client.apis", import_module("kubernetes.client.api"))
    import_lazily(_NAME)


def load_core_api_for(contents: Iterable[Path]) -> None:
    """Load the API if a role or playbook, or a role beside it, uses it."""
    files = (file for content in contents for file in islice(_files_near(content), _MAX_FILES))
    for file in files:
        with contextlib.suppress(OSError, ValueError):
            if load_core_api_if_used(file.read_text()):
                return


def load_core_api_if_used(text: str) -> bool:
    """Load the API if tasks name a module that needs it; return whether they do."""
    used = _USERS.search(text) is not None
    if used:
        getattr(import_module(_NAME), _CLASS)
    return used


def _files_near(content: Path) -> Iterator[Path]:
    """Yield the YAML files of a role and of the roles beside it, or of a playbook and its roles."""
    if content.is_file():
        yield from content.parent.glob(_YAML)
        roles = [content.parent / _ROLES, content.parent.parent / _ROLES]
    else:
        roles = [content.parent if content.parent.name == _ROLES else content]
    for folder in roles:
        yield from folder.rglob(_YAML)
